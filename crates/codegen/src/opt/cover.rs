//! COVER: an axis of extent `n` becomes parts of so many turns, and an axis inside of them of that type. Where the parts
//! do not divide it, the last one ends with the axis and begins in the one before it: some turns are done twice, and
//! none is past the end, so that nothing is masked. Flows in: the nest, an axis, a factor and a type; flows out: the nest
//! with the two axes, or an error that names the precondition.
//!
//! ```text
//! r0 < 10, by 4:  (6 − MAX(6 − 4·r0, 0)) + r1,  r0 < 3, r1 < 4        0 to 3, 4 to 7, 6 to 9
//! ```
//!
//! Preconditions:
//! * the axis is a LOOP of an extent that is known and greater than the factor, and becomes LOOP or UPCAST;
//! * turns may be done twice: the kernel reads nothing of what it writes, has no storage of its own that one turn might
//!   find as another left it, adds nothing to what is there (ATOMICADD), and has no BARRIER.

use super::nest::{Axis, LoopNest};
use super::refuse;
use monoglot_uop::{AxisType, Op, Opt, Result, UOp};

pub(super) fn step(nest: &mut LoopNest, opt: &Opt, factor: i64, new: AxisType) -> Result<()> {
    let axis = nest.axes[opt.axis].clone();
    let old = axis.kind();
    let loops = old == AxisType::Loop && matches!(new, AxisType::Loop | AxisType::Upcast);
    if !loops {
        let message = format!("{} from {}: not covered by", new.letter(), old.letter());
        return Err(refuse(opt, message));
    }
    let Some(n) = axis.extent() else {
        return Err(refuse(opt, "the extent is not known"));
    };
    if !(2..n).contains(&factor) {
        let message = format!("{factor} is no part of the extent {n}");
        return Err(refuse(opt, message));
    }
    if !nest.repeats() {
        return Err(refuse(opt, "its turns cannot be done twice"));
    }
    let rest = nest.fresh((n + factor - 1) / factor, old);
    let part = nest.fresh(factor, new);
    // The lesser of where a part would begin and where the last one does.
    let last = rest.like(n - factor);
    let before = (&last - &(&rest * factor)).binary(Op::Max, &rest.like(0));
    let begin = match n % factor {
        0 => &rest * factor,
        _ => last - before,
    };
    nest.rebind(&axis, &(begin + &part));
    nest.axes[opt.axis].range = rest;
    let of = axis.of;
    nest.insert(Axis { range: part, of }, false);
    Ok(())
}

impl LoopNest {
    /// Whether turns of the kernel's loops may be done twice.
    pub(super) fn repeats(&self) -> bool {
        let once = [Op::Buffer, Op::AtomicAdd, Op::Barrier];
        let below = self.sink.ops_below();
        let storage = |u: &UOp| u.src().first().map(|s| s.named().clone());
        let stores = self.nodes.iter().filter(|u| u.op() == Op::Store);
        let written: Vec<Option<UOp>> = stores.clone().map(|u| storage(&u.src()[0])).collect();
        let reads = |u: &UOp| u.op() == Op::Index && written.contains(&storage(u));
        let made_of = |u: &UOp| u.toposort().iter().any(reads);
        let mut again = stores.flat_map(|u| u.src()[0].src()[1..].iter().chain(&u.src()[1..]));
        !once.iter().any(|op| below.contains(*op)) && !again.any(made_of)
    }
}

#[cfg(test)]
mod tests {
    use crate::opt::apply;
    use crate::opt::tests::support::*;
    use AxisType::*;
    use monoglot_uop::{AxisType, DType, Opt, OptOp};

    fn cover(axis: usize, factor: i64, target: AxisType) -> Opt {
        let op = OptOp::Cover { factor, target };
        Opt { op, axis }
    }

    #[test]
    fn parts_that_do_not_divide_keep_the_result() {
        let mut covered = 0;
        for k in kernels() {
            for axis in 0..crate::opt::axes(&k).len() {
                for factor in [2, 3, 5, 7] {
                    for new in [Upcast, Loop] {
                        let opt = cover(axis, factor, new);
                        if apply(&k, std::slice::from_ref(&opt), &target(true)).is_ok() {
                            check(&k, &[opt]);
                            covered += 1;
                        }
                    }
                }
            }
        }
        assert!(covered > 20, "{covered}");
        let product = &kernels()[0];
        check(product, &[cover(0, 5, Upcast), cover(1, 3, Upcast)]);
        check(product, &[cover(0, 3, Loop), cover(0, 2, Loop)]);
        check(product, &[cover(0, 5, Loop), split(0, 2, Thread, true)]);
        check(product, &[cover(0, 3, Loop), split(2, 0, Upcast, false)]);
    }

    #[test]
    fn what_is_done_once_is_not_covered() {
        let r = ranges(&[12], &[]);
        let x = param(0, &[12], DType::F32).at(&r);
        let adds = sink(&[x.store(&(&x + 1.0)).end(&r)]);
        refused(&adds, &[cover(0, 5, Upcast)], "cannot be done twice");
        let product = &kernels()[0];
        refused(product, &[cover(2, 5, Upcast)], "not covered by");
        refused(product, &[cover(0, 5, Thread)], "not covered by");
        refused(product, &[cover(0, 8, Upcast)], "no part of the extent 8");
        let kept = ["STAGE(0,1)", "COVER(1,3,UPCAST)"].map(|o| o.parse().unwrap());
        refused(product, &kept, "cannot be done twice");
        for new in [Upcast, Loop] {
            refused(
                product,
                &[cover(0, 5, new), padto(0, 16)],
                "cannot be padded",
            );
        }
    }
}
