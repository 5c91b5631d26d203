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
use monoglot_uop::graph::toposort_many;
use monoglot_uop::{Op, UOp};
use rustc_hash::{FxHashMap, FxHashSet};

/// The claimed BUFFERs, whose next versions are among `roots`.
///
/// # Errors
/// `Busy` where another run has claimed one of them.
pub(crate) fn claims(roots: &[UOp]) -> Tried<FxHashMap<UOp, Claim>> {
    let mut claims: FxHashMap<&UOp, Claim> = FxHashMap::default();
    for buffer in roots.iter().filter_map(assigned_buffer) {
        if !claims.contains_key(buffer)
            && let Some(claim) = versions::claim(buffer)?
        {
            claims.insert(buffer, claim);
        }
    }
    if claims.is_empty() {
        return Ok(FxHashMap::default());
    }
    let exclusive = exclusive(roots);
    let claims = claims
        .into_iter()
        .filter(|(buffer, _)| exclusive.contains(buffer));
    Ok(claims
        .map(|(buffer, claim)| (buffer.clone(), claim))
        .collect())
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
