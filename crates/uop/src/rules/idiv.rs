//! IDIV, which is floor division; x idiv 0 = 0. Numerators are taken apart by intervals:
//! floor((c·a + b) / c) = a + floor(b / c). Flows in: a node of this op; flows out: an equal value
//! that costs no more, or nothing. Always: nothing is divided that could wrap before.

use super::affine::{Affine, gcd};
use super::{has_room, int, int_const, interval};
use crate::dtype::DType;
use crate::node::UOp;
use crate::op::Op;
use crate::rewrite::Rule;
use crate::rule;

pub(super) fn rules() -> Vec<Rule> {
    vec![
        // x / 0 = 0
        rule!(div_by_zero[x]: x / 0 => x.like(0), if x.dtype().is_int()),
        // x / 1 = x
        rule!(div_by_one[x]: x / 1 => x, if x.dtype().is_int()),
        // x / x = 1 where x ≠ 0
        rule!(div_itself[x]: x / x => x.like(1), if nonzero(x)),
        // x / -c = -x / c
        rule!(div_negative[x, c: cnst]: x / c => &(x * -1) / &int_const(-int(c)?, DType::Index),
            if negatable(x) && int(c).is_some_and(|c| c < 0)),
        // floor((c·a + b) / c) = a + floor(b / c), and what follows from it
        rule!(div_affine[x, c: cnst]: x / c => divide(x, c)),
        // x·y / y = x where y ≠ 0
        rule!(div_factor[x, y]: (x * y) / y => x, if x.dtype() == DType::Index && nonzero(y)),
        // (x·n + r) / n = x where 0 ≤ r < n
        rule!(div_symbolic[x, n]: x / n => symbolic(x, n)?.0, if x.dtype() == DType::Index && n.op() != Op::Const && nonzero(n)),
    ]
}

/// Whether -x is an `index` like x.
pub(super) fn negatable(x: &UOp) -> bool {
    x.dtype() == DType::Index && interval(x).0 > i64::MIN as i128
}

/// Whether an integer is never 0.
pub(super) fn nonzero(x: &UOp) -> bool {
    let (lo, hi) = interval(x);
    x.dtype().is_int() && (lo > 0 || hi < 0)
}

fn divide(x: &UOp, c: &UOp) -> Option<UOp> {
    if !x.dtype().is_int() {
        return None;
    }
    let (mut q, t) = quotient(x, int(c).filter(|c| *c > 1)?, false)?;
    if let Some((t, sign)) = t {
        if q.terms.is_empty() && q.constant == 0 && sign == 1 {
            return Some(t);
        }
        q.term(&t, sign)?;
    }
    // Above it is a sum of numbers; wrapping comes here.
    q.dtype = x.dtype();
    Some(q.build())
}

/// How often a numerator may be taken apart further.
const STEPS: usize = 12;

/// x / c = q ± t for c > 1, where t, if any, is one IDIV (or the MOD that it turned into) that cannot be
/// taken apart further (`deep`: nested quotients become one). None where something may wrap.
pub(super) fn quotient(x: &UOp, mut c: i128, deep: bool) -> Option<(Affine, Option<(UOp, i128)>)> {
    let d = x.dtype();
    let mut n = Affine::of(x)?;
    let mut q = Affine::number(DType::Index, 0);
    for _ in 0..STEPS {
        let (whole, rest) = split(&n, c)?;
        q.plus(&whole, 1)?;
        if let Some(m) = one_period(&rest, c) {
            q.constant += m;
            return Some((q, None));
        }
        n = rest;
        if let Some(by) = factor(&n, c) {
            n = by.quotient;
            n.constant += by.whole;
            c /= by.g;
            continue;
        }
        // (y / a + z) / b = (y + a·z) / (a·b). Where z varies too, the sum would hide how its parts are
        // bounded, and is only good for finding it elsewhere.
        if n.terms.len() > 1 && !deep {
            break;
        }
        let Some((inner, y, a)) = n.terms.iter().find_map(nested) else {
            break;
        };
        let Some(ca) = c.checked_mul(a).filter(|v| super::fits(d, (*v, *v))) else {
            break;
        };
        let mut merged = Affine::of(&y).filter(Affine::exact)?.unwrapped();
        let mut rest = n.clone().unwrapped();
        rest.term(&inner, -1)?;
        if merged.plus(&rest, a).is_none() || !has_room(d, merged.interval()) {
            break;
        }
        merged.dtype = d;
        n = merged;
        c = ca;
    }
    if let Some((m, y)) = opposite(&n, c) {
        q.constant -= m + 1;
        return Some((q, Some((atom(&y, c), -1))));
    }
    Some((q, Some((atom(&n, c), 1))))
}

/// n = -(c·m + y) - 1, where the first term of n is negative: then floor(n / c) = -m - 1 - floor(y / c)
/// and n % c = c - 1 - y % c. So a view and its mirror image have the same quotients and remainders.
pub(super) fn opposite(n: &Affine, c: i128) -> Option<(i128, Affine)> {
    let first = n.terms.iter().min_by_key(|t| super::key(&t.0))?;
    if first.1 > 0 {
        return None;
    }
    let mut y = n.clone();
    for t in &mut y.terms {
        t.1 = -t.1;
    }
    let (m, y) = shifted(&y, -n.constant - 1, c);
    has_room(y.dtype, y.interval()).then_some((m, y))
}

/// The term y / a with a > 0.
fn nested(t: &(UOp, i128)) -> Option<(UOp, UOp, i128)> {
    if t.1 != 1 || t.0.op() != Op::Idiv {
        return None;
    }
    let a = int(&t.0.src()[1]).filter(|a| *a > 0)?;
    Some((t.0.clone(), t.0.src()[0].clone(), a))
}

/// n / c, or (y / c) % b where n is y % (b·c).
fn atom(n: &Affine, c: i128) -> UOp {
    if let ([(y, 1)], 0) = (&n.terms[..], n.constant) {
        let m = if y.op() == Op::Mod {
            int(&y.src()[1])
        } else {
            None
        };
        if let Some(m) = m.filter(|m| *m > 0 && m % c == 0) {
            return (&y.src()[0] / &int_const(c, n.dtype)) % int_const(m / c, n.dtype);
        }
    }
    n.build() / int_const(c, n.dtype)
}

/// n = c·whole + rest, with coefficients of the rest below c in magnitude, and its least value in 0..c
/// where it is known, so that the machine's division serves.
pub(super) fn split(n: &Affine, c: i128) -> Option<(Affine, Affine)> {
    if !n.exact() {
        return None;
    }
    let by = |quotient: &dyn Fn(i128) -> i128| {
        let part = |f: &dyn Fn(i128) -> i128| {
            let terms = n.terms.iter().map(|(t, k)| (t.clone(), f(*k)));
            Affine {
                dtype: n.dtype,
                terms: terms.filter(|t| t.1 != 0).collect(),
                constant: 0,
            }
        };
        let (m, rest) = shifted(&part(&|k| k - c * quotient(k)), n.constant, c);
        // A narrow dtype may have no room for it.
        rest.exact().then(|| {
            (
                Affine {
                    constant: m,
                    ..part(quotient)
                },
                rest,
            )
        })
    };
    let single =
        |s: &Option<(Affine, Affine)>| s.as_ref().is_some_and(|s| one_period(&s.1, c).is_some());
    let short = by(&|k| k / c);
    let far = |k: i128| (k % c).abs() * 2 > c;
    // Residues nearest to 0 may keep the remainder in one period where the others do not.
    if n.terms.iter().any(|t| far(t.1)) && !single(&short) {
        let near = by(&|k| k / c + if far(k) { k.signum() } else { 0 });
        if single(&near) {
            return near;
        }
    }
    short
}

/// constant = c·m + r, so that rest + r is least in 0..c where what varies has a small interval, else r is. Which of
/// the two does not depend on the constant: what is shifted once is where it belongs.
fn shifted(rest: &Affine, constant: i128, c: i128) -> (i128, Affine) {
    let mut out = rest.clone();
    out.constant = 0;
    let lo = out.interval().0;
    out.constant = constant;
    let m = if lo.abs() < 1 << 30 {
        (lo + constant).div_euclid(c)
    } else {
        constant.div_euclid(c)
    };
    out.constant = constant - c * m;
    if !has_room(out.dtype, out.interval()) {
        out.constant = constant;
        return (0, out);
    }
    (m, out)
}

/// floor(n / c), where it is one number.
pub(super) fn one_period(n: &Affine, c: i128) -> Option<i128> {
    let (lo, hi) = n.interval();
    (lo.div_euclid(c) == hi.div_euclid(c)).then(|| lo.div_euclid(c))
}

/// n = g·quotient + rest, with g dividing c and floor(rest / g) the number `whole`: then floor(n / c) =
/// floor((quotient + whole) / (c / g)).
pub(super) struct Factored {
    pub(super) g: i128,
    pub(super) quotient: Affine,
    pub(super) rest: Affine,
    pub(super) whole: i128,
}

/// By the greatest g that there is.
pub(super) fn factor(n: &Affine, c: i128) -> Option<Factored> {
    let mut best: Option<Factored> = None;
    for (i, t) in n.terms.iter().enumerate() {
        let g = gcd(t.1, c);
        let known = best.as_ref().is_some_and(|b| b.g >= g);
        if g <= 1 || known || n.terms[..i].iter().any(|s| gcd(s.1, c) == g) {
            continue;
        }
        let (multiples, rest) = n.partition(g);
        if let Some(whole) = one_period(&rest, g) {
            best = Some(Factored {
                g,
                quotient: multiples.divided(g),
                rest,
                whole,
            });
        }
    }
    best
}

/// x = n·q + r with 0 ≤ r < n, for a divisor that is no number: q and r.
pub(super) fn symbolic(x: &UOp, n: &UOp) -> Option<(UOp, UOp)> {
    let l = Affine::of(x)?;
    let mut q = Affine::number(l.dtype, 0);
    let mut r = Affine::number(l.dtype, l.constant);
    for (t, k) in &l.terms {
        if t == n {
            q.constant += k;
        } else if let Some(f) = cofactor(t, n) {
            q.term(f, *k)?;
        } else {
            r.terms.push((t.clone(), *k));
        }
    }
    below(&r, n).then(|| (q.build(), r.build()))
}

/// The other factor of a product.
fn cofactor<'a>(t: &'a UOp, n: &UOp) -> Option<&'a UOp> {
    match t.src() {
        [a, b] if t.op() == Op::Mul && b == n => Some(a),
        [a, b] if t.op() == Op::Mul && a == n => Some(b),
        _ => None,
    }
}

/// Whether 0 ≤ r < n: by intervals, or as n is the bound of the RANGE that r is.
fn below(r: &Affine, n: &UOp) -> bool {
    let (lo, hi) = r.interval();
    let counts = matches!(&r.terms[..], [(t, 1)] if t.op() == Op::Range && t.src()[0] == *n);
    lo >= 0 && hi < interval(n).0 || counts && r.constant == 0
}
