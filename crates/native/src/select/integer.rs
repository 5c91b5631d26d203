//! Integers and bools in general registers. Flows in: an operation on scalars; flows out: its register. Invariant:
//! values narrower than 32 bits are extended to 32 by their sign, bools are 0 or 1; shifts past the width shift all out.

use super::builder::Builder;
use super::{Selector, canonical};
use crate::code::{Cond, Do, Level, Operand, Reg, Width};
use monoglot_uop::{DType, Op, Result, UOp};

/// The width in which a dtype is computed.
pub(super) fn width(d: DType) -> Width {
    if d.bytes() == 8 {
        Width::W64
    } else {
        Width::W32
    }
}

/// The condition of a comparison.
pub(super) fn condition(op: Op, d: DType) -> Option<Cond> {
    let unsigned = d.is_unsigned() || d == DType::Bool;
    Some(match (op, unsigned) {
        (Op::CmpEq, _) => Cond::Equal,
        (Op::CmpNe, _) => Cond::NotEqual,
        (Op::CmpLt, false) => Cond::Less,
        (Op::CmpLe, false) => Cond::LessEqual,
        (Op::CmpGt, false) => Cond::Greater,
        (Op::CmpGe, false) => Cond::GreaterEqual,
        (Op::CmpLt, true) => Cond::Below,
        (Op::CmpLe, true) => Cond::BelowEqual,
        (Op::CmpGt, true) => Cond::Above,
        (Op::CmpGe, true) => Cond::AboveEqual,
        _ => return None,
    })
}

impl<'a> Selector<'a> {
    /// An integer as a source: a number, memory, a register.
    pub(super) fn integer_source(&mut self, u: &UOp) -> Result<Operand> {
        let d = u.dtype();
        if u.op() == Op::Const {
            let bits = canonical(self.bits(u), d);
            let number = if d.bytes() == 8 {
                bits
            } else {
                bits as i32 as i64
            };
            return Ok(match i32::try_from(number) {
                Ok(_) => Operand::Imm(number),
                Err(_) => Operand::Reg(self.b.number(bits)),
            });
        }
        let bytes = d.bytes();
        if bytes >= 4 {
            return self.source(u, super::Shape { n: 0, bytes }, 0);
        }
        Ok(Operand::Reg(self.scalar(u)?))
    }

    /// An operation on integers or bools.
    pub(super) fn integer(&mut self, u: &'a UOp) -> Result<Reg> {
        let s = u.src();
        let d = s[0].dtype();
        if matches!(u.op(), Op::Shl | Op::Shr) {
            return self.shift(u);
        }
        if matches!(u.op(), Op::TruncDiv | Op::TruncMod) {
            return self.divide(u);
        }
        let first = s[0].op() == Op::Const && d != DType::Bool;
        if let Some(cond) = condition(u.op(), d).filter(|_| first) {
            let a = Operand::Reg(self.scalar(&s[1])?);
            let b = self.integer_source(&s[0])?;
            return Ok(self
                .b
                .general(Do::Compare(cond.turned()), width(d), &[a, b]));
        }
        let mut regs = Vec::with_capacity(3);
        let swaps = s.len() == 2 && s[0].op() == Op::Const && u.op().traits().commutes;
        let a = self.scalar(if swaps { &s[1] } else { &s[0] })?;
        regs.push(Operand::Reg(a));
        if s.len() > 1 {
            regs.push(self.integer_source(if swaps { &s[0] } else { &s[1] })?);
        }
        if let Some(third) = s.get(2) {
            regs.push(Operand::Reg(self.scalar(third)?));
        }
        self.integer_of(u, d, &regs)
    }

    /// The operation of a node on these operands, whose first is a register.
    pub(super) fn integer_of(&mut self, u: &UOp, d: DType, s: &[Operand]) -> Result<Reg> {
        let w = width(d);
        let b = &mut self.b;
        if d == DType::Bool {
            let flip = |b: &mut Builder, r: Operand| {
                Operand::Reg(b.general(Do::Xor, Width::W32, &[r, Operand::Imm(1)]))
            };
            return Ok(match u.op() {
                Op::Neg | Op::Trunc => b.general(Do::Or, w, &[s[0], Operand::Imm(0)]),
                Op::Not => b.general(Do::Xor, w, &[s[0], Operand::Imm(1)]),
                Op::Add | Op::Or | Op::Max => b.general(Do::Or, w, s),
                Op::Mul | Op::And => b.general(Do::And, w, s),
                Op::Xor | Op::CmpNe => b.general(Do::Xor, w, s),
                Op::CmpEq => {
                    let flipped = flip(b, s[0]);
                    b.general(Do::Xor, w, &[flipped, s[1]])
                }
                Op::MulAcc => {
                    let both = b.general(Do::And, w, &s[..2]);
                    b.general(Do::Or, w, &[Operand::Reg(both), s[2]])
                }
                op => match condition(op, d) {
                    Some(c) => b.general(Do::Compare(c), w, s),
                    None => return Err(self.unsupported(u)),
                },
            });
        }
        if let Some(c) = condition(u.op(), d) {
            return Ok(b.general(Do::Compare(c), w, s));
        }
        let raw = match u.op() {
            Op::Add => b.general(Do::Add, w, s),
            Op::Sub => b.general(Do::Sub, w, s),
            Op::Mul => b.general(Do::Mul, w, s),
            Op::And => return Ok(b.general(Do::And, w, s)),
            Op::Or => return Ok(b.general(Do::Or, w, s)),
            Op::Xor => return Ok(b.general(Do::Xor, w, s)),
            Op::Neg => b.general(Do::Neg, w, s),
            Op::Not => b.general(Do::Not, w, s),
            Op::Trunc => b.general(Do::Move, w, s),
            Op::MulAcc => {
                let product = b.general(Do::Mul, w, &s[..2]);
                b.general(Do::Add, w, &[Operand::Reg(product), s[2]])
            }
            Op::Max => {
                let greater = if d.is_unsigned() {
                    Cond::Above
                } else {
                    Cond::Greater
                };
                let second = match s[1] {
                    Operand::Imm(n) => {
                        Operand::Reg(b.number(if w == Width::W64 { n } else { n as u32 as i64 }))
                    }
                    Operand::Reg(r) => Operand::Reg(r),
                    other => {
                        let load = if w == Width::W64 {
                            Do::Load64
                        } else {
                            Do::Load32
                        };
                        Operand::Reg(b.general(load, w, &[other]))
                    }
                };
                let first = b.general(Do::Compare(greater), w, &[s[0], second]);
                return Ok(b.general(Do::Select, Width::W64, &[Operand::Reg(first), s[0], second]));
            }
            _ => return Err(self.unsupported(u)),
        };
        Ok(self.extended(raw, d))
    }

    /// A value of 32 bits as one of a dtype: narrow ones are extended.
    pub(super) fn extended(&mut self, reg: Reg, d: DType) -> Reg {
        let op = match (d.bytes(), d) {
            (1, DType::I8) => Do::Load8S,
            (1, _) => Do::Load8U,
            (2, DType::I16) => Do::Load16S,
            (2, _) => Do::Load16U,
            _ => return reg,
        };
        self.b.general(op, Width::W32, &[Operand::Reg(reg)])
    }

    fn shift(&mut self, u: &'a UOp) -> Result<Reg> {
        let a = self.scalar(&u.src()[0])?;
        let by = self.integer_source(&u.src()[1])?;
        let inside = {
            let (lo, hi) = u.src()[1].bounds();
            lo >= 0 && hi < u.dtype().bits() as i64
        };
        let by = match by {
            Operand::Imm(_) => by,
            _ => Operand::Reg(self.scalar(&u.src()[1])?),
        };
        self.shifted(u.op(), u.dtype(), a, by, inside)
    }

    /// A shift by a register or number, of which is known whether it stays within the width.
    pub(super) fn shifted(
        &mut self,
        op: Op,
        d: DType,
        a: Reg,
        by: Operand,
        inside: bool,
    ) -> Result<Reg> {
        let w = width(d);
        let b = &mut self.b;
        let from = Operand::Reg(a);
        let signed = op == Op::Shr && !d.is_unsigned();
        let bits = d.bits() as i64;
        let how = match (op, signed) {
            (Op::Shl, _) => Do::Shl,
            (_, true) => Do::Sar,
            _ => Do::Shr,
        };
        if let Operand::Imm(by) = by {
            let past = by < 0 || by >= bits;
            if past && !signed {
                return Ok(b.number(0));
            }
            let by = if past { bits - 1 } else { by };
            let raw = b.general(how, w, &[from, Operand::Imm(by)]);
            return Ok(self.extended(raw, d));
        }
        if inside {
            let raw = b.general(how, w, &[from, by]);
            return Ok(self.extended(raw, d));
        }
        // The count as a number without sign: of narrow types its own bits.
        let short = b.general(Do::Compare(Cond::Below), w, &[by, Operand::Imm(bits)]);
        let (count, otherwise) = if signed {
            let last = b.number(bits - 1);
            let src = [Operand::Reg(short), by, Operand::Reg(last)];
            (Operand::Reg(b.general(Do::Select, Width::W64, &src)), None)
        } else {
            (by, Some(b.number(0)))
        };
        let raw = b.general(how, w, &[from, count]);
        let raw = self.extended(raw, d);
        Ok(match otherwise {
            None => raw,
            Some(zero) => {
                let src = [Operand::Reg(short), Operand::Reg(raw), Operand::Reg(zero)];
                self.b.general(Do::Select, Width::W64, &src)
            }
        })
    }

    /// Whether shifts of vectors by counts of their own exist.
    pub(super) fn shifts_by_lane(&self) -> bool {
        self.b.level > Level::V2
    }
}
