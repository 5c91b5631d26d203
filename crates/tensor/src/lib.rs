//! Room `tensor`: tensor expressions by families of methods. Flows in: numbers, shapes and other
//! tensors; flows out: UOps of the tensor level, which the engine realizes.
//!
//! Invariant: nothing here computes and nothing panics on what a user writes. A tensor that could not
//! be built carries a typed error with the user's line, and the first call that returns a `Result`
//! gives it back. Everything is a composition of the dialect's ops.

mod activation;
mod args;
mod create;
mod elementwise;
mod functions;
mod grad;
mod movement;
mod operators;
mod reduce;
mod tensor;

pub use args::{Axes, Dims, Element, Operand};
pub use monoglot_uop::{DType, Device, Error, ErrorKind, Result, Shape};
pub use movement::PadMode;
pub use tensor::Tensor;
