//! Kernels: compiled programs, and what a launch of one takes. Flows in: a program's linear list and
//! record; flows out: a `Signature`, against which every launch is checked.
//!
//! Invariant: `Arguments` exist only for a launch that fits the signature, while its storage is claimed: by
//! themselves, or by the list of launches (`commands`) that made them.

use crate::storage::{Claims, Storage, claim};
use monoglot_uop::linear::address;
use monoglot_uop::{Arg, BufferArg, DType, Error, ErrorKind, Op, ProgramInfo, Result, UOp};
use smallvec::SmallVec;
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;

/// A program, ready to run on its device. Launches go through a queue of the device.
pub trait Kernel: Any + Send + Sync {
    /// What a launch takes.
    fn signature(&self) -> &Signature;

    /// Run to the end, on this thread and those it has to help. A device that does not run on the host
    /// finds its own kernels behind the trait instead.
    ///
    /// # Errors
    /// `Run`, where the kernel does not run on the host, or the interpreter finds a fault.
    fn run(&self, _args: &Arguments) -> Result<()> {
        Err(self.signature().fail("does not run on the host"))
    }
}

/// LINEAR and record of a PROGRAM node.
///
/// # Errors
/// `Verify` where `program` is not PROGRAM(sink, LINEAR, …).
pub fn program_parts(program: &UOp) -> Result<(&UOp, &Arc<ProgramInfo>)> {
    let linear = program.src().iter().find(|u| u.op() == Op::Linear);
    match (program.arg(), linear) {
        (Arg::Program(info), Some(linear)) => Ok((linear, info)),
        _ => Err(lacks(program, "PROGRAM(sink, LINEAR, …)")),
    }
}

/// The source text of a PROGRAM node. A listing of machine code is written when it is asked for first.
///
/// # Errors
/// `Verify` where `program` is not PROGRAM(sink, LINEAR, SOURCE).
pub fn program_source(program: &UOp) -> Result<&str> {
    let source = program.src().iter().find(|u| u.op() == Op::Source);
    let text = source.and_then(|source| source.arg().text());
    text.ok_or_else(|| lacks(program, "PROGRAM(sink, LINEAR, SOURCE)"))
}

fn lacks(program: &UOp, what: &str) -> Error {
    let message = format!("{program:?} is not {what}");
    ErrorKind::Verify {
        stage: "program".into(),
        message,
    }
    .into()
}

/// The machine code of a PROGRAM node.
///
/// # Errors
/// `Verify` where it has none.
pub fn program_binary(program: &UOp) -> Result<&[u8]> {
    let binary = program.src().iter().find(|u| u.op() == Op::Binary);
    match binary.map(UOp::arg) {
        Some(Arg::Bytes(code)) if !code.is_empty() => Ok(code),
        _ => Err(ErrorKind::Verify {
            stage: "program".into(),
            message: format!("{program:?} has no machine code"),
        }
        .into()),
    }
}

/// A storage argument of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Need {
    /// The PARAM's slot.
    pub(crate) slot: usize,
    /// Bytes that it has at least.
    pub(crate) bytes: usize,
    /// What its address is a multiple of.
    pub(crate) align: usize,
    /// Whether the program writes it.
    pub(crate) writes: bool,
}

/// What a launch of a program takes: storage by slot, and so many variables.
#[derive(Clone, Debug)]
pub struct Signature {
    name: String,
    needs: Vec<Need>,
    /// The least and greatest value of each variable that has bounds, which the program relies on.
    vars: Vec<Option<(i64, i64)>>,
}

/// What a launch gives to a kernel that runs on the host.
pub struct Arguments<'a> {
    pub(crate) ptrs: SmallVec<[*mut u8; 16]>,
    pub(crate) vars: &'a [i64],
    _claims: Claims<'a>,
}

impl<'a> Arguments<'a> {
    /// Those of a launch in a list whose storage is claimed and checked as a whole (`Commands`).
    pub(crate) fn of_claimed(ptrs: SmallVec<[*mut u8; 16]>, vars: &'a [i64]) -> Arguments<'a> {
        Arguments {
            ptrs,
            vars,
            _claims: claim([]),
        }
    }
}

// SAFETY: the pointers are into claimed storage, whose claims last as long as this.
unsafe impl Sync for Arguments<'_> {}

impl Signature {
    /// That of a program: what its list says, and the slots that its record names besides.
    pub(crate) fn of(linear: &UOp, info: &ProgramInfo) -> Signature {
        let mut needs: BTreeMap<usize, Need> = BTreeMap::new();
        let mut need = |slot: usize, bytes: usize, align: usize, writes: bool| {
            let n = needs.entry(slot).or_insert(Need {
                slot,
                ..Need::default()
            });
            n.bytes = n.bytes.max(bytes);
            n.align = n.align.max(align);
            n.writes |= writes;
        };
        info.ins.iter().for_each(|&slot| need(slot, 0, 1, false));
        info.outs.iter().for_each(|&slot| need(slot, 0, 1, true));
        for u in linear.src() {
            if u.op() == Op::Param
                && !u.shape().is_empty()
                && let Some(b) = u.buffer_arg()
            {
                let size = b.dtype.bytes();
                let bytes = u.shape().max_len() as usize * size;
                need(b.slot as usize, bytes, size, false);
            }
            if matches!(u.op(), Op::Store | Op::AtomicAdd)
                && let Some(a) = address(&u.src()[0])
                && a.buffer.op() == Op::Param
                && let Some(b) = a.buffer.buffer_arg()
            {
                need(b.slot as usize, 0, 1, true);
            }
        }
        Signature {
            name: info.name.clone(),
            needs: needs.into_values().collect(),
            vars: info.vars.iter().map(|&slot| bounds(linear, slot)).collect(),
        }
    }

    /// That of a kernel whose program is not here, by what `needs` and `bounds` gave of it.
    pub(crate) fn from_parts(
        name: String,
        needs: Vec<Need>,
        vars: Vec<Option<(i64, i64)>>,
    ) -> Signature {
        Signature { name, needs, vars }
    }

    /// That of work on arrays of so many elements, of which the first `outs` are written.
    pub(crate) fn of_arrays(
        name: &str,
        arrays: impl Iterator<Item = (DType, i64)>,
        outs: usize,
    ) -> Signature {
        let need = |(slot, (dtype, len)): (usize, (DType, i64))| Need {
            slot,
            bytes: len as usize * dtype.bytes(),
            align: dtype.bytes(),
            writes: slot < outs,
        };
        Signature {
            name: name.into(),
            needs: arrays.enumerate().map(need).collect(),
            vars: Vec::new(),
        }
    }

    /// The storage arguments, in the order of a launch.
    pub(crate) fn needs(&self) -> &[Need] {
        &self.needs
    }

    /// The bounds of its variables, of those that have any.
    pub(crate) fn bounds(&self) -> &[Option<(i64, i64)>] {
        &self.vars
    }

    /// An error of a run.
    pub(crate) fn fail(&self, message: impl Display) -> Error {
        ErrorKind::Run {
            message: format!("kernel {}: {message}", self.name),
        }
        .into()
    }

    /// Check how many arguments a launch has.
    ///
    /// # Errors
    /// `Run`, where there are too few or too many.
    pub(crate) fn count(&self, bufs: usize, vars: usize) -> Result<()> {
        let takes = (self.needs.len(), self.vars.len());
        if (bufs, vars) == takes {
            return Ok(());
        }
        let message = format!(
            "{bufs} buffers and {vars} variables were given; it takes {} and {}",
            takes.0, takes.1
        );
        Err(self.fail(message))
    }

    /// Check what a launch is given against what the program's PARAMs say.
    ///
    /// # Errors
    /// `Run`, where there is too little or too much of anything.
    pub fn check(&self, bufs: &[Arc<Storage>], vars: &[i64]) -> Result<()> {
        self.count(bufs.len(), vars.len())?;
        for (k, (buf, need)) in bufs.iter().zip(&self.needs).enumerate() {
            let has = buf.bytes();
            let needs = need.bytes;
            if has < needs {
                return Err(self.fail(format!("argument {k} has {has} bytes; it needs {needs}")));
            }
        }
        for (k, (&value, bounds)) in vars.iter().zip(&self.vars).enumerate() {
            if let Some((least, most)) = *bounds
                && !(least..=most).contains(&value)
            {
                let message = format!("variable {k} is {value}; it is from {least} to {most}");
                return Err(self.fail(message));
            }
        }
        Ok(())
    }

    /// The arguments of a launch in host memory, checked, and claimed until they are dropped.
    ///
    /// # Errors
    /// As `check`; and where storage is not in host memory, or between two elements.
    pub fn arguments<'a>(
        &self,
        bufs: &'a [Arc<Storage>],
        vars: &'a [i64],
    ) -> Result<Arguments<'a>> {
        self.check(bufs, vars)?;
        let mut ptrs = SmallVec::with_capacity(bufs.len());
        for (k, (buf, need)) in bufs.iter().zip(&self.needs).enumerate() {
            let Some(p) = buf.pointer() else {
                return Err(self.fail(format!("{buf:?} is not in host memory")));
            };
            if !(p as usize).is_multiple_of(need.align) {
                return Err(self.fail(format!("argument {k} starts between two elements")));
            }
            ptrs.push(p);
        }
        let wanted = bufs.iter().zip(&self.needs).map(|(b, n)| (&**b, n.writes));
        Ok(Arguments {
            ptrs,
            vars,
            _claims: claim(wanted),
        })
    }
}

/// The bounds of the variable of that slot, where it has any.
fn bounds(linear: &UOp, slot: usize) -> Option<(i64, i64)> {
    let variable = linear.src().iter().find(|u| {
        let of_slot = |b: &BufferArg| b.slot == slot as u64;
        u.is_variable() && u.buffer_arg().is_some_and(of_slot)
    })?;
    // The shape, then the bounds.
    (variable.src().len() > 1).then(|| variable.bounds())
}
