//! The dialect's integers on a machine's. Flows in: operands in machine types and the intervals they
//! lie in; flows out: floor division and remainder by TRUNCDIV, TRUNCMOD, shifts and masks, shifts by
//! any amount by shifts that are in range, powers by squaring. Invariant: TRUNCDIV and TRUNCMOD never
//! meet a divisor 0 or the least value over −1.

use crate::build::{alu, c, cast};
use crate::native::Native;
use monoglot_uop::{DType, Op, UOp};

/// An inclusive interval.
pub(super) type Interval = (i64, i64);

/// How often `b` must be added so that what is at least `alo` becomes nonnegative, where that stays
/// in the dtype.
fn shift_up(d: DType, (alo, ahi): Interval, b: i64) -> Option<i64> {
    let k = (alo.checked_neg()?).checked_add(b - 1)? / b;
    let top = ahi.checked_add(k.checked_mul(b)?)?;
    (top as i128 <= d.max().to_i128()).then_some(k)
}

impl Native<'_> {
    /// floor(a / b), 0 where b = 0.
    pub(super) fn idiv(&self, a: &UOp, b: &UOp, ia: Interval, ib: Interval) -> UOp {
        let positive = a.dtype().is_unsigned() || ia.0 >= 0 && ib.0 >= 0;
        match b.as_int() {
            Some(0) => return self.and(a, &c(a, 0)),
            Some(n) if n > 0 && n & (n - 1) == 0 => {
                return self.shr(a, &c(a, n.trailing_zeros() as i64));
            }
            Some(_) if positive => return self.quotient(a, b),
            Some(-1) => return self.sub(&c(a, 0), a),
            Some(n) if n > 0 => {
                if let Some(k) = shift_up(a.dtype(), ia, n) {
                    let q = self.quotient(&self.add(a, &c(a, k * n)), b);
                    return self.add(&q, &c(a, -k));
                }
                let (sign, magnitude) = self.above_zero(a);
                return self.xor(&self.quotient(&magnitude, b), &sign);
            }
            _ => {}
        }
        let (zero, wraps) = odd_divisors(a, b, ia, ib);
        let safe = self.safe(b, zero, wraps);
        let mut q = self.quotient(a, &safe);
        if !positive {
            let r = self.sub(a, &self.mul(&q, &safe));
            q = self.select(&self.apart(&r, &safe, ib), &self.add(&q, &c(a, -1)), &q);
        }
        if wraps {
            q = self.select(&self.equal(b, &c(b, -1)), &self.sub(&c(a, 0), a), &q);
        }
        if zero {
            q = self.select(&self.equal(b, &c(b, 0)), &c(a, 0), &q);
        }
        q
    }

    /// a − b·floor(a / b), a where b = 0.
    pub(super) fn modulo(&self, a: &UOp, b: &UOp, ia: Interval, ib: Interval) -> UOp {
        let positive = a.dtype().is_unsigned() || ia.0 >= 0 && ib.0 >= 0;
        match b.as_int() {
            Some(0) => return a.clone(),
            Some(1 | -1) => return self.and(a, &c(a, 0)),
            Some(n) if n > 0 && n & (n - 1) == 0 => return self.and(a, &c(a, n - 1)),
            Some(_) if positive => return self.remainder(a, b),
            Some(n) if n > 0 => {
                if let Some(k) = shift_up(a.dtype(), ia, n) {
                    return self.remainder(&self.add(a, &c(a, k * n)), b);
                }
                let q = self.idiv(a, b, ia, ib);
                return self.sub(a, &self.mul(&q, b));
            }
            _ => {}
        }
        let (zero, wraps) = odd_divisors(a, b, ia, ib);
        let safe = self.safe(b, zero, wraps);
        let mut r = self.remainder(a, &safe);
        if !positive {
            r = self.select(&self.apart(&r, &safe, ib), &self.add(&r, &safe), &r);
        }
        if zero {
            r = self.select(&self.equal(b, &c(b, 0)), a, &r);
        }
        r
    }

    /// All bits of an integer's sign, and the integer or, of a negative one, its complement: below 0 a division by what
    /// is positive rounds down where that of the complement rounds to zero.
    fn above_zero(&self, a: &UOp) -> (UOp, UOp) {
        let sign = self.shr(a, &c(a, a.dtype().bits() as i64 - 1));
        let magnitude = self.xor(a, &sign);
        // What is known of it.
        let known = self.native(Op::Max, &[&magnitude, &c(a, 0)], || magnitude.clone());
        (sign, known)
    }

    fn safe(&self, b: &UOp, zero: bool, wraps: bool) -> UOp {
        let odd = [(zero, 0), (wraps, -1)]
            .into_iter()
            .filter(|o| o.0)
            .map(|o| self.equal(b, &c(b, o.1)));
        odd.reduce(|x, y| self.or(&x, &y))
            .map_or(b.clone(), |odd| self.select(&odd, &c(b, 1), b))
    }

    /// Whether a remainder is nonzero and its sign is not the divisor's.
    fn apart(&self, r: &UOp, b: &UOp, ib: Interval) -> UOp {
        let zero = &c(r, 0);
        if ib.0 >= 0 {
            return self.cmplt(r, zero);
        }
        if ib.1 < 0 {
            return self.cmplt(zero, r);
        }
        let differ = self.xor(&self.cmplt(r, zero), &self.cmplt(b, zero));
        self.and(&self.cmpne(r, zero), &differ)
    }

    /// A shift by any amount: past the width all bits leave.
    pub(super) fn shift(&self, op: Op, a: &UOp, b: &UOp, ib: Interval) -> UOp {
        let d = a.dtype();
        let bits = d.bits() as i64;
        let n = cast(b, d);
        let shift = |n: &UOp| alu(op, &[a.clone(), n.clone()]);
        if ib.0 >= 0 && ib.1 < bits {
            return shift(&n);
        }
        let mut fits = self.cmplt(b, &c(b, bits));
        if !(b.dtype().is_unsigned() || ib.0 >= 0) {
            fits = self.and(&fits, &self.cmplt(&c(b, -1), b));
        }
        if op == Op::Shr && !d.is_unsigned() {
            shift(&self.select(&fits, &n, &c(a, bits - 1)))
        } else {
            self.select(&fits, &shift(&self.and(&n, &c(a, bits - 1))), &c(a, 0))
        }
    }

    /// a^b by squaring, as many steps as the greatest exponent has bits; 0 for a negative exponent,
    /// except of 1 and −1.
    pub(super) fn int_pow(&self, a: &UOp, b: &UOp, ib: Interval) -> UOp {
        // What is at least the greatest i64 may have the highest bit, too.
        let steps = match b.dtype() {
            DType::U64 if ib.1 == i64::MAX => 64,
            _ => 64 - ib.1.max(0).leading_zeros(),
        };
        let one = c(a, 1);
        let mut base = a.clone();
        let mut out = c(a, 1);
        let odd = |x: &UOp| self.cmpne(&self.and(x, &c(b, 1)), &c(b, 0));
        for i in 0..steps {
            let bit = odd(&self.shr(b, &c(b, i as i64)));
            out = self.mul(&out, &self.select(&bit, &base, &one));
            if i + 1 < steps {
                base = self.mul(&base, &base);
            }
        }
        if b.dtype().is_unsigned() || ib.0 >= 0 {
            // A constant stands for a whole value, as that value's shape.
            return if out.shape() == a.shape() {
                out
            } else {
                out.broadcast(a.shape())
            };
        }
        let mut inverse = self.select(&self.equal(a, &one), &one, &c(a, 0));
        if !a.dtype().is_unsigned() {
            let sign = self.select(&odd(b), &c(a, -1), &one);
            inverse = self.select(&self.equal(a, &c(a, -1)), &sign, &inverse);
        }
        self.select(&self.cmplt(b, &c(b, 0)), &inverse, &out)
    }
}

/// Whether the divisor may be 0, and whether it may be −1 under the least value.
fn odd_divisors(a: &UOp, b: &UOp, ia: Interval, ib: Interval) -> (bool, bool) {
    let d = a.dtype();
    let least = !d.is_unsigned() && ia.0 as i128 <= d.min().to_i128();
    let may_be = |v| b.as_int().is_none() && ib.0 <= v && ib.1 >= v;
    (may_be(0), least && may_be(-1))
}
