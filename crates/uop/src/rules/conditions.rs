//! What conditions say of indices. Flows in: a condition; flows out: its conjuncts, and sums that are at most 0 where
//! one holds. Invariant: only what comparisons of indices say is told.

use super::Affine;
use crate::dtype::DType;
use crate::node::UOp;
use crate::op::Op;
use smallvec::{SmallVec, smallvec};

/// The conjuncts of a condition.
pub fn conjuncts(gate: &UOp) -> SmallVec<[UOp; 4]> {
    let mut out: SmallVec<[UOp; 4]> = SmallVec::new();
    let mut stack: SmallVec<[UOp; 4]> = smallvec![gate.clone()];
    while let Some(u) = stack.pop() {
        if u.op() == Op::And {
            stack.extend([u.src()[1].clone(), u.src()[0].clone()]);
        } else if !out.contains(&u) && !u.is_bool(true) {
            out.push(u);
        }
    }
    out
}

/// What a conjunct says, as sums that are at most 0; nothing where it is not a comparison of indices.
pub fn constraints(mut u: &UOp) -> SmallVec<[Affine; 2]> {
    let mut out = SmallVec::new();
    let mut negated = false;
    loop {
        match u.op() {
            Op::Not => u = &u.src()[0],
            Op::CmpNe | Op::Xor if u.src()[1].is_bool(true) => u = &u.src()[0],
            _ => break,
        }
        negated = !negated;
    }
    if !u.op().is_comparison() || u.src()[0].dtype() != DType::Index {
        return out;
    }
    // a − b + strict ≤ 0.
    let mut below = |a: &UOp, b: &UOp, strict: i128| {
        let mut sum = Affine::number(DType::Index, strict);
        out.extend(sum.add(a, 1).and_then(|()| sum.add(b, -1)).map(|()| sum));
    };
    let a = &u.src()[0];
    let b = &u.src()[1];
    match (u.op(), negated) {
        (Op::CmpLt, false) | (Op::CmpGe, true) => below(a, b, 1),
        (Op::CmpLt, true) | (Op::CmpGe, false) => below(b, a, 0),
        (Op::CmpGt, false) | (Op::CmpLe, true) => below(b, a, 1),
        (Op::CmpGt, true) | (Op::CmpLe, false) => below(a, b, 0),
        (Op::CmpEq, false) | (Op::CmpNe, true) => {
            below(a, b, 0);
            below(b, a, 0);
        }
        _ => {}
    }
    out
}
