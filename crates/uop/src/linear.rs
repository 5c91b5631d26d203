//! How the instructions of a linear program are read: which sources are values, and what an address
//! names. Shared by everything that takes such a program (back ends, interpreter). Flows in: an
//! instruction; flows out: how it is to be read. Invariant: it means the same to everybody who reads it
//! through this file.

mod lanes;
mod phases;

pub use lanes::{gathered, splat};
pub(crate) use phases::is_repeated;
pub use phases::{has_phases, phase_count, phases};

use crate::node::UOp;
use crate::op::Op;

/// What INDEX or SHRINK of storage names: the PARAM or BUFFER, the element (of a buffer of vectors, the
/// vector), and the lanes (0: one element).
pub struct Address<'a> {
    /// PARAM or BUFFER.
    pub buffer: &'a UOp,
    /// The first element.
    pub index: &'a UOp,
    /// Lanes of a vector access; 0 for a scalar one.
    pub lanes: usize,
}

impl Address<'_> {
    /// Whether the buffer's elements are vectors.
    pub fn rows(&self) -> bool {
        self.buffer.shape().len() > 1
    }
}

/// Lanes of a value; 0 for a scalar.
pub fn lanes(u: &UOp) -> usize {
    u.shape().first().and_then(|d| d.as_int()).unwrap_or(0) as usize
}

/// The storage that `u` is, under any AFTER; None for values.
pub fn storage_of(u: &UOp) -> Option<&UOp> {
    let b = u.named();
    (matches!(b.op(), Op::Param | Op::Buffer) && !b.shape().is_empty()).then_some(b)
}

/// `u` as an address; None for values, lanes of vectors among them.
pub fn address(u: &UOp) -> Option<Address<'_>> {
    if !matches!(u.op(), Op::Index | Op::Shrink) || u.src().len() < 2 {
        return None;
    }
    let buffer = storage_of(&u.src()[0])?;
    let index = match (u.op(), u.src()[1].op()) {
        (Op::Shrink, Op::Stack) => &u.src()[1].src()[0],
        _ => &u.src()[1],
    };
    Some(Address {
        buffer,
        index,
        lanes: lanes(u),
    })
}

/// Visit the values that an instruction reads, of a vector made of lanes of others those.
pub fn reads<'a>(u: &'a UOp, mut f: impl FnMut(&'a UOp)) {
    if let Some(s) = splat(u) {
        f(s);
    } else if let Some(([a, b], _)) = gathered(u) {
        f(a);
        if a != b {
            f(b);
        }
    } else {
        operands(u, f);
    }
}

/// Visit the values that an instruction reads. Addresses, shapes and the order of effects are none.
pub fn operands<'a>(u: &'a UOp, mut f: impl FnMut(&'a UOp)) {
    match u.op() {
        Op::Load | Op::Store | Op::AtomicAdd => {
            if let Some(a) = address(&u.src()[0]) {
                f(a.index);
            }
            u.src()[1..].iter().for_each(f);
        }
        Op::Index | Op::Shrink => {
            if address(u).is_none() {
                f(&u.src()[0]);
            }
        }
        Op::If => f(&u.src()[0]),
        Op::Shuffle => u.src()[..2].iter().for_each(f),
        Op::Param
        | Op::Buffer
        | Op::Const
        | Op::Special
        | Op::End
        | Op::EndIf
        | Op::Sink
        | Op::Barrier => {}
        _ => u.src().iter().for_each(f),
    }
}
