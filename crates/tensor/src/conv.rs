//! Convolution. Flows in: (n, channels, spatial axes…) and a kernel; out: a
//! REDUCE over windows, which are views: nothing is copied.

use crate::args::Dims;
use crate::functions::known;
use crate::join::{PadMode, join, pad_axis};
use crate::linalg::{Counts, contracted};
use crate::movement::to_last;
use crate::promote::{broadcast_shape, broadcast_to, insert_axis, promoted, resized, size_of};
use crate::tensor::Tensor;
use monoglot_uop::{DType, Dim, Error, Op, Result, Scalar, Shape, UOp};

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

/// Of so many products of padding one is worth to be left out.
const MISSED: i64 = 22;

impl Default for Conv {
    fn default() -> Conv {
        let zero = Dims(vec![0]);
        let one = Dims(vec![1]);
        Conv {
            stride: one.clone(),
            padding: zero.clone(),
            dilation: one,
            groups: 1,
            output_padding: zero,
        }
    }
}

impl Tensor {
    /// The convolution (correlation) of (n, cin, spatial…) with weights (cout, cin/groups, spatial…).
    #[track_caller]
    pub fn conv(&self, weight: &Tensor, bias: Option<&Tensor>, how: &Conv) -> Tensor {
        self.with_weight(weight, bias, |x, w| conv(x, w, how))
    }

    /// The convolution of (n, cin, h, w) with weights (cout, cin/groups, kh, kw).
    #[track_caller]
    pub fn conv2d(&self, weight: &Tensor, bias: Option<&Tensor>, how: &Conv) -> Tensor {
        self.conv(weight, bias, how)
    }

    /// The transpose of the convolution with the same numbers; weights (cin, cout/groups, spatial…).
    #[track_caller]
    pub fn conv_transpose(&self, weight: &Tensor, bias: Option<&Tensor>, how: &Conv) -> Tensor {
        self.with_weight(weight, bias, |x, w| conv_transpose(x, w, how))
    }

    #[track_caller]
    fn with_weight(
        &self,
        weight: &Tensor,
        bias: Option<&Tensor>,
        f: impl FnOnce(&UOp, &UOp) -> Result<UOp>,
    ) -> Tensor {
        let y = Tensor::map_all(&[self, weight], |u| f(&u[0], &u[1]));
        y.per_channel(None, bias)
    }
}

pub(crate) fn per_axis(op: &str, name: &str, d: &Dims, n: usize, least: i64) -> Result<Vec<i64>> {
    let all = match d.0[..] {
        [one] => vec![one; n],
        _ => d.0.clone(),
    };
    if all.len() != n || all.iter().any(|&v| v < least || v > i32::MAX as i64) {
        return Err(Error::argument(
            op,
            format!(
                "{name} {:?} for {n} spatial axes, each at least {least}",
                d.0
            ),
        ));
    }
    Ok(all)
}

/// The shape of these dimensions.
pub(crate) fn shape(parts: &[&[Dim]]) -> Shape {
    Shape::new(parts.iter().flat_map(|p| p.iter().cloned()))
}

/// As many elements on both sides of the axes from `first` on.
pub(crate) fn padded(u: &UOp, first: usize, padding: &[i64], fill: f64) -> Result<UOp> {
    let both = |u: UOp, (i, &p)| pad_axis(&u, first + i, [p, p], PadMode::Constant(fill));
    padding.iter().enumerate().try_fold(u.clone(), both)
}

/// Windows over the axes from `first` on: (…, a, b) becomes (…, oa, ob, ka, kb).
pub(crate) fn windows(
    u: &UOp,
    first: usize,
    k: &[i64],
    stride: &[i64],
    dilation: &[i64],
) -> Result<UOp> {
    let n = k.len();
    let mut u = u.clone();
    for i in 0..n {
        // Axis `first` is always the next one to slide over: what is done moves behind it.
        let moved = to_last(&u, first)?;
        u = moved.windows(k[i], stride[i], dilation[i])?;
    }
    // (…, oa, ka, ob, kb) → outputs first.
    let order: Vec<usize> = (0..first)
        .chain((0..n).map(|i| first + 2 * i))
        .chain((0..n).map(|i| first + 2 * i + 1))
        .collect();
    u.permute(&order)
}

/// The numbers of `how` for a weight that fits x: stride, padding, dilation, output padding. `takes` says of
/// how many channels images are that a weight of these sizes fits.
fn numbers(
    op: &str,
    x: &UOp,
    w: &UOp,
    how: &Conv,
    takes: impl Fn(&[i64]) -> i64,
) -> Result<[Vec<i64>; 4]> {
    let n = x.shape().len().saturating_sub(2);
    let ws = w.sizes(op)?;
    let groups = how.groups;
    let wrong = |why: String| {
        let message = format!("shape {} with weights {}: {why}", x.shape(), w.shape());
        Err(Error::shape(op, message))
    };
    if n == 0 || ws.len() != n + 2 {
        return wrong(format!(
            "{} axes with weights of {}, where two stand before as many spatial ones in both",
            x.shape().len(),
            ws.len()
        ));
    }
    if groups < 1 || ws[0] % groups != 0 {
        return wrong(format!(
            "groups: {groups} does not divide the {} along the weights' first axis",
            ws[0]
        ));
    }
    let channels = size_of(op, x, 1)?;
    let taken = takes(&ws);
    if taken != channels {
        return wrong(format!(
            "{channels} channels, where weights with groups: {groups} take {taken}"
        ));
    }
    Ok([
        per_axis(op, "stride", &how.stride, n, 1)?,
        per_axis(op, "padding", &how.padding, n, 0)?,
        per_axis(op, "dilation", &how.dilation, n, 1)?,
        per_axis(op, "output_padding", &how.output_padding, n, 0)?,
    ])
}

fn conv(x: &UOp, w: &UOp, how: &Conv) -> Result<UOp> {
    let g = how.groups;
    let [s, p, d, _] = numbers("conv", x, w, how, |w| w[1].saturating_mul(g))?;
    correlate(x, w, [&s, &p, &d], g, &vec![[0, 0]; s.len()])
}

/// Windows of x (n, g·cin, …), padded, times w (g·cout, cin, …), summed over channels and window; how is
/// stride, padding and dilation, and so many elements at both ends of each axis of x are padding, too. What flows
/// back to x is again such a sum, over mirrored weights: no product is spread out and gathered again.
fn correlate(x: &UOp, w: &UOp, how: [&[i64]; 3], g: i64, ends: &[[i64; 2]]) -> Result<UOp> {
    let [s, p, d] = how;
    let ends: Vec<[i64; 2]> = ends.iter().zip(p).map(|(e, p)| e.map(|e| e + p)).collect();
    let inside = padded(x, 2, p, 0.0)?;
    let counts = counts(&inside, w, &ends, s, d)?;
    let y = meet(&inside, w, Against::Weights(counts.as_ref()), s, d, g)?;
    let sizes = y.shape();
    let channels = Dim::product(&sizes[1..3]);
    let y = y.reshape(&shape(&[&sizes[..1], &[channels], &sizes[3..3 + s.len()]]))?;
    Ok(known(y, &[x, w], &[&[g], s, p, d].concat(), |f| {
        let x = &f.inputs[0];
        let w = &f.inputs[1];
        let n = (f.params.len() - 1) / 3;
        let g = f.params[0];
        let [s, p, d] = [0, 1, 2].map(|i| &f.params[1 + i * n..1 + (i + 1) * n]);
        let to_x = || flow_to_input(x, w, f.g, [s, p, d], g).map(|u| u.cast(x.dtype()));
        let to_w = || {
            meet(&padded(x, 2, p, 0.0)?, w, Against::Flow(f.g), s, d, g)?
                .reshape(w.shape())
                .map(|u| u.cast(w.dtype()))
        };
        Ok(vec![
            f.wanted[0].then(to_x).transpose()?,
            f.wanted[1].then(to_w).transpose()?,
        ])
    }))
}

/// Which products of windows over x and weights count, as (out…, 1, k…): those of padding are 0 and need not be made,
/// which is said where they are some at least. `ends` is how many elements of each axis are padding.
fn counts(x: &UOp, w: &UOp, ends: &[[i64; 2]], s: &[i64], d: &[i64]) -> Result<Option<UOp>> {
    let n = s.len();
    let ws = w.sizes("conv")?;
    let mut all: Option<UOp> = None;
    for i in 0..n {
        let [before, after] = ends[i];
        let Some(size) = x.shape()[i + 2].as_int().filter(|_| before + after > 0) else {
            continue;
        };
        let k = ws[i + 2];
        let real = size - before - after;
        let out = (size - (k - 1) * d[i] - 1).div_euclid(s[i]) + 1;
        // Windows of which this tap is at this place or behind it.
        let from = |place: i64, tap: i64| {
            let first = (place - tap * d[i] + s[i] - 1).div_euclid(s[i]);
            out - first.clamp(0, out)
        };
        let met = |tap: i64| from(before, tap) - from(before + real, tap);
        let met: i64 = (0..k).map(met).sum();
        if met == 0 || (out * k - met) * MISSED < out * k {
            continue;
        }
        let real = UOp::full(Scalar::Bool(true), DType::Bool, &Shape::of(&[real]));
        let there = real.pad_axis(0, before, after, Scalar::Bool(false))?;
        let mut axes = vec![1; 2 * n + 1];
        axes[i] = out;
        axes[n + 1 + i] = k;
        let win = there.windows(k, s[i], d[i])?.reshape(&Shape::of(&axes))?;
        all = Some(match all {
            None => win,
            Some(others) => {
                let both = broadcast_shape("conv", &[&others, &win])?;
                broadcast_to(&others, &both)? & broadcast_to(&win, &both)?
            }
        });
    }
    Ok(all)
}

/// What windows over the input of a convolution are multiplied by.
enum Against<'a> {
    /// The weights (g·cout, cin, k…), for a sum over cin and k… of the products that count.
    Weights(Option<&'a UOp>),
    /// What flows back to that sum, (n, g·cout, out…), for one over n and out….
    Flow(&'a UOp),
}

/// Windows of x, as (n, g, 1, out…, cin, k…), times one of these, summed. Folded axes stay with size 1.
fn meet(x: &UOp, w: &UOp, by: Against, s: &[i64], d: &[i64], g: i64) -> Result<UOp> {
    let n = s.len();
    let batch = &x.shape()[..1];
    let ws = w.sizes("conv")?;
    let [g, cout, cin] = [g, ws[0] / g, ws[1]].map(Dim::Int);
    let one = Dim::Int(1);
    let inner = &w.shape()[1..];
    let win = windows(x, 2, &ws[2..], s, d)?;
    let out = &win.shape()[2..2 + n];
    let parts = [g.clone(), cin];
    let split = win.reshape(&shape(&[batch, &parts, out, &inner[1..]]))?;
    let order: Vec<usize> = [0, 1]
        .into_iter()
        .chain(3..3 + n)
        .chain([2])
        .chain(3 + n..3 + 2 * n)
        .collect();
    let left = split.permute(&order)?;
    let left = left.reshape(&shape(&[batch, &[g.clone(), one.clone()], out, inner]))?;
    // Every index of either factor: (n, g, cout, out…, cin, k…).
    let groups = [g, cout];
    let all = shape(&[batch, &groups, out, inner]);
    match by {
        Against::Flow(flow) => {
            let right = flow.reshape(&shape(&[batch, &groups, out, &vec![one; n + 1]]))?;
            let batch_and_out: Vec<usize> = [0].into_iter().chain(3..3 + n).collect();
            let d = promoted(x, flow);
            contracted(&[&left, &right], &all, d, &batch_and_out, None)
        }
        Against::Weights(counts) => {
            let ones = vec![one.clone(); n];
            let right = w.reshape(&shape(&[&[one], &groups, &ones, inner]))?;
            let cin_and_window: Vec<usize> = (3 + n..4 + 2 * n).collect();
            let d = promoted(x, w);
            let counts = counts.filter(|_| d.is_float()).map(Counts::inside);
            contracted(&[&left, &right], &all, d, &cin_and_window, counts)
        }
    }
}

/// What the last window did not reach gets zeros.
fn flow_to_input(x: &UOp, w: &UOp, flow: &UOp, how: [&[i64]; 3], g: i64) -> Result<UOp> {
    spread(flow, w, how, &x.shape()[2..], g)
}

/// Steps of s along an axis write places s apart, so each of s phases of places gets every s-th tap of the
/// kernel, and nothing else: phases of as many taps are one sum over windows, with channels for each.
fn conv_transpose(x: &UOp, w: &UOp, how: &Conv) -> Result<UOp> {
    let op = "conv_transpose";
    let [s, p, d, extra] = numbers(op, x, w, how, |w| w[0])?;
    let ws = w.sizes(op)?;
    let mut places = Vec::with_capacity(s.len());
    for i in 0..s.len() {
        let reach = (ws[i + 2] - 1) * d[i];
        let m = &x.shape()[i + 2];
        let most = (m - 1) * s[i] + (reach + 1 - 2 * p[i] + extra[i]);
        if most.min() < 0 {
            let message = format!("an axis of {m:?} with weights {} by {how:?}", w.shape());
            return Err(Error::argument(op, message));
        }
        places.push(most);
    }
    spread(x, w, [&s, &p, &d], &places, how.groups)
}

/// The transposed convolution, of which so many places of each axis are wanted.
fn spread(x: &UOp, w: &UOp, how: [&[i64]; 3], places: &[Dim], g: i64) -> Result<UOp> {
    let op = "conv_transpose";
    let [s, p, d] = how;
    let ws = w.sizes(op)?;
    let mut y = x.clone();
    let mut axes = Vec::new();
    let mut ends = vec![[0, 0]; places.len()];
    for (i, places) in places.iter().enumerate() {
        let k = ws[i + 2];
        let reach = (k - 1) * d[i];
        let some = y.shape()[i + 2].max() > 0 && places.max() > 0;
        if s[i] > 1 && d[i] == 1 && some {
            let axis = Phased::new(k, s[i], p[i], places.clone());
            y = axis.padded(&y, i + 2)?;
            axes.push(axis);
            continue;
        }
        y = with_zeros_between(&y, i + 2, s[i])?;
        // More padding than the kernel reaches cuts instead.
        let before = reach - p[i];
        let after = places + p[i] - &y.shape()[i + 2];
        if let Some(after) = after.as_int()
            && s[i] == 1
        {
            ends[i] = [before.max(0), after.max(0)];
        }
        y = around(&y, i + 2, before, after)?;
        axes.push(Phased::one(k, places.clone()));
    }
    // (g·cin, cout, k…) → (g·cout, cin, k…).
    let cin = ws[0] / g;
    let cout = ws[1];
    let k = &ws[2..];
    let mut order: Vec<usize> = (0..ws.len() + 1).collect();
    order.swap(1, 2);
    let w = w
        .reshape(&Shape::of(&[&[g, cin, cout], k].concat()))?
        .permute(&order)?
        .reshape(&Shape::of(&[&[g * cout, cin], k].concat()))?;
    phases(&y, &w, &axes, d, g, &ends)
}

/// Zeros around an axis; as many are cut off where they are less than none. Where more are cut off before than there are,
/// the rest is cut off of the zeros behind.
fn around(u: &UOp, a: usize, before: i64, mut after: Dim) -> Result<UOp> {
    let u = match before {
        0.. => u.pad_axis(a, before, 0, u.dtype().zero())?,
        cut => {
            let there = u.shape()[a].as_int().unwrap_or(-cut).min(-cut);
            after = after + (there + cut);
            u.narrow(a, there, &u.shape()[a] - there)?
        }
    };
    let whole = &u.shape()[a] + &after;
    match (after.min() >= 0, after.max() <= 0) {
        (true, _) => u.pad_axis(a, 0, after, u.dtype().zero()),
        (_, true) => u.narrow(a, 0, whole),
        // Now the one, now the other.
        _ => {
            let more = after.or_more(0);
            u.pad_axis(a, 0, more, u.dtype().zero())?
                .narrow(a, 0, whole)
        }
    }
}

/// s − 1 zeros between the elements of an axis.
fn with_zeros_between(u: &UOp, a: usize, s: i64) -> Result<UOp> {
    if s == 1 {
        return Ok(u.clone());
    }
    let m = &u.shape()[a];
    insert_axis(u, a + 1)?
        .pad_axis(a + 1, 0, s - 1, u.dtype().zero())?
        .reshape(&resized(u, a, &[m * s]))?
        .narrow(a, 0, ((m - 1) * s + 1).or_more(0))
}

/// An axis of what a transposed convolution gives: rounds of so many phases.
pub(crate) struct Phased {
    pub(crate) step: i64,
    /// How many are wanted.
    places: Dim,
    parts: Vec<Part>,
    /// Zeros before the source.
    pub(crate) before: i64,
}

/// Neighbouring phases whose first taps are neighbours, too.
struct Part {
    /// How many.
    phases: i64,
    /// The first tap of the first one, and how many each has, `step` apart.
    tap: i64,
    taps: i64,
    /// The element of the source at that tap in the first round.
    from: i64,
}

impl Phased {
    /// Of a kernel of so many taps, places from `cut` on.
    pub(crate) fn new(k: i64, step: i64, cut: i64, places: Dim) -> Phased {
        let mut parts: Vec<Part> = Vec::new();
        for phase in cut..cut + step {
            let tap = phase % step;
            let taps = (k - tap + step - 1).div_euclid(step).max(0);
            match parts.last_mut() {
                Some(p) if p.tap + p.phases == tap && p.taps == taps => p.phases += 1,
                _ => parts.push(Part {
                    phases: 1,
                    tap,
                    taps,
                    from: phase / step,
                }),
            }
        }
        let before = parts.iter().map(|p| p.taps - 1 - p.from).max();
        Phased {
            step,
            places,
            before: before.unwrap_or(0).max(0),
            parts,
        }
    }

    /// One phase of so many places.
    fn one(taps: i64, places: Dim) -> Phased {
        Phased {
            before: taps - 1,
            ..Phased::new(taps, 1, 0, places)
        }
    }

    pub(crate) fn rounds(&self) -> Dim {
        self.places.parts(self.step)
    }

    /// Of each phase its taps, and the element of the source at each in the first round.
    pub(crate) fn taps(&self) -> Vec<Vec<(i64, i64)>> {
        let of = |p: &Part, j: i64| {
            let one = |t: i64| (p.tap + j + t * self.step, p.from - t);
            (0..p.taps).map(one).collect()
        };
        let parts = self.parts.iter();
        let phases = parts.flat_map(|p| (0..p.phases).map(move |j| of(p, j)));
        phases.collect()
    }

    /// The source with as many zeros around it as all parts read.
    pub(crate) fn padded(&self, u: &UOp, a: usize) -> Result<UOp> {
        let last = self.parts.iter().map(|p| p.from).max().unwrap_or(0);
        let after = (self.rounds() + last - &u.shape()[a]).or_more(0);
        u.pad_axis(a, self.before, after, u.dtype().zero())
    }
}

/// Sums over windows of x, padded as the axes say, times w (g·cout, cin, k…), mirrored: each part by itself,
/// put together.
fn phases(x: &UOp, w: &UOp, axes: &[Phased], d: &[i64], g: i64, ends: &[[i64; 2]]) -> Result<UOp> {
    // Choices of a part of each axis, those of the last axis next to each other.
    let mut all: Vec<Vec<&Part>> = vec![Vec::new()];
    for axis in axes {
        let longer = |c: Vec<_>| axis.parts.iter().map(move |p| [&c[..], &[p]].concat());
        all = all.into_iter().flat_map(longer).collect();
    }
    let sum = |parts: &Vec<&Part>| phase(x, w, axes, parts, d, g, ends);
    let sums = all.iter().map(sum).collect::<Result<Vec<UOp>>>()?;
    interleaved(sums, 2, axes, |axis| axis.parts.len())
}

/// So many parts of each axis from `first` on, each (…, rounds, phases, rounds, phases, …), those of the last axis next to
/// each other: put together.
pub(crate) fn interleaved(
    mut parts: Vec<UOp>,
    first: usize,
    axes: &[Phased],
    count: impl Fn(&Phased) -> usize,
) -> Result<UOp> {
    for (i, axis) in axes.iter().enumerate().rev() {
        let all = parts.chunks(count(axis));
        let joined = all.map(|parts| join(parts, first + 2 * i + 1));
        parts = joined.collect::<Result<_>>()?;
    }
    let mut y = parts.swap_remove(0);
    for (i, axis) in axes.iter().enumerate() {
        let at = first + i;
        let sizes = y.shape();
        let all = [axis.rounds() * axis.step];
        y = y.reshape(&shape(&[&sizes[..at], &all, &sizes[at + 2..]]))?;
    }
    // Rounds of which some phases are not wanted are written whole: only then is each place one of a round and a phase.
    let whole = |axis: &Phased| axis.rounds() * axis.step == axis.places;
    if !axes.iter().all(whole) {
        y = y.unary(Op::Contiguous);
    }
    for (i, axis) in axes.iter().enumerate() {
        y = y.narrow(first + i, 0, &axis.places)?;
    }
    Ok(y)
}

/// One part of each axis: (n, g·cout, rounds, phases, …).
fn phase(
    x: &UOp,
    w: &UOp,
    axes: &[Phased],
    parts: &[&Part],
    d: &[i64],
    g: i64,
    ends: &[[i64; 2]],
) -> Result<UOp> {
    let n = axes.len();
    let batch = &x.shape()[..1];
    let cout = size_of("conv", w, 0)?;
    let count = parts.iter().map(|p| p.phases).collect::<Vec<_>>();
    let counts = count.iter().map(|&n| Dim::Int(n)).collect::<Vec<_>>();
    let rounds = axes.iter().map(Phased::rounds);
    let rounds = rounds.collect::<Vec<_>>();
    let next = (0..n).flat_map(|i| [n + i + 2, i + 2]);
    let order: Vec<usize> = [0, 1].into_iter().chain(next).collect();
    let whole = shape(&[batch, &[cout.into()], &counts, &rounds]);
    if parts.iter().any(|p| p.taps == 0) {
        let zero = UOp::full(x.dtype().zero(), x.dtype(), &whole);
        return zero.permute(&order);
    }
    let [mut x, mut w] = [x.clone(), w.clone()];
    for (i, (axis, part)) in axes.iter().zip(parts).enumerate() {
        let more = part.taps - 1;
        let reach = more * d[i];
        let from = part.from - more + axis.before;
        if axis.step > 1 {
            x = x.narrow(i + 2, from, &rounds[i] + reach)?;
        }
        w = w.narrow(i + 2, part.tap, more * axis.step + part.phases)?;
    }
    // (g·cout, cin, taps…, phases…) → (g·cout·phases…, cin, taps…).
    let steps = axes.iter().map(|a| a.step).collect::<Vec<_>>();
    let w = windows(&w, 2, &count, &steps, &vec![1; n])?;
    let of_phases = [0].into_iter().chain(2 + n..2 + 2 * n);
    let w_order: Vec<usize> = of_phases.chain(1..2 + n).collect();
    let cin_and_taps = w.sizes("conv")?[1..2 + n].to_vec();
    let channels = cout * count.iter().product::<i64>();
    let w = w
        .permute(&w_order)?
        .reshape(&Shape::of(&[&[channels], &cin_and_taps[..]].concat()))?
        .flip((2..n + 2).fold(0, |bits, a| bits | 1 << a))?;
    correlate(&x, &w, [&vec![1; n], &vec![0; n], d], g, ends)?
        .reshape(&whole)?
        .permute(&order)
}
