//! What code keeps in the frame where it turns most often. Flows in: allocated code; flows out: the instructions of
//! its innermost loops that read or write a place in the frame.

use crate::code::{Allocated, Ins, Operand, innermost};

/// An innermost loop that reads or writes places in the frame.
#[derive(Clone, Debug)]
pub struct Spilling<'a> {
    /// Its instructions, from the top to the jump back.
    pub ins: &'a [Ins],
    /// Those of them that name a place in the frame.
    pub spills: Vec<&'a Ins>,
}

/// The innermost loops that spill, in order.
pub fn in_innermost_loops(allocated: &Allocated) -> Vec<Spilling<'_>> {
    let list = &allocated.code.ins;
    let loops = innermost(list).into_iter().map(|l| &list[l]);
    let spilling = |ins| {
        let slot = |s: &Operand| matches!(s, Operand::Slot(_));
        let names = |i: &&Ins| i.src.iter().any(slot);
        let spills: Vec<&Ins> = <[Ins]>::iter(ins).filter(names).collect();
        (!spills.is_empty()).then_some(Spilling { ins, spills })
    };
    loops.filter_map(spilling).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::{Do, UNMARKED, Width};

    fn ins(op: Do, src: &[Operand]) -> Ins {
        Ins {
            op,
            width: Width::W64,
            dst: None,
            src: src.iter().copied().collect(),
            mark: UNMARKED,
        }
    }

    #[test]
    fn only_innermost_loops_count() {
        let slot = |k: u32| ins(Do::Load64, &[Operand::Slot(k)]);
        let mut allocated = Allocated::default();
        allocated.code.ins = vec![
            slot(0),
            ins(Do::Loop, &[Operand::Imm(0)]),
            slot(1),
            ins(Do::Loop, &[Operand::Imm(1)]),
            slot(2),
            ins(Do::Next, &[Operand::Slot(3), Operand::Imm(1)]),
            slot(4),
            ins(Do::Next, &[Operand::Imm(0)]),
            slot(5),
        ];
        // The end of a loop is part of it.
        let found = in_innermost_loops(&allocated);
        assert_eq!(found.len(), 1);
        let end = ins(Do::Next, &[Operand::Slot(3), Operand::Imm(1)]);
        assert_eq!(found[0].spills, [&slot(2), &end]);
    }
}
