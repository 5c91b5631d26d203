//! Lanes for what comes after sums across lanes. Flows in: a legalised kernel, its table and layout, in which
//! REDUCEs close the axis of lanes and leave an axis along which results are stored side by side; flows
//! out: the kernel in which these results lie along one more axis, whose elements are lanes, and with
//! them all that is computed and loaded between them and the STOREs. What a product does to its result
//! then costs as many vector operations as it has vectors, and the sums are transposed while they are
//! folded (`reduce`).
//! Invariant: nothing that a REDUCE folds changes.

use super::layout::{Layout, across, axis_after, is_warps};
use super::table::{Axes, Table, is_fragment};
use crate::build::NEAR;
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
    let Some(found) = Found::of(t, layout, target) else {
        return Ok(None);
    };
    let mut moved = Moved {
        t,
        axis: found.axis,
        done: FxHashMap::default(),
    };
    for &i in &found.after {
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
    let transposed = found.sums.iter().map(|&i| t.nodes[i].clone()).collect();
    Ok(Some(Epilogue {
        kernel,
        lanes,
        transposed,
    }))
}

/// What there is to gain.
struct Found {
    /// The axis along which results lie.
    axis: usize,
    /// The REDUCEs, and all between them and the STOREs (these too), sources before users: what extends
    /// along that axis.
    sums: Vec<usize>,
    after: Vec<usize>,
}

impl Found {
    fn of(t: &Table, layout: &Layout, target: &Target) -> Option<Found> {
        // What is stored on the way has an order of its own.
        if t.nodes
            .iter()
            .any(|u| matches!(u.op(), Op::Barrier | Op::After) || is_warps(u))
        {
            return None;
        }
        let axis = axis_after(t, &layout.steps, |k| layout.is_lane[k])?;
        let mut is_sum = vec![false; t.len()];
        for (i, u) in t.nodes.iter().enumerate() {
            let Some(lanes) = across(u, |k| layout.is_lane[k]) else {
                continue;
            };
            let bytes = u.dtype().bytes();
            let near = NEAR / bytes;
            let widths = &layout.chunks[lanes];
            let width = widths[0].1 as usize;
            let whole = width * bytes == target.vector_bytes;
            let even = widths.iter().all(|c| c.1 as usize == width);
            if !(whole && even) || (t.dims[i][axis] as usize) < near {
                return None;
            }
            is_sum[i] = true;
        }
        let extends = |i: usize| match t.nodes[i].op() {
            Op::Store => t.dims[t.src[i][0] as usize][axis] > 1,
            _ => t.dims[i][axis] > 1,
        };
        // From the STOREs down to the REDUCEs, as far as the axis goes.
        let mut is_after = vec![false; t.len()];
        let mut stored = false;
        for i in (0..t.len()).rev() {
            let starts = t.nodes[i].op() == Op::Store && extends(i);
            if !(starts || is_after[i]) {
                continue;
            }
            is_after[i] = true;
            stored |= starts;
            if !starts && t.nodes[i].op() == Op::Reduce {
                continue;
            }
            for &s in &t.src[i] {
                is_after[s as usize] |= extends(s as usize);
            }
        }
        let fits = |i: usize| {
            let u = &t.nodes[i];
            let dims = &t.dims[i];
            let lanes = (0..t.rank).any(|k| dims[k] > 1 && layout.is_lane[k]);
            let shared = (axis + 1..t.rank).any(|k| dims[k] > 1);
            match u.op() {
                Op::Reduce => is_sum[i],
                Op::Store => true,
                Op::Reshape => !is_fragment(u) && u.src()[0].op() == Op::Stack,
                Op::Param | Op::Buffer => true,
                Op::Load | Op::Index | Op::Expand | Op::Bitcast => !lanes && !shared,
                op => op.is_elementwise() && !lanes && !shared,
            }
        };
        let after: Vec<usize> = (0..t.len()).filter(|&i| is_after[i]).collect();
        if !stored || !after.iter().all(|&i| fits(i)) {
            return None;
        }
        // Results, and what is made of them, stay where they are if something else needs them.
        let mut is_made = is_sum.clone();
        for &i in after.iter().filter(|&&i| t.nodes[i].op() != Op::Store) {
            is_made[i] |= t.src[i].iter().any(|&s| is_made[s as usize]);
        }
        let needed = |user: usize| {
            let elsewhere = !is_after[user] || is_sum[user];
            elsewhere && t.src[user].iter().any(|&s| is_made[s as usize])
        };
        let sums: Vec<usize> = (0..t.len()).filter(|&i| is_sum[i]).collect();
        let apart = sums.iter().all(|&i| is_after[i]) && !(0..t.len()).any(needed);
        // An index takes elements of its own out of what it is made of.
        let places = |i: usize| is_made[i] && layout.demand[i].index;
        let apart = apart && !(0..t.len()).any(places);
        apart.then_some(Found { axis, sums, after })
    }
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
