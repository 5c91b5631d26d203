//! Pooling. Flows in: (…, spatial axes…) and the numbers of a window; flows out: each window folded to one
//! element. What flows back goes to every element of a window, or to the first of the greatest.

use crate::args::Dims;
use crate::conv::{Phased, interleaved, padded, per_axis, shape, windows};
use crate::functions::{afresh, known};
use crate::movement::to_last;
use crate::promote::broadcast_to;
use crate::tensor::Tensor;
use monoglot_uop::{DType, Dim, Error, Op, ReduceOp, Result, Scalar, Shape, UOp, gradient};

/// Most windows that an element lies in from which its gradient is gathered.
const WINDOWS: i64 = 9;

impl Tensor {
    /// The greatest of every window of the last axes; a tie's gradient goes to the first.
    #[track_caller]
    pub fn max_pool(
        &self,
        kernel: impl Into<Dims>,
        stride: impl Into<Dims>,
        padding: impl Into<Dims>,
        dilation: impl Into<Dims>,
    ) -> Tensor {
        let k = kernel.into();
        let s = stride.into();
        let p = padding.into();
        let d = dilation.into();
        self.map(|u| max_pool(u, &Pooling::new("max_pool", u, &k, &s, &p, &d)?))
    }

    /// The mean of every window of the last axes; zeros of the padding count if `count_pad`.
    #[track_caller]
    pub fn avg_pool(
        &self,
        kernel: impl Into<Dims>,
        stride: impl Into<Dims>,
        padding: impl Into<Dims>,
        count_pad: bool,
    ) -> Tensor {
        let k = kernel.into();
        let s = stride.into();
        let p = padding.into();
        self.map(|u| {
            let pool = Pooling::new("avg_pool", u, &k, &s, &p, &Dims(vec![1]))?;
            let d = if u.dtype().is_float() {
                u.dtype()
            } else {
                DType::F32
            };
            let x = u.cast(d.compute_type());
            let total = |x: &UOp| pool.folded(x, x.dtype().zero(), ReduceOp::Add);
            let sums = total(&x)?;
            let by = if count_pad || pool.padding.iter().all(|&p| p == 0) {
                x.like(pool.kernel.iter().product::<i64>())
            } else {
                total(&UOp::full(x.dtype().one(), x.dtype(), x.shape()))?
            };
            Ok(sums.binary(Op::Div, &by).cast(d))
        })
    }
}

struct Pooling {
    first: usize,
    kernel: Vec<i64>,
    stride: Vec<i64>,
    padding: Vec<i64>,
    dilation: Vec<i64>,
}

/// A window that an element lies in.
#[derive(Default)]
struct Cover {
    /// Which of the window's elements it is, in a row.
    element: i64,
    /// Where the window of the first round lies along each axis.
    at: Vec<i64>,
}

impl Pooling {
    fn new(op: &str, u: &UOp, k: &Dims, s: &Dims, p: &Dims, d: &Dims) -> Result<Pooling> {
        let rank = u.shape().len();
        // One number is for all axes after batch and channels.
        let n = if k.0.len() == 1 {
            rank.saturating_sub(2).max(1)
        } else {
            k.0.len()
        };
        let kernel = per_axis(op, "kernel", k, n, 1)?;
        let stride = if s.0.is_empty() {
            kernel.clone()
        } else {
            per_axis(op, "stride", s, n, 1)?
        };
        let padding = per_axis(op, "padding", p, n, 0)?;
        let dilation = per_axis(op, "dilation", d, n, 1)?;
        for ((&p, &k), &d) in padding.iter().zip(&kernel).zip(&dilation) {
            let span = (k - 1).saturating_mul(d).saturating_add(1);
            if p > span / 2 {
                let message =
                    format!("padding of {p} for windows of {span}: more than half of them");
                return Err(Error::argument(op, message));
            }
        }
        let Some(first) = rank.checked_sub(n) else {
            return Err(Error::shape(op, format!("{n} axes of shape {}", u.shape())));
        };
        Ok(Pooling {
            first,
            kernel,
            stride,
            padding,
            dilation,
        })
    }

    /// (…, spatial…) as (…, out…, k…).
    fn windows(&self, u: &UOp, fill: Scalar) -> Result<UOp> {
        let padded = padded(u, self.first, &self.padding, fill.to_f64())?;
        windows(
            &padded,
            self.first,
            &self.kernel,
            &self.stride,
            &self.dilation,
        )
    }

    /// Whether an element may lie in several windows, but in so few that each can be asked.
    fn overlaps(&self) -> bool {
        let axes = self.kernel.iter().zip(&self.stride);
        let windows: i64 = axes.map(|(&k, &s)| (k + s - 1) / s).product();
        (2..=WINDOWS).contains(&windows) && self.dilation.iter().all(|&d| d == 1)
    }

    /// What flows to each element: of every window that it lies in, if it is the window's first of the greatest.
    fn gathered(&self, u: &UOp, top: &UOp, flow: &UOp) -> Result<UOp> {
        let places = self.kernel.iter().zip(&self.stride).zip(&self.padding);
        let axes = places.zip(&u.shape()[self.first..]);
        let axes = axes.map(|(((&k, &s), &p), n)| Phased::new(k, s, p, n.clone()));
        let axes: Vec<Phased> = axes.collect();
        let around = |u: &UOp| {
            let mut all = axes.iter().enumerate();
            all.try_fold(u.clone(), |u, (i, axis)| axis.padded(&u, self.first + i))
        };
        let left = around(&self.first_of_equals(u, top)?)?;
        let flow = around(flow)?;
        let rounds: Vec<Dim> = axes.iter().map(Phased::rounds).collect();
        let there = |u: &UOp, at: &[i64]| {
            let mut all = at.iter().zip(&rounds).enumerate();
            all.try_fold(u.clone(), |u, (i, (&at, n))| {
                u.narrow(self.first + i, at, n)
            })
        };
        let whole = self.kernel.iter().product::<i64>();
        let lead = &flow.shape()[..self.first];
        let nowhere = || {
            let zero = flow.dtype().zero();
            Ok(UOp::full(zero, flow.dtype(), &shape(&[lead, &rounds])))
        };
        let apart = rounds.iter().flat_map(|n| [n.clone(), Dim::Int(1)]);
        let apart = shape(&[lead, &apart.collect::<Vec<_>>()]);
        let phase = |covers: &Vec<Cover>| {
            let terms = covers.iter().map(|cover| -> Result<UOp> {
                let left = there(&left, &cover.at)?;
                let own = left.eq_(&left.like(whole - cover.element));
                let flow = there(&flow, &cover.at)?;
                Ok(own.select(&flow, &flow.like(0.0)))
            });
            let sum = terms.reduce(|a, b| Ok(a? + b?));
            sum.unwrap_or_else(nowhere)?.reshape(&apart)
        };
        let parts = self
            .covers(&axes)
            .iter()
            .map(phase)
            .collect::<Result<_>>()?;
        interleaved(parts, self.first, &axes, |axis| axis.step as usize)
    }

    /// For the elements of each phase of the axes, those of the last axis next to each other, the windows that they lie in.
    fn covers(&self, axes: &[Phased]) -> Vec<Vec<Cover>> {
        let mut phases = vec![vec![Cover::default()]];
        for (axis, &k) in axes.iter().zip(&self.kernel) {
            let along = axis.taps();
            let both = |covers: &[Cover], taps: &[(i64, i64)]| {
                let with = |cover: &Cover, &(tap, from): &(i64, i64)| Cover {
                    element: cover.element * k + tap,
                    at: [&cover.at[..], &[axis.before + from]].concat(),
                };
                let all = covers
                    .iter()
                    .flat_map(|c| taps.iter().map(move |t| with(c, t)));
                all.collect::<Vec<_>>()
            };
            let longer = phases.iter().flat_map(|c| along.iter().map(|t| both(c, t)));
            phases = longer.collect();
        }
        phases
    }

    /// All of it, in a row.
    fn numbers(&self) -> Vec<i64> {
        let all = [&self.kernel, &self.stride, &self.padding, &self.dilation];
        let all = all.into_iter().flatten().copied();
        all.chain([self.first as i64]).collect()
    }

    /// The same again.
    fn of_numbers(numbers: &[i64]) -> Pooling {
        let n = numbers.len() / 4;
        let part = |i: usize| numbers[i * n..(i + 1) * n].to_vec();
        Pooling {
            first: numbers[4 * n] as usize,
            kernel: part(0),
            stride: part(1),
            padding: part(2),
            dilation: part(3),
        }
    }

    /// Windows folded to one element each, an axis at a time: what windows next to each other have in common along
    /// one axis is folded once for those along the next.
    fn folded(&self, u: &UOp, fill: Scalar, op: ReduceOp) -> Result<UOp> {
        let mut u = padded(u, self.first, &self.padding, fill.to_f64())?;
        let last = u.shape().len();
        for (i, &k) in self.kernel.iter().enumerate() {
            let axis = self.first + i;
            let windows = to_last(&u, axis)?.windows(k, self.stride[i], self.dilation[i])?;
            // Back to its place, so that what may be stored lies as what it is made of.
            let mut order: Vec<usize> = (0..=last).collect();
            order[axis..last].rotate_right(1);
            let windows = windows.permute(&order)?;
            u = windows.reduce(op, &[last])?.squeeze_axes(&[last])?;
        }
        Ok(u)
    }

    /// Which elements of the windows are no padding: nothing flows there, also where what is there is as little.
    fn there(&self, u: &UOp) -> Result<UOp> {
        let all = UOp::full(Scalar::Bool(true), DType::Bool, u.shape());
        self.windows(&all, Scalar::Bool(false))
    }

    /// How many elements of each window are left from the first one on that is as great as its `top`, or NaN.
    fn first_of_equals(&self, u: &UOp, top: &UOp) -> Result<UOp> {
        let win = self.windows(u, u.dtype().min())?;
        let there = self.there(u)?;
        let whole = self.kernel.iter().product::<i64>();
        let mut first = UOp::full(Scalar::Int(0), DType::I32, top.shape());
        for left in 1..=whole {
            let of = |u: &UOp| self.element(u, whole - left);
            let x = of(&win)?;
            let hit = of(&there)? & (x.eq_(top) | x.ne_(&x));
            first = hit.select(&first.like(left), &first);
        }
        Ok(first)
    }

    /// Of windows (…, out…, k…) each one's element at a place, in a row.
    fn element(&self, windows: &UOp, place: i64) -> Result<UOp> {
        let rank = windows.shape().len() - self.kernel.len();
        let mut rest = place;
        let mut u = windows.clone();
        for (i, &k) in self.kernel.iter().enumerate().rev() {
            u = u.narrow(rank + i, rest % k, 1)?.squeeze_axes(&[rank + i])?;
            rest /= k;
        }
        Ok(u)
    }
}

/// A REDUCE over windows. What flows back goes to the first of equals, unlike REDUCE's own rule, so
/// the result is a node of its own kind (a marker), to which that choice belongs.
fn max_pool(u: &UOp, pool: &Pooling) -> Result<UOp> {
    let top = pool
        .folded(u, u.dtype().min(), ReduceOp::Max)?
        .unary(Op::ContiguousBackward);
    Ok(known(top, &[u], &pool.numbers(), |f| {
        let u = &f.inputs[0];
        let pool = Pooling::of_numbers(f.params);
        let (x, y) = afresh(f);
        if pool.overlaps() {
            return Ok(vec![Some(pool.gathered(&x, &y, f.g)?)]);
        }
        let win = pool.windows(u, u.dtype().min())?;
        let there = pool.there(u)?;
        let n = pool.kernel.len();
        let sizes = win.shape();
        let rank = sizes.len() - n;
        let axes = (rank..rank + n).collect::<Vec<_>>();
        let whole = pool.kernel.iter().product::<i64>();
        let ones = shape(&[&sizes[..rank], &vec![Dim::Int(1); n]]);
        let spread = |u: &UOp| u.reshape(&ones)?.expand(win.shape());
        // The first of equals is the one furthest from the window's end.
        let left = UOp::arange(whole, DType::I32).unary(Op::Neg) + whole;
        let left = broadcast_to(&left.reshape(&Shape::of(&pool.kernel))?, win.shape())?;
        let among = pool.windows(&x, u.dtype().min())?;
        let hit = there & (among.eq_(&spread(&y)?) | among.ne_(&among));
        let first = hit
            .select(&left, &left.like(0))
            .reduce(ReduceOp::Max, &axes)?
            .expand(win.shape())?;
        let flow = left.eq_(&first).select(&spread(f.g)?, &f.g.like(0.0));
        gradient::gradient(&win, &flow, std::slice::from_ref(u))
    }))
}
