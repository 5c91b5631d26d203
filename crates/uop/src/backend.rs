//! The back end's interface: a linear program in, code out. Pure: no files, no devices, no time. A
//! back end that makes machine code needs this room alone; one that makes text stands in codegen.
//! Flows in: a verified linear program, its record and the target; flows out: code, as text or
//! bytes, or an error.
//!
//! What a target has no way to say is an error that names the op, never a default. What every target
//! needs has been done: values are of the target's dtypes and widths, bools in storage are bytes, small
//! arrays are registers; a `Listing` says which values have names and how wide masks are.

use crate::arg::{Arg, ProgramInfo};
use crate::effort;
use crate::error::{Error, ErrorKind, Result};
use crate::lazy::LazyText;
use crate::listing::Listing;
use crate::node::{Srcs, UOp};
use crate::op::Op;
use crate::spec::{Lowered, verify_record};
use crate::target::Target;
use rustc_hash::FxHasher;
use smallvec::{SmallVec, smallvec};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// What a back end makes of a program.
pub enum Code {
    /// What the device's compiler takes. It depends on the program and the target alone, so that it can
    /// key caches.
    Text(String),
    /// Machine code, where no compiler is needed.
    Machine {
        /// The code.
        binary: Vec<u8>,
        /// What writes the code as people read it.
        listing: Box<WriteListing>,
    },
}

/// Writes the listing of a LINEAR's machine code.
pub type WriteListing = dyn Fn(&UOp, &[u8]) -> String + Send + Sync;

impl Code {
    /// SOURCE, and BINARY where this is machine code, of the program of that name.
    pub fn nodes(self, linear: &UOp, name: &str) -> SmallVec<[UOp; 2]> {
        let (binary, listing) = match self {
            Code::Text(text) => {
                effort::wrote(text.len());
                return smallvec![UOp::new(Op::Source, vec![], Arg::Text(text.into()))];
            }
            Code::Machine { binary, listing } => (binary, listing),
        };
        effort::wrote(binary.len());
        let mut key = FxHasher::default();
        name.hash(&mut key);
        key.write_u64(linear.structural_hash());
        let list = linear.clone();
        let write = Box::new(move |code: &[u8]| listing(&list, code));
        let binary: Arc<[u8]> = binary.into();
        let text = LazyText::new(key.finish(), binary.clone(), write);
        smallvec![
            UOp::new(Op::Source, vec![], Arg::Lazy(Arc::new(text))),
            UOp::new(Op::Binary, vec![], Arg::Bytes(binary)),
        ]
    }
}

/// Makes code of linear programs.
///
/// # Safety
/// Devices run what it gives. The code of a verified program does what the program says: it touches what
/// the program's loads and stores name, and nothing else.
pub unsafe trait Backend: Send + Sync {
    /// The code of a program, of its record and for a target.
    ///
    /// # Errors
    /// `Unsupported`, naming the op, for what it cannot say.
    fn emit(&self, listing: &Listing, info: &ProgramInfo, target: &Target) -> Result<Code>;
}

/// PROGRAM(sink, LINEAR, SOURCE, BINARY?), whose code a back end has made of its verified list: what a
/// device runs. No text gives one, whatever PROGRAM it has:
///
/// ```compile_fail
/// # use monoglot_uop::{Program, UOp};
/// fn of_a_text(parsed: UOp) -> Program {
///     Program(parsed)
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Program(UOp);

impl std::ops::Deref for Program {
    type Target = UOp;

    fn deref(&self) -> &UOp {
        &self.0
    }
}

impl Program {
    /// Have a back end make the code of a kernel's verified list, of which this is the record.
    ///
    /// # Errors
    /// What the back end says; `Verify`, where the record is not that of the list.
    pub fn emit(
        backend: &dyn Backend,
        kernel: UOp,
        linear: Lowered,
        info: ProgramInfo,
        target: &Target,
    ) -> Result<Program> {
        let code = backend.emit(&Listing::of(&linear), &info, target)?;
        let linear = linear.into_inner();
        let made = code.nodes(&linear, &info.name);
        let mut src: Srcs = smallvec![kernel, linear];
        src.extend(made);
        let program = UOp::new(Op::Program, src, Arg::Program(Arc::new(info)));
        verify_record(program).map(Program)
    }

    /// A PROGRAM as it is.
    ///
    /// # Safety
    /// Its code does what its list says, as a `Backend`'s; and its list passes the verifier, unless it is
    /// the interpreter that runs it.
    pub unsafe fn trusted(program: UOp) -> Program {
        Program(program)
    }

    /// The node itself.
    pub fn into_inner(self) -> UOp {
        self.0
    }
}

/// The error of a back end that has no way to say an instruction.
pub fn unsupported(backend: &str, u: &UOp) -> Error {
    ErrorKind::Unsupported {
        op: u.op().name().into(),
        message: format!("the back end {backend} has no code for {u:?}"),
    }
    .into()
}
