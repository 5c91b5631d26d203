//! The CPU through machine code of our own: no compiler is called and nothing is kept on disk. Flows in:
//! PROGRAMs with a BINARY; flows out: kernels, and what they write into the storage they are launched with.
//!
//! Invariant: a launch checks that every buffer has the bytes its PARAM says; code stays where it is as long as a
//! kernel lives in it.

use super::area;
use super::fault::{self, Listed};
use super::pages::{self, Function};
use super::perf;
use super::threads::Threads;
use crate::config::Config;
use crate::kernel::{Arguments, Kernel, Signature, program_binary, program_parts};
use crate::kind::missing;
use crate::pool::{Budget, Pool};
use crate::queue::{Host, Queue};
use crate::runtime::Runtime;
use monoglot_native::own_bytes;
use monoglot_uop::{Program, Result, Target};
use smallvec::SmallVec;
use std::sync::Arc;

/// `void kernel(const uint64_t *args, int32_t thread, unsigned char *own)`: pointers to storage, by slot, and then the
/// variables; the thread's number; and storage of its own, at a multiple of 64.
type Entry = unsafe extern "sysv64" fn(*const u64, i32, *mut u8);

/// The CPU of this machine, for machine code.
pub(super) struct Native {
    target: Target,
    pool: Arc<Pool>,
    /// Profilers are told the names of kernels.
    perf: bool,
}

impl Native {
    /// Open it for a target that this machine can run.
    pub(super) fn new(target: Target, config: &Config) -> Native {
        Native {
            pool: Arc::new(Pool::new(target.threads, Budget::machine())),
            target,
            perf: config.perf,
        }
    }
}

impl Runtime for Native {
    fn target(&self) -> &Target {
        &self.target
    }

    fn about(&self) -> String {
        format!(
            "machine code of our own for {}",
            super::described(&self.target)
        )
    }

    /// The listing that the back end gives with its code.
    fn assembly(&self, program: &Program) -> Result<Option<String>> {
        let (_, source, _) = program_parts(program)?;
        Ok(Some(source.to_string()))
    }

    fn compile(&self, programs: &[Program]) -> Result<Vec<Arc<dyn Kernel>>> {
        let codes = programs.iter().map(|p| program_binary(p));
        let codes = codes.collect::<Result<Vec<_>>>()?;
        let functions = pages::load(&codes).map_err(|e| {
            let message = format!(
                "there is no memory for code that can be executed ({e}); DEV=CPU:C takes none"
            );
            missing(self.target.device, message)
        })?;
        let mut kernels: Vec<Arc<dyn Kernel>> = Vec::with_capacity(programs.len());
        let mut names = Vec::with_capacity(programs.len());
        for (program, function) in programs.iter().zip(functions) {
            let (linear, _, info) = program_parts(program)?;
            names.push((function.start(), function.bytes(), &*info.name));
            // SAFETY: the code of a program is that of a function of this type (`Backend`, `Program::trusted`).
            let entry = unsafe { std::mem::transmute::<*const u8, Entry>(function.start()) };
            kernels.push(Arc::new(NativeKernel {
                entry,
                _listed: fault::list(function.start(), function.bytes(), &info.name),
                _function: function,
                signature: Signature::of(linear, info),
                threads: Threads::of(linear, info, &self.pool),
                own: own_bytes(linear),
            }));
        }
        if self.perf {
            perf::tell(names.into_iter());
        }
        Ok(kernels)
    }

    fn runs_at_once(&self) -> bool {
        true
    }

    fn queue(&self) -> Result<Box<dyn Queue>> {
        Ok(Box::new(Host))
    }
}

/// Machine code and what it takes.
struct NativeKernel {
    entry: Entry,
    /// Dropped before the function, whose place another may get.
    _listed: Listed,
    _function: Function,
    signature: Signature,
    threads: Threads,
    /// Bytes of storage of its own that each thread lends it.
    own: usize,
}

impl Kernel for NativeKernel {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&self, args: &Arguments) -> Result<()> {
        let storage = args.ptrs.iter().map(|p| p.expose_provenance() as u64);
        let variables = args.vars.iter().map(|&v| v as u64);
        let words: SmallVec<[u64; 24]> = storage.chain(variables).collect();
        self.threads.run(|thread| {
            area::with(self.own, |own| {
                // SAFETY: every buffer has the bytes its PARAM says and is claimed
                // (`Signature::arguments`), and the area those that the code was laid out for (`own_bytes`);
                // the verifier has shown every access to stay within them; threads write apart within a
                // phase, as the schedule sees to.
                unsafe { (self.entry)(words.as_ptr(), thread, own) }
            });
        });
        Ok(())
    }
}
