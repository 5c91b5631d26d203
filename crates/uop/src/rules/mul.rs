//! MUL, and the float quotients DIV, RECIP and powers. Integer products have their constant last
//! and multiplied out; 0·x is 0 for integers only (0·∞ is NaN). Flows in: a node of these ops;
//! flows out: an equal value that costs no more, or nothing. Always: of floats only what changes no
//! value, NaN and signs of zeros included, is done.

use super::affine::Affine;
use super::{int, int_const, key};
use crate::dtype::DType;
use crate::node::UOp;
use crate::op::Op;
use crate::rewrite::Rule;
use crate::rule;

pub(super) fn rules() -> Vec<Rule> {
    vec![
        // x·1 = x
        rule!(mul_one[x]: x * 1 => x),
        // (x·c)·y = (x·y)·c
        rule!(mul_constant_out[x, c: cnst, y]: (x * c) * y => (x * y) * c, if x.dtype().is_int() && y.op() != Op::Const),
        // (x + c)·d = x·d + c·d
        rule!(mul_sum_constant[x, c: cnst, d: cnst]: (x + c) * d => (x * d) + product(c, d)?, if x.dtype().is_int()),
        // (Σ k·x)·c = Σ (k·c)·x
        rule!(mul_sum[u, x, y, c: cnst]: ((x + y) * c).bind(u) => Affine::of(u)?.build(), if x.dtype() == DType::Index),
        // (-x)·c = x·(-c)
        rule!(mul_neg[x, c: cnst]: x.under(Op::Neg) * c => x * &int_const(-int(c)?, c.dtype()), if x.dtype().is_int()),
        // x·(y·z) = (x·y)·z, in order
        rule!(mul_chain[u, x, y, z]: (x * (y * z)).bind(u) => (x * y) * z,
            if x.dtype() == DType::Index && x.op() != Op::Const && z.op() != Op::Const && u.src()[1].op() == Op::Mul),
        // (x·y)·z = (x·z)·y, in order
        rule!(mul_order[x, y, z]: (x * y) * z => (x * z) * y,
            if x.dtype() == DType::Index && y.op() != Op::Const && z.op() != Op::Const && key(z) < key(y)),
        // of truth values, · is and
        rule!(mul_bools[x, y]: x * y => x & y, if x.dtype() == DType::Bool),
        // a truth value times an integer
        rule!(mul_mask[b, x]: b.cast_() * x => b.select(x, &x.like(0)), if b.dtype() == DType::Bool && x.dtype().is_int()),
        // a mask times an integer
        rule!(mul_where[b, x]: b.select(1, 0) * x => b.select(x, &x.like(0)), if x.dtype().is_int()),
        // x / 1 = x
        rule!(fdiv_one[x]: x.fdiv(1) => x),
        // x^1 = x
        rule!(pow_one[x]: x.pow_(1) => x),
        // x^0 = 1, even for NaN
        rule!(pow_zero[x]: x.pow_(0) => x.like(1)),
        // an integer is whole
        rule!(trunc_whole[x]: x.under(Op::Trunc) => x, if !x.dtype().is_float()),
        // trunc(trunc x) = trunc x
        rule!(trunc_trunc[x]: x.under(Op::Trunc).under(Op::Trunc) => x.unary(Op::Trunc)),
    ]
}

fn product(c: &UOp, d: &UOp) -> Option<UOp> {
    let a = int(c)?;
    let b = int(d)?;
    // Modulo 2¹²⁸ is modulo the dtype, but `index` does not wrap.
    let v = if c.dtype() == DType::Index {
        a.checked_mul(b)?
    } else {
        a.wrapping_mul(b)
    };
    Some(int_const(v, c.dtype()))
}
