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
        return rules.rewrite(root);
    }
    let mut slots: FxHashMap<UOp, UOp> = FxHashMap::default();
    let hidden = map_after(root, |base, store| {
        if matches!(base.op(), Op::Buffer | Op::Param) || store.src()[0].views_of(base).is_none() {
            return Some(store.clone());
        }
        let slot = STAND_IN + slots.len() as u64;
        let stand = slots
            .entry(base.clone())
            .or_insert_with(|| UOp::param(slot, base.shape(), base.dtype(), base.device()));
        Some(retarget(store, base, stand))
    });
    let simple = rules.rewrite(&hidden)?;
    Ok(map_after(&simple, |base, store| {
        let below = store.src()[0].viewed();
        match below.buffer_arg() {
            Some(b) if below.op() == Op::Param && b.slot >= STAND_IN => {
                Some(retarget(store, below, base))
            }
            // A target without elements became a constant: nothing is written.
            _ if below != base && below.op() == Op::Const => None,
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
            let base = src.remove(0);
            let replaced = src.iter().filter_map(|s| {
                if s.op() == Op::Store {
                    f(&base, s)
                } else {
                    Some(s.clone())
                }
            });
            base.after(&replaced.collect::<Srcs>())
        },
    )
}

/// The store with its target a view of `to` instead of `from`.
fn retarget(store: &UOp, from: &UOp, to: &UOp) -> UOp {
    let views = store.src()[0].views_of(from).unwrap_or_default();
    let views = views.into_iter().rev();
    store.over(&views.fold(to.clone(), |view, u| u.over(&view)))
}
