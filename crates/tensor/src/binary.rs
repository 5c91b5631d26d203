//! Elementwise methods of two operands: promotion, broadcasting, and which composition each is. Flows
//! in: tensors and literals; out: tensors of the broadcast shape.
//!
//! Dtypes promote by PyTorch's table; literals and 0-d tensors are weak: they decide only where their
//! kind (bool, integer, float) is higher than the other's.

use crate::functions as f;
use crate::promote::{broadcast, broadcast_shape, operand, promoted};
use crate::tensor::Tensor;
use crate::{DType, Operand};
use monoglot_uop::{Error, Op, Result, UOp};

/// The two-operand methods.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    Rem,
    BitAnd,
    BitOr,
    BitXor,
    Shl,
    Shr,
    Pow,
    Max,
    Min,
    Lt,
    Le,
    Gt,
    Ge,
    Eq,
    Ne,
    FloorDiv,
    TruncDiv,
    Fmod,
    Atan2,
    LogAddExp,
    Copysign,
}

impl Binary {
    fn name(self) -> &'static str {
        use Binary::*;
        match self {
            Add => "add",
            Sub => "sub",
            Mul => "mul",
            Div => "div",
            Rem => "modulo",
            BitAnd => "bitwise_and",
            BitOr => "bitwise_or",
            BitXor => "bitwise_xor",
            Shl => "shl",
            Shr => "shr",
            Pow => "pow",
            Max => "maximum",
            Min => "minimum",
            Lt => "lt",
            Le => "le",
            Gt => "gt",
            Ge => "ge",
            Eq => "eq",
            Ne => "ne",
            FloorDiv => "floor_div",
            TruncDiv => "trunc_div",
            Fmod => "fmod",
            Atan2 => "atan2",
            LogAddExp => "logaddexp",
            Copysign => "copysign",
        }
    }

    /// One op of the dialect, whatever the dtype.
    fn op(self, float: bool) -> Option<Op> {
        use Binary::*;
        Some(match self {
            Add => Op::Add,
            Sub => Op::Sub,
            Mul => Op::Mul,
            Div => Op::Div,
            Rem if !float => Op::Mod,
            FloorDiv if !float => Op::Idiv,
            BitAnd => Op::And,
            BitOr => Op::Or,
            BitXor => Op::Xor,
            Shl => Op::Shl,
            Shr => Op::Shr,
            Pow => Op::Pow,
            Max => Op::Max,
            Lt => Op::CmpLt,
            Le => Op::CmpLe,
            Gt => Op::CmpGt,
            Ge => Op::CmpGe,
            Eq => Op::CmpEq,
            Ne => Op::CmpNe,
            _ => return None,
        })
    }
}

/// A two-operand method on tensors or literals.
#[track_caller]
pub(crate) fn apply(kind: Binary, a: Operand, b: Operand) -> Tensor {
    use Binary::*;
    let (a, b) = match (to_tensor(&a), to_tensor(&b)) {
        (Some(a), Some(b)) => (a, b),
        (Some(a), None) => {
            let b = a.beside(&b);
            (a, b)
        }
        (None, Some(b)) => (b.beside(&a), b),
        (None, None) => return Tensor::failed(Error::argument(kind.name(), "two literals")),
    };
    Tensor::map_all(&[&a, &b], |u| {
        let (x, y) = (&u[0], &u[1]);
        let mut d = promoted(x, y);
        if matches!(kind, Div | Atan2 | LogAddExp | Copysign) && !d.is_float() {
            d = DType::F32;
        }
        if d == DType::Bool && matches!(kind, Sub | Shl | Shr | FloorDiv | TruncDiv | Rem | Fmod | Pow) {
            return Err(Error::dtype(
                kind.name(),
                "two bools; cast one to a number or use logical operators",
            ));
        }
        if let Some(op) = kind.op(d.is_float()) {
            let shape = broadcast_shape(kind.name(), &[x, y])?;
            let (x, y) = (operand(x, d, &shape, y)?, operand(y, d, &shape, x)?);
            return UOp::try_new(op, [x, y].to_vec(), monoglot_uop::Arg::None);
        }
        let w = d.compute_type();
        let both = broadcast(kind.name(), &[&x.cast(w), &y.cast(w)])?;
        let (x, y) = (&both[0], &both[1]);
        let r = match kind {
            Min => minimum(x, y),
            Rem => f::floor_mod(x, y),
            FloorDiv => f::floor_div(x, y),
            TruncDiv if d.is_float() => f::div(x, y).unary(Op::Trunc),
            TruncDiv => int_trunc_div(x, y),
            Fmod if d.is_float() => f::fmod(x, y),
            Fmod => int_fmod(x, y),
            Atan2 => f::atan2(x, y),
            LogAddExp => f::logaddexp(x, y),
            _ => copysign(x, y)?,
        };
        Ok(r.cast(d))
    })
}

/// min(a, b) through MAX: by negation of floats, complement of integers (which is exact at their ends).
pub(crate) fn minimum(a: &UOp, b: &UOp) -> UOp {
    let turn = if a.dtype().is_float() { Op::Neg } else { Op::Not };
    a.unary(turn).max_(&b.unary(turn)).unary(turn)
}

fn int_trunc_div(a: &UOp, b: &UOp) -> UOp {
    let (q, zero) = (a / b, a.like(0));
    let inexact = (&q * b).ne_(a) & a.lt(&zero).ne_(&b.lt(&zero)) & b.ne_(&zero);
    inexact.select(&(&q + 1), &q)
}

fn int_fmod(a: &UOp, b: &UOp) -> UOp {
    let (m, zero) = (a % b, a.like(0));
    let other = m.ne_(&zero) & a.lt(&zero).ne_(&b.lt(&zero));
    other.select(&(&m - b), &m)
}

fn copysign(a: &UOp, b: &UOp) -> Result<UOp> {
    let bits = if b.dtype() == DType::F64 { DType::I64 } else { DType::I32 };
    let word = b.try_bitcast(bits)?;
    let size = f::abs(a);
    Ok(word.lt(&word.like(0)).select(&size.unary(Op::Neg), &size))
}

pub(crate) fn to_tensor(o: &Operand) -> Option<Tensor> {
    match o {
        Operand::Tensor(t) => Some(t.clone()),
        _ => None,
    }
}

macro_rules! binaries {
    ($($(#[$doc:meta])* $name:ident $kind:ident;)*) => { impl Tensor { $(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(&self, other: impl Into<Operand>) -> Tensor {
            apply(Binary::$kind, self.into(), other.into())
        }
    )* } };
}
binaries! {
    /// a + b; logical or of bools.
    add Add;
    /// a − b.
    sub Sub;
    /// a · b; logical and of bools.
    mul Mul;
    /// a / b as real numbers: integers give f32.
    div Div;
    /// The remainder with the sign of b (integers: a where b = 0).
    modulo Rem;
    /// Bitwise, or logical, and.
    bitwise_and BitAnd;
    /// Bitwise, or logical, or.
    bitwise_or BitOr;
    /// Bitwise, or logical, exclusive or.
    bitwise_xor BitXor;
    /// a shifted left by b bits; 0 past the width.
    shl Shl;
    /// a shifted right by b bits, arithmetic where signed.
    shr Shr;
    /// a to the power b.
    pow Pow;
    /// The greater; NaN if either is. A tie shares the gradient.
    maximum Max;
    /// The lesser; NaN if either is. A tie shares the gradient.
    minimum Min;
    /// a < b, as bool.
    lt Lt;
    /// a ≤ b, as bool.
    le Le;
    /// a > b, as bool.
    gt Gt;
    /// a ≥ b, as bool.
    ge Ge;
    /// a = b, as bool.
    eq Eq;
    /// a ≠ b, as bool.
    ne Ne;
    /// ⌊a / b⌋ (integers: 0 where b = 0).
    floor_div FloorDiv;
    /// a / b rounded toward zero (integers: 0 where b = 0).
    trunc_div TruncDiv;
    /// The remainder with the sign of a.
    fmod Fmod;
    /// The angle of the point (b, a), between −π and π.
    atan2 Atan2;
    /// ln(eᵃ + eᵇ).
    logaddexp LogAddExp;
    /// |a| with the sign of b.
    copysign Copysign;
}
