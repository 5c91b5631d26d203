//! MOD, the remainder of floor division: it has the divisor's sign; x mod 0 = x. Flows in: a node
//! of these ops; flows out: an equal value that costs no more, or nothing. Always: nothing is taken
//! apart that could wrap before.

use super::affine::Affine;
use super::idiv::{factor, negatable, nonzero, one_period, opposite, split, symbolic};
use super::{fits, int, int_const};
use crate::dtype::DType;
use crate::node::UOp;
use crate::op::Op;
use crate::rewrite::Rule;
use crate::rule;

pub(super) fn rules() -> Vec<Rule> {
    vec![
        // x % 0 = x
        rule!(mod_by_zero[x]: x % 0 => x, if x.dtype().is_int()),
        // x % x = 0 where x ≠ 0
        rule!(mod_itself[x]: x % x => x.like(0), if nonzero(x)),
        // x % -c = -(-x % c)
        rule!(mod_negative[x, c: cnst]: x % c => (&(x * -1) % &int_const(-int(c)?, DType::Index)) * -1,
            if negatable(x) && int(c).is_some_and(|c| c < 0)),
        // (c·a + b) % c = b % c, and what follows from it
        rule!(mod_affine[x, c: cnst]: x % c => remainder(x, int(c)?), if x.dtype().is_int()),
        // x·y % y = 0 where y ≠ 0
        rule!(mod_factor[x, y]: (x * y) % y => x.like(0), if x.dtype() == DType::Index && nonzero(y)),
        // (x·n + r) % n = r where 0 ≤ r < n
        rule!(mod_symbolic[x, n]: x % n => symbolic(x, n)?.1, if x.dtype() == DType::Index && n.op() != Op::Const && nonzero(n)),
    ]
}

const STEPS: usize = 12;

/// x % c for c > 1: `out` + `scale`·(n % c') with what no longer varies taken out.
fn remainder(x: &UOp, mut c: i128) -> Option<UOp> {
    let d = x.dtype();
    if c < 2 {
        return None;
    }
    let mut n = Affine::of(x)?;
    let mut scale = 1;
    let mut out = Affine::number(d, 0);
    for _ in 0..STEPS {
        let n_in = without_mods(&n, c);
        let rest = split(n_in.as_ref().unwrap_or(&n), c)?.1;
        if let Some(m) = one_period(&rest, c) {
            out.plus(&rest, scale)?;
            out.constant -= m * c * scale;
            return told(&out);
        }
        n = rest;
        let Some(by) = factor(&n, c) else {
            break;
        };
        out.plus(&by.rest, scale)?;
        out.constant -= by.whole * by.g * scale;
        n = by.quotient;
        n.constant += by.whole;
        c /= by.g;
        scale *= by.g;
    }
    if let Some((_, y)) = opposite(&n, c) {
        n = y;
        out.constant += (c - 1) * scale;
        scale = -scale;
    }
    let rest = n.build() % int_const(c, d);
    if out.terms.is_empty() && out.constant == 0 && scale == 1 {
        return Some(rest);
    }
    out.term(&rest, scale)?;
    told(&out)
}

/// A sum as an expression whose bounds can be seen: without a sign no number in it is negative.
fn told(sum: &Affine) -> Option<UOp> {
    let negative = sum.constant < 0 || sum.terms.iter().any(|t| t.1 < 0);
    (!negative || !sum.dtype.is_unsigned()).then(|| sum.build())
}

/// k·(y % m) ≡ k·y modulo c where c divides k·m.
fn without_mods(n: &Affine, c: i128) -> Option<Affine> {
    let drops = |t: &(UOp, i128)| {
        t.0.op() == Op::Mod
            && int(&t.0.src()[1])
                .is_some_and(|m| m > 0 && m.checked_mul(t.1).is_some_and(|km| km % c == 0))
    };
    // Beside other terms the bound of y % m is worth more.
    if n.terms.len() != 1 || !drops(&n.terms[0]) {
        return None;
    }
    // Both the inner numerator and the whole must be free of wrapping.
    let y = Affine::of(&n.terms[0].0.src()[0])?;
    let k = n.terms[0].1;
    let mut out = Affine::number(DType::Index, n.constant);
    out.plus(&y, k)?;
    let safe = y.exact() && n.exact() && fits(n.dtype, out.interval());
    out.dtype = n.dtype;
    safe.then_some(out)
}
