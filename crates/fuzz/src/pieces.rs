//! Pieces of a random program that become functions. Flows in: a graph, and which of its BUFFERs are passed; flows
//! out: pieces of it, each of what is between some of its nodes, and the functions that compute these.
//!
//! Invariant: what a piece is called with, the BUFFERs that are reached, and constants are all that it reads.

use crate::program::Dice;
use monoglot_tensor::{Function, Result, Tensor, function};
use monoglot_uop::graph::toposort_many;
use monoglot_uop::{DType, Op, UOp};
use rustc_hash::{FxHashMap, FxHashSet};

/// Nodes of a graph.
pub(crate) struct Piece {
    /// What it is called with.
    from: Vec<UOp>,
    /// What it gives.
    to: Vec<UOp>,
    /// Whether gradients keep nothing of it but what it is called with.
    checkpoint: bool,
    /// Whether it is called again, with other arguments.
    again: bool,
    /// A piece of this one.
    inner: Option<Box<Piece>>,
}

/// A piece as a function.
pub(crate) struct Made<'a> {
    piece: &'a Piece,
    function: Function<'a, (Vec<Tensor>,), Vec<Tensor>>,
}

/// What stands for nodes of the graph.
pub(crate) type Over = FxHashMap<UOp, UOp>;

impl std::fmt::Display for Piece {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Piece {
            checkpoint, again, ..
        } = self;
        let all = [&self.from[..], &self.to].concat();
        let inputs = self.from.len();
        write!(
            f,
            "// a piece of {inputs} inputs, checkpoint {checkpoint}, called again {again}:\n{}",
            UOp::sink(&all)
        )?;
        match &self.inner {
            Some(inner) => write!(f, "// and within it\n{inner}"),
            None => Ok(()),
        }
    }
}

impl Piece {
    /// A piece of the graph of these roots that begins behind `leaves` at the latest.
    pub(crate) fn new(
        dice: &mut Dice,
        roots: &[UOp],
        leaves: &[UOp],
        within: bool,
    ) -> Option<Piece> {
        let stop: FxHashSet<&UOp> = leaves.iter().collect();
        let nodes = toposort_many(roots, |u| !stop.contains(u));
        let mut ends: Vec<&UOp> = nodes
            .iter()
            .filter(|u| is_value(u) && !stop.contains(u))
            .collect();
        if ends.is_empty() {
            return None;
        }
        let count = 1 + dice.roll(2) as usize;
        let mut to: Vec<UOp> = Vec::new();
        for _ in 0..count {
            let end = (*dice.pick(&ends)).clone();
            ends.retain(|u| **u != end);
            to.push(end);
            if ends.is_empty() {
                break;
            }
        }
        let deep = 2 + dice.roll(8);
        let begins: FxHashSet<UOp> = nodes
            .iter()
            .filter(|u| is_value(u) && !to.contains(u) && dice.roll(deep) == 0)
            .cloned()
            .collect();
        let is_from = |u: &UOp| stop.contains(u) || begins.contains(u);
        let inside = toposort_many(&to, |u| !is_from(u));
        let read = inside.iter().flat_map(|u| u.src());
        let mut from: Vec<UOp> = Vec::new();
        for u in read.filter(|u| is_from(u)) {
            if !from.contains(u) {
                from.push(u.clone());
            }
        }
        // A value of it may be an input of it too.
        let wanted = dice.roll(2) == 0;
        let inner = match within && wanted {
            true => Piece::new(dice, &to, &from, false).map(Box::new),
            false => None,
        };
        Some(Piece {
            from,
            to,
            checkpoint: dice.roll(3) == 0,
            again: dice.roll(2) == 0,
            inner,
        })
    }

    /// The function of it, which reaches `reached` for BUFFERs.
    pub(crate) fn made<'a>(&'a self, reached: &'a [(UOp, Tensor)]) -> Made<'a> {
        let inner = self.inner.as_ref().map(|inner| {
            let body = move |given: Vec<Tensor>| inner.values(&given, reached, None);
            let f = function(body);
            Made {
                piece: inner,
                function: if inner.checkpoint { f.checkpoint() } else { f },
            }
        });
        let body = move |given: Vec<Tensor>| self.values(&given, reached, inner.as_ref());
        let f = function(body);
        Made {
            piece: self,
            function: if self.checkpoint { f.checkpoint() } else { f },
        }
    }

    /// What it gives of these, with a function for its inner piece or without.
    fn values(
        &self,
        given: &[Tensor],
        reached: &[(UOp, Tensor)],
        inner: Option<&Made>,
    ) -> Result<Vec<Tensor>> {
        let mut over = over(reached)?;
        for (from, t) in self.from.iter().zip(given) {
            over.insert(from.clone(), t.uop()?);
        }
        let mut more = Vec::new();
        match (inner, &self.inner) {
            (Some(inner), _) => more = inner.put(&mut over)?,
            (None, Some(piece)) => more = piece.inlined(&over, reached)?,
            (None, None) => {}
        }
        let mut out = tensors(&self.to, &over);
        out.extend(more);
        Ok(out)
    }

    /// What it gives besides what stands in its place, without any function.
    pub(crate) fn inlined(&self, over: &Over, reached: &[(UOp, Tensor)]) -> Result<Vec<Tensor>> {
        let given = tensors(&self.from, over);
        let mut out = self.values(&given, reached, None)?.split_off(self.to.len());
        if self.again {
            out.extend(self.values(&others(&given), reached, None)?);
        }
        Ok(out)
    }
}

impl Made<'_> {
    /// Put what it gives in its place; flows out what it gives besides.
    pub(crate) fn put(&self, over: &mut Over) -> Result<Vec<Tensor>> {
        let given = tensors(&self.piece.from, over);
        let mut out = self.function.call((given.clone(),))?;
        let more = out.split_off(self.piece.to.len());
        for (to, t) in self.piece.to.iter().zip(&out) {
            over.insert(to.clone(), t.uop()?);
        }
        let mut out = more;
        if self.piece.again {
            out.extend(self.function.call((others(&given),))?);
        }
        Ok(out)
    }
}

/// What stands for BUFFERs.
pub(crate) fn over(tensors: &[(UOp, Tensor)]) -> Result<Over> {
    let one = |(b, t): &(UOp, Tensor)| Ok((b.clone(), t.uop()?));
    tensors.iter().map(one).collect()
}

/// These nodes over what stands for others.
pub(crate) fn tensors(nodes: &[UOp], over: &Over) -> Vec<Tensor> {
    let all = UOp::sink(nodes).substitute(over);
    all.src().iter().cloned().map(Tensor::from_uop).collect()
}

/// Other arguments of the same looks, whose elements are as large.
fn others(given: &[Tensor]) -> Vec<Tensor> {
    let turned = |t: &Tensor| match t.ndim() {
        Ok(n) if n > 0 => t.flip(n as i64 - 1),
        _ => t.clone(),
    };
    given.iter().map(turned).collect()
}

/// Whether a node is a tensor's, and no view that an assignment goes through.
fn is_value(u: &UOp) -> bool {
    let is_data = !matches!(u.dtype(), DType::Void | DType::Index);
    let is_kept = matches!(
        u.op(),
        Op::Buffer | Op::Const | Op::Function | Op::Call | Op::Tuple | Op::Stack
    );
    is_data && !is_kept && !u.op().is_movement() && u.shape().ints().is_some()
}
