//! Elementwise methods: promotion, broadcasting, and which composition each is. Flows in: tensors and
//! literals; out: tensors of the broadcast shape.
//!
//! Dtypes promote by PyTorch's table; literals and 0-d tensors are weak: they decide only where their
//! kind (bool, integer, float) is higher than the other's. Functions of real numbers turn integers and
//! bools into f32, and compute floats narrower than f32 in f32.

use crate::functions as f;
use crate::tensor::Tensor;
use crate::{DType, Operand};
use monoglot_uop::gradient::scale;
use monoglot_uop::{Dim, Error, Op, Result, Shape, UOp};

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

fn to_tensor(o: &Operand) -> Option<Tensor> {
    match o {
        Operand::Tensor(t) => Some(t.clone()),
        _ => None,
    }
}

fn kind_of(d: DType) -> u8 {
    match d {
        DType::Bool => 0,
        d if d.is_float() => 2,
        _ => 1,
    }
}

/// The dtype of both operands together; a 0-d one is weak.
pub(crate) fn promoted(a: &UOp, b: &UOp) -> DType {
    let (x, y) = (a.dtype(), b.dtype());
    match (a.shape().is_empty(), b.shape().is_empty()) {
        (false, true) if kind_of(y) <= kind_of(x) => x,
        (true, false) if kind_of(x) <= kind_of(y) => y,
        _ => x.promote(y),
    }
}

/// The shape that all broadcast to: axes align at the right, sizes are equal or 1.
pub(crate) fn broadcast_shape(op: &str, all: &[&UOp]) -> Result<Shape> {
    let first = all[0].shape();
    if all.iter().all(|u| u.shape() == first) {
        return Ok(first.clone());
    }
    let n = all.iter().map(|u| u.shape().len()).max().unwrap_or(0);
    let mut dims: Vec<Dim> = vec![Dim::Int(1); n];
    for u in all {
        for (d, s) in dims.iter_mut().rev().zip(u.shape().iter().rev()) {
            if d.is(1) {
                *d = s.clone();
            } else if !s.is(1) && s != d {
                let shapes: Vec<String> = all.iter().map(|u| u.shape().to_string()).collect();
                return Err(Error::shape(op, format!("shapes {} do not broadcast", shapes.join(" and "))));
            }
        }
    }
    Ok(Shape::new(dims))
}

/// One value in a shape it broadcasts to.
pub(crate) fn broadcast_to(u: &UOp, shape: &Shape) -> Result<UOp> {
    if u.shape() == shape {
        return Ok(u.clone());
    }
    let missing = shape.len().saturating_sub(u.shape().len());
    let aligned = Shape::new(vec![Dim::Int(1); missing].into_iter().chain(u.shape().iter().cloned()));
    u.reshape(&aligned)?.expand(shape)
}

/// All in their common shape.
pub(crate) fn broadcast(op: &str, all: &[&UOp]) -> Result<Vec<UOp>> {
    let shape = broadcast_shape(op, all)?;
    all.iter().map(|u| broadcast_to(u, &shape)).collect()
}

/// An operand in its dtype and shape; a constant stays a CONST where the other one has the shape.
fn operand(u: &UOp, d: DType, shape: &Shape, other: &UOp) -> Result<UOp> {
    let mut c = u;
    while matches!(c.op(), Op::Reshape | Op::Expand) {
        c = &c.src()[0];
    }
    if let Some(v) = c.const_value() {
        let c = UOp::constant(v, d);
        let other_is_const = {
            let mut o = other;
            while matches!(o.op(), Op::Reshape | Op::Expand) {
                o = &o.src()[0];
            }
            o.op() == Op::Const
        };
        if other.shape() == shape && !other_is_const {
            return Ok(c);
        }
        return Ok(UOp::full(v.cast(d), d, shape));
    }
    broadcast_to(&u.cast(d), shape)
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

macro_rules! reals {
    ($($(#[$doc:meta])* $name:ident $f:expr;)*) => { impl Tensor { $(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(&self) -> Tensor { self.real($f) }
    )* } };
}
reals! {
    /// eˣ.
    exp f::exp;
    /// 2ˣ.
    exp2 |x| x.unary(Op::Exp2);
    /// eˣ − 1, exact near 0.
    expm1 f::expm1;
    /// ln x.
    log f::log;
    /// log₂ x.
    log2 |x| x.unary(Op::Log2);
    /// log₁₀ x.
    log10 |x| scale(&x.unary(Op::Log2), std::f64::consts::LOG10_2);
    /// ln(1 + x), exact near 0.
    log1p f::log1p;
    /// √x.
    sqrt |x| x.unary(Op::Sqrt);
    /// 1/√x.
    rsqrt |x| f::recip(&x.unary(Op::Sqrt));
    /// 1/x.
    reciprocal f::recip;
    /// sin x.
    sin f::sin;
    /// cos x.
    cos f::cos;
    /// tan x.
    tan f::tan;
    /// arcsin x.
    asin f::asin;
    /// arccos x.
    acos f::acos;
    /// arctan x.
    atan f::atan;
    /// sinh x.
    sinh f::sinh;
    /// cosh x.
    cosh f::cosh;
    /// tanh x.
    tanh f::tanh;
    /// arsinh x.
    asinh f::asinh;
    /// arcosh x.
    acosh f::acosh;
    /// artanh x.
    atanh f::atanh;
    /// The error function.
    erf f::erf;
    /// 1 / (1 + e⁻ˣ).
    sigmoid f::sigmoid;
}

impl Tensor {
    /// A composition of real functions: integers become f32, narrow floats are computed in f32.
    #[track_caller]
    pub(crate) fn real(&self, f: impl FnOnce(&UOp) -> UOp) -> Tensor {
        self.map(|u| Ok(real(u, f)))
    }

    /// For values of this dtype: a literal as a constant.
    #[track_caller]
    fn beside(&self, literal: &Operand) -> Tensor {
        self.map(|u| {
            let d = u.dtype();
            Ok(match literal {
                Operand::Float(v) => UOp::float(*v, if d.is_float() { d } else { DType::F32 }),
                Operand::Int(v) => UOp::int(*v, if d == DType::Bool { DType::I64 } else { d }),
                Operand::Bool(v) => UOp::constant(monoglot_uop::Scalar::Bool(*v), d),
                Operand::Tensor(t) => t.uop()?,
            })
        })
    }

    /// −x.
    #[track_caller]
    pub fn neg(&self) -> Tensor {
        self.map(|u| match u.dtype() {
            DType::Bool => Err(Error::dtype("neg", "a bool; use logical_not")),
            _ => Ok(u.unary(Op::Neg)),
        })
    }

    /// |x|, with gradient 0 at 0.
    #[track_caller]
    pub fn abs(&self) -> Tensor {
        self.map(|u| Ok(f::abs(u)))
    }

    /// −1, 0 or 1.
    #[track_caller]
    pub fn sign(&self) -> Tensor {
        self.map(|u| Ok(if u.dtype() == DType::Bool { u.clone() } else { f::sign(u) }))
    }

    /// x².
    #[track_caller]
    pub fn square(&self) -> Tensor {
        self * self
    }

    /// Toward −∞.
    #[track_caller]
    pub fn floor(&self) -> Tensor {
        self.rounded(f::floor)
    }

    /// Toward ∞.
    #[track_caller]
    pub fn ceil(&self) -> Tensor {
        self.rounded(f::ceil)
    }

    /// To the nearest integer, halves to the even one.
    #[track_caller]
    pub fn round(&self) -> Tensor {
        self.rounded(f::round)
    }

    /// Toward zero.
    #[track_caller]
    pub fn trunc(&self) -> Tensor {
        self.rounded(|u| u.unary(Op::Trunc))
    }

    #[track_caller]
    fn rounded(&self, f: impl FnOnce(&UOp) -> UOp) -> Tensor {
        self.map(|u| Ok(if u.dtype().is_float() { real(u, f) } else { u.clone() }))
    }

    /// Whether it is NaN.
    #[track_caller]
    pub fn isnan(&self) -> Tensor {
        self.map(|u| Ok(u.ne_(u)))
    }

    /// Whether it is ∞ or −∞.
    #[track_caller]
    pub fn isinf(&self) -> Tensor {
        self.map(|u| match u.dtype().is_float() {
            true => Ok(f::abs(u).eq_(&u.like(f64::INFINITY))),
            false => Ok(u.ne_(u)),
        })
    }

    /// Whether it is neither infinite nor NaN.
    #[track_caller]
    pub fn isfinite(&self) -> Tensor {
        self.map(|u| match u.dtype().is_float() {
            true => Ok(f::abs(u).lt(&u.like(f64::INFINITY))),
            false => Ok(u.eq_(u)),
        })
    }

    /// Whether it is zero.
    #[track_caller]
    pub fn logical_not(&self) -> Tensor {
        self.map(|u| Ok(u.cast(DType::Bool).unary(Op::Not)))
    }

    /// The complement of an integer's bits, or of a bool.
    #[track_caller]
    pub fn bitwise_not(&self) -> Tensor {
        self.map(|u| UOp::try_new(Op::Not, vec![u.clone()], monoglot_uop::Arg::None))
    }

    /// Between `min` and `max`; the gradient passes at the bounds. NaN stays.
    #[track_caller]
    pub fn clamp(&self, min: impl Into<Option<f64>>, max: impl Into<Option<f64>>) -> Tensor {
        let (min, max) = (min.into(), max.into());
        self.map(|u| {
            let whole = |v: f64| u.dtype().is_float() || v == v.trunc();
            let fits = min.is_none_or(whole) && max.is_none_or(whole);
            let mut x = if fits { u.clone() } else { u.cast(DType::F32) };
            if let Some(v) = min {
                x = x.lt(&x.like(v)).select(&x.like(v), &x);
            }
            if let Some(v) = max {
                x = x.like(v).lt(&x).select(&x.like(v), &x);
            }
            Ok(x)
        })
    }

    /// a + w·(b − a).
    #[track_caller]
    pub fn lerp(&self, end: &Tensor, weight: impl Into<Operand>) -> Tensor {
        self + (end - self) * weight
    }

    /// `self` (bool) selects: a where true, b elsewhere; all three broadcast.
    #[track_caller]
    pub fn select(&self, a: impl Into<Operand>, b: impl Into<Operand>) -> Tensor {
        let (a, b) = (a.into(), b.into());
        let (a, b) = match (to_tensor(&a), to_tensor(&b)) {
            (Some(a), Some(b)) => (a, b),
            (Some(x), None) => (x.clone(), x.beside(&b)),
            (None, Some(y)) => (y.beside(&a), y),
            (None, None) => {
                let float = matches!(a, Operand::Float(_)) || matches!(b, Operand::Float(_));
                let d = if float { DType::F32 } else { DType::I64 };
                let like = Tensor::from_uop(UOp::constant(d.zero(), d));
                (like.beside(&a), like.beside(&b))
            }
        };
        Tensor::map_all(&[self, &a, &b], |u| {
            let d = promoted(&u[1], &u[2]);
            let all = broadcast("where", &[&u[0].cast(DType::Bool), &u[1].cast(d), &u[2].cast(d)])?;
            Ok(all[0].select(&all[1], &all[2]))
        })
    }

    /// `value` where `mask` is true.
    #[track_caller]
    pub fn masked_fill(&self, mask: &Tensor, value: impl Into<Operand>) -> Tensor {
        let value = self.beside(&value.into());
        Tensor::map_all(&[self, mask, &value], |u| {
            let d = u[0].dtype();
            let all = broadcast("masked_fill", &[&u[0], &u[1].cast(DType::Bool)])?;
            let v = match u[2].const_value() {
                Some(_) => u[2].cast(d),
                None => broadcast_to(&u[2].cast(d), all[0].shape())?,
            };
            let v = v.const_value().map_or(v.clone(), |c| UOp::constant(c, d));
            Ok(all[1].select(&v, &all[0]))
        })
    }

    /// The elements in another dtype: floats round to nearest even, float → integer truncates and
    /// saturates, integers wrap.
    #[track_caller]
    pub fn cast(&self, dtype: DType) -> Tensor {
        self.map(|u| Ok(u.cast(dtype)))
    }

    /// The bytes read as another dtype; the last axis rescales with the width.
    #[track_caller]
    pub fn bitcast(&self, dtype: DType) -> Tensor {
        self.map(|u| u.try_bitcast(dtype))
    }
}

/// See `Tensor::real`.
pub(crate) fn real(u: &UOp, f: impl FnOnce(&UOp) -> UOp) -> UOp {
    let d = if u.dtype().is_float() { u.dtype() } else { DType::F32 };
    f(&u.cast(d.compute_type())).cast(d)
}
