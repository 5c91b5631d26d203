//! What a tile is added to is asked for before its terms. Flows in: a LINEAR; flows out: the same list, where the
//! lines that are read behind an innermost loop, or loops with nothing but each other inside, of LOCAL storage that the
//! second cache does not hold, are asked for before these: by a LOAD whose place is LOCAL, and whose value nobody needs.
//! Invariant: no value is another one.
//!
//! A tile of a blocked product ends with a few lines of the block's sums, each far from the last: nothing else
//! fetches them ahead, and its terms would be over before the first is there.

use crate::asks::{LINE, insert, is_beyond};
use crate::nests::Loop;
use monoglot_uop::linear::address;
use monoglot_uop::marks::NodeSet;
use monoglot_uop::rules::Affine;
use monoglot_uop::{AddrSpace, Arg, Op, Target, UOp};
use rustc_hash::{FxHashMap, FxHashSet};

/// Fewest terms of a loop in which a line can come.
const TURNS: i64 = 32;

/// Have lines asked for while the loops before them run.
pub(crate) fn ask(linear: UOp, target: &Target) -> UOp {
    let list = linear.src();
    let far = |u: &UOp| u.op() == Op::Buffer && is_far(u, target);
    if !list.iter().any(far) {
        return linear;
    }
    let loops = Loop::all(list);
    let mut after: FxHashMap<usize, Vec<UOp>> = FxHashMap::default();
    let mut before: NodeSet = NodeSet::new();
    let mut counted = 0;
    for nest in loops.iter().filter(|l| l.begin > 0) {
        if all_terms(list, &loops, nest).is_none_or(|terms| terms < TURNS) {
            continue;
        }
        for u in &list[counted..nest.begin] {
            before.insert(u);
        }
        counted = nest.begin;
        let asked = behind(list, nest.end, &before, target);
        if !asked.is_empty() {
            after.insert(nest.begin - 1, asked);
        }
    }
    match after.is_empty() {
        true => linear,
        false => insert(linear, Vec::new(), after),
    }
}

/// Terms of the sums of a loop, or of loops that have nothing but each other inside.
fn all_terms(list: &[UOp], loops: &[Loop], nest: &Loop) -> Option<i64> {
    let turns = list[nest.begin].vmax() + 1;
    let inside = match nest.inside[..] {
        [] => terms(nest.body(list)),
        [only] => all_terms(list, loops, &loops[only])?,
        _ => return None,
    };
    Some(turns.saturating_mul(inside))
}

/// Terms of a sum in each turn of a loop: those of a unit's tile, or one.
fn terms(body: &[UOp]) -> i64 {
    let words = |u: &UOp| u.dot()?.tile().map(|[_, _, words]| words);
    body.iter().filter_map(words).next().unwrap_or(1)
}

/// What asks for the lines that are read behind the END at a place, and what that needs beyond what stands before the
/// loop.
fn behind(list: &[UOp], end: usize, before: &NodeSet, target: &Target) -> Vec<UOp> {
    let straight = list[end + 1..].iter();
    let straight = straight.take_while(|u| !matches!(u.op(), Op::Range | Op::End | Op::If));
    let mut lines = FxHashSet::default();
    let mut out = Vec::new();
    for load in straight.filter(|u| u.op() == Op::Load && u.src().len() == 1) {
        let Some(line) = Line::of(load, target) else {
            continue;
        };
        let Some(needs) = needs(&load.src()[0], before) else {
            continue;
        };
        if lines.insert(line) {
            out.extend(needs);
            let near = Arg::Place(None, Some(AddrSpace::Local));
            out.push(load.with_arg(near));
        }
    }
    out
}

/// Whether this is LOCAL storage that the second cache does not hold.
fn is_far(storage: &UOp, target: &Target) -> bool {
    storage.addrspace() == Some(AddrSpace::Local) && is_beyond(storage, target)
}

/// A line of storage that the second cache does not hold.
#[derive(PartialEq, Eq, Hash)]
struct Line {
    storage: usize,
    /// What is added to its number, by their addresses, in elements.
    terms: Vec<(usize, i128)>,
    number: i128,
}

impl Line {
    /// That of a LOAD.
    fn of(load: &UOp, target: &Target) -> Option<Line> {
        let a = address(&load.src()[0])?;
        let bytes = a.buffer.dtype().bytes() as i128;
        if !is_far(a.buffer, target) {
            return None;
        }
        let place = Affine::of(a.index)?;
        let terms = place.terms.iter().map(|t| (t.0.address(), t.1));
        let mut terms: Vec<(usize, i128)> = terms.collect();
        terms.sort_unstable();
        Some(Line {
            storage: a.buffer.address(),
            terms,
            number: place.constant * bytes / LINE,
        })
    }
}

/// What an address is made of beyond what stands before, operands first; None where a part of it is read.
fn needs(to: &UOp, before: &NodeSet) -> Option<Vec<UOp>> {
    let mut out: Vec<UOp> = Vec::new();
    let mut stack = vec![(to, false)];
    while let Some((u, ready)) = stack.pop() {
        if ready {
            out.push(u.clone());
            continue;
        }
        if before.contains(u) {
            continue;
        }
        let address = matches!(u.op(), Op::Index | Op::Shrink | Op::Stack | Op::Const);
        if !address && !u.op().is_elementwise() {
            return None;
        }
        stack.push((u, true));
        stack.extend(u.src().iter().map(|s| (s, false)));
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::node;
    use monoglot_uop::{AxisType, DType, Shape};

    /// Loops of these turns, each the only one inside the last, and behind them a LOAD of a block's sums.
    fn summed(turns: &[i64]) -> UOp {
        let storage = |slot, n: i64, space| UOp::scratch(slot, &Shape::of(&[n]), DType::F32, space);
        let [first, far] = [0, 64].map(|n| UOp::int(n, DType::I32));
        let [sum, sums] = [
            storage(0, 1, AddrSpace::Reg),
            storage(1, 1 << 20, AddrSpace::Local),
        ];
        let to = sum.at(std::slice::from_ref(&first));
        let zero = UOp::constant(DType::F32.zero(), DType::F32);
        let range = |(id, &n): (usize, &i64)| UOp::range(n, id as u32, AxisType::Reduce);
        let ranges: Vec<UOp> = turns.iter().enumerate().map(range).collect();
        let mut list = vec![
            first,
            far.clone(),
            zero.clone(),
            sum,
            sums.clone(),
            to.clone(),
        ];
        list.extend(ranges.iter().cloned());
        list.push(to.store(&zero));
        for r in ranges.iter().rev() {
            let body = list[list.len() - 1].clone();
            list.push(body.end(std::slice::from_ref(r)));
        }
        let at = sums.at(&[far]);
        list.extend([at.clone(), node(Op::Load, [at])]);
        UOp::new(Op::Linear, list, Arg::None)
    }

    #[test]
    fn sums_are_asked_for_before_all_loops_over_their_terms() {
        let target = Target {
            caches: [48 << 10, 1 << 20, 32 << 20],
            ..crate::opt::tests::support::target(false)
        };
        for (turns, asked) in [
            (&[64][..], true),
            (&[4, 16], true),
            (&[4, 4], false),
            (&[8], false),
        ] {
            let linear = ask(summed(turns), &target);
            let list = linear.src();
            let asks = |u: &UOp| u.op() == Op::Load && *u.arg() != Arg::None;
            let place = list.iter().position(asks);
            let loops = list.iter().position(|u| u.op() == Op::Range);
            assert_eq!(place.is_some(), asked, "{turns:?}");
            assert!(place < loops, "{turns:?}: {place:?} {loops:?}");
        }
    }
}
