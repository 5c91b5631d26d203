//! The args of UOps: a closed enum, and the records it holds. Flows in: the values of the fields;
//! flows out: an `Arg` that can be compared, hashed and kept in a node. Invariant: equal args are
//! equal for every pass, whoever made them.

use crate::device::Device;
use crate::dtype::DType;
use crate::fragment::{Digit, Fragment};
use crate::lazy::LazyText;
use crate::opaque::Opaque;
use crate::scalar::Scalar;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

named! {
    /// Where storage lives.
    AddrSpace {
        /// A device's memory.
        Global "GLOBAL",
        /// Shared by a workgroup (or a core's cache).
        Local "LOCAL",
        /// A thread's registers.
        Reg "REG",
    }
}

named! {
    /// How the iterations of a RANGE run (specification, "Kernel Optimizations").
    AxisType {
        /// Workgroups of a GPU.
        Global "GLOBAL",
        /// Threads of a CPU.
        Thread "THREAD",
        /// A sequential loop: the initial state.
        Loop "LOOP",
        /// Threads of a workgroup.
        Local "LOCAL",
        /// Lanes of a warp.
        Warp "WARP",
        /// A reduction split over a workgroup.
        GroupReduce "GROUP_REDUCE",
        /// A sequential reduction.
        Reduce "REDUCE",
        /// Unrolled within a reduction.
        Unroll "UNROLL",
        /// Unrolled into registers, vectorised where it is innermost.
        Upcast "UPCAST",
    }
}

named! {
    /// What a FUNCTION computes again where it could be kept: gradient checkpointing (Griewank and Walther, 2000;
    /// Chen et al., 2016).
    Recompute {
        /// Its derivative takes its arguments alone, and computes again whatever else it reads.
        Derivative "DERIVATIVE",
        /// It is such a derivative. It is never put where it is called: what it computes again would be found there,
        /// and kept. Its derivative is one, too.
        Again "AGAIN",
    }
}

impl AxisType {
    /// The letter of the specification.
    pub fn letter(self) -> char {
        ['g', 't', 'L', 'l', 'w', 'G', 'R', 'r', 'u'][self as usize]
    }

    /// Closed by a REDUCE rather than by a store.
    pub fn is_reduce(self) -> bool {
        matches!(
            self,
            AxisType::Reduce | AxisType::Unroll | AxisType::GroupReduce
        )
    }
}

named! {
    /// The operator of a REDUCE.
    ReduceOp {
        /// Sum; identity 0.
        Add "ADD",
        /// Product; identity 1.
        Mul "MUL",
        /// Maximum; identity the dtype's least value.
        Max "MAX",
    }
}

impl ReduceOp {
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
    Split {
        factor: i64,
        target: AxisType,
        top: bool,
    },
    /// Parts of `factor` turns, an axis of type `target` inside; the last begins in the one before where they do not
    /// divide the extent.
    Cover { factor: i64, target: AxisType },
    /// Pad an axis to the next multiple.
    PadTo { multiple: i64 },
    /// Exchange an axis with `with`.
    Swap { with: usize },
    /// Emit no workgroup dimensions.
    NoLocals,
    /// Use the matrix unit numbered `unit` of the target on reduce axis `axis`.
    Tc { unit: usize },
    /// Keep what is read as `operand`, counted in the order of the graph, in LOCAL storage at axis `axis`: all
    /// that the axes inside of it read, in their order, but for the one that is the `last`.
    Stage { operand: usize, last: Option<usize> },
    /// Go through what reductions fold once for all turns of an axis, where it stands at the turn that an index
    /// names: put each element there.
    Scatter,
    /// Go through what reductions fold along with the turns of an axis, where each turn folds what the last one
    /// did and one element more. So many turns are taken at a time, as an UPCAST axis.
    Scan { turns: i64 },
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
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct KernelInfo {
    /// A readable name, from the shape of the iteration space.
    pub name: String,
    /// The transforms applied so far.
    pub opts: Vec<Opt>,
    /// Set by NOLOCALS.
    pub no_locals: bool,
    /// Whether these transforms are all that it is to have.
    pub settled: bool,
}

impl Hash for KernelInfo {
    fn hash<H: Hasher>(&self, h: &mut H) {
        (&self.name, &self.opts, self.no_locals).hash(h);
        // Kernels that fall out of graphs keep their hashes, and so their names.
        if self.settled {
            h.write_u8(1);
        }
    }
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
    /// What its gradient is (a `own::Derivative`), in a graph of tensors: no part of what is computed, and
    /// no text has one.
    pub derivative: Option<Opaque>,
}

/// What a FUNCTION that is called again and again knows: its body is over the carries, then a part of each slice,
/// then what is the same each time; it gives the next carries, then what is gathered. The first axis of slices,
/// and of what is gathered, is over the times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ScanInfo {
    /// How many times.
    pub length: i64,
    /// How many arguments are the values of one time that the next one gets.
    pub carries: usize,
    /// How many arguments, behind the carries, are taken apart.
    pub slices: usize,
    /// Whether the last part of each slice comes first, and what is gathered first stands last.
    pub reversed: bool,
}

/// A matrix unit: `d[m, n] = c[m, n] + Σ_k a[m, k]·b[k, n]`, spread over a warp.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct TcInfo {
    /// The unit's name in source text.
    pub name: String,
    /// m, n, k.
    pub dims: [i64; 3],
    /// Lanes that hold the fragments.
    pub threads: i64,
    /// Types of a and b.
    pub dtypes_in: [DType; 2],
    /// Type of c and d.
    pub dtype_out: DType,
    /// Where the elements of a (m × k) are.
    pub a: Fragment,
    /// Where the elements of b (k × n) are.
    pub b: Fragment,
    /// Where the elements of c and d (m × n) are.
    pub c: Fragment,
}

impl Arg {
    /// The text that this is.
    pub fn text(&self) -> Option<&str> {
        match self {
            Arg::Text(text) => Some(text),
            Arg::Lazy(text) => Some(text.text()),
            _ => None,
        }
    }
}

impl TcInfo {
    /// Whether the fragments are those of such matrices.
    pub fn is_sound(&self) -> bool {
        let [m, n, k] = self.dims;
        let all = [(&self.a, m, k), (&self.b, k, n), (&self.c, m, n)];
        let fits =
            |(f, rows, columns): (&Fragment, i64, i64)| f.covers(rows, columns, self.threads);
        all.into_iter().all(fits) && self.c.elements() * self.threads == m * n
    }

    /// The word that an operand of a dot product is: a unit of one thread whose a is a row and whose b is a column of
    /// as many elements as a word of 32 bits holds takes both as such words, the first element in the lowest bits, and
    /// does for vectors of them in every lane what it does for one. Elements are integers, whose sums are i32, or bf16,
    /// whose sums are f32. So does a unit of tiles (`tile`) for each word of a kernel. None for a unit of a warp.
    pub fn word(&self) -> Option<DType> {
        let element = |d: DType| match self.dtype_out {
            DType::I32 => d.is_int() && d != DType::Index,
            DType::F32 => d == DType::BF16,
            _ => false,
        };
        let [a, b] = self.dtypes_in;
        let fills = a.bytes() == b.bytes() && element(a) && element(b) && self.depth() > 1;
        let alone = self.dims == [1, 1, self.depth()] && self.threads == 1 && self.is_sound();
        (fills && (alone || self.tile().is_some())).then_some(DType::U32)
    }

    /// How many elements of the factors a word of 32 bits holds.
    pub fn depth(&self) -> i64 {
        (DType::U32.bytes() / self.dtypes_in[0].bytes().max(1)) as i64
    }

    /// The rows, columns and words of a tile, where a unit of one thread multiplies whole tiles of words: a is row by
    /// row, b the words of one term of all columns after those of another, c row by row. In a linear program the
    /// operands of its WMMA are such tiles; in a kernel it does for each word what a dot product does.
    pub fn tile(&self) -> Option<[i64; 3]> {
        let [_, _, k] = self.dims;
        let tiles = *self == TcInfo::tiles(&self.name, self.dtypes_in, self.dtype_out);
        tiles.then(|| [TILE, TILE, k / self.depth()])
    }

    /// The dot product of as many elements as a word of 32 bits holds.
    pub fn dot(name: &str, dtypes_in: [DType; 2], dtype_out: DType) -> TcInfo {
        TcInfo::of_one_thread(name, dtypes_in, dtype_out, 1)
    }

    /// Products of 16 rows and 16 columns of as many words, whose sums they are added to (Intel, Architecture
    /// Instruction Set Extensions, "Intel AMX").
    pub fn tiles(name: &str, dtypes_in: [DType; 2], dtype_out: DType) -> TcInfo {
        TcInfo::of_one_thread(name, dtypes_in, dtype_out, TILE)
    }

    /// A product of so many rows and columns of as many words.
    fn of_one_thread(name: &str, dtypes_in: [DType; 2], dtype_out: DType, size: i64) -> TcInfo {
        let depth = (DType::U32.bytes() / dtypes_in[0].bytes().max(1)) as i64;
        let terms = size * depth;
        let elements = |digits: &[Digit]| Fragment {
            lane: Vec::new(),
            element: (digits.iter().copied())
                .filter(|d| d.extent() > 1)
                .collect(),
        };
        TcInfo {
            name: name.into(),
            dims: [size, size, terms],
            threads: 1,
            dtypes_in,
            dtype_out,
            a: elements(&[Digit::Column(terms, 1), Digit::Row(size, 1)]),
            b: elements(&[
                Digit::Row(depth, 1),
                Digit::Column(size, 1),
                Digit::Row(size, depth),
            ]),
            c: elements(&[Digit::Column(size, 1), Digit::Row(size, 1)]),
        }
    }
}

/// The rows, columns and words of a unit's tile.
const TILE: i64 = 16;

macro_rules! args {
    ($($(#[$doc:meta])* $variant:ident $(($($part:ty),*))? $kind:literal,)*) => {
        /// The op-dependent part of a UOp.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub enum Arg { $($(#[$doc])* $variant $(($($part),*))?),* }

        impl Arg {
            /// The kind of arg that this is, by the name it has in the text form.
            pub fn kind(&self) -> &'static str { match self { $(Arg::$variant { .. } => $kind),* } }
        }
    };
}
args! {
    /// Nothing.
    None "none",
    /// CONST.
    Const(Scalar, DType) "const",
    /// CAST, BITCAST, and anything else that only names a dtype.
    DType(DType) "dtype",
    /// PARAM, BUFFER.
    Buffer(BufferArg) "buffer",
    /// PERMUTE's order; REPLICATED's axes.
    Axes(Arc<[u8]>) "axes",
    /// FLIP's flags, bit k for axis k.
    Flags(u64) "flags",
    /// REDUCE: operator and axes, ascending (none where it closes ranges only).
    Reduce(ReduceOp, Arc<[u8]>) "reduce",
    /// RANGE: a number within its kernel, and how it runs.
    Range(u32, AxisType) "range",
    /// PAD's fill.
    Fill(Scalar) "fill",
    /// LOAD, COPY: device and address space.
    Place(Option<Device>, Option<AddrSpace>) "place",
    /// GETTUPLE.
    Element(usize) "element",
    /// SPECIAL, CUSTOM, INS, SOURCE.
    Text(Arc<str>) "text",
    /// SOURCE of machine code.
    Lazy(Arc<LazyText>) "text",
    /// BINARY.
    Bytes(Arc<[u8]>) "bytes",
    /// SINK of a kernel.
    Kernel(Arc<KernelInfo>) "kernel",
    /// PROGRAM.
    Program(Arc<ProgramInfo>) "program",
    /// CALL.
    Call(Arc<CallInfo>) "call",
    /// FUNCTION that is called again and again.
    Scan(ScanInfo) "scan",
    /// FUNCTION that keeps less than it could.
    Recompute(Recompute) "recompute",
    /// WMMA.
    Wmma(Arc<TcInfo>) "wmma",
    /// MUL of floats: the product is rounded to its dtype whatever uses it; no stage, back end or compiler
    /// contracts it with an addition. Without it that is the target's choice (a fused multiply-add).
    Rounded "rounding",
    /// EXP2: the argument is at most 0 but for what rounding adds, or NaN, which is less work.
    Below "bound",
    /// WHERE of a float: where its condition does not hold, a stage may take what it chooses where that holds: a
    /// product with padding, which is 0, but for factors that are not finite.
    Padding "padding",
    /// CUSTOMFUNCTION: a `own::FunctionInfo`.
    Function(Opaque) "function",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tile_is_of_words_in_rows() {
        for (of, depth) in [(DType::BF16, 2), (DType::I8, 4)] {
            let out = if depth == 2 { DType::F32 } else { DType::I32 };
            let unit = TcInfo::tiles("unit", [of; 2], out);
            assert!(unit.is_sound(), "{unit:?}");
            assert_eq!(unit.word(), Some(DType::U32));
            assert_eq!(unit.depth(), depth);
            assert_eq!(unit.tile(), Some([16, 16, 16]));
            // The second word of the second row of a, of the second column of b, and what they are in c.
            assert_eq!(unit.a.place(0, 17 * depth), (1, depth));
            assert_eq!(unit.b.place(0, 17 * depth), (depth, 1));
            assert_eq!(unit.c.place(0, 17), (1, 1));
        }
        let dot = TcInfo::dot("unit", [DType::BF16; 2], DType::F32);
        assert_eq!((dot.tile(), dot.word()), (None, Some(DType::U32)));
        // Tiles of another order are those of no unit of one thread.
        let mut other = TcInfo::tiles("unit", [DType::I8; 2], DType::I32);
        other.c.element.reverse();
        assert_eq!((other.tile(), other.word()), (None, None));
    }
}
