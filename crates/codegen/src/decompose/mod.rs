//! Ops that a target lacks, out of those that it has. Flows in: operands in machine types; flows out:
//! a value of the accuracy that each function states. Invariant: only ops are made that `Legal::op`
//! accepts, so that a decomposition of a decomposition needs no second pass.

mod threefry;

use crate::select::Legal;
use monoglot_uop::{Op, UOp};

pub(crate) use threefry::threefry;

/// EXP2, LOG2, SIN, SQRT or POW of floats; None where there is no decomposition for the dtype.
pub(crate) fn transcendental(_legal: &Legal, _op: Op, _src: &[UOp]) -> Option<UOp> {
    None
}
