//! The back end's interface: a linear program in, code out. Pure: no files, no devices, no time. A back
//! end that makes machine code needs this room alone; one that makes text stands in codegen.
//!
//! What a target has no way to say is an error that names the op, never a default. What every target
//! needs has been done: values are of the target's dtypes and widths, bools in storage are bytes, small
//! arrays are registers; a `Listing` says which values have names and how wide masks are.

use crate::arg::ProgramInfo;
use crate::error::{Error, ErrorKind, Result};
use crate::linear::Listing;
use crate::node::UOp;
use crate::target::Target;

/// What a back end makes of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// Text: what the device's compiler takes or, beside machine code, what people read. Text depends
    /// on the program and the target alone, so that it can key caches.
    pub source: String,
    /// Machine code, where no compiler is needed.
    pub binary: Option<Vec<u8>>,
}

/// Makes code of linear programs.
pub trait Backend: Send + Sync {
    /// The code of a program, of its record and for a target.
    ///
    /// # Errors
    /// `Unsupported`, naming the op, for what it cannot say.
    fn emit(&self, listing: &Listing, info: &ProgramInfo, target: &Target) -> Result<Code>;
}

/// The error of a back end that has no way to say an instruction.
pub fn unsupported(backend: &str, u: &UOp) -> Error {
    ErrorKind::Unsupported {
        op: u.op().name().into(),
        message: format!("the back end {backend} has no code for {u:?}"),
    }
    .into()
}
