//! Affine forms of integers, Σ coefficient·atom + constant. Flows in: an expression; flows out: its terms,
//! or an expression built from terms. Invariant: the value is that of the expression modulo the
//! dtype; it is exactly that where `exact` holds. Coefficients are the representatives nearest to 0.

use super::{FAR, fits, int, int_const, interval, key};
use crate::dtype::DType;
use crate::node::UOp;
use crate::op::Op;
use smallvec::{SmallVec, smallvec};

/// Longer sums are left as they are, so that a sum of n terms costs O(n).
const MOST_TERMS: usize = 24;
const MOST_NODES: usize = 96;

/// Σ coefficient·atom + constant.
#[derive(Clone, Debug, PartialEq)]
pub struct Affine {
    /// The dtype modulo which the value is that of the expression.
    pub dtype: DType,
    /// Atoms and their coefficients.
    pub terms: SmallVec<[(UOp, i128); 6]>,
    /// The constant.
    pub constant: i128,
}

impl Affine {
    /// The number `constant`.
    pub fn number(dtype: DType, constant: i128) -> Affine {
        Affine {
            dtype,
            terms: SmallVec::new(),
            constant,
        }
    }

    /// The terms of an integer expression; None where it is too long or holds the invalid index.
    pub fn of(u: &UOp) -> Option<Affine> {
        let mut out = Affine::number(u.dtype(), 0);
        out.add(u, 1)?;
        Some(out)
    }

    /// Add `k` times an expression.
    pub fn add(&mut self, u: &UOp, k: i128) -> Option<()> {
        let mut stack: SmallVec<[(&UOp, i128); 16]> = smallvec![(u, k)];
        let mut nodes = 0;
        while let Some((u, k)) = stack.pop() {
            nodes += 1;
            if nodes > MOST_NODES {
                return None;
            }
            let src = u.src();
            match u.op() {
                Op::Const => {
                    self.constant =
                        self.near(int(u)?.checked_mul(k)?.checked_add(self.constant)?)?
                }
                Op::Add => stack.extend([(&src[1], k), (&src[0], k)]),
                Op::Sub => stack.extend([(&src[1], self.near(-k)?), (&src[0], k)]),
                Op::Neg => stack.push((&src[0], self.near(-k)?)),
                Op::Mul => {
                    let factor = |i: usize| {
                        int(&src[1 - i])
                            .filter(|_| self.spreads(&src[i]))
                            .map(|c| (i, c))
                    };
                    match factor(0).or_else(|| factor(1)) {
                        Some((i, c)) => stack.push((&src[i], self.near(c.checked_mul(k)?)?)),
                        None => self.term(u, k)?,
                    }
                }
                _ => self.term(u, k)?,
            }
        }
        self.terms.retain(|t| t.1 != 0);
        Some(())
    }

    /// Whether a constant factor goes into this: multiplying out sums pays in index arithmetic only.
    fn spreads(&self, u: &UOp) -> bool {
        self.dtype == DType::Index || !matches!(u.op(), Op::Add | Op::Sub)
    }

    /// Add `k` times an atom.
    pub fn term(&mut self, atom: &UOp, k: i128) -> Option<()> {
        match self.terms.iter().position(|t| t.0 == *atom) {
            Some(i) => self.terms[i].1 = self.near(self.terms[i].1 + k)?,
            None if self.terms.len() == MOST_TERMS => return None,
            None => self.terms.push((atom.clone(), k)),
        }
        Some(())
    }

    /// Add `k` times another sum.
    pub fn plus(&mut self, other: &Affine, k: i128) -> Option<()> {
        for (atom, c) in &other.terms {
            self.term(atom, self.near(c.checked_mul(k)?)?)?;
        }
        self.constant = self.near(other.constant.checked_mul(k)?.checked_add(self.constant)?)?;
        self.terms.retain(|t| t.1 != 0);
        Some(())
    }

    /// The representative of `k` nearest to 0.
    fn near(&self, k: i128) -> Option<i128> {
        if self.dtype == DType::Index {
            return if k.unsigned_abs() < 1 << 63 {
                Some(k)
            } else {
                None
            };
        }
        let m = 1i128 << self.dtype.bits();
        let r = k.rem_euclid(m);
        Some(if r > m / 2 { r - m } else { r })
    }

    /// The interval of the sum before any wrapping, saturated far outside of every dtype.
    pub(crate) fn interval(&self) -> (i128, i128) {
        let mut lo = self.constant;
        let mut hi = self.constant;
        for (atom, k) in &self.terms {
            let (a, b) = interval(atom);
            let a = a.saturating_mul(*k);
            let b = b.saturating_mul(*k);
            lo = lo.saturating_add(a.min(b));
            hi = hi.saturating_add(a.max(b));
        }
        (lo.clamp(-FAR, FAR), hi.clamp(-FAR, FAR))
    }

    /// Whether nothing wraps: the expression's value is the sum itself.
    pub(crate) fn exact(&self) -> bool {
        self.dtype == DType::Index || fits(self.dtype, self.interval())
    }

    /// The same sum of numbers (for a caller who knows that nothing wraps), to calculate with it.
    pub(crate) fn unwrapped(mut self) -> Affine {
        self.dtype = DType::Index;
        self
    }

    /// As an expression, in canonical order.
    pub fn build(&self) -> UOp {
        self.build_by(key)
    }

    /// As an expression, its terms added in the order of what `key` says of their atoms.
    pub fn build_by<K: Ord>(&self, key: impl Fn(&UOp) -> K) -> UOp {
        let mut order: SmallVec<[&(UOp, i128); 8]> =
            self.terms.iter().filter(|t| t.1 != 0).collect();
        order.sort_by_key(|t| key(&t.0));
        let term = |(atom, k): &(UOp, i128)| {
            if *k == 1 {
                atom.clone()
            } else {
                atom * &int_const(*k, self.dtype)
            }
        };
        let constant = int_const(self.constant, self.dtype);
        match order.into_iter().map(term).reduce(|sum, t| sum + t) {
            None => constant,
            Some(sum) if self.constant == 0 => sum,
            Some(sum) => sum + constant,
        }
    }

    /// Divide every coefficient and the constant; the caller knows that they are multiples.
    pub fn divided(mut self, d: i128) -> Affine {
        for t in &mut self.terms {
            t.1 /= d;
        }
        self.constant /= d;
        self
    }

    /// The terms whose coefficients `d` divides (without the constant), and the rest with it.
    pub(crate) fn partition(&self, d: i128) -> (Affine, Affine) {
        let mut a = Affine::number(self.dtype, 0);
        let mut b = Affine::number(self.dtype, self.constant);
        for t in &self.terms {
            if t.1 % d == 0 {
                a.terms.push(t.clone());
            } else {
                b.terms.push(t.clone());
            }
        }
        (a, b)
    }
}

/// The atom of a term of a canonical sum.
pub(crate) fn atom(u: &UOp) -> &UOp {
    if u.op() == Op::Mul && u.src()[1].op() == Op::Const {
        &u.src()[0]
    } else {
        u
    }
}

/// Greatest common divisor of magnitudes.
pub fn gcd(a: i128, b: i128) -> i128 {
    let mut a = a.unsigned_abs();
    let mut b = b.unsigned_abs();
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a as i128
}
