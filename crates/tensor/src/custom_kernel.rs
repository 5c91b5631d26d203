//! What a kernel of one's own is built from. Flows in: the shapes and dtypes of its arguments; flows out: its
//! PARAMs, RANGEs with numbers of their own, and the SINK of what is built from them. Invariant: what a user
//! writes that does not fit together is an error, also where the operators of UOps find it.

use monoglot_uop::vouched::vouch;
use monoglot_uop::{
    AddrSpace, Arg, AxisType, DType, Device, Dialect, Dim, Error, ErrorKind, KernelInfo, Op,
    Result, Shape, UOp,
};
use rustc_hash::FxHashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Makes the effect of a kernel: a STORE in the loops that END closes, or several in a SINK.
pub(crate) type Build = dyn Fn(&KernelBuilder) -> Result<UOp> + Send + Sync;

/// The arguments of a kernel, and what is numbered in it.
pub struct KernelBuilder {
    name: String,
    outputs: Vec<UOp>,
    inputs: Vec<UOp>,
    dialect: Dialect,
    ranges: AtomicU32,
    storages: AtomicU64,
}

impl KernelBuilder {
    pub(crate) fn new(
        name: &str,
        arguments: &[(Shape, DType)],
        outs: usize,
        (device, dialect): (Device, Dialect),
    ) -> KernelBuilder {
        let params = (0..).zip(arguments);
        let param = |(slot, (shape, dtype)): (u64, &(Shape, DType))| {
            UOp::param(slot, shape, *dtype, Some(device))
        };
        let mut outputs: Vec<UOp> = params.map(param).collect();
        let inputs = outputs.split_off(outs);
        KernelBuilder {
            name: name.into(),
            outputs,
            inputs,
            dialect,
            ranges: AtomicU32::new(0),
            storages: AtomicU64::new(0),
        }
    }

    /// The kernel that `build` makes; None where all of its loops are without turns.
    pub(crate) fn build(&self, build: &Build) -> Result<Option<UOp>> {
        let made = catch_unwind(AssertUnwindSafe(|| build(self))).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or(panic.downcast_ref::<&str>().copied());
            let message = format!("it cannot be built: {}", text.unwrap_or("no message"));
            Err(Error::argument(&self.name, message))
        })?;
        let made = without_empty_loops(&made);
        let effects = match made.op() {
            Op::Sink => made.src().to_vec(),
            _ => vec![made],
        };
        let nothing = |u: &UOp| u.op() == Op::Group && u.src().is_empty();
        if !effects.is_empty() && effects.iter().all(nothing) {
            return Ok(None);
        }
        let info = KernelInfo {
            name: self.name.clone(),
            ..KernelInfo::default()
        };
        Ok(Some(
            UOp::sink(&effects).with_arg(Arg::Kernel(Arc::new(info))),
        ))
    }

    /// Output `k`: storage of its shape.
    ///
    /// # Panics
    /// Where there is no such output, which is an error of the call that the kernel is built for.
    pub fn output(&self, k: usize) -> &UOp {
        let n = self.outputs.len();
        let missing = || panic!("there is no output {k} of {n}");
        self.outputs.get(k).unwrap_or_else(missing)
    }

    /// Input `k`: storage of its shape.
    ///
    /// # Panics
    /// As `output`.
    pub fn input(&self, k: usize) -> &UOp {
        let n = self.inputs.len();
        let missing = || panic!("there is no input {k} of {n}");
        self.inputs.get(k).unwrap_or_else(missing)
    }

    /// A loop from 0 to `n`, which `end` closes.
    pub fn range(&self, n: impl Into<Dim>) -> UOp {
        self.numbered(n.into(), AxisType::Loop)
    }

    /// A loop from 0 to `n` that `reduce_ranges` closes.
    pub fn reduce_range(&self, n: impl Into<Dim>) -> UOp {
        self.numbered(n.into(), AxisType::Reduce)
    }

    /// A value as an expression in the language of the device, in which `{0}`, `{1}`, … are these operands (narrow
    /// floats as f32). Where programs of the device have no source, as machine code and the interpreter, it is
    /// `otherwise`: the same in UOps.
    ///
    /// ```
    /// use monoglot_tensor::{CustomOp, DType, Output, Tensor};
    /// let ones = CustomOp::kernel("ones", |k| {
    ///     let i = k.range(3);
    ///     let x = k.input(0).at(&[i.clone()]);
    ///     // Of numbers up to 3.
    ///     let count = (&x & &x.like(1)) + &x / 2;
    ///     // SAFETY: it counts the bits of a number.
    ///     let count = unsafe { k.custom("__builtin_popcount({0})", &[x], DType::I32, Some(&count))? };
    ///     Ok(k.output(0).at(&[i.clone()]).store(&count).end(&[i]))
    /// });
    /// let [y] = ones.call([Output::new([3], DType::I32)], &[&Tensor::new(&[0, 2, 3], [3])]);
    /// assert_eq!(y.to_vec::<i32>()?, [0, 1, 2]);
    /// # Ok::<(), monoglot_tensor::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Unsupported` where there is neither source nor `otherwise`; `DType` for what is no number of 32 or 64 bits.
    ///
    /// # Safety
    /// The text is an expression of the dtype, without effects, that touches no memory.
    pub unsafe fn custom(
        &self,
        text: &str,
        operands: &[UOp],
        dtype: DType,
        otherwise: Option<&UOp>,
    ) -> Result<UOp> {
        if matches!(dtype, DType::Index | DType::Bool) || dtype.bytes() < 4 {
            let message = format!("a CUSTOM of {dtype}: of 32 or 64 bits alone");
            return Err(Error::dtype(&self.name, message));
        }
        if self.dialect == Dialect::C {
            // SAFETY: the caller says so.
            unsafe { vouch(text) };
            let mut src = vec![UOp::constant(dtype.zero(), dtype)];
            src.extend_from_slice(operands);
            return UOp::try_new(Op::Custom, src, Arg::Text(text.into()));
        }
        otherwise.cloned().ok_or_else(|| {
            let message = format!(
                "programs in {} have no source for `{text}`: say by `otherwise` what it is in UOps",
                self.dialect.name()
            );
            let op = self.name.clone();
            ErrorKind::Unsupported { op, message }.into()
        })
    }

    /// Storage of the kernel's own, in registers. What is read of it stands behind what was written:
    /// `register.after(&[store]).at(&[k])`.
    pub fn register(&self, shape: &[i64], dtype: DType) -> UOp {
        let slot = self.storages.fetch_add(1, Ordering::Relaxed);
        UOp::scratch(slot, &Shape::of(shape), dtype, AddrSpace::Reg)
    }

    fn numbered(&self, n: Dim, axis: AxisType) -> UOp {
        UOp::range(n, self.ranges.fetch_add(1, Ordering::Relaxed), axis)
    }
}

/// The effect without loops that have no turns: a fold over one is what folds begin with.
fn without_empty_loops(made: &UOp) -> UOp {
    let empty = |r: &UOp| r.op() == Op::Range && r.src()[0].as_int() == Some(0);
    if !made.toposort().iter().any(empty) {
        return made.clone();
    }
    made.rebuild(
        &FxHashMap::default(),
        |_| true,
        |u, src| match (u.op(), u.arg()) {
            (Op::Reduce, Arg::Reduce(op, _)) if src[1..].iter().any(empty) => {
                UOp::constant(op.identity(u.dtype()), u.dtype())
            }
            (Op::End, _) if src[1..].iter().any(empty) => UOp::new(Op::Group, vec![], Arg::None),
            _ => u.with_src(src),
        },
    )
}
