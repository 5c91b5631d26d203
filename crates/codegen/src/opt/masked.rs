//! Reductions of what stands where a condition holds. Flows in: a REDUCE; flows out: its conditions, what
//! stands there, and what a condition says of a RANGE. Invariant: elsewhere stands the identity of the
//! REDUCE's operator, so that leaving elements out changes nothing.

use monoglot_uop::rules::conjuncts;
use monoglot_uop::{Arg, DType, Op, ReduceOp, UOp};
use smallvec::SmallVec;

/// A REDUCE of `conditions ? value : identity`.
pub(crate) struct Masked {
    pub(crate) reduce: UOp,
    pub(crate) op: ReduceOp,
    pub(crate) conditions: SmallVec<[UOp; 4]>,
    pub(crate) value: UOp,
}

impl Masked {
    pub(crate) fn of(reduce: &UOp) -> Option<Masked> {
        let op = match reduce.arg() {
            Arg::Reduce(op, axes) if axes.is_empty() && reduce.src().len() > 1 => *op,
            _ => return None,
        };
        if reduce.dtype() == DType::Index || !reduce.shape().is_empty() {
            return None;
        }
        let (condition, value) = chosen(op, &reduce.src()[0])?;
        Some(Masked {
            reduce: reduce.clone(),
            op,
            conditions: conjuncts(&condition),
            value,
        })
    }

    /// The RANGEs that it closes.
    pub(crate) fn closes(&self) -> &[UOp] {
        &self.reduce.src()[1..]
    }

    /// The one condition that varies with a RANGE, if the value and the others do not.
    pub(super) fn relates(&self, range: &UOp) -> Option<usize> {
        let varies = |u: &UOp| u.ranges().contains(range);
        let mut with = (0..self.conditions.len()).filter(|&i| varies(&self.conditions[i]));
        let one = with.next()?;
        (with.next().is_none() && !varies(&self.value)).then_some(one)
    }

    /// All conditions but one.
    pub(super) fn others(&self, but: usize) -> Option<UOp> {
        let others = self
            .conditions
            .iter()
            .enumerate()
            .filter(|(i, _)| *i != but);
        others.map(|(_, c)| c.clone()).reduce(|a, b| a & b)
    }

    /// Whether what it says may be left out (`Arg::Padding`).
    pub(crate) fn is_padding(&self) -> bool {
        choice(&self.reduce.src()[0]).is_some_and(|c| *c.arg() == Arg::Padding)
    }

    /// Whether it stands inside another reduction.
    pub(super) fn is_nested(&self) -> bool {
        let open = self.reduce.ranges();
        open.iter().any(|r| crate::loops::kind(r).is_reduce())
    }

    /// The identity of its operator.
    pub(crate) fn identity(&self) -> UOp {
        let dtype = self.reduce.dtype();
        UOp::constant(self.op.identity(dtype), dtype)
    }
}

/// What a REDUCE folds: behind a mask that only says which elements, which loops are spared for the most part
/// (`limits`), what stands there.
pub(crate) fn folded(reduce: &UOp) -> UOp {
    let counts = |c: &UOp| !c.ops_below().contains(Op::Index);
    match Masked::of(reduce) {
        Some(m) if m.conditions.iter().all(counts) => m.value,
        _ => reduce.src()[0].clone(),
    }
}

fn uncast(value: &UOp) -> &UOp {
    match value.op() {
        Op::Cast => &value.src()[0],
        _ => value,
    }
}

/// The choice that a value is.
fn choice(value: &UOp) -> Option<&UOp> {
    Some(uncast(value)).filter(|u| u.op() == Op::Where)
}

/// `(c, x)` of a value that is x where c holds, and the identity elsewhere.
fn chosen(op: ReduceOp, value: &UOp) -> Option<(UOp, UOp)> {
    let d = value.dtype();
    let identity = |u: &UOp| {
        let value = u.cast(d).simplify().const_value();
        value.is_some_and(|v| v == op.identity(d) || v.is_zero() && op == ReduceOp::Add)
    };
    let at = uncast(value);
    if at.dtype() == DType::Bool && at != value {
        return identity(&UOp::bool(false)).then(|| (at.clone(), value.like(1)));
    }
    match at.src() {
        [c, x, other] if at.op() == Op::Where && identity(other) => Some((c.clone(), x.cast(d))),
        [c, other, x] if at.op() == Op::Where && identity(other) => {
            Some((c.unary(Op::Not).simplify(), x.cast(d)))
        }
        _ if at == value && d == DType::Bool && op != ReduceOp::Mul => {
            Some((value.clone(), UOp::bool(true)))
        }
        _ => None,
    }
}
