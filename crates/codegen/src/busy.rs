//! Loops that work on what they read ask for what they read next. Flows in: a LINEAR; flows out: the same list, where an
//! innermost loop that goes through storage which the second cache does not hold, and does much with each line, asks
//! for the lines of later turns: by a LOAD whose place is LOCAL, and whose value nobody needs. Invariant: no value is
//! another one.
//!
//! A core looks ahead by as many instructions as it can hold, which are few lines where each takes many, and what it
//! fetches by itself does not make up for them: memory would wait while the core works, and the core while memory does.

use crate::asks::{Asks, LEAST, LINE, Later, NEXT, UNDER_WAY, is_far, plain};
use crate::nests;
use crate::strands::Lines;
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
    let mut asks = Asks::of(list);
    // Storage that was gone through already: a cache holds a slice of it.
    let mut read = FxHashSet::default();
    let loops = nests::Loop::all(list);
    for inside in loops.iter().filter(|l| l.inside.is_empty()) {
        let parts = parts(list, inside, target);
        let lines: usize = parts.iter().map(|p| p.1.all.len()).sum();
        let ahead = (UNDER_WAY / (lines.max(1) as i128 * LINE)).max(1);
        let turns = inside.turns.map_or(0, i128::from);
        let range = &list[inside.begin];
        let long = turns >= 2 * ahead;
        for (_, lines) in parts.iter().filter(|p| long && !read.contains(&p.0)) {
            let pages = lines.pages();
            for (k, line) in lines.all.iter().enumerate() {
                let of_page = || {
                    let pages = pages.as_ref()?;
                    let by = lines.apart(k, pages)?.build();
                    Later::by(line.load, &by, range, turns - pages.end, None)
                };
                let next = || Later::of(line.load, range, lines.step, ahead, None);
                if let Some(later) = of_page().or_else(next) {
                    asks.add(later, inside.begin, line.at, line.at);
                }
            }
        }
        read.extend(slots(list, inside));
    }
    asks.put(&linear)
}

/// The storage that a loop reads.
fn slots(list: &[UOp], inside: &nests::Loop) -> impl Iterator<Item = u64> {
    let loads = inside.body(list).iter();
    loads.filter_map(|u| plain(u).map(|(slot, _, _)| slot))
}

/// The lines that a loop reads of storage beyond the second cache, where it does enough with them.
fn parts<'a>(list: &'a [UOp], inside: &nests::Loop, target: &Target) -> Vec<(u64, Lines<'a>)> {
    let body = inside.body(list);
    let range = &list[inside.begin];
    // What is read of one storage, from places that differ by a constant.
    let mut known: FxHashMap<(u64, Vec<(usize, i128)>), usize> = FxHashMap::default();
    let mut parts: Vec<(u64, Lines)> = Vec::new();
    for (k, load) in body.iter().enumerate() {
        let Some((slot, bytes, place)) = plain(load) else {
            continue;
        };
        let step = place.terms.iter().find(|t| t.0 == *range).map(|t| t.1);
        let near = LEAST..=NEXT * LINE;
        let Some(step) = step.filter(|s| near.contains(&(s * bytes))) else {
            continue;
        };
        if !is_far(&load.src()[0].src()[0], target) {
            continue;
        }
        let mut terms: Vec<_> = place.terms.iter().map(|t| (t.0.address(), t.1)).collect();
        terms.sort_unstable();
        let part = *known.entry((slot, terms)).or_insert_with(|| {
            parts.push((slot, Lines::of(&[(range, step)], bytes)));
            parts.len() - 1
        });
        parts[part]
            .1
            .add(inside.begin + 1 + k, load, place.constant);
    }
    let lines: usize = parts.iter().map(|p| p.1.all.len()).sum();
    let work = |u: &&UOp| u.op().is_elementwise() && !u.shape().is_empty();
    let works = body.iter().filter(work).count() >= WORK * lines;
    let plain = body.iter().all(|u| !matches!(u.op(), Op::If | Op::Wmma));
    parts.retain(|_| works && plain);
    parts
}
