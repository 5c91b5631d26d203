//! Elementwise ops as instructions: for the dtypes a machine computes in, code of their own; for
//! all others `fold` itself, lane by lane. Both compute exactly what `fold` does; what `fold` has
//! no value for is no instruction. Flows in: an op and the dtypes of its operands and result; flows
//! out: the function of one value and of many, if there is one.

use super::machine::{Frame, Ins, Run, after};
use half::{bf16, f16};
use monoglot_uop::fold::{fold, threefry, transcendental};
use monoglot_uop::op::{Arithmetic, Class, Comparison, Ternary, Unary};
use monoglot_uop::{DType, Op, Scalar, TcInfo};

/// The instruction of one lane and that of many.
pub(crate) type Pair = (Run, Run);

macro_rules! run {
    ($(#[$attr:meta])* ($($v:ident $field:ident: $t:ty),+) => $r:ty, $value:expr) => {{
        /// One lane.
        ///
        /// # Safety
        /// That of `Run`.
        $(#[$attr])*
        unsafe fn one(f: &mut Frame, i: *const Ins) -> *const Ins {
            // SAFETY: operands are values of these types, by the decoder's invariant.
            unsafe {
                $(let $v: $t = *f.reg::<$t>((*i).$field);)+
                *f.reg::<$r>((*i).dst) = $value;
                after(f, i)
            }
        }
        /// Every lane.
        ///
        /// # Safety
        /// That of `Run`.
        $(#[$attr])*
        unsafe fn many(f: &mut Frame, i: *const Ins) -> *const Ins {
            // SAFETY: operands are vectors of n lanes of these types, by the decoder's invariant.
            unsafe {
                for k in 0..(*i).n as usize {
                    $(let $v: $t = *f.reg::<$t>((*i).$field).add(k);)+
                    *f.reg::<$r>((*i).dst).add(k) = $value;
                }
                after(f, i)
            }
        }
        Some((one as Run, many as Run))
    }};
}

macro_rules! compare {
    ($op:expr, $t:ty) => {
        match $op {
            Comparison::CmpLt => run!((x a: $t, y b: $t) => bool, x < y),
            Comparison::CmpGt => run!((x a: $t, y b: $t) => bool, x > y),
            Comparison::CmpLe => run!((x a: $t, y b: $t) => bool, x <= y),
            Comparison::CmpGe => run!((x a: $t, y b: $t) => bool, x >= y),
            Comparison::CmpNe => run!((x a: $t, y b: $t) => bool, x != y),
            Comparison::CmpEq => run!((x a: $t, y b: $t) => bool, x == y),
        }
    };
}

macro_rules! integer {
    ($op:expr, $t:ident) => {
        match $op.class() {
            Class::Unary(op) => match op {
                Unary::Not => run!((x a: $t) => $t, !x),
                Unary::Neg => run!((x a: $t) => $t, x.wrapping_neg()),
                Unary::Trunc => run!((x a: $t) => $t, x),
                Unary::Recip | Unary::Sqrt => None,
            },
            Class::Arithmetic(op) => match op {
                Arithmetic::Add => run!((x a: $t, y b: $t) => $t, x.wrapping_add(y)),
                Arithmetic::Sub => run!((x a: $t, y b: $t) => $t, x.wrapping_sub(y)),
                Arithmetic::Mul => run!((x a: $t, y b: $t) => $t, x.wrapping_mul(y)),
                Arithmetic::Max => run!((x a: $t, y b: $t) => $t, x.max(y)),
                Arithmetic::And => run!((x a: $t, y b: $t) => $t, x & y),
                Arithmetic::Or => run!((x a: $t, y b: $t) => $t, x | y),
                Arithmetic::Xor => run!((x a: $t, y b: $t) => $t, x ^ y),
                Arithmetic::Shl => run!((x a: $t, y b: $t) => $t, if (y as u64) < $t::BITS as u64 { x << y } else { 0 }),
                Arithmetic::Shr => run!((x a: $t, y b: $t) => $t, if (y as u64) < $t::BITS as u64 { x >> y } else if $t::MIN != 0 { x >> ($t::BITS - 1) } else { 0 }),
                Arithmetic::TruncDiv => run!((x a: $t, y b: $t) => $t, if y == 0 { 0 } else { x.wrapping_div(y) }),
                Arithmetic::TruncMod => run!((x a: $t, y b: $t) => $t, if y == 0 { x } else { x.wrapping_rem(y) }),
                Arithmetic::Idiv | Arithmetic::Mod | Arithmetic::Pow => None,
                Arithmetic::Div | Arithmetic::Threefry => None,
            },
            Class::Comparison(op) => compare!(op, $t),
            Class::Ternary(Ternary::MulAcc) => {
                run!((x a: $t, y b: $t, z c: $t) => $t, x.wrapping_mul(y).wrapping_add(z))
            }
            _ => None,
        }
    };
}

macro_rules! float {
    ($op:expr, $t:ident) => {
        match $op.class() {
            Class::Unary(op) => match op {
                Unary::Recip => run!((x a: $t) => $t, 1.0 / x),
                Unary::Neg => run!((x a: $t) => $t, -x),
                Unary::Trunc => run!((x a: $t) => $t, x.trunc()),
                Unary::Sqrt => run!((x a: $t) => $t, x.sqrt()),
                Unary::Not => None,
            },
            Class::Arithmetic(op) => match op {
                Arithmetic::Add => run!((x a: $t, y b: $t) => $t, x + y),
                Arithmetic::Sub => run!((x a: $t, y b: $t) => $t, x - y),
                Arithmetic::Mul => run!((x a: $t, y b: $t) => $t, x * y),
                Arithmetic::Div => run!((x a: $t, y b: $t) => $t, x / y),
                Arithmetic::Max => run!((x a: $t, y b: $t) => $t, if x > y || x.is_nan() { x } else { y }),
                Arithmetic::Pow => run!((x a: $t, y b: $t) => $t, (x as f64).powf(y as f64) as $t),
                Arithmetic::Idiv | Arithmetic::Mod => None,
                Arithmetic::And | Arithmetic::Or | Arithmetic::Xor => None,
                Arithmetic::Shl | Arithmetic::Shr | Arithmetic::Threefry => None,
                Arithmetic::TruncDiv | Arithmetic::TruncMod => None,
            },
            Class::Transcendental(_) => Some((function::<$t>, function::<$t>)),
            Class::Comparison(op) => compare!(op, $t),
            Class::Ternary(Ternary::MulAcc) => fused!($t),
            _ => None,
        }
    };
}

macro_rules! fused {
    ($t:ident) => {{
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("fma") {
            return run!(#[target_feature(enable = "fma")] (x a: $t, y b: $t, z c: $t) => $t, x.mul_add(y, z));
        }
        run!((x a: $t, y b: $t, z c: $t) => $t, x.mul_add(y, z))
    }};
}

fn logic(op: Op) -> Option<Pair> {
    match op.class() {
        Class::Unary(op) => match op {
            Unary::Not => run!((x a: bool) => bool, !x),
            Unary::Neg | Unary::Trunc => run!((x a: bool) => bool, x),
            Unary::Recip | Unary::Sqrt => None,
        },
        Class::Arithmetic(op) => match op {
            Arithmetic::Add | Arithmetic::Or | Arithmetic::Max => {
                run!((x a: bool, y b: bool) => bool, x | y)
            }
            Arithmetic::Mul | Arithmetic::And => run!((x a: bool, y b: bool) => bool, x & y),
            Arithmetic::Xor => run!((x a: bool, y b: bool) => bool, x ^ y),
            Arithmetic::Idiv | Arithmetic::Mod | Arithmetic::Sub | Arithmetic::Div => None,
            Arithmetic::Pow | Arithmetic::Threefry | Arithmetic::Shl | Arithmetic::Shr => None,
            Arithmetic::TruncDiv | Arithmetic::TruncMod => None,
        },
        Class::Comparison(op) => compare!(op, bool),
        Class::Ternary(Ternary::MulAcc) => {
            run!((x a: bool, y b: bool, z c: bool) => bool, x & y | z)
        }
        _ => None,
    }
}

/// A float that f64 holds.
trait Float: Copy + Into<f64> {
    fn round(x: f64) -> Self;
}
impl Float for f32 {
    fn round(x: f64) -> f32 {
        x as f32
    }
}
impl Float for f64 {
    fn round(x: f64) -> f64 {
        x
    }
}

/// dst[0..n] = a function of a, in f64 and rounded once; `x` is of `pack`.
unsafe fn function<T: Float>(f: &mut Frame, i: *const Ins) -> *const Ins {
    // SAFETY: operands are vectors of n lanes of this type, by the decoder's invariant.
    unsafe {
        let op = Op::ALL[((*i).x & 255) as usize];
        for k in 0..(*i).n.max(1) as usize {
            let x: f64 = (*f.reg::<T>((*i).a).add(k)).into();
            let Class::Transcendental(op) = op.class() else {
                return fail(f, op);
            };
            *f.reg::<T>((*i).dst).add(k) = T::round(transcendental(op, x));
        }
        after(f, i)
    }
}

/// Stop at an op that has no value.
#[cold]
fn fail(f: &mut Frame, op: Op) -> *const Ins {
    f.fault = Some(format!("{} has no value for its operands", op.name()));
    f.fail()
}

/// `$macro` for the type in which values of a dtype are; the last where there is none.
macro_rules! by_type {
    ($d:expr, $macro:ident, $arg:ident) => {
        match $d {
            DType::I8 => $macro!($arg, i8),
            DType::I16 => $macro!($arg, i16),
            DType::I32 => $macro!($arg, i32),
            DType::I64 | DType::Index => $macro!($arg, i64),
            DType::U8 => $macro!($arg, u8),
            DType::U16 => $macro!($arg, u16),
            DType::U32 => $macro!($arg, u32),
            DType::U64 => $macro!($arg, u64),
            _ => None,
        }
    };
}

/// The instruction for `op` on operands of `from`, where it has code of its own.
pub(crate) fn arithmetic(op: Op, from: DType) -> Option<Pair> {
    match from {
        DType::Bool => logic(op),
        DType::U64 if op == Op::Threefry => run!((x a: u64, y b: u64) => u64, threefry(x, y)),
        DType::F32 => float!(op, f32),
        DType::F64 => float!(op, f64),
        _ => by_type!(from, integer, op),
    }
}

macro_rules! cast_to {
    ($from:ident, $to:ident) => {
        run!((x a: $from) => $to, x as $to)
    };
}

macro_rules! casts {
    ($to:expr, $from:ident) => {
        match $to {
            DType::F32 => cast_to!($from, f32),
            DType::F64 => cast_to!($from, f64),
            DType::Bool => run!((x a: $from) => bool, x != 0 as $from),
            _ => by_type!($to, cast_to, $from),
        }
    };
}

/// The instruction of a CAST, where it has code of its own. Rust's `as` truncates, wraps, rounds and
/// saturates as CAST does.
pub(crate) fn cast(from: DType, to: DType) -> Option<Pair> {
    match (from, to) {
        (DType::Bool, _) => casts!(to, u8),
        (DType::F32, DType::F16) => run!((x a: f32) => f16, f16::from_f32(x)),
        (DType::F32, DType::BF16) => run!((x a: f32) => bf16, bf16::from_f32(x)),
        (DType::F16, DType::F32) => run!((x a: f16) => f32, x.to_f32()),
        (DType::BF16, DType::F32) => run!((x a: bf16) => f32, x.to_f32()),
        (DType::F32, _) => casts!(to, f32),
        (DType::F64, _) => casts!(to, f64),
        _ => by_type!(from, casts, to),
    }
}

/// WHERE on values of a width, its condition one bool a lane.
pub(crate) fn select(bytes: usize) -> Option<Pair> {
    match bytes {
        1 => run!((x a: bool, y b: u8, z c: u8) => u8, if x { y } else { z }),
        2 => run!((x a: bool, y b: u16, z c: u16) => u16, if x { y } else { z }),
        4 => run!((x a: bool, y b: u32, z c: u32) => u32, if x { y } else { z }),
        _ => run!((x a: bool, y b: u64, z c: u64) => u64, if x { y } else { z }),
    }
}

/// A zero of its sign in place of what is too small to be normal.
fn flushed(x: f32) -> f32 {
    match x.is_subnormal() {
        true => 0f32.copysign(x),
        false => x,
    }
}

/// The instruction of a dot product of words, as a machine with that unit does it.
pub(crate) fn dot(unit: &TcInfo) -> Option<Pair> {
    match (unit.dtypes_in, unit.dtype_out) {
        ([DType::I16, DType::I16], DType::I32) => {
            run!((x a: [i16; 2], y b: [i16; 2], z c: i32) => i32, {
                let [low, high] = [0, 1].map(|j| i32::from(x[j]) * i32::from(y[j]));
                z.wrapping_add(low.wrapping_add(high))
            })
        }
        ([DType::U8, DType::I8], DType::I32) => {
            run!((x a: [u8; 4], y b: [i8; 4], z c: i32) => i32, {
                let products = [0, 1, 2, 3].map(|j| i32::from(x[j]) * i32::from(y[j]));
                z.wrapping_add(products.into_iter().sum())
            })
        }
        ([DType::BF16, DType::BF16], DType::F32) => {
            run!((x a: [bf16; 2], y b: [bf16; 2], z c: f32) => f32, {
                let [low, high] = [0, 1].map(|j| [x[j], y[j]].map(|v| flushed(v.to_f32())));
                let sum = flushed(high[0].mul_add(high[1], flushed(z)));
                flushed(low[0].mul_add(low[1], sum))
            })
        }
        _ => None,
    }
}

macro_rules! tiles {
    ($a:ty, $b:ty => $r:ty, $sum:expr) => {{
        /// A tile of sums.
        ///
        /// # Safety
        /// That of `Run`; operands are whole tiles of words, and n is how many there are in one.
        unsafe fn tile(f: &mut Frame, i: *const Ins) -> *const Ins {
            // SAFETY: operands are vectors of n words that are elements of these types, by the decoder's invariant.
            unsafe {
                let size = (*i).n.isqrt() as usize;
                for row in 0..size {
                    for column in 0..size {
                        let at = row * size + column;
                        let words = |k: usize| {
                            let a = *f.reg::<[$a; 4 / size_of::<$a>()]>((*i).a).add(row * size + k);
                            let b = *f.reg::<[$b; 4 / size_of::<$b>()]>((*i).b).add(k * size + column);
                            (a, b)
                        };
                        type Words = ([$a; 4 / size_of::<$a>()], [$b; 4 / size_of::<$b>()]);
                        let sum: fn(&dyn Fn(usize) -> Words, usize, $r) -> $r = $sum;
                        let c = *f.reg::<$r>((*i).c).add(at);
                        *f.reg::<$r>((*i).dst).add(at) = sum(&words, size, c);
                    }
                }
                after(f, i)
            }
        }
        Some(tile as Run)
    }};
}

macro_rules! tiles_of_bytes {
    ($a:ty, $b:ty) => {
        tiles!($a, $b => i32, |words, size, c| {
            let product = |(a, b): ([$a; 4], [$b; 4])| -> i32 {
                (0..4).map(|j| i32::from(a[j]) * i32::from(b[j])).sum()
            };
            (0..size).fold(c, |sum, k| sum.wrapping_add(product(words(k))))
        })
    };
}

/// The instruction of a product of tiles, as a machine with that unit does it: of floats the sums of even and of odd
/// terms stand apart until they are added to what there is.
pub(crate) fn tiles(unit: &TcInfo) -> Option<Run> {
    match (unit.dtypes_in, unit.dtype_out) {
        ([DType::I8, DType::I8], DType::I32) => tiles_of_bytes!(i8, i8),
        ([DType::I8, DType::U8], DType::I32) => tiles_of_bytes!(i8, u8),
        ([DType::U8, DType::I8], DType::I32) => tiles_of_bytes!(u8, i8),
        ([DType::U8, DType::U8], DType::I32) => tiles_of_bytes!(u8, u8),
        ([DType::BF16, DType::BF16], DType::F32) => {
            tiles!(bf16, bf16 => f32, |words, size, c| {
                let mut sums = [0f32; 2];
                for (a, b) in (0..size).map(words) {
                    for (j, sum) in sums.iter_mut().enumerate() {
                        let [x, y] = [a[j], b[j]].map(|v| flushed(v.to_f32()));
                        *sum = flushed(x.mul_add(y, *sum));
                    }
                }
                flushed(flushed(c) + flushed(sums[0] + sums[1]))
            })
        }
        _ => None,
    }
}

/// What an instruction that folds needs besides its operands, packed into `x`.
pub(crate) fn pack(op: Op, from: DType, to: DType) -> u32 {
    op as u32 | (from as u32) << 8 | (to as u32) << 16
}

/// Any elementwise op on any dtypes, through `fold`.
///
/// # Safety
/// That of `Run`; `x` is of `pack`.
pub(crate) unsafe fn folded(f: &mut Frame, i: *const Ins) -> *const Ins {
    // SAFETY: the caller's promise.
    unsafe {
        match fold_lanes(f, &*i) {
            Ok(()) => after(f, i),
            Err(op) => fail(f, op),
        }
    }
}

/// The op, where it has no value.
fn fold_lanes(f: &Frame, i: &Ins) -> Result<(), Op> {
    let op = Op::ALL[(i.x & 255) as usize];
    let from = DType::ALL[(i.x >> 8 & 255) as usize];
    let to = DType::ALL[(i.x >> 16) as usize];
    let size = from.bytes();
    let out = to.bytes();
    let sources = [i.a, i.b, i.c];
    let sources = &sources[..op.arity().0.min(3)];
    for k in 0..i.n.max(1) as usize {
        let mut values = [Scalar::Int(0); 3];
        for (v, &s) in values.iter_mut().zip(sources) {
            let mut word = [0u8; 8];
            // SAFETY: lane k of an operand, by the decoder's invariant.
            unsafe {
                std::ptr::copy_nonoverlapping(f.reg::<u8>(s).add(k * size), word.as_mut_ptr(), size)
            };
            *v = Scalar::from_bits(u64::from_le_bytes(word), from);
        }
        let value = fold(op, from, to, &values[..sources.len()]).ok_or(op)?;
        let word = value.to_bits(to).to_le_bytes();
        // SAFETY: lane k of the result.
        unsafe {
            std::ptr::copy_nonoverlapping(word.as_ptr(), f.reg::<u8>(i.dst).add(k * out), out)
        };
    }
    Ok(())
}
