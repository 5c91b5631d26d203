//! ADD, SUB and NEG. Integer sums become Σ coefficient·atom + constant, like terms collected and
//! quotients reunited with their remainders; floats only lose their zeros. Flows in: a node of
//! these ops; flows out: an equal value that costs no more, or nothing. Always: `index` is taken to
//! be without end, other integers wrap.

use super::affine::{Affine, atom};
use super::idiv::quotient;
use super::{fits, int, int_const, key};
use crate::dtype::DType;
use crate::node::UOp;
use crate::op::{Op, OpSet};
use crate::rewrite::Rule;
use crate::rule;

pub(super) fn rules() -> Vec<Rule> {
    vec![
        // Σ k·x is canonical
        rule!(add_terms[u, x, y]: (x + y).bind(u) => collect(u, x, y), if u.dtype().is_int()),
        // (x + c) + y = (x + y) + c, for sums too long to collect
        rule!(add_constant_out[x, c: cnst, y]: (x + c) + y => (x + y) + c, if x.dtype().is_int() && y.op() != Op::Const),
        // of truth values, + is or
        rule!(add_bools[x, y]: x + y => x | y, if x.dtype() == DType::Bool),
        // x - x = 0 (not for floats: ∞ - ∞)
        rule!(sub_itself[x]: x - x => x.like(0), if x.dtype().is_int()),
        // x - c = x + -c
        rule!(sub_constant[x, c: cnst]: x - c => x + &int_const(-int(c)?, c.dtype()), if x.dtype().is_int()),
        // x - y = x + y·(-1)
        rule!(sub_index[x, y]: x - y => x + &(y * -1), if x.dtype() == DType::Index),
        // -(-x) = x
        rule!(neg_neg[x]: x.under(Op::Neg).under(Op::Neg) => x),
        // -x = x·(-1)
        rule!(neg_index[x]: x.under(Op::Neg) => x * -1, if x.dtype() == DType::Index),
    ]
}

/// The canonical sum, unless this is one already.
fn collect(u: &UOp, x: &UOp, y: &UOp) -> Option<UOp> {
    const DIVISION: OpSet = OpSet::of(&[Op::Idiv, Op::Mod]);
    let last = if x.op() == Op::Add { &x.src()[1] } else { x };
    let ordered = y.op() == Op::Const || y.op() != Op::Add && key(atom(last)) < key(atom(y));
    let divisions = x.ops_below().intersects(DIVISION) && y.ops_below().intersects(DIVISION);
    if ordered && !divisions && last.op() != Op::Const && !folds(x) && !folds(y) {
        return None;
    }
    let mut l = Affine::of(u)?;
    if divisions {
        while reunite(&mut l)? {}
    }
    Some(l.build())
}

/// SUB and NEG are no part of a canonical sum of `index`; elsewhere they stay where they are cheaper.
fn folds(u: &UOp) -> bool {
    u.dtype() == DType::Index && matches!(u.op(), Op::Sub | Op::Neg)
}

/// Use x = m·(x / m) + x % m once. With x / m = q + s·t, where t is the one division left in it and s its
/// sign: k·(x % m) + k·m·s·t = k·x - k·m·q, and
/// k·(x % m) + k·m·((w + s·t) % n) = k·((x + m·(w - q)) % (m·n)).
fn reunite(l: &mut Affine) -> Option<bool> {
    for i in 0..l.terms.len() {
        let (rem, k) = l.terms[i].clone();
        let Some((x, m)) = remainder(&rem) else {
            continue;
        };
        let Some(km) = k.checked_mul(m) else { continue };
        let partner =
            |t: &(UOp, i128)| t.1.abs() == km.abs() && matches!(t.0.op(), Op::Idiv | Op::Mod);
        if !l.terms.iter().any(partner) {
            continue;
        }
        for deep in [false, true] {
            let Some((q, Some((t, sign)))) = quotient(x, m, deep) else {
                continue;
            };
            for (other, c) in l.terms.iter().filter(|o| o.0 != rem && partner(o)) {
                let whole = if *c == km {
                    digits(other, x, m, &q, (&t, sign))
                } else {
                    None
                };
                let same = *other == t && *c == km * sign;
                if !same && whole.is_none() {
                    continue;
                }
                let mut new = l.clone();
                new.terms.retain(|t| t.0 != rem && t.0 != *other);
                match whole {
                    Some(whole) => new.term(&whole, k)?,
                    None => {
                        new.add(x, k)?;
                        new.plus(&q, -km)?;
                    }
                }
                *l = new;
                return Some(true);
            }
        }
    }
    Some(false)
}

/// x % m with m > 0.
fn remainder(u: &UOp) -> Option<(&UOp, i128)> {
    match u.op() {
        Op::Mod => int(&u.src()[1])
            .filter(|m| *m > 0)
            .map(|m| (&u.src()[0], m)),
        _ => None,
    }
}

/// (x + m·(w - q)) % (m·n), where `other` is (w + s·t) % n and x / m = q + s·t.
fn digits(other: &UOp, x: &UOp, m: i128, q: &Affine, (t, sign): (&UOp, i128)) -> Option<UOp> {
    let (y, n) = remainder(other)?;
    let d = x.dtype();
    // Outside `index` both numerators must be free of wrapping for the identity to hold.
    let mut w = Affine::of(y).filter(Affine::exact)?.unwrapped();
    w.terms.iter().find(|(a, k)| a == t && *k == sign)?;
    w.term(t, -sign)?;
    w.plus(q, -1)?;
    let mut whole = Affine::of(x).filter(Affine::exact)?.unwrapped();
    whole.plus(&w, m)?;
    let mn = m.checked_mul(n)?;
    if !fits(d, whole.interval()) || !fits(d, (mn, mn)) {
        return None;
    }
    whole.dtype = d;
    Some(whole.build() % int_const(mn, d))
}
