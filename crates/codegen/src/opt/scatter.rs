//! SCATTER: what a reduction folds where an index names a turn of an axis (`Σ_j (id[j] = r ? x[j] : 0)`) is put
//! where the index says, so that all turns cost what one did. Flows in: the nest and an axis; flows out: the
//! nest in which LOCAL storage, as long as the axis and those inside of it, is set to the identity, the
//! reduction's loops put each of their elements in its place, and the axis reads it there.
//!
//! A part of an axis is an axis: what names another part is left out, and each part is gone through in the
//! same order. So who adds to an element is whoever stores it, and no sum depends on the number of threads.
//!
//! Preconditions:
//! * the axis is a loop of a known extent, as are those inside of it over which such a reduction varies;
//! * at least one reduction folds what stands where an equation holds, of the axis and what does not vary with
//!   it, and nothing else of it varies with the axis;
//! * the storage is within what LOCAL storage may be, and threads do not share it.

use super::masked::Masked;
use super::nest::LoopNest;
use super::refuse;
use crate::build::combine;
use crate::loops::{fresh, kind, next_id};
use crate::scratch;
use monoglot_uop::rules::solve_equal;
use monoglot_uop::{AddrSpace, AxisType, Opt, Result, Shape, Target, UOp};
use rustc_hash::FxHashMap;

/// Most bytes of a kernel's LOCAL storage.
pub(super) const MOST: i64 = 1 << 24;

/// A reduction of which an index says at which turn of an axis it stands.
pub(super) struct Placed {
    pub(super) masked: Masked,
    /// The turn.
    pub(super) turn: UOp,
    /// What else must hold.
    others: Option<UOp>,
    /// The loops inside of the axis over which it varies.
    pub(super) inside: Vec<UOp>,
}

impl Placed {
    /// None where this is no such reduction of this axis.
    pub(super) fn of(u: &UOp, axis: &UOp) -> Option<Placed> {
        let masked = Masked::of(u)?;
        let one = masked.relates(axis)?;
        let (turn, exact) = solve_equal(&masked.conditions[one], axis)?;
        let turn = turn.simplify();
        let found = masked.closes().iter().any(|j| turn.ranges().contains(j));
        if !exact || !found || masked.is_nested() {
            return None;
        }
        let inner = |r: &&UOp| kind(r) == AxisType::Loop && r.range_arg() > axis.range_arg();
        let inside = u.ranges().iter().filter(inner).cloned().collect();
        Some(Placed {
            others: masked.others(one),
            masked,
            turn,
            inside,
        })
    }

    /// The other loops over which it varies.
    pub(super) fn around(&self, axis: &UOp) -> Vec<UOp> {
        let open = self.masked.reduce.ranges();
        let others = open
            .iter()
            .filter(|r| *r != axis && !self.inside.contains(r));
        others.cloned().collect()
    }

    /// The extents of its storage.
    fn dims(&self, axis: &UOp) -> Option<Vec<i64>> {
        let all = std::iter::once(axis).chain(&self.inside);
        all.map(|r| r.src()[0].as_int()).collect()
    }

    /// What the axis reads in place of the reduction.
    fn stored(&self, axis: &UOp, dims: &[i64], next: &mut u32, slot: &mut u64) -> UOp {
        let dtype = self.masked.reduce.dtype();
        let storage = UOp::scratch(*slot, &Shape::of(dims), dtype, AddrSpace::Local);
        *slot += 1;
        let own = |ranges: &[UOp], next: &mut u32| -> Vec<UOp> {
            let one = |r| fresh(r, AxisType::Loop, next);
            ranges.iter().map(one).collect()
        };
        let all = [std::slice::from_ref(axis), &self.inside].concat();
        let mut around = self.around(axis);
        around.retain(|r| scratch::sets_anew(kind(r)));
        let empty = own(&all, next);
        let set = match &around[..] {
            [] => storage.clone(),
            around => storage.after(around),
        };
        let set = set.at(&empty).store(&self.masked.identity()).end(&empty);

        let folded = own(self.masked.closes(), next);
        let inside = own(&self.inside, next);
        let from = self.masked.closes().iter().chain(&self.inside);
        let to = folded.iter().chain(&inside);
        let map: FxHashMap<UOp, UOp> = from.cloned().zip(to.cloned()).collect();
        let mut here = |u: &UOp| scratch::copied(u, map.clone(), slot);
        let turn = here(&self.turn);
        let value = here(&self.masked.value);
        let first = turn.like(-1).lt(&turn);
        let mut gate = first & turn.lt(&turn.like(dims[0]));
        if let Some(others) = &self.others {
            gate = gate & here(others);
        }
        let now = storage.after(&[&[set], &folded[..]].concat());
        let place = [&[turn.valid(&gate)], &inside[..]].concat();
        let now = now.at(&place);
        let all = [folded, inside].concat();
        let done = now.store(&combine(self.masked.op, &now, &value)).end(&all);
        let places = [std::slice::from_ref(axis), &self.inside].concat();
        storage.after(&[done]).at(&places)
    }
}

/// The reductions that SCATTER along an axis takes out of its loop.
pub(super) fn along(nodes: &[UOp], axis: &UOp) -> Vec<Placed> {
    nodes.iter().filter_map(|u| Placed::of(u, axis)).collect()
}

pub(super) fn step(nest: &mut LoopNest, opt: &Opt, target: &Target) -> Result<()> {
    let kernel = nest.kernel();
    let nodes = kernel.toposort();
    let axis = &super::ranges(&nodes)[opt.axis];
    if kind(axis) != AxisType::Loop {
        return Err(refuse(opt, "it is no loop"));
    }
    if target.workgroups {
        return Err(refuse(opt, "threads share LOCAL storage"));
    }
    let placed = along(&nodes, axis);
    if placed.is_empty() {
        return Err(refuse(opt, "no index of a reduction names its turns"));
    }
    let mut next = next_id(&kernel);
    let mut slot = scratch::next_slot(&kernel);
    let mut bytes = own_bytes(&nodes);
    let mut stored = FxHashMap::default();
    for p in placed {
        let Some(dims) = p.dims(axis) else {
            return Err(refuse(opt, "an extent is not known"));
        };
        let element = p.masked.reduce.dtype().bytes() as i64;
        let own = dims.iter().try_fold(element, |n, &d| n.checked_mul(d));
        bytes = own.and_then(|n| n.checked_add(bytes)).unwrap_or(i64::MAX);
        if bytes > MOST {
            return Err(refuse(opt, format!("{dims:?} elements are too many")));
        }
        let read = p.stored(axis, &dims, &mut next, &mut slot);
        stored.insert(p.masked.reduce, read);
    }
    *nest = LoopNest::new(&kernel.substitute(&stored))?;
    Ok(())
}

/// Bytes of storage that a kernel has already.
fn own_bytes(nodes: &[UOp]) -> i64 {
    let own = nodes.iter().filter(|u| u.op() == monoglot_uop::Op::Buffer);
    own.map(|u| u.shape().max_len() * u.dtype().bytes() as i64)
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::opt::tests::support::*;
    use monoglot_uop::{DType, OptOp, ReduceOp};

    fn scattered(axis: usize) -> Opt {
        let op = OptOp::Scatter;
        Opt { op, axis }
    }

    #[test]
    fn elements_go_where_an_index_says() {
        let kernel = placed(12, 5, 7);
        let target = target(false);
        check_on(&kernel, &[scattered(0)], &target);
        let parts = split(0, 3, AxisType::Loop, true);
        let columns = split(2, 5, AxisType::Upcast, false);
        let threads = split(0, 3, AxisType::Thread, true);
        let list = [parts, scattered(1), columns, threads];
        lowers(&check_on(&kernel, &list, &target), false);
        let odd = [padto(0, 5), split(0, 5, AxisType::Loop, true), scattered(1)];
        check_on(&kernel, &odd, &target);
        check_on(&kernel, &[swap(0, 1), scattered(1)], &target);
    }

    /// `out[c, r] = Σ_j (id[c, j] = r ? x[c, j] : 0)`: each column has places of its own.
    fn placed_by_columns(columns: i64, rows: i64, count: i64) -> UOp {
        let r = ranges(&[columns, rows], &[count]);
        let of_column = [r[0].clone(), r[2].clone()];
        let id = param(1, &[columns, count], DType::I32).at(&of_column);
        let x = param(2, &[columns, count], DType::F32).at(&of_column);
        let hit = id.eq_(&r[1].cast(DType::I32));
        let sum = hit.select(&x, &x.like(0.0));
        let sum = sum.reduce_ranges(ReduceOp::Add, &r[2..]);
        let out = param(0, &[columns, rows], DType::F32).at(&r[..2]);
        sink(&[out.store(&sum).end(&r[..2])])
    }

    #[test]
    fn columns_at_once_have_places_of_their_own() {
        let kernel = placed_by_columns(8, 5, 7);
        let at_once = |axis| split(axis, 8, AxisType::Upcast, false);
        let target = target(false);
        lowers(
            &check_on(&kernel, &[scattered(1), at_once(0)], &target),
            false,
        );
        lowers(
            &check_on(&kernel, &[at_once(0), scattered(0)], &target),
            false,
        );
        lowers(
            &check_on(
                &kernel,
                &[split(0, 2, AxisType::Upcast, false), scattered(1)],
                &target,
            ),
            false,
        );
    }

    #[test]
    fn what_no_index_names_is_refused() {
        refused(&placed(12, 5, 7), &[scattered(0)], "threads share");
        let apply = |kernel: &UOp, axis| {
            crate::opt::apply(kernel, &[scattered(axis)], &target(false)).map(|_| ())
        };
        let error = apply(&placed(12, 5, 7), 1).unwrap_err().to_string();
        assert!(error.contains("no index of a reduction"), "{error}");
        let error = apply(&placed(1 << 20, 8, 7), 0).unwrap_err().to_string();
        assert!(error.contains("are too many"), "{error}");
    }
}
