//! INDEX, its gates, and the ranges of kernels. A gate moves to the outside of the arithmetic it
//! guards; an index is simplified knowing that its gate holds, but nothing is assumed inside of
//! nested reads, which run whether it holds or not. Flows in: a node of these ops; flows out: an
//! equal value that costs no more, or nothing. Always: no access reaches where it did not before.

use super::logic::{Bound, parts};
use super::reduce::closed;
use super::{int, interval};
use crate::arg::Arg;
use crate::dtype::DType;
use crate::node::{Srcs, UOp};
use crate::op::{Op, OpSet};
use crate::rewrite::Rule;
use crate::rule;
use crate::scalar::Scalar;
use rustc_hash::FxHashMap;

const ARITHMETIC: OpSet = OpSet::of(&[Op::Add, Op::Sub, Op::Mul, Op::Idiv, Op::Mod, Op::Max]);
const GATED: OpSet = ARITHMETIC.union(OpSet::of(&[Op::CmpLt, Op::CmpNe, Op::CmpEq]));

pub(super) fn rules() -> Vec<Rule> {
    vec![
        // an index of nothing is the value
        rule!(index_nothing[x]: Pat::op(Op::Index, [x.into_pat()]) => x),
        // an index of an index: both
        rule!(index_index[u, v, x]: Pat::first(INDEX, [Pat::first(INDEX, [x.into_pat()]).bind(v)]).bind(u) => index_index(u, v)),
        // a known part of a stack
        rule!(index_stack[u, s, k: cnst]: Pat::first(INDEX, [Pat::first(STACK, []).bind(s), k.into_pat()]).bind(u) => index_stack(u, s, k)),
        // (g ? i : invalid) ∘ x = g ? i ∘ x : invalid; what an invalid index compares to does not matter
        rule!(gate_out[u, g, i, n: cnst, x]: g.select(i, n).with_(GATED, x).bind(u) => ungated(u, g, [i, x]), if n.is_invalid()),
        rule!(gate_out_second[u, g, i, n: cnst, x]: x.with_(GATED, g.select(i, n)).bind(u) => ungated(u, g, [x, i]), if n.is_invalid()),
        // nor does what becomes of it as a number: what was read by that index has the gate
        rule!(gate_cast[u, g, i, n: cnst]: g.select(i, n).under(Op::Cast).bind(u) => i.cast(u.dtype()), if n.is_invalid() && u.dtype() != DType::Index),
        rule!(gate_shut[n: cnst, x]: n.with_(ARITHMETIC, x) => n, if n.is_invalid()),
        rule!(gate_shut_second[n: cnst, x]: x.with_(ARITHMETIC, n) => n, if n.is_invalid()),
        // g ? invalid : i = not g ? i : invalid
        rule!(gate_first[g, n: cnst, i]: g.select(n, i) => super::compare::not(g).select(i, n), if n.is_invalid() && !i.is_invalid()),
        // i, where g holds; where it has another gate, once both are one
        rule!(gate_known[g, i, n: cnst]: g.select(i, n) => given(g, i)?.valid(g), if n.is_invalid() && !is_gated(i)),
        // a loop of one step
        rule!(range_one[n: cnst]: Pat::op(Op::Range, [n.into_pat()]) => UOp::index_const(0), if int(n) == Some(1)),
        // which needs no closing
        rule!(end_closed[u]: Pat::first(END, []).bind(u) => closed(u)),
        // nor is its turn waited for
        rule!(turn_waited[u]: Pat::first(ORDER, []).bind(u) => waited(u)),
    ]
}

const INDEX: OpSet = OpSet::of(&[Op::Index]);
const STACK: OpSet = OpSet::of(&[Op::Stack]);
const END: OpSet = OpSet::of(&[Op::End]);
const ORDER: OpSet = OpSet::of(&[Op::Barrier, Op::After]);

/// BARRIER or AFTER that waits for no turn of a loop of one step.
fn waited(u: &UOp) -> Option<UOp> {
    let one = |r: &UOp| r.op() == Op::Const;
    let some = u.src().iter().any(one);
    some.then(|| {
        u.with_src(
            u.src()
                .iter()
                .filter(|r| !one(r))
                .cloned()
                .collect::<Vec<_>>(),
        )
    })
}

fn index_index(u: &UOp, v: &UOp) -> Option<UOp> {
    if v.src()[1..].iter().any(|i| !i.shape().is_empty()) {
        return None;
    }
    let src: Srcs = v.src().iter().chain(&u.src()[1..]).cloned().collect();
    Some(UOp::new(Op::Index, src, Arg::None))
}

fn index_stack(u: &UOp, s: &UOp, k: &UOp) -> Option<UOp> {
    let part = s.src().get(usize::try_from(int(k)?).ok()?)?;
    Some(if u.src().len() == 2 {
        part.clone()
    } else {
        part.at(&u.src()[2..])
    })
}

fn ungated(u: &UOp, g: &UOp, src: [&UOp; 2]) -> UOp {
    let new = src[0].binary(u.op(), src[1]);
    if ARITHMETIC.contains(u.op()) {
        new.valid(g)
    } else {
        new
    }
}

/// Whether an index is valid only where something holds.
fn is_gated(i: &UOp) -> bool {
    i.op() == Op::Where && i.src()[2].is_invalid()
}

/// Slots of variables that stand for something while it is simplified.
const STAND_IN: u64 = 1 << 62;

/// The index simplified with what its gate says of the intervals of its parts, if that makes it
/// smaller.
fn given(gate: &UOp, index: &UOp) -> Option<UOp> {
    const BENT: OpSet = OpSet::of(&[Op::Idiv, Op::Mod, Op::Max, Op::Where, Op::CmpLt]);
    if !index.ops_below().intersects(BENT) {
        return None;
    }
    let inside: Vec<UOp> = index.toposort_gated(|u| u.op() != Op::Index);
    let mut best = index.clone();
    let mut facts: Vec<(UOp, i128, i128)> = Vec::new();
    for p in parts(gate, Op::And)? {
        let Some(Bound {
            x,
            lo,
            hi,
            inside: true,
        }) = Bound::of(&p)
        else {
            continue;
        };
        match facts.iter_mut().find(|f| f.0 == *x) {
            Some((_, least, most)) => {
                *least = lo.max(*least);
                *most = hi.min(*most);
            }
            None if x.dtype() != DType::Index => {}
            None => facts.push((x.clone(), lo.max(interval(x).0), hi.min(interval(x).1))),
        }
    }
    for (k, (x, lo, hi)) in facts.into_iter().enumerate() {
        let (Ok(lo), Ok(hi)) = (i64::try_from(lo), i64::try_from(hi)) else {
            continue;
        };
        if lo > hi {
            continue;
        }
        let v = UOp::variable(STAND_IN + k as u64, lo, hi);
        let mut map: FxHashMap<UOp, UOp> = FxHashMap::default();
        // A sum is assumed through one of its atoms: a = ±(v - rest).
        let l = super::affine::Affine::of(&x)?;
        let mut terms = l.terms.iter();
        match terms.find(|t| t.1.abs() == 1 && inside.contains(&t.0)) {
            _ if inside.contains(&x) && l.terms.len() < 2 => map.insert(x.clone(), v.clone()),
            Some((atom, k)) => {
                let mut rest = l.clone();
                rest.term(atom, -k)?;
                let other = (&v - &rest.build()) * *k as i64;
                map.insert(atom.clone(), other)
            }
            None => continue,
        };
        // Nothing is known inside of nested reads.
        let mut reads: FxHashMap<UOp, UOp> = FxHashMap::default();
        for (j, r) in inside.iter().filter(|u| u.op() == Op::Index).enumerate() {
            let mut stand = r.clone();
            if r.dtype() == DType::Index && !map.contains_key(r) {
                let (lo, hi) = r.bounds();
                stand = UOp::variable(STAND_IN + 1000 + j as u64, lo, hi);
                reads.insert(stand.clone(), r.clone());
            }
            map.entry(r.clone()).or_insert(stand);
        }
        reads.insert(v, x);
        // A loop turns as often as it does, whatever holds in some of its turns.
        for r in inside.iter().filter(|u| u.op() == Op::Range) {
            map.entry(r.clone()).or_insert_with(|| r.clone());
        }
        let new = best.substitute(&map).simplify();
        let new = new.substitute(&reads).simplify();
        if cost(&new) < cost(&best) {
            best = new;
        }
    }
    (best != *index).then_some(best)
}

/// Nodes outside of nested reads; divisions count more.
fn cost(u: &UOp) -> usize {
    let weight = |u: &UOp| match (u.op(), u.const_value()) {
        (Op::Idiv | Op::Mod, _) => 4,
        (_, Some(Scalar::Int(0))) => 0,
        _ => 1,
    };
    let outside = u.toposort_gated(|u| u.op() != Op::Index);
    outside.iter().map(weight).sum()
}
