//! Lanes of two vectors in a new order. Flows in: the vectors and of each lane its number among theirs; flows out:
//! registers. Always: an instruction of its own where the machine has one for the order, else words put in their places
//! and blended, or bytes picked of each piece of 16 bytes and put together.

use super::builder::Parts;
use super::{Selector, Shape};
use crate::code::{Constant, Level, Reg, Width};
use crate::table::Vector;
use monoglot_uop::linear::lanes;
use monoglot_uop::{Result, UOp};
use smallvec::SmallVec;

/// A lane: which register, and which of its lanes.
type Lane = (Reg, usize);

impl<'a> Selector<'a> {
    /// Lanes of two vectors, as vectors of a shape.
    pub(super) fn shuffle(
        &mut self,
        from: [&'a UOp; 2],
        picks: &[i64],
        shape: Shape,
    ) -> Result<Parts> {
        let n = lanes(from[0]).max(1);
        let source = Shape {
            n,
            bytes: shape.bytes,
        };
        let a = self.vector_parts(from[0], source)?;
        let b = if from[0] == from[1] {
            a.clone()
        } else {
            self.vector_parts(from[1], source)?
        };
        let per = self.per_part(source);
        let place = |&p: &i64| -> Lane {
            let p = p as usize;
            let side = if p < n { &a } else { &b };
            let k = p % n;
            (side[k / per], k % per)
        };
        let all: Vec<Lane> = picks.iter().map(place).collect();
        let mut parts = Parts::new();
        for list in all.chunks(self.per_part(shape)) {
            parts.push(self.arrange(list, shape.bytes));
        }
        Ok(parts)
    }

    /// A register of lanes.
    fn arrange(&mut self, list: &[Lane], lane: usize) -> Reg {
        let first = list[0].0;
        if list.iter().enumerate().all(|(k, &l)| l == (first, k)) {
            return self.b.stable(first);
        }
        if list.len() * lane <= 16 {
            return self.arrange_half(list, lane);
        }
        if list.len() * lane == 32
            && list.iter().all(|l| (l.1 + 1) * lane <= 32)
            && let Some(reg) = self.arrange_whole(list, lane)
        {
            return reg;
        }
        if self.b.level >= Level::V4
            && let Some(reg) = self.look_up(list, lane)
        {
            return reg;
        }
        let pieces: SmallVec<[Reg; 4]> = list
            .chunks(16 / lane)
            .map(|piece| self.arrange_half(piece, lane))
            .collect();
        self.join(&pieces)
    }

    /// Lanes of at most two registers by their numbers, or of one order in all pieces: by numbers no bytes.
    fn look_up(&mut self, list: &[Lane], lane: usize) -> Option<Reg> {
        let [a, b] = sides(list)?;
        let table = match lane {
            2 => Some(Vector::TableW),
            4 => Some(Vector::TableD),
            8 => Some(Vector::TableQ),
            _ => None,
        };
        let upper = 32 / lane;
        if list.len() == upper && list.iter().enumerate().all(|(k, &l)| l == (a, upper + k)) {
            return Some(self.b.of(Vector::Extract256, Width::Z, &[a], Some(1)));
        }
        let highest = list.iter().map(|l| l.1 + 1).max()?.max(list.len());
        let width = Width::of_vector(highest * lane);
        if list.len() * lane == 64 {
            // The same order within all four pieces.
            let piece = 16 / lane;
            let order: SmallVec<[(usize, usize); 16]> = list[..piece]
                .iter()
                .map(|l| (usize::from(l.0 != a), l.1))
                .collect();
            let same = list.iter().enumerate().all(|(k, &(reg, at))| {
                let (side, first) = order[k % piece];
                reg == [a, b][side] && first < piece && at == first + k / piece * piece
            });
            if same && let Some(reg) = self.in_halves([a, b], &order, lane, width) {
                return Some(reg);
            }
        }
        let table = table?;
        let count = width.bytes() / lane;
        let mut order: Constant = [0; 64];
        for (to, &(reg, k)) in order.chunks_mut(lane).zip(list) {
            to[0] = (k + if reg == a { 0 } else { count }) as u8;
        }
        if a == b && lane == 4 {
            let order = self.b.constant(order, width);
            return Some(self.b.of(Vector::PermuteD, width, &[order, a], None));
        }
        let order = self.b.constant(order, width);
        Some(self.b.of(table, width, &[a, order, b], None))
    }

    /// A register of 32 bytes by one instruction.
    fn arrange_whole(&mut self, list: &[Lane], lane: usize) -> Option<Reg> {
        let half = 16 / lane;
        let sides = sides(list)?;
        let [a, b] = sides;
        let side = |l: Lane| usize::from(l.0 != a);
        // Whole halves.
        let whole = list.chunks(half).all(|h| {
            let (reg, k) = h[0];
            k % half == 0 && h.iter().enumerate().all(|(j, &l)| l == (reg, k + j))
        });
        if whole {
            let select = |l: Lane| (2 * side(l) + l.1 / half) as i64;
            let imm = select(list[0]) | select(list[half]) << 4;
            return Some(self.b.of(Vector::Permute128, Width::Y, &[a, b], Some(imm)));
        }
        // The same order within both halves.
        let order: SmallVec<[(usize, usize); 16]> =
            list[..half].iter().map(|&l| (side(l), l.1)).collect();
        let within = order.iter().all(|&(_, k)| k < half);
        let same = within
            && list[half..]
                .iter()
                .zip(&order)
                .all(|(&l, &(s, k))| side(l) == s && l.1 == k + half);
        if same && let Some(reg) = self.in_halves(sides, &order, lane, Width::Y) {
            return Some(reg);
        }
        // By a look-up of two registers where there is one.
        if lane < 4 || a != b && self.b.level >= Level::V4 {
            return None;
        }
        let placed = self.in_place(a, list, lane);
        if a == b {
            return Some(placed);
        }
        let other = self.in_place(b, list, lane);
        let words = lane / 4;
        let of = |k: usize| (side(list[k / words]) as i64) << k;
        let imm = Some((0..8).map(of).sum());
        Some(self.b.of(Vector::BlendPs, Width::Y, &[placed, other], imm))
    }

    /// The lanes of 32 bytes that are one register's in their places, by the numbers of their words.
    fn in_place(&mut self, reg: Reg, list: &[Lane], lane: usize) -> Reg {
        if list.iter().enumerate().all(|(k, l)| l.0 != reg || l.1 == k) {
            return reg;
        }
        let words = lane / 4;
        let mut order: Constant = [0; 64];
        for (k, word) in order[..32].chunks_mut(4).enumerate() {
            word[0] = (list[k / words].1 * words + k % words) as u8;
        }
        let order = self.b.constant(order, Width::Y);
        self.b.of(Vector::PermuteD, Width::Y, &[order, reg], None)
    }

    /// An instruction that puts lanes of two registers into an order within 16 bytes.
    fn in_halves(
        &mut self,
        [a, b]: [Reg; 2],
        order: &[(usize, usize)],
        lane: usize,
        width: Width,
    ) -> Option<Reg> {
        let half = 16 / lane;
        if order.len() != half {
            return None;
        }
        let is = |f: &dyn Fn(usize) -> (usize, usize)| (0..half).all(|k| order[k] == f(k));
        let both = a != b;
        let by_turns = |k: usize, high: usize| (usize::from(both && k % 2 == 1), k / 2 + high);
        let low = is(&|k| by_turns(k, 0));
        let high = is(&|k| by_turns(k, half / 2));
        if low || high {
            let op = match (lane, low) {
                (1, true) => Vector::UnpackLowBW,
                (1, false) => Vector::UnpackHighBW,
                (2, true) => Vector::UnpackLowWD,
                (2, false) => Vector::UnpackHighWD,
                (4, true) => Vector::UnpackLowPs,
                (4, false) => Vector::UnpackHighPs,
                (_, true) => Vector::UnpackLowPd,
                (_, false) => Vector::UnpackHighPd,
            };
            return Some(self.b.of(op, width, &[a, b], None));
        }
        if lane == 4 {
            let imm = (0..half).map(|k| (order[k].1 as i64) << (2 * k)).sum();
            if !both {
                return Some(self.b.of(Vector::ShuffleD, width, &[a], Some(imm)));
            }
            let of = |k: usize| order[k].0;
            if of(0) == of(1) && of(2) == of(3) {
                let pair = [[a, b][of(0)], [a, b][of(2)]];
                return Some(self.b.of(Vector::ShufflePs, width, &pair, Some(imm)));
            }
            if (0..half).all(|k| order[k].1 == k) {
                let imm: i64 = (0..half).map(|k| (of(k) as i64) << k).sum();
                let imm = imm * (0x1111 >> (16 - width.bytes() / 4));
                return Some(self.b.of(Vector::BlendPs, width, &[a, b], Some(imm)));
            }
        }
        if lane == 8 {
            let imm = order[0].1 as i64 | (order[1].1 as i64) << 1;
            let imm = imm * (0x55 >> (8 - width.bytes() / 8));
            let pair = [[a, b][order[0].0], [a, b][order[1].0]];
            return Some(self.b.of(Vector::ShufflePd, width, &pair, Some(imm)));
        }
        if !both && width != Width::X {
            let constant = bytes_of(&order.iter().map(|o| Some(o.1)).collect::<Vec<_>>(), lane);
            let order = self.b.constant(constant, width);
            return Some(self.b.of(Vector::ShuffleB, width, &[a, order], None));
        }
        None
    }

    /// At most 16 bytes of lanes.
    fn arrange_half(&mut self, list: &[Lane], lane: usize) -> Reg {
        let half = 16 / lane;
        // A run within a half.
        let (reg, start) = list[0];
        let run = list.iter().enumerate().all(|(k, &l)| l == (reg, start + k));
        if run && start / half == (start + list.len() - 1) / half {
            let low = self.low_bytes(reg, start * lane, list.len() * lane);
            return self.b.stable(low);
        }
        // The pieces that lanes come from, as registers of their own.
        let mut halves: Vec<(Reg, usize)> = Vec::new();
        let mut order: Vec<(usize, usize)> = Vec::with_capacity(list.len());
        for &(reg, k) in list {
            let of = (reg, k / half);
            let at = halves.iter().position(|&h| h == of).unwrap_or_else(|| {
                halves.push(of);
                halves.len() - 1
            });
            order.push((at, k % half));
        }
        let from: Vec<Reg> = halves.iter().map(|&(reg, k)| self.piece(reg, k)).collect();
        if from.len() <= 2 {
            let sides = [from[0], from[from.len() - 1]];
            let mut full = order.clone();
            // What is past a short vector is anything: the order goes on as it began, where it can.
            while full.len() < half {
                let k = full.len();
                let turn = full.len() - order.len();
                let (s, j) = order[turn % order.len()];
                full.push(match order[..] {
                    [(0, 0), (1, 0)] => (k % 2, k / 2),
                    _ => (s, j),
                });
            }
            if let Some(reg) = self.in_halves(sides, &full, lane, Width::X) {
                return reg;
            }
        }
        let mut made: Option<Reg> = None;
        for (at, &reg) in from.iter().enumerate() {
            let picks: Vec<Option<usize>> =
                order.iter().map(|&(s, k)| (s == at).then_some(k)).collect();
            let constant = bytes_of(&picks, lane);
            let constant = self.b.constant(constant, Width::X);
            let piece = self
                .b
                .of(Vector::ShuffleB, Width::X, &[reg, constant], None);
            made = Some(match made {
                Some(made) => self.b.of(Vector::Or, Width::X, &[made, piece], None),
                None => piece,
            });
        }
        made.unwrap_or(reg)
    }
}

/// The one or two registers that lanes come from.
fn sides(list: &[Lane]) -> Option<[Reg; 2]> {
    let a = list[0].0;
    let b = list.iter().map(|l| l.0).find(|&r| r != a).unwrap_or(a);
    list.iter().all(|l| l.0 == a || l.0 == b).then_some([a, b])
}

/// The bytes that a shuffle of bytes takes for these lanes, in both halves; 0 where it takes none.
fn bytes_of(picks: &[Option<usize>], lane: usize) -> Constant {
    let mut half = [0x80u8; 16];
    for (bytes, pick) in half.chunks_mut(lane).zip(picks) {
        if let Some(k) = pick {
            for (j, byte) in bytes.iter_mut().enumerate() {
                *byte = (k * lane + j) as u8;
            }
        }
    }
    let mut constant = [0; 64];
    for piece in constant.chunks_mut(16) {
        piece.copy_from_slice(&half);
    }
    constant
}
