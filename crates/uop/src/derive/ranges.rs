//! The RANGEs that a value is open in: those below it that no END or REDUCE has closed. Flows in: a
//! node; flows out: those RANGEs, each once. Invariant: the list is shared by nodes that are open
//! in the same ones.

use crate::arg::AxisType;
use crate::node::UOp;
use crate::op::Op;
use std::sync::Arc;

impl UOp {
    /// Open RANGEs, ordered by their number.
    pub fn ranges(&self) -> Arc<[UOp]> {
        if !self.ops_below().contains(Op::Range) {
            return Arc::from([]);
        }
        let fill = |u: &UOp| _ = u.ranges_cell().set(open(u));
        self.fill(|u| u.ranges_cell().get().is_some(), fill);
        known(self).map_or_else(|| Arc::from([]), Arc::clone)
    }
}

fn known(u: &UOp) -> Option<&Arc<[UOp]>> {
    u.ranges_cell().get().filter(|r| !r.is_empty())
}

fn open(u: &UOp) -> Arc<[UOp]> {
    let closes = matches!(u.op(), Op::End | Op::Reduce);
    let (pass, closed) = u.src().split_at(if closes { 1 } else { u.src().len() });
    let mut all: Vec<UOp> = Vec::new();
    let mut last: Option<&Arc<[UOp]>> = None;
    for below in pass.iter().filter_map(known) {
        crate::effort::visited(below.len());
        for r in below.iter() {
            if !closed.contains(r) && !all.contains(r) {
                all.push(r.clone());
            }
        }
        last = Some(below);
    }
    if u.op() == Op::Range {
        all.push(u.clone());
    }
    all.sort_by_key(|r| r.range_arg().unwrap_or((u32::MAX, AxisType::Loop)));
    last.filter(|s| s[..] == all[..])
        .cloned()
        .unwrap_or_else(|| all.into())
}
