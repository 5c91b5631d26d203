//! Who holds a buffer. Flows in: the roots of a realize; flows out: the BUFFERs that nothing outside
//! these roots can reach, whose storage their next version may take over.
//!
//! Every reference to a node is either a source edge of a living node or a handle of somebody. Where a
//! node has more owners than edges from this graph account for, somebody else holds it, and with it
//! everything below. Nobody can gain a handle meanwhile except from one that is counted here.

use monoglot_uop::graph::toposort_many;
use monoglot_uop::{Op, UOp};
use rustc_hash::{FxHashMap, FxHashSet};

/// Handles that the caller of a realize has on each root: its tensor's and the one it passes.
const HANDLES: usize = 2;

/// The BUFFERs below `roots` that only `roots` hold, each held `HANDLES` times by the caller.
pub(crate) fn exclusive(roots: &[UOp]) -> FxHashSet<UOp> {
    if !roots.iter().any(|r| r.ops_below().contains(Op::After)) {
        return FxHashSet::default();
    }
    let nodes = toposort_many(roots, |_| true);
    let mut edges: FxHashMap<&UOp, usize> = FxHashMap::default();
    for u in &nodes {
        u.src()
            .iter()
            .for_each(|s| *edges.entry(s).or_default() += 1);
    }
    for r in roots {
        *edges.entry(r).or_default() += HANDLES;
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
