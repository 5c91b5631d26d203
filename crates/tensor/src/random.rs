//! Random tensors, reproducible to the bit. Flows in: shapes and bounds; out: lazy tensors over a small
//! buffer that holds key and counter.
//!
//! Element i (row-major) of a tensor has the 64 bits `w = threefry2x32-20(counter + i, key)`, where the
//! key is the seed and the counter starts at 0 and advances by the number of elements of every random
//! tensor, in the order in which they are written down. From w:
//! * uniform: the top 24 bits of w times 2⁻²⁴, so 0 ≤ u < 1; then low + u·(high − low);
//! * normal: Box–Muller, √(−2 ln(1 − u))·cos(2πv), u from the top 24 bits of w, v from bits 8 to 31, the
//!   logarithm as in `log`, the cosine as in `turn`; then mean + std·that;
//! * integers: low + ⌊(w >> 32)·(high − low) / 2³²⌋;
//! * permutation: the order of w >> 33, ties by position.
//!
//! Floats are f32, every operation rounded to nearest, a product before anything is added to it
//! (`Arg::Rounded`), and no operation is one that machines approximate: all devices give the same bits.
//!
//! The seed is 0 until `Tensor::manual_seed` sets it. Key and counter are fixed when the tensor is
//! written down, yet they are no constants: steps that differ in them only have one structure.

use crate::args::Dims;
use crate::create::upload;
use crate::length::{Size, Sizes};
use crate::shape::sizes;
use crate::signature::with_lengths;
use crate::tensor::{Tensor, tri};
use crate::trace::{self, Draw};
use monoglot_engine as engine;
use monoglot_uop::{DType, Dim, Error, Op, Result, Shape, UOp};
use std::sync::Mutex;

/// A place in a stream of random numbers.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct State {
    pub(crate) key: u64,
    pub(crate) counter: u64,
}

/// A stream that numbers are drawn from.
pub(crate) type Stream = Mutex<State>;

/// The process's stream.
pub(crate) static STATE: Stream = Mutex::new(State { key: 0, counter: 0 });

impl Tensor {
    /// Start the stream of this seed from its beginning.
    pub fn manual_seed(seed: u64) {
        if trace::seed(seed) {
            return;
        }
        *STATE.lock().unwrap_or_else(|e| e.into_inner()) = State {
            key: seed,
            counter: 0,
        };
    }

    /// Uniform between 0 (included) and 1, f32.
    #[track_caller]
    pub fn rand(shape: impl Into<Sizes>) -> Tensor {
        Tensor::uniform(shape, 0.0, 1.0)
    }

    /// Uniform between `low` (included) and `high`, f32. `low` alone where both are the same.
    #[track_caller]
    pub fn uniform(shape: impl Into<Sizes>, low: f64, high: f64) -> Tensor {
        if !(low <= high && (high - low).is_finite()) {
            let message = format!("from {low} to {high}; it goes up, from and to what is finite");
            return Tensor::failed(Error::argument("uniform", message));
        }
        Tensor::random("uniform", shape.into(), |w| {
            let u = unit(&shifted(w, 40));
            Ok(affine(u, high - low, low))
        })
    }

    /// Normal with mean 0 and variance 1, f32.
    #[track_caller]
    pub fn randn(shape: impl Into<Sizes>) -> Tensor {
        Tensor::normal(shape, 0.0, 1.0)
    }

    /// Normal with a mean and a standard deviation, f32.
    #[track_caller]
    pub fn normal(shape: impl Into<Sizes>, mean: f64, std: f64) -> Tensor {
        if std < 0.0 {
            let message = format!("a standard deviation of {std}; it is at least 0");
            return Tensor::failed(Error::argument("normal", message));
        }
        Tensor::random("normal", shape.into(), |w| {
            let low = shifted(w, 8);
            let low = &low & &low.like(0xff_ffff);
            let radius = log(&shifted(w, 40).cast(DType::I32)).unary(Op::Sqrt);
            let x = radius.mul_rounded(&turn(&low.cast(DType::I32)));
            Ok(affine(x, std, mean))
        })
    }

    /// Integers from `low` (included) to `high`, fewer than 2⁶³: i32 where all fit, else i64.
    #[track_caller]
    pub fn randint(shape: impl Into<Sizes>, low: i64, high: i64) -> Tensor {
        let range = high.checked_sub(low).filter(|r| *r > 0);
        let Some(range) = range else {
            let message = format!("from {low} to {high}; it takes 1 integer to 2^63 − 1");
            return Tensor::failed(Error::argument("randint", message));
        };
        let fits = i32::try_from(low).is_ok() && i32::try_from(high - 1).is_ok();
        let d = if fits { DType::I32 } else { DType::I64 };
        Tensor::random("randint", shape.into(), |w| {
            let drawn = match range <= 1 << 32 {
                true => shifted(&(shifted(w, 32) * range), 32),
                // All 64 bits: the remainder is as near to uniform as range / 2⁶⁴.
                false => w.binary(Op::Mod, &w.like(range)),
            };
            Ok(drawn.cast(DType::I64).cast(d) + low)
        })
    }

    /// 0, 1, …, n−1 in random order, i32.
    #[track_caller]
    pub fn permutation(n: impl Into<Size>) -> Tensor {
        let keys = Tensor::random("permutation", Sizes(vec![n.into().0]), |w| {
            Ok(shifted(w, 33).cast(DType::I32))
        });
        keys.argsort(0, false)
    }

    /// Uniform with the variance 2/((1 + a²)·fan_in) of He et al. (2015): for weights before a leaky
    /// relu of slope a. fan_in is the product of all sizes but the first.
    #[track_caller]
    pub fn kaiming_uniform(shape: impl Into<Dims>, a: f64) -> Tensor {
        let shape = shape.into();
        let bound = (6.0 / ((1.0 + a * a) * fans(&shape).0)).sqrt();
        Tensor::uniform(shape, -bound, bound)
    }

    /// Normal with the same variance.
    #[track_caller]
    pub fn kaiming_normal(shape: impl Into<Dims>, a: f64) -> Tensor {
        let shape = shape.into();
        let std = (2.0 / ((1.0 + a * a) * fans(&shape).0)).sqrt();
        Tensor::normal(shape, 0.0, std)
    }

    /// Uniform with the variance 2/(fan_in + fan_out) of Glorot and Bengio (2010).
    #[track_caller]
    pub fn glorot_uniform(shape: impl Into<Dims>) -> Tensor {
        let shape = shape.into();
        let (fan_in, fan_out) = fans(&shape);
        let bound = (6.0 / (fan_in + fan_out)).sqrt();
        Tensor::uniform(shape, -bound, bound)
    }

    /// Normal with the same variance.
    #[track_caller]
    pub fn glorot_normal(shape: impl Into<Dims>) -> Tensor {
        let shape = shape.into();
        let (fan_in, fan_out) = fans(&shape);
        Tensor::normal(shape, 0.0, (2.0 / (fan_in + fan_out)).sqrt())
    }

    /// Zeros with probability p, and the other elements divided by 1 − p.
    #[track_caller]
    pub fn dropout(&self, p: f64) -> Tensor {
        if !(0.0..=1.0).contains(&p) {
            return Tensor::failed(Error::argument("dropout", format!("probability {p}")));
        }
        let dtype = tri!(self.dtype());
        if !dtype.is_float() {
            let message = format!("takes floats, not {dtype}");
            return Tensor::failed(Error::dtype("dropout", message));
        }
        if p == 0.0 {
            return self.clone();
        }
        let shape = Sizes(tri!(self.dims()).to_vec());
        let drawn = Tensor::rand(shape).to(tri!(self.device()));
        Tensor::map_all(&[self, &drawn], |u| {
            let x = &u[0];
            let gone = u[1].lt(&u[1].like(p));
            // Of p = 1 nothing is left to be divided.
            let kept = if p == 1.0 {
                x.clone()
            } else {
                x * (1.0 / (1.0 - p))
            };
            Ok(gone.select(&x.like(0.0), &kept))
        })
    }

    /// A tensor from the 64 random bits of each of its elements.
    #[track_caller]
    fn random(op: &str, shape: Sizes, f: impl FnOnce(&UOp) -> Result<UOp>) -> Tensor {
        let made = sizes(op, shape).and_then(|shape| {
            let n = Dim::product(shape.iter());
            let [key, counter] = words(&n)?;
            let row = Shape::new([n]);
            let for_each = |one: UOp| one.reshape(&Shape::of(&[1]))?.expand(&row);
            let places = for_each(counter)? + UOp::count(0, &row, DType::U64)?;
            let words = places.binary(Op::Threefry, &for_each(key)?);
            f(&words)?.reshape(&shape)
        });
        Tensor::wrap(made)
    }
}

/// The key and the counter of the next so many numbers, of shape ().
pub(crate) fn words(count: &Dim) -> Result<[UOp; 2]> {
    if let Some(stand_ins) = trace::draw(count) {
        return Ok(stand_ins);
    }
    let [key, counter] = drawn(number(count)?);
    Ok([word(key)?, word(counter)?])
}

/// How many numbers that is now.
fn number(count: &Dim) -> Result<u64> {
    let now = count.now().and_then(|n| u64::try_from(n).ok());
    now.ok_or_else(|| Error::argument("random", format!("{count:?} numbers")))
}

/// The key and the counter of the next so many numbers.
fn drawn(count: u64) -> [u64; 2] {
    let mut state = STATE.lock().unwrap_or_else(|e| e.into_inner());
    state.drawn(count)
}

impl State {
    fn drawn(&mut self, count: u64) -> [u64; 2] {
        let State { key, counter } = *self;
        self.counter = counter.wrapping_add(count);
        [key, counter]
    }
}

/// What a captured function has drawn.
#[derive(Default)]
pub(crate) struct Taken {
    /// Keys and counters, in turn.
    pub(crate) words: Vec<u64>,
    /// Where the stream was, and where it went.
    moved: Option<(State, State)>,
}

impl Taken {
    /// Give it back, where nobody has drawn since.
    pub(crate) fn give_back(&self, stream: &Stream) {
        if let Some((before, after)) = self.moved {
            let mut state = stream.lock().unwrap_or_else(|e| e.into_inner());
            if *state == after {
                *state = before;
            }
        }
    }
}

/// What a captured function draws, as if it drew it now. It was written with the lengths `were`, which `are` now.
pub(crate) fn taken(stream: &Stream, draws: &[Draw], were: &[UOp], are: &[UOp]) -> Result<Taken> {
    if draws.is_empty() {
        return Ok(Taken::default());
    }
    let mut words = Vec::with_capacity(2 * draws.len());
    let mut counts = Vec::with_capacity(draws.len());
    for draw in draws {
        counts.push(match draw {
            Draw::Numbers(count) => number(&with_lengths(count, were, are))?,
            Draw::Seed(_) => 0,
        });
    }
    let mut state = stream.lock().unwrap_or_else(|e| e.into_inner());
    let before = *state;
    for (draw, count) in draws.iter().zip(counts) {
        match *draw {
            Draw::Numbers(_) => words.extend(state.drawn(count)),
            Draw::Seed(key) => *state = State { key, counter: 0 },
        }
    }
    Ok(Taken {
        words,
        moved: Some((before, *state)),
    })
}

/// A word in storage.
fn word(value: u64) -> Result<UOp> {
    let device = engine::default_device();
    upload(&value.to_le_bytes(), Dims(vec![]), DType::U64, device)
}

/// scale·u + offset.
fn affine(u: UOp, scale: f64, offset: f64) -> UOp {
    let scaled = if scale == 1.0 {
        u
    } else {
        u.mul_rounded(&u.like(scale))
    };
    if offset == 0.0 {
        scaled
    } else {
        &scaled + &scaled.like(offset)
    }
}

/// c₀ + x·(c₁ + x·(…)).
fn horner(x: &UOp, c: &[f32]) -> UOp {
    let (last, rest) = c.split_last().expect("coefficients");
    rest.iter().rev().fold(x.like(f64::from(*last)), |p, &c| {
        p.mul_rounded(x) + x.like(f64::from(c))
    })
}

/// Of −2 ln(1 + f) + 2f − f² over f³, on √½ − 1 ≤ f < √2 − 1, our own fit.
const LOG: [f32; 8] = [
    -0.666_666_3,
    0.500_016_15,
    -0.400_045_72,
    0.332_491_93,
    -0.283_624_26,
    0.262_568_06,
    -0.257_628_1,
    0.157_204_21,
];
/// −2 ln 2 in two parts, of which the first times a small integer is exact.
const LN_4: [f32; 2] = [-1.386_291_5, -2.857_213_5e-6];

/// −2 ln(1 − k·2⁻²⁴) for integers 0 ≤ k < 2²⁴, within 0.9 ulp.
///
/// 2²⁴ − k = 2^e·m with √½ ≤ m < √2; f = m − 1; the sum is e'·LN_4₀ + (−2f + (f² + (f²·f·P(f) + e'·LN_4₁)))
/// with e' = e − 24 and P the polynomial of `LOG`.
fn log(k: &UOp) -> UOp {
    let sqrt_half = k.like(0x3f35_04f3);
    let bits = (k.like(1 << 24) - k).cast(DType::F32).bitcast(DType::I32) - &sqrt_half;
    let e = (bits.binary(Op::Shr, &bits.like(23)) - 24).cast(DType::F32);
    let m = ((&bits & &bits.like(0x7f_ffff)) + &sqrt_half).bitcast(DType::F32);
    let f = &m - 1.0;
    let square = f.mul_rounded(&f);
    let tail = square.mul_rounded(&f).mul_rounded(&horner(&f, &LOG));
    let part = |c: f32| e.mul_rounded(&e.like(f64::from(c)));
    let rest = &f * -2.0 + (square + (tail + part(LN_4[1])));
    part(LN_4[0]) + rest
}

/// Of sin(2πt)/t in t², our own fit.
const SINE: [f32; 5] = [6.283_185_5, -41.341_68, 81.602_234, -76.574_99, 39.710_92];

/// cos(2π·k·2⁻²⁴) for integers 0 ≤ k < 2²⁴, within 2·10⁻⁷: sin(2πt) for t = |k·2⁻²⁴ − ½| − ¼, which is
/// exact, as t·P(t²).
fn turn(k: &UOp) -> UOp {
    let half = k - (1 << 23);
    let t = unit(&(half.max_(&half.unary(Op::Neg)) - (1 << 22)));
    t.mul_rounded(&horner(&t.mul_rounded(&t), &SINE))
}

fn shifted(w: &UOp, by: i64) -> UOp {
    w.binary(Op::Shr, &w.like(by))
}

/// A 24-bit number as f32 below 1.
fn unit(bits: &UOp) -> UOp {
    bits.cast(DType::I32).cast(DType::F32) * 2f64.powi(-24)
}

/// Inputs and outputs that a weight of (out, in, …) connects.
fn fans(shape: &Dims) -> (f64, f64) {
    let field: f64 = shape.0.iter().skip(2).map(|&n| n as f64).product();
    let at = |i: usize| (shape.0.get(i).map_or(1.0, |&n| n as f64) * field).max(1.0);
    (at(1), at(0))
}
