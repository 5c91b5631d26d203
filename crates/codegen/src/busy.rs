//! Loops that work on what they read ask for what they read next. Flows in: a LINEAR; flows out: the same list, where an
//! innermost loop that goes through storage which the second cache does not hold, and does much with each line, asks
//! for the lines of later turns: by a LOAD whose place is LOCAL, and whose value nobody needs. Invariant: no value is
//! another one.
//!
//! A core looks ahead by as many instructions as it can hold, which are few lines where each takes many, and what it
//! fetches by itself does not make up for them: memory would wait while the core works, and the core while memory does.
//! What a loop too short for that goes through is a row, and it asks for that of a later turn of the loop around.

use crate::asks::{Asks, LEAST, LINE, Later, NEXT, Turned, UNDER_WAY, is_far, plain};
use crate::nests;
use crate::strands::Lines;
use monoglot_uop::{Op, Target, UOp};
use rustc_hash::{FxHashMap, FxHashSet};

/// Fewest instructions of a line that are work, and where a turn reads lines of several rows: a core fetches less of those
/// by itself.
const WORK: i128 = 8;
const WORK_APART: i128 = 4;

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
        let Some((work, parts)) = parts(list, inside, target) else {
            continue;
        };
        let lines: usize = parts.iter().map(|p| p.1.all.len()).sum();
        let ahead = (UNDER_WAY / (lines.max(1) as i128 * LINE)).max(1);
        let turns = inside.turns.map_or(0, i128::from);
        let range = &list[inside.begin];
        let mut turned = Turned::default();
        for (_, part) in parts.iter().filter(|p| !read.contains(&p.0)) {
            let over = Over::of(list, &loops, inside, part);
            let passes = over.as_ref().map_or(1, |o| o.passes);
            let least = if part.are_apart() { WORK_APART } else { WORK };
            if work as i128 * passes < least * lines as i128 {
                continue;
            }
            let long = turns >= 2 * ahead;
            let over = over.filter(|o| o.fits(target) && (!long || part.are_apart()));
            for (k, line) in part.all.iter().enumerate() {
                let later = match &over {
                    Some(o) => Later::in_turn(line.load, o.range, o.rows, range, &mut turned),
                    None => along(part, k, range, ahead).filter(|_| long),
                };
                // What asks for a row of a later turn is worked out before the loop.
                let before = if over.is_some() {
                    inside.begin - 1
                } else {
                    line.at
                };
                if let Some(later) = later {
                    asks.add(later, inside.begin, before, line.at);
                }
            }
        }
        read.extend(slots(list, inside));
    }
    asks.put(&linear)
}

/// What asks for the `k`th line of those that a turn of the loop over `range` reads: of the next pages, or so many turns on.
fn along(part: &Lines, k: usize, range: &UOp, ahead: i128) -> Option<Later> {
    let load = part.all[k].load;
    let of_page = || {
        let pages = part.pages()?;
        let by = part.apart(k, &pages)?.build();
        Later::by(load, &by, range, range.vmax() as i128 + 1 - pages.end, None)
    };
    of_page().or_else(|| Later::of(load, range, part.step, ahead, None))
}

/// The innermost loop around that goes from the rows which a loop reads to others.
struct Over<'a> {
    range: &'a UOp,
    /// How often the rows are read in each turn.
    passes: i128,
    /// Bytes of them, and how many turns of such are under way.
    bytes: i128,
    rows: i128,
}

impl<'a> Over<'a> {
    fn of(
        list: &'a [UOp],
        loops: &[nests::Loop],
        inside: &nests::Loop,
        part: &Lines,
    ) -> Option<Over<'a>> {
        let bytes = part.all.len() as i128 * i128::from(inside.turns?) * LINE;
        let mut passes = 1;
        for around in loops.iter().rev().filter(|l| l.contains(inside.begin)) {
            let range = &list[around.begin];
            if part.all.iter().any(|l| l.load.ranges().contains(range)) {
                return Some(Over {
                    range,
                    passes,
                    bytes,
                    rows: (UNDER_WAY / bytes).max(1),
                });
            }
            passes *= i128::from(around.turns?);
        }
        None
    }

    /// Whether the second cache holds those that are under way, and those that are read, beside what else is done.
    fn fits(&self, target: &Target) -> bool {
        2 * (self.rows + 1) * self.bytes <= target.caches[1] as i128
    }
}

/// The storage that a loop reads.
fn slots(list: &[UOp], inside: &nests::Loop) -> impl Iterator<Item = u64> {
    let loads = inside.body(list).iter();
    loads.filter_map(|u| plain(u).map(|(slot, _, _)| slot))
}

/// How many instructions of a loop are work, and the lines that it reads of storage beyond the second cache.
fn parts<'a>(
    list: &'a [UOp],
    inside: &nests::Loop,
    target: &Target,
) -> Option<(usize, Vec<(u64, Lines<'a>)>)> {
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
    let work = |u: &&UOp| u.op().is_elementwise() && !u.shape().is_empty();
    let plain = body.iter().all(|u| !matches!(u.op(), Op::If | Op::Wmma));
    plain.then(|| (body.iter().filter(work).count(), parts))
}
