//! Losses. Flows in: predictions and targets; out: a mean, a sum, or the loss of each element.

use crate::functions as f;
use crate::index::{counting, named};
use crate::promote::number;
use crate::reduce::wide;
use crate::tensor::{Tensor, tri};
use monoglot_uop::{DType, Dim, Error, ErrorKind, Op, ReduceOp, Result, Shape, UOp};

/// What is made of the losses of single elements.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// Their mean (weighted by how many targets count).
    Mean,
    /// Their sum.
    Sum,
    /// They stay.
    None,
}

/// Targets of this class do not count.
const IGNORED: i64 = -100;

impl Tensor {
    /// −ln softmax(x) at the target classes. `self` is (n, classes, …) or (classes); `target` holds
    /// classes as integers, without that axis (−100: does not count), or probabilities in `self`'s
    /// shape. `smoothing` of the weight is spread over all classes. Realizing it is an error where an
    /// integer is no class.
    #[track_caller]
    pub fn cross_entropy(&self, target: &Tensor, reduction: Reduction, smoothing: f64) -> Tensor {
        let axis = class_axis(tri!(self.ndim()));
        if !(0.0..=1.0).contains(&smoothing) {
            let message = format!("a smoothing of {smoothing}; it is a share, from 0 to 1");
            return Tensor::failed(Error::argument("cross_entropy", message));
        }
        let logs = self.log_softmax(axis as i64);
        let dtype = tri!(target.dtype());
        if !dtype.is_float() {
            return logs.pick_classes("cross_entropy", target, reduction, smoothing);
        }
        let shape = tri!(self.dims());
        let of_target = tri!(target.dims());
        if of_target != shape {
            let message = format!("probabilities {of_target} for shape {shape}");
            return Tensor::failed(Error::shape("cross_entropy", message));
        }
        let soft = if smoothing > 0.0 {
            target * (1.0 - smoothing) + share(&shape[axis], smoothing, dtype)
        } else {
            target.clone()
        };
        (logs * soft).sum(axis, false).neg().averaged(reduction)
    }

    /// −x at the target classes, for x that are logarithms of probabilities, as in `cross_entropy`.
    #[track_caller]
    pub fn nll_loss(&self, target: &Tensor, reduction: Reduction) -> Tensor {
        self.pick_classes("nll_loss", target, reduction, 0.0)
    }

    #[track_caller]
    fn pick_classes(
        &self,
        op: &str,
        target: &Tensor,
        reduction: Reduction,
        smoothing: f64,
    ) -> Tensor {
        let axis = class_axis(tri!(self.ndim()));
        // Where there is no such axis, what follows says so.
        let classes = tri!(self.uop()).shape().get(axis).cloned();
        if let Some(n @ Dim::Sym(_)) = &classes {
            let message = format!("{n:?} classes: their number does not vary");
            let op = op.into();
            return Tensor::failed(ErrorKind::Unsupported { op, message }.into());
        }
        let target = match classes.as_ref().and_then(Dim::as_int) {
            Some(n) => target.naming(op, "classes", 0..n, Some(IGNORED)),
            None => target.clone(),
        };
        let target = &target.same(counting);
        let each = Tensor::map_all(&[self, target], |u| {
            class_losses(op, &u[0], &u[1], smoothing)
        });
        if reduction != Reduction::Mean {
            return each.averaged(reduction);
        }
        let d = tri!(self.dtype());
        // A half type has no place for the sum.
        let total = each.cast(d.compute_type()).sum(.., false);
        (total / target.ne(IGNORED).cast(DType::F32).sum(.., false)).cast(d)
    }

    /// The mean of squared differences.
    #[track_caller]
    pub fn mse_loss(&self, target: &Tensor, reduction: Reduction) -> Tensor {
        (self - target).square().averaged(reduction)
    }

    /// The mean of absolute differences.
    #[track_caller]
    pub fn l1_loss(&self, target: &Tensor, reduction: Reduction) -> Tensor {
        (self - target).abs().averaged(reduction)
    }

    /// −t·ln σ(x) − (1 − t)·ln(1 − σ(x)) for targets t between 0 and 1, without overflow.
    #[track_caller]
    pub fn bce_with_logits(&self, target: &Tensor, reduction: Reduction) -> Tensor {
        let each = Tensor::map_all(&[self, target], |u| {
            let d = u[0].dtype();
            if u[0].shape() != u[1].shape() || !d.is_float() {
                let message = format!("{d} {} and targets {}", u[0].shape(), u[1].shape());
                return Err(Error::shape("bce_with_logits", message));
            }
            let x = u[0].cast(d.compute_type());
            let t = u[1].cast(d.compute_type());
            Ok((f::softplus(&x) - x * t).cast(d))
        });
        each.averaged(reduction)
    }

    #[track_caller]
    fn averaged(&self, reduction: Reduction) -> Tensor {
        match reduction {
            Reduction::Mean => self.mean(.., false),
            Reduction::Sum => self.sum(.., false),
            Reduction::None => self.clone(),
        }
    }
}

/// What each of so many classes has of the smoothing.
fn share(classes: &Dim, smoothing: f64, dtype: DType) -> Tensor {
    let n = number(classes, dtype.compute_type(), &Shape::SCALAR);
    Tensor::wrap(n.map(|n| n.like(smoothing).binary(Op::Div, &n)))
}

/// Where the classes are: (n, classes, …) or (classes).
fn class_axis(ndim: usize) -> usize {
    ndim.min(2).saturating_sub(1)
}

/// −logs at the target classes, 0 where the target does not count.
fn class_losses(op: &str, logs: &UOp, target: &UOp, smoothing: f64) -> Result<UOp> {
    let axis = class_axis(logs.shape().len());
    let mut rest: Vec<Dim> = logs.shape().to_vec();
    let classes = (!rest.is_empty())
        .then(|| rest.remove(axis).as_int())
        .flatten();
    let Some(n) = classes.filter(|_| target.shape().to_vec() == rest && target.dtype().is_int())
    else {
        let message = format!(
            "classes {} {} for predictions {}",
            target.dtype(),
            target.shape(),
            logs.shape()
        );
        return Err(Error::shape(op, message));
    };
    let hit = named(op, target, axis, n)?;
    let d = logs.dtype();
    let zero = UOp::constant(d.zero(), d);
    let total = |u: &UOp| wide(u, ReduceOp::Add, &[axis])?.squeeze_axes(&[axis]);
    let mut loss = total(&hit.select(logs, &zero))?.unary(Op::Neg);
    if smoothing > 0.0 {
        let all = total(logs)? * (-smoothing / n as f64);
        let valid = target.ne_(&target.like(IGNORED));
        loss = loss * (1.0 - smoothing) + valid.select(&all, &zero);
    }
    Ok(loss)
}
