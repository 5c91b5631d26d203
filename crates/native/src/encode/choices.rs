//! Comparisons of integers whose results only choose. Flows in: code whose registers have numbers; flows out: of which
//! comparison the choice right behind it takes the flags. Always: nothing else reads such a result, and nothing stands between.

use crate::code::{Cond, Do, Ins, Operand, Reg};

/// See above, by register: whether something else reads it.
pub(super) struct Choices(Vec<bool>);

impl Choices {
    pub(super) fn of(list: &[Ins], registers: usize) -> Choices {
        let mut read = vec![false; registers];
        let mut before: Option<Reg> = None;
        for ins in list {
            let taken = before.filter(|&r| chooses_by(ins, r));
            let others = ins.src.iter().skip(usize::from(taken.is_some()));
            others.for_each(|s| s.reads(|r| read[r.0 as usize] = true));
            before = ins.dst.filter(|_| matches!(ins.op, Do::Compare(_)));
        }
        Choices(read)
    }

    /// The condition on which this comparison's flags choose for the instruction behind it.
    pub(super) fn condition(&self, ins: &Ins, behind: Option<&Ins>) -> Option<Cond> {
        let Do::Compare(condition) = ins.op else {
            return None;
        };
        let dst = ins.dst.filter(|r| !self.0[r.0 as usize])?;
        behind
            .is_some_and(|b| chooses_by(b, dst))
            .then_some(condition)
    }
}

/// Whether an instruction is a choice by what is in this register.
fn chooses_by(ins: &Ins, register: Reg) -> bool {
    ins.op == Do::Select && ins.src[0] == Operand::Reg(register)
}
