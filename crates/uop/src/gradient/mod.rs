//! Reverse-mode differentiation of tensor graphs. Flows in: a root, the gradient of what comes after it,
//! and targets; flows out: for each target the gradient as another tensor graph, which can be
//! differentiated again.
//!
//! One rule an op (`rule`), a `match` over the whole op table. The walk is iterative and linear in the
//! graph; sums are made in the graph's own order, so the result depends on nothing but the input.
//!
//! A builder of a composition may know its derivative in a simpler or more accurate form than the one
//! that follows from the parts (tanh: 1 − y²). It says so with a `Shortcut` beside the node. That is no
//! part of the node's meaning: without it the parts are differentiated, to the same values (but where
//! a function has a kink and its builder chooses the side).

use crate::arg::Arg;
use crate::error::{Error, ErrorKind, Result};
use crate::function::{own_sources, taken};
use crate::graph::ordered;
use crate::node::{Flow, Shortcut, Srcs, UOp};
use crate::op::Op;
use crate::scalar::Scalar;
use rustc_hash::{FxHashMap, FxHashSet};

mod active;
mod call;
mod calls;
mod kept;
mod rules;
mod scans;

use active::Active;
use calls::Calls;
use rules::{fit, rule};

/// The gradient of Σ(root · seed) for every target; None where the root does not depend on it.
///
/// # Errors
/// `Gradient` where two targets are one node, where shapes or dtypes of root and seed differ, and
/// where the path goes through an op that has no derivative (CALL).
pub fn gradient(root: &UOp, seed: &UOp, targets: &[UOp]) -> Result<Vec<Option<UOp>>> {
    gradients(&[(root.clone(), seed.clone())], targets)
}

/// The gradient of the sum of Σ(root · seed) over all of these for every target.
fn gradients(roots: &[(UOp, UOp)], targets: &[UOp]) -> Result<Vec<Option<UOp>>> {
    let wanted: FxHashSet<&UOp> = targets.iter().collect();
    if wanted.len() < targets.len() {
        let message = "two of the tensors are one and the same value; name it once, or make each a parameter of its own";
        return Err(failed(message));
    }
    for (root, seed) in roots {
        if root.shape() != seed.shape() || root.dtype() != seed.dtype() || !root.dtype().is_float()
        {
            let a = root.dtype();
            let b = seed.dtype();
            return Err(failed(format!(
                "of {a} {} with a seed of {b} {}",
                root.shape(),
                seed.shape()
            )));
        }
    }
    let all: Vec<UOp> = roots.iter().map(|(root, _)| root.clone()).collect();
    let order: Vec<UOp> = ordered(&all, own_sources).into_iter().cloned().collect();
    let active = Active::of(&order, &wanted);
    let mut grads: FxHashMap<UOp, UOp> = FxHashMap::default();
    let mut found: FxHashMap<&UOp, UOp> = FxHashMap::default();
    for (root, seed) in roots {
        add(&mut grads, root, seed.clone());
    }
    let mut calls = Calls::default();
    let mut give = Vec::new();
    let mut outputs = call::Outputs::default();
    for u in order.iter().rev() {
        if u.op() == Op::Function && active.contains(u) {
            calls.flow(u, &|s| active.contains(s), &mut give)?;
            spread(&mut grads, &active, &mut give)?;
            continue;
        }
        if u.op() == Op::Call {
            outputs.flow(u, &|s| active.contains(s), &mut give)?;
            spread(&mut grads, &active, &mut give)?;
            continue;
        }
        let Some(g) = grads.remove(u) else { continue };
        if !active.contains(u) {
            continue;
        }
        if wanted.contains(u) {
            found.insert(u, g.clone());
        }
        if let Some((function, i)) = taken(u) {
            calls.reaches(function, i, g);
            continue;
        }
        if outputs.take(u, &g) {
            continue;
        }
        match usable(u, &wanted, &active.below) {
            Some(s) => {
                let wanted: Vec<bool> = s.inputs.iter().map(|i| active.contains(i)).collect();
                let flow = Flow {
                    y: u,
                    inputs: &s.inputs,
                    params: &s.params,
                    g: &g,
                    wanted: &wanted,
                };
                let parts = (s.rule)(&flow)?;
                let all = s.inputs.iter().zip(parts);
                give.extend(all.filter_map(|(i, p)| Some((i.clone(), p?))));
            }
            None => rule(u, &g, &|s| active.contains(s), &mut give)?,
        }
        spread(&mut grads, &active, &mut give)?;
    }
    Ok(targets.iter().map(|t| found.get(t).cloned()).collect())
}

/// Add what is given to what flows to each node already.
fn spread(
    grads: &mut FxHashMap<UOp, UOp>,
    active: &Active,
    give: &mut Vec<(UOp, UOp)>,
) -> Result<()> {
    for (to, part) in give.drain(..) {
        if active.contains(&to) {
            let part = fit(&to, part)?;
            add(grads, &to, part);
        }
    }
    Ok(())
}

fn add(grads: &mut FxHashMap<UOp, UOp>, to: &UOp, part: UOp) {
    let sum = match grads.remove(to) {
        Some(old) => old + part,
        None => part,
    };
    grads.insert(to.clone(), sum);
}

/// The shortcut of a node, unless a target is among the parts between it and its inputs: then the parts
/// are asked.
fn usable<'a>(
    u: &'a UOp,
    wanted: &FxHashSet<&UOp>,
    below: &FxHashSet<&UOp>,
) -> Option<&'a Shortcut> {
    let shortcut = u.shortcut()?;
    let mut open = Vec::from_iter(u.src());
    let mut seen = FxHashSet::default();
    while let Some(part) = open.pop() {
        if shortcut.inputs.contains(part) || !below.contains(part) || !seen.insert(part) {
            continue;
        }
        if wanted.contains(part) {
            return None;
        }
        open.extend(part.src());
    }
    Some(shortcut)
}

/// `u · factor`; factors of one chain are multiplied together, as a derivative rounds where it likes.
pub fn scale(u: &UOp, factor: f64) -> UOp {
    let (x, factor) = match (u.op(), u.src()) {
        (Op::Mul, [x, c]) if c.const_value().is_some() => {
            (x, c.const_value().map_or(1.0, Scalar::to_f64) * factor)
        }
        (Op::Neg, [x]) => (x, -factor),
        _ => (u, factor),
    };
    let c = x.like(factor);
    match c.const_value() {
        Some(s) if s.to_f64() == 1.0 => x.clone(),
        Some(s) if s.to_f64() == -1.0 => x.unary(Op::Neg),
        _ => x * &c,
    }
}

/// cos x as 1 − 2 sin²(x/2), whose error is bounded for every x.
pub fn cos(x: &UOp) -> UOp {
    let s = (x * 0.5).unary(Op::Sin);
    (&s * &s).mul_acc(&x.like(-2.0), &x.like(1.0))
}

impl UOp {
    /// self · b + c.
    pub fn mul_acc(&self, b: &UOp, c: &UOp) -> UOp {
        let src: Srcs = [self, b, c].into_iter().cloned().collect();
        UOp::new(Op::MulAcc, src, Arg::None)
    }
}

fn failed(message: impl Into<String>) -> Error {
    ErrorKind::Gradient {
        message: message.into(),
    }
    .into()
}
