//! The simplifier: rules in files by root operator, composed into the sets that passes use.
//!
//! Flows in: any graph; flows out: the same values, written canonically. Invariants: a rule keeps the
//! value of every element (a zero's sign and a NaN's payload aside) and never makes code worse;
//! integers wrap as their dtype does, `index` is mathematical. Canonical means: CONST is the last
//! operand, RANGEs come first by number, other operands by structural order; sums of `index` are
//! Σ coefficient·atom + constant; integer comparisons have their variables with positive coefficients
//! on the left.

// Patterns such as x - x and x·0 are what rules are about.
#![allow(
    clippy::eq_op,
    clippy::erasing_op,
    clippy::identity_op,
    clippy::modulo_one
)]

mod add;
pub(crate) mod affine;
mod bits;
mod cast;
mod compare;
mod conditions;
mod idiv;
mod index;
mod logic;
mod minmax;
mod modulo;
mod movement;
mod mul;
mod reduce;
mod select;
mod solve;
mod stores;

pub(crate) use movement::masked_alike;
pub use solve::{placed, solve_equal, solve_less};
pub use stores::simplify_tensors;

use crate::arg::Arg;
use crate::dtype::DType;
use crate::fold;
use crate::marks::NodeMap;
use crate::node::{Srcs, UOp};
use crate::op::{Op, OpSet};
use crate::rewrite::{Rule, RuleSet};
use crate::rule;
use crate::scalar::Scalar;
pub use affine::{Affine, gcd};
pub use compare::below;
pub use conditions::{conjuncts, constraints};
use smallvec::SmallVec;
use std::sync::LazyLock;

/// Elementwise rules, for kernels, tensors and the arithmetic of shapes alike.
pub fn symbolic() -> &'static RuleSet {
    static SET: LazyLock<RuleSet> = LazyLock::new(|| {
        let arithmetic = [
            add::rules(),
            mul::rules(),
            idiv::rules(),
            modulo::rules(),
            compare::rules(),
        ];
        let others = [
            logic::rules(),
            select::rules(),
            cast::rules(),
            minmax::rules(),
            bits::rules(),
        ];
        let all = [constants()].into_iter().chain(arithmetic).chain(others);
        RuleSet::new("symbolic", all.flatten().collect())
    });
    &SET
}

/// `symbolic`, and movement, for tensor graphs that have been differentiated: DETACH is dropped. Graphs
/// with stores go through [`simplify_tensors`].
pub fn tensor() -> &'static RuleSet {
    static SET: LazyLock<RuleSet> =
        LazyLock::new(|| &RuleSet::new("tensor", movement::rules()) + symbolic());
    &SET
}

/// `symbolic`, and what concerns gates, indices, ranges and reductions, for kernels.
pub fn kernel() -> &'static RuleSet {
    static SET: LazyLock<RuleSet> = LazyLock::new(|| {
        let rules = [index::rules(), reduce::rules()];
        &RuleSet::new("kernel", rules.into_iter().flatten().collect()) + symbolic()
    });
    &SET
}

impl UOp {
    /// This expression in canonical, simplest form. What storage holds is no part of it: loops that fill it, rewritten for
    /// one of those who read it, would be others than those for the rest.
    pub fn simplify(&self) -> UOp {
        let mut done = NodeMap::new();
        if self.ops_below().contains(Op::After) {
            let filled = self.toposort_gated(|u| u.op() != Op::After);
            let filled = filled.into_iter().filter(|u| u.op() == Op::After);
            done.extend(filled.map(|u| (u.clone(), u)));
        }
        // The set has no endless loop that its tests know of; if it has one, the value is still right.
        let simple = symbolic().rewrite_with(self, &mut done);
        simple.unwrap_or_else(|_| self.clone())
    }
}

/// Commutative ops with x ∘ 0 = x.
const SUMS: OpSet = OpSet::of(&[Op::Add, Op::Or, Op::Xor]);
/// Others with x ∘ 0 = x.
const OFFSETS: OpSet = OpSet::of(&[Op::Sub, Op::Shl, Op::Shr]);
/// Ops with x ∘ x = x.
const CHOICES: OpSet = OpSet::of(&[Op::And, Op::Or, Op::Max]);
/// Ops with (x ∘ c) ∘ d = x ∘ (c ∘ d), modulo the dtype.
const CHAINS: OpSet = SUMS.union(CHOICES).with(Op::Mul);

fn constants() -> Vec<Rule> {
    vec![
        rule!(zero_added[x]: x.with_(SUMS, 0) => x),
        rule!(zero_taken[x]: x.with_(OFFSETS, 0) => x),
        rule!(itself_chosen[x]: x.with_(CHOICES, x) => x),
        rule!(constants_chained[u, v, x, c: cnst, d: cnst]: x.with_(CHAINS, c).bind(v).with_(CHAINS, d).bind(u) =>
            x.binary(u.op(), &c.binary(u.op(), d)), if u.op() == v.op() && u.dtype().is_int() && !c.is_invalid() && !d.is_invalid()),
        rule!(fold_constants[u]: Pat::first(OpSet::ELEMENTWISE, []).bind(u) => fold_constants(u)),
        rule!(known_value[u]: Pat::first(OpSet::ELEMENTWISE, []).bind(u) => known_value(u)),
        rule!(commute[u, x, y]: x.with_(OpSet::COMMUTATIVE, y).bind(u) =>
            u.with_src(Srcs::from_iter([y.clone(), x.clone()])), if key(y) < key(x) && !is_chain(u)),
    ]
}

/// Sums of integers, conjunctions and products of `index` have an order of their own: chains to the
/// left, by term; and so have the sides of equalities.
fn is_chain(u: &UOp) -> bool {
    match u.op() {
        Op::Add => u.dtype().is_int(),
        Op::And | Op::Or => u.dtype() == DType::Bool,
        Op::CmpEq | Op::CmpNe => {
            u.src()[0].dtype().is_int() && compare::difference(&u.src()[0], &u.src()[1]).is_some()
        }
        Op::Mul => u.dtype() == DType::Index && u.src()[0].op() == Op::Mul,
        _ => false,
    }
}

fn fold_constants(u: &UOp) -> Option<UOp> {
    let values = u.src().iter().map(UOp::const_value);
    let values = values.collect::<Option<SmallVec<[Scalar; 3]>>>()?;
    fold::fold(u.op(), u.src()[0].dtype(), u.dtype(), &values).map(|v| UOp::constant(v, u.dtype()))
}

/// An integer or bool whose interval is one point is that constant.
fn known_value(u: &UOp) -> Option<UOp> {
    let (lo, hi) = u.min_max().filter(|_| !u.dtype().is_float())?;
    (lo == hi).then(|| UOp::constant(lo, u.dtype()))
}

/// The canonical order of operands: RANGEs by number, others by structure, CONST last. Operands with
/// equal keys keep the order in which they were written.
pub(crate) fn key(u: &UOp) -> (u8, u64) {
    match u.arg() {
        Arg::Const(..) => (2, 0),
        Arg::Range(id, _) => (0, *id as u64),
        _ => (1, u.order_key()),
    }
}

/// Where numbers end, far outside of every dtype, with room to calculate: `index` is mathematical.
pub(crate) const FAR: i128 = 1 << 100;

/// The value of an integer CONST, exactly.
pub(crate) fn int(u: &UOp) -> Option<i128> {
    match u.const_value() {
        Some(Scalar::Int(v)) if v.unsigned_abs() < FAR.unsigned_abs() => Some(v),
        _ => None,
    }
}

/// An integer constant, wrapped to its dtype.
pub(crate) fn int_const(v: i128, dtype: DType) -> UOp {
    UOp::constant(Scalar::Int(v), dtype)
}

/// The interval of an integer or bool, exactly.
pub(crate) fn interval(u: &UOp) -> (i128, i128) {
    match u.min_max() {
        Some((lo, hi)) => (lo.to_i128().clamp(-FAR, FAR), hi.to_i128().clamp(-FAR, FAR)),
        None => (i64::MIN as i128, u64::MAX as i128),
    }
}

/// The least and greatest value of an integer dtype.
pub(crate) fn limits(d: DType) -> (i128, i128) {
    (d.min().to_i128(), d.max().to_i128())
}

/// Whether the interval lies in the dtype; that of an `index` may be unknown, and then does.
pub(crate) fn fits(d: DType, range: (i128, i128)) -> bool {
    d == DType::Index || has_room(d, range)
}

/// Whether the interval lies in the dtype, `index` being 64 bits: for sums that a rule makes up.
pub(crate) fn has_room(d: DType, (lo, hi): (i128, i128)) -> bool {
    let (min, max) = limits(d);
    lo >= min && hi <= max
}
