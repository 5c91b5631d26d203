//! Loops. Flows in: a RANGE; flows out: an open scope with a counter. Invariant: a loop that may not turn is passed.

use super::builder::{Kind, one};
use super::{Selector, Value};
use crate::code::{Class, Operand, Width};
use monoglot_uop::{DType, Result};

impl Selector<'_> {
    /// Open the loop of a RANGE.
    pub(super) fn begin(&mut self, i: usize) -> Result<()> {
        let u = &self.list[i];
        let wide = u.dtype() == DType::I64;
        let width = if wide { Width::W64 } else { Width::W32 };
        let end = self.integer_source(&u.src()[0])?;
        let mut first = match u.src().get(1) {
            Some(first) => self.integer_source(first)?,
            None => Operand::Imm(0),
        };
        if !matches!(first, Operand::Imm(_)) {
            first = Operand::Reg(self.scalar(&u.src()[1])?);
        }
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
