//! Convolution, pooling and resampling. Flows in: (n, channels, spatial axes…) and a kernel; out: a
//! REDUCE over windows, which are views: nothing is copied.

use crate::args::Dims;
use crate::index::take;
use crate::linalg::multiply;
use crate::movement::to_last;
use crate::promote::{broadcast_to, promoted};
use crate::tensor::{Tensor, marker};
use monoglot_uop::gradient::{Rule, Shortcut};
use monoglot_uop::{DType, Dim, Error, Op, ReduceOp, Result, Scalar, Shape, UOp};

/// Stride, padding, dilation (one number per spatial axis, or one for all) and groups.
#[derive(Clone, Debug)]
pub struct Conv {
    /// Steps between windows.
    pub stride: Dims,
    /// Zeros on both sides.
    pub padding: Dims,
    /// Steps within a window.
    pub dilation: Dims,
    /// Groups of channels that do not mix.
    pub groups: i64,
    /// Transposed only: more elements at the end.
    pub output_padding: Dims,
}

impl Default for Conv {
    fn default() -> Conv {
        let one = || Dims(vec![1]);
        Conv {
            stride: one(),
            padding: Dims(vec![0]),
            dilation: one(),
            groups: 1,
            output_padding: Dims(vec![0]),
        }
    }
}

/// How `interpolate` finds a value between elements.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Interpolation {
    /// The element at ⌊i · in / out⌋.
    Nearest,
    /// Along every axis, weighted from the two neighbours; corners map to corners or, if not, the
    /// edges of the outermost elements do.
    Linear {
        /// Corners map to corners.
        align_corners: bool,
    },
}

impl Tensor {
    /// The convolution (correlation) of (n, cin, spatial…) with weights (cout, cin/groups, spatial…).
    #[track_caller]
    pub fn conv(&self, weight: &Tensor, bias: Option<&Tensor>, how: &Conv) -> Tensor {
        let y = Tensor::map_all(&[self, weight], |u| conv(&u[0], &u[1], how));
        y.with_bias(bias)
    }

    /// The convolution of (n, cin, h, w) with weights (cout, cin/groups, kh, kw).
    #[track_caller]
    pub fn conv2d(&self, weight: &Tensor, bias: Option<&Tensor>, how: &Conv) -> Tensor {
        self.conv(weight, bias, how)
    }

    /// The transpose of the convolution with the same numbers; weights (cin, cout/groups, spatial…).
    #[track_caller]
    pub fn conv_transpose(&self, weight: &Tensor, bias: Option<&Tensor>, how: &Conv) -> Tensor {
        let y = Tensor::map_all(&[self, weight], |u| conv_transpose(&u[0], &u[1], how));
        y.with_bias(bias)
    }

    #[track_caller]
    fn with_bias(self, bias: Option<&Tensor>) -> Tensor {
        let Some(b) = bias else { return self };
        let spatial = self.ndim().map_or(0, |n| n.saturating_sub(2));
        self + b.reshape([&[-1i64][..], &vec![1; spatial]].concat())
    }

    /// The greatest of every window of the last axes; a tie's gradient goes to the first.
    #[track_caller]
    pub fn max_pool(
        &self,
        kernel: impl Into<Dims>,
        stride: impl Into<Dims>,
        padding: impl Into<Dims>,
        dilation: impl Into<Dims>,
    ) -> Tensor {
        let (k, s, p, d) = (kernel.into(), stride.into(), padding.into(), dilation.into());
        self.map(|u| max_pool(u, &Pool::new("max_pool", u, &k, &s, &p, &d)?))
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
        let (k, s, p) = (kernel.into(), stride.into(), padding.into());
        self.map(|u| {
            let pool = Pool::new("avg_pool", u, &k, &s, &p, &Dims(vec![1]))?;
            let d = if u.dtype().is_float() { u.dtype() } else { DType::F32 };
            let x = u.cast(d.compute_type());
            let axes: Vec<usize> = (u.shape().len()..u.shape().len() + pool.axes()).collect();
            let total = |x: &UOp| -> Result<UOp> {
                pool.windows(x, Scalar::Float(0.0))?.reduce(ReduceOp::Add, &axes)?.squeeze_axes(&axes)
            };
            let sums = total(&x)?;
            let whole: i64 = pool.kernel.iter().product();
            let by = match count_pad || pool.padding.iter().all(|&p| p == 0) {
                true => x.like(whole),
                false => total(&UOp::full(Scalar::Float(1.0), x.dtype(), x.shape()))?,
            };
            Ok(sums.binary(Op::Div, &by).cast(d))
        })
    }

    /// The last axes brought to `size`.
    #[track_caller]
    pub fn interpolate(&self, size: impl Into<Dims>, how: Interpolation) -> Tensor {
        let size = size.into().0;
        self.map(|u| {
            let sizes = u.sizes("interpolate")?;
            let Some(lead) = sizes.len().checked_sub(size.len()) else {
                return Err(Error::argument("interpolate", format!("{size:?} for shape {}", u.shape())));
            };
            if size.iter().chain(&sizes[lead..]).any(|&n| n < 1) {
                return Err(Error::argument("interpolate", format!("shape {} to {size:?}", u.shape())));
            }
            size.iter().enumerate().try_fold(u.clone(), |u, (i, &n)| resample(&u, lead + i, n, how))
        })
    }
}

fn per_axis(op: &str, name: &str, d: &Dims, n: usize, least: i64) -> Result<Vec<i64>> {
    let all = match d.0[..] {
        [one] => vec![one; n],
        _ => d.0.clone(),
    };
    if all.len() != n || all.iter().any(|&v| v < least) {
        return Err(Error::argument(op, format!("{name} {:?} for {n} spatial axes", d.0)));
    }
    Ok(all)
}

fn pad_both(u: &UOp, first: usize, padding: &[(i64, i64)], fill: Scalar) -> Result<UOp> {
    let mut at = vec![Dim::Int(0); u.shape().len()];
    let mut to: Vec<i64> = u.sizes("pad")?;
    for (i, (before, after)) in padding.iter().enumerate() {
        at[first + i] = Dim::Int(*before);
        to[first + i] += before + after;
    }
    u.pad(&at, &Shape::of(&to), fill)
}

/// Windows over the axes from `first` on: (…, a, b) becomes (…, oa, ob, ka, kb).
fn windows(u: &UOp, first: usize, k: &[i64], stride: &[i64], dilation: &[i64]) -> Result<UOp> {
    let n = k.len();
    let mut u = u.clone();
    for i in 0..n {
        // Axis `first` is always the next one to slide over: what is done moves behind it.
        let moved = to_last(&u, first)?;
        u = moved.windows(k[i], stride[i], dilation[i])?;
    }
    // (…, oa, ka, ob, kb) → outputs first.
    let order: Vec<usize> =
        (0..first).chain((0..n).map(|i| first + 2 * i)).chain((0..n).map(|i| first + 2 * i + 1)).collect();
    u.permute(&order)
}

fn conv(x: &UOp, w: &UOp, how: &Conv) -> Result<UOp> {
    let (xs, ws) = (x.sizes("conv")?, w.sizes("conv")?);
    let n = xs.len().saturating_sub(2);
    let s = per_axis("conv", "stride", &how.stride, n, 1)?;
    let p = per_axis("conv", "padding", &how.padding, n, 0)?;
    let d = per_axis("conv", "dilation", &how.dilation, n, 1)?;
    let g = how.groups;
    let fits = n > 0 && ws.len() == xs.len() && g > 0 && xs[1] == ws[1] * g && ws[0] % g == 0;
    if !fits || (0..n).any(|i| xs[i + 2] + 2 * p[i] < (ws[i + 2] - 1) * d[i] + 1) {
        let message = format!("shape {} with weights {}, padding {p:?}, groups {g}", x.shape(), w.shape());
        return Err(Error::shape("conv", message));
    }
    let both: Vec<(i64, i64)> = p.iter().map(|&p| (p, p)).collect();
    correlate(&pad_both(x, 2, &both, x.dtype().zero())?, w, &s, &d, g)
}

/// Windows of x (n, g·cin, …) times w (g·cout, cin, …), summed over channels and window. What flows
/// back to x is again such a sum, over mirrored weights: no product is spread out and gathered again.
fn correlate(x: &UOp, w: &UOp, s: &[i64], d: &[i64], g: i64) -> Result<UOp> {
    let (xs, ws) = (x.sizes("conv")?, w.sizes("conv")?);
    let (n, k) = (s.len(), &ws[2..]);
    let (cin, cout) = (ws[1], ws[0] / g);
    let (left, out) = patches(x, w, s, d, g)?;
    let right = w.reshape(&Shape::of(&[&[1, g, cout], &vec![1; n][..], &[cin], k].concat()))?;
    let all = Shape::of(&[&[xs[0], g, cout], &out[..], &[cin], k].concat());
    let dt = promoted(x, w);
    let axes: Vec<usize> = (3 + n..4 + 2 * n).collect();
    let y = multiply(&[&left, &right], &all, dt)?.reduce(ReduceOp::Add, &axes)?.cast(dt);
    let y = y.reshape(&Shape::of(&[&[xs[0], g * cout], &out[..]].concat()))?;
    let rule: Rule = |f| {
        let (x, w, n) = (&f.inputs[0], &f.inputs[1], (f.params.len() - 1) / 2);
        let (s, d, g) = (&f.params[1..=n], &f.params[n + 1..], f.params[0]);
        let flow = |i: usize, of: &dyn Fn() -> Result<UOp>| match f.wanted[i] {
            true => of().map(|u| Some(u.cast(f.inputs[i].dtype()))),
            false => Ok(None),
        };
        Ok(vec![
            flow(0, &|| flow_to_input(x, w, f.g, s, d, g))?,
            flow(1, &|| flow_to_weight(x, w, f.g, s, d, g))?,
        ])
    };
    let params = [&[g], s, d].concat().into();
    let inputs = [x.clone(), w.clone()].into_iter().collect();
    Ok(y.with_shortcut(Shortcut { inputs, params, rule }))
}

/// The windows of x as (n, g, 1, out…, cin, k…), and the sizes out….
fn patches(x: &UOp, w: &UOp, s: &[i64], d: &[i64], g: i64) -> Result<(UOp, Vec<i64>)> {
    let (xs, ws) = (x.sizes("conv")?, w.sizes("conv")?);
    let (n, k, cin) = (s.len(), &ws[2..], ws[1]);
    let win = windows(x, 2, k, s, d)?;
    let out = win.sizes("conv")?[2..2 + n].to_vec();
    let split = win.reshape(&Shape::of(&[&[xs[0], g, cin], &out[..], k].concat()))?;
    let order: Vec<usize> = [0, 1].into_iter().chain(3..3 + n).chain([2]).chain(3 + n..3 + 2 * n).collect();
    let left = split.permute(&order)?.reshape(&Shape::of(&[&[xs[0], g, 1], &out[..], &[cin], k].concat()))?;
    Ok((left, out))
}

fn flow_to_input(x: &UOp, w: &UOp, flow: &UOp, s: &[i64], d: &[i64], g: i64) -> Result<UOp> {
    let (xs, ws, os) = (x.sizes("conv")?, w.sizes("conv")?, flow.sizes("conv")?);
    // What the last window did not reach gets zeros.
    let short = (0..s.len()).map(|i| xs[i + 2] - ((os[i + 2] - 1) * s[i] + (ws[i + 2] - 1) * d[i] + 1));
    let how = Conv {
        stride: Dims(s.to_vec()),
        dilation: Dims(d.to_vec()),
        padding: Dims(vec![0]),
        output_padding: Dims(short.collect()),
        groups: g,
    };
    conv_transpose(flow, w, &how)
}

fn flow_to_weight(x: &UOp, w: &UOp, flow: &UOp, s: &[i64], d: &[i64], g: i64) -> Result<UOp> {
    let (xs, ws, n) = (x.sizes("conv")?, w.sizes("conv")?, s.len());
    let (left, out) = patches(x, w, s, d, g)?;
    let (cin, cout) = (ws[1], ws[0] / g);
    let right = flow.reshape(&Shape::of(&[&[xs[0], g, cout], &out[..], &vec![1; n + 1][..]].concat()))?;
    let all = Shape::of(&[&[xs[0], g, cout], &out[..], &[cin], &ws[2..]].concat());
    let axes: Vec<usize> = [0].into_iter().chain(3..3 + n).collect();
    let dt = promoted(x, flow);
    let sums = multiply(&[&left, &right], &all, dt)?.reduce(ReduceOp::Add, &axes)?;
    sums.cast(dt).reshape(w.shape())
}

fn conv_transpose(x: &UOp, w: &UOp, how: &Conv) -> Result<UOp> {
    let op = "conv_transpose";
    let (xs, ws) = (x.sizes(op)?, w.sizes(op)?);
    let n = xs.len().saturating_sub(2);
    let s = per_axis(op, "stride", &how.stride, n, 1)?;
    let p = per_axis(op, "padding", &how.padding, n, 0)?;
    let d = per_axis(op, "dilation", &how.dilation, n, 1)?;
    let extra = per_axis(op, "output_padding", &how.output_padding, n, 0)?;
    let g = how.groups;
    if n == 0 || ws.len() != xs.len() || g < 1 || xs[1] != ws[0] || ws[0] % g != 0 {
        let message = format!("shape {} with weights {}, groups {g}", x.shape(), w.shape());
        return Err(Error::shape(op, message));
    }
    // s − 1 zeros between elements.
    let mut x = x.clone();
    for i in (0..n).filter(|&i| s[i] > 1) {
        let sizes = x.sizes(op)?;
        let (a, m) = (i + 2, sizes[i + 2]);
        let with = |mid: &[i64]| Shape::of(&[&sizes[..a], mid, &sizes[a + 1..]].concat());
        x = x
            .reshape(&with(&[m, 1]))?
            .pad_axis(a + 1, 0, s[i] - 1, x.dtype().zero())?
            .reshape(&with(&[m * s[i]]))?
            .narrow(a, 0, ((m - 1) * s[i] + 1).max(0))?;
    }
    let mut edge = Vec::with_capacity(n);
    for i in 0..n {
        let reach = (ws[i + 2] - 1) * d[i];
        edge.push((reach - p[i], reach - p[i] + extra[i]));
        // More padding than reach cuts instead.
        let (before, after) = edge[i];
        let (cut, len) = ((-before).max(0), x.sizes(op)?[i + 2]);
        let keep = len - cut - (-after).max(0);
        if keep < 1 {
            return Err(Error::shape(op, format!("padding {p:?} leaves nothing of shape {}", x.shape())));
        }
        x = x.narrow(i + 2, cut, keep)?;
        edge[i] = (before.max(0), after.max(0));
    }
    let x = pad_both(&x, 2, &edge, x.dtype().zero())?;
    // (g·cin, cout, k…) → (g·cout, cin, k…), mirrored.
    let (cin, cout) = (ws[0] / g, ws[1]);
    let k = &ws[2..];
    let mut order: Vec<usize> = (0..n + 3).collect();
    order.swap(1, 2);
    let flips = (0..n).fold(0u64, |bits, i| bits | 1 << (i + 2));
    let w = w
        .reshape(&Shape::of(&[&[g, cin, cout], k].concat()))?
        .permute(&order)?
        .reshape(&Shape::of(&[&[g * cout, cin], k].concat()))?
        .flip(flips)?;
    correlate(&x, &w, &vec![1; n], &d, g)
}

struct Pool {
    first: usize,
    kernel: Vec<i64>,
    stride: Vec<i64>,
    padding: Vec<i64>,
    dilation: Vec<i64>,
}

impl Pool {
    fn new(op: &str, u: &UOp, k: &Dims, s: &Dims, p: &Dims, d: &Dims) -> Result<Pool> {
        let sizes = u.sizes(op)?;
        // One number is for the usual two axes.
        let n = if k.0.len() == 1 { sizes.len().saturating_sub(2).max(1) } else { k.0.len() };
        let kernel = per_axis(op, "kernel", k, n, 1)?;
        let stride = if s.0.is_empty() { kernel.clone() } else { per_axis(op, "stride", s, n, 1)? };
        let (padding, dilation) = (per_axis(op, "padding", p, n, 0)?, per_axis(op, "dilation", d, n, 1)?);
        let Some(first) = sizes.len().checked_sub(n) else {
            return Err(Error::shape(op, format!("{n} axes of shape {}", u.shape())));
        };
        if (0..n).any(|i| sizes[first + i] + 2 * padding[i] < (kernel[i] - 1) * dilation[i] + 1) {
            return Err(Error::shape(op, format!("windows {kernel:?} over shape {}", u.shape())));
        }
        Ok(Pool { first, kernel, stride, padding, dilation })
    }

    fn axes(&self) -> usize {
        self.kernel.len()
    }

    fn windows(&self, u: &UOp, fill: Scalar) -> Result<UOp> {
        let both: Vec<(i64, i64)> = self.padding.iter().map(|&p| (p, p)).collect();
        let padded = pad_both(u, self.first, &both, fill)?;
        windows(&padded, self.first, &self.kernel, &self.stride, &self.dilation)
    }
}

/// A REDUCE over windows. What flows back goes to the first of equals, unlike REDUCE's own rule, so
/// the result is a node of its own kind (a marker), to which that choice belongs.
fn max_pool(u: &UOp, pool: &Pool) -> Result<UOp> {
    let win = pool.windows(u, u.dtype().min())?;
    let (rank, n) = (u.shape().len(), pool.axes());
    let axes: Vec<usize> = (rank..rank + n).collect();
    let top = win.reduce(ReduceOp::Max, &axes)?.squeeze_axes(&axes)?;
    let rule: Rule = |f| {
        let (win, n) = (&f.inputs[0], f.params[0] as usize);
        let sizes = win.sizes("max_pool")?;
        let rank = sizes.len() - n;
        let (axes, whole) = ((rank..rank + n).collect::<Vec<_>>(), sizes[rank..].iter().product::<i64>());
        let ones = |tail: &[i64]| Shape::of(&[&sizes[..rank], tail].concat());
        let spread = |u: &UOp| u.reshape(&ones(&vec![1; n]))?.expand(win.shape());
        // The first of equals is the one furthest from the window's end.
        let left =
            (UOp::arange(whole, DType::I32).unary(Op::Neg) + whole).reshape(&Shape::of(&sizes[rank..]))?;
        let left = broadcast_to(&left, win.shape())?;
        let hit = win.eq_(&spread(f.y)?) | win.ne_(win);
        let key = hit.select(&left, &left.like(0));
        let first = key.reduce(ReduceOp::Max, &axes)?.expand(win.shape())?;
        Ok(vec![Some(left.eq_(&first).select(&spread(f.g)?, &f.g.like(0.0)))])
    };
    let (inputs, params) = ([win].into_iter().collect(), [n as i64].into());
    Ok(marker(&top, Op::ContiguousBackward)?.with_shortcut(Shortcut { inputs, params, rule }))
}

/// One axis brought to n elements.
fn resample(u: &UOp, axis: usize, n: i64, how: Interpolation) -> Result<UOp> {
    let old = u.sizes("interpolate")?[axis];
    if old == n {
        return Ok(u.clone());
    }
    let i = UOp::arange(n, DType::I32);
    match how {
        Interpolation::Nearest => take(u, axis, &((&i * old) / n)),
        Interpolation::Linear { align_corners } => {
            let d = u.dtype().compute_type();
            let d = if d.is_float() { d } else { DType::F32 };
            let at = i.cast(d);
            let at = if align_corners {
                at * if n > 1 { (old - 1) as f64 / (n - 1) as f64 } else { 0.0 }
            } else {
                let ratio = old as f64 / n as f64;
                let raw = at.mul_acc(&at.like(ratio), &at.like(0.5 * ratio - 0.5));
                raw.max_(&raw.like(0.0))
            };
            let low = at.unary(Op::Trunc);
            let weight = &at - &low;
            let first = low.cast(DType::I32);
            let last = first.like(old - 1);
            let second = (&first + 1).lt(&last).select(&(&first + 1), &last);
            let mut dims = vec![Dim::Int(1); u.shape().len()];
            dims[axis] = Dim::Int(n);
            let x = u.cast(d);
            let (a, b) = (take(&x, axis, &first)?, take(&x, axis, &second)?);
            let weight = weight.reshape(&Shape::new(dims))?.expand(a.shape())?;
            Ok((&a + &((&b - &a) * weight)).cast(if u.dtype().is_float() { u.dtype() } else { d }))
        }
    }
}
