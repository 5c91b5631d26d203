//! Room `tensor`: tensor expressions by families of methods. Flows in: numbers, shapes and other
//! tensors; flows out: UOps of the tensor level, which the engine realizes.
//!
//! `Tensor` is in tensor.rs; its methods are in files by family: create, random (making), binary,
//! elementwise, activation, reduce, scan, sort, linalg, conv, resample, norm, attention, loss (computing),
//! movement, join, index (views, joins), assign, grad, display, jit (captured functions: trace writes down, recorded
//! calls, signature, bounds and tree say of what; program is what is left of one when it is saved). cell.rs, functions.rs, coefficients.rs,
//! promote.rs and assertion.rs are what they share.
//!
//! Invariant: nothing here computes and nothing panics on what a user writes. A tensor that could not
//! be built carries a typed error with the user's line, and the first call that returns a `Result`
//! gives it back. Everything is a composition of the dialect's ops.

mod activation;
mod args;
mod assertion;
mod assign;
mod attention;
mod binary;
mod bounds;
mod called;
mod cell;
#[rustfmt::skip]
mod coefficients;
mod conv;
mod create;
mod custom;
mod custom_kernel;
mod display;
mod dynamic;
mod elementwise;
mod function;
mod functions;
mod grad;
mod index;
mod jit;
mod join;
mod kept;
mod length;
mod linalg;
mod loops;
mod loss;
mod marked;
mod movement;
mod norm;
mod operand;
mod operators;
mod pool;
mod program;
mod promote;
mod random;
mod recorded;
mod reduce;
mod resample;
mod scan;
mod shape;
mod signature;
mod sort;
mod stand_ins;
mod tensor;
mod trace;
mod tree;
mod unique;
mod view;

pub use args::{Axes, Dims, Element, Integer};
pub use conv::Conv;
pub use custom::{Backward, CustomOp, Output};
pub use custom_kernel::KernelBuilder;
pub use function::{Function, function};
pub use index::{Index, Indices};
pub use jit::{Body, ByReference, Jit, jit};
pub use join::PadMode;
pub use length::{Size, Sizes, Variable};
pub use loops::{scan, scan_reversed};
pub use loss::Reduction;
pub use marked::{Carries, FixedValue, Marked};
pub use monoglot_engine::{HostArguments, HostElement};
pub use monoglot_uop::{
    AxisType, DType, Device, Dim, Error, ErrorKind, Op, Opt, OptOp, ReduceOp, Result, Shape, UOp,
};
pub use operand::Operand;
pub use program::{Input, Inputs, Port, Program};
pub use resample::Interpolation;
pub use tensor::Tensor;
pub use trace::observe;
pub use tree::{Fixed, Leaf, Outcome, Passed, Rebuild, Tensors, again};
pub use unique::Unique;
