//! NOT, AND, OR and XOR of truth values. Conjunctions of bounds on one expression become the
//! tighter bound. Flows in: a node of these ops; flows out: an equal value that costs no more, or
//! nothing. Always: it is true exactly where it was.

use super::compare::{complement, difference};
use super::{int, int_const, key, limits};
use crate::dtype::DType;
use crate::node::UOp;
use crate::op::{Op, OpSet};
use crate::rewrite::Rule;
use crate::rule;
use smallvec::SmallVec;

pub(super) fn rules() -> Vec<Rule> {
    vec![
        // not not x = x, bitwise too
        rule!(not_not[x]: x.under(Op::Not).under(Op::Not) => x),
        // the complement of a comparison
        rule!(not_compare[x]: x.under(Op::Not) => complement(x), if x.op() != Op::Const),
        // not (a or b) = (not a) and (not b), where neither needs a NOT; and the other way round
        rule!(not_junction[u, a, b]: a.with_(JUNCTIONS, b).bind(u).under(Op::Not) =>
            complement(a)?.binary(dual(u), &complement(b)?), if a.dtype() == DType::Bool),
        // a and true = a (a and false is known)
        rule!(and_true[a]: a & true => a, if a.dtype() == DType::Bool),
        // a and (a or b) = a; a or (a and b) = a
        rule!(and_absorbs[a, b]: a & (a | b) => a),
        rule!(or_absorbs[a, b]: a | (a & b) => a),
        // a and (not a or b) = a and b; a or (not a and b) = a or b
        rule!(and_complement[a, b]: a & (a.under(Op::Not) | b) => a & b),
        rule!(or_complement[a, b]: a | (a.under(Op::Not) & b) => a | b),
        // conjunctions and disjunctions are flat, ordered, without repetition or contradiction
        rule!(junction[u, a, b]: a.with_(JUNCTIONS, b).bind(u) => junction(u, u.op() == Op::And), if a.dtype() == DType::Bool),
        // of truth values, exclusive or is ≠
        rule!(xor_bools[a, b]: a ^ b => a.ne_(b), if a.dtype() == DType::Bool),
    ]
}

const JUNCTIONS: OpSet = OpSet::of(&[Op::And, Op::Or]);

/// AND for OR, and OR for AND.
fn dual(u: &UOp) -> Op {
    if u.op() == Op::And { Op::Or } else { Op::And }
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
    let mut list: SmallVec<[UOp; 8]> = SmallVec::new();
    for mut p in parts(u, op)? {
        while let Some((i, both)) =
            (0..list.len()).find_map(|i| Some((i, meet(&list[i], &p, all)?)))
        {
            if both.op() == Op::Const {
                return Some(both);
            }
            list.remove(i);
            p = both;
        }
        list.push(p);
    }
    list.sort_by_key(key);
    list.into_iter().reduce(|a, b| a.binary(op, &b))
}

/// A condition on one integer expression: that it lies in `lo..=hi`, which is one number or open to
/// one side, or that it does not (one number only).
#[derive(Clone, Copy)]
pub(super) struct Bound<'a> {
    pub(super) x: &'a UOp,
    pub(super) lo: i128,
    pub(super) hi: i128,
    pub(super) inside: bool,
}

const LEAST: i128 = i128::MIN;
const GREATEST: i128 = i128::MAX;

impl Bound<'_> {
    pub(super) fn of(u: &UOp) -> Option<Bound<'_>> {
        let [a, b] = u.src() else { return None };
        let (x, lo, hi) = match (u.op(), int(a), int(b)) {
            (Op::CmpLt, None, Some(c)) => (a, LEAST, c - 1),
            (Op::CmpLt, Some(c), None) => (b, c + 1, GREATEST),
            (Op::CmpEq | Op::CmpNe, None, Some(c)) => (a, c, c),
            _ => return None,
        };
        Some(Bound {
            x,
            lo,
            hi,
            inside: u.op() != Op::CmpNe,
        })
    }

    /// The complementary bound.
    fn flip(self) -> Self {
        match (self.lo, self.hi) {
            (LEAST, hi) => Bound {
                lo: hi + 1,
                hi: GREATEST,
                ..self
            },
            (lo, GREATEST) => Bound {
                lo: LEAST,
                hi: lo - 1,
                ..self
            },
            _ => Bound {
                inside: !self.inside,
                ..self
            },
        }
    }

    /// The condition; no number that it is told with lies beyond the dtype.
    fn express(self) -> UOp {
        let c = |v| int_const(v, self.x.dtype());
        let (min, max) = limits(self.x.dtype());
        match (self.lo, self.hi) {
            (LEAST, hi) if hi >= max => UOp::bool(true),
            (lo, GREATEST) if lo <= min => UOp::bool(true),
            (LEAST, hi) => self.x.lt(&c(hi + 1)),
            (lo, GREATEST) => c(lo - 1).lt(self.x),
            (v, _) if self.inside => self.x.eq_(&c(v)),
            (v, _) => self.x.ne_(&c(v)),
        }
    }
}

/// What two conditions are together, where that is one condition; a CONST where they contradict each
/// other (or one of them always holds).
fn meet(a: &UOp, b: &UOp, all: bool) -> Option<UOp> {
    if opposite(a, b) {
        return Some(UOp::bool(!all));
    }
    let (Some(p), Some(q)) = (Bound::of(a), Bound::of(b)) else {
        return meet_affine(a, b, all);
    };
    // A disjunction is the complement of the conjunction of complements.
    let (p, q) = if all { (p, q) } else { (p.flip(), q.flip()) };
    let (p, q) = if p.inside { (p, q) } else { (q, p) };
    if p.x != q.x || !p.inside {
        return None;
    }
    let (lo, hi) = match q.lo {
        _ if q.inside => (p.lo.max(q.lo), p.hi.min(q.hi)),
        c if c < p.lo || c > p.hi => (p.lo, p.hi),
        c if c == p.lo => (c + 1, p.hi),
        c if c == p.hi => (p.lo, c - 1),
        _ => return None,
    };
    if lo > hi {
        return Some(UOp::bool(!all));
    }
    if lo != hi && lo != LEAST && hi != GREATEST {
        return None;
    }
    let both = Bound { lo, hi, ..p };
    Some(if all { both } else { both.flip() }.express())
}

/// Whether one condition is the other's complement.
fn opposite(a: &UOp, b: &UOp) -> bool {
    let negates = |n: &UOp, x: &UOp| n.op() == Op::Not && n.src()[0] == *x;
    let compares =
        |ne: &UOp, eq: &UOp| ne.op() == Op::CmpNe && eq.op() == Op::CmpEq && ne.src() == eq.src();
    negates(a, b) || negates(b, a) || compares(a, b) || compares(b, a)
}

/// p < 0 and q < 0, where p ± q is a number: s < p < 0, or the tighter of both.
fn meet_affine(a: &UOp, b: &UOp, all: bool) -> Option<UOp> {
    if a.op() != Op::CmpLt || b.op() != Op::CmpLt || !a.src()[0].dtype().is_int() {
        return None;
    }
    let sides = |u: &UOp| difference(&u.src()[0], &u.src()[1]);
    let p = sides(a)?;
    let q = sides(b)?;
    let mut sum = p.clone();
    let mut apart = p;
    sum.plus(&q, 1)?;
    apart.plus(&q, -1)?;
    if sum.terms.is_empty() {
        let decided = if all {
            sum.constant >= -1
        } else {
            sum.constant <= -1
        };
        return decided.then(|| UOp::bool(!all));
    }
    let tighter = if (apart.constant >= 0) == all { a } else { b };
    apart.terms.is_empty().then(|| tighter.clone())
}
