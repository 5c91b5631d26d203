//! Captured functions. Flows in: a function of trees of tensors; flows out: the same function, whose calls run
//! a program that was made once for all calls that look alike.
//!
//! A call looks like another one where its tensors have the same shapes, dtypes and devices, and are the same
//! tensors among each other; where its other arguments are equal; and where what the function reaches besides is
//! as it was, values apart. Invariant: a call gives what the function would have given uncaptured, or an error.

use crate::kept::Kept;
use crate::program::Program;
use crate::random;
use crate::recorded::{Recorded, Traced};
use crate::signature::{Over, Shown};
use crate::tensor::Tensor;
use crate::trace::{self, Standing};
use crate::tree::{Outcome, Passed, Tensors};
use monoglot_engine as engine;
use monoglot_engine::Config;
use monoglot_uop::{ErrorKind, Result};
use std::panic::Location;
use std::sync::{Arc, Mutex};

/// A function that is traced once for all calls that look alike, and runs as a program from then on.
///
/// What the function reaches without being passed (weights, a cache, an optimizer's state) is looked up anew in
/// every call; what it assigns is written, in place where nobody else holds the value. `realize` does nothing
/// within it, and to read what depends on the call (`item`, `to_vec`, …) is an error. Random numbers are those
/// that the function would have drawn uncaptured. What a call gives is a value: gradients are taken within the
/// function, and flow into no argument's history. What it does besides, to values that are no tensors, it does
/// when it is traced: `CHECK=2` traces every call, and tells where that would have made a difference.
///
/// ```
/// use monoglot_tensor::{Tensor, jit};
/// let weight = Tensor::ones([3, 2]);
/// let step = jit(|x: Tensor, rate: Tensor| {
///     let y = x.matmul(&weight).relu();
///     weight.assign(&weight - y.sum(0, false) * rate);
///     y
/// })?;
/// for k in 0..3 {
///     let x = Tensor::full([4, 3], k as f32);
///     let y = step.call((&x, 0.1f32))?;
///     assert_eq!(y.shape()?, [4, 2]);
/// }
/// # Ok::<(), monoglot_tensor::Error>(())
/// ```
pub struct Jit<'f, A, R> {
    body: Box<dyn Fn(A) -> Result<R> + Send + Sync + 'f>,
    programs: Kept<Recorded<R>>,
    /// Held by a call that writes: such calls come one after the other.
    turn: Mutex<()>,
    /// What tells it from others.
    who: usize,
    line: &'static Location<'static>,
}

/// A function that can be captured: a closure of up to eight trees, by value or by reference (more than four all
/// in one way), that gives a tree or a `Result` of one.
#[diagnostic::on_unimplemented(
    message = "this is no function that can be captured",
    note = "a closure of up to eight trees of tensors, by value or by reference (more than four all in one way), \
            whose types are written: `|x: Tensor, n: usize| …` or `|x: &Tensor| …`; a float that is passed is a `Tensor` in it; \
            it gives a tree of tensors, or a `Result` of one"
)]
pub trait Body<M> {
    /// Its arguments, as a tuple.
    type Arguments: Tensors;
    /// What it gives.
    type Outcome: Outcome;

    /// Run it.
    fn run(&self, arguments: Self::Arguments) -> Self::Outcome;
}

/// The function of this closure, whose calls are captured. Calls of it from several threads take turns; those of two
/// functions that write one tensor do not, and each may begin from what the other has not written yet.
///
/// # Errors
/// Where the device that programs would run on cannot be opened.
#[track_caller]
#[allow(clippy::type_complexity)]
pub fn jit<'f, M, F>(body: F) -> Result<Jit<'f, F::Arguments, <F::Outcome as Outcome>::Value>>
where
    F: Body<M> + Send + Sync + 'f,
{
    let line = Location::caller();
    engine::open_default().map_err(|e| e.at(line))?;
    Ok(Jit {
        body: Box::new(move |arguments| body.run(arguments).outcome()),
        programs: Kept::default(),
        turn: Mutex::default(),
        who: trace::fresh(),
        line,
    })
}

impl<A: Tensors, R: Tensors> Jit<'_, A, R> {
    /// Call it. Tensors may be passed by reference, and numbers for tensors of shape (); a single argument needs
    /// no tuple. Within another captured function, this is the body's part of that.
    ///
    /// # Errors
    /// Those of the function; those that its tensors carry; what went wrong in compiling or running, as
    /// `realize` says; `Capture` where the function reads what depends on the call.
    #[track_caller]
    pub fn call(&self, arguments: impl Passed<A>) -> Result<R> {
        let here = Location::caller();
        let arguments = arguments.passed();
        if trace::number() != 0 {
            return trace::within(self.who, || (self.body)(arguments)).map_err(|e| e.at(here));
        }
        let called = || {
            let shown = Shown::of(&arguments)?;
            let program = self.found(&arguments, &shown)?;
            if Config::current().retrace {
                self.compare(&program, &arguments, &shown)?;
            }
            program.call(&shown, &self.turn, &random::STATE)
        };
        called().map_err(|e| e.at(here))
    }

    /// The program of calls that look like this one, on its own: with values of its own of all that the function
    /// reaches, as they are now. It can be saved, and called by another process. Of the arguments only their
    /// looks count: shapes, dtypes, devices, and which tensors are the same.
    ///
    /// # Errors
    /// As `call`, but for what running gives.
    #[track_caller]
    pub fn program(&self, arguments: impl Passed<A>) -> Result<Program> {
        let here = Location::caller();
        let arguments = arguments.passed();
        let made = || {
            if trace::number() != 0 {
                let message = "a program cannot be had while a function is captured".into();
                return Err(ErrorKind::Capture { message }.into());
            }
            let shown = Shown::of(&arguments)?;
            let look_alikes = Program::stand_ins(&shown);
            let mut next = look_alikes.iter();
            let arguments = arguments.rebuilt(&mut Over {
                next: |t: &Tensor| next.next().unwrap_or(t).clone(),
                were: &[],
                are: &[],
            });
            let shown = Shown::of(&arguments)?;
            // What it writes is another in the next call, whatever it is now.
            let mut varying: Vec<usize> = Vec::new();
            loop {
                let traced = self.trace(&arguments, &shown, varying.clone())?;
                let mut more = traced.written_constants();
                more.extend(&traced.together);
                if more.is_empty() {
                    return Program::of(traced, &shown, here);
                }
                varying.extend(more);
            }
        };
        made().map_err(|e| e.at(here))
    }

    /// This function and then another, which takes what this one gives, as one: its calls run one program, and
    /// give and leave behind what the two give one after the other. Floats may be rounded in another order,
    /// since kernels of the two may become one.
    ///
    /// ```
    /// use monoglot_tensor::{Tensor, jit};
    /// let half = jit(|x: Tensor| x * 0.5)?;
    /// let sum = jit(|x: Tensor| x.sum(.., false))?;
    /// let both = half.then(&sum);
    /// assert_eq!(both.call(&Tensor::ones([8]))?.item::<f32>()?, 4.0);
    /// # Ok::<(), monoglot_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn then<'g, B, S>(&'g self, next: &'g Jit<'_, B, S>) -> Jit<'g, A, S>
    where
        R: Passed<B> + Send + Sync,
        B: Tensors,
        S: Tensors + Send + Sync,
    {
        let body = move |arguments: A| {
            let between = trace::within(self.who, || (self.body)(arguments))?;
            trace::within(next.who, || (next.body)(between.passed()))
        };
        Jit {
            body: Box::new(body),
            programs: Kept::default(),
            turn: Mutex::default(),
            who: trace::fresh(),
            line: Location::caller(),
        }
    }

    /// How many programs it has.
    pub fn programs(&self) -> usize {
        self.programs.len()
    }

    /// Let go of all programs and the storage that is theirs.
    pub fn clear(&self) {
        self.programs.clear();
    }

    /// The program for a call.
    fn found(&self, arguments: &A, shown: &Shown) -> Result<Arc<Recorded<R>>> {
        if let Some(known) = self.programs.find(|p| p.stands_for(shown)) {
            return Ok(known);
        }
        if let Some(before) = self.programs.latest() {
            let line = self.line;
            engine::note(|| {
                format!(
                    "captured once more: {} at {line}",
                    before.differs_from(shown)
                )
            });
        }
        let traced = self.trace(arguments, shown, Vec::new())?;
        let program = traced.compile(shown.signature.clone())?;
        Ok(self.programs.keep(program))
    }

    /// What the function does.
    fn trace(&self, arguments: &A, shown: &Shown, varying: Vec<usize>) -> Result<Traced<R>> {
        let who = (self.who, Standing::Own);
        traced(who, &*self.body, arguments, shown, varying)
    }

    /// Trace the function again, and compare.
    fn compare(&self, program: &Recorded<R>, arguments: &A, shown: &Shown) -> Result<()> {
        let again = self.trace(arguments, shown, Vec::new())?;
        let differs = program.differs(&again)?;
        match differs {
            None => Ok(()),
            Some(how) => {
                let message = format!(
                    "this call's function is not the one that was captured: {how}; what changes from \
                     call to call is to be passed, or kept in tensors that are assigned"
                );
                Err(ErrorKind::Capture { message }.into())
            }
        }
    }
}

/// What a function does with these arguments; `who` tells it from others, with whose stand-ins, and cells at these addresses are inputs even
/// where they are constants.
///
/// # Errors
/// Those of the function, and `Capture` where it reads what depends on the call, or calls itself.
pub(crate) fn traced<A: Tensors, R: Tensors>(
    (who, standing): (usize, Standing),
    body: &dyn Fn(A) -> Result<R>,
    arguments: &A,
    shown: &Shown,
    varying: Vec<usize>,
) -> Result<Traced<R>> {
    let run = || {
        let mut failed = Ok(());
        let mut own = Over {
            next: |t: &Tensor| match trace::pass(&t.0) {
                Ok(own) => Tensor(own),
                Err(e) => {
                    failed = Err(e);
                    t.clone()
                }
            },
            were: &[],
            are: &[],
        };
        let arguments = arguments.rebuilt(&mut own);
        failed?;
        body(arguments)
    };
    let finish = |tree, trace| Traced::of(tree, trace, shown);
    trace::trace(who, standing, varying, run, finish)
}

/// Tells an argument that a closure takes by reference from one that it takes by value.
pub struct ByReference<T>(T);

/// An argument's place in a closure's type, in its mark, and in its call: `v` by value, `r` by reference.
macro_rules! argument {
    (type v $t:ident) => { $t };
    (type r $t:ident) => { &$t };
    (mark v $t:ident) => { $t };
    (mark r $t:ident) => { ByReference<$t> };
    (pass v $t:ident) => { $t };
    (pass r $t:ident) => { &$t };
}

macro_rules! bodies {
    ($($($how:ident $t:ident)*;)*) => { $(
        impl<Func, Out, $($t),*> Body<fn($(argument!(mark $how $t)),*) -> Out> for Func
        where
            Func: Fn($(argument!(type $how $t)),*) -> Out,
            Out: Outcome,
            $($t: Tensors,)*
        {
            type Arguments = ($($t,)*);
            type Outcome = Out;

            #[allow(non_snake_case)]
            fn run(&self, ($($t,)*): ($($t,)*)) -> Out {
                self($(argument!(pass $how $t)),*)
            }
        }
    )* };
}
// Up to four arguments as one likes, more all by value or all by reference.
#[rustfmt::skip]
bodies! {
    ;
    v A;
    r A;
    v A v B;
    v A r B;
    r A v B;
    r A r B;
    v A v B v C;
    v A v B r C;
    v A r B v C;
    v A r B r C;
    r A v B v C;
    r A v B r C;
    r A r B v C;
    r A r B r C;
    v A v B v C v D;
    v A v B v C r D;
    v A v B r C v D;
    v A v B r C r D;
    v A r B v C v D;
    v A r B v C r D;
    v A r B r C v D;
    v A r B r C r D;
    r A v B v C v D;
    r A v B v C r D;
    r A v B r C v D;
    r A v B r C r D;
    r A r B v C v D;
    r A r B v C r D;
    r A r B r C v D;
    r A r B r C r D;
    v A v B v C v D v E;
    r A r B r C r D r E;
    v A v B v C v D v E v F;
    r A r B r C r D r E r F;
    v A v B v C v D v E v F v G;
    r A r B r C r D r E r F r G;
    v A v B v C v D v E v F v G v H;
    r A r B r C r D r E r F r G r H;
}
