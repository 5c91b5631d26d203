//! How a vector that is put together comes about: one scalar in every lane, lanes of other vectors (a
//! STACK of them, or a WHERE that chooses between two lists), or a list of scalars. Every target asks, as each has instructions of its own for the first two.
//! Flows in: the vector; flows out: that scalar, or those lanes.

use super::{lanes, storage_of};
use crate::node::UOp;
use crate::op::Op;

/// The node that all sources of a STACK are.
pub fn splat(u: &UOp) -> Option<&UOp> {
    let first = u.src().first()?;
    (u.op() == Op::Stack && u.src().iter().all(|s| s == first)).then_some(first)
}

/// Lanes of at most two vectors of one length, put together by a STACK or chosen by a WHERE: the vectors, and
/// each lane's number among those of the first and then the second.
pub fn gathered(u: &UOp) -> Option<([&UOp; 2], Vec<i64>)> {
    match u.op() {
        Op::Stack if u.src().len() > 1 => stacked(u),
        Op::Where => chosen(u),
        _ => None,
    }
}

/// WHERE(mask, INDEX(a, lanes), INDEX(b, lanes)), where mask and lanes are constants.
fn chosen(u: &UOp) -> Option<([&UOp; 2], Vec<i64>)> {
    let [mask, x, y] = u.src() else {
        return None;
    };
    let [a, first] = picked(x)?;
    let [b, second] = picked(y)?;
    if mask.op() != Op::Stack || a.shape() != b.shape() {
        return None;
    }
    let mut picks = Vec::with_capacity(mask.src().len());
    for ((m, i), j) in mask.src().iter().zip(first.src()).zip(second.src()) {
        picks.push(match m.const_value()?.truthy() {
            true => i.as_int()?,
            false => j.as_int()? + lanes(b) as i64,
        });
    }
    Some(([a, b], picks))
}

/// A vector, and the list of lanes that are taken of it.
fn picked(u: &UOp) -> Option<[&UOp; 2]> {
    let [v, list] = u.src() else {
        return None;
    };
    let lanes = u.op() == Op::Index && list.op() == Op::Stack && storage_of(v).is_none();
    lanes.then_some([v, list])
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
