//! TC: a REDUCE of products on a matrix unit. For `Σ_k a[m, k]·b[k, n]` the axes m, n and k are each
//! split by 8 and the inner parts become the unit's fragments.
//!
//! # The form
//!
//! With `w` the new WARP axis of 32 lanes and `u` a new UPCAST axis of 2:
//! m = 8·mo + w/4, n = 8·no + 2·(w mod 4) + u, and the REDUCE becomes
//!
//! ```text
//! INDEX(REDUCE(ADD, WMMA(STACK(a₀, a₁), STACK(b₀, b₁), STACK(0, 0)), ko, …), u)
//! aⱼ = a[8·mo + w/4, 8·ko + 2·(w mod 4) + j]      bⱼ = b[8·ko + w/4, 8·no + 2·(w mod 4) + j]
//! ```
//!
//! So a, b and the accumulator are values of shape (2,), the two elements that this lane holds of each
//! 8×8 matrix (lane `l`: row `l / 4`, columns `2·(l mod 4)` and the next). What follows the REDUCE sees
//! one element, chosen by `u`. Lowering adds into the accumulator: `acc = WMMA(a, b, acc)`.
//!
//! Preconditions:
//! * only PADTO came before (it makes extents multiples of 8);
//! * the target has the unit; it is 8×8×8 over 32 lanes (the one layout that is known here);
//! * the axis is a REDUCE axis k of one REDUCE, which adds products of dtype_out, whose factors have
//!   (or are cast from) dtype_in, both vary with k, and contain no REDUCE;
//! * there are a LOOP or GLOBAL axis n with which only one factor varies (the innermost with an extent
//!   of a multiple of 8 is taken) and such an axis m for the other factor;
//! * every store is inside the loops over m and n.

use super::plan::{Axis, Plan, Tensor};
use super::refuse;
use monoglot_uop::{Arg, AxisType, Op, Opt, OptOp, ReduceOp, Result, Target, TcInfo, UOp};

pub(super) fn step(plan: &mut Plan, opt: &Opt, unit: usize, target: &Target) -> Result<()> {
    let no = |message: &str| Err(refuse(opt, message));
    if plan
        .info
        .opts
        .iter()
        .any(|o| !matches!(o.op, OptOp::PadTo { .. }))
    {
        return no("only PADTO may come before");
    }
    let Some(unit) = target.matrix_units.get(unit) else {
        return no("the target has no such matrix unit");
    };
    if unit.dims != [8, 8, 8] || unit.threads != 32 {
        return no("the unit's layout over lanes is not known");
    }
    let axis = plan.axes[opt.axis].clone();
    if axis.kind() != AxisType::Reduce {
        return no("is not a REDUCE axis");
    }
    let Some((reduce, a, b)) = product(plan, &plan.ranges[axis.of], unit) else {
        return no("is not that of one sum of products of the unit's dtypes");
    };
    let outer = |with: &UOp, without: &UOp| {
        let fits = |i: &usize| {
            let (x, r) = (&plan.axes[*i], &plan.ranges[plan.axes[*i].of]);
            matches!(x.kind(), AxisType::Loop | AxisType::Global)
                && x.extent().is_some_and(|n| n % 8 == 0)
                && with.ranges().contains(r)
                && !without.ranges().contains(r)
                && plan.encloses_all(x.of)
        };
        (0..plan.axes.len()).rev().find(fits)
    };
    // n is the innermost axis that fits; the factor that varies with it is b.
    let (of_a, of_b) = (outer(&a, &b), outer(&b, &a));
    let (Some(i), Some(j)) = (of_a, of_b) else {
        return no("no two output axes of multiples of 8 tell the factors apart");
    };
    let (a, b, m, n) = if i < j { (a, b, i, j) } else { (b, a, j, i) };
    if axis.extent().is_none_or(|k| k % 8 != 0) {
        return no("the extent is not a multiple of 8");
    }
    let (m, n) = (plan.axes[m].clone(), plan.axes[n].clone());
    let lane = plan.fresh(32i64, AxisType::Warp);
    let pair = plan.fresh(2i64, AxisType::Upcast);
    let column = |j: &UOp| &(&lane % 4) * 2 + j;
    let j = [UOp::index_const(0), UOp::index_const(1)];
    let row = &lane / 4;
    let mo = tile(plan, &m);
    let no = tile(plan, &n);
    let ko = tile(plan, &axis);
    plan.rebind(&m, &(&mo + &row));
    plan.insert(
        Axis {
            range: lane.clone(),
            of: m.of,
        },
        false,
    );
    plan.insert(
        Axis {
            range: pair.clone(),
            of: n.of,
        },
        false,
    );
    plan.tensor = Some(Tensor {
        unit: unit.clone(),
        reduce,
        a,
        b,
        k: axis.range,
        k_of_a: [&ko + &column(&j[0]), &ko + &column(&j[1])],
        k_of_b: &ko + &row,
        n: n.range,
        n_now: &no + &column(&pair),
        n_of_b: [&no + &column(&j[0]), &no + &column(&j[1])],
        pair,
    });
    Ok(())
}

/// The one REDUCE over `k`, and its factors, where the unit can do it.
fn product(plan: &Plan, k: &UOp, unit: &TcInfo) -> Option<(UOp, UOp, UOp)> {
    let mut over = plan
        .nodes
        .iter()
        .filter(|u| u.op() == Op::Reduce && u.src()[1..].contains(k));
    let reduce = over.next().filter(|u| u.dtype() == unit.dtype_out)?;
    let Arg::Reduce(ReduceOp::Add, _) = reduce.arg() else {
        return None;
    };
    if over.next().is_some() || !reduce.src()[0].may_contract() {
        return None;
    }
    let factor = |u: &UOp| {
        let u = if u.op() == Op::Cast && u.dtype() != unit.dtype_in {
            &u.src()[0]
        } else {
            u
        };
        let fits = u.dtype() == unit.dtype_in
            && u.ranges().contains(k)
            && !u.ops_below().contains(Op::Reduce);
        fits.then(|| u.clone())
    };
    Some((
        reduce.clone(),
        factor(&reduce.src()[0].src()[0])?,
        factor(&reduce.src()[0].src()[1])?,
    ))
}

/// Make an axis run over tiles of 8; gives where the tile begins.
fn tile(plan: &mut Plan, axis: &Axis) -> UOp {
    let at = plan.axes.iter().position(|a| a.range == axis.range);
    match (at, axis.extent().unwrap_or(8) / 8) {
        (Some(at), 1) => {
            plan.axes.remove(at);
            UOp::index_const(0)
        }
        (Some(at), n) => {
            plan.axes[at].range = plan.fresh(n, axis.kind());
            &plan.axes[at].range * 8
        }
        (None, _) => axis.range.clone(),
    }
}

#[cfg(test)]
mod tests {
    use crate::opt::tests::support::{check, kernels, matmul, padto, refused, split, tc};
    use monoglot_uop::{AxisType, Op};

    #[test]
    fn a_product_of_multiples_of_eight_uses_the_unit() {
        let k = matmul(8, 16, 24);
        let after = check(&k, &[tc(2)]);
        assert!(after.ops_below().contains(Op::Wmma));
        let letters: String = crate::opt::axes(&after)
            .iter()
            .filter_map(|r| Some(r.range_arg()?.1.letter()))
            .collect();
        assert_eq!(letters, "LwRu");
        check(
            &k,
            &[
                tc(2),
                split(0, 0, AxisType::Global, false),
                split(2, 3, AxisType::Unroll, false),
            ],
        );
        check(
            &matmul(16, 16, 8),
            &[
                tc(2),
                split(1, 2, AxisType::Upcast, false),
                split(0, 2, AxisType::Local, false),
            ],
        );
    }

    #[test]
    fn padding_comes_first() {
        let k = matmul(5, 9, 11);
        check(
            &k,
            &[
                padto(0, 8),
                padto(1, 8),
                padto(2, 8),
                tc(2),
                split(0, 0, AxisType::Upcast, false),
            ],
        );
        refused(&k, &[tc(2)], "multiples of 8");
        refused(&matmul(8, 8, 9), &[tc(2)], "multiple of 8");
        refused(
            &matmul(8, 8, 8),
            &[split(0, 2, AxisType::Upcast, false), tc(1)],
            "only PADTO",
        );
        refused(&matmul(8, 8, 8), &[tc(0)], "not a REDUCE");
        refused(&kernels()[1], &[tc(1)], "sum of products");
    }
}
