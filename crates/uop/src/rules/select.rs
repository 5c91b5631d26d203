//! WHERE. Conditions lose their NOT, nested choices become one, and what is done to a choice
//! between constants is done to the constants. Flows in: a node of these ops; flows out: an equal
//! value that costs no more, or nothing. Always: both choices are values without effects, so the
//! one not chosen may be dropped.

use super::compare::not;
use crate::dtype::DType;
use crate::fold;
use crate::node::UOp;
use crate::op::{Op, OpSet};
use crate::rewrite::Rule;
use crate::rule;

const BINARY: OpSet = {
    use Op::*;
    OpSet::of(&[
        Add, Sub, Mul, Max, Idiv, Mod, Div, CmpLt, CmpNe, CmpEq, CmpGt, CmpGe, CmpLe, And, Or, Xor,
        Shl, Shr,
    ])
};
const UNARY: OpSet = OpSet::of(&[Op::Cast, Op::Neg, Op::Not, Op::Trunc, Op::Recip]);

pub(super) fn rules() -> Vec<Rule> {
    vec![
        // true chooses the first, false the second
        rule!(where_true[x, y]: Pat::op(Op::Where, [true.into_pat(), x.into_pat(), y.into_pat()]) => x),
        rule!(where_false[x, y]: Pat::op(Op::Where, [false.into_pat(), x.into_pat(), y.into_pat()]) => y),
        // a choice between x and x is x
        rule!(where_same[c, x]: c.select(x, x) => x),
        // not c exchanges the two; a gate keeps its invalid value last
        rule!(where_not[c, x, y]: c.under(Op::Not).select(x, y) => c.select(y, x), if !y.is_invalid()),
        // a choice between truth values is logic
        rule!(where_and[c, x]: c.select(x, false) => c & x),
        rule!(where_or[c, x]: c.select(true, x) => c | x),
        rule!(where_not_or[c, x]: c.select(x, true) => &not(c) | x),
        rule!(where_not_and[c, x]: c.select(false, x) => &not(c) & x),
        // c ? (c ? x : y) : z = c ? x : z, and the other way round
        rule!(where_again[c, x, y, z]: c.select(c.select(x, y), z) => c.select(x, z)),
        rule!(where_else_again[c, x, y, z]: c.select(x, c.select(y, z)) => c.select(x, z)),
        // a ? (b ? x : y) : y = (a and b) ? x : y
        rule!(where_both[a, b, x, y]: a.select(b.select(x, y), y) => (a & b).select(x, y)),
        // a ? (b ? y : x) : y = (a and not b) ? x : y
        rule!(where_first_only[a, b, x, y]: a.select(b.select(y, x), y) => (a & &not(b)).select(x, y)),
        // a ? x : (b ? x : y) = (a or b) ? x : y
        rule!(where_either[a, b, x, y]: a.select(x, b.select(x, y)) => (a | b).select(x, y)),
        // a < b ? b : a = max(a, b), for integers (NaN)
        rule!(where_max[a, b]: a.lt(b).select(b, a) => a.max_(b), if a.dtype().is_int()),
        // what is done to a choice between constants is done to the constants
        rule!(where_op_constant[u, c, x: cnst, y: cnst, z: cnst]: c.select(x, y).with_(BINARY, z).bind(u) =>
            both(u, c, &[x, z], &[y, z])),
        rule!(constant_op_where[u, c, x: cnst, y: cnst, z: cnst]: z.with_(BINARY, c.select(x, y)).bind(u) =>
            both(u, c, &[z, x], &[z, y])),
        rule!(op_where_constants[u, c, x: cnst, y: cnst]: Pat::ops(UNARY, [c.select(x, y)]).bind(u) => both(u, c, &[x], &[y])),
        // a CAST goes into a choice that has a constant
        rule!(cast_where_constant[u, c, x, y]: c.select(x, y).cast_().bind(u) => cast_both(u, c, x, y)),
        // c ? x : 0 where x is the mask c itself
        rule!(where_mask[c, y]: c.select(c.cast_(), y) => c.select(&y.like(1), y)),
        rule!(where_else_mask[c, x]: c.select(x, c.cast_()) => c.select(x, &x.like(0))),
    ]
}

/// The operation on the constants of either branch.
fn both(u: &UOp, c: &UOp, yes: &[&UOp], no: &[&UOp]) -> Option<UOp> {
    let value = |list: &[&UOp]| {
        let values = list.iter().map(|x| x.const_value());
        let values = values.collect::<Option<Vec<_>>>()?;
        fold::fold(u.op(), list[0].dtype(), u.dtype(), &values).map(|v| UOp::constant(v, u.dtype()))
    };
    Some(c.select(&value(yes)?, &value(no)?))
}

fn cast_both(u: &UOp, c: &UOp, x: &UOp, y: &UOp) -> Option<UOp> {
    let constant = x.op() == Op::Const || y.op() == Op::Const;
    let fits = constant && !x.is_invalid() && !y.is_invalid() && u.dtype() != DType::Bool;
    fits.then(|| c.select(&x.cast(u.dtype()), &y.cast(u.dtype())))
}
