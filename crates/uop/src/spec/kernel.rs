//! The kernel's spec: what Rangeify gives, what every OptOp keeps, and the shaped form after
//! Expand. Flows in: a graph at this border; flows out: a `Kernel` or an `Expanded`, or every fault
//! that it has.
//!
//! 1. The root is a SINK with its `KernelInfo`; its sources are STOREs, ENDs, GROUPs and the like.
//! 2. Only ops of kernels occur; no tags; args fit; a CONST is a value of its dtype.
//! 3. A RANGE has dtype `index` and a number of its own.
//! 4. Every RANGE is closed: END closes what a store runs over, REDUCE what a reduction runs over.
//!    What a closed RANGE gave is not combined with a value in which it is open, so no loop is run
//!    twice in one place. Several ENDs, or REDUCEs, may share a RANGE side by side.
//! 5. Scalar form: values have shape (), but for the fragments of a matrix unit where there is a WMMA.
//!    Shaped form: no UPCAST or UNROLL range is left, and shaped values have one rank.
//! 6. PARAMs are GLOBAL storage or variables of shape (); their slots are 0, 1, … without gaps
//!    (shaped: what folded may leave some), one node each; all name one device. BUFFERs are LOCAL or REG.
//! 7. An INDEX into storage gives every axis an index. Each is within its axis by min_max, or one of
//!    them is `WHERE(gate, index, INVALID)`: then nothing is accessed where the gate is false. Shaped:
//!    or the LOAD or STORE has a gate.
//! 8. INVALID occurs as a branch of such a WHERE, or as an index; such a WHERE is only an index, or a
//!    branch of another.
//! 9. A STORE goes to an INDEX (shaped: or a view) of storage, has its dtype, and its gate is bool.
//! 10. Effects are sources only of what orders effects.

use super::{Check, need, ops_of, storage};
use crate::arg::{AddrSpace, Arg, AxisType};
use crate::dtype::DType;
use crate::graph::ordered;
use crate::node::UOp;
use crate::op::{Op, OpSet};
use rustc_hash::FxHashMap;

pub(super) fn check(c: &mut Check, shaped: bool) {
    use Op::*;
    const EFFECTS: OpSet = OpSet::of(&[Store, End, Group, AtomicAdd, Custom, Barrier, After]);
    let root = c.root;
    let kernel = root.op() == Sink && matches!(root.arg(), Arg::Kernel(_));
    need!(c, root, kernel, "a kernel is a SINK with its name and Opts");
    for s in root.src() {
        need!(
            c,
            root,
            EFFECTS.contains(s.op()),
            "{} is no effect",
            s.op().name()
        );
    }
    let ops = ops_of(if shaped { 's' } else { 'k' });
    let nodes = ordered(std::slice::from_ref(root), UOp::src);
    let mut params: Vec<&UOp> = Vec::new();
    let mut ranges: Vec<&UOp> = Vec::new();
    let mut rank: Option<usize> = None;
    // The fragments of a matrix unit are vectors.
    let vectors = shaped || root.ops_below().contains(Wmma);
    for &u in &nodes {
        c.any(u, ops);
        match u.op() {
            Param => {
                c.param(u);
                params.push(u);
            }
            Buffer => {
                let inside = matches!(u.addrspace(), Some(AddrSpace::Local | AddrSpace::Reg));
                need!(c, u, inside, "storage of a kernel is LOCAL or REG");
            }
            Range => {
                range(c, u, shaped);
                ranges.push(u);
            }
            // Shaped accesses have their gates beside the address.
            Index => index(c, u, shaped),
            Load if shaped && u.src()[0].op() == Index => index(c, &u.src()[0], u.src().len() > 2),
            Store => store(c, u, shaped),
            _ => {}
        }
        invalid(c, u);
        // Storage and vectors have a shape in scalar kernels too.
        let own = matches!(u.op(), Param | Buffer | Load | Stack)
            || u.op() == After && storage(u).is_some();
        if u.shape().is_empty() || own {
            continue;
        }
        need!(
            c,
            u,
            vectors,
            "a value of shape {}: kernels are scalar here",
            u.shape()
        );
        if shaped && u.op().is_elementwise() {
            let n = u.shape().len();
            let others = *rank.get_or_insert(u.shape().len());
            need!(
                c,
                u,
                n == others,
                "rank {n}, where other values have {others}"
            );
        }
    }
    slots(c, &params, shaped);
    loops(c, &nodes, &ranges);
}

fn range<'a>(c: &mut Check<'a>, u: &'a UOp, shaped: bool) {
    let counts = u.dtype() == DType::Index && u.shape().is_empty();
    need!(
        c,
        u,
        counts,
        "a RANGE counts in index, not in {}",
        u.dtype()
    );
    if let Some((_, t @ (AxisType::Upcast | AxisType::Unroll))) = u.range_arg() {
        need!(c, u, !shaped, "{} ranges have become shape here", t.name());
    }
}

/// Each index within its axis, or gated, by itself or by the access.
fn index<'a>(c: &mut Check<'a>, u: &'a UOp, gated: bool) {
    let from = &u.src()[0];
    let shape = u.src()[0].shape();
    let indices = &u.src()[1..];
    if storage(from).is_none() {
        let vector = matches!(from.op(), Op::Stack | Op::Wmma) || !shape.is_empty();
        return need!(c, u, vector, "INDEX is into storage or a vector");
    }
    let n = indices.len();
    need!(
        c,
        u,
        n == shape.len(),
        "{n} indices into storage of shape {shape}"
    );
    for (i, (at, size)) in indices.iter().zip(shape.iter()).enumerate() {
        need!(
            c,
            u,
            at.dtype() == DType::Index,
            "index {i} is {}, not index",
            at.dtype()
        );
        let (lo, hi) = at.bounds();
        let n = size.max();
        if (lo < 0 || hi >= n) && !gated && !indices.iter().any(is_gated) {
            let outside =
                format!("is in {lo}..={hi} by min_max, outside its axis of {n}, and has no gate");
            c.fault(u, format!("index {i} {outside}"));
        }
    }
}

/// `WHERE(gate, index, INVALID)`, or INVALID itself.
fn is_gated(u: &UOp) -> bool {
    u.is_invalid() || u.op() == Op::Where && (u.src()[2].is_invalid() || u.src()[1].is_invalid())
}

/// Where this node has an invalid index among its sources, it must be one that may.
pub(super) fn invalid<'a>(c: &mut Check<'a>, u: &'a UOp) {
    for (i, s) in u.src().iter().enumerate().filter(|(_, s)| is_gated(s)) {
        let allowed = match u.op() {
            Op::Index => i > 0,
            Op::Where => i > 0 && (s.is_invalid() || is_gated(u)),
            // A shape of several axes may be given to an index.
            op => matches!(op, Op::Reshape | Op::Expand | Op::Permute | Op::Stack),
        };
        need!(c, u, allowed, "an invalid index is used as a value");
    }
}

fn store<'a>(c: &mut Check<'a>, u: &'a UOp, shaped: bool) {
    use Op::*;
    let mut target = &u.src()[0];
    while shaped && matches!(target.op(), Reshape | Permute | Expand | Shrink | Flip) {
        target = &target.src()[0];
    }
    let fits = target.op() == Index && storage(&target.src()[0]).is_some();
    need!(c, u, fits, "a STORE goes to an INDEX of storage");
    if fits && shaped {
        index(c, target, u.src().len() > 2);
    }
    c.stored(u);
}

fn slots<'a>(c: &mut Check<'a>, params: &[&'a UOp], gaps: bool) {
    let slot = |u: &UOp| Some(u.buffer_arg()?.slot);
    let mut by_slot: Vec<(u64, &UOp)> =
        params.iter().filter_map(|u| Some((slot(u)?, *u))).collect();
    by_slot.sort_by_key(|(slot, _)| *slot);
    let mut want = 0;
    for (slot, u) in by_slot {
        need!(c, u, slot + 1 != want, "another PARAM has slot {slot} too");
        need!(c, u, gaps || slot <= want, "slot {want} is missing");
        want = slot + 1;
    }
    let mut devices = params.iter().filter_map(|u| Some((u.device()?, *u)));
    if let Some((first, _)) = devices.next() {
        devices.for_each(|(d, u)| {
            need!(
                c,
                u,
                d == first,
                "on {d}, where another PARAM is on {first}"
            )
        });
    }
}

/// Points 3 and 4. Two sets of RANGEs a node, as bits: open in it, and closed at or below it.
fn loops<'a>(c: &mut Check<'a>, nodes: &[&'a UOp], ranges: &[&'a UOp]) {
    let arg = |r: &UOp| r.range_arg().unwrap_or((0, AxisType::Loop));
    let mut numbers: FxHashMap<u32, &UOp> = FxHashMap::default();
    let bit: FxHashMap<&UOp, usize> = ranges.iter().enumerate().map(|(i, &r)| (r, i)).collect();
    let place: FxHashMap<&UOp, usize> = nodes.iter().enumerate().map(|(i, &u)| (u, i)).collect();
    for &r in ranges {
        let id = arg(r).0;
        need!(
            c,
            r,
            numbers.insert(id, r).is_none(),
            "another RANGE has number {id} too"
        );
    }
    let words = ranges.len().div_ceil(64);
    let mut sets = vec![0u64; nodes.len() * words * 2];
    for (at, &u) in nodes.iter().enumerate() {
        if !u.ops_below().contains(Op::Range) {
            continue;
        }
        let (below, own) = sets.split_at_mut(at * words * 2);
        let (open, closed) = own[..words * 2].split_at_mut(words);
        let closes = matches!(u.op(), Op::End | Op::Reduce);
        let (values, own_ranges) = u.src().split_at(if closes { 1 } else { u.src().len() });
        for s in values.iter().filter(|s| s.ops_below().contains(Op::Range)) {
            let set = &below[place[s] * words * 2..][..words * 2];
            // Those of the source follow each other as its own do.
            for (own, source) in open.iter_mut().chain(closed.iter_mut()).zip(set) {
                *own |= source;
            }
        }
        if u.op() == Op::Range {
            let i = bit[u];
            open[i / 64] |= 1 << (i % 64);
        }
        let both = open.iter().zip(closed.iter()).map(|(a, b)| a & b);
        for (w, both) in both.enumerate().filter(|(_, both)| *both != 0) {
            let r = ranges[w * 64 + both.trailing_zeros() as usize];
            c.fault(u, format!("r{} is closed below and used again", arg(r).0));
        }
        let name = u.op().name();
        for r in own_ranges {
            let Some(&i) = bit.get(r) else {
                c.fault(u, format!("{name} closes RANGEs, not {}", r.op().name()));
                continue;
            };
            let (_, t) = arg(r);
            need!(
                c,
                u,
                t.is_reduce() == (u.op() == Op::Reduce),
                "{name} closes a {} range",
                t.name()
            );
            open[i / 64] &= !(1 << (i % 64));
            closed[i / 64] |= 1 << (i % 64);
        }
        // Reported once, where it happens, not all the way up.
        for (open, closed) in open.iter_mut().zip(closed.iter()) {
            *open &= !closed;
        }
    }
    let left = &sets[(nodes.len() - 1) * words * 2..];
    for (i, &r) in ranges.iter().enumerate() {
        need!(
            c,
            r,
            left[i / 64] >> (i % 64) & 1 == 0,
            "no END and no REDUCE closes this RANGE"
        );
    }
}
