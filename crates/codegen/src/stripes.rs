//! Stripes of a matrix are asked for while those before them are multiplied. Flows in: a LINEAR; flows out: the same
//! list, where terms that each read a few neighbours of a row of memory, of which a loop around them reads the next few,
//! ask for what that turn reads: by a LOAD whose place is LOCAL, and whose value nobody needs. Invariant: no value is
//! another one.
//!
//! ```text
//! over       a stripe after the other
//!   terms    a row after the other, each a line at least from the last
//! ```
//!
//! What a core fetches by itself goes along rows, and no row of a stripe ends where the next one begins.

use crate::asks::{Asks, LINE, Later, Loop, at_turn, is_far};
use crate::streams::multiples;
use monoglot_uop::linear::address;
use monoglot_uop::{Op, Target, UOp};
use rustc_hash::FxHashMap;

/// A row's elements that a term reads are known by the storage and what is added to their place but for a number.
type Row = (usize, Vec<(usize, i128)>);

/// Have stripes asked for while others are multiplied.
pub(crate) fn ask(linear: UOp, target: &Target) -> UOp {
    let list = linear.src();
    if !list.iter().any(|u| is_far(u, target)) {
        return linear;
    }
    let mut open: Vec<(Loop, &UOp)> = Vec::new();
    // The last element of each row that the innermost loop reads, and its number.
    let mut rows: FxHashMap<Row, (usize, i128, &UOp)> = FxHashMap::default();
    let mut asked: Vec<(usize, Loop, Later)> = Vec::new();
    for (at, u) in list.iter().enumerate() {
        match u.op() {
            Op::Range => {
                open.push((at, u));
                rows.clear();
            }
            Op::End => {
                let mut last: Vec<(usize, &UOp)> = rows.drain().map(|r| (r.1.0, r.1.2)).collect();
                last.sort_unstable_by_key(|l| l.0);
                let inside = open.last().map_or(0, |l| l.0);
                let next = |(at, load)| Some((at, inside, next(load, &open, target)?));
                asked.extend(last.into_iter().filter_map(next));
                open.pop();
            }
            Op::Load if u.src().len() == 1 => {
                let Some(a) = address(&u.src()[0]).filter(|a| is_far(a.buffer, target)) else {
                    continue;
                };
                if let Some(place) = multiples(a.index) {
                    let terms = place.terms.iter().map(|t| (t.0.address(), t.1));
                    let row = (a.buffer.address(), terms.collect());
                    let last = rows.entry(row).or_insert((at, i128::MIN, u));
                    if place.constant > last.1 {
                        *last = (at, place.constant, u);
                    }
                }
            }
            _ => {}
        }
    }
    let mut asks = Asks::of(list);
    for (at, inside, later) in asked {
        asks.add(later, inside, inside - 1, at);
    }
    asks.put(&linear)
}

/// What asks in the innermost of these loops for what a LOAD there reads of the next stripe, or of the last one again, if
/// the second cache holds the lines of both beside what else is done.
fn next(load: &UOp, open: &[(Loop, &UOp)], target: &Target) -> Option<Later> {
    let a = address(&load.src()[0])?;
    let bytes = a.buffer.dtype().bytes() as i128;
    let place = multiples(a.index)?;
    let mut lines = 1i128;
    for &(_, range) in open.iter().rev() {
        let counters = |u: &UOp| u.toposort_gated(|u| u.op() != Op::Range);
        let varies = |t: &&(UOp, i128)| counters(&t.0).contains(range);
        let Some((atom, times)) = place.terms.iter().find(varies) else {
            continue;
        };
        // Of a loop whose last turn begins in the one before it, the first step.
        let first = |n: i64| at_turn(atom, range, range.like(n))?.simplify().as_int();
        let step = (first(1)? as i128 - first(0)? as i128).saturating_mul(*times);
        if step.saturating_abs() >= LINE / bytes.max(1) {
            lines = lines.saturating_mul(range.vmax() as i128 + 1);
            continue;
        }
        if lines == 1 || step <= 0 || lines > target.caches[1] as i128 / (4 * LINE) {
            return None;
        }
        return Later::in_turn(load, range, 1, open.last()?.1, &mut FxHashMap::default());
    }
    None
}
