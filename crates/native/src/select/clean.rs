//! What selection leaves over. Flows in: code; flows out: the same without values that nobody reads, and with
//! values that only a variable takes worked out there. Invariant: what is stored, and in which order, stays.

use crate::code::{Code, Do, Ins, Operand, Reg};
use crate::table::Form;
use rustc_hash::FxHashSet;

pub(super) fn clean(code: &mut Code, variables: &FxHashSet<Reg>) {
    let mut keep = vec![true; code.ins.len()];
    let mut reads = vec![0u32; code.regs.len()];
    for ins in &code.ins {
        ins.reads(|r| reads[r.0 as usize] += 1);
    }
    take_over(code, &mut keep, &mut reads, variables);
    for (i, ins) in code.ins.iter().enumerate().rev() {
        let Some(dst) = ins.dst.filter(|_| keep[i] && is_pure(ins)) else {
            continue;
        };
        if reads[dst.0 as usize] == 0 {
            keep[i] = false;
            ins.reads(|r| reads[r.0 as usize] -= 1);
        }
    }
    let mut at = 0..;
    code.ins.retain(|_| at.next().is_some_and(|i| keep[i]));
}

/// Whether an instruction does nothing but write its register.
fn is_pure(ins: &Ins) -> bool {
    !matches!(ins.op, Do::Argument(_))
}

/// The source that an instruction adds to, or works on, and which it is.
fn accumulated(ins: &Ins) -> Option<(usize, Reg)> {
    let Do::Vector(v) = ins.op else {
        return None;
    };
    let k = match v.form() {
        Form::Fma | Form::Dot => 2,
        Form::Three | Form::ThreeCommuting => 0,
        _ => return None,
    };
    match ins.src[k] {
        Operand::Reg(reg) => Some((k, reg)),
        _ => None,
    }
}

fn is_control(op: Do) -> bool {
    matches!(op, Do::Loop | Do::Next | Do::SkipIf(_) | Do::Land)
}

/// A value that is moved to a variable and read by nobody else is worked out in the variable, where nothing reads or
/// writes that between.
fn take_over(code: &mut Code, keep: &mut [bool], reads: &mut [u32], variables: &FxHashSet<Reg>) {
    let mut block = 0u32;
    // Of each register: where it was written last, in which block, and where it was last mentioned, one further.
    let mut written = vec![(usize::MAX, 0u32); code.regs.len()];
    let mut mentioned = vec![0usize; code.regs.len()];
    let count = code.ins.len();
    for (i, kept) in keep.iter_mut().enumerate().take(count) {
        let ins = &code.ins[i];
        if is_control(ins.op) {
            block += 1;
        }
        if ins.op == Do::Move
            && let Some(to) = ins.dst
            && let [Operand::Reg(from)] = ins.src[..]
            && !variables.contains(&from)
            && variables.contains(&to)
            && reads[from.0 as usize] == 1
            && code.regs[from.0 as usize] == code.regs[to.0 as usize]
        {
            let (at, of) = written[from.0 as usize];
            let last = mentioned[to.0 as usize];
            // A factor of a dot product stays where it is while the sum is made.
            let apart = |code: &Code, at: usize| {
                let ins = &code.ins[at];
                let dot = matches!(ins.op, Do::Vector(v) if v.form() == Form::Dot);
                let mut factors = ins.src.iter().take(2);
                !dot || !factors.any(|s| *s == Operand::Reg(to))
            };
            let free = |code: &Code, at: usize, of: u32| {
                at != usize::MAX && of == block && last <= at + 1 && apart(code, at)
            };
            if free(code, at, of) && !matches!(code.ins[at].op, Do::Argument(_)) {
                code.ins[at].dst = Some(to);
                *kept = false;
                // What it was added to, if nobody else reads it, and so on.
                let mut top = at;
                while let Some((k, before)) = accumulated(&code.ins[top])
                    && !variables.contains(&before)
                    && reads[before.0 as usize] == 1
                    && code.regs[before.0 as usize] == code.regs[to.0 as usize]
                    && let (at, of) = written[before.0 as usize]
                    && free(code, at, of)
                    && !matches!(code.ins[at].op, Do::Argument(_))
                {
                    code.ins[top].src[k] = Operand::Reg(to);
                    code.ins[at].dst = Some(to);
                    reads[to.0 as usize] += 1;
                    top = at;
                }
                written[to.0 as usize] = (at, block);
                mentioned[to.0 as usize] = at + 1;
                continue;
            }
        }
        let ins = &code.ins[i];
        ins.reads(|r| mentioned[r.0 as usize] = i + 1);
        if let Some(dst) = ins.dst {
            written[dst.0 as usize] = (i, block);
            mentioned[dst.0 as usize] = i + 1;
        }
    }
}
