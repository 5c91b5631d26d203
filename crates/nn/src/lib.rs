//! Room `nn`: what networks are made of and trained with. Flows in: tensors; flows out: layers,
//! optimizers and data sets, all of them plain structs over `Tensor`.
//!
//! Invariant: nothing here knows a UOp. Whatever changes from step to step (weights, moments, the step's
//! number, the learning rate) is a buffer, so that every step of a training has the structure of the
//! first and is neither scheduled nor compiled again.

mod conv;
pub mod data;
mod init;
mod linear;
mod module;
mod norm;
mod optim;
mod recurrent;
#[cfg(test)]
mod tests;

pub use conv::{Conv1d, Conv2d};
pub use init::{Init, buffer, parameter, without_data};
pub use linear::{Dropout, Embedding, Linear};
pub use module::{Mode, Module, Part, join};
pub use monoglot_tensor::Conv as ConvOptions;
pub use norm::{BatchNorm, GroupNorm, LayerNorm, RmsNorm};
pub use optim::{Adam, AdamW, Optimizer, Sgd, Trained};
pub use recurrent::Lstm;
