//! What is left out of the sums of padded convolutions. Flows in: a kernel in which a WHERE may take products with
//! padding for 0 (`Arg::Padding`); flows out: the same kernel with those of them that cost nothing. Which do follows
//! from its loops: a condition on a loop's turns shortens the loop (`limits`), and one on lanes alone is known at each
//! of them. Others would be asked in every turn, and a product with 0 costs no more.

use crate::graph::rebuild;
use monoglot_uop::rules::conjuncts;
use monoglot_uop::{Arg, DType, Op, Result, Target, UOp};

/// The kernel with these choices where the target's loops make use of them: those of a core do, and sums of floats
/// that no matrix unit takes in.
pub(crate) fn admit(kernel: &UOp, target: &Target) -> Result<UOp> {
    let core = target.arranged && !target.workgroups;
    let wide = |u: &UOp| matches!(u.dtype(), DType::F32 | DType::F64);
    let is_whole = |u: &UOp| {
        let factors = u.src()[1].src();
        wide(u) && factors.iter().all(|f| f.op() != Op::Cast)
    };
    keep(kernel, |u| match core && is_whole(u) {
        true => vec![u.src()[0].clone()],
        false => Vec::new(),
    })
}

/// The kernel without conditions that vary with a loop, where `limits` has done what can be done by them.
pub(crate) fn settle(kernel: &UOp) -> Result<UOp> {
    let known = |c: &UOp| !c.ranges().iter().any(crate::loops::is_loop);
    keep(kernel, |u| {
        let conditions = conjuncts(&u.src()[0]).into_iter();
        conditions.filter(known).collect()
    })
}

/// The kernel in which such a choice has the conditions that are told of it.
fn keep(kernel: &UOp, conditions: impl Fn(&UOp) -> Vec<UOp>) -> Result<UOp> {
    let is_padding = |u: &UOp| *u.arg() == Arg::Padding;
    if !kernel.ops_below().contains(Op::Where) || !kernel.toposort().iter().any(is_padding) {
        return Ok(kernel.clone());
    }
    rebuild(kernel, |u, mut src| {
        if !is_padding(u) {
            return Ok(u.with_src(src));
        }
        Ok(match conditions(u).into_iter().reduce(|a, b| a & b) {
            Some(left) => {
                src[0] = left;
                u.with_src(src)
            }
            None => src.swap_remove(1),
        })
    })
}
