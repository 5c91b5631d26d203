//! Joining, repeating, padding and cutting. Flows in: tensors; out: one made of several, or several made
//! of one (pieces are views).

use crate::args::Dims;
use crate::length::{Size, Sizes};
use crate::promote::{
    count, counter, held, insert_axis, integers, number, resized, size_of, spread, vector,
};
use crate::shape::sizes;
use crate::tensor::{Tensor, axis_of};
use crate::trace::is_constant;
use monoglot_uop::{Arg, Dim, Error, Op, Result, Scalar, Shape, UOp};
use std::panic::Location;

/// Most pieces of nothing.
const MOST: i64 = 1 << 24;
/// Most pieces that carry an error.
const SHOWN: i64 = 1 << 10;

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
    /// are cut off. `Reflect` and `Replicate` see what is cut off, `Circular` does not.
    #[track_caller]
    pub fn pad(&self, pads: &[[i64; 2]], mode: PadMode) -> Tensor {
        self.map(|u| {
            let Some(lead) = u.shape().len().checked_sub(pads.len()) else {
                return Err(Error::argument(
                    "pad",
                    format!("{} pads for shape {}", pads.len(), u.shape()),
                ));
            };
            pads.iter()
                .enumerate()
                .try_fold(u.clone(), |u, (i, &by)| pad_axis(&u, lead + i, by, mode))
        })
    }

    /// The tensor `repeats[i]` times along axis i (missing leading axes are new).
    #[track_caller]
    pub fn repeat(&self, repeats: impl Into<Dims>) -> Tensor {
        let repeats = repeats.into().0;
        self.map(|u| {
            let mut old = u.shape().to_vec();
            let Some(new) = repeats.len().checked_sub(old.len()) else {
                return Err(Error::argument(
                    "repeat",
                    format!("{repeats:?} times shape {}", u.shape()),
                ));
            };
            old.splice(..0, vec![Dim::Int(1); new]);
            let both = |copies: &dyn Fn(i64) -> i64| -> Vec<Dim> {
                let pairs = old.iter().zip(&repeats);
                let pairs = pairs.map(|(n, &r)| [Dim::Int(copies(r)), n.clone()]);
                pairs.flatten().collect()
            };
            let copies = sizes("repeat", Sizes(both(&|r| r)))?;
            let whole = old.iter().zip(&repeats).map(|(n, r)| n * r);
            u.reshape(&Shape::new(both(&|_| 1)))?
                .expand(&copies)?
                .reshape(&Shape::new(whole))
        })
    }

    /// Every element `repeats` times in a row along `axis`.
    #[track_caller]
    pub fn repeat_interleave(&self, repeats: i64, axis: i64) -> Tensor {
        self.along("repeat_interleave", axis, |u, a| {
            let n = &u.shape()[a];
            let copies = resized(u, a, &[n.clone(), repeats.into()]);
            let copies = sizes("repeat_interleave", Sizes(copies.to_vec()))?;
            insert_axis(u, a + 1)?
                .expand(&copies)?
                .reshape(&resized(u, a, &[n * repeats]))
        })
    }

    /// Elements moved by `shifts[i]` along `axes[i]`, those that leave come back at the other end.
    #[track_caller]
    pub fn roll(&self, shifts: impl Into<Dims>, axes: impl Into<Dims>) -> Tensor {
        let shifts = shifts.into().0;
        let axes = axes.into().0;
        self.map(|u| {
            if shifts.len() != axes.len() {
                return Err(Error::argument(
                    "roll",
                    format!("shifts {shifts:?} for axes {axes:?}"),
                ));
            }
            let x = vector(u)?;
            let sizes = x.shape().clone();
            let rolled = shifts.iter().zip(&axes).try_fold(x, |x, (&s, &a)| {
                let a = axis_of("roll", a, sizes.len())?;
                let n = &sizes[a];
                let moved = Dim::Int(s) % n.or_more(1);
                let cut = (n - &moved).or_more(0);
                let parts = [x.narrow(a, &cut, moved)?, x.narrow(a, 0, &cut)?];
                // As many as there were, whatever the rules see of their sum.
                join(&parts, a)?.narrow(a, 0, n)
            })?;
            rolled.reshape(u.shape())
        })
    }

    /// One after another along an axis they have; all other sizes agree, dtypes promote.
    #[track_caller]
    pub fn cat(tensors: &[&Tensor], axis: i64) -> Tensor {
        Tensor::joined(
            "cat",
            tensors,
            |first| axis_of("cat", axis, first.shape().len()),
            |u, _| Ok(u),
        )
    }

    /// Side by side along a new axis; shapes agree, dtypes promote.
    #[track_caller]
    pub fn stack(tensors: &[&Tensor], axis: i64) -> Tensor {
        let place = |first: &UOp| axis_of("stack", axis, first.shape().len() + 1);
        Tensor::joined("stack", tensors, place, |u, a| {
            insert_axis(&u, a.min(u.shape().len()))
        })
    }

    /// Tensors one after another along the axis that `place` finds, each brought into form first.
    #[track_caller]
    fn joined(
        op: &str,
        tensors: &[&Tensor],
        place: impl FnOnce(&UOp) -> Result<usize>,
        form: impl Fn(UOp, usize) -> Result<UOp>,
    ) -> Tensor {
        Tensor::map_all(tensors, |us| {
            let first = us
                .first()
                .ok_or_else(|| Error::argument(op, "no tensors"))?;
            let a = place(first)?;
            let d = us
                .iter()
                .map(UOp::dtype)
                .fold(first.dtype(), |d, e| d.promote(e));
            let us = us
                .iter()
                .map(|u| form(u.cast(d), a))
                .collect::<Result<Vec<UOp>>>()?;
            let rest = |u: &UOp| resized(u, a, &[0i64]);
            let fits = |u: &&UOp| u.shape().len() == us[0].shape().len() && rest(u) == rest(&us[0]);
            match us.iter().find(|u| !fits(u)) {
                None => join(&us, a),
                Some(u) => {
                    let message =
                        format!("shapes {} and {} along axis {a}", us[0].shape(), u.shape());
                    Err(Error::shape(op, message))
                }
            }
        })
    }

    /// Pieces of the given sizes along `axis`.
    #[track_caller]
    pub fn split(&self, sizes: impl Into<Sizes>, axis: i64) -> Vec<Tensor> {
        let sizes = sizes.into().0;
        let whole = self.along("split", axis, |u, a| {
            let n = &u.shape()[a];
            let fits = match (n.as_int(), numbers(&sizes)) {
                (Some(n), Some(parts)) => sum(&parts) == Some(n),
                _ => sizes.iter().fold(Dim::Int(0), |n, d| n + d) == *n,
            };
            let message = || format!("{sizes:?} of shape {} along axis {a}", u.shape());
            fits.then(|| u.clone())
                .ok_or_else(|| Error::shape("split", message()))
        });
        if whole.check().is_err() {
            return vec![whole; sizes.len()];
        }
        let mut start = Dim::Int(0);
        let mut out = Vec::new();
        for n in sizes {
            let next = &start + &n;
            out.push(self.narrow(axis, Size(start), Size(n)));
            start = next;
        }
        out
    }

    /// At most `chunks` pieces of equal size along `axis`, the last one smaller; as many of an empty axis, and of a tensor
    /// that carries an error.
    #[track_caller]
    pub fn chunk(&self, chunks: i64, axis: i64) -> Vec<Tensor> {
        let here = Location::caller();
        let failed = |e: Error| vec![Tensor::failed(e.at(here)); chunks.clamp(1, SHOWN) as usize];
        let n = self
            .uop()
            .and_then(|u| size_of("chunk", &u, axis_of("chunk", axis, u.shape().len())?));
        match n {
            // Empty pieces are tensors too: too many of them are refused.
            Ok(n) if chunks > 0 && (n > 0 || chunks <= MOST) => {
                let each = ((n - 1) / chunks + 1).max(1);
                let pieces = if n == 0 {
                    chunks
                } else {
                    (n + each - 1) / each
                };
                let sizes = (0..pieces).map(|i| (n - i * each).clamp(0, each));
                self.split(sizes.collect::<Vec<i64>>(), axis)
            }
            Ok(_) => failed(Error::argument("chunk", format!("{chunks} chunks"))),
            Err(e) => failed(e),
        }
    }
}

/// Sizes as numbers, where all are.
fn numbers(sizes: &[Dim]) -> Option<Vec<i64>> {
    sizes.iter().map(Dim::as_int).collect()
}

/// Parts one after another along an axis: a STACK where all are alike, else each is padded to the
/// whole length, and every element is selected from the part that holds it.
pub(crate) fn join(parts: &[UOp], axis: usize) -> Result<UOp> {
    if parts.iter().any(|u| u.shape()[axis].as_int().is_none()) {
        return join_varying(parts, axis);
    }
    let lens = parts
        .iter()
        .map(|u| size_of("cat", u, axis))
        .collect::<Result<Vec<i64>>>()?;
    let total = sum(&lens).unwrap_or(-1);
    let shape = sizes("cat", Sizes(resized(&parts[0], axis, &[total]).to_vec()))?;
    // What is empty is nothing of the value, but the value is a function of it.
    let counts = |&(u, n): &(&UOp, i64)| n > 0 || total > 0 && !is_constant(u);
    let empty = &parts[0];
    let parts: Vec<(&UOp, i64)> = parts.iter().zip(lens).filter(counts).collect();
    let n = match parts[..] {
        [] => return Ok(empty.clone()),
        [(one, _)] => return Ok(one.clone()),
        [(_, n), ..] => n,
    };
    if parts.iter().all(|(_, m)| *m == n) {
        let all: Vec<UOp> = parts.iter().map(|(u, _)| (*u).clone()).collect();
        let mut order: Vec<usize> = (1..=shape.len()).collect();
        order.insert(axis, 0);
        return UOp::try_new(Op::Stack, all, Arg::None)?
            .permute(&order)?
            .reshape(&shape);
    }
    let place = UOp::arange(total, counter(total));
    let mut start = 0;
    let mut out = None;
    for (u, n) in parts {
        let whole = u.pad_axis(axis, start, total - start - n, u.dtype().zero())?;
        out = Some(match out {
            None => whole,
            Some(before) => {
                let from = spread(&place.binary(Op::CmpLt, &place.like(start)), axis, &shape)?;
                from.select(&before, &whole)
            }
        });
        start += n;
    }
    out.ok_or_else(|| Error::argument("cat", "no parts"))
}

/// As `join`, where the length of a part varies.
fn join_varying(parts: &[UOp], axis: usize) -> Result<UOp> {
    let mut starts: Vec<Dim> = Vec::with_capacity(parts.len());
    let mut end = Dim::Int(0);
    for u in parts {
        starts.push(end.clone());
        end = end + &u.shape()[axis];
    }
    let mut dims = parts[0].shape().to_vec();
    dims[axis] = end;
    let shape = sizes("cat", Sizes(dims))?;
    let dtype = counter(shape[axis].max());
    let place = count(axis, &shape, dtype)?;
    let mut out: Option<UOp> = None;
    for (u, start) in parts.iter().zip(&starts) {
        let mut at = vec![Dim::Int(0); shape.len()];
        at[axis] = start.clone();
        let whole = u.pad(&at, &shape, u.dtype().zero())?;
        out = Some(match out {
            None => whole,
            Some(before) => {
                let from = place.lt(&number(start, dtype, &shape)?);
                from.select(&before, &whole)
            }
        });
    }
    out.ok_or_else(|| Error::argument("cat", "no parts"))
}

/// The sum, where it is a size.
fn sum(sizes: &[i64]) -> Option<i64> {
    sizes.iter().try_fold(0i64, |sum, &n| sum.checked_add(n))
}

pub(crate) fn pad_axis(u: &UOp, a: usize, [before, after]: [i64; 2], mode: PadMode) -> Result<UOp> {
    if u.shape()[a].as_int().is_none() {
        return pad_varying(u, a, [before, after], mode);
    }
    let n = size_of("pad", u, a)?;
    // The result is places −before to n + after of the axis, of which 0 to n are there.
    let low = before.saturating_neg();
    let high = n.saturating_add(after);
    let total = high.checked_sub(low).unwrap_or(-1);
    // Filling and wrapping have nothing to go on with where more is cut off than there is.
    let cut = before.min(0).saturating_add(after.min(0)).saturating_add(n) < 0;
    let sees = matches!(mode, PadMode::Reflect | PadMode::Replicate);
    let shape = sizes("pad", Sizes(resized(u, a, &[total]).to_vec()));
    if shape.is_err() || (cut && !sees) {
        let message = format!("[{before}, {after}] of an axis of {n}");
        return Err(Error::argument("pad", message));
    }
    let first = low.clamp(0, n);
    let last = high.clamp(0, n);
    let inside = u.narrow(a, first, (last - first).max(0))?;
    let front = (high.min(0) - low).max(0);
    let back = (high - low.max(n)).max(0);
    let fits = match mode {
        PadMode::Constant(v) => return inside.pad_axis(a, front, back, fill(u, v)?),
        PadMode::Reflect => -n < low && high < n.saturating_mul(2),
        PadMode::Replicate => n > 0,
        PadMode::Circular => front.max(back) <= size_of("pad", &inside, a)?,
    };
    if front + back > 0 && !fits {
        let message = format!("[{before}, {after}] more of an axis of {n} than {mode:?} can give");
        return Err(Error::argument("pad", message));
    }
    let edge = |at: i64, len: i64| u.narrow(a, at, 1)?.expand(&resized(u, a, &[len]));
    let mut parts = vec![inside.clone()];
    if front > 0 {
        parts.insert(
            0,
            match mode {
                PadMode::Reflect => u.narrow(a, 1 - high.min(0), front)?.flip(1 << a)?,
                PadMode::Circular => inside.narrow(a, last - first - front, front)?,
                _ => edge(0, front)?,
            },
        );
    }
    if back > 0 {
        parts.push(match mode {
            PadMode::Reflect => u.narrow(a, 2 * n - 1 - high, back)?.flip(1 << a)?,
            PadMode::Circular => inside.narrow(a, 0, back)?,
            _ => edge(n - 1, back)?,
        });
    }
    join(&parts, a)
}

/// What is put around these elements, cut off to a whole number where they are such: their dtype must hold it.
fn fill(u: &UOp, value: f64) -> Result<Scalar> {
    let d = u.dtype();
    if integers(d).is_none() {
        return Ok(Scalar::Float(value).cast(d));
    }
    if !value.is_finite() {
        return Err(Error::dtype(
            "pad",
            format!("{value} around a tensor of {d}"),
        ));
    }
    held("pad", value as i128, d)?;
    Ok(Scalar::Int(value as i128).cast(d))
}

/// As `pad_axis`, of an axis whose length varies.
fn pad_varying(u: &UOp, a: usize, [before, after]: [i64; 2], mode: PadMode) -> Result<UOp> {
    if before == 0 && after == 0 {
        return Ok(u.clone());
    }
    let n = &u.shape()[a];
    let front = before.max(0);
    let back = after.max(0);
    let first = before.min(0).saturating_neg();
    let left = n - first + after.min(0);
    let bad = |why: &str| {
        let message = format!("[{before}, {after}] around an axis of {n:?} by {mode:?}: {why}");
        Err(Error::argument("pad", message))
    };
    // What there must be of the axis.
    let needed = match mode {
        PadMode::Constant(_) => 0,
        PadMode::Reflect => front.max(back).saturating_add(1),
        PadMode::Replicate => 1,
        PadMode::Circular => front.max(back),
    };
    let cut = before < 0 || after < 0;
    if cut && !matches!(mode, PadMode::Constant(_)) {
        return bad("a length that varies is not cut here; `narrow` cuts it");
    }
    if left.min() < needed.max(0) {
        return bad(&format!(
            "it can be {}, which is too short: let its length begin later",
            n.min()
        ));
    }
    let inside = u.narrow(a, first, &left)?;
    let edge = |at: Dim, len: i64| u.narrow(a, at, 1)?.expand(&resized(u, a, &[len]));
    let parts = match mode {
        PadMode::Constant(v) => {
            return inside.pad_axis(a, front, back, fill(u, v)?);
        }
        PadMode::Reflect => [
            u.narrow(a, 1, front)?.flip(1 << a)?,
            inside,
            u.narrow(a, n - (1 + back), back)?.flip(1 << a)?,
        ],
        PadMode::Replicate => [edge(0.into(), front)?, inside, edge(n - 1, back)?],
        PadMode::Circular => [
            u.narrow(a, n - front, front)?,
            inside,
            u.narrow(a, 0, back)?,
        ],
    };
    let there = parts.iter().filter(|p| !p.shape()[a].is(0)).cloned();
    join(&there.collect::<Vec<UOp>>(), a)
}
