//! Machine code of our own for x86-64: a back end behind `uop`'s trait. Flows in: a verified linear program, its
//! record and the target; flows out: the bytes of a function and their listing, or an error that names the op.
//!
//! Invariant: nothing is called, read or written at compile time but the program; equal programs and targets give
//! equal bytes.
//!
//! The way: `select` makes instructions over registers without number of the list, `allocate` gives the registers
//! numbers, `encode` makes bytes of it.

pub mod code;
pub mod encode;
pub mod listing;
pub mod table;
