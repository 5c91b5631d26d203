//! The RANGEs that a value is open in: those below it that no END or REDUCE has closed.

use crate::arg::Arg;
use crate::node::UOp;
use crate::op::Op;
use std::sync::Arc;

impl UOp {
    /// Open RANGEs, ordered by their number.
    pub fn ranges(&self) -> Arc<[UOp]> {
        static RANGE: crate::op::OpSet = crate::op::OpSet::of(&[Op::Range]);
        if !self.ops_below().intersects(RANGE) {
            return Arc::from([]);
        }
        self.fill(
            |u| u.ranges_cell().get().is_some(),
            |u| {
                let _ = u.ranges_cell().set(open(u));
            },
        );
        self.ranges_cell().get().cloned().unwrap_or_else(|| Arc::from([]))
    }
}

fn open(u: &UOp) -> Arc<[UOp]> {
    let mut all: Vec<UOp> = Vec::new();
    let closed = |r: &UOp| match u.op() {
        Op::End | Op::Reduce => u.src()[1..].contains(r),
        _ => false,
    };
    let pass = match u.op() {
        Op::End | Op::Reduce => &u.src()[..1],
        _ => u.src(),
    };
    let mut single: Option<Arc<[UOp]>> = None;
    for s in pass {
        let below = s.ranges_cell().get().cloned().unwrap_or_else(|| Arc::from([]));
        if below.is_empty() {
            continue;
        }
        for r in below.iter() {
            if !closed(r) && !all.contains(r) {
                all.push(r.clone());
            }
        }
        single = Some(below);
    }
    if u.op() == Op::Range {
        all.push(u.clone());
    }
    all.sort_by_key(|r| match r.arg() {
        Arg::Range(id, t) => (*id, *t),
        _ => (u32::MAX, crate::arg::AxisType::Loop),
    });
    match single {
        Some(s) if s[..] == all[..] => s,
        _ => all.into(),
    }
}
