//! How operands are brought together: the dtype of both and the shape of all. Flows in: UOps; out: the
//! same values cast and expanded.

use crate::DType;
use monoglot_uop::{Dim, Error, ErrorKind, Op, Result, Scalar, Shape, UOp};
use std::cmp::Ordering;
use std::ops::RangeInclusive;

fn kind_of(d: DType) -> u8 {
    match d {
        DType::Bool => 0,
        d if d.is_float() => 2,
        _ => 1,
    }
}

/// The dtype of both operands together; a 0-d one is weak.
pub(crate) fn promoted(a: &UOp, b: &UOp) -> DType {
    together((a, !a.shape().is_empty()), (b, !b.shape().is_empty()))
}

/// The dtype of two operands, each with how much it counts: what counts less decides only where its kind is higher.
pub(crate) fn together<N: Ord>((a, m): (&UOp, N), (b, n): (&UOp, N)) -> DType {
    let x = a.dtype();
    let y = b.dtype();
    match m.cmp(&n) {
        Ordering::Greater if kind_of(y) <= kind_of(x) => x,
        Ordering::Less if kind_of(x) <= kind_of(y) => y,
        _ => x.promote(y),
    }
}

/// The shape that all broadcast to: axes align at the right, sizes are equal or 1.
pub(crate) fn broadcast_shape(op: &str, all: &[&UOp]) -> Result<Shape> {
    let first = all[0].shape();
    if all.iter().all(|u| u.shape() == first) {
        return Ok(first.clone());
    }
    let n = all.iter().map(|u| u.shape().len()).max().unwrap_or(0);
    let mut dims: Vec<Dim> = vec![Dim::Int(1); n];
    let mut fits = true;
    for u in all {
        for (d, s) in dims.iter_mut().rev().zip(u.shape().iter().rev()) {
            if d.is(1) {
                *d = s.clone();
            } else {
                fits &= s.is(1) || s == d;
            }
        }
    }
    let shape = Shape::new(dims);
    if fits && shape.max_len() < i64::MAX {
        return Ok(shape);
    }
    let shapes: Vec<String> = all.iter().map(|u| u.shape().to_string()).collect();
    let mut message = format!("shapes {} do not broadcast", shapes.join(" and "));
    message += all
        .first()
        .zip(all.last())
        .map_or("", |(a, b)| unlike(a.shape(), b.shape()));
    Err(Error::shape(op, message))
}

/// What else there is to say of shapes that differ: they may be the same now.
pub(crate) fn unlike(a: &Shape, b: &Shape) -> &'static str {
    match a.now() == b.now() && (a.ints().is_none() || b.ints().is_none()) {
        true => "; these lengths are equal now, but of two variables, or of one and a number",
        false => "",
    }
}

/// One value in a shape it broadcasts to.
pub(crate) fn broadcast_to(u: &UOp, shape: &Shape) -> Result<UOp> {
    if u.shape() == shape {
        return Ok(u.clone());
    }
    let missing = shape.len().saturating_sub(u.shape().len());
    let aligned = Shape::new(
        vec![Dim::Int(1); missing]
            .into_iter()
            .chain(u.shape().iter().cloned()),
    );
    u.reshape(&aligned)?.expand(shape)
}

/// All in their common shape.
pub(crate) fn broadcast(op: &str, all: &[&UOp]) -> Result<Vec<UOp>> {
    let shape = broadcast_shape(op, all)?;
    all.iter().map(|u| broadcast_to(u, &shape)).collect()
}

/// An operand in its dtype and shape; a constant stays a CONST where the other one has the shape.
pub(crate) fn operand(u: &UOp, d: DType, shape: &Shape, other: &UOp) -> Result<UOp> {
    match constant_of(u) {
        None => broadcast_to(&u.cast(d), shape),
        Some(v) if other.shape() == shape && constant_of(other).is_none() => {
            Ok(UOp::constant(v, d))
        }
        Some(v) => broadcast_to(&UOp::constant(v, d), shape),
    }
}

/// The integers of a dtype; None where it has others, or truth values.
pub(crate) fn integers(d: DType) -> Option<RangeInclusive<i128>> {
    match (d.min(), d.max()) {
        (Scalar::Int(least), Scalar::Int(most)) => Some(least..=most),
        _ => None,
    }
}

/// Whether a dtype holds what takes the place of its values: less than 0 as the complement of its size where there is no
/// sign.
pub(crate) fn held(op: &str, value: i128, d: DType) -> Result<()> {
    match integers(d) {
        Some(all) if !(*all.start().min(&-all.end())..=*all.end()).contains(&value) => {
            let (least, most) = all.into_inner();
            let message = format!("{value} for a tensor of {d}, which holds {least} to {most}");
            Err(Error::dtype(op, message))
        }
        _ => Ok(()),
    }
}

/// The value of a constant of any shape.
pub(crate) fn constant_of(u: &UOp) -> Option<Scalar> {
    let mut u = u;
    while matches!(u.op(), Op::Reshape | Op::Expand) {
        u = &u.src()[0];
    }
    u.const_value()
}

/// The shape of `u` with these sizes in place of axis `a`.
pub(crate) fn resized<'a, D>(u: &UOp, a: usize, sizes: &'a [D]) -> Shape
where
    &'a D: Into<Dim>,
{
    let mut dims = u.shape().to_vec();
    dims.splice(a..=a, sizes.iter().map(Into::into));
    Shape::new(dims)
}

/// The size of one axis.
///
/// # Errors
/// `Unsupported` where it varies; `op` is who asks.
pub(crate) fn size_of(op: &str, u: &UOp, a: usize) -> Result<i64> {
    u.shape()[a].as_int().ok_or_else(|| {
        let message = format!("axis {a} of shape {}, which varies", u.shape());
        let op = op.into();
        ErrorKind::Unsupported { op, message }.into()
    })
}

/// A scalar as a vector of one element, which ops along an axis take it for; all else as it is.
pub(crate) fn vector(u: &UOp) -> Result<UOp> {
    if u.shape().is_empty() {
        u.reshape(&Shape::of(&[1]))
    } else {
        Ok(u.clone())
    }
}

/// A new axis of size 1 before axis `a`.
pub(crate) fn insert_axis(u: &UOp, a: usize) -> Result<UOp> {
    let mut dims: Vec<Dim> = u.shape().to_vec();
    dims.insert(a, Dim::Int(1));
    u.reshape(&Shape::new(dims))
}

/// A vector along axis `a` of a shape, repeated along the others.
pub(crate) fn spread(vector: &UOp, a: usize, shape: &Shape) -> Result<UOp> {
    let mut dims = vec![Dim::Int(1); shape.len()];
    dims[a] = vector.shape()[0].clone();
    vector.reshape(&Shape::new(dims))?.expand(shape)
}

/// A size as a value of a dtype and shape.
pub(crate) fn number(n: &Dim, dtype: DType, shape: &Shape) -> Result<UOp> {
    match n {
        Dim::Int(n) => Ok(UOp::int(*n, dtype)),
        Dim::Sym(n) => {
            let one = Shape::new(vec![Dim::Int(1); shape.len()]);
            n.cast(dtype).reshape(&one)?.expand(shape)
        }
    }
}

/// What counts n places, with as much room again for what is added: i32 where it can.
pub(crate) fn counter(n: i64) -> DType {
    if n < 1 << 30 { DType::I32 } else { DType::I64 }
}

/// 0, 1, … along axis `a` of a shape.
pub(crate) fn count(a: usize, shape: &Shape, dtype: DType) -> Result<UOp> {
    UOp::count(a, shape, dtype)
}

/// What holds of row and column numbers of the last two axes.
pub(crate) fn triangle(
    op: &str,
    shape: &Shape,
    holds: impl FnOnce(&UOp, &UOp) -> UOp,
) -> Result<UOp> {
    match shape.len() {
        n @ 2.. => {
            let d = counter(shape[n - 2].max().max(shape[n - 1].max()));
            Ok(holds(&count(n - 2, shape, d)?, &count(n - 1, shape, d)?))
        }
        _ => Err(Error::shape(op, format!("shape {shape} is no matrix"))),
    }
}
