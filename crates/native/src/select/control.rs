//! Loops. Flows in: a RANGE; flows out: an open scope with a counter. Invariant: a loop that may not turn is passed.

use super::builder::{Kind, one};
use super::{Selector, Value};
use crate::code::{Class, Operand, Width};
use monoglot_uop::linear::lanes;
use monoglot_uop::{DType, Op, Result, UOp};

impl<'a> Selector<'a> {
    /// Close the loop of a RANGE, and the condition around it, where it has one of its own.
    pub(super) fn end(&mut self, range: &UOp) {
        self.b.pop();
        let under = self.under.last();
        if under.is_some_and(|&(i, _)| self.list[i] == *range) {
            self.under.pop();
            self.b.pop();
        }
    }

    /// Whether a gate is that of a condition that is open.
    pub(super) fn holds(&self, gate: &UOp) -> bool {
        let place = self.listing.place(gate);
        self.under.iter().any(|&(_, gate)| Some(gate) == place)
    }

    /// The place of the one gate, known before a loop, of everything that the loop stores: where it does not hold the
    /// loop does nothing.
    fn gate_of_all(&self, i: usize) -> Option<usize> {
        let mut depth = 0;
        let mut gate = None;
        for u in &self.list[i..] {
            match u.op() {
                Op::Range => depth += 1,
                Op::End => depth -= 1,
                Op::Barrier => return None,
                Op::Store => {
                    let own = u.src().get(2).filter(|g| lanes(g) == 0)?;
                    let place = self.listing.place(own).filter(|&k| k < i)?;
                    if gate.is_some_and(|g| g != place) {
                        return None;
                    }
                    gate = Some(place);
                }
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
        gate
    }

    /// Open the loop of a RANGE.
    pub(super) fn begin(&mut self, i: usize) -> Result<()> {
        let list: &'a [UOp] = self.list;
        if let Some(gate) = self.gate_of_all(i)
            && !self.holds(&list[gate])
        {
            let holds = self.scalar(&list[gate])?;
            self.b.push(Kind::If(holds));
            self.under.push((i, gate));
        }
        let u = &list[i];
        let wide = u.dtype() == DType::I64;
        let width = if wide { Width::W64 } else { Width::W32 };
        let end = self.integer_source(&u.src()[0])?;
        let first = match u.src().get(1) {
            Some(first) => self.integer_source(first)?,
            None => Operand::Imm(0),
        };
        let guarded = match (first, end) {
            (Operand::Imm(first), Operand::Imm(end)) => end <= first,
            _ => true,
        };
        // Only registers and numbers last through the loop.
        let end = match end {
            Operand::Imm(_) => end,
            _ => Operand::Reg(self.scalar(&u.src()[0])?),
        };
        let counter = self.b.code.reg(Class::General, 8);
        self.b.variables.insert(counter);
        self.b.push(Kind::Loop {
            counter,
            first,
            end,
            width,
            guarded,
        });
        self.scope_of[i] = self.b.innermost() as u32;
        self.values[i] = Value::Parts(one(counter));
        Ok(())
    }
}
