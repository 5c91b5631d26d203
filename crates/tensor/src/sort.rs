//! Order along an axis. Flows in: a tensor; out: its elements in order and where they came from.
//!
//! The order is stable (ties keep their order, also when descending) and NaN is greatest. Short axes
//! are sorted by counting, for each element, how many stand before it; long ones by a bitonic network
//! of O(log² n) steps over all elements.

use crate::join::join;
use crate::movement::{from_last, to_last};
use crate::promote::broadcast_to;
use crate::tensor::{Tensor, axis_of, marker};
use monoglot_uop::{DType, Dim, Error, Op, ReduceOp, Result, Scalar, Shape, UOp};

/// Up to this length every pair is compared.
const PAIRS: i64 = 64;

impl Tensor {
    /// The elements along `axis` in order.
    #[track_caller]
    pub fn sort(&self, axis: i64, descending: bool) -> Tensor {
        self.sorted(axis, descending).0
    }

    /// Where the elements in order come from, as i32.
    #[track_caller]
    pub fn argsort(&self, axis: i64, descending: bool) -> Tensor {
        self.sorted(axis, descending).1
    }

    /// `sort` and `argsort` at once.
    #[track_caller]
    pub fn sorted(&self, axis: i64, descending: bool) -> (Tensor, Tensor) {
        let pair = self.uop().and_then(|u| {
            let a = axis_of("sort", axis, u.shape().len().max(1))?;
            if u.shape().is_empty() {
                return Ok((u.clone(), UOp::int(0, DType::I32)));
            }
            let x = to_last(&u, a)?;
            let n = x.sizes("sort")?[x.shape().len() - 1];
            let (v, i) = if n <= PAIRS { by_rank(&x, n, descending)? } else { bitonic(&x, n, descending)? };
            Ok((from_last(&v, a)?, from_last(&i, a)?))
        });
        match pair {
            Ok((v, i)) => (Tensor::from_uop(v), Tensor::from_uop(i)),
            Err(e) => {
                let failed = Tensor::failed(e);
                (failed.clone(), failed)
            }
        }
    }

    /// The k greatest (or least) along `axis`, in order, and where they come from.
    #[track_caller]
    pub fn topk(&self, k: i64, axis: i64, largest: bool) -> (Tensor, Tensor) {
        let fits = self.uop().and_then(|u| {
            let a = axis_of("topk", axis, u.shape().len())?;
            match (0..=u.sizes("topk")?[a]).contains(&k) {
                true => Ok(()),
                false => Err(Error::argument("topk", format!("{k} of shape {} along axis {a}", u.shape()))),
            }
        });
        if let Err(e) = fits {
            let failed = Tensor::failed(e);
            return (failed.clone(), failed);
        }
        let (v, i) = self.sorted(axis, largest);
        (v.narrow(axis, 0, k), i.narrow(axis, 0, k))
    }
}

/// Whether a (at ia) stands before b (at ib).
fn before(a: &UOp, ia: &UOp, b: &UOp, ib: &UOp, descending: bool) -> UOp {
    let (first, second) = if descending { (b, a) } else { (a, b) };
    let mut less = first.lt(second);
    let mut same = a.eq_(b);
    if a.dtype().is_float() {
        let (na, nb) = (first.ne_(first), second.ne_(second));
        same = same | (&na & &nb);
        less = less | (na.unary(Op::Not) & nb);
    }
    less | (same & ia.lt(ib))
}

fn by_rank(x: &UOp, n: i64, descending: bool) -> Result<(UOp, UOp)> {
    let last = x.shape().len();
    let dims =
        |a: i64, b: i64| Shape::new(x.shape()[..last - 1].iter().cloned().chain([Dim::Int(a), Dim::Int(b)]));
    let all = dims(n, n);
    let key = marker(x, Op::Detach)?;
    let place = UOp::arange(n, DType::I32);
    let column = |u: &UOp| u.reshape(&dims(n, 1))?.expand(&all);
    let row = |u: &UOp| u.reshape(&dims(1, n))?.expand(&all);
    let spread = |a: i64, b: i64| broadcast_to(&place.reshape(&Shape::of(&[a, b]))?, &all);
    let (i, j) = (spread(n, 1)?, spread(1, n)?);
    // Row i, column j: does j stand before i?
    let ahead = before(&row(&key)?, &j, &column(&key)?, &i, descending);
    let rank = ahead.cast(DType::I32).reduce(ReduceOp::Add, &[last])?.reshape(x.shape())?;
    // Row r, column i: is i the one of rank r?
    let chosen = row(&rank)?.eq_(&i);
    let zero = UOp::constant(x.dtype().zero(), x.dtype());
    let values = chosen.select(&row(x)?, &zero).reduce(ReduceOp::Add, &[last])?.reshape(x.shape())?;
    let from = chosen.select(&j, &j.like(0)).reduce(ReduceOp::Add, &[last])?.reshape(x.shape())?;
    Ok((values, from))
}

fn bitonic(x: &UOp, n: i64, descending: bool) -> Result<(UOp, UOp)> {
    let axis = x.shape().len() - 1;
    let size = (n as u64).next_power_of_two() as i64;
    // What is added stands last: it is no nearer the front than any element, and ties keep their order.
    let fill = match (x.dtype(), descending) {
        (d, false) if d.is_float() => Scalar::Float(f64::NAN),
        (d, true) => d.min(),
        (d, false) => d.max(),
    };
    let mut value = x.pad_axis(axis, 0, size - n, fill)?;
    let mut from = broadcast_to(&UOp::arange(size, DType::I32), value.shape())?;
    let outer: Vec<Dim> = x.shape()[..axis].to_vec();
    let dims = |tail: &[i64]| Shape::new(outer.iter().cloned().chain(tail.iter().map(|&n| Dim::Int(n))));
    let mut block = 2;
    while block <= size {
        let mut stride = block / 2;
        let mut mirrored = true;
        while stride >= 1 {
            // The first step of a block pairs its ends, the others neighbours at a distance.
            let halves = |u: &UOp| -> Result<(UOp, UOp)> {
                let pairs = u.reshape(&dims(&[size / (2 * stride), 2, stride]))?;
                let (a, b) = (pairs.narrow(axis + 1, 0, 1)?, pairs.narrow(axis + 1, 1, 1)?);
                Ok((a, if mirrored { b.flip(1 << (axis + 2))? } else { b }))
            };
            let ((a, b), (ia, ib)) = (halves(&value)?, halves(&from)?);
            let (ka, kb) = (marker(&a, Op::Detach)?, marker(&b, Op::Detach)?);
            let swap = before(&kb, &ib, &ka, &ia, descending);
            let merge = |a: &UOp, b: &UOp| -> Result<UOp> {
                let (low, high) = (swap.select(b, a), swap.select(a, b));
                let high = if mirrored { high.flip(1 << (axis + 2))? } else { high };
                // Stored, so that no step is computed again by its two readers.
                marker(&join(&[low, high], axis + 1)?.reshape(&dims(&[size]))?, Op::Contiguous)
            };
            (value, from) = (merge(&a, &b)?, merge(&ia, &ib)?);
            mirrored = false;
            stride /= 2;
        }
        block *= 2;
    }
    Ok((value.narrow(axis, 0, n)?, from.narrow(axis, 0, n)?))
}
