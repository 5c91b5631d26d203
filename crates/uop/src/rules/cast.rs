//! CAST and BITCAST. A conversion that loses nothing is dropped from between two others, and
//! integer arithmetic on converted indices is done in `index`, where it simplifies. Flows in: a
//! node of these ops; flows out: an equal value that costs no more, or nothing. Always: a value
//! that is out of range is converted as `fold` does.

use super::{has_room, interval};
use crate::dtype::DType;
use crate::node::UOp;
use crate::op::{Op, OpSet};
use crate::rewrite::Rule;
use crate::rule;
use crate::scalar::Scalar;

/// Ops that mean the same modulo any power of two.
const RING: OpSet = OpSet::of(&[Op::Add, Op::Sub, Op::Mul]);
/// These, and ops that need the numbers themselves.
const ARITHMETIC: OpSet = RING.union(OpSet::of(&[
    Op::Max,
    Op::Idiv,
    Op::Mod,
    Op::CmpLt,
    Op::CmpNe,
    Op::CmpEq,
]));

pub(super) fn rules() -> Vec<Rule> {
    vec![
        // a CAST to the dtype that it has
        rule!(cast_same[u, x]: x.cast_().bind(u) => x, if u.dtype() == x.dtype()),
        // to bool is ≠ 0
        rule!(cast_to_bool[u, x]: x.cast_().bind(u) => x.ne_(&x.like(0)), if u.dtype() == DType::Bool && x.dtype() != DType::Bool),
        // (b)(a)x = (b)x where (a)x loses nothing
        rule!(cast_cast[u, v, x]: x.cast_().bind(v).cast_().bind(u) => x.cast(u.dtype()), if skips(x, v.dtype(), u.dtype())),
        // arithmetic on converted indices, and constants, is the conversion of one of indices
        rule!(arithmetic_in_index[u, x, y]: x.cast_().with_(ARITHMETIC, y).bind(u) => in_index(u)),
        rule!(arithmetic_in_index_second[u, x, y]: x.with_(ARITHMETIC, y.cast_()).bind(u) => in_index(u)),
        // the bits of a constant
        rule!(bitcast_constant[u, c: cnst]: c.under(Op::Bitcast).bind(u) => bits(u, c)),
        // bits of bits
        rule!(bitcast_bitcast[u, v, x]: x.under(Op::Bitcast).bind(v).under(Op::Bitcast).bind(u) => x.try_bitcast(u.dtype()).ok()?,
            if x.dtype().bytes() == v.dtype().bytes() && v.dtype() != DType::Bool),
        rule!(bitcast_same[u, x]: x.under(Op::Bitcast).bind(u) => x, if u.dtype() == x.dtype()),
    ]
}

fn in_index(u: &UOp) -> Option<UOp> {
    let d = u.src()[0].dtype();
    let index = |s: &UOp| match s.const_value() {
        Some(Scalar::Int(v)) => i64::try_from(v).ok().map(UOp::index_const),
        _ if s.op() != Op::Cast => None,
        _ => Some(&s.src()[0])
            .filter(|x| x.dtype() == DType::Index && !x.is_invalid())
            .cloned(),
    };
    let x = index(&u.src()[0])?;
    let y = index(&u.src()[1])?;
    let fits = if RING.contains(u.op()) {
        d.is_int() && in_64_bits(u.op(), &x, &y)
    } else {
        // A quotient of floats rounds.
        (d.is_int() || !matches!(u.op(), Op::Idiv | Op::Mod)) && keeps(&x, d) && keeps(&y, d)
    };
    fits.then(|| x.binary(u.op(), &y).cast(u.dtype()))
}

/// Whether a sum or product stays in 64 bits.
fn in_64_bits(op: Op, x: &UOp, y: &UOp) -> bool {
    let most = |x: &UOp| interval(x).0.abs().max(interval(x).1.abs()).max(1);
    let a = most(x);
    let b = most(y);
    a.saturating_mul(b) < 1 << 62 || op != Op::Mul && a + b < 1 << 62
}

/// Whether every value of the integer (or bool) is one of `d` as it stands.
pub(crate) fn keeps(x: &UOp, d: DType) -> bool {
    if x.dtype().is_float() {
        return false;
    }
    let (lo, hi) = interval(x);
    let digits = match d {
        DType::F8E5M2 => 3,
        DType::F8E4M3 => 4,
        DType::BF16 => 8,
        DType::F16 => 11,
        DType::F32 => 24,
        DType::F64 => 53,
        d => return d != DType::Void && has_room(d, (lo, hi)),
    };
    lo >= -(1 << digits) && hi <= 1 << digits
}

/// Whether (b)(a)x = (b)x.
fn skips(x: &UOp, a: DType, b: DType) -> bool {
    let d = x.dtype();
    match (d.is_float(), a.is_float(), b.is_float()) {
        // Every float is one of every wider type.
        (true, true, _) => a.bytes() > d.bytes(),
        (true, ..) => false,
        // Through a float, as a conversion back saturates where one of integers wraps.
        (false, true, false) => keeps(x, a) && (b == DType::Bool || keeps(x, b)),
        (false, false, false)
            if b != DType::Index && b.is_int() && a.is_int() && b.bits() <= a.bits() =>
        {
            true
        }
        _ => keeps(x, a),
    }
}

fn bits(u: &UOp, c: &UOp) -> Option<UOp> {
    let from = c.dtype();
    let to = u.dtype();
    if from.bytes() != to.bytes() || from == DType::Bool || to == DType::Bool || c.is_invalid() {
        return None;
    }
    Some(UOp::constant(
        Scalar::from_bits(c.const_value()?.to_bits(from), to),
        to,
    ))
}
