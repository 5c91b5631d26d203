//! Movement: views of a tensor, which share its storage where it is realized, and joins of several.
//! Flows in: tensors, shapes, axes; out: views (assigning to one writes what it views).

use crate::args::{Axes, Dims};
use crate::elementwise::broadcast_shape;
use crate::tensor::{Tensor, axis_of, tri};
use monoglot_uop::node::Srcs;
use monoglot_uop::{Arg, Dim, Error, ErrorKind, Op, Result, Scalar, Shape, UOp};

/// What a padded axis continues with.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum PadMode {
    /// One value.
    Constant(f64),
    /// Mirrored, without the edge.
    Reflect,
    /// The edge.
    Replicate,
    /// From the other end.
    Circular,
}

impl Tensor {
    /// The same elements in row-major order under another shape; one size may be −1.
    #[track_caller]
    pub fn reshape(&self, shape: impl Into<Dims>) -> Tensor {
        let want = shape.into().0;
        self.view(|u| u.reshape(&infer("reshape", u, &want)?))
    }

    /// Reorder the axes: axis i of the result is axis `order[i]`.
    #[track_caller]
    pub fn permute(&self, order: impl Into<Dims>) -> Tensor {
        let order = order.into().0;
        self.view(|u| {
            let axes =
                order.iter().map(|&a| axis_of("permute", a, u.shape().len())).collect::<Result<Vec<_>>>()?;
            u.permute(&axes)
        })
    }

    /// Exchange two axes.
    #[track_caller]
    pub fn transpose(&self, a: i64, b: i64) -> Tensor {
        self.view(|u| {
            let n = u.shape().len();
            let (a, b) = (axis_of("transpose", a, n)?, axis_of("transpose", b, n)?);
            let mut order: Vec<usize> = (0..n).collect();
            order.swap(a, b);
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
            let old = u.shape();
            if want.len() < old.len() {
                return Err(Error::shape("expand", format!("shape {old} to {want:?}, which has fewer axes")));
            }
            let new = want.len() - old.len();
            let dims: Vec<Dim> = want
                .iter()
                .enumerate()
                .map(|(i, &n)| if n == -1 && i >= new { old[i - new].clone() } else { Dim::Int(n) })
                .collect();
            let aligned = vec![Dim::Int(1); new].into_iter().chain(old.iter().cloned());
            u.reshape(&Shape::new(aligned))?.expand(&Shape::new(dims))
        })
    }

    /// Repeat to the shape that both broadcast to.
    #[track_caller]
    pub fn broadcast_like(&self, other: &Tensor) -> Tensor {
        Tensor::map_all(&[self, other], |u| {
            let shape = broadcast_shape("broadcast", &[&u[0], &u[1]])?;
            crate::elementwise::broadcast_to(&u[0], &shape)
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
            let axes = axes.resolve("squeeze", u.shape().len())?;
            let ones: Vec<usize> = axes.into_iter().filter(|&a| u.shape()[a].is(1)).collect();
            u.squeeze_axes(&ones)
        })
    }

    /// With a new axis of size 1 at position `axis`.
    #[track_caller]
    pub fn unsqueeze(&self, axis: i64) -> Tensor {
        self.view(|u| {
            let a = axis_of("unsqueeze", axis, u.shape().len() + 1)?;
            let mut dims: Vec<Dim> = u.shape().to_vec();
            dims.insert(a, Dim::Int(1));
            u.reshape(&Shape::new(dims))
        })
    }

    /// Axes `start` to `end` (inclusive) as one.
    #[track_caller]
    pub fn flatten(&self, start: i64, end: i64) -> Tensor {
        self.view(|u| {
            let sizes = u.sizes("flatten")?;
            if sizes.is_empty() {
                return u.reshape(&Shape::of(&[1]));
            }
            let (a, b) = (axis_of("flatten", start, sizes.len())?, axis_of("flatten", end, sizes.len())?);
            if a > b {
                return Err(Error::argument("flatten", format!("axis {start} is after axis {end}")));
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
            let sizes = u.sizes("unflatten")?;
            let a = axis_of("unflatten", axis, sizes.len())?;
            let want = [&sizes[..a], &parts[..], &sizes[a + 1..]].concat();
            u.reshape(&infer("unflatten", u, &want)?)
        })
    }

    /// `len` elements of `axis` from `start`.
    #[track_caller]
    pub fn narrow(&self, axis: i64, start: i64, len: i64) -> Tensor {
        self.view(|u| {
            let sizes = u.sizes("narrow")?;
            let a = axis_of("narrow", axis, sizes.len())?;
            let from = if start < 0 { start + sizes[a] } else { start };
            if from < 0 || len < 0 || from + len > sizes[a] {
                let message = format!("{len} elements from {start} of an axis of {}", sizes[a]);
                return Err(Error::argument("narrow", message));
            }
            u.narrow(a, from, len)
        })
    }

    /// `pads[i]` = [before, after] elements around axis i (missing leading axes stay); negative ones
    /// are cut off.
    #[track_caller]
    pub fn pad(&self, pads: &[[i64; 2]], mode: PadMode) -> Tensor {
        self.map(|u| {
            let sizes = u.sizes("pad")?;
            let Some(lead) = sizes.len().checked_sub(pads.len()) else {
                return Err(Error::argument("pad", format!("{} pads for shape {}", pads.len(), u.shape())));
            };
            let fill = match mode {
                PadMode::Constant(v) => Scalar::Float(v).cast(u.dtype()),
                _ => u.dtype().zero(),
            };
            pads.iter().enumerate().try_fold(u.clone(), |u, (i, &[before, after])| {
                pad_axis(&u, lead + i, before, after, mode, fill)
            })
        })
    }

    /// Windows of `size` elements along `axis`, one every `step`, as a new last axis.
    #[track_caller]
    pub fn unfold(&self, axis: i64, size: i64, step: i64) -> Tensor {
        self.map(|u| {
            let n = u.shape().len();
            let a = axis_of("unfold", axis, n)?;
            let w = to_last(u, a)?.windows(size, step, 1)?;
            // (…, o, k) → o back to its place, k last.
            let mut order: Vec<usize> = (0..n - 1).collect();
            order.insert(a, n - 1);
            order.push(n);
            w.permute(&order)
        })
    }

    /// The tensor `repeats[i]` times along axis i (missing leading axes are new).
    #[track_caller]
    pub fn repeat(&self, repeats: impl Into<Dims>) -> Tensor {
        let repeats = repeats.into().0;
        self.map(|u| {
            let sizes = u.sizes("repeat")?;
            if repeats.len() < sizes.len() || repeats.iter().any(|&r| r < 0) {
                return Err(Error::argument("repeat", format!("{repeats:?} times shape {}", u.shape())));
            }
            let sizes = [vec![1; repeats.len() - sizes.len()], sizes].concat();
            let both = |f: &dyn Fn(i64, i64) -> [i64; 2]| -> Vec<i64> {
                sizes.iter().zip(&repeats).flat_map(|(&n, &r)| f(n, r)).collect()
            };
            u.reshape(&Shape::of(&both(&|n, _| [1, n])))?
                .expand(&Shape::of(&both(&|n, r| [r, n])))?
                .reshape(&Shape::of(&sizes.iter().zip(&repeats).map(|(n, r)| n * r).collect::<Vec<_>>()))
        })
    }

    /// Every element `repeats` times in a row along `axis`.
    #[track_caller]
    pub fn repeat_interleave(&self, repeats: i64, axis: i64) -> Tensor {
        self.map(|u| {
            let sizes = u.sizes("repeat_interleave")?;
            let a = axis_of("repeat_interleave", axis, sizes.len())?;
            if repeats < 0 {
                return Err(Error::argument("repeat_interleave", format!("{repeats} times")));
            }
            let with = |mid: &[i64]| Shape::of(&[&sizes[..a], mid, &sizes[a + 1..]].concat());
            let n = sizes[a];
            u.reshape(&with(&[n, 1]))?.expand(&with(&[n, repeats]))?.reshape(&with(&[n * repeats]))
        })
    }

    /// Elements moved by `shifts[i]` along `axes[i]`, those that leave come back at the other end.
    #[track_caller]
    pub fn roll(&self, shifts: impl Into<Dims>, axes: impl Into<Dims>) -> Tensor {
        let (shifts, axes) = (shifts.into().0, axes.into().0);
        self.map(|u| {
            if shifts.len() != axes.len() {
                return Err(Error::argument("roll", format!("shifts {shifts:?} for axes {axes:?}")));
            }
            let sizes = u.sizes("roll")?;
            shifts.iter().zip(&axes).try_fold(u.clone(), |u, (s, &a)| {
                let a = axis_of("roll", a, sizes.len())?;
                let cut = if sizes[a] == 0 { 0 } else { (-s).rem_euclid(sizes[a]) };
                if cut == 0 {
                    return Ok(u);
                }
                join(&[u.narrow(a, cut, sizes[a] - cut)?, u.narrow(a, 0, cut)?], a)
            })
        })
    }

    /// One after another along an axis they have; all other sizes agree, dtypes promote.
    #[track_caller]
    pub fn cat(tensors: &[&Tensor], axis: i64) -> Tensor {
        if tensors.is_empty() {
            return Tensor::failed(Error::argument("cat", "no tensors"));
        }
        Tensor::map_all(tensors, |us| {
            let n = us[0].shape().len();
            let a = axis_of("cat", axis, n)?;
            let rest = |u: &UOp| -> Vec<Dim> {
                u.shape().iter().enumerate().filter(|(i, _)| *i != a).map(|(_, d)| d.clone()).collect()
            };
            if let Some(u) = us.iter().find(|u| u.shape().len() != n || rest(u) != rest(&us[0])) {
                let message = format!("shapes {} and {} along axis {a}", us[0].shape(), u.shape());
                return Err(Error::shape("cat", message));
            }
            let d = us.iter().map(UOp::dtype).reduce(|a, b| a.promote(b)).unwrap_or(us[0].dtype());
            join(&us.iter().map(|u| u.cast(d)).collect::<Vec<_>>(), a)
        })
    }

    /// Side by side along a new axis; shapes agree, dtypes promote.
    #[track_caller]
    pub fn stack(tensors: &[&Tensor], axis: i64) -> Tensor {
        if tensors.is_empty() {
            return Tensor::failed(Error::argument("stack", "no tensors"));
        }
        Tensor::map_all(tensors, |us| {
            let n = us[0].shape().len();
            let a = axis_of("stack", axis, n + 1)?;
            let d = us.iter().map(UOp::dtype).reduce(|a, b| a.promote(b)).unwrap_or(us[0].dtype());
            let s = UOp::try_new(Op::Stack, us.iter().map(|u| u.cast(d)).collect::<Srcs>(), Arg::None)?;
            let mut order: Vec<usize> = (1..=n).collect();
            order.insert(a, 0);
            s.permute(&order)
        })
    }

    /// Pieces of the given sizes along `axis`.
    #[track_caller]
    pub fn split(&self, sizes: impl Into<Dims>, axis: i64) -> Vec<Tensor> {
        let sizes = sizes.into().0;
        let whole = self.uop().and_then(|u| {
            let a = axis_of("split", axis, u.shape().len())?;
            match u.sizes("split")?[a] == sizes.iter().sum::<i64>() {
                true => Ok(()),
                false => {
                    Err(Error::shape("split", format!("{sizes:?} of shape {} along axis {a}", u.shape())))
                }
            }
        });
        if let Err(e) = whole {
            let failed = Tensor::failed(e);
            return sizes.iter().map(|_| failed.clone()).collect();
        }
        let mut out = Vec::with_capacity(sizes.len());
        let mut start = 0;
        for n in sizes {
            out.push(self.narrow(axis, start, n));
            start += n;
        }
        out
    }

    /// At most `chunks` pieces of equal size along `axis`, the last one smaller.
    #[track_caller]
    pub fn chunk(&self, chunks: i64, axis: i64) -> Vec<Tensor> {
        let sizes = self.uop().and_then(|u| {
            let a = axis_of("chunk", axis, u.shape().len())?;
            let n = u.sizes("chunk")?[a];
            if chunks < 1 {
                return Err(Error::argument("chunk", format!("{chunks} chunks")));
            }
            let each = ((n + chunks - 1) / chunks).max(1);
            Ok((0..(n + each - 1) / each).map(|i| each.min(n - i * each)).collect::<Vec<i64>>())
        });
        match sizes {
            Ok(sizes) => self.split(sizes, axis),
            Err(e) => vec![Tensor::failed(e)],
        }
    }

    /// The diagonal of the last two axes, as a new last axis.
    #[track_caller]
    pub fn diagonal(&self) -> Tensor {
        self.map(|u| {
            let sizes = u.sizes("diagonal")?;
            let [outer @ .., m, n] = &sizes[..] else {
                return Err(Error::shape("diagonal", format!("shape {} is no matrix", u.shape())));
            };
            let k = *m.min(n);
            let last = sizes.len() - 1;
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
        })
    }

    /// A vector as the diagonal of a matrix, or the diagonal of a matrix.
    #[track_caller]
    pub fn diag(&self) -> Tensor {
        match tri!(self.ndim()) {
            2 => self.diagonal(),
            _ => self.map(|u| {
                let sizes = u.sizes("diag")?;
                let [n] = sizes[..] else {
                    return Err(Error::shape("diag", format!("shape {} is no vector or matrix", u.shape())));
                };
                if n == 0 {
                    return u.reshape(&Shape::of(&[0, 0]));
                }
                u.reshape(&Shape::of(&[n, 1]))?
                    .pad_axis(1, 0, n, u.dtype().zero())?
                    .reshape(&Shape::of(&[n * (n + 1)]))?
                    .narrow(0, 0, n * n)?
                    .reshape(&Shape::of(&[n, n]))
            }),
        }
    }
}

/// A shape with at most one −1 made whole.
fn infer(op: &str, u: &UOp, want: &[i64]) -> Result<Shape> {
    let holes = want.iter().filter(|&&n| n == -1).count();
    if holes > 1 || want.iter().any(|&n| n < -1) {
        return Err(Error::argument(op, format!("sizes {want:?}")));
    }
    if holes == 0 {
        return Ok(Shape::of(want));
    }
    let total: i64 = u.sizes(op)?.iter().product();
    let known: i64 = want.iter().filter(|&&n| n != -1).product();
    if known == 0 || total % known != 0 {
        return Err(Error::shape(op, format!("shape {} as {want:?}", u.shape())));
    }
    Ok(Shape::of(&want.iter().map(|&n| if n == -1 { total / known } else { n }).collect::<Vec<_>>()))
}

/// The axis moved to the end.
pub(crate) fn to_last(u: &UOp, axis: usize) -> Result<UOp> {
    let order: Vec<usize> = (0..u.shape().len()).filter(|&i| i != axis).chain([axis]).collect();
    u.permute(&order)
}

/// The last axis moved to a place.
pub(crate) fn from_last(u: &UOp, axis: usize) -> Result<UOp> {
    let last = u.shape().len() - 1;
    let mut order: Vec<usize> = (0..last).collect();
    order.insert(axis, last);
    u.permute(&order)
}

/// Parts one after another along an axis: a STACK where all are alike, else each is padded to the
/// whole length, and every element is selected from the part that holds it.
pub(crate) fn join(parts: &[UOp], axis: usize) -> Result<UOp> {
    let lens = parts.iter().map(|u| Ok(u.sizes("cat")?[axis])).collect::<Result<Vec<i64>>>()?;
    let total: i64 = lens.iter().sum();
    let parts: Vec<(&UOp, i64)> = parts.iter().zip(lens).filter(|(_, n)| *n > 0).collect();
    let Some((first, n)) = parts.first() else { return Err(Error::argument("cat", "only empty parts")) };
    if parts.len() == 1 {
        return Ok((*first).clone());
    }
    if parts.iter().all(|(_, m)| m == n) {
        let s =
            UOp::try_new(Op::Stack, parts.iter().map(|(u, _)| (*u).clone()).collect::<Srcs>(), Arg::None)?;
        let rank = first.shape().len();
        let mut order: Vec<usize> = (1..=rank).collect();
        order.insert(axis, 0);
        let mut dims: Vec<Dim> = first.shape().to_vec();
        dims[axis] = Dim::Int(total);
        return s.permute(&order)?.reshape(&Shape::new(dims));
    }
    let mut start = 0;
    let mut out: Option<UOp> = None;
    let place = UOp::arange(total, monoglot_uop::DType::I32);
    for (u, n) in parts {
        let whole = u.pad_axis(axis, start, total - start - n, u.dtype().zero())?;
        start += n;
        out = Some(match out {
            None => whole,
            Some(before) => {
                let mut dims = vec![Dim::Int(1); whole.shape().len()];
                dims[axis] = Dim::Int(total);
                let from = place.binary(Op::CmpLt, &place.like(start - n));
                from.reshape(&Shape::new(dims))?.expand(whole.shape())?.select(&before, &whole)
            }
        });
    }
    out.ok_or_else(|| Error::argument("cat", "no parts"))
}

fn pad_axis(u: &UOp, a: usize, before: i64, after: i64, mode: PadMode, fill: Scalar) -> Result<UOp> {
    let n = u.sizes("pad")?[a];
    let (cut_before, cut_after) = ((-before).max(0), (-after).max(0));
    if cut_before + cut_after > n {
        return Err(Error::argument("pad", format!("[{before}, {after}] of an axis of {n}")));
    }
    let u = u.narrow(a, cut_before, n - cut_before - cut_after)?;
    let (n, before, after) = (n - cut_before - cut_after, before.max(0), after.max(0));
    if before + after == 0 {
        return Ok(u);
    }
    let most = match mode {
        PadMode::Constant(_) => return u.pad_axis(a, before, after, fill),
        PadMode::Reflect => n - 1,
        PadMode::Replicate => i64::MAX,
        PadMode::Circular => n,
    };
    if n == 0 || before > most || after > most {
        let message = format!("[{before}, {after}] more of an axis of {n} than {mode:?} can give");
        return Err(ErrorKind::Argument { op: "pad".into(), message }.into());
    }
    let mut parts = Vec::new();
    let flipped = |start: i64, len: i64| u.narrow(a, start, len)?.flip(1 << a);
    let edge = |at: i64, len: i64| {
        let one = u.narrow(a, at, 1)?;
        let mut dims: Vec<Dim> = one.shape().to_vec();
        dims[a] = Dim::Int(len);
        one.expand(&Shape::new(dims))
    };
    if before > 0 {
        parts.push(match mode {
            PadMode::Reflect => flipped(1, before)?,
            PadMode::Circular => u.narrow(a, n - before, before)?,
            _ => edge(0, before)?,
        });
    }
    parts.push(u.clone());
    if after > 0 {
        parts.push(match mode {
            PadMode::Reflect => flipped(n - 1 - after, after)?,
            PadMode::Circular => u.narrow(a, 0, after)?,
            _ => edge(n - 1, after)?,
        });
    }
    join(&parts, a)
}
