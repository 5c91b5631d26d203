//! Dot products of words: matrix units of one thread. Flows in: a WMMA of vectors; flows out: registers. Always: a unit
//! that the level has no instruction for is an error that names the node.

use super::Selector;
use super::builder::Parts;
use crate::code::{Level, Operand};
use crate::table::Vector;
use monoglot_uop::linear::{lanes, splat};
use monoglot_uop::{DType, Op, Result, TcInfo, UOp};

/// The instruction of a unit, and whether it adds what it multiplies.
fn instruction(unit: &TcInfo, level: Level) -> Option<(Vector, bool)> {
    let words = [DType::I16; 2];
    let bytes = [DType::U8, DType::I8];
    let halves = [DType::BF16; 2];
    match (&*unit.name, unit.dtypes_in, unit.dtype_out) {
        ("pmaddwd", of, DType::I32) if of == words => Some((Vector::MaddWD, false)),
        ("vpdpwssd", of, DType::I32) if of == words => Some((Vector::DotW, true)),
        ("vpdpbusd", of, DType::I32) if of == bytes => Some((Vector::DotUB, true)),
        ("vdpbf16ps", of, DType::F32) if of == halves => {
            (level == Level::V4).then_some((Vector::DotBF16, true))
        }
        _ => None,
    }
    .filter(|(_, adds)| !adds || level > Level::V2)
}

impl<'a> Selector<'a> {
    /// acc + Σ a[j]·b[j] of the elements of words, in every lane.
    pub(super) fn dot(&mut self, u: &'a UOp) -> Result<Parts> {
        let level = self.b.level;
        let found = u.dot().and_then(|unit| instruction(unit, level));
        let Some((op, adds)) = found.filter(|_| lanes(u) > 1) else {
            return Err(self.unsupported(u));
        };
        let [a, b, acc] = u.src() else {
            return Err(self.unsupported(u));
        };
        // What is one word for all lanes is in a register, if it is not read there; the other factor may be in memory,
        // where it may be the second.
        let of = self.shape(u);
        // Of these only what adds has an encoding in which one word for all lanes is in memory.
        let each = |u: &UOp| adds && self.is_each(u, of);
        let fixed = splat(b).is_some() || b.op() == Op::Const;
        let turned = fixed && !each(b) || each(a);
        let [a, b] = match turned && op != Vector::DotUB {
            true => [b, a],
            false => [a, b],
        };
        let width = self.width(of);
        let first = self.vector_parts(a, of)?;
        let sums = self.vector_parts(acc, of)?;
        let mut out = Parts::new();
        for (k, (&a, &sum)) in first.iter().zip(&sums).enumerate() {
            let b = match adds {
                true => self.factor(b, of, k)?,
                false => self.source(b, of, k)?,
            };
            out.push(match adds {
                true => {
                    let sources = [Operand::Reg(a), b, Operand::Reg(sum)];
                    self.b.vector(op, width, &sources)
                }
                false => {
                    let products = self.b.vector(op, width, &[Operand::Reg(a), b]);
                    self.b.of(Vector::AddD, width, &[sum, products], None)
                }
            });
        }
        Ok(out)
    }
}
