//! How operands are brought together: the dtype of both and the shape of all. Flows in: UOps; out: the
//! same values cast and expanded.

use crate::DType;
use monoglot_uop::{Dim, Error, Op, Result, Shape, UOp};

fn kind_of(d: DType) -> u8 {
    match d {
        DType::Bool => 0,
        d if d.is_float() => 2,
        _ => 1,
    }
}

/// The dtype of both operands together; a 0-d one is weak.
pub(crate) fn promoted(a: &UOp, b: &UOp) -> DType {
    let (x, y) = (a.dtype(), b.dtype());
    match (a.shape().is_empty(), b.shape().is_empty()) {
        (false, true) if kind_of(y) <= kind_of(x) => x,
        (true, false) if kind_of(x) <= kind_of(y) => y,
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
    for u in all {
        for (d, s) in dims.iter_mut().rev().zip(u.shape().iter().rev()) {
            if d.is(1) {
                *d = s.clone();
            } else if !s.is(1) && s != d {
                let shapes: Vec<String> = all.iter().map(|u| u.shape().to_string()).collect();
                return Err(Error::shape(op, format!("shapes {} do not broadcast", shapes.join(" and "))));
            }
        }
    }
    Ok(Shape::new(dims))
}

/// One value in a shape it broadcasts to.
pub(crate) fn broadcast_to(u: &UOp, shape: &Shape) -> Result<UOp> {
    if u.shape() == shape {
        return Ok(u.clone());
    }
    let missing = shape.len().saturating_sub(u.shape().len());
    let aligned = Shape::new(vec![Dim::Int(1); missing].into_iter().chain(u.shape().iter().cloned()));
    u.reshape(&aligned)?.expand(shape)
}

/// All in their common shape.
pub(crate) fn broadcast(op: &str, all: &[&UOp]) -> Result<Vec<UOp>> {
    let shape = broadcast_shape(op, all)?;
    all.iter().map(|u| broadcast_to(u, &shape)).collect()
}

/// An operand in its dtype and shape; a constant stays a CONST where the other one has the shape.
pub(crate) fn operand(u: &UOp, d: DType, shape: &Shape, other: &UOp) -> Result<UOp> {
    let mut c = u;
    while matches!(c.op(), Op::Reshape | Op::Expand) {
        c = &c.src()[0];
    }
    if let Some(v) = c.const_value() {
        let c = UOp::constant(v, d);
        let other_is_const = {
            let mut o = other;
            while matches!(o.op(), Op::Reshape | Op::Expand) {
                o = &o.src()[0];
            }
            o.op() == Op::Const
        };
        if other.shape() == shape && !other_is_const {
            return Ok(c);
        }
        return Ok(UOp::full(v.cast(d), d, shape));
    }
    broadcast_to(&u.cast(d), shape)
}
