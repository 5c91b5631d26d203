//! Movement: views of a tensor, which share its storage where it is realized, and joins of several.
//! Flows in: tensors, shapes, axes; out: views (assigning to one writes what it views).

use crate::args::{Axes, Dims};
use crate::create::sizes;
use crate::elementwise::methods;
use crate::promote::{broadcast_shape, broadcast_to, insert_axis, resized, vector};
use crate::tensor::{Tensor, axis_of};
use monoglot_uop::{Dim, Error, Result, Shape, UOp};

impl Tensor {
    /// The same elements in row-major order under another shape; one size may be −1.
    #[track_caller]
    pub fn reshape(&self, shape: impl Into<Dims>) -> Tensor {
        let want = shape.into().0;
        self.view(|u| {
            let total = u.sizes("reshape").map(|s| s.iter().product());
            u.reshape(&whole("reshape", total, &want)?)
        })
    }

    /// Reorder the axes: axis i of the result is axis `order[i]`.
    #[track_caller]
    pub fn permute(&self, order: impl Into<Dims>) -> Tensor {
        let order = order.into().0;
        self.view(|u| {
            let axes = order
                .iter()
                .map(|&a| axis_of("permute", a, u.shape().len()));
            u.permute(&axes.collect::<Result<Vec<_>>>()?)
        })
    }

    /// Exchange two axes.
    #[track_caller]
    pub fn transpose(&self, a: i64, b: i64) -> Tensor {
        self.view(|u| {
            let n = u.shape().len();
            let a = axis_of("transpose", a, n.max(1))?;
            let b = axis_of("transpose", b, n.max(1))?;
            let mut order: Vec<usize> = (0..n).collect();
            if n > 0 {
                order.swap(a, b);
            }
            u.permute(&order)
        })
    }

    /// A matrix with its two axes exchanged.
    #[track_caller]
    pub fn t(&self) -> Tensor {
        self.transpose(-2, -1)
    }

    /// Repeat axes of size 1, and new ones in front; −1 keeps a size. Assigning to it is an error, as
    /// its elements are not places of their own.
    #[track_caller]
    pub fn expand(&self, shape: impl Into<Dims>) -> Tensor {
        let want = shape.into().0;
        self.view(|u| {
            let Some(new) = want.len().checked_sub(u.shape().len()) else {
                let message = format!("shape {} to {want:?}, which has fewer axes", u.shape());
                return Err(Error::shape("expand", message));
            };
            let all = Shape::new(want.iter().enumerate().map(|(i, &n)| match n {
                -1 if i >= new => u.shape()[i - new].clone(),
                n => Dim::Int(n),
            }));
            sizes("expand", Dims(all.max_ints()))?;
            broadcast_to(u, &all)
        })
    }

    /// Repeat to the shape that both broadcast to.
    #[track_caller]
    pub fn broadcast_like(&self, other: &Tensor) -> Tensor {
        Tensor::map_all(&[self, other], |u| {
            broadcast_to(&u[0], &broadcast_shape("broadcast", &[&u[0], &u[1]])?)
        })
    }

    /// Reverse along axes.
    #[track_caller]
    pub fn flip(&self, axes: impl Into<Axes>) -> Tensor {
        let axes = axes.into();
        self.view(|u| {
            let axes = axes.resolve("flip", u.shape().len())?;
            u.flip(axes.iter().fold(0, |bits, a| bits | 1 << a))
        })
    }

    /// Without an axis, if it has size 1.
    #[track_caller]
    pub fn squeeze(&self, axes: impl Into<Axes>) -> Tensor {
        let axes = axes.into();
        self.view(|u| {
            let mut axes = axes.resolve("squeeze", u.shape().len())?;
            axes.retain(|&a| u.shape()[a].is(1));
            u.squeeze_axes(&axes)
        })
    }

    /// With a new axis of size 1 at position `axis`.
    #[track_caller]
    pub fn unsqueeze(&self, axis: i64) -> Tensor {
        self.view(|u| insert_axis(u, axis_of("unsqueeze", axis, u.shape().len() + 1)?))
    }

    /// Axes `start` to `end` (inclusive) as one.
    #[track_caller]
    pub fn flatten(&self, start: i64, end: i64) -> Tensor {
        self.view(|u| {
            let sizes = u.sizes("flatten")?;
            if sizes.is_empty() {
                return u.reshape(&Shape::of(&[1]));
            }
            let (a, b) = (
                axis_of("flatten", start, sizes.len())?,
                axis_of("flatten", end, sizes.len())?,
            );
            if a > b {
                return Err(Error::argument(
                    "flatten",
                    format!("axis {start} is after axis {end}"),
                ));
            }
            let one: i64 = sizes[a..=b].iter().product();
            u.reshape(&Shape::of(&[&sizes[..a], &[one], &sizes[b + 1..]].concat()))
        })
    }

    /// One axis as several; one of the sizes may be −1.
    #[track_caller]
    pub fn unflatten(&self, axis: i64, sizes: impl Into<Dims>) -> Tensor {
        let parts = sizes.into().0;
        self.view(|u| {
            let a = axis_of("unflatten", axis, u.shape().len())?;
            let parts = whole("unflatten", u.sizes("unflatten").map(|s| s[a]), &parts)?;
            u.reshape(&resized(u, a, &parts.max_ints()))
        })
    }

    /// `len` elements of `axis` from `start`.
    #[track_caller]
    pub fn narrow(&self, axis: i64, start: i64, len: i64) -> Tensor {
        self.along_view("narrow", axis, |u, a, n| {
            let from = if start < 0 {
                start.saturating_add(n)
            } else {
                start
            };
            if from < 0 || len < 0 || from.saturating_add(len) > n {
                let message = format!("{len} elements from {start} of an axis of {n}");
                return Err(Error::argument("narrow", message));
            }
            u.narrow(a, from, len)
        })
    }

    /// A view that concerns one axis, whose position and size `f` is told.
    #[track_caller]
    pub(crate) fn along_view(
        &self,
        op: &str,
        axis: i64,
        f: impl Fn(&UOp, usize, i64) -> Result<UOp>,
    ) -> Tensor {
        self.view(|u| {
            let a = axis_of(op, axis, u.shape().len())?;
            f(u, a, u.sizes(op)?[a])
        })
    }

    /// Windows of `size` elements along `axis`, one every `step`, as a new last axis; a copy, no view to
    /// assign to. A scalar has one window, which is a vector.
    #[track_caller]
    pub fn unfold(&self, axis: i64, size: i64, step: i64) -> Tensor {
        self.map(|u| {
            let x = vector(u)?;
            let n = x.shape().len();
            let a = axis_of("unfold", axis, n)?;
            let step = step.min(x.shape()[a].max().max(1));
            let w = to_last(&x, a)?.windows(size, step, 1)?;
            if u.shape().is_empty() {
                return w.narrow(0, 0, 1)?.squeeze_axes(&[0]);
            }
            // (…, o, k) → o back to its place, k last.
            let mut order: Vec<usize> = (0..n - 1).collect();
            order.insert(a, n - 1);
            order.push(n);
            w.permute(&order)
        })
    }
}

methods! {
    /// The diagonal of the last two axes, as a new last axis; a copy, no view to assign to.
    diagonal() map diagonal;
    /// A vector as the diagonal of a matrix, or the diagonal of a matrix.
    diag() map diag;
}

fn diag(u: &UOp) -> Result<UOp> {
    match u.sizes("diag")?[..] {
        [_, _] => diagonal(u),
        [0] => u.reshape(&Shape::of(&[0, 0])),
        [n] => u
            .reshape(&Shape::of(&[n, 1]))?
            .pad_axis(1, 0, n, u.dtype().zero())?
            .reshape(&Shape::of(&[n * (n + 1)]))?
            .narrow(0, 0, n * n)?
            .reshape(&Shape::of(&[n, n])),
        _ => Err(Error::shape(
            "diag",
            format!("shape {} is no vector or matrix", u.shape()),
        )),
    }
}

pub(crate) fn diagonal(u: &UOp) -> Result<UOp> {
    let sizes = u.sizes("diagonal")?;
    let [outer @ .., m, n] = &sizes[..] else {
        return Err(Error::shape(
            "diagonal",
            format!("shape {} is no matrix", u.shape()),
        ));
    };
    let (k, last) = (*m.min(n), sizes.len() - 1);
    let square = u.narrow(last - 1, 0, k)?.narrow(last, 0, k)?;
    let with = |tail: &[i64]| Shape::of(&[outer, tail].concat());
    if k == 0 {
        return square.reshape(&with(&[0]));
    }
    // In rows of k + 1 the diagonal is the first column.
    square
        .reshape(&with(&[k * k]))?
        .pad_axis(last - 1, 0, k, u.dtype().zero())?
        .reshape(&with(&[k, k + 1]))?
        .narrow(last, 0, 1)?
        .reshape(&with(&[k]))
}

/// Sizes for so many elements, of which at most one is −1, made whole.
pub(crate) fn whole(op: &str, total: Result<i64>, want: &[i64]) -> Result<Shape> {
    let mut dims = want.to_vec();
    if let Some(hole) = want.iter().position(|&n| n == -1) {
        dims[hole] = 1;
        let known = sizes(op, Dims(dims.clone())).map_or(0, |s| s.max_len());
        let total = total?;
        if known == 0 || total % known != 0 {
            return Err(Error::shape(op, format!("{total} elements as {want:?}")));
        }
        dims[hole] = total / known;
    }
    sizes(op, Dims(dims))
}

/// The axis moved to the end.
pub(crate) fn to_last(u: &UOp, axis: usize) -> Result<UOp> {
    let order: Vec<usize> = (0..u.shape().len())
        .filter(|&i| i != axis)
        .chain([axis])
        .collect();
    u.permute(&order)
}

/// The last axis moved to a place.
pub(crate) fn from_last(u: &UOp, axis: usize) -> Result<UOp> {
    let last = u.shape().len() - 1;
    let mut order: Vec<usize> = (0..last).collect();
    order.insert(axis, last);
    u.permute(&order)
}
