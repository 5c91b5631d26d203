//! Movement: views of a tensor, which share its storage where it is realized, and joins of several.
//! Flows in: tensors, shapes, axes; out: views (assigning to one writes what it views).

use crate::args::{Axes, Dims};
use crate::elementwise::methods;
use crate::length::{Size, Sizes, product};
use crate::promote::{broadcast_shape, broadcast_to, insert_axis, triangle, vector};
use crate::reduce::added;
use crate::shape::{sizes, whole};
use crate::tensor::{Tensor, axis_of};
use monoglot_uop::{Dim, Error, Result, Shape, UOp};

impl Tensor {
    /// The same elements in row-major order under another shape; one size may be −1.
    #[track_caller]
    pub fn reshape(&self, shape: impl Into<Sizes>) -> Tensor {
        let want = shape.into().0;
        self.view(|u| u.reshape(&whole("reshape", u.shape(), &want)?))
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
    pub fn expand(&self, shape: impl Into<Sizes>) -> Tensor {
        let want = shape.into().0;
        self.view(|u| {
            let Some(new) = want.len().checked_sub(u.shape().len()) else {
                let message = format!("shape {} to {want:?}, which has fewer axes", u.shape());
                return Err(Error::shape("expand", message));
            };
            let all = want.iter().enumerate().map(|(i, n)| match n {
                Dim::Int(-1) if i >= new => u.shape()[i - new].clone(),
                n => n.clone(),
            });
            broadcast_to(u, &sizes("expand", Sizes(all.collect()))?)
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
            let dims = u.shape();
            if dims.is_empty() {
                return u.reshape(&Shape::of(&[1]));
            }
            let a = axis_of("flatten", start, dims.len())?;
            let b = axis_of("flatten", end, dims.len())?;
            if a > b {
                return Err(Error::argument(
                    "flatten",
                    format!("axis {start} is after axis {end}"),
                ));
            }
            let mut flat = dims.to_vec();
            flat.splice(a..=b, [product(&dims[a..=b])]);
            u.reshape(&Shape::new(flat))
        })
    }

    /// One axis as several; one of the sizes may be −1.
    #[track_caller]
    pub fn unflatten(&self, axis: i64, sizes: impl Into<Sizes>) -> Tensor {
        let parts = sizes.into().0;
        self.view(|u| {
            let a = axis_of("unflatten", axis, u.shape().len())?;
            let parts = whole("unflatten", &u.shape()[a..=a], &parts)?;
            let mut dims = u.shape().to_vec();
            dims.splice(a..=a, parts.iter().cloned());
            u.reshape(&Shape::new(dims))
        })
    }

    /// `len` elements of `axis` from `start`, which counts from the end where it is negative.
    #[track_caller]
    pub fn narrow(&self, axis: i64, start: impl Into<Size>, len: impl Into<Size>) -> Tensor {
        let start = start.into();
        let len = len.into();
        self.along_view("narrow", axis, |u, a, n| {
            let from = match start.0 {
                Dim::Int(at) if at < 0 => Dim::simplest(n.to_uop() + at),
                _ => start.0.clone(),
            };
            let now = [&from, &len.0, n].map(Dim::now);
            let [Some(first), Some(count), Some(size)] = now else {
                return Err(Error::argument("narrow", "a size without a value"));
            };
            if first < 0 || count < 0 || first.saturating_add(count) > size {
                let start = start.value();
                let message = format!("{count} elements from {start} of an axis of {size}");
                return Err(Error::argument("narrow", message));
            }
            if [&from, &len.0].iter().any(|d| d.min() < 0) {
                let message = "what varies could be negative: its variable begins too low";
                return Err(Error::argument("narrow", message));
            }
            u.narrow(a, from, len.0.clone())
        })
    }

    /// A view that concerns one axis, whose position and size `f` is told.
    #[track_caller]
    pub(crate) fn along_view(
        &self,
        op: &str,
        axis: i64,
        f: impl Fn(&UOp, usize, &Dim) -> Result<UOp>,
    ) -> Tensor {
        self.view(|u| {
            let a = axis_of(op, axis, u.shape().len())?;
            f(u, a, &u.shape()[a])
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
            let reach = x.shape()[a].max().max(1);
            let last = to_last(&x, a)?;
            let w = match size {
                0 if step > 0 => nothings(&last, step)?,
                _ => last.windows(size, step.min(reach), 1)?,
            };
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

/// Windows without elements along the last axis, one every `step` and one at its end.
fn nothings(u: &UOp, step: i64) -> Result<UOp> {
    let mut dims = u.shape().to_vec();
    let a = dims.len() - 1;
    let none = insert_axis(&u.narrow(a, 0, 0)?, a)?;
    dims[a] = &dims[a] / step + 1;
    dims.push(Dim::Int(0));
    none.expand(&Shape::new(dims))
}

fn diag(u: &UOp) -> Result<UOp> {
    match u.shape().dims() {
        [_, _] => diagonal(u),
        [Dim::Int(0)] => u.reshape(&Shape::of(&[0, 0])),
        &[Dim::Int(n)] => u
            .reshape(&Shape::of(&[n, 1]))?
            .pad_axis(1, 0, n, u.dtype().zero())?
            .reshape(&Shape::of(&[n * (n + 1)]))?
            .narrow(0, 0, n * n)?
            .reshape(&Shape::of(&[n, n])),
        [n] => {
            let square = Shape::new([n.clone(), n.clone()]);
            let on = triangle("diag", &square, |i, j| i.eq_(j))?;
            let zero = UOp::constant(u.dtype().zero(), u.dtype());
            Ok(on.select(&insert_axis(u, 1)?.expand(&square)?, &zero))
        }
        _ => Err(Error::shape(
            "diag",
            format!("shape {} is no vector or matrix", u.shape()),
        )),
    }
}

pub(crate) fn diagonal(u: &UOp) -> Result<UOp> {
    let sizes = u.shape().dims();
    let [outer @ .., m, n] = sizes else {
        return Err(Error::shape(
            "diagonal",
            format!("shape {} is no matrix", u.shape()),
        ));
    };
    let last = sizes.len() - 1;
    let cut = |k: &Dim| u.narrow(last - 1, 0, k)?.narrow(last, 0, k);
    let (&Dim::Int(m), &Dim::Int(n)) = (m, n) else {
        // The element of each row that stands on the diagonal, as a sum with all others left out.
        let square = cut(&if m == n { m.clone() } else { m.or_less(n) })?;
        let on = triangle("diagonal", square.shape(), |i, j| i.eq_(j))?;
        let zero = UOp::constant(u.dtype().zero(), u.dtype());
        return added(&on.select(&square, &zero), last);
    };
    let k = m.min(n);
    let square = cut(&k.into())?;
    let with = |tail: &[i64]| {
        let tail = tail.iter().map(|&n| Dim::Int(n));
        Shape::new(outer.iter().cloned().chain(tail))
    };
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
