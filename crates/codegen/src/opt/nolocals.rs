//! NOLOCALS: the kernel uses no LOCAL memory and has no dimensions of workgroups. Flows in: the
//! plan; flows out: the same plan, which says so.
//!
//! Precondition: no axis is LOCAL, WARP or GROUP_REDUCE, and the kernel has no LOCAL storage. Afterwards
//! SPLIT refuses to make one.

use super::plan::Plan;
use super::refuse;
use monoglot_uop::{AddrSpace, AxisType, Op, Opt, Result, UOp};

pub(super) fn step(plan: &mut Plan, opt: &Opt) -> Result<()> {
    let local = |k| matches!(k, AxisType::Local | AxisType::Warp | AxisType::GroupReduce);
    if let Some(i) = plan.axes.iter().position(|a| local(a.kind())) {
        let letter = plan.axes[i].kind().letter();
        return Err(refuse(
            opt,
            format!("axis {i} of type {letter} needs a workgroup"),
        ));
    }
    let is_local = |u: &&UOp| u.op() == Op::Buffer && u.addrspace() == Some(AddrSpace::Local);
    if plan.nodes.iter().any(|u| is_local(&u)) {
        return Err(refuse(opt, "the kernel has LOCAL storage"));
    }
    plan.info.no_locals = true;
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
