//! What an innermost loop reads from the frame and does not write there: in a register from before the loop, where one
//! is free as long as it turns. Flows in: code whose registers have places; flows out: the same with such loads before
//! the loops. Always: a register of the machine is taken only where no other has it.

use super::assign::GENERAL;
use super::spans::{NONE, Spans};
use super::spill::load;
use crate::code::{Class, Code, Do, Ins, Level, Operand, Place, Reg, innermost};
use crate::table::Vector;
use rustc_hash::{FxHashMap, FxHashSet};

/// Steps after which no more is looked for: code is compiled in linear time, however much of it there is.
const EFFORT: usize = 1 << 22;

/// See above.
pub(super) fn load_before_loops(
    code: &mut Code,
    spans: &Spans,
    level: Level,
    places: &mut Vec<Place>,
    origin: &mut Vec<Reg>,
) {
    let mut stored: FxHashMap<u32, Reg> = FxHashMap::default();
    for ins in &code.ins {
        stored.extend(write(ins));
    }
    let mut before: FxHashMap<usize, Vec<Ins>> = FxHashMap::default();
    let mut gone: FxHashSet<Reg> = FxHashSet::default();
    let mut effort = 0;
    for l in innermost(&code.ins) {
        let body = &code.ins[l.clone()];
        let mut seen: FxHashSet<u32> = body.iter().filter_map(write).map(|w| w.0).collect();
        let once = |slot: &u32| stored.contains_key(slot) && seen.insert(*slot);
        let wanted: Vec<u32> = body.iter().flat_map(reads).filter(once).collect();
        if wanted.is_empty() {
            continue;
        }
        effort += spans.order.len() + wanted.len() * body.len();
        if effort > EFFORT {
            break;
        }
        let mut free = free(
            spans,
            level,
            places,
            2 * l.start as u32,
            2 * l.end as u32 - 1,
        );
        for slot in wanted {
            let kept = stored[&slot];
            let info = code.regs[kept.0 as usize];
            let general = info.class == Class::General;
            let of_class = |p: &Place| matches!(p, Place::General(_)) == general;
            let Some(at) = free.iter().position(of_class) else {
                continue;
            };
            let reg = Reg(code.regs.len() as u32);
            code.regs.push(info);
            origin.push(origin[kept.0 as usize]);
            places.push(free.remove(at));
            before
                .entry(l.start)
                .or_default()
                .push(load(slot, reg, info));
            for p in l.clone() {
                let ins = &mut code.ins[p];
                if let Some(loaded) = ins.dst.filter(|_| is_load(ins, slot)) {
                    let last = spans.of[loaded.0 as usize].end as usize / 2;
                    if last >= l.end {
                        continue;
                    }
                    gone.insert(loaded);
                    for reader in &mut code.ins[p + 1..=last] {
                        for source in &mut reader.src {
                            source.rename(|r| if r == loaded { reg } else { r });
                        }
                    }
                    continue;
                }
                for source in &mut ins.src {
                    if *source == Operand::Slot(slot) {
                        *source = Operand::Reg(reg);
                    }
                }
            }
        }
    }
    if before.is_empty() {
        return;
    }
    let instructions = std::mem::take(&mut code.ins);
    for (p, ins) in instructions.into_iter().enumerate() {
        code.ins.extend(before.remove(&p).into_iter().flatten());
        if ins.dst.is_none_or(|dst| !gone.contains(&dst)) {
            code.ins.push(ins);
        }
    }
    for reg in gone {
        places[reg.0 as usize] = Place::Nowhere;
    }
}

/// The place in the frame that an instruction writes, and from which register.
fn write(ins: &Ins) -> Option<(u32, Reg)> {
    match (ins.op, &ins.src[..], ins.dst) {
        (
            Do::Store64 | Do::Vector(Vector::Store),
            [Operand::Slot(slot), Operand::Reg(from)],
            None,
        ) => Some((*slot, *from)),
        _ => None,
    }
}

/// Whether an instruction only loads what is at a place in the frame.
fn is_load(ins: &Ins, slot: u32) -> bool {
    let loads = matches!(ins.op, Do::Load64 | Do::Vector(Vector::Load));
    loads && ins.src[..] == [Operand::Slot(slot)]
}

/// The places in the frame that an instruction reads.
fn reads(ins: &Ins) -> impl Iterator<Item = u32> {
    let only_written = write(ins).is_some();
    let slot = move |source: &Operand| match source {
        Operand::Slot(slot) if !only_written => Some(*slot),
        _ => None,
    };
    ins.src.iter().filter_map(slot)
}

/// The registers of the machine that nobody has from one half position to another.
fn free(spans: &Spans, level: Level, places: &[Place], first: u32, last: u32) -> Vec<Place> {
    let mut taken = Vec::new();
    for &number in &spans.order {
        let span = &spans.of[number as usize];
        let within = |gap: &(u32, u32)| gap.0 <= first && last <= gap.1;
        let waits = spans
            .gaps
            .get(&number)
            .is_some_and(|g| g.iter().any(within));
        if span.start != NONE && span.start <= last && first <= span.end && !waits {
            taken.push(places[number as usize]);
        }
    }
    let general = GENERAL.into_iter().map(Place::General);
    let vectors = (0..level.vector_registers()).map(Place::Vector);
    general
        .chain(vectors)
        .filter(|p| !taken.contains(p))
        .collect()
}
