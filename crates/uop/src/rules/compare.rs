//! Comparisons. Of integers they become Σ k·x < Σ k·y + c with all coefficients positive, divided
//! by what they have in common; x ≥ c is c - 1 < x. Of floats only what holds with NaN is used.
//! Flows in: a node of these ops; flows out: an equal value that costs no more, or nothing. Always:
//! sums that could wrap are left alone.

use super::affine::Affine;
use super::{has_room, int, int_const, interval, limits};
use crate::dtype::DType;
use crate::node::UOp;
use crate::op::{Op, OpSet};
use crate::rewrite::Rule;
use crate::rule;

const EQUALITY: OpSet = OpSet::of(&[Op::CmpNe, Op::CmpEq]);

pub(super) fn rules() -> Vec<Rule> {
    vec![
        // x < x is false, NaN too
        rule!(less_itself[x]: x.lt(x) => UOp::bool(false)),
        // x ≠ x is false (not for floats: NaN)
        rule!(differs_itself[x]: x.ne_(x) => UOp::bool(false), if !x.dtype().is_float()),
        // x = x is true (not for floats: NaN)
        rule!(equals_itself[x]: x.eq_(x) => UOp::bool(true), if !x.dtype().is_float()),
        // x > y is y < x
        rule!(greater[x, y]: x.gt_(y) => y.lt(x)),
        // x ≥ y is not x < y (not for floats: NaN)
        rule!(at_least[x, y]: x.ge_(y) => not(&x.lt(y)), if !x.dtype().is_float()),
        // x ≤ y is not y < x (not for floats: NaN)
        rule!(at_most[x, y]: x.le_(y) => not(&y.lt(x)), if !x.dtype().is_float()),
        // Σ k·x < Σ k·y + c is canonical
        rule!(less_affine[x, y]: x.lt(y) => below(x, y)?, if x.dtype().is_int()),
        // Σ k·x = Σ k·y + c is canonical
        rule!(equals_affine[x, y]: x.eq_(y) => equal(&difference(x, y)?), if x.dtype().is_int()),
        // and its opposite
        rule!(differs_affine[x, y]: x.ne_(y) => not(&equal(&difference(x, y)?)?), if x.dtype().is_int()),
        // b ≠ false and b = true are b; b ≠ true and b = false are not b
        rule!(compared_truth[u, b, c: cnst]: b.with_(EQUALITY, c).bind(u) =>
            if c.is_bool(u.op() == Op::CmpEq) { b.clone() } else { not(b) }, if b.dtype() == DType::Bool),
        // of truth values, < is (not a) and b
        rule!(less_bools[a, b]: a.lt(b) => &not(a) & b, if a.dtype() == DType::Bool),
        // a truth value as a number against 0
        rule!(compared_mask[u, b]: b.cast_().with_(EQUALITY, 0).bind(u) =>
            if u.op() == Op::CmpNe { b.clone() } else { not(b) }, if b.dtype() == DType::Bool),
        // (not a) ≠ (not b) is a ≠ b
        rule!(differs_not[a, b]: a.under(Op::Not).ne_(b.under(Op::Not)) => a.ne_(b)),
    ]
}

/// The complement of a condition, as one comparison where there is one.
pub(crate) fn not(b: &UOp) -> UOp {
    complement(b).unwrap_or_else(|| b.unary(Op::Not))
}

/// The complement without a NOT, where the condition has one.
pub(crate) fn complement(b: &UOp) -> Option<UOp> {
    if b.dtype() != DType::Bool {
        return None;
    }
    match b.op() {
        Op::Const => Some(UOp::bool(!b.const_value()?.truthy())),
        Op::Not => Some(b.src()[0].clone()),
        Op::CmpNe => Some(b.src()[0].eq_(&b.src()[1])),
        Op::CmpEq => Some(b.src()[0].ne_(&b.src()[1])),
        Op::CmpLt if b.src()[0].dtype().is_int() => {
            // not a < b is b < a + 1, and is b - 1 < a
            let x = &b.src()[0];
            let y = &b.src()[1];
            let (min, max) = limits(x.dtype());
            match (int(x), int(y)) {
                (_, Some(c)) if c > min => Some(int_const(c - 1, x.dtype()).lt(x)),
                (Some(c), _) if c < max => Some(y.lt(&int_const(c + 1, x.dtype()))),
                _ if x.dtype() == DType::Index && interval(x).1 < max => Some(y.lt(&(x + 1))),
                _ => None,
            }
        }
        _ => None,
    }
}

/// x - y, where neither side wraps.
pub(super) fn difference(x: &UOp, y: &UOp) -> Option<Affine> {
    let mut l = Affine::of(x)?;
    let right = Affine::of(y)?;
    if !l.exact() || !right.exact() {
        return None;
    }
    // Subtracted outside the dtype: coefficients of one atom may add up past half its width.
    l.dtype = DType::Index;
    l.plus(&right, -1)?;
    Some(l)
}

/// x < y of integers, canonically; None where that is not known to be the same.
pub fn below(x: &UOp, y: &UOp) -> Option<UOp> {
    less(&difference(x, y)?)
}

/// l < 0, canonically.
fn less(l: &Affine) -> Option<UOp> {
    let mut l = l.clone();
    for _ in 0..8 {
        let mut sum = l.clone();
        sum.constant = 0;
        let bound = -l.constant;
        let (lo, hi) = sum.interval();
        if hi < bound || lo >= bound {
            return Some(UOp::bool(hi < bound));
        }
        let roomy = |l: &Affine| has_room(DType::Index, l.interval());
        let Some(next) = common(&l).or_else(|| divided(&l)).filter(roomy) else {
            break;
        };
        l = next;
    }
    sides(&l).map(|(a, b)| a.lt(&b))
}

/// d·a + b < c is a < ceil((c - b) / d), where b varies too little to matter: for the greatest such d
/// among the coefficients and what they have in common.
fn common(l: &Affine) -> Option<Affine> {
    let bound = -l.constant;
    let mut best: Option<(i128, Affine)> = None;
    let shared = l.terms.iter().fold(0, |g, t| super::affine::gcd(g, t.1));
    for d in l.terms.iter().map(|t| t.1.abs()).chain([shared]) {
        if d < 2 || best.as_ref().is_some_and(|b| b.0 >= d) {
            continue;
        }
        let (a, mut b) = l.partition(d);
        b.constant = 0;
        let (lo, hi) = b.interval();
        let ceil = |n: i128| -((-n).div_euclid(d));
        if ceil(bound.saturating_sub(lo)) == ceil(bound.saturating_sub(hi)) {
            let mut next = a.divided(d);
            next.constant = -ceil(bound.saturating_sub(lo));
            best = Some((d, next));
        }
    }
    best.map(|b| b.1)
}

/// y / c + z < b is y + c·z < c·b; z - y / c < b is c·z - y < c·b - c + 1.
fn divided(l: &Affine) -> Option<Affine> {
    let (atom, k, c) = l.terms.iter().find_map(|(t, k)| {
        let c = if t.op() == Op::Idiv && k.abs() == 1 {
            int(&t.src()[1])?
        } else {
            return None;
        };
        (c > 0).then_some((t, *k, c))
    })?;
    let y = Affine::of(&atom.src()[0]).filter(Affine::exact)?;
    let mut rest = l.clone();
    rest.term(atom, -k)?;
    rest.terms.retain(|t| t.1 != 0);
    let mut out = Affine::number(l.dtype, if k < 0 { c - 1 } else { 0 });
    out.plus(&rest, c)?;
    out.plus(&y, k)?;
    Some(out)
}

/// l = 0, canonically.
fn equal(l: &Affine) -> Option<UOp> {
    let (lo, hi) = l.interval();
    if lo > 0 || hi < 0 {
        return Some(UOp::bool(false));
    }
    if l.terms.is_empty() {
        return Some(UOp::bool(l.constant == 0));
    }
    // d·a + b = c with d·m ≤ b < d·m + d is a + m = floor(c / d) and b - d·m = c mod d.
    for t in &l.terms {
        let d = t.1.abs();
        let (a, mut b) = l.partition(d);
        b.constant = 0;
        if d == 1 || b.terms.is_empty() {
            continue;
        }
        let Some(m) = super::idiv::one_period(&b, d) else {
            continue;
        };
        let mut a = a.divided(d);
        a.constant = m - (-l.constant).div_euclid(d);
        b.constant = -(d * m) - (-l.constant).rem_euclid(d);
        return Some(equal(&a)? & equal(&b)?);
    }
    let g = l.terms.iter().fold(0, |g, t| super::affine::gcd(g, t.1));
    if l.constant % g != 0 {
        return Some(UOp::bool(false));
    }
    equal_sides(&l.clone().divided(g))
}

/// l = 0 with the first atom on the left.
fn equal_sides(l: &Affine) -> Option<UOp> {
    let mut l = l.clone();
    let first = l.terms.iter().min_by_key(|t| super::key(&t.0));
    if first.is_some_and(|t| t.1 < 0) {
        l.constant = -l.constant;
        for t in &mut l.terms {
            t.1 = -t.1;
        }
    }
    // Not by `key` of the sides: which term is first must stay the same.
    sides(&l).map(|(a, b)| a.eq_(&b))
}

/// l = 0 or l < 0 as left and right sides with positive coefficients: the constant on the right unless
/// the left would be empty.
fn sides(l: &Affine) -> Option<(UOp, UOp)> {
    let dtype = l.terms.first().map_or(DType::Index, |t| t.0.dtype());
    let mut left = Affine::number(dtype, 0);
    let mut right = Affine::number(dtype, 0);
    for (t, k) in &l.terms {
        if *k > 0 {
            left.terms.push((t.clone(), *k));
        } else {
            right.terms.push((t.clone(), -k));
        }
    }
    if left.terms.is_empty() {
        left.constant = l.constant;
    } else {
        right.constant = -l.constant;
    }
    // Each side, and each number in it, must have room in its dtype; `index` has 64 bits.
    let room = |s: &Affine| {
        let number = |t: &(UOp, i128)| has_room(dtype, (t.1, t.1));
        has_room(dtype, s.interval()) && s.terms.iter().all(number)
    };
    (room(&left) && room(&right)).then(|| (left.build(), right.build()))
}
