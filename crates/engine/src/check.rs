//! What a program asserts. Flows in: a schedule, and while it runs the words that tell whether its
//! conditions hold; flows out: the first element that is wrong.
//!
//! Invariant: a word is read after the step that writes it, before the next step that writes in place,
//! and before any result is given out.

use crate::wrong::{broken, scalar};
use monoglot_device::{Storage, open};
use monoglot_schedule as schedule;
use monoglot_uop::{Arg, Device, Op, Result, UOp};
use std::sync::Arc;

/// A word of a program.
pub(crate) struct Check {
    /// The step that writes it.
    pub(crate) step: usize,
    /// Where it is.
    pub(crate) device: Device,
    pub(crate) word: schedule::Check,
}

/// The checks of a schedule, in the order of its steps.
pub(crate) fn checks(schedule: &schedule::Schedule) -> Result<Vec<Check>> {
    let mut out = Vec::new();
    for word in &schedule.checks {
        let device = schedule.plan.allocations[word.allocation].device;
        out.extend(Check::of(&schedule.linear, word.clone(), device)?);
    }
    out.sort_by_key(|c| c.step);
    Ok(out)
}

/// The CALL that writes an allocation which is an output's, and so written once.
fn writer(linear: &UOp, allocation: usize) -> Result<usize> {
    let writes = |call: &UOp| {
        let Arg::Call(info) = call.arg() else {
            return false;
        };
        let is = |u: &UOp| {
            let slot = u.buffer_arg().filter(|_| u.op() == Op::Buffer);
            slot.is_some_and(|b| b.slot as usize == allocation)
        };
        info.outs.iter().any(|&k| is(&call.src()[1 + k]))
    };
    let mut calls = linear.src().iter().filter(|u| u.op() == Op::Call);
    let found = calls.position(writes);
    found.ok_or_else(|| broken("schedule", "nothing writes the word of an assertion"))
}

impl Check {
    /// That of a word of a schedule; None where its device keeps no data.
    ///
    /// # Errors
    /// `Verify` where no CALL writes it.
    pub(crate) fn of(linear: &UOp, word: schedule::Check, device: Device) -> Result<Option<Check>> {
        if !open(device)?.holds_data() {
            return Ok(None);
        }
        Ok(Some(Check {
            step: writer(linear, word.allocation)?,
            device,
            word,
        }))
    }

    /// The condition that does not hold, by number, and the element that is wrong. What writes the word has
    /// run.
    pub(crate) fn wrong(&self, allocations: &[Arc<Storage>]) -> Result<Option<(usize, i64)>> {
        let mut bytes = [0; 8];
        let bytes = &mut bytes[..self.word.dtype.bytes()];
        open(self.device)?.download(&allocations[self.word.allocation], 0, bytes)?;
        let word = scalar(bytes, self.word.dtype);
        Ok(self.word.wrong(word.as_int().unwrap_or(0)))
    }
}
