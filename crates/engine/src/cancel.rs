//! Cancelling: calls that another thread may end between two of their kernels. Flows in: a token, and what is to
//! run under it; flows out: what that gives, or an error that it was cancelled.
//!
//! Invariant: a call that was cancelled has changed nothing that can be seen. It heeds its token up to the first
//! kernel that writes a value in place; from there on it runs to its end, and gives what it gives.

use monoglot_uop::{ErrorKind, Result};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A token by which other threads end what runs under it. Clones are one token.
///
/// A call that is cancelled gives `ErrorKind::Cancelled`. Its outputs are not given; states that it would have
/// written, arguments that it would have assigned, and the stream of random numbers are as they were before it. A
/// call that has begun to write a state in place is not ended any more: it is done, and the next one is.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

thread_local! {
    /// The token that this thread runs under.
    static CURRENT: RefCell<Option<Cancel>> = const { RefCell::new(None) };
}

impl Cancel {
    /// A token of its own.
    pub fn new() -> Cancel {
        Cancel::default()
    }

    /// End what runs under it, in whatever thread, and what is begun under it from now on.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// What `run` gives; the calls that it makes in this thread heed this token.
    pub fn within<T>(&self, run: impl FnOnce() -> T) -> T {
        struct Back(Option<Cancel>);
        impl Drop for Back {
            fn drop(&mut self) {
                CURRENT.set(self.0.take());
            }
        }
        let _back = Back(CURRENT.replace(Some(self.clone())));
        run()
    }
}

/// The token that this thread runs under.
pub(crate) fn current() -> Option<Cancel> {
    CURRENT.with_borrow(Clone::clone)
}

/// Go on, but where the token was cancelled: with the step of that number, of so many.
///
/// # Errors
/// `Cancelled`.
pub(crate) fn heed(token: Option<&Cancel>, done: usize, of: usize) -> Result<()> {
    match token.is_some_and(Cancel::is_cancelled) {
        true => Err(ErrorKind::Cancelled { done, of }.into()),
        false => Ok(()),
    }
}
