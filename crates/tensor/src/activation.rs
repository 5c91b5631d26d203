//! Activations, composed around the kinks as PyTorch differentiates them.

use crate::Tensor;
use crate::functions as f;
use monoglot_uop::gradient::{Rule, Shortcut};
use monoglot_uop::{Op, UOp};

/// 0 where x ≤ 0, with gradient 0 at 0; NaN stays.
/// The gradient asks the result, not x: so x need not be kept for it.
fn relu(x: &UOp) -> UOp {
    let rule: Rule = |f| {
        let off = f.y.binary(Op::CmpLe, &f.y.like(0));
        Ok(vec![Some(off.select(&f.g.like(0), f.g))])
    };
    let inputs = [x.clone()].into_iter().collect();
    let y = x.max_(&x.like(0));
    y.with_shortcut(Shortcut { inputs, params: Box::new([]), rule })
}

/// x between the bounds, with gradient 0 at them.
fn between(x: &UOp, low: f64, high: f64) -> UOp {
    let x1 = x.like(high).binary(Op::CmpLe, x).select(&x.like(high), x);
    x.binary(Op::CmpLe, &x.like(low)).select(&x.like(low), &x1)
}

/// x where x > 0; `below` of min(x, 0) elsewhere, so that it cannot overflow where it is not chosen.
fn above_zero(x: &UOp, below: impl FnOnce(&UOp) -> UOp) -> UOp {
    let zero = x.like(0.0);
    let up = zero.lt(x);
    up.select(x, &below(&up.select(&zero, x)))
}

impl Tensor {
    /// max(x, 0).
    #[track_caller]
    pub fn relu(&self) -> Tensor {
        self.map(|u| Ok(relu(u)))
    }

    /// x between 0 and 6.
    #[track_caller]
    pub fn relu6(&self) -> Tensor {
        self.map(|u| Ok(between(u, 0.0, 6.0)))
    }

    /// x between −1 and 1.
    #[track_caller]
    pub fn hardtanh(&self) -> Tensor {
        self.map(|u| Ok(between(u, -1.0, 1.0)))
    }

    /// x · sigmoid(x).
    #[track_caller]
    pub fn silu(&self) -> Tensor {
        self.real(|x| x * &f::sigmoid(x))
    }

    /// x · Φ(x), Φ the normal distribution's.
    #[track_caller]
    pub fn gelu(&self) -> Tensor {
        self.real(f::gelu)
    }

    /// The approximation of gelu by tanh.
    #[track_caller]
    pub fn gelu_tanh(&self) -> Tensor {
        self.real(f::gelu_tanh)
    }

    /// x · tanh(ln(1 + eˣ)).
    #[track_caller]
    pub fn mish(&self) -> Tensor {
        self.real(|x| x * &f::tanh(&f::softplus(x)))
    }

    /// x / (1 + |x|).
    #[track_caller]
    pub fn softsign(&self) -> Tensor {
        self.real(|x| f::div(x, &(f::abs(x) + 1.0)))
    }

    /// x/6 + 1/2 between 0 and 1.
    #[track_caller]
    pub fn hardsigmoid(&self) -> Tensor {
        self.real(|x| f::div(&between(&(x + 3.0), 0.0, 6.0), &x.like(6.0)))
    }

    /// x · hardsigmoid(x).
    #[track_caller]
    pub fn hardswish(&self) -> Tensor {
        self.real(|x| {
            let inner = f::div(&(x * &(x + 3.0)), &x.like(6.0));
            let top = x.like(3.0).lt(x).select(x, &inner);
            x.lt(&x.like(-3.0)).select(&x.like(0.0), &top)
        })
    }

    /// x, or `slope`·x where x ≤ 0.
    #[track_caller]
    pub fn leaky_relu(&self, slope: f64) -> Tensor {
        self.real(|x| x.like(0.0).lt(x).select(x, &(x * slope)))
    }

    /// x, or α·(eˣ − 1) where x ≤ 0.
    #[track_caller]
    pub fn elu(&self, alpha: f64) -> Tensor {
        self.real(|x| above_zero(x, |n| f::expm1(n) * alpha))
    }

    /// x, or α·(e^(x/α) − 1) where x ≤ 0.
    #[track_caller]
    pub fn celu(&self, alpha: f64) -> Tensor {
        self.real(|x| above_zero(x, |n| f::expm1(&f::div(n, &n.like(alpha))) * alpha))
    }

    /// elu scaled so that a standard normal keeps its mean and variance (Klambauer et al., 2017).
    #[track_caller]
    pub fn selu(&self) -> Tensor {
        const ALPHA: f64 = 1.6732632423543772;
        const SCALE: f64 = 1.0507009873554805;
        self.real(|x| above_zero(x, |n| f::expm1(n) * ALPHA) * SCALE)
    }

    /// ln(1 + e^(β·x)) / β.
    #[track_caller]
    pub fn softplus(&self, beta: f64) -> Tensor {
        self.real(|x| match beta {
            1.0 => f::softplus(x),
            _ => f::div(&f::softplus(&(x * beta)), &x.like(beta)),
        })
    }

    /// ln sigmoid(x).
    #[track_caller]
    pub fn logsigmoid(&self) -> Tensor {
        self.real(|x| f::softplus(&x.unary(Op::Neg)).unary(Op::Neg))
    }
}
