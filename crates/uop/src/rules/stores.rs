//! `tensor` on graphs with assignments. Flows in: a tensor graph; flows out: its simplified form.
//! Invariant: the target of a STORE stays a view of what its AFTER updates, so that base stands as a
//! placeholder in the target while rules are at work.

use crate::error::Result;
use crate::node::{Srcs, UOp};
use crate::op::Op;
use rustc_hash::FxHashMap;

const STAND_IN: u64 = 1 << 61;

/// The tensor graph with the rules of [`tensor`](super::tensor).
///
/// # Errors
/// `Verify` where rules rewrite one node without end.
pub fn simplify_tensors(root: &UOp) -> Result<UOp> {
    let rules = super::tensor();
    if !root.ops_below().contains(Op::After) {
        return rules.rewrite(root, &mut ());
    }
    let mut slots: FxHashMap<UOp, UOp> = FxHashMap::default();
    let hidden = map_after(root, |base, store| {
        if matches!(base.op(), Op::Buffer | Op::Param) || !shows(&store.src()[0], base) {
            return Some(store.clone());
        }
        let slot = STAND_IN + slots.len() as u64;
        let stand = slots
            .entry(base.clone())
            .or_insert_with(|| UOp::param(slot, base.shape(), base.dtype(), base.device()));
        Some(retarget(store, base, stand))
    });
    let simple = rules.rewrite(&hidden, &mut ())?;
    Ok(map_after(&simple, |base, store| {
        let below = bottom(&store.src()[0]);
        let is_stand = below.op() == Op::Param && below.buffer_arg().is_some_and(|b| b.slot >= STAND_IN);
        match below {
            b if is_stand => Some(retarget(store, &b.clone(), base)),
            b if b == base => Some(store.clone()),
            // A target without elements became a constant: nothing is written.
            b if b.op() == Op::Const => None,
            _ => Some(store.clone()),
        }
    }))
}

/// The graph with every STORE that an AFTER waits for replaced; `f` sees the base and the store.
fn map_after(root: &UOp, mut f: impl FnMut(&UOp, &UOp) -> Option<UOp>) -> UOp {
    root.rebuild(
        &FxHashMap::default(),
        |_| true,
        |u, mut src| {
            if u.op() != Op::After {
                return u.with_src(src);
            }
            let (base, stores) = (src.remove(0), src);
            let replaced =
                stores.iter().filter_map(|s| if s.op() == Op::Store { f(&base, s) } else { Some(s.clone()) });
            base.after(&replaced.collect::<Srcs>())
        },
    )
}

/// What a chain of views shows.
fn bottom(u: &UOp) -> &UOp {
    let mut u = u;
    while u.op().is_movement() && !u.src().is_empty() {
        u = &u.src()[0];
    }
    u
}

/// Whether a chain of views shows this base.
fn shows(u: &UOp, base: &UOp) -> bool {
    let mut u = u;
    while u != base {
        match u.src().first() {
            Some(below) if u.op().is_movement() => u = below,
            _ => return false,
        }
    }
    true
}

fn retarget(store: &UOp, from: &UOp, to: &UOp) -> UOp {
    let mut chain: Vec<&UOp> = Vec::new();
    let mut at = &store.src()[0];
    while at != from {
        chain.push(at);
        at = &at.src()[0];
    }
    let over = |u: &UOp, below: UOp| {
        let mut src: Srcs = u.src().into();
        src[0] = below;
        u.with_src(src)
    };
    over(store, chain.into_iter().rev().fold(to.clone(), |view, u| over(u, view)))
}
