//! Elementwise nodes as the machine will see them. Flows in: an op and its operands, of the types in
//! which they are computed; flows out: the node, or what it folds to. Invariant: a fold never changes
//! the shape of the result.

use crate::graph::{node, node_of};
use monoglot_uop::{DType, Op, Scalar, UOp, fold::fold};
use smallvec::SmallVec;

/// An elementwise op without an arg.
pub(super) fn alu(op: Op, src: &[UOp]) -> UOp {
    folded(op, src).unwrap_or_else(|| node_of(op, src.iter().cloned()))
}

/// CAST, folded on constants.
pub(super) fn cast(x: &UOp, to: DType) -> UOp {
    match x.const_value() {
        Some(v) if x.dtype() != to => UOp::constant(v, to),
        _ => x.cast(to),
    }
}

/// BITCAST between types of one width, folded on constants.
pub(super) fn bitcast(x: &UOp, to: DType) -> UOp {
    match x.const_value() {
        Some(v) => UOp::constant(Scalar::from_bits(v.to_bits(x.dtype()), to), to),
        None => x.bitcast(to),
    }
}

/// A splat of a scalar over lanes.
pub(super) fn splat(x: &UOp, lanes: usize) -> UOp {
    match lanes {
        1 => x.clone(),
        n => node_of(Op::Stack, std::iter::repeat_n(x.clone(), n)),
    }
}

/// A number of lanes, or of a lane.
pub(super) fn lane_const(n: usize) -> UOp {
    UOp::int(n as i64, DType::I32)
}

/// Lane `i` of a vector.
pub(super) fn lane(x: &UOp, i: usize) -> UOp {
    match x.op() {
        _ if x.shape().is_empty() => x.clone(),
        Op::Stack => x.src()[i].clone(),
        _ => x.at(&[lane_const(i)]),
    }
}

/// `n` lanes of a vector from lane `at`; a scalar where n is 1.
pub(super) fn part(x: &UOp, at: usize, n: usize) -> UOp {
    if n == 1 {
        return lane(x, at);
    }
    let list = |k: usize| node(Op::Stack, [lane_const(k)]);
    node(Op::Shrink, [x.clone(), list(at), list(n)])
}

fn folded(op: Op, src: &[UOp]) -> Option<UOp> {
    if src.iter().all(|s| s.op() == Op::Const) {
        let from = src[0].dtype();
        let to = match op {
            Op::Where => src[1].dtype(),
            op if op.is_comparison() => DType::Bool,
            _ => from,
        };
        let v: SmallVec<[Scalar; 3]> = src.iter().filter_map(UOp::const_value).collect();
        return Some(UOp::constant(fold(op, from, to, &v)?, to));
    }
    let d = src[0].dtype();
    if d.is_float() {
        return None;
    }
    let a = &src[0];
    let same = |u: &UOp| src.iter().all(|s| s.shape() == u.shape() || s.op() == Op::Const);
    let keep = |u: &UOp| same(u).then(|| u.clone());
    let number = |i: usize| src.get(i).and_then(UOp::as_int);
    match op {
        Op::Add | Op::Mul | Op::And | Op::Or | Op::Xor if a.op() == Op::Const => {
            folded(op, &[src[1].clone(), a.clone()])
        }
        Op::Add if number(1) == Some(0) => keep(a),
        Op::Add if a.op() == Op::Add => {
            let (x, c, k) = (&a.src()[0], a.src()[1].const_value()?, src[1].const_value()?);
            Some(alu(op, &[x.clone(), UOp::constant(fold(op, d, d, &[c, k])?, d)]))
        }
        Op::Sub | Op::Shl | Op::Shr | Op::Or | Op::Xor if number(1) == Some(0) => keep(a),
        Op::Mul | Op::TruncDiv if number(1) == Some(1) => keep(a),
        Op::Mul | Op::And if number(1) == Some(0) && a.shape().is_empty() => Some(src[1].clone()),
        Op::TruncMod if number(1) == Some(1) && a.shape().is_empty() => Some(a.like(0)),
        Op::And if src[1].is_bool(true) || *a == src[1] => keep(a),
        Op::And if src[1].is_bool(false) && a.shape().is_empty() => Some(src[1].clone()),
        Op::Or if src[1].is_bool(false) || *a == src[1] => keep(a),
        Op::Or if src[1].is_bool(true) && a.shape().is_empty() => Some(src[1].clone()),
        Op::Xor if src[1].is_bool(false) => keep(a),
        Op::Not if a.op() == Op::Not => keep(&a.src()[0]),
        Op::Where => {
            let yes = a.const_value()?.truthy();
            let pick = if yes { &src[1] } else { &src[2] };
            (src[1].shape() == src[2].shape()).then(|| pick.clone())
        }
        _ => None,
    }
}
