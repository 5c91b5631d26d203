//! Storage that one value of a kernel takes over from another. Flows in and out: a kernel. Where a loop fills
//! storage with elements that are each made of the element at the same place of other storage, and nothing reads
//! that any more once the loop runs, both are one: less is to be held near.
//!
//! Storage that has taken over some already takes over no other: both may be read at the same time.
//!
//! Invariant: all reads of what is overwritten are what the loop's elements are made of: each at its own place,
//! or before the loop.

use monoglot_uop::{Op, UOp};
use rustc_hash::{FxHashMap, FxHashSet};

/// The kernel in which storage is taken over where it can be.
pub(super) fn in_place(sink: &UOp) -> UOp {
    let mut sink = sink.clone();
    while let Some((fresh, old)) = candidate(&sink) {
        sink = sink.substitute(&FxHashMap::from_iter([(fresh, old)]));
    }
    sink
}

/// Storage that can be taken over, behind that which would.
fn candidate(sink: &UOp) -> Option<(UOp, UOp)> {
    if !sink.ops_below().contains(Op::Buffer) {
        return None;
    }
    let nodes = sink.toposort();
    let is_read = |u: &&UOp| u.op() == Op::Index && u.src()[0].op() == Op::After;
    let reads: Vec<&UOp> = nodes.iter().filter(is_read).collect();
    let fills = |storage: &UOp| {
        let stores = nodes.iter().filter(|u| u.op() == Op::Store);
        let into = |u: &&UOp| u.src()[0].src().first().map(UOp::named) == Some(storage);
        stores.filter(into).count()
    };
    for end in nodes.iter().filter(|u| u.op() == Op::End) {
        let [store, own @ ..] = end.src() else {
            continue;
        };
        if store.op() != Op::Store || store.src()[0].src()[0].op() != Op::Buffer {
            continue;
        }
        let fresh = &store.src()[0].src()[0];
        // What took storage over holds what was there before as well.
        if fills(fresh) > 1 {
            continue;
        }
        let below: FxHashSet<UOp> = store.src()[1].toposort().into_iter().collect();
        let place = &store.src()[0].src()[1..];
        let fits = |old: &UOp| {
            let of = |u: &&&UOp| u.src()[0].named() == old;
            let here = |u: &UOp| u.src()[1..] == *place;
            let varies = |u: &UOp| u.ranges().iter().any(|r| own.contains(r));
            let closes = |u: &UOp, range: &UOp| {
                matches!(u.op(), Op::Reduce | Op::End) && u.src()[1..].contains(range)
            };
            // A fold of what does not vary may itself: it is made anew in each turn.
            let folded = |range: &UOp| below.iter().any(|u| closes(u, range) && varies(u));
            let before = |u: &UOp| !varies(u) && !u.ranges().iter().any(folded);
            // What is filled once for several turns is overwritten in the first of them.
            let anew = |u: &UOp| end.ranges().iter().all(|r| u.src()[0].ranges().contains(r));
            let goes = |u: &UOp| below.contains(u) && (here(u) || before(u)) && anew(u);
            old != fresh
                && old.op() == Op::Buffer
                && old.shape() == fresh.shape()
                && old.dtype() == fresh.dtype()
                && reads.iter().filter(of).any(|u| here(u))
                && reads.iter().filter(of).all(|u| goes(u))
        };
        let olds = reads.iter().filter(|u| below.contains(**u));
        let old = olds.map(|u| u.src()[0].named()).find(|old| fits(old));
        if let Some(old) = old {
            return Some((fresh.clone(), old.clone()));
        }
    }
    None
}
