//! Loops that work on what they read ask for what they read next. Flows in: a LINEAR; flows out: the same list, where an
//! innermost loop that goes through storage which the second cache does not hold, and does much with each line, asks
//! for the lines of later turns: by a LOAD whose place is LOCAL, and whose value nobody needs. Invariant: no value is
//! another one.
//!
//! A core looks ahead by as many instructions as it can hold, which are few lines where each takes many, and what it
//! fetches by itself does not make up for them: memory would wait while the core works, and the core while memory does.

use crate::ahead::{LEAST, LINE, Later, Loop, NEXT, UNDER_WAY, insert, is_far, plain};
use crate::nests;
use monoglot_uop::{Op, Target, UOp};
use rustc_hash::{FxHashMap, FxHashSet};

/// Fewest instructions of a line that are work.
const WORK: usize = 8;

/// Have lines asked for while others are worked on.
pub(crate) fn ask(linear: UOp, target: &Target) -> UOp {
    let list = linear.src();
    if !list.iter().any(|u| is_far(u, target)) {
        return linear;
    }
    let mut after: FxHashMap<Loop, Vec<UOp>> = FxHashMap::default();
    let mut numbers = Vec::new();
    // Storage that was gone through already: a cache holds a slice of it.
    let mut read = FxHashSet::default();
    let loops = nests::Loop::all(list);
    for inside in loops.iter().filter(|l| l.inside.is_empty()) {
        let lines = lines(list, inside, target);
        let turns = (UNDER_WAY / (lines.len().max(1) as i128 * LINE)).max(1);
        let enough = inside.turns.is_some_and(|n| n as i128 >= 2 * turns);
        let range = &list[inside.begin];
        for line in lines.iter().filter(|l| enough && !read.contains(&l.slot)) {
            if let Some(later) = Later::of(line.load, range, line.step, turns, None) {
                numbers.extend(later.numbers);
                let asked = after.entry(line.at).or_default();
                asked.extend(later.gate.into_iter().chain(later.line));
            }
        }
        read.extend(slots(list, inside));
    }
    match after.is_empty() {
        true => linear,
        false => insert(linear, numbers, after),
    }
}

/// A line that a loop reads.
struct Line<'a> {
    /// The place in the list of the first LOAD of it.
    at: usize,
    load: &'a UOp,
    slot: u64,
    /// Elements from a turn to the next one.
    step: i128,
}

/// The storage that a loop reads.
fn slots(list: &[UOp], inside: &nests::Loop) -> impl Iterator<Item = u64> {
    let loads = inside.body(list).iter();
    loads.filter_map(|u| plain(u).map(|(slot, _, _)| slot))
}

/// The lines that a loop reads beyond the second cache, where it does enough with them.
fn lines<'a>(list: &'a [UOp], inside: &nests::Loop, target: &Target) -> Vec<Line<'a>> {
    let body = inside.body(list);
    let range = &list[inside.begin];
    let mut seen = FxHashSet::default();
    let mut lines = Vec::new();
    for (k, load) in body.iter().enumerate() {
        let Some((slot, bytes, place)) = plain(load) else {
            continue;
        };
        let step = place.terms.iter().find(|t| t.0 == *range).map(|t| t.1);
        let near = LEAST..=NEXT * LINE;
        let Some(step) = step.filter(|s| near.contains(&(s * bytes))) else {
            continue;
        };
        let mut known: Vec<_> = place.terms.iter().map(|t| (t.0.address(), t.1)).collect();
        known.sort_unstable();
        if is_far(&load.src()[0].src()[0], target)
            && seen.insert((slot, known, place.constant * bytes / LINE))
        {
            lines.push(Line {
                at: inside.begin + 1 + k,
                load,
                slot,
                step,
            });
        }
    }
    let work = |u: &&UOp| u.op().is_elementwise() && !u.shape().is_empty();
    let works = body.iter().filter(work).count() >= WORK * lines.len();
    let plain = body.iter().all(|u| !matches!(u.op(), Op::If | Op::Wmma));
    lines.retain(|_| works && plain);
    lines
}
