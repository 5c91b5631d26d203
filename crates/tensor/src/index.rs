//! Indexing. Flows in: a tensor and positions: integers, slices with steps and negatives, new axes,
//! index tensors; out: views for what is known when it is written, gathers for what is data.
//!
//! An index that is known and out of range is an error. One that is data reads 0 and writes nothing; in an
//! embedding, and where the settings ask for it (`Config::check`), it is an error of the realize.

use crate::args::{Integer, conversions};
use crate::binary::minimum;
use crate::length::{Sizes, product};
use crate::movement::{from_last, to_last};
use crate::promote::{broadcast, count, counter, insert_axis, number, resized, vector};
use crate::reduce::added;
use crate::shape::sizes;
use crate::tensor::{Tensor, axis_of, tri};
use monoglot_uop::{DType, Dim, Error, ErrorKind, Op, ReduceOp, Result, Scalar, Shape, UOp};
use std::ops;

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

conversions! {
    [T: Integer] T => Index, |i| Index::At(i.value());
    [] &Tensor => Index, |t| Index::Tensor(t.clone());
    [] ops::RangeFull => Index, |_| Index::Slice(None, None, 1);
    [T: Integer] ops::Range<T> => Index, |r| Index::Slice(Some(r.start.value()), Some(r.end.value()), 1);
    [T: Integer] ops::RangeFrom<T> => Index, |r| Index::Slice(Some(r.start.value()), None, 1);
    [T: Integer] ops::RangeTo<T> => Index, |r| Index::Slice(None, Some(r.end.value()), 1);
}

/// What `Tensor::index` takes: one index, a tuple of up to six, or a list.
pub trait Indices {
    /// As a list.
    fn list(self) -> Vec<Index>;
}
impl<I: Into<Index>> Indices for I {
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
        let whole = tri!(self.ndim());
        let named = indices
            .iter()
            .filter(|i| !matches!(i, Index::NewAxis | Index::Rest))
            .count();
        if named > whole {
            return Tensor::failed(
                ErrorKind::Axis {
                    op: "index".into(),
                    axis: named as i64 - 1,
                    ndim: whole,
                }
                .into(),
            );
        }
        if indices.iter().filter(|i| matches!(i, Index::Rest)).count() > 1 {
            let message = "two rests: it is not said which axes each stands for";
            return Tensor::failed(Error::argument("index", message));
        }
        let mut axis = 0;
        let mut out = self.clone();
        let mut at = Vec::new();
        for i in indices {
            match i {
                Index::Rest => axis += (whole - named) as i64 - 1,
                Index::NewAxis => out = out.unsqueeze(axis),
                Index::At(i) => {
                    out = out.pick(axis, i);
                    axis -= 1;
                }
                Index::Slice(start, stop, step) => out = out.slice_axis(axis, start, stop, step),
                Index::Tensor(t) => at.push((axis as usize, t)),
            }
            axis += 1;
        }
        if at.is_empty() {
            out
        } else {
            out.take_many(&at)
        }
    }

    /// One element of an axis, which is dropped.
    #[track_caller]
    fn pick(&self, axis: i64, i: i64) -> Tensor {
        self.along_view("index", axis, |u, a, size| {
            let n = size.now().unwrap_or(0);
            if !(-n..n).contains(&i) {
                return Err(ErrorKind::Index {
                    op: "index".into(),
                    index: i,
                    size: n,
                }
                .into());
            }
            if i < 0 && size.min() + i < 0 {
                let [least, most] = [size.min(), size.max()];
                let message = format!(
                    "element {i} of an axis of {least}..={most}: its variable begins too low"
                );
                return Err(Error::argument("index", message));
            }
            let at = match size {
                Dim::Sym(n) if i < 0 => Dim::simplest(n + i),
                _ => Dim::Int(i.rem_euclid(n)),
            };
            u.narrow(a, at, 1)?.squeeze_axes(&[a])
        })
    }

    /// Python's `start:stop:step` along one axis.
    #[track_caller]
    pub fn slice_axis(
        &self,
        axis: i64,
        start: Option<i64>,
        stop: Option<i64>,
        step: i64,
    ) -> Tensor {
        self.along_view("slice", axis, |u, a, _| match (start, stop, step) {
            (None, None, 1) => Ok(u.clone()),
            _ => slice(u, a, start, stop, step),
        })
    }

    /// The elements of `axis` that a tensor of integers names; its axes take the place of `axis`.
    #[track_caller]
    pub fn index_select(&self, axis: i64, index: &Tensor) -> Tensor {
        self.chosen(axis, &index.placing("index_select", self, axis, false))
    }

    /// The rows of this table that a tensor of integers names: (count, …) at (…) gives (…, …). Realizing
    /// it is an error where there is no such row.
    #[track_caller]
    pub fn embedding(&self, ids: &Tensor) -> Tensor {
        let rows = tri!(self.uop()).shape().first().map_or(1, Dim::max);
        self.chosen(0, &ids.naming("embedding", "ids", 0..rows, None))
    }

    #[track_caller]
    fn chosen(&self, axis: i64, index: &Tensor) -> Tensor {
        Tensor::map_all(&[self, index], |u| {
            let x = vector(&u[0])?;
            let a = axis_of("index_select", axis, x.shape().len())?;
            let y = take(&x, &[a], &[u[1].clone()])?;
            if y.shape() == x.shape() {
                y.reshape(u[0].shape())
            } else {
                Ok(y)
            }
        })
    }

    /// Index tensors at several axes, broadcast together; negative ones count from the end.
    #[track_caller]
    fn take_many(&self, at: &[(usize, Tensor)]) -> Tensor {
        let mut places: Vec<Tensor> = Vec::with_capacity(at.len());
        for (axis, t) in at {
            places.push(t.placing("index", self, *axis as i64, true));
        }
        let all: Vec<&Tensor> = std::iter::once(self).chain(&places).collect();
        let axes: Vec<usize> = at.iter().map(|(a, _)| *a).collect();
        Tensor::map_all(&all, |u| {
            let wrapped = |(i, &a): (&UOp, &usize)| -> Result<UOp> {
                let i = position("index", i)?;
                let size = number(&u[0].shape()[a], i.dtype(), i.shape())?;
                Ok(i.lt(&i.like(0)).select(&(&i + &size), &i))
            };
            let index = u[1..]
                .iter()
                .zip(&axes)
                .map(wrapped)
                .collect::<Result<Vec<_>>>()?;
            take(&u[0], &axes, &index)
        })
    }

    /// Element `[.., i, ..]` is `self[.., index[.., i, ..], ..]` along `axis`. The other axes of
    /// `index` may be shorter; a scalar counts as a vector of one.
    #[track_caller]
    pub fn gather(&self, axis: i64, index: &Tensor) -> Tensor {
        let index = &index.placing("gather", self, axis, false);
        Tensor::map_all(&[self, index], |u| {
            let (x, hit, a) = aligned("gather", &vector(&u[0])?, &vector(&u[1])?, axis)?;
            let k = hit.shape().len() - 1;
            let row = insert_axis(&x, k - 1)?.expand(hit.shape())?;
            let y = added(&hit.select(&row, &zero(&x)), k)?;
            from_last(&y, a)?.reshape(u[1].shape())
        })
    }

    /// A copy with `self[.., index[.., k, ..], ..] = src[.., k, ..]` along `axis`; where several k
    /// name one place, the last one stays. What names no place is left out.
    #[track_caller]
    pub fn scatter(&self, axis: i64, index: &Tensor, src: &Tensor) -> Tensor {
        let index = &index.placing("scatter", self, axis, false);
        Tensor::map_all(&[self, index, src], |u| {
            let [x, index, src] = [vector(&u[0])?, vector(&u[1])?, vector(&u[2])?];
            let (_, hit, a) = aligned("scatter", &x, &index, axis)?;
            let column = source("scatter", &src, &index, &x, a)?.expand(hit.shape())?;
            let k = hit.shape().len() - 2;
            let order = count(k, hit.shape(), DType::I32)?;
            let none = UOp::constant(DType::I32.min(), DType::I32);
            let last = hit.select(&order, &none).reduce(ReduceOp::Max, &[k])?;
            // Where there is none, which has no sign and is far, the last is read and not kept: no place needs a branch.
            let some = last.bitcast(DType::U32);
            let some = match hit.shape()[k].as_int() {
                Some(n @ 1..) => minimum(&some, &some.like(n - 1)).cast(DType::I32),
                _ => last.clone(),
            };
            let wins = order.eq_(&some.expand(hit.shape())?);
            let new = cover(&added(&wins.select(&column, &zero(&column)), k)?, a, &x)?;
            let won = last.lt(&last.like(0)).unary(Op::Not);
            let won = cover(&won.squeeze_axes(&[k])?, a, &x)?;
            let y = won.select(&new, &x);
            y.reshape(u[0].shape())
        })
    }

    /// A copy with `src[.., k, ..]` added to `self[.., index[.., k, ..], ..]` along `axis`.
    #[track_caller]
    pub fn scatter_add(&self, axis: i64, index: &Tensor, src: &Tensor) -> Tensor {
        let index = &index.placing("scatter_add", self, axis, false);
        Tensor::map_all(&[self, index, src], |u| {
            let [x, index, src] = [vector(&u[0])?, vector(&u[1])?, vector(&u[2])?];
            let (_, hit, a) = aligned("scatter_add", &x, &index, axis)?;
            let column = source("scatter_add", &src, &index, &x, a)?.expand(hit.shape())?;
            let kept = hit
                .select(&column, &zero(&column))
                .cast(column.dtype().compute_type());
            let sums = added(&kept, hit.shape().len() - 2)?.cast(column.dtype());
            let y = &x + &cover(&sums, a, &x)?;
            y.reshape(u[0].shape())
        })
    }
}

/// Python's slice of an axis, as a view.
pub(crate) fn slice(
    u: &UOp,
    a: usize,
    start: Option<i64>,
    stop: Option<i64>,
    step: i64,
) -> Result<UOp> {
    if step == 0 {
        return Err(Error::argument("slice", "a step of 0"));
    }
    let n = &u.shape()[a];
    // Where what stands at v begins, of the axis as it is or, at negative steps, turned over.
    let place = |v: i64| match v.clamp(-n.max() - 1, n.max()) {
        v @ 0.. if step > 0 => n.or_less(v),
        v @ 0.. => (n - 1 - v).or_more(0),
        v if step > 0 => (n + v).or_more(0),
        v => n.or_less(-1 - v),
    };
    let first = start.map_or(Dim::Int(0), place);
    let last = stop.map_or(n.clone(), place);
    let u = if step < 0 { u.flip(1 << a)? } else { u.clone() };
    // A step beyond the axis takes one element, however long it is.
    let step = step.saturating_abs().min(n.max().max(1));
    let span = (last - &first).or_more(0);
    let count = span.parts(step);
    if step == 1 || count.max() <= 1 {
        return u.narrow(a, first, count);
    }
    // The last element may stand before the end of its step.
    let whole = &count * step;
    let here = whole.or_less((n - &first).or_more(0));
    let span = u.narrow(a, &first, &here)?;
    let whole = span.pad_axis(a, 0, &whole - &here, u.dtype().zero())?;
    whole
        .reshape(&resized(&u, a, &[count.clone(), step.into()]))?
        .narrow(a + 1, 0, 1)?
        .reshape(&resized(&u, a, &[count]))
}

/// INDEX of some axes by as many tensors, broadcast together; 0 outside. Their axes stand where the
/// indexed ones were if those are neighbours, else in front, as in NumPy.
pub(crate) fn take(x: &UOp, axes: &[usize], index: &[UOp]) -> Result<UOp> {
    let index = index
        .iter()
        .map(|i| position("index", i))
        .collect::<Result<Vec<UOp>>>()?;
    let index = broadcast("index", &index.iter().collect::<Vec<_>>())?;
    let dims = x.shape();
    let others: Vec<usize> = (0..dims.len()).filter(|a| !axes.contains(a)).collect();
    let rest: Vec<Dim> = others.iter().map(|&a| dims[a].clone()).collect();
    let sizes: Vec<Dim> = axes.iter().map(|&a| dims[a].clone()).collect();
    let total = product(&sizes);
    let flat = x
        .permute(&[axes, &others].concat())?
        .reshape(&Shape::new([total.clone()].into_iter().chain(rest.clone())))?;
    let mut line = index[0].clone();
    let mut inside: Option<UOp> = None;
    for (k, (i, size)) in index.iter().zip(&sizes).enumerate() {
        let size = number(size, i.dtype(), i.shape())?;
        if k > 0 {
            line = line * &size + i;
        }
        let ok = i.binary(Op::CmpGe, &i.like(0)) & i.lt(&size);
        inside = Some(inside.map_or_else(|| ok.clone(), |all| all & &ok));
    }
    let inside = inside.ok_or_else(|| Error::argument("index", "no index"))?;
    let named = line.shape().to_vec();
    let k = named.len();
    let ones = vec![Dim::Int(1); rest.len()];
    let all = Shape::new([&named[..], &rest].concat());
    let gate = inside
        .reshape(&Shape::new([&named[..], &ones].concat()))?
        .expand(&all)?;
    let got = match total {
        Dim::Int(0) => UOp::full(x.dtype().zero(), x.dtype(), &all),
        _ => gate.select(&flat.at(&[line.valid(&inside)]), &zero(x)),
    };
    let together = axes.windows(2).all(|w| w[1] == w[0] + 1);
    let before = if together { axes[0] } else { 0 };
    let order: Vec<usize> = (k..k + before)
        .chain(0..k)
        .chain(k + before..all.len())
        .collect();
    got.permute(&order)
}

fn integers<'a>(op: &str, index: &'a UOp) -> Result<&'a UOp> {
    let hint = match index.dtype() {
        d if d.is_int() => return Ok(index),
        DType::Bool => {
            "; what a mask lets through has no shape: `select` and `masked_fill` keep it"
        }
        _ => "",
    };
    let message = format!("indices are integers, not {}{hint}", index.dtype());
    Err(Error::dtype(op, message))
}

/// Integers as `index`. Most of u64 is beyond every axis, and stays there.
fn position(op: &str, u: &UOp) -> Result<UOp> {
    let u = integers(op, u)?;
    let near = match u.dtype() {
        DType::U64 => {
            let most = u.like(1i64 << 62);
            u.lt(&most).select(u, &most)
        }
        _ => u.clone(),
    };
    Ok(near.cast(DType::Index))
}

/// Integers that can count to any place: those narrower than 32 bits as i32.
pub(crate) fn counting(u: &UOp) -> UOp {
    if u.dtype().is_int() && u.dtype().bytes() < 4 {
        u.cast(DType::I32)
    } else {
        u.clone()
    }
}

/// Whether each index names each place of a new axis `a` of n places.
pub(crate) fn named(op: &str, index: &UOp, a: usize, n: impl Into<Dim>) -> Result<UOp> {
    let n = n.into();
    let index = counting(integers(op, index)?);
    let wide = counter(n.max()) == DType::I64 && index.dtype().bytes() < 8;
    let column = insert_axis(&if wide { index.cast(DType::I64) } else { index }, a)?;
    let mut all = column.shape().to_vec();
    all[a] = n;
    let all = sizes(op, Sizes(all))?;
    Ok(column.expand(&all)?.eq_(&count(a, &all, column.dtype())?))
}

/// For gather and scatter: x with `axis` last, cut to what `index` covers elsewhere, and which of its
/// n places each of the m indices names, as (…, m, n).
fn aligned(op: &str, x: &UOp, index: &UOp, axis: i64) -> Result<(UOp, UOp, usize)> {
    let xs = x.shape().dims();
    let is = index.shape().dims();
    let a = axis_of(op, axis, xs.len())?;
    let fits = |i: usize| i == a || covered(&is[i], &xs[i]);
    if xs.len() != is.len() || !(0..xs.len()).all(fits) {
        let message = format!(
            "indices of shape {} for shape {} along axis {a}",
            index.shape(),
            x.shape()
        );
        return Err(Error::shape(op, message));
    }
    let mut part = is.to_vec();
    part[a] = xs[a].clone();
    Ok((
        to_last(&corner(x, part)?, a)?,
        named(op, &to_last(index, a)?, xs.len(), xs[a].clone())?,
        a,
    ))
}

/// Whether an axis has as many elements as another: of those that vary, whether they are one.
fn covered(few: &Dim, many: &Dim) -> bool {
    few == many || matches!((few.as_int(), many.as_int()), (Some(few), Some(many)) if few <= many)
}

/// The values of a scatter, cut to what `index` covers, as (…, m, 1).
fn source(op: &str, src: &UOp, index: &UOp, x: &UOp, a: usize) -> Result<UOp> {
    let ss = src.shape().dims();
    let is = index.shape().dims();
    if src.dtype() != x.dtype() {
        return Err(Error::dtype(
            op,
            format!("values of {} into {}", src.dtype(), x.dtype()),
        ));
    }
    if ss.len() != is.len() || !ss.iter().zip(is).all(|(s, i)| covered(i, s)) {
        let message = format!(
            "values of shape {} for indices of shape {}",
            src.shape(),
            index.shape()
        );
        return Err(Error::shape(op, message));
    }
    insert_axis(&to_last(&corner(src, is.to_vec())?, a)?, is.len())
}

/// The first elements of every axis.
fn corner(u: &UOp, sizes: Vec<Dim>) -> Result<UOp> {
    u.shrink(&vec![Dim::Int(0); sizes.len()], &Shape::new(sizes))
}

/// Its last axis back at `a`, and zeros around, to the shape of `x`.
fn cover(u: &UOp, a: usize, x: &UOp) -> Result<UOp> {
    let u = from_last(u, a)?;
    u.pad(
        &vec![Dim::Int(0); x.shape().len()],
        x.shape(),
        Scalar::Int(0),
    )
}

fn zero(like: &UOp) -> UOp {
    UOp::constant(like.dtype().zero(), like.dtype())
}
