//! CAST and BITCAST. A conversion that loses nothing is dropped from between two others, and integer
//! arithmetic on converted indices is done in `index`, where it simplifies.

use super::{interval, limits};
use crate::arg::Arg;
use crate::dtype::DType;
use crate::node::UOp;
use crate::op::{Op, OpSet};
use crate::rewrite::Rule;
use crate::rule;
use crate::scalar::Scalar;

/// Ops that mean the same modulo any power of two.
const RING: OpSet = OpSet::of(&[Op::Add, Op::Sub, Op::Mul]);
/// Ops that need the numbers themselves.
const ORDER: OpSet = OpSet::of(&[Op::Max, Op::Idiv, Op::Mod, Op::CmpLt, Op::CmpNe, Op::CmpEq]);

pub(super) fn rules<C>() -> Vec<Rule<C>> {
    vec![
        // a CAST to the dtype that it has
        rule!(cast_same[u, x]: x.cast_().bind(u) => x, if u.dtype() == x.dtype()),
        // to bool is ≠ 0
        rule!(cast_to_bool[u, x]: x.cast_().bind(u) => x.ne_(&x.like(0)), if u.dtype() == DType::Bool && x.dtype() != DType::Bool),
        // (b)(a)x = (b)x where (a)x loses nothing
        rule!(cast_cast[u, v, x]: x.cast_().bind(v).cast_().bind(u) => x.cast(u.dtype()), if skips(x, v.dtype(), u.dtype())),
        // arithmetic modulo 2ⁿ on converted indices
        rule!(ring_in_index[u, v, w, x, y]: x.cast_().bind(v).with_(RING, y.cast_().bind(w)).bind(u) =>
            same_op(u, x, y).cast(u.dtype()), if index(y) && in_ring(u, x, y)),
        rule!(ring_in_index_constant[u, v, x, c: cnst]: x.cast_().bind(v).with_(RING, c).bind(u) =>
            same_op(u, x, &c.cast_index()?).cast(u.dtype()), if in_ring(u, x, c)),
        rule!(ring_in_index_constant_first[u, v, x, c: cnst]: c.with_(RING, x.cast_().bind(v)).bind(u) =>
            same_op(u, &c.cast_index()?, x).cast(u.dtype()), if in_ring(u, x, c)),
        // and what needs the numbers, where the conversion keeps them
        rule!(order_in_index[u, v, w, x, y]: x.cast_().bind(v).with_(ORDER, y.cast_().bind(w)).bind(u) =>
            lifted(u, same_op(u, x, y)), if index(x) && index(y) && whole(u, v) && keeps(x, v.dtype()) && keeps(y, w.dtype())),
        rule!(order_in_index_constant[u, v, x, c: cnst]: x.cast_().bind(v).with_(ORDER, c).bind(u) =>
            lifted(u, same_op(u, x, &c.cast_index()?)), if index(x) && v.dtype().is_int() && keeps(x, v.dtype())),
        rule!(order_in_index_constant_first[u, v, x, c: cnst]: c.with_(ORDER, x.cast_().bind(v)).bind(u) =>
            lifted(u, same_op(u, &c.cast_index()?, x)), if index(x) && v.dtype().is_int() && keeps(x, v.dtype())),
        // the bits of a constant
        rule!(bitcast_constant[u, c: cnst]: c.under(Op::Bitcast).bind(u) => bits(u, c)),
        // bits of bits
        rule!(bitcast_bitcast[u, v, x]: x.under(Op::Bitcast).bind(v).under(Op::Bitcast).bind(u) => x.try_bitcast(u.dtype()).ok()?,
            if x.dtype().bytes() == v.dtype().bytes() && v.dtype() != DType::Bool),
        rule!(bitcast_same[u, x]: x.under(Op::Bitcast).bind(u) => x, if u.dtype() == x.dtype()),
    ]
}

fn index(x: &UOp) -> bool {
    x.dtype() == DType::Index && !x.is_invalid()
}

/// Whether x ∘ y can be computed in `index`: a sum or product that stays in 64 bits.
fn in_ring(u: &UOp, x: &UOp, y: &UOp) -> bool {
    let ((a, aa), (b, bb)) = (interval(x), interval(y));
    let most = a.abs().max(aa.abs()).max(1).saturating_mul(b.abs().max(bb.abs()).max(1));
    u.dtype().is_int()
        && index(x)
        && (most < 1 << 62 || u.op() != Op::Mul && a.abs().max(aa.abs()) + b.abs().max(bb.abs()) < 1 << 62)
}

fn same_op(u: &UOp, x: &UOp, y: &UOp) -> UOp {
    UOp::new(u.op(), [x.clone(), y.clone()].as_slice(), Arg::None)
}

/// Whether the operation is the same on floats that are whole numbers: a quotient of floats rounds.
fn whole(u: &UOp, v: &UOp) -> bool {
    v.dtype().is_int() || !matches!(u.op(), Op::Idiv | Op::Mod)
}

/// The result in the dtype that the operation had: comparisons stay bool.
fn lifted(u: &UOp, new: UOp) -> UOp {
    new.cast(u.dtype())
}

impl UOp {
    /// An integer CONST as `index`.
    fn cast_index(&self) -> Option<UOp> {
        match self.const_value() {
            Some(Scalar::Int(v)) if i64::try_from(v).is_ok() => {
                Some(UOp::constant(Scalar::Int(v), DType::Index))
            }
            _ => None,
        }
    }
}

/// Whether every value of the integer (or bool) is one of `d` as it stands.
pub(crate) fn keeps(x: &UOp, d: DType) -> bool {
    if x.dtype().is_float() {
        return false;
    }
    let (lo, hi) = interval(x);
    let exact = |digits: u32| lo >= -(1 << digits) && hi <= 1 << digits;
    match d {
        DType::Bool => lo >= 0 && hi <= 1,
        DType::F8E4M3 => exact(4),
        DType::F8E5M2 => exact(3),
        DType::BF16 => exact(8),
        DType::F16 => exact(11),
        DType::F32 => exact(24),
        DType::F64 => exact(53),
        DType::Void => false,
        d => {
            let (min, max) = limits(d);
            lo >= min && hi <= max
        }
    }
}

/// Whether (b)(a)x = (b)x.
fn skips(x: &UOp, a: DType, b: DType) -> bool {
    let d = x.dtype();
    match (d.is_float(), a.is_float(), b.is_float()) {
        (true, true, _) => widens(d, a),
        (true, ..) => false,
        // Through a float, as a conversion back saturates where one of integers wraps.
        (false, true, false) => keeps(x, a) && (b == DType::Bool || keeps(x, b)),
        (false, false, false) if b != DType::Index && b.is_int() && a.is_int() && b.bits() <= a.bits() => {
            true
        }
        _ => keeps(x, a),
    }
}

/// Whether every float of the one dtype is one of the other.
fn widens(from: DType, to: DType) -> bool {
    use DType::*;
    match from {
        F8E4M3 | F8E5M2 => matches!(to, F16 | BF16 | F32 | F64),
        F16 | BF16 => matches!(to, F32 | F64),
        F32 => to == F64,
        _ => false,
    }
}

fn bits(u: &UOp, c: &UOp) -> Option<UOp> {
    let (from, to) = (c.dtype(), u.dtype());
    if from.bytes() != to.bytes() || from == DType::Bool || to == DType::Bool || c.is_invalid() {
        return None;
    }
    Some(UOp::constant(Scalar::from_bits(c.const_value()?.to_bits(from), to), to))
}
