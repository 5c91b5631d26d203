//! What each elementwise op computes on constants, exactly as every device must: DESIGN's settled
//! semantics of integers (floor division, 0 for a division by 0, shifts past the width) and IEEE
//! floats. The simplifier folds with it and the interpreters are checked against it. Flows in: an
//! op, dtypes and constants; flows out: the constant, rounded or wrapped to its dtype, or nothing
//! where the op has no value.

use crate::dtype::DType;
use crate::op::{Arithmetic, Class, Comparison, Conversion, Op, Ternary, Transcendental, Unary};
use crate::scalar::Scalar;
use Scalar::{Bool, Float, Int, Invalid};

/// floor(a / b); 0 where b = 0.
pub fn floor_div(a: i128, b: i128) -> i128 {
    if b == 0 {
        return 0;
    }
    let q = a / b;
    if a % b != 0 && (a < 0) != (b < 0) {
        q - 1
    } else {
        q
    }
}

/// a − b·floor(a / b); a where b = 0.
pub fn floor_mod(a: i128, b: i128) -> i128 {
    if b == 0 { a } else { a - b * floor_div(a, b) }
}

/// a < b on scalars of one kind; false with NaN.
pub fn less(a: Scalar, b: Scalar) -> bool {
    match (a, b) {
        (Float(a), Float(b)) => a < b,
        (a, b) => a.to_i128() < b.to_i128(),
    }
}

fn equal(a: Scalar, b: Scalar) -> bool {
    match (a, b) {
        (Float(a), Float(b)) => a == b,
        (a, b) => a.to_i128() == b.to_i128(),
    }
}

/// The value of an elementwise op on constants. `from` is the sources' dtype, `to` the result's
/// (they differ for CAST and comparisons). None where the op has no value: it is not elementwise, takes
/// no such dtype, divides by 0 as a machine does, or the invalid index is among the operands of arithmetic.
pub fn fold(op: Op, from: DType, to: DType, v: &[Scalar]) -> Option<Scalar> {
    if op == Op::Where {
        return Some(if v[0].truthy() { v[1] } else { v[2] });
    }
    if v.contains(&Invalid) {
        return None;
    }
    Some(match op.class() {
        Class::Conversion(Conversion::Cast) => v[0].cast(to),
        Class::Comparison(op) => Bool(comparison(op, v[0], v[1])),
        _ if from == DType::Bool => Bool(logic(op, v)?),
        _ if from.is_float() => Float(float(op, from, v)?).round_to(to),
        _ => Int(integer(op, from, v)?).round_to(from),
    })
}

/// Whether an elementwise op has a value for operands of `from`, a division by 0 apart.
pub fn defined(op: Op, from: DType, to: DType) -> bool {
    let ones = [from.one(); 3];
    op.is_elementwise() && fold(op, from, to, &ones[..op.arity().0]).is_some()
}

/// A comparison of scalars of one kind; with NaN only ≠ holds.
pub fn comparison(op: Comparison, a: Scalar, b: Scalar) -> bool {
    match op {
        Comparison::CmpLt => less(a, b),
        Comparison::CmpGt => less(b, a),
        Comparison::CmpLe => less(a, b) || equal(a, b),
        Comparison::CmpGe => less(b, a) || equal(a, b),
        Comparison::CmpNe => !equal(a, b),
        Comparison::CmpEq => equal(a, b),
    }
}

/// A function of a float, to the nearest f64 or the next.
pub fn transcendental(op: Transcendental, x: f64) -> f64 {
    match op {
        Transcendental::Exp2 => x.exp2(),
        Transcendental::Log2 => x.log2(),
        Transcendental::Sin => x.sin(),
    }
}

fn logic(op: Op, v: &[Scalar]) -> Option<bool> {
    let a = v[0].truthy();
    let b = v.get(1).is_some_and(|s| s.truthy());
    Some(match op.class() {
        Class::Unary(op) => match op {
            Unary::Not => !a,
            Unary::Neg | Unary::Trunc => a,
            Unary::Recip | Unary::Sqrt => return None,
        },
        Class::Arithmetic(op) => match op {
            Arithmetic::Add | Arithmetic::Or | Arithmetic::Max => a || b,
            Arithmetic::Mul | Arithmetic::And | Arithmetic::Idiv => a && b,
            Arithmetic::Xor => a ^ b,
            Arithmetic::Mod => a && !b,
            Arithmetic::Sub | Arithmetic::Div | Arithmetic::Pow | Arithmetic::Threefry => {
                return None;
            }
            Arithmetic::TruncDiv | Arithmetic::TruncMod => return None,
            Arithmetic::Shr | Arithmetic::Shl => return None,
        },
        Class::Ternary(Ternary::MulAcc) => a && b || v[2].truthy(),
        _ => return None,
    })
}

fn float(op: Op, d: DType, v: &[Scalar]) -> Option<f64> {
    let a = v[0].to_f64();
    let b = v.get(1).map_or(0.0, |s| s.to_f64());
    Some(match op.class() {
        Class::Unary(op) => match op {
            Unary::Recip => 1.0 / a,
            Unary::Neg => -a,
            Unary::Trunc => a.trunc(),
            Unary::Sqrt => a.sqrt(),
            Unary::Not => return None,
        },
        Class::Transcendental(op) => transcendental(op, a),
        Class::Arithmetic(op) => match op {
            Arithmetic::Add => a + b,
            Arithmetic::Sub => a - b,
            Arithmetic::Mul => a * b,
            Arithmetic::Div => a / b,
            Arithmetic::Max if a.is_nan() => a,
            Arithmetic::Max if b.is_nan() => b,
            Arithmetic::Max => a.max(b),
            Arithmetic::Mod if b == 0.0 => f64::NAN,
            Arithmetic::Mod => {
                let r = a % b;
                let apart = r != 0.0 && (r < 0.0) != (b < 0.0);
                if apart { r + b } else { r }
            }
            Arithmetic::Idiv => (a / b).floor(),
            Arithmetic::Pow => a.powf(b),
            Arithmetic::Xor | Arithmetic::Or | Arithmetic::And => return None,
            Arithmetic::Shr | Arithmetic::Shl | Arithmetic::Threefry => return None,
            Arithmetic::TruncDiv | Arithmetic::TruncMod => return None,
        },
        Class::Ternary(Ternary::MulAcc) if d != DType::F64 => {
            (a as f32).mul_add(b as f32, v[2].to_f64() as f32) as f64
        }
        Class::Ternary(Ternary::MulAcc) => a.mul_add(b, v[2].to_f64()),
        _ => return None,
    })
}

/// The value before it is wrapped to the dtype.
fn integer(op: Op, d: DType, v: &[Scalar]) -> Option<i128> {
    let a = v[0].to_i128();
    let b = v.get(1).map_or(0, |s| s.to_i128());
    let shifts = (0..d.bits() as i128).contains(&b);
    Some(match op.class() {
        Class::Unary(op) => match op {
            Unary::Neg => -a,
            Unary::Not => !a,
            Unary::Trunc => a,
            Unary::Recip | Unary::Sqrt => return None,
        },
        Class::Arithmetic(op) => match op {
            Arithmetic::Add => a + b,
            Arithmetic::Sub => a - b,
            Arithmetic::Mul => a.wrapping_mul(b),
            Arithmetic::Max => a.max(b),
            Arithmetic::Idiv => floor_div(a, b),
            Arithmetic::Mod => floor_mod(a, b),
            Arithmetic::TruncDiv => a.checked_div(b)?,
            Arithmetic::TruncMod => a.checked_rem(b)?,
            Arithmetic::Xor => a ^ b,
            Arithmetic::Or => a | b,
            Arithmetic::And => a & b,
            Arithmetic::Shl if shifts => a << b,
            Arithmetic::Shl => 0,
            Arithmetic::Shr if shifts => a >> b,
            Arithmetic::Shr => a >> 127,
            Arithmetic::Pow => int_pow(a, b),
            Arithmetic::Threefry if d == DType::U64 => threefry(a as u64, b as u64) as i128,
            Arithmetic::Threefry | Arithmetic::Div => return None,
        },
        Class::Ternary(Ternary::MulAcc) => a.wrapping_mul(b).wrapping_add(v[2].to_i128()),
        _ => return None,
    })
}

/// a^b modulo 2¹²⁸; a negative exponent gives 0 except for bases 1 and −1.
fn int_pow(a: i128, b: i128) -> i128 {
    match a {
        1 => 1,
        -1 => 1 - 2 * (b & 1),
        _ if b < 0 => 0,
        // The exponent in halves of 32 bits: a^b = (a^2³²)^high · a^low.
        _ => {
            let high = a
                .wrapping_pow(1 << 31)
                .wrapping_pow(2)
                .wrapping_pow((b >> 32) as u32);
            high.wrapping_mul(a.wrapping_pow(b as u32))
        }
    }
}

/// Threefry-2x32 with 20 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11).
/// The low half of counter and key is word 0; so is the low half of the result.
pub fn threefry(counter: u64, key: u64) -> u64 {
    const ROTATIONS: [[u32; 4]; 2] = [[13, 15, 26, 6], [17, 29, 16, 24]];
    let keys = [
        key as u32,
        (key >> 32) as u32,
        0x1bd1_1bda ^ key as u32 ^ (key >> 32) as u32,
    ];
    let mut x = counter as u32;
    let mut y = (counter >> 32) as u32;
    x = x.wrapping_add(keys[0]);
    y = y.wrapping_add(keys[1]);
    for round in 0..5usize {
        for r in ROTATIONS[round % 2] {
            x = x.wrapping_add(y);
            y = y.rotate_left(r) ^ x;
        }
        x = x.wrapping_add(keys[(round + 1) % 3]);
        y = y
            .wrapping_add(keys[(round + 2) % 3])
            .wrapping_add(round as u32 + 1);
    }
    x as u64 | (y as u64) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threefry_matches_random123() {
        // The known-answer vectors for threefry2x32, 20 rounds.
        let pack = |a: u32, b: u32| a as u64 | (b as u64) << 32;
        assert_eq!(threefry(0, 0), pack(0x6b200159, 0x99ba4efe));
        assert_eq!(threefry(u64::MAX, u64::MAX), pack(0x1cb996fc, 0xbb002be7));
        assert_eq!(
            threefry(pack(0x243f6a88, 0x85a308d3), pack(0x13198a2e, 0x03707344)),
            pack(0xc4923a9c, 0x483df7a0)
        );
    }

    #[test]
    fn integers_are_as_settled() {
        let i = |op, d, a: i128, b: i128| fold(op, d, d, &[Int(a), Int(b)]).unwrap().to_i128();
        assert_eq!(i(Op::Idiv, DType::I32, 7, 0), 0);
        assert_eq!(i(Op::Mod, DType::I32, 7, 0), 7);
        assert_eq!(
            i(Op::Idiv, DType::I32, i32::MIN as i128, -1),
            i32::MIN as i128
        );
        assert_eq!(i(Op::Idiv, DType::I32, -7, 2), -4);
        assert_eq!(i(Op::Mod, DType::I32, -7, 2), 1);
        assert_eq!(i(Op::Mod, DType::I32, 7, -2), -1);
        assert_eq!(i(Op::Shl, DType::I32, 1, 32), 0);
        assert_eq!(i(Op::Shr, DType::I32, -1, 99), -1);
        assert_eq!(i(Op::Shr, DType::U8, 255, 8), 0);
    }
}
