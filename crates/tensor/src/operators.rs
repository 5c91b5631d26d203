//! `&a + &b`, `a * 2.0`, `1.0 - &a`, `-&a`: Rust's operators on tensors and literals. `/` is true
//! division, `%` the remainder with the divisor's sign, `!` logical on bools and bitwise on integers.

use crate::binary::{Binary, apply};
use crate::{Operand, Tensor};
use std::ops;

macro_rules! binary {
    ($($trait:ident $method:ident)*) => { $(
        impl<R: Into<Operand>> ops::$trait<R> for &Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: R) -> Tensor { apply(Binary::$trait, self.into(), other.into()) }
        }
        impl<R: Into<Operand>> ops::$trait<R> for Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: R) -> Tensor { apply(Binary::$trait, self.into(), other.into()) }
        }
        binary!(@left $trait $method f32);
        binary!(@left $trait $method f64);
        binary!(@left $trait $method i32);
        binary!(@left $trait $method i64);
    )* };
    (@left $trait:ident $method:ident $t:ty) => {
        impl ops::$trait<&Tensor> for $t {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: &Tensor) -> Tensor { apply(Binary::$trait, self.into(), other.into()) }
        }
        impl ops::$trait<Tensor> for $t {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: Tensor) -> Tensor { apply(Binary::$trait, self.into(), other.into()) }
        }
    };
}
binary! {
    Add add
    Sub sub
    Mul mul
    Div div
    Rem rem
    BitAnd bitand
    BitOr bitor
    BitXor bitxor
    Shl shl
    Shr shr
}

macro_rules! unary {
    ($($trait:ident $method:ident $name:ident;)*) => { $(
        impl ops::$trait for &Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self) -> Tensor { Tensor::$name(self) }
        }
        impl ops::$trait for Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self) -> Tensor { Tensor::$name(&self) }
        }
    )* };
}
unary! {
    Neg neg neg;
    Not not bitwise_not;
}
