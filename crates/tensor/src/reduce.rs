//! Reductions. Flows in: a tensor, axes, whether they stay with size 1; out: the folded tensor.
//!
//! Sums and products of integers and bools are held in 64 bits; floats narrower than f32 are
//! accumulated in f32. On empty axes sum gives 0, prod 1, mean NaN, any false, all true; max, min,
//! argmax and argmin are errors.

use crate::args::Axes;
use crate::binary::turned;
use crate::elementwise::real;
use crate::functions as f;
use crate::length::product;
use crate::promote::{count as places, number, vector};
use crate::tensor::{Tensor, axis_of};
use monoglot_uop::{DType, Dim, Error, ErrorKind, Op, ReduceOp, Result, Scalar, UOp};

/// Methods that fold axes: name, what else they take, and the function, which keeps the axes.
macro_rules! folds {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $t:ty)?) $f:expr;)*) => { impl Tensor { $(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(&self, axes: impl Into<Axes>, keepdim: bool $(, $arg: $t)?) -> Tensor {
            self.reduced(stringify!($name), axes, keepdim, $f)
        }
    )* } };
}
folds! {
    /// The sum over `axes`.
    sum() |u, axes| wide(u, ReduceOp::Add, axes);
    /// The product over `axes`.
    prod() |u, axes| wide(u, ReduceOp::Mul, axes);
    /// The mean over `axes`; of integers in f32.
    mean() |u, axes| real(u, |x| mean(x, axes));
    /// The greatest over `axes`, NaN if any is; ties share the gradient.
    max() |u, axes| greatest("max", u, axes);
    /// The least over `axes`, NaN if any is; ties share the gradient.
    min() |u, axes| Ok(turned(&greatest("min", &turned(u), axes)?));
    /// Whether any element over `axes` is not zero.
    any() |u, axes| u.cast(DType::Bool).reduce(ReduceOp::Max, axes);
    /// Whether no element over `axes` is zero.
    all() |u, axes| u.cast(DType::Bool).reduce(ReduceOp::Mul, axes);
    /// The variance over `axes`: squared differences from the mean over n − `correction`.
    var(correction: i64) |u, axes| real(u, |x| var(x, axes, correction));
    /// The root of the variance; its gradient at 0 is 0.
    std(correction: i64) |u, axes| real(u, |x| Ok(root(&var(x, axes, correction)?)));
    /// ln Σ eˣ over `axes`, without overflow.
    logsumexp() |u, axes| real(u, |x| {
        let m = peak(x, axes)?;
        let e = f::exp_near(&(x - &m.expand(x.shape())?)).reduce(ReduceOp::Add, axes)?;
        Ok(f::log(&e) + m)
    });
}

impl Tensor {
    /// eˣ / Σ eˣ along `axis`.
    #[track_caller]
    pub fn softmax(&self, axis: i64) -> Tensor {
        self.along("softmax", axis, |u, a| {
            real(u, |x| {
                let e = f::exp_near(&(x - &top(x, &[a])?.expand(x.shape())?));
                let sum = e.reduce(ReduceOp::Add, &[a])?;
                // A division a row; a reciprocal of fewer bits would be no normal number.
                if x.dtype().bytes() < 4 {
                    return Ok(f::div(&e, &sum.expand(x.shape())?));
                }
                Ok(e * f::recip(&sum).expand(x.shape())?)
            })
        })
    }

    /// ln softmax(x) along `axis`.
    #[track_caller]
    pub fn log_softmax(&self, axis: i64) -> Tensor {
        self.along("log_softmax", axis, |u, a| {
            real(u, |x| {
                let z = x - &top(x, &[a])?.expand(x.shape())?;
                let s = f::log(&f::exp_near(&z).reduce(ReduceOp::Add, &[a])?);
                Ok(&z - &s.expand(x.shape())?)
            })
        })
    }

    /// The position of the greatest along `axis` as i32, the first of ties; NaN counts as greatest.
    #[track_caller]
    pub fn argmax(&self, axis: i64, keepdim: bool) -> Tensor {
        self.reduced("argmax", axis, keepdim, |u, axes| arg("argmax", u, axes))
    }

    /// The position of the least along `axis` as i32, the first of ties; NaN counts as least.
    #[track_caller]
    pub fn argmin(&self, axis: i64, keepdim: bool) -> Tensor {
        self.reduced("argmin", axis, keepdim, |u, axes| {
            arg("argmin", &turned(u), axes)
        })
    }

    /// A fold that keeps its axes with size 1, which are then dropped unless they shall stay.
    #[track_caller]
    pub(crate) fn reduced(
        &self,
        op: &str,
        axes: impl Into<Axes>,
        keepdim: bool,
        f: impl FnOnce(&UOp, &[usize]) -> Result<UOp>,
    ) -> Tensor {
        let axes = axes.into();
        self.map(|u| {
            let axes = axes.resolve(op, u.shape().len())?;
            let r = f(u, &axes)?;
            if keepdim {
                Ok(r)
            } else {
                r.squeeze_axes(&axes)
            }
        })
    }

    /// Something along one axis, or along the one that PyTorch lets a scalar have here.
    #[track_caller]
    pub(crate) fn along(
        &self,
        op: &str,
        axis: i64,
        f: impl FnOnce(&UOp, usize) -> Result<UOp>,
    ) -> Tensor {
        self.map(|u| match u.shape().len() {
            0 if (-1..=0).contains(&axis) => {
                let x = vector(u)?;
                let y = f(&x, 0)?;
                if y.shape() == x.shape() {
                    y.reshape(u.shape())
                } else {
                    Ok(y)
                }
            }
            n => f(u, axis_of(op, axis, n)?),
        })
    }
}

impl Axes {
    /// Ascending positions among `ndim` axes.
    ///
    /// # Errors
    /// An axis that is not there, or named twice.
    pub(crate) fn resolve(&self, op: &str, ndim: usize) -> Result<Vec<usize>> {
        let Axes::Some(list) = self else {
            return Ok((0..ndim).collect());
        };
        // PyTorch lets a scalar's one element be reduced along "axis 0".
        if ndim == 0 && list.iter().all(|a| (-1..=0).contains(a)) {
            return Ok(vec![]);
        }
        let mut axes = list
            .iter()
            .map(|&a| axis_of(op, a, ndim))
            .collect::<Result<Vec<_>>>()?;
        axes.sort_unstable();
        match axes.windows(2).find(|w| w[0] == w[1]) {
            Some(w) => Err(Error::argument(op, format!("axis {} twice", w[0]))),
            None => Ok(axes),
        }
    }
}

/// A sum or product, held as the top of this file says.
pub(crate) fn wide(u: &UOp, op: ReduceOp, axes: &[usize]) -> Result<UOp> {
    let d = if u.dtype().is_float() {
        u.dtype()
    } else {
        u.dtype().sum_type()
    };
    Ok(u.cast(d.compute_type()).reduce(op, axes)?.cast(d))
}

/// One axis folded and dropped in the dtype it has; of bools whether any is true.
pub(crate) fn added(u: &UOp, axis: usize) -> Result<UOp> {
    let op = if u.dtype() == DType::Bool {
        ReduceOp::Max
    } else {
        ReduceOp::Add
    };
    u.reduce(op, &[axis])?.squeeze_axes(&[axis])
}

/// The number of elements that a fold of these axes takes together less `correction`, and not below 0, as a value
/// of the dtype and shape of `folded`.
fn count(x: &UOp, axes: &[usize], correction: i64, folded: &UOp) -> Result<UOp> {
    let sizes: Vec<Dim> = axes.iter().map(|&a| x.shape()[a].clone()).collect();
    let left = match product(&sizes) {
        Dim::Int(n) => return Ok(folded.like((n - correction).max(0))),
        Dim::Sym(n) => (n - correction).max_(&UOp::index_const(0)),
    };
    number(&Dim::of(&left), folded.dtype(), folded.shape())
}

pub(crate) fn mean(x: &UOp, axes: &[usize]) -> Result<UOp> {
    let sum = x.reduce(ReduceOp::Add, axes)?;
    Ok(f::div(&sum, &count(x, axes, 0, &sum)?))
}

pub(crate) fn var(x: &UOp, axes: &[usize], correction: i64) -> Result<UOp> {
    let apart = x - &mean(x, axes)?.expand(x.shape())?;
    let sum = (&apart * &apart).reduce(ReduceOp::Add, axes)?;
    Ok(f::div(&sum, &count(x, axes, correction, &sum)?))
}

/// The greatest, as a constant to the gradient.
pub(crate) fn top(x: &UOp, axes: &[usize]) -> Result<UOp> {
    Ok(x.reduce(ReduceOp::Max, axes)?.unary(Op::Detach))
}

/// As `top`, 0 where it is infinite, so that it can be subtracted.
pub(crate) fn peak(x: &UOp, axes: &[usize]) -> Result<UOp> {
    let m = top(x, axes)?;
    Ok(f::abs(&m)
        .eq_(&m.like(f64::INFINITY))
        .select(&m.like(0.0), &m))
}

/// √v for v ≥ 0, with gradient 0 at 0.
fn root(v: &UOp) -> UOp {
    let flat = v.eq_(&v.like(0.0));
    let root = flat.select(&v.like(1.0), v).unary(Op::Sqrt);
    flat.select(&v.like(0.0), &root)
}

/// The greatest; an error where there is none.
fn greatest(op: &str, u: &UOp, axes: &[usize]) -> Result<UOp> {
    if let Some(&a) = axes.iter().find(|&&a| u.shape()[a].min() < 1) {
        let why = match u.shape()[a] {
            Dim::Int(_) => "has no elements",
            Dim::Sym(_) => "can have no elements: let its length begin at 1",
        };
        let message = format!("axis {a} of shape {} {why}", u.shape());
        return Err(ErrorKind::Empty {
            op: op.into(),
            message,
        }
        .into());
    }
    u.reduce(ReduceOp::Max, axes)
}

/// The first position of the greatest: the least distance from the end among those that equal it.
fn arg(op: &str, u: &UOp, axes: &[usize]) -> Result<UOp> {
    // Of the same bits as what it is found among, wherever somebody keeps the greatest by itself.
    let u = &u.unary(Op::Detach);
    let m = greatest(op, u, axes)?.expand(u.shape())?;
    let Some(&a) = axes.first() else {
        return Ok(UOp::full(Scalar::Int(0), DType::I32, u.shape()));
    };
    // The greatest length is as far from the end as any.
    let n = u.shape()[a].max();
    if n > i64::from(i32::MAX) {
        let message = format!("places among {n} elements, which i32 does not hold");
        return Err(Error::shape(op, message));
    }
    let hit = if u.dtype().is_float() {
        u.eq_(&m) | u.ne_(u)
    } else {
        u.eq_(&m)
    };
    let back = places(a, u.shape(), DType::I32)?.unary(Op::Neg) + n;
    let first = hit
        .select(&back, &back.like(0))
        .reduce(ReduceOp::Max, axes)?;
    Ok(first.unary(Op::Neg) + n)
}
