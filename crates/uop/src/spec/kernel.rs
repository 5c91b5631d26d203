//! The kernel's spec: what Rangeify gives, what every OptOp keeps, and the shaped form after Expand.
//!
//! 1. The root is a SINK with its `KernelInfo`; its sources are STOREs, ENDs, GROUPs and the like.
//! 2. Only ops of kernels occur; no tags; args fit; a CONST is a value of its dtype.
//! 3. A RANGE has dtype `index` and a number of its own.
//! 4. Every RANGE is closed: END closes what a store runs over, REDUCE what a reduction runs over.
//!    What a closed RANGE gave is not combined with a value in which it is open, so no loop is run
//!    twice in one place. Several ENDs, or REDUCEs, may share a RANGE side by side.
//! 5. Scalar form: values have shape (), but for the fragments of a matrix unit where there is a WMMA.
//!    Shaped form: no UPCAST or UNROLL range is left, and shaped values have one rank.
//! 6. PARAMs are GLOBAL storage or `index` variables of shape (); their slots are 0, 1, … without gaps,
//!    one node each; all name one device. BUFFERs are LOCAL or REG.
//! 7. An INDEX into storage gives every axis an index. Each is within its axis by min_max, or one of
//!    them is `WHERE(gate, index, INVALID)`: then nothing is accessed where the gate is false.
//! 8. INVALID occurs as a branch of such a WHERE, or as an index; such a WHERE is only an index, or a
//!    branch of another.
//! 9. A STORE goes to an INDEX (shaped: or a view) of storage, has its dtype, and its gate is bool.
//! 10. Effects are sources only of what orders effects.

use super::{Check, Walk, is_dims, storage};
use crate::arg::{AddrSpace, Arg, AxisType};
use crate::dtype::DType;
use crate::node::UOp;
use crate::op::{Op, OpSet};
use rustc_hash::FxHashMap;

const EFFECTS: OpSet =
    OpSet::of(&[Op::Store, Op::End, Op::Group, Op::AtomicAdd, Op::Custom, Op::Barrier, Op::After]);

fn ops() -> OpSet {
    const OTHER: OpSet = OpSet::of(&[
        Op::Param,
        Op::Buffer,
        Op::Const,
        Op::Index,
        Op::Bitcast,
        Op::Stack,
        Op::Reduce,
        Op::Load,
        Op::Store,
        Op::Range,
        Op::End,
        Op::After,
        Op::Group,
        Op::Sink,
        Op::Barrier,
        Op::Wmma,
        Op::Custom,
        Op::AtomicAdd,
    ]);
    let elementwise = OpSet::filter(|op| op.is_elementwise() && !matches!(op, Op::TruncDiv | Op::TruncMod));
    OTHER.union(elementwise)
}

/// What gives values a shape, and changes it.
const SHAPES: OpSet = OpSet::of(&[Op::Reshape, Op::Expand, Op::Permute, Op::Shrink, Op::Flip, Op::Pad]);

pub(super) fn check_scalar(c: &mut Check) {
    check(c, false);
}

pub(super) fn check_shaped(c: &mut Check) {
    check(c, true);
}

fn check(c: &mut Check, shaped: bool) {
    let root = c.root;
    if root.op() != Op::Sink || !matches!(root.arg(), Arg::Kernel(_)) {
        c.fault(root, "a kernel is a SINK with its name and Opts");
    }
    for s in root.src().iter().filter(|s| !EFFECTS.contains(s.op())) {
        c.fault(root, format!("{} is no effect", s.op().name()));
    }
    let ops = if shaped { ops().union(SHAPES) } else { ops() };
    let walk = Walk::new(std::slice::from_ref(root), UOp::src);
    let mut params: Vec<&UOp> = Vec::new();
    let mut ranges: Vec<&UOp> = Vec::new();
    let mut rank: Option<usize> = None;
    // The fragments of a matrix unit are vectors.
    let vectors = shaped || root.ops_below().contains(Op::Wmma);
    for &u in &walk.nodes {
        c.any(u, ops);
        match u.op() {
            Op::Param => {
                param(c, u);
                params.push(u);
            }
            Op::Buffer
                if !u
                    .buffer_arg()
                    .is_some_and(|b| matches!(b.addrspace, Some(AddrSpace::Local | AddrSpace::Reg))) =>
            {
                c.fault(u, "storage of a kernel is LOCAL or REG");
            }
            Op::Range => {
                range(c, u, shaped);
                ranges.push(u);
            }
            Op::Index => index(c, u),
            Op::Store => store(c, u, shaped),
            _ => {}
        }
        invalid(c, u);
        if u.shape().is_empty() || has_own_shape(u) {
            continue;
        }
        if !vectors {
            c.fault(u, format!("a value of shape {}: kernels are scalar here", u.shape()));
        } else if shaped && u.op().is_elementwise() && *rank.get_or_insert(u.shape().len()) != u.shape().len()
        {
            c.fault(u, format!("rank {}, where other values have {}", u.shape().len(), rank.unwrap_or(0)));
        }
    }
    slots(c, &params);
    loops(c, &walk, &ranges);
}

/// Storage and vectors, which have a shape in scalar kernels too.
fn has_own_shape(u: &UOp) -> bool {
    matches!(u.op(), Op::Param | Op::Buffer | Op::Load | Op::Stack)
        || u.op() == Op::After && storage(u).is_some()
}

fn param<'a>(c: &mut Check<'a>, u: &'a UOp) {
    let Some(b) = u.buffer_arg() else { return };
    let shape = u.shape();
    match b.addrspace {
        Some(AddrSpace::Global) => {}
        None if u.dtype() != DType::Index || !shape.is_empty() => {
            c.fault(u, format!("a variable is an index of shape (), not {}{shape:?}", u.dtype()));
        }
        None => {}
        Some(s) => c.fault(u, format!("an argument cannot be in {}", s.name())),
    }
    if u.src().first().is_some_and(|s| !is_dims(s)) {
        c.fault(u, "the shape is no vector of integers");
    }
}

fn range<'a>(c: &mut Check<'a>, u: &'a UOp, shaped: bool) {
    if u.dtype() != DType::Index || !u.shape().is_empty() {
        c.fault(u, format!("a RANGE counts in index, not in {}", u.dtype()));
    }
    if let Some((_, t @ (AxisType::Upcast | AxisType::Unroll))) = u.range_arg().filter(|_| shaped) {
        c.fault(u, format!("{} ranges have become shape here", t.name()));
    }
}

/// Each index within its axis, or gated.
fn index<'a>(c: &mut Check<'a>, u: &'a UOp) {
    let from = &u.src()[0];
    if storage(from).is_none() {
        if !matches!(from.op(), Op::Stack | Op::Wmma) && from.shape().is_empty() {
            c.fault(u, "INDEX is into storage or a vector");
        }
        return;
    }
    let (shape, indices) = (from.shape(), &u.src()[1..]);
    if indices.len() != shape.len() {
        c.fault(u, format!("{} indices into storage of shape {shape}", indices.len()));
    }
    for (i, (at, size)) in indices.iter().zip(shape.iter()).enumerate() {
        if at.dtype() != DType::Index {
            c.fault(u, format!("index {i} is {}, not index", at.dtype()));
        }
        let (lo, hi) = at.bounds();
        if (lo < 0 || hi >= size.max()) && !indices.iter().any(is_gated) {
            let n = size.max();
            c.fault(
                u,
                format!("index {i} is in {lo}..={hi} by min_max, outside its axis of {n}, and has no gate"),
            );
        }
    }
}

/// `WHERE(gate, index, INVALID)`, or INVALID itself.
fn is_gated(u: &UOp) -> bool {
    u.is_invalid() || u.op() == Op::Where && (u.src()[2].is_invalid() || u.src()[1].is_invalid())
}

/// Where this node has an invalid index among its sources, it must be one that may.
fn invalid<'a>(c: &mut Check<'a>, u: &'a UOp) {
    for (i, s) in u.src().iter().enumerate() {
        let gated = s.is_invalid() || s.op() == Op::Where && is_gated(s);
        let allowed = match u.op() {
            Op::Index => i > 0,
            Op::Where => i > 0 && (s.is_invalid() || is_gated(u)),
            // A shape of several axes may be given to an index.
            Op::Reshape | Op::Expand | Op::Permute | Op::Stack => true,
            _ => false,
        };
        if gated && !allowed {
            c.fault(u, "an invalid index is used as a value");
        }
    }
}

fn store<'a>(c: &mut Check<'a>, u: &'a UOp, shaped: bool) {
    let (to, value) = (&u.src()[0], &u.src()[1]);
    let mut target = to;
    while shaped && matches!(target.op(), Op::Reshape | Op::Permute | Op::Expand | Op::Shrink | Op::Flip) {
        target = &target.src()[0];
    }
    if target.op() != Op::Index || storage(&target.src()[0]).is_none() {
        c.fault(u, "a STORE goes to an INDEX of storage");
    }
    if to.dtype() != value.dtype() {
        c.fault(u, format!("a {} is stored as {}", value.dtype(), to.dtype()));
    }
    if u.src().get(2).is_some_and(|g| g.dtype() != DType::Bool) {
        c.fault(u, "the gate is no bool");
    }
}

fn slots<'a>(c: &mut Check<'a>, params: &[&'a UOp]) {
    let mut by_slot: Vec<(u64, &UOp)> =
        params.iter().filter_map(|u| Some((u.buffer_arg()?.slot, *u))).collect();
    by_slot.sort_by_key(|(slot, _)| *slot);
    let mut want = 0;
    for (i, &(slot, u)) in by_slot.iter().enumerate() {
        if i > 0 && by_slot[i - 1].0 == slot {
            c.fault(u, format!("another PARAM has slot {slot} too"));
        } else if slot != want {
            c.fault(u, format!("slot {want} is missing"));
        }
        want = slot + 1;
    }
    let mut devices = params.iter().filter_map(|u| Some((u.device()?, *u)));
    if let Some((first, _)) = devices.next() {
        for (d, u) in devices.filter(|(d, _)| *d != first) {
            c.fault(u, format!("on {d}, where another PARAM is on {first}"));
        }
    }
}

/// Points 3 and 4. Two sets of RANGEs a node, as bits: open in it, and closed at or below it.
fn loops<'a>(c: &mut Check<'a>, walk: &Walk<'a>, ranges: &[&'a UOp]) {
    let mut numbers: FxHashMap<u32, &UOp> = FxHashMap::default();
    let mut bit: FxHashMap<usize, usize> = FxHashMap::default();
    for (i, &r) in ranges.iter().enumerate() {
        bit.insert(r.address(), i);
        let id = r.range_arg().map_or(0, |(id, _)| id);
        if numbers.insert(id, r).is_some() {
            c.fault(r, format!("another RANGE has number {id} too"));
        }
    }
    let words = ranges.len().div_ceil(64);
    let mut sets = vec![0u64; walk.nodes.len() * words * 2];
    const HAS: OpSet = OpSet::of(&[Op::Range]);
    for (at, &u) in walk.nodes.iter().enumerate() {
        if !u.ops_below().intersects(HAS) {
            continue;
        }
        let (below, own) = sets.split_at_mut(at * words * 2);
        let (open, closed) = own[..words * 2].split_at_mut(words);
        let closes = matches!(u.op(), Op::End | Op::Reduce);
        let values = if closes { &u.src()[..1] } else { u.src() };
        for s in values {
            let Some(place) = walk.place(s).filter(|_| s.ops_below().intersects(HAS)) else { continue };
            let set = &below[place * words * 2..][..words * 2];
            open.iter_mut().zip(set).for_each(|(a, b)| *a |= b);
            closed.iter_mut().zip(&set[words..]).for_each(|(a, b)| *a |= b);
        }
        if u.op() == Op::Range {
            let i = bit[&u.address()];
            open[i / 64] |= 1 << (i % 64);
        }
        for (w, both) in open.iter().zip(closed.iter()).map(|(a, b)| a & b).enumerate() {
            if both != 0 {
                let r = ranges[w * 64 + both.trailing_zeros() as usize];
                let id = r.range_arg().map_or(0, |(id, _)| id);
                c.fault(u, format!("r{id} is closed below and used again"));
            }
        }
        for r in if closes { &u.src()[1..] } else { &[] } {
            let Some(&i) = bit.get(&r.address()) else {
                c.fault(u, format!("{} closes RANGEs, not {}", u.op().name(), r.op().name()));
                continue;
            };
            let reduces = r.range_arg().is_some_and(|(_, t)| t.is_reduce());
            if reduces != (u.op() == Op::Reduce) {
                let t = r.range_arg().map_or("", |(_, t)| t.name());
                c.fault(u, format!("{} closes a {t} range", u.op().name()));
            }
            open[i / 64] &= !(1 << (i % 64));
            closed[i / 64] |= 1 << (i % 64);
        }
        // Reported once, where it happens, not all the way up.
        open.iter_mut().zip(closed.iter_mut()).for_each(|(a, b)| {
            let both = *a & *b;
            *a &= !both;
        });
    }
    let open: Vec<&UOp> = (0..ranges.len())
        .filter(|i| sets[(walk.nodes.len() - 1) * words * 2 + i / 64] >> (i % 64) & 1 == 1)
        .map(|i| ranges[i])
        .collect();
    for r in open {
        c.fault(r, "no END and no REDUCE closes this RANGE");
    }
}
