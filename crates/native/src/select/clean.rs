//! What selection leaves over. Flows in: code; flows out: the same without values that nobody reads, with sums made under the
//! masks that choose them, and with values that only a variable takes worked out there. Invariant: what is stored, and in which order, stays.

use crate::code::{Code, Do, Ins, Level, Operand, Reg};
use crate::table::{Form, Vector};
use rustc_hash::FxHashSet;

pub(super) fn clean(code: &mut Code, variables: &FxHashSet<Reg>, level: Level) {
    let mut keep = vec![true; code.ins.len()];
    let mut reads = vec![0u32; code.regs.len()];
    for ins in &code.ins {
        ins.reads(|r| reads[r.0 as usize] += 1);
    }
    if level >= Level::V4 {
        add_under_masks(code, &mut keep, &mut reads);
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
        Form::Three | Form::ThreeCommuting => 0,
        form => form.sum()?,
    };
    match ins.src[k] {
        Operand::Reg(reg) => Some((k, reg)),
        _ => None,
    }
}

/// Instructions between a sum and what chooses it, at most.
const BETWEEN: usize = 16;

/// A fused sum that only a choice between it and what it was added to reads is made in the lanes that choose it.
fn add_under_masks(code: &mut Code, keep: &mut [bool], reads: &mut [u32]) {
    for i in 0..code.ins.len() {
        let Some((at, masked)) = added_under_mask(code, i, reads) else {
            continue;
        };
        keep[at] = false;
        for ins in [&code.ins[at], &code.ins[i]] {
            ins.reads(|r| reads[r.0 as usize] -= 1);
        }
        masked.reads(|r| reads[r.0 as usize] += 1);
        code.ins[i] = masked;
    }
}

/// Where the sum is that an instruction chooses so, and what does both.
fn added_under_mask(code: &Code, i: usize, reads: &[u32]) -> Option<(usize, Ins)> {
    let choice = &code.ins[i];
    let chooses = matches!(choice.op, Do::Vector(v) if v.form() == Form::Choose);
    let &[mask, Operand::Reg(sum), other @ Operand::Reg(_)] = &choice.src[..] else {
        return None;
    };
    if !chooses || reads[sum.0 as usize] != 1 {
        return None;
    }
    let near = code.ins[..i].iter().rev().take(BETWEEN);
    let back = near
        .take_while(|ins| !ins.op.is_control())
        .position(|ins| ins.dst == Some(sum))?;
    let at = i - 1 - back;
    let added = &code.ins[at];
    let op = match added.op {
        Do::Vector(Vector::FmaPs) => Vector::MaskFmaPs,
        Do::Vector(Vector::FmaPd) => Vector::MaskFmaPd,
        _ => return None,
    };
    let &[a @ Operand::Reg(_), b @ Operand::Reg(_), c] = &added.src[..] else {
        return None;
    };
    let written = |s: &Operand| {
        let mut between = code.ins[at..i].iter();
        matches!(*s, Operand::Reg(r) if between.any(|ins| ins.dst == Some(r)))
    };
    let same = c == other && added.width == choice.width && ![a, b, c].iter().any(written);
    same.then(|| {
        let masked = Ins {
            op: Do::Vector(op),
            src: [mask, a, b, c].into_iter().collect(),
            ..choice.clone()
        };
        (at, masked)
    })
}

/// The block of each instruction as they are gone through. What is skipped together is one of its own: before it and behind
/// it the block is the same, since both are done or neither.
#[derive(Default)]
struct Blocks {
    last: u32,
    now: u32,
    /// Where skips that are open land, and the blocks around them.
    open: Vec<(Operand, u32)>,
}

impl Blocks {
    fn of(&mut self, ins: &Ins) -> u32 {
        let around = self.now;
        if ins.op.is_control() {
            self.last += 1;
            self.now = self.last;
        }
        match (ins.op, &ins.src[..]) {
            (Do::SkipIf(_), &[.., label]) if self.open.last().is_none_or(|o| o.0 != label) => {
                self.open.push((label, around));
            }
            (Do::Land, &[label]) => {
                if let Some((_, outer)) = self.open.pop_if(|o| o.0 == label) {
                    self.now = outer;
                }
            }
            _ => {}
        }
        self.now
    }
}

/// A value that is moved to a variable and read by nobody else is worked out in the variable, where nothing reads or
/// writes that between.
fn take_over(code: &mut Code, keep: &mut [bool], reads: &mut [u32], variables: &FxHashSet<Reg>) {
    let mut blocks = Blocks::default();
    // Of each register: where it was written last, in which block, and where it was last mentioned, one further.
    let mut written = vec![(usize::MAX, 0u32); code.regs.len()];
    let mut mentioned = vec![0usize; code.regs.len()];
    let count = code.ins.len();
    for (i, kept) in keep.iter_mut().enumerate().take(count) {
        let ins = &code.ins[i];
        let block = blocks.of(ins);
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
                let factors = match ins.op {
                    Do::Vector(v) => v.form().factors(),
                    _ => 0..0,
                };
                !ins.src[factors].contains(&Operand::Reg(to))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::{Class, Mem, UNMARKED, Width};

    /// A fused sum of what is loaded, and a choice between it and what it was added to, or something else; what else
    /// stores the sum.
    fn chosen(same: bool, read_twice: bool) -> Code {
        let mut code = Code::default();
        let base = code.reg(Class::General, 8);
        let [mask, a, b, c, sum, out] = [(); 6].map(|()| code.reg(Class::Vector, 64));
        let mut put = |op, dst, src: &[Operand]| {
            code.ins.push(Ins {
                op,
                width: Width::Z,
                dst,
                src: src.iter().copied().collect(),
                mark: UNMARKED,
            });
        };
        let at = |displacement| {
            Operand::Mem(Mem {
                base,
                index: None,
                displacement,
            })
        };
        put(Do::Argument(0), Some(base), &[]);
        for (k, reg) in [mask, a, b, c].into_iter().enumerate() {
            put(Do::Vector(Vector::Load), Some(reg), &[at(64 * k as i32)]);
        }
        put(
            Do::Vector(Vector::FmaPs),
            Some(sum),
            &[a, b, c].map(Operand::Reg),
        );
        let other = if same { c } else { a };
        put(
            Do::Vector(Vector::Choose),
            Some(out),
            &[mask, sum, other].map(Operand::Reg),
        );
        let stored = if read_twice { &[out, sum][..] } else { &[out] };
        for reg in stored {
            put(
                Do::Vector(Vector::Store),
                None,
                &[at(256), Operand::Reg(*reg)],
            );
        }
        put(Do::Return, None, &[]);
        code
    }

    #[test]
    fn a_sum_that_a_mask_chooses_is_one_instruction() {
        for (same, read_twice) in [(true, false), (false, false), (true, true)] {
            for level in [Level::V3, Level::V4] {
                let mut code = chosen(same, read_twice);
                clean(&mut code, &FxHashSet::default(), level);
                let count = |op| code.ins.iter().filter(|i| i.op == Do::Vector(op)).count();
                let all = [Vector::MaskFmaPs, Vector::FmaPs, Vector::Choose].map(count);
                let one = same && !read_twice && level == Level::V4;
                let want = if one { [1, 0, 0] } else { [0, 1, 1] };
                assert_eq!(all, want, "{same} {read_twice} {level:?}");
            }
        }
    }

    /// A sum for a variable, which is moved there behind what may be skipped; the sum stands before that or is part of it.
    fn moved_behind_a_skip(inside: bool) -> (Code, Reg) {
        let mut code = Code::default();
        let [base, gate] = [(); 2].map(|()| code.reg(Class::General, 8));
        let [variable, sum, other] = [(); 3].map(|()| code.reg(Class::Vector, 64));
        let label = Operand::Imm(0);
        let at = Operand::Mem(Mem {
            base,
            index: None,
            displacement: 0,
        });
        let add = |dst| {
            let src = [variable, other].map(Operand::Reg);
            (Do::Vector(Vector::AddPs), Some(dst), src.to_vec())
        };
        let load = |dst| (Do::Vector(Vector::Load), Some(dst), vec![at]);
        let skip = [Operand::Reg(gate), Operand::Imm(0), label];
        let skip = (Do::SkipIf(crate::code::Cond::Equal), None, skip.to_vec());
        let first = if inside { load(sum) } else { add(sum) };
        let second = if inside { add(sum) } else { load(other) };
        let all = vec![
            (Do::Argument(0), Some(base), Vec::new()),
            (Do::Argument(1), Some(gate), Vec::new()),
            load(variable),
            load(other),
            first,
            skip,
            second,
            (Do::Land, None, vec![label]),
            (Do::Move, Some(variable), vec![Operand::Reg(sum)]),
            (
                Do::Vector(Vector::Store),
                None,
                [variable, other].map(|r| [at, Operand::Reg(r)]).concat(),
            ),
            (Do::Return, None, Vec::new()),
        ];
        for (op, dst, src) in all {
            code.ins.push(Ins {
                op,
                width: Width::Z,
                dst,
                src: src.into_iter().collect(),
                mark: UNMARKED,
            });
        }
        (code, variable)
    }

    #[test]
    fn what_is_skipped_between_does_not_keep_a_sum_from_its_variable() {
        for inside in [false, true] {
            let (mut code, variable) = moved_behind_a_skip(inside);
            let variables = FxHashSet::from_iter([variable]);
            clean(&mut code, &variables, Level::V4);
            let moves = code.ins.iter().filter(|i| i.op == Do::Move).count();
            assert_eq!(moves, usize::from(inside), "{inside}");
        }
    }
}
