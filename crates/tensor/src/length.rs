//! Lengths that vary. Flows in: the bounds of a length, once, and its value wherever it is used; out:
//! sizes and offsets in shapes, slices and ranges. What is written with them is compiled once for all
//! values. What an operation does not take by such a size yet is an error that names it.

use crate::args::{Dims, Integer, conversions};
use crate::trace;
use monoglot_uop::build::fresh_slot;
use monoglot_uop::{Dim, Error, Result, UOp};
use std::ops::{Add, Mul, RangeInclusive, Sub};
use std::panic::Location;

/// A length that varies from run to run within bounds: one more token, one row less. Bound to a value
/// it stands where sizes and offsets stand.
///
/// ```
/// use monoglot_tensor::{Tensor, Variable};
/// let rows = Variable::new(1..=64)?;
/// let table = Tensor::ones([64, 8]);
/// for n in 1..=64 {
///     // One program for all n.
///     let sum = table.narrow(0, 0, rows.bind(n)?).sum(.., false);
///     assert_eq!(sum.item::<f32>()?, 8.0 * n as f32);
/// }
/// # Ok::<(), monoglot_tensor::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Variable(pub(crate) UOp);

impl Variable {
    /// A length between these bounds, both inclusive.
    ///
    /// # Errors
    /// `Argument` where the bounds are negative, empty, or beyond what a tensor can hold.
    #[track_caller]
    pub fn new(bounds: RangeInclusive<i64>) -> Result<Variable> {
        let line = Location::caller();
        Variable::within("variable", bounds).map_err(|e| e.at(line))
    }

    /// The length at a value.
    ///
    /// # Errors
    /// `Argument` where the value is outside the bounds.
    #[track_caller]
    pub fn bind<T: Integer>(&self, value: T) -> Result<Size> {
        let line = Location::caller();
        self.at("bind", value.value()).map_err(|e| e.at(line))
    }

    /// The length at a value, for an operation.
    pub(crate) fn at(&self, op: &str, value: i64) -> Result<Size> {
        let (min, max) = self.0.bounds();
        if !(min..=max).contains(&value) {
            let message = format!("{value} is outside {min}..={max}");
            return Err(Error::argument(op, message));
        }
        // What has one value is that number.
        Ok(Size(match min == max {
            true => Dim::Int(value),
            false => Dim::of(&self.0.bind_to(value)),
        }))
    }

    /// A length between these bounds, for an operation.
    pub(crate) fn within(op: &str, bounds: RangeInclusive<i64>) -> Result<Variable> {
        let (min, max) = bounds.into_inner();
        if min < 0 || max < min || max > 1 << 40 {
            let message = format!("{min}..={max} are no bounds of a length");
            return Err(Error::argument(op, message));
        }
        Ok(Variable(UOp::variable(fresh_slot(), min, max)))
    }
}

/// A size or an offset: a number, or an expression of variables at their values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Size(pub(crate) Dim);

impl Size {
    /// The number that it is now.
    pub fn value(&self) -> i64 {
        let number = self.0.now().expect("a size is of bound variables");
        trace::asked(&self.0, number);
        number
    }
}

/// Sizes: any list of integers or sizes, `[2, 3]`, `(1, &n, 4)`; none is `()`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes(pub(crate) Vec<Dim>);

conversions! {
    [T: Integer] T => Size, |n| Size(Dim::Int(n.value()));
    [] &Size => Size, |n| n.clone();
    [] Dims => Sizes, |dims| Sizes(dims.0.into_iter().map(Dim::Int).collect());
    [] () => Sizes, |none| Dims::from(none).into();
    [T: Integer] T => Sizes, |n| Dims::from(n).into();
    [T: Integer] &[T] => Sizes, |all| Dims::from(all).into();
    [T: Integer, const N: usize] [T; N] => Sizes, |all| Dims::from(all).into();
    [T: Integer, const N: usize] &[T; N] => Sizes, |all| Dims::from(all).into();
    [T: Integer] Vec<T> => Sizes, |all| Dims::from(all).into();
    [T: Integer] &Vec<T> => Sizes, |all| Dims::from(all).into();
    [] &[Size] => Sizes, |all| Sizes(all.iter().map(|s| s.0.clone()).collect());
    [] Vec<Size> => Sizes, |all| Sizes::from(&all[..]);
    [const N: usize] [Size; N] => Sizes, |all| Sizes::from(&all[..]);
}

macro_rules! tuples {
    ($($($t:ident)*;)*) => { $(
        impl<$($t: Into<Size>),*> From<($($t,)*)> for Sizes {
            #[allow(non_snake_case)]
            fn from(($($t,)*): ($($t,)*)) -> Sizes {
                Sizes(vec![$($t.into().0),*])
            }
        }

        impl<$($t: Integer),*> From<($($t,)*)> for Dims {
            #[allow(non_snake_case)]
            fn from(($($t,)*): ($($t,)*)) -> Dims {
                Dims(vec![$($t.value()),*])
            }
        }
    )* };
}
tuples! { A; A B; A B C; A B C D; A B C D E; A B C D E F; }

/// How many elements these sizes hold.
pub(crate) fn product(dims: &[Dim]) -> Dim {
    match dims.iter().map(Dim::as_int).product::<Option<i64>>() {
        Some(n) => Dim::Int(n),
        None => Dim::product(dims),
    }
}

macro_rules! arithmetic {
    ($($trait:ident $method:ident $op:tt;)*) => { $(
        impl<T: Into<Size>> $trait<T> for &Size {
            type Output = Size;
            fn $method(self, other: T) -> Size {
                Size(&self.0 $op other.into().0)
            }
        }
        impl<T: Into<Size>> $trait<T> for Size {
            type Output = Size;
            fn $method(self, other: T) -> Size {
                &self $op other
            }
        }
    )* };
}
arithmetic! {
    Add add +;
    Sub sub -;
    Mul mul *;
}
