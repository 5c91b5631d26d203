//! Elements that a few instructions multiply by, read by each of these. Flows in: code as selection made it; flows out:
//! the same code, in which innermost loops of sums have fewer instructions. Invariant: between what is read and where it
//! is now read that memory is not written, and neither are the registers of the address.
//!
//! An element that every lane is multiplied by is an instruction of its own, or with AVX-512 part of each that wants it.
//! The second is one instruction less and as many reads more as there are others. A core begins as many reads in a
//! cycle as products that are added, but only so many instructions, of which it gives another thread half. So
//! elements become operands as long as there are no more reads than products, evenly over those that there are. A
//! vector counts as two: it may lie across lines (a row of a convolution's image does).
//!
//! An operand whose address is two registers is two instructions again in the cores of one maker: what it is
//! read by becomes one register, which moves on as the index did.

use super::reread::{element, operand};
use super::spill::{Instead, fold};
use crate::code::{Class, Code, Do, Ins, Level, Mem, Operand, Reg, Width, innermost, is_straight};
use crate::table::{Form, Vector};

/// See the module.
pub(super) fn embed(code: &mut Code, level: Level) {
    if level < Level::V4 {
        return;
    }
    let mut loops = innermost(&code.ins);
    loops.retain(|l| {
        let body = &code.ins[l.clone()];
        let moves = |ins: &Ins| ins.op == Do::Exchange;
        is_straight(body) && body.iter().any(adds_products) && !body.iter().any(moves)
    });
    if loops.is_empty() {
        return;
    }
    let mentions = mentions(code);
    let mut old = std::mem::take(&mut code.ins).into_iter();
    let mut from = 0;
    for l in loops {
        code.ins.extend(old.by_ref().take(l.start - from));
        from = l.end;
        let begins = old.next();
        let mut body: Vec<Ins> = old.by_ref().take(l.len() - 2).collect();
        let own = own(&body, &code.ins, &mentions);
        operands(&mut body, &mentions, level);
        let Some(next) = old.next() else {
            break;
        };
        while let Some(pair) = Pair::of_operand(&body, &next) {
            let pointer = code.reg(Class::General, 8);
            let begin = pair.replace(&mut body, pointer, &own);
            code.ins.push(begin);
        }
        code.ins.extend(begins);
        code.ins.append(&mut body);
        code.ins.push(next);
    }
    code.ins.extend(old);
}

/// Whether an instruction adds products to a sum.
fn adds_products(ins: &Ins) -> bool {
    matches!(ins.op, Do::Vector(v) if matches!(v.form(), Form::Fma | Form::Dot))
}

/// Lines that an instruction reads, or asks for, at most.
fn lines(ins: &Ins) -> usize {
    let memory = |s: &Operand| !matches!(s, Operand::Reg(_) | Operand::Imm(_));
    match ins.op {
        _ if !ins.src.iter().any(memory) => 0,
        Do::Vector(Vector::Load) => 2,
        _ => 1,
    }
}

/// By register, how many instructions write it and how many read it.
fn mentions(code: &Code) -> Vec<[u32; 2]> {
    let mut of = vec![[0; 2]; code.regs.len()];
    for ins in &code.ins {
        ins.reads(|r| of[r.0 as usize][1] += 1);
        ins.dst.into_iter().for_each(|r| of[r.0 as usize][0] += 1);
    }
    of
}

/// Make operands of the elements that a loop's body reads.
fn operands(body: &mut Vec<Ins>, mentions: &[[u32; 2]], level: Level) {
    let products = body.iter().filter(|ins| adds_products(ins)).count();
    let read: usize = body.iter().map(lines).sum();
    let may: Vec<(usize, Vec<(usize, Ins)>)> = (0..body.len())
        .filter_map(|at| Some((at, readers(body, at, mentions, level)?)))
        .collect();
    // Of those that there are, as many as leave no more reads than products.
    let more: usize = may.iter().map(|(_, readers)| readers.len() - 1).sum();
    let mut left = more.min(products.saturating_sub(read));
    let share = left;
    let mut due = 0;
    let mut gone = Vec::new();
    let mut changed = vec![false; body.len()];
    for (at, readers) in may {
        let reads = readers.len() - 1;
        due += reads * share;
        // Of two elements that one instruction reads the first is its operand.
        let taken = readers.iter().any(|(place, _)| changed[*place]);
        if reads > left || due < reads * more || taken {
            continue;
        }
        due -= reads * more;
        left -= reads;
        gone.push(at);
        for (place, ins) in readers {
            changed[place] = true;
            body[place] = ins;
        }
    }
    let mut at = 0..;
    body.retain(|_| at.next().is_none_or(|at| gone.binary_search(&at).is_err()));
}

/// The instructions that read the element that one loads, with memory in its place, where all may have it.
fn readers(
    body: &[Ins],
    at: usize,
    mentions: &[[u32; 2]],
    level: Level,
) -> Option<Vec<(usize, Ins)>> {
    let made = &body[at];
    let dst = made.dst.filter(|_| element(made).is_some())?;
    let [1, reads] = mentions[dst.0 as usize] else {
        return None;
    };
    let mut address = Vec::new();
    made.reads(|r| address.push(r));
    let mut out = Vec::new();
    for (place, ins) in body.iter().enumerate().skip(at + 1) {
        let mut mentioned = false;
        ins.reads(|r| mentioned |= r == dst);
        if mentioned {
            let mut ins = ins.clone();
            let memory = operand(made, &ins, level)?;
            fold(&mut ins, dst, &Instead::Memory(memory)).then_some(())?;
            out.push((place, ins));
        }
        if out.len() == reads as usize {
            return Some(out).filter(|out| !out.is_empty());
        }
        let stores = ins.dst.is_none() && ins.op != Do::Prefetch;
        if stores || ins.dst.is_some_and(|dst| address.contains(&dst)) {
            return None;
        }
    }
    None
}

/// The two registers of an address in a loop's body that moves the second on.
struct Pair {
    base: Reg,
    index: (Reg, u8),
    /// The instruction that moves it on, and by how many bytes.
    moves: usize,
    step: i64,
}

impl Pair {
    /// A pair that some operand is read by.
    fn of_operand(body: &[Ins], next: &Ins) -> Option<Pair> {
        let mut sources = body.iter().flat_map(|ins| &ins.src);
        sources.find_map(|source| match *source {
            Operand::Each(Mem {
                base,
                index: Some(index),
                ..
            }) => Pair::of(body, next, base, index),
            _ => None,
        })
    }

    /// None where it is not a number by which the index moves on, or more is written than that. Of 32 bits it is where the
    /// loop counts by it, which its end bounds.
    fn of(body: &[Ins], next: &Ins, base: Reg, index: (Reg, u8)) -> Option<Pair> {
        let (register, scale) = index;
        let moves = body.iter().position(|ins| ins.dst == Some(register))?;
        let written = |ins: &Ins| ins.dst == Some(register) || ins.dst == Some(base);
        let alone = body.iter().filter(|ins| written(ins)).count() == 1;
        let ins = &body[moves];
        let counts = next.src[0] == Operand::Reg(register);
        let step = match (ins.op, &ins.src[..]) {
            (Do::Add, [Operand::Reg(r), Operand::Imm(step)]) if *r == register => step,
            _ => return None,
        };
        let step = step * i64::from(scale);
        let small = i32::try_from(step).is_ok();
        let whole = counts || ins.width == Width::W64;
        (alone && small && whole).then_some(Pair {
            base,
            index,
            moves,
            step,
        })
    }

    /// Has a body read by one register what it reads by these; the instruction that sets that before the loop. What
    /// nobody else reads is moved on no more.
    fn replace(self, body: &mut Vec<Ins>, pointer: Reg, own: &[Reg]) -> Ins {
        let ours = |m: &Mem| m.base == self.base && m.index == Some(self.index);
        let there = body.iter().flat_map(|ins| &ins.src);
        let displacement = |s: &Operand| match s {
            Operand::Mem(m) | Operand::Each(m) if ours(m) => Some(m.displacement),
            _ => None,
        };
        let there: Vec<i32> = there.filter_map(displacement).collect();
        let first = there.iter().copied().min().unwrap_or(0);
        let reached = there.iter().all(|d| d.checked_sub(first).is_some());
        let first = if reached { first } else { 0 };
        for source in body.iter_mut().flat_map(|ins| &mut ins.src) {
            match source {
                Operand::Mem(m) | Operand::Each(m) if ours(m) => {
                    *m = Mem {
                        base: pointer,
                        index: None,
                        displacement: m.displacement - first,
                    }
                }
                _ => {}
            }
        }
        let made = |op: Do, src: &[Operand], mark: u32| Ins {
            op,
            width: Width::W64,
            dst: Some(pointer),
            src: src.iter().copied().collect(),
            mark,
        };
        let (index, _) = self.index;
        let mark = body[self.moves].mark;
        let by = [Operand::Reg(pointer), Operand::Imm(self.step)];
        let moved = made(Do::Add, &by, mark);
        match own.contains(&index) && reads(body, index) == 1 {
            true => body[self.moves] = moved,
            false => body.insert(self.moves + 1, moved),
        }
        let begin = Mem {
            base: self.base,
            index: Some(self.index),
            displacement: first,
        };
        made(Do::Address, &[Operand::Mem(begin)], mark)
    }
}

/// How often a body reads a register.
fn reads(body: &[Ins], register: Reg) -> u32 {
    let mut count = 0;
    for ins in body {
        ins.reads(|r| count += u32::from(r == register));
    }
    count
}

/// What a body moves on and alone reads, from where it is set just before its loop: it begins there in all of its runs.
fn own(body: &[Ins], before: &[Ins], mentions: &[[u32; 2]]) -> Vec<Reg> {
    let straight = || before.iter().rev().take_while(|ins| !ins.op.is_control());
    let own = |r: &Reg| {
        let set = straight().any(|ins| ins.dst == Some(*r));
        set && reads(body, *r) == mentions[r.0 as usize][1]
    };
    let moves = body.iter().filter(|ins| ins.op == Do::Add);
    moves.filter_map(|ins| ins.dst).filter(own).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::UNMARKED;

    fn put(code: &mut Code, op: Do, dst: Option<Reg>, src: &[Operand]) {
        code.ins.push(Ins {
            op,
            width: Width::Z,
            dst,
            src: src.iter().copied().collect(),
            mark: UNMARKED,
        });
    }

    /// A tile of so many rows and two vectors: its loop reads an element for each row, and moves the index on by one for
    /// all of a term; whether memory is written amid the sums.
    fn tile(rows: i32, stores: bool) -> (Code, Reg) {
        let mut code = Code::default();
        let base = code.reg(Class::General, 8);
        let index = code.reg(Class::General, 8);
        let vectors = [code.reg(Class::Vector, 64), code.reg(Class::Vector, 64)];
        let at = |displacement: i32| Mem {
            base,
            index: Some((index, 4)),
            displacement,
        };
        put(&mut code, Do::Argument(0), Some(base), &[]);
        put(&mut code, Do::Immediate, Some(index), &[Operand::Imm(0)]);
        put(&mut code, Do::Loop, None, &[Operand::Imm(7)]);
        for (v, k) in vectors.iter().zip(0..) {
            let from = [Operand::Mem(at(4096 + 64 * k))];
            put(&mut code, Do::Vector(Vector::Load), Some(*v), &from);
        }
        for row in 0..rows {
            let each = code.reg(Class::Vector, 64);
            let from = [Operand::Mem(at(1024 + 4 * row))];
            put(
                &mut code,
                Do::Vector(Vector::BroadcastSsMem),
                Some(each),
                &from,
            );
            for v in vectors {
                let sum = code.reg(Class::Vector, 64);
                let added = [each, v, sum].map(Operand::Reg);
                put(&mut code, Do::Vector(Vector::FmaPs), Some(sum), &added);
                if stores {
                    let to = [Operand::Mem(at(0)), Operand::Reg(sum)];
                    put(&mut code, Do::Vector(Vector::Store), None, &to);
                }
            }
        }
        let on = [Operand::Reg(index), Operand::Imm(8)];
        put(&mut code, Do::Add, Some(index), &on);
        code.ins.last_mut().expect("it was put").width = Width::W64;
        let more = [Operand::Reg(base), Operand::Imm(5), Operand::Imm(7)];
        put(&mut code, Do::Next, None, &more);
        put(&mut code, Do::Return, None, &[]);
        (code, index)
    }

    fn elements(code: &Code) -> Vec<Mem> {
        let each = |s: &Operand| match s {
            Operand::Each(m) => Some(*m),
            _ => None,
        };
        code.ins
            .iter()
            .flat_map(|i| &i.src)
            .filter_map(each)
            .collect()
    }

    #[test]
    fn no_more_is_read_than_products_are_added() {
        for (rows, operands) in [(2, 0), (4, 0), (5, 1), (8, 4), (12, 8)] {
            let (mut code, _) = tile(rows, false);
            let before = code.ins.len();
            embed(&mut code, Level::V4);
            assert_eq!(elements(&code).len(), 2 * operands, "{rows} rows");
            let read = code.ins.iter().filter(|i| i.op != Do::Address);
            let read: usize = read.map(lines).sum();
            assert!(read <= (2 * rows.max(4)) as usize, "{rows} rows: {read}");
            // What sets the register before the loop is one.
            let set = usize::from(operands > 0);
            assert_eq!(code.ins.len(), before - operands + set, "{rows} rows");
        }
    }

    #[test]
    fn what_is_read_where_memory_was_written_since_stays_as_it_was() {
        let (mut code, _) = tile(8, true);
        let before = format!("{code:?}");
        embed(&mut code, Level::V4);
        assert_eq!(format!("{code:?}"), before);
        let (mut code, _) = tile(8, false);
        let before = format!("{code:?}");
        embed(&mut code, Level::V3);
        assert_eq!(format!("{code:?}"), before, "AVX2 has no such operands");
    }

    #[test]
    fn of_two_elements_in_one_instruction_one_is_an_operand() {
        let (mut code, index) = tile(8, false);
        let at = code.ins.iter().position(|i| i.op == Do::Next);
        let at = at.expect("the loop ends") - 1;
        let rest = code.ins.split_off(at);
        let base = code.ins[0].dst.expect("an argument is put somewhere");
        let each = [code.reg(Class::Vector, 64), code.reg(Class::Vector, 64)];
        for (r, k) in each.iter().zip(0..) {
            let from = [Operand::Mem(Mem {
                base,
                index: Some((index, 4)),
                displacement: 2048 + 4 * k,
            })];
            let load = Do::Vector(Vector::BroadcastSsMem);
            put(&mut code, load, Some(*r), &from);
        }
        // Both by two sums, and many that leave room for reads.
        for k in 0..20 {
            let sum = code.reg(Class::Vector, 64);
            let [a, b] = if k < 2 { each } else { [sum; 2] };
            let added = [a, b, sum].map(Operand::Reg);
            put(&mut code, Do::Vector(Vector::FmaPs), Some(sum), &added);
        }
        code.ins.extend(rest);
        embed(&mut code, Level::V4);
        // Whatever is read is made.
        let made: Vec<Reg> = code.ins.iter().filter_map(|i| i.dst).collect();
        for ins in &code.ins {
            let unmade = |r: Reg| assert!(made.contains(&r) || !each.contains(&r), "{ins:?}");
            ins.reads(unmade);
        }
    }

    #[test]
    fn one_register_moves_on_instead_of_two() {
        let (mut code, index) = tile(8, false);
        embed(&mut code, Level::V4);
        let begin = code.ins.iter().find(|i| i.op == Do::Address);
        let begin = begin.expect("the pointer is set");
        let [Operand::Mem(from)] = begin.src[..] else {
            panic!("{begin:?}");
        };
        assert_eq!((from.index, from.displacement), (Some((index, 4)), 1024));
        let moved = code.ins.iter().filter(|i| i.op == Do::Add);
        let moved: Vec<&Ins> = moved.collect();
        assert_eq!(moved.len(), 1, "the index is wanted no more");
        assert_eq!(moved[0].dst, begin.dst);
        assert_eq!(moved[0].src[1], Operand::Imm(32), "8 elements of 4 bytes");
        let pointer = begin.dst.expect("an address is put somewhere");
        for m in elements(&code) {
            assert_eq!((m.base, m.index), (pointer, None));
            assert!((0..32).contains(&m.displacement));
        }
    }

    #[test]
    fn an_index_that_goes_on_from_run_to_run_moves_on_too() {
        let (mut code, index) = tile(8, false);
        // A loop around, before which the index is set.
        let top = code.ins.iter().position(|i| i.op == Do::Loop);
        let top = top.expect("it has a loop");
        let around = Ins {
            src: [Operand::Imm(8)].into_iter().collect(),
            ..code.ins[top].clone()
        };
        code.ins.insert(top, around);
        embed(&mut code, Level::V4);
        let on = |i: &&Ins| i.op == Do::Add && i.dst == Some(index);
        assert_eq!(code.ins.iter().filter(on).count(), 1);
        assert!(!elements(&code).is_empty());
    }

    #[test]
    fn an_index_that_is_wanted_elsewhere_moves_on_too() {
        let (mut code, index) = tile(8, false);
        let last = code.ins.pop().expect("it returns");
        let sum = code.reg(Class::General, 8);
        let sources = [Operand::Reg(index), Operand::Imm(1)];
        put(&mut code, Do::Add, Some(sum), &sources);
        code.ins.push(last);
        embed(&mut code, Level::V4);
        let moved = |r: &Reg| {
            let on = |i: &&Ins| i.op == Do::Add && i.dst == Some(*r);
            code.ins.iter().filter(on).count()
        };
        assert_eq!(moved(&index), 1);
        assert_eq!(code.ins.iter().filter(|i| i.op == Do::Add).count(), 3);
    }
}
