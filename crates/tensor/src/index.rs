//! Indexing. Flows in: a tensor and positions: integers, slices with steps and negatives, new axes,
//! index tensors; out: views for what is known when it is written, gathers for what is data.
//!
//! An index that is known and out of range is an error. One that is data reads 0 and writes nothing.

use crate::movement::{from_last, to_last};
use crate::promote::broadcast;
use crate::tensor::{Tensor, axis_of, tri};
use monoglot_uop::{DType, Dim, Error, ErrorKind, ReduceOp, Result, Scalar, Shape, UOp};

/// One position of `Tensor::index`.
#[derive(Clone, Debug)]
pub enum Index {
    /// One element; the axis is dropped. Negative ones count from the end.
    At(i64),
    /// Python's `start:stop:step`; the step is not 0.
    Slice(Option<i64>, Option<i64>, i64),
    /// The elements that a tensor of integers names (negative ones from the end); its axes take the
    /// place of this one. Several of them broadcast together, as in NumPy.
    Tensor(Tensor),
    /// A new axis of size 1.
    NewAxis,
    /// As many full axes as are missing.
    Rest,
}

impl Index {
    /// `start:stop:step`.
    pub fn step(start: impl Into<Option<i64>>, stop: impl Into<Option<i64>>, step: i64) -> Index {
        Index::Slice(start.into(), stop.into(), step)
    }
}

macro_rules! from_ints {
    ($($t:ty),*) => { $(
        impl From<$t> for Index { fn from(i: $t) -> Index { Index::At(i as i64) } }
        impl From<std::ops::Range<$t>> for Index {
            fn from(r: std::ops::Range<$t>) -> Index { Index::Slice(Some(r.start as i64), Some(r.end as i64), 1) }
        }
        impl From<std::ops::RangeFrom<$t>> for Index {
            fn from(r: std::ops::RangeFrom<$t>) -> Index { Index::Slice(Some(r.start as i64), None, 1) }
        }
        impl From<std::ops::RangeTo<$t>> for Index {
            fn from(r: std::ops::RangeTo<$t>) -> Index { Index::Slice(None, Some(r.end as i64), 1) }
        }
        impl Indices for $t { fn list(self) -> Vec<Index> { vec![self.into()] } }
        impl Indices for std::ops::Range<$t> { fn list(self) -> Vec<Index> { vec![self.into()] } }
        impl Indices for std::ops::RangeFrom<$t> { fn list(self) -> Vec<Index> { vec![self.into()] } }
        impl Indices for std::ops::RangeTo<$t> { fn list(self) -> Vec<Index> { vec![self.into()] } }
    )* };
}
from_ints!(i32, i64, usize);

impl From<std::ops::RangeFull> for Index {
    fn from(_: std::ops::RangeFull) -> Index {
        Index::Slice(None, None, 1)
    }
}
impl From<&Tensor> for Index {
    fn from(t: &Tensor) -> Index {
        Index::Tensor(t.clone())
    }
}

/// What `Tensor::index` takes: one index, a tuple of up to six, or a list.
pub trait Indices {
    /// As a list.
    fn list(self) -> Vec<Index>;
}
impl Indices for Index {
    fn list(self) -> Vec<Index> {
        vec![self]
    }
}
impl Indices for std::ops::RangeFull {
    fn list(self) -> Vec<Index> {
        vec![self.into()]
    }
}
impl Indices for &Tensor {
    fn list(self) -> Vec<Index> {
        vec![self.into()]
    }
}
impl Indices for Vec<Index> {
    fn list(self) -> Vec<Index> {
        self
    }
}
impl Indices for &[Index] {
    fn list(self) -> Vec<Index> {
        self.to_vec()
    }
}

macro_rules! tuples {
    ($($($t:ident)*;)*) => { $(
        impl<$($t: Into<Index>),*> Indices for ($($t,)*) {
            #[allow(non_snake_case)]
            fn list(self) -> Vec<Index> {
                let ($($t,)*) = self;
                vec![$($t.into()),*]
            }
        }
    )* };
}
tuples! { A; A B; A B C; A B C D; A B C D E; A B C D E F; }

impl Tensor {
    /// The elements at these positions, axis by axis from the left: `t.index((0, .., 1..3, &rows))`.
    #[track_caller]
    pub fn index(&self, indices: impl Indices) -> Tensor {
        let indices = indices.list();
        let tensors = indices.iter().filter(|i| matches!(i, Index::Tensor(_))).count();
        let whole = tri!(self.ndim());
        let mut axis = 0i64;
        let mut out = self.clone();
        let mut at: Vec<(usize, Tensor)> = Vec::new();
        let named = indices.iter().filter(|i| !matches!(i, Index::NewAxis | Index::Rest)).count();
        if named > whole {
            let axis = named as i64 - 1;
            return Tensor::failed(ErrorKind::Axis { op: "index".into(), axis, ndim: whole }.into());
        }
        for i in indices {
            match i {
                Index::Rest => axis += (whole - named) as i64,
                Index::NewAxis => {
                    out = out.unsqueeze(axis);
                    axis += 1;
                }
                Index::At(i) => out = out.pick(axis, i),
                Index::Slice(start, stop, step) => {
                    out = out.slice_axis(axis, start, stop, step);
                    axis += 1;
                }
                Index::Tensor(t) => {
                    at.push((axis as usize, t));
                    axis += 1;
                }
            }
        }
        if tensors > 0 { out.take_many(&at) } else { out }
    }

    /// One element of an axis, which is dropped.
    #[track_caller]
    pub(crate) fn pick(&self, axis: i64, i: i64) -> Tensor {
        self.view(|u| {
            let sizes = u.sizes("index")?;
            let a = axis_of("index", axis, sizes.len())?;
            let n = sizes[a];
            if !(-n..n).contains(&i) {
                return Err(ErrorKind::Index { op: "index".into(), index: i, size: n }.into());
            }
            u.narrow(a, i.rem_euclid(n), 1)?.squeeze_axes(&[a])
        })
    }

    /// Python's `start:stop:step` along one axis.
    #[track_caller]
    pub fn slice_axis(&self, axis: i64, start: Option<i64>, stop: Option<i64>, step: i64) -> Tensor {
        self.view(|u| {
            let sizes = u.sizes("slice")?;
            let a = axis_of("slice", axis, sizes.len())?;
            slice(u, a, sizes[a], start, stop, step)
        })
    }

    /// The elements of `axis` that a tensor of integers names; its axes take the place of `axis`.
    #[track_caller]
    pub fn index_select(&self, axis: i64, index: &Tensor) -> Tensor {
        let axis = tri!(self.ndim().and_then(|n| axis_of("index_select", axis, n)));
        Tensor::map_all(&[self, index], |u| take(&u[0], axis, &u[1]))
    }

    /// Element `[.., i, ..]` is `self[.., index[.., i, ..], ..]` along `axis`. The other axes of
    /// `index` may be shorter.
    #[track_caller]
    pub fn gather(&self, axis: i64, index: &Tensor) -> Tensor {
        Tensor::map_all(&[self, index], |u| {
            let (x, i, a) = aligned("gather", &u[0], &u[1], axis)?;
            let hit = one_hot(&i, &x)?;
            let dims = hit.shape().clone();
            let spread = insert_axis(&x, x.shape().len() - 1)?.expand(&dims)?;
            let kept = hit.select(&spread, &UOp::constant(x.dtype().zero(), x.dtype()));
            let last = dims.len() - 1;
            from_last(&kept.reduce(ReduceOp::Add, &[last])?.squeeze_axes(&[last])?, a)
        })
    }

    /// A copy with `self[.., index[.., k, ..], ..] = src[.., k, ..]` along `axis`; where several k
    /// name one place, the last one stays.
    #[track_caller]
    pub fn scatter(&self, axis: i64, index: &Tensor, src: &Tensor) -> Tensor {
        Tensor::map_all(&[self, index, src], |u| {
            let (x, i, a) = aligned("scatter", &u[0], &u[1], axis)?;
            let v = source("scatter", &u[2], &u[1], &u[0], a)?;
            let m = i.sizes("scatter")?[i.shape().len() - 1];
            let hit = one_hot(&i, &x)?; // (…, m, n)
            let (k, last) = (hit.shape().len() - 2, hit.shape().len() - 1);
            let mut dims = vec![Dim::Int(1); last + 1];
            dims[k] = Dim::Int(m);
            let order = (UOp::arange(m, DType::I32) + 1).reshape(&Shape::new(dims))?.expand(hit.shape())?;
            let winner = hit.select(&order, &order.like(0)).reduce(ReduceOp::Max, &[k])?;
            let wins = order.eq_(&winner.expand(hit.shape())?);
            let spread = insert_axis(&v, last)?.expand(hit.shape())?;
            let zero = UOp::constant(x.dtype().zero(), x.dtype());
            let new = wins.select(&spread, &zero).reduce(ReduceOp::Add, &[k])?.squeeze_axes(&[k])?;
            let (new, won) = (cover(&from_last(&new, a)?, &u[0])?, winner.squeeze_axes(&[k])?);
            let won = cover(&from_last(&won, a)?, &u[0])?;
            Ok(won.ne_(&won.like(0)).select(&new, &u[0]))
        })
    }

    /// A copy with `src[.., k, ..]` added to `self[.., index[.., k, ..], ..]` along `axis`.
    #[track_caller]
    pub fn scatter_add(&self, axis: i64, index: &Tensor, src: &Tensor) -> Tensor {
        Tensor::map_all(&[self, index, src], |u| {
            let (x, i, a) = aligned("scatter_add", &u[0], &u[1], axis)?;
            let v = source("scatter_add", &u[2], &u[1], &u[0], a)?;
            let hit = one_hot(&i, &x)?;
            let (k, last) = (hit.shape().len() - 2, hit.shape().len() - 1);
            let d = x.dtype();
            let spread = insert_axis(&v, last)?.expand(hit.shape())?;
            let kept = hit.select(&spread, &UOp::constant(d.zero(), d)).cast(d.compute_type());
            let sums = kept.reduce(ReduceOp::Add, &[k])?.squeeze_axes(&[k])?.cast(d);
            Ok(&u[0] + &cover(&from_last(&sums, a)?, &u[0])?)
        })
    }

    /// Index tensors at several axes, broadcast together: one gather over those axes made one.
    #[track_caller]
    fn take_many(&self, at: &[(usize, Tensor)]) -> Tensor {
        let all: Vec<&Tensor> = std::iter::once(self).chain(at.iter().map(|(_, t)| t)).collect();
        Tensor::map_all(&all, |u| {
            let (x, axes) = (&u[0], at.iter().map(|(a, _)| *a).collect::<Vec<_>>());
            let sizes = x.sizes("index")?;
            for i in &u[1..] {
                if !i.dtype().is_int() {
                    return Err(Error::dtype("index", format!("indices are integers, not {}", i.dtype())));
                }
            }
            let wrapped = |i: &UOp, n: i64| {
                let i = i.cast(DType::Index);
                i.lt(&i.like(0)).select(&(&i + n), &i)
            };
            let Some(&first) = axes.first() else { return Ok(x.clone()) };
            if axes.len() == 1 {
                return take(x, first, &wrapped(&u[1], sizes[first]));
            }
            let parts: Vec<UOp> = u[1..].iter().zip(&axes).map(|(i, &a)| wrapped(i, sizes[a])).collect();
            let parts = broadcast("index", &parts.iter().collect::<Vec<_>>())?;
            let others: Vec<usize> = (0..sizes.len()).filter(|a| !axes.contains(a)).collect();
            let order: Vec<usize> = axes.iter().chain(&others).copied().collect();
            let total: i64 = axes.iter().map(|&a| sizes[a]).product();
            let rest: Vec<i64> = others.iter().map(|&a| sizes[a]).collect();
            let flat = x.permute(&order)?.reshape(&Shape::of(&[&[total], &rest[..]].concat()))?;
            let mut line: Option<UOp> = None;
            let mut inside: Option<UOp> = None;
            for (i, &a) in parts.iter().zip(&axes) {
                let ok = i.binary(monoglot_uop::Op::CmpGe, &i.like(0)) & i.lt(&i.like(sizes[a]));
                line = Some(line.map_or_else(|| i.clone(), |l| l * sizes[a] + i));
                inside = Some(inside.map_or_else(|| ok.clone(), |k| k & &ok));
            }
            let (Some(line), Some(inside)) = (line, inside) else { return Ok(x.clone()) };
            let got = take(&flat, 0, &inside.select(&line, &line.like(-1)))?;
            // NumPy: their axes stand where the first one was if they are neighbours, else in front.
            let k = line.shape().len();
            let together = axes.windows(2).all(|w| w[1] == w[0] + 1);
            let before = if together { first } else { 0 };
            let order: Vec<usize> = (k..k + before).chain(0..k).chain(k + before..k + rest.len()).collect();
            got.permute(&order)
        })
    }
}

/// Python's slice of an axis of n elements, as a view.
pub(crate) fn slice(
    u: &UOp,
    a: usize,
    n: i64,
    start: Option<i64>,
    stop: Option<i64>,
    step: i64,
) -> Result<UOp> {
    if step == 0 {
        return Err(Error::argument("slice", "a step of 0"));
    }
    let (low, high) = if step > 0 { (0, n) } else { (-1, n - 1) };
    let place = |v: Option<i64>, missing: i64| match v {
        None => missing,
        Some(v) if v < 0 => v.saturating_add(n).clamp(low, high),
        Some(v) => v.clamp(low, high),
    };
    let (first, last) = if step > 0 {
        (place(start, 0), place(stop, n))
    } else {
        // From the other end the step is positive.
        (n - 1 - place(start, n - 1), n - 1 - place(stop, -1))
    };
    let u = if step < 0 { u.flip(1 << a)? } else { u.clone() };
    let step = step.abs();
    let count = (last - first + step - 1).max(0) / step;
    if step == 1 || count <= 1 {
        return u.narrow(a, first.min(n), count);
    }
    let span = u.narrow(a, first, (n - first).min(count * step))?;
    let short = count * step - (n - first).min(count * step);
    let whole = span.pad_axis(a, 0, short, u.dtype().zero())?;
    let dims = |mid: &[i64]| {
        let s = u.shape();
        let mid = mid.iter().map(|&n| Dim::Int(n));
        Shape::new(s[..a].iter().cloned().chain(mid).chain(s[a + 1..].iter().cloned()))
    };
    whole.reshape(&dims(&[count, step]))?.narrow(a + 1, 0, 1)?.reshape(&dims(&[count]))
}

/// INDEX of one axis by a tensor, whose axes take its place; 0 outside.
pub(crate) fn take(x: &UOp, axis: usize, index: &UOp) -> Result<UOp> {
    if !index.dtype().is_int() {
        return Err(Error::dtype("index", format!("indices are integers, not {}", index.dtype())));
    }
    let n = x.sizes("index")?[axis];
    let order: Vec<usize> =
        std::iter::once(axis).chain((0..x.shape().len()).filter(|&i| i != axis)).collect();
    let front = x.permute(&order)?;
    let rest: Vec<Dim> = front.shape()[1..].to_vec();
    let k = index.shape().len();
    let dims = Shape::new(index.shape().iter().cloned().chain(rest.iter().cloned()));
    let zero = UOp::constant(x.dtype().zero(), x.dtype());
    let got = if n == 0 {
        UOp::full(x.dtype().zero(), x.dtype(), &dims)
    } else {
        let i = index.cast(DType::Index);
        let mut inside = i.lt(&i.like(n));
        if !index.dtype().is_unsigned() {
            inside = i.binary(monoglot_uop::Op::CmpGe, &i.like(0)) & inside;
        }
        let ones = rest.iter().map(|_| Dim::Int(1));
        let gate = inside.reshape(&Shape::new(index.shape().iter().cloned().chain(ones)))?.expand(&dims)?;
        gate.select(&front.at(&[i.valid(&inside)]), &zero)
    };
    let order: Vec<usize> = (k..k + axis).chain(0..k).chain(k + axis..k + rest.len()).collect();
    got.permute(&order)
}

/// For gather and scatter: both with `axis` last, and x cut to what `index` covers elsewhere.
fn aligned(op: &str, x: &UOp, index: &UOp, axis: i64) -> Result<(UOp, UOp, usize)> {
    if !index.dtype().is_int() {
        return Err(Error::dtype(op, format!("indices are integers, not {}", index.dtype())));
    }
    let (xs, is) = (x.sizes(op)?, index.sizes(op)?);
    let a = axis_of(op, axis, xs.len())?;
    if xs.len() != is.len() || (0..xs.len()).any(|i| i != a && is[i] > xs[i]) {
        let message = format!("indices of shape {} for shape {} along axis {a}", index.shape(), x.shape());
        return Err(Error::shape(op, message));
    }
    let mut cut = x.clone();
    for i in (0..xs.len()).filter(|&i| i != a) {
        cut = cut.narrow(i, 0, is[i])?;
    }
    Ok((to_last(&cut, a)?, to_last(index, a)?, a))
}

/// The values of a scatter, with `axis` last and cut to what `index` covers.
fn source(op: &str, src: &UOp, index: &UOp, x: &UOp, a: usize) -> Result<UOp> {
    let (ss, is) = (src.sizes(op)?, index.sizes(op)?);
    if src.dtype() != x.dtype() {
        return Err(Error::dtype(op, format!("values of {} into {}", src.dtype(), x.dtype())));
    }
    if ss.len() != is.len() || ss.iter().zip(&is).any(|(s, i)| i > s) {
        let message = format!("values of shape {} for indices of shape {}", src.shape(), index.shape());
        return Err(Error::shape(op, message));
    }
    let mut cut = src.clone();
    for (i, &n) in is.iter().enumerate() {
        cut = cut.narrow(i, 0, n)?;
    }
    to_last(&cut, a)
}

/// (…, m) indices into (…, n): whether they name each place, as (…, m, n).
fn one_hot(index: &UOp, x: &UOp) -> Result<UOp> {
    let n = x.sizes("index")?[x.shape().len() - 1];
    let dims = |n: i64| Shape::new(index.shape().iter().cloned().chain([Dim::Int(n)]));
    let place = crate::promote::broadcast_to(&UOp::arange(n, index.dtype()), &dims(n))?;
    Ok(index.reshape(&dims(1))?.expand(&dims(n))?.eq_(&place))
}

fn insert_axis(u: &UOp, at: usize) -> Result<UOp> {
    let mut dims: Vec<Dim> = u.shape().to_vec();
    dims.insert(at, Dim::Int(1));
    u.reshape(&Shape::new(dims))
}

/// Zeros around, to the shape of `x`.
fn cover(u: &UOp, x: &UOp) -> Result<UOp> {
    let at = vec![Dim::Int(0); x.shape().len()];
    u.pad(&at, x.shape(), Scalar::Int(0))
}
