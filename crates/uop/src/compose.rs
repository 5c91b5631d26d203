//! Compositions of primitives that several rooms need: sliding windows, counting, and the places of a
//! matrix unit's elements. Flows in: UOps and sizes; flows out: views, constants and index arithmetic made
//! of primitives only.

use crate::arg::ReduceOp;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::fragment::{Digit, Fragment};
use crate::node::{Rule, Shortcut, UOp};
use crate::scalar::Scalar;
use crate::shape::{Dim, Shape};

/// Counting up to this many is one prefix sum; beyond, a sum of two.
const ARANGE_DIRECT: i64 = 2048;

impl UOp {
    /// The sizes of all axes.
    ///
    /// # Errors
    /// `Unsupported` where one of them is symbolic; `op` is who asks.
    pub fn sizes(&self, op: &str) -> Result<Vec<i64>> {
        self.shape().ints().ok_or_else(|| {
            let message = format!("shape {} has symbolic dimensions", self.shape());
            crate::ErrorKind::Unsupported {
                op: op.into(),
                message,
            }
            .into()
        })
    }

    /// A constant in a shape.
    pub fn full(value: Scalar, dtype: DType, shape: &Shape) -> UOp {
        UOp::constant(value, dtype).broadcast(shape)
    }

    /// Offsets that are `at` along `axis`, and the shape with size `len` there.
    fn along(&self, axis: usize, at: Dim, len: Dim) -> (Vec<Dim>, Shape) {
        let mut offsets = vec![Dim::Int(0); self.shape().len()];
        offsets[axis] = at;
        let mut sizes = self.shape().to_vec();
        sizes[axis] = len;
        (offsets, Shape::new(sizes))
    }

    /// Keep `len` elements of `axis` from `start`.
    pub fn narrow(&self, axis: usize, start: impl Into<Dim>, len: impl Into<Dim>) -> Result<UOp> {
        let (at, to) = self.along(axis, start.into(), len.into());
        self.shrink(&at, &to)
    }

    /// `before` and `after` elements of `fill` around `axis`.
    pub fn pad_axis(
        &self,
        axis: usize,
        before: impl Into<Dim>,
        after: impl Into<Dim>,
        fill: Scalar,
    ) -> Result<UOp> {
        let before = before.into();
        let total = &self.shape()[axis] + &before + after.into();
        let (at, to) = self.along(axis, before, total);
        self.pad(&at, &to, fill)
    }

    /// The first `n` elements of `axis`, filled up with zeros where there are fewer.
    fn resized(&self, axis: usize, n: i64) -> Result<UOp> {
        let size = &self.shape()[axis];
        if n > size.max() || size.as_int().is_none() {
            let (at, to) = self.along(axis, 0.into(), n.into());
            self.pad(&at, &to, self.dtype().zero())
        } else {
            self.narrow(axis, 0, n)
        }
    }

    /// Without the axes in `axes`, which have size 1.
    pub fn squeeze_axes(&self, axes: &[usize]) -> Result<UOp> {
        let dims = self.shape().iter().enumerate();
        let kept = dims.filter(|(i, _)| !axes.contains(i));
        self.reshape(&Shape::new(kept.map(|(_, d)| d.clone())))
    }

    /// Windows over the last axis: shape (…, n) becomes (…, o, k) with element `[i, j]` from
    /// `i·stride + j·dilation`. A view: the axis is repeated and cut so that row j starts j·dilation
    /// later than row 0.
    ///
    /// Over an axis whose length varies it is those of the greatest length, of which there are as many as fit.
    ///
    /// # Errors
    /// Where the window is longer than the axis is, or can be, or a size is not positive.
    pub fn windows(&self, k: i64, stride: i64, dilation: i64) -> Result<UOp> {
        let Some((size, outer)) = self.shape().split_last() else {
            return Err(Error::argument(
                "windows",
                "a scalar has no axis to slide over",
            ));
        };
        if k < 1 || stride < 1 || dilation < 1 {
            let message =
                format!("size {k}, stride {stride} and dilation {dilation} must be positive");
            return Err(Error::argument("windows", message));
        }
        let span = (k - 1) * dilation + 1;
        if size.min() < span {
            let message = match size {
                Dim::Int(n) => format!("a window of {span} elements over an axis of {n}"),
                size => format!(
                    "a window of {span} elements over an axis of {size:?}, which can be {}: let its length begin later, \
                     or pad it",
                    size.min()
                ),
            };
            return Err(Error::shape("windows", message));
        }
        let axis = outer.len();
        if size.as_int().is_none() {
            let most = self.resized(axis, size.max())?;
            let fit = (size - span) / stride + 1;
            return most.windows(k, stride, dilation)?.narrow(axis, 0, fit);
        }
        let n = size.max();
        let o = (n - span) / stride + 1;
        let with = |tail: &[i64]| behind(outer, tail);
        if dilation == 1 && stride >= k {
            // They do not overlap: cut into pieces of `stride` and keep the first k of each.
            return self
                .resized(axis, o * stride)?
                .reshape(&with(&[o, stride]))?
                .narrow(axis + 1, 0, k);
        }
        let row = n + dilation;
        let repeats = (k * row + n - 1) / n;
        let rows = self
            .reshape(&with(&[1, n]))?
            .expand(&with(&[repeats, n]))?
            .reshape(&with(&[repeats * n]))?
            .narrow(axis, 0, k * row)?
            .reshape(&with(&[k, row]))?;
        let picked = rows
            .resized(axis + 1, o * stride)?
            .reshape(&with(&[k, o, stride]))?
            .narrow(axis + 2, 0, 1)?
            .reshape(&with(&[k, o]))?;
        let order: Vec<usize> = (0..axis).chain([axis + 1, axis]).collect();
        let params = [n, stride, dilation].into();
        let rule: Rule = |f| {
            let [n, stride, dilation] = f.params[..] else {
                return Ok(vec![None]);
            };
            Ok(vec![Some(unwindow(f.g, n, stride, dilation)?)])
        };
        let inputs = [self.clone()].into_iter().collect();
        Ok(picked.permute(&order)?.with_shortcut(Shortcut {
            inputs,
            params,
            rule,
        }))
    }

    /// 0, 1, … of an integer dtype along axis `a` of a shape, the same along the others.
    pub fn count(a: usize, shape: &Shape, dtype: DType) -> Result<UOp> {
        let all = UOp::arange(shape[a].max(), dtype);
        let vector = match &shape[a] {
            Dim::Int(_) => all,
            size => all.narrow(0, 0, size)?,
        };
        let mut dims = vec![Dim::Int(1); shape.len()];
        dims[a] = shape[a].clone();
        vector.reshape(&Shape::new(dims))?.expand(shape)
    }

    /// 0, 1, …, n−1 of an integer dtype, as shape (n,): a prefix sum of ones (specification, "Common
    /// Ops as Compositions"), which the simplifier turns into the index itself.
    pub fn arange(n: i64, dtype: DType) -> UOp {
        if n <= 1 {
            return UOp::full(dtype.zero(), dtype, &Shape::of(&[n.max(0)]));
        }
        let build = || -> Result<UOp> {
            if n > ARANGE_DIRECT {
                let b = (n as f64).sqrt().ceil() as i64;
                let a = (n + b - 1) / b;
                let whole = |k| Shape::of(&[(n + b - 1) / b, k]);
                let high = (UOp::arange(a, dtype) * b)
                    .reshape(&whole(1))?
                    .expand(&whole(b))?;
                let low = UOp::arange(b, dtype)
                    .reshape(&Shape::of(&[1, b]))?
                    .expand(&whole(b))?;
                return (high + low).reshape(&Shape::of(&[a * b]))?.narrow(0, 0, n);
            }
            let ones = UOp::full(dtype.one(), dtype, &Shape::of(&[n]));
            let windows = ones.pad_axis(0, n - 1, 0, dtype.zero())?.windows(n, 1, 1)?;
            Ok(windows
                .reduce(ReduceOp::Add, &[1])?
                .reshape(&Shape::of(&[n]))?
                - 1)
        };
        build().expect("sizes fit by construction")
    }
}

impl Fragment {
    /// As [`place`](Fragment::place), of numbers that are expressions.
    pub fn at(&self, lane: &UOp, element: &UOp) -> [UOp; 2] {
        let mut place = [UOp::index_const(0), UOp::index_const(0)];
        for (digits, number) in [(&self.lane, lane), (&self.element, element)] {
            let mut below = 1;
            for (k, d) in digits.iter().enumerate() {
                let rest = number / below;
                let last = k + 1 == digits.len();
                let value = if last { rest } else { &rest % d.extent() };
                below *= d.extent();
                let (Digit::Row(_, stride) | Digit::Column(_, stride)) = *d;
                let along = &mut place[matches!(d, Digit::Column(..)) as usize];
                *along = &*along + &(&value * stride);
            }
        }
        place
    }

    /// The lane and element (the first, where there are copies) that hold a row and column.
    pub fn holder(&self, row: &UOp, column: &UOp) -> [UOp; 2] {
        [&self.lane, &self.element].map(|digits| {
            let mut number = UOp::index_const(0);
            let mut below = 1;
            for d in digits {
                let along = match d {
                    Digit::Row(..) => row,
                    Digit::Column(..) => column,
                };
                let (Digit::Row(extent, stride) | Digit::Column(extent, stride)) = *d;
                if stride > 0 {
                    let value = &(along / stride) % extent;
                    number = &number + &(&value * below);
                }
                below *= extent;
            }
            number
        })
    }
}

/// A shape of these dimensions, and numbers behind them.
fn behind(outer: &[Dim], tail: &[i64]) -> Shape {
    let tail = tail.iter().map(|&n| Dim::Int(n));
    Shape::new(outer.iter().cloned().chain(tail))
}

/// `windows` transposed: (…, o, k) added up to (…, n), where element `[i, j]` of g belongs to
/// i·stride + j·dilation. Every element of the result gathers its k: row j, spread by the stride, is
/// moved by j·dilation (rows of one length read as rows of a longer one) and the rows are summed.
fn unwindow(g: &UOp, n: i64, stride: i64, dilation: i64) -> Result<UOp> {
    let [outer @ .., Dim::Int(o), Dim::Int(k)] = g.shape().dims() else {
        return Err(Error::argument("windows", "two axes"));
    };
    let o = *o;
    let k = *k;
    let axis = outer.len();
    let zero = g.dtype().zero();
    let with = |tail: &[i64]| behind(outer, tail);
    let order: Vec<usize> = (0..axis).chain([axis + 1, axis]).collect();
    let rows = g.permute(&order)?.flip(1 << axis)?;
    let spread = rows
        .reshape(&with(&[k, o, 1]))?
        .pad_axis(axis + 2, 0, stride - 1, zero)?
        .reshape(&with(&[k, o * stride]))?
        .narrow(axis + 1, 0, (o - 1) * stride + 1)?;
    let reach = (k - 1) * dilation;
    let len = n + reach;
    let wide = spread.pad_axis(axis + 1, reach, len - reach - ((o - 1) * stride + 1), zero)?;
    let moved = wide
        .reshape(&with(&[k * len]))?
        .pad_axis(axis, 0, k * dilation, zero)?
        .reshape(&with(&[k, len + dilation]))?
        .narrow(axis + 1, 0, n)?;
    let d = g.dtype();
    let sums = moved.cast(d.compute_type());
    let sums = sums.reduce(ReduceOp::Add, &[axis])?.cast(d);
    sums.reshape(&with(&[n]))
}
