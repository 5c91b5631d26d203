//! What a body keeps for its derivative: of what the derivative reads, that which costs least to keep, so that the
//! rest follows from it and from the arguments without a reduction. Flows in: the derivative's values and the
//! body; flows out: the nodes to keep.
//!
//! Reductions are done again only where they are less work than keeping them: short products that give more than
//! they read, such as the scores of attention, and statistics of those.
//!
//! It is a least cut (`cut`) between the reductions, which are not done again, and what the
//! derivative reads, where a node costs its bytes (`cost`). Of several, it is the one that is nearest to the derivative: a
//! sum is kept as it is used, not as its parts. In a loop what each step keeps is written for every step, so that what
//! long work was done for is kept rather than what it was done on.
//!
//! Where what is kept is a part of a function whose derivative is known, and the function goes on from there through bits,
//! its value is kept instead: bits have no derivative, which the derivative of this one would need.

use crate::cut::{NEVER, Net};
use crate::dtype::DType;
use crate::function::{own_range, own_sources};
use crate::graph::ordered;
use crate::node::UOp;
use crate::op::Op;
use rustc_hash::{FxHashMap, FxHashSet};

/// Elements that a reduction folds to one, at most, that is done again.
const SHORT: i64 = 128;

/// What an operation costs at least, that of a sum being 1, to be long work.
const LONG: f64 = 6.0;
/// By how many hundredths what follows from long work costs less, in a loop.
const WORTH: i64 = 40;

/// What gradients read of neither a body nor what flows to its values, as large as it is: rules of a user bring it along.
pub(super) fn brought(gradients: &[UOp]) -> Vec<UOp> {
    let is = |u: &UOp| {
        let below = u.ops_below();
        let apart = below.contains(Op::Buffer) && !below.contains(Op::Param);
        let value = !u.op().is_void() && u.dtype() != DType::Index;
        apart && value && u.shape().ints().is_some()
    };
    let all = ordered(gradients, |u| if is(u) { &[] } else { own_sources(u) });
    all.into_iter().filter(|u| is(u)).cloned().collect()
}

/// The nodes of a body that are kept; `looped` says that the body is a step of a loop.
pub(super) fn kept(gradients: &[UOp], body: &UOp, looped: bool) -> Vec<UOp> {
    let mut forward_nodes = ordered(std::slice::from_ref(body), own_sources);
    forward_nodes.retain(|u| u.op() != Op::Param && u.ops_below().contains(Op::Param));
    let forward: FxHashSet<&UOp> = forward_nodes.iter().copied().collect();
    let mut users: FxHashMap<&UOp, usize> = FxHashMap::default();
    for s in forward_nodes.iter().flat_map(|u| own_sources(u)) {
        *users.entry(s).or_default() += 1;
    }
    let mut read: Vec<UOp> = Vec::new();
    for u in ordered(gradients, |u| match forward.contains(u) {
        true => &[],
        false => own_sources(u),
    }) {
        if forward.contains(u) {
            read.push(u.clone());
        }
    }
    // What it takes to compute these again.
    let again = done_again(&forward_nodes);
    let is_kept_at_least = |u: &UOp| is_made(u) && !again.contains_key(u);
    let below = ordered(&read, |u| match is_kept_at_least(u) {
        true => &[],
        false => own_sources(u),
    });
    let below: Vec<&UOp> = below.into_iter().filter(|u| forward.contains(u)).collect();
    let number: FxHashMap<&UOp, usize> = below.iter().copied().zip(0..).collect();
    let mut net = Net::new(below.len());
    let mut done: Vec<Done> = Vec::with_capacity(below.len());
    for (v, u) in below.iter().enumerate() {
        let inputs = own_sources(u).iter().filter_map(|s| number.get(s));
        done.push(match is_kept_at_least(u) {
            true => Done::default(),
            false => Done::after(u, inputs.map(|&s| &done[s])),
        });
        let users = users.get(u).copied().unwrap_or(0);
        let cost = match looped {
            true => each_time(u, &done[v]),
            false => cost(u, users, &done[v]),
        };
        net.edge(Net::enters(v), Net::leaves(v), cost);
        if is_kept_at_least(u) {
            net.edge(Net::FROM, Net::enters(v), NEVER);
            continue;
        }
        for s in own_sources(u).iter().filter_map(|s| number.get(s)) {
            net.edge(Net::leaves(*s), Net::enters(v), NEVER);
        }
    }
    for u in &read {
        net.edge(Net::leaves(number[u]), Net::TO, NEVER);
    }
    let cut = net.cut();
    let cut = below.iter().copied().zip(cut).filter(|(_, is)| *is);
    let cut: FxHashSet<&UOp> = cut.map(|(u, _)| u).collect();
    let kept = with_blind(cut, &read, &below);
    below
        .into_iter()
        .filter(|u| kept.contains(u))
        .cloned()
        .collect()
}

/// What is kept, with the nodes that would be blind; what nobody reads any more is left out.
fn with_blind<'a>(
    mut kept: FxHashSet<&'a UOp>,
    read: &'a [UOp],
    below: &[&'a UOp],
) -> FxHashSet<&'a UOp> {
    // What the derivative reads, and computes again behind what is kept.
    let behind = |kept: &FxHashSet<&UOp>| -> FxHashSet<&'a UOp> {
        let sources = |u: &UOp| match kept.contains(u) {
            true => u.src().len()..u.src().len(),
            false => own_range(u),
        };
        ordered(read, |u| &u.src()[sources(u)])
            .into_iter()
            .collect()
    };
    let computed = behind(&kept);
    let mut blind = below.to_vec();
    blind.retain(|u| computed.contains(u) && is_blind(u, &kept));
    if !blind.is_empty() {
        kept.extend(blind);
        let computed = behind(&kept);
        kept.retain(|u| computed.contains(u));
    }
    kept
}

/// Whether a node has a derivative of its own, and follows from what is kept through its bits, which have none: the
/// derivative's derivative would not see it.
fn is_blind(u: &UOp, kept: &FxHashSet<&UOp>) -> bool {
    let fixed = u.shape().ints().is_some();
    let Some(own) = u.shortcut().filter(|_| fixed) else {
        return false;
    };
    let mut open = vec![(u, false)];
    let mut seen = FxHashSet::default();
    while let Some((part, bits)) = open.pop() {
        if own.inputs.contains(part) || !seen.insert((part, bits)) {
            continue;
        }
        if kept.contains(part) {
            if bits {
                return true;
            }
            continue;
        }
        let bits = bits || part.op() == Op::Bitcast;
        open.extend(own_sources(part).iter().map(|s| (s, bits)));
    }
    false
}

/// Whether a node is worth keeping for what it took.
fn is_made(u: &UOp) -> bool {
    let made = matches!(
        u.op(),
        Op::Reduce | Op::GetTuple | Op::Contiguous | Op::After
    );
    made && u.shape().ints().is_some()
}

/// The reductions that are less work to do again than to keep, with the elements of the largest of those below.
fn done_again<'a>(forward: &[&'a UOp]) -> FxHashMap<&'a UOp, i64> {
    let mut again: FxHashMap<&UOp, i64> = FxHashMap::default();
    for u in forward.iter().filter(|u| u.op() == Op::Reduce) {
        let source = &u.src()[0];
        let (Some(all), Some(results)) = (elements(source), elements(u)) else {
            continue;
        };
        let mut reads = 0;
        let mut largest = 0;
        for s in ordered(std::slice::from_ref(source), |s| match is_made(s) {
            true => &[],
            false => own_sources(s),
        }) {
            match again.get(s) {
                Some(&n) => largest = largest.max(n),
                None if is_made(s) || s.op() == Op::Param => reads += elements(s).unwrap_or(all),
                None => {}
            }
        }
        let short = all / results.max(1) <= SHORT && 2 * results > reads;
        let statistic = largest > 0 && all <= largest;
        if short || statistic {
            again.insert(u, results.max(largest));
        }
    }
    again
}

fn elements(u: &UOp) -> Option<i64> {
    Some(u.shape().ints()?.iter().product())
}

/// What was done to what is kept in any case, for a node.
#[derive(Default)]
struct Done {
    /// Operations behind each other.
    depth: i64,
    /// Whether one of them is long work.
    long: bool,
}

impl Done {
    fn after<'a>(u: &UOp, inputs: impl Iterator<Item = &'a Done>) -> Done {
        let mut done = Done {
            depth: 0,
            long: u.op().traits().cost >= LONG,
        };
        for input in inputs {
            done.depth = done.depth.max(input.depth + 1);
            done.long |= input.long;
        }
        done
    }
}

/// What a node costs: its bytes; half of them where it is used in several places, and so stored anyway; twice
/// as many where it is a view of what is. Of what costs the same, that after fewest operations costs least.
fn cost(u: &UOp, users: usize, done: &Done) -> i64 {
    let halves = match (u.op().is_movement(), users > 2) {
        (true, _) => 4,
        (_, true) => 1,
        _ => 2,
    };
    weighed(u, halves * (100 + done.depth.min(100)))
}

/// The same in a loop: what is stored in each step has its place for that step alone.
fn each_time(u: &UOp, done: &Done) -> i64 {
    let halves = if u.op().is_movement() { 4 } else { 2 };
    let worth = if done.long { WORTH } else { 0 };
    weighed(u, halves * (100 + done.depth.min(100) - worth))
}

/// The bytes of a node, so many times.
fn weighed(u: &UOp, times: i64) -> i64 {
    let elements = elements(u).filter(|_| u.dtype().bytes() > 0);
    let Some(elements) = elements else {
        return NEVER;
    };
    let bytes = elements.saturating_mul(u.dtype().bytes() as i64);
    bytes.saturating_mul(times).clamp(1, NEVER / 2)
}
