//! What tests and tools compare everything with: evaluators of tensor graphs and of kernels, random
//! schedules, and the runner of file tests. Flows in: UOps and bytes, seeds, folders; flows out: what
//! they mean, lists of Opts, differences. No room of the core depends on this one but for its tests.

pub mod eval;
pub mod eval_kernel;
pub mod filetest;
pub mod random;
