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

/// The claimed BUFFERs, whose next versions are among `roots`.
///
/// # Errors
/// `Busy` where another run has claimed one of them.
pub(crate) fn claims(roots: &[UOp]) -> Tried<FxHashMap<UOp, Claim>> {
    // What was assigned before anybody asked for what it begins as finds nothing to write over.
    let candidate = |root| {
        let buffer = assigned_buffer(root)?;
        let new = versions::is_new(buffer);
        (!new || begins(root)).then_some((buffer, new))
    };
    let candidates: FxHashMap<&UOp, bool> = roots.iter().filter_map(candidate).collect();
    let mut claims = Vec::new();
    for (buffer, new) in candidates {
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

/// Whether this is what a parameter begins as: the value that is stored in a BUFFER of its own, which had none yet.
pub(crate) fn begins(u: &UOp) -> bool {
    let [own, store] = u.src() else { return false };
    let whole = u.op() == Op::After && store.op() == Op::Store && store.src()[0] == *own;
    // What it was assigned before anybody asked for it reads what it begins as.
    let assigned = || nodes_below(&store.src()[1..], |_| true).contains(&own);
    whole && own.op() == Op::Buffer && versions::is_new(own) && !assigned()
}

/// The BUFFERs below `roots` that only `roots` hold, each held by the caller and by a tensor.
fn exclusive(roots: &[UOp]) -> FxHashSet<UOp> {
    let nodes = toposort_many(roots, |_| true);
    let mut edges: FxHashMap<&UOp, usize> = FxHashMap::default();
    for u in &nodes {
        // A derivative that a builder knows holds what it is computed from, as a source edge does.
        let known = u.shortcut().map_or(&[][..], |s| &s.inputs[..]);
        for s in u.src().iter().chain(known) {
            *edges.entry(s).or_default() += 1;
        }
    }
    for r in roots {
        *edges.entry(r).or_default() += 1;
    }
    for r in roots.iter().collect::<FxHashSet<_>>() {
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
