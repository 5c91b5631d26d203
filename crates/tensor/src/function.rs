//! Functions of tensors that are written down once. Flows in: a function of trees of tensors; flows out: the same
//! function, each of whose calls is one node of the expression: a FUNCTION of a body that all of them have.
//!
//! Invariant: a call gives what the function would have given; how it is computed, and how often that is compiled,
//! is all that changes.

use crate::called::Called;
use crate::jit::{Body, traced};
use crate::kept::Kept;
use crate::signature::Shown;
use crate::tensor::Tensor;
use crate::trace::{self, Standing};
use crate::tree::{Outcome, Passed, Tensors};
use monoglot_engine as engine;
use monoglot_engine::Config;
use monoglot_uop::{ErrorKind, Result};
use std::panic::Location;

/// A function that is traced once for all calls that look alike, and stands in expressions as a call from then
/// on. Where a program calls a body several times (the blocks of a transformer), that is scheduled and compiled
/// once; where it does so once, or the body folds nothing, its operations are those of the program around it.
///
/// Calls are lazy, like all operations, and may be differentiated: the gradient of a call is a call, too. What the
/// function reaches without being passed (weights) is looked up anew in every call; what it assigns has the new
/// value after the call. `realize` does nothing within it, and to read what depends on the call (`item`, `to_vec`,
/// …) is an error. `CHECK=2` traces every call, and tells where that would have made a difference.
///
/// ```
/// use monoglot_tensor::{Tensor, function};
/// let layer = function(|weight: &Tensor, x: &Tensor| x.matmul(weight).relu());
/// let weights: Vec<Tensor> = (0..4).map(|_| Tensor::randn([8, 8]).parameter()).collect();
/// let mut x = Tensor::ones([2, 8]);
/// for weight in &weights {
///     x = layer.call((weight, &x))?;
/// }
/// let gradient = x.sum(.., false).gradient(&[&weights[0]])?.remove(0);
/// assert_eq!(gradient.shape()?, [8, 8]);
/// # Ok::<(), monoglot_tensor::Error>(())
/// ```
pub struct Function<'f, A, R> {
    body: Box<dyn Fn(A) -> Result<R> + Send + Sync + 'f>,
    bodies: Kept<Called<R>>,
    /// Whether the derivatives of calls keep nothing but the arguments.
    checkpoint: bool,
    /// What tells it from others.
    who: usize,
    line: &'static Location<'static>,
}

/// The function of this closure, whose calls are nodes.
#[track_caller]
#[allow(clippy::type_complexity)]
pub fn function<'f, M, F>(body: F) -> Function<'f, F::Arguments, <F::Outcome as Outcome>::Value>
where
    F: Body<M> + Send + Sync + 'f,
{
    Function::at(Location::caller(), move |arguments| {
        body.run(arguments).outcome()
    })
}

impl<'f, A, R> Function<'f, A, R> {
    /// The function of what takes all arguments as one tree, and is written at this line.
    pub(crate) fn at(
        line: &'static Location<'static>,
        body: impl Fn(A) -> Result<R> + Send + Sync + 'f,
    ) -> Function<'f, A, R> {
        Function {
            body: Box::new(body),
            bodies: Kept::default(),
            checkpoint: false,
            who: trace::fresh(),
            line,
        }
    }

    /// The same function, of whose calls nothing but the arguments is kept for gradients: what these need besides is
    /// computed again, with the same random numbers. That is less storage and more work: of a chain of such calls one
    /// at a time is in storage as a whole. (`torch.utils.checkpoint`, `jax.checkpoint`.)
    ///
    /// ```
    /// use monoglot_tensor::{Tensor, function};
    /// let layer = function(|w: &Tensor, x: &Tensor| x + x.matmul(w).gelu().dropout(0.1)).checkpoint();
    /// let weights: Vec<Tensor> = (0..4).map(|_| Tensor::randn([8, 8]).parameter()).collect();
    /// let mut x = Tensor::ones([2, 8]);
    /// for weight in &weights {
    ///     x = layer.call((weight, &x))?;
    /// }
    /// let targets: Vec<&Tensor> = weights.iter().collect();
    /// assert_eq!(x.sum(.., false).gradient(&targets)?.len(), 4);
    /// # Ok::<(), monoglot_tensor::Error>(())
    /// ```
    #[must_use]
    pub fn checkpoint(mut self) -> Self {
        self.checkpoint = true;
        self
    }
}

impl<A: Tensors> Function<'_, A, Tensor> {
    /// As `call`; what went wrong is carried by the tensor.
    #[track_caller]
    pub fn apply(&self, arguments: impl Passed<A>) -> Tensor {
        let here = Location::caller();
        let called = self.call(arguments);
        called.unwrap_or_else(|e| Tensor::failed(e.at(here)))
    }
}

impl<A: Tensors, R: Tensors> Function<'_, A, R> {
    /// Call it. Tensors may be passed by reference, and numbers for tensors of shape (); a single argument needs
    /// no tuple.
    ///
    /// # Errors
    /// Those of the function; those that its tensors carry; `Capture` where the function reads what depends on
    /// the call, calls itself and does not come to an end, or assigns a view that it is passed while it has what that is
    /// a view of, too.
    #[track_caller]
    pub fn call(&self, arguments: impl Passed<A>) -> Result<R> {
        let here = Location::caller();
        self.called(arguments.passed()).map_err(|e| e.at(here))
    }

    /// How many bodies it has.
    pub fn bodies(&self) -> usize {
        self.bodies.len()
    }

    /// Let go of all bodies.
    pub fn clear(&self) {
        self.bodies.clear();
    }

    /// What a call gives.
    pub(crate) fn called(&self, arguments: A) -> Result<R> {
        // What it calls itself is a part of its body.
        if trace::is_running(self.who) {
            return trace::within(self.who, || (self.body)(arguments));
        }
        let shown = Shown::of(&arguments)?;
        let known = self.bodies.find(|b| b.stands_for(&shown));
        let body = match &known {
            Some(known) => known.clone(),
            None => self.bodies.keep(self.made(&arguments, &shown)?),
        };
        if known.is_some() && Config::current().retrace {
            let differs = body.differs(&self.made(&arguments, &shown)?);
            if let Some(how) = differs {
                return Err(self.changed(how));
            }
        }
        body.call(&shown, self.checkpoint)
    }

    /// The body for calls that look like this one.
    fn made(&self, arguments: &A, shown: &Shown) -> Result<Called<R>> {
        engine::open_default()?;
        let who = (self.who, Standing::Shared);
        let traced = traced(who, &*self.body, arguments, shown, Vec::new())?;
        Called::of(traced, shown.signature.clone())
    }

    fn changed(&self, how: &str) -> monoglot_uop::Error {
        let line = self.line;
        let message = format!(
            "the function at {line} is not the one that was traced: {how}; what changes from call to call is to \
             be passed, or kept in tensors that are assigned"
        );
        ErrorKind::Capture { message }.into()
    }
}
