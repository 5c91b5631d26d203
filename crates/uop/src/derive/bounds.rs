//! min_max: an interval that holds every value of a node. Bounds are exact in i128 and f64; an
//! interval that leaves its dtype becomes the dtype's range. A float without bounds may be NaN.
//! Flows in: a node and the bounds of its sources; flows out: the interval, or nothing where there
//! is none.

use crate::arg::{Arg, ReduceOp};
use crate::dtype::DType;
use crate::fold;
use crate::node::UOp;
use crate::op::{Arithmetic, Class, Op, Ternary, Unary};
use crate::scalar::Scalar;
use Scalar::{Bool, Float, Int};
use smallvec::SmallVec;

impl UOp {
    /// The least and greatest value, or None for void and for floats that may be NaN.
    pub fn min_max(&self) -> Option<(Scalar, Scalar)> {
        if self.op() == Op::Const {
            return bounds(self);
        }
        let full = |u: &UOp| u.op() == Op::Const || u.bounds_cell().get().is_some();
        self.fill(full, |u| _ = u.bounds_cell().set(bounds(u).map(Box::new)));
        self.bounds_cell().get().and_then(|b| b.as_deref().copied())
    }

    /// Bounds of an integer or bool as i64, saturated; the whole of i64 where there are none.
    pub fn bounds(&self) -> (i64, i64) {
        match self.min_max() {
            Some((lo, hi)) => (clamp(lo.to_i128()), clamp(hi.to_i128())),
            None => (i64::MIN, i64::MAX),
        }
    }

    /// The least value of an integer, saturated to i64.
    pub fn vmin(&self) -> i64 {
        self.bounds().0
    }

    /// The greatest value of an integer, saturated to i64.
    pub fn vmax(&self) -> i64 {
        self.bounds().1
    }
}

fn clamp(v: i128) -> i64 {
    v.clamp(i64::MIN as i128, i64::MAX as i128) as i64
}

type Interval = Option<(Scalar, Scalar)>;

fn range_of(d: DType) -> Interval {
    if d == DType::Void || d.is_float() {
        None
    } else {
        Some((d.min(), d.max()))
    }
}

fn point(v: Scalar) -> Interval {
    if v.to_f64().is_nan() {
        None
    } else {
        Some((v, v))
    }
}

fn within(d: DType, lo: Scalar, hi: Scalar) -> Interval {
    match (lo, hi, d.min(), d.max()) {
        (Int(a), Int(b), Int(min), Int(max)) if a < min || b > max => Some((Int(min), Int(max))),
        (Float(a), Float(b), ..) if a.is_nan() || b.is_nan() => None,
        _ => Some((lo, hi)),
    }
}

fn union(a: Interval, b: Interval) -> Interval {
    let (a, aa) = a?;
    let (b, bb) = b?;
    Some((least(a, b), greatest(aa, bb)))
}

fn least(a: Scalar, b: Scalar) -> Scalar {
    if fold::less(b, a) { b } else { a }
}

fn greatest(a: Scalar, b: Scalar) -> Scalar {
    if fold::less(a, b) { b } else { a }
}

fn bounds(u: &UOp) -> Interval {
    let d = u.dtype();
    let src = |i: usize| u.src()[i].min_max();
    let any = range_of(d);
    match u.op() {
        Op::Const => match u.const_value()? {
            Scalar::Invalid => any,
            v => point(v),
        },
        Op::Param if u.src().len() >= 3 => Some((src(1)?.0, src(2)?.1)),
        Op::Range | Op::Special => {
            let from = u
                .src()
                .get(1)
                .map_or(Some(0), |s| Some(s.min_max()?.0.to_i128()));
            let hi = u.src()[0].min_max()?.1.to_i128();
            Some((Int(from?), Int((hi - 1).max(from?))))
        }
        Op::Pad => match u.arg() {
            Arg::Fill(v) => union(src(0), point(*v)),
            _ => any,
        },
        Op::Bitcast => any,
        Op::Stack => {
            let parts = u.src().iter().map(UOp::min_max);
            parts.reduce(union).unwrap_or(any)
        }
        Op::Load if u.src().len() > 1 => union(src(0), src(1)),
        Op::Shuffle => union(src(0), src(1)),
        op if op.is_movement() => src(0),
        Op::Load | Op::Copy | Op::Contiguous | Op::ContiguousBackward | Op::Detach => src(0),
        // What is asserted is not proved: what computes with it may run before that is found out.
        Op::Assert => src(0),
        // What a store wrote may be outside of what was there.
        Op::After => stored(u),
        Op::Reduce => reduce(u).or(any),
        Op::Cast => cast(u),
        Op::Where => chosen(u).or(any),
        op if op.is_comparison() => comparison(u).or(any),
        op if op.is_elementwise() => arithmetic(u).or(any),
        _ => any,
    }
}

/// Either value, where what is compared with a bound is itself the value: no more than what the bound lets through.
fn chosen(u: &UOp) -> Interval {
    let [condition, yes, no] = u.src() else {
        return None;
    };
    let plain = || union(yes.min_max(), no.min_max());
    if condition.op() != Op::CmpLt || !u.dtype().is_int() {
        return plain();
    }
    let [below, above] = condition.src() else {
        return plain();
    };
    let (Some(less), Some(more)) = (below.min_max(), above.min_max()) else {
        return plain();
    };
    // What it is at least and at most by the comparison, which holds of `yes` and does not of `no`.
    let within = |value: &UOp, holds: bool| {
        let (lo, hi) = value.min_max()?;
        let [mut lo, mut hi] = [lo.to_i128(), hi.to_i128()];
        match holds {
            true if value == below => hi = hi.min(more.1.to_i128() - 1),
            true if value == above => lo = lo.max(less.0.to_i128() + 1),
            false if value == below => lo = lo.max(more.0.to_i128()),
            false if value == above => hi = hi.min(less.1.to_i128()),
            _ => {}
        }
        Some((lo, hi))
    };
    let (Some(yes), Some(no)) = (within(yes, true), within(no, false)) else {
        return plain();
    };
    // A value that would have to be more than it can be is never chosen.
    let (lo, hi) = match (yes.0 <= yes.1, no.0 <= no.1) {
        (true, false) => yes,
        (false, true) => no,
        (false, false) => return plain(),
        (true, true) => (yes.0.min(no.0), yes.1.max(no.1)),
    };
    Some((Int(lo), Int(hi)))
}

fn stored(u: &UOp) -> Interval {
    // It may stand behind stores to other storage too.
    let own = |s: &&UOp| s.op() == Op::Store && s.src()[1].dtype() == u.dtype();
    let stores = u.src()[1..].iter().filter(own);
    let values = stores.map(|s| s.src()[1].min_max());
    values.fold(u.src()[0].min_max(), union)
}

fn reduce(u: &UOp) -> Interval {
    let Arg::Reduce(op, axes) = u.arg() else {
        return None;
    };
    let (lo, hi) = u.src()[0].min_max()?;
    match op {
        ReduceOp::Max if u.dtype() != DType::Bool => {
            // An empty reduction gives the identity, which no bound of the source holds.
            let shape = u.src()[0].shape();
            let empty = axes
                .iter()
                .any(|&a| !matches!(shape[a as usize], crate::Dim::Int(1..)))
                || u.src()[1..]
                    .iter()
                    .any(|r| r.src().first().is_some_and(|n| n.vmin() < 1));
            if empty { None } else { Some((lo, hi)) }
        }
        ReduceOp::Add if u.dtype().is_int() => {
            let shape = u.src()[0].shape();
            let mut n: i128 = axes
                .iter()
                .map(|&a| shape[a as usize].max() as i128)
                .product();
            for r in &u.src()[1..] {
                n = n.checked_mul(r.vmax() as i128 + 1)?;
            }
            let a = lo.to_i128().checked_mul(n)?;
            let b = hi.to_i128().checked_mul(n)?;
            within(u.dtype(), Int(a.min(0)), Int(b.max(0)))
        }
        _ => None,
    }
}

fn cast(u: &UOp) -> Interval {
    let s = &u.src()[0];
    let d = u.dtype();
    let any = range_of(d);
    let Some((lo, hi)) = s.min_max() else {
        return any;
    };
    if d == DType::Bool {
        let zero = s.dtype().zero();
        let zero_in = !fold::less(zero, lo) && !fold::less(hi, zero);
        return Some((Bool(!zero_in), Bool(!(zero_in && lo == hi))));
    }
    if d.is_int() && !s.dtype().is_float() {
        return within(d, Int(lo.to_i128()), Int(hi.to_i128()));
    }
    // To and from floats both rounding and truncation are monotonic.
    let lo = lo.cast(d);
    let hi = hi.cast(d);
    within(d, lo, hi).or(any)
}

fn comparison(u: &UOp) -> Interval {
    let at = [u.src()[0].min_max()?, u.src()[1].min_max()?];
    // An order is monotonic in both operands; equality is two orders at once.
    let order = |op| corners(op, DType::Bool, &at).map(|(lo, hi)| (lo.truthy(), hi.truthy()));
    let (lo, hi) = match u.op() {
        Op::CmpEq | Op::CmpNe => {
            let (below, may_below) = order(Op::CmpLe)?;
            let (above, may_above) = order(Op::CmpGe)?;
            let lo = below && above;
            let hi = may_below && may_above;
            if u.op() == Op::CmpEq {
                (lo, hi)
            } else {
                (!hi, !lo)
            }
        }
        op => order(op)?,
    };
    Some((Bool(lo), Bool(hi)))
}

fn arithmetic(u: &UOp) -> Interval {
    let op = u.op();
    let d = u.dtype();
    let at: SmallVec<[(Scalar, Scalar); 3]> =
        u.src().iter().map(UOp::min_max).collect::<Option<_>>()?;
    match d {
        DType::Bool => corners(op, d, &at),
        d if d.is_float() => float(op, d, &at),
        _ => integer(op, d, &at),
    }
}

/// What an op that is monotonic in each operand gives at the ends of their intervals.
fn corners(op: Op, d: DType, at: &[(Scalar, Scalar)]) -> Interval {
    // By bit, at which operands' upper ends the value is taken.
    let value = |ends: usize| {
        let mut values = [Scalar::Invalid; 3];
        for (i, (lo, hi)) in at.iter().enumerate() {
            values[i] = if ends >> i & 1 == 0 { *lo } else { *hi };
        }
        fold::fold(op, d, d, &values[..at.len()]).and_then(point)
    };
    // What grows with both operands, or with one and falls with the other, is least and greatest at two ends.
    match op {
        Op::Add | Op::Max if d == DType::Index => union(value(0b00), value(0b11)),
        Op::Sub if d == DType::Index => union(value(0b10), value(0b01)),
        _ => (0..1 << at.len()).map(value).reduce(union)?,
    }
}

fn integer(op: Op, d: DType, at: &[(Scalar, Scalar)]) -> Interval {
    let a = at[0].0.to_i128();
    let aa = at[0].1.to_i128();
    let (b, bb) = at.get(1).map_or((0, 0), |i| (i.0.to_i128(), i.1.to_i128()));
    let most = |lo: i128, hi: i128| lo.unsigned_abs().max(hi.unsigned_abs()) as i128;
    let product = || most(a, aa).checked_mul(most(b, bb));
    let small = || product().is_some_and(|v| v < i128::MAX / 2);
    // `index` is mathematical: nothing wraps before it is seen whether it leaves the dtype.
    let monotonic = || {
        let (lo, hi) = corners(op, DType::Index, at)?;
        within(d, lo, hi)
    };
    match op.class() {
        Class::Unary(op) => match op {
            Unary::Neg => monotonic(),
            Unary::Not => corners(Op::Not, d, at),
            Unary::Trunc | Unary::Recip | Unary::Sqrt => None,
        },
        Class::Arithmetic(op) => match op {
            Arithmetic::Add | Arithmetic::Sub | Arithmetic::Max => monotonic(),
            Arithmetic::Mul if small() => monotonic(),
            Arithmetic::Idiv if b > 0 || bb < 0 => monotonic(),
            Arithmetic::TruncDiv if b > 0 => monotonic(),
            Arithmetic::Shr if b >= 0 && bb < 64 => monotonic(),
            Arithmetic::Shl if b >= 0 && bb < 63 && a >= 0 => monotonic(),
            Arithmetic::Mod if b > 0 => Some(remainder((a, aa), (b, bb))),
            Arithmetic::Mod if bb < 0 => Some((Int(b + 1), Int(0))),
            Arithmetic::TruncMod if b > 0 && a >= 0 => Some((Int(0), Int(aa.min(bb - 1)))),
            Arithmetic::And if a >= 0 || b >= 0 => {
                let top = |lo: i128, hi: i128| if lo >= 0 { hi } else { i128::MAX };
                Some((Int(0), Int(top(a, aa).min(top(b, bb)))))
            }
            Arithmetic::Or | Arithmetic::Xor if a >= 0 && b >= 0 => {
                let bits = 128 - aa.max(bb).leading_zeros();
                Some((Int(0), Int((1i128 << bits) - 1)))
            }
            Arithmetic::Mul | Arithmetic::Idiv | Arithmetic::TruncDiv => None,
            Arithmetic::Shr | Arithmetic::Shl | Arithmetic::Mod | Arithmetic::TruncMod => None,
            Arithmetic::And | Arithmetic::Or | Arithmetic::Xor => None,
            Arithmetic::Div | Arithmetic::Pow | Arithmetic::Threefry => None,
        },
        Class::Ternary(Ternary::MulAcc) if small() => monotonic(),
        _ => None,
    }
}

/// The interval of a mod b, for b > 0.
fn remainder((a, aa): (i128, i128), (b, bb): (i128, i128)) -> (Scalar, Scalar) {
    if a >= 0 && aa < b {
        (Int(a), Int(aa))
    } else if b == bb && fold::floor_div(a, b) == fold::floor_div(aa, b) {
        (Int(a.rem_euclid(b)), Int(aa.rem_euclid(b)))
    } else {
        (Int(0), Int(if a >= 0 { aa.min(bb - 1) } else { bb - 1 }))
    }
}

/// Finite intervals only: an infinity could meet its negative and make a NaN.
fn float(op: Op, d: DType, at: &[(Scalar, Scalar)]) -> Interval {
    let finite = at
        .iter()
        .all(|(lo, hi)| lo.to_f64().is_finite() && hi.to_f64().is_finite());
    match op.class() {
        Class::Unary(unary) => match unary {
            Unary::Neg => corners(op, d, at),
            Unary::Trunc if finite => corners(op, d, at),
            Unary::Sqrt if finite && at[0].0.to_f64() >= 0.0 => corners(op, d, at),
            Unary::Trunc | Unary::Sqrt | Unary::Recip | Unary::Not => None,
        },
        Class::Transcendental(_) => {
            let (lo, hi) = op.traits().within.filter(|_| finite)?;
            Some((Float(lo), Float(hi)))
        }
        Class::Arithmetic(binary) => match binary {
            Arithmetic::Max => corners(op, d, at),
            Arithmetic::Add | Arithmetic::Sub | Arithmetic::Mul if finite => corners(op, d, at),
            Arithmetic::Add | Arithmetic::Sub | Arithmetic::Mul | Arithmetic::Div => None,
            Arithmetic::Idiv | Arithmetic::Mod | Arithmetic::Pow | Arithmetic::Threefry => None,
            Arithmetic::TruncDiv | Arithmetic::TruncMod => None,
            Arithmetic::Xor | Arithmetic::Or | Arithmetic::And => None,
            Arithmetic::Shr | Arithmetic::Shl => None,
        },
        _ => None,
    }
}
