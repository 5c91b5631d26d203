//! NOT, AND, OR and XOR of truth values. Conjunctions of bounds on one expression become the tighter
//! bound.

use super::compare::{complement, difference};
use super::{int, int_const, key};
use crate::dtype::DType;
use crate::node::UOp;
use crate::op::Op;
use crate::rewrite::Rule;
use crate::rule;
use smallvec::SmallVec;

pub(super) fn rules<C>() -> Vec<Rule<C>> {
    vec![
        // not not x = x, bitwise too
        rule!(not_not[x]: x.under(Op::Not).under(Op::Not) => x),
        // the complement of a comparison
        rule!(not_compare[x]: x.under(Op::Not) => complement(x), if x.op() != Op::Const),
        // not (a or b) = (not a) and (not b), where neither needs a NOT
        rule!(not_or[a, b]: (a | b).under(Op::Not) => complement(a)? & complement(b)?, if a.dtype() == DType::Bool),
        // not (a and b) = (not a) or (not b), where neither needs a NOT
        rule!(not_and[a, b]: (a & b).under(Op::Not) => complement(a)? | complement(b)?, if a.dtype() == DType::Bool),
        // a and true = a; a and false = false
        rule!(and_true[a]: a & true => a, if a.dtype() == DType::Bool),
        rule!(and_false[a]: a & false => UOp::bool(false), if a.dtype() == DType::Bool),
        // a or false = a; a or true = true
        rule!(or_false[a]: a | false => a, if a.dtype() == DType::Bool),
        rule!(or_true[a]: a | true => UOp::bool(true), if a.dtype() == DType::Bool),
        // a and (a or b) = a; a or (a and b) = a
        rule!(and_absorbs[a, b]: a & (a | b) => a),
        rule!(or_absorbs[a, b]: a | (a & b) => a),
        // a and (not a or b) = a and b; a or (not a and b) = a or b
        rule!(and_complement[a, b]: a & (a.under(Op::Not) | b) => a & b),
        rule!(or_complement[a, b]: a | (a.under(Op::Not) & b) => a | b),
        // conjunctions and disjunctions are flat, ordered, without repetition or contradiction
        rule!(and_all[u, a, b]: (a & b).bind(u) => junction(u, true), if a.dtype() == DType::Bool),
        rule!(or_any[u, a, b]: (a | b).bind(u) => junction(u, false), if a.dtype() == DType::Bool),
        // of truth values, exclusive or is ≠
        rule!(xor_bools[a, b]: a ^ b => a.ne_(b), if a.dtype() == DType::Bool),
    ]
}

/// Longer ones are left as they are.
const MOST: usize = 32;

/// The parts of a conjunction (or disjunction), as written; None where there are too many.
pub(crate) fn parts(u: &UOp, op: Op) -> Option<SmallVec<[UOp; 8]>> {
    let mut out: SmallVec<[UOp; 8]> = SmallVec::new();
    let mut stack: SmallVec<[&UOp; 8]> = SmallVec::new();
    stack.push(u);
    let mut nodes = 0;
    while let Some(p) = stack.pop() {
        nodes += 1;
        if nodes > 2 * MOST {
            return None;
        }
        if p.op() == op {
            stack.extend([&p.src()[1], &p.src()[0]]);
        } else if !out.contains(p) {
            out.push(p.clone());
        }
    }
    Some(out)
}

/// The conjunction (or disjunction) in canonical form.
fn junction(u: &UOp, all: bool) -> Option<UOp> {
    let op = if all { Op::And } else { Op::Or };
    let mut list = parts(u, op)?;
    let mut i = 0;
    while i < list.len() {
        let mut j = i + 1;
        while j < list.len() {
            match meet(&list[i], &list[j], all) {
                Meet::Nothing => j += 1,
                Meet::Decided => return Some(UOp::bool(!all)),
                Meet::One(x) => {
                    list.remove(j);
                    list[i] = x;
                    j = i + 1;
                }
            }
        }
        i += 1;
    }
    list.sort_by_key(key);
    list.into_iter().reduce(|a, b| UOp::new(op, [a, b].as_slice(), crate::Arg::None))
}

/// What two conditions on one expression are together.
enum Meet {
    /// Nothing simpler.
    Nothing,
    /// A contradiction (of a conjunction), or always true (of a disjunction).
    Decided,
    /// One condition.
    One(UOp),
}

/// A condition on one integer expression.
enum Bound<'a> {
    Below(&'a UOp, i128),
    Above(&'a UOp, i128),
    Is(&'a UOp, i128),
    IsNot(&'a UOp, i128),
}

fn bound(u: &UOp) -> Option<Bound<'_>> {
    let [x, y] = u.src() else { return None };
    Some(match (u.op(), int(x), int(y)) {
        (Op::CmpLt, None, Some(c)) => Bound::Below(x, c),
        (Op::CmpLt, Some(c), None) => Bound::Above(y, c),
        (Op::CmpEq, None, Some(c)) => Bound::Is(x, c),
        (Op::CmpNe, None, Some(c)) => Bound::IsNot(x, c),
        _ => return None,
    })
}

fn meet(a: &UOp, b: &UOp, all: bool) -> Meet {
    use Bound::*;
    if opposite(a, b) {
        return Meet::Decided;
    }
    let (Some(p), Some(q)) = (bound(a), bound(b)) else { return meet_linear(a, b, all) };
    // A disjunction is the complement of the conjunction of complements.
    let (p, q) = if all { (p, q) } else { (flip(p), flip(q)) };
    let same = |x: &UOp, y: &UOp| x == y;
    let out = match (p, q) {
        (Below(x, c), Below(y, d)) if same(x, y) => Below(x, c.min(d)),
        (Above(x, c), Above(y, d)) if same(x, y) => Above(x, c.max(d)),
        (Below(x, hi), Above(y, lo)) | (Above(x, lo), Below(y, hi)) if same(x, y) => match hi - lo {
            ..=1 => return Meet::Decided,
            2 => Is(x, lo + 1),
            _ => return Meet::Nothing,
        },
        (Is(x, c), Is(y, d)) if same(x, y) && c != d => return Meet::Decided,
        (Is(x, c), Below(y, hi)) | (Below(y, hi), Is(x, c)) if same(x, y) => {
            if c >= hi {
                return Meet::Decided;
            } else {
                Is(x, c)
            }
        }
        (Is(x, c), Above(y, lo)) | (Above(y, lo), Is(x, c)) if same(x, y) => {
            if c <= lo {
                return Meet::Decided;
            } else {
                Is(x, c)
            }
        }
        (Is(x, c), IsNot(y, d)) | (IsNot(y, d), Is(x, c)) if same(x, y) => {
            if c == d {
                return Meet::Decided;
            } else {
                Is(x, c)
            }
        }
        (IsNot(x, c), Below(y, hi)) | (Below(y, hi), IsNot(x, c)) if same(x, y) => match c - hi {
            0.. => Below(x, hi),
            -1 => Below(x, c),
            _ => return Meet::Nothing,
        },
        (IsNot(x, c), Above(y, lo)) | (Above(y, lo), IsNot(x, c)) if same(x, y) => match lo - c {
            0.. => Above(x, lo),
            -1 => Above(x, c),
            _ => return Meet::Nothing,
        },
        _ => return Meet::Nothing,
    };
    Meet::One(express(if all { out } else { flip(out) }))
}

/// The complementary bound (in the integers: x ≥ c is x > c - 1).
fn flip(b: Bound<'_>) -> Bound<'_> {
    match b {
        Bound::Below(x, c) => Bound::Above(x, c - 1),
        Bound::Above(x, c) => Bound::Below(x, c + 1),
        Bound::Is(x, c) => Bound::IsNot(x, c),
        Bound::IsNot(x, c) => Bound::Is(x, c),
    }
}

fn express(b: Bound<'_>) -> UOp {
    match b {
        Bound::Below(x, c) => x.lt(&int_const(c, x.dtype())),
        Bound::Above(x, c) => int_const(c, x.dtype()).lt(x),
        Bound::Is(x, c) => x.eq_(&int_const(c, x.dtype())),
        Bound::IsNot(x, c) => x.ne_(&int_const(c, x.dtype())),
    }
}

/// Whether one condition is the other's complement.
fn opposite(a: &UOp, b: &UOp) -> bool {
    let negates = |n: &UOp, x: &UOp| n.op() == Op::Not && n.src()[0] == *x;
    let compares = |ne: &UOp, eq: &UOp| ne.op() == Op::CmpNe && eq.op() == Op::CmpEq && ne.src() == eq.src();
    negates(a, b) || negates(b, a) || compares(a, b) || compares(b, a)
}

/// p < 0 and q < 0, where p ± q is a number: s < p < 0, or the tighter of both.
fn meet_linear(a: &UOp, b: &UOp, all: bool) -> Meet {
    if a.op() != Op::CmpLt || b.op() != Op::CmpLt || !a.src()[0].dtype().is_int() {
        return Meet::Nothing;
    }
    let sides = |u: &UOp| difference(&u.src()[0], &u.src()[1]);
    let (Some(p), Some(q)) = (sides(a), sides(b)) else { return Meet::Nothing };
    let (mut sum, mut apart) = (p.clone(), p);
    if sum.plus(&q, 1).is_none() || apart.plus(&q, -1).is_none() {
        return Meet::Nothing;
    }
    if sum.terms.is_empty() {
        let decided = if all { sum.constant >= -1 } else { sum.constant <= -1 };
        return if decided { Meet::Decided } else { Meet::Nothing };
    }
    if !apart.terms.is_empty() {
        return Meet::Nothing;
    }
    Meet::One(if (apart.constant >= 0) == all { a.clone() } else { b.clone() })
}
