//! A graph at all times at once. Flows in: nodes of a scan's body, and what some of them are; flows out: the same
//! nodes, those that differ from time to time with an axis more in front, over the times.
//!
//! Invariant: line t of what comes out is what the node is at time t, to the bit, but for sums that are regrouped.

use crate::arg::Arg;
use crate::error::{Error, Result};
use crate::function::own_sources;
use crate::graph::ordered;
use crate::node::{Srcs, UOp};
use crate::op::{Class, Identity, Movement, Op, Reduction};
use crate::shape::{Dim, Shape};
use rustc_hash::FxHashMap;

/// What a node of a body is.
#[derive(Clone, Debug)]
pub(crate) enum Line {
    /// It differs from time to time: all of them.
    Each(UOp),
    /// It is the same each time.
    Same(UOp),
}

impl Line {
    /// For so many times, with them as the first axis.
    pub(crate) fn each(self, length: i64) -> Result<UOp> {
        match self {
            Line::Each(u) => Ok(u),
            Line::Same(u) => repeated(&u, length),
        }
    }
}

/// Whether a node can be computed for all times at once, from what its sources are at all times.
pub(crate) fn is_for_all(u: &UOp) -> bool {
    if u.shape().ints().is_none() {
        return false;
    }
    match u.op().class() {
        Class::Unary(_) | Class::Transcendental(_) | Class::Conversion(_) => true,
        Class::Arithmetic(_) | Class::Comparison(_) | Class::Ternary(_) => true,
        Class::Reduction(Reduction::Reduce) => true,
        Class::Movement(Movement::Bitcast) => u.dtype().bytes() == u.src()[0].dtype().bytes(),
        Class::Movement(op) => !matches!(op, Movement::Index | Movement::Replicated),
        Class::Identity(op) => !matches!(op, Identity::Copy | Identity::Assert),
        Class::Leaf(_)
        | Class::Abstraction(_)
        | Class::Memory(_)
        | Class::Order(_)
        | Class::Code(_) => false,
    }
}

/// These nodes at `length` times. What `known` has not is the same each time, or is for all of them
/// (`is_for_all`).
///
/// # Errors
/// Where a node is neither.
pub(crate) fn at_all(
    nodes: &[UOp],
    known: &FxHashMap<UOp, Line>,
    length: i64,
) -> Result<Vec<Line>> {
    let sources = |u: &'_ UOp| known.contains_key(u);
    let mut done: FxHashMap<&UOp, Line> = FxHashMap::default();
    for u in ordered(nodes, |u| match sources(u) {
        true => &[],
        false => own_sources(u),
    }) {
        let line = match known.get(u) {
            Some(line) => line.clone(),
            None => made(u, |s| done.get(s), length)?,
        };
        done.insert(u, line);
    }
    Ok(nodes.iter().map(|u| done[u].clone()).collect())
}

/// A node over what its sources are.
fn made<'a>(u: &UOp, line: impl Fn(&UOp) -> Option<&'a Line>, length: i64) -> Result<Line> {
    let same = |s: &UOp| match line(s) {
        Some(Line::Same(s)) => Some(s.clone()),
        Some(Line::Each(_)) => None,
        // The body of a call.
        None => Some(s.clone()),
    };
    let all: Option<Srcs> = u.src().iter().map(same).collect();
    if let Some(src) = all {
        return Ok(Line::Same(u.try_with_src(src)?));
    }
    let each = |s: &UOp| match line(s) {
        Some(line) => line.clone().each(length),
        None => repeated(s, length),
    };
    Ok(Line::Each(match u.op().class() {
        Class::Movement(Movement::Stack) => {
            let parts = u.src().iter().map(each).collect::<Result<Srcs>>()?;
            let stacked = UOp::try_new(Op::Stack, parts, Arg::None)?;
            let others = 2..stacked.shape().len();
            let order: Vec<usize> = [1, 0].into_iter().chain(others).collect();
            stacked.permute(&order)?
        }
        Class::Movement(op) => moved(u, op, &each(&u.src()[0])?, length)?,
        Class::Reduction(_) => {
            let Arg::Reduce(op, axes) = u.arg() else {
                return Err(Error::argument("REDUCE", "needs its axes"));
            };
            let axes: Vec<usize> = axes.iter().map(|&a| a as usize + 1).collect();
            each(&u.src()[0])?.reduce(*op, &axes)?
        }
        _ => {
            let whole = lined(u.shape(), length);
            let operand = |s: &UOp| match line(s) {
                // A constant or a variable stands for every element; one number of data is shown so often.
                Some(Line::Same(s)) if s.shape().is_empty() && s.device().is_none() => {
                    Ok(s.clone())
                }
                // One number each time, for all elements of that time.
                Some(Line::Each(s)) if s.shape().len() < whole.len() => {
                    let ones = (1..whole.len()).map(|_| Dim::Int(1));
                    let ones = [Dim::Int(length)].into_iter().chain(ones);
                    s.reshape(&Shape::new(ones))?.expand(&whole)
                }
                _ => each(s),
            };
            let src = u.src().iter().map(operand).collect::<Result<Srcs>>()?;
            u.try_with_src(src)?
        }
    }))
}

/// A view at all times.
fn moved(u: &UOp, op: Movement, x: &UOp, length: i64) -> Result<UOp> {
    let whole = lined(u.shape(), length);
    let offsets = || -> Vec<Dim> {
        let own = u.dims_src(1);
        [Dim::Int(0)]
            .into_iter()
            .chain(own.iter().cloned())
            .collect()
    };
    match (op, u.arg()) {
        (Movement::Permute, Arg::Axes(axes)) => {
            let own = axes.iter().map(|&a| a as usize + 1);
            x.permute(&[0].into_iter().chain(own).collect::<Vec<_>>())
        }
        (Movement::Flip, Arg::Flags(axes)) => x.flip(axes << 1),
        (Movement::Reshape, _) => x.reshape(&whole),
        (Movement::Expand, _) => x.expand(&whole),
        (Movement::Pad, Arg::Fill(fill)) => x.pad(&offsets(), &whole, *fill),
        (Movement::Shrink, _) => x.shrink(&offsets(), &whole),
        (Movement::Bitcast, _) => u.try_with_src([x.clone()].into_iter().collect::<Srcs>()),
        _ => Err(Error::argument(u.op().name(), "of all times at once")),
    }
}

/// So many lines of this shape.
fn lined(shape: &Shape, length: i64) -> Shape {
    let first = [Dim::Int(length)].into_iter();
    Shape::new(first.chain(shape.iter().cloned()))
}

/// The same value so many times.
fn repeated(u: &UOp, length: i64) -> Result<UOp> {
    u.reshape(&lined(u.shape(), 1))?
        .expand(&lined(u.shape(), length))
}
