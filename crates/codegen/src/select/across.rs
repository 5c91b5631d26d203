//! Sums across lanes, and what comes after them. Flows in: a kernel's table, and which of its axes are lanes; flows
//! out: the REDUCEs that close an axis of lanes and leave another along which results are stored side by side, with
//! all that is computed between them and the STOREs, where that can have lanes of its own. Invariant: whoever counts
//! with such lanes (`layout`) and whoever makes them (`epilogue`) ask here.

use super::table::{Axes, Demand, Steps, Table, is_fragment, is_warps};
use crate::build::NEAR;
use monoglot_uop::{Arg, Op, Target, UOp};

/// Axes of lanes, chosen or tried.
#[derive(Clone, Copy)]
pub(super) struct Lanes<'a> {
    pub(super) demand: &'a [Demand],
    pub(super) steps: &'a [Steps],
    pub(super) is_lane: &'a Axes<bool>,
    /// By axis: elements of a vector along it.
    pub(super) widths: &'a Axes<usize>,
}

impl Lanes<'_> {
    /// The axis of lanes that a REDUCE closes.
    pub(super) fn across(&self, u: &UOp) -> Option<usize> {
        let Arg::Reduce(_, closed) = u.arg() else {
            return None;
        };
        let mut closed = closed.iter().map(|&a| a as usize);
        closed.find(|&a| self.is_lane[a])
    }

    /// The axis along which what REDUCEs across lanes leave is stored side by side: the last one that any of them
    /// leaves, where that is the same for all.
    fn axis_after(&self, t: &Table) -> Option<usize> {
        let mut axis = None;
        for (i, u) in t.nodes.iter().enumerate() {
            if self.across(u).is_none() {
                continue;
            }
            let left = (0..t.rank).rev().find(|&k| t.dims[i][k] > 1)?;
            if axis.is_some_and(|a| a != left) {
                return None;
            }
            axis = Some(left);
        }
        let axis = axis?;
        for (i, u) in t.nodes.iter().enumerate() {
            let address = t.src[i].first().map_or(0, |&s| s as usize);
            if u.op() == Op::Store && t.dims[address][axis] > 1 {
                let index = t.src[address].get(1);
                index.filter(|&&x| self.steps[x as usize][axis] == Some(1))?;
            }
        }
        Some(axis)
    }
}

/// What can have lanes of its own after sums across lanes.
pub(super) struct After {
    /// The axis along which results lie.
    pub(super) axis: usize,
    /// By node: whether it is one of these sums, or between them and the STOREs (these too): what extends along that
    /// axis.
    pub(super) is_after: Vec<bool>,
}

impl After {
    /// None where nothing is gained.
    pub(super) fn of(t: &Table, lanes: Lanes, target: &Target) -> Option<After> {
        let axis = lanes.axis_after(t)?;
        // What is stored on the way has an order of its own.
        let ordered = |u: &UOp| matches!(u.op(), Op::Barrier | Op::After) || is_warps(u);
        if t.nodes.iter().any(ordered) {
            return None;
        }
        let mut is_sum = vec![false; t.len()];
        for (i, u) in t.nodes.iter().enumerate() {
            let Some(closed) = lanes.across(u) else {
                continue;
            };
            let bytes = u.dtype().bytes();
            let near = NEAR / bytes;
            let width = lanes.widths[closed];
            let whole = width * bytes == target.vector_bytes;
            let extent = t.dims.iter().map(|d| d[closed]).max().unwrap_or(1);
            let even = (extent as usize).is_multiple_of(width);
            if !(whole && even) || (t.dims[i][axis] as usize) < near {
                return None;
            }
            is_sum[i] = true;
        }
        let is_after = reached(t, axis)?;
        let fits = |i: usize| {
            let u = &t.nodes[i];
            let dims = &t.dims[i];
            let wide = (0..t.rank).any(|k| dims[k] > 1 && lanes.is_lane[k]);
            let shared = (axis + 1..t.rank).any(|k| dims[k] > 1);
            match u.op() {
                Op::Reduce => is_sum[i],
                Op::Store => true,
                Op::Reshape => !is_fragment(u) && u.src()[0].op() == Op::Stack,
                Op::Param | Op::Buffer => true,
                Op::Load | Op::Index | Op::Expand | Op::Bitcast => !wide && !shared,
                op => op.is_elementwise() && !wide && !shared,
            }
        };
        if !(0..t.len()).all(|i| !is_after[i] || fits(i)) {
            return None;
        }
        // Results, and what is made of them, stay where they are if something else needs them.
        let mut is_made = is_sum.clone();
        for i in (0..t.len()).filter(|&i| is_after[i] && t.nodes[i].op() != Op::Store) {
            is_made[i] |= t.src[i].iter().any(|&s| is_made[s as usize]);
        }
        let needed = |user: usize| {
            let elsewhere = !is_after[user] || is_sum[user];
            elsewhere && t.src[user].iter().any(|&s| is_made[s as usize])
        };
        let left = |i: usize| is_sum[i] && !is_after[i];
        let apart = !(0..t.len()).any(|i| left(i) || needed(i));
        // An index takes elements of its own out of what it is made of.
        let places = |i: usize| is_made[i] && lanes.demand[i].index;
        let apart = apart && !(0..t.len()).any(places);
        apart.then_some(After { axis, is_after })
    }
}

/// By node: whether it lies between the STOREs along an axis (these too) and the REDUCEs (these too) as far as the axis
/// goes; None where nothing is stored along it.
fn reached(t: &Table, axis: usize) -> Option<Vec<bool>> {
    let extends = |i: usize| match t.nodes[i].op() {
        Op::Store => t.dims[t.src[i][0] as usize][axis] > 1,
        _ => t.dims[i][axis] > 1,
    };
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
    stored.then_some(is_after)
}
