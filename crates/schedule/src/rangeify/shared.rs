//! What the elements of a slice share: a reduction that does not vary with all of the loops around it, as
//! the greatest of a row that each of its elements is compared with. Flows in: a REDUCE and who wants it;
//! flows out: whether it stays in that kernel, whose loops then stand so that it is computed once for
//! every slice (`kernel::shared_first`), outside of the loops over the elements.
//!
//! Invariant: all reductions that a kernel shares vary with the same ranges, and none of them stands
//! inside a reduction that varies with others, as the operands of a product do: each tile of that would
//! compute it again.

use super::below::{is_product, product_of_slices};
use super::cost::{LAUNCH, SHORT, count};
use super::{Around, At, Instance, Rangeify};
use monoglot_uop::{Arg, Op, UOp};

/// Slices from which on a machine's threads have enough to do, however many they are.
pub(super) const PARTS: f64 = 64.0;
/// As many operations as this many kernels cost are done by one thread, if need be.
const ALONE: f64 = 8.0;
/// How much more than storing it a product does that takes as much longer where it is not tiled.
const UNTILED: f64 = 2.0;
/// Stands for a reduction among the numbers of the ranges that those around vary with, and for all ranges.
const REDUCTION: u32 = u32::MAX;
const ANY: u32 = u32::MAX - 1;
/// Bytes of memory that are fetched together.
const LINE: f64 = 64.0;

impl Rangeify<'_> {
    /// What is wanted inside of a reduction stands around it too.
    pub(super) fn go_inside(&self, i: u32, at: &mut At) {
        let ranges = self.open(i);
        let number = |r: &UOp| r.range_arg().map(|(id, _)| id);
        let numbers: Around = match ranges {
            Some(all) => all.iter().filter_map(number).collect(),
            // An index that is not known yet may vary with anything.
            None => Around::from_slice(&[ANY]),
        };
        for r in numbers.into_iter().chain([REDUCTION]) {
            if !at.around.contains(&r) {
                at.around.push(r);
            }
        }
    }

    /// The ranges with which an instance varies, and whether it means something; None where an index of
    /// it is not known yet.
    fn open(&self, i: u32) -> Option<Vec<UOp>> {
        let at = &self.instances[i as usize].at;
        let mut ranges: Vec<UOp> = Vec::new();
        for e in at.indices.iter().chain(&at.gate) {
            if super::has_placeholder(e) {
                return None;
            }
            let new = e.ranges();
            ranges.extend(new.iter().filter(|r| r.vmax() > 0).cloned());
        }
        ranges.sort_by_key(UOp::range_arg);
        ranges.dedup();
        Some(ranges)
    }

    /// Whether a REDUCE with one instance is stored, if that follows from its ranges: not where slices share
    /// it, but where its kernel shares reductions over others, or is a product already and one of the two is much more
    /// than what it costs to store this: one kernel is one product in tiles. `length` is how many elements it folds,
    /// `work` what that costs.
    pub(super) fn parts_from(
        &mut self,
        u: &UOp,
        i: u32,
        [length, work]: [f64; 2],
        stored_at: f64,
    ) -> Option<bool> {
        let open = self.open(i)?;
        let instance = &self.instances[i as usize];
        let number = instance.kernel as usize;
        let kernel = &self.kernels[number];
        if kernel.target.workgroups || !open.iter().all(|r| kernel.ranges.contains(r)) {
            return None;
        }
        let around = &instance.at.around;
        let every = open.len() == kernel.ranges.len();
        let plain = every && around.is_empty();
        if plain && is_product(u) {
            let greater = kernel.product.max(count(&open) * work);
            if kernel.product > 0.0 && greater > UNTILED * stored_at {
                return Some(true);
            }
            self.kernels[number].product = greater;
            // Its slices are those of what is kept of a factor.
            let root = &self.nodes[self.kernels[number].node as usize];
            if product_of_slices(root).as_ref() == Some(u) {
                return Some(false);
            }
        }
        let kernel = &self.kernels[number];
        if kernel.shared.as_ref().is_some_and(|s| *s != open) {
            return (plain && length > SHORT).then_some(true);
        }
        if !plain {
            let within = |n: &u32| {
                *n == REDUCTION
                    || open
                        .iter()
                        .any(|r| r.range_arg().is_some_and(|a| a.0 == *n))
            };
            let all = count(&kernel.ranges);
            let slices = count(&open);
            let enough =
                slices >= PARTS || all.max(slices * length) * work / length <= ALONE * LAUNCH;
            let fits = is_dense(u) || length * LINE <= kernel.target.caches[1] as f64;
            if !(around.iter().all(within) && enough && fits) || is_product(u) {
                return None;
            }
        } else if length <= SHORT {
            return None;
        }
        self.kernels[number].shared = Some(open);
        (!plain).then_some(false)
    }
}

impl Rangeify<'_> {
    /// Whether a value is wanted by one kernel alone, for every element of the slices that its reductions
    /// share, and the second cache holds such a slice: it need not go farther than that.
    pub(super) fn stays_near(&self, u: &UOp, wanted: &[u32]) -> bool {
        let number = self.instances[wanted[0] as usize].kernel;
        let kernel = &self.kernels[number as usize];
        let Some(shared) = &kernel.shared else {
            return false;
        };
        let near = |&i: &u32| {
            let Some(open) = self.open(i) else {
                return false;
            };
            let slice = count(open.iter().filter(|r| !shared.contains(r)));
            let bytes = slice * u.dtype().bytes() as f64;
            let Instance {
                kernel: own, at, ..
            } = &self.instances[i as usize];
            let named = |r: &UOp| at.indices.iter().chain(&at.gate).any(|e| names(e, r));
            *own == number && shared.iter().all(named) && bytes <= kernel.target.caches[1] as f64
        };
        wanted.iter().all(near)
    }
}

/// Whether an expression tells turns of a range from each other: not where that is divided, as a group's number is
/// that of a channel, and several turns want the same.
fn names(e: &UOp, range: &UOp) -> bool {
    e == range
        || e.op() != Op::Idiv
            && e.ranges().contains(range)
            && e.src().iter().any(|s| names(s, range))
}

/// Whether a REDUCE folds elements that lie side by side.
fn is_dense(u: &UOp) -> bool {
    let shape = u.src()[0].shape();
    let last = (0..shape.len()).rev().find(|&a| !shape[a].is(1));
    match u.arg() {
        Arg::Reduce(_, axes) => last.is_some_and(|l| axes.contains(&(l as u8))),
        _ => false,
    }
}
