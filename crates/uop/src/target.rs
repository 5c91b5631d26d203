//! What a kernel is compiled for, as plain data: widths, registers, caches, what is native. Passes
//! decide by these numbers, never by a device's name. Flows in: numbers, from whoever knows the
//! machine; flows out: the same, to every pass. Always: equal targets compile a kernel to the same
//! code.

use crate::arg::TcInfo;
use crate::device::Device;
use crate::dtype::DType;
use crate::op::OpSet;

/// How programs are written for a target.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// C with GNU vector extensions.
    C,
    /// The linear program itself, for the interpreter.
    Uops,
    /// Machine code for x86-64 of our own, with a listing for people.
    X86,
}

impl Dialect {
    /// What stands for it in the text of a target, such as the C in `CPU:C:x86-64-v4`.
    pub fn name(self) -> &'static str {
        match self {
            Dialect::C => "C",
            Dialect::Uops => "UOPS",
            Dialect::X86 => "X86",
        }
    }
}

/// A machine, as the compiler sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// The device that runs the programs.
    pub device: Device,
    /// What is rendered.
    pub dialect: Dialect,
    /// The instruction set in a compiler's words, such as `x86-64-v4`, or `` where none is meant.
    pub arch: String,
    /// Bytes of a vector register.
    pub vector_bytes: usize,
    /// Vector registers.
    pub registers: usize,
    /// CPU threads that may share a kernel; 1 where there are none.
    pub threads: usize,
    /// Cores that those threads run on: fewer, where a core runs several.
    pub cores: usize,
    /// Whether workgroups, LOCAL memory and barriers exist.
    pub workgroups: bool,
    /// Most threads of a workgroup.
    pub max_workgroup: usize,
    /// Lanes of a warp; 1 where there are none.
    pub warp: usize,
    /// Bytes of LOCAL memory of a workgroup.
    pub local_bytes: usize,
    /// Bytes of the first and second level cache of a core and of the last level.
    pub caches: [usize; 3],
    /// Ops that stay nodes until they are rendered; the others are decomposed.
    pub native: OpSet,
    /// Dtypes in which arithmetic is done; narrower floats are computed in f32.
    pub arithmetic: Vec<DType>,
    /// Dtypes that can be loaded, stored and cast as such; others are moved as integers of their width.
    pub storage: Vec<DType>,
    /// Whether Opts are chosen where none are given: no use where every instruction costs the same, however
    /// the program is arranged.
    pub arranged: bool,
    /// Matrix units.
    pub matrix_units: Vec<TcInfo>,
    /// Most buffers of a kernel.
    pub max_buffers: usize,
    /// Instructions that a kernel is written as, about, before it is cut.
    pub max_nodes: usize,
}

impl Target {
    /// Lanes of a vector of `dtype`.
    pub fn lanes(&self, dtype: DType) -> usize {
        (self.vector_bytes / dtype.bytes().max(1)).max(1)
    }
}
