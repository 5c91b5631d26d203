//! The device room: what holds data and runs programs. A `Runtime` is one opened device: it gives
//! storage, compiles PROGRAMs into `Kernel`s, and runs them through queues; `open` finds or opens
//! it by name. Flows in: names of devices, programs and bytes; flows out: kernels, storage and what
//! they computed.
//!
//! Invariant: this room sees programs only in their last form (a linear program and its source); it
//! knows no tensors and no schedules. `unsafe` lives here, and in the
//! room that measures machines.

mod code;
pub mod commands;
pub mod config;
pub mod cpu;
pub mod disk;
pub mod folder;
pub mod function;
mod host;
pub mod interp;
mod kept;
pub mod kernel;
mod kind;
pub mod memory;
mod null;
pub mod pool;
mod private;
pub mod queue;
mod raw;
pub mod registry;
pub mod runtime;
pub mod storage;

pub use code::Packed;
pub use commands::{Command, Commands, Loop, Place, Work};
pub use config::Config;
pub use disk::open_file;
pub use folder::{Folder, NewFolder, Pieces, Sum};
pub use function::{HostArguments, HostElement, HostFunction, HostKernel, running};
pub use kept::{StorageUse, all_storage, release_kept, set_memory_limit, storage_use};
pub use kernel::{Kernel, program_binary, program_parts, program_source};
pub use queue::Queue;
pub use registry::{Listed, list, open, open_for_code};
pub use runtime::{Runtime, Unpacked};
pub use storage::Storage;
