//! Assignment. Flows in: a tensor, or a view of one, and its new value; out: the cell holds
//! AFTER(base, STORE(view of base, value)), the base with the viewed elements replaced.
//!
//! Reading is a snapshot: what was written down before keeps the old value, also where it is computed
//! later; the right-hand side is evaluated before anything is replaced.

use crate::index::Indices;
use crate::promote::{broadcast_to, unlike};
use crate::tensor::Tensor;
use crate::view::{hole, over};
use crate::{Operand, Result};
use monoglot_uop::{Error, ErrorKind, Op, UOp};
use std::panic::Location;

impl Tensor {
    /// Replace the value, for all clones; of a view, replace what it views. The value broadcasts and is
    /// cast. Where it does not fit, or there is no such view, this tensor and what it views carry the
    /// error from now on. The result is this tensor.
    #[track_caller]
    pub fn assign(&self, value: impl Into<Operand>) -> Tensor {
        let line = Location::caller();
        let value = value.into();
        let value = match &value {
            Operand::Tensor(t) => t.uop(),
            literal => self.instead("assign", literal).uop(),
        };
        let new = value.and_then(|v| self.replaced_by(&v));
        let new = new.map_err(|e| e.at(line));
        new.iter().for_each(|u| u.viewed().set_line(line));
        match new {
            Ok(_) => self.set(new),
            Err(e) => self.fail(e),
        }
        self.clone()
    }

    /// Carry an error from now on, and so what this is a view of.
    fn fail(&self, e: Error) {
        if let Some((Some(base), _)) = self.viewed() {
            base.set(Err(e.clone()));
        }
        self.set(Err(e));
    }

    /// This tensor's new expression; where it is a view, its base has its own from now on too.
    fn replaced_by(&self, value: &UOp) -> Result<UOp> {
        let old = self.uop()?;
        let viewed = self.viewed();
        if let Some((_, to)) = &viewed {
            hole(to)?;
        }
        let Some((Some(base), to)) = &viewed else {
            return Ok(replaced(&old, &fitted(value, &old)?));
        };
        // In one step: another thread may write to another part of it.
        base.update(|base| {
            let at = over(to, base);
            Ok(base.after(&[at.store(&fitted(value, &at)?)]))
        })
        .map(|new| over(to, &new))
    }

    /// Assign to the elements at these positions: `t.set_at((0, 1..3), 2.5)`. Where there are none, or the value does not
    /// fit, this tensor carries the error from now on.
    #[track_caller]
    pub fn set_at(&self, indices: impl Indices, value: impl Into<Operand>) -> Tensor {
        let part = self.index(indices);
        let scattered = || Error::argument("set_at", "index tensors name no view; use scatter");
        let place = part
            .check()
            .and_then(|()| part.viewed().ok_or_else(scattered));
        match place {
            Ok(_) => drop(part.assign(value)),
            Err(e) => self.fail(e.at(Location::caller())),
        }
        self.clone()
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
                "a value of shape {} for shape {}{}",
                value.shape(),
                at.shape(),
                unlike(value.shape(), at.shape())
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
