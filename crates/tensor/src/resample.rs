//! Resampling: flows in, the axes of a tensor and their new lengths; out, weighted reads of
//! neighbours, one axis after another.

use crate::args::Dims;
use crate::functions::{abs, floor, recip};
use crate::index::take;
use crate::promote::count;
use crate::reduce::added;
use crate::shape::sizes;
use crate::tensor::Tensor;
use monoglot_uop::{DType, Error, Op, Result, Shape, UOp};

/// How `interpolate` finds a value between elements.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Interpolation {
    /// The element at ⌊i · in / out⌋.
    Nearest,
    /// The element at ⌊(i + ½) · in / out⌋.
    NearestExact,
    /// The mean of the elements from ⌊i · in / out⌋ to below ⌈(i + 1) · in / out⌉.
    Area,
    /// Along every axis, weighted from the two neighbours; corners map to corners or, if not, the
    /// edges of the outermost elements do.
    Linear {
        /// Corners map to corners.
        align_corners: bool,
    },
    /// As `Linear`, by cubic convolution of the four neighbours.
    Cubic {
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
            if old
                .chain(size.iter().copied())
                .any(|n| !(1..1 << 31).contains(&n))
            {
                return Err(bad());
            }
            sizes("interpolate", Dims(all))?;
            size.iter()
                .enumerate()
                .try_fold(u.clone(), |u, (i, &n)| resample(&u, lead + i, n, how))
        })
    }
}

/// One axis brought to n elements: each is one of the old ones, or a sum of weighted neighbours.
fn resample(u: &UOp, axis: usize, n: i64, how: Interpolation) -> Result<UOp> {
    let old = u.sizes("interpolate")?[axis];
    if old == n {
        return Ok(u.clone());
    }
    let (corners, neighbours) = match how {
        Interpolation::Nearest => return take(u, &[axis], &[UOp::arange(n, DType::I64) * old / n]),
        Interpolation::NearestExact => {
            return take(
                u,
                &[axis],
                &[(UOp::arange(n, DType::I64) * 2 + 1) * old / (2 * n)],
            );
        }
        Interpolation::Linear { align_corners } => (align_corners, 2),
        Interpolation::Cubic { align_corners } => (align_corners, 4),
        Interpolation::Area => (false, (old - 1) / n + 2),
    };
    let kept = if u.dtype().is_float() {
        u.dtype()
    } else {
        DType::F32
    };
    let x = u.cast(kept.compute_type());
    let table = Shape::of(&[n, neighbours]);
    let i = count(0, &table, DType::I64)?;
    let k = count(1, &table, DType::I64)?;
    let (place, weight) = if how == Interpolation::Area {
        let first = &i * old / n;
        let end = ((&i + 1) * old + (n - 1)) / n;
        let place = &first + k;
        // What lies outside of the old axis is read as 0.
        (
            place.lt(&end).select(&place, &place.like(-1)),
            recip(&(end - first).cast(x.dtype())),
        )
    } else {
        let ratio = old as f64 / n as f64;
        let i = i.cast(x.dtype());
        let at = if !corners {
            i.mul_acc(&i.like(ratio), &i.like(0.5 * ratio - 0.5))
        } else if n > 1 {
            &i * ((old - 1) as f64 / (n - 1) as f64)
        } else {
            &i * 0.0
        };
        let place = floor(&at).cast(DType::I64) + (k - (neighbours / 2 - 1));
        let weight = weight(&abs(&(at - place.cast(x.dtype()))), neighbours);
        let place = place
            .lt(&place.like(old))
            .select(&place, &place.like(old - 1));
        (place.max_(&place.like(0)), weight)
    };
    let x = take(&x, &[axis], &[place])?;
    let mut dims = vec![1; x.shape().len()];
    dims[axis..axis + 2].copy_from_slice(&[n, neighbours]);
    let weight = weight.reshape(&Shape::of(&dims))?.expand(x.shape())?;
    Ok(added(&(x * weight), axis + 1)?.cast(kept))
}

/// The weight of a neighbour that is `d` away: linear of two, or cubic convolution of four (Keys, 1981,
/// with a = −3/4).
fn weight(d: &UOp, neighbours: i64) -> UOp {
    if neighbours == 2 {
        return d * -1.0 + 1.0;
    }
    let near = ((d * 1.25 - 2.25) * d) * d + 1.0;
    let far = ((d * -0.75 + 3.75) * d - 6.0) * d + 3.0;
    d.binary(Op::CmpLe, &d.like(1.0)).select(&near, &far)
}
