//! What a captured function takes and gives: trees of tensors. Flows in: tensors, tuples, lists, options and
//! structs of them; flows out: their leaves in order, and the same tree over other leaves.
//!
//! Invariant: a tree shows its leaves in one order, and is made anew in that order. Two trees whose leaves are
//! the same, tensors apart, differ in tensors alone.

use crate::args::Element;
use crate::length::Size;
use crate::tensor::Tensor;
use monoglot_uop::{DType, Device, Result};
use std::any::Any;

/// A leaf of a tree.
pub enum Leaf<'a> {
    /// A tensor.
    Tensor(&'a Tensor),
    /// A size, or an offset, that may vary.
    Size(&'a Size),
    /// How many trees follow, of a list or an option.
    Count(usize),
    /// A part that is no tensor: a function is captured for each value of it.
    Fixed(&'a dyn Fixed),
}

/// A value that is part of what a function is captured for.
pub trait Fixed: Any + Send + Sync {
    /// Whether it is the same as another one.
    fn same(&self, other: &dyn Fixed) -> bool;
    /// One like it, to keep.
    fn kept(&self) -> Box<dyn Fixed>;
}

impl<T: Any + Eq + Clone + Send + Sync> Fixed for T {
    fn same(&self, other: &dyn Fixed) -> bool {
        let other: &dyn Any = other;
        other.downcast_ref::<T>() == Some(self)
    }

    fn kept(&self) -> Box<dyn Fixed> {
        Box::new(self.clone())
    }
}

/// Makes leaves anew.
pub trait Rebuild {
    /// The tensor in place of the next one.
    fn tensor(&mut self, old: &Tensor) -> Tensor;
    /// The size in place of the next one.
    fn size(&mut self, old: &Size) -> Size;
}

/// A tree of tensors: what captured functions take and give. `#[derive(Tensors)]` makes a struct one.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no tree of tensors",
    note = "tensors, sizes, integers, bools, strings, and tuples, arrays, vectors and options of trees are; structs \
            are by `#[derive(Tensors)]`; a float is passed for a `Tensor`"
)]
pub trait Tensors: Sized {
    /// Show every leaf, in order.
    fn leaves<'a>(&'a self, see: &mut dyn FnMut(Leaf<'a>));

    /// This tree over other leaves, asked for in the same order.
    fn rebuilt(&self, with: &mut dyn Rebuild) -> Self;
}

/// What may be passed for a tree: itself, references to its tensors, and numbers for tensors of shape ().
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be passed for `{T}`",
    note = "several arguments are passed as one tuple: `call((&x, &y))`; for none it is `call(())`"
)]
pub trait Passed<T: Tensors> {
    /// The tree.
    fn passed(self) -> T;
}

/// What a function that is captured gives: a tree, or a `Result` of one.
pub trait Outcome {
    /// The tree.
    type Value: Tensors;

    /// It, or why there is none.
    ///
    /// # Errors
    /// Those of the function.
    fn outcome(self) -> Result<Self::Value>;
}

impl<T: Tensors> Outcome for T {
    type Value = T;

    fn outcome(self) -> Result<T> {
        Ok(self)
    }
}

impl<T: Tensors> Outcome for Result<T> {
    type Value = T;

    fn outcome(self) -> Result<T> {
        self
    }
}

/// The same tree again, of the same tensors.
pub fn again<T: Tensors>(tree: &T) -> T {
    struct Again;
    impl Rebuild for Again {
        fn tensor(&mut self, old: &Tensor) -> Tensor {
            old.clone()
        }

        fn size(&mut self, old: &Size) -> Size {
            old.clone()
        }
    }
    tree.rebuilt(&mut Again)
}

impl Tensors for Tensor {
    fn leaves<'a>(&'a self, see: &mut dyn FnMut(Leaf<'a>)) {
        see(Leaf::Tensor(self));
    }

    fn rebuilt(&self, with: &mut dyn Rebuild) -> Tensor {
        with.tensor(self)
    }
}

impl Tensors for Size {
    fn leaves<'a>(&'a self, see: &mut dyn FnMut(Leaf<'a>)) {
        see(Leaf::Size(self));
    }

    fn rebuilt(&self, with: &mut dyn Rebuild) -> Size {
        with.size(self)
    }
}

impl<T: Tensors> Tensors for Vec<T> {
    fn leaves<'a>(&'a self, see: &mut dyn FnMut(Leaf<'a>)) {
        see(Leaf::Count(self.len()));
        self.iter().for_each(|t| t.leaves(see));
    }

    fn rebuilt(&self, with: &mut dyn Rebuild) -> Vec<T> {
        self.iter().map(|t| t.rebuilt(with)).collect()
    }
}

impl<T: Tensors, const N: usize> Tensors for [T; N] {
    fn leaves<'a>(&'a self, see: &mut dyn FnMut(Leaf<'a>)) {
        self.iter().for_each(|t| t.leaves(see));
    }

    fn rebuilt(&self, with: &mut dyn Rebuild) -> [T; N] {
        std::array::from_fn(|i| self[i].rebuilt(with))
    }
}

impl<T: Tensors> Tensors for Option<T> {
    fn leaves<'a>(&'a self, see: &mut dyn FnMut(Leaf<'a>)) {
        see(Leaf::Count(usize::from(self.is_some())));
        self.iter().for_each(|t| t.leaves(see));
    }

    fn rebuilt(&self, with: &mut dyn Rebuild) -> Option<T> {
        self.as_ref().map(|t| t.rebuilt(with))
    }
}

impl<T: Tensors> Tensors for Box<T> {
    fn leaves<'a>(&'a self, see: &mut dyn FnMut(Leaf<'a>)) {
        (**self).leaves(see);
    }

    fn rebuilt(&self, with: &mut dyn Rebuild) -> Box<T> {
        Box::new((**self).rebuilt(with))
    }
}

/// Values that are part of what a function is captured for.
macro_rules! fixed {
    ($($t:ty),*) => { $(
        impl Tensors for $t {
            fn leaves<'a>(&'a self, see: &mut dyn FnMut(Leaf<'a>)) {
                see(Leaf::Fixed(self));
            }

            fn rebuilt(&self, _with: &mut dyn Rebuild) -> $t {
                self.clone()
            }
        }
        passes_as_it_is!($t);
    )* };
}

/// A tree that is passed as it is, also where it is all that a function takes.
macro_rules! passes_as_it_is {
    ($($t:ty),*) => { $(
        impl Passed<$t> for $t {
            fn passed(self) -> $t { self }
        }
        impl Passed<($t,)> for $t {
            fn passed(self) -> ($t,) { (self,) }
        }
        impl Passed<$t> for &$t {
            fn passed(self) -> $t { self.clone() }
        }
        impl Passed<($t,)> for &$t {
            fn passed(self) -> ($t,) { (self.clone(),) }
        }
    )* };
}
fixed!(
    bool,
    char,
    u8,
    u16,
    u32,
    u64,
    u128,
    usize,
    i8,
    i16,
    i32,
    i64,
    i128,
    isize,
    String,
    &'static str,
    DType,
    Device
);
passes_as_it_is!(Tensor, Size);

/// Numbers that are passed for tensors.
macro_rules! numbers {
    ($($t:ty),*) => { $(
        impl Passed<Tensor> for $t {
            #[track_caller]
            fn passed(self) -> Tensor { number(self) }
        }
        impl Passed<(Tensor,)> for $t {
            #[track_caller]
            fn passed(self) -> (Tensor,) { (number(self),) }
        }
    )* };
}
numbers!(f32, f64, half::f16, half::bf16, i32, i64);

#[track_caller]
fn number<T: Element>(value: T) -> Tensor {
    Tensor::scalar(value)
}

impl<P: Passed<T>, T: Tensors> Passed<Vec<T>> for Vec<P> {
    fn passed(self) -> Vec<T> {
        self.into_iter().map(P::passed).collect()
    }
}

impl<P: Passed<T>, T: Tensors> Passed<(Vec<T>,)> for Vec<P> {
    fn passed(self) -> (Vec<T>,) {
        (self.passed(),)
    }
}

/// Lists that are passed by reference.
macro_rules! borrowed_lists {
    ($($list:ty),*) => { $(
        impl<'a, P, T: Tensors> Passed<Vec<T>> for &'a $list
        where
            &'a P: Passed<T>,
        {
            fn passed(self) -> Vec<T> {
                self.iter().map(Passed::passed).collect()
            }
        }

        impl<'a, P, T: Tensors> Passed<(Vec<T>,)> for &'a $list
        where
            &'a P: Passed<T>,
        {
            fn passed(self) -> (Vec<T>,) {
                (self.passed(),)
            }
        }
    )* };
}
borrowed_lists!(Vec<P>, [P]);

impl<P: Passed<T>, T: Tensors, const N: usize> Passed<[T; N]> for [P; N] {
    fn passed(self) -> [T; N] {
        self.map(P::passed)
    }
}

impl<P: Passed<T>, T: Tensors, const N: usize> Passed<([T; N],)> for [P; N] {
    fn passed(self) -> ([T; N],) {
        (self.passed(),)
    }
}

impl<P: Passed<T>, T: Tensors> Passed<Option<T>> for Option<P> {
    fn passed(self) -> Option<T> {
        self.map(P::passed)
    }
}

impl<P: Passed<T>, T: Tensors> Passed<(Option<T>,)> for Option<P> {
    fn passed(self) -> (Option<T>,) {
        (self.passed(),)
    }
}

macro_rules! tuples {
    ($($($t:ident $p:ident)*;)*) => { $(
        impl<$($t: Tensors),*> Tensors for ($($t,)*) {
            #[allow(non_snake_case, unused_variables)]
            fn leaves<'a>(&'a self, see: &mut dyn FnMut(Leaf<'a>)) {
                let ($($t,)*) = self;
                $($t.leaves(see);)*
            }

            #[allow(non_snake_case, unused_variables, clippy::unused_unit)]
            fn rebuilt(&self, with: &mut dyn Rebuild) -> ($($t,)*) {
                let ($($t,)*) = self;
                ($($t.rebuilt(with),)*)
            }
        }

        impl<$($t: Tensors, $p: Passed<$t>),*> Passed<($($t,)*)> for ($($p,)*) {
            #[allow(non_snake_case, clippy::unused_unit)]
            fn passed(self) -> ($($t,)*) {
                let ($($p,)*) = self;
                ($($p.passed(),)*)
            }
        }
    )* };
}
tuples! {
    ;
    A P;
    A P B Q;
    A P B Q C R;
    A P B Q C R D S;
    A P B Q C R D S E T;
    A P B Q C R D S E T F U;
    A P B Q C R D S E T F U G V;
    A P B Q C R D S E T F U G V H W;
}
