//! Arithmetic of dimensions. Flows in: sizes and offsets, numbers or expressions of variables; flows out: others,
//! numbers where all are. Invariant: an expression is in simplest form, so that equal ones are one node as far as
//! the rules see that they are.

use crate::node::UOp;
use crate::op::Op;
use crate::rules;
use crate::shape::Dim;
use std::ops::{Add, Div, Mul, Rem, Sub};

impl From<&Dim> for Dim {
    fn from(d: &Dim) -> Dim {
        d.clone()
    }
}

impl From<&i64> for Dim {
    fn from(n: &i64) -> Dim {
        Dim::Int(*n)
    }
}

impl Dim {
    /// The dimension that an `index` expression is in simplest form.
    pub fn simplest(u: UOp) -> Dim {
        let simple = rules::symbolic().rewrite(&u);
        Dim::of(&simple.unwrap_or(u))
    }

    /// The product.
    pub fn product<'a>(all: impl IntoIterator<Item = &'a Dim>) -> Dim {
        all.into_iter().fold(Dim::Int(1), |n, d| n * d)
    }

    /// The greater one.
    pub fn or_more(&self, other: impl Into<Dim>) -> Dim {
        let other = other.into();
        match (self.min() >= other.max(), other.min() >= self.max()) {
            (true, _) => self.clone(),
            (_, true) => other,
            _ => Dim::simplest(self.to_uop().max_(&other.to_uop())),
        }
    }

    /// The lesser one.
    pub fn or_less(&self, other: impl Into<Dim>) -> Dim {
        let other = other.into();
        match (self.max() <= other.min(), other.max() <= self.min()) {
            (true, _) => self.clone(),
            (_, true) => other,
            _ => {
                let below = (self.to_uop() * -1).max_(&(other.to_uop() * -1));
                Dim::simplest(below * -1)
            }
        }
    }

    /// How many parts of `size` elements hold so many: the quotient, rounded up.
    pub fn parts(&self, size: i64) -> Dim {
        match size {
            1 => self.clone(),
            _ => (self + (size - 1)) / size,
        }
    }
}

macro_rules! arithmetic {
    ($($trait:ident $method:ident $op:ident $numbers:expr, $nothing:expr;)*) => { $(
        impl<T: Into<Dim>> $trait<T> for &Dim {
            type Output = Dim;
            fn $method(self, other: T) -> Dim {
                let other = other.into();
                let numbers: fn(i64, i64) -> i64 = $numbers;
                match (self, &other) {
                    (Dim::Int(a), Dim::Int(b)) => Dim::Int(numbers(*a, *b)),
                    (_, Dim::Int(n)) if *n == $nothing => self.clone(),
                    _ => Dim::simplest(self.to_uop().binary(Op::$op, &other.to_uop())),
                }
            }
        }
        impl<T: Into<Dim>> $trait<T> for Dim {
            type Output = Dim;
            fn $method(self, other: T) -> Dim {
                (&self).$method(other)
            }
        }
    )* };
}
arithmetic! {
    Add add Add i64::saturating_add, 0;
    Sub sub Sub i64::saturating_sub, 0;
    Mul mul Mul i64::saturating_mul, 1;
    Div div Idiv |a, b| if b == 0 { 0 } else { a.div_euclid(b) }, 1;
    Rem rem Mod |a, b| if b == 0 { a } else { a.rem_euclid(b) }, i64::MIN;
}
