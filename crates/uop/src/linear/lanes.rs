//! How a vector that is put together comes about: one scalar in every lane, lanes of other vectors (a
//! STACK of them, or a SHUFFLE), or a list of scalars. Every target asks, as each has instructions of its own for the
//! first two. Flows in: the vector; flows out: that scalar, or those lanes.

use super::{lanes, storage_of};
use crate::node::UOp;
use crate::op::Op;

/// The node that all sources of a STACK are.
pub fn splat(u: &UOp) -> Option<&UOp> {
    let first = u.src().first()?;
    (u.op() == Op::Stack && u.src().iter().all(|s| s == first)).then_some(first)
}

/// Lanes of at most two vectors of one length, put together by a STACK or a SHUFFLE: the vectors, and each lane's
/// number among those of the first and then the second.
pub fn gathered(u: &UOp) -> Option<([&UOp; 2], Vec<i64>)> {
    match (u.op(), u.src()) {
        (Op::Stack, src) if src.len() > 1 => stacked(u),
        (Op::Shuffle, [a, b, list]) => {
            let picks: Option<Vec<i64>> = list.src().iter().map(UOp::as_int).collect();
            Some(([a, b], picks?))
        }
        _ => None,
    }
}

fn stacked(u: &UOp) -> Option<([&UOp; 2], Vec<i64>)> {
    let mut from: Vec<&UOp> = Vec::new();
    let mut picks: Vec<i64> = Vec::with_capacity(u.src().len());
    for s in u.src() {
        if s.op() != Op::Index || s.src().len() != 2 {
            return None;
        }
        let v = &s.src()[0];
        let lane = s.src()[1].as_int()?;
        if storage_of(v).is_some() || from.first().is_some_and(|f| f.shape() != v.shape()) {
            return None;
        }
        let which = from.iter().position(|f| *f == v).unwrap_or_else(|| {
            from.push(v);
            from.len() - 1
        });
        if which > 1 {
            return None;
        }
        picks.push(lane + (which * lanes(v)) as i64);
    }
    Some(([from[0], from[from.len() - 1]], picks))
}
