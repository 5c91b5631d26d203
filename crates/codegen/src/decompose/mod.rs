//! Ops that a target lacks, out of those that it has. Flows in: operands in machine types; flows out:
//! a value of the accuracy that each function states. Invariant: only ops are made that every target
//! has, so that a decomposition needs no second pass.

mod exponential;
mod math;
mod power;
mod sin;
mod threefry;

use crate::native::Native;
use math::{F32, F64, Math};
use monoglot_uop::op::Transcendental;
use monoglot_uop::{DType, Op, UOp};

pub(crate) use threefry::threefry;

/// A function of a float; None where there is no decomposition for the dtype.
pub(crate) fn transcendental(legal: &Native, op: Transcendental, x: &UOp) -> Option<UOp> {
    let m = math(legal, x)?;
    let single = x.dtype() == DType::F32;
    Some(match op {
        Transcendental::Exp2 => m.exp2(x),
        Transcendental::Log2 if single => m.log2_f32(x),
        Transcendental::Log2 => m.log2_f64(x),
        Transcendental::Sin if single && legal.has(Op::MulAcc) && !legal.target.workgroups => {
            m.sin_in_f64(x)
        }
        Transcendental::Sin if single => m.sin_f32(x),
        Transcendental::Sin => m.sin_f64(x),
    })
}

/// 2^x of what is at most 0; None as above.
pub(crate) fn exp2_below(legal: &Native, x: &UOp) -> Option<UOp> {
    Some(math(legal, x)?.exp2_below(x))
}

/// SQRT of a float, rounded to nearest; None as above.
pub(crate) fn sqrt(legal: &Native, x: &UOp) -> Option<UOp> {
    Some(math(legal, x)?.sqrt(x))
}

/// POW of floats; None as above.
pub(crate) fn pow(legal: &Native, x: &UOp, y: &UOp) -> Option<UOp> {
    Some(math(legal, x)?.pow(x, y))
}

fn math<'a>(legal: &'a Native<'a>, x: &UOp) -> Option<Math<'a>> {
    let format = match x.dtype() {
        DType::F32 => &F32,
        DType::F64 => &F64,
        _ => return None,
    };
    Some(Math { o: legal, format })
}

#[cfg(test)]
mod tests;
