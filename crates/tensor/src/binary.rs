//! Elementwise methods of two operands: promotion, broadcasting, and which composition each is. Flows
//! in: tensors and literals; out: tensors of the broadcast shape.
//!
//! Dtypes promote by PyTorch's table; literals and 0-d tensors are weak: they decide only where their
//! kind (bool, integer, float) is higher than the other's.

use crate::functions as f;
use crate::promote::{broadcast, broadcast_shape, integers, operand, together};
use crate::tensor::{Tensor, tri};
use crate::{DType, Operand};
use Form::{Made, One};
use Takes::{Any, Numbers, Reals};
use monoglot_uop::{Arg, Error, Op, Scalar, UOp};

/// What a method is on floats, or on integers and bools.
enum Form {
    /// One op of the dialect.
    One(Op),
    /// A composition; narrow floats come to it as f32.
    Made(fn(&UOp, &UOp) -> UOp),
}

/// What a method takes.
#[derive(Copy, Clone, PartialEq)]
enum Takes {
    Any,
    /// No two bools.
    Numbers,
    /// Integers and bools as f32.
    Reals,
}

#[track_caller]
fn apply(name: &str, takes: Takes, float: Form, int: Form, a: Operand, b: Operand) -> Tensor {
    // What becomes a float does so as it is, whatever the integers beside it reach.
    let real = |o: Operand| match o {
        Operand::Int(v) if takes == Reals => Operand::Float(v as f64),
        _ => o,
    };
    let a = real(a);
    let b = real(b);
    let literal = match b {
        Operand::Int(v) => Some(v),
        _ => None,
    };
    let b = match (literal, name, &a) {
        (Some(v), "maximum" | "minimum", Operand::Tensor(t)) => {
            Operand::Int(reached(v, tri!(t.dtype())))
        }
        (Some(v), "shl" | "shr", Operand::Tensor(t)) => Operand::Int(distance(v, tri!(t.dtype()))),
        (Some(v), "pow", Operand::Tensor(t)) => Operand::Int(exponent(v, tri!(t.dtype()))),
        _ => b,
    };
    Tensor::map_all(&[&a.tensor(&b), &b.tensor(&a)], |u| {
        let x = &u[0];
        let y = &u[1];
        let d = match together((x, a.weight(x)), (y, b.weight(y))) {
            d if takes == Reals && !d.is_float() => DType::F32,
            DType::Bool if takes == Numbers => {
                let message = "two bools; cast one to a number or use logical operators";
                return Err(Error::dtype(name, message));
            }
            d => d,
        };
        let form = if d.is_float() { float } else { int };
        match form {
            One(op) => {
                let shape = broadcast_shape(name, &[x, y])?;
                if let Some(truth) = literal.and_then(|v| beyond(op, v, d)) {
                    return Ok(UOp::full(Scalar::Bool(truth), DType::Bool, &shape));
                }
                // A weak float that the narrow one cannot hold is not rounded before it counts, only before
                // it is compared.
                let wider = |u: &UOp| u.dtype().is_float() && u.dtype().bytes() > d.bytes();
                let w = if !op.is_comparison() && (wider(x) || wider(y)) {
                    d.compute_type()
                } else {
                    d
                };
                let operands = vec![operand(x, w, &shape, y)?, operand(y, w, &shape, x)?];
                let z = UOp::try_new(op, operands, Arg::None)?;
                Ok(if w == d { z } else { z.cast(d) })
            }
            Made(of) => {
                let w = d.compute_type();
                let both = broadcast(name, &[&x.cast(w), &y.cast(w)])?;
                Ok(of(&both[0], &both[1]).cast(d))
            }
        }
    })
}

/// The integer of a dtype that is nearest to a literal.
fn reached(literal: i64, d: DType) -> i64 {
    integers(d).map_or(literal, |all| {
        i128::from(literal).clamp(*all.start(), *all.end()) as i64
    })
}

/// A distance that shifts as far and is an integer of the dtype: what it does not reach, or is negative, shifts all out.
fn distance(literal: i64, d: DType) -> i64 {
    match reached(literal, d) == literal {
        true => literal,
        false => reached(i64::MAX, d),
    }
}

/// An exponent that gives the same powers and is an integer of the dtype: modulo 2ⁿ those of odd numbers repeat after
/// 2ⁿ⁻² and those of even ones are 0 from n on. Of negative ones it matters whether they are even, to −1.
fn exponent(literal: i64, d: DType) -> i64 {
    let near = reached(literal, d);
    let bits = d.bits() as i64;
    match d.is_int() {
        true if near < literal => bits + (literal - bits) % (1 << (bits - 2)),
        true if near > literal && near < 0 => near + (literal - near).rem_euclid(2),
        _ => near,
    }
}

/// What a comparison with a literal gives that the dtype's integers do not reach: the same for all of them.
fn beyond(op: Op, literal: i64, d: DType) -> Option<bool> {
    let literal = i128::from(literal);
    let all = integers(d).filter(|all| !all.contains(&literal))?;
    let above = literal > *all.end();
    match op {
        Op::CmpLt | Op::CmpLe => Some(above),
        Op::CmpGt | Op::CmpGe => Some(!above),
        Op::CmpEq => Some(false),
        Op::CmpNe => Some(true),
        _ => None,
    }
}

/// Values in the opposite order: negated floats, complements of integers (which is exact at their ends).
pub(crate) fn turned(u: &UOp) -> UOp {
    u.unary(if u.dtype().is_float() {
        Op::Neg
    } else {
        Op::Not
    })
}

/// min(a, b) through MAX.
pub(crate) fn minimum(a: &UOp, b: &UOp) -> UOp {
    turned(&turned(a).max_(&turned(b)))
}

fn int_trunc_div(a: &UOp, b: &UOp) -> UOp {
    let q = a / b;
    let zero = a.like(0);
    let inexact = (&q * b).ne_(a) & a.lt(&zero).ne_(&b.lt(&zero)) & b.ne_(&zero);
    inexact.select(&(&q + 1), &q)
}

fn int_fmod(a: &UOp, b: &UOp) -> UOp {
    let m = a % b;
    let zero = a.like(0);
    let other = m.ne_(&zero) & a.lt(&zero).ne_(&b.lt(&zero));
    other.select(&(&m - b), &m)
}

fn copysign(a: &UOp, b: &UOp) -> UOp {
    let word = f::word(b);
    let size = f::abs(a);
    word.lt(&word.like(0)).select(&size.unary(Op::Neg), &size)
}

macro_rules! binaries {
    ($($(#[$doc:meta])* $name:ident: $takes:ident, $float:expr $(, $int:expr)?;)*) => { impl Tensor { $(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(&self, other: impl Into<Operand>) -> Tensor {
            Operand::$name(self.into(), other.into())
        }
    )* }
    impl Operand { $(
        #[track_caller]
        pub(crate) fn $name(self, other: Operand) -> Tensor {
            apply(stringify!($name), $takes, $float, binaries!(@int $float $(, $int)?), self, other)
        }
    )* } };
    (@int $float:expr) => { $float };
    (@int $float:expr, $int:expr) => { $int };
}
binaries! {
    /// a + b; logical or of bools.
    add: Any, One(Op::Add);
    /// a − b.
    sub: Numbers, One(Op::Sub);
    /// a · b; logical and of bools.
    mul: Any, One(Op::Mul);
    /// a / b as real numbers: integers give f32.
    div: Reals, One(Op::Div);
    /// The remainder with the sign of b (integers: a where b = 0). Floats: as `fmod`.
    modulo: Numbers, Made(f::floor_mod), One(Op::Mod);
    /// Bitwise, or logical, and.
    bitwise_and: Any, One(Op::And);
    /// Bitwise, or logical, or.
    bitwise_or: Any, One(Op::Or);
    /// Bitwise, or logical, exclusive or.
    bitwise_xor: Any, One(Op::Xor);
    /// a shifted left by b bits; 0 past the width, however far.
    shl: Numbers, One(Op::Shl);
    /// a shifted right by b bits, arithmetic where signed.
    shr: Numbers, One(Op::Shr);
    /// a to the power b.
    pow: Numbers, Made(f::pow), One(Op::Pow);
    /// The greater; NaN if either is. A tie shares the gradient. A literal that integers do not reach is the nearest of them.
    maximum: Any, One(Op::Max);
    /// The lesser; NaN if either is. A tie shares the gradient. A literal that integers do not reach is the nearest of them.
    minimum: Any, Made(minimum);
    /// a < b, as bool.
    lt: Any, One(Op::CmpLt);
    /// a ≤ b, as bool.
    le: Any, One(Op::CmpLe);
    /// a > b, as bool.
    gt: Any, One(Op::CmpGt);
    /// a ≥ b, as bool.
    ge: Any, One(Op::CmpGe);
    /// a = b, as bool.
    eq: Any, One(Op::CmpEq);
    /// a ≠ b, as bool.
    ne: Any, One(Op::CmpNe);
    /// ⌊a / b⌋ (integers: 0 where b = 0).
    floor_div: Numbers, Made(f::floor_div), One(Op::Idiv);
    /// a / b rounded toward zero (integers: 0 where b = 0).
    trunc_div: Numbers, Made(|a, b| f::div(a, b).unary(Op::Trunc)), Made(int_trunc_div);
    /// The remainder with the sign of a. Of floats it is exact as long as a/b is finite and, in f64, below 2³¹⁸; NaN
    /// where a/b overflows or b = 0.
    fmod: Numbers, Made(f::fmod), Made(int_fmod);
    /// The angle of the point (b, a), between −π and π.
    atan2: Reals, Made(f::atan2);
    /// ln(eᵃ + eᵇ).
    logaddexp: Reals, Made(f::logaddexp);
    /// |a| with the sign of b.
    copysign: Reals, Made(copysign);
}
