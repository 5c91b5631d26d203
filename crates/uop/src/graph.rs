//! Walks over the graph, all iterative: toposort with gates, substitution, filling of lazy cells.

use crate::fold;
use crate::node::{Srcs, UOp};
use crate::scalar::Scalar;
use rustc_hash::{FxHashMap, FxHashSet};

impl UOp {
    /// Every node of this graph, sources before users; the root is last.
    pub fn toposort(&self) -> Vec<UOp> {
        self.toposort_gated(|_| true)
    }

    /// As `toposort`, entering only the sources of nodes for which `enter` holds.
    pub fn toposort_gated(&self, enter: impl Fn(&UOp) -> bool) -> Vec<UOp> {
        toposort_many(std::slice::from_ref(self), enter)
    }

    /// This graph with nodes replaced; what replaces is not searched again.
    #[track_caller]
    pub fn substitute(&self, map: &FxHashMap<UOp, UOp>) -> UOp {
        if map.is_empty() {
            return self.clone();
        }
        let mut done: FxHashMap<UOp, UOp> = map.clone();
        for u in self.toposort_gated(|u| !map.contains_key(u)) {
            if done.contains_key(&u) {
                continue;
            }
            let src: Srcs = u.src().iter().map(|s| done.get(s).unwrap_or(s).clone()).collect();
            if src[..] != *u.src() {
                let new = u.with_src(src);
                done.insert(u, new);
            }
        }
        done.get(self).unwrap_or(self).clone()
    }

    /// The value of a scalar expression where these nodes have these values; None where it needs others
    /// or is no arithmetic.
    pub fn sym_infer(&self, values: &FxHashMap<UOp, Scalar>) -> Option<Scalar> {
        let mut known: FxHashMap<UOp, Scalar> = values.clone();
        for u in self.toposort_gated(|u| !values.contains_key(u)) {
            if known.contains_key(&u) {
                continue;
            }
            let value = match u.const_value() {
                Some(v) => v,
                None => {
                    let src: Vec<Scalar> =
                        u.src().iter().map(|s| known.get(s).copied()).collect::<Option<_>>()?;
                    fold::fold(u.op(), u.src().first()?.dtype(), u.dtype(), &src)?
                }
            };
            known.insert(u, value);
        }
        known.get(self).copied()
    }

    /// Run `fill` on every node below (sources first) that is not `full`, without recursion.
    pub(crate) fn fill(&self, full: impl Fn(&UOp) -> bool, fill: impl Fn(&UOp)) {
        let mut stack = vec![(self, false)];
        while let Some((u, ready)) = stack.pop() {
            if full(u) {
                continue;
            }
            if ready {
                fill(u);
            } else {
                stack.push((u, true));
                stack.extend(u.src().iter().filter(|s| !full(s)).map(|s| (s, false)));
            }
        }
    }
}

/// Every node below these roots, sources before users.
pub fn toposort_many(roots: &[UOp], enter: impl Fn(&UOp) -> bool) -> Vec<UOp> {
    let mut seen: FxHashSet<&UOp> = FxHashSet::default();
    let mut out = Vec::new();
    let mut stack: Vec<(&UOp, bool)> = roots.iter().rev().map(|r| (r, false)).collect();
    while let Some((u, ready)) = stack.pop() {
        if ready {
            out.push(u.clone());
        } else if seen.insert(u) {
            stack.push((u, true));
            if enter(u) {
                stack.extend(u.src().iter().rev().filter(|s| !seen.contains(s)).map(|s| (s, false)));
            }
        }
    }
    out
}
