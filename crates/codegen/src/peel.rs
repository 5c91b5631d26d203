//! Turns at which a mask may not hold stand apart. Flows in: a kernel whose ranges are closed once, over flat
//! storage; flows out: the same kernel, in which an innermost loop whose masks hold but for its first or its last
//! turn runs over the others, which need no mask, and what those two do stands beside it. Rows of an odd length and
//! edges that are padded so cost what others do.
//!
//! Masks are not looked at again: where a counter's interval says that they hold, rules leave them out. Invariant:
//! each turn is done once; effects of one loop depend on no other turn of it.

use crate::build::combine;
use crate::gates::{conjuncts, constraints};
use crate::graph::{group, rebuild};
use crate::loops::is_loop;
use crate::scratch;
use monoglot_uop::{Arg, Op, Result, UOp, rules};
use rustc_hash::FxHashMap;

/// Fewest turns of a loop that is worth it.
const TURNS: i64 = 4;
/// Most nodes of a body that is repeated, those of its lanes counted.
const NODES: i64 = 4096;

/// Which turns of a loop stand apart.
#[derive(Clone, Copy, Default)]
struct Apart {
    first: bool,
    last: bool,
}

/// See the module.
///
/// # Errors
/// None for a kernel that obeys its spec.
pub(crate) fn peel(kernel: &UOp) -> Result<UOp> {
    let ops = kernel.ops_below();
    if !ops.contains(Op::CmpLt) || ops.contains(Op::Barrier) {
        return Ok(kernel.clone());
    }
    let nodes = kernel.toposort();
    let carried = scratch::carried(&nodes);
    let mut closed: FxHashMap<&UOp, Vec<&UOp>> = FxHashMap::default();
    for u in nodes.iter().filter(|u| closes(u)) {
        for r in u.src()[1..].iter().filter(|r| is_loop(r)) {
            closed.entry(r).or_default().push(u);
        }
    }
    closed.retain(|range, _| !carried.contains(*range));
    let apart = |(range, by): (&UOp, Vec<&UOp>)| Some((range.clone(), Apart::of(range, &by)?));
    let all: FxHashMap<UOp, Apart> = closed.into_iter().filter_map(apart).collect();
    if all.is_empty() {
        return Ok(kernel.clone());
    }
    let new = rebuild(kernel, |u, src| {
        let new = u.with_src(src);
        let own = u.src().iter().skip(1).filter(|_| closes(u));
        Ok(match own.filter_map(|r| Some((r, all.get(r)?))).next() {
            Some((range, apart)) => apart.apply(&new, range),
            None => new,
        })
    })?;
    rules::kernel().rewrite(&new)
}

fn closes(u: &UOp) -> bool {
    matches!(u.op(), Op::Reduce | Op::End)
}

impl Apart {
    /// None where a loop is not innermost or too short, or nothing is won.
    fn of(range: &UOp, by: &[&UOp]) -> Option<Apart> {
        let [end] = range.src() else { return None };
        let turns = end.as_int().filter(|n| *n >= TURNS)?;
        let mut apart = Apart::default();
        for u in by {
            let loops = u.src()[1..].iter().filter(|r| is_loop(r)).count();
            let body = u.src()[0].toposort();
            let inside: Vec<&UOp> = body.iter().filter(|n| n.ranges().contains(range)).collect();
            let nests =
                |n: &&UOp| n.op() == Op::After || closes(n) && n.src()[1..].iter().any(is_loop);
            if loops > 1 || inside.iter().any(|n| nests(n)) || size(&inside) > NODES {
                return None;
            }
            let gates = inside.iter().filter_map(|n| match n.op() {
                Op::Where => n.src().first(),
                Op::Load | Op::Store => n.src().get(2),
                _ => None,
            });
            for condition in gates.flat_map(conjuncts) {
                apart.add(range, turns, &condition);
            }
        }
        (apart.first || apart.last).then_some(apart)
    }

    /// Add the turns at which a condition may not hold, if those are the first or the last alone.
    fn add(&mut self, range: &UOp, turns: i64, condition: &UOp) {
        let turns = turns as i128;
        for sum in constraints(condition) {
            let Some(&(_, k)) = sum.terms.iter().find(|t| t.0 == *range) else {
                continue;
            };
            let others = sum.terms.iter().filter(|t| t.0 != *range);
            if others.clone().any(|t| t.0.ranges().contains(range)) {
                continue;
            }
            // k·range + rest ≤ 0 for the greatest that the rest is.
            let greatest = |t: &(UOp, i128)| {
                let (lo, hi) = t.0.bounds();
                (lo as i128 * t.1).max(hi as i128 * t.1)
            };
            let rest = sum.constant + others.map(greatest).sum::<i128>();
            let holds = |turn: i128| k * turn + rest <= 0;
            self.last |= k > 0 && holds(turns - 2) && !holds(turns - 1);
            self.first |= k < 0 && holds(1) && !holds(0);
        }
    }

    /// What closes the range, in parts.
    fn apply(self, u: &UOp, range: &UOp) -> UOp {
        let turns = range.src()[0].vmax();
        let all = turns - self.first as i64 - self.last as i64;
        let others = range.with_src(vec![UOp::index_const(all)]);
        let within = |place: UOp| {
            let place = FxHashMap::from_iter([(range.clone(), place)]);
            u.src()[0].substitute(&place)
        };
        let one = |turn: i64| within(UOp::index_const(turn));
        let first = self.first.then(|| one(0));
        let last = self.last.then(|| one(turns - 1));
        let main = within(&others + self.first as i64);
        let ranges: Vec<UOp> = u.src()[1..].to_vec();
        let place = |r: &UOp| if r == range { &others } else { r }.clone();
        let Arg::Reduce(op, _) = u.arg() else {
            let main = main.end(&ranges.iter().map(place).collect::<Vec<_>>());
            return group(first.into_iter().chain([main]).chain(last).collect());
        };
        let lanes: Vec<UOp> = ranges.iter().filter(|r| *r != range).cloned().collect();
        let alone = |value: UOp| match lanes[..] {
            [] => value,
            _ => value.reduce_ranges(*op, &lanes),
        };
        let main = main.reduce_ranges(*op, &ranges.iter().map(place).collect::<Vec<_>>());
        let parts = first.map(alone).into_iter().chain([main]);
        let parts = parts.chain(last.map(alone));
        parts
            .reduce(|a, b| combine(*op, &a, &b))
            .unwrap_or_else(|| u.clone())
    }
}

/// How many nodes these are with all their lanes.
fn size(nodes: &[&UOp]) -> i64 {
    let copies = |n: &&UOp| -> i64 {
        let ranges = n.ranges();
        let lanes = ranges.iter().filter(|r| !is_loop(r));
        lanes.map(|r| r.vmax() + 1).product()
    };
    nodes.iter().map(copies).sum()
}
