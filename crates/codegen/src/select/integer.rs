//! The dialect's integers on a machine's. Flows in: operands in machine types and the intervals they
//! lie in; flows out: floor division and remainder by TRUNCDIV, TRUNCMOD, shifts and masks, shifts by
//! any amount by shifts that are in range, powers by squaring. Invariant: TRUNCDIV and TRUNCMOD never
//! meet a divisor 0 or the least value over −1.

use super::build::{alu, cast};
use super::legal::Legal;
use monoglot_uop::{DType, Op, UOp};

/// An inclusive interval.
pub(super) type Interval = (i64, i64);

fn c(like: &UOp, v: i64) -> UOp {
    UOp::int(v, like.dtype())
}

/// How often `b` must be added so that what is at least `alo` becomes nonnegative, where that stays
/// in the dtype.
fn shift_up(d: DType, (alo, ahi): Interval, b: i64) -> Option<i64> {
    let k = (alo.checked_neg()?).checked_add(b - 1)? / b;
    let top = ahi.checked_add(k.checked_mul(b)?)?;
    (top as i128 <= d.max().to_i128()).then_some(k)
}

impl Legal<'_> {
    /// floor(a / b), 0 where b = 0.
    pub(super) fn idiv(&self, a: &UOp, b: &UOp, ia: Interval, ib: Interval) -> UOp {
        let d = a.dtype();
        let positive = d.is_unsigned() || ia.0 >= 0 && ib.0 >= 0;
        match b.as_int() {
            Some(0) => return alu(Op::And, &[a.clone(), c(a, 0)]),
            Some(n) if n > 0 && n & (n - 1) == 0 => {
                return alu(Op::Shr, &[a.clone(), c(a, n.trailing_zeros() as i64)]);
            }
            Some(_) if positive => return alu(Op::TruncDiv, &[a.clone(), b.clone()]),
            Some(-1) => return self.minus(&c(a, 0), a),
            Some(n) if n > 0 => {
                if let Some(k) = shift_up(d, ia, n) {
                    let q = alu(Op::TruncDiv, &[alu(Op::Add, &[a.clone(), c(a, k * n)]), b.clone()]);
                    return alu(Op::Add, &[q, c(a, -k)]);
                }
            }
            _ => {}
        }
        let (zero, wraps) = self.odd_divisors(a, b, ia, ib);
        let safe = self.safe(b, zero, wraps);
        let mut q = alu(Op::TruncDiv, &[a.clone(), safe.clone()]);
        if !positive {
            let r = self.minus(a, &alu(Op::Mul, &[q.clone(), safe.clone()]));
            let less = alu(Op::Add, &[q.clone(), c(a, -1)]);
            q = alu(Op::Where, &[self.apart(&r, &safe, ib), less, q]);
        }
        if wraps {
            q = alu(Op::Where, &[self.equal(b, &c(b, -1)), self.minus(&c(a, 0), a), q]);
        }
        if zero {
            q = alu(Op::Where, &[self.equal(b, &c(b, 0)), c(a, 0), q]);
        }
        q
    }

    /// a − b·floor(a / b), a where b = 0.
    pub(super) fn modulo(&self, a: &UOp, b: &UOp, ia: Interval, ib: Interval) -> UOp {
        let d = a.dtype();
        let positive = d.is_unsigned() || ia.0 >= 0 && ib.0 >= 0;
        match b.as_int() {
            Some(0) => return a.clone(),
            Some(1 | -1) => return alu(Op::And, &[a.clone(), c(a, 0)]),
            Some(n) if n > 0 && n & (n - 1) == 0 => return alu(Op::And, &[a.clone(), c(a, n - 1)]),
            Some(_) if positive => return alu(Op::TruncMod, &[a.clone(), b.clone()]),
            Some(n) if n > 0 => {
                if let Some(k) = shift_up(d, ia, n) {
                    return alu(Op::TruncMod, &[alu(Op::Add, &[a.clone(), c(a, k * n)]), b.clone()]);
                }
            }
            _ => {}
        }
        let (zero, wraps) = self.odd_divisors(a, b, ia, ib);
        let safe = self.safe(b, zero, wraps);
        let mut r = alu(Op::TruncMod, &[a.clone(), safe.clone()]);
        if !positive {
            let up = alu(Op::Add, &[r.clone(), safe.clone()]);
            r = alu(Op::Where, &[self.apart(&r, &safe, ib), up, r]);
        }
        if zero {
            r = alu(Op::Where, &[self.equal(b, &c(b, 0)), a.clone(), r]);
        }
        r
    }

    /// Whether the divisor may be 0, and whether it may be −1 under the least value.
    fn odd_divisors(&self, a: &UOp, b: &UOp, ia: Interval, ib: Interval) -> (bool, bool) {
        let d = a.dtype();
        let least = !d.is_unsigned() && ia.0 as i128 <= d.min().to_i128();
        let known = b.as_int();
        (known.is_none() && ib.0 <= 0 && ib.1 >= 0, known.is_none() && least && ib.0 <= -1 && ib.1 >= -1)
    }

    fn safe(&self, b: &UOp, zero: bool, wraps: bool) -> UOp {
        let mut odd = zero.then(|| self.equal(b, &c(b, 0)));
        if wraps {
            let minus = self.equal(b, &c(b, -1));
            odd = Some(odd.map_or(minus.clone(), |z| alu(Op::Or, &[z, minus])));
        }
        odd.map_or(b.clone(), |odd| alu(Op::Where, &[odd, c(b, 1), b.clone()]))
    }

    /// Whether a remainder is nonzero and its sign is not the divisor's.
    fn apart(&self, r: &UOp, b: &UOp, ib: Interval) -> UOp {
        let (zero, negative) = (c(r, 0), alu(Op::CmpLt, &[r.clone(), c(r, 0)]));
        if ib.0 >= 0 {
            return negative;
        }
        if ib.1 < 0 {
            return alu(Op::CmpLt, &[zero, r.clone()]);
        }
        let differ = alu(Op::Xor, &[negative, alu(Op::CmpLt, &[b.clone(), zero.clone()])]);
        alu(Op::And, &[alu(Op::CmpNe, &[r.clone(), zero]), differ])
    }

    /// A shift by any amount: past the width all bits leave.
    pub(super) fn shift(&self, op: Op, a: &UOp, b: &UOp, ib: Interval) -> UOp {
        let d = a.dtype();
        let bits = d.bits() as i64;
        let n = cast(b, d);
        if ib.0 >= 0 && ib.1 < bits {
            return alu(op, &[a.clone(), n]);
        }
        let fits = alu(Op::CmpLt, &[b.clone(), c(b, bits)]);
        let fits = match b.dtype().is_unsigned() || ib.0 >= 0 {
            true => fits,
            false => alu(Op::And, &[fits, alu(Op::CmpLt, &[c(b, -1), b.clone()])]),
        };
        if op == Op::Shr && !d.is_unsigned() {
            let n = alu(Op::Where, &[fits, n, c(a, bits - 1)]);
            return alu(op, &[a.clone(), n]);
        }
        let shifted = alu(op, &[a.clone(), alu(Op::And, &[n, c(a, bits - 1)])]);
        alu(Op::Where, &[fits, shifted, c(a, 0)])
    }

    /// a^b by squaring, as many steps as the greatest exponent has bits; 0 for a negative exponent,
    /// except of 1 and −1.
    pub(super) fn int_pow(&self, a: &UOp, b: &UOp, ib: Interval) -> UOp {
        let steps = 64 - ib.1.max(0).leading_zeros();
        let (one, mut base, mut out) = (c(a, 1), a.clone(), c(a, 1));
        for i in 0..steps {
            let bit = alu(Op::And, &[alu(Op::Shr, &[b.clone(), c(b, i as i64)]), c(b, 1)]);
            let factor = alu(Op::Where, &[alu(Op::CmpNe, &[bit, c(b, 0)]), base.clone(), one.clone()]);
            out = alu(Op::Mul, &[out, factor]);
            if i + 1 < steps {
                base = alu(Op::Mul, &[base.clone(), base]);
            }
        }
        if b.dtype().is_unsigned() || ib.0 >= 0 {
            return self.like_shape(out, a);
        }
        let odd = alu(Op::CmpNe, &[alu(Op::And, &[b.clone(), c(b, 1)]), c(b, 0)]);
        let minus = alu(Op::Where, &[odd, c(a, -1), c(a, 1)]);
        let mut inverse = alu(Op::Where, &[self.equal(a, &one), one.clone(), c(a, 0)]);
        if !a.dtype().is_unsigned() {
            inverse = alu(Op::Where, &[self.equal(a, &c(a, -1)), minus, inverse]);
        }
        alu(Op::Where, &[alu(Op::CmpLt, &[b.clone(), c(b, 0)]), inverse, out])
    }

    /// A constant that stands for a whole value, as that value's shape.
    fn like_shape(&self, x: UOp, like: &UOp) -> UOp {
        if x.shape() == like.shape() { x } else { x.broadcast(like.shape()) }
    }
}
