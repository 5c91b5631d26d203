//! Stand-ins that traces have in common, and what was made over them. Flows in: what a value is that a function
//! reads, and then the function's values; flows out: the BUFFER in its place, and the body over PARAMs.
//!
//! Traces of functions on one thread that stand as deep in others have the same stand-ins, one after the other. So
//! what the blocks of a network compute is one expression, which the second block finds and the first one makes,
//! and its body is made once. Invariant: within a trace no two inputs have one stand-in; none has storage, and
//! no expression that is kept here reads anything that has. Tensors that leave a trace past what it gives keep being
//! that trace's; a raw node that does means what the next trace's input of that number is.

use monoglot_engine as engine;
use monoglot_uop::function::{Abstraction, abstracted};
use monoglot_uop::{DType, Device, Result, Shape, UOp};
use rustc_hash::FxHashMap;
use std::cell::RefCell;

/// As many stand-ins, and as many functions' values, as a thread keeps.
const STAND_INS: usize = 4096;
const FUNCTIONS: usize = 64;

/// What tells stand-ins of a thread apart: how deep the trace is, the number in it, and what it stands for.
type Key = (usize, usize, Shape, DType, Device);

thread_local! {
    static KEPT: RefCell<FxHashMap<Key, UOp>> = RefCell::default();
    static KNOWN: RefCell<FxHashMap<Vec<UOp>, Abstraction>> = RefCell::default();
}

/// The stand-in of this number in a trace so deep.
pub(crate) fn stand_in(
    deep: usize,
    number: usize,
    shape: &Shape,
    dtype: DType,
    device: Device,
) -> UOp {
    let key = (deep, number, shape.clone(), dtype, device);
    KEPT.with_borrow_mut(|kept| {
        if kept.len() >= STAND_INS {
            kept.clear();
        }
        let make = || engine::stand_in(shape, dtype, device);
        kept.entry(key).or_insert_with(make).clone()
    })
}

/// These values as a body over PARAMs, where `is_own` says of what it reads whether it stands for something.
///
/// # Errors
/// As `abstracted`.
pub(crate) fn body(values: Vec<UOp>, is_own: impl Fn(&UOp) -> bool) -> Result<Abstraction> {
    if let Some(known) = KNOWN.with_borrow(|known| known.get(&values).cloned()) {
        return Ok(known);
    }
    let made = abstracted(&values, &[])?;
    if made.arguments.iter().all(is_own) {
        KNOWN.with_borrow_mut(|known| {
            if known.len() >= FUNCTIONS {
                known.clear();
            }
            known.insert(values, made.clone());
        });
    }
    Ok(made)
}
