//! A program bound to storage: what `realize` would run, prepared once and launched as often as one
//! likes, on the same inputs, into the same storage. Flows in: roots of tensor graphs; flows out: their
//! values in storage of the program's own, again with every launch.
//!
//! Invariant: nothing else sees that storage, and nobody writes over the inputs while this is held. What a
//! root assigns goes to that storage too: a BUFFER keeps its value.

use crate::batch;
use crate::executable::{Action, Executable, executable};
use crate::queues::Queues;
use crate::realize::{read, resolved, until_free};
use crate::run::{Places, run_loop, submit};
use crate::versions::{self, Reading};
use crate::wrong::{Wrong, broken};
use monoglot_device::open;
use monoglot_schedule::{Arguments, callify};
use monoglot_uop::{Error, Op, ProgramInfo, Result, UOp};
use std::sync::Arc;

/// See the module.
pub struct Bound {
    executable: Arc<Executable>,
    arguments: Arguments,
    places: Places,
    _readings: Vec<Reading>,
}

/// Compile what these roots need, if that was not done before, and give it storage. Nothing runs yet,
/// and the roots stay as they are.
///
/// # Errors
/// As `realize`, but for what only running finds.
pub fn bind(roots: &[UOp]) -> Result<Bound> {
    until_free(|| {
        let roots = resolved(roots)?;
        let (function, arguments) = callify(&roots, |_| false)?;
        if let Some(param) = arguments.unbound() {
            let message = format!("{param:?} stands for nothing: it has no value here");
            return Err(Error::argument("PARAM", message).into());
        }
        let invocation = executable(&function, &roots)?;
        let mut readings = Vec::with_capacity(arguments.buffers.len());
        for buffer in &arguments.buffers {
            readings.push(versions::read(buffer)?);
        }
        let inputs = readings.iter().map(|r| r.storage().clone()).collect();
        let places = Places::new(&invocation, &arguments, inputs)?;
        Ok(Bound {
            executable: invocation.executable,
            arguments,
            places,
            _readings: readings,
        })
    })
}

impl Bound {
    /// Run the program to its end.
    ///
    /// # Errors
    /// What the device says, and `OutOfRange` where an assertion does not hold.
    pub fn launch(&self) -> Result<()> {
        let mut queues = Queues::default();
        let mut submitted = Ok(());
        let executable = &self.executable;
        let places = &self.places;
        let mut loops = batch::loops(executable, places.inputs.len())?
            .iter()
            .peekable();
        let mut next = 0;
        while submitted.is_ok() && next < executable.steps.len() {
            let list = loops.next_if(|l| l.steps.start == next);
            submitted = match list {
                Some(list) => run_loop(executable, list, places, &mut queues, |_| Ok(())),
                None => submit(&executable.steps[next], &[], places, &mut queues),
            };
            next = list.map_or(next + 1, |l| l.steps.end);
        }
        // What was submitted before a failure still runs on storage that is held here.
        let finished = queues.finish();
        submitted?;
        finished?;
        for check in &self.executable.checks {
            if let Some((condition, element)) = check.wrong(&self.places.allocations)? {
                let wrong = Wrong {
                    assert: self.arguments.asserts[condition].clone(),
                    element,
                    standing: Vec::new(),
                };
                return Err(wrong.error(read));
            }
        }
        Ok(())
    }

    /// What is known of each kernel of a launch, in order.
    pub fn kernels(&self) -> impl Iterator<Item = &ProgramInfo> {
        let steps = self.executable.steps.iter();
        let kernels = steps.filter(|s| matches!(s.action, Action::Launch(_)));
        kernels.map(|s| &*s.info)
    }

    /// The bytes that the last launch left for a root, by number. None where the root is a part of
    /// something, or an input.
    ///
    /// # Errors
    /// Where the device cannot be read.
    pub fn read(&self, root: usize) -> Result<Option<Vec<u8>>> {
        let Some(output) = self.executable.outputs.get(root) else {
            return Err(broken("bind", "there is no such root"));
        };
        let mut view = output;
        while view.op() == Op::Reshape {
            view = &view.src()[0];
        }
        if view.op() != Op::Buffer {
            return Ok(None);
        }
        let slot = view.buffer_arg().map_or(0, |b| b.slot as usize);
        let storage = &self.places.allocations[slot];
        let bytes = view.shape().max_len() as usize * view.dtype().bytes();
        let mut out = vec![0; bytes];
        open(storage.device())?.download(storage, 0, &mut out)?;
        Ok(Some(out))
    }
}
