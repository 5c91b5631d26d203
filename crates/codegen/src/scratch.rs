//! Storage of a kernel's own: BUFFERs in LOCAL or REG that it fills and reads in every turn of the loops
//! around them. Flows in: a kernel, or a value of one; flows out: the kernel with such storage put in,
//! given room for what runs at the same time, or told from that of another loop.
//!
//! The form is `AFTER(b, END(STORE(INDEX(AFTER(b, BARRIER(r, …)), s, …), value), s, …))`, with a BARRIER
//! around the END where threads share the storage: loops over s fill b, a read goes to the AFTER, and
//! where loops over r turn around them, no thread writes while another may still read the last turn's.
//! Invariant: what reads of such storage is inside the loops in which it was filled.

use crate::graph::node;
use monoglot_uop::{AddrSpace, Arg, AxisType, BufferArg, DType, Dim, Op, Shape, UOp};
use rustc_hash::{FxHashMap, FxHashSet};

/// Whether a node is storage of the kernel's own.
fn is_scratch(u: &UOp) -> bool {
    u.op() == Op::Buffer
}

/// The storage that an address or a name is of, where it is the kernel's own.
fn scratch_of(u: &UOp) -> Option<&UOp> {
    let named = u.named();
    let storage = if named.op() == Op::Index {
        named.src()[0].named()
    } else {
        named
    };
    is_scratch(storage).then_some(storage)
}

/// The least slot that no storage of the kernel's own has.
pub(crate) fn next_slot(kernel: &UOp) -> u64 {
    if !kernel.ops_below().contains(Op::Buffer) {
        return 0;
    }
    let nodes = kernel.nodes();
    let slots = nodes.into_iter().filter(|u| is_scratch(u));
    slots
        .filter_map(UOp::buffer_arg)
        .map(|b| b.slot + 1)
        .max()
        .unwrap_or(0)
}

/// Storage for elements of another dtype.
pub(crate) fn retyped(storage: &UOp, dtype: DType) -> UOp {
    let typed = |b: &BufferArg| Arg::Buffer(BufferArg { dtype, ..*b });
    let arg = storage.buffer_arg().map(typed);
    arg.map_or(storage.clone(), |arg| storage.with_arg(arg))
}

/// Whether an axis of this type is a loop, which turns.
pub(crate) fn turns(kind: AxisType) -> bool {
    matches!(kind, AxisType::Loop | AxisType::Reduce)
}

/// Whether what is set anew around a loop is so in every turn, or thread, of an axis of this type. What
/// expands has parts of its own.
pub(crate) fn sets_anew(kind: AxisType) -> bool {
    !matches!(kind, AxisType::Upcast | AxisType::Unroll)
}

/// Storage that holds `value` at the indices `at`, by a loop over each of `own`. Where threads share it,
/// they wait for each other after that, and before it in every turn of the loops `around`.
pub(crate) fn filled(
    storage: &UOp,
    at: &[UOp],
    value: &UOp,
    own: &[UOp],
    around: &[UOp],
    shared: bool,
) -> UOp {
    if !shared {
        return storage.after(&[storage.at(at).store(value).end(own)]);
    }
    let last_turn = (!around.is_empty()).then(|| node(Op::Barrier, around.iter().cloned()));
    let empty = storage.after(last_turn.as_slice());
    let fill = empty.at(at).store(value).end(own);
    storage.after(&[node(Op::Barrier, [fill])])
}

/// The RANGEs over which a kernel carries something in storage of its own from one turn to the next: their
/// turns stay in order.
pub(crate) fn carried(nodes: &[UOp]) -> FxHashSet<UOp> {
    let mut out = FxHashSet::default();
    for end in nodes.iter().filter(|u| u.op() == Op::End) {
        let mut stack: Vec<&UOp> = vec![&end.src()[0]];
        while let Some(u) = stack.pop() {
            match u.op() {
                Op::Group | Op::End => stack.extend(u.src().iter().filter(|s| s.op().is_void())),
                Op::Store => out.extend(taken_over(u, &end.src()[1..])),
                _ => {}
            }
        }
    }
    out
}

/// The loops among these of which a turn begins with what the last one left: what a STORE puts into storage
/// of the kernel's own was made of what that held, and not of the same element for each turn its own.
fn taken_over(store: &UOp, closes: &[UOp]) -> Vec<UOp> {
    let address = &store.src()[0];
    let Some(storage) = scratch_of(address) else {
        return Vec::new();
    };
    let reads = |u: &&UOp| u.op() == Op::Index && scratch_of(u) == Some(storage);
    // What stands behind an effect was filled by it.
    let value = store.src()[1].toposort_gated(|u| !u.op().is_void());
    let reads: Vec<&UOp> = value.iter().filter(reads).collect();
    if reads.is_empty() {
        return Vec::new();
    }
    let place = &address.src()[1..];
    // What does not vary with a loop is read before it.
    let apart = |r: &UOp| {
        let mut varying = reads.iter().filter(|u| u.ranges().contains(r));
        let same = varying.all(|u| u.src()[1..] == *place);
        same && place.iter().any(|i| is_digit(r, i))
    };
    let over = closes
        .iter()
        .filter(|r| !apart(r) && finds_its_last(store, r));
    over.cloned().collect()
}

/// Whether an index is a number of which the RANGE is a digit, so that each of its turns has places of its own.
fn is_digit(range: &UOp, index: &UOp) -> bool {
    let mut digits: Vec<(i64, &UOp)> = Vec::new();
    let mut open = vec![(1i64, index)];
    while let Some((by, u)) = open.pop() {
        let number = |k: usize| u.src()[k].as_int().filter(|n| *n > 0);
        match u.op() {
            Op::Add => open.extend(u.src().iter().map(|s| (by, s))),
            Op::Mul if number(1).is_some() => {
                let Some(by) = number(1).and_then(|n| by.checked_mul(n)) else {
                    return false;
                };
                open.push((by, &u.src()[0]));
            }
            Op::Range => digits.push((by, u)),
            Op::Const => {}
            _ => return false,
        }
    }
    digits.sort_by_key(|d| d.0);
    let mut below = 0i64;
    for (by, r) in &digits {
        if *by <= below {
            return false;
        }
        below = below.saturating_add(by.saturating_mul(r.vmax()));
    }
    digits.iter().any(|(_, r)| *r == range)
}

/// Whether a turn of this RANGE finds what its last turn stored: not where it has places of its own, and not
/// where something else is put there in every turn.
fn finds_its_last(store: &UOp, range: &UOp) -> bool {
    let kind = range.range_arg().map_or(AxisType::Loop, |(_, t)| t);
    let mut storage = &store.src()[0].src()[0];
    let mut set = false;
    while storage.op() == Op::After {
        let mut effects = storage.src()[1..].iter().filter(|s| s.op() != Op::Range);
        set |= effects.any(|e| e.ranges().contains(range));
        storage = &storage.src()[0];
    }
    turns(kind) && !set
}

/// Whether axes of this type run at the same time and share this storage, so that each needs its own part.
fn shares(kind: AxisType, space: Option<AddrSpace>) -> bool {
    match kind {
        AxisType::Upcast | AxisType::Unroll => true,
        AxisType::Local | AxisType::Warp | AxisType::GroupReduce => space == Some(AddrSpace::Local),
        _ => false,
    }
}

/// Where an index points, whatever its gate says.
pub(crate) fn place(index: &UOp) -> &UOp {
    match index.op() {
        Op::Where if index.src()[2].is_invalid() => place(&index.src()[1]),
        Op::Where if index.src()[1].is_invalid() => place(&index.src()[2]),
        _ => index,
    }
}

/// Whether a place is worked out from the number of a loop: one that is read there, or folded, may be the same in turns
/// of it, however it varies.
fn counts_by(place: &UOp, range: &UOp) -> bool {
    let nodes = place.toposort_gated(|u| u.op().is_elementwise());
    place.ranges().contains(range) && nodes.contains(range)
}

/// A kernel whose own storage has room for each part of the axes that run at the same time around it: lanes
/// and unrolled parts behind its own axes, threads of a workgroup before them.
pub(crate) fn spread(kernel: &UOp) -> UOp {
    if !kernel.ops_below().contains(Op::Buffer) {
        return kernel.clone();
    }
    let nodes = kernel.nodes();
    let mut around: FxHashMap<&UOp, Vec<UOp>> = FxHashMap::default();
    for store in nodes.iter().filter(|u| u.op() == Op::Store) {
        let address = &store.src()[0];
        let Some(storage) = scratch_of(address) else {
            continue;
        };
        let own = address.src().get(1..).unwrap_or_default();
        let list = around.entry(storage).or_default();
        for r in store.ranges().iter() {
            let apart = own.iter().any(|i| counts_by(place(i), r));
            let kind = r.range_arg().map_or(AxisType::Loop, |(_, t)| t);
            if !apart && shares(kind, storage.addrspace()) && !list.contains(r) {
                list.push(r.clone());
            }
        }
    }
    around.retain(|_, axes| !axes.is_empty());
    if around.is_empty() {
        return kernel.clone();
    }
    let lanes = |r: &&UOp| {
        r.range_arg()
            .is_some_and(|(_, t)| matches!(t, AxisType::Upcast | AxisType::Unroll))
    };
    let mut wider: FxHashMap<UOp, UOp> = FxHashMap::default();
    let mut axes: FxHashMap<&UOp, [Vec<UOp>; 2]> = FxHashMap::default();
    for (storage, mut all) in around {
        all.sort_by_key(UOp::range_arg);
        let (behind, before): (Vec<UOp>, Vec<UOp>) = all.into_iter().partition(|r| lanes(&r));
        let extent = |r: &UOp| Dim::of(&r.src()[0]);
        let own = storage.shape().iter().cloned();
        let dims = before.iter().map(extent).chain(own);
        let dims: Vec<Dim> = dims.chain(behind.iter().map(extent)).collect();
        if let (Some(b), Some(space)) = (storage.buffer_arg(), storage.addrspace()) {
            let new = UOp::scratch(b.slot, &Shape::new(dims), b.dtype, space);
            wider.insert(storage.clone(), new);
            axes.insert(storage, [before, behind]);
        }
    }
    kernel.rebuild(
        &wider,
        |_| true,
        |u, src| {
            let indexed = u.op() == Op::Index && u.src()[0].addrspace().is_some();
            let parts = scratch_of(u).filter(|_| indexed).and_then(|s| axes.get(s));
            match parts {
                Some([before, behind]) => {
                    let own = src[1..].iter();
                    let indices = before.iter().chain(own).chain(behind);
                    let indices: Vec<UOp> = indices.cloned().collect();
                    src[0].at(&indices)
                }
                None => u.with_src(src),
            }
        },
    )
}

/// A graph over other ranges, or over others of what is computed with ranges, where these are open: what closes them
/// itself stays as it is. Storage that is filled inside of them is another in the copy, numbered from `slot` on.
pub(crate) fn copied(root: &UOp, mut map: FxHashMap<UOp, UOp>, slot: &mut u64) -> UOp {
    let mut ranges: FxHashSet<UOp> = FxHashSet::default();
    for old in map.keys() {
        match old.op() {
            Op::Range => drop(ranges.insert(old.clone())),
            _ => ranges.extend(old.ranges().iter().cloned()),
        }
    }
    let inside = |u: &UOp| u.ranges().iter().any(|r| ranges.contains(r));
    if root.ops_below().contains(Op::Buffer) {
        for u in root.nodes() {
            let storage = scratch_of(u).filter(|_| u.op() == Op::After && inside(u));
            let Some((storage, b)) = storage.and_then(|s| Some((s, s.buffer_arg()?))) else {
                continue;
            };
            if !map.contains_key(storage) {
                let arg = Arg::Buffer(BufferArg { slot: *slot, ..*b });
                map.insert(storage.clone(), storage.with_arg(arg));
                *slot += 1;
            }
        }
    }
    let renamed = |u: &UOp| u.op() == Op::Index && map.contains_key(u.src()[0].named());
    let open = |u: &UOp| u == root || inside(u) || renamed(u);
    root.rebuild(&map, open, |u, src| u.with_src(src))
}
