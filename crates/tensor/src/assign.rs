//! Assignment. Flows in: a tensor, or a view of one, and its new value; out: the cell holds
//! AFTER(base, STORE(view of base, value)), the base with the viewed elements replaced.
//!
//! Reading is a snapshot: what was written down before keeps the old value, also where it is computed
//! later; the right-hand side is evaluated before anything is replaced.

use crate::index::Indices;
use crate::promote::broadcast_to;
use crate::tensor::Tensor;
use crate::{Operand, Result};
use monoglot_uop::node::Srcs;
use monoglot_uop::{Error, ErrorKind, Op, UOp};
use std::panic::Location;

impl Tensor {
    /// Replace the value, for all clones; of a view, replace what it views. The value broadcasts and is
    /// cast. Where it does not fit, this tensor carries the error from now on. The result is this
    /// tensor.
    #[track_caller]
    pub fn assign(&self, value: impl Into<Operand>) -> Tensor {
        let value = match value.into() {
            Operand::Tensor(t) => t,
            Operand::Int(v) => Tensor::full((), v),
            Operand::Float(v) => Tensor::full((), v),
            Operand::Bool(v) => Tensor::full((), v),
        };
        let both = self.uop().and_then(|u| Ok((u, value.uop()?)));
        let done = both.and_then(|(u, v)| self.replacement(&u, &v));
        match (done, &self.0.view) {
            (Ok((own, Some(base))), Some(view)) => {
                view.base.set(Ok(base));
                self.set(Ok(own));
            }
            (Ok((own, _)), _) => self.set(Ok(own)),
            (Err(e), view) => {
                let e = e.at(Location::caller());
                if let Some(v) = view {
                    v.base.set(Err(e.clone()));
                }
                self.set(Err(e));
            }
        }
        self.clone()
    }

    /// This tensor's new expression, and its base's where it is a view.
    fn replacement(&self, u: &UOp, v: &UOp) -> Result<(UOp, Option<UOp>)> {
        let Some(view) = &self.0.view else { return Ok((replaced(u, &fitted(v, u)?), None)) };
        let base = view.base.uop()?;
        let steps = chain(&view.from, &view.to)?;
        let at = follow(&base, &steps);
        let new = base.after(&[at.store(&fitted(v, &at)?)]);
        Ok((follow(&new, &steps), Some(new)))
    }

    /// Assign to the elements at these positions: `t.set_at((0, 1..3), 2.5)`.
    #[track_caller]
    pub fn set_at(&self, indices: impl Indices, value: impl Into<Operand>) -> Tensor {
        let part = self.index(indices);
        if part.check().is_ok() && part.0.view.is_none() {
            let message = "index tensors name no view; use scatter".to_string();
            return Tensor::failed(ErrorKind::Argument { op: "set_at".into(), message }.into());
        }
        match part.assign(value).check() {
            Ok(()) => self.clone(),
            Err(e) => Tensor::failed(e),
        }
    }
}

/// The value in the shape and dtype of what it replaces.
fn fitted(value: &UOp, at: &UOp) -> Result<UOp> {
    if let (Some(a), Some(b)) = (value.device(), at.device())
        && a != b
    {
        let message = format!("a value on {a} for a tensor on {b}; copy it with `to`");
        return Err(ErrorKind::Device { op: "assign".into(), message }.into());
    }
    let v = broadcast_to(&value.cast(at.dtype()), at.shape()).map_err(|_| {
        Error::shape("assign", format!("a value of shape {} for shape {}", value.shape(), at.shape()))
    })?;
    Ok(v)
}

/// A whole tensor replaced: stored into the same buffer where it has one.
fn replaced(old: &UOp, value: &UOp) -> UOp {
    let mut root = old;
    while root.op() == Op::After {
        root = &root.src()[0];
    }
    if root.op() == Op::Buffer { root.after(&[root.store(value)]) } else { value.clone() }
}

/// The movement ops from a base to its view, first one first.
fn chain(from: &UOp, to: &UOp) -> Result<Vec<UOp>> {
    let mut steps = Vec::new();
    let mut at = to;
    while at != from {
        let fits = at.op().is_movement() && !matches!(at.op(), Op::Stack | Op::Expand | Op::Index);
        if !fits || at.src().is_empty() {
            let message = format!("to a view through {}", at.op().name());
            return Err(ErrorKind::Argument { op: "assign".into(), message }.into());
        }
        steps.push(at.clone());
        at = &at.src()[0];
    }
    steps.reverse();
    Ok(steps)
}

/// The same view of another base.
fn follow(base: &UOp, steps: &[UOp]) -> UOp {
    steps.iter().fold(base.clone(), |u, s| {
        let src: Srcs = std::iter::once(&u).chain(&s.src()[1..]).cloned().collect();
        s.with_src(src)
    })
}
