//! NOLOCALS: the kernel uses no LOCAL memory and has no dimensions of workgroups. Flows in: the
//! nest; flows out: the same nest, which says so.
//!
//! Precondition: no axis is LOCAL, WARP or GROUP_REDUCE, and the kernel has no LOCAL storage. Afterwards
//! SPLIT refuses to make one.

use super::nest::LoopNest;
use super::refuse;
use monoglot_uop::{AddrSpace, AxisType, Op, Opt, Result, UOp};

pub(super) fn step(nest: &mut LoopNest, opt: &Opt) -> Result<()> {
    let local = |k| matches!(k, AxisType::Local | AxisType::Warp | AxisType::GroupReduce);
    if let Some(i) = nest.axes.iter().position(|a| local(a.kind())) {
        let letter = nest.axes[i].kind().letter();
        return Err(refuse(
            opt,
            format!("axis {i} of type {letter} needs a workgroup"),
        ));
    }
    let is_local = |u: &&UOp| u.op() == Op::Buffer && u.addrspace() == Some(AddrSpace::Local);
    if nest.nodes.iter().any(|u| is_local(&u)) {
        return Err(refuse(opt, "the kernel has LOCAL storage"));
    }
    nest.info.no_locals = true;
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::opt::tests::support::{check, kernels, refused, split};
    use monoglot_uop::{AxisType, Opt, OptOp};

    #[test]
    fn no_workgroups_before_or_after() {
        let k = &kernels()[0];
        let none = Opt {
            op: OptOp::NoLocals,
            axis: 0,
        };
        let local = [
            split(0, 0, AxisType::Global, false),
            split(0, 2, AxisType::Local, false),
        ];
        check(k, &[none]);
        refused(k, &[none, local[0], local[1]], "after NOLOCALS");
        refused(k, &[local[0], local[1], none], "needs a workgroup");
    }
}
