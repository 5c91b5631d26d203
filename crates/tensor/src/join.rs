//! Joining, repeating, padding and cutting. Flows in: tensors; out: one made of several, or several made
//! of one (pieces are views).

use crate::args::Dims;
use crate::tensor::{Tensor, axis_of};
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
