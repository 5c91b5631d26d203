//! Shapes: a list of dimensions, each a number or a symbolic `index` UOp. The empty shape `()`
//! costs nothing. Flows in: numbers and `index` expressions; flows out: shapes. Invariant: a
//! dimension that is a constant is a number.

use crate::node::UOp;
use crate::op::{Op, OpSet};
use std::sync::Arc;

/// One dimension: a number of elements, or a UOp of dtype `index`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Dim {
    /// Known.
    Int(i64),
    /// Symbolic.
    Sym(UOp),
}

/// Ops whose value is known while a kernel runs, and not before.
const RUNNING: OpSet = OpSet::of(&[Op::Range, Op::Special, Op::Load]);

impl Dim {
    /// The number, where it is known.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Dim::Int(n) => Some(*n),
            Dim::Sym(_) => None,
        }
    }

    /// Whether the dimension is the number `n`.
    pub fn is(&self, n: i64) -> bool {
        self.as_int() == Some(n)
    }

    /// The least value it can have.
    pub fn min(&self) -> i64 {
        match self {
            Dim::Int(n) => *n,
            Dim::Sym(u) => u.vmin(),
        }
    }

    /// The greatest value it can have.
    pub fn max(&self) -> i64 {
        match self {
            Dim::Int(n) => *n,
            Dim::Sym(u) => u.vmax(),
        }
    }

    /// The number that it is now: known, or of variables that are bound to values.
    pub fn now(&self) -> Option<i64> {
        match self {
            Dim::Int(n) => Some(*n),
            Dim::Sym(u) if u.ops_below().intersects(RUNNING) => None,
            Dim::Sym(u) => u.sym_eval(&Default::default())?.as_int(),
        }
    }

    /// The dimension as an `index` UOp.
    pub fn to_uop(&self) -> UOp {
        match self {
            Dim::Int(n) => UOp::index_const(*n),
            Dim::Sym(u) => u.clone(),
        }
    }

    /// The dimension that an `index` UOp stands for.
    pub fn of(u: &UOp) -> Dim {
        u.as_int().map_or_else(|| Dim::Sym(u.clone()), Dim::Int)
    }
}

impl From<i64> for Dim {
    fn from(n: i64) -> Dim {
        Dim::Int(n)
    }
}
impl From<i32> for Dim {
    fn from(n: i32) -> Dim {
        Dim::Int(n.into())
    }
}
impl From<usize> for Dim {
    fn from(n: usize) -> Dim {
        Dim::Int(n as i64)
    }
}
impl std::fmt::Debug for Dim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Dim::Int(n) => write!(f, "{n}"),
            Dim::Sym(u) => match self.now() {
                Some(n) => write!(f, "{n} of {}", u.bounds().1),
                None => write!(f, "?{}", u.bounds().1),
            },
        }
    }
}

/// The dimensions of a value, outermost first.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Shape(Option<Arc<[Dim]>>);

impl Shape {
    /// The shape of a scalar, `()`.
    pub const SCALAR: Shape = Shape(None);

    /// The shape of these dimensions.
    pub fn new(dims: impl IntoIterator<Item = Dim>) -> Shape {
        let dims: Arc<[Dim]> = dims.into_iter().collect();
        Shape(if dims.is_empty() { None } else { Some(dims) })
    }

    /// The shape of these numbers.
    pub fn of(dims: &[i64]) -> Shape {
        Shape::new(dims.iter().map(|&n| Dim::Int(n)))
    }

    /// The dimensions.
    pub fn dims(&self) -> &[Dim] {
        self.0.as_deref().unwrap_or(&[])
    }

    /// The numbers, where all dimensions are known.
    pub fn ints(&self) -> Option<Vec<i64>> {
        self.dims().iter().map(Dim::as_int).collect()
    }

    /// The numbers that they are now, where all are known or bound.
    pub fn now(&self) -> Option<Vec<i64>> {
        self.dims().iter().map(Dim::now).collect()
    }

    /// The greatest sizes.
    pub fn max_ints(&self) -> Vec<i64> {
        self.dims().iter().map(Dim::max).collect()
    }

    /// The number of elements, at most (saturating).
    pub fn max_len(&self) -> i64 {
        self.dims().iter().fold(1, |n, d| n.saturating_mul(d.max()))
    }
}

impl std::ops::Deref for Shape {
    type Target = [Dim];
    fn deref(&self) -> &[Dim] {
        self.dims()
    }
}
impl std::fmt::Debug for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let dims: Vec<String> = self.dims().iter().map(|d| format!("{d:?}")).collect();
        write!(
            f,
            "({}{})",
            dims.join(", "),
            if dims.len() == 1 { "," } else { "" }
        )
    }
}
impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self:?}")
    }
}
