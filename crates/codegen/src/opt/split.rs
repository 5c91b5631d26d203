//! SPLIT: an axis of extent `n` becomes two, of `n / factor` and `factor`; the new one, of extent
//! `factor`, gets an axis type of its own. It is the inner of the two, or the outer if `top`. Flows
//! in: the nest, an axis, a factor and a type; flows out: the nest with the two axes, or an error
//! that names the precondition.
//!
//! Preconditions:
//! * the factor divides the extent, which is known (0 stands for the whole axis, which then only
//!   changes its type);
//! * the new type may be split from the axis's, on the side that the table allows:
//!
//! | new type | from | side |
//! | --- | --- | --- |
//! | GLOBAL | LOOP, GLOBAL | either |
//! | THREAD | GLOBAL, LOOP | outer; one THREAD axis a kernel |
//! | LOOP | LOOP, GLOBAL | either |
//! | LOCAL | GLOBAL, LOOP | inner; not after NOLOCALS |
//! | WARP | (only TC makes one) | |
//! | GROUP_REDUCE | REDUCE | either; not after NOLOCALS |
//! | REDUCE | REDUCE | either |
//! | UNROLL | REDUCE, GROUP_REDUCE | inner |
//! | UPCAST | GLOBAL, LOCAL, LOOP | inner |
//!
//! * no turn of the axis begins with what the last one left in storage of the kernel's own, and no loop that it
//!   puts inside another comes from around one of which that holds;
//! * for THREAD, the kernel has no BARRIER, which would be one of a workgroup;
//! * for LOOP from GLOBAL, the kernel has no BARRIER: its threads would have to wait before each turn;
//! * for GLOBAL, THREAD and LOCAL, which run in parallel, every store of the kernel is inside the
//!   loop.

use super::nest::{Axis, LoopNest};
use super::refuse;
use monoglot_uop::{AxisType, Opt, Result};

/// Which part of an axis a new one may be.
#[derive(Clone, Copy, PartialEq)]
enum Side {
    Inner,
    Outer,
    Either,
}

/// The types from which `new` is split, and on which side.
fn sources(new: AxisType) -> (&'static [AxisType], Side) {
    use AxisType::*;
    match new {
        Global | Loop => (&[Loop, Global], Side::Either),
        Thread => (&[Global, Loop], Side::Outer),
        Local => (&[Global, Loop], Side::Inner),
        Warp => (&[], Side::Either),
        GroupReduce | Reduce => (&[Reduce], Side::Either),
        Unroll => (&[Reduce, GroupReduce], Side::Inner),
        Upcast => (&[Global, Local, Loop], Side::Inner),
    }
}

/// Whether iterations of this type run at the same time, so that nothing may be outside them.
fn is_parallel(kind: AxisType) -> bool {
    matches!(
        kind,
        AxisType::Global | AxisType::Thread | AxisType::Local | AxisType::Warp
    )
}

pub(super) fn step(
    nest: &mut LoopNest,
    opt: &Opt,
    factor: i64,
    new: AxisType,
    top: bool,
) -> Result<()> {
    let axis = nest.axes[opt.axis].clone();
    let old = axis.kind();
    let (sources, side) = sources(new);
    let letters = || format!("{} from {}", new.letter(), old.letter());
    if !sources.contains(&old) {
        return Err(refuse(
            opt,
            format!("{}: that type is not split from this one", letters()),
        ));
    }
    let extent = axis.extent();
    let whole = factor == 0 || extent == Some(factor);
    let refused = if top { Side::Inner } else { Side::Outer };
    if !whole && side == refused {
        let side = if top { "outer" } else { "inner" };
        return Err(refuse(
            opt,
            format!("{}: not as the {side} part", letters()),
        ));
    }
    if nest.info.no_locals && matches!(new, AxisType::Local | AxisType::GroupReduce) {
        return Err(refuse(opt, format!("{}: after NOLOCALS", letters())));
    }
    if new == AxisType::Thread && nest.axes.iter().any(|a| a.kind() == AxisType::Thread) {
        return Err(refuse(opt, "the kernel has a THREAD axis already"));
    }
    if nest.is_carried(axis.of) {
        return Err(refuse(
            opt,
            format!("{}: a turn begins with what the last one left", letters()),
        ));
    }
    if new == AxisType::Loop && !top && nest.carries_between(opt.axis, nest.axes.len()) {
        let message = "a loop inside begins with what its last turn left";
        return Err(refuse(opt, format!("{}: {message}", letters())));
    }
    if new == AxisType::Thread && nest.waits() {
        return Err(refuse(opt, "its BARRIERs are those of a workgroup"));
    }
    if new == AxisType::Loop && old == AxisType::Global && nest.waits() {
        let message = "a thread may still read in one turn what another fills in the next";
        return Err(refuse(opt, format!("{}: {message}", letters())));
    }
    if is_parallel(new) && !nest.encloses_all(axis.of) {
        return Err(refuse(
            opt,
            format!("{}: a store is outside the loop", letters()),
        ));
    }
    if whole {
        let expands = matches!(new, AxisType::Unroll | AxisType::Upcast | AxisType::Thread);
        if expands && extent.is_none() {
            return Err(refuse(
                opt,
                format!("{}: the extent is not known", letters()),
            ));
        }
        let bound = monoglot_uop::Dim::of(&axis.range.src()[0]);
        let range = nest.fresh(bound, new);
        nest.rebind(&axis, &range);
        nest.axes.remove(opt.axis);
        nest.insert(Axis { range, of: axis.of }, top);
        return Ok(());
    }
    let n = match extent {
        Some(n) if factor > 0 && n % factor == 0 => n,
        Some(n) => {
            return Err(refuse(
                opt,
                format!("{factor} does not divide the extent {n}"),
            ));
        }
        None => return Err(refuse(opt, "the extent is not known")),
    };
    if factor == 1 {
        return Err(refuse(opt, "a factor of 1 splits nothing"));
    }
    let rest = nest.fresh(n / factor, old);
    let part = nest.fresh(factor, new);
    let (high, low, width) = if top {
        (&part, &rest, n / factor)
    } else {
        (&rest, &part, factor)
    };
    nest.rebind(&axis, &(high * width + low));
    nest.axes[opt.axis].range = rest;
    nest.insert(
        Axis {
            range: part,
            of: axis.of,
        },
        top,
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::opt::tests::support::{check, kernels, refused, split};
    use AxisType::*;
    use monoglot_uop::AxisType;

    #[test]
    fn every_type_of_the_table_keeps_the_result() {
        for k in kernels() {
            check(&k, &[split(0, 4, Upcast, false)]);
            check(&k, &[split(0, 2, Thread, true)]);
            check(&k, &[split(0, 2, Global, true), split(0, 2, Loop, false)]);
            check(
                &k,
                &[
                    split(0, 0, Global, false),
                    split(0, 2, Local, false),
                    split(1, 0, Upcast, false),
                ],
            );
        }
    }

    #[test]
    fn reductions_split_into_groups_and_unrolled_parts() {
        let matmul = &kernels()[0];
        check(
            matmul,
            &[split(2, 4, GroupReduce, false), split(2, 2, Unroll, false)],
        );
        check(
            matmul,
            &[split(2, 4, GroupReduce, true), split(3, 0, Unroll, false)],
        );
        check(
            matmul,
            &[split(2, 2, Reduce, true), split(3, 3, Unroll, false)],
        );
    }

    #[test]
    fn what_the_table_does_not_allow_is_an_error() {
        let k = &kernels()[0];
        refused(k, &[split(0, 5, Upcast, false)], "does not divide");
        refused(k, &[split(0, 2, Unroll, false)], "r from L");
        refused(k, &[split(2, 2, Upcast, false)], "u from R");
        refused(k, &[split(0, 2, Warp, false)], "w from L");
        refused(k, &[split(0, 2, Thread, false)], "not as the inner");
        refused(k, &[split(0, 2, Upcast, true)], "not as the outer");
        refused(
            k,
            &[split(0, 2, Thread, true), split(1, 2, Thread, true)],
            "THREAD axis already",
        );
        refused(k, &[split(9, 2, Upcast, false)], "3 axes");
    }
}
