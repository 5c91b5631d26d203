//! Who holds a buffer. Flows in: the roots of a realize; flows out: the BUFFERs whose next version is
//! among them and that nothing outside these roots can reach, claimed: the next version may take over
//! their storage.
//!
//! Every reference to a node is either a source edge of a living node or a handle of somebody. Where a
//! node has more owners than edges from this graph account for, somebody else holds it, and with it
//! everything below. They are counted after the claim: whoever gets hold of a version later (a weak
//! reference, another thread's copy of a root) finds it claimed, waits, and then looks for the value anew.

use crate::versions::{self, Claim, Tried};
use monoglot_schedule::assigned_buffer;
use monoglot_uop::graph::{nodes_below, toposort_many};
use monoglot_uop::{Op, UOp};
use rustc_hash::{FxHashMap, FxHashSet};
use std::cell::LazyCell;

/// The claimed BUFFERs, whose next versions are among `roots`.
///
/// # Errors
/// `Busy` where another run has claimed one of them.
pub(crate) fn claims(roots: &[UOp]) -> Tried<FxHashMap<UOp, Claim>> {
    let new = |b| (b, versions::known(b).is_none());
    let buffers = roots.iter().filter_map(assigned_buffer).map(new);
    let mut claims = Vec::new();
    // With whether nobody asked it for storage yet.
    for (buffer, new) in buffers.collect::<FxHashMap<&UOp, bool>>() {
        claims.extend(versions::claim(buffer)?.map(|claim| (buffer, claim, new)));
    }
    if claims.is_empty() {
        return Ok(FxHashMap::default());
    }
    // Nobody can have read what a new one held.
    let exclusive = exclusive(roots);
    claims.retain(|(buffer, _, new)| *new || exclusive.contains(*buffer));
    let claims = claims.into_iter();
    Ok(claims.map(|(b, claim, _)| (b.clone(), claim)).collect())
}

/// What parameters among the nodes below `roots` begin as, of those that somebody else holds: he would have it computed
/// again.
pub(crate) fn beginnings(roots: &[UOp], nodes: &[&UOp]) -> Vec<UOp> {
    let edges = LazyCell::new(|| edges(nodes.iter().copied()));
    let held = |u: &UOp| u.owners() > edges.get(u).copied().unwrap_or(0);
    let found = |u: &&UOp| begins(u) && held(u) && !roots.contains(u);
    nodes.iter().copied().filter(found).cloned().collect()
}

/// Whether this is what a parameter begins as: the value of a BUFFER of its own, which had none yet. What it was
/// assigned before anybody asked for it reads what it begins as.
fn begins(u: &UOp) -> bool {
    let reads = |value, own| nodes_below(std::slice::from_ref(value), |_| true).contains(&own);
    replaced(u).is_some_and(|(own, value)| versions::known(own).is_none() && !reads(value, own))
}

/// The BUFFER all of which a node replaces, and with what.
pub(crate) fn replaced(u: &UOp) -> Option<(&UOp, &UOp)> {
    let [old, store] = u.src() else { return None };
    let whole = u.op() == Op::After && old.op() == Op::Buffer && store.op() == Op::Store;
    (whole && store.src()[0] == *old).then(|| (old, &store.src()[1]))
}

/// How often these nodes hold each.
fn edges<'a>(nodes: impl IntoIterator<Item = &'a UOp>) -> FxHashMap<&'a UOp, usize> {
    let mut edges: FxHashMap<&UOp, usize> = FxHashMap::default();
    for u in nodes {
        // A derivative that a builder knows holds what it is computed from, as a source edge does.
        let known = u.shortcut().map_or(&[][..], |s| &s.inputs[..]);
        for s in u.src().iter().chain(known) {
            *edges.entry(s).or_default() += 1;
        }
    }
    edges
}

/// The BUFFERs below `roots` that only `roots` hold, each held by the caller and by a tensor.
fn exclusive(roots: &[UOp]) -> FxHashSet<UOp> {
    let nodes = toposort_many(roots, |_| true);
    let mut edges = edges(&nodes);
    let distinct: FxHashSet<&UOp> = roots.iter().collect();
    for r in roots.iter().chain(distinct) {
        *edges.entry(r).or_default() += 1;
    }
    let mut held: FxHashSet<&UOp> = FxHashSet::default();
    let mut out = FxHashSet::default();
    for u in nodes.iter().rev() {
        // `nodes` itself is one owner.
        if u.owners() - 1 > edges.get(u).copied().unwrap_or(0) {
            held.insert(u);
        }
        if held.contains(u) {
            held.extend(u.src());
        } else if u.op() == Op::Buffer {
            out.insert(u.clone());
        }
    }
    out
}
