//! Elementwise nodes as the machine will see them. Flows in: an op and its operands, of the types in
//! which they are computed; flows out: the node, or what it folds to. Invariant: a fold never changes
//! the shape of the result.

use crate::graph::node;
use monoglot_uop::linear::lanes;
use monoglot_uop::{DType, Dim, Op, ReduceOp, Scalar, UOp, fold::fold};
use smallvec::SmallVec;

/// Bytes of the narrowest vectors, within which lanes are moved at least cost.
pub(crate) const NEAR: usize = 16;

/// An elementwise op without an arg.
pub(crate) fn alu(op: Op, src: &[UOp]) -> UOp {
    folded(op, src).unwrap_or_else(|| node(op, src.iter().cloned()))
}

/// A scalar constant of a value's dtype.
pub(crate) fn c(like: &UOp, v: i64) -> UOp {
    UOp::int(v, like.dtype())
}

/// CAST, folded on constants.
pub(crate) fn cast(x: &UOp, to: DType) -> UOp {
    match x.const_value() {
        Some(v) if x.dtype() != to => UOp::constant(v, to),
        _ => x.cast(to),
    }
}

/// BITCAST between types of one width, folded on constants.
pub(crate) fn bitcast(x: &UOp, to: DType) -> UOp {
    match x.const_value() {
        _ if x.dtype() == to => x.clone(),
        Some(v) => UOp::constant(Scalar::from_bits(v.to_bits(x.dtype()), to), to),
        None => x.bitcast(to),
    }
}

/// A splat of a scalar over lanes.
pub(crate) fn splat(x: &UOp, lanes: usize) -> UOp {
    match lanes {
        1 => x.clone(),
        n => node(Op::Stack, std::iter::repeat_n(x.clone(), n)),
    }
}

/// A scalar as the shape of a value: a list of lanes is one of them.
fn splat_like(x: &UOp, like: &UOp) -> UOp {
    match like.shape().dims() {
        [Dim::Int(n @ 2..)] => splat(x, *n as usize),
        _ => x.broadcast(like.shape()),
    }
}

/// A number of lanes, or of a lane.
pub(crate) fn lane_const(n: usize) -> UOp {
    UOp::int(n as i64, DType::I32)
}

/// Lane `i` of a vector.
pub(crate) fn lane(x: &UOp, i: usize) -> UOp {
    match x.op() {
        _ if x.shape().is_empty() => x.clone(),
        Op::Stack => x.src()[i].clone(),
        Op::And if never(x, i) => UOp::bool(false),
        _ => x.at(&[lane_const(i)]),
    }
}

/// Whether a lane of a conjunction is false whatever is not known.
fn never(x: &UOp, i: usize) -> bool {
    let known = |s: &UOp| s.op() == Op::Stack && s.src()[i].is_bool(false);
    x.src().iter().any(known)
}

/// `n` lanes of a vector from lane `at`; a scalar where n is 1.
pub(crate) fn part(x: &UOp, at: usize, n: usize) -> UOp {
    if n == 1 {
        return lane(x, at);
    }
    let list = |k: usize| node(Op::Stack, [lane_const(k)]);
    node(Op::Shrink, [x.clone(), list(at), list(n)])
}

/// Lanes of one or two vectors of one length, each by the vector's place and its own.
pub(crate) fn shuffle(from: &[UOp], picks: &[(usize, usize)]) -> UOp {
    Shuffle::new(lanes(&from[0]), picks).of(from)
}

/// Which lanes are taken of one or two vectors: said once for all that are shuffled the same way.
pub(crate) struct Shuffle(UOp);

impl Shuffle {
    /// Picks as of [`shuffle`], of vectors of so many lanes.
    pub(crate) fn new(n: usize, picks: &[(usize, usize)]) -> Shuffle {
        let lane = |&(which, at): &(usize, usize)| lane_const(which * n + at);
        Shuffle(node(Op::Stack, picks.iter().map(lane)))
    }

    /// Those lanes of these vectors.
    pub(crate) fn of(&self, from: &[UOp]) -> UOp {
        match from {
            [one] => one.at(std::slice::from_ref(&self.0)),
            two => node(Op::Shuffle, two.iter().chain([&self.0]).cloned()),
        }
    }
}

/// One step of a fold.
pub(crate) fn combine(op: ReduceOp, a: &UOp, b: &UOp) -> UOp {
    let op = match (op, a.dtype()) {
        (ReduceOp::Add | ReduceOp::Max, DType::Bool) => Op::Or,
        (ReduceOp::Mul, DType::Bool) => Op::And,
        (op, _) => op.op(),
    };
    alu(op, &[a.clone(), b.clone()])
}

/// The unsigned integer as wide as a dtype.
pub(crate) fn bits_type(d: DType) -> DType {
    match d.bytes() {
        1 => DType::U8,
        2 => DType::U16,
        4 => DType::U32,
        _ => DType::U64,
    }
}

fn folded(op: Op, src: &[UOp]) -> Option<UOp> {
    let from = src[if op == Op::Where { 1 } else { 0 }].dtype();
    let to = if op.is_comparison() {
        DType::Bool
    } else {
        from
    };
    if let Some(n) = constant_lanes(src) {
        let at = |k: usize| -> Option<UOp> {
            let v: SmallVec<[Scalar; 3]> = src.iter().filter_map(|s| lane_value(s, k)).collect();
            Some(UOp::constant(fold(op, from, to, &v)?, to))
        };
        return match n {
            0 => at(0),
            n => Some(node(
                Op::Stack,
                (0..n).map(at).collect::<Option<SmallVec<[UOp; 16]>>>()?,
            )),
        };
    }
    if op == Op::Where {
        let first = uniform(&src[0])?.truthy();
        let (pick, other) = if first {
            (&src[1], &src[2])
        } else {
            (&src[2], &src[1])
        };
        return match (pick.shape() == other.shape(), pick.op(), other.op()) {
            (true, ..) | (_, _, Op::Const) => Some(pick.clone()),
            (_, Op::Const, _) => Some(splat_like(pick, other)),
            _ => None,
        };
    }
    if src[0].dtype().is_float() {
        return None;
    }
    let commutes = matches!(op, Op::Add | Op::Mul | Op::And | Op::Or | Op::Xor);
    if commutes && uniform(&src[0]).is_some() {
        return folded(op, &[src[1].clone(), src[0].clone()]);
    }
    by_constant(op, src).or_else(|| by_interval(op, src))
}

/// Lanes of operands that are all constants, 0 where they are scalars.
fn constant_lanes(src: &[UOp]) -> Option<usize> {
    let mut lanes = 0;
    for s in src {
        match s.op() {
            Op::Const => {}
            Op::Stack if s.src().iter().all(|l| l.op() == Op::Const) => lanes = s.src().len(),
            _ => return None,
        }
    }
    Some(lanes)
}

fn lane_value(u: &UOp, k: usize) -> Option<Scalar> {
    if u.op() == Op::Stack {
        u.src()[k].const_value()
    } else {
        u.const_value()
    }
}

/// The value of a constant, or that all lanes of a list are.
pub(crate) fn uniform(u: &UOp) -> Option<Scalar> {
    match u.op() {
        Op::Stack if u.src().iter().all(|s| *s == u.src()[0]) => u.src()[0].const_value(),
        _ => u.const_value(),
    }
}

/// What an operand that is a constant makes of an integer op.
fn by_constant(op: Op, src: &[UOp]) -> Option<UOp> {
    let a = &src[0];
    let scalar = src[0].shape().is_empty();
    let keep = |u: &UOp| {
        Some(u.clone()).filter(|u| {
            src.iter()
                .all(|s| s.shape() == u.shape() || s.op() == Op::Const)
        })
    };
    let value = src.get(1).and_then(uniform);
    let zero = value.is_some_and(Scalar::is_zero);
    let one = value.is_some_and(Scalar::is_one);
    let bools = a.dtype() == DType::Bool;
    match op {
        Op::Add | Op::Sub | Op::Or | Op::Xor | Op::Shl | Op::Shr if zero => keep(a),
        Op::Add if a.op() == Op::Add && scalar => {
            let x = &a.src()[0];
            let c = a.src()[1].const_value()?;
            let k = src[1].const_value()?;
            Some(alu(
                op,
                &[
                    x.clone(),
                    UOp::constant(fold(op, a.dtype(), a.dtype(), &[c, k])?, a.dtype()),
                ],
            ))
        }
        Op::Mul | Op::TruncDiv if one => keep(a),
        Op::And if bools && one || *a == src[1] => keep(a),
        Op::Or if *a == src[1] => keep(a),
        Op::Mul | Op::And if zero && scalar => Some(src[1].clone()),
        Op::Or if bools && one && scalar => Some(src[1].clone()),
        Op::TruncMod if one && scalar => Some(a.like(0)),
        Op::Not if a.op() == Op::Not => Some(a.src()[0].clone()),
        _ => None,
    }
}

/// What the intervals of scalars make of a comparison, a quotient or a remainder.
fn by_interval(op: Op, src: &[UOp]) -> Option<UOp> {
    if !src
        .iter()
        .all(|s| s.shape().is_empty() && s.dtype().is_int())
    {
        return None;
    }
    match op {
        op if op.is_comparison() => {
            let (lo, hi) = node(op, src.iter().cloned()).min_max()?;
            (lo == hi).then(|| UOp::constant(lo, DType::Bool))
        }
        Op::TruncDiv | Op::TruncMod => {
            let (lo, hi) = src[0].bounds();
            let n = src[1].as_int()?;
            let within = lo >= 0 && hi < n;
            within.then(|| {
                if op == Op::TruncMod {
                    src[0].clone()
                } else {
                    src[0].like(0)
                }
            })
        }
        _ => None,
    }
}
