//! Integer sums as Σ coefficient·atom + constant. Flows in: an index expression; flows out: its
//! terms, which bounds, hoisting and contiguity are read from. Invariant: the form has the value of
//! the expression (a product that would leave i64 stays an atom).

use monoglot_uop::{DType, Op, UOp};
use smallvec::{SmallVec, smallvec};

/// Σ coefficient·atom + constant.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LinearForm {
    pub(crate) terms: SmallVec<[(UOp, i64); 6]>,
    pub(crate) constant: i64,
}

impl LinearForm {
    /// The terms of an expression.
    pub(crate) fn of(u: &UOp) -> LinearForm {
        LinearForm::times(u, 1)
    }

    fn times(u: &UOp, k: i64) -> LinearForm {
        let mut form = LinearForm::default();
        form.add(u, k);
        form
    }

    /// Add `k` times an expression.
    pub(crate) fn add(&mut self, u: &UOp, k: i64) {
        let mut stack: SmallVec<[(UOp, i64); 8]> = smallvec![(u.clone(), k)];
        while let Some((u, k)) = stack.pop() {
            let src = u.src();
            match u.op() {
                Op::Const => match u.as_int().and_then(|c| c.checked_mul(k)?.checked_add(self.constant)) {
                    Some(c) => self.constant = c,
                    None => self.term(&u, k),
                },
                Op::Add => stack.extend([(src[1].clone(), k), (src[0].clone(), k)]),
                Op::Sub if k != i64::MIN => stack.extend([(src[1].clone(), -k), (src[0].clone(), k)]),
                Op::Neg if k != i64::MIN => stack.push((src[0].clone(), -k)),
                Op::Mul => {
                    let by = |x: &UOp, c: &UOp| Some((x.clone(), c.as_int()?.checked_mul(k)?));
                    match by(&src[0], &src[1]).or_else(|| by(&src[1], &src[0])) {
                        Some(scaled) => stack.push(scaled),
                        None => self.term(&u, k),
                    }
                }
                _ => self.term(&u, k),
            }
        }
        self.terms.retain(|t| t.1 != 0);
    }

    fn term(&mut self, u: &UOp, k: i64) {
        match self.terms.iter_mut().find(|t| t.0 == *u) {
            Some(t) => t.1 = t.1.saturating_add(k),
            None => self.terms.push((u.clone(), k)),
        }
    }

    /// The expression again, its terms added in the order of `depth`, the constant last: what varies
    /// least stands innermost, so that partial sums can leave the loops that they do not depend on.
    pub(crate) fn by_depth(mut self, dtype: DType, depth: impl Fn(&UOp) -> u64) -> UOp {
        self.terms.sort_by_cached_key(|t| depth(&t.0));
        let term = |(u, k): &(UOp, i64)| if *k == 1 { u.clone() } else { u * &UOp::int(*k, dtype) };
        match self.terms.iter().map(term).reduce(|sum, t| sum + t) {
            Some(s) if self.constant == 0 => s,
            Some(s) => s + UOp::int(self.constant, dtype),
            None => UOp::int(self.constant, dtype),
        }
    }
}

/// The conjuncts of a condition.
pub(crate) fn conjuncts(gate: &UOp) -> SmallVec<[UOp; 4]> {
    let mut out: SmallVec<[UOp; 4]> = SmallVec::new();
    let mut stack: SmallVec<[UOp; 4]> = smallvec![gate.clone()];
    while let Some(u) = stack.pop() {
        if u.op() == Op::And {
            stack.extend([u.src()[1].clone(), u.src()[0].clone()]);
        } else if !out.contains(&u) && !u.is_bool(true) {
            out.push(u);
        }
    }
    out
}

/// What a conjunct says, as sums that are at most 0; nothing where it is not a comparison of integers.
fn constraints(u: &UOp, out: &mut SmallVec<[LinearForm; 8]>) {
    let (mut u, mut negated) = (u, false);
    loop {
        match u.op() {
            Op::Not => u = &u.src()[0],
            Op::CmpNe | Op::Xor if u.src()[1].is_bool(true) => u = &u.src()[0],
            _ => break,
        }
        negated = !negated;
    }
    if !u.op().is_comparison() || !u.src()[0].dtype().is_int() {
        return;
    }
    // a − b + strict ≤ 0.
    let mut below = |a: &UOp, b: &UOp, strict: i64| {
        let mut f = LinearForm::of(a);
        f.add(b, -1);
        if let Some(c) = f.constant.checked_add(strict) {
            f.constant = c;
            out.push(f);
        }
    };
    let (a, b) = (&u.src()[0], &u.src()[1]);
    match (u.op(), negated) {
        (Op::CmpLt, false) | (Op::CmpGe, true) => below(a, b, 1),
        (Op::CmpLt, true) | (Op::CmpGe, false) => below(b, a, 0),
        (Op::CmpGt, false) | (Op::CmpLe, true) => below(b, a, 1),
        (Op::CmpGt, true) | (Op::CmpLe, false) => below(a, b, 0),
        (Op::CmpEq, false) | (Op::CmpNe, true) => {
            below(a, b, 0);
            below(b, a, 0);
        }
        _ => {}
    }
}

/// How deep quotients and remainders are looked into.
const DEEP: usize = 4;

/// The greatest value of a sum where the constraints hold, or that its terms' intervals give.
fn upper(e: &LinearForm, given: &[LinearForm], deep: usize) -> i128 {
    let mut rest = e.terms.clone();
    let mut bound = e.constant as i128;
    for c in given {
        // A positive multiple of the constraint's terms that the sum contains is at most −constant.
        let Some((first, k)) = c.terms.first() else { continue };
        let factor = |t: &(UOp, i64)| {
            let r = rest.iter().find(|r| r.0 == t.0)?;
            (r.1 % t.1 == 0 && r.1 / t.1 > 0).then_some(r.1 / t.1)
        };
        let Some(f) = factor(&(first.clone(), *k)) else { continue };
        if c.terms.iter().all(|t| factor(t) == Some(f)) {
            rest.retain(|r| c.terms.iter().all(|t| t.0 != r.0));
            bound += f as i128 * -(c.constant as i128);
        }
    }
    for (atom, k) in &rest {
        let (lo, hi) = atom_bounds(atom, given, deep);
        bound += (lo * *k as i128).max(hi * *k as i128);
    }
    bound
}

/// The interval of an atom where the constraints hold.
fn atom_bounds(atom: &UOp, given: &[LinearForm], deep: usize) -> (i128, i128) {
    let (lo, hi) = atom.bounds();
    let known = (lo as i128, hi as i128);
    let divisor = atom.src().get(1).and_then(UOp::as_int).filter(|&n| n > 0);
    let (Op::Idiv | Op::Mod, Some(n), true) = (atom.op(), divisor, deep > 0) else { return known };
    let hi = upper(&LinearForm::of(&atom.src()[0]), given, deep - 1);
    let lo = -upper(&LinearForm::times(&atom.src()[0], -1), given, deep - 1);
    let n = n as i128;
    let found = match atom.op() {
        Op::Idiv => (lo.div_euclid(n), hi.div_euclid(n)),
        _ if lo.div_euclid(n) == hi.div_euclid(n) => (lo.rem_euclid(n), hi.rem_euclid(n)),
        _ => (0, n - 1),
    };
    (known.0.max(found.0), known.1.min(found.1))
}

/// Whether 0 ≤ `index` < `size` wherever `gate` holds.
pub(crate) fn in_bounds(index: &UOp, size: i64, gate: Option<&UOp>) -> bool {
    let (lo, hi) = index.bounds();
    if lo >= 0 && hi < size {
        return true;
    }
    let Some(gate) = gate else { return false };
    let mut given: SmallVec<[LinearForm; 8]> = SmallVec::new();
    for c in conjuncts(gate) {
        constraints(&c, &mut given);
    }
    let most = |k: i64| upper(&LinearForm::times(index, k), &given, DEEP);
    (hi < size || most(1) < size as i128) && (lo >= 0 || most(-1) <= 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_prove_what_they_say() {
        let (x, y) = (UOp::variable(0, 0, 30), UOp::variable(1, 0, 9));
        let i = &x + -1;
        let gate = UOp::int(0, DType::Index).lt(&x) & x.lt(&x.like(29));
        assert!(in_bounds(&i, 28, Some(&gate)));
        assert!(!in_bounds(&i, 27, Some(&gate)));
        assert!(!in_bounds(&i, 28, None));
        // Two constraints on a merged axis.
        let flat = (&i * 10) + &y;
        assert!(in_bounds(&flat, 280, Some(&gate)));
        assert!(!in_bounds(&flat, 279, Some(&gate)));
        // What a gate says of a number bounds its quotient.
        let quotient = &x / 7;
        assert!(!in_bounds(&quotient, 3, None));
        assert!(in_bounds(&quotient, 3, Some(&x.lt(&x.like(21)))));
        let not = x.ge(&x.like(5)).ne_(&UOp::bool(true));
        assert!(in_bounds(&x, 5, Some(&not)));
    }
}
