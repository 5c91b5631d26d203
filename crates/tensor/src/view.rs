//! Views, and which of them can be written through: those whose elements all are places of their own. Flows in: a
//! view over what stands for its base; flows out: what the view shows of a base.

use monoglot_uop::{Error, Op, Result, UOp};

/// What this base looks like through a view whose elements all are places of their own.
pub(crate) fn shown(to: &UOp, base: &UOp) -> Result<UOp> {
    hole(to).map(|_| over(to, base))
}

/// What this base looks like through a view.
pub(crate) fn over(to: &UOp, base: &UOp) -> UOp {
    let map = [(to.viewed().clone(), base.clone())];
    to.substitute(&map.into_iter().collect())
}

/// What stands for the base in a view, whose elements all are places of their own.
pub(crate) fn hole(to: &UOp) -> Result<&UOp> {
    let mut at = to;
    while at.op() != Op::Param {
        if !at.op().is_movement() || matches!(at.op(), Op::Stack | Op::Expand | Op::Index) {
            return Err(Error::argument(
                "assign",
                format!("to a view through {}", at.op().name()),
            ));
        }
        at = &at.src()[0];
    }
    Ok(at)
}
