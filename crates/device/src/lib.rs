//! The device room: what holds data and runs programs. A `Runtime` is one opened device: it gives
//! storage, moves bytes, compiles PROGRAMs into `Kernel`s; `open` finds or opens it by name.
//!
//! Invariant: this room sees programs only in their last form (a linear program and its source); it
//! knows no tensors and no schedules. `unsafe` lives here and nowhere else.

pub mod config;
pub mod cpu;
pub mod disk;
pub mod interp;
pub mod null;
mod open;
pub mod pool;
mod private;
pub mod runtime;
pub mod storage;

pub use config::Config;
pub use disk::open_file;
pub use open::{Listed, list, open};
pub use runtime::{Kernel, Runtime, program_parts};
pub use storage::Storage;
