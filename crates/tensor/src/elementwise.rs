//! Elementwise methods of one operand, and selection. Flows in: tensors; out: tensors of the same (or
//! broadcast) shape.
//!
//! Functions of real numbers turn integers and bools into f32, and compute floats narrower than f32 in
//! f32.

use crate::functions as f;
use crate::promote::{broadcast, held, together};
use crate::tensor::{Tensor, tri};
use crate::{DType, Operand};
use monoglot_uop::gradient::scale;
use monoglot_uop::node::Flow;
use monoglot_uop::{Arg, Device, Error, Op, Result, Scalar, UOp};

/// Methods of one operand: name, arguments, how the function is applied (`real`, `whole`, `same`, or
/// `map` where it may fail), and the function.
macro_rules! methods {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $t:ty),*) $how:ident $f:expr;)*) => { impl Tensor { $(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(&self $(, $arg: $t)*) -> Tensor { self.$how($f) }
    )* } };
}
pub(crate) use methods;

methods! {
    /// eˣ.
    exp() real f::exp;
    /// 2ˣ.
    exp2() real |x| x.unary(Op::Exp2);
    /// eˣ − 1, exact near 0.
    expm1() real f::expm1;
    /// ln x.
    log() real f::log;
    /// log₂ x.
    log2() real |x| x.unary(Op::Log2);
    /// log₁₀ x.
    log10() real |x| scale(&x.unary(Op::Log2), std::f64::consts::LOG10_2);
    /// ln(1 + x), exact near 0.
    log1p() real f::log1p;
    /// √x.
    sqrt() real |x| x.unary(Op::Sqrt);
    /// 1/√x.
    rsqrt() real |x| f::recip(&x.unary(Op::Sqrt));
    /// 1/x.
    reciprocal() real f::recip;
    /// sin x.
    sin() real |x| x.unary(Op::Sin);
    /// cos x.
    cos() real f::cos;
    /// tan x.
    tan() real f::tan;
    /// arcsin x.
    asin() real f::asin;
    /// arccos x.
    acos() real f::acos;
    /// arctan x.
    atan() real f::atan;
    /// sinh x.
    sinh() real f::sinh;
    /// cosh x.
    cosh() real f::cosh;
    /// tanh x.
    tanh() real f::tanh;
    /// arsinh x.
    asinh() real f::asinh;
    /// arcosh x.
    acosh() real f::acosh;
    /// artanh x.
    atanh() real f::atanh;
    /// The error function.
    erf() real f::erf;
    /// 1 / (1 + e⁻ˣ).
    sigmoid() real f::sigmoid;
    /// Toward −∞.
    floor() whole f::floor;
    /// Toward ∞.
    ceil() whole f::ceil;
    /// To the nearest integer, halves to the even one.
    round() whole f::round;
    /// Toward zero.
    trunc() whole |x| x.unary(Op::Trunc);
    /// The same value, through which no gradient flows.
    detach() same |x| x.unary(Op::Detach);
    /// The same value in storage of its own.
    contiguous() same |x| x.unary(Op::Contiguous);
    /// The same value; its gradient is put in storage of its own.
    contiguous_backward() same |x| x.unary(Op::ContiguousBackward);
    /// |x|, with gradient 0 at 0.
    abs() same f::abs;
    /// −1, 0 or 1.
    sign() same f::sign;
    /// x²; of bools as i64.
    square() same |x| {
        let x = if x.dtype() == DType::Bool { &x.cast(DType::I64) } else { x };
        x.binary(Op::Mul, x)
    };
    /// Whether it is NaN.
    isnan() same |x| x.ne_(x);
    /// Whether it is ∞ or −∞.
    isinf() same |x| if x.dtype().is_float() { f::abs(x).eq_(&x.like(f64::INFINITY)) } else { x.ne_(x) };
    /// Whether it is neither infinite nor NaN.
    isfinite() same |x| if x.dtype().is_float() { f::abs(x).lt(&x.like(f64::INFINITY)) } else { x.eq_(x) };
    /// Whether it is zero.
    logical_not() same |x| x.cast(DType::Bool).unary(Op::Not);
    /// The complement of an integer's bits, or of a bool.
    bitwise_not() map |x| UOp::try_new(Op::Not, vec![x.clone()], Arg::None);
    /// −x.
    neg() map |x| match x.dtype() {
        DType::Bool => Err(Error::dtype("neg", "a bool; use logical_not")),
        _ => Ok(x.unary(Op::Neg)),
    };
    /// The elements in another dtype: floats round to nearest even, float → integer truncates and
    /// saturates, integers wrap.
    cast(dtype: DType) map |x| match dtype {
        DType::Void => Err(Error::dtype("cast", "no value is void")),
        d => Ok(x.cast(d)),
    };
    /// The bytes read as another dtype; the last axis rescales with the width.
    bitcast(dtype: DType) map |x| x.try_bitcast(dtype);
    /// The same value on another device.
    to(device: Device) same |x| x.copy_to(device);
    /// Zeros of this tensor's shape and dtype.
    zeros_like() same |x| UOp::full(x.dtype().zero(), x.dtype(), x.shape());
    /// Ones of this tensor's shape and dtype.
    ones_like() same |x| UOp::full(x.dtype().one(), x.dtype(), x.shape());
}

impl Tensor {
    /// A function of real numbers: integers become f32, narrow floats are computed in f32.
    #[track_caller]
    pub(crate) fn real(&self, f: impl FnOnce(&UOp) -> UOp) -> Tensor {
        self.map(|u| real(u, |x| Ok(f(x))))
    }

    /// A function of real numbers that leaves integers as they are.
    #[track_caller]
    fn whole(&self, f: impl FnOnce(&UOp) -> UOp) -> Tensor {
        self.map(|u| {
            if u.dtype().is_float() {
                real(u, |x| Ok(f(x)))
            } else {
                Ok(u.clone())
            }
        })
    }

    /// A function of elements of any dtype.
    #[track_caller]
    pub(crate) fn same(&self, f: impl FnOnce(&UOp) -> UOp) -> Tensor {
        self.map(|u| Ok(f(u)))
    }

    /// As `beside`, for a literal that takes the place of values, so that their dtype must hold it.
    #[track_caller]
    pub(crate) fn instead(&self, op: &str, literal: &Operand) -> Tensor {
        let d = tri!(self.dtype());
        if let Operand::Int(v) = literal
            && let Err(e) = held(op, i128::from(*v), d)
        {
            return Tensor::failed(e);
        }
        self.beside(literal)
    }

    /// For values of this dtype: a literal as a constant, in the dtype of computing where it is no value
    /// of a narrow float.
    #[track_caller]
    pub(crate) fn beside(&self, literal: &Operand) -> Tensor {
        self.map(|u| {
            let d = u.dtype();
            let float = |v: f64| {
                let same = d.from_f64(v).to_f64() == v;
                UOp::float(v, if same { d } else { d.compute_type() })
            };
            Ok(match literal {
                Operand::Float(v) if d.is_float() => float(*v),
                Operand::Int(v) if d.is_float() => float(*v as f64),
                Operand::Float(v) => UOp::float(*v, DType::F32),
                Operand::Int(v) => UOp::int(*v, if d == DType::Bool { DType::I64 } else { d }),
                Operand::Bool(v) => UOp::constant(Scalar::Bool(*v), d),
                Operand::Tensor(t) => t.uop()?,
            })
        })
    }

    /// Between `min` and `max`; the gradient passes at the bounds. NaN stays, and gets none. Bools become
    /// i64, or f32 as other integers do where a bound is no integer.
    #[track_caller]
    pub fn clamp(&self, min: impl Into<Option<f64>>, max: impl Into<Option<f64>>) -> Tensor {
        let min = min.into();
        let max = max.into();
        self.map(|u| {
            let whole = |v: f64| u.dtype().is_float() || v == v.trunc();
            let fits = min.is_none_or(whole) && max.is_none_or(whole);
            let x = match u.dtype() {
                _ if !fits => u.cast(DType::F32),
                DType::Bool => u.cast(DType::I64),
                _ => u.clone(),
            };
            let mut y = x.clone();
            if let Some(v) = min {
                y = y.lt(&y.like(v)).select(&y.like(v), &y);
            }
            if let Some(v) = max {
                y = y.like(v).lt(&y).select(&y.like(v), &y);
            }
            Ok(kept(&y, &x))
        })
    }

    /// a + w·(b − a), which is b where w is 1: from the end that is nearer.
    #[track_caller]
    pub fn lerp(&self, end: &Tensor, weight: impl Into<Operand>) -> Tensor {
        let weight = weight.into();
        let plain = self + (end - self) * weight.clone();
        let d = tri!(plain.dtype());
        if !d.is_float() {
            return plain;
        }
        let w = weight.tensor(&Operand::Tensor(plain));
        Tensor::map_all(&[self, end, &w], |u| {
            let wide = |k: usize| u[k].cast(d.compute_type());
            let all = broadcast("lerp", &[&wide(0), &wide(1), &wide(2)])?;
            Ok(f::lerp(&all[0], &all[1], &all[2]).cast(d))
        })
    }

    /// `self` (bool) selects: a where true, b elsewhere; all three broadcast. A literal beside a tensor of integers is one
    /// that these reach.
    #[track_caller]
    pub fn select(&self, a: impl Into<Operand>, b: impl Into<Operand>) -> Tensor {
        let a = a.into();
        let b = b.into();
        let first = a.held_by(&b);
        let second = b.held_by(&a);
        self.choose("where", &first, &second)
    }

    #[track_caller]
    fn choose(&self, op: &str, a: &Operand, b: &Operand) -> Tensor {
        Tensor::map_all(&[self, &a.tensor(b), &b.tensor(a)], |u| {
            let d = together((&u[1], a.weight(&u[1])), (&u[2], b.weight(&u[2])));
            let all = broadcast(op, &[&u[0].cast(DType::Bool), &u[1].cast(d), &u[2].cast(d)])?;
            Ok(all[0].select(&all[1], &all[2]))
        })
    }

    /// `value` where `mask` is true.
    #[track_caller]
    pub fn masked_fill(&self, mask: &Tensor, value: impl Into<Operand>) -> Tensor {
        mask.choose(
            "masked_fill",
            &self
                .instead("masked_fill", &value.into())
                .cast(tri!(self.dtype()))
                .into(),
            &self.into(),
        )
    }
}

impl Operand {
    /// As a tensor: a literal has the dtype that it takes beside the other one.
    #[track_caller]
    pub(crate) fn tensor(&self, other: &Operand) -> Tensor {
        let alone = |d: DType| Tensor::from_uop(UOp::constant(d.zero(), d)).beside(self);
        match (self, other) {
            (Operand::Tensor(t), _) => t.clone(),
            (_, Operand::Tensor(t)) => t.beside(self),
            (Operand::Float(_), _) | (_, Operand::Float(_)) => alone(DType::F32),
            (Operand::Bool(_), Operand::Bool(_)) => alone(DType::Bool),
            _ => alone(DType::I64),
        }
    }

    /// A literal that takes the place of values of the other one, where those are integers and reach it.
    #[track_caller]
    fn held_by(&self, other: &Operand) -> Operand {
        match (self, other) {
            (Operand::Int(_), Operand::Tensor(t)) if t.dtype().is_ok_and(DType::is_int) => {
                t.instead("where", self).into()
            }
            _ => self.clone(),
        }
    }

    /// How much `u`, its value, counts for the dtype of a result: a literal less than a tensor, a scalar less than what
    /// has axes.
    pub(crate) fn weight(&self, u: &UOp) -> usize {
        match self {
            Operand::Tensor(_) if u.shape().is_empty() => 1,
            Operand::Tensor(_) => 2,
            _ => 0,
        }
    }
}

/// y, whose gradient flows to x where it is x: what is NaN is nothing's equal, so the parts would differ, and
/// the result is a marker.
fn kept(y: &UOp, x: &UOp) -> UOp {
    let rule = |f: &Flow<'_>| {
        let (x, y) = f::afresh(f);
        let same = y.eq_(&x);
        Ok(vec![Some(same.select(f.g, &f.g.like(0)))])
    };
    f::known(y.unary(Op::ContiguousBackward), &[x], &[], rule)
}

/// See `Tensor::real`.
pub(crate) fn real(u: &UOp, f: impl FnOnce(&UOp) -> Result<UOp>) -> Result<UOp> {
    let d = if u.dtype().is_float() {
        u.dtype()
    } else {
        DType::F32
    };
    Ok(f(&u.cast(d.compute_type()))?.cast(d))
}
