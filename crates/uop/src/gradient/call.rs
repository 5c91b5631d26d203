//! CALLs of a user's own work. Flows in: what flows to each output of a CALL; flows out: what its derivative
//! says flows to its arguments. Invariant: the derivative is asked once a CALL, when all that flows to its
//! outputs is known.

use super::failed;
use crate::arg::Arg;
use crate::error::Result;
use crate::node::UOp;
use crate::op::Op;
use crate::own::{Derivative, FunctionInfo};
use rustc_hash::FxHashMap;

/// What flows to the outputs of CALLs.
#[derive(Default)]
pub(super) struct Outputs(FxHashMap<UOp, Vec<Option<UOp>>>);

impl Outputs {
    /// Take what flows to a node, if that is an output of a CALL of a function.
    pub(super) fn take(&mut self, u: &UOp, g: &UOp) -> bool {
        let Arg::Element(k) = *u.arg() else {
            return false;
        };
        let call = &u.src()[0];
        let (Some(_), Arg::Call(info)) = (FunctionInfo::called(call), call.arg()) else {
            return false;
        };
        let of_call = self.0.entry(call.clone()).or_default();
        of_call.resize(info.outs.len(), None);
        of_call[k] = Some(g.clone());
        u.op() == Op::GetTuple
    }

    /// Give what flows to the arguments of a CALL.
    pub(super) fn flow(
        &mut self,
        call: &UOp,
        active: &dyn Fn(&UOp) -> bool,
        give: &mut Vec<(UOp, UOp)>,
    ) -> Result<()> {
        let Some(gradients) = self.0.remove(call) else {
            return Ok(());
        };
        let Some(info) = FunctionInfo::called(call) else {
            return Ok(());
        };
        let name = &info.name;
        let Some(derivative) = Derivative::of(call) else {
            return Err(failed(format!(
                "of `{name}`, which is the caller's own: give it one by `with_gradient`, or cut it off \
                 by `detach`"
            )));
        };
        let parts = derivative.flow(call, &gradients)?;
        let arguments = &call.src()[1..];
        if parts.len() != arguments.len() {
            return Err(failed(format!(
                "of `{name}` gives {} values for {} arguments",
                parts.len(),
                arguments.len()
            )));
        }
        for (to, part) in arguments.iter().zip(parts) {
            let Some(part) = part.filter(|_| active(to)) else {
                continue;
            };
            if part.shape() != to.shape() || part.dtype() != to.dtype() {
                return Err(failed(format!(
                    "of `{name}` gives {}{} for an argument of {}{}",
                    part.dtype(),
                    part.shape(),
                    to.dtype(),
                    to.shape()
                )));
            }
            give.push((to.clone(), part));
        }
        Ok(())
    }
}
