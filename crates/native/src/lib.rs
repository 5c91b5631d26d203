//! Machine code of our own for x86-64: a back end behind `uop`'s trait. Flows in: a verified linear program, its
//! record and the target; flows out: the bytes of a function and their listing, or an error that names the op.
//!
//! Invariant: nothing is called, read or written at compile time but the program; equal programs and targets give
//! equal bytes.
//!
//! The way: `select` makes instructions over registers without number of the list, `allocate` gives the registers
//! numbers, `encode` makes bytes of it.

pub mod allocate;
pub mod check;
pub mod code;
pub mod own;
pub mod select;
pub mod table;

pub use own::{OwnLayout, own_bytes, own_layout};

use monoglot_uop::{Backend, Code, ErrorKind, Listing, ProgramInfo, Result, Target};

/// Machine code for x86-64, of the level that the target names.
pub struct X86;

// SAFETY: there is no code yet.
unsafe impl Backend for X86 {
    fn emit(&self, _: &Listing, info: &ProgramInfo, _: &Target) -> Result<Code> {
        Err(ErrorKind::Unsupported {
            op: "LINEAR".into(),
            message: format!("there is no machine code of our own yet: {}", info.name),
        }
        .into())
    }
}
