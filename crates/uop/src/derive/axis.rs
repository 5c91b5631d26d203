//! The sharding axis: along which axis a value on a tuple of devices is split among them. None on
//! one device, and where every device holds the whole. Flows in: a node; flows out: that axis.
//! Invariant: along it, every device holds an equal part.

use crate::arg::Arg;
use crate::node::UOp;
use crate::op::Op;
use crate::shape::{Dim, Shape};
use rustc_hash::FxHashMap;

impl UOp {
    /// The axis that is split over the devices of this node's tuple, by the specification's rules:
    /// storage on a tuple, and a COPY to one, is split along axis 0; movement ops carry the axis along as
    /// long as every device keeps a contiguous part of its own; reducing it, or REPLICATED, ends it.
    pub fn axis(&self) -> Option<usize> {
        if !on_tuple(self) {
            return None;
        }
        let mut known: FxHashMap<UOp, Option<usize>> = FxHashMap::default();
        for u in self.toposort_gated(on_tuple) {
            let axis = if on_tuple(&u) { axis(&u, &known) } else { None };
            known.insert(u, axis);
        }
        known.get(self).copied().flatten()
    }
}

fn on_tuple(u: &UOp) -> bool {
    u.device().is_some_and(|d| !d.members().is_empty())
}

fn axis(u: &UOp, known: &FxHashMap<UOp, Option<usize>>) -> Option<usize> {
    let of = |s: &UOp| known.get(s).copied().flatten();
    let first = || u.src().first().and_then(of);
    match (u.op(), u.arg()) {
        (Op::Param | Op::Buffer | Op::Copy, _) | (Op::Load, Arg::Place(Some(_), _)) => {
            (!u.shape().is_empty()).then_some(0)
        }
        (Op::Permute, Arg::Axes(order)) => {
            let a = first()?;
            order.iter().position(|&o| o as usize == a)
        }
        (Op::Reshape, _) => reshaped(
            u.src()[0].shape(),
            u.shape(),
            first()?,
            u.device()?.members().len(),
        ),
        (Op::Expand | Op::Pad | Op::Shrink, _) => {
            first().filter(|&a| u.shape().get(a) == u.src()[0].shape().get(a))
        }
        (Op::Flip, Arg::Flags(bits)) => first().filter(|a| bits >> a & 1 == 0),
        (Op::Reduce, Arg::Reduce(_, axes)) | (Op::Replicated, Arg::Axes(axes)) => {
            first().filter(|&a| !axes.contains(&(a as u8)))
        }
        (Op::Index, _) => {
            let n = u.src().len() - 1;
            first()
                .filter(|&a| a >= n)
                .map(|a| a + u.shape().len() - (u.src()[0].shape().len() - n))
        }
        (Op::Stack, _) => shared(u, of).map(|a| a + 1),
        (Op::GetTuple, Arg::Element(i)) => {
            super::dtype::tuple_element(&u.src()[0], *i).ok()?.axis()
        }
        (op, _) if op.is_elementwise() => shared(u, of),
        (Op::Bitcast | Op::Contiguous | Op::ContiguousBackward | Op::Detach, _) => first(),
        (Op::Load | Op::After | Op::Store | Op::Assert, _) => first(),
        _ => None,
    }
}

/// The axis that all sharded sources have.
fn shared(u: &UOp, of: impl Fn(&UOp) -> Option<usize>) -> Option<usize> {
    let mut axes = u.src().iter().filter_map(of);
    let a = axes.next()?;
    axes.all(|b| a == b).then_some(a)
}

/// The axis before which as many elements lie as before, and which the devices can share evenly.
fn reshaped(from: &Shape, to: &Shape, axis: usize, devices: usize) -> Option<usize> {
    let before = |s: &Shape, n: usize| s[..n].iter().map(Dim::as_int).product::<Option<i64>>();
    (0..to.len()).find(|&b| {
        let aligned = match (before(from, axis), before(to, b)) {
            (Some(x), Some(y)) => x == y,
            _ => from[..axis] == to[..b],
        };
        aligned
            && (to[b] == from[axis]
                || to[b]
                    .as_int()
                    .is_some_and(|n| n > 0 && n % devices as i64 == 0))
    })
}
