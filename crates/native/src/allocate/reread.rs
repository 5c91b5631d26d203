//! Values that are read from memory again instead of being held. Flows in: code as selection made it; flows out: the
//! same code, in which innermost loops that hold more vectors than the machine has registers read what is in memory
//! where it is wanted next. Invariant: between two such reads of one value that memory is not written, and neither
//! are the registers of the address.
//!
//! What would be kept in the frame is so stored once less, and with AVX-512 an element that all lanes read is no
//! instruction of its own. Who is wanted last is let go of first (L. A. Belady, A study of replacement algorithms for a
//! virtual-storage computer, 1966). Where that is not enough, what was read before the loop is read in it: first what
//! it mentions least.

use super::spill::{Instead, fold};
use super::split::most;
use crate::code::{Class, Code, Do, Ins, Level, Mem, Operand, Reg, innermost};
use crate::table::Vector;
use rustc_hash::{FxHashMap, FxHashSet};
use std::ops::Range;

/// See the module.
pub(super) fn reread(code: &mut Code, level: Level) {
    let loops = innermost(&code.ins).into_iter();
    let loops: Vec<Range<usize>> = loops.map(|l| l.start + 1..l.end - 1).collect();
    if loops.is_empty() {
        return;
    }
    let alone_in = alone_in(code, &loops);
    let mut bodies: FxHashMap<usize, (usize, Vec<Ins>)> = FxHashMap::default();
    for (k, range) in loops.iter().enumerate() {
        let is_alone = |r: Reg| alone_in[r.0 as usize] == k as u32;
        let body = Body::of(code, range.clone(), is_alone);
        if let Some(new) = body.and_then(|body| body.fitted(code, level)) {
            bodies.insert(range.start, (range.end, new));
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
    // What was let go of before anybody read it.
    let mut read = vec![false; code.regs.len()];
    for ins in &code.ins {
        ins.reads(|r| read[r.0 as usize] = true);
    }
    let is_read = |ins: &Ins| ins.dst.is_none_or(|dst| read[dst.0 as usize]);
    code.ins.retain(|ins| is_read(ins) || !is_load(ins));
}

/// Registers that are mentioned in no loop yet, and those in several places.
const NOWHERE: u32 = u32::MAX;
const ELSEWHERE: u32 = u32::MAX - 1;

/// By register, the innermost loop that alone mentions it.
fn alone_in(code: &Code, loops: &[Range<usize>]) -> Vec<u32> {
    let mut of = vec![NOWHERE; code.regs.len()];
    let mut next = 0;
    for (i, ins) in code.ins.iter().enumerate() {
        while loops.get(next).is_some_and(|l| i >= l.end) {
            next += 1;
        }
        let inside = loops.get(next).is_some_and(|l| l.contains(&i));
        let place = if inside { next as u32 } else { ELSEWHERE };
        mentions(ins, |r| {
            let known = &mut of[r.0 as usize];
            *known = match *known {
                NOWHERE => place,
                other if other == place => place,
                _ => ELSEWHERE,
            };
        });
    }
    of
}

/// The registers that an instruction reads, and then the one that it writes.
fn mentions(ins: &Ins, mut f: impl FnMut(Reg)) {
    ins.reads(&mut f);
    ins.dst.into_iter().for_each(f);
}

/// The instructions of an innermost loop without jumps, as they become.
struct Body {
    range: Range<usize>,
    ins: Vec<Ins>,
    /// Of a vector that is the loop's own and written once: where it lives.
    own: FxHashMap<Reg, Life>,
    /// Where registers are written.
    written: FxHashMap<Reg, Vec<usize>>,
    /// Vectors that are held throughout.
    throughout: FxHashSet<Reg>,
    /// Whether something is written to memory.
    stores: bool,
}

/// What is in registers at an instruction, and by instruction what is read again for it.
#[derive(Default)]
struct Held {
    live: Vec<Reg>,
    again: FxHashMap<usize, Vec<Reg>>,
    /// How many too many there were at most.
    over: usize,
}

/// The register that a value is in at first, what makes it, where, and the instructions that read it, in order.
#[derive(Clone)]
struct Life {
    value: Reg,
    by: Ins,
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
    /// None where not all is done.
    fn of(code: &Code, range: Range<usize>, is_alone: impl Fn(Reg) -> bool) -> Option<Body> {
        let ins = &code.ins[range.clone()];
        let jumps = |i: &Ins| matches!(i.op, Do::SkipIf(_) | Do::Land | Do::Exchange);
        let stores = ins.iter().any(|i| i.dst.is_none() && i.op != Do::Prefetch);
        // Beside what is written to memory, what is read again has been read before, or is an element for all lanes.
        let lasts = |i: &Ins| {
            let mut lasts = false;
            let each = element(i).is_some();
            mentions(i, |r| {
                lasts |= code.regs[r.0 as usize].lasting && (each || !is_alone(r))
            });
            lasts
        };
        if ins.iter().any(jumps) || stores && !ins.iter().any(lasts) {
            return None;
        }
        let mut own: FxHashMap<Reg, Life> = FxHashMap::default();
        let mut written: FxHashMap<Reg, Vec<usize>> = FxHashMap::default();
        let mut throughout: FxHashSet<Reg> = FxHashSet::default();
        let vector = |r: Reg| code.regs[r.0 as usize].class == Class::Vector;
        for (i, one) in ins.iter().enumerate() {
            one.reads(|r| match own.get_mut(&r) {
                Some(life) if life.reads.last() == Some(&i) => {}
                Some(life) => life.reads.push(i),
                None => throughout.extend(Some(r).filter(|r| vector(*r))),
            });
            let Some(dst) = one.dst else { continue };
            let writes = written.entry(dst).or_default();
            writes.push(i);
            if !vector(dst) {
                continue;
            }
            if writes.len() == 1 && is_alone(dst) && !throughout.contains(&dst) {
                let life = Life {
                    value: dst,
                    by: one.clone(),
                    made: i,
                    reads: Vec::new(),
                };
                own.insert(dst, life);
            } else {
                own.remove(&dst);
                throughout.insert(dst);
            }
        }
        Some(Body {
            ins: ins.to_vec(),
            range,
            own,
            written,
            throughout,
            stores,
        })
    }

    /// The instructions, where some hold more than there are registers and that can be helped.
    fn fitted(mut self, code: &mut Code, level: Level) -> Option<Vec<Ins>> {
        let own = self.own.clone();
        let mut held = self.held(code, level, FxHashMap::default());
        let before = match held.over {
            0 => Vec::new(),
            _ => self.read_before(code),
        };
        let mut within = 0;
        while held.over > 0 && within < before.len() {
            within = before.len().min(within + held.over.max(within));
            self.own = own.clone();
            let mut again: FxHashMap<usize, Vec<Reg>> = FxHashMap::default();
            for life in &before[..within] {
                self.throughout.remove(&life.value);
                let new = copy(code, life.value);
                self.own.insert(new, life.clone());
                again.entry(life.made).or_default().push(new);
            }
            held = self.held(code, level, again);
        }
        (!held.again.is_empty()).then(|| self.rewritten(&held.again, level))
    }

    /// What is read again where, with what is so in any case, for no more to be held than there are registers.
    fn held(&mut self, code: &mut Code, level: Level, again: FxHashMap<usize, Vec<Reg>>) -> Held {
        let most = most(level, Class::Vector) as i64 - self.throughout.len() as i64;
        let mut held = Held {
            again,
            ..Held::default()
        };
        for i in 0..self.ins.len() {
            // What is read again here lives from here on, unless it is an operand.
            for &new in held.again.get(&i).into_iter().flatten() {
                if !self.is_operand(new, &mut self.ins[i].clone(), level) {
                    held.live.push(new);
                }
            }
            self.let_go(code, i, most, &mut held);
            held.live
                .retain(|r| self.own[r].reads.last().is_some_and(|&last| last > i));
            if let Some(dst) = self.ins[i].dst.filter(|d| self.own.contains_key(d)) {
                held.live.push(dst);
            }
            self.let_go(code, i, most, &mut held);
        }
        held
    }

    /// Let go of what is wanted last and is in memory, while more is held at an instruction than there are registers.
    fn let_go(&mut self, code: &mut Code, i: usize, most: i64, held: &mut Held) {
        while held.live.len() as i64 > most {
            // Where it is read next, unless that is here.
            let next = |r: &Reg| self.own[r].next(i).filter(|&at| at > i);
            let may = held.live.iter().filter(|r| self.is_in_memory(code, **r));
            let last = may
                .filter_map(|r| Some((next(r)?, *r)))
                .max_by_key(|l| (l.0, l.1.0));
            let Some((at, reg)) = last.filter(|l| l.0 > i + 1) else {
                let over = held.live.len() as i64 - most;
                held.over = held.over.max(over as usize);
                return;
            };
            held.live.retain(|r| *r != reg);
            let new = copy(code, reg);
            let Some(life) = self.own.get_mut(&reg) else {
                return;
            };
            let first = life.reads.partition_point(|&read| read < at);
            let reads = life.reads.split_off(first);
            let life = Life {
                reads,
                ..life.clone()
            };
            self.own.insert(new, life);
            held.again.entry(at).or_default().push(new);
        }
    }

    /// Whether what a register holds can be read again anywhere as long as it is wanted. Beside what is written to
    /// other memory elements alone are: whole vectors lie across lines of the cache, where a place in the frame does not.
    fn is_in_memory(&self, code: &Code, reg: Reg) -> bool {
        let life = &self.own[&reg];
        let last = life.reads.last().copied().unwrap_or(life.made);
        let mut still = true;
        life.by.reads(|r| {
            let mut writes = self.written.get(&r).into_iter().flatten();
            still &= writes.all(|&at| at < life.made || at > last);
        });
        let lasting = code.regs[life.value.0 as usize].lasting && element(&life.by).is_some();
        is_load(&life.by) && still && (lasting || !self.stores)
    }

    /// What is held throughout though it was read before the loop, which stands where that was done, and memory has it
    /// still; first what is mentioned least. What is mentioned more often than twice costs more than what would be kept
    /// in the frame instead.
    fn read_before(&self, code: &Code) -> Vec<Life> {
        let mut reads: FxHashMap<Reg, Vec<usize>> = FxHashMap::default();
        for (i, ins) in self.ins.iter().enumerate() {
            ins.reads(|r| reads.entry(r).or_default().push(i));
        }
        reads.values_mut().for_each(Vec::dedup);
        let mut written: FxHashSet<Reg> = self.written.keys().copied().collect();
        let lasting = |r: &&Reg| code.regs[r.0 as usize].lasting && !written.contains(r);
        let mut wanted: FxHashSet<Reg> = self.throughout.iter().filter(lasting).copied().collect();
        let mut out: Vec<Life> = Vec::new();
        let mut inside = 0;
        for ins in code.ins[..self.range.start - 1].iter().rev() {
            match ins.op {
                Do::Next => inside += 1,
                Do::Loop if inside > 0 => inside -= 1,
                Do::Loop | Do::SkipIf(_) | Do::Land => break,
                _ if wanted.is_empty() => break,
                _ => {}
            }
            let Some(dst) = ins.dst else { continue };
            written.insert(dst);
            let mut kept = wanted.remove(&dst) && is_load(ins) && inside == 0;
            ins.reads(|r| kept &= !written.contains(&r));
            if kept && reads[&dst].len() <= 2 {
                out.push(Life {
                    value: dst,
                    by: ins.clone(),
                    made: reads[&dst][0],
                    reads: reads[&dst].clone(),
                });
            }
        }
        out.sort_by_key(|life| (life.reads.len(), life.value.0));
        out
    }

    /// With what is read again.
    fn rewritten(&self, again: &FxHashMap<usize, Vec<Reg>>, level: Level) -> Vec<Ins> {
        let mut names: FxHashMap<Reg, Reg> = FxHashMap::default();
        let mut out = Vec::with_capacity(self.ins.len() * 5 / 4);
        for (i, ins) in self.ins.iter().enumerate() {
            let mut ins = ins.clone();
            for &new in again.get(&i).into_iter().flatten() {
                let life = &self.own[&new];
                if !self.is_operand(new, &mut ins, level) {
                    names.insert(life.value, new);
                    out.push(Ins {
                        dst: Some(new),
                        ..life.by.clone()
                    });
                }
            }
            for s in &mut ins.src {
                if let Operand::Reg(r) = s {
                    *r = names.get(r).copied().unwrap_or(*r);
                }
            }
            out.push(ins);
        }
        out
    }

    /// Whether what is read again for an instruction is memory in it, as which it then stands there.
    fn is_operand(&self, new: Reg, reader: &mut Ins, level: Level) -> bool {
        let life = &self.own[&new];
        let memory = operand(&life.by, reader, level).filter(|_| life.reads.len() == 1);
        memory.is_some_and(|memory| fold(reader, life.value, &Instead::Memory(memory)))
    }
}

/// A register for what another one has.
fn copy(code: &mut Code, reg: Reg) -> Reg {
    let info = code.regs[reg.0 as usize];
    code.reg(info.class, info.bytes as usize)
}

/// Whether an instruction does nothing but read a vector from memory, or an element for every lane of one.
fn is_load(ins: &Ins) -> bool {
    let whole = ins.op == Do::Vector(Vector::Load) && matches!(ins.src[..], [Operand::Mem(_)]);
    whole || element(ins).is_some()
}

/// The element of memory that an instruction puts in every lane.
pub(super) fn element(ins: &Ins) -> Option<Mem> {
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
pub(super) fn operand(made: &Ins, reader: &Ins, level: Level) -> Option<Operand> {
    use Vector::*;
    let words = matches!(reader.op, Do::Vector(DotW | DotUB | DotBF16));
    let singles = matches!(reader.op, Do::Vector(AddPs | SubPs | MulPs | FmaPs));
    let doubles = matches!(reader.op, Do::Vector(AddPd | SubPd | MulPd | FmaPd));
    let each = match made.op {
        Do::Vector(BroadcastSsMem) => singles || words,
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

    /// A loop that stores sums of so many elements that were read before it; of how many memory has them still, and
    /// whether an address is written behind them.
    fn of_elements_before(count: i32, lasting: i32, moves: bool) -> Code {
        let mut code = Code::default();
        let base = code.reg(Class::General, 8);
        let to = code.reg(Class::General, 8);
        put(&mut code, Do::Argument(0), Some(base), &[]);
        put(&mut code, Do::Argument(1), Some(to), &[]);
        let at = |base: Reg, displacement: i32| {
            Operand::Mem(Mem {
                base,
                index: None,
                displacement,
            })
        };
        let each = Do::Vector(Vector::BroadcastSsMem);
        let mut values = Vec::new();
        for k in 0..count {
            let v = code.reg(Class::Vector, 32);
            code.regs[v.0 as usize].lasting = k < lasting;
            put(&mut code, each, Some(v), &[at(base, 4 * k)]);
            values.push(v);
        }
        let next = [Operand::Reg(base), Operand::Imm(4)];
        if moves {
            put(&mut code, Do::Add, Some(base), &next);
        }
        put(&mut code, Do::Loop, None, &[Operand::Imm(7)]);
        let mut sum = values[0];
        for &v in &values[1..] {
            let both = [Operand::Reg(sum), Operand::Reg(v)];
            sum = code.reg(Class::Vector, 32);
            put(&mut code, Do::Vector(Vector::AddPs), Some(sum), &both);
        }
        let stored = [at(to, 0), Operand::Reg(sum)];
        put(&mut code, Do::Vector(Vector::Store), None, &stored);
        let more = [Operand::Reg(to), Operand::Imm(5), Operand::Imm(7)];
        put(&mut code, Do::Next, None, &more);
        put(&mut code, Do::Return, None, &[]);
        code
    }

    #[test]
    fn what_was_read_before_a_loop_is_read_in_it() {
        for level in [Level::V2, Level::V3, Level::V4] {
            let mut code = of_elements_before(40, 40, false);
            reread(&mut code, level);
            let each = code.ins.iter().filter(|ins| {
                let each = |s: &Operand| matches!(s, Operand::Each(_));
                element(ins).is_some() || ins.src.iter().any(each)
            });
            assert_eq!(each.count(), 40, "{level:?}: once each, where it is wanted");
            let allocated = super::super::allocate(code, level);
            let spilling = in_innermost_loops(&allocated);
            assert!(spilling.is_empty(), "{level:?}: {spilling:#?}");
            // What memory has no more, behind an address that changed, or what there is room for; of the first it has.
            for (count, lasting, moves) in [(40, 1, false), (40, 40, true), (10, 10, false)] {
                let mut code = of_elements_before(count, lasting, moves);
                reread(&mut code, level);
                let begin = code.ins.iter().position(|i| i.op == Do::Loop).unwrap();
                let within = code.ins[begin..].iter().flat_map(|i| &i.src);
                let read = within.filter_map(|s| match s {
                    Operand::Mem(m) | Operand::Each(m) => Some(m.displacement),
                    _ => None,
                });
                assert!(read.max() == Some(0), "{level:?} {count} {lasting} {moves}");
            }
        }
    }

    #[test]
    fn beside_stores_elements_alone_are_read_again() {
        for (load, again) in [(Vector::BroadcastSsMem, true), (Vector::Load, false)] {
            let mut before = twice(40, load, true, false);
            for reg in &mut before.regs {
                reg.lasting = reg.class == Class::Vector;
            }
            let mut code = before.clone();
            reread(&mut code, Level::V4);
            assert_eq!(code.ins != before.ins, again, "{load:?}");
        }
    }
}
