//! Elementwise methods of one operand, and selection. Flows in: tensors; out: tensors of the same (or
//! broadcast) shape.
//!
//! Functions of real numbers turn integers and bools into f32, and compute floats narrower than f32 in
//! f32.

use crate::binary::to_tensor;
use crate::functions as f;
use crate::promote::{broadcast, broadcast_to, promoted};
use crate::tensor::Tensor;
use crate::{DType, Operand};
use monoglot_uop::gradient::scale;
use monoglot_uop::{Error, Op, UOp};

macro_rules! reals {
    ($($(#[$doc:meta])* $name:ident $f:expr;)*) => { impl Tensor { $(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(&self) -> Tensor { self.real($f) }
    )* } };
}
reals! {
    /// eˣ.
    exp f::exp;
    /// 2ˣ.
    exp2 |x| x.unary(Op::Exp2);
    /// eˣ − 1, exact near 0.
    expm1 f::expm1;
    /// ln x.
    log f::log;
    /// log₂ x.
    log2 |x| x.unary(Op::Log2);
    /// log₁₀ x.
    log10 |x| scale(&x.unary(Op::Log2), std::f64::consts::LOG10_2);
    /// ln(1 + x), exact near 0.
    log1p f::log1p;
    /// √x.
    sqrt |x| x.unary(Op::Sqrt);
    /// 1/√x.
    rsqrt |x| f::recip(&x.unary(Op::Sqrt));
    /// 1/x.
    reciprocal f::recip;
    /// sin x.
    sin f::sin;
    /// cos x.
    cos f::cos;
    /// tan x.
    tan f::tan;
    /// arcsin x.
    asin f::asin;
    /// arccos x.
    acos f::acos;
    /// arctan x.
    atan f::atan;
    /// sinh x.
    sinh f::sinh;
    /// cosh x.
    cosh f::cosh;
    /// tanh x.
    tanh f::tanh;
    /// arsinh x.
    asinh f::asinh;
    /// arcosh x.
    acosh f::acosh;
    /// artanh x.
    atanh f::atanh;
    /// The error function.
    erf f::erf;
    /// 1 / (1 + e⁻ˣ).
    sigmoid f::sigmoid;
}

impl Tensor {
    /// A composition of real functions: integers become f32, narrow floats are computed in f32.
    #[track_caller]
    pub(crate) fn real(&self, f: impl FnOnce(&UOp) -> UOp) -> Tensor {
        self.map(|u| Ok(real(u, f)))
    }

    /// For values of this dtype: a literal as a constant.
    #[track_caller]
    pub(crate) fn beside(&self, literal: &Operand) -> Tensor {
        self.map(|u| {
            let d = u.dtype();
            Ok(match literal {
                Operand::Float(v) => UOp::float(*v, if d.is_float() { d } else { DType::F32 }),
                Operand::Int(v) => UOp::int(*v, if d == DType::Bool { DType::I64 } else { d }),
                Operand::Bool(v) => UOp::constant(monoglot_uop::Scalar::Bool(*v), d),
                Operand::Tensor(t) => t.uop()?,
            })
        })
    }

    /// −x.
    #[track_caller]
    pub fn neg(&self) -> Tensor {
        self.map(|u| match u.dtype() {
            DType::Bool => Err(Error::dtype("neg", "a bool; use logical_not")),
            _ => Ok(u.unary(Op::Neg)),
        })
    }

    /// |x|, with gradient 0 at 0.
    #[track_caller]
    pub fn abs(&self) -> Tensor {
        self.map(|u| Ok(f::abs(u)))
    }

    /// −1, 0 or 1.
    #[track_caller]
    pub fn sign(&self) -> Tensor {
        self.map(|u| Ok(if u.dtype() == DType::Bool { u.clone() } else { f::sign(u) }))
    }

    /// x².
    #[track_caller]
    pub fn square(&self) -> Tensor {
        self * self
    }

    /// Toward −∞.
    #[track_caller]
    pub fn floor(&self) -> Tensor {
        self.rounded(f::floor)
    }

    /// Toward ∞.
    #[track_caller]
    pub fn ceil(&self) -> Tensor {
        self.rounded(f::ceil)
    }

    /// To the nearest integer, halves to the even one.
    #[track_caller]
    pub fn round(&self) -> Tensor {
        self.rounded(f::round)
    }

    /// Toward zero.
    #[track_caller]
    pub fn trunc(&self) -> Tensor {
        self.rounded(|u| u.unary(Op::Trunc))
    }

    #[track_caller]
    fn rounded(&self, f: impl FnOnce(&UOp) -> UOp) -> Tensor {
        self.map(|u| Ok(if u.dtype().is_float() { real(u, f) } else { u.clone() }))
    }

    /// Whether it is NaN.
    #[track_caller]
    pub fn isnan(&self) -> Tensor {
        self.map(|u| Ok(u.ne_(u)))
    }

    /// Whether it is ∞ or −∞.
    #[track_caller]
    pub fn isinf(&self) -> Tensor {
        self.map(|u| match u.dtype().is_float() {
            true => Ok(f::abs(u).eq_(&u.like(f64::INFINITY))),
            false => Ok(u.ne_(u)),
        })
    }

    /// Whether it is neither infinite nor NaN.
    #[track_caller]
    pub fn isfinite(&self) -> Tensor {
        self.map(|u| match u.dtype().is_float() {
            true => Ok(f::abs(u).lt(&u.like(f64::INFINITY))),
            false => Ok(u.eq_(u)),
        })
    }

    /// Whether it is zero.
    #[track_caller]
    pub fn logical_not(&self) -> Tensor {
        self.map(|u| Ok(u.cast(DType::Bool).unary(Op::Not)))
    }

    /// The complement of an integer's bits, or of a bool.
    #[track_caller]
    pub fn bitwise_not(&self) -> Tensor {
        self.map(|u| UOp::try_new(Op::Not, vec![u.clone()], monoglot_uop::Arg::None))
    }

    /// Between `min` and `max`; the gradient passes at the bounds. NaN stays.
    #[track_caller]
    pub fn clamp(&self, min: impl Into<Option<f64>>, max: impl Into<Option<f64>>) -> Tensor {
        let (min, max) = (min.into(), max.into());
        self.map(|u| {
            let whole = |v: f64| u.dtype().is_float() || v == v.trunc();
            let fits = min.is_none_or(whole) && max.is_none_or(whole);
            let mut x = if fits { u.clone() } else { u.cast(DType::F32) };
            if let Some(v) = min {
                x = x.lt(&x.like(v)).select(&x.like(v), &x);
            }
            if let Some(v) = max {
                x = x.like(v).lt(&x).select(&x.like(v), &x);
            }
            Ok(x)
        })
    }

    /// a + w·(b − a).
    #[track_caller]
    pub fn lerp(&self, end: &Tensor, weight: impl Into<Operand>) -> Tensor {
        self + (end - self) * weight
    }

    /// `self` (bool) selects: a where true, b elsewhere; all three broadcast.
    #[track_caller]
    pub fn select(&self, a: impl Into<Operand>, b: impl Into<Operand>) -> Tensor {
        let (a, b) = (a.into(), b.into());
        let (a, b) = match (to_tensor(&a), to_tensor(&b)) {
            (Some(a), Some(b)) => (a, b),
            (Some(x), None) => (x.clone(), x.beside(&b)),
            (None, Some(y)) => (y.beside(&a), y),
            (None, None) => {
                let float = matches!(a, Operand::Float(_)) || matches!(b, Operand::Float(_));
                let d = if float { DType::F32 } else { DType::I64 };
                let like = Tensor::from_uop(UOp::constant(d.zero(), d));
                (like.beside(&a), like.beside(&b))
            }
        };
        Tensor::map_all(&[self, &a, &b], |u| {
            let d = promoted(&u[1], &u[2]);
            let all = broadcast("where", &[&u[0].cast(DType::Bool), &u[1].cast(d), &u[2].cast(d)])?;
            Ok(all[0].select(&all[1], &all[2]))
        })
    }

    /// `value` where `mask` is true.
    #[track_caller]
    pub fn masked_fill(&self, mask: &Tensor, value: impl Into<Operand>) -> Tensor {
        let value = self.beside(&value.into());
        Tensor::map_all(&[self, mask, &value], |u| {
            let d = u[0].dtype();
            let all = broadcast("masked_fill", &[&u[0], &u[1].cast(DType::Bool)])?;
            let v = match u[2].const_value() {
                Some(_) => u[2].cast(d),
                None => broadcast_to(&u[2].cast(d), all[0].shape())?,
            };
            let v = v.const_value().map_or(v.clone(), |c| UOp::constant(c, d));
            Ok(all[1].select(&v, &all[0]))
        })
    }

    /// The elements in another dtype: floats round to nearest even, float → integer truncates and
    /// saturates, integers wrap.
    #[track_caller]
    pub fn cast(&self, dtype: DType) -> Tensor {
        self.map(|u| Ok(u.cast(dtype)))
    }

    /// The bytes read as another dtype; the last axis rescales with the width.
    #[track_caller]
    pub fn bitcast(&self, dtype: DType) -> Tensor {
        self.map(|u| u.try_bitcast(dtype))
    }
}

/// See `Tensor::real`.
pub(crate) fn real(u: &UOp, f: impl FnOnce(&UOp) -> UOp) -> UOp {
    let d = if u.dtype().is_float() { u.dtype() } else { DType::F32 };
    f(&u.cast(d.compute_type())).cast(d)
}
