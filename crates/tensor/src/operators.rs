//! `&a + &b`, `a * 2.0`, `1.0 - &a`, `-&a`: Rust's operators on tensors and literals. `/` is true
//! division, `%` the remainder with the divisor's sign, `!` logical on bools and bitwise on
//! integers. Flows in: the operands; flows out: a tensor, which carries the error where they do not
//! fit.
//!
//! On the right stands whatever is an `Operand`. On the left stand f64 and i64 only: so `1.0 - &t` and
//! `2 * &t` need no suffix, and their result is known where it stands (`(1.0 - &t).relu()`). With f32
//! or i32 beside them a literal would fit two operators, and Rust asks which one before it falls back.
//! A variable of another type is written on the right (`&t * x`), or as `f64::from(x) - &t`.

use crate::{Operand, Tensor};
use std::ops;

macro_rules! binary {
    ($($trait:ident $method:ident $name:ident;)*) => { $(
        binary!(@on &Tensor, $trait $method $name);
        binary!(@on Tensor, $trait $method $name);
    )* };
    (@on $tensor:ty, $trait:ident $method:ident $name:ident) => {
        impl<R: Into<Operand>> ops::$trait<R> for $tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: R) -> Tensor { Tensor::$name(&self, other) }
        }
        binary!(@literal f64, $tensor, $trait $method $name);
        binary!(@literal i64, $tensor, $trait $method $name);
    };
    (@literal $literal:ty, $tensor:ty, $trait:ident $method:ident $name:ident) => {
        impl ops::$trait<$tensor> for $literal {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: $tensor) -> Tensor { Operand::$name(self.into(), other.into()) }
        }
    };
}
binary! {
    Add add add;
    Sub sub sub;
    Mul mul mul;
    Div div div;
    Rem rem modulo;
    BitAnd bitand bitwise_and;
    BitOr bitor bitwise_or;
    BitXor bitxor bitwise_xor;
    Shl shl shl;
    Shr shr shr;
}

macro_rules! unary {
    ($($trait:ident $method:ident $name:ident, $tensor:ty;)*) => { $(
        impl ops::$trait for $tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self) -> Tensor { Tensor::$name(&self) }
        }
    )* };
}
unary! {
    Neg neg neg, &Tensor;
    Neg neg neg, Tensor;
    Not not bitwise_not, &Tensor;
    Not not bitwise_not, Tensor;
}
