//! The frame, when all registers have places. Flows in: code whose spilled registers have a place in the frame each;
//! flows out: code without loads of what the register holds still, and with fewer places. Always: two whose spans
//! overlap keep two places.

use super::spans;
use crate::code::{Code, Do, Ins, Operand, Place, Reg};
use crate::table::Vector;
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Drops loads of places in the frame into a register of the machine that holds what is there: it was stored from that
/// register, or loaded into it, and nothing was written to either since. What was loaded has the name of what it holds
/// from there on, so that who reads a register can still be told by its name.
pub(super) fn drop_reloads(code: &mut Code, places: &mut [Place]) {
    // By register of the machine the place in the frame whose content it holds, and the name under which it does.
    let mut holds: [Option<(u32, Reg)>; 48] = [None; 48];
    let mut names: FxHashMap<Reg, Reg> = FxHashMap::default();
    code.ins.retain_mut(|ins| {
        if !names.is_empty() {
            for source in &mut ins.src {
                source.rename(|r| names.get(&r).copied().unwrap_or(r));
            }
        }
        if matches!(ins.op, Do::Loop | Do::Land) {
            holds = [None; 48];
        }
        let dst = ins
            .dst
            .and_then(|reg| Some((number(places[reg.0 as usize])?, reg)));
        match (ins.op, &ins.src[..], dst) {
            (Do::Load64 | Do::Vector(Vector::Load), [Operand::Slot(slot)], Some((at, dst))) => {
                if let Some((_, held)) = holds[at].filter(|(held, _)| held == slot) {
                    names.insert(dst, held);
                    return false;
                }
                holds[at] = Some((*slot, dst));
            }
            (_, [Operand::Slot(slot), Operand::Reg(from)], None) => {
                for held in &mut holds {
                    held.take_if(|(held, _)| held == slot);
                }
                if let Some(at) = number(places[from.0 as usize]) {
                    holds[at] = Some((*slot, *from));
                }
            }
            (_, _, Some((at, _))) => holds[at] = None,
            _ => {}
        }
        true
    });
    for reg in names.into_keys() {
        places[reg.0 as usize] = Place::Nowhere;
    }
}

/// Drops stores to places in the frame that nothing reads.
pub(super) fn drop_stores(code: &mut Code, slots: u32) {
    let mut read = vec![false; slots as usize];
    let stored = |ins: &Ins| match (ins.dst, &ins.src[..]) {
        (None, [Operand::Slot(slot), Operand::Reg(_)]) if ins.memory_source() == Some(0) => {
            Some(*slot as usize)
        }
        _ => None,
    };
    for ins in &code.ins {
        if stored(ins).is_none() {
            for source in &ins.src {
                if let Operand::Slot(slot) = source {
                    read[*slot as usize] = true;
                }
            }
        }
    }
    code.ins
        .retain(|ins| stored(ins).is_none_or(|slot| read[slot]));
}

fn number(place: Place) -> Option<usize> {
    match place {
        Place::General(number) => Some(number as usize),
        Place::Vector(number) => Some(16 + number as usize),
        Place::Nowhere => None,
    }
}

/// Lets places in the frame that are in use at different times be one, and counts those that remain.
pub(super) fn share_slots(code: &mut Code, slots: u32) -> u32 {
    let spans = spans::slots(code, slots);
    let mut numbers = vec![0; slots as usize];
    let mut in_use: BinaryHeap<Reverse<(u32, u32)>> = BinaryHeap::new();
    let mut count = 0;
    for &slot in &spans.order {
        let span = &spans.of[slot as usize];
        let free = in_use
            .peek()
            .is_some_and(|Reverse((end, _))| *end < span.start);
        let number = match in_use.pop() {
            Some(Reverse((_, number))) if free => number,
            other => {
                in_use.extend(other);
                count += 1;
                count - 1
            }
        };
        in_use.push(Reverse((span.end, number)));
        numbers[slot as usize] = number;
    }
    for ins in &mut code.ins {
        for source in &mut ins.src {
            if let Operand::Slot(slot) = source {
                *slot = numbers[*slot as usize];
            }
        }
    }
    count
}
