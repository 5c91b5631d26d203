//! Assignment. Flows in: a tensor, or a view of one, and its new value; out: the cell holds
//! AFTER(base, STORE(view of base, value)), the base with the viewed elements replaced.
//!
//! Reading is a snapshot: what was written down before keeps the old value, also where it is computed
//! later; the right-hand side is evaluated before anything is replaced.

use crate::index::Indices;
use crate::promote::broadcast_to;
use crate::tensor::Tensor;
use crate::{Operand, Result};
use monoglot_uop::{Error, ErrorKind, Op, UOp};
use std::panic::Location;

impl Tensor {
    /// Replace the value, for all clones; of a view, replace what it views. The value broadcasts and is
    /// cast. Where it does not fit, this tensor carries the error from now on. The result is this
    /// tensor.
    #[track_caller]
    pub fn assign(&self, value: impl Into<Operand>) -> Tensor {
        let (line, value) = (Location::caller(), value.into());
        let value = match &value {
            Operand::Tensor(t) => t.uop(),
            literal => self.beside(literal).uop(),
        };
        let value = self.uop().and_then(|old| self.replacement(&old, &value?));
        let (own, new) = match value.map_err(|e| e.at(line)) {
            Ok((own, new)) => (Ok(own), new.map(Ok)),
            Err(e) => (Err(e.clone()), Some(Err(e))),
        };
        if let (Some((Some(base), _)), Some(new)) = (self.viewed(), new) {
            base.set(new);
        }
        self.set(own);
        self.clone()
    }

    /// This tensor's new expression, and its base's where it is a view.
    fn replacement(&self, old: &UOp, value: &UOp) -> Result<(UOp, Option<UOp>)> {
        let viewed = self.viewed();
        let hole = viewed.as_ref().map(|(_, to)| hole(to)).transpose()?;
        let (Some((Some(base), to)), Some(hole)) = (viewed, hole) else {
            return Ok((replaced(old, &fitted(value, old)?), None));
        };
        let of = |base: &UOp| to.substitute(&[(hole.clone(), base.clone())].into_iter().collect());
        let base = base.uop()?;
        let at = of(&base);
        let new = base.after(&[at.store(&fitted(value, &at)?)]);
        Ok((of(&new), Some(new)))
    }

    /// Assign to the elements at these positions: `t.set_at((0, 1..3), 2.5)`.
    #[track_caller]
    pub fn set_at(&self, indices: impl Indices, value: impl Into<Operand>) -> Tensor {
        let part = self.index(indices);
        if part.check().is_ok() && part.viewed().is_none() {
            return Tensor::failed(Error::argument(
                "set_at",
                "index tensors name no view; use scatter",
            ));
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
        return Err(ErrorKind::Device {
            op: "assign".into(),
            message,
        }
        .into());
    }
    broadcast_to(&value.cast(at.dtype()), at.shape()).map_err(|_| {
        Error::shape(
            "assign",
            format!(
                "a value of shape {} for shape {}",
                value.shape(),
                at.shape()
            ),
        )
    })
}

/// A whole tensor replaced: stored into the same buffer where it has one.
fn replaced(old: &UOp, value: &UOp) -> UOp {
    let mut root = old;
    while root.op() == Op::After {
        root = &root.src()[0];
    }
    if root.op() == Op::Buffer {
        root.after(&[root.store(value)])
    } else {
        value.clone()
    }
}

/// What stands for the base in a view, whose elements all are places of their own.
fn hole(to: &UOp) -> Result<&UOp> {
    let mut at = to;
    while at.op() != Op::Param {
        if !at.op().is_movement() || matches!(at.op(), Op::Stack | Op::Expand | Op::Index) {
            return Err(Error::argument(
                "assign",
                format!("to a view through {}", at.op().name()),
            ));
        }
        at = &at.src()[0];
    }
    Ok(at)
}
