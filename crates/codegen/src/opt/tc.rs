//! TC: a REDUCE of products on a matrix unit. For `Σ_k a[m, k]·b[k, n]` the axes m, n and k are
//! each split by the unit's sizes M, N and K, and the inner parts become its fragments. Flows in:
//! the nest, the axis k and a unit of the target; flows out: the nest with the unit at work, or an
//! error that names the precondition.
//!
//! # The form
//!
//! With `w` the new WARP axis of the unit's lanes and `u` a new UPCAST axis over the elements that a lane
//! holds of the result, and `(row, column)` what the unit's `Fragment`s say:
//!
//! ```text
//! m = M·mo + row_c(w, u)      n = N·no + column_c(w, u)
//! INDEX(REDUCE(ADD, WMMA(STACK(a₀, a₁, …), STACK(b₀, b₁, …), STACK(0, 0, …)), ko, …), u)
//! aⱼ = a[M·mo + row_a(w, j), K·ko + column_a(w, j)]
//! bⱼ = b[K·ko + row_b(w, j), N·no + column_b(w, j)]
//! ```
//!
//! So a, b and the accumulator are the elements that this lane holds of each matrix. What follows the
//! REDUCE sees one element, chosen by `u`. Lowering adds into the accumulator: `acc = WMMA(a, b, acc)`.
//!
//! A unit of one thread is a dot product, which has a form of its own (`dot`).
//!
//! Preconditions:
//! * only PADTO came before (it makes extents multiples of the unit's);
//! * the target has the unit, whose lanes are a warp and hold as many elements of a and b as of c, since
//!   they stand along one axis;
//! * the axis is a REDUCE axis k of one REDUCE, which adds products of dtype_out, whose factors have
//!   (or are cast from) those of dtypes_in, which are one, both vary with k, and contain no REDUCE;
//! * there are a LOOP or GLOBAL axis n with which only one factor varies (the innermost with an extent
//!   of a multiple of N is taken) and such an axis m, of a multiple of M, for the other factor;
//! * every store is inside the loops over m and n; what the factors are read from is not filled there.

use super::nest::{Axis, LoopNest, Mma};
use super::{dot, refuse};
use monoglot_uop::{
    Arg, AxisType, Fragment, Op, Opt, OptOp, ReduceOp, Result, Target, TcInfo, UOp,
};

/// Which factor is a and which is b, and the axes m and n with which they vary.
struct Roles {
    a: UOp,
    b: UOp,
    m: usize,
    n: usize,
}

impl Roles {
    fn of(nest: &LoopNest, unit: &TcInfo, a: &UOp, b: &UOp) -> Option<Roles> {
        let [m, n, _] = unit.dims;
        Some(Roles {
            a: a.clone(),
            b: b.clone(),
            m: spans(nest, a, b, m)?,
            n: spans(nest, b, a, n)?,
        })
    }
}

/// The innermost axis with which one factor varies and the other does not.
fn spans(nest: &LoopNest, with: &UOp, without: &UOp, multiple: i64) -> Option<usize> {
    let fits = |i: &usize| {
        let x = &nest.axes[*i];
        let r = &nest.ranges[x.of];
        matches!(x.kind(), AxisType::Loop | AxisType::Global)
            && x.extent().is_some_and(|n| n % multiple == 0)
            && with.ranges().contains(r)
            && !without.ranges().contains(r)
            && nest.encloses_all(x.of)
    };
    (0..nest.axes.len()).rev().find(fits)
}

pub(super) fn step(nest: &mut LoopNest, opt: &Opt, unit: usize, target: &Target) -> Result<()> {
    let no = |message: &str| Err(refuse(opt, message));
    if let Some(unit) = target.matrix_units.get(unit)
        && let Some(word) = unit.word()
    {
        return dot::step(nest, opt, unit, word);
    }
    if nest
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
    let elements = [&unit.a, &unit.b, &unit.c].map(Fragment::elements);
    if !unit.is_sound() || unit.threads != target.warp as i64 {
        return no("the unit's fragments are not those of a warp");
    }
    if elements.iter().any(|&n| n != elements[2] || n < 2) {
        return no("the unit's fragments have different lengths");
    }
    let axis = nest.axes[opt.axis].clone();
    if axis.kind() != AxisType::Reduce {
        return no("is not a REDUCE axis");
    }
    let Some((reduce, a, b)) = product(nest, &nest.ranges[axis.of], unit) else {
        return no("is not that of one sum of products of the unit's dtypes");
    };
    let [tile_m, tile_n, tile_k] = unit.dims;
    // n is the inner one of the two axes where there is a choice; the factor that varies with it is b.
    let in_order = |r: &Roles| r.m < r.n;
    let one = Roles::of(nest, unit, &a, &b);
    let other = Roles::of(nest, unit, &b, &a).filter(in_order);
    let chosen = match (one, other) {
        (Some(one), Some(other)) if !in_order(&one) => Some(other),
        (one, other) => one.or(other),
    };
    let Some(Roles { a, b, m, n }) = chosen else {
        return no(&format!(
            "no two output axes of multiples of {tile_m} and {tile_n} tell the factors apart"
        ));
    };
    if axis.extent().is_none_or(|k| k % tile_k != 0) {
        return no(&format!("the extent is not a multiple of {tile_k}"));
    }
    let m = nest.axes[m].clone();
    let n = nest.axes[n].clone();
    // The unit reads many elements at once, of storage that is filled once for all of them.
    let tiled = [m.of, n.of, axis.of].map(|of| &nest.ranges[of]);
    let refills = |u: &UOp| u.op() == Op::After && tiled.iter().any(|r| u.ranges().contains(r));
    if [&a, &b].iter().any(|f| f.toposort().iter().any(refills)) {
        return no("a factor is read from storage that is filled inside the loops");
    }
    let lane = nest.fresh(unit.threads, AxisType::Warp);
    let element = nest.fresh(elements[2], AxisType::Upcast);
    let outer = tile(nest, &m, tile_m);
    let inner = tile(nest, &n, tile_n);
    let depth = tile(nest, &axis, tile_k);
    let warp = Axis {
        range: lane.clone(),
        of: m.of,
    };
    let upcast = Axis {
        range: element.clone(),
        of: n.of,
    };
    nest.insert(warp, false);
    nest.insert(upcast, false);
    let place = |f: &Fragment, element: &UOp, row: &UOp, column: &UOp| {
        let [r, c] = f.at(&lane, element);
        [row + &r, column + &c]
    };
    let each = |f: &Fragment, row: &UOp, column: &UOp| {
        let numbers = (0..f.elements()).map(UOp::index_const);
        numbers.map(|j| place(f, &j, row, column)).collect()
    };
    nest.mma = Some(Mma {
        of_a: each(&unit.a, &outer, &depth),
        of_b: each(&unit.b, &depth, &inner),
        of_c: place(&unit.c, &element, &outer, &inner),
        unit: unit.clone(),
        reduce,
        a,
        b,
        m: m.range,
        n: n.range,
        k: axis.range,
        element,
    });
    Ok(())
}

/// The one REDUCE over `k`, and its factors, where the unit can do it.
fn product(nest: &LoopNest, k: &UOp, unit: &TcInfo) -> Option<(UOp, UOp, UOp)> {
    let mut over = nest
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
        let [dtype, _] = unit.dtypes_in;
        let u = if u.op() == Op::Cast && u.dtype() != dtype {
            &u.src()[0]
        } else {
            u
        };
        let fits =
            u.dtype() == dtype && u.ranges().contains(k) && !u.ops_below().contains(Op::Reduce);
        fits.then(|| u.clone())
    };
    Some((
        reduce.clone(),
        factor(&reduce.src()[0].src()[0])?,
        factor(&reduce.src()[0].src()[1])?,
    ))
}

/// Make an axis run over tiles of a size; gives where the tile begins.
fn tile(nest: &mut LoopNest, axis: &Axis, size: i64) -> UOp {
    let at = nest.axes.iter().position(|a| a.range == axis.range);
    match (at, axis.extent().unwrap_or(size) / size) {
        (Some(at), 1) => {
            nest.axes.remove(at);
            UOp::index_const(0)
        }
        (Some(at), n) => {
            nest.axes[at].range = nest.fresh(n, axis.kind());
            &nest.axes[at].range * size
        }
        (None, _) => axis.range.clone(),
    }
}

#[cfg(test)]
mod tests {
    use crate::opt::tests::support::{check, kernels, matmul, padto, refused, split, tc, tc_by};
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
    fn the_layout_is_the_units() {
        let after = check(&matmul(16, 32, 48), &[tc_by(1, 2)]);
        let letters: String = crate::opt::axes(&after)
            .iter()
            .filter_map(|r| Some(r.range_arg()?.1.letter()))
            .collect();
        assert_eq!(letters, "LwRu");
        check(
            &matmul(32, 16, 16),
            &[tc_by(1, 2), split(0, 2, AxisType::Upcast, false)],
        );
        let k = matmul(5, 9, 11);
        check(&k, &[padto(0, 16), padto(1, 16), padto(2, 16), tc_by(1, 2)]);
        refused(&matmul(8, 16, 16), &[tc_by(1, 2)], "multiples of 16");
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
