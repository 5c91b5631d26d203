//! What every device is to the engine. Host devices run a launch to its end before it returns; a
//! device with queues returns once the launch is queued, keeps its own order, and finishes in
//! `synchronize` (which `download` implies).

use crate::storage::Storage;
use monoglot_uop::{Arg, Device, Error, ErrorKind, Op, ProgramInfo, Result, Target, UOp};
use std::sync::Arc;

/// One opened device.
pub trait Runtime: Send + Sync {
    /// Its name.
    fn device(&self) -> Device;

    /// The machine, as the compiler sees it.
    fn target(&self) -> &Target;

    /// What it is, and what it is on this machine: one line.
    fn about(&self) -> String;

    /// Storage of so many bytes, contents unspecified.
    ///
    /// # Errors
    /// `Memory`, where there is not that much: decided before it is asked for.
    fn alloc(&self, bytes: usize) -> Result<Arc<Storage>>;

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
    let broken = |message: &str| {
        Error::new(ErrorKind::Verify { stage: "program".into(), message: format!("{program:?}: {message}") })
    };
    let Arg::Program(info) = program.arg() else { return Err(broken("no ProgramInfo")) };
    let linear = program.src().iter().find(|u| u.op() == Op::Linear).ok_or_else(|| broken("no LINEAR"))?;
    let source = program.src().iter().find(|u| u.op() == Op::Source);
    match source.map(|s| s.arg()) {
        Some(Arg::Text(text)) => Ok((linear, text, info)),
        _ => Err(broken("no SOURCE")),
    }
}

/// The storage arguments of a program, in the order of `launch`: slots, bytes each at least.
pub(crate) fn storage_params(linear: &UOp, info: &ProgramInfo) -> Vec<(usize, usize)> {
    let mut slots: Vec<(usize, usize)> = info.outs.iter().chain(&info.ins).map(|&s| (s, 0)).collect();
    for p in linear.src().iter().filter(|u| u.op() == Op::Param && !u.shape().is_empty()) {
        if let Some(b) = p.buffer_arg() {
            slots.push((b.slot as usize, p.shape().max_len() as usize * b.dtype.bytes()));
        }
    }
    slots.sort_unstable();
    slots.dedup_by(|later, kept| {
        let same = later.0 == kept.0;
        if same {
            kept.1 = kept.1.max(later.1);
        }
        same
    });
    slots
}

/// Check the arguments of a launch against what the program's PARAMs say.
pub(crate) fn check_launch(
    name: &str,
    needs: &[usize],
    vars: usize,
    bufs: &[Arc<Storage>],
    given: &[i64],
) -> Result<()> {
    let fail =
        |message: String| Err(Error::new(ErrorKind::Run { message: format!("kernel {name}: {message}") }));
    if bufs.len() != needs.len() || given.len() != vars {
        return fail(format!(
            "{} buffers and {} variables were given; it takes {} and {vars}",
            bufs.len(),
            given.len(),
            needs.len()
        ));
    }
    for (k, (b, need)) in bufs.iter().zip(needs).enumerate() {
        if b.bytes() < *need {
            return fail(format!("argument {k} has {} bytes; it needs {need}", b.bytes()));
        }
    }
    Ok(())
}
