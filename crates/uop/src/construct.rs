//! Nodes from tuples: what every constructor goes through. Flows in: an op, its sources and arg; flows
//! out: the node, or why it is none. Invariant: no node is made whose sources are too few or too many for
//! its op, or that has no dtype, shape or device by the rules of `derive`.

use crate::arg::Arg;
use crate::derive;
use crate::error::{Error, Result};
use crate::node::{Properties, Srcs, UOp};
use crate::op::Op;
use std::panic::Location;

#[track_caller]
fn made(op: Op, src: Srcs, arg: Arg, tag: u32) -> Result<UOp> {
    UOp::interned((op, src, arg, tag), Location::caller(), properties)
}

fn properties(op: Op, src: &[UOp], arg: &Arg) -> Result<Properties> {
    let (least, most) = op.arity();
    if src.len() < least || src.len() > most.max(least) && most != 255 {
        let message = format!("{} sources; it takes {least} to {most}", src.len());
        return Err(Error::argument(op.name(), message));
    }
    Ok(Properties {
        dtype: derive::dtype::dtype(op, src, arg)?,
        shape: derive::shape::shape(op, src, arg)?,
        device: derive::device::device(op, src, arg)?,
    })
}

/// The node, by code that knows it fits.
#[track_caller]
fn fitting(u: Result<UOp>) -> UOp {
    u.unwrap_or_else(|e| panic!("{e}"))
}

impl UOp {
    /// The node `(op, src, arg)` without a tag, or why it is none.
    #[track_caller]
    pub fn try_new(op: Op, src: impl Into<Srcs>, arg: Arg) -> Result<UOp> {
        made(op, src.into(), arg, 0)
    }

    /// The node `(op, src, arg)`, by code that knows it fits.
    ///
    /// # Panics
    /// Where shapes, dtypes or devices do not fit: a bug of the caller.
    #[track_caller]
    pub fn new(op: Op, src: impl Into<Srcs>, arg: Arg) -> UOp {
        fitting(made(op, src.into(), arg, 0))
    }

    /// The same node with other sources.
    #[track_caller]
    pub fn with_src(&self, src: impl Into<Srcs>) -> UOp {
        fitting(self.try_with_src(src))
    }

    /// The same node with other sources, or why there is none.
    #[track_caller]
    pub fn try_with_src(&self, src: impl Into<Srcs>) -> Result<UOp> {
        let src = src.into();
        if src[..] == *self.src() {
            return Ok(self.clone());
        }
        made(self.op(), src, self.arg().clone(), self.tag())
    }

    /// The same node with another arg.
    #[track_caller]
    pub fn with_arg(&self, arg: Arg) -> UOp {
        fitting(made(self.op(), self.src().into(), arg, self.tag()))
    }

    /// The same node with a tag (0: none), for temporary processing.
    #[track_caller]
    pub fn with_tag(&self, tag: u32) -> UOp {
        fitting(made(self.op(), self.src().into(), self.arg().clone(), tag))
    }
}
