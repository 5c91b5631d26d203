//! What a gradient goes through. Flows in: roots and targets; flows out: the nodes that depend on a target by a path
//! that has a derivative. A value of a FUNCTION does where its own part of the body does, so that what a function
//! gives besides (an index, a kernel without a derivative) stands in nobody's way.

use super::rules::paths;
use super::usable;
use crate::arg::Arg;
use crate::function::{own_sources, taken};
use crate::graph::ordered;
use crate::node::UOp;
use crate::op::Op;
use rustc_hash::{FxHashMap, FxHashSet};

/// The nodes of a walk.
pub(super) struct Active<'a> {
    wanted: &'a FxHashSet<&'a UOp>,
    /// What depends on a target, by whatever path.
    pub(super) below: FxHashSet<&'a UOp>,
    active: FxHashSet<&'a UOp>,
}

/// For bodies, and which of their PARAMs are active: which of their values are.
type Known = FxHashMap<(UOp, Vec<bool>), Vec<bool>>;

impl<'a> Active<'a> {
    /// Those of `order`, sources before users.
    pub(super) fn of(order: &'a [UOp], wanted: &'a FxHashSet<&'a UOp>) -> Active<'a> {
        Active::known(order, wanted, &mut Known::default())
    }

    fn known(order: &'a [UOp], wanted: &'a FxHashSet<&'a UOp>, known: &mut Known) -> Active<'a> {
        let mut below: FxHashSet<&UOp> = FxHashSet::default();
        for u in order {
            if wanted.contains(u) || own_sources(u).iter().any(|s| below.contains(s)) {
                below.insert(u);
            }
        }
        let active = FxHashSet::default();
        let mut of = Active {
            wanted,
            below,
            active,
        };
        for u in order {
            if wanted.contains(u) || of.reaches(u, known) {
                of.active.insert(u);
            }
        }
        of
    }

    /// Whether something that is active reaches a node.
    fn reaches(&self, u: &UOp, known: &mut Known) -> bool {
        let effect = matches!(u.op(), Op::Store | Op::Group | Op::Function | Op::Call);
        if !u.dtype().is_float() && !effect {
            return false;
        }
        let through = match usable(u, self.wanted, &self.below) {
            Some(s) => &s.inputs[..],
            None => paths(u),
        };
        through.iter().any(|s| self.contains(s)) && self.is_given(u, known)
    }

    /// False for a value of a FUNCTION that no active argument reaches.
    fn is_given(&self, u: &UOp, known: &mut Known) -> bool {
        match taken(u) {
            // What one carry is may reach every other.
            Some((f, _)) if matches!(f.arg(), Arg::Scan(_)) => true,
            Some((f, i)) => {
                let arguments = f.src()[1..].iter();
                let wanted = arguments.map(|a| self.contains(a)).collect();
                values(&f.src()[0], wanted, known)[i]
            }
            None => true,
        }
    }

    /// Whether a node depends on a target by a path that has a derivative.
    pub(super) fn contains(&self, u: &UOp) -> bool {
        self.active.contains(u)
    }
}

/// Which values of a body depend on these of its PARAMs.
fn values(body: &UOp, wanted: Vec<bool>, known: &mut Known) -> Vec<bool> {
    let asked = (body.clone(), wanted);
    if let Some(found) = known.get(&asked) {
        return found.clone();
    }
    let order = ordered(body.src(), own_sources);
    let order: Vec<UOp> = order.into_iter().cloned().collect();
    let is_wanted = |u: &&UOp| {
        let slot = u.buffer_arg().map(|b| b.slot as usize);
        let place = slot.filter(|_| u.op() == Op::Param);
        place.is_some_and(|k| asked.1.get(k) == Some(&true))
    };
    let targets: FxHashSet<&UOp> = order.iter().filter(is_wanted).collect();
    let active = Active::known(&order, &targets, known);
    let found: Vec<bool> = body.src().iter().map(|v| active.contains(v)).collect();
    known.insert(asked, found.clone());
    found
}
