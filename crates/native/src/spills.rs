//! What code keeps in the frame where it turns most often. Flows in: allocated code; flows out: the instructions of
//! its innermost loops that read or write a place in the frame.

use crate::code::{Allocated, Do, Ins, Operand};

/// Instructions of innermost loops that name a place in the frame, in order.
pub fn in_innermost_loops(allocated: &Allocated) -> Vec<&Ins> {
    let mut found = Vec::new();
    // Of the loop that was opened last, until another is opened in it.
    let mut own: Option<Vec<&Ins>> = None;
    for ins in &allocated.code.ins {
        if ins.op == Do::Loop {
            own = Some(Vec::new());
        }
        let slot = |s: &Operand| matches!(s, Operand::Slot(_));
        if let Some(own) = own.as_mut().filter(|_| ins.src.iter().any(slot)) {
            own.push(ins);
        }
        if ins.op == Do::Next {
            found.extend(own.take().into_iter().flatten());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::{UNMARKED, Width};

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
        let found: Vec<Ins> = in_innermost_loops(&allocated)
            .into_iter()
            .cloned()
            .collect();
        let end = ins(Do::Next, &[Operand::Slot(3), Operand::Imm(1)]);
        assert_eq!(found, [slot(2), end]);
    }
}
