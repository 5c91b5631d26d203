//! Shapes that tensors can have. Flows in: sizes as people write them, of which one may be −1; flows
//! out: shapes. Invariant: no size is below 0, and the bytes of all elements are a number.

use crate::length::{Sizes, product};
use monoglot_uop::{Dim, Error, Result, Shape};

/// Elements of a tensor, at most: their bytes are a number too.
pub(crate) const MOST: i64 = 1 << 59;

/// A shape that a tensor can have: no size below 0, and no more elements than can be addressed, also where there are
/// none.
pub(crate) fn sizes(op: &str, sizes: impl Into<Sizes>) -> Result<Shape> {
    let dims = sizes.into().0;
    let times = |n: i64, d: &Dim| match d.min() {
        ..0 => None,
        _ => n.checked_mul(d.max().max(1)),
    };
    match dims.iter().try_fold(1i64, times) {
        Some(0..=MOST) => Ok(Shape::new(dims)),
        _ => Err(Error::argument(op, format!("sizes {dims:?}"))),
    }
}

/// Sizes for the elements of `from`, of which at most one is −1, made whole.
pub(crate) fn whole(op: &str, from: &[Dim], want: &[Dim]) -> Result<Shape> {
    let Some(hole) = want.iter().position(|n| n.is(-1)) else {
        return sizes(op, Sizes(want.to_vec()));
    };
    let mut dims = want.to_vec();
    dims[hole] = Dim::Int(1);
    // Sizes that vary and stand on both sides are no part of the −1.
    let mut left: Vec<Dim> = from.to_vec();
    let mut given: Vec<Dim> = Vec::new();
    for d in &dims {
        match left.iter().position(|t| t == d && t.as_int().is_none()) {
            Some(same) => {
                left.remove(same);
            }
            None => given.push(d.clone()),
        }
    }
    let total = product(&left);
    let known = sizes(op, Sizes(given)).ok();
    let known = known.and_then(|s| product(&s).as_int()).unwrap_or(0);
    dims[hole] = match &total {
        Dim::Int(n) if known > 0 && n % known == 0 => Dim::Int(n / known),
        Dim::Sym(n) if known > 0 => Dim::simplest(n / known),
        _ => {
            let message = format!("{total:?} elements as {want:?}");
            return Err(Error::shape(op, message));
        }
    };
    sizes(op, Sizes(dims))
}
