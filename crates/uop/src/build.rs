//! Constructors by name, so that passes and the tensor room read like the maths. Those that can
//! fail on a user's shapes or dtypes return `Result`; the others are for code that knows its graph.
//! Flows in: sources and numbers; flows out: interned nodes. Invariant: nothing is simplified here,
//! but for what a constructor's own words say.

use crate::arg::{AddrSpace, Arg, AxisType, BufferArg, ReduceOp, TcInfo};
use crate::device::Device;
use crate::dtype::DType;
use crate::error::Result;
use crate::node::{Srcs, UOp};
use crate::op::Op;
use crate::scalar::Scalar;
use crate::shape::{Dim, Shape};
pub use crate::slots::fresh_slot;
use rustc_hash::FxHasher;
use smallvec::{SmallVec, smallvec};
use std::borrow::Borrow;
use std::cell::RefCell;
use std::hash::{Hash, Hasher};
use std::sync::OnceLock;

#[track_caller]
fn stored(
    op: Op,
    slot: u64,
    shape: &Shape,
    dtype: DType,
    device: Option<Device>,
    space: AddrSpace,
) -> UOp {
    let arg = BufferArg {
        slot,
        version: 0,
        dtype,
        device,
        addrspace: Some(space),
    };
    UOp::new(op, smallvec![UOp::dims(shape)], Arg::Buffer(arg))
}

/// The numbers of a shape.
type Sizes = SmallVec<[i64; 6]>;

/// Shapes that a thread met last, by their hashes.
const MET: usize = 64;
thread_local! {
    static SIZES: RefCell<[Option<(Sizes, UOp)>; MET]> = const { RefCell::new([const { None }; MET]) };
}

/// What is made of these sizes: a thread that makes the same few shapes again and again finds them again.
fn met_sizes(sizes: Sizes, make: impl Fn() -> UOp) -> UOp {
    let mut hash = FxHasher::default();
    sizes.hash(&mut hash);
    let at = (hash.finish() >> 32) as usize % MET;
    let known = SIZES.try_with(|met| {
        let met = met.borrow();
        let (of, known) = met[at].as_ref()?;
        (*of == sizes).then(|| known.clone())
    });
    if let Ok(Some(known)) = known {
        return known;
    }
    let made = make();
    // What was there goes after the list is free again; a thread that ends keeps none.
    let new = Some((sizes, made.clone()));
    let old = SIZES.try_with(|met| std::mem::replace(&mut met.borrow_mut()[at], new));
    drop(old);
    made
}

/// A node and more sources behind it.
fn with<'a>(first: &'a UOp, others: impl IntoIterator<Item = &'a UOp>) -> Srcs {
    std::iter::once(first).chain(others).cloned().collect()
}

impl UOp {
    /// A constant of shape (); the value is brought into the dtype.
    #[track_caller]
    pub fn constant(value: Scalar, dtype: DType) -> UOp {
        UOp::new(Op::Const, Srcs::new(), Arg::Const(value.cast(dtype), dtype))
    }

    /// A float constant.
    #[track_caller]
    pub fn float(value: f64, dtype: DType) -> UOp {
        UOp::constant(Scalar::Float(value), dtype)
    }

    /// An integer constant of any dtype.
    #[track_caller]
    pub fn int(value: i64, dtype: DType) -> UOp {
        // Passes ask for the same few again and again.
        static INDICES: [OnceLock<UOp>; 256] = [const { OnceLock::new() }; 256];
        static LANES: [OnceLock<UOp>; 256] = [const { OnceLock::new() }; 256];
        let few = match (dtype, usize::try_from(value)) {
            (DType::Index, Ok(k)) => INDICES.get(k),
            (DType::I32, Ok(k)) => LANES.get(k),
            _ => None,
        };
        let make = || UOp::constant(Scalar::Int(value as i128), dtype);
        few.map_or_else(make, |one| one.get_or_init(make).clone())
    }

    /// A bool constant.
    #[track_caller]
    pub fn bool(value: bool) -> UOp {
        static BOTH: [OnceLock<UOp>; 2] = [const { OnceLock::new() }; 2];
        let make = || UOp::constant(Scalar::Bool(value), DType::Bool);
        BOTH[usize::from(value)].get_or_init(make).clone()
    }

    /// A constant of dtype `index`.
    #[track_caller]
    pub fn index_const(value: i64) -> UOp {
        UOp::int(value, DType::Index)
    }

    /// The index that is never valid.
    #[track_caller]
    pub fn invalid() -> UOp {
        UOp::constant(Scalar::Invalid, DType::Index)
    }

    /// A constant of this node's dtype.
    #[track_caller]
    pub fn like(&self, value: impl Into<Number>) -> UOp {
        UOp::constant(value.into().0, self.dtype())
    }

    /// The value of a CONST.
    pub fn const_value(&self) -> Option<Scalar> {
        match self.arg() {
            Arg::Const(v, _) if self.op() == Op::Const => Some(*v),
            _ => None,
        }
    }

    /// The value of an integer CONST.
    pub fn as_int(&self) -> Option<i64> {
        self.const_value().and_then(Scalar::as_int)
    }

    /// Whether this is a CONST of this truth value.
    pub fn is_bool(&self, value: bool) -> bool {
        self.const_value() == Some(Scalar::Bool(value))
    }

    /// Whether this is the invalid index.
    pub fn is_invalid(&self) -> bool {
        self.const_value() == Some(Scalar::Invalid)
    }

    /// A shape, or offsets, as a STACK of `index`.
    #[track_caller]
    pub fn dims(dims: &[Dim]) -> UOp {
        let made = || {
            let dims = dims.iter().map(Dim::to_uop).collect::<Srcs>();
            UOp::new(Op::Stack, dims, Arg::None)
        };
        let number = |d: &Dim| match d {
            Dim::Int(n) => Some(*n),
            Dim::Sym(_) => None,
        };
        match dims.iter().map(number).collect::<Option<Sizes>>() {
            Some(sizes) => met_sizes(sizes, made),
            None => made(),
        }
    }

    /// A placeholder: argument `slot` of a function or kernel.
    #[track_caller]
    pub fn param(slot: u64, shape: &Shape, dtype: DType, device: Option<Device>) -> UOp {
        stored(Op::Param, slot, shape, dtype, device, AddrSpace::Global)
    }

    /// A variable: an `index` argument with bounds (both inclusive).
    #[track_caller]
    pub fn variable(slot: u64, min: i64, max: i64) -> UOp {
        let arg = BufferArg {
            slot,
            version: 0,
            dtype: DType::Index,
            device: None,
            addrspace: None,
        };
        let src = smallvec![UOp::dims(&[]), UOp::index_const(min), UOp::index_const(max)];
        UOp::new(Op::Param, src, Arg::Buffer(arg))
    }

    /// This variable, bound to a value: what a tensor graph has where a length varies from run to run.
    #[track_caller]
    pub fn bind_to(&self, value: i64) -> UOp {
        let mut src: Srcs = self.src()[..3].into();
        src.push(UOp::index_const(value));
        self.with_src(src)
    }

    /// The value that this variable is bound to.
    pub fn bound_to(&self) -> Option<i64> {
        self.src().get(3).filter(|_| self.is_variable())?.as_int()
    }

    /// A scalar argument: a variable of any dtype without bounds, for a value that varies from run to
    /// run. It is passed as its bits, in a word of 8 bytes.
    #[track_caller]
    pub fn argument(slot: u64, dtype: DType) -> UOp {
        let arg = BufferArg {
            slot,
            version: 0,
            dtype,
            device: None,
            addrspace: None,
        };
        UOp::new(Op::Param, smallvec![UOp::dims(&[])], Arg::Buffer(arg))
    }

    /// Whether this is a variable: a PARAM that is a value, not storage.
    pub fn is_variable(&self) -> bool {
        self.op() == Op::Param && self.buffer_arg().is_some_and(|b| b.addrspace.is_none())
    }

    /// A buffer of a device with a slot of its own.
    #[track_caller]
    pub fn buffer(shape: &Shape, dtype: DType, device: Device) -> UOp {
        UOp::buffer_at(fresh_slot(), shape, dtype, device)
    }

    /// A buffer of a device by its number.
    #[track_caller]
    pub fn buffer_at(slot: u64, shape: &Shape, dtype: DType, device: Device) -> UOp {
        stored(
            Op::Buffer,
            slot,
            shape,
            dtype,
            Some(device),
            AddrSpace::Global,
        )
    }

    /// Storage inside a kernel.
    #[track_caller]
    pub fn scratch(slot: u64, shape: &Shape, dtype: DType, addrspace: AddrSpace) -> UOp {
        stored(Op::Buffer, slot, shape, dtype, None, addrspace)
    }

    /// The arg of a PARAM or BUFFER.
    pub fn buffer_arg(&self) -> Option<&BufferArg> {
        match self.arg() {
            Arg::Buffer(b) => Some(b),
            _ => None,
        }
    }

    /// An iterator from 0 to `bound`.
    #[track_caller]
    pub fn range(bound: impl Into<Dim>, id: u32, axis: AxisType) -> UOp {
        UOp::new(
            Op::Range,
            smallvec![bound.into().to_uop()],
            Arg::Range(id, axis),
        )
    }

    /// The number and type of a RANGE.
    pub fn range_arg(&self) -> Option<(u32, AxisType)> {
        match self.arg() {
            Arg::Range(id, t) => Some((*id, *t)),
            _ => None,
        }
    }

    /// The unit of a WMMA that is a dot product of words, done on each lane.
    pub fn dot(&self) -> Option<&TcInfo> {
        match self.arg() {
            Arg::Wmma(unit) if unit.word().is_some() => Some(unit),
            _ => None,
        }
    }

    /// One-operand elementwise op.
    #[track_caller]
    pub fn unary(&self, op: Op) -> UOp {
        UOp::new(op, smallvec![self.clone()], Arg::None)
    }

    /// Two-operand elementwise op.
    #[track_caller]
    pub fn binary(&self, op: Op, other: &UOp) -> UOp {
        UOp::new(op, smallvec![self.clone(), other.clone()], Arg::None)
    }

    /// self · b, rounded before anything is added to it (`Arg::Rounded`).
    #[track_caller]
    pub fn mul_rounded(&self, b: &UOp) -> UOp {
        UOp::new(Op::Mul, smallvec![self.clone(), b.clone()], Arg::Rounded)
    }

    /// A product that an addition may take in before it is rounded.
    pub fn may_contract(&self) -> bool {
        self.op() == Op::Mul && *self.arg() != Arg::Rounded
    }

    /// `self` where true, by element.
    #[track_caller]
    pub fn select(&self, yes: &UOp, no: &UOp) -> UOp {
        UOp::new(
            Op::Where,
            smallvec![self.clone(), yes.clone(), no.clone()],
            Arg::None,
        )
    }

    /// The value in another dtype; the node itself where it has it.
    #[track_caller]
    pub fn cast(&self, dtype: DType) -> UOp {
        if self.dtype() == dtype {
            return self.clone();
        }
        UOp::new(Op::Cast, smallvec![self.clone()], Arg::DType(dtype))
    }

    /// The bytes in another dtype.
    pub fn try_bitcast(&self, dtype: DType) -> Result<UOp> {
        if self.dtype() == dtype {
            return Ok(self.clone());
        }
        UOp::try_new(
            Op::Bitcast,
            smallvec![self.clone()] as Srcs,
            Arg::DType(dtype),
        )
    }

    /// The bits of a value in another dtype of the same width.
    #[track_caller]
    pub fn bitcast(&self, dtype: DType) -> UOp {
        UOp::new(Op::Bitcast, smallvec![self.clone()], Arg::DType(dtype))
    }

    /// An index, where `gate` holds; otherwise invalid.
    #[track_caller]
    pub fn valid(&self, gate: &UOp) -> UOp {
        if gate.is_bool(true) {
            self.clone()
        } else {
            gate.select(self, &UOp::invalid())
        }
    }

    /// INDEX: the element (or sub-array) at these indices, axis by axis from the left.
    #[track_caller]
    pub fn at(&self, indices: &[UOp]) -> UOp {
        UOp::new(Op::Index, with(self, indices), Arg::None)
    }

    /// STORE into storage.
    #[track_caller]
    pub fn store(&self, value: &UOp) -> UOp {
        UOp::new(Op::Store, smallvec![self.clone(), value.clone()], Arg::None)
    }

    /// ATOMICADD to an element of storage.
    #[track_caller]
    pub fn atomic_add(&self, value: &UOp) -> UOp {
        let src: Srcs = smallvec![self.clone(), value.clone()];
        UOp::new(Op::AtomicAdd, src, Arg::None)
    }

    /// This value once `deps` have run.
    #[track_caller]
    pub fn after(&self, deps: &[UOp]) -> UOp {
        if deps.is_empty() {
            self.clone()
        } else {
            UOp::new(Op::After, with(self, deps), Arg::None)
        }
    }

    /// This value, of which every element must be right, as `ok` says; `rule` tells what that is.
    ///
    /// # Errors
    /// Where `ok` is no bool.
    #[track_caller]
    pub fn asserting(&self, ok: &UOp, rule: &str) -> Result<UOp> {
        let src: Srcs = smallvec![self.clone(), ok.clone()];
        UOp::try_new(Op::Assert, src, Arg::Text(rule.into()))
    }

    /// Close loops around this effect.
    #[track_caller]
    pub fn end(&self, ranges: &[UOp]) -> UOp {
        if ranges.is_empty() {
            self.clone()
        } else {
            UOp::new(Op::End, with(self, ranges), Arg::None)
        }
    }

    /// Collect effects.
    #[track_caller]
    pub fn sink(effects: &[UOp]) -> UOp {
        UOp::new(
            Op::Sink,
            effects.iter().cloned().collect::<Srcs>(),
            Arg::None,
        )
    }

    /// REDUCE over ranges (inside kernels).
    #[track_caller]
    pub fn reduce_ranges(&self, op: ReduceOp, ranges: &[UOp]) -> UOp {
        if ranges.is_empty() {
            return self.clone();
        }
        UOp::new(Op::Reduce, with(self, ranges), Arg::Reduce(op, [].into()))
    }

    // Movement, with the checks of the shapes a user gives.

    /// The view of this with the sources `at` and `arg`; the node itself where it shows all as it is.
    #[track_caller]
    fn view(&self, op: Op, nothing: bool, at: &[&[Dim]], arg: Arg) -> Result<UOp> {
        if nothing {
            return Ok(self.clone());
        }
        let mut src: Srcs = smallvec![self.clone()];
        src.extend(at.iter().map(|d| UOp::dims(d)));
        UOp::try_new(op, src, arg)
    }

    /// Reorder axes: axis i of the result is axis `order[i]`.
    #[track_caller]
    pub fn permute(&self, order: &[usize]) -> Result<UOp> {
        let nothing = order.iter().copied().eq(0..self.shape().len());
        self.view(
            Op::Permute,
            nothing,
            &[],
            Arg::Axes(order.iter().map(|&a| a.min(255) as u8).collect()),
        )
    }

    /// The same elements in row-major order under another shape.
    #[track_caller]
    pub fn reshape(&self, shape: &Shape) -> Result<UOp> {
        self.view(Op::Reshape, self.shape() == shape, &[shape], Arg::None)
    }

    /// Broadcast axes of size 1.
    #[track_caller]
    pub fn expand(&self, shape: &Shape) -> Result<UOp> {
        self.view(Op::Expand, self.shape() == shape, &[shape], Arg::None)
    }

    /// Place at `offsets` in an array of `shape` filled with `fill`.
    #[track_caller]
    pub fn pad(&self, offsets: &[Dim], shape: &Shape, fill: Scalar) -> Result<UOp> {
        let fill = Arg::Fill(fill.cast(self.dtype()));
        self.view(Op::Pad, self.shape() == shape, &[offsets, shape], fill)
    }

    /// Keep `shape` elements from `offsets`.
    #[track_caller]
    pub fn shrink(&self, offsets: &[Dim], shape: &Shape) -> Result<UOp> {
        self.view(
            Op::Shrink,
            self.shape() == shape,
            &[offsets, shape],
            Arg::None,
        )
    }

    /// Reverse the axes whose bit is set.
    #[track_caller]
    pub fn flip(&self, axes: u64) -> Result<UOp> {
        self.view(Op::Flip, axes == 0, &[], Arg::Flags(axes))
    }

    /// Fold these axes to size 1.
    #[track_caller]
    pub fn reduce(&self, op: ReduceOp, axes: &[usize]) -> Result<UOp> {
        let arg = Arg::Reduce(op, axes.iter().map(|&a| a.min(255) as u8).collect());
        self.view(Op::Reduce, axes.is_empty(), &[], arg)
    }

    /// The same value on another device.
    #[track_caller]
    pub fn copy_to(&self, device: Device) -> UOp {
        if self.device() == Some(device) {
            return self.clone();
        }
        UOp::new(
            Op::Copy,
            smallvec![self.clone()],
            Arg::Place(Some(device), Some(AddrSpace::Global)),
        )
    }

    /// The shape vector of RESHAPE, EXPAND (src 1), PAD and SHRINK (src 2), or offsets (src 1).
    pub fn dims_src(&self, i: usize) -> Shape {
        crate::derive::shape::dims_of(&self.src()[i])
    }
}

/// A literal in an expression over UOps.
#[derive(Copy, Clone, Debug)]
pub struct Number(pub Scalar);

macro_rules! number {
    ($($t:ty => $v:ident as $as:ty),*) => { $(impl From<$t> for Number {
        fn from(n: $t) -> Number { Number(Scalar::$v(n as $as)) }
    })* };
}
number!(i32 => Int as i128, i64 => Int as i128, u32 => Int as i128, usize => Int as i128, f32 => Float as f64, f64 => Float as f64, bool => Bool as bool);

/// What may stand on the right of an operator: a UOp, a reference to one, or a literal of the left's dtype.
pub trait Operand {
    /// As a source beside `left`.
    fn beside(self, left: &UOp) -> UOp;
}
impl Operand for UOp {
    fn beside(self, _: &UOp) -> UOp {
        self
    }
}
impl Operand for &UOp {
    fn beside(self, _: &UOp) -> UOp {
        self.clone()
    }
}
impl<N: Into<Number>> Operand for N {
    #[track_caller]
    fn beside(self, left: &UOp) -> UOp {
        left.like(self)
    }
}

/// The operators with a symbol, of a type on the left and what may stand on its right: `$build` gives
/// the `$output`.
macro_rules! operators {
    ($left:ty, $right:ident => $output:ty, $build:path) => { $crate::build::operators! {
        $left, $right => $output, $build;
        // `/` and `%` are the dialect's IDIV and MOD (floor); float division is `div`.
        Add add Add, Sub sub Sub, Mul mul Mul, Div div Idiv, Rem rem Mod,
        BitAnd bitand And, BitOr bitor Or, BitXor bitxor Xor
    } };
    ($left:ty, $right:ident => $output:ty, $build:path; $($trait:ident $method:ident $op:ident),*) => { $(
        impl<R: $right> std::ops::$trait<R> for $left {
            type Output = $output;
            #[track_caller]
            fn $method(self, other: R) -> $output { $build(self, Op::$op, other) }
        }
    )* };
}
pub(crate) use operators;

#[track_caller]
fn operated(left: impl Borrow<UOp>, op: Op, right: impl Operand) -> UOp {
    let left = left.borrow();
    left.binary(op, &right.beside(left))
}
operators!(UOp, Operand => UOp, operated);
operators!(&UOp, Operand => UOp, operated);

macro_rules! methods {
    ($($(#[$doc:meta])* $name:ident $op:ident;)*) => { impl UOp { $(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(&self, other: &UOp) -> UOp { self.binary(Op::$op, other) }
    )* } };
}
methods! {
    /// a < b.
    lt CmpLt;
    /// a ≠ b.
    ne_ CmpNe;
    /// a = b.
    eq_ CmpEq;
    /// a ≥ b.
    ge CmpGe;
    /// max(a, b).
    max_ Max;
}
