//! Ops that a target lacks, out of those that it has. Flows in: operands in machine types; flows out:
//! a value of the accuracy that each function states. Invariant: only ops are made that every target
//! has, so that a decomposition needs no second pass.

mod exponential;
mod math;
mod power;
mod sin;
mod threefry;

use crate::select::Legal;
use math::{F32, F64, Math};
use monoglot_uop::{DType, Op, UOp};

pub(crate) use threefry::threefry;

/// EXP2, LOG2, SIN, SQRT or POW of floats; None where there is no decomposition for the dtype.
pub(crate) fn transcendental(legal: &Legal, op: Op, s: &[UOp]) -> Option<UOp> {
    let format = match s[0].dtype() {
        DType::F32 => &F32,
        DType::F64 => &F64,
        _ => return None,
    };
    let m = Math { o: legal, format };
    let single = s[0].dtype() == DType::F32;
    Some(match op {
        Op::Exp2 => m.exp2(&s[0]),
        Op::Log2 if single => m.log2_f32(&s[0]),
        Op::Log2 => m.log2_f64(&s[0]),
        Op::Sin if single => m.sin_f32(&s[0]),
        Op::Sin => m.sin_f64(&s[0]),
        Op::Sqrt => m.sqrt(&s[0]),
        Op::Pow => m.pow(&s[0], &s[1]),
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
