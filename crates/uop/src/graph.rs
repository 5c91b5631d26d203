//! Walks over the graph, all iterative: toposort with gates, substitution, filling of lazy cells.
//! Flows in: roots; flows out: their nodes in order, or the same graph with other nodes in it.
//! Invariant: sources come before users, and what did not change is the same node.

use crate::dtype::DType;
use crate::effort;
use crate::error::{Error, Result};
use crate::fold;
use crate::marks::{NodeMap, NodeSet};
use crate::node::{Srcs, UOp};
use crate::op::Op;
use crate::scalar::Scalar;
use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};

impl UOp {
    /// Every node of this graph, sources before users; the root is last.
    pub fn toposort(&self) -> Vec<UOp> {
        self.toposort_gated(|_| true)
    }

    /// As `toposort`, without owning the nodes.
    pub fn nodes(&self) -> Vec<&UOp> {
        ordered(std::slice::from_ref(self), |u| u.src())
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
        self.rebuild(map, |_| true, |u, src| u.with_src(src))
    }

    /// This graph made anew, sources first: `new` is given each node that `enter` holds for and its new
    /// sources. What `known` holds becomes what it says.
    #[track_caller]
    pub fn rebuild(
        &self,
        known: &FxHashMap<UOp, UOp>,
        enter: impl Fn(&UOp) -> bool,
        mut new: impl FnMut(&UOp, Srcs) -> UOp,
    ) -> UOp {
        let made = self.try_rebuild(known, enter, |u, src| Ok(new(u, src)));
        made.expect("making the nodes gives no error")
    }

    /// As `rebuild`, where a node may not fit its new sources.
    ///
    /// # Errors
    /// The first of `new`.
    pub fn try_rebuild(
        &self,
        known: &FxHashMap<UOp, UOp>,
        enter: impl Fn(&UOp) -> bool,
        mut new: impl FnMut(&UOp, Srcs) -> Result<UOp>,
    ) -> Result<UOp> {
        let mut done: NodeMap<&UOp, UOp> = NodeMap::new();
        let mut inner = NodeSet::new();
        let order = ordered(std::slice::from_ref(self), |u| {
            if let Some(new) = known.get(u) {
                done.insert(u, new.clone());
            } else if enter(u) {
                inner.insert(u);
                return u.src();
            }
            &[]
        });
        done.reserve(order.len());
        for u in order {
            if !inner.contains(u) {
                continue;
            }
            let src = u.src().iter().map(|s| done.get(s).unwrap_or(s));
            let new = new(u, src.cloned().collect())?;
            if new != *u {
                done.insert(u, new);
            }
        }
        Ok(done.get(self).unwrap_or(self).clone())
    }

    /// The same node over another first source.
    #[track_caller]
    pub fn over(&self, first: &UOp) -> UOp {
        let mut src: Srcs = self.src().into();
        src[0] = first.clone();
        self.with_src(src)
    }

    /// What a chain of AFTERs names.
    pub fn named(&self) -> &UOp {
        let mut u = self;
        while u.op() == Op::After {
            u = &u.src()[0];
        }
        u
    }

    /// What a chain of movement ops views.
    pub fn viewed(&self) -> &UOp {
        let mut u = self;
        while let (true, Some(below)) = (u.op().is_movement(), u.src().first()) {
            u = below;
        }
        u
    }

    /// The movement ops by which this is a view of `base`, outermost first; None where it is none.
    pub fn views_of(&self, base: &UOp) -> Option<Vec<&UOp>> {
        let mut u = self;
        let mut views = Vec::new();
        while u != base {
            views.push(u);
            u = u.src().first().filter(|_| u.op().is_movement())?;
        }
        Some(views)
    }

    /// The value of a scalar expression where these nodes have these values; None where it needs others
    /// or is no arithmetic.
    pub fn sym_eval(&self, values: &FxHashMap<UOp, Scalar>) -> Option<Scalar> {
        let mut known: FxHashMap<UOp, Scalar> = values.clone();
        for u in self.toposort_gated(|u| !values.contains_key(u) && u.op() != Op::Param) {
            if known.contains_key(&u) {
                continue;
            }
            if let Some(value) = u.bound_to() {
                known.insert(u, Scalar::Int(value.into()));
                continue;
            }
            let folded = || {
                let values = u.src().iter().map(|s| known.get(s).copied());
                let src = values.collect::<Option<Vec<Scalar>>>()?;
                fold::fold(u.op(), u.src().first()?.dtype(), u.dtype(), &src)
            };
            let value = u.const_value().or_else(folded)?;
            known.insert(u, value);
        }
        known.get(self).copied()
    }

    /// The value of an integer expression where each variable (a PARAM of shape (), by slot) has a value.
    ///
    /// # Errors
    /// `Argument` where a variable has no value or one outside its bounds, or where the expression is of
    /// anything but constants, variables and elementwise ops.
    pub fn sym_infer(&self, vars: &[(u64, i64)]) -> Result<i64> {
        if let Some(n) = self.as_int() {
            return Ok(n);
        }
        let fail = |message: String| Error::argument("sym_infer", message);
        let mut values: FxHashMap<UOp, Scalar> = FxHashMap::default();
        for u in self.toposort_gated(|u| u.op() != Op::Param) {
            let Some(b) = u.buffer_arg().filter(|_| u.op() == Op::Param) else {
                continue;
            };
            let given = vars.iter().find(|v| v.0 == b.slot).map(|v| v.1);
            let slot = b.slot;
            let Some(v) = given.or(u.bound_to()) else {
                return Err(fail(format!("variable {slot} has no value")));
            };
            let (lo, hi) = u.bounds();
            if v < lo || v > hi {
                return Err(fail(format!("variable {slot} is {v}, outside {lo}..={hi}")));
            }
            values.insert(u, Scalar::Int(v.into()));
        }
        match self.sym_eval(&values) {
            Some(Scalar::Bool(b)) => Ok(b as i64),
            v => v
                .and_then(Scalar::as_int)
                .ok_or_else(|| fail("it is no integer arithmetic".into())),
        }
    }

    /// This graph with constants for its variables, each by its slot and word (the value of an integer,
    /// the bits of a float), and what that makes of offsets and sizes in simplest form.
    ///
    /// # Errors
    /// `Argument` where a value lies outside its variable's bounds.
    pub fn with_words(&self, words: &[(u64, i64)]) -> Result<UOp> {
        self.with_variables(|u, slot| {
            let Some(&(_, word)) = words.iter().find(|w| w.0 == slot) else {
                return Ok(None);
            };
            Ok(Some(match u.dtype() {
                DType::Index => UOp::index_const(u.sym_infer(&[(slot, word)])?),
                d => UOp::constant(Scalar::from_bits(word as u64, d), d),
            }))
        })
    }

    /// This graph with other values for its variables, as `value` says of each and its slot, and what
    /// that makes of offsets and sizes in simplest form.
    ///
    /// # Errors
    /// Those of `value`.
    pub fn with_variables(&self, value: impl Fn(&UOp, u64) -> Result<Option<UOp>>) -> Result<UOp> {
        let mut map: FxHashMap<UOp, UOp> = FxHashMap::default();
        for u in self.toposort().into_iter().filter(UOp::is_variable) {
            let slot = u.buffer_arg().map_or(0, |b| b.slot);
            if let Some(value) = value(&u, slot)? {
                map.insert(u, value);
            }
        }
        if map.is_empty() {
            return Ok(self.clone());
        }
        crate::rules::symbolic().rewrite(&self.substitute(&map))
    }

    /// Run `fill` on every node below (sources first) that is not `full`, without recursion.
    pub(crate) fn fill(&self, full: impl Fn(&UOp) -> bool, fill: impl Fn(&UOp)) {
        let mut stack: SmallVec<[(&UOp, bool); 16]> = smallvec![(self, false)];
        while let Some((u, ready)) = stack.pop() {
            effort::visited(1);
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

/// Every node below these roots, sources before users; those below one for which `enter`, asked once, does
/// not hold are left out.
pub fn toposort_many(roots: &[UOp], enter: impl FnMut(&UOp) -> bool) -> Vec<UOp> {
    nodes_below(roots, enter).into_iter().cloned().collect()
}

/// As `toposort_many`, without owning the nodes.
pub fn nodes_below(roots: &[UOp], mut enter: impl FnMut(&UOp) -> bool) -> Vec<&UOp> {
    ordered(roots, |u| if enter(u) { u.src() } else { &[] })
}

/// Every node below these roots after its `sources`, which are those of its sources to be entered.
pub(crate) fn ordered<'a>(
    roots: &'a [UOp],
    mut sources: impl FnMut(&'a UOp) -> &'a [UOp],
) -> Vec<&'a UOp> {
    let mut seen = NodeSet::new();
    let mut out = Vec::with_capacity(128);
    let mut visits = 0;
    let mut stack: Vec<(&UOp, bool)> = Vec::with_capacity(64);
    stack.extend(roots.iter().rev().map(|r| (r, false)));
    while let Some((u, ready)) = stack.pop() {
        if ready {
            out.push(u);
        } else if seen.insert(u) {
            let sources = sources(u);
            visits += 1 + sources.len();
            stack.push((u, true));
            stack.extend(sources.iter().rev().map(|s| (s, false)));
        }
    }
    effort::visited(visits);
    out
}
