//! The args of UOps: a closed enum, and the records it holds.

use crate::device::Device;
use crate::dtype::DType;
use crate::scalar::Scalar;
use std::sync::Arc;

/// Where storage lives.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AddrSpace {
    /// A device's memory.
    Global,
    /// Shared by a workgroup (or a core's cache).
    Local,
    /// A thread's registers.
    Reg,
}

impl AddrSpace {
    /// Every address space.
    pub const ALL: &'static [AddrSpace] = &[AddrSpace::Global, AddrSpace::Local, AddrSpace::Reg];

    /// The name in the specification and the text form.
    pub fn name(self) -> &'static str {
        match self {
            AddrSpace::Global => "GLOBAL",
            AddrSpace::Local => "LOCAL",
            AddrSpace::Reg => "REG",
        }
    }
}

/// How the iterations of a RANGE run (specification, "Kernel Optimizations").
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AxisType {
    /// Workgroups of a GPU.
    Global,
    /// Threads of a CPU.
    Thread,
    /// A sequential loop: the initial state.
    Loop,
    /// Threads of a workgroup.
    Local,
    /// Lanes of a warp.
    Warp,
    /// A reduction split over a workgroup.
    GroupReduce,
    /// A sequential reduction.
    Reduce,
    /// Unrolled within a reduction.
    Unroll,
    /// Unrolled into registers, vectorised where it is innermost.
    Upcast,
}

impl AxisType {
    /// Every axis type.
    pub const ALL: &'static [AxisType] = &[
        AxisType::Global,
        AxisType::Thread,
        AxisType::Loop,
        AxisType::Local,
        AxisType::Warp,
        AxisType::GroupReduce,
        AxisType::Reduce,
        AxisType::Unroll,
        AxisType::Upcast,
    ];

    /// The name in the specification and the text form.
    pub fn name(self) -> &'static str {
        match self {
            AxisType::Global => "GLOBAL",
            AxisType::Thread => "THREAD",
            AxisType::Loop => "LOOP",
            AxisType::Local => "LOCAL",
            AxisType::Warp => "WARP",
            AxisType::GroupReduce => "GROUP_REDUCE",
            AxisType::Reduce => "REDUCE",
            AxisType::Unroll => "UNROLL",
            AxisType::Upcast => "UPCAST",
        }
    }

    /// The letter of the specification.
    pub fn letter(self) -> char {
        match self {
            AxisType::Global => 'g',
            AxisType::Thread => 't',
            AxisType::Loop => 'L',
            AxisType::Local => 'l',
            AxisType::Warp => 'w',
            AxisType::GroupReduce => 'G',
            AxisType::Reduce => 'R',
            AxisType::Unroll => 'r',
            AxisType::Upcast => 'u',
        }
    }

    /// The axis type of that letter.
    pub fn from_letter(c: char) -> Option<AxisType> {
        AxisType::ALL.iter().copied().find(|t| t.letter() == c)
    }

    /// Closed by a REDUCE rather than by a store.
    pub fn is_reduce(self) -> bool {
        matches!(self, AxisType::Reduce | AxisType::Unroll | AxisType::GroupReduce)
    }
}

/// The operator of a REDUCE.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ReduceOp {
    /// Sum; identity 0.
    Add,
    /// Product; identity 1.
    Mul,
    /// Maximum; identity the dtype's least value.
    Max,
}

impl ReduceOp {
    /// Every operator.
    pub const ALL: &'static [ReduceOp] = &[ReduceOp::Add, ReduceOp::Mul, ReduceOp::Max];

    /// The binary op that folds.
    pub fn op(self) -> crate::op::Op {
        match self {
            ReduceOp::Add => crate::op::Op::Add,
            ReduceOp::Mul => crate::op::Op::Mul,
            ReduceOp::Max => crate::op::Op::Max,
        }
    }

    /// The value that changes nothing.
    pub fn identity(self, dtype: DType) -> Scalar {
        match self {
            ReduceOp::Add => dtype.zero(),
            ReduceOp::Mul => dtype.one(),
            ReduceOp::Max => dtype.min(),
        }
    }
}

/// What PARAM and BUFFER are.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct BufferArg {
    /// PARAM: the argument's number. BUFFER: a number no other storage has.
    pub slot: u64,
    /// BUFFER: how many realized assigns this slot has seen. 0 for PARAM.
    pub version: u32,
    /// Element type.
    pub dtype: DType,
    /// None for variables and for storage of a kernel.
    pub device: Option<Device>,
    /// Memory it lives in; None for variables.
    pub addrspace: Option<AddrSpace>,
}

/// A schedule-level transform of a kernel (specification, "OptOps").
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum OptOp {
    /// Split an axis by `factor`; the new axis gets `target`, inner unless `top`.
    Split { factor: i64, target: AxisType, top: bool },
    /// Pad an axis to the next multiple.
    PadTo { multiple: i64 },
    /// Exchange an axis with `with`.
    Swap { with: usize },
    /// Emit no workgroup dimensions.
    NoLocals,
    /// Use the matrix unit numbered `unit` of the target on reduce axis `axis`.
    Tc { unit: usize },
}

/// One step of a schedule: an OptOp on a numbered axis of the kernel.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Opt {
    /// Which transform.
    pub op: OptOp,
    /// The axis, by its position among the kernel's ranges.
    pub axis: usize,
}

/// What the SINK of a kernel knows besides its graph.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct KernelInfo {
    /// A readable name, from the shape of the iteration space.
    pub name: String,
    /// The transforms applied so far.
    pub opts: Vec<Opt>,
    /// Set by NOLOCALS.
    pub no_locals: bool,
}

/// What a compiled kernel knows besides its code.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct ProgramInfo {
    /// The function's name in the source.
    pub name: String,
    /// The device text it is rendered for, such as `CPU:C:x86-64-v4`.
    pub target: String,
    /// Workgroups along x, y, z.
    pub global_size: [i64; 3],
    /// Threads of a workgroup along x, y, z.
    pub local_size: [i64; 3],
    /// CPU threads that share the work (extent of the THREAD axis).
    pub threads: i64,
    /// PARAM slots that are written.
    pub outs: Vec<usize>,
    /// PARAM slots that are read.
    pub ins: Vec<usize>,
    /// Slots of variables, in argument order.
    pub vars: Vec<usize>,
    /// Estimated arithmetic operations of one run.
    pub flops: u64,
    /// Bytes that one run must move.
    pub bytes: u64,
}

/// What a CALL knows besides its arguments.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct CallInfo {
    /// Argument positions that are written.
    pub outs: Vec<usize>,
    /// Argument positions that are read.
    pub ins: Vec<usize>,
}

/// A matrix unit: `d[m, n] = c[m, n] + Σ_k a[m, k]·b[k, n]`, spread over a warp.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TcInfo {
    /// The unit's name in source text.
    pub name: String,
    /// m, n, k.
    pub dims: [i64; 3],
    /// Lanes that hold the fragments.
    pub threads: i64,
    /// Type of a and b.
    pub dtype_in: DType,
    /// Type of c and d.
    pub dtype_out: DType,
}

/// The op-dependent part of a UOp.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Arg {
    /// Nothing.
    None,
    /// CONST.
    Const(Scalar, DType),
    /// CAST, BITCAST, and anything else that only names a dtype.
    DType(DType),
    /// PARAM, BUFFER.
    Buffer(BufferArg),
    /// PERMUTE's order; REPLICATED's axes.
    Axes(Arc<[u8]>),
    /// FLIP's flags, bit k for axis k.
    Flags(u64),
    /// REDUCE: operator and axes, ascending (none where it closes ranges only).
    Reduce(ReduceOp, Arc<[u8]>),
    /// RANGE: a number within its kernel, and how it runs.
    Range(u32, AxisType),
    /// PAD's fill.
    Fill(Scalar),
    /// LOAD, COPY: device and address space.
    Place(Option<Device>, Option<AddrSpace>),
    /// GETTUPLE.
    Element(usize),
    /// SPECIAL, CUSTOM, CUSTOMFUNCTION, INS, SOURCE.
    Text(Arc<str>),
    /// BINARY.
    Bytes(Arc<[u8]>),
    /// SINK of a kernel.
    Kernel(Arc<KernelInfo>),
    /// PROGRAM.
    Program(Arc<ProgramInfo>),
    /// CALL.
    Call(Arc<CallInfo>),
    /// WMMA.
    Wmma(Arc<TcInfo>),
}
