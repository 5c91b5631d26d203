//! Lanes: one scalar in all of them, one or several of a vector, a vector of scalars, lanes of another width. Flows
//! in: a value and what is asked of it; flows out: registers. Always: lanes past a short vector's hold anything.

use super::builder::{Parts, one, splat};
use super::{Selector, Shape, is_constant, low};
use crate::code::{Class, Constant, Do, Level, Operand, Reg, Width};
use crate::table::Vector;
use monoglot_uop::linear::{self, gathered, lanes};
use monoglot_uop::{DType, Op, Result, UOp};
use smallvec::SmallVec;

/// An instruction by the bytes of its lanes.
pub(super) fn by_lane(lane: usize, of: [Vector; 4]) -> Vector {
    of[lane.trailing_zeros() as usize]
}

pub(super) const ADD: [Vector; 4] = [Vector::AddB, Vector::AddW, Vector::AddD, Vector::AddQ];
pub(super) const SUB: [Vector; 4] = [Vector::SubB, Vector::SubW, Vector::SubD, Vector::SubQ];

/// The number that every lane has.
pub(super) fn number_in_each(u: &UOp) -> Option<i64> {
    let one = match u.op() {
        Op::Const => u,
        _ => linear::splat(u)?,
    };
    one.as_int()
}

impl<'a> Selector<'a> {
    /// A scalar in every lane of a register of a shape.
    pub(super) fn broadcast(&mut self, reg: Reg, d: DType, shape: Shape) -> Reg {
        let width = self.width(shape);
        let reg = if d == DType::Bool {
            self.b.general(Do::Neg, Width::W64, &[Operand::Reg(reg)])
        } else {
            reg
        };
        let first = if self.b.code.regs[reg.0 as usize].class == Class::General {
            let op = if shape.bytes == 8 {
                Vector::MoveGprQ
            } else {
                Vector::MoveGprD
            };
            self.b.of(op, Width::X, &[reg], None)
        } else {
            reg
        };
        self.spread(first, shape.bytes, width)
    }

    /// The first lane in all of them.
    fn spread(&mut self, first: Reg, lane: usize, width: Width) -> Reg {
        let b = &mut self.b;
        if b.level > Level::V2 {
            let op = match lane {
                1 => Vector::BroadcastB,
                2 => Vector::BroadcastW,
                4 => Vector::BroadcastSs,
                _ => Vector::BroadcastQ,
            };
            return b.of(op, width, &[first], None);
        }
        match lane {
            1 => {
                let zero = b.constant([0; 64], Width::X);
                b.of(Vector::ShuffleB, Width::X, &[first, zero], None)
            }
            2 => {
                let pair = b.of(Vector::ShuffleLowW, Width::X, &[first], Some(0));
                b.of(Vector::ShuffleD, Width::X, &[pair], Some(0))
            }
            4 => b.of(Vector::ShuffleD, Width::X, &[first], Some(0)),
            _ => b.of(Vector::ShuffleD, Width::X, &[first], Some(0x44)),
        }
    }

    /// A vector that is put together.
    pub(super) fn stack(&mut self, u: &'a UOp) -> Result<Parts> {
        let shape = self.shape(u);
        if let Some((from, picks)) = gathered(u) {
            return self.shuffle(from, &picks, shape);
        }
        if let Some(s) = linear::splat(u) {
            if s.op() == Op::Const {
                return self.vector_parts(s, shape);
            }
            let count = self.count(shape);
            let scalar = Shape {
                n: 0,
                bytes: shape.bytes,
            };
            let in_memory = self.b.level > Level::V2 && s.dtype() != DType::Bool;
            if in_memory && let Operand::Mem(from) = self.source(s, scalar, 0)? {
                let width = self.width(shape);
                let op = match (shape.bytes, width) {
                    (1, _) => Vector::BroadcastB,
                    (2, _) => Vector::BroadcastW,
                    (4, _) => Vector::BroadcastSsMem,
                    (_, Width::Y | Width::Z) => Vector::BroadcastSdMem,
                    _ => Vector::BroadcastQ,
                };
                let reg = self.b.vector(op, width, &[Operand::Mem(from)]);
                self.b.code.regs[reg.0 as usize].lasting = self.lasts(s);
                return Ok(SmallVec::from_elem(reg, count));
            }
            let reg = self.scalar(s)?;
            let reg = self.broadcast(reg, s.dtype(), shape);
            return Ok(SmallVec::from_elem(reg, count));
        }
        if is_constant(u) {
            return Ok(self.constant_lanes(u, shape));
        }
        let scalar = Shape {
            n: 0,
            bytes: shape.bytes,
        };
        let mut scalars = Vec::with_capacity(u.src().len());
        for s in u.src() {
            scalars.push(match u.dtype() {
                DType::Bool => {
                    let word = Operand::Reg(self.scalar(s)?);
                    Operand::Reg(self.b.general(Do::Neg, Width::W64, &[word]))
                }
                _ => self.source(s, scalar, 0)?,
            });
        }
        let in_memory = |s: &Operand| matches!(s, Operand::Mem(_));
        let floats = Self::class(u.dtype()) == Class::Vector;
        if floats && !scalars.iter().all(in_memory) {
            for (to, s) in scalars.iter_mut().zip(u.src()) {
                *to = Operand::Reg(self.scalar(s)?);
            }
        }
        Ok(self.build(&scalars, shape))
    }

    /// Constants in the lanes of a shape; lanes past theirs are 0.
    pub(super) fn constant_lanes(&mut self, u: &UOp, shape: Shape) -> Parts {
        let width = self.width(shape);
        let per = self.per_part(shape);
        let mut parts = Parts::new();
        for list in u.src().chunks(per) {
            let mut constant: Constant = [0; 64];
            for (lane, s) in constant.chunks_mut(shape.bytes).zip(list) {
                lane.copy_from_slice(&self.lane_bits(s).to_le_bytes()[..shape.bytes]);
            }
            parts.push(self.b.constant(constant, width));
        }
        parts
    }

    /// A vector of scalars: in registers, or, of floats all, in memory.
    pub(super) fn build(&mut self, scalars: &[Operand], shape: Shape) -> Parts {
        let per = self.per_part(shape);
        let mut parts = Parts::new();
        for list in scalars.chunks(per) {
            let mut made: SmallVec<[Reg; 4]> = SmallVec::new();
            for piece in list.chunks(16 / shape.bytes) {
                made.push(self.build_piece(piece, shape.bytes));
            }
            parts.push(self.join(&made));
        }
        parts
    }

    /// Pieces of 16 bytes side by side in a register: one, two, or four, of which the last may be missing.
    pub(super) fn join(&mut self, pieces: &[Reg]) -> Reg {
        let mut two = |p: &[Reg]| match p {
            [low, high, ..] => {
                let pair = [*low, *high];
                self.b.of(Vector::Insert128, Width::Y, &pair, Some(1))
            }
            _ => p[0],
        };
        match pieces {
            [_, _, rest @ ..] if !rest.is_empty() => {
                let pair = [two(pieces), two(rest)];
                self.b.of(Vector::Insert256, Width::Z, &pair, Some(1))
            }
            _ => two(pieces),
        }
    }

    /// At most 16 bytes of scalars.
    fn build_piece(&mut self, scalars: &[Operand], lane: usize) -> Reg {
        let class = |s: &Self, r: Reg| s.b.code.regs[r.0 as usize].class;
        let first = match scalars[0] {
            Operand::Reg(first) if class(self, first) == Class::Vector => {
                return self.paired(scalars, lane);
            }
            from @ Operand::Mem(_) if lane < 4 => {
                let load = if lane == 1 { Do::Load8U } else { Do::Load16U };
                Operand::Reg(self.b.general(load, Width::W64, &[from]))
            }
            first => first,
        };
        let begin = match (first, lane) {
            (Operand::Mem(_), 8) => Vector::Load8,
            (Operand::Mem(_), _) => Vector::Load4,
            (_, 8) => Vector::MoveGprQ,
            _ => Vector::MoveGprD,
        };
        let insert = match lane {
            1 => Vector::InsertB,
            2 => Vector::InsertW,
            4 => Vector::InsertD,
            _ => Vector::InsertQ,
        };
        let mut reg = self.b.vector(begin, Width::X, &[first]);
        for (k, &s) in scalars.iter().enumerate().skip(1) {
            let src = [Operand::Reg(reg), s, Operand::Imm(k as i64)];
            reg = self.b.vector(insert, Width::X, &src);
        }
        reg
    }

    /// At most 16 bytes of floats in registers: pairs, and pairs of pairs.
    fn paired(&mut self, scalars: &[Operand], lane: usize) -> Reg {
        let mut pair = |op: Vector, p: &[Operand]| {
            Operand::Reg(self.b.vector(op, Width::X, &[p[0], p[p.len() - 1]]))
        };
        let mut list: SmallVec<[Operand; 4]> = scalars.iter().copied().collect();
        if lane == 4 && list.len() > 1 {
            let pairs = list.chunks(2);
            list = pairs.map(|p| pair(Vector::UnpackLowPs, p)).collect();
        }
        if list.len() == 2 {
            list = [pair(Vector::UnpackLowPd, &list)].into_iter().collect();
        }
        match list[0] {
            Operand::Reg(reg) => self.b.stable(reg),
            other => self.b.vector(Vector::Load8, Width::X, &[other]),
        }
    }

    /// The k-th 16 bytes of a register as low ones.
    pub(super) fn piece(&mut self, reg: Reg, k: usize) -> Reg {
        let width = match k {
            0 => return reg,
            1 => Width::Y,
            _ => Width::Z,
        };
        self.b.of(Vector::Extract128, width, &[reg], Some(k as i64))
    }

    /// A lane as a scalar of a dtype; of a mask, 0 or 1.
    pub(super) fn lane(&mut self, parts: &[Reg], shape: Shape, d: DType, i: usize) -> Reg {
        let per = self.per_part(shape);
        let part = parts[i / per];
        let at = i % per * shape.bytes;
        let half = self.piece(part, at / 16);
        let k = at % 16 / shape.bytes;
        let b = &mut self.b;
        if Self::class(d) == Class::Vector {
            return match (shape.bytes, k) {
                (_, 0) => b.stable(half),
                (4, k) => b.of(Vector::ShuffleD, Width::X, &[half], Some(k as i64)),
                _ => b.of(Vector::ShuffleD, Width::X, &[half], Some(0xee)),
            };
        }
        let src = [Operand::Reg(half), Operand::Imm(k as i64)];
        let word = match (shape.bytes, k) {
            (4, 0) => b.general_of(Vector::MoveVecD, Width::X, &src[..1]),
            (8, 0) => b.general_of(Vector::MoveVecQ, Width::X, &src[..1]),
            (1, _) => b.general_of(Vector::ExtractB, Width::X, &src),
            (2, _) => b.general_of(Vector::ExtractW, Width::X, &src),
            (4, _) => b.general_of(Vector::ExtractD, Width::X, &src),
            _ => b.general_of(Vector::ExtractQ, Width::X, &src),
        };
        let word = Operand::Reg(word);
        match d {
            DType::Bool => b.general(Do::And, Width::W32, &[word, Operand::Imm(1)]),
            DType::I8 => b.general(Do::Load8S, Width::W32, &[word]),
            DType::I16 => b.general(Do::Load16S, Width::W32, &[word]),
            _ => match word {
                Operand::Reg(word) => word,
                _ => half,
            },
        }
    }

    /// Lanes of a vector: one, a list, or a run.
    pub(super) fn pick(&mut self, u: &'a UOp) -> Result<Parts> {
        let v = &u.src()[0];
        let at = &u.src()[1];
        let list = match at.op() {
            Op::Stack => at.src(),
            _ => std::slice::from_ref(at),
        };
        let known: Option<Vec<i64>> = list.iter().map(UOp::as_int).collect();
        let picks = known.ok_or_else(|| self.unsupported(u))?;
        let first = *picks.first().ok_or_else(|| self.unsupported(u))?;
        if lanes(u) == 0 {
            let parts = self.parts(v)?;
            let from = self.shape(v);
            if from.n == 0 {
                return Ok(parts);
            }
            return Ok(one(self.lane(&parts, from, u.dtype(), first as usize)));
        }
        let shape = self.shape(u);
        let picks: Vec<i64> = match u.op() {
            Op::Shrink => (first..first + shape.n as i64).collect(),
            _ => picks,
        };
        self.shuffle([v, v], &picks, shape)
    }

    /// Lanes of another width: narrower ones are the low bits, wider ones extended, by their sign or by 0.
    pub(super) fn resize(&mut self, parts: &[Reg], from: Shape, to: usize, signed: bool) -> Parts {
        let shape = Shape {
            n: from.n,
            bytes: to,
        };
        if to == from.bytes {
            return parts.iter().copied().collect();
        }
        if to > from.bytes {
            return self.widen(parts, from, shape, signed);
        }
        self.narrow(parts, from, shape)
    }

    fn widen(&mut self, parts: &[Reg], from: Shape, to: Shape, signed: bool) -> Parts {
        let op = match (from.bytes, to.bytes, signed) {
            (1, 2, true) => Vector::ExtendSBW,
            (1, 4, true) => Vector::ExtendSBD,
            (1, 8, true) => Vector::ExtendSBQ,
            (2, 4, true) => Vector::ExtendSWD,
            (2, 8, true) => Vector::ExtendSWQ,
            (4, 8, true) => Vector::ExtendSDQ,
            (1, 2, false) => Vector::ExtendZBW,
            (1, 4, false) => Vector::ExtendZBD,
            (1, 8, false) => Vector::ExtendZBQ,
            (2, 4, false) => Vector::ExtendZWD,
            (2, 8, false) => Vector::ExtendZWQ,
            _ => Vector::ExtendZDQ,
        };
        let width = self.width(to);
        let per_from = self.per_part(from);
        let per = self.per_part(to);
        let mut out = Parts::new();
        for k in 0..self.count(to) {
            let start = k * per;
            let source = parts[start / per_from];
            let low = self.low_bytes(source, start % per_from * from.bytes, per * from.bytes);
            out.push(self.b.of(op, width, &[low], None));
        }
        out
    }

    /// So many bytes that stand from a byte of a register on, within a piece of 16 or 32, as the lowest ones.
    pub(super) fn low_bytes(&mut self, reg: Reg, at: usize, bytes: usize) -> Reg {
        if bytes > 16 {
            return match at {
                0 => reg,
                _ => self.b.of(Vector::Extract256, Width::Z, &[reg], Some(1)),
            };
        }
        let half = self.piece(reg, at / 16);
        match at % 16 {
            0 => half,
            8 => self.b.of(Vector::ShuffleD, Width::X, &[half], Some(0xee)),
            by => self
                .b
                .of(Vector::ShrBytes, Width::X, &[half], Some(by as i64)),
        }
    }

    fn narrow(&mut self, parts: &[Reg], from: Shape, to: Shape) -> Parts {
        if self.b.level >= Level::V4 {
            return self.narrow_each(parts, from, to);
        }
        // The low bytes of the lanes of each half come to its beginning, and such pieces side by side.
        let mut order = [0x80u8; 16];
        for (k, lane) in order.chunks_mut(to.bytes).take(16 / from.bytes).enumerate() {
            for (j, byte) in lane.iter_mut().enumerate() {
                *byte = (k * from.bytes + j) as u8;
            }
        }
        let mut constant: Constant = [0; 64];
        constant[..16].copy_from_slice(&order);
        let order = self.b.constant(constant, Width::X);
        let wide = self.width(from) == Width::Y;
        let mut pieces: Vec<Reg> = Vec::new();
        for &part in parts {
            for high in [false, true] {
                if high && !wide {
                    continue;
                }
                let half = self.piece(part, usize::from(high));
                pieces.push(self.b.of(Vector::ShuffleB, Width::X, &[half, order], None));
            }
        }
        let mut bytes = 16 / from.bytes * to.bytes;
        while bytes < 16 && pieces.len() > 1 {
            let op = match bytes {
                2 => Vector::UnpackLowWD,
                4 => Vector::UnpackLowDQ,
                _ => Vector::UnpackLowQDQ,
            };
            let pair = |p: &[Reg]| self.b.of(op, Width::X, &[p[0], p[p.len() - 1]], None);
            pieces = pieces.chunks(2).map(pair).collect();
            bytes *= 2;
        }
        if self.width(to) != Width::Y {
            return pieces.into_iter().collect();
        }
        let joined = |p: &[Reg]| {
            self.b.of(
                Vector::Insert128,
                Width::Y,
                &[p[0], p[p.len() - 1]],
                Some(1),
            )
        };
        pieces.chunks(2).map(joined).collect()
    }

    /// The same by an instruction for each register, whose results are put side by side.
    fn narrow_each(&mut self, parts: &[Reg], from: Shape, to: Shape) -> Parts {
        let op = match (from.bytes, to.bytes) {
            (2, _) => Vector::NarrowWB,
            (4, 1) => Vector::NarrowDB,
            (4, _) => Vector::NarrowDW,
            (8, 1) => Vector::NarrowQB,
            (8, 2) => Vector::NarrowQW,
            _ => Vector::NarrowQD,
        };
        let pieces = self.each(op, from, parts);
        self.side_by_side(pieces, 64 / from.bytes * to.bytes)
    }

    /// Registers of so many bytes, 8, 16 or 32, as registers of 64; the same where it is one.
    pub(super) fn side_by_side(&mut self, pieces: Parts, bytes: usize) -> Parts {
        let mut pieces = pieces;
        if pieces.len() == 1 {
            return pieces;
        }
        if bytes == 32 {
            let pair = |p: &[Reg]| {
                let pair = [p[0], p[p.len() - 1]];
                self.b.of(Vector::Insert256, Width::Z, &pair, Some(1))
            };
            return pieces.chunks(2).map(pair).collect();
        }
        if bytes == 8 {
            let pair = |p: &[Reg]| {
                let pair = [p[0], p[p.len() - 1]];
                self.b.of(Vector::UnpackLowQDQ, Width::X, &pair, None)
            };
            pieces = pieces.chunks(2).map(pair).collect();
        }
        pieces.chunks(4).map(|p| self.join(p)).collect()
    }

    /// All ones, or as many low bits as that, in each lane.
    pub(super) fn low_bits(&mut self, bits: usize, lane: usize, width: Width) -> Reg {
        self.b.constant(low(bits, lane), width)
    }

    /// The bits of the greatest of an unsigned type's halves: the sign.
    pub(super) fn sign_bits(&mut self, lane: usize, width: Width) -> Reg {
        self.b.constant(splat(1 << (8 * lane - 1), lane), width)
    }
}
