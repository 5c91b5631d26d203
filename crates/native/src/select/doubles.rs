//! Conversions between floats of 64 bits and the integers that no instruction of every level makes of them. Flows in:
//! registers of lanes; flows out: the others. Invariant: as those of scalars, rounded to zero, past the ends of a type
//! the nearest of them, 0 for NaN.
//!
//! A float of 2⁵² and of what is added to it has that in its last bits; so has one of 2⁸⁴, in units of 2³².

use super::builder::Parts;
use super::scalar::ORDERED;
use super::{Selector, Shape};
use crate::code::{Level, Reg, Width};
use crate::table::Vector;
use monoglot_uop::DType;

const UNITS: f64 = (1u64 << 52) as f64;
const HALF: f64 = (1u64 << 32) as f64;
/// So many low bits less, an integer of 64 is an f64.
const SHORT: usize = 11;
/// ⌊x⌋ and x towards 0, as `RoundPd` is told.
const DOWN: i64 = 9;
const TO_ZERO: i64 = 11;

impl Selector<'_> {
    fn double(&mut self, value: f64, w: Width) -> Reg {
        self.b.splat_bits(value.to_bits(), 8, w)
    }

    /// An operation with a number.
    fn with(&mut self, op: Vector, w: Width, x: Reg, value: f64) -> Reg {
        let value = self.double(value, w);
        self.b.of(op, w, &[x, value], None)
    }

    /// f64 from the least of a type up to this, NaN as 0.
    fn clamped(&mut self, x: Reg, w: Width, to: DType, most: f64) -> Reg {
        let ordered = self.b.of(Vector::CmpPd, w, &[x, x], Some(ORDERED));
        let x = self.b.of(Vector::And, w, &[x, ordered], None);
        let x = self.with(Vector::MaxPd, w, x, to.min().to_i128() as f64);
        self.with(Vector::MinPd, w, x, most)
    }

    /// f64 as integers of at most 4 bytes, in lanes of 4.
    pub(super) fn words_of_doubles(
        &mut self,
        parts: &[Reg],
        of: Shape,
        to: DType,
        within: bool,
    ) -> Parts {
        let w = self.width(of);
        let high = to == DType::U32;
        let mut doubles = Parts::new();
        for &p in parts {
            let mut x = p;
            if !within {
                x = self.clamped(x, w, to, to.max().to_i128() as f64);
            }
            if high {
                x = self.b.of(Vector::RoundPd, w, &[x], Some(TO_ZERO));
                x = self.with(Vector::SubPd, w, x, HALF / 2.0);
            }
            doubles.push(x);
        }
        let mut words = self.draw_in(Vector::CvttPd2DQ, None, &doubles, of, 4);
        if high {
            let w = self.width(Shape { bytes: 4, ..of });
            let sign = self.sign_bits(4, w);
            for word in &mut words {
                *word = self.b.of(Vector::Xor, w, &[*word, sign], None);
            }
        }
        words
    }

    /// f64 as integers of 8 bytes: by halves, of which the upper one is rounded down.
    pub(super) fn longs_of_doubles(&mut self, parts: &[Reg], of: Shape, to: DType) -> Parts {
        let w = self.width(of);
        let past = (to.max().to_i128() + 1) as f64;
        let mut out = Parts::new();
        for &p in parts {
            let x = self.clamped(p, w, to, past);
            let end = self.double(past, w);
            let is_past = self.b.of(Vector::CmpPd, w, &[end, x], Some(2));
            if to == DType::I64 && self.b.level >= Level::V4 {
                let word = self.b.of(Vector::CvttPd2QQ, w, &[x], None);
                out.push(self.b.of(Vector::Xor, w, &[word, is_past], None));
                continue;
            }
            let whole = self.b.of(Vector::RoundPd, w, &[x], Some(TO_ZERO));
            let upper = self.with(Vector::MulPd, w, whole, 1.0 / HALF);
            let upper = self.b.of(Vector::RoundPd, w, &[upper], Some(DOWN));
            let above = self.with(Vector::MulPd, w, upper, HALF);
            let lower = self.b.of(Vector::SubPd, w, &[whole, above], None);
            let upper = self.with(Vector::AddPd, w, upper, 1.5 * UNITS);
            let lower = self.with(Vector::AddPd, w, lower, UNITS);
            let upper = self.b.of(Vector::ShlQImm, w, &[upper], Some(32));
            let low = self.low_bits(32, 8, w);
            let lower = self.b.of(Vector::And, w, &[lower, low], None);
            let both = self.b.of(Vector::Or, w, &[upper, lower], None);
            // What is past the end is the least number here, or 0: the complement of the greatest.
            out.push(self.b.of(Vector::Xor, w, &[both, is_past], None));
        }
        out
    }

    /// Integers of 8 bytes as f64, rounded once: where both halves are added.
    pub(super) fn doubles_of_longs(&mut self, parts: &[Reg], of: Shape, signed: bool) -> Parts {
        let w = self.width(of);
        let first = UNITS * HALF;
        let least = if signed { HALF * HALF / 2.0 } else { 0.0 };
        let low = self.low_bits(32, 8, w);
        let mut out = Parts::new();
        for &p in parts {
            let mut upper = self.b.of(Vector::ShrQImm, w, &[p], Some(32));
            if signed {
                let sign = self.b.splat_bits(1 << 31, 8, w);
                upper = self.b.of(Vector::Xor, w, &[upper, sign], None);
            }
            let upper = self.with(Vector::Or, w, upper, first);
            let upper = self.with(Vector::SubPd, w, upper, first + least + UNITS);
            let lower = self.b.of(Vector::And, w, &[p, low], None);
            let lower = self.with(Vector::Or, w, lower, UNITS);
            out.push(self.b.of(Vector::AddPd, w, &[upper, lower], None));
        }
        out
    }

    /// i64 as f32, rounded once: of what an f64 does not hold, low bits count as one.
    pub(super) fn singles_of_longs(&mut self, parts: &[Reg], of: Shape) -> Parts {
        if self.b.level >= Level::V4 {
            return self.draw_in(Vector::CvtQQ2Ps, None, parts, of, 4);
        }
        let w = self.width(of);
        let low = self.low_bits(SHORT, 8, w);
        let near = self.b.splat_bits(1 << 53, 8, w);
        let zero = self.b.constant([0; 64], w);
        let mut kept = Parts::new();
        for &p in parts {
            // A bit that no low one has: whether there are any.
            let rest = self.b.of(Vector::And, w, &[p, low], None);
            let carried = self.b.of(Vector::AddQ, w, &[rest, low], None);
            let carried = self
                .b
                .of(Vector::ShrQImm, w, &[carried], Some(SHORT as i64));
            let sticky = self
                .b
                .of(Vector::ShlQImm, w, &[carried], Some(SHORT as i64 - 1));
            let most = self.b.of(Vector::AndNot, w, &[low, p], None);
            let odd = self.b.of(Vector::Or, w, &[most, sticky], None);
            let up = self.b.of(Vector::AddQ, w, &[p, near], None);
            let up = self.b.of(Vector::ShrQImm, w, &[up], Some(54));
            let exact = self.b.of(Vector::CmpEqQ, w, &[up, zero], None);
            kept.push(self.b.of(Vector::Choose, w, &[exact, p, odd], None));
        }
        let doubles = self.doubles_of_longs(&kept, of, true);
        self.draw_in(Vector::CvtPd2Ps, None, &doubles, of, 4)
    }
}
