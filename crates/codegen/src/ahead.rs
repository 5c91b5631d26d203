//! What is asked for before it is read. Flows in: a LINEAR whose kernel moves more than the last cache of the
//! target holds; flows out: the same list, with a LOAD whose place is LOCAL, and whose value nobody needs, for each
//! line that the next turn of a loop reads, where this turn reads its own again. Invariant: no value is another one.
//!
//! A loop over slices that goes through each of them several times (a statistic first, then what it is for) waits
//! for memory in its first pass, and leaves it idle in those that find the slice in a cache. So the second pass asks
//! for the slice of the next turn, if the second cache holds both.

use crate::asks::{Asks, Later, Loop, plain};
use crate::strands::Lines;
use monoglot_uop::linear::address;
use monoglot_uop::rules::Affine;
use monoglot_uop::{Op, Target, UOp};
use rustc_hash::FxHashMap;

/// What a slice is known by: the loop over slices, the storage, and where this turn's begins.
type Slice = (Loop, u64, Vec<(usize, i128)>);

/// What a loop reads again of a slice.
struct Again<'a> {
    /// The loop over slices, and the elements from a slice to the next one.
    over: (Loop, &'a UOp),
    step: i128,
    lines: Lines<'a>,
}

/// Have slices asked for while those before them are read again.
pub(crate) fn ask(linear: UOp, target: &Target) -> UOp {
    let again = reads(linear.src(), target);
    if again.is_empty() {
        return linear;
    }
    let mut asks = Asks::of(linear.src());
    for Again { over, step, lines } in &again {
        let strands = lines.strands();
        for (k, line) in lines.all.iter().enumerate() {
            let Some(a) = address(&line.load.src()[0]) else {
                continue;
            };
            let apart = strands.as_ref().and_then(|s| lines.apart(k, s));
            let mut by = apart.unwrap_or(Affine::number(a.index.dtype(), 0));
            by.constant += step;
            if let Some(later) = Later::by(line.load, &by.build(), over.1, 1, None) {
                asks.add(later, over.0, over.0, line.at);
            }
        }
    }
    asks.put(&linear)
}

/// What is read in second passes.
fn reads<'a>(list: &'a [UOp], target: &Target) -> Vec<Again<'a>> {
    let mut open: Vec<(Loop, &UOp)> = Vec::new();
    // The first two loops in which each slice is read.
    let mut passes: FxHashMap<Slice, (Loop, Loop)> = FxHashMap::default();
    // What is asked for already, by the innermost loop.
    let mut parts: FxHashMap<(Loop, Slice), usize> = FxHashMap::default();
    let mut again: Vec<Again> = Vec::new();
    for (at, load) in list.iter().enumerate() {
        match load.op() {
            Op::Range => open.push((at, load)),
            Op::End => drop(open.pop()),
            _ => {}
        }
        let Some((slot, bytes, place)) = plain(load) else {
            continue;
        };
        let steps = |range: &UOp| place.terms.iter().find(|t| t.0 == *range).map(|t| t.1);
        for pair in open.windows(2).rev() {
            let over = pair[0];
            let inside = pair[1].0;
            let Some(step) = steps(over.1) else {
                continue;
            };
            let slice = (over.0, slot, begin(&place, &open, over.0));
            let seen = passes.entry(slice.clone()).or_insert((inside, inside));
            if seen.0 == seen.1 {
                seen.1 = inside;
            }
            // Both slices at once, beside what else is done.
            let fits = step.abs() * bytes <= target.caches[1] as i128 / 2;
            if seen.0 == inside || seen.1 != inside || !fits {
                continue;
            }
            let inner = open.iter().rev().take_while(|l| l.0 > over.0);
            let part = *parts
                .entry((open[open.len() - 1].0, slice))
                .or_insert_with(|| {
                    let loops: Vec<_> = inner.map(|l| (l.1, steps(l.1).unwrap_or(0))).collect();
                    let lines = Lines::of(&loops, bytes);
                    again.push(Again { over, step, lines });
                    again.len() - 1
                });
            again[part].lines.add(at, load, place.constant);
            break;
        }
    }
    again
}

/// The part of a place that the loops inside of one leave as it is, but for the constant.
fn begin(place: &Affine, open: &[(Loop, &UOp)], over: Loop) -> Vec<(usize, i128)> {
    let inside = |u: &UOp| open.iter().any(|l| l.0 > over && l.1 == u);
    let outside = place.terms.iter().filter(|t| !inside(&t.0));
    let mut begin: Vec<_> = outside.map(|t| (t.0.address(), t.1)).collect();
    begin.sort_unstable();
    begin
}
