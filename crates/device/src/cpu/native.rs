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
use crate::code::{self, Launch, Packed};
use crate::config::Config;
use crate::folder::TrustedCode;
use crate::kernel::{Arguments, Kernel, Signature, program_binary, program_parts, program_source};
use crate::kind::missing;
use crate::pool::{Budget, Pool};
use crate::queue::{Host, Queue};
use crate::runtime::{Runtime, Unpacked};
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

    /// Code where it can be run.
    fn functions(&self, codes: &[&[u8]]) -> Result<Vec<Function>> {
        pages::load(codes).map_err(|e| {
            let message = format!(
                "there is no memory for code that can be executed ({e}); DEV=CPU:C takes none"
            );
            missing(self.target.device, message)
        })
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
        program_source(program).map(|s| Some(s.to_string()))
    }

    fn code_key(&self) -> Option<String> {
        let Target {
            dialect,
            arch,
            matrix_units,
            ..
        } = &self.target;
        let units: Vec<&str> = matrix_units.iter().map(|u| &*u.name).collect();
        let version = env!("CARGO_PKG_VERSION");
        let units = units.join("+");
        Some(format!("{version} {} {arch} {units}", dialect.name()))
    }

    fn pack(&self, programs: &[Program]) -> Result<Option<Packed>> {
        let mut object = Vec::new();
        let mut launches = Vec::with_capacity(programs.len());
        for program in programs {
            let code = program_binary(program)?;
            let (linear, _) = program_parts(program)?;
            let at = object.len() as u128;
            launches.push(Launch::of(program, own_bytes(linear), at, code.len())?);
            object.extend_from_slice(code);
        }
        let launches = code::written(&launches);
        Ok(Some(Packed { launches, object }))
    }

    fn unpack(&self, saved: &TrustedCode) -> Result<Vec<Unpacked>> {
        let launches = code::launches(&saved.launches)?;
        let mut codes = Vec::with_capacity(launches.len());
        for launch in &launches {
            let place = usize::try_from(launch.at).ok();
            let end = place.and_then(|at| at.checked_add(launch.bytes));
            let code = place
                .zip(end)
                .and_then(|(at, end)| saved.object.get(at..end));
            codes.push(code.filter(|c| !c.is_empty()).ok_or_else(code::unknown)?);
        }
        let functions = self.functions(&codes)?;
        let mut kernels: Vec<Unpacked> = Vec::with_capacity(launches.len());
        for (launch, function) in launches.into_iter().zip(functions) {
            let info = launch.info.clone();
            // SAFETY: the code is that of a program as `pack` was given it: nobody else may write it, and it
            // is whole (`TrustedCode`); and this machine has what it was made for (`code_key`).
            let entry = unsafe { std::mem::transmute::<*const u8, Entry>(function.start()) };
            let kernel = NativeKernel {
                entry,
                _listed: fault::list(function.start(), function.bytes(), &info.name),
                _function: function,
                threads: Threads::saved(&launch, &self.pool),
                own: launch.own,
                signature: launch.signature,
            };
            kernels.push((Arc::new(kernel), info));
        }
        Ok(kernels)
    }

    fn compile(&self, programs: &[Program]) -> Result<Vec<Arc<dyn Kernel>>> {
        let codes = programs.iter().map(|p| program_binary(p));
        let codes = codes.collect::<Result<Vec<_>>>()?;
        let functions = self.functions(&codes)?;
        let mut kernels: Vec<Arc<dyn Kernel>> = Vec::with_capacity(programs.len());
        let mut names = Vec::with_capacity(programs.len());
        for (program, function) in programs.iter().zip(functions) {
            let (linear, info) = program_parts(program)?;
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
