//! REDUCE over ranges that can do without a loop. A value that does not vary is repeated; a choice
//! by bounds on the range is counted; a choice by equality is made where the equality holds (a
//! gather of D rows reads D rows). Each needs the identity of its own operator on the other side: a
//! MAX of WHERE(…, x, 0) is no sum. Flows in: a REDUCE and its ranges; flows out: an equal value
//! with fewer loops, or nothing.

use super::affine::Affine;
use super::compare::not;
use super::int_const;
use super::logic::parts;
use super::solve::{placed, solve_equal, solve_less, varies};
use crate::arg::{Arg, ReduceOp};
use crate::dtype::DType;
use crate::node::{Srcs, UOp};
use crate::op::{Op, OpSet};
use crate::rewrite::Rule;
use crate::rule;
use rustc_hash::FxHashMap;

const REDUCE: OpSet = OpSet::of(&[Op::Reduce]);

pub(super) fn rules() -> Vec<Rule> {
    vec![
        // a loop of one step needs no closing
        rule!(reduce_closed[u]: Pat::first(REDUCE, []).bind(u) => closed(u)),
        // a range is left out where its sum, product or maximum is known
        rule!(reduce_collapse[u]: Pat::first(REDUCE, []).bind(u) => collapse(u)),
    ]
}

/// END or REDUCE with this first source, over the ranges to keep.
fn with_ranges(u: &UOp, value: &UOp, keep: impl Fn(&UOp) -> bool) -> UOp {
    let open: Srcs = u.src()[1..].iter().filter(|r| keep(r)).cloned().collect();
    if open.is_empty() {
        value.clone()
    } else {
        u.with_src(Srcs::from_iter([value.clone()].into_iter().chain(open)))
    }
}

/// END or REDUCE without loops of one step.
pub(super) fn closed(u: &UOp) -> Option<UOp> {
    let axes = matches!(u.arg(), Arg::Reduce(_, axes) if !axes.is_empty());
    let one = |r: &UOp| r.op() == Op::Const;
    (!axes && u.src()[1..].iter().any(one)).then(|| with_ranges(u, &u.src()[0], |r| !one(r)))
}

/// Only where no axes are left to fold.
fn collapse(u: &UOp) -> Option<UOp> {
    let op = match u.arg() {
        Arg::Reduce(op, axes) if axes.is_empty() => *op,
        _ => return None,
    };
    // How many turns there are is said where a loop begins with the first.
    let counted = |r: &&UOp| r.op() == Op::Range && r.src().len() == 1;
    let ranges = u.src()[1..].iter().filter(counted);
    ranges.rev().find_map(|r| {
        let value = without(op, &u.src()[0], r, 0)?;
        Some(with_ranges(u, &value, |other| other != r))
    })
}

/// How deep sums are taken apart.
const DEPTH: usize = 8;

/// The fold of `x` over `r`, without `r`.
fn without(op: ReduceOp, x: &UOp, r: &UOp, depth: usize) -> Option<UOp> {
    if !varies(x, r) {
        return repeated(op, x, &r.src()[0]);
    }
    if depth > DEPTH {
        return None;
    }
    let d = x.dtype();
    let src = x.src();
    let identity = |u: &UOp| {
        u.const_value()
            .is_some_and(|v| v == op.identity(d) || v.is_zero() && op == ReduceOp::Add)
    };
    match x.op() {
        Op::Where if identity(&src[2]) => chosen(op, &src[0], &src[1], r),
        Op::Where if identity(&src[1]) => chosen(op, &not(&src[0]).simplify(), &src[2], r),
        _ if op != ReduceOp::Add => None,
        Op::Where if d == DType::Bool => None,
        // Σ (c ? a : b) = Σ (c ? a : 0) + Σ (c ? 0 : b)
        Op::Where => {
            let zero = x.like(0);
            let a = without(op, &src[0].select(&src[1], &zero), r, depth + 1)?;
            let b = if varies(&src[2], r) || d.is_float() {
                without(op, &not(&src[0]).select(&src[2], &zero), r, depth + 1)?
            } else {
                // b·n - Σ (c ? b : 0)
                let all = repeated(op, &src[2], &r.src()[0])?;
                let some = without(op, &src[0].select(&src[2], &zero), r, depth + 1)?;
                all - some
            };
            Some(a + b)
        }
        // Σ k·(c ? a : 0) = Σ (c ? k·a : 0)
        Op::Neg | Op::Mul if d.is_float() && src[0].op() == Op::Where => {
            let finite = |k: &UOp| k.const_value().is_some_and(|k| k.to_f64().is_finite());
            let [c, a, b] = src[0].src() else { return None };
            let factors = identity(b) && src.get(1).is_none_or(finite);
            let scaled = x.with_src(Srcs::from_iter([a].into_iter().chain(src.get(1)).cloned()));
            let value = c.select(&scaled, &x.like(0));
            factors.then(|| without(op, &value, r, depth + 1))?
        }
        Op::Cast if src[0].dtype() == DType::Bool => {
            without(op, &src[0].select(&x.like(1), &x.like(0)), r, depth + 1)
        }
        // CAST to fewer bits is one of rings.
        Op::Cast if d.is_int() && src[0].dtype().is_int() => {
            let from = src[0].dtype();
            let ring = from == DType::Index || d != DType::Index && from.bits() >= d.bits();
            if ring {
                Some(without(op, &src[0], r, depth + 1)?.cast(d))
            } else {
                None
            }
        }
        Op::Range if x == r => {
            let n = &r.src()[0];
            Some((n * &(n - 1)) / 2)
        }
        Op::Mul if d.is_int() => match (varies(&src[0], r), varies(&src[1], r)) {
            (true, false) => Some(without(op, &src[0], r, depth + 1)? * &src[1]),
            (false, true) => Some(without(op, &src[1], r, depth + 1)? * &src[0]),
            _ => None,
        },
        Op::Add | Op::Sub | Op::Neg if d.is_int() => {
            let l = Affine::of(x)?;
            let mut sum = repeated(op, &int_const(l.constant, d), &r.src()[0])?;
            for (t, k) in &l.terms {
                sum = sum + without(op, t, r, depth + 1)? * int_const(*k, d);
            }
            Some(sum)
        }
        _ => None,
    }
}

/// `x` folded with itself `n` times.
fn repeated(op: ReduceOp, x: &UOp, n: &UOp) -> Option<UOp> {
    let value = folded(op, x, n)?;
    // ∞·0 and NaN·0 are no 0.
    let gated = n.vmin() < 1 && (x.dtype().is_float() || chooses(op, x));
    Some(if gated {
        only(op, &UOp::index_const(0).lt(n), &value)
    } else {
        value
    })
}

/// Whether folding a value with itself changes nothing.
fn chooses(op: ReduceOp, x: &UOp) -> bool {
    x.dtype() == DType::Bool || op == ReduceOp::Max
}

/// `x` folded with itself `n` ≥ 1 times.
pub(super) fn folded(op: ReduceOp, x: &UOp, n: &UOp) -> Option<UOp> {
    match op {
        _ if chooses(op, x) => Some(x.clone()),
        ReduceOp::Mul => power(x, n),
        _ => Some(times(x, n)),
    }
}

/// x where `gate` holds, else what changes nothing.
fn only(op: ReduceOp, gate: &UOp, x: &UOp) -> UOp {
    gate.select(x, &UOp::constant(op.identity(x.dtype()), x.dtype()))
}

/// x·n, in f32 where the dtype could not hold n.
fn times(x: &UOp, n: &UOp) -> UOp {
    let d = x.dtype();
    let wide = x.dtype().compute_type();
    (x.cast(wide) * n.cast(wide)).cast(d)
}

fn power(x: &UOp, n: &UOp) -> Option<UOp> {
    let d = x.dtype();
    if !d.is_float() {
        let base = x.const_value()?.cast(DType::I64);
        let exponent = n.const_value()?.cast(DType::I64);
        let value = crate::fold::fold(Op::Pow, DType::I64, DType::I64, &[base, exponent])?;
        return Some(UOp::constant(value, d));
    }
    let wide = d.compute_type();
    Some(x.cast(wide).binary(Op::Pow, &n.cast(wide)).cast(d))
}

/// The fold over `r` of `c ? x : identity`.
fn chosen(op: ReduceOp, c: &UOp, x: &UOp, r: &UOp) -> Option<UOp> {
    // What a loop gives is no condition inside of that loop.
    if [c, x].iter().all(|u| u.ops_below().contains(Op::Reduce)) {
        return None;
    }
    let conditions = parts(c, Op::And)?;
    let counts = op == ReduceOp::Add && x.dtype().is_int() && !varies(x, r);
    if let Some(remainder) = twice(&conditions, r).filter(|_| counts) {
        return by_period(c, x, r, &remainder);
    }
    let (with, free): (Vec<UOp>, Vec<UOp>) = conditions.into_iter().partition(|p| varies(p, r));
    for (i, p) in with.iter().enumerate() {
        if let Some((e, exact)) = solve_equal(p, r) {
            let others = with.iter().enumerate().filter(|(j, _)| *j != i || !exact);
            return at_one(op, &e, others.map(|(_, p)| p), &free, x, r);
        }
    }
    counted(op, &with, &free, x, r)
}

/// Most remainders that are taken apart: each doubles the sums.
const REMAINDERS: usize = 2;

/// A remainder in conditions that varies with `r`, of what is less than twice the divisor, where there are few.
fn twice(conditions: &[UOp], r: &UOp) -> Option<UOp> {
    let divided = |u: &UOp| {
        let n = u.src()[1].as_int()?;
        let (lo, hi) = u.src()[0].bounds();
        (lo >= 0 && n > 0 && hi / 2 < n).then_some(())
    };
    let is_one = |u: &UOp| u.op() == Op::Mod && varies(u, r);
    let mut all: Vec<UOp> = Vec::new();
    for p in conditions
        .iter()
        .filter(|p| p.ops_below().contains(Op::Mod))
    {
        let new = p.toposort().into_iter().filter(is_one);
        all.extend(new.filter(|u| !all.contains(u)).collect::<Vec<_>>());
    }
    let first = all.iter().find(|u| divided(u).is_some())?;
    (all.len() <= REMAINDERS).then(|| first.clone())
}

/// How often `c ? x` for an integer x: where what is divided is less than the divisor, and where it is so much more.
fn by_period(c: &UOp, x: &UOp, r: &UOp, remainder: &UOp) -> Option<UOp> {
    let [whole, n] = remainder.src() else {
        return None;
    };
    let below = whole.lt(n);
    let rest = whole - n;
    let mut sums = [(below.clone(), whole), (not(&below), &rest)]
        .into_iter()
        .map(|(part, value)| {
            let here: FxHashMap<UOp, UOp> =
                [(remainder.clone(), value.clone())].into_iter().collect();
            chosen(
                ReduceOp::Add,
                &(part & c.substitute(&here)).simplify(),
                x,
                r,
            )
        });
    Some(sums.next()?? + sums.next()??)
}

/// x at r = e, where e is a step of the loop and the other conditions hold there.
fn at_one<'a>(
    op: ReduceOp,
    e: &UOp,
    others: impl Iterator<Item = &'a UOp>,
    free: &[UOp],
    x: &UOp,
    r: &UOp,
) -> Option<UOp> {
    let here: FxHashMap<UOp, UOp> = [(r.clone(), e.clone())].into_iter().collect();
    let inside = &UOp::index_const(-1).lt(e) & &e.lt(&r.src()[0]);
    let others = others.map(|p| placed(p, r, Some(&inside), &here));
    let all = others.chain(free.iter().cloned());
    let gate = all.fold(inside.clone(), |a, b| a & b).simplify();
    let value = placed(x, r, Some(&gate), &here);
    Some(only(op, &gate, &value))
}

/// x as often as all bounds on r hold.
fn counted(op: ReduceOp, with: &[UOp], free: &[UOp], x: &UOp, r: &UOp) -> Option<UOp> {
    let mut lows: Vec<UOp> = vec![UOp::index_const(0)];
    let mut highs: Vec<UOp> = vec![r.src()[0].clone()];
    for p in with {
        let (below, at) = solve_less(p, r)?;
        if below {
            highs.push(at);
        } else {
            lows.push(at);
        }
    }
    // Inside of x the conditions hold.
    let holds: FxHashMap<UOp, UOp> = with.iter().map(|p| (p.clone(), UOp::bool(true))).collect();
    let above = |lo| highs.iter().map(move |hi| UOp::lt(lo, hi));
    let all = lows.iter().flat_map(above).chain(free.iter().cloned());
    let gate = all.reduce(|a, b| a & b)?.simplify();
    let value = if varies(x, r) {
        placed(x, r, Some(&gate), &holds).simplify()
    } else {
        x.clone()
    };
    if varies(&value, r) {
        return None;
    }
    let zero = UOp::index_const(0);
    let lo = lows.into_iter().reduce(|a, b| a.max_(&b))?;
    // min(a, b) = a - max(a - b, 0)
    let least = |a: UOp, b: UOp| &a - &(&a - &b).max_(&zero);
    let hi = highs.into_iter().reduce(least)?;
    let all = folded(op, &value, &(hi - lo).max_(&zero).simplify())?;
    // 0 times a number is 0 without a gate.
    let number = x.dtype().is_int() || value.const_value().is_some_and(|v| v.to_f64().is_finite());
    let sums = op == ReduceOp::Add && number && !chooses(op, x);
    let gate = if sums {
        free.iter().cloned().reduce(|a, b| a & b)
    } else {
        Some(gate)
    };
    Some(gate.map_or(all.clone(), |g| only(op, &g, &all)))
}
