//! Jumps in bytes. Flows in: tops and ends of loops, skips and where they come to; flows out: labels and jumps of
//! the buffer. Always: a jump goes to a label of its own number and kind.

use super::buffer::Label;
use super::buffer::broken;
use super::emitter::Emitter;
use super::general::flags;
use crate::code::Cond;
use crate::code::Do;
use crate::code::Ins;
use monoglot_uop::Result;
use rustc_hash::FxHashMap;

/// The labels of a function.
#[derive(Default)]
pub(super) struct Labels {
    tops: FxHashMap<i64, Label>,
    ends: FxHashMap<i64, Label>,
}

impl Labels {
    /// The top of a loop; `after` is what comes after it.
    pub(super) fn top(&mut self, e: &mut Emitter<'_>, ins: &Ins, after: &[Ins]) -> Result<()> {
        let number = e.nth_number(ins, 0)?;
        let label = e.buffer.label();
        if self.tops.insert(number, label).is_some() {
            return Err(broken(format!("two loops {number}")));
        }
        // A search comes to the next top at the latest, so that all of them together are linear.
        let next = after
            .iter()
            .find(|i| matches!(i.op, Do::Loop | Do::Next))
            .map(|i| i.op);
        if next == Some(Do::Next) {
            e.buffer.align();
        }
        e.buffer.place(label);
        Ok(())
    }

    /// The end of a loop.
    pub(super) fn next(&mut self, e: &mut Emitter<'_>, ins: &Ins) -> Result<()> {
        let number = e.nth_number(ins, 2)?;
        let Some(label) = self.tops.get(&number).copied() else {
            return Err(broken(format!("loop {number} has no top")));
        };
        flags(e, ins)?;
        e.buffer.jump(number_of(Cond::Less), label);
        Ok(())
    }

    /// On to a `Land`.
    pub(super) fn skip(&mut self, e: &mut Emitter<'_>, ins: &Ins, condition: Cond) -> Result<()> {
        let number = e.nth_number(ins, 2)?;
        flags(e, ins)?;
        let label = self.end(e, number);
        e.buffer.jump(number_of(condition), label);
        Ok(())
    }

    /// Where skips come to.
    pub(super) fn land(&mut self, e: &mut Emitter<'_>, ins: &Ins) -> Result<()> {
        let number = e.nth_number(ins, 0)?;
        let label = self.end(e, number);
        e.buffer.place(label);
        Ok(())
    }

    fn end(&mut self, e: &mut Emitter<'_>, number: i64) -> Label {
        *self.ends.entry(number).or_insert_with(|| e.buffer.label())
    }
}

/// The condition as jumps have it: Intel's manual, volume 1, appendix B.
fn number_of(condition: Cond) -> u8 {
    match condition {
        Cond::Below => 0x2,
        Cond::AboveEqual => 0x3,
        Cond::Equal => 0x4,
        Cond::NotEqual => 0x5,
        Cond::BelowEqual => 0x6,
        Cond::Above => 0x7,
        Cond::Less => 0xc,
        Cond::GreaterEqual => 0xd,
        Cond::LessEqual => 0xe,
        Cond::Greater => 0xf,
    }
}
