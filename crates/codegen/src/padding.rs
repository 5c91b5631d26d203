//! What is left out of the sums of padded convolutions. Flows in: a kernel in which a WHERE may take products with
//! padding for 0 (`Arg::Padding`); flows out: the same kernel with those of them that cost nothing. Which do follows
//! from its loops: a condition on a loop's turns shortens the loop (`limits`), and one on lanes alone is known at each
//! of them. Others would be asked in every turn, and a product with 0 costs no more.

use crate::graph::{Srcs, rebuild};
use monoglot_uop::rules::conjuncts;
use monoglot_uop::{Arg, DType, Op, Result, Target, UOp};

/// The kernel with these choices where the target's loops make use of them: those of a core do, of sums of floats
/// that no matrix unit takes in. One that asks about variables is as any other choice.
pub(crate) fn admit(kernel: &UOp, target: &Target) -> Result<UOp> {
    let core = !target.workgroups;
    let wide = |u: &UOp| matches!(u.dtype(), DType::F32 | DType::F64);
    let is_whole = |u: &UOp| {
        let factors = u.src()[1].src();
        wide(u) && factors.iter().all(|f| f.op() != Op::Cast)
    };
    each(kernel, |u, src| {
        let known = !src[0].ops_below().contains(Op::Param);
        let zero = src[2].const_value().is_some_and(|c| c.is_zero());
        match known && zero {
            false => u.with_arg(Arg::None).with_src(src),
            true if core && is_whole(u) => u.with_src(src),
            true => src[1].clone(),
        }
    })
}

/// The kernel without conditions that vary with a loop, where `limits` has done what can be done by them.
pub(crate) fn settle(kernel: &UOp) -> Result<UOp> {
    let known = |c: &UOp| !c.ranges().iter().any(crate::loops::is_loop);
    each(kernel, |u, mut src| {
        let conditions = conjuncts(&src[0]).into_iter().filter(known);
        match conditions.reduce(|a, b| a & b) {
            Some(left) => {
                src[0] = left;
                u.with_src(src)
            }
            None => src[1].clone(),
        }
    })
}

/// The kernel with what is told of each such choice and its sources.
fn each(kernel: &UOp, new: impl Fn(&UOp, Srcs) -> UOp) -> Result<UOp> {
    let is_padding = |u: &UOp| *u.arg() == Arg::Padding;
    if !kernel.ops_below().contains(Op::Where) || !kernel.nodes().into_iter().any(is_padding) {
        return Ok(kernel.clone());
    }
    rebuild(kernel, |u, src| {
        Ok(match is_padding(u) {
            true => new(u, src),
            false => u.with_src(src),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::opt::tests::support::{param, ranges, sink, target};
    use monoglot_uop::{Opt, ReduceOp};

    /// Sums over three taps of what lies beside eight places, of which the first and the last have two, from storage of
    /// this dtype.
    fn taps(dtype: DType) -> UOp {
        let r = ranges(&[8], &[3]);
        let tap = &r[0] + &r[1];
        let inside = tap.like(0).lt(&tap) & tap.lt(&tap.like(9));
        let x = param(1, &[10], dtype).at(&[tap]).cast(DType::F32);
        let w = param(2, &[3], DType::F32).at(&r[1..]);
        let product = &x * &w;
        let counts = inside.select(&product, &product.like(0.0));
        let sum = counts
            .with_arg(Arg::Padding)
            .reduce_ranges(ReduceOp::Add, &r[1..]);
        sink(&[param(0, &[8], DType::F32)
            .at(&r[..1])
            .store(&sum)
            .end(&r[..1])])
    }

    fn conditions(kernel: &UOp) -> usize {
        let nodes = kernel.toposort();
        let choices = nodes.iter().filter(|u| *u.arg() == Arg::Padding);
        choices.map(|u| conjuncts(&u.src()[0]).len()).sum()
    }

    #[test]
    fn only_the_loops_of_a_core_leave_products_out() {
        let admitted = |kernel: &UOp, workgroups: bool| {
            let kernel = admit(kernel, &target(workgroups)).unwrap();
            conditions(&kernel)
        };
        assert_eq!(admitted(&taps(DType::F32), false), 2);
        assert_eq!(admitted(&taps(DType::F32), true), 0);
        // What a matrix unit may take in is a product alone.
        assert_eq!(admitted(&taps(DType::F16), false), 0);
    }

    #[test]
    fn what_is_known_of_each_lane_is_left() {
        let of = |opts: &[Opt]| {
            let kernel = crate::opt::apply(&taps(DType::F32), opts, &target(false)).unwrap();
            conditions(&settle(&kernel).unwrap())
        };
        use crate::opt::tests::support::split;
        use monoglot_uop::AxisType::{Unroll, Upcast};
        let [all, some] = [0, 4].map(|n| split(0, n, Upcast, false));
        let terms = split(1, 0, Unroll, false);
        assert_eq!(of(&[terms, all]), 2);
        assert_eq!(of(&[terms, some]), 0);
        assert_eq!(of(&[all]), 0);
    }
}
