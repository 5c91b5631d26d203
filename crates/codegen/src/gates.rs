//! What a gate proves of an index. Flows in: an index, and the condition under which it is used; flows
//! out: whether it lies within its storage. Invariant: only what the condition's comparisons and the
//! intervals of their terms say is believed.

use monoglot_uop::rules::{Affine, conjuncts, constraints};
use monoglot_uop::{DType, Op, UOp};
use smallvec::SmallVec;

/// How deep quotients and remainders are looked into.
const DEEP: usize = 4;

/// The greatest value of `k` times an expression where the constraints hold, or that its terms' intervals give.
fn upper(e: &UOp, k: i128, given: &[Affine], deep: usize) -> Option<i128> {
    let mut sum = Affine::number(DType::Index, 0);
    sum.add(e, k)?;
    let mut rest = sum.terms;
    let mut bound = sum.constant;
    for c in given {
        // A positive multiple of the constraint's terms that the sum contains is at most −constant.
        let Some((first, k)) = c.terms.first() else {
            continue;
        };
        let factor = |t: &(UOp, i128)| {
            let r = rest.iter().find(|r| r.0 == t.0)?;
            (r.1 % t.1 == 0 && r.1 / t.1 > 0).then_some(r.1 / t.1)
        };
        let Some(f) = factor(&(first.clone(), *k)) else {
            continue;
        };
        if c.terms.iter().all(|t| factor(t) == Some(f)) {
            rest.retain(|r| c.terms.iter().all(|t| t.0 != r.0));
            bound -= f * c.constant;
        }
    }
    for (atom, k) in &rest {
        let (lo, hi) = atom_bounds(atom, given, deep);
        bound += (lo * k).max(hi * k);
    }
    Some(bound)
}

/// The interval of an atom where the constraints hold.
fn atom_bounds(atom: &UOp, given: &[Affine], deep: usize) -> (i128, i128) {
    let (lo, hi) = atom.bounds();
    let known = (lo as i128, hi as i128);
    let divisor = atom.src().get(1).and_then(UOp::as_int).filter(|&n| n > 0);
    let (Op::Idiv | Op::Mod, Some(n), true) = (atom.op(), divisor, deep > 0) else {
        return known;
    };
    let most = |k: i128| upper(&atom.src()[0], k, given, deep - 1);
    let (Some(hi), Some(low), n) = (most(1), most(-1), n as i128) else {
        return known;
    };
    let lo = -low;
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
    let given: SmallVec<[Affine; 8]> = conjuncts(gate).iter().flat_map(constraints).collect();
    let most = |k: i128| upper(index, k, &given, DEEP).unwrap_or(i128::MAX);
    (hi < size || most(1) < size as i128) && (lo >= 0 || most(-1) <= 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_prove_what_they_say() {
        let x = UOp::variable(0, 0, 30);
        let y = UOp::variable(1, 0, 9);
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
