//! Lanes for what comes after sums across lanes. Flows in: a legalised kernel, its table and layout, in which
//! REDUCEs close the axis of lanes and leave an axis along which results are stored side by side; flows
//! out: the kernel in which these results lie along one more axis, whose elements are lanes, and with
//! them all that is computed and loaded between them and the STOREs. What a product does to its result
//! then costs as many vector operations as it has vectors, and the sums are transposed while they are
//! folded (`reduce`).
//! Invariant: nothing that a REDUCE folds changes.

use super::across::After;
use super::layout::Layout;
use super::table::{Axes, Table};
use crate::graph::{Srcs, node, rebuild};
use monoglot_uop::{Op, Result, Shape, Target, UOp};
use rustc_hash::{FxHashMap, FxHashSet};

/// A kernel whose results lie along an axis of their own.
pub(super) struct Epilogue {
    pub(super) kernel: UOp,
    /// By axis of that kernel: whether its chunks are vectors.
    pub(super) lanes: Axes<bool>,
    /// The REDUCEs whose results do.
    pub(super) transposed: FxHashSet<UOp>,
}

/// The kernel with lanes after its sums across lanes; None where nothing is gained.
pub(super) fn lanes(t: &Table, layout: &Layout, target: &Target) -> Result<Option<Epilogue>> {
    let Some(found) = After::of(t, layout.lanes(), target) else {
        return Ok(None);
    };
    let mut moved = Moved {
        t,
        axis: found.axis,
        done: FxHashMap::default(),
    };
    for i in (0..t.len()).filter(|&i| found.is_after[i]) {
        let new = moved.node(i);
        moved.done.insert(&t.nodes[i], new);
    }
    let stores: FxHashMap<&UOp, &UOp> = moved
        .done
        .iter()
        .filter(|(u, _)| u.op() == Op::Store)
        .map(|(u, new)| (*u, new))
        .collect();
    let last = &t.nodes[t.len() - 1];
    let kernel = rebuild(last, |u, src| {
        Ok(match stores.get(u) {
            Some(new) => (*new).clone(),
            None => u.with_src(src),
        })
    })?;
    let mut lanes = layout.is_lane.clone();
    lanes.push(true);
    let sums = (0..t.len()).filter(|&i| found.is_after[i] && t.nodes[i].op() == Op::Reduce);
    let transposed = sums.map(|i| t.nodes[i].clone()).collect();
    Ok(Some(Epilogue {
        kernel,
        lanes,
        transposed,
    }))
}

/// Nodes on one more axis, which takes the place of another.
struct Moved<'a> {
    t: &'a Table,
    axis: usize,
    done: FxHashMap<&'a UOp, UOp>,
}

impl Moved<'_> {
    fn node(&self, i: usize) -> UOp {
        let u = &self.t.nodes[i];
        let source = |k: usize| {
            let s = &u.src()[k];
            self.done.get(s).cloned().unwrap_or_else(|| s.clone())
        };
        match u.op() {
            Op::Reduce => node(Op::Reshape, [u.clone(), self.shape(i)]),
            Op::Reshape => node(Op::Reshape, [u.src()[0].clone(), self.shape(i)]),
            Op::Expand => {
                let small = match self.done.get(&u.src()[0]) {
                    Some(s) => s.clone(),
                    None => {
                        let one = u.src()[0].shape().iter().cloned().chain([1.into()]);
                        node(
                            Op::Reshape,
                            [u.src()[0].clone(), UOp::dims(&one.collect::<Vec<_>>())],
                        )
                    }
                };
                node(Op::Expand, [small, self.shape(i)])
            }
            _ => {
                let src: Srcs = (0..u.src().len()).map(source).collect();
                u.with_src(src)
            }
        }
    }

    /// The extents of a node, that of the axis last.
    fn shape(&self, i: usize) -> UOp {
        let dims = &self.t.dims[i];
        let mut new: Vec<i64> = dims.iter().map(|&n| i64::from(n)).collect();
        new[self.axis] = 1;
        new.push(i64::from(dims[self.axis]));
        UOp::dims(&Shape::of(&new))
    }
}
