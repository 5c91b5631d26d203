//! Resampling: flows in, the axes of a tensor and their new lengths; out, weighted reads of
//! neighbours, one axis after another.

use crate::args::Dims;
use crate::binary::minimum;
use crate::functions::{abs, floor, recip};
use crate::index::take;
use crate::length::Sizes;
use crate::promote::{count, number};
use crate::reduce::added;
use crate::shape::sizes;
use crate::tensor::Tensor;
use monoglot_uop::{DType, Dim, Error, Op, Result, Shape, UOp};

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
            let mut all = u.shape().to_vec();
            let lead = all.len().checked_sub(size.len()).ok_or_else(bad)?;
            let new = size.iter().map(|&n| Dim::Int(n));
            let old: Vec<Dim> = all.splice(lead.., new.clone()).collect();
            let wrong = |n: &Dim| n.min() < 1 || n.max() >= 1 << 31;
            if old.iter().any(wrong) || new.clone().any(|n| wrong(&n)) {
                return Err(bad());
            }
            sizes("interpolate", Sizes(all))?;
            size.iter()
                .enumerate()
                .try_fold(u.clone(), |u, (i, &n)| resample(&u, lead + i, n, how))
        })
    }
}

/// One axis brought to n elements: each is one of the old ones, or a sum of weighted neighbours.
fn resample(u: &UOp, axis: usize, n: i64, how: Interpolation) -> Result<UOp> {
    let length = &u.shape()[axis];
    if length.is(n) {
        return Ok(u.clone());
    }
    let (corners, neighbours): (bool, Dim) = match how {
        Interpolation::Nearest | Interpolation::NearestExact => {
            let i = UOp::arange(n, DType::I64);
            let old = number(length, DType::I64, i.shape())?;
            let place = match how {
                Interpolation::Nearest => i * old / n,
                _ => (i * 2 + 1) * old / (2 * n),
            };
            return take(u, &[axis], &[place]);
        }
        Interpolation::Linear { align_corners } => (align_corners, 2.into()),
        Interpolation::Cubic { align_corners } => (align_corners, 4.into()),
        Interpolation::Area => (false, (length - 1) / n + 2),
    };
    let kept = if u.dtype().is_float() {
        u.dtype()
    } else {
        DType::F32
    };
    let x = u.cast(kept.compute_type());
    let table = Shape::new([n.into(), neighbours.clone()]);
    // Products of lengths may need more than 32 bits; places do not.
    let d = match how {
        Interpolation::Area => DType::I64,
        _ => DType::I32,
    };
    let i = count(0, &table, d)?;
    let k = count(1, &table, d)?;
    let old = number(length, d, &table)?;
    let (place, weight) = if how == Interpolation::Area {
        let first = &i * &old / n;
        let end = ((&i + 1) * &old + (n - 1)) / n;
        let place = &first + k;
        // What lies outside of the old axis is read as 0.
        (
            place.lt(&end).select(&place, &place.like(-1)),
            recip(&(end - first).cast(x.dtype())),
        )
    } else {
        let neighbours = neighbours.max();
        let i = i.cast(x.dtype());
        let at = if !corners {
            let [ratio, offset] = ratio(length, n, &i)?;
            i.mul_acc(&ratio, &offset)
        } else if n > 1 {
            &i * &ratio(&(length - 1), n - 1, &i)?[0]
        } else {
            &i * 0.0
        };
        let place = floor(&at).cast(d) + (k - (neighbours / 2 - 1));
        let weight = weight(&abs(&(at - place.cast(x.dtype()))), neighbours);
        let place = minimum(&place, &(&old - 1));
        (place.max_(&place.like(0)), weight)
    };
    let x = take(&x, &[axis], &[place])?;
    let mut dims = vec![Dim::Int(1); x.shape().len()];
    dims[axis..axis + 2].clone_from_slice(&[n.into(), neighbours]);
    let weight = weight.reshape(&Shape::new(dims))?.expand(x.shape())?;
    Ok(added(&(x * weight), axis + 1)?.cast(kept))
}

/// A length over n, and half of it less one half, beside x.
fn ratio(length: &Dim, n: i64, x: &UOp) -> Result<[UOp; 2]> {
    if let Dim::Int(old) = length {
        let ratio = *old as f64 / n as f64;
        return Ok([ratio, 0.5 * ratio - 0.5].map(|v| x.like(v)));
    }
    let ratio = number(length, x.dtype(), x.shape())?;
    let ratio = ratio.binary(Op::Div, &x.like(n as f64));
    let offset = ratio.mul_acc(&x.like(0.5), &x.like(-0.5));
    Ok([ratio, offset])
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
