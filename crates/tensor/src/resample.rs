//! Resampling: flows in, the axes of a tensor and their new lengths; out, weighted reads of
//! neighbours, one axis after another.

use crate::args::Dims;
use crate::create::sizes;
use crate::index::take;
use crate::promote::spread;
use crate::tensor::Tensor;
use monoglot_uop::{DType, Error, Op, Result, UOp};

/// How `interpolate` finds a value between elements.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Interpolation {
    /// The element at ⌊i · in / out⌋.
    Nearest,
    /// Along every axis, weighted from the two neighbours; corners map to corners or, if not, the
    /// edges of the outermost elements do.
    Linear {
        /// Corners map to corners.
        align_corners: bool,
    },
}

impl Tensor {
    /// The last axes brought to `size`.
    #[track_caller]
    pub fn interpolate(&self, size: impl Into<Dims>, how: Interpolation) -> Tensor {
        let size = size.into().0;
        self.map(|u| {
            let bad = || Error::argument("interpolate", format!("shape {} to {size:?}", u.shape()));
            let mut all = u.sizes("interpolate")?;
            let lead = all.len().checked_sub(size.len()).ok_or_else(bad)?;
            let old = all.splice(lead.., size.iter().copied());
            if old.chain(size.iter().copied()).any(|n| !(1..1 << 31).contains(&n)) {
                return Err(bad());
            }
            sizes("interpolate", Dims(all))?;
            size.iter().enumerate().try_fold(u.clone(), |u, (i, &n)| resample(&u, lead + i, n, how))
        })
    }
}

/// One axis brought to n elements.
fn resample(u: &UOp, axis: usize, n: i64, how: Interpolation) -> Result<UOp> {
    let old = u.sizes("interpolate")?[axis];
    if old == n {
        return Ok(u.clone());
    }
    let (i, take) = (UOp::arange(n, DType::I32), |x: &UOp, at: &UOp| take(x, &[axis], &[at.clone()]));
    let Interpolation::Linear { align_corners } = how else {
        return take(u, &((i.cast(DType::I64) * old) / n));
    };
    let kept = if u.dtype().is_float() { u.dtype() } else { DType::F32 };
    let x = u.cast(kept.compute_type());
    let at = i.cast(x.dtype());
    let at = match align_corners {
        true => at * if n > 1 { (old - 1) as f64 / (n - 1) as f64 } else { 0.0 },
        false => {
            let ratio = old as f64 / n as f64;
            let raw = at.mul_acc(&at.like(ratio), &at.like(0.5 * ratio - 0.5));
            raw.max_(&raw.like(0.0))
        }
    };
    let low = at.unary(Op::Trunc);
    let first = low.cast(DType::I32);
    let last = first.like(old - 1);
    let second = (&first + 1).lt(&last).select(&(&first + 1), &last);
    let (a, b) = (take(&x, &first)?, take(&x, &second)?);
    let weight = spread(&(&at - &low), axis, a.shape())?;
    Ok((&a + &((&b - &a) * weight)).cast(kept))
}
