//! Conditions on a RANGE solved for it, and values with something in its place. Flows in: a comparison,
//! or a value, and a RANGE; flows out: where the comparison holds, or the value there. Invariant: a read
//! whose index changes is gated, as it was the loop that kept it inside.

use super::affine::Affine;
use super::cast::keeps;
use crate::dtype::DType;
use crate::node::{Srcs, UOp};
use crate::op::Op;
use rustc_hash::FxHashMap;

pub(super) fn varies(x: &UOp, r: &UOp) -> bool {
    x.ranges().contains(r)
}

/// Substitute where `r` varies, and gate every read whose index this changes: it was the loop that kept it
/// inside.
pub fn placed(x: &UOp, r: &UOp, gate: Option<&UOp>, map: &FxHashMap<UOp, UOp>) -> UOp {
    let new = |u: &UOp, src: Srcs| match (u.op(), gate) {
        (Op::Index, Some(gate)) => gated_index(u, src, gate),
        (Op::Load, Some(_)) => gated_load(u, src),
        _ => u.with_src(src),
    };
    // What does not vary with `r` may hold another loop of the same number, which is not meant.
    x.rebuild(map, |u| varies(u, r), new)
}

/// INDEX whose changed indices are valid where the gate holds.
fn gated_index(u: &UOp, mut src: Srcs, gate: &UOp) -> UOp {
    for (new, old) in src.iter_mut().zip(u.src()).skip(1) {
        if new != old {
            *new = new.valid(gate);
        }
    }
    u.with_src(src)
}

/// LOAD, which has the gate itself where its index got one.
fn gated_load(u: &UOp, mut src: Srcs) -> UOp {
    let [storage, index] = src[0].src() else {
        return u.with_src(src);
    };
    if index.op() != Op::Where || !index.src()[2].is_invalid() {
        return u.with_src(src);
    }
    let gate = index.src()[0].clone();
    let inside = index.src()[1].clone();
    src[0] = storage.at(&[inside]);
    match src.get_mut(2) {
        Some(own) => *own = own.clone() & gate,
        None => src.extend([u.like(0), gate]),
    }
    u.with_src(src)
}

/// k·r + rest, with a rest that does not vary with r.
fn affine(l: &Affine, r: &UOp) -> Option<(i128, Affine)> {
    let k = l.terms.iter().find(|t| t.0 == *r)?.1;
    let mut rest = l.clone();
    rest.term(r, -k)?;
    rest.terms.retain(|t| t.1 != 0);
    if rest.terms.iter().any(|t| varies(&t.0, r)) {
        None
    } else {
        Some((k, rest))
    }
}

/// a - b of the operands of a comparison, in `index`.
fn difference(p: &UOp) -> Option<Affine> {
    let mut l = Affine::of(&in_index(&p.src()[0])?)?;
    l.plus(&Affine::of(&in_index(&p.src()[1])?)?, -1)?;
    Some(l)
}

/// An integer as `index`: without the CAST that it has, if that changes nothing.
fn in_index(x: &UOp) -> Option<UOp> {
    match x.op() {
        _ if x.dtype() == DType::Index => Some(x.clone()),
        _ if !x.dtype().is_int() => None,
        Op::Cast if x.src()[0].dtype() == DType::Index && keeps(&x.src()[0], x.dtype()) => {
            Some(x.src()[0].clone())
        }
        _ => Some(x.cast(DType::Index).simplify()),
    }
}

/// Whether p says that r is below something (or else from it on), and what.
pub fn solve_less(p: &UOp, r: &UOp) -> Option<(bool, UOp)> {
    if p.op() != Op::CmpLt {
        return None;
    }
    let (k, rest) = affine(&difference(p)?, r)?;
    // k·r + rest < 0
    let rest = rest.build();
    let at = if k > 0 {
        ((&rest * -1) + (k - 1) as i64) / k as i64
    } else {
        &rest / -k as i64 + 1
    };
    Some((k > 0, at))
}

/// The only r at which p can hold, and whether p holds there for certain.
pub fn solve_equal(p: &UOp, r: &UOp) -> Option<(UOp, bool)> {
    if p.op() != Op::CmpEq {
        return None;
    }
    if p.src()[0].dtype().is_float() {
        // A counter converted to float without loss equals e only where e, truncated, is the counter.
        let (c, e) = if varies(&p.src()[0], r) {
            (&p.src()[0], &p.src()[1])
        } else {
            (&p.src()[1], &p.src()[0])
        };
        let counter = c.op() == Op::Cast && c.src()[0].dtype() == DType::Index;
        if !counter || !keeps(&c.src()[0], c.dtype()) || varies(e, r) {
            return None;
        }
        let (k, rest) = affine(&Affine::of(&c.src()[0])?, r)?;
        let at = e.cast(DType::Index) - rest.build();
        return (k == 1).then_some((at, false));
    }
    let (k, rest) = affine(&difference(p)?, r)?;
    let rest = rest.build();
    Some(match k {
        1 => (&rest * -1, true),
        -1 => (rest, true),
        k => ((&rest * -(k.signum() as i64)) / k.abs() as i64, false),
    })
}
