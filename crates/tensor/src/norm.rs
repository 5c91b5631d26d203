//! Normalisations: flows in, a tensor and the weights of its kind; out, (x − mean)/√(variance + ε),
//! weighted. Half types are computed in f32 and rounded at the end.

use crate::args::Dims;
use crate::elementwise::real;
use crate::functions as f;
use crate::promote::{number, size_of};
use crate::reduce::{mean, var};
use crate::tensor::{Tensor, tri};
use monoglot_uop::node::Srcs;
use monoglot_uop::{DType, Dim, Error, Op, Result, Shape, UOp};

impl Tensor {
    /// Over the last axes, whose sizes are `shape`; weight and bias have that shape.
    #[track_caller]
    pub fn layer_norm(
        &self,
        shape: impl Into<Dims>,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
    ) -> Tensor {
        let shape = shape.into().0;
        let y = self.map(|u| {
            let axes = trailing("layer_norm", u, &shape)?;
            of_shape("layer_norm", [weight, bias], &shape)?;
            standard(u, &axes, eps)
        });
        y.weighted(weight, bias)
    }

    /// x / √(mean of x² + ε) over the last axes, whose sizes are `shape`; the weight has that shape.
    #[track_caller]
    pub fn rms_norm(&self, shape: impl Into<Dims>, weight: Option<&Tensor>, eps: f64) -> Tensor {
        let shape = shape.into().0;
        let y = self.map(|u| {
            let axes = trailing("rms_norm", u, &shape)?;
            of_shape("rms_norm", [weight, None], &shape)?;
            real(u, |x| divided(x, &mean(&(x * x), &axes)?, eps))
        });
        y.weighted(weight, None)
    }

    /// Over groups of channels (axis 1) and all later axes; weight and bias have a number per channel.
    #[track_caller]
    pub fn group_norm(
        &self,
        groups: i64,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
    ) -> Tensor {
        let y = self.map(|u| {
            let s = u.shape();
            let channels = match s.len() {
                2.. => size_of("group_norm", u, 1)?,
                _ => -1,
            };
            if groups < 1 || channels < 0 || channels % groups != 0 {
                return Err(Error::shape(
                    "group_norm",
                    format!("{groups} groups of shape {}", u.shape()),
                ));
            }
            let each = [groups, channels / groups].map(Dim::Int);
            let split = [&s[..1], &each, &s[2..]].concat();
            let axes: Vec<usize> = (2..=s.len()).collect();
            standard(&u.reshape(&Shape::new(split))?, &axes, eps)?.reshape(u.shape())
        });
        y.per_channel(weight, bias)
    }

    /// Over all axes after the channels, for each element of the batch.
    #[track_caller]
    pub fn instance_norm(
        &self,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
    ) -> Tensor {
        let y = self.map(|u| {
            let axes: Vec<usize> = (2..u.shape().len()).collect();
            if axes.is_empty() {
                let message = format!("shape {} has no axes to norm", u.shape());
                return Err(Error::shape("instance_norm", message));
            }
            standard(u, &axes, eps)
        });
        y.per_channel(weight, bias)
    }

    /// Over the batch and all axes after the channels (axis 1). Also gives the batch's mean and its
    /// variance with correction 1, from which running statistics are kept: in f32 where `self` is of a half type.
    /// Of one value a channel there is no such variance: a shape error.
    #[track_caller]
    pub fn batch_norm_train(
        &self,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
    ) -> (Tensor, Tensor, Tensor) {
        let x = self.map(|u| {
            let message = match &u.shape()[..] {
                [] | [_] => "batch and channels are needed",
                [n, _, rest @ ..] if Dim::product([n].into_iter().chain(rest)) == Dim::Int(1) => {
                    "one value a channel has no variance to train by"
                }
                _ => return Ok(u.clone()),
            };
            let message = format!("shape {}: {message}", u.shape());
            Err(Error::shape("batch_norm", message))
        });
        let axes: Vec<usize> = (0..x.ndim().unwrap_or(0)).filter(|&a| a != 1).collect();
        let y = x.map(|u| standard(u, &axes, eps));
        let wide = x.same(|u| u.cast(u.dtype().compute_type()));
        (
            y.per_channel(weight, bias),
            wide.mean(&axes, false).detach(),
            wide.var(&axes, false, 1).detach(),
        )
    }

    /// Running statistics of every channel, moved towards those of this batch by a share; as they were where it has fewer
    /// than two values a channel, as a batch whose length varies may.
    #[track_caller]
    pub fn batch_norm_moved(&self, running: &Tensor, batch: &Tensor, share: f64) -> Tensor {
        Tensor::map_all(&[self, running, batch], |u| {
            let [x, running, batch] = [&u[0], &u[1].cast(u[2].dtype()), &u[2]];
            let moved = running * (1.0 - share) + batch * share;
            let others = x.shape().iter().enumerate().filter(|(a, _)| *a != 1);
            let values = Dim::product(others.map(|(_, n)| n));
            if values.min() > 1 {
                return Ok(moved);
            }
            let values = number(&values, DType::I64, moved.shape())?;
            Ok(values.like(1i64).lt(&values).select(&moved, running))
        })
    }

    /// By given statistics of every channel (axis 1).
    #[track_caller]
    pub fn batch_norm_eval(
        &self,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        mean: &Tensor,
        variance: &Tensor,
        eps: f64,
    ) -> Tensor {
        let scale = (variance + eps).rsqrt();
        let y = (self - &mean.channels(self)) * &scale.channels(self);
        y.per_channel(weight, bias)
    }

    /// A number per channel in a shape that broadcasts with `like`.
    #[track_caller]
    fn channels(&self, like: &Tensor) -> Tensor {
        Tensor::map_all(&[self, like], |u| {
            let n = u[1].shape().len();
            if n < 2 || u[0].shape().len() != 1 || u[0].shape()[0] != u[1].shape()[1] {
                let message = format!(
                    "{} for the channels of shape {}",
                    u[0].shape(),
                    u[1].shape()
                );
                return Err(Error::shape("per channel", message));
            }
            let dims = [u[0].shape()[0].clone()]
                .into_iter()
                .chain(vec![Dim::Int(1); n - 2]);
            u[0].reshape(&Shape::new(dims))
        })
    }

    #[track_caller]
    pub(crate) fn per_channel(self, weight: Option<&Tensor>, bias: Option<&Tensor>) -> Tensor {
        let mut each = [None, None];
        for (own, given) in each.iter_mut().zip([weight, bias]) {
            if let Some(t) = given {
                *own = Some(t.channels(&self));
            }
        }
        self.weighted(each[0].as_ref(), each[1].as_ref())
    }

    /// Times a weight, and with a bias, where there are; of what was just computed, which is rounded once, at the end.
    #[track_caller]
    pub(crate) fn weighted(self, weight: Option<&Tensor>, bias: Option<&Tensor>) -> Tensor {
        if weight.is_none() && bias.is_none() {
            return self;
        }
        let wide = self.same(unrounded);
        let y = match weight {
            Some(w) => wide * w,
            None => wide,
        };
        let y = match bias {
            Some(b) => y + b,
            None => y,
        };
        let parts = [Some(&self), weight, bias].into_iter().flatten();
        let promoted = parts.map(Tensor::dtype).reduce(|d, e| Ok(d?.promote(e?)));
        match promoted {
            Some(d) => y.cast(tri!(d)),
            None => y,
        }
    }
}

/// What a value was before it was rounded to a half type, where that was done last, but for its shape, and no derivative
/// is known that begins there.
fn unrounded(u: &UOp) -> UOp {
    let from = u.src().first().filter(|_| u.shortcut().is_none());
    match (u.op(), from) {
        (Op::Cast, Some(wide)) if wide.dtype() == u.dtype().compute_type() => wide.clone(),
        (Op::Reshape, Some(of)) => {
            let mut src = Srcs::from(u.src());
            src[0] = unrounded(of);
            u.with_src(src)
        }
        _ => u.clone(),
    }
}

/// The axes whose sizes are `shape`: the last ones.
fn trailing(op: &str, u: &UOp, shape: &[i64]) -> Result<Vec<usize>> {
    let s = u.shape();
    let wanted: Vec<Dim> = shape.iter().map(|&n| Dim::Int(n)).collect();
    if shape.is_empty() || !s.ends_with(&wanted) {
        return Err(Error::shape(
            op,
            format!("{shape:?} is not how shape {} ends", u.shape()),
        ));
    }
    Ok((s.len() - shape.len()..s.len()).collect())
}

/// Whether a weight and a bias have this shape.
fn of_shape(op: &str, all: [Option<&Tensor>; 2], shape: &[i64]) -> Result<()> {
    for (what, t) in ["weight", "bias"].into_iter().zip(all) {
        let Some(t) = t else { continue };
        let has = t.uop()?.shape().clone();
        if has.ints().as_deref() != Some(shape) {
            let message = format!("a {what} of shape {has}, where the axes are {shape:?}");
            return Err(Error::shape(op, message));
        }
    }
    Ok(())
}

/// Mean 0 and variance 1 over `axes`.
fn standard(u: &UOp, axes: &[usize], eps: f64) -> Result<UOp> {
    real(u, |x| {
        let apart = x - &mean(x, axes)?.expand(x.shape())?;
        divided(&apart, &var(x, axes, 0)?, eps)
    })
}

/// x / √(variance + ε).
fn divided(x: &UOp, variance: &UOp, eps: f64) -> Result<UOp> {
    Ok(x * &f::recip(&(variance + eps).unary(Op::Sqrt)).expand(x.shape())?)
}
