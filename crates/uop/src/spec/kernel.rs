//! The kernel's spec: what Rangeify gives, what every OptOp keeps, and the shaped form after
//! Expand. Flows in: a graph at this border; flows out: a `Kernel` or an `Expanded`, or every fault
//! that it has.
//!
//! 1. The root is a SINK with its `KernelInfo`; its sources, and those of GROUPs and what ENDs close, are
//!    effects: STOREs, ENDs, GROUPs and the like.
//! 2. Only ops of kernels occur; no tags; args fit; a CONST is a value of its dtype.
//! 3. A RANGE has dtype `index` and a number of its own, which is below 2^31. It counts to a number that
//!    is known before anything runs: arithmetic on constants and variables, from 0 to 2^59. A SPECIAL counts
//!    to a number from 1 to 2^31.
//! 4. Every RANGE is closed: END closes what a store runs over, REDUCE what a reduction runs over, each once.
//!    What a closed RANGE gave is not combined with a value in which it is open, so no loop is run
//!    twice in one place. Several ENDs, or REDUCEs, may share a RANGE side by side.
//! 5. Scalar form: values have shape (), but for the fragments of a matrix unit where there is a WMMA.
//!    Shaped form: no UPCAST or UNROLL range is left, and shaped values have one rank and at most 2^14
//!    elements; beside them a scalar is a CONST. A STACK is a list that RESHAPE puts along an axis.
//! 6. PARAMs are GLOBAL storage or variables of shape (); their slots are 0, 1, … without gaps
//!    (shaped: what folded may leave some), one node each; all name one device. BUFFERs are LOCAL or REG,
//!    of at most 2^24 and 2^20 bytes together, with numbers below 2^31. No storage holds values of dtype
//!    `index`.
//! 7. An INDEX into storage gives every axis an index. Each is within its axis by min_max, or one of
//!    them is `WHERE(gate, index, INVALID)`: then nothing is accessed where the gate is false. Shaped:
//!    or the LOAD or STORE has a gate.
//! 8. INVALID occurs as a branch of such a WHERE, or as an index; such a WHERE is only an index, or a
//!    branch of another.
//! 9. A STORE, or an ATOMICADD of 32 or 64 bits, goes to an INDEX of storage, has its dtype, and its gate is
//!    bool. Scalar: a LOAD puts a value
//!    into LOCAL or REG storage. Shaped: storage is flat, an INDEX of it is an address, and LOADs and STOREs
//!    alone take addresses. LOAD(address, alternative, gate): of the address's dtype and shape, and a bool;
//!    along an axis of size 1, or of shape (), they stand for every lane.
//! 10. Effects are sources only of what orders effects. AFTER is storage once something has run: AFTER and
//!     BARRIER wait for effects, and for RANGEs to begin.

use super::{Verifier, is_counted, is_stored, need, ops_of, storage};
use crate::arg::{AddrSpace, Arg, AxisType};
use crate::dtype::DType;
use crate::graph::ordered;
use crate::marks::NodeMap;
use crate::node::UOp;
use crate::op::{Op, OpSet};
use crate::shape::Dim;
use rustc_hash::FxHashMap;

/// Most elements of a shaped value.
const LANES: i64 = 1 << 14;
/// What numbers of RANGEs and BUFFERs are below, so that others can be counted on from them.
const NUMBERS: u64 = 1 << 31;
/// Most iterations of a RANGE.
const COUNT: i64 = 1 << 59;

/// What SINK, GROUP and END hold.
const EFFECTS: OpSet = {
    use Op::*;
    OpSet::of(&[Store, End, Group, AtomicAdd, Custom, Barrier])
};

pub(super) fn check(c: &mut Verifier, shaped: bool) {
    check_all(c, shaped, shaped);
}

/// A scalar kernel that need not use all of its arguments.
pub(super) fn check_own(c: &mut Verifier) {
    check_all(c, false, true);
}

/// The slots of PARAMs may have gaps where that is said.
fn check_all(c: &mut Verifier, shaped: bool, gaps: bool) {
    use Op::*;
    let root = c.root;
    let kernel = root.op() == Sink && matches!(root.arg(), Arg::Kernel(_));
    need!(c, root, kernel => "a kernel is a SINK with its name and Opts");
    let ops = ops_of(if shaped { 's' } else { 'k' });
    let nodes = ordered(std::slice::from_ref(root), UOp::src);
    let mut params: Vec<&UOp> = Vec::new();
    let mut ranges: Vec<&UOp> = Vec::new();
    let mut rank: Option<usize> = None;
    let mut bytes = [0i64; 2];
    // The fragments of a matrix unit are vectors.
    let vectors = shaped || root.ops_below().contains(Wmma);
    for &u in &nodes {
        c.any(u, ops);
        if shaped {
            addresses(c, u);
            spread(c, u);
        }
        match u.op() {
            Param => {
                c.param(u);
                need!(c, u, u.src().len() < 4 => "a variable that is bound here already");
                params.push(u);
            }
            Buffer => own_storage(c, u, &mut bytes),
            Sink | Group | End => {
                let held = if u.op() == End { 1 } else { u.src().len() };
                let closes = u.op() != End || u.src().len() > 1;
                need!(c, u, closes => "END closes no RANGE");
                for s in u.src()[..held].iter().filter(|s| !EFFECTS.contains(s.op())) {
                    c.fault(u, format!("{} is no effect", s.op().name()));
                }
            }
            Range => {
                range(c, u, shaped);
                ranges.push(u);
            }
            Special => {
                let size = u.src()[0].as_int().filter(|&n| n > 0 && n < NUMBERS as i64);
                let counts = u.dtype() == DType::Index && size.is_some();
                need!(c, u, counts => "it counts to no index from 1 to 2^31");
            }
            // Shaped accesses have their gates beside the address.
            Index => index(c, u, shaped, shaped),
            Load if shaped => {
                let from = &u.src()[0];
                let address = from.op() == Index && is_memory(from.src()[0].named());
                need!(c, u, address => "a LOAD is of an INDEX of storage");
                if address {
                    index(c, from, true, u.src().len() > 2);
                }
                gated(c, u);
            }
            Load => {
                use AddrSpace::{Local, Reg};
                let staged = matches!(u.arg(), Arg::Place(_, Some(Local | Reg)));
                let staged = staged && u.src().len() == 1;
                need!(c, u, staged => "a LOAD names LOCAL or REG storage, and has no gate here");
            }
            Store => store(c, u, shaped),
            AtomicAdd => {
                store(c, u, shaped);
                let d = u.src()[0].dtype();
                let at_once = !matches!(d, DType::Bool | DType::Index) && d.bytes() >= 4;
                need!(c, u, at_once => "an ATOMICADD of {d}: of 32 or 64 bits alone");
            }
            After => {
                let ordered = storage(u).is_some() && u.src().len() > 1;
                need!(c, u, ordered => "AFTER is storage once something has run");
                waits(c, u, &u.src()[1..]);
            }
            Barrier => waits(c, u, u.src()),
            _ => {}
        }
        invalid(c, u);
        // Storage and vectors have a shape in scalar kernels too.
        let own = matches!(u.op(), Param | Buffer | Load | Stack)
            || u.op() == After && storage(u).is_some();
        if u.shape().is_empty() || own {
            continue;
        }
        need!(c, u, vectors => "a value of shape {}: kernels are scalar here", u.shape());
        let few = own || u.shape().max_len() <= LANES;
        need!(c, u, few => "a value of more than {LANES} elements");
        if shaped && u.op().is_elementwise() {
            let n = u.shape().len();
            let others = *rank.get_or_insert(u.shape().len());
            need!(c, u, n == others => "rank {n}, where other values have {others}");
        }
    }
    slots(c, &params, gaps);
    loops(c, &nodes, &ranges);
}

/// LOCAL and REG storage; `bytes` is how much of each there is so far.
pub(super) fn own_storage<'a>(c: &mut Verifier<'a>, u: &'a UOp, bytes: &mut [i64; 2]) {
    let (space, most) = match u.addrspace() {
        Some(AddrSpace::Local) => (0, 1 << 24),
        Some(AddrSpace::Reg) => (1, 1 << 20),
        _ => return c.fault(u, "storage of a kernel is LOCAL or REG"),
    };
    need!(c, u, is_stored(u.dtype()) => "storage of {}", u.dtype());
    let size = u.shape().max_len().saturating_mul(u.dtype().bytes() as i64);
    bytes[space] = bytes[space].saturating_add(size);
    need!(c, u, bytes[space] <= most => "more than {most} bytes of such storage");
    let number = u.buffer_arg().map_or(0, |b| b.slot);
    need!(c, u, number < NUMBERS => "the number {number} is too large");
    c.dims(u, 0, "shape");
}

fn range<'a>(c: &mut Verifier<'a>, u: &'a UOp, shaped: bool) {
    let counts = u.dtype() == DType::Index && u.shape().is_empty();
    need!(c, u, counts => "a RANGE counts in index, not in {}", u.dtype());
    // Where loops end, and begin, may follow from those around them once they stand as they will.
    let plain = |s: &UOp| is_counted(s) || shaped && s.shape().is_empty();
    let within = |s: &UOp| s.vmin() >= 0 && s.vmax() <= COUNT && s.dtype() == DType::Index;
    let (ends, begins) = u.src().split_at(1);
    need!(c, u, ends.iter().all(|s| plain(s) && within(s)) =>
        "it counts to what is no arithmetic on variables, negative, or more than 2^59");
    need!(c, u, begins.is_empty() || shaped && begins.iter().all(within) =>
        "it begins with another number than 0");
    let number = u.range_arg().map_or(0, |(id, _)| id.into());
    need!(c, u, number < NUMBERS => "the number {number} is too large");
    if let Some((_, t @ (AxisType::Upcast | AxisType::Unroll))) = u.range_arg() {
        need!(c, u, !shaped => "{} ranges have become shape here", t.name());
    }
}

/// Each index within its axis, or gated, by itself or by the access.
fn index<'a>(c: &mut Verifier<'a>, u: &'a UOp, shaped: bool, gated: bool) {
    let from = &u.src()[0];
    let shape = u.src()[0].shape();
    let indices = &u.src()[1..];
    if storage(from).is_none() {
        let vector = matches!(from.op(), Op::Stack | Op::Wmma) || !shape.is_empty();
        let fits = vector && !shaped;
        return need!(c, u, fits => "INDEX is into storage, or a vector before Expand");
    }
    let n = indices.len();
    need!(c, u, n == shape.len() => "{n} indices into storage of shape {shape}");
    for (i, (at, size)) in indices.iter().zip(shape.iter()).enumerate() {
        need!(c, u, at.dtype() == DType::Index => "index {i} is {}, not index", at.dtype());
        let (lo, hi) = at.bounds();
        let n = size.max();
        if (lo < 0 || hi >= n) && !gated && !indices.iter().any(is_gated) {
            let outside =
                format!("is in {lo}..={hi} by min_max, outside its axis of {n}, and has no gate");
            c.fault(u, format!("index {i} {outside}"));
        }
    }
}

/// What is waited for: effects, or that an iteration begins.
fn waits<'a>(c: &mut Verifier<'a>, u: &'a UOp, sources: &[UOp]) {
    for s in sources {
        let effect = s.dtype() == DType::Void || s.op() == Op::Range;
        let name = s.op().name();
        need!(c, u, effect => "{name} is nothing to wait for");
    }
}

/// A LOAD's alternative is a value of what it reads, and stands beside a gate.
fn gated<'a>(c: &mut Verifier<'a>, u: &'a UOp) {
    let both = u.src().len() != 2;
    need!(c, u, both => "an alternative without a gate");
    for s in u.src().iter().skip(1) {
        let has = s.shape();
        let wants = u.shape();
        let along = |(a, b): (&Dim, &Dim)| a == b || a.is(1);
        let same = has.len() == wants.len() && has.iter().zip(wants.iter()).all(along);
        let fits = has.is_empty() || same;
        need!(c, u, fits => "a source of shape {has}, not {wants}");
    }
    let alternative = u.src().get(1).is_none_or(|s| s.dtype() == u.dtype());
    need!(c, u, alternative => "the alternative is no {}", u.dtype());
    let gate = u.src().get(2).is_none_or(|g| g.dtype() == DType::Bool);
    need!(c, u, gate => "the gate is no bool");
}

/// Where this node has storage, or an address in it, among its sources, it does not take it for a value.
fn addresses<'a>(c: &mut Verifier<'a>, u: &'a UOp) {
    for (i, s) in u.src().iter().enumerate() {
        let named = s.named();
        if is_memory(named) {
            let refers = i == 0 && matches!(u.op(), Op::Index | Op::After);
            need!(c, u, refers => "source {i} is storage, not a value");
        }
        let Some(to) = s.src().first().filter(|_| s.op() == Op::Index) else {
            continue;
        };
        if is_memory(to.named()) {
            let accesses = i == 0 && matches!(u.op(), Op::Load | Op::Store | Op::AtomicAdd);
            need!(c, u, accesses => "source {i} is an address, not a value");
            let flat = to.shape().len() == 1;
            need!(c, u, flat => "an address in storage of shape {}", to.shape());
        }
    }
}

/// Where this node has a list, or a scalar beside arrays, among its sources, it may.
fn spread<'a>(c: &mut Verifier<'a>, u: &'a UOp) {
    use Op::*;
    let array = u.op().is_elementwise() && !u.shape().is_empty();
    for (i, s) in u.src().iter().enumerate() {
        let dims = matches!(u.op(), Param | Buffer) || i > 0 && matches!(u.op(), Reshape | Expand);
        let lies = dims || matches!(u.op(), Reshape | Permute) || s.op() != Stack;
        need!(c, u, lies => "source {i} is a list, which has no axis before RESHAPE");
        let alone = array && s.shape().is_empty() && s.op() != Const;
        need!(c, u, !alone => "source {i} is a scalar that is no CONST");
    }
}

/// Whether this is a PARAM or BUFFER that is storage.
fn is_memory(u: &UOp) -> bool {
    matches!(u.op(), Op::Param | Op::Buffer)
        && u.buffer_arg().is_some_and(|b| b.addrspace.is_some())
}

/// `WHERE(gate, index, INVALID)`, or INVALID itself.
fn is_gated(u: &UOp) -> bool {
    u.is_invalid() || u.op() == Op::Where && (u.src()[2].is_invalid() || u.src()[1].is_invalid())
}

/// Where this node has an invalid index among its sources, it must be one that may.
pub(super) fn invalid<'a>(c: &mut Verifier<'a>, u: &'a UOp) {
    for (i, s) in u.src().iter().enumerate().filter(|(_, s)| is_gated(s)) {
        let allowed = match u.op() {
            Op::Index => i > 0,
            Op::Where => i > 0 && (s.is_invalid() || is_gated(u)),
            // A shape of several axes may be given to an index.
            op => matches!(op, Op::Reshape | Op::Expand | Op::Permute | Op::Stack),
        };
        need!(c, u, allowed => "an invalid index is used as a value");
    }
}

fn store<'a>(c: &mut Verifier<'a>, u: &'a UOp, shaped: bool) {
    let target = &u.src()[0];
    let fits = target.op() == Op::Index && storage(&target.src()[0]).is_some();
    let name = u.op().name();
    need!(c, u, fits => "a {name} goes to an INDEX of storage");
    if fits && shaped {
        index(c, target, true, u.src().len() > 2);
    }
    c.stored(u);
}

fn slots<'a>(c: &mut Verifier<'a>, params: &[&'a UOp], gaps: bool) {
    let slot = |u: &UOp| Some(u.buffer_arg()?.slot);
    let mut by_slot: Vec<(u64, &UOp)> =
        params.iter().filter_map(|u| Some((slot(u)?, *u))).collect();
    by_slot.sort_by_key(|(slot, _)| *slot);
    let mut last: Option<u64> = None;
    for (slot, u) in by_slot {
        let want = last.map_or(0, |last| last.saturating_add(1));
        need!(c, u, last != Some(slot) => "another PARAM has slot {slot} too");
        need!(c, u, gaps || slot <= want => "slot {want} is missing");
        last = Some(slot);
    }
    let mut devices = params.iter().filter_map(|u| Some((u.device()?, *u)));
    if let Some((first, _)) = devices.next() {
        devices.for_each(
            |(d, u)| need!(c, u, d == first => "on {d}, where another PARAM is on {first}"),
        );
    }
}

/// Points 3 and 4. Two sets of RANGEs a node, as bits: open in it, and closed at or below it.
fn loops<'a>(c: &mut Verifier<'a>, nodes: &[&'a UOp], ranges: &[&'a UOp]) {
    let arg = |r: &UOp| r.range_arg().unwrap_or((0, AxisType::Loop));
    let mut numbers: FxHashMap<u32, &UOp> = FxHashMap::default();
    let bit: NodeMap<&UOp, usize> = ranges.iter().enumerate().map(|(i, &r)| (r, i)).collect();
    let place: NodeMap<&UOp, usize> = nodes.iter().enumerate().map(|(i, &u)| (u, i)).collect();
    for &r in ranges {
        let id = arg(r).0;
        need!(c, r, numbers.insert(id, r).is_none() => "another RANGE has number {id} too");
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
        for (k, r) in own_ranges.iter().enumerate() {
            let again = own_ranges[..k].contains(r);
            need!(c, u, !again => "{name} closes one RANGE twice");
            let Some(&i) = bit.get(r) else {
                c.fault(u, format!("{name} closes RANGEs, not {}", r.op().name()));
                continue;
            };
            let (_, t) = arg(r);
            need!(c, u, t.is_reduce() == (u.op() == Op::Reduce) =>
                "{name} closes a {} range", t.name());
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
        need!(c, r, left[i / 64] >> (i % 64) & 1 == 0 => "no END and no REDUCE closes this RANGE");
    }
}
