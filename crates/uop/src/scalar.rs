//! A constant's value, the ends of each dtype, and the conversions between dtypes, to the bit.
//!
//! Flows in: a value and a dtype; flows out: the value as that dtype holds it. Invariant: a scalar
//! kept for a dtype is always representable in it (`round_to` is the identity on it).

use crate::dtype::DType;
use std::hash::{Hash, Hasher};

/// The value of a CONST. Floats compare and hash by bits.
#[derive(Copy, Clone, Debug)]
pub enum Scalar {
    /// A truth value.
    Bool(bool),
    /// Any integer type's value (i128 holds both i64 and u64).
    Int(i128),
    /// Any float type's value, exact in f64.
    Float(f64),
    /// The invalid index: appears only in the gates of indices.
    Invalid,
}

use Scalar::*;

impl PartialEq for Scalar {
    fn eq(&self, other: &Scalar) -> bool {
        match (self, other) {
            (Bool(a), Bool(b)) => a == b,
            (Int(a), Int(b)) => a == b,
            (Float(a), Float(b)) => a.to_bits() == b.to_bits(),
            (a, b) => matches!((a, b), (Invalid, Invalid)),
        }
    }
}
impl Eq for Scalar {}

impl Hash for Scalar {
    fn hash<H: Hasher>(&self, h: &mut H) {
        match self {
            Bool(b) => h.write_u64(*b as u64),
            Int(i) => {
                h.write_u64(2 ^ *i as u64);
                h.write_u64((*i >> 64) as u64);
            }
            Float(f) => h.write_u64(f.to_bits() ^ 5),
            Invalid => h.write_u64(7),
        }
    }
}

impl Scalar {
    /// The value as f64 (bools are 0 and 1).
    pub fn to_f64(self) -> f64 {
        match self {
            Bool(b) => b as u8 as f64,
            Int(i) => i as f64,
            Float(f) => f,
            Invalid => f64::NAN,
        }
    }

    /// The value as an integer; floats truncate and saturate, NaN gives 0.
    pub fn to_i128(self) -> i128 {
        match self {
            Bool(b) => b as i128,
            Int(i) => i,
            Float(f) => f as i128,
            Invalid => 0,
        }
    }

    /// The value as an integer, where it is one.
    pub fn as_int(self) -> Option<i64> {
        match self {
            Int(i) => i64::try_from(i).ok(),
            _ => None,
        }
    }

    /// The value as a truth value.
    pub fn truthy(self) -> bool {
        self != Invalid && self.to_f64() != 0.0
    }

    /// Whether the value is zero (either sign) or false.
    pub fn is_zero(self) -> bool {
        self.to_f64() == 0.0
    }

    /// Whether the value is one, or true.
    pub fn is_one(self) -> bool {
        self.to_f64() == 1.0
    }

    /// The same kind of value brought into `dtype`: integers wrap, floats round to nearest even.
    pub fn round_to(self, dtype: DType) -> Scalar {
        match (self, dtype) {
            (Int(i), d) if d.is_int() => Int(wrap(i, d)),
            (Float(f), d) if d.is_float() => Float(round_float(f, d)),
            (s, _) => s,
        }
    }

    /// CAST: float → integer truncates and saturates and NaN gives 0; integers wrap; anything
    /// nonzero is true; floats round to nearest even.
    pub fn cast(self, to: DType) -> Scalar {
        match (self, to) {
            (Invalid, _) => Invalid,
            (s, DType::Bool) => Bool(s.truthy()),
            (Float(f), d) if d.is_int() => {
                let (Int(lo), Int(hi)) = (d.min(), d.max()) else {
                    unreachable!("integer bounds")
                };
                Int((f as i128).clamp(lo, hi))
            }
            (s, d) if d.is_int() => Int(wrap(s.to_i128(), d)),
            (Int(i), DType::F32) => Float(i as f32 as f64),
            (Int(i), d) if d.is_float() && d != DType::F64 => Float(round_float(odd_f64(i), d)),
            (s, d) if d.is_float() => Float(round_float(s.to_f64(), d)),
            (s, _) => s,
        }
    }

    /// The bits of the value as stored in `dtype`, in the low bytes.
    pub fn to_bits(self, dtype: DType) -> u64 {
        match dtype {
            DType::F64 => self.to_f64().to_bits(),
            DType::F32 => (self.to_f64() as f32).to_bits() as u64,
            DType::F16 => half::f16::from_f32(odd_f32(self.to_f64())).to_bits() as u64,
            DType::BF16 => half::bf16::from_f32(odd_f32(self.to_f64())).to_bits() as u64,
            DType::F8E4M3 => f8_bits(self.to_f64(), &E4M3) as u64,
            DType::F8E5M2 => f8_bits(self.to_f64(), &E5M2) as u64,
            DType::Bool => self.truthy() as u64,
            d => (self.to_i128() as u64) & mask(d),
        }
    }

    /// The value that these stored bits are in `dtype`.
    pub fn from_bits(bits: u64, dtype: DType) -> Scalar {
        match dtype {
            DType::F64 => Float(f64::from_bits(bits)),
            DType::F32 => Float(f32::from_bits(bits as u32) as f64),
            DType::F16 => Float(half::f16::from_bits(bits as u16).to_f64()),
            DType::BF16 => Float(half::bf16::from_bits(bits as u16).to_f64()),
            DType::F8E4M3 => Float(f8_value(bits as u8, &E4M3)),
            DType::F8E5M2 => Float(f8_value(bits as u8, &E5M2)),
            DType::Bool => Bool(bits & 0xff != 0),
            d => Int(wrap(bits as i128, d)),
        }
    }
}

impl DType {
    /// The least value, as an exact scalar (−∞ for floats that have it).
    pub fn min(self) -> Scalar {
        self.ends().0
    }

    /// The greatest value.
    pub fn max(self) -> Scalar {
        self.ends().1
    }

    fn ends(self) -> (Scalar, Scalar) {
        let most = 1i128 << (self.bits().max(1) - 1);
        match self {
            DType::Bool => (Bool(false), Bool(true)),
            DType::F8E4M3 => (Float(-448.0), Float(448.0)),
            d if d.is_float() => (Float(f64::NEG_INFINITY), Float(f64::INFINITY)),
            d if d.is_unsigned() => (Int(0), Int(2 * most - 1)),
            _ => (Int(-most), Int(most - 1)),
        }
    }

    /// The zero of the type.
    pub fn zero(self) -> Scalar {
        self.from_i128(0)
    }

    /// The one of the type.
    pub fn one(self) -> Scalar {
        self.from_i128(1)
    }

    /// An integer as a scalar of this type, wrapped or rounded.
    pub fn from_i128(self, v: i128) -> Scalar {
        match self {
            DType::Bool => Bool(v != 0),
            d if d.is_float() => Float(v as f64).round_to(self),
            _ => Int(v).round_to(self),
        }
    }

    /// A float as a scalar of this type, rounded, saturated for integers.
    pub fn from_f64(self, v: f64) -> Scalar {
        Float(v).cast(self)
    }
}

fn mask(d: DType) -> u64 {
    if d.bits() >= 64 {
        u64::MAX
    } else {
        (1 << d.bits()) - 1
    }
}

fn wrap(i: i128, d: DType) -> i128 {
    let unused = 128 - d.bits();
    match d {
        d if d.is_unsigned() => i & mask(d) as i128,
        d if d.is_int() && d != DType::Index => i << unused >> unused,
        _ => i,
    }
}

fn round_float(f: f64, d: DType) -> f64 {
    match d {
        DType::F32 => f as f32 as f64,
        DType::F64 => f,
        _ => Scalar::from_bits(Float(f).to_bits(d), d).to_f64(),
    }
}

/// An integer as f64 rounded to odd, so that a second rounding to a narrow type is the right one.
fn odd_f64(i: i128) -> f64 {
    let f = i as f64;
    let back = f as i128;
    if back == i || f.to_bits() & 1 == 1 {
        return f;
    }
    let toward = if (back < i) == (f > 0.0) { 1i64 } else { -1 };
    f64::from_bits((f.to_bits() as i64 + toward) as u64)
}

/// A float as f32 rounded to odd, as above.
fn odd_f32(f: f64) -> f32 {
    let near = f as f32;
    let back = near as f64;
    if back == f || f.is_nan() || near.to_bits() & 1 == 1 {
        return near;
    }
    let toward = if back.abs() < f.abs() { 1 } else { -1 };
    f32::from_bits(near.to_bits().wrapping_add_signed(toward))
}

struct F8 {
    mantissa: u32,
    bias: i32,
    /// The greatest finite value's bits.
    max: u8,
    /// Those of what overflows: the infinity's, or `max` where there is none.
    over: u8,
}

const F8_NAN: u8 = 0x7f;
const E4M3: F8 = F8 {
    mantissa: 3,
    bias: 7,
    max: 0x7e,
    over: 0x7e,
};
const E5M2: F8 = F8 {
    mantissa: 2,
    bias: 15,
    max: 0x7b,
    over: 0x7c,
};

/// Round to nearest even; E4M3 saturates, E5M2 overflows to infinity (PyTorch's casts).
fn f8_bits(f: f64, t: &F8) -> u8 {
    let sign = if f.is_sign_negative() { 0x80 } else { 0 };
    if f.is_nan() {
        return sign | F8_NAN;
    }
    let a = f.abs();
    let exp = (((a.to_bits() >> 52) as i32) - 1023).max(1 - t.bias);
    // a / 2^(exp - mantissa) is a small integer plus a fraction: round it half to even.
    let units = (a / 2f64.powi(exp - t.mantissa as i32)).round_ties_even();
    if !units.is_finite() || units >= 2f64.powi(t.mantissa as i32 + 2) {
        return sign | t.over;
    }
    let bits = units as i32 + ((exp + t.bias - 1) << t.mantissa);
    if bits > t.max as i32 {
        sign | t.over
    } else {
        sign | bits as u8
    }
}

fn f8_value(bits: u8, t: &F8) -> f64 {
    let sign = if bits & 0x80 != 0 { -1.0 } else { 1.0 };
    let magnitude = bits & 0x7f;
    if magnitude > t.max {
        return if magnitude == t.over {
            sign * f64::INFINITY
        } else {
            f64::NAN
        };
    }
    let exp = (magnitude >> t.mantissa) as i32;
    let man = (magnitude & ((1 << t.mantissa) - 1)) as f64;
    let scale = 2f64.powi(-(t.mantissa as i32));
    sign * if exp == 0 {
        man * scale * 2f64.powi(1 - t.bias)
    } else {
        (1.0 + man * scale) * 2f64.powi(exp - t.bias)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_small_float_survives_its_bits() {
        for d in [DType::F8E4M3, DType::F8E5M2, DType::F16, DType::BF16] {
            for bits in 0..1u64 << d.bits() {
                let v = Scalar::from_bits(bits, d);
                if !v.to_f64().is_nan() {
                    assert_eq!(v.to_bits(d), bits, "{d} {bits:#x} {v:?}");
                }
            }
        }
    }

    #[test]
    fn f64_rounds_once_to_narrow_floats() {
        // Just above the middle of two neighbours, by less than f32, or half of an f64, shows.
        let tie = 1.0 + 2f64.powi(-11);
        let above = 1.0 + 2f64.powi(-11) + 2f64.powi(-40);
        assert_eq!(DType::F16.from_f64(tie), Float(1.0));
        assert_eq!(DType::F16.from_f64(above), Float(1.0 + 2f64.powi(-10)));
        assert_eq!(DType::F16.from_f64(-above), Float(-1.0 - 2f64.powi(-10)));
        assert_eq!(DType::BF16.from_f64(54132744.0), Float(54263808.0));
        assert_eq!(DType::BF16.from_f64(54132736.0), Float(54001664.0));
        assert_eq!(DType::BF16.from_f64(1e300), Float(f64::INFINITY));
        assert_eq!(DType::F16.from_f64(65519.99), Float(65504.0));
        assert_eq!(DType::F16.from_f64(-65520.0), Float(f64::NEG_INFINITY));
    }

    #[test]
    fn f8_rounds_to_nearest_even_and_overflows_as_pytorch() {
        assert_eq!(DType::F8E4M3.from_f64(464.0), Float(448.0));
        assert_eq!(DType::F8E4M3.from_f64(465.0), Float(448.0));
        assert_eq!(DType::F8E4M3.from_f64(f64::NEG_INFINITY), Float(-448.0));
        assert!(DType::F8E4M3.from_f64(f64::NAN).to_f64().is_nan());
        assert_eq!(DType::F8E5M2.from_f64(61440.0), Float(f64::INFINITY));
        assert_eq!(DType::F8E5M2.from_f64(61439.0), Float(57344.0));
        assert_eq!(DType::F8E4M3.from_f64(1.0625), Float(1.0));
        assert_eq!(DType::F8E4M3.from_f64(2f64.powi(-10)), Float(0.0));
    }

    #[test]
    fn casts_saturate_and_nan_is_zero() {
        assert_eq!(Float(1e30).cast(DType::I32), Int(i32::MAX as i128));
        assert_eq!(Float(-1.5).cast(DType::U8), Int(0));
        assert_eq!(Float(f64::NAN).cast(DType::I64), Int(0));
        assert_eq!(Int(300).cast(DType::U8), Int(44));
        assert_eq!(
            Int((1 << 53) + 1).cast(DType::F32),
            Float(((1i64 << 53) + 1) as f32 as f64)
        );
    }
}
