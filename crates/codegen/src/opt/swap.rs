//! SWAP: two axes of one type change places, so that the outer loop becomes the inner one. Flows
//! in: the nest and two axes; flows out: the nest in the other order.
//!
//! A REDUCE axis and a LOOP change places where a sum is kept in storage: see [`super::accumulate`].
//!
//! Preconditions: both axes have the same type, and are not the same axis; no turn of either, or of a loop
//! between them, begins with what the last one left in storage of the kernel's own. Loops of stores may be
//! exchanged because every iteration writes elements of its own; loops of reductions because the
//! order of a reduction is the schedule's choice.

use super::nest::LoopNest;
use super::{accumulate, refuse};
use monoglot_uop::{AxisType, Opt, Result, Target};

pub(super) fn step(nest: &mut LoopNest, opt: &Opt, with: usize, target: &Target) -> Result<()> {
    let Some(other) = nest.axes.get(with) else {
        return Err(refuse(
            opt,
            format!("there is no axis {with} to exchange it with"),
        ));
    };
    let a = nest.axes[opt.axis].kind();
    let b = other.kind();
    if (a, b) == (AxisType::Reduce, AxisType::Loop) {
        return accumulate::step(nest, opt, with, target);
    }
    if a != b || with == opt.axis {
        let message = format!(
            "{} and axis {with}, {}: exchange two axes of one type",
            a.letter(),
            b.letter()
        );
        return Err(refuse(opt, message));
    }
    let [first, last] = [opt.axis.min(with), opt.axis.max(with)];
    let carried = |i: usize| nest.is_carried(nest.axes[i].of);
    if carried(first) || carried(last) || nest.carries_between(first, last) {
        return Err(refuse(opt, "a turn begins with what the last one left"));
    }
    nest.axes.swap(opt.axis, with);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::opt::tests::support::{check, kernels, refused, split, swap};
    use monoglot_uop::AxisType;

    #[test]
    fn loops_change_places() {
        let k = &kernels()[0];
        let after = check(k, &[swap(0, 1)]);
        let extents = |k| {
            crate::opt::axes(k)
                .iter()
                .map(|r| r.src()[0].as_int().unwrap())
                .collect::<Vec<_>>()
        };
        assert_eq!(extents(k), [8, 4, 12]);
        assert_eq!(extents(&after), [4, 8, 12]);
        check(k, &[split(2, 3, AxisType::Reduce, false), swap(3, 2)]);
        refused(k, &[swap(0, 2)], "one type");
        refused(k, &[swap(0, 0)], "one type");
        refused(k, &[swap(0, 3)], "no axis 3");
    }
}
