//! MAX. Intervals decide it, also those of the difference; NaN stays NaN. Flows in: a node of these
//! ops; flows out: an equal value that costs no more, or nothing. Always: what an interval does not
//! decide stays.

use super::compare::difference;
use super::{int, int_const, interval};
use crate::dtype::DType;
use crate::node::UOp;
use crate::op::Op;
use crate::rewrite::Rule;
use crate::rule;

pub(super) fn rules() -> Vec<Rule> {
    vec![
        // of truth values, max is or
        rule!(max_bools[x, y]: x.max_(y) => x | y, if x.dtype() == DType::Bool),
        // max(max(x, y), y) = max(x, y)
        rule!(max_again[u, x, y]: x.max_(y).bind(u).max_(y) => u),
        // max(x, y) = x where x ≥ y
        rule!(max_known[x, y]: x.max_(y) => known(x, y), if x.dtype().is_int()),
        // max(x + c, d) = max(x, d - c) + c, where nothing wraps
        rule!(max_offset[x, c: cnst, d: cnst]: (x + c).max_(d) => offset(x, int(c)?, int(d)?), if x.dtype() == DType::Index),
        // c < max(x, d) is c < x, and max(x, d) < c is x < c, where d does not decide
        rule!(less_max[x, c: cnst, d: cnst]: c.lt(x.max_(d)) => c.lt(x), if int(d).zip(int(c)).is_some_and(|(d, c)| d <= c)),
        rule!(max_less[x, c: cnst, d: cnst]: x.max_(d).lt(c) => x.lt(c), if int(d).zip(int(c)).is_some_and(|(d, c)| d < c)),
    ]
}

fn known(x: &UOp, y: &UOp) -> Option<UOp> {
    let (a, aa) = interval(x);
    let (b, bb) = interval(y);
    // The bounds of x - y decide.
    let greater = |(lo, hi): (i128, i128)| {
        if lo >= 0 {
            Some(x)
        } else {
            (hi <= 0).then_some(y)
        }
    };
    let by_terms = || greater(difference(x, y).filter(|_| y.op() != Op::Const)?.interval());
    greater((a - bb, aa - b)).or_else(by_terms).cloned()
}

fn offset(x: &UOp, c: i128, d: i128) -> Option<UOp> {
    let d = d.checked_sub(c)?;
    Some(x.max_(&int_const(d, x.dtype())) + int_const(c, x.dtype()))
}
