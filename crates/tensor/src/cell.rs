//! What clones of a tensor share. Flows in: expressions, or errors of building them; flows out: the same, and
//! what they were before they were assigned. Invariant: a cell holds one value at a time.

use monoglot_uop::{Op, Result, UOp};
use std::panic::Location;
use std::sync::atomic::AtomicU64;
use std::sync::{RwLock, Weak};

pub(crate) struct Cell {
    /// Read and written through `trace`, which knows whose turn it is.
    pub(crate) value: RwLock<Held>,
    /// Counts what it held: another value has another number.
    pub(crate) edition: AtomicU64,
    pub(crate) line: &'static Location<'static>,
    /// Set where this tensor is a view, so that assigning to it writes what it views.
    pub(crate) view: Option<View>,
    /// The trace that it was made in, or 0.
    pub(crate) made: u64,
}

/// What a cell holds.
#[derive(Clone)]
pub(crate) struct Held {
    pub(crate) value: Result<UOp>,
    /// Whether it was assigned and has not been realized since: reading it then realizes it, so that its
    /// history ends.
    pub(crate) assigned: bool,
    /// What an assigned tensor was before the first of those assigns, where its expression does not tell.
    before: Option<UOp>,
}

/// How a view comes from its base, neither of whose values it holds: the base's cell, as long as
/// somebody has it, and movement ops over a PARAM that stands for its value. Of an error, what the part that is
/// not there would be a part of.
pub(crate) struct View {
    pub(crate) base: Weak<Cell>,
    pub(crate) to: UOp,
}

impl Held {
    /// A value that was not assigned.
    pub(crate) fn of(value: Result<UOp>) -> Held {
        Held {
            value,
            assigned: false,
            before: None,
        }
    }

    /// The value in storage, unless another thread assigned another one meanwhile: there is what was there, or where that is.
    pub(crate) fn realized(&mut self, old: &UOp, new: UOp) {
        let stays = |now: &UOp| now == old || old.realized().as_ref() == Some(now);
        if self.value.as_ref().is_ok_and(stays) {
            *self = Held::of(Ok(new));
        }
    }

    /// Another value from now on, by an assignment.
    pub(crate) fn assign(&mut self, value: Result<UOp>) {
        // A second owner of a buffer would keep it from being written in place, and an expression over it
        // leads back to it.
        let leads_back = |old: &UOp| {
            let new = value.as_ref().map(|u| u.viewed().named());
            old.viewed().op() == Op::Buffer && new == Ok(old.viewed())
        };
        if !self.assigned {
            let old = self.value.as_ref().ok();
            self.before = old.filter(|old| !leads_back(old)).cloned();
        }
        self.value = value;
        self.assigned = true;
    }

    /// What it was before it was assigned.
    pub(crate) fn unassigned(&self) -> Result<UOp> {
        match &self.before {
            Some(before) => Ok(before.clone()),
            None => self.value.clone().map(|u| u.named().clone()),
        }
    }
}
