//! Monoglot: a tensor compiler in which every stage, from tensor expressions to programs, is written in
//! one dialect. Flows in: programs over `Tensor`; flows out: their values, gradients, trained networks.
//!
//! ```no_run
//! use monoglot::prelude::*;
//!
//! fn main() -> Result<()> {
//!     let x = Tensor::randn([3, 4]);
//!     let w = Tensor::randn([4, 2]);
//!     let loss = x.matmul(&w).relu().sum(.., false);
//!     let gradients = loss.gradient(&[&w])?;
//!     println!("{loss}\n{}", gradients[0]);
//!     Ok(())
//! }
//! ```
//!
//! A function that is called again and again is captured, and then runs as one program:
//!
//! ```
//! use monoglot::prelude::*;
//!
//! #[derive(Tensors)]
//! struct Batch {
//!     x: Tensor,
//!     y: Tensor,
//! }
//!
//! # fn main() -> Result<()> {
//! let net = Linear::new(4, 2);
//! let adam = Adam::new(&net, 1e-2);
//! let step = jit(|batch: Batch| -> Result<Tensor> {
//!     let loss = (net.forward(&batch.x) - batch.y).square().mean(.., false);
//!     adam.step(&loss)?;
//!     Ok(loss)
//! })?;
//! for k in 0..3 {
//!     adam.set_rate(1e-2 / (1.0 + k as f64));
//!     let batch = Batch { x: Tensor::randn([8, 4]), y: Tensor::ones([8, 2]) };
//!     println!("{}", step.call(batch)?.item::<f32>()?);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Nothing is computed until a value is asked for; a tensor that could not be built carries its error
//! until then. `DEV` chooses the device, `DEBUG` tells what runs; `Config` does both in code.
//!
//! This crate only re-exports: the rooms are described in ARCHITECTURE.md.

pub use monoglot_engine::{
    Cancel, Config, Counters, Event, Listener, StorageUse, counters, listen, release_kept,
    set_memory_limit, storage_use,
};
pub use monoglot_macros::Tensors;
/// What a program does alike in several places is marked: it is compiled once, forward and backward.
///
/// ```
/// use monoglot::prelude::*;
///
/// #[derive(Tensors)]
/// struct Weights {
///     up: Tensor,
///     down: Tensor,
/// }
///
/// #[function]
/// fn block(x: &Tensor, w: &Weights, heads: usize) -> Tensor {
///     let y = x.layer_norm([32], None, None, 1e-5).unflatten(-1, [heads, 32 / heads]);
///     x + y.softmax(-1).flatten(-2, -1).matmul(&w.up).gelu().matmul(&w.down)
/// }
///
/// # fn main() -> Result<()> {
/// let weights = |_| Weights {
///     up: (Tensor::randn([32, 64]) * 0.1).parameter(),
///     down: (Tensor::randn([64, 32]) * 0.1).parameter(),
/// };
/// let layers: Vec<Weights> = (0..4).map(weights).collect();
/// let mut x = Tensor::randn([8, 32]);
/// for w in &layers {
///     x = block(&x, w, 4);
/// }
/// let loss = x.square().mean(.., false);
/// let gradient = loss.gradient(&[&layers[0].up])?.remove(0);
/// assert_eq!(gradient.shape()?, [32, 64]);
/// # Ok(())
/// # }
/// ```
pub use monoglot_macros::function;
pub use monoglot_models as models;
pub use monoglot_nn as nn;
pub use monoglot_tensor::*;

/// The compiler, for tools: the dialect and the rooms that it passes through.
pub mod compiler {
    pub use monoglot_codegen as codegen;
    pub use monoglot_device as device;
    pub use monoglot_engine as engine;
    pub use monoglot_schedule as schedule;
    pub use monoglot_uop as uop;
}

/// What most programs need.
pub mod prelude {
    pub use crate::nn::data;
    pub use crate::nn::{
        Adam, AdamW, BatchNorm, Conv1d, Conv2d, ConvOptions, Dropout, Embedding, GroupNorm,
        LayerNorm, Linear, Lstm, Module, Optimizer, RmsNorm, Sgd, module,
    };
    pub use crate::{
        DType, Device, Error, ErrorKind, Function, Jit, PadMode, Program, Reduction, Result,
        Tensor, Tensors, Variable, function, jit,
    };
}
