//! The specs: what must hold at each border of the pipeline.
//!
//! Flows in: a graph at a border; flows out: a newtype that only the verifier makes, or one error that
//! lists every fault with the node's line in the text form, the reason, and the lines of its sources.
//! Invariant: verification is linear in the graph, takes no recursion and changes nothing.
//!
//! | border | spec | gives |
//! | --- | --- | --- |
//! | what users write | `tensor` | [`Tensors`] |
//! | after rangeify, after the OptOps | `kernel`, scalar form | [`Kernel`] |
//! | after expand | `kernel`, shaped form | [`Expanded`] |
//! | the schedule | `call` | [`Scheduled`] |
//! | after linearize | `linear` | [`Lowered`] |
//! | compiled | `call` | [`crate::Program`], by way of a back end |

mod call;
mod kernel;
mod linear;
mod tensor;

use crate::arg::{AddrSpace, Arg};
use crate::dtype::DType;
use crate::error::{ErrorKind, Result};
use crate::graph::ordered;
use crate::node::UOp;
use crate::op::{Op, OpSet};
use crate::scalar::Scalar;
use crate::text::{Names, is_parsed};

macro_rules! borders {
    ($($(#[$doc:meta])* $name:ident $verify:ident $stage:literal $check:expr;)*) => { $(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub struct $name(UOp);

        impl std::ops::Deref for $name {
            type Target = UOp;
            fn deref(&self) -> &UOp { &self.0 }
        }

        impl $name {
            /// The graph itself.
            pub fn into_inner(self) -> UOp { self.0 }
        }

        $(#[$doc])*
        ///
        /// # Errors
        /// `ErrorKind::Verify` with every fault, `ErrorKind::Text` where the graph is a text's.
        pub fn $verify(root: UOp) -> Result<$name> {
            let mut check = Verifier::of(&root);
            $check(&mut check);
            check.finish($stage)?;
            Ok($name(root))
        }
    )* };
}

borders! {
    /// A tensor graph that obeys its spec (`spec/tensor.rs`).
    Tensors verify_tensor "tensor" tensor::check;
    /// A kernel of scalars over RANGEs (`spec/kernel.rs`).
    Kernel verify_kernel "kernel" |c| kernel::check(c, false);
    /// A kernel whose UPCAST and UNROLL ranges have become shape (`spec/kernel.rs`).
    Expanded verify_expanded "expand" |c| kernel::check(c, true);
    /// A LINEAR of CALLs whose kernels obey theirs (`spec/call.rs`).
    Scheduled verify_scheduled "schedule" call::check_schedule;
    /// A linear program (`spec/linear.rs`).
    Lowered verify_linear "linear" linear::check;
}

/// As `verify_tensor`, of a function of so many arguments, which its PARAMs number.
///
/// # Errors
/// `ErrorKind::Verify` with every fault, `ErrorKind::Text` where the graph is a text's.
pub fn verify_function(root: UOp, arguments: usize) -> Result<Tensors> {
    let mut check = Verifier::of(&root);
    check.arguments = Some(arguments as u64);
    tensor::check(&mut check);
    check.finish("tensor")?;
    Ok(Tensors(root))
}

/// Check the kernel of a user's own work: one of scalars over RANGEs that need not use all of its arguments.
///
/// # Errors
/// `ErrorKind::Verify` with every fault, `ErrorKind::Text` where the graph is a text's.
pub fn verify_own(root: &UOp) -> Result<()> {
    let mut check = Verifier::of(root);
    kernel::check_own(&mut check);
    check.finish("kernel")
}

/// A compiled kernel and the linear program in it (`spec/call.rs`). That it may be run says only the back
/// end that made its code: `backend::Program`.
///
/// # Errors
/// `ErrorKind::Verify` with every fault, `ErrorKind::Text` where the graph is a text's.
pub fn verify_program(root: UOp) -> Result<UOp> {
    let mut check = Verifier::of(&root);
    call::check_program(&mut check);
    check.finish("program")?;
    Ok(root)
}

/// As `verify_program`, where the linear program has been verified.
pub(crate) fn verify_record(root: UOp) -> Result<UOp> {
    let mut check = Verifier::of(&root);
    call::check_record(&mut check);
    check.finish("program")?;
    Ok(root)
}

/// A fault of the node unless the condition holds: what must be => what is said where it is not.
macro_rules! need {
    ($check:expr, $node:expr, $holds:expr => $($reason:tt)*) => {
        if !$holds {
            $check.fault($node, format!($($reason)*));
        }
    };
}
use need;

/// A graph being verified, and the faults found.
struct Verifier<'a> {
    root: &'a UOp,
    /// How many arguments a function has.
    arguments: Option<u64>,
    faults: Vec<(&'a UOp, String)>,
}

/// Most faults that a message lists.
const LISTED: usize = 40;

impl<'a> Verifier<'a> {
    fn of(root: &'a UOp) -> Verifier<'a> {
        Verifier {
            root,
            arguments: None,
            faults: Vec::new(),
        }
    }

    fn fault(&mut self, u: &'a UOp, reason: impl Into<String>) {
        self.faults.push((u, reason.into()));
    }

    fn finish(self, stage: &str) -> Result<()> {
        if self.faults.is_empty() {
            return Ok(());
        }
        let names = Names::of(self.root);
        let mut message = String::new();
        let mut put = |indent: usize, text: &str| message += &format!("{:indent$}{text}\n", "");
        let mut last = None;
        for (u, reason) in self.faults.iter().take(LISTED) {
            let new = last.replace(u) != Some(u);
            if new {
                put(0, &names.line(u));
            }
            put(2, reason);
            let first = |(i, s): &(usize, &UOp)| new && names.has(s) && !u.src()[..*i].contains(s);
            for (_, s) in u.src().iter().enumerate().filter(first).take(4) {
                put(4, &names.line(s));
            }
        }
        if self.faults.len() > LISTED {
            put(
                0,
                &format!("and {} faults more", self.faults.len() - LISTED),
            );
        }
        let message = message.trim_end().to_string();
        let stage = stage.into();
        Err(if is_parsed(self.root) {
            ErrorKind::Text { stage, message }.into()
        } else {
            ErrorKind::Verify { stage, message }.into()
        })
    }

    /// What holds of every node of every stage: an op of the stage, no tag, an arg and sources that fit
    /// the op.
    fn any(&mut self, u: &'a UOp, ops: OpSet) {
        use Op::*;
        /// Ops that may have effects among their sources.
        const ORDERS: OpSet = OpSet::of(&[
            After,
            Group,
            Sink,
            Linear,
            End,
            EndIf,
            Barrier,
            If,
            Program,
            CustomFunction,
        ]);
        let op = u.op();
        let arg = u.arg();
        need!(self, u, ops.contains(op) => "{} has no place in this stage", op.name());
        need!(self, u, u.tag() == 0 => "a tag is left");
        let fits = arg.kind() == op.arg_kind()
            || *arg == Arg::None && matches!(op, Load | Store | Sink | Call | Mul)
            || *arg == Arg::Below && op == Exp2
            || *arg == Arg::Padding && op == Where && u.dtype().is_float()
            || matches!(arg, Arg::Scan(_) | Arg::Recompute(_)) && op == Function;
        need!(self, u, fits => "{} cannot have this arg", op.name());
        if let Arg::Const(v, d) = arg {
            need!(self, u, is_value(*v, *d) => "{v:?} is no value of {d}");
        }
        let numbers = op != Bitcast || [u, &u.src()[0]].iter().all(|u| is_stored(u.dtype()));
        need!(self, u, numbers => "an index has no bits, and neither has void");
        let rounds = *arg != Arg::Rounded || u.dtype().is_float();
        need!(self, u, rounds => "a product of {} is never rounded", u.dtype());
        let past = op != Store || *arg == Arg::None || self.root.op() == Linear;
        need!(self, u, past => "a program alone says what passes the caches");
        // A body, or what packs values, may be void.
        let values = &u.src()[matches!(op, Function | Call | GetTuple) as usize..];
        let effects = !ORDERS.contains(op) && values.iter().any(|s| s.dtype() == DType::Void);
        need!(self, u, !effects => "an effect is used as a value");
    }

    /// What holds of every PARAM of tensors and kernels.
    fn param(&mut self, u: &'a UOp) {
        let space = u.addrspace();
        let dtype = u.dtype();
        let shape = u.shape();
        // An index may be used as one because its bounds say where it is; one that is bound has its value
        // as well.
        let bounded = match (dtype, u.src().len()) {
            (DType::Index, 3 | 4) => true,
            (DType::Index | DType::Void, _) => false,
            (_, n) => n <= 1,
        };
        let variable = space.is_none() && shape.is_empty() && bounded;
        let stored = space == Some(AddrSpace::Global) && is_stored(dtype);
        let at = space.map_or("no address space", AddrSpace::name);
        let wanted = "a PARAM is GLOBAL, or a variable of shape (), with bounds if it is an index";
        need!(self, u, variable || stored => "{wanted}, not {dtype}{shape} in {at}");
        self.bounds(u);
        self.dims(u, 0, "shape");
    }

    /// The bounds of a variable are numbers in order, and its value lies between them.
    fn bounds(&mut self, u: &'a UOp) {
        let given = &u.src()[u.src().len().min(1)..];
        // In a program the variable has a width, and its bounds are an index still.
        let same = given
            .iter()
            .all(|b| b.dtype() == u.dtype() || b.dtype() == DType::Index);
        let numbers: Option<Vec<i64>> = given.iter().map(UOp::as_int).collect();
        let fits = match numbers.as_deref() {
            Some([]) => true,
            Some([least, most]) => same && least <= most,
            Some([least, most, now]) => same && (least..=most).contains(&now),
            _ => false,
        };
        need!(self, u, fits =>
            "its bounds are no two numbers in order, with its value between them");
    }

    /// Source i is a shape, or offsets.
    fn dims(&mut self, u: &'a UOp, i: usize, what: &str) {
        let Some(s) = u.src().get(i) else { return };
        if !s.dtype().is_int()
            || !s.shape().is_empty() && (s.op() != Op::Stack || s.shape().len() != 1)
        {
            return self.fault(u, format!("the {what} is no vector of integers"));
        }
        let parts = if s.op() == Op::Stack {
            s.src()
        } else {
            std::slice::from_ref(s)
        };
        for d in parts.iter().filter(|d| d.op() != Op::Const) {
            let counts = d.dtype() == DType::Index && is_counted(d);
            need!(self, u, counts => "the {what} is no arithmetic on variables, in index");
        }
        need!(self, u, parts.iter().all(|d| d.vmin() >= 0) => "the {what} may be negative");
    }

    /// What holds of every STORE's dtypes.
    fn stored(&mut self, u: &'a UOp) {
        let to = u.src()[0].dtype();
        let value = u.src()[1].dtype();
        need!(self, u, to == value => "a {value} is stored as {to}");
        need!(self, u, u.src().get(2).is_none_or(|g| g.dtype() == DType::Bool) =>
            "the gate is no bool");
    }
}

/// The ops of a stage, by its letter in the op table.
fn ops_of(stage: char) -> OpSet {
    OpSet::filter(|op| op.stages().contains(stage))
}

/// Whether storage may hold values of this dtype.
fn is_stored(d: DType) -> bool {
    !matches!(d, DType::Index | DType::Void)
}

/// Whether a number is known before anything runs: arithmetic on constants and variables.
fn is_counted(u: &UOp) -> bool {
    const PLAIN: OpSet = OpSet::ELEMENTWISE.with(Op::Const).with(Op::Stack);
    let variable = |u: &UOp| u.is_variable() && u.shape().is_empty();
    u.shape().is_empty()
        && ordered(std::slice::from_ref(u), UOp::src)
            .into_iter()
            .all(|u| PLAIN.contains(u.op()) || variable(u))
}

/// Whether the scalar is a value of the dtype, as it stands.
fn is_value(v: Scalar, d: DType) -> bool {
    match v {
        Scalar::Bool(_) => d == DType::Bool,
        Scalar::Int(_) => d.is_int() && v.round_to(d) == v,
        Scalar::Float(f) => d.is_float() && (f.is_nan() || v.round_to(d) == v),
        Scalar::Invalid => d.is_int(),
    }
}

/// Storage, or storage with an order: what an address may be into.
fn storage(u: &UOp) -> Option<&UOp> {
    let u = u.named();
    match u.op() {
        Op::Param | Op::Buffer if u.buffer_arg().is_some_and(|b| b.addrspace.is_some()) => Some(u),
        Op::Load => Some(u),
        _ => None,
    }
}
