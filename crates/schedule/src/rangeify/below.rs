//! What a value is made of, as far as its nodes alone say. Flows in: a node; flows out: whether data is below it, what
//! its sums take in, and which product a kernel would do in slices. Nothing here knows of kernels or of what is stored by choice.

use super::is_stored;
use monoglot_uop::{Arg, Op, OpSet, ReduceOp, UOp};
use rustc_hash::FxHashSet;

/// Most terms of a sum that is kept, and most sums that what is kept is a factor of: those of longer products
/// are better done in blocks of more rows than a slice has.
pub(super) const TERMS: f64 = 128.0;
/// Most nodes that are looked at below a value.
const BELOW: usize = 64;

/// Ops by which values come from storage that need not be a device's.
const DATA: OpSet = OpSet::of(&[Op::Buffer, Op::Contiguous, Op::Copy, Op::After]);

/// Whether a value needs anything that is stored: not constants, variables and indices alone.
pub(super) fn is_data(u: &UOp) -> bool {
    u.device().is_some() || u.ops_below().intersects(DATA)
}

/// Whether this is where an index is equal to data: the data names the one place to which all goes that is chosen by it,
/// and who reads it stored, and not this, compares with all places.
pub(super) fn names_places(u: &UOp) -> bool {
    let equal = matches!(u.op(), Op::CmpEq | Op::CmpNe);
    let index = |s: &UOp| !is_data(s) && !is_same_everywhere(s);
    equal && is_data(u) && u.src().iter().any(index)
}

/// Whether all elements are one constant.
fn is_same_everywhere(mut u: &UOp) -> bool {
    while is_view(u) || u.op() == Op::Cast {
        u = &u.src()[0];
    }
    u.op() == Op::Const
}

/// Whether an op shows elements of its source in other places, and none besides.
pub(super) fn is_view(u: &UOp) -> bool {
    u.op().is_movement() && !matches!(u.op(), Op::Pad | Op::Index | Op::Stack)
}

/// Bytes of a value's elements.
pub(super) fn bytes(u: &UOp) -> f64 {
    u.shape().max_len() as f64 * u.dtype().bytes() as f64
}

/// Whether indices alone choose a value, or what is none: that tells those who read it where they need none of it.
pub(super) fn masks(u: &UOp) -> bool {
    let chosen = u.op() == Op::Where && !is_data(&u.src()[0]);
    chosen && u.src()[1..].iter().any(|s| !is_data(s))
}

/// Visit what is below a value, as far as `on` says; None where that is a long story.
fn walk<'a>(u: &'a UOp, mut on: impl FnMut(&'a UOp) -> bool) -> Option<()> {
    let mut seen: FxHashSet<&UOp> = FxHashSet::default();
    let mut open = vec![u];
    while let Some(at) = open.pop() {
        if seen.insert(at) && on(at) {
            open.extend(at.src());
        }
        if seen.len() > BELOW {
            return None;
        }
    }
    Some(())
}

/// Whether a sum folds a value, or what is made of it element by element.
fn folds(sum: &UOp, value: &UOp) -> bool {
    let mut found = false;
    walk(&sum.src()[0], |at| {
        found |= at == value;
        !found && at.op() != Op::Reduce && !is_stored(at)
    });
    found
}

/// How many terms the sums have of which an element of a value of this size is made; None where that is a long story.
pub(super) fn terms(u: &UOp, size: f64) -> Option<f64> {
    let mut terms = 0.0;
    walk(u, |at| {
        let whole = at.shape().max_len() as f64;
        // What a slice shares is computed once for all its elements.
        if at.op() == Op::Reduce && whole >= size {
            terms += at.src()[0].shape().max_len() as f64 / whole.max(1.0);
        }
        !matches!(at.op(), Op::Reduce | Op::Param) && !is_stored(at)
    })?;
    Some(terms)
}

/// The product of which a value is made, if a factor of it is made of short sums, and folded by another sum there as
/// well or nothing else is there: a kernel keeps that factor of its slices, as the weights of an attention that
/// divides last.
pub(super) fn product_of_slices(u: &UOp) -> Option<UOp> {
    let mut sums: Vec<&UOp> = Vec::new();
    let mut others = 0;
    walk(u, |at| {
        let sum = at.op() == Op::Reduce && is_data(at);
        let given = at.op() == Op::Param || is_stored(at);
        sums.extend(sum.then_some(at));
        others += usize::from(given && !sum);
        !sum && !given
    })?;
    let short = |f: &&UOp| {
        let terms = terms(f, f.shape().max_len() as f64);
        terms.is_some_and(|n| n > 0.0 && n <= TERMS)
    };
    let alone = sums.len() == 1 && others == 0;
    let sliced = |product: &&&UOp| {
        let kept = factors(product).find(short);
        let another = |kept| sums.iter().any(|s| s != *product && folds(s, kept));
        kept.is_some_and(|kept| alone || another(kept))
    };
    sums.iter().find(sliced).map(|p| (*p).clone())
}

/// Whether a REDUCE is a product that reads each of its factors again and again.
pub(super) fn is_product(u: &UOp) -> bool {
    matches!(u.arg(), Arg::Reduce(ReduceOp::Add, _)) && multiplies(&u.src()[0])
}

/// The factors of a REDUCE that is a product, as they are before they are repeated.
fn factors(u: &UOp) -> impl Iterator<Item = &UOp> {
    let value = is_product(u).then(|| counted(&u.src()[0]));
    value.into_iter().flat_map(UOp::src).map(UOp::viewed)
}

/// Whether a value, whose sums are asked for, is a product of factors that are the same for many of these, or where it
/// counts.
pub(crate) fn multiplies(value: &UOp) -> bool {
    let value = counted(value);
    let again = |factor: &UOp| {
        let mut at = factor;
        while at.op().is_movement() || at.op() == Op::Cast {
            if at.op() == Op::Expand {
                return true;
            }
            at = &at.src()[0];
        }
        false
    };
    value.op() == Op::Mul && value.src().iter().all(again)
}

/// A value where it counts, before it is made one of another dtype.
pub(crate) fn counted(mut value: &UOp) -> &UOp {
    let zero = |u: &UOp| u.const_value().is_some_and(|v| v.is_zero());
    loop {
        value = match (value.op(), value.src()) {
            (Op::Cast, [of]) => of,
            (Op::Where, [_, of, other]) if zero(other) => of,
            _ => return value,
        };
    }
}
