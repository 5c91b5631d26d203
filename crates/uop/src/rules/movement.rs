//! Tensor graphs: movement of movement, constants that fill arrays, reductions of what does not
//! vary, arrays without elements, markers. Everything here looks at a node and its sources only.
//! Flows in: a node of these ops; flows out: an equal value that costs no more, or nothing. Always:
//! shape and dtype stay.

use super::reduce::folded;
use crate::arg::{Arg, ReduceOp};
use crate::fold;
use crate::node::UOp;
use crate::op::{Op, OpSet};
use crate::rewrite::Rule;
use crate::rewrite::pattern::{Pat, Var};
use crate::rule;
use crate::scalar::Scalar;
use crate::shape::{Dim, Shape};
use smallvec::SmallVec;

/// Views that show nothing but elements of their source.
const VIEWS: OpSet = {
    use Op::*;
    OpSet::of(&[Permute, Flip, Reshape, Expand, Shrink, Pad, Index, Stack])
};
const PURE: OpSet = VIEWS
    .union(OpSet::ELEMENTWISE)
    .union(OpSet::of(&[Op::Reduce]));
const SHRINK: OpSet = OpSet::of(&[Op::Shrink]);
const PAD: OpSet = OpSet::of(&[Op::Pad]);

pub(super) fn rules() -> Vec<Rule> {
    vec![
        // without elements there is nothing to compute
        rule!(empty[u]: Pat::first(PURE, []).bind(u) => UOp::constant(u.dtype().zero(), u.dtype()),
            if u.shape().iter().any(|d| d.is(0)) && constant(u).is_none() && u.op() != Op::Stack),
        // a constant array under an elementwise op is its constant
        rule!(elementwise_constant[u]: Pat::first(OpSet::ELEMENTWISE, []).bind(u) => scalar_operands(u)),
        // a view of a constant array is one
        rule!(view_constant[u]: Pat::first(VIEWS, []).bind(u) => view_constant(u)),
        // a view that shows its source as it is
        rule!(view_nothing[u]: Pat::first(VIEWS, []).bind(u) => &u.src()[0], if shows_source(u)),
        // views of views of one kind are one
        rule!(reshape_reshape[u, v]: twice(Op::Reshape, u, v) => u.over(&v.src()[0])),
        rule!(expand_expand[u, v]: twice(Op::Expand, u, v) => u.over(&v.src()[0])),
        rule!(permute_permute[u, v]: twice(Op::Permute, u, v) => permute_permute(u, v)),
        rule!(flip_flip[u, v]: twice(Op::Flip, u, v) => v.src()[0].flip(flags(u)? ^ flags(v)?).ok()?),
        rule!(shrink_shrink[u, v]: twice(Op::Shrink, u, v) => v.src()[0].shrink(&offsets(u, v)?, u.shape()).ok()?),
        rule!(pad_pad[u, v]: twice(Op::Pad, u, v) => v.src()[0].pad(&offsets(u, v)?, u.shape(), fill(u)?).ok()?, if u.arg() == v.arg()),
        // a part of a padded array is the part of the array that is in it, padded
        rule!(shrink_pad[u, v]: Pat::first(SHRINK, [Pat::first(PAD, []).bind(v)]).bind(u) => shrink_pad(u, v)),
        // axes of size 1 need no reduction
        rule!(reduce_ones[u, x]: x.under(Op::Reduce).bind(u) => reduce_ones(u, x)),
        // a reduction of a reduction by one operator is one
        rule!(reduce_reduce[u, v]: twice(Op::Reduce, u, v) => reduce_reduce(u, v)),
        // what does not vary along an axis is repeated
        rule!(reduce_expand[u, v, x, s]: Pat::op(Op::Expand, [x.into_pat(), s.into_pat()]).bind(v).under(Op::Reduce).bind(u) => reduce_expand(u, v, x)),
        // a mask that does not vary along an axis is asked once
        rule!(reduce_masked[u, c, s, x, z]: Pat::op(Op::Where, [Pat::op(Op::Expand, [c.into_pat(), s.into_pat()]), x.into_pat(), z.into_pat()]).under(Op::Reduce).bind(u) => masked_alike(u)?),
        // derivatives have been taken
        rule!(detach[x]: x.under(Op::Detach) => x),
        rule!(contiguous_backward[x]: x.under(Op::ContiguousBackward) => x),
        // what has storage of its own already
        rule!(contiguous_contiguous[u, v]: twice(Op::Contiguous, u, v) => v),
        // an element of a tuple that is there
        rule!(element[u, t]: Pat::first(OpSet::of(&[Op::Tuple]), []).bind(t).under(Op::GetTuple).bind(u) => element(u, t)),
    ]
}

/// One op over itself.
fn twice(op: Op, u: Var, v: Var) -> Pat {
    let ops = OpSet::of(&[op]);
    Pat::first(ops, [Pat::first(ops, []).bind(v)]).bind(u)
}

/// The CONST that fills an array: through RESHAPE and EXPAND, as `broadcast` makes it.
pub(crate) fn constant(u: &UOp) -> Option<&UOp> {
    let u = if u.op() == Op::Expand { &u.src()[0] } else { u };
    let u = if u.op() == Op::Reshape {
        &u.src()[0]
    } else {
        u
    };
    if u.op() == Op::Const { Some(u) } else { None }
}

fn scalar_operands(u: &UOp) -> Option<UOp> {
    let wide = |s: &UOp| matches!(s.op(), Op::Expand | Op::Reshape) && constant(s).is_some();
    if !u.src().iter().any(wide) {
        return None;
    }
    let src = u.src().iter().map(|s| constant(s).unwrap_or(s));
    let src: SmallVec<[UOp; 3]> = src.cloned().collect();
    if src.iter().any(|s| !s.shape().is_empty()) {
        return Some(u.with_src(src));
    }
    let values: SmallVec<[Scalar; 3]> = src.iter().map(UOp::const_value).collect::<Option<_>>()?;
    let value = fold::fold(u.op(), src[0].dtype(), u.dtype(), &values)?;
    Some(UOp::constant(value, u.dtype()))
}

fn view_constant(u: &UOp) -> Option<UOp> {
    let c = constant(u.src().first()?)?;
    if constant(u).is_some_and(|_| *u == c.broadcast(u.shape())) {
        return None;
    }
    let all = match (u.op(), u.arg()) {
        (Op::Pad, Arg::Fill(v)) => c.const_value() == Some(*v),
        (Op::Stack, _) => {
            u.dtype() != crate::DType::Index && u.src().iter().all(|s| constant(s) == Some(c))
        }
        // A read outside gives 0.
        (Op::Index, _) => {
            let inside =
                |(i, n): (&UOp, &Dim)| i.vmin() >= 0 && n.as_int().is_some_and(|n| i.vmax() < n);
            let mut indices = u.src()[1..].iter().zip(u.src()[0].shape().iter());
            c.const_value()?.is_zero() || indices.all(inside)
        }
        _ => true,
    };
    // What makes constant arrays is no view of them.
    if all && !matches!((u.op(), u.src()[0].op()), (Op::Reshape, Op::Const)) {
        Some(c.clone())
    } else {
        None
    }
}

fn shows_source(u: &UOp) -> bool {
    let Some(x) = u.src().first() else {
        return false;
    };
    if u.op() == Op::Stack || x.shape() != u.shape() {
        return false;
    }
    match (u.op(), u.arg()) {
        (Op::Permute, Arg::Axes(order)) => order.iter().enumerate().all(|(i, &a)| i == a as usize),
        (Op::Flip, Arg::Flags(flags)) => {
            let mut dims = x.shape().iter().enumerate();
            dims.all(|(i, d)| flags >> i & 1 == 0 || d.is(1))
        }
        (Op::Index, _) => u.src().len() == 1,
        // Symbolic sizes that are equal leave no room for an offset either.
        _ => true,
    }
}

fn permute_permute(u: &UOp, v: &UOp) -> Option<UOp> {
    let (Arg::Axes(outer), Arg::Axes(inner)) = (u.arg(), v.arg()) else {
        return None;
    };
    let order: Vec<usize> = outer.iter().map(|&a| inner[a as usize] as usize).collect();
    v.src()[0].permute(&order).ok()
}

fn flags(u: &UOp) -> Option<u64> {
    if let Arg::Flags(bits) = u.arg() {
        Some(*bits)
    } else {
        None
    }
}

/// Offsets of one view in another, summed.
fn offsets(u: &UOp, v: &UOp) -> Option<Vec<Dim>> {
    let a = u.dims_src(1).ints()?;
    let b = v.dims_src(1).ints()?;
    Some(a.iter().zip(&b).map(|(a, b)| Dim::Int(a + b)).collect())
}

fn fill(u: &UOp) -> Option<Scalar> {
    if let Arg::Fill(v) = u.arg() {
        Some(*v)
    } else {
        None
    }
}

fn shrink_pad(u: &UOp, v: &UOp) -> Option<UOp> {
    let x = &v.src()[0];
    let at = u.dims_src(1).ints()?;
    let want = u.shape().ints()?;
    let from = v.dims_src(1).ints()?;
    let have = x.shape().ints()?;
    let mut start = Vec::new();
    let mut size = Vec::new();
    let mut place = Vec::new();
    for i in 0..at.len() {
        let lo = at[i].max(from[i]);
        let hi = (at[i] + want[i]).min(from[i] + have[i]);
        if hi <= lo {
            return Some(UOp::constant(fill(v)?, u.dtype()));
        }
        start.push(Dim::Int(lo - from[i]));
        size.push(Dim::Int(hi - lo));
        place.push(Dim::Int(lo - at[i]));
    }
    let part = x.shrink(&start, &Shape::new(size)).ok()?;
    part.pad(&place, u.shape(), fill(v)?).ok()
}

fn axes(u: &UOp) -> Option<(ReduceOp, Vec<usize>)> {
    let Arg::Reduce(op, axes) = u.arg() else {
        return None;
    };
    (u.src().len() == 1).then(|| (*op, axes.iter().map(|&a| a as usize).collect()))
}

fn reduce_ones(u: &UOp, x: &UOp) -> Option<UOp> {
    let (op, all) = axes(u)?;
    let long = all.iter().filter(|a| !x.shape()[**a].is(1));
    let long: Vec<usize> = long.copied().collect();
    if long.len() == all.len() {
        None
    } else {
        x.reduce(op, &long).ok()
    }
}

fn reduce_reduce(u: &UOp, v: &UOp) -> Option<UOp> {
    let (op, mut all) = axes(u)?;
    let (other, below) = axes(v)?;
    if op != other {
        return None;
    }
    all.extend(below);
    all.sort_unstable();
    all.dedup();
    v.src()[0].reduce(op, &all).ok()
}

/// REDUCE of EXPAND: along the expanded axes only the number of elements counts.
fn reduce_expand(u: &UOp, v: &UOp, x: &UOp) -> Option<UOp> {
    let (op, all) = axes(u)?;
    let repeats = |a: &usize| x.shape()[*a].is(1) && !v.shape()[*a].is(1);
    let (same, rest): (Vec<usize>, Vec<usize>) = all.into_iter().partition(repeats);
    let n = same
        .iter()
        .try_fold(1i64, |n, &a| n.checked_mul(v.shape()[a].as_int()?))?;
    if same.is_empty() || n < 1 {
        return None;
    }
    let size = |(i, d): (usize, &Dim)| {
        if same.contains(&i) {
            Dim::Int(1)
        } else {
            d.clone()
        }
    };
    let narrow = v.shape().iter().enumerate().map(size);
    let y = x.expand(&Shape::new(narrow)).ok()?.reduce(op, &rest).ok()?;
    folded(op, &y, &UOp::index_const(n))
}

/// REDUCE of what stands under a mask that is repeated along its axes, and of nothing elsewhere, with the mask around it.
pub(crate) fn masked_alike(u: &UOp) -> Option<UOp> {
    let choice = u.src().first().filter(|x| x.op() == Op::Where)?;
    let [c, x, z] = choice.src() else { return None };
    let (op, all) = axes(u)?;
    let nothing = op.identity(u.dtype());
    let once = c.src().first().filter(|_| c.op() == Op::Expand)?;
    let alike = all.iter().all(|&a| once.shape()[a].is(1));
    let empty = constant(z)?.const_value() == Some(nothing);
    if !alike || !empty || *choice.arg() != Arg::None {
        return None;
    }
    let mask = once.expand(u.shape()).ok()?;
    let fold = x.reduce(op, &all).ok()?;
    Some(mask.select(&fold, &UOp::full(nothing, u.dtype(), u.shape())))
}

fn element(u: &UOp, t: &UOp) -> Option<UOp> {
    if let Arg::Element(i) = u.arg() {
        t.src().get(*i).cloned()
    } else {
        None
    }
}
