//! The RANGEs that a value is open in: those below it that no END or REDUCE has closed. Flows in: a
//! node; flows out: those RANGEs, each once. Invariant: the list is shared by nodes that are open
//! in the same ones.

use crate::arg::AxisType;
use crate::node::{Ranges, UOp};
use crate::op::Op;

impl UOp {
    /// Open RANGEs, ordered by their number.
    pub fn ranges(&self) -> Ranges {
        if !self.ops_below().contains(Op::Range) {
            return Ranges::default();
        }
        let fill = |u: &UOp| _ = u.ranges_cell().set(open(u));
        self.fill(|u| u.ranges_cell().get().is_some(), fill);
        known(self).cloned().unwrap_or_default()
    }
}

fn known(u: &UOp) -> Option<&Ranges> {
    u.ranges_cell().get().filter(|r| !r.is_empty())
}

fn open(u: &UOp) -> Ranges {
    let closes = matches!(u.op(), Op::End | Op::Reduce);
    let closed = &u.src()[if closes { 1 } else { u.src().len() }..];
    let sources = || u.src().iter().filter_map(known);
    sources().for_each(|below| crate::effort::visited(below.len()));
    // Mostly one source has all that the others have.
    let longest = sources().max_by_key(|below| below.len());
    if let Some(longest) = longest.filter(|_| closed.is_empty() && u.op() != Op::Range)
        && sources().all(|below| below.iter().all(|r| longest.contains(r)))
    {
        return longest.clone();
    }
    let mut all: Vec<UOp> = Vec::new();
    // A loop's bounds may vary with one around it, whatever its body does.
    for r in sources().flat_map(|below| below.iter()) {
        if !closed.contains(r) && !all.contains(r) {
            all.push(r.clone());
        }
    }
    if u.op() == Op::Range {
        all.push(u.clone());
    }
    all.sort_by_key(|r| r.range_arg().unwrap_or((u32::MAX, AxisType::Loop)));
    let same = sources().find(|below| below[..] == all[..]);
    same.cloned().unwrap_or_else(|| all.into())
}
