//! Functions that are marked `#[function]`. Flows in: a function as it is written, and its arguments as one tree;
//! flows out: what it gives, by a call of the one `Function` that the process has of it.
//!
//! Invariant: which function that is, is decided by the type of the body: a generic one has one for each of its
//! types.

use crate::function::Function;
use crate::tensor::Tensor;
use crate::tree::{Fixed, Leaf, Outcome, Rebuild, Tensors};
use monoglot_uop::{Error, ErrorKind, Result};
use std::any::{Any, TypeId};
use std::panic::Location;
use std::sync::{Arc, RwLock};

/// What the process has of a function that is marked: its `Function`, for each type that it is of. `#[function]`
/// writes it.
pub struct Marked {
    of: RwLock<Vec<(TypeId, Erased)>>,
    checkpoint: bool,
    line: &'static Location<'static>,
}

/// A `Function`, whatever it takes and gives.
type Erased = Arc<dyn Any + Send + Sync>;

impl Marked {
    /// One that has none yet. `checkpoint`: its calls keep nothing but the arguments for gradients.
    #[track_caller]
    pub const fn new(checkpoint: bool) -> Marked {
        Marked {
            of: RwLock::new(Vec::new()),
            checkpoint,
            line: Location::caller(),
        }
    }

    /// Call it.
    ///
    /// # Errors
    /// As `Function::call`.
    #[track_caller]
    pub fn call<A, O, F>(&self, body: F, arguments: A) -> Result<O::Value>
    where
        A: Tensors + 'static,
        O: Outcome,
        O::Value: Send + Sync + 'static,
        F: Fn(&A) -> O + Send + Sync + 'static,
    {
        let here = Location::caller();
        let function = self.function::<A, O, F>(body);
        let function = function.downcast_ref::<Function<'static, A, O::Value>>();
        let called = match function {
            Some(function) => function.called(arguments),
            None => Err(ErrorKind::Capture {
                message: "a marked function is of another type than its body".into(),
            }
            .into()),
        };
        called.map_err(|e: Error| e.at(here))
    }

    fn function<A, O, F>(&self, body: F) -> Erased
    where
        A: Tensors + 'static,
        O: Outcome,
        O::Value: Send + Sync + 'static,
        F: Fn(&A) -> O + Send + Sync + 'static,
    {
        let is = |(of, _): &&(TypeId, Erased)| *of == TypeId::of::<F>();
        let known = self.of.read().unwrap_or_else(|e| e.into_inner());
        if let Some((_, known)) = known.iter().find(is) {
            return known.clone();
        }
        drop(known);
        let mut all = self.of.write().unwrap_or_else(|e| e.into_inner());
        // Another thread may have been first.
        if let Some((_, known)) = all.iter().find(is) {
            return known.clone();
        }
        let body = move |arguments: A| body(&arguments).outcome();
        let mut function = Function::at(self.line, body);
        if self.checkpoint {
            function = function.checkpoint();
        }
        let function: Erased = Arc::new(function);
        all.push((TypeId::of::<F>(), function.clone()));
        function
    }
}

/// What a marked function may give: a `Result`, or what has a place for an error.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no place for an error",
    note = "what is marked `#[function]` gives a `Result`, or what can carry an error: a tensor, or a tuple or an array of \
            tensors"
)]
pub trait Carries: Outcome {
    /// What was to be given, or the error.
    fn carrying(called: Result<Self::Value>) -> Self;
}

impl<T: Tensors> Carries for Result<T> {
    fn carrying(called: Result<T>) -> Result<T> {
        called
    }
}

impl Carries for Tensor {
    fn carrying(called: Result<Tensor>) -> Tensor {
        called.unwrap_or_else(Tensor::failed)
    }
}

impl<T: Tensors + Carries<Value = T>, const N: usize> Carries for [T; N] {
    fn carrying(called: Result<[T; N]>) -> [T; N] {
        called.unwrap_or_else(|e| std::array::from_fn(|_| T::carrying(Err(e.clone()))))
    }
}

macro_rules! tuples {
    ($($($t:ident)*;)*) => { $(
        impl<$($t: Tensors + Carries<Value = $t>),*> Carries for ($($t,)*) {
            fn carrying(called: Result<($($t,)*)>) -> ($($t,)*) {
                called.unwrap_or_else(|e| ($($t::carrying(Err(e.clone())),)*))
            }
        }
    )* };
}
tuples! {
    A;
    A B;
    A B C;
    A B C D;
    A B C D E;
    A B C D E F;
    A B C D E F G;
    A B C D E F G H;
}

/// A value that is no tensor, as a tree: a function has a body for each value of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FixedValue<T>(pub T);

impl<T: Fixed + Clone> Tensors for FixedValue<T> {
    fn leaves<'a>(&'a self, see: &mut dyn FnMut(Leaf<'a>)) {
        see(Leaf::Fixed(&self.0));
    }

    fn rebuilt(&self, _with: &mut dyn Rebuild) -> FixedValue<T> {
        FixedValue(self.0.clone())
    }
}
