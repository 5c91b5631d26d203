//! Values that are read from memory again instead of being held. Flows in: code as selection made it; flows out: the
//! same code, in which innermost loops that hold more vectors than the machine has registers read what is in memory
//! where it is wanted next. Invariant: between two such reads of one value nothing is written to memory, and neither
//! are the registers of the address.
//!
//! What would be kept in the frame is so stored once less, and with AVX-512 an element that all lanes read is no
//! instruction of its own. Who is wanted last is let go of first (L. A. Belady, A study of replacement algorithms for a
//! virtual-storage computer, 1966).

use super::spill::{Instead, fold};
use crate::code::{Class, Code, Do, Ins, Level, Mem, Operand, Reg};
use crate::table::Vector;
use rustc_hash::{FxHashMap, FxHashSet};

/// See the module.
pub(crate) fn reread(code: &mut Code, level: Level) {
    let mut begin = None;
    let mut loops: Vec<(usize, usize)> = Vec::new();
    for (i, ins) in code.ins.iter().enumerate() {
        match ins.op {
            Do::Loop => begin = Some(i),
            Do::Next => loops.extend(begin.take().map(|begin| (begin + 1, i))),
            _ => {}
        }
    }
    if loops.is_empty() {
        return;
    }
    let alone_in = alone_in(code, &loops);
    let mut bodies: FxHashMap<usize, (usize, Vec<Ins>)> = FxHashMap::default();
    for (k, &(begin, end)) in loops.iter().enumerate() {
        let own = Body::of(code, begin..end, k as u32, &alone_in);
        if let Some(new) = own.and_then(|mut body| body.fitted(code, level)) {
            bodies.insert(begin, (end, new));
        }
    }
    if bodies.is_empty() {
        return;
    }
    let old = std::mem::take(&mut code.ins);
    let mut skip = 0;
    for (i, ins) in old.into_iter().enumerate() {
        if let Some((end, new)) = bodies.remove(&i) {
            code.ins.extend(new);
            skip = end;
        }
        if i >= skip {
            code.ins.push(ins);
        }
    }
}

/// Registers that are mentioned in no loop yet, and those in several places.
const NOWHERE: u32 = u32::MAX;
const ELSEWHERE: u32 = u32::MAX - 1;

/// By register, the innermost loop that alone mentions it.
fn alone_in(code: &Code, loops: &[(usize, usize)]) -> Vec<u32> {
    let mut of = vec![NOWHERE; code.regs.len()];
    let mut next = 0;
    for (i, ins) in code.ins.iter().enumerate() {
        while loops.get(next).is_some_and(|l| i >= l.1) {
            next += 1;
        }
        let inside = loops.get(next).is_some_and(|l| l.0 <= i);
        let place = if inside { next as u32 } else { ELSEWHERE };
        let mut mention = |r: Reg| {
            let known = &mut of[r.0 as usize];
            *known = match *known {
                NOWHERE => place,
                other if other == place => place,
                _ => ELSEWHERE,
            };
        };
        ins.reads(&mut mention);
        ins.dst.into_iter().for_each(mention);
    }
    of
}

/// The instructions of an innermost loop without jumps, as they become.
struct Body {
    ins: Vec<Ins>,
    /// Of a vector that is the loop's own and written once: where, and where it is read, in order.
    own: FxHashMap<Reg, Life>,
    /// Where registers are written.
    written: FxHashMap<Reg, Vec<usize>>,
    /// Vectors that are held throughout.
    throughout: usize,
}

/// What is in registers at an instruction, and by instruction what is read again for it.
#[derive(Default)]
struct Held {
    live: Vec<Reg>,
    again: FxHashMap<usize, Vec<Reg>>,
}

/// The instruction that makes a value, and those that read it, in order.
struct Life {
    made: usize,
    reads: Vec<usize>,
}

impl Life {
    /// The first from an instruction on that reads it.
    fn next(&self, i: usize) -> Option<usize> {
        let first = self.reads.partition_point(|&read| read < i);
        self.reads.get(first).copied()
    }
}

impl Body {
    /// None where something is written to memory, or not all is done.
    fn of(
        code: &Code,
        range: std::ops::Range<usize>,
        number: u32,
        alone_in: &[u32],
    ) -> Option<Body> {
        let ins = code.ins[range].to_vec();
        let stores = |i: &Ins| i.dst.is_none() && i.op != Do::Prefetch;
        let jumps = |i: &Ins| matches!(i.op, Do::SkipIf(_) | Do::Land | Do::Exchange);
        if ins.iter().any(|i| stores(i) || jumps(i)) {
            return None;
        }
        let mut own: FxHashMap<Reg, Life> = FxHashMap::default();
        let mut written: FxHashMap<Reg, Vec<usize>> = FxHashMap::default();
        let mut held: FxHashSet<Reg> = FxHashSet::default();
        let vector = |r: Reg| code.regs[r.0 as usize].class == Class::Vector;
        for (i, one) in ins.iter().enumerate() {
            one.reads(|r| match own.get_mut(&r) {
                Some(life) if life.reads.last() == Some(&i) => {}
                Some(life) => life.reads.push(i),
                None if vector(r) => drop(held.insert(r)),
                None => {}
            });
            let Some(dst) = one.dst else { continue };
            let writes = written.entry(dst).or_default();
            writes.push(i);
            if !vector(dst) {
                continue;
            }
            let alone = alone_in[dst.0 as usize] == number;
            if writes.len() == 1 && alone && !held.contains(&dst) {
                let life = Life {
                    made: i,
                    reads: Vec::new(),
                };
                own.insert(dst, life);
            } else {
                own.remove(&dst);
                held.insert(dst);
            }
        }
        Some(Body {
            ins,
            own,
            written,
            throughout: held.len(),
        })
    }

    /// The instructions, where some hold more than there are registers and that can be helped.
    fn fitted(&mut self, code: &mut Code, level: Level) -> Option<Vec<Ins>> {
        let most = (level.vector_registers() as usize).checked_sub(self.throughout)?;
        let mut held = Held::default();
        for i in 0..self.ins.len() {
            // What is read again here lives from here on.
            let new = held.again.get(&i).into_iter().flatten();
            held.live.extend(new.copied());
            self.let_go(code, i, most, &mut held);
            held.live
                .retain(|r| self.own[r].reads.last().is_some_and(|&last| last > i));
            if let Some(dst) = self.ins[i].dst.filter(|d| self.own.contains_key(d)) {
                held.live.push(dst);
            }
            self.let_go(code, i, most, &mut held);
        }
        (!held.again.is_empty()).then(|| self.rewritten(&held.again, level))
    }

    /// Let go of what is wanted last and is in memory, while more is held at an instruction than there are registers.
    fn let_go(&mut self, code: &mut Code, i: usize, most: usize, held: &mut Held) {
        while held.live.len() > most {
            // Where it is read next, unless that is here.
            let next = |r: &Reg| self.own[r].next(i).filter(|&at| at > i);
            let may = held.live.iter().filter(|r| self.is_in_memory(**r, i));
            let last = may
                .filter_map(|r| Some((next(r)?, *r)))
                .max_by_key(|l| (l.0, l.1.0));
            let Some((at, reg)) = last.filter(|l| l.0 > i + 1) else {
                return;
            };
            held.live.retain(|r| *r != reg);
            let info = code.regs[reg.0 as usize];
            let new = code.reg(info.class, info.bytes as usize);
            let Some(life) = self.own.get_mut(&reg) else {
                return;
            };
            let first = life.reads.partition_point(|&read| read < at);
            let life = Life {
                made: life.made,
                reads: life.reads.split_off(first),
            };
            self.own.insert(new, life);
            held.again.entry(at).or_default().push(new);
        }
    }

    /// Whether what a register holds can be read again anywhere behind an instruction, as long as it is wanted.
    fn is_in_memory(&self, reg: Reg, i: usize) -> bool {
        let life = &self.own[&reg];
        let made = &self.ins[life.made];
        let [Operand::Mem(from)] = made.src[..] else {
            return false;
        };
        let last = life.reads.last().copied().unwrap_or(i);
        let still = |r: &Reg| {
            let writes = self.written.get(r).into_iter().flatten();
            writes.copied().all(|at| at < life.made || at > last)
        };
        let mut address = [from.base].into_iter().chain(from.index.map(|x| x.0));
        is_load(made) && address.all(|r| still(&r))
    }

    /// With what is read again.
    fn rewritten(&self, again: &FxHashMap<usize, Vec<Reg>>, level: Level) -> Vec<Ins> {
        let mut names: FxHashMap<Reg, Reg> = FxHashMap::default();
        let mut out = Vec::with_capacity(self.ins.len() * 5 / 4);
        for (i, ins) in self.ins.iter().enumerate() {
            let mut ins = ins.clone();
            // It was let go of before anybody read it.
            let life = ins.dst.and_then(|dst| self.own.get(&dst));
            if is_load(&ins) && life.is_some_and(|life| life.reads.is_empty()) {
                continue;
            }
            for new in again.get(&i).into_iter().flatten() {
                let first = self.ins[self.own[new].made].dst;
                names.extend(first.map(|first| (first, *new)));
            }
            for s in &mut ins.src {
                if let Operand::Reg(r) = s {
                    *r = names.get(r).copied().unwrap_or(*r);
                }
            }
            for &new in again.get(&i).into_iter().flatten() {
                let life = &self.own[&new];
                let made = &self.ins[life.made];
                let alone = life.reads.len() == 1;
                if alone
                    && let Some(memory) = operand(made, &ins, level)
                    && fold(&mut ins, new, &Instead::Memory(memory))
                {
                    continue;
                }
                out.push(Ins {
                    dst: Some(new),
                    ..made.clone()
                });
            }
            out.push(ins);
        }
        out
    }
}

/// Whether an instruction does nothing but read a vector from memory, or an element for every lane of one.
fn is_load(ins: &Ins) -> bool {
    let whole = ins.op == Do::Vector(Vector::Load) && matches!(ins.src[..], [Operand::Mem(_)]);
    whole || element(ins).is_some()
}

/// The element of memory that an instruction puts in every lane.
fn element(ins: &Ins) -> Option<Mem> {
    use Vector::{BroadcastD, BroadcastQ, BroadcastSdMem, BroadcastSsMem};
    match (ins.op, &ins.src[..]) {
        (
            Do::Vector(BroadcastSsMem | BroadcastSdMem | BroadcastD | BroadcastQ),
            [Operand::Mem(m)],
        ) => Some(*m),
        _ => None,
    }
}

/// What a load loads, as an operand of the one instruction that reads it, if it may be one.
fn operand(made: &Ins, reader: &Ins, level: Level) -> Option<Operand> {
    use Vector::*;
    let singles = matches!(reader.op, Do::Vector(AddPs | SubPs | MulPs | FmaPs));
    let doubles = matches!(reader.op, Do::Vector(AddPd | SubPd | MulPd | FmaPd));
    let each = match made.op {
        Do::Vector(BroadcastSsMem) => singles,
        Do::Vector(BroadcastSdMem) => doubles,
        _ => false,
    };
    match (made.op, element(made), &made.src[..]) {
        (_, Some(m), _) if each && level >= Level::V4 => Some(Operand::Each(m)),
        (Do::Vector(Load), _, [memory]) if level > Level::V2 => {
            let whole = made.width == reader.width && (singles || doubles);
            whole.then_some(*memory)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::{UNMARKED, Width};
    use crate::spills::in_innermost_loops;

    fn put(code: &mut Code, op: Do, dst: Option<Reg>, src: &[Operand]) {
        code.ins.push(Ins {
            op,
            width: Width::Y,
            dst,
            src: src.iter().copied().collect(),
            mark: UNMARKED,
        });
    }

    /// A loop that reads so many elements of memory, or vectors, and adds all of them to a sum twice, in order; what is
    /// stored in it, if anything is, and whether the address is written between.
    fn twice(count: i32, load: Vector, stores: bool, moves: bool) -> Code {
        let mut code = Code::default();
        let base = code.reg(Class::General, 8);
        let counter = code.reg(Class::General, 8);
        let sum = code.reg(Class::Vector, 32);
        put(&mut code, Do::Argument(0), Some(base), &[]);
        put(&mut code, Do::Immediate, Some(counter), &[Operand::Imm(0)]);
        put(&mut code, Do::Zero, Some(sum), &[]);
        put(&mut code, Do::Loop, None, &[Operand::Imm(7)]);
        let at = |k: i32| Mem {
            base,
            index: None,
            displacement: 32 * k,
        };
        let values: Vec<Reg> = (0..count).map(|_| code.reg(Class::Vector, 32)).collect();
        for (&v, k) in values.iter().zip(0..) {
            put(&mut code, Do::Vector(load), Some(v), &[Operand::Mem(at(k))]);
        }
        for half in 0..2 {
            for &v in &values {
                let both = [Operand::Reg(sum), Operand::Reg(v)];
                put(&mut code, Do::Vector(Vector::AddPs), Some(sum), &both);
            }
            let next = [Operand::Reg(base), Operand::Imm(8)];
            if half == 0 && moves {
                put(&mut code, Do::Add, Some(base), &next);
            }
            if half == 0 && stores {
                let to = [Operand::Mem(at(0)), Operand::Reg(sum)];
                put(&mut code, Do::Vector(Vector::Store), None, &to);
            }
        }
        let more = [Operand::Reg(counter), Operand::Imm(5), Operand::Imm(7)];
        put(&mut code, Do::Next, None, &more);
        put(
            &mut code,
            Do::Vector(Vector::Store),
            None,
            &[Operand::Mem(at(0)), Operand::Reg(sum)],
        );
        put(&mut code, Do::Return, None, &[]);
        code
    }

    /// Where what is added comes from, one after the other.
    fn added(code: &Code) -> Vec<i32> {
        let mut from: FxHashMap<Reg, i32> = FxHashMap::default();
        let mut out = Vec::new();
        for ins in &code.ins {
            let memory = ins.src.iter().find_map(|s| match s {
                Operand::Mem(m) | Operand::Each(m) => Some(m.displacement),
                _ => None,
            });
            match ins.op {
                Do::Vector(Vector::AddPs) => out.push(match (ins.src[1], memory) {
                    (Operand::Reg(r), None) => from[&r],
                    (_, Some(m)) => m,
                    other => panic!("{other:?}"),
                }),
                _ => from.extend(ins.dst.zip(memory)),
            }
        }
        out
    }

    #[test]
    fn what_is_in_memory_is_read_again() {
        for level in [Level::V2, Level::V3, Level::V4] {
            for load in [Vector::Load, Vector::BroadcastSsMem] {
                let before = twice(40, load, false, false);
                let mut code = before.clone();
                reread(&mut code, level);
                assert_eq!(added(&code), added(&before), "{level:?} {load:?}");
                assert_ne!(code.ins, before.ins);
                let allocated = super::super::allocate(code, level);
                let spilling = in_innermost_loops(&allocated);
                assert!(spilling.is_empty(), "{level:?} {load:?}: {spilling:#?}");
            }
        }
    }

    #[test]
    fn what_may_have_changed_is_not() {
        let same = |before: Code| {
            let mut code = before.clone();
            reread(&mut code, Level::V4);
            assert_eq!(code.ins, before.ins);
        };
        same(twice(40, Vector::Load, true, false));
        same(twice(40, Vector::Load, false, true));
        // There is room for these.
        same(twice(20, Vector::Load, false, false));
    }
}
