//! Running sums, products and maxima along an axis. Flows in: a tensor; out: one of the same shape.
//!
//! What stands at a place is a fold of all that stands up to it, written as such: `Σ_j (j ≤ i ? x[j] : 0)`.
//! The compiler carries it along the axis, so that it costs as much as its elements. Where there are few
//! rows, a long one is cut in blocks, whose folds are folded first. How depends on the shape alone.

use crate::functions::{afresh, known};
use crate::promote::{count, counter, insert_axis, resized};
use crate::reduce::added;
use crate::tensor::Tensor;
use monoglot_uop::gradient::gradient;
use monoglot_uop::node::Flow;
use monoglot_uop::{Op, ReduceOp, Result, Shape, UOp};

/// Up to this length a fold is what it is written as.
const SHORT: i64 = 16;
/// From this length on a row is cut in blocks, if there are fewer rows than blocks.
const LONG: i64 = 1 << 14;
/// How many blocks, at least where they are even.
const BLOCKS: i64 = 16;
/// Blocks that are folded side by side, and the most turns of each that are taken at a time, as a power of two.
const SIDE_BY_SIDE: i64 = 8;
const TURNED: u32 = 4;
/// Most elements of what one fold is written over.
const MOST: i64 = 1 << 56;

impl Tensor {
    /// Σ of the elements up to each; integers widen to i64 (u64).
    #[track_caller]
    pub fn cumsum(&self, axis: i64) -> Tensor {
        self.scanned("cumsum", axis, |x, a| running_sum(x, a, false))
    }

    /// Π of the elements up to each; integers widen to i64 (u64).
    #[track_caller]
    pub fn cumprod(&self, axis: i64) -> Tensor {
        self.scanned("cumprod", axis, |x, a| {
            let y = running(x, a, ReduceOp::Mul, false)?;
            // Without divisions: through products that double their reach, of a stand-in for x.
            Ok(known(y, &[x], &[a as i64], |f| {
                let x = &f.inputs[0];
                let any = UOp::param(1 << 60, x.shape(), x.dtype(), x.device());
                let found = gradient(&doubled(&any, axis_in(f))?, f.g, std::slice::from_ref(&any))?;
                let map = [(any, x.clone())].into_iter().collect();
                Ok(found
                    .into_iter()
                    .map(|g| Some(g?.substitute(&map)))
                    .collect())
            }))
        })
    }

    /// Something along an axis, in the dtype that sums are held in.
    #[track_caller]
    fn scanned(&self, op: &str, axis: i64, f: impl FnOnce(&UOp, usize) -> Result<UOp>) -> Tensor {
        self.along(op, axis, |u, a| {
            let d = if u.dtype().is_float() {
                u.dtype()
            } else {
                u.dtype().sum_type()
            };
            Ok(f(&u.cast(d.compute_type()), a)?.cast(d))
        })
    }

    /// The greatest of the elements up to each; a tie's gradient goes to the last of them.
    #[track_caller]
    pub fn cummax(&self, axis: i64) -> Tensor {
        self.along("cummax", axis, |x, a| {
            let y = running(x, a, ReduceOp::Max, false)?;
            Ok(known(y, &[x], &[a as i64], |f| {
                let (x, y) = afresh(f);
                let axis = axis_in(f);
                let n = &x.shape()[axis];
                let counts = counter(n.max());
                // The last place that was as great as all up to it, or NaN as they are.
                let top = y.eq_(&x) | (y.ne_(&y) & x.ne_(&x));
                let here = count(axis, x.shape(), counts)?;
                let found = top.select(&here, &here.like(-1));
                let from = running(&found, axis, ReduceOp::Max, false)?;
                let pairs = resized(&x, axis, &[n.clone(), n.clone()]);
                let from = insert_axis(&from, axis)?.expand(&pairs)?;
                let hit = from.eq_(&count(axis, &pairs, counts)?);
                let wide = f.g.cast(f.g.dtype().compute_type());
                let rows = insert_axis(&wide, axis)?.expand(&pairs)?;
                let sums = added(&hit.select(&rows, &rows.like(0.0)), axis + 1)?;
                Ok(vec![Some(sums.cast(f.g.dtype()))])
            }))
        })
    }
}

/// The axis that a derivative was told.
fn axis_in(f: &Flow) -> usize {
    f.params[0] as usize
}

/// Sums up to each element of an axis, or from it on.
fn running_sum(x: &UOp, axis: usize, backwards: bool) -> Result<UOp> {
    let y = running(x, axis, ReduceOp::Add, backwards)?;
    Ok(known(y, &[x], &[axis as i64, backwards as i64], |f| {
        let back = running_sum(f.g, axis_in(f), f.params[1] == 0)?;
        Ok(vec![Some(back)])
    }))
}

/// Every element folded with those before it, or behind it, along an axis.
fn running(x: &UOp, axis: usize, op: ReduceOp, backwards: bool) -> Result<UOp> {
    let Some(sizes) = x.shape().ints() else {
        // Rows of a length that varies are not cut in blocks, and no longer than what one kernel folds.
        return Ok(up_to(x, axis, op, backwards, true)?.unary(Op::Contiguous));
    };
    let n = sizes[axis];
    let rows = sizes.iter().product::<i64>() / n.max(1);
    if n <= 1 || rows == 0 {
        return Ok(x.clone());
    }
    let beyond = rows.saturating_mul(n).saturating_mul(n) > MOST;
    if !beyond && (n < LONG || rows >= BLOCKS) {
        let y = up_to(x, axis, op, backwards, true)?;
        return Ok(if n > SHORT {
            y.unary(Op::Contiguous)
        } else {
            y
        });
    }
    let turned = |b: &i64| match b % SIDE_BY_SIDE {
        0 => (n / b).trailing_zeros().min(TURNED),
        _ => 0,
    };
    let divide = (BLOCKS..4 * BLOCKS).filter(|b| n % b == 0);
    let even = divide.max_by_key(|b| (turned(b), std::cmp::Reverse(*b)));
    let blocks = even.unwrap_or(BLOCKS).max(n >> 20);
    let each = (n + blocks - 1) / blocks;
    let identity = op.identity(x.dtype());
    let missing = blocks * each - n;
    let (before, after) = if backwards {
        (missing, 0)
    } else {
        (0, missing)
    };
    let whole = resized(x, axis, &[blocks * each]);
    let x = x.pad_axis(axis, before, after, identity)?;
    let x = x.reshape(&resized(&x, axis, &[blocks, each]))?;
    let folds = x.reduce(op, &[axis + 1])?.squeeze_axes(&[axis + 1])?;
    let others = up_to(&folds.unary(Op::Contiguous), axis, op, backwards, false)?;
    let others = insert_axis(&others, axis + 1)?.expand(x.shape())?;
    let y = others.binary(op.op(), &up_to(&x, axis + 1, op, backwards, true)?);
    let y = y.unary(Op::Contiguous).reshape(&whole)?;
    y.narrow(axis, before, n)
}

/// As [`running`], written out: of all pairs of a place and another, those in order. What stands at the place
/// counts where `itself` says so.
fn up_to(x: &UOp, axis: usize, op: ReduceOp, backwards: bool, itself: bool) -> Result<UOp> {
    let n = &x.shape()[axis];
    let mut pairs = x.shape().to_vec();
    pairs.insert(axis, n.clone());
    let pairs = Shape::new(pairs);
    let place = count(axis, &pairs, counter(n.max()))?;
    let other = count(axis + 1, &pairs, counter(n.max()))?;
    let (first, second) = if backwards {
        (&other, &place)
    } else {
        (&place, &other)
    };
    let hidden = if itself {
        first.lt(second)
    } else {
        first.binary(Op::CmpLe, second)
    };
    let identity = UOp::constant(op.identity(x.dtype()), x.dtype());
    let rows = insert_axis(x, axis)?.expand(&pairs)?;
    let y = hidden.select(&identity, &rows).reduce(op, &[axis + 1])?;
    y.squeeze_axes(&[axis + 1])
}

/// Products up to each element of an axis, of those that lie 1, 2, 4, … before it.
fn doubled(x: &UOp, axis: usize) -> Result<UOp> {
    let n = &x.shape()[axis];
    let most = n.max();
    let one = x.dtype().one();
    let mut y = x.clone();
    let mut reach = 1;
    let mut steps = 0;
    while reach < most {
        let before = y.pad_axis(axis, reach, 0, one)?.narrow(axis, 0, n)?;
        y = before * &y;
        reach *= 2;
        steps += 1;
        // A step reads twice what the one before it computes: after some, that is stored.
        if steps % 4 == 0 && reach < most {
            y = y.unary(Op::Contiguous);
        }
    }
    Ok(y)
}
