//! What an assign to a part writes. Flows in: a kernel that writes over what it reads; flows out: the same, over the
//! elements that it changes alone. A row of a cache so costs a row, whichever it is.
//!
//! Invariant: elements that are left out are those that would be written as they are.

use super::ranges::{replace, unused_number};
use monoglot_uop::rules::{Affine, conjuncts, constraints};
use monoglot_uop::{DType, Op, Result, Scalar, UOp};
use rustc_hash::FxHashMap;

/// The kernel over the elements that it changes; None where these are all, or it cannot be told which.
///
/// # Errors
/// Those of the rules.
pub(crate) fn changed(sink: &UOp) -> Result<Option<UOp>> {
    let own = |end: &UOp| rewritten(end, |old, new| old == new);
    let Some(stores) = sink.src().iter().map(own).collect::<Option<Vec<_>>>() else {
        return Ok(None);
    };
    let Some(Rewritten { condition, .. }) = stores.first() else {
        return Ok(None);
    };
    let one = stores.iter().all(|s| s.condition == *condition);
    let Confined {
        values,
        parts,
        beyond,
    } = confined(sink, condition);
    if !one || values.is_empty() || condition.ops_below().contains(Op::Index) {
        return Ok(None);
    }
    // Where the loops end with the condition, nothing need ask for it; a turn past the end is none.
    let yes = UOp::constant(Scalar::Bool(true), DType::Bool);
    let always = condition.substitute(&values).simplify() == yes;
    let known = (always && beyond.is_empty()).then(|| (condition.clone(), yes));
    let known = FxHashMap::from_iter(known);
    let gate = beyond.iter().fold(condition.clone(), |all, b| &all & b);
    let ends = sink.src().iter().zip(&stores).map(|(end, s)| {
        let index = s.place.src()[1].valid(&gate);
        let place = s.place.src()[0].at(&[index]);
        let store = place.store(&s.value.substitute(&known));
        store.end(&end.src()[1..])
    });
    let part = replace(&sink.with_src(ends.collect::<Vec<_>>()), &values, &parts);
    // A store without loops is closed by none.
    let bare = |end: &UOp| end.op() == Op::End && end.src().len() == 1;
    let open = |end: &UOp| if bare(end) { &end.src()[0] } else { end }.clone();
    let stores: Vec<UOp> = part.src().iter().map(open).collect();
    super::simplify(&part.with_src(stores)).map(Some)
}

/// The condition that confines the loops of a kernel once it writes over what it reads: kernels that are confined
/// otherwise do not share loops.
pub(crate) fn confining(sink: &UOp) -> Option<UOp> {
    let [end] = sink.src() else {
        return None;
    };
    let store = rewritten(end, |old, new| old.shape() == new.shape())?;
    let found = confined(sink, &store.condition);
    (!found.values.is_empty()).then_some(store.condition)
}

/// A store that writes something new where a condition holds, and elsewhere what is there.
struct Rewritten {
    /// The INDEX that it writes to.
    place: UOp,
    condition: UOp,
    value: UOp,
}

/// The store that an END closes, if it is of that kind: what is there is read from storage that is the one written.
fn rewritten(end: &UOp, is_same: impl Fn(&UOp, &UOp) -> bool) -> Option<Rewritten> {
    let store = end.src().first().filter(|s| s.op() == Op::Store)?;
    let [place, value] = store.src() else {
        return None;
    };
    let [condition, new, old] = value.src() else {
        return None;
    };
    if value.op() != Op::Where {
        return None;
    }
    let there = |u: &UOp| {
        let read = u.op() == Op::Index && is_same(&u.src()[0], &place.src()[0]);
        read && ungated(&u.src()[1]) == &place.src()[1]
    };
    let (condition, value) = match (there(new), there(old)) {
        (false, true) => (condition.clone(), new.clone()),
        (true, false) => (condition.unary(Op::Not).simplify(), old.clone()),
        _ => return None,
    };
    Some(Rewritten {
        place: place.clone(),
        condition,
        value,
    })
}

/// An index without the condition under which it is one.
fn ungated(index: &UOp) -> &UOp {
    match (index.op(), index.src()) {
        (Op::Where, [_, index, otherwise]) if otherwise.is_invalid() => index,
        _ => index,
    }
}

/// The loops that a condition confines to fewer turns, of which the first may be a variable's.
#[derive(Default)]
struct Confined {
    /// What takes the place of each.
    values: FxHashMap<UOp, UOp>,
    /// The loop in it, unless it has one turn.
    parts: FxHashMap<UOp, Vec<UOp>>,
    /// What must hold besides, where turns may pass the ends of the loop that was.
    beyond: Vec<UOp>,
}

fn confined(sink: &UOp, condition: &UOp) -> Confined {
    let mut next = unused_number(&sink.toposort());
    let sums: Vec<Affine> = conjuncts(condition).iter().flat_map(constraints).collect();
    let mut found = Confined::default();
    for range in sink.src()[0].src().iter().skip(1) {
        let extent = range.src()[0].as_int();
        let turns = extent.and_then(|n| Some((n, turns(range, n, &sums)?)));
        let (Some((extent, (from, turns))), Some((_, axis))) = (turns, range.range_arg()) else {
            continue;
        };
        if from.vmin() < 0 {
            found
                .beyond
                .push(range.binary(Op::CmpLt, &UOp::index_const(0)).unary(Op::Not));
        }
        if from.vmax() + turns > extent {
            found.beyond.push(range.binary(Op::CmpLt, &range.src()[0]));
        }
        if turns == 1 {
            found.values.insert(range.clone(), from);
            found.parts.insert(range.clone(), Vec::new());
            continue;
        }
        let fewer = UOp::range(turns, next, axis);
        next += 1;
        found.values.insert(range.clone(), &fewer + &from);
        found.parts.insert(range.clone(), vec![fewer]);
    }
    found
}

/// The first turn of a loop at which these sums, of variables, are at most 0, and how many follow each other: as
/// many for all values of the variables, and fewer than the loop has.
fn turns(range: &UOp, extent: i64, sums: &[Affine]) -> Option<(UOp, i64)> {
    let mut from = Affine::number(DType::Index, 0);
    let mut to = Affine::number(DType::Index, extent.into());
    let mut sides = (false, false);
    for sum in sums {
        let Some(&(_, k)) = sum.terms.iter().find(|t| t.0 == *range) else {
            continue;
        };
        let mut rest = sum.clone();
        rest.terms.retain(|t| t.0 != *range);
        let told = rest.terms.iter().all(|t| t.0.ranges().is_empty());
        if !told || k.abs() != 1 {
            continue;
        }
        // range + rest ≤ 0 or rest − range ≤ 0.
        let (side, known, mut bound) = match k {
            1 => (&mut to, &mut sides.1, Affine::number(DType::Index, 1)),
            _ => (&mut from, &mut sides.0, Affine::number(DType::Index, 0)),
        };
        bound.plus(&rest, -k)?;
        if !std::mem::replace(known, true) {
            *side = bound;
        }
    }
    let mut count = to.clone();
    count.plus(&from, -1)?;
    let count = i64::try_from(count.constant)
        .ok()
        .filter(|_| count.terms.is_empty())?;
    let from = from.build_by(|_| 0);
    (count > 0 && count < extent).then_some((from, count))
}
