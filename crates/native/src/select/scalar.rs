//! Floats that are scalars: in the first lane of a vector register. Flows in: an operation on them; flows out: its
//! register, general where it is a bool. Invariant: MAX is NaN where either operand is.

use super::builder::splat;
use super::{Selector, Shape};
use crate::code::{Do, Level, Operand, Reg, Width};
use crate::table::Vector;
use monoglot_uop::{DType, Op, Result, UOp};

/// An instruction of f32, and of f64.
pub(super) fn by_type(d: DType, single: Vector, double: Vector) -> Vector {
    if d == DType::F64 { double } else { single }
}

/// The predicate of a comparison of floats, and whether its operands change places.
pub(super) fn predicate(op: Op) -> Option<(i64, bool)> {
    Some(match op {
        Op::CmpEq => (0, false),
        Op::CmpLt => (1, false),
        Op::CmpLe => (2, false),
        Op::CmpNe => (4, false),
        Op::CmpGt => (1, true),
        Op::CmpGe => (2, true),
        _ => return None,
    })
}

/// Comparisons that hold where no operand is NaN.
pub(super) const ORDERED: i64 = 7;

impl<'a> Selector<'a> {
    /// An operation on floats.
    pub(super) fn float(&mut self, u: &'a UOp) -> Result<Reg> {
        let s = u.src();
        let d = s[0].dtype();
        let shape = Shape {
            n: 0,
            bytes: d.bytes(),
        };
        if predicate(u.op()).is_some() {
            let a = self.scalar(&s[0])?;
            let b = self.scalar(&s[1])?;
            return self.float_of(u, d, &[a, b]);
        }
        if u.op() == Op::Max {
            // Where one is NaN the machine gives the second.
            let [first, second] = if s[1].min_max().is_some() {
                [1, 0]
            } else {
                [0, 1]
            };
            let a = self.scalar(&s[first])?;
            let b = self.scalar(&s[second])?;
            return Ok(self.float_max(d, a, b, s[first].min_max().is_none()));
        }
        let swaps = matches!(u.op(), Op::Add | Op::Mul) && s[0].op() == Op::Const;
        let [first, second] = if swaps { [1, 0] } else { [0, 1] };
        let plain = match u.op() {
            Op::Add => by_type(d, Vector::AddSs, Vector::AddSd),
            Op::Sub => by_type(d, Vector::SubSs, Vector::SubSd),
            Op::Mul => by_type(d, Vector::MulSs, Vector::MulSd),
            Op::Div => by_type(d, Vector::DivSs, Vector::DivSd),
            _ => {
                let mut regs = Vec::with_capacity(3);
                for s in s {
                    regs.push(self.scalar(s)?);
                }
                return self.float_of(u, d, &regs);
            }
        };
        let a = self.scalar(&s[first])?;
        let b = self.source(&s[second], shape, 0)?;
        Ok(self.b.vector(plain, Width::X, &[Operand::Reg(a), b]))
    }

    /// The greater of two; NaN where a is, if that may be, or b is.
    pub(super) fn float_max(&mut self, d: DType, a: Reg, b: Reg, nan: bool) -> Reg {
        let max = by_type(d, Vector::MaxSs, Vector::MaxSd);
        let most = self.b.of(max, Width::X, &[a, b], None);
        if !nan {
            return most;
        }
        let compare = by_type(d, Vector::CmpSs, Vector::CmpSd);
        let is = self.b.of(compare, Width::X, &[a, a], Some(3));
        self.b.of(Vector::Choose, Width::X, &[is, a, most], None)
    }

    /// The operation of a node on these registers.
    pub(super) fn float_of(&mut self, u: &UOp, d: DType, s: &[Reg]) -> Result<Reg> {
        if let Some((predicate, swaps)) = predicate(u.op()) {
            let s = if swaps { [s[1], s[0]] } else { [s[0], s[1]] };
            return Ok(self.float_compare(d, s, predicate));
        }
        let b = &mut self.b;
        let of = |single, double| by_type(d, single, double);
        let lane = d.bytes();
        Ok(match u.op() {
            Op::Add => b.of(of(Vector::AddSs, Vector::AddSd), Width::X, s, None),
            Op::Sub => b.of(of(Vector::SubSs, Vector::SubSd), Width::X, s, None),
            Op::Mul => b.of(of(Vector::MulSs, Vector::MulSd), Width::X, s, None),
            Op::Div => b.of(of(Vector::DivSs, Vector::DivSd), Width::X, s, None),
            Op::Max => self.float_max(d, s[0], s[1], true),
            Op::Neg => {
                let sign = b.constant(splat(1 << (8 * lane - 1), lane), Width::X);
                b.of(Vector::XorPs, Width::X, &[s[0], sign], None)
            }
            Op::Recip => {
                let one = if d == DType::F64 {
                    1f64.to_bits()
                } else {
                    1f32.to_bits() as u64
                };
                let one = b.constant(splat(one, lane), Width::X);
                b.of(
                    of(Vector::DivSs, Vector::DivSd),
                    Width::X,
                    &[one, s[0]],
                    None,
                )
            }
            Op::Sqrt => b.of(of(Vector::SqrtSs, Vector::SqrtSd), Width::X, s, None),
            Op::Trunc => b.of(of(Vector::RoundSs, Vector::RoundSd), Width::X, s, Some(11)),
            Op::MulAcc if b.level > Level::V2 => {
                b.of(of(Vector::FmaSs, Vector::FmaSd), Width::X, s, None)
            }
            _ => return Err(self.unsupported(u)),
        })
    }

    /// A comparison of floats: 0 or 1.
    pub(super) fn float_compare(&mut self, d: DType, s: [Reg; 2], predicate: i64) -> Reg {
        let compare = by_type(d, Vector::CmpSs, Vector::CmpSd);
        let mask = self.b.of(compare, Width::X, &s, Some(predicate));
        let word = self
            .b
            .general_of(Vector::MoveVecD, Width::X, &[Operand::Reg(mask)]);
        let src = [Operand::Reg(word), Operand::Imm(1)];
        self.b.general(Do::And, Width::W32, &src)
    }

    /// A float that is a number.
    pub(super) fn float_number(&mut self, d: DType, value: f64) -> Reg {
        let bits = if d == DType::F64 {
            value.to_bits()
        } else {
            (value as f32).to_bits() as u64
        };
        let constant = splat(bits, d.bytes());
        self.b.constant(constant, Width::X)
    }

    /// A bool as the mask of a scalar's lane.
    pub(super) fn scalar_mask(&mut self, gate: Reg) -> Reg {
        let all = self.b.general(Do::Neg, Width::W64, &[Operand::Reg(gate)]);
        self.b.of(Vector::MoveGprQ, Width::X, &[all], None)
    }
}
