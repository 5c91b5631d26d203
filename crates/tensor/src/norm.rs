//! Normalisations: flows in, a tensor and the weights of its kind; out, (x − mean)/√(variance + ε),
//! weighted. Half types are computed in f32 and rounded at the end.

use crate::args::Dims;
use crate::functions as f;
use crate::promote::broadcast_to;
use crate::reduce::mean;
use crate::tensor::Tensor;
use monoglot_uop::{DType, Dim, Error, Op, ReduceOp, Result, Shape, UOp};

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
            wide(u, |x| standard(x, &axes, eps))
        });
        y.scaled(self, weight, bias)
    }

    /// x / √(mean of x² + ε) over the last axes, whose sizes are `shape`.
    #[track_caller]
    pub fn rms_norm(&self, shape: impl Into<Dims>, weight: Option<&Tensor>, eps: f64) -> Tensor {
        let shape = shape.into().0;
        let y = self.map(|u| {
            let axes = trailing("rms_norm", u, &shape)?;
            wide(u, |x| {
                let scale = f::recip(&(mean(&(x * x), &axes)? + eps).unary(Op::Sqrt));
                Ok(x * &scale.expand(x.shape())?)
            })
        });
        y.scaled(self, weight, None)
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
            let s = u.sizes("group_norm")?;
            if s.len() < 2 || groups < 1 || s[1] % groups != 0 {
                return Err(Error::shape("group_norm", format!("{groups} groups of shape {}", u.shape())));
            }
            let split = Shape::of(&[&[s[0], groups, s[1] / groups], &s[2..]].concat());
            let axes: Vec<usize> = (2..=s.len()).collect();
            wide(u, |x| standard(&x.reshape(&split)?, &axes, eps)?.reshape(u.shape()))
        });
        y.per_channel(self, weight, bias)
    }

    /// Over all axes after the channels, for each element of the batch.
    #[track_caller]
    pub fn instance_norm(&self, weight: Option<&Tensor>, bias: Option<&Tensor>, eps: f64) -> Tensor {
        let y = self.map(|u| {
            if u.shape().len() < 3 {
                return Err(Error::shape(
                    "instance_norm",
                    format!("shape {} has no axes to norm", u.shape()),
                ));
            }
            let axes: Vec<usize> = (2..u.shape().len()).collect();
            wide(u, |x| standard(x, &axes, eps))
        });
        y.per_channel(self, weight, bias)
    }

    /// Over the batch and all axes after the channels (axis 1). Also gives the batch's mean and its
    /// variance with correction 1, from which running statistics are kept.
    #[track_caller]
    pub fn batch_norm_train(
        &self,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
    ) -> (Tensor, Tensor, Tensor) {
        let axes: Vec<i64> = match self.ndim() {
            Ok(n) if n >= 2 => (0..n as i64).filter(|&i| i != 1).collect(),
            Ok(n) => {
                let message = format!("{n} axes; batch and channels are needed");
                let failed = Tensor::failed(Error::shape("batch_norm", message));
                return (failed.clone(), failed.clone(), failed);
            }
            Err(e) => {
                let failed = Tensor::failed(e);
                return (failed.clone(), failed.clone(), failed);
            }
        };
        let at: Vec<usize> = axes.iter().map(|&a| a as usize).collect();
        let y = self.map(|u| wide(u, |x| standard(x, &at, eps)));
        (
            y.per_channel(self, weight, bias),
            self.mean(&axes, false).detach(),
            self.var(&axes, false, 1).detach(),
        )
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
        y.per_channel(self, weight, bias)
    }

    /// A number per channel in a shape that broadcasts with `like`.
    #[track_caller]
    fn channels(&self, like: &Tensor) -> Tensor {
        Tensor::map_all(&[self, like], |u| {
            let n = u[1].shape().len();
            if n < 2 || u[0].shape().len() != 1 || u[0].shape()[0] != u[1].shape()[1] {
                let message = format!("{} for the channels of shape {}", u[0].shape(), u[1].shape());
                return Err(Error::shape("norm", message));
            }
            let dims = [u[0].shape()[0].clone()].into_iter().chain(vec![Dim::Int(1); n - 2]);
            u[0].reshape(&Shape::new(dims))
        })
    }

    #[track_caller]
    fn per_channel(self, like: &Tensor, weight: Option<&Tensor>, bias: Option<&Tensor>) -> Tensor {
        let (w, b) = (weight.map(|w| w.channels(like)), bias.map(|b| b.channels(like)));
        self.scaled(like, w.as_ref(), b.as_ref())
    }

    #[track_caller]
    fn scaled(self, like: &Tensor, weight: Option<&Tensor>, bias: Option<&Tensor>) -> Tensor {
        let mut y = self;
        if let Some(w) = weight {
            y = y * w;
        }
        if let Some(b) = bias {
            y = y + b;
        }
        match (like.dtype(), y.dtype()) {
            (Ok(a), Ok(b)) if a.is_float() && a != b && weight.is_none() => y.cast(a),
            _ => y,
        }
    }
}

/// The axes whose sizes are `shape`: the last ones.
fn trailing(op: &str, u: &UOp, shape: &[i64]) -> Result<Vec<usize>> {
    let s = u.sizes(op)?;
    if shape.is_empty() || !s.ends_with(shape) {
        return Err(Error::shape(op, format!("{shape:?} is not how shape {} ends", u.shape())));
    }
    Ok((s.len() - shape.len()..s.len()).collect())
}

fn wide(u: &UOp, f: impl FnOnce(&UOp) -> Result<UOp>) -> Result<UOp> {
    let d = if u.dtype().is_float() { u.dtype() } else { DType::F32 };
    Ok(f(&u.cast(d.compute_type()))?.cast(d))
}

/// Mean 0 and variance 1 over `axes`.
fn standard(x: &UOp, axes: &[usize], eps: f64) -> Result<UOp> {
    let apart = x - &broadcast_to(&mean(x, axes)?, x.shape())?;
    let n = axes.iter().map(|&a| x.shape()[a].max()).product::<i64>();
    let spread = f::div(&(&apart * &apart).reduce(ReduceOp::Add, axes)?, &x.like(n));
    Ok(&apart * &f::recip(&(spread + eps).unary(Op::Sqrt)).expand(x.shape())?)
}
