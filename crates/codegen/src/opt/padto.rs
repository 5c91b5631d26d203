//! PADTO: an axis runs on to the next multiple of `multiple`; what it does past its end has no
//! effect. Flows in: the plan and the multiple; flows out: the plan with a longer axis and the
//! condition under which it counts.
//!
//! Every read and store that varies with the axis gets an index that is invalid there, and a REDUCE
//! over the axis sees the identity of its operator (by WHERE, so that NaN and infinities of a read
//! that did not take place reach nothing). That is right for every operator and under every further
//! split, as the condition is on the axis itself, whatever it is made of later.
//!
//! Preconditions:
//! * the extent is known, and the padded extent is an i64;
//! * the axis is not the WARP of TC, nor its pair of elements, and no part of what COVER made: where a part begins would
//!   be another place, and lanes past its end those of the next;
//! * where an index is a reduction, which the identity would take out of its bounds, the axis is not
//!   reduced;
//! * all that varies with the axis is reads, stores, arithmetic and what orders them; no fragment of a matrix
//!   unit does.

use super::nest::{Axis, LoopNest, Pad};
use super::refuse;
use monoglot_uop::{AxisType, Op, OpSet, Opt, Result, UOp};

const ALLOWED: OpSet = OpSet::of(&[
    Op::Index,
    Op::Store,
    Op::Reduce,
    Op::End,
    Op::After,
    Op::Barrier,
    Op::Group,
    Op::Range,
    Op::Bitcast,
    Op::Sink,
]);

pub(super) fn step(nest: &mut LoopNest, opt: &Opt, multiple: i64) -> Result<()> {
    let axis = nest.axes[opt.axis].clone();
    let Some(n) = axis.extent() else {
        return Err(refuse(opt, "the extent is not known"));
    };
    if multiple < 1 {
        return Err(refuse(opt, format!("{multiple} has no multiples")));
    }
    if axis.kind() == AxisType::Warp || nest.mma.as_ref().is_some_and(|t| t.element == axis.range) {
        return Err(refuse(
            opt,
            "a matrix unit's lanes and elements cannot be padded",
        ));
    }
    if nest.now[axis.of].ops_below().contains(Op::Max) {
        return Err(refuse(opt, "parts that overlap cannot be padded"));
    }
    let padded = match n.checked_add(multiple - 1) {
        Some(_) if n == 0 => return Err(refuse(opt, "the axis is empty")),
        Some(m) => m / multiple * multiple,
        None => return Err(refuse(opt, "the padded extent is too large")),
    };
    let range = &nest.ranges[axis.of];
    let strange = |u: &&UOp| {
        let ordinary = u.op().is_elementwise() || ALLOWED.contains(u.op()) || u.dot().is_some();
        !ordinary && u.ranges().contains(range)
    };
    if let Some(u) = nest.nodes.iter().find(strange) {
        return Err(refuse(
            opt,
            format!("{} inside the loop cannot be masked", u.op().name()),
        ));
    }
    let counted = |u: &UOp| {
        u.op() == Op::Index
            && u.src()[1..]
                .iter()
                .any(|i| i.ops_below().contains(Op::Reduce))
    };
    if axis.kind().is_reduce() && nest.nodes.iter().any(counted) {
        return Err(refuse(
            opt,
            "an index is a reduction, which the identity takes out of its bounds",
        ));
    }
    if padded == n {
        return Ok(());
    }
    let new = nest.fresh(padded, axis.kind());
    nest.rebind(&axis, &new);
    nest.pads.push(Pad {
        of: axis.of,
        valid: new.lt(&new.like(n)),
    });
    nest.axes[opt.axis] = Axis {
        range: new,
        of: axis.of,
    };
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::opt::tests::support::{check, kernels, padto, split};
    use AxisType::*;
    use monoglot_uop::AxisType;

    #[test]
    fn every_axis_of_every_kernel_can_be_padded() {
        for k in kernels() {
            for axis in 0..crate::opt::axes(&k).len() {
                for multiple in [5, 7, 16] {
                    check(&k, &[padto(axis, multiple)]);
                }
            }
        }
    }

    #[test]
    fn padding_goes_with_grouping_unrolling_and_upcasting() {
        let k = &kernels()[0];
        check(
            k,
            &[
                padto(2, 8),
                split(2, 4, GroupReduce, false),
                split(2, 2, Unroll, false),
            ],
        );
        check(
            k,
            &[
                padto(2, 7),
                split(2, 0, Unroll, false),
                padto(0, 5),
                split(0, 5, Upcast, false),
            ],
        );
        check(
            k,
            &[
                split(1, 2, Upcast, false),
                padto(3, 3),
                padto(1, 4),
                split(1, 2, Loop, true),
            ],
        );
        check(k, &[padto(0, 5), padto(0, 7), split(0, 7, Thread, true)]);
    }
}
