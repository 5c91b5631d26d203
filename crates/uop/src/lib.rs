//! The dialect. One node type, the UOp `(op, src, arg, tag)`, carries a program from tensor
//! expressions to command buffers; this crate holds the op table, the node and its derived
//! properties, the rewrite engine, the rules, the verifiers, gradients and the text form. Flows in:
//! expressions and rules; flows out: graphs, verified where a stage ends.
//!
//! Nothing of ours is imported here, and nothing here does I/O.

/// A closed enum whose members have names.
macro_rules! named {
    ($(#[$meta:meta])* $type:ident { $($(#[$doc:meta])* $variant:ident $name:literal),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $type { $($(#[$doc])* $variant),* }

        impl $type {
            /// Every one, in order.
            pub const ALL: &'static [$type] = &[$($type::$variant),*];

            /// The name in the specification, the text form and messages.
            pub fn name(self) -> &'static str { match self { $($type::$variant => $name),* } }

            /// The one of that name.
            pub fn from_name(name: &str) -> Option<$type> {
                $type::ALL.iter().copied().find(|v| v.name() == name)
            }
        }
    };
}

pub mod arg;
pub mod backend;
pub mod build;
pub mod compose;
mod construct;
mod custom;
mod cut;
pub mod derive;
pub mod device;
pub mod dtype;
pub mod effort;
pub mod error;
pub mod fold;
pub mod fragment;
pub mod function;
pub mod gradient;
pub mod graph;
pub mod hoist;
pub mod lazy;
pub mod linear;
pub mod listing;
pub mod marks;
pub mod node;
mod numbers;
pub mod op;
pub mod opaque;
pub mod own;
pub mod rewrite;
pub mod rules;
pub mod scalar;
pub mod shape;
mod sizes;
mod slots;
pub mod spec;
pub mod target;
pub mod text;
mod times;
pub mod vouched;
mod written;

pub use arg::{
    AddrSpace, Arg, AxisType, BufferArg, CallInfo, KernelInfo, Opt, OptOp, ProgramInfo, Recompute,
    ReduceOp, ScanInfo, TcInfo,
};
pub use backend::{Backend, Code, Program};
pub use device::Device;
pub use dtype::DType;
pub use effort::Effort;
pub use error::{Error, ErrorKind, Result};
pub use fragment::{Digit, Fragment};
pub use listing::Listing;
pub use node::{Ranges, UOp};
pub use op::{Op, OpSet};
pub use opaque::Opaque;
pub use scalar::Scalar;
pub use shape::{Dim, Shape};
pub use target::{Dialect, Target};
pub use written::{Written, written};
