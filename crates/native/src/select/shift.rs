//! Shifts of vectors, by a number or by one a lane. Flows in: lanes; flows out: registers. Always: what is shifted past the
//! width is shifted out, the sign stays; lanes of which there is no instruction are done in longer ones.

use super::lanes::{SUB, by_lane, number_in_each};
use super::{Selector, Shape};
use crate::code::{Level, Reg, Width};
use crate::table::Vector;
use monoglot_uop::linear::lanes;
use monoglot_uop::{DType, Op, UOp};

const SHL: [Vector; 4] = [
    Vector::ShlWImm,
    Vector::ShlWImm,
    Vector::ShlDImm,
    Vector::ShlQImm,
];
pub(super) const SHR: [Vector; 4] = [
    Vector::ShrWImm,
    Vector::ShrWImm,
    Vector::ShrDImm,
    Vector::ShrQImm,
];
const SAR: [Vector; 4] = [
    Vector::SarWImm,
    Vector::SarWImm,
    Vector::SarDImm,
    Vector::SarQImm,
];
const SHL_BY: [Vector; 4] = [Vector::ShlVW, Vector::ShlVW, Vector::ShlVD, Vector::ShlVQ];
const SHR_BY: [Vector; 4] = [Vector::ShrVW, Vector::ShrVW, Vector::ShrVD, Vector::ShrVQ];
const SAR_BY: [Vector; 4] = [Vector::SarVW, Vector::SarVW, Vector::SarVD, Vector::SarVQ];

impl Selector<'_> {
    /// Whether there are instructions for a shift of vectors.
    pub(super) fn shifts(&self, u: &UOp, d: DType, of: Shape) -> bool {
        let signed = u.op() == Op::Shr && !d.is_unsigned();
        let longest = of.bytes == 8 && signed && self.b.level < Level::V4;
        number_in_each(&u.src()[1]).is_some() || self.shifts_by_lane() && !longest
    }

    /// Shifts for which there are instructions.
    pub(super) fn shift_lanes(
        &mut self,
        u: &UOp,
        signed: bool,
        lane: usize,
        w: Width,
        s: &[Reg],
    ) -> Reg {
        let left = u.op() == Op::Shl;
        let Some(by) = number_in_each(&u.src()[1]) else {
            let op = match (left, signed) {
                (true, _) => SHL_BY,
                (_, true) => SAR_BY,
                _ => SHR_BY,
            };
            return self.shifted_each(op, lane, w, s[0], s[1]);
        };
        // A count is a number without sign.
        let bits = 8 * lane as i64;
        let past = by < 0 || by >= bits;
        if past && !signed {
            return self.b.constant([0; 64], w);
        }
        let by = if past { bits - 1 } else { by };
        match (left, signed) {
            (true, _) => self.shifted_by(SHL, lane, w, s[0], by),
            (_, false) => self.shifted_by(SHR, lane, w, s[0], by),
            _ if lane == 1 || lane == 8 && self.b.level < Level::V4 => {
                // As numbers without sign that are half their range more.
                let more = self.sign_bits(lane, w);
                let shifted = self.b.of(Vector::Xor, w, &[s[0], more], None);
                let shifted = self.shifted_by(SHR, lane, w, shifted, by);
                let more = self.b.splat_bits(1 << (bits - 1) >> by, lane, w);
                self.b.of(by_lane(lane, SUB), w, &[shifted, more], None)
            }
            _ => self.shifted_by(SAR, lane, w, s[0], by),
        }
    }

    /// Lanes that are shifted by a number each. Those of which no instruction is are the halves of longer ones.
    fn shifted_each(&mut self, op: [Vector; 4], lane: usize, w: Width, x: Reg, by: Reg) -> Reg {
        let least = if self.b.level >= Level::V4 { 2 } else { 4 };
        if lane >= least {
            return self.b.of(by_lane(lane, op), w, &[x, by], None);
        }
        let long = 2 * lane;
        let bits = 8 * lane as i64;
        let low = self.low_bits(8 * lane, long, w);
        let lower = match op {
            SHL_BY => x,
            SHR_BY => self.b.of(Vector::And, w, &[x, low], None),
            _ => {
                let up = self.shifted_by(SHL, long, w, x, bits);
                self.shifted_by(SAR, long, w, up, bits)
            }
        };
        let upper = match op {
            SHL_BY => self.b.of(Vector::AndNot, w, &[low, x], None),
            _ => x,
        };
        let lower_by = self.b.of(Vector::And, w, &[by, low], None);
        let upper_by = self.shifted_by(SHR, long, w, by, bits);
        let lower = self.shifted_each(op, long, w, lower, lower_by);
        let upper = self.shifted_each(op, long, w, upper, upper_by);
        let lower = self.b.of(Vector::And, w, &[lower, low], None);
        let upper = self.b.of(Vector::AndNot, w, &[low, upper], None);
        self.b.of(Vector::Or, w, &[lower, upper], None)
    }

    /// Lanes that are shifted by a number; of bytes, which are as words, what came from the neighbour goes.
    fn shifted_by(&mut self, op: [Vector; 4], lane: usize, w: Width, x: Reg, by: i64) -> Reg {
        let shifted = self.b.of(by_lane(lane, op), w, &[x], Some(by));
        if lane > 1 {
            return shifted;
        }
        let kept = if op == SHL {
            0xffu64 << by & 0xff
        } else {
            0xff >> by
        };
        let kept = self.b.splat_bits(kept, 1, w);
        self.b.of(Vector::And, w, &[shifted, kept], None)
    }
}

/// What the lanes of a vector are that are turned by some bits, and by how many, where that is one instruction: the
/// bits that leave at one end come in at the other.
pub(super) fn rotation(u: &UOp, level: Level) -> Option<(&UOp, i64)> {
    let d = u.dtype();
    let wide = lanes(u) > 0 && d.is_unsigned() && matches!(d.bytes(), 4 | 8);
    if u.op() != Op::Or || !wide || level < Level::V4 {
        return None;
    }
    let of = |op: Op| u.src().iter().find(|s| s.op() == op);
    let [left, right] = [of(Op::Shl)?, of(Op::Shr)?];
    let [up, down] = [left, right].map(|s| number_in_each(&s.src()[1]));
    let [up, down] = [up?, down?];
    let bits = 8 * d.bytes() as i64;
    let same = left.src()[0] == right.src()[0];
    (same && up > 0 && down > 0 && up + down == bits).then_some((&left.src()[0], up))
}
