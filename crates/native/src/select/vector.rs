//! Vectors: an operation on every lane of each of their registers. Flows in: an elementwise operation; flows out:
//! registers. Always: masks have all bits of a lane set, or none; integers wrap; shifts past the width shift all out.

use super::builder::{Builder, Parts, splat};
use super::integer::condition;
use super::lanes::{ADD, SUB, by_lane};
use super::scalar::{by_type, predicate};
use super::shift::rotation;
use super::{Selector, Shape};
use crate::code::{Cond, Level, Operand, Reg, Width};
use crate::table::Vector;
use monoglot_uop::linear::lanes;
use monoglot_uop::{DType, Op, Result, UOp};

const EQUAL: [Vector; 4] = [
    Vector::CmpEqB,
    Vector::CmpEqW,
    Vector::CmpEqD,
    Vector::CmpEqQ,
];
const GREATER: [Vector; 4] = [
    Vector::CmpGtB,
    Vector::CmpGtW,
    Vector::CmpGtD,
    Vector::CmpGtQ,
];

impl<'a> Selector<'a> {
    /// An elementwise operation of vectors.
    pub(super) fn vectors(&mut self, u: &'a UOp, shape: Shape) -> Result<Parts> {
        let s = u.src();
        let d = s[0].dtype();
        let bytes = if d == DType::Bool {
            shape.bytes
        } else {
            d.bytes()
        };
        let of = Shape { n: shape.n, bytes };
        if let Some((x, by)) = rotation(u, self.b.level) {
            let op = match of.bytes {
                4 => Vector::RolDImm,
                _ => Vector::RolQImm,
            };
            let w = self.width(of);
            let parts = self.vector_parts(x, of)?;
            let turned = parts.iter().map(|&r| self.b.of(op, w, &[r], Some(by)));
            return Ok(turned.collect());
        }
        if let Some(parts) = self.two_sources(u, d, of)? {
            return Ok(parts);
        }
        if let Some(parts) = self.lane_by_lane(u, d, of)? {
            return Ok(parts);
        }
        let mut sources: Vec<Parts> = Vec::with_capacity(3);
        for s in s {
            sources.push(self.vector_parts(s, of)?);
        }
        let w = self.width(of);
        let mut out = Parts::new();
        for k in 0..self.count(of) {
            let regs: Vec<Reg> = sources.iter().map(|p| p[k]).collect();
            out.push(match d {
                DType::Bool => self.mask_of(u, bytes, w, &regs)?,
                DType::F32 | DType::F64 => self.floats_of(u, d, w, &regs)?,
                _ => self.integers_of(u, d, w, &regs)?,
            });
        }
        Ok(out)
    }

    /// Operations that are one instruction of two sources, of which one may be in memory.
    fn two_sources(&mut self, u: &'a UOp, d: DType, of: Shape) -> Result<Option<Parts>> {
        let lane = of.bytes;
        let op = match (u.op(), d) {
            (_, DType::Bool) => return Ok(None),
            (Op::Add, DType::F32 | DType::F64) => by_type(d, Vector::AddPs, Vector::AddPd),
            (Op::Sub, DType::F32 | DType::F64) => by_type(d, Vector::SubPs, Vector::SubPd),
            (Op::Mul, DType::F32 | DType::F64) => by_type(d, Vector::MulPs, Vector::MulPd),
            (Op::Div, DType::F32 | DType::F64) => by_type(d, Vector::DivPs, Vector::DivPd),
            (Op::MulAcc, DType::F32 | DType::F64) if self.b.level > Level::V2 => {
                return self.fused(u, d, of).map(Some);
            }
            (_, DType::F32 | DType::F64) => return Ok(None),
            (Op::Add, _) => by_lane(lane, ADD),
            (Op::Sub, _) => by_lane(lane, SUB),
            (Op::Mul, _) if lane == 4 => Vector::MulD,
            (Op::Mul, _) if lane == 2 => Vector::MulW,
            (Op::Mul, _) if lane == 8 && self.b.level >= Level::V4 => Vector::MulQ,
            (Op::And, _) => Vector::And,
            (Op::Or, _) => Vector::Or,
            (Op::Xor, _) => Vector::Xor,
            (Op::Max, _) => match (lane, d.is_unsigned()) {
                (1, true) => Vector::MaxUB,
                (2, true) => Vector::MaxUW,
                (4, true) => Vector::MaxUD,
                (1, false) => Vector::MaxSB,
                (2, false) => Vector::MaxSW,
                (4, false) => Vector::MaxSD,
                (8, true) if self.b.level >= Level::V4 => Vector::MaxUQ,
                (8, false) if self.b.level >= Level::V4 => Vector::MaxSQ,
                _ => return Ok(None),
            },
            _ => return Ok(None),
        };
        let s = u.src();
        let floats = d.is_float();
        let second = s[0].op() == Op::Const || floats && self.is_each(&s[0], of);
        let swaps = second && u.op().traits().commutes;
        let [x, y] = if swaps { [1, 0] } else { [0, 1] };
        let w = self.width(of);
        let mut out = Parts::new();
        // A bool that is counted: its mask is −1 where it holds.
        let counted = |s: &UOp| {
            let bools = s.op() == Op::Cast && s.src()[0].dtype() == DType::Bool;
            bools && lanes(&s.src()[0]) > 0 && u.op() == Op::Add && d.is_int()
        };
        if let Some(k) = s.iter().position(counted) {
            let masks = self.vector_parts(&s[k].src()[0], of)?;
            let others = self.vector_parts(&s[1 - k], of)?;
            for (&other, &mask) in others.iter().zip(&masks) {
                out.push(self.b.of(by_lane(lane, SUB), w, &[other, mask], None));
            }
            return Ok(Some(out));
        }
        let a = self.vector_parts(&s[x], of)?;
        for (k, &a) in a.iter().enumerate() {
            let b = match floats {
                true => self.factor(&s[y], of, k)?,
                false => self.source(&s[y], of, k)?,
            };
            out.push(self.b.vector(op, w, &[Operand::Reg(a), b]));
        }
        Ok(Some(out))
    }

    /// a·b + c, rounded once.
    fn fused(&mut self, u: &'a UOp, d: DType, of: Shape) -> Result<Parts> {
        let s = u.src();
        // Of the factors a constant comes first, since the second may be in memory.
        let fixed = s[1].op() == Op::Const || s[1].op() == Op::Stack && !self.is_each(&s[1], of);
        let swaps = fixed || self.is_each(&s[0], of);
        let [x, y] = if swaps { [1, 0] } else { [0, 1] };
        let op = by_type(d, Vector::FmaPs, Vector::FmaPd);
        let a = self.vector_parts(&s[x], of)?;
        let c = self.vector_parts(&s[2], of)?;
        let w = self.width(of);
        let mut out = Parts::new();
        for (k, &a) in a.iter().enumerate() {
            let b = self.factor(&s[y], of, k)?;
            out.push(
                self.b
                    .vector(op, w, &[Operand::Reg(a), b, Operand::Reg(c[k])]),
            );
        }
        Ok(out)
    }

    /// What no instruction does to vectors.
    fn lane_by_lane(&mut self, u: &'a UOp, d: DType, of: Shape) -> Result<Option<Parts>> {
        if matches!(d, DType::Bool | DType::F32 | DType::F64) {
            return Ok(None);
        }
        let parts = match u.op() {
            Op::TruncDiv | Op::TruncMod => self.divide_lanes(u, d, of)?,
            Op::Shl | Op::Shr if !self.shifts(u, d, of) => self.each_lane(u, of, |s, r| {
                s.shifted(u.op(), d, r[0], Operand::Reg(r[1]), false)
            })?,
            _ => return Ok(None),
        };
        Ok(Some(parts))
    }

    fn mask_of(&mut self, u: &UOp, lane: usize, w: Width, s: &[Reg]) -> Result<Reg> {
        let ones = self.b.splat_bits(u64::MAX, lane, w);
        let b = &mut self.b;
        Ok(match u.op() {
            Op::Neg | Op::Trunc => b.stable(s[0]),
            Op::Not => b.of(Vector::Xor, w, &[s[0], ones], None),
            Op::Add | Op::Or | Op::Max => b.of(Vector::Or, w, s, None),
            Op::Mul | Op::And => b.of(Vector::And, w, s, None),
            Op::Xor | Op::CmpNe => b.of(Vector::Xor, w, s, None),
            Op::CmpEq => {
                let other = b.of(Vector::Xor, w, s, None);
                b.of(Vector::Xor, w, &[other, ones], None)
            }
            Op::CmpLt => b.of(Vector::AndNot, w, &[s[0], s[1]], None),
            Op::CmpGt => b.of(Vector::AndNot, w, &[s[1], s[0]], None),
            Op::CmpLe | Op::CmpGe => {
                let [x, y] = if u.op() == Op::CmpLe { [0, 1] } else { [1, 0] };
                let not = b.of(Vector::Xor, w, &[s[x], ones], None);
                b.of(Vector::Or, w, &[not, s[y]], None)
            }
            Op::MulAcc => {
                let both = b.of(Vector::And, w, &s[..2], None);
                b.of(Vector::Or, w, &[both, s[2]], None)
            }
            _ => return Err(self.unsupported(u)),
        })
    }

    fn floats_of(&mut self, u: &UOp, d: DType, w: Width, s: &[Reg]) -> Result<Reg> {
        let of = |single, double| by_type(d, single, double);
        let lane = d.bytes();
        if let Some((predicate, swaps)) = predicate(u.op()) {
            let s = if swaps { [s[1], s[0]] } else { [s[0], s[1]] };
            let op = of(Vector::CmpPs, Vector::CmpPd);
            return Ok(self.b.of(op, w, &s, Some(predicate)));
        }
        let b = &mut self.b;
        Ok(match u.op() {
            Op::Max => {
                let of_bounds = |k: usize| u.src()[k].min_max().is_none();
                // What is looked at for NaN is not what waits for the maximum before.
                let swaps = !of_bounds(1) || is_accumulator(&u.src()[0]);
                let [x, y] = if swaps { [s[1], s[0]] } else { [s[0], s[1]] };
                let nan = of_bounds(usize::from(swaps));
                vector_max(b, d, w, x, y, nan)
            }
            Op::Neg => {
                let sign = b.constant(splat(1 << (8 * lane - 1), lane), w);
                b.of(Vector::XorPs, w, &[s[0], sign], None)
            }
            Op::Recip => {
                let one = if d == DType::F64 {
                    1f64.to_bits()
                } else {
                    1f32.to_bits() as u64
                };
                let one = b.splat_bits(one, lane, w);
                b.of(of(Vector::DivPs, Vector::DivPd), w, &[one, s[0]], None)
            }
            Op::Sqrt => b.of(of(Vector::SqrtPs, Vector::SqrtPd), w, s, None),
            Op::Trunc => b.of(of(Vector::RoundPs, Vector::RoundPd), w, s, Some(11)),
            _ => return Err(self.unsupported(u)),
        })
    }

    fn integers_of(&mut self, u: &UOp, d: DType, w: Width, s: &[Reg]) -> Result<Reg> {
        let lane = d.bytes();
        if let Some(cond) = condition(u.op(), d) {
            return Ok(self.compare_integers(cond, lane, w, [s[0], s[1]]));
        }
        if matches!(u.op(), Op::Shl | Op::Shr) {
            let signed = u.op() == Op::Shr && !d.is_unsigned();
            return Ok(self.shift_lanes(u, signed, lane, w, s));
        }
        Ok(match u.op() {
            Op::Mul => self.multiply(lane, w, s[0], s[1]),
            Op::MulAcc => {
                let product = self.multiply(lane, w, s[0], s[1]);
                self.b.of(by_lane(lane, ADD), w, &[product, s[2]], None)
            }
            Op::Neg => {
                let zero = self.b.constant([0; 64], w);
                self.b.of(by_lane(lane, SUB), w, &[zero, s[0]], None)
            }
            Op::Not => {
                let ones = self.b.splat_bits(u64::MAX, lane, w);
                self.b.of(Vector::Xor, w, &[s[0], ones], None)
            }
            Op::Trunc => self.b.stable(s[0]),
            Op::Max => {
                let cond = if d.is_unsigned() {
                    Cond::Above
                } else {
                    Cond::Greater
                };
                let first = self.compare_integers(cond, lane, w, [s[0], s[1]]);
                self.b.of(Vector::Choose, w, &[first, s[0], s[1]], None)
            }
            _ => return Err(self.unsupported(u)),
        })
    }

    /// A mask of the lanes that stand so to each other.
    fn compare_integers(&mut self, cond: Cond, lane: usize, w: Width, s: [Reg; 2]) -> Reg {
        let swap = [s[1], s[0]];
        let (greater, unsigned, not) = match cond {
            Cond::Equal | Cond::NotEqual => {
                let equal = self.b.of(by_lane(lane, EQUAL), w, &s, None);
                return if cond == Cond::Equal {
                    equal
                } else {
                    self.complement(equal, w)
                };
            }
            Cond::Greater => (s, false, false),
            Cond::Less => (swap, false, false),
            Cond::LessEqual => (s, false, true),
            Cond::GreaterEqual => (swap, false, true),
            Cond::Above => (s, true, false),
            Cond::Below => (swap, true, false),
            Cond::BelowEqual => (s, true, true),
            Cond::AboveEqual => (swap, true, true),
        };
        let greater = if unsigned {
            // With the sign bits turned the order is that of signed numbers.
            let sign = self.sign_bits(lane, w);
            greater.map(|r| self.b.of(Vector::Xor, w, &[r, sign], None))
        } else {
            greater
        };
        let mask = self.b.of(by_lane(lane, GREATER), w, &greater, None);
        if not { self.complement(mask, w) } else { mask }
    }

    fn complement(&mut self, mask: Reg, w: Width) -> Reg {
        let ones = self.b.splat_bits(u64::MAX, 8, w);
        self.b.of(Vector::Xor, w, &[mask, ones], None)
    }

    /// The low halves of products.
    pub(super) fn multiply(&mut self, lane: usize, w: Width, x: Reg, y: Reg) -> Reg {
        match lane {
            2 => self.b.of(Vector::MulW, w, &[x, y], None),
            4 => self.b.of(Vector::MulD, w, &[x, y], None),
            8 if self.b.level >= Level::V4 => self.b.of(Vector::MulQ, w, &[x, y], None),
            1 => {
                // Of pairs of bytes: the low ones as words, and the high ones, which stay where they are.
                let low = self.low_bits(8, 2, w);
                let even = self.b.of(Vector::MulW, w, &[x, y], None);
                let even = self.b.of(Vector::And, w, &[even, low], None);
                let x = self.b.of(Vector::ShrWImm, w, &[x], Some(8));
                let y = self.b.of(Vector::AndNot, w, &[low, y], None);
                let odd = self.b.of(Vector::MulW, w, &[x, y], None);
                self.b.of(Vector::Or, w, &[even, odd], None)
            }
            _ => {
                let b = &mut self.b;
                let low = b.of(Vector::MulUDQ, w, &[x, y], None);
                let x_high = b.of(Vector::ShrQImm, w, &[x], Some(32));
                let y_high = b.of(Vector::ShrQImm, w, &[y], Some(32));
                let first = b.of(Vector::MulUDQ, w, &[x_high, y], None);
                let second = b.of(Vector::MulUDQ, w, &[x, y_high], None);
                let cross = b.of(Vector::AddQ, w, &[first, second], None);
                let cross = b.of(Vector::ShlQImm, w, &[cross], Some(32));
                b.of(Vector::AddQ, w, &[low, cross], None)
            }
        }
    }

    /// WHERE.
    pub(super) fn choose(&mut self, u: &'a UOp) -> Result<Parts> {
        let shape = self.shape(u);
        let [gate, x, y] = u.src() else {
            return Err(self.unsupported(u));
        };
        let mut gate = gate;
        let mut x = x;
        let mut y = y;
        // What is chosen where a mask does not hold.
        while let Some(opposite) = complemented(gate) {
            gate = opposite;
            std::mem::swap(&mut x, &mut y);
        }
        if shape.n == 0 {
            let gate = self.scalar(gate)?;
            let first = self.scalar(x)?;
            let second = self.scalar(y)?;
            return Ok(self.chosen_scalar(gate, first, second));
        }
        if lanes(gate) == 0 {
            let first = self.vector_parts(x, shape)?;
            let second = self.vector_parts(y, shape)?;
            return self.chosen(gate, &first, &second, shape);
        }
        if let Some(parts) = self.lesser_or_greater(gate, x, y, shape)? {
            return Ok(parts);
        }
        let w = self.width(shape);
        let masks = self.vector_parts(gate, shape)?;
        let zero = |s: &Self, u: &UOp| {
            u.op() == Op::Const && s.lane_bits(u) == 0
                || monoglot_uop::linear::splat(u)
                    .is_some_and(|c| c.op() == Op::Const && s.lane_bits(c) == 0)
        };
        if zero(self, y) {
            let first = self.vector_parts(x, shape)?;
            let pairs = masks.iter().zip(&first);
            return Ok(pairs
                .map(|(&m, &a)| self.b.of(Vector::And, w, &[m, a], None))
                .collect());
        }
        let second = self.vector_parts(y, shape)?;
        if zero(self, x) {
            let pairs = masks.iter().zip(&second);
            return Ok(pairs
                .map(|(&m, &b)| self.b.of(Vector::AndNot, w, &[m, b], None))
                .collect());
        }
        let first = self.vector_parts(x, shape)?;
        self.chosen(gate, &first, &second, shape)
    }

    /// Of the registers of two values of a shape one's or the other's, by a bool or by one a lane.
    pub(super) fn chosen(
        &mut self,
        gate: &'a UOp,
        first: &[Reg],
        second: &[Reg],
        shape: Shape,
    ) -> Result<Parts> {
        if shape.n == 0 {
            let gate = self.scalar(gate)?;
            return Ok(self.chosen_scalar(gate, first[0], second[0]));
        }
        let w = self.width(shape);
        if lanes(gate) == 0 {
            let gate = self.scalar(gate)?;
            let out: Parts = second.iter().map(|&r| self.b.copy(r)).collect();
            self.b.variables.extend(out.iter().copied());
            self.b.skip(Cond::Equal, gate, 0, |b| {
                for (&to, &from) in out.iter().zip(first) {
                    b.put(crate::code::Do::Move, w, Some(to), &[Operand::Reg(from)]);
                }
            });
            return Ok(out);
        }
        let masks = self.vector_parts(gate, shape)?;
        let lanes = masks.iter().zip(first).zip(second);
        Ok(lanes
            .map(|((&m, &a), &c)| self.b.of(Vector::Choose, w, &[m, a, c], None))
            .collect())
    }

    /// `a < b ? a : b` and `a < b ? b : a` of floats, which are an instruction.
    fn lesser_or_greater(
        &mut self,
        gate: &'a UOp,
        x: &'a UOp,
        y: &'a UOp,
        shape: Shape,
    ) -> Result<Option<Parts>> {
        let floats = matches!(x.dtype(), DType::F32 | DType::F64);
        if !floats || gate.op() != Op::CmpLt {
            return Ok(None);
        }
        let [a, b] = gate.src() else {
            return Ok(None);
        };
        let op = match (a == x && b == y, a == y && b == x) {
            (true, _) => by_type(x.dtype(), Vector::MinPs, Vector::MinPd),
            (_, true) => by_type(x.dtype(), Vector::MaxPs, Vector::MaxPd),
            _ => return Ok(None),
        };
        let w = self.width(shape);
        let first = self.vector_parts(x, shape)?;
        let second = self.vector_parts(y, shape)?;
        let pairs = first.iter().zip(&second);
        Ok(Some(
            pairs
                .map(|(&a, &b)| self.b.of(op, w, &[a, b], None))
                .collect(),
        ))
    }

    fn chosen_scalar(&mut self, gate: Reg, first: Reg, second: Reg) -> Parts {
        let reg = match self.b.code.regs[first.0 as usize].class {
            crate::code::Class::General => {
                let src = [gate, first, second].map(Operand::Reg);
                self.b.general(crate::code::Do::Select, Width::W64, &src)
            }
            crate::code::Class::Vector => {
                let mask = self.scalar_mask(gate);
                self.b
                    .of(Vector::Choose, Width::X, &[mask, first, second], None)
            }
        };
        super::builder::one(reg)
    }
}

/// Whether a value is read from a register that a loop goes on with.
fn is_accumulator(u: &UOp) -> bool {
    let place = monoglot_uop::linear::address(u.src().first().unwrap_or(u));
    let kept = place.and_then(|a| a.buffer.addrspace());
    u.op() == Op::Load && kept == Some(monoglot_uop::AddrSpace::Reg)
}

/// The mask of which this one is the complement.
fn complemented(gate: &UOp) -> Option<&UOp> {
    let holds = |s: &UOp| {
        let constant = monoglot_uop::linear::splat(s).unwrap_or(s);
        constant.const_value().is_some_and(|v| v.truthy())
    };
    match (gate.op(), gate.src()) {
        _ if lanes(gate) == 0 => None,
        (Op::Not, [mask]) => Some(mask),
        (Op::Xor, [a, b]) if holds(a) => Some(b),
        (Op::Xor, [a, b]) if holds(b) => Some(a),
        _ => None,
    }
}

/// The greater of two in each lane; NaN where a is, if that may be, or b is.
fn vector_max(b: &mut Builder, d: DType, w: Width, x: Reg, y: Reg, nan: bool) -> Reg {
    let most = b.of(by_type(d, Vector::MaxPs, Vector::MaxPd), w, &[x, y], None);
    if !nan {
        return most;
    }
    let is = b.of(
        by_type(d, Vector::CmpPs, Vector::CmpPd),
        w,
        &[x, x],
        Some(3),
    );
    b.of(Vector::Choose, w, &[is, x, most], None)
}
