//! Rows of an argument that a kernel reads before it writes over them. Flows in: a kernel's nodes; flows out: which of
//! its RANGEs are around a row, and which inside. Invariant: the loops inside a row stay inside those around it, and
//! no two threads have parts of one row: else a row would be written before all of it is read. For the same reason such
//! a kernel gets no storage of its own that could be filled again inside a row.
//!
//! Which kernels may do so is decided where storage is (`rows` in the schedule room).

use crate::scratch;
use monoglot_uop::{AddrSpace, AxisType, Op, Opt, OptOp, UOp};
use smallvec::SmallVec;

/// The RANGEs of a kernel, by number, whose turns write a row each, and those inside; none where nothing is read but
/// where it is written.
#[derive(Clone, Default)]
pub(super) struct Rows {
    around: SmallVec<[usize; 4]>,
    inside: SmallVec<[usize; 4]>,
}

impl Rows {
    pub(super) fn of(nodes: &[UOp], ranges: &[UOp]) -> Rows {
        let mut rows = Rows::default();
        for store in nodes.iter().filter(|u| u.op() == Op::Store) {
            let to = &store.src()[0];
            let is_argument =
                to.op() == Op::Index && to.src()[0].addrspace() == Some(AddrSpace::Global);
            if !is_argument {
                continue;
            }
            let storage = to.src()[0].named();
            let reads = nodes.iter().filter(|u| u.op() == Op::Index && *u != to);
            for read in reads.filter(|u| u.src()[0].named() == storage) {
                let over = read.ranges();
                if over.iter().all(|r| to.ranges().contains(r)) {
                    continue;
                }
                for r in to.ranges().iter() {
                    let Some(of) = ranges.iter().position(|x| x == r) else {
                        continue;
                    };
                    let list = match over.contains(r) {
                        true => &mut rows.around,
                        false => &mut rows.inside,
                    };
                    list.push(of);
                }
            }
        }
        rows
    }

    pub(super) fn is_empty(&self) -> bool {
        self.inside.is_empty()
    }

    /// Whether an Opt puts storage of the kernel's own between such reads and what is made of them. An axis is the
    /// number of its RANGE and its type.
    pub(super) fn refuse(&self, opt: &Opt, axes: &[(usize, AxisType)]) -> bool {
        let kind = |at: usize| axes.get(at).map(|a| a.1);
        match opt.op {
            OptOp::Stage { .. } | OptOp::Scatter | OptOp::Scan { .. } => true,
            OptOp::Swap { with } => kind(with) != kind(opt.axis),
            _ => false,
        }
    }

    /// Whether axes are in an order in which each row is read before it is written; there are some.
    pub(super) fn are_kept(&self, axes: &[(usize, AxisType)]) -> bool {
        let around =
            |(of, kind): &(usize, AxisType)| scratch::sets_anew(*kind) && self.around.contains(of);
        let last = axes.iter().rposition(around);
        let keeps = |(at, (of, kind)): (usize, &(usize, AxisType))| match kind {
            AxisType::Upcast | AxisType::Unroll | AxisType::Reduce => true,
            AxisType::Loop => !self.inside.contains(of) || last.is_none_or(|last| last < at),
            _ => self.around.contains(of) && !self.inside.contains(of),
        };
        axes.iter().enumerate().all(keeps)
    }
}
