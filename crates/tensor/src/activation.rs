//! Activations, composed around the kinks as PyTorch differentiates them. Flows in: a tensor; flows
//! out: one of its shape.

use crate::Tensor;
use crate::elementwise::methods;
use crate::functions as f;
use monoglot_uop::{DType, Op, UOp};

/// α of selu.
const SELU_ALPHA: f64 = 1.6732632423543772;
/// The scale of selu.
const SELU_SCALE: f64 = 1.0507009873554805;

/// 0 where x ≤ 0, with gradient 0 at 0; NaN stays.
/// The gradient asks the result, not x: so x need not be kept for it. Unlike `maximum`'s it gives
/// nothing at a tie, so the result is a node of its own kind (a marker), to which that belongs.
fn relu(x: &UOp) -> UOp {
    let y = x.max_(&x.like(0)).unary(Op::ContiguousBackward);
    f::known(y, &[x], &[], |f| {
        let off = f.y.binary(Op::CmpLe, &f.y.like(0));
        Ok(vec![Some(off.select(&f.g.like(0), f.g))])
    })
}

/// x between the bounds, with gradient 0 at them and at NaN, which stays; a marker as relu's result.
fn between<const LOW: i64, const HIGH: i64>(x: &UOp) -> UOp {
    let high = x.like(HIGH as f64);
    let negative = !x.dtype().is_unsigned() && x.dtype() != DType::Bool;
    let low = x.like(if negative { LOW } else { LOW.max(0) } as f64);
    let below = high.binary(Op::CmpLe, x).select(&high, x);
    let y = x.binary(Op::CmpLe, &low).select(&low, &below);
    let y = y.unary(Op::ContiguousBackward);
    f::known(y, &[x], &[], |f| {
        let inside = f.y.like(LOW).lt(f.y) & f.y.lt(&f.y.like(HIGH));
        Ok(vec![Some(inside.select(f.g, &f.g.like(0)))])
    })
}

/// x where x > 0; `below` of min(x, 0) elsewhere, so that it cannot overflow where it is not chosen.
fn above_zero(x: &UOp, below: impl FnOnce(&UOp) -> UOp) -> UOp {
    let zero = x.like(0.0);
    let up = zero.lt(x);
    up.select(x, &below(&up.select(&zero, x)))
}

/// x · hardsigmoid(x).
fn hardswish(x: &UOp) -> UOp {
    let inner = f::div(&(x * &(x + 3.0)), &x.like(6.0));
    let top = x.like(3.0).lt(x).select(x, &inner);
    // Of −∞ it is NaN, as the product that defines it.
    let y = x.lt(&x.like(-3.0)).select(&(x * 0.0), &top);
    // The parts would multiply what is not chosen, which may be infinite, by 0.
    f::known(y, &[x], &[], |f| {
        let x = &f.inputs[0];
        let slope = x.mul_acc(&x.like(1.0 / 3.0), &x.like(0.5));
        let rises = x.like(3.0).binary(Op::CmpLe, x);
        let flat = x.binary(Op::CmpLe, &x.like(-3.0));
        let up = rises.select(f.g, &(f.g * &slope));
        Ok(vec![Some(flat.select(&f.g.like(0.0), &up))])
    })
}

/// ln(1 + e^(β·x)) / β, finite where β·x is not.
fn softplus(x: &UOp, beta: f64) -> UOp {
    if beta == 1.0 {
        return f::softplus(x);
    }
    let t = x * beta;
    let above = t.like(0.0).lt(&t).select(x, &x.like(0.0));
    let rest = f::log1p(&f::exp(&f::abs(&t).unary(Op::Neg)));
    let y = above + f::div(&rest, &x.like(beta));
    f::known(y, &[&t, x], &[], |f| {
        let slope = f::sigmoid(&f.inputs[0]);
        Ok(vec![None, Some(f.g * &slope)])
    })
}

methods! {
    /// max(x, 0).
    relu() same relu;
    /// x between 0 and 6.
    relu6() same between::<0, 6>;
    /// x between −1 and 1.
    hardtanh() same between::<-1, 1>;
    /// x · sigmoid(x).
    silu() real |x| x * &f::sigmoid(x);
    /// x · Φ(x), Φ the normal distribution's.
    gelu() real f::gelu;
    /// The approximation of gelu by tanh.
    gelu_tanh() real f::gelu_tanh;
    /// x · tanh(ln(1 + eˣ)).
    mish() real |x| x * &f::tanh(&f::softplus(x));
    /// x / (1 + |x|).
    softsign() real |x| f::div(x, &(f::abs(x) + 1.0));
    /// x/6 + 1/2 between 0 and 1.
    hardsigmoid() real |x| f::div(&between::<0, 6>(&(x + 3.0)), &x.like(6.0));
    /// x · hardsigmoid(x).
    hardswish() real hardswish;
    /// x, or `slope`·x where x ≤ 0.
    leaky_relu(slope: f64) real |x| x.like(0.0).lt(x).select(x, &(x * slope));
    /// x, or α·(eˣ − 1) where x ≤ 0.
    elu(alpha: f64) real |x| above_zero(x, |n| f::expm1(n) * alpha);
    /// x, or α·(e^(x/α) − 1) where x ≤ 0.
    celu(alpha: f64) real |x| above_zero(x, |n| f::expm1(&f::div(n, &n.like(alpha))) * alpha);
    /// elu scaled so that a standard normal keeps its mean and variance (Klambauer et al., 2017).
    selu() real |x| above_zero(x, |n| f::expm1(n) * SELU_ALPHA) * SELU_SCALE;
    /// ln(1 + e^(β·x)) / β.
    softplus(beta: f64) real |x| softplus(x, beta);
    /// ln sigmoid(x).
    logsigmoid() real |x| f::softplus(&x.unary(Op::Neg)).unary(Op::Neg);
}
