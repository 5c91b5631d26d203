//! Division of integers, rounded to zero. Flows in: TRUNCDIV or TRUNCMOD of scalars or vectors; flows out: registers.
//! By a known number it is the high half of a product, and a shift (Granlund and Montgomery, "Division by Invariant
//! Integers using Multiplication", PLDI 1994); by another one each lane is divided by itself.

use super::builder::Parts;
use super::integer::width;
use super::lanes::{ADD, SUB, by_lane, number_in_each};
use super::shift::SHR;
use super::{Selector, Shape};
use crate::code::{Cond, Do, Level, Operand, Reg, Width};
use crate::table::Vector;
use monoglot_uop::{DType, Op, Result, UOp};

/// ⌈log2⌉ of what is at least 1.
fn log2_up(n: u64) -> u32 {
    64 - (n - 1).leading_zeros()
}

/// What stands for a division of words of so many bits: ⌊n·m / 2^(bits + shift)⌋.
struct Reciprocal {
    /// m, or what it exceeds 2^bits by.
    factor: u64,
    shift: u32,
    /// Whether m has one bit more than a word.
    longer: bool,
}

impl Reciprocal {
    /// Of what is at least 2, for numbers up to `most`. With s bits to shift m = ⌈2^s / by⌉ exceeds 2^s / by by less
    /// than 1, so n·m / 2^s is exact where 2^s is at least n·by.
    fn new(by: u64, most: u64, bits: u32) -> Reciprocal {
        let log = log2_up(by);
        let longer = most > 1 << (bits - 1);
        let shift = log - 1 + u32::from(longer);
        let factor = (1u128 << (bits + shift)).div_ceil(by.into());
        Reciprocal {
            factor: (factor & ((1 << bits) - 1)) as u64,
            shift: log - 1,
            longer,
        }
    }
}

/// Vectors that are divided by a known number.
struct Lanes {
    lane: usize,
    width: Width,
    /// Whether some may be negative.
    signed: bool,
    /// The greatest magnitude.
    most: u64,
    by: u64,
}

impl<'a> Selector<'a> {
    /// A division of scalars.
    pub(super) fn divide(&mut self, u: &'a UOp) -> Result<Reg> {
        let a = self.scalar(&u.src()[0])?;
        let d = u.dtype();
        let small = u.src()[0].vmin() >= 0 && u.src()[0].vmax() <= i32::MAX as i64;
        if let Some(by) = u.src()[1]
            .as_int()
            .filter(|&by| small && by > 0 && by <= i32::MAX as i64)
        {
            return Ok(self.divided_by(u.op(), d, a, by));
        }
        let c = self.scalar(&u.src()[1])?;
        Ok(self.quotient(u.op(), d, a, c, u.src()[1].bounds()))
    }

    /// A division of vectors.
    pub(super) fn divide_lanes(&mut self, u: &'a UOp, d: DType, of: Shape) -> Result<Parts> {
        let (lo, hi) = u.src()[0].bounds();
        // Bounds of u64 end where those of i64 do.
        let hi = if hi == i64::MAX {
            u64::MAX
        } else {
            hi.unsigned_abs()
        };
        let by = number_in_each(&u.src()[1]).filter(|by| *by > 0);
        let Some(by) = by else {
            if of.bytes <= 4 {
                return self.divide_by_lanes(u, d, of);
            }
            let bounds = u.src()[1].bounds();
            return self.each_lane(u, of, |s, r| Ok(s.quotient(u.op(), d, r[0], r[1], bounds)));
        };
        let lanes = Lanes {
            lane: of.bytes,
            width: self.width(of),
            signed: lo < 0,
            most: if lo < 0 { 1 << (8 * of.bytes - 1) } else { hi },
            by: by as u64,
        };
        let remainder = u.op() == Op::TruncMod;
        let parts = self.vector_parts(&u.src()[0], of)?;
        let each = parts.iter().map(|&x| match of.bytes {
            1 => self.bytes_divided(&lanes, x, remainder, d.is_unsigned()),
            _ => self.words_divided(&lanes, x, remainder),
        });
        Ok(each.collect())
    }

    /// A division by lanes, as floats: those of twice the bits and more hold quotients near enough, since one that is no
    /// whole number is at least 1/b from the next, and its error far less. The least number by −1 is itself.
    fn divide_by_lanes(&mut self, u: &'a UOp, d: DType, of: Shape) -> Result<Parts> {
        let [words, longs] = [4, 8].map(|bytes| Shape { bytes, ..of });
        let signed = !d.is_unsigned();
        let a = self.vector_parts(&u.src()[0], of)?;
        let b = self.vector_parts(&u.src()[1], of)?;
        let float = |s: &mut Self, parts: &[Reg]| match (of.bytes, signed) {
            (4, true) => s.spread_out(Vector::CvtDQ2Pd, parts, of, 8),
            (4, false) => {
                let parts = s.resize(parts, of, 8, false);
                s.doubles_of_longs(&parts, longs, false)
            }
            _ => {
                let parts = s.resize(parts, of, 4, signed);
                s.each(Vector::CvtDQ2Ps, words, &parts)
            }
        };
        let (divide, shape) = match of.bytes {
            4 => (Vector::DivPd, longs),
            _ => (Vector::DivPs, words),
        };
        let over = float(self, &a);
        let under = float(self, &b);
        let w = self.width(shape);
        let pairs = over.iter().zip(&under);
        let real: Parts = pairs
            .map(|(&x, &y)| self.b.of(divide, w, &[x, y], None))
            .collect();
        let quotient = match of.bytes {
            4 => self.words_of_doubles(&real, longs, d, true),
            _ => {
                let whole = self.each(Vector::CvttPs2DQ, words, &real);
                self.resize(&whole, words, of.bytes, true)
            }
        };
        if u.op() == Op::TruncDiv {
            return Ok(quotient);
        }
        let w = self.width(of);
        let rest = quotient.iter().zip(&b).zip(&a).map(|((&q, &b), &a)| {
            let whole = self.multiply(of.bytes, w, q, b);
            self.b.of(by_lane(of.bytes, SUB), w, &[a, whole], None)
        });
        Ok(rest.collect())
    }

    /// Bytes: those of even and those of odd places as words.
    fn bytes_divided(&mut self, of: &Lanes, x: Reg, remainder: bool, unsigned: bool) -> Reg {
        let w = of.width;
        let words = Lanes { lane: 2, ..*of };
        let low = self.low_bits(8, 2, w);
        let right = if unsigned {
            Vector::ShrWImm
        } else {
            Vector::SarWImm
        };
        let even = self.b.of(Vector::ShlWImm, w, &[x], Some(8));
        let even = self.b.of(right, w, &[even], Some(8));
        let odd = self.b.of(right, w, &[x], Some(8));
        let even = self.words_divided(&words, even, remainder);
        let odd = self.words_divided(&words, odd, remainder);
        let even = self.b.of(Vector::And, w, &[even, low], None);
        let odd = self.b.of(Vector::ShlWImm, w, &[odd], Some(8));
        self.b.of(Vector::Or, w, &[even, odd], None)
    }

    fn words_divided(&mut self, of: &Lanes, x: Reg, remainder: bool) -> Reg {
        let w = of.width;
        let subtract = by_lane(of.lane, SUB);
        let sign = of.signed.then(|| self.sign(of.lane, w, x));
        // −n is the complement of n, less all bits of a sign.
        let negated = |s: &mut Self, n: Reg| match sign {
            Some(sign) => {
                let turned = s.b.of(Vector::Xor, w, &[n, sign], None);
                s.b.of(subtract, w, &[turned, sign], None)
            }
            None => n,
        };
        let n = negated(self, x);
        let quotient = match of.by {
            1 => self.b.stable(n),
            _ => self.magnitudes_divided(of, n),
        };
        if !remainder {
            return negated(self, quotient);
        }
        let by = self.b.splat_bits(of.by, of.lane, w);
        let whole = self.multiply(of.lane, w, quotient, by);
        let rest = self.b.of(subtract, w, &[n, whole], None);
        negated(self, rest)
    }

    /// All bits of the sign of each word.
    fn sign(&mut self, lane: usize, w: Width, x: Reg) -> Reg {
        let op = match lane {
            2 => Vector::SarWImm,
            4 => Vector::SarDImm,
            _ if self.b.level >= Level::V4 => Vector::SarQImm,
            _ => {
                let zero = self.b.constant([0; 64], w);
                return self.b.of(Vector::CmpGtQ, w, &[zero, x], None);
            }
        };
        self.b.of(op, w, &[x], Some(8 * lane as i64 - 1))
    }

    fn magnitudes_divided(&mut self, of: &Lanes, n: Reg) -> Reg {
        let w = of.width;
        let short = of.lane == 8 && of.most <= 1 << 31 && of.by <= u32::MAX.into();
        let bits = if short { 32 } else { 8 * of.lane as u32 };
        let r = Reciprocal::new(of.by, of.most, bits);
        let factor = self.b.splat_bits(r.factor, of.lane, w);
        if short {
            let product = self.b.of(Vector::MulUDQ, w, &[n, factor], None);
            let shift = i64::from(bits + r.shift);
            return self.b.of(Vector::ShrQImm, w, &[product], Some(shift));
        }
        let right = by_lane(of.lane, SHR);
        let mut high = match of.lane {
            2 => self.b.of(Vector::MulHighUW, w, &[n, factor], None),
            4 => self.high_halves(w, n, factor),
            _ => self.high_words(w, n, r.factor),
        };
        if r.longer {
            // n·2^bits more, whose half is added before that bit is lost.
            let rest = self.b.of(by_lane(of.lane, SUB), w, &[n, high], None);
            let rest = self.b.of(right, w, &[rest], Some(1));
            high = self.b.of(by_lane(of.lane, ADD), w, &[rest, high], None);
        }
        match r.shift {
            0 => high,
            shift => self.b.of(right, w, &[high], Some(shift.into())),
        }
    }

    /// The high halves of products of 32 bits.
    fn high_halves(&mut self, w: Width, x: Reg, y: Reg) -> Reg {
        let b = &mut self.b;
        let even = b.of(Vector::MulUDQ, w, &[x, y], None);
        let even = b.of(Vector::ShrQImm, w, &[even], Some(32));
        let odd = b.of(Vector::ShrQImm, w, &[x], Some(32));
        let odd = b.of(Vector::MulUDQ, w, &[odd, y], None);
        let upper = b.splat_bits(!0 << 32, 8, w);
        let odd = b.of(Vector::And, w, &[odd, upper], None);
        b.of(Vector::Or, w, &[even, odd], None)
    }

    /// The high halves of products of 64 bits, out of four of halves.
    fn high_words(&mut self, w: Width, x: Reg, factor: u64) -> Reg {
        let b = &mut self.b;
        let low = b.splat_bits(factor & u64::from(u32::MAX), 8, w);
        let high = b.splat_bits(factor >> 32, 8, w);
        let half = b.splat_bits(u32::MAX.into(), 8, w);
        let upper = b.of(Vector::ShrQImm, w, &[x], Some(32));
        let least = b.of(Vector::MulUDQ, w, &[x, low], None);
        let least = b.of(Vector::ShrQImm, w, &[least], Some(32));
        let first = b.of(Vector::MulUDQ, w, &[upper, low], None);
        let first = b.of(Vector::AddQ, w, &[first, least], None);
        let second = b.of(Vector::MulUDQ, w, &[x, high], None);
        let carried = b.of(Vector::And, w, &[first, half], None);
        let second = b.of(Vector::AddQ, w, &[second, carried], None);
        let second = b.of(Vector::ShrQImm, w, &[second], Some(32));
        let first = b.of(Vector::ShrQImm, w, &[first], Some(32));
        let most = b.of(Vector::MulUDQ, w, &[upper, high], None);
        let most = b.of(Vector::AddQ, w, &[most, first], None);
        b.of(Vector::AddQ, w, &[most, second], None)
    }

    /// A number from 0 to 2³¹ − 1 by a known one: n·m / 2^s with m = ⌈2^s / d⌉ is exact there, where 2^s is at least
    /// 2³¹·d, since m·d exceeds 2^s by less than d.
    fn divided_by(&mut self, op: Op, d: DType, a: Reg, by: i64) -> Reg {
        let shift = 31 + i64::from(log2_up(by as u64));
        let m = ((1i128 << shift) + by as i128 - 1) / by as i128;
        let b = &mut self.b;
        let from = Operand::Reg(a);
        let quotient = if by == 1 {
            a
        } else {
            let m = b.number(m as i64);
            let product = b.general(Do::Mul, Width::W64, &[from, Operand::Reg(m)]);
            let src = [Operand::Reg(product), Operand::Imm(shift)];
            b.general(Do::Shr, Width::W64, &src)
        };
        if op == Op::TruncDiv {
            return b.stable(quotient);
        }
        let whole = [Operand::Reg(quotient), Operand::Imm(by)];
        let whole = b.general(Do::Mul, width(d), &whole);
        b.general(Do::Sub, width(d), &[from, Operand::Reg(whole)])
    }

    /// A division by a register, whose interval is known. The least number by −1, which traps, is a negation.
    fn quotient(&mut self, op: Op, d: DType, a: Reg, by: Reg, (lo, hi): (i64, i64)) -> Reg {
        let b = &mut self.b;
        let w = width(d);
        let signed = !d.is_unsigned();
        let traps = signed && d.bytes() >= 4 && lo <= -1 && hi >= -1;
        let how = match (op, signed) {
            (Op::TruncDiv, true) => Do::Div,
            (Op::TruncDiv, false) => Do::DivU,
            (_, true) => Do::Rem,
            _ => Do::RemU,
        };
        let mut divisor = Operand::Reg(by);
        let mut minus = None;
        if traps {
            let is = b.general(Do::Compare(Cond::Equal), w, &[divisor, Operand::Imm(-1)]);
            let one = b.number(1);
            let src = [Operand::Reg(is), Operand::Reg(one), divisor];
            divisor = Operand::Reg(b.general(Do::Select, Width::W64, &src));
            minus = Some(is);
        }
        let raw = b.general(how, w, &[Operand::Reg(a), divisor]);
        let raw = match minus {
            None => raw,
            Some(is) => {
                let other = match op {
                    Op::TruncDiv => b.general(Do::Neg, w, &[Operand::Reg(a)]),
                    _ => b.number(0),
                };
                let src = [Operand::Reg(is), Operand::Reg(other), Operand::Reg(raw)];
                b.general(Do::Select, Width::W64, &src)
            }
        };
        self.extended(raw, d)
    }
}
