//! A function as a body that is called: what a trace took down, over PARAMs. Flows in: a trace, then calls;
//! flows out: expressions, FUNCTIONs of that body, and the cells that a call leaves with other values.
//!
//! Invariant: the body holds nothing of the call that it was traced with. What it reaches is looked up anew in
//! every call, and what it assigns is a value of the call.

use crate::random;
use crate::recorded::{Facts, Source, Traced, assigned_view};
use crate::signature::{Shown, Signature, with_lengths};
use crate::stand_ins;
use crate::tensor::Tensor;
use crate::trace::Draw;
use crate::tree::Tensors;
use monoglot_uop::function::{call, checkpoint};
use monoglot_uop::{Op, Result, UOp};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// A function as a body.
pub(crate) struct Called<R> {
    signature: Arc<Signature>,
    facts: Facts<R>,
    body: UOp,
    arguments: Vec<Argument>,
    /// For each root that is given out, its number among the values of the body.
    values: Vec<Option<usize>>,
}

/// Where an argument of the body comes from.
enum Argument {
    /// It is an input, by number.
    Input(usize),
    /// It is a word of a draw, by number.
    Word(usize),
    /// It is a length, by number.
    Length(usize),
    /// It is the same in every call: data that the function makes tensors of.
    Constant(UOp),
}

impl<R: Tensors> Called<R> {
    /// The body that was traced.
    ///
    /// # Errors
    /// `Argument` where a tensor cannot be one of the body's.
    pub(crate) fn of(traced: Traced<R>, signature: Arc<Signature>) -> Result<Called<R>> {
        let Traced { capture, facts, .. } = traced;
        let mut roots: Vec<UOp> = Vec::new();
        let mut values = Vec::with_capacity(capture.roots.len());
        for (root, shown) in capture.roots.iter().zip(&capture.shown) {
            values.push(shown.then_some(roots.len()));
            roots.extend(shown.then(|| assigned(root)));
        }
        let mut place: FxHashMap<&UOp, Argument> = FxHashMap::default();
        let numbered = |all| Iterator::zip(<[UOp]>::iter(all), 0..);
        place.extend(numbered(&capture.inputs).map(|(u, k)| (u, Argument::Input(k))));
        place.extend(numbered(&capture.words).map(|(u, k)| (u, Argument::Word(k))));
        place.extend(numbered(&capture.lengths).map(|(u, k)| (u, Argument::Length(k))));
        let made = stand_ins::body(roots, |u| place.contains_key(u))?;
        let argument = |u: &UOp| {
            let known = place.remove(u);
            known.unwrap_or_else(|| Argument::Constant(u.clone()))
        };
        Ok(Called {
            signature,
            arguments: made.arguments.iter().map(argument).collect(),
            body: made.body,
            facts,
            values,
        })
    }

    /// Whether it stands for a call.
    pub(crate) fn stands_for(&self, shown: &Shown) -> bool {
        self.signature == shown.signature && self.facts.guards.hold(shown)
    }

    /// What differs in another trace of the same call, if anything does.
    pub(crate) fn differs(&self, other: &Called<R>) -> Option<&'static str> {
        if !self.facts.draws_as(&other.facts) {
            return Some("it draws other random numbers");
        }
        (self.body != other.body).then_some("it computes something else")
    }

    /// What a call gives, and what it assigns. `again`: its derivative keeps nothing of it.
    ///
    /// # Errors
    /// Those that tensors carry which the function reaches; `Capture` where a view is passed that the function assigns,
    /// and it has what that is a view of as well.
    pub(crate) fn call(&self, shown: &Shown, again: bool) -> Result<R> {
        let facts = &self.facts;
        self.check_views(shown)?;
        let mut words: Vec<UOp> = Vec::new();
        for draw in &facts.draws {
            match draw {
                Draw::Numbers(count) => {
                    let count = with_lengths(count, &facts.lengths, &shown.lengths);
                    words.extend(random::words(&count)?);
                }
                Draw::Seed(seed) => Tensor::manual_seed(*seed),
            }
        }
        let mut arguments = Vec::with_capacity(self.arguments.len());
        for argument in &self.arguments {
            arguments.push(match argument {
                Argument::Input(k) => facts.inputs[*k].tensor(shown).uop()?,
                Argument::Word(k) => words[*k].clone(),
                Argument::Length(k) => shown.lengths[*k].clone(),
                Argument::Constant(u) => u.clone(),
            });
        }
        let values = match again {
            true => checkpoint(&self.body, &arguments)?,
            false => call(&self.body, &arguments)?,
        };
        let value = |k: &Option<usize>| k.map(|k| values[k].clone());
        let values: Vec<Option<UOp>> = self.values.iter().map(value).collect();
        for write in &facts.writes {
            if let Some(value) = &values[write.root] {
                let to = write.to.tensor(shown);
                to.assign(Tensor::from_uop(value.clone())).check()?;
            }
        }
        facts.tree(shown, &values)
    }
}

impl<R> Called<R> {
    /// What is written through a view would not be seen in other tensors of the function.
    fn check_views(&self, shown: &Shown) -> Result<()> {
        let Facts { inputs, writes, .. } = &self.facts;
        for write in writes {
            let Source::Argument(k) = &write.to else {
                continue;
            };
            let view = write.to.tensor(shown);
            if view.viewed().is_none() {
                continue;
            }
            let root = view.root();
            let others = inputs.iter().chain(writes.iter().map(|w| &w.to));
            let mut others = others.map(|other| other.tensor(shown));
            if others.any(|t| !t.is_clone_of(view) && t.root().is_clone_of(&root)) {
                return Err(assigned_view(*k, view));
            }
        }
        Ok(())
    }
}

/// What a root's storage is left with: the value of an assignment to all of it.
pub(crate) fn assigned(root: &UOp) -> UOp {
    match root.src() {
        [base, store]
            if root.op() == Op::After
                && base.op() == Op::Buffer
                && store.op() == Op::Store
                && store.src()[0] == *base
                && store.src()[1].shape() == base.shape() =>
        {
            store.src()[1].clone()
        }
        _ => root.clone(),
    }
}
