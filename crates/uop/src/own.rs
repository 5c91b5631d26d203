//! Work of a user's own: what a CUSTOMFUNCTION does, and the derivative of a CALL of one. Flows in: a kernel
//! in UOps, source text for a dialect, or a function of this process; flows out: an arg that tells equal work
//! from other work. Invariant: a CUSTOMFUNCTION has no sources, so that no pass over tensors takes the
//! PARAMs and constants of its kernel for those of the graph around it.

use crate::arg::Arg;
use crate::device::Device;
use crate::error::Result;
use crate::node::UOp;
use crate::op::Op;
use crate::shape::Shape;
use crate::target::Dialect;
use std::any::Any;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a CUSTOMFUNCTION does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FunctionInfo {
    /// Its name, for messages and reports.
    pub name: String,
    /// The device that runs it.
    pub device: Device,
    /// The outputs, by number, that begin as what their arguments are. What others hold before it runs is not
    /// told: it writes all of them and reads nothing there.
    pub begins: Vec<usize>,
    /// What is done.
    pub body: FunctionBody,
}

/// See `FunctionInfo`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FunctionBody {
    /// A kernel, whose PARAMs are numbered as the arguments are.
    Kernel(UOp),
    /// Source text.
    Source(SourceBody),
    /// A function of this process.
    Host(HostBody),
    /// Nothing that is known here: the name came from a text.
    Named,
}

/// Source text for devices that have programs written in a dialect.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SourceBody {
    dialect: Dialect,
    text: Arc<str>,
    entry: String,
}

/// A function of this process, of which this room knows that it is there. Two are equal if they are one.
#[derive(Clone)]
pub struct HostBody {
    number: u64,
    shapes: Arc<[Shape]>,
    function: Arc<dyn Any + Send + Sync>,
}

/// What flows to the arguments of a CALL when these gradients flow to its outputs.
#[derive(Clone)]
pub struct Derivative(Arc<Differentiate>);

/// Gets the CALL, and what flows to each output (None where nothing does); gives what flows to each argument.
pub type Differentiate =
    dyn Fn(&UOp, &[Option<UOp>]) -> Result<Vec<Option<UOp>>> + Send + Sync + 'static;

impl FunctionInfo {
    /// That of a CUSTOMFUNCTION.
    pub fn of(u: &UOp) -> Option<&FunctionInfo> {
        match u.arg() {
            Arg::Function(info) => info.get(),
            _ => None,
        }
    }

    /// That of the CUSTOMFUNCTION which this is a CALL of.
    pub fn called(u: &UOp) -> Option<&FunctionInfo> {
        let body = u.src().first().filter(|_| u.op() == Op::Call)?;
        FunctionInfo::of(body)
    }
}

impl SourceBody {
    /// Text in a dialect, whose function `entry` is given a pointer for each argument, outputs first.
    ///
    /// # Safety
    /// Devices run it: the function touches what its arguments point to and nothing else, writes only what
    /// the outputs point to, and ends.
    pub unsafe fn new(dialect: Dialect, text: &str, entry: &str) -> SourceBody {
        SourceBody {
            dialect,
            text: text.into(),
            entry: entry.into(),
        }
    }

    /// What it is written in.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Its function that is called.
    pub fn entry(&self) -> &str {
        &self.entry
    }
}

impl HostBody {
    /// A function, as what the room that runs it takes it for.
    pub fn new(function: Arc<dyn Any + Send + Sync>) -> HostBody {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        HostBody {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            shapes: [].into(),
            function,
        }
    }

    /// The same on arguments of these shapes.
    pub fn on(&self, shapes: impl Iterator<Item = Shape>) -> HostBody {
        HostBody {
            shapes: shapes.collect(),
            ..self.clone()
        }
    }

    /// The shapes of its arguments.
    pub fn shapes(&self) -> &[Shape] {
        &self.shapes
    }

    /// The function.
    pub fn function(&self) -> &Arc<dyn Any + Send + Sync> {
        &self.function
    }
}

impl PartialEq for HostBody {
    fn eq(&self, other: &HostBody) -> bool {
        self.number == other.number && self.shapes == other.shapes
    }
}
impl Eq for HostBody {}
impl Hash for HostBody {
    fn hash<H: Hasher>(&self, h: &mut H) {
        h.write_u64(self.number);
        self.shapes.hash(h);
    }
}
impl std::fmt::Debug for HostBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HostBody({})", self.number)
    }
}

impl Derivative {
    /// The derivative that this function computes.
    pub fn new(function: Arc<Differentiate>) -> Derivative {
        Derivative(function)
    }

    /// That of a CALL, if it has one.
    pub fn of(call: &UOp) -> Option<&Derivative> {
        match call.arg() {
            Arg::Call(info) => info.derivative.as_ref()?.get(),
            _ => None,
        }
    }

    /// What flows to the arguments of a CALL.
    ///
    /// # Errors
    /// Those of the function.
    pub fn flow(&self, call: &UOp, gradients: &[Option<UOp>]) -> Result<Vec<Option<UOp>>> {
        (self.0)(call, gradients)
    }
}

impl PartialEq for Derivative {
    fn eq(&self, other: &Derivative) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
impl Eq for Derivative {}
impl Hash for Derivative {
    /// Nothing: hashes are those of what is computed, and equal in every process.
    fn hash<H: Hasher>(&self, _: &mut H) {}
}
impl std::fmt::Debug for Derivative {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Derivative")
    }
}
