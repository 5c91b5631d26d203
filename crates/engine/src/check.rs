//! What a program asserts. Flows in: a schedule, and while it runs the words that tell whether its
//! conditions hold; flows out: the first element that is wrong, and the error that says so.
//!
//! Invariant: a word is read after the step that writes it, before the next step that writes in place,
//! and before any result is given out.

use crate::realize;
use monoglot_device::{Storage, open};
use monoglot_schedule as schedule;
use monoglot_uop::{Arg, DType, Device, Dim, Error, ErrorKind, Op, Result, Scalar, Shape, UOp};
use std::panic::Location;
use std::sync::Arc;

/// A word of a program.
pub(crate) struct Check {
    /// The step that writes it.
    pub(crate) step: usize,
    /// Where it is.
    pub(crate) device: Device,
    word: schedule::Check,
}

/// An element of what an ASSERT is of that is wrong.
pub(crate) struct Wrong {
    /// The ASSERT.
    pub(crate) assert: UOp,
    /// The element, row-major.
    pub(crate) element: i64,
    /// The lines of assigns that were done before, and stand.
    pub(crate) standing: Vec<&'static Location<'static>>,
}

/// The checks of a schedule, in the order of its steps.
pub(crate) fn checks(schedule: &schedule::Schedule) -> Result<Vec<Check>> {
    let mut out = Vec::new();
    for word in &schedule.checks {
        let device = schedule.allocations[word.allocation].device;
        if open(device)?.holds_data() {
            out.push(Check {
                step: writer(&schedule.linear, word.allocation),
                device,
                word: word.clone(),
            });
        }
    }
    out.sort_by_key(|c| c.step);
    Ok(out)
}

/// The CALL that writes an allocation which is an output's, and so written once.
fn writer(linear: &UOp, allocation: usize) -> usize {
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
    let found = linear.src().iter().position(writes);
    found.expect("a word is written by a kernel")
}

impl Check {
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

impl Wrong {
    /// The error that names the element, and the line that asked for it.
    pub(crate) fn error(self) -> Error {
        let sizes = self.assert.src()[1].shape().max_ints();
        let mut position = vec![0; sizes.len()];
        let mut left = self.element;
        for (at, n) in position.iter_mut().zip(&sizes).rev() {
            *at = left % n;
            left /= n;
        }
        let rule = match self.assert.arg() {
            Arg::Text(rule) => rule.to_string(),
            _ => String::new(),
        };
        let error = Error::new(ErrorKind::OutOfRange {
            value: element(&self.assert.src()[0], &position).map(Scalar::to_i128),
            position,
            rule,
            standing: self.standing.iter().map(|l| l.to_string()).collect(),
        });
        match self.assert.line() {
            Some(line) => error.at(line),
            None => error,
        }
    }
}

/// One element of a value; None where what it is computed from is no more.
fn element(value: &UOp, position: &[i64]) -> Option<Scalar> {
    let start: Vec<Dim> = position.iter().map(|&at| Dim::Int(at)).collect();
    let one = value.shrink(&start, &Shape::of(&vec![1; position.len()]));
    let bytes = realize::read(&one.ok()?).ok()?;
    Some(scalar(&bytes, value.dtype()))
}

fn scalar(bytes: &[u8], dtype: DType) -> Scalar {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    Scalar::from_bits(u64::from_le_bytes(word), dtype)
}
