//! Sums that go on: where a mask or an edge has a sum done in parts, each in loops of its own, the next part begins with
//! what the one before leaves in its accumulators. Flows in: a kernel's nodes in an array; flows out: which REDUCE goes on
//! with which. Invariant: both keep the same in the same loops, and nobody else wants what the first one leaves.

use super::table::{Demand, Loops, Table};
use monoglot_uop::{Arg, UOp};
use rustc_hash::{FxHashMap, FxHashSet};

/// Which parts of sums go on.
#[derive(Default)]
pub(super) struct Chains {
    /// By REDUCE, the one that it goes on with.
    before: FxHashMap<usize, usize>,
    /// By node that puts parts together, the REDUCE that is the last of them.
    last: FxHashMap<usize, usize>,
    /// Nodes whose value goes on, and is none by itself.
    passed: FxHashSet<usize>,
    /// By REDUCE of which another goes on, its registers, and what was done when they have its sums.
    left: FxHashMap<usize, (Vec<UOp>, UOp)>,
}

impl Chains {
    /// Those of a kernel of which this is wanted by node; `alike` says whether two REDUCEs keep the same.
    pub(super) fn of(t: &Table, demand: &[Demand], alike: impl Fn(usize, usize) -> bool) -> Chains {
        let mut chains = Chains::default();
        if t.groups.len() < 2 {
            return chains;
        }
        // Of each REDUCE with loops the first of those that share them, and the loops around.
        let mut group: FxHashMap<usize, (u32, Loops)> = FxHashMap::default();
        for (&first, members) in &t.groups {
            let around = members.iter().fold(0, |m, &i| m | t.loops[i as usize]);
            group.extend(members.iter().map(|&i| (i as usize, (first, around))));
        }
        let mut users = vec![0u32; t.len()];
        for &s in t.src.iter().flatten() {
            users[s as usize] += 1;
        }
        let op = |s: usize| match t.nodes[s].arg() {
            Arg::Reduce(op, _) => Some(op.op()),
            _ => None,
        };
        for (i, u) in t.nodes.iter().enumerate() {
            let [a, b] = t.src[i][..] else { continue };
            let parts = [a as usize, b as usize];
            let ends = parts.map(|s| chains.last(s).unwrap_or(s));
            let [Some(x), Some(y)] = ends.map(|s| group.get(&s)) else {
                continue;
            };
            let [first, then] = if x.0 < y.0 { [0, 1] } else { [1, 0] };
            let sums = ends.iter().all(|&s| op(s) == Some(u.op()));
            let alone = parts.iter().all(|&s| users[s] == 1);
            let values = [i].into_iter().chain(parts).chain(ends);
            let index = values.into_iter().any(|s| demand[s].index);
            let once = x.1 == y.1 && x.0 != y.0 && !chains.before.contains_key(&ends[then]);
            if sums && alone && !index && once && alike(ends[0], ends[1]) {
                chains.before.insert(ends[then], ends[first]);
                chains.passed.extend([parts[first], ends[first]]);
                chains.last.insert(i, ends[then]);
            }
        }
        chains
    }

    /// The REDUCE whose result is that of a node that puts parts together.
    pub(super) fn last(&self, node: usize) -> Option<usize> {
        self.last.get(&node).copied()
    }

    /// Whether a node's value goes on in another's.
    pub(super) fn passes(&self, node: usize) -> bool {
        self.passed.contains(&node)
    }

    /// The registers that a REDUCE goes on with, and what has been done by then.
    pub(super) fn begun(&self, reduce: usize) -> Option<&(Vec<UOp>, UOp)> {
        self.left.get(self.before.get(&reduce)?)
    }

    /// Take down what a REDUCE that passes leaves.
    pub(super) fn leave(&mut self, reduce: usize, registers: &[UOp], done: &UOp) {
        let left = (registers.to_vec(), done.clone());
        self.left.insert(reduce, left);
    }
}
