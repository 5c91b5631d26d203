//! Machine code of our own for x86-64: a back end behind `uop`'s trait. Flows in: a verified linear program, its
//! record and the target; flows out: the bytes of a function and their listing, or an error that names the op.
//!
//! Invariant: nothing is called, read or written at compile time but the program; equal programs and targets give
//! equal bytes.
//!
//! The way: `select` makes instructions over registers without number of the list, `allocate` gives the registers
//! numbers, `unroll` has short loops jump less often, `encode` makes bytes of it.

pub mod allocate;
pub mod check;
pub mod code;
pub mod encode;
pub mod listing;
pub mod own;
pub mod select;
pub mod spills;
pub mod table;
mod unroll;

pub use own::{OwnLayout, own_bytes, own_layout};

use code::{Allocated, Level, UNMARKED};
use monoglot_uop::text::Names;
use monoglot_uop::{Backend, Code, ErrorKind, Listing, ProgramInfo, Result, Target};

/// Machine code for x86-64, of the level that the target names.
pub struct X86;

/// The level of a target's instruction set.
///
/// # Errors
/// `Unsupported` for one that no code is made for.
fn level(target: &Target) -> Result<Level> {
    match &*target.arch {
        "x86-64-v2" => Ok(Level::V2),
        "x86-64-v3" => Ok(Level::V3),
        "x86-64-v4" => Ok(Level::V4),
        other => Err(ErrorKind::Unsupported {
            op: "LINEAR".into(),
            message: format!("there is no machine code for {other}; x86-64-v2, -v3 and -v4 are"),
        }
        .into()),
    }
}

// SAFETY: each instruction of the program is selected as what it does; the checker follows values through
// allocation where assertions are on, and tests compare what runs with the interpreter.
unsafe impl Backend for X86 {
    fn emit(&self, listing: &Listing, info: &ProgramInfo, target: &Target) -> Result<Code> {
        emit(listing, info, target, cfg!(debug_assertions))
    }
}

/// The same code, of which the checker sees all that the allocator did, in every build.
pub struct Checked;

// SAFETY: the code is that of `X86`.
unsafe impl Backend for Checked {
    fn emit(&self, listing: &Listing, info: &ProgramInfo, target: &Target) -> Result<Code> {
        emit(listing, info, target, true)
    }
}

/// The code of a program once its registers have numbers: what `emit` encodes.
///
/// # Errors
/// As `Backend::emit`.
pub fn allocated(listing: &Listing, info: &ProgramInfo, target: &Target) -> Result<Allocated> {
    let level = level(target)?;
    let mut selected = select::select(listing, info, level)?;
    allocate::read_from_memory(&mut selected, level);
    Ok(allocate::allocate(selected, level))
}

fn emit(listing: &Listing, info: &ProgramInfo, target: &Target, checks: bool) -> Result<Code> {
    let level = level(target)?;
    let mut selected = select::select(listing, info, level)?;
    allocate::read_from_memory(&mut selected, level);
    let before = checks.then(|| selected.clone());
    let mut allocated = allocate::allocate(selected, level);
    if let Some(before) = before {
        check::check(&before, &allocated, level).map_err(|message| ErrorKind::Verify {
            stage: "allocate".into(),
            message,
        })?;
    }
    unroll::unroll(&mut allocated, level);
    let encoded = encode::encode(&allocated, level)?;
    let marks = encoded.marks.iter().map(|&(offset, number)| {
        let ins = allocated.code.ins.get(number as usize);
        (offset, ins.map_or(UNMARKED, |ins| ins.mark))
    });
    let layout = listing::Layout {
        name: info.name.clone(),
        marks: marks.collect(),
        text: encoded.text,
        constant: encoded.constant,
    };
    Ok(Code::Machine {
        binary: encoded.bytes,
        listing: Box::new(move |linear, code| {
            let names = Names::of(linear);
            let of = |number: u32| linear.src().get(number as usize).map(|u| names.line(u));
            listing::listing(&layout, code, &of)
        }),
    })
}
