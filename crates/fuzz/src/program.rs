//! Random tensor programs. Flows in: a seed; flows out: roots over a few small BUFFERs.
//!
//! Invariant: values are exact. Floats are small integers and halves on every path that reaches a
//! comparison or a cast, so devices must agree to the bit there; what a transcendental gives is kept
//! apart (`smooth`) and only feeds arithmetic, whose results are compared within a tolerance.

use crate::kernels::at_places;
use crate::own;
use monoglot_uop::{Arg, DType, Device, Dim, Op, ReduceOp, Scalar, Shape, UOp, fold};

/// Elements of the largest value in a program.
const LARGEST: i64 = 900;

/// A stream of numbers that a seed decides.
pub struct Dice {
    seed: u64,
    count: u64,
}

impl Dice {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Dice {
        Dice { seed, count: 0 }
    }

    /// A number below `n`.
    pub fn roll(&mut self, n: u64) -> u64 {
        self.count += 1;
        fold::threefry(self.count, self.seed) % n.max(1)
    }

    /// One of these.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.roll(from.len() as u64) as usize]
    }
}

#[derive(Clone)]
struct Entry {
    value: UOp,
    /// Not exact: must not decide anything.
    smooth: bool,
    /// Bound of the magnitude.
    size: f64,
}

/// Roots of a random program of at most `ops` operations on `device`.
pub fn random(seed: u64, ops: u64, device: Device) -> Vec<UOp> {
    let mut dice = Dice::new(seed);
    let mut pool: Vec<Entry> = Vec::new();
    let dims: [&[i64]; 8] = [
        &[4, 6],
        &[6],
        &[2, 3, 4],
        &[17],
        &[1, 8],
        &[3, 1, 5],
        &[64, 4],
        &[40, 9],
    ];
    for _ in 0..2 + dice.roll(3) {
        let shape = Shape::of(dims[dice.roll(8) as usize]);
        let dtype = *dice.pick(&[
            DType::F32,
            DType::F32,
            DType::I32,
            DType::U8,
            DType::I64,
            DType::F16,
        ]);
        pool.push(Entry {
            value: UOp::buffer(&shape, dtype, device),
            smooth: false,
            size: 4.0,
        });
    }
    for _ in 0..1 + dice.roll(ops) {
        let Some(next) = step(&mut dice, &pool, device) else {
            continue;
        };
        let n = next.value.shape().max_len();
        if (1..=LARGEST).contains(&n) && next.size <= 1000.0 && next.value.shape().len() <= 5 {
            pool.push(next);
        }
    }
    let keep = 1 + dice.roll(3) as usize;
    let from = pool.len().saturating_sub(keep);
    pool.split_off(from).into_iter().map(|e| e.value).collect()
}

fn step(dice: &mut Dice, pool: &[Entry], device: Device) -> Option<Entry> {
    // Recent values more often than old ones.
    let one = dice.roll(pool.len() as u64) as usize;
    let other = dice.roll(pool.len() as u64) as usize;
    let e = pool[pool.len() - 1 - one.min(other)].clone();
    match dice.roll(24) {
        0..6 => movement(dice, &e, pool),
        6..10 => reduce(dice, &e),
        10..18 => elementwise(dice, &e, pool),
        18..20 => assign(dice, &e),
        20 => placed(dice, &e, pool),
        21 => own(dice, &e, pool, device),
        22 => decided(dice, &e, pool),
        _ => rows(dice, &e, pool),
    }
}

/// Steps along an axis, each of which wants whole rows of the one before, or neighbours: a kernel keeps some of them.
fn rows(dice: &mut Dice, e: &Entry, pool: &[Entry]) -> Option<Entry> {
    let dims = e.value.shape().ints()?;
    let axis = dice.roll(dims.len() as u64) as usize;
    if e.value.dtype() == DType::Bool || *dims.get(axis)? < 2 {
        return None;
    }
    let mut row = e.clone();
    for _ in 0..2 + dice.roll(3) {
        row = row_step(dice, &row, pool, axis, dims[axis])?;
    }
    Some(row)
}

/// One of those, along an axis of n.
fn row_step(dice: &mut Dice, e: &Entry, pool: &[Entry], axis: usize, n: i64) -> Option<Entry> {
    let x = &e.value;
    let folded = |op| x.reduce(op, &[axis]).ok()?.expand(x.shape()).ok();
    let part = |from: i64, count: i64, to: i64| {
        let at = |k: i64| {
            let mut at = vec![Dim::Int(0); x.shape().len()];
            at[axis] = Dim::Int(k);
            at
        };
        let mut small = x.shape().ints()?;
        small[axis] = count;
        let part = x.shrink(&at(from), &Shape::of(&small)).ok()?;
        part.pad(&at(to), x.shape(), x.dtype().zero()).ok()
    };
    let first = 1 + dice.roll(n as u64 - 1) as i64;
    let (value, factor) = match dice.roll(6) {
        0 => (x - &folded(ReduceOp::Add)?, 1.0 + n as f64),
        1 => (x - &folded(ReduceOp::Max)?, 2.0),
        2 => (part(first, n - first, 0)? + part(0, first, n - first)?, 1.0),
        3 => (part(0, n - first, first)?, 1.0),
        4 => (x + &x.flip(1 << axis).ok()?, 2.0),
        _ => {
            let number =
                |m: &&Entry| m.value.shape() == x.shape() && m.value.dtype().is_int() && !m.smooth;
            let numbers: Vec<&Entry> = pool.iter().filter(number).collect();
            let number = numbers.get(dice.roll(numbers.len().max(1) as u64) as usize)?;
            let number = number.value.cast(DType::I32);
            let index = number.binary(Op::Mod, &number.like(n));
            (x + &at_places(x, &index, axis, n)?, 1.0 + n as f64)
        }
    };
    Some(Entry {
        value,
        smooth: e.smooth,
        size: e.size * factor,
    })
}

/// Elements added up where numbers say, which are read, worked out or folded.
fn placed(dice: &mut Dice, e: &Entry, pool: &[Entry]) -> Option<Entry> {
    let x = &e.value;
    let dims = x.shape().ints()?;
    let axis = dice.roll(dims.len() as u64) as usize;
    let number = |m: &&Entry| m.value.shape() == x.shape() && m.value.dtype().is_int() && !m.smooth;
    let numbers: Vec<&Entry> = pool.iter().filter(number).collect();
    if dims.is_empty() || numbers.is_empty() || x.dtype() == DType::Bool {
        return None;
    }
    let places = 2 + dice.roll(6) as i64;
    let number = dice.pick::<&Entry>(&numbers).value.cast(DType::I32);
    let index = match dice.roll(3) {
        0 => number,
        1 => number.binary(Op::Mod, &number.like(places)),
        _ => {
            let [one, two] = [1, 2].map(|n| Shape::of(&[&[n][..], &dims].concat()));
            let twice = number.reshape(&one).ok()?.expand(&two).ok()?;
            let folded = twice.reduce(ReduceOp::Max, &[0]).ok()?;
            folded.reshape(x.shape()).ok()?
        }
    };
    Some(Entry {
        value: at_places(x, &index, axis, places)?,
        smooth: e.smooth,
        size: e.size * dims[axis] as f64,
    })
}

/// Two conditions of integers at once, with numbers at the ends of their dtype: given, or as padding beside data.
fn decided(dice: &mut Dice, e: &Entry, pool: &[Entry]) -> Option<Entry> {
    let x = &e.value;
    let d = x.dtype();
    if !d.is_int() || e.smooth {
        return None;
    }
    let [least, greatest] = [d.min(), d.max()].map(Scalar::to_i128);
    let numbers = [least, least + 1, greatest - 1, greatest, 0, 1];
    let number = |dice: &mut Dice| Scalar::Int(*dice.pick(&numbers));
    let dims = x.shape().ints()?;
    let axis = dice.roll(dims.len() as u64) as usize;
    let (a, b) = if dice.roll(2) == 0 && !dims.is_empty() {
        let mut wide = dims.clone();
        wide[axis] += 1 + dice.roll(2) as i64;
        let at = vec![Dim::Int(0); dims.len()];
        let padded = x.pad(&at, &Shape::of(&wide), number(dice)).ok()?;
        let turned = padded.flip(1 << axis).ok()?;
        (padded, turned)
    } else {
        (x.clone(), UOp::constant(number(dice), d))
    };
    let condition = |dice: &mut Dice| match dice.roll(6) {
        0 => a.lt(&b),
        1 => b.lt(&a),
        2 => a.ne_(&b),
        3 => a.lt(&b).unary(Op::Not),
        4 => b.lt(&a).unary(Op::Not),
        _ => a.ne_(&b).unary(Op::Not),
    };
    let first = condition(dice);
    let both = first.binary(*dice.pick(&[Op::And, Op::Or]), &condition(dice));
    let mate = mate(dice, e, pool);
    let value = match dice.roll(2) {
        0 if both.shape() == x.shape() => both.select(x, &mate.value),
        _ => both,
    };
    Some(Entry {
        value,
        smooth: mate.smooth,
        size: e.size.max(mate.size),
    })
}

/// What a kernel of a user's own makes of a value and another like it.
fn own(dice: &mut Dice, e: &Entry, pool: &[Entry], device: Device) -> Option<Entry> {
    let mate = mate(dice, e, pool);
    let (value, factor) = own::made(dice.roll(3), &e.value, &mate.value, device)?;
    Some(Entry {
        value,
        smooth: e.smooth || mate.smooth,
        size: (e.size * factor).max(mate.size),
    })
}

/// Another value of the same shape and dtype, or this one.
fn mate(dice: &mut Dice, e: &Entry, pool: &[Entry]) -> Entry {
    let x = &e.value;
    let alike = |m: &&Entry| m.value.shape() == x.shape() && m.value.dtype() == x.dtype();
    let mates: Vec<&Entry> = pool.iter().filter(alike).collect();
    Entry::clone(dice.pick::<&Entry>(&mates))
}

fn movement(dice: &mut Dice, e: &Entry, pool: &[Entry]) -> Option<Entry> {
    let x = &e.value;
    let dims = x.shape().ints()?;
    let n = dims.len();
    let axis = dice.roll(n as u64) as usize;
    let keep = |v: UOp| {
        Some(Entry {
            value: v,
            ..e.clone()
        })
    };
    let zeros = vec![Dim::Int(0); n];
    match dice.roll(8) {
        0 if n > 1 => {
            let mut order: Vec<usize> = (0..n).collect();
            order.swap(axis, dice.roll(n as u64) as usize);
            keep(x.permute(&order).ok()?)
        }
        1 => {
            let len: i64 = dims.iter().product();
            let divisors: Vec<i64> = (1..=len).filter(|d| len % d == 0).collect();
            let d = *dice.pick(&divisors);
            let inner: Vec<i64> = (1..=len / d).filter(|k| len / d % k == 0).collect();
            let k = *dice.pick(&inner);
            keep(x.reshape(&Shape::of(&[d, k, len / d / k])).ok()?)
        }
        2 if n > 0 => keep(x.flip(1 << axis).ok()?),
        3 if n > 0 => {
            let before = dice.roll(3) as i64;
            let after = dice.roll(3) as i64;
            let mut to = dims;
            let mut at = zeros;
            to[axis] += before + after;
            at[axis] = Dim::Int(before);
            let fill = Scalar::Int(dice.roll(3) as i128).cast(x.dtype());
            keep(x.pad(&at, &Shape::of(&to), fill).ok()?)
        }
        4 if n > 0 && dims[axis] > 1 => {
            let mut to = dims.clone();
            let mut at = zeros;
            let first = dice.roll(dims[axis] as u64 - 1) as i64;
            at[axis] = Dim::Int(first);
            to[axis] = 1 + dice.roll((dims[axis] - first) as u64) as i64;
            keep(x.shrink(&at, &Shape::of(&to)).ok()?)
        }
        5 => {
            let at = dice.roll(n as u64 + 1) as usize;
            let mut one = dims.clone();
            one.insert(at, 1);
            let mut wide = one.clone();
            wide[at] = 1 + dice.roll(4) as i64;
            let x = x.reshape(&Shape::of(&one)).ok()?;
            keep(x.expand(&Shape::of(&wide)).ok()?)
        }
        6 if n > 0 => {
            let index: Vec<UOp> = (0..1 + dice.roll(4))
                .map(|_| UOp::int(dice.roll(dims[0] as u64) as i64, DType::I32))
                .collect();
            let index = UOp::new(Op::Stack, index, Arg::None);
            keep(x.at(&[index]))
        }
        7 if n > 0 => {
            // Places that are computed: in bounds by what is known of a remainder, or of a maximum of some.
            let whole =
                |e: &&Entry| e.value.dtype().is_int() && !e.smooth && !e.value.shape().is_empty();
            let places: Vec<&Entry> = pool.iter().filter(whole).collect();
            let place = places
                .get(dice.roll(places.len().max(1) as u64) as usize)?
                .value
                .cast(DType::I32);
            let place = place.binary(Op::Mod, &place.like(dims[0]));
            let last = place.shape().len() - 1;
            let index = if dice.roll(3) == 0 {
                place.reduce(ReduceOp::Max, &[last]).ok()?
            } else {
                place
            };
            let size = index.shape().max_len() * x.shape().max_len() / dims[0];
            if size > LARGEST || index.shape().len() + n > 6 {
                return None;
            }
            keep(x.at(&[index]))
        }
        _ => None,
    }
}

fn reduce(dice: &mut Dice, e: &Entry) -> Option<Entry> {
    let x = &e.value;
    let n = x.shape().len();
    if n == 0 {
        return None;
    }
    let mut axes: Vec<usize> = (0..n).filter(|_| dice.roll(2) == 0).collect();
    if axes.is_empty() {
        axes.push(dice.roll(n as u64) as usize);
    }
    let length: f64 = axes.iter().map(|&a| x.shape()[a].max() as f64).product();
    let (op, size) = match dice.roll(3) {
        0 => (ReduceOp::Max, e.size),
        1 if x.dtype() != DType::Bool && length * e.size < 2000.0 => {
            (ReduceOp::Add, e.size * length)
        }
        _ => (ReduceOp::Max, e.size),
    };
    let y = x.reduce(op, &axes).ok()?;
    let y = if dice.roll(2) == 0 {
        y.expand(x.shape()).ok()?
    } else {
        y
    };
    Some(Entry {
        value: y,
        smooth: e.smooth,
        size,
    })
}

fn elementwise(dice: &mut Dice, e: &Entry, pool: &[Entry]) -> Option<Entry> {
    let x = &e.value;
    let mate = mate(dice, e, pool);
    let y = &mate.value;
    let smooth = e.smooth || mate.smooth;
    let unsigned = x.dtype().is_unsigned() || x.dtype() == DType::Bool;
    let bool_ = x.dtype() == DType::Bool;
    let out = |value: UOp, size: f64| {
        Some(Entry {
            value,
            smooth,
            size,
        })
    };
    match dice.roll(14) {
        0 | 1 if !bool_ => out(x + y, e.size + mate.size),
        2 if !bool_ => out(x * y, e.size * mate.size),
        3 => out(x.max_(y), e.size.max(mate.size)),
        4 if !unsigned => out(x.unary(Op::Neg), e.size),
        5 if !smooth => out(x.lt(y), 1.0),
        6 if !smooth => out(x.ne_(y), 1.0),
        7 if !smooth => out(x.lt(y).select(x, y), e.size.max(mate.size)),
        8 if !smooth => {
            let to = *dice.pick(&[
                DType::F32,
                DType::I32,
                DType::I64,
                DType::F16,
                DType::BF16,
                DType::I8,
                DType::U8,
                DType::Bool,
            ]);
            // A negative float has no value in an unsigned type that devices could disagree on: it saturates.
            let size = if e.size > 100.0 && to.bytes() == 1 {
                256.0
            } else {
                e.size
            };
            if to == x.dtype() {
                return None;
            }
            out(x.cast(to), size)
        }
        9 if x.dtype() == DType::F32 && e.size <= 8.0 => Some(Entry {
            value: x.unary(*dice.pick(&[Op::Exp2, Op::Sin])),
            smooth: true,
            size: 256.0,
        }),
        10 if x.dtype() == DType::F32 => {
            let positive = (x * x) + 1.0;
            let op = *dice.pick(&[Op::Log2, Op::Sqrt, Op::Recip]);
            Some(Entry {
                value: positive.unary(op),
                smooth: true,
                size: e.size + 1.0,
            })
        }
        11 if x.dtype().is_int() => {
            let c = *dice.pick(&[-3i64, -2, 2, 3, 5]);
            let c = if unsigned { c.abs() } else { c };
            let op = *dice.pick(&[Op::Idiv, Op::Mod]);
            out(x.binary(op, &x.like(c)), e.size + 5.0)
        }
        12 if x.dtype().is_int() => out(
            x.binary(*dice.pick(&[Op::Idiv, Op::Mod]), y),
            e.size + mate.size,
        ),
        13 if x.dtype().is_int() => {
            let op = *dice.pick(&[Op::And, Op::Or, Op::Xor]);
            out(x.binary(op, y), 2.0 * (e.size + mate.size))
        }
        _ => out(if bool_ { x.unary(Op::Not) } else { x + 1 }, e.size + 1.0),
    }
}

/// A part of the value overwritten with another part, or with a constant.
fn assign(dice: &mut Dice, e: &Entry) -> Option<Entry> {
    let x = &e.value;
    let dims = x.shape().ints()?;
    let axis = dice.roll(dims.len() as u64) as usize;
    if dims.is_empty() || dims[axis] < 2 {
        return None;
    }
    let mut part = dims.clone();
    part[axis] = 1 + dice.roll(dims[axis] as u64 - 1) as i64;
    let place = |first: i64| {
        let mut at = vec![Dim::Int(0); dims.len()];
        at[axis] = Dim::Int(first);
        x.shrink(&at, &Shape::of(&part)).ok()
    };
    let room = (dims[axis] - part[axis] + 1) as u64;
    let to = place(dice.roll(room) as i64)?;
    let from = place(dice.roll(room) as i64)?;
    let to = if dice.roll(3) == 0 {
        to.flip(1 << axis).ok()?
    } else {
        to
    };
    let value = match dice.roll(3) {
        0 => x.like(2).broadcast(&Shape::of(&part)),
        1 => from,
        _ => from.max_(&x.like(1)),
    };
    Some(Entry {
        value: x.after(&[to.store(&value)]),
        ..e.clone()
    })
}

/// Bytes of a leaf.
pub fn bytes(buffer: &UOp) -> usize {
    buffer.shape().max_len() as usize * buffer.dtype().bytes()
}

/// The bytes of an input buffer: small integers, a different mix for every seed.
pub fn data(buffer: &UOp, seed: u64) -> Vec<u8> {
    let d = buffer.dtype();
    let value = |i: u64| {
        let x = (fold::threefry(i, seed) % 9) as i128 - 4;
        let x = if d.is_unsigned() { x.abs() } else { x };
        Scalar::Int(x).cast(d).to_bits(d).to_le_bytes()[..d.bytes()].to_vec()
    };
    (0..buffer.shape().max_len() as u64)
        .flat_map(value)
        .collect()
}
