//! What every device is to the engine. Host devices run a launch to its end before it returns; a
//! device with queues returns once the launch is queued, keeps its own order, and finishes in
//! `synchronize` (which `download` implies).

use crate::storage::Storage;
use monoglot_uop::{Arg, Device, Error, ErrorKind, Op, ProgramInfo, Result, Target, UOp};
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::fmt::Display;
use std::sync::Arc;

/// One opened device.
pub trait Runtime: Send + Sync {
    /// Its name.
    fn device(&self) -> Device {
        self.target().device
    }

    /// The machine, as the compiler sees it.
    fn target(&self) -> &Target;

    /// What it is, and what it is on this machine: one line.
    fn about(&self) -> String;

    /// Storage of so many bytes, contents unspecified.
    ///
    /// # Errors
    /// `Memory`, where there is not that much: decided before it is asked for.
    fn alloc(&self, bytes: usize) -> Result<Arc<Storage>> {
        Storage::host(self.device(), bytes)
    }

    /// Copy bytes from the host to `offset` in storage of this device.
    fn upload(&self, to: &Storage, offset: usize, bytes: &[u8]) -> Result<()> {
        to.write(offset, bytes)
    }

    /// Copy bytes at `offset` of storage of this device to the host, once what writes them has run.
    fn download(&self, from: &Storage, offset: usize, out: &mut [u8]) -> Result<()> {
        from.read(offset, out)
    }

    /// Compile PROGRAM(sink, LINEAR, SOURCE) nodes, many at once; the results are in their order. A
    /// program compiled before in this process, or found in the disk cache, costs no compiler.
    ///
    /// # Errors
    /// `NoDevice` where no compiler is found, `Compile` where one rejects a source.
    fn compile(&self, programs: &[UOp]) -> Result<Vec<Arc<dyn Kernel>>>;

    /// The machine code of a PROGRAM as text, where the device has such a thing.
    fn assembly(&self, _program: &UOp) -> Result<Option<String>> {
        Ok(None)
    }

    /// Wait until everything launched has run.
    fn synchronize(&self) -> Result<()> {
        Ok(())
    }
}

/// A program, ready to run on its device.
pub trait Kernel: Send + Sync {
    /// Run on storage in the order of the PARAMs' slots (variables left out) and the values of
    /// `ProgramInfo::vars`. The caller keeps launches that touch the same storage in order.
    ///
    /// # Errors
    /// `Run`, where buffers are missing or too small, or the interpreter finds a fault.
    fn launch(&self, bufs: &[Arc<Storage>], vars: &[i64]) -> Result<()>;
}

/// LINEAR, source text and record of a PROGRAM node.
///
/// # Errors
/// `Verify` where `program` is not PROGRAM(sink, LINEAR, SOURCE).
pub fn program_parts(program: &UOp) -> Result<(&UOp, &str, &Arc<ProgramInfo>)> {
    let part = |op: Op| program.src().iter().find(|u| u.op() == op);
    match (
        program.arg(),
        part(Op::Linear),
        part(Op::Source).map(UOp::arg),
    ) {
        (Arg::Program(info), Some(linear), Some(Arg::Text(text))) => Ok((linear, text, info)),
        _ => {
            let message = format!("{program:?} is not PROGRAM(sink, LINEAR, SOURCE)");
            Err(ErrorKind::Verify {
                stage: "program".into(),
                message,
            }
            .into())
        }
    }
}

/// The storage arguments of a program, in the order of `launch`: slots, bytes each at least.
pub(crate) fn storage_params(linear: &UOp, info: &ProgramInfo) -> Vec<(usize, usize)> {
    let mut slots: Vec<(usize, usize)> =
        info.outs.iter().chain(&info.ins).map(|&s| (s, 0)).collect();
    for p in linear
        .src()
        .iter()
        .filter(|u| u.op() == Op::Param && !u.shape().is_empty())
    {
        if let Some(b) = p.buffer_arg() {
            slots.push((
                b.slot as usize,
                p.shape().max_len() as usize * b.dtype.bytes(),
            ));
        }
    }
    slots.sort_unstable_by_key(|&(slot, bytes)| (slot, Reverse(bytes)));
    slots.dedup_by_key(|s| s.0);
    slots
}

/// What a launch of a program takes: at least so many bytes of each buffer, so many variables.
pub(crate) struct Signature {
    name: String,
    needs: Vec<usize>,
    vars: usize,
}

/// What a launch gives to a program, checked.
pub(crate) struct Arguments<'a> {
    pub(crate) ptrs: SmallVec<[*mut u8; 16]>,
    pub(crate) vars: &'a [i64],
}

// SAFETY: the pointers are of storages that the caller of `launch` keeps alive and leaves to it.
unsafe impl Sync for Arguments<'_> {}

impl Signature {
    pub(crate) fn of(linear: &UOp, info: &ProgramInfo) -> Signature {
        let needs = storage_params(linear, info).iter().map(|p| p.1).collect();
        Signature {
            name: info.name.clone(),
            needs,
            vars: info.vars.len(),
        }
    }

    /// An error of a run.
    pub(crate) fn fail(&self, message: impl Display) -> Error {
        ErrorKind::Run {
            message: format!("kernel {}: {message}", self.name),
        }
        .into()
    }

    /// Check the arguments of a launch against what the program's PARAMs say.
    pub(crate) fn check(&self, bufs: &[Arc<Storage>], vars: &[i64]) -> Result<()> {
        let (takes, given) = ((self.needs.len(), self.vars), (bufs.len(), vars.len()));
        if given != takes {
            let (n, v) = given;
            let message = format!(
                "{n} buffers and {v} variables were given; it takes {} and {}",
                takes.0, takes.1
            );
            return Err(self.fail(message));
        }
        let small = bufs
            .iter()
            .zip(&self.needs)
            .position(|(b, need)| b.bytes() < *need);
        small.map_or(Ok(()), |k| {
            let (has, needs) = (bufs[k].bytes(), self.needs[k]);
            Err(self.fail(format!("argument {k} has {has} bytes; it needs {needs}")))
        })
    }

    /// The arguments in host memory, checked.
    pub(crate) fn arguments<'a>(
        &self,
        bufs: &[Arc<Storage>],
        vars: &'a [i64],
    ) -> Result<Arguments<'a>> {
        self.check(bufs, vars)?;
        let pointer = |b: &Arc<Storage>| {
            b.host_ptr()
                .ok_or_else(|| self.fail(format!("{b:?} is not in host memory")))
        };
        Ok(Arguments {
            ptrs: bufs.iter().map(pointer).collect::<Result<_>>()?,
            vars,
        })
    }
}
