//! Floats as the processor computes them. Flows in: bits; flows out: bits. Always: what is invalid gives the NaN with
//! a sign, and a NaN that comes in comes out quiet: the first of two; of an FMA the factors come before the summand.

const NAN32: u32 = 0xffc0_0000;
const NAN64: u64 = 0xfff8_0000_0000_0000;

/// The two types, with what they share.
macro_rules! of_type {
    ($two:ident $one:ident $fused:ident $pick:ident $compare:ident $round:ident $float:ident $bits:ident $nan:ident $quiet:expr) => {
        /// An operation of two.
        pub(crate) fn $two(a: u64, b: u64, f: fn($float, $float) -> $float) -> u64 {
            let x = $float::from_bits(a as $bits);
            let y = $float::from_bits(b as $bits);
            let result = f(x, y);
            u64::from(match [x.is_nan(), y.is_nan(), result.is_nan()] {
                [true, ..] => x.to_bits() | $quiet,
                [_, true, _] => y.to_bits() | $quiet,
                [_, _, true] => $nan,
                _ => result.to_bits(),
            })
        }

        /// An operation of one.
        pub(crate) fn $one(a: u64, f: fn($float) -> $float) -> u64 {
            let x = $float::from_bits(a as $bits);
            let result = f(x);
            u64::from(match [x.is_nan(), result.is_nan()] {
                [true, _] => x.to_bits() | $quiet,
                [_, true] => $nan,
                _ => result.to_bits(),
            })
        }

        /// a·b + c.
        pub(crate) fn $fused(a: u64, b: u64, c: u64) -> u64 {
            let x = $float::from_bits(a as $bits);
            let y = $float::from_bits(b as $bits);
            let z = $float::from_bits(c as $bits);
            if let Some(nan) = [x, y, z].into_iter().find(|v| v.is_nan()) {
                return u64::from(nan.to_bits() | $quiet);
            }
            let result = x.mul_add(y, z);
            u64::from(if result.is_nan() {
                $nan
            } else {
                result.to_bits()
            })
        }

        /// The first where the condition holds, else the second: what MIN and MAX do, NaN and zeros included.
        pub(crate) fn $pick(a: u64, b: u64, f: fn(&$float, &$float) -> bool) -> u64 {
            let x = $float::from_bits(a as $bits);
            let y = $float::from_bits(b as $bits);
            if f(&x, &y) { a } else { b }
        }

        /// A comparison by its predicate.
        pub(crate) fn $compare(a: u64, b: u64, predicate: u8) -> bool {
            let x = $float::from_bits(a as $bits);
            let y = $float::from_bits(b as $bits);
            let unordered = x.is_nan() || y.is_nan();
            match predicate {
                0 => x == y,
                1 => x < y,
                2 => x <= y,
                3 => unordered,
                4 => unordered || x != y,
                5 => unordered || x >= y,
                6 => unordered || x > y,
                7 => !unordered,
                other => panic!("predicate {other} of a comparison"),
            }
        }

        /// Rounded to a whole number as an immediate says.
        pub(crate) fn $round(a: u64, imm: u8) -> u64 {
            assert_eq!(
                imm & !0b1011,
                0,
                "rounding to whole numbers, by the immediate alone"
            );
            match imm & 3 {
                0 => $one(a, $float::round_ties_even),
                1 => $one(a, $float::floor),
                2 => $one(a, $float::ceil),
                _ => $one(a, $float::trunc),
            }
        }
    };
}

of_type!(single2 single1 single_fused single_pick single_compare single_round f32 u32 NAN32 0x40_0000u32);
of_type!(double2 double1 double_fused double_pick double_compare double_round f64 u64 NAN64 0x8_0000_0000_0000u64);

/// A float as a signed integer of so many bytes, by truncation: the least where it does not fit.
pub(crate) fn truncated(value: f64, bytes: usize) -> u64 {
    let limit = 2f64.powi(8 * bytes as i32 - 1);
    let whole = value.trunc();
    let fits = whole >= -limit && whole < limit;
    match (fits, bytes) {
        (true, 8) => whole as i64 as u64,
        (true, _) => u64::from(whole as i32 as u32),
        (false, 8) => 1 << 63,
        (false, _) => 1 << 31,
    }
}

pub(crate) fn single(bits: u64) -> f64 {
    f64::from(f32::from_bits(bits as u32))
}

/// An f32 as an f64 of the same payload.
pub(crate) fn widened(bits: u64) -> u64 {
    let x = bits as u32;
    if !f32::from_bits(x).is_nan() {
        return f64::from(f32::from_bits(x)).to_bits();
    }
    let payload = u64::from(x & 0x3f_ffff) << 29;
    u64::from(x >> 31) << 63 | 0x7ff8_0000_0000_0000 | payload
}

/// An f64 as an f32.
pub(crate) fn narrowed(bits: u64) -> u64 {
    let x = f64::from_bits(bits);
    if !x.is_nan() {
        return u64::from((x as f32).to_bits());
    }
    let payload = bits >> 29 & 0x3f_ffff;
    bits >> 63 << 31 | 0x7fc0_0000 | payload
}

/// An f16 as an f32.
pub(crate) fn from_half(bits: u64) -> u64 {
    let x = half::f16::from_bits(bits as u16);
    if !x.is_nan() {
        return u64::from(x.to_f32().to_bits());
    }
    bits >> 15 << 31 | 0x7fc0_0000 | (bits & 0x1ff) << 13
}

/// An f32 as an f16, to the nearest.
pub(crate) fn to_half(bits: u64) -> u64 {
    let x = f32::from_bits(bits as u32);
    if !x.is_nan() {
        return u64::from(half::f16::from_f32(x).to_bits());
    }
    bits >> 31 << 15 | 0x7e00 | bits >> 13 & 0x1ff
}
