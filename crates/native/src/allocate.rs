//! Registers of the machine for registers without number. Flows in: code as selection made it; flows out: the same
//! code with a place for every register it mentions, and with loads and stores of what is kept in the frame. Always:
//! it succeeds, and equal code gets equal places.
//!
//! A round is: where each register is in use (`spans`), places in the order of starts (`assign`), and a rewriting
//! that keeps in the frame what found no place (`spill`); after the last, `before` takes loads out of innermost loops, and
//! `frame` tidies what is left there. What the rewriting puts in lives from one instruction to the next and is never kept in
//! the frame itself, so that rounds come to an end.

mod assign;
mod before;
mod embed;
mod frame;
mod reread;
mod spans;
mod spill;
mod split;

use crate::code::{Allocated, Code, Level, Reg};
use spans::{NONE, Waits};

/// Rounds after which all that can be is kept in the frame: code that needs more than a few has not been seen.
const ROUNDS: usize = 16;

/// Has instructions read from memory what need not be in a register: what comes before places are given, and the
/// checker.
pub(crate) fn read_from_memory(code: &mut Code, level: Level) {
    embed::embed(code, level);
    reread::reread(code, level);
}

/// Gives every register a place.
pub fn allocate(code: Code, level: Level) -> Allocated {
    let mut code = code;
    let tiny = code.regs.len() as u32;
    let mut origin: Vec<Reg> = (0..tiny).map(Reg).collect();
    let mut slots = 0;
    let mut spans = spans::registers(&code, &Waits::default());
    let mut gone = spill::fold_single_uses(&mut code, &mut spans);
    let split = split::split(&mut code, &spans, level, &mut slots);
    let waits = split.waits;
    if !waits.is_empty() {
        spans = spans::registers(&code, &waits);
        for reg in &gone {
            spans.of[reg.0 as usize].start = NONE;
        }
    }
    if !split.spilled.is_empty() {
        let spilled = &split.spilled;
        spill::spill(&mut code, &spans, spilled, &gone, &mut origin, &mut slots);
        gone.clear();
        spans = spans::registers(&code, &waits);
    }
    let mut round = 1;
    let mut places = loop {
        let assigned = assign::assign(&code, &spans, level, tiny);
        if assigned.spilled.is_empty() {
            break assigned.places;
        }
        let spilled = match round < ROUNDS {
            true => assigned.spilled,
            false => everything(&spans, tiny),
        };
        spill::spill(&mut code, &spans, &spilled, &gone, &mut origin, &mut slots);
        gone.clear();
        spans = spans::registers(&code, &waits);
        round += 1;
    };
    if slots > 0 {
        before::load_before_loops(&mut code, &spans, level, &mut places, &mut origin);
    }
    if !gone.is_empty() {
        let mut dropped = vec![false; code.regs.len()];
        for reg in gone {
            dropped[reg.0 as usize] = true;
        }
        code.ins
            .retain(|ins| ins.dst.is_none_or(|dst| !dropped[dst.0 as usize]));
    }
    if slots > 0 {
        frame::drop_reloads(&mut code, &mut places);
        frame::drop_stores(&mut code, slots);
        slots = frame::share_slots(&mut code, slots);
    }
    Allocated {
        code,
        places,
        origin,
        slots,
    }
}

/// All registers that can be kept in the frame.
fn everything(spans: &spans::Spans, tiny: u32) -> Vec<Reg> {
    let mentioned = |&number: &u32| number < tiny && spans.of[number as usize].start != NONE;
    spans
        .order
        .iter()
        .copied()
        .filter(mentioned)
        .map(Reg)
        .collect()
}
