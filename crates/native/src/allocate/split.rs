//! Registers that wait in the frame while a loop turns that does not mention them. Flows in: code and its spans;
//! flows out: the code with a store before and a load after such loops, which registers wait around which, and those that had best
//! be in the frame altogether. Always: only loops in which more is in use than the machine has registers lose any.
//!
//! A loop that waits lets go of a register costs two moves a turn of the loop around it, and of a constant, which is made
//! again, one; that is weighed against a life in the frame.

use super::spans::{NONE, Spans, Waits};
use super::spill::{can_be_made_again, load, store};
use crate::code::{Class, Code, Do, Ins, Level, Operand, Reg};
use rustc_hash::FxHashMap;

/// What constants cost, compared with what must be stored.
const CONSTANT: f32 = 0.4;

/// Steps after which no more is looked for: code is compiled in linear time, however much of it there is.
const EFFORT: usize = 1 << 22;

/// A loop: its first and last instruction, and the loop around it.
struct Loop {
    start: u32,
    end: u32,
    parent: u32,
    depth: i32,
    label: i64,
}

/// What came of it.
#[derive(Default)]
pub(super) struct Split {
    pub(super) waits: Waits,
    pub(super) spilled: Vec<Reg>,
}

/// Registers of each class that may be in use at once.
pub(super) fn most(level: Level, class: Class) -> usize {
    match (class, level) {
        (Class::General, _) => 11,
        (Class::Vector, level) => level.vector_registers() as usize,
    }
}

/// See above.
pub(super) fn split(code: &mut Code, spans: &Spans, level: Level, slots: &mut u32) -> Split {
    let mut out = Split::default();
    let loops = loops(code);
    let mut effort = 0;
    for class in [Class::General, Class::Vector] {
        let mut pressure = pressure(code, spans, class);
        let most = most(level, class) as u16;
        if pressure.iter().all(|&p| p <= most) {
            continue;
        }
        let mentions = Mentions::of(code);
        let mut order: Vec<usize> = (0..loops.len()).collect();
        order.sort_by_key(|&k| -loops[k].depth);
        for k in order {
            let own = &loops[k];
            let range = 2 * own.start as usize..2 * own.end as usize + 2;
            let high = |pressure: &[u16]| pressure[range.clone()].iter().any(|&p| p > most);
            if !high(&pressure) {
                continue;
            }
            let mut candidates = candidates(code, spans, class, &loops, k, &mentions);
            effort += spans.order.len();
            candidates.sort_by(|a, b| a.cost.total_cmp(&b.cost).then(a.reg.0.cmp(&b.reg.0)));
            for c in candidates {
                effort += range.len();
                if effort > EFFORT || !high(&pressure) {
                    break;
                }
                let waits = |k: u32| {
                    let label = loops[k as usize].label;
                    out.waits.get(&label).is_some_and(|w| w.contains(&c.reg))
                };
                let mut around = k as u32;
                while around != NONE && !waits(around) {
                    around = loops[around as usize].parent;
                }
                if around != NONE || out.spilled.contains(&c.reg) {
                    continue;
                }
                let freed = match c.around {
                    Some(m) => {
                        let m = &loops[m as usize];
                        out.waits.entry(m.label).or_default().push(c.reg);
                        2 * m.start as usize..2 * m.end as usize + 2
                    }
                    None => {
                        out.spilled.push(c.reg);
                        let span = &spans.of[c.reg.0 as usize];
                        span.start as usize..span.end as usize + 1
                    }
                };
                effort += freed.len();
                for p in &mut pressure[freed] {
                    *p = p.saturating_sub(1);
                }
            }
        }
    }
    let spilled = std::mem::take(&mut out.spilled);
    for list in out.waits.values_mut() {
        list.retain(|r| !spilled.contains(r));
    }
    out.spilled = spilled;
    if !out.waits.is_empty() {
        insert(code, spans, &out.waits, slots);
    }
    out
}

fn loops(code: &Code) -> Vec<Loop> {
    let mut loops: Vec<Loop> = Vec::new();
    let mut current = NONE;
    let mut depth = 0;
    for (p, ins) in code.ins.iter().enumerate() {
        match (ins.op, ins.src.first(), ins.src.get(2)) {
            (Do::Loop, Some(&Operand::Imm(label)), _) => {
                loops.push(Loop {
                    start: p as u32,
                    end: NONE,
                    parent: current,
                    depth,
                    label,
                });
                current = loops.len() as u32 - 1;
                depth += 1;
            }
            (Do::Next, ..) if current != NONE => {
                let own = &mut loops[current as usize];
                own.end = p as u32;
                current = own.parent;
                depth -= 1;
            }
            _ => {}
        }
    }
    loops
}

/// How many registers of a class are in use at each half position.
fn pressure(code: &Code, spans: &Spans, class: Class) -> Vec<u16> {
    let mut change = vec![0i32; 2 * code.ins.len() + 2];
    for &number in &spans.order {
        let span = &spans.of[number as usize];
        if span.start != NONE && span.into == NONE && code.regs[number as usize].class == class {
            change[span.start as usize] += 1;
            change[span.end as usize + 1] -= 1;
        }
    }
    let mut now = 0;
    let sum = |c: i32| {
        now += c;
        now as u16
    };
    change.into_iter().map(sum).collect()
}

/// Where each register is mentioned, in order.
struct Mentions {
    starts: Vec<u32>,
    at: Vec<u32>,
}

impl Mentions {
    fn of(code: &Code) -> Mentions {
        let mut starts = vec![0u32; code.regs.len() + 1];
        let each = |ins: &Ins, f: &mut dyn FnMut(Reg)| {
            ins.reads(&mut *f);
            ins.dst.into_iter().for_each(f);
        };
        for ins in &code.ins {
            each(ins, &mut |r| starts[r.0 as usize + 1] += 1);
        }
        for i in 1..starts.len() {
            starts[i] += starts[i - 1];
        }
        let mut next = starts.clone();
        let mut at = vec![0; starts[code.regs.len()] as usize];
        for (p, ins) in code.ins.iter().enumerate() {
            each(ins, &mut |r| {
                let k = &mut next[r.0 as usize];
                at[*k as usize] = p as u32;
                *k += 1;
            });
        }
        Mentions { starts, at }
    }

    /// Whether a register is mentioned from one instruction to another.
    fn any(&self, reg: usize, first: u32, last: u32) -> bool {
        let of = &self.at[self.starts[reg] as usize..self.starts[reg + 1] as usize];
        let k = of.partition_point(|&p| p < first);
        of.get(k).is_some_and(|&p| p <= last)
    }
}

/// A register that a loop can do without.
struct Candidate {
    reg: Reg,
    /// The loop around which it waits; None: it is in the frame altogether.
    around: Option<u32>,
    cost: f32,
}

fn candidates(
    code: &Code,
    spans: &Spans,
    class: Class,
    loops: &[Loop],
    k: usize,
    mentions: &Mentions,
) -> Vec<Candidate> {
    let mut out = Vec::new();
    for &number in &spans.order {
        let span = &spans.of[number as usize];
        let info = &code.regs[number as usize];
        if span.start == NONE || span.into != NONE || info.class != class {
            continue;
        }
        let waits = |m: &Loop| {
            // What is first written further down is nothing yet.
            let lasts = span.first < 2 * m.start && span.end > 2 * m.end + 1;
            lasts && !mentions.any(number as usize, m.start, m.end)
        };
        if !waits(&loops[k]) {
            continue;
        }
        let mut around = k as u32;
        while loops[around as usize].parent != NONE
            && waits(&loops[loops[around as usize].parent as usize])
        {
            around = loops[around as usize].parent;
        }
        let constant = info.again.is_some() && can_be_made_again(code, number as usize, span);
        let moves = if constant { 1.0 } else { 2.0 };
        let apart = 8f32.powi(loops[around as usize].depth) * moves;
        let whole = span.cost * if constant { CONSTANT } else { 1.0 };
        out.push(Candidate {
            reg: Reg(number),
            around: (apart < whole).then_some(around),
            cost: apart.min(whole),
        });
    }
    out
}

/// Put the stores before and the loads after the loops.
fn insert(code: &mut Code, spans: &Spans, waits: &Waits, slots: &mut u32) {
    let mut slot_of: FxHashMap<Reg, u32> = FxHashMap::default();
    let mut made: FxHashMap<Reg, Ins> = FxHashMap::default();
    for &reg in waits.values().flatten() {
        let span = &spans.of[reg.0 as usize];
        let constant = code.regs[reg.0 as usize].again.is_some();
        if constant && can_be_made_again(code, reg.0 as usize, span) {
            made.insert(reg, code.ins[span.first as usize / 2].clone());
        } else {
            slot_of.entry(reg).or_insert_with(|| {
                *slots += 1;
                *slots - 1
            });
        }
    }
    let instructions = std::mem::take(&mut code.ins);
    let mut list = Vec::with_capacity(instructions.len() + 8 * waits.len());
    for ins in instructions {
        let label = match (ins.op, &ins.src[..]) {
            (Do::Loop, [Operand::Imm(label), ..]) => Some(*label),
            (Do::Next, [_, _, Operand::Imm(label)]) => Some(*label),
            _ => None,
        };
        let begins = ins.op == Do::Loop;
        let empty = Vec::new();
        let regs = label.and_then(|l| waits.get(&l)).unwrap_or(&empty);
        if !begins {
            list.push(ins.clone());
        }
        for reg in regs {
            let info = code.regs[reg.0 as usize];
            match (slot_of.get(reg), begins) {
                (Some(&slot), true) => {
                    let at = stored(&list, *reg);
                    list.insert(at, store(slot, *reg, info));
                }
                (Some(&slot), false) => list.push(load(slot, *reg, info)),
                (None, false) => list.extend(made.get(reg).cloned()),
                (None, true) => {}
            }
        }
        if begins {
            list.push(ins);
        }
    }
    code.ins = list;
}

/// Most instructions before a loop that may have the place of what waits around it.
const BEFORE: usize = 64;

/// Where a register is stored that waits around the loop that comes next: ahead of what sets the counters of that, so that
/// these may have its place.
fn stored(list: &[Ins], reg: Reg) -> usize {
    let stays = |ins: &Ins| {
        let mut mentions = ins.dst == Some(reg);
        ins.reads(|r| mentions |= r == reg);
        mentions || ins.op.is_control() || matches!(ins.op, Do::Argument(_))
    };
    let passed = list.iter().rev().take(BEFORE).take_while(|ins| !stays(ins));
    list.len() - passed.count()
}
