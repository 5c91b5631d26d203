//! Running sums, products and maxima along an axis. Flows in: a tensor; out: one of the same shape.
//!
//! A sum of n reads at most 2n√n elements: blocks of about √n are summed by windows, and the totals of
//! the blocks, again a running sum, are added. Products and maxima double their reach at every step,
//! which keeps their gradients free of divisions and of ties.

use crate::movement::{from_last, to_last};
use crate::promote::resized;
use crate::reduce::added;
use crate::tensor::Tensor;
use monoglot_uop::{Op, Result, Scalar, UOp};

/// Up to this length one window an element costs less than two levels.
const DIRECT: i64 = 14;
/// The longest block, so that long axes get more levels rather than long windows.
const BLOCK: i64 = 64;

impl Tensor {
    /// Σ of the elements up to each; integers widen to i64 (u64).
    #[track_caller]
    pub fn cumsum(&self, axis: i64) -> Tensor {
        self.scanned("cumsum", axis, running_sum)
    }

    /// Π of the elements up to each; integers widen to i64 (u64).
    #[track_caller]
    pub fn cumprod(&self, axis: i64) -> Tensor {
        self.scanned("cumprod", axis, |x| {
            doubled(x, x.dtype().one(), |before, here| before * here)
        })
    }

    /// Something along the last axis, in the dtype that sums are held in.
    #[track_caller]
    fn scanned(&self, op: &str, axis: i64, f: impl FnOnce(&UOp) -> Result<UOp>) -> Tensor {
        self.along(op, axis, |u, a| {
            let d = if u.dtype().is_float() {
                u.dtype()
            } else {
                u.dtype().sum_type()
            };
            from_last(&f(&to_last(&u.cast(d.compute_type()), a)?)?.cast(d), a)
        })
    }

    /// The greatest of the elements up to each; a tie's gradient goes to the last of them.
    #[track_caller]
    pub fn cummax(&self, axis: i64) -> Tensor {
        self.along("cummax", axis, |u, a| {
            let x = to_last(u, a)?;
            let y = doubled(&x, u.dtype().min(), |before, here| {
                let mut stay = here.lt(before);
                if here.dtype().is_float() {
                    stay = (stay | before.ne_(before)) & here.eq_(here);
                }
                stay.select(before, here)
            })?;
            from_last(&y, a)
        })
    }
}

/// Along the last axis.
fn running_sum(x: &UOp) -> Result<UOp> {
    let sizes = x.sizes("cumsum")?;
    let n = sizes[sizes.len() - 1];
    let axis = sizes.len() - 1;
    let zero = x.dtype().zero();
    if n <= 1 {
        return Ok(x.clone());
    }
    let direct = |x: &UOp, axis: usize, n: i64| {
        added(
            &x.pad_axis(axis, n - 1, 0, zero)?.windows(n, 1, 1)?,
            axis + 1,
        )
    };
    if n <= DIRECT {
        return direct(x, axis, n);
    }
    let b = ((n as f64).sqrt().ceil() as i64).min(BLOCK);
    let a = (n + b - 1) / b;
    let dims = |tail: &[i64]| resized(x, axis, tail);
    let blocks = x
        .pad_axis(axis, 0, a * b - n, zero)?
        .reshape(&dims(&[a, b]))?;
    let inner = direct(&blocks, axis + 1, b)?.unary(Op::Contiguous);
    // What stands before each block: the running sum of the blocks' last elements, moved by one.
    let totals = inner.narrow(axis + 1, b - 1, 1)?.reshape(&dims(&[a]))?;
    let before =
        running_sum(&totals.pad_axis(axis, 1, 0, zero)?.narrow(axis, 0, a)?)?.unary(Op::Contiguous);
    let out = inner + before.reshape(&dims(&[a, 1]))?.expand(&dims(&[a, b]))?;
    out.reshape(&dims(&[a * b]))?.narrow(axis, 0, n)
}

/// Every element combined with what lies 1, 2, 4, … before it, along the last axis.
fn doubled(x: &UOp, identity: Scalar, combine: impl Fn(&UOp, &UOp) -> UOp) -> Result<UOp> {
    let axis = x.shape().len() - 1;
    let n = x.sizes("scan")?[axis];
    let mut y = x.clone();
    let mut reach = 1;
    let mut steps = 0;
    while reach < n {
        let before = y.pad_axis(axis, reach, 0, identity)?.narrow(axis, 0, n)?;
        y = combine(&before, &y);
        reach *= 2;
        steps += 1;
        // A step reads twice what the one before it computes: after some, that is stored.
        if steps % 4 == 0 && reach < n {
            y = y.unary(Op::Contiguous);
        }
    }
    Ok(y)
}
