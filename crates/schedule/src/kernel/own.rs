//! CALLs of a user's own work. Flows in: a CALL, and its outputs one after the other, as values that are
//! stored; flows out: the call, behind what its outputs begin as. A kernel becomes one like any other, with
//! PARAMs for what it uses alone.
//!
//! Invariant: in the order of calls, users first, the call and what its outputs begin as stand where the last
//! of the outputs does: after all who use one, and before all that it reads.

use super::{Call, Callee, number_params};
use crate::rangeify::Own;
use monoglot_uop::own::{FunctionBody, FunctionInfo};
use monoglot_uop::{Arg, Op, Result, Shape, UOp, rules};
use rustc_hash::FxHashMap;

/// A CALL whose outputs have not all been met.
pub(super) struct Pending<'a> {
    own: &'a Own,
    met: usize,
    begun: Vec<Call>,
}

/// A CALL, by its node.
pub(super) fn pending(own: &Own) -> (&UOp, Pending<'_>) {
    let new = Pending {
        own,
        met: 0,
        begun: Vec::new(),
    };
    (&own.call, new)
}

impl Pending<'_> {
    /// The next output, which `begin` stores what it begins as to; gives calls once that was the last.
    pub(super) fn output(
        &mut self,
        output: &UOp,
        begin: impl FnOnce() -> Result<Call>,
    ) -> Result<Vec<Call>> {
        let Some(info) = FunctionInfo::called(&self.own.call) else {
            return Ok(Vec::new());
        };
        if let Arg::Element(k) = output.arg()
            && info.begins.contains(k)
        {
            self.begun.push(begin()?);
        }
        self.met += 1;
        if self.met < self.own.outs.len() {
            return Ok(Vec::new());
        }
        let mut calls = vec![self.call(info)?];
        calls.append(&mut self.begun);
        Ok(calls)
    }

    fn call(&self, info: &FunctionInfo) -> Result<Call> {
        let Own { call, outs, ins } = self.own;
        let mut args = outs.clone();
        args.extend(ins);
        let body = match &info.body {
            FunctionBody::Kernel(sink) => {
                let sink = &flat(sink);
                let simple = rules::kernel().rewrite(sink)?;
                // What is never stored is stored all the same: its storage is what the CALL gives.
                let sink = if keeps(&simple, outs.len()) {
                    &simple
                } else {
                    sink
                };
                let (sink, left) =
                    number_params(sink, (0..outs.len()).collect(), |local| local as usize);
                args = left.iter().map(|&local| args[local]).collect();
                sink
            }
            _ => call.src()[0].clone(),
        };
        Ok(Call {
            callee: Callee::Own(body),
            args,
            outs: outs.len(),
            device: info.device,
        })
    }
}

/// The kernel with storage of one axis, as those that fall out of a graph have it.
fn flat(kernel: &UOp) -> UOp {
    let other = |shape: &Shape| shape.ints().is_none_or(|dims| dims.len() != 1);
    let param = |u: &UOp| u.op() == Op::Param && u.addrspace().is_some() && other(u.shape());
    kernel.rebuild(
        &FxHashMap::default(),
        |_| true,
        |u, src| {
            if param(u) {
                let len = Shape::of(&[u.shape().max_len()]);
                return u.with_src(vec![UOp::dims(&len)]);
            }
            if u.op() == Op::Index && param(u.src()[0].named()) {
                return src[0].at(&[linear(u.src()[0].shape(), &src[1..])]);
            }
            u.with_src(src)
        },
    )
}

/// The place of an element in the order of rows; invalid where one of the indices is.
fn linear(shape: &Shape, indices: &[UOp]) -> UOp {
    let mut sum = UOp::index_const(0);
    let mut gate: Option<UOp> = None;
    for (at, size) in indices.iter().zip(shape.iter()) {
        let (index, own) = match at.src() {
            [c, i, otherwise] if otherwise.is_invalid() => (i, Some(c.clone())),
            [c, otherwise, i] if otherwise.is_invalid() => (i, Some(c.unary(Op::Not))),
            _ => (at, None),
        };
        gate = match (gate, own) {
            (Some(a), Some(b)) => Some(a & b),
            (a, b) => a.or(b),
        };
        sum = sum * size.to_uop() + index;
    }
    gate.map_or(sum.clone(), |gate| sum.valid(&gate))
}

/// Whether a kernel has all of its outputs.
fn keeps(kernel: &UOp, outs: usize) -> bool {
    let nodes = kernel.toposort();
    let has = |k: usize| {
        let of = |u: &&UOp| u.op() == Op::Param && u.addrspace().is_some();
        let slots = nodes.iter().filter(of).filter_map(UOp::buffer_arg);
        slots.into_iter().any(|b| b.slot as usize == k)
    };
    (0..outs).all(has)
}
