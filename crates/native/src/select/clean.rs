//! What selection leaves over. Flows in: code; flows out: the same without values that nobody reads, and with
//! values that only a variable takes worked out there. Invariant: what is stored, and in which order, stays.

use crate::code::{Code, Do, Ins, Operand, Reg};
use crate::table::{Form, Vector};
use rustc_hash::FxHashSet;

pub(super) fn clean(code: &mut Code, variables: &FxHashSet<Reg>) {
    let mut keep = vec![true; code.ins.len()];
    let mut reads = vec![0u32; code.regs.len()];
    for ins in &code.ins {
        ins.reads(|r| reads[r.0 as usize] += 1);
    }
    take_over(code, &mut keep, &reads, variables);
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

fn is_control(op: Do) -> bool {
    matches!(op, Do::Loop | Do::Next | Do::SkipIf(_) | Do::Land)
}

/// A value that is moved to a variable and read by nobody else is worked out in the variable, where nothing reads or
/// writes that between.
fn take_over(code: &mut Code, keep: &mut [bool], reads: &[u32], variables: &FxHashSet<Reg>) {
    let mut block = 0u32;
    // Of each register: where it was written last, in which block, and where it was last mentioned, one further.
    let mut written = vec![(usize::MAX, 0u32); code.regs.len()];
    let mut mentioned = vec![0usize; code.regs.len()];
    for i in 0..code.ins.len() {
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
            && code.regs[from.0 as usize].again.is_none()
        {
            let (at, of) = written[from.0 as usize];
            let free = at != usize::MAX && of == block && mentioned[to.0 as usize] <= at + 1;
            if free && !matches!(code.ins[at].op, Do::Argument(_)) {
                code.ins[at].dst = Some(to);
                keep[i] = false;
                let before = mentioned[to.0 as usize];
                let free = |code: &Code, r: Reg| {
                    let (at, of) = written[r.0 as usize];
                    let own = !variables.contains(&r) && reads[r.0 as usize] == 1;
                    let alike = code.regs[r.0 as usize] == code.regs[to.0 as usize];
                    let free = at != usize::MAX && of == block && before <= at + 1;
                    (own && alike && free).then_some(at)
                };
                // Sums stand on one side, whichever it is.
                let _ = chain(code, to, at, 0, &free) || chain(code, to, at, 1, &free);
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

/// What is added to a variable in several steps, of which the last was put there: all steps are, so that no other
/// register holds what has been added so far. `free` tells where a register was written that may be the variable.
/// Whether there are such steps, with sums on that side.
fn chain(
    code: &mut Code,
    to: Reg,
    last: usize,
    side: usize,
    free: &dyn Fn(&Code, Reg) -> Option<usize>,
) -> bool {
    // From the last step back to the one that reads the variable itself.
    let mut steps: Vec<(usize, usize, usize)> = Vec::new();
    let mut at = last;
    loop {
        let ins = &code.ins[at];
        let mut own = false;
        ins.reads(|r| own |= r == to);
        if own {
            break;
        }
        let Some(k) = sum(ins, side) else {
            return false;
        };
        let Operand::Reg(r) = ins.src[k] else {
            return false;
        };
        let Some(before) = free(code, r) else {
            return false;
        };
        steps.push((at, k, before));
        at = before;
    }
    for (at, k, before) in steps {
        code.ins[at].src[k] = Operand::Reg(to);
        code.ins[before].dst = Some(to);
    }
    true
}

/// Which source of an instruction is what it adds to, where that stands on a side.
fn sum(ins: &Ins, side: usize) -> Option<usize> {
    use Vector::*;
    match ins.op {
        Do::Vector(v) if v.form() == Form::Fma => Some(2),
        Do::Vector(AddPs | AddPd | AddSs | AddSd | AddB | AddW | AddD | AddQ) => Some(side),
        Do::Vector(SubPs | SubPd | SubSs | SubSd | SubB | SubW | SubD | SubQ) => Some(0),
        _ => None,
    }
}
