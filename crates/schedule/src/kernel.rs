//! Values over ranges → kernels in canonical form. Flows in: a value, the index that it writes, its
//! ranges; flows out: `SINK(END(STORE(INDEX(PARAM 0, index), value), ranges…))` in simplest form.
//!
//! Invariant: canonical numbers only. PARAMs count from 0 (what is written first), RANGEs from 0 (the
//! output's axes first), so two kernels of one structure are one node. Reductions over equal extents
//! that do not depend on each other share their ranges, and so their loop.

mod changed;
mod choices;
mod in_place;
mod own;
mod ranges;

use crate::rangeify::{Output, Stored, Stores, called, counted, flat};
pub(crate) use changed::{changed, confining};
use monoglot_uop::marks::NodeMap;
use monoglot_uop::{
    AddrSpace, Arg, AxisType, BufferArg, Device, Dim, KernelInfo, Op, Result, ScanInfo, Shape, UOp,
};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// What becomes one CALL.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// What it calls.
    pub(crate) callee: Callee,
    /// The program's buffer for each of its PARAMs; the first `outs` are written.
    pub(crate) args: Vec<usize>,
    /// How many of them are written.
    pub(crate) outs: usize,
    /// The device that runs it.
    pub(crate) device: Device,
}

#[derive(Clone, Debug)]
pub(crate) enum Callee {
    /// A kernel.
    Compute(UOp),
    /// The part of args[1] that goes to args[0]: COPY(SHRINK(PARAM 1, (start,), (length,))).
    Copy(UOp),
    /// The kernels of a body, which each call of it has.
    Function(Arc<Calls>),
    /// The kernels of a body, again and again.
    Loop(Arc<Looped>),
    /// A user's own work: a kernel that stays as it is, or a CUSTOMFUNCTION. What it writes may have been begun by
    /// another call.
    Own(UOp),
    /// Nothing: the result has no elements.
    Nothing,
}

/// A body that runs again and again. Its arguments are its last carries, what it gathers, a second buffer for
/// each carry, its own buffers as often as a time is written down, the first carries, the slices, and what is the
/// same each time.
#[derive(Debug)]
pub(crate) struct Looped {
    /// How often, and what is what.
    pub(crate) info: ScanInfo,
    /// The calls of one time.
    pub(crate) calls: Vec<Inner>,
    /// How many values it has.
    pub(crate) values: usize,
    /// What is stored in its own buffers.
    pub(crate) own: Vec<UOp>,
    /// The variables among its arguments, as the body sees them.
    pub(crate) lengths: Vec<(usize, UOp)>,
}

/// A call of one time.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) callee: Callee,
    pub(crate) outs: usize,
    pub(crate) args: Vec<Place>,
}

/// What an argument is at one time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// A carry, as this time gets it.
    Before(usize),
    /// A carry, as the next time gets it.
    After(usize),
    /// A part of an argument that has the scan's length.
    Part(usize),
    /// A buffer of the time's own.
    Own(usize),
    /// All of an argument.
    Whole(usize),
}

/// Every call of a program, sources before users, and where its results are.
#[derive(Debug)]
pub(crate) struct Calls {
    pub(crate) calls: Vec<Call>,
    /// For each buffer from `inputs` on, the node that it stores.
    pub(crate) nodes: Vec<UOp>,
    pub(crate) inputs: usize,
    pub(crate) params: FxHashMap<usize, UOp>,
    pub(crate) outputs: Vec<Output>,
}

pub(crate) fn kernels(stores: Stores) -> Result<Calls> {
    let Stores {
        stored,
        inputs,
        params,
        outputs,
        own,
    } = stores;
    let mut known = Known::default();
    let mut owns: FxHashMap<&UOp, own::Pending> = own.iter().map(own::pending).collect();
    let mut calls = Vec::with_capacity(stored.len() + own.len());
    let mut beside: FxHashMap<usize, Vec<(usize, &Stored)>> = FxHashMap::default();
    for (i, s) in stored.iter().enumerate() {
        let own = beside.entry(s.host.unwrap_or(i)).or_default();
        own.push((inputs + i, s));
    }
    for (i, s) in stored.iter().enumerate() {
        let Some(all) = beside.get(&i) else { continue };
        let mut one = || kernel(all, &mut known);
        match called(&s.node) {
            None => calls.push(one()?),
            Some(call) => {
                let own = owns.get_mut(call).expect("every CALL was taken down");
                calls.extend(own.output(&s.node, one)?);
            }
        }
    }
    let nodes = stored.into_iter().map(|s| s.node).collect();
    Ok(Calls {
        calls,
        nodes,
        inputs,
        params,
        outputs,
    })
}

/// Kernels in simplest form by what they were before, and which of their PARAMs are left in it.
type Known = FxHashMap<UOp, (UOp, Vec<usize>)>;

/// The kernel that stores the first, and the others beside it.
fn kernel(all: &[(usize, &Stored)], known: &mut Known) -> Result<Call> {
    let (slot, stored) = all[0];
    if stored.node.shape().iter().any(|d| d.is(0)) {
        return Ok(Call {
            callee: Callee::Nothing,
            args: vec![slot],
            outs: 1,
            device: stored.device,
        });
    }
    if stored.node.op() == Op::Copy {
        return copy(stored, slot);
    }
    let store = |(slot, stored): &(usize, &Stored)| {
        let out = flat(*slot, &stored.node, Some(stored.device));
        let place = out.at(std::slice::from_ref(&stored.index));
        place.store(&stored.value).end(&stored.ranges)
    };
    let stores: Vec<UOp> = all.iter().map(store).collect();
    let sink = UOp::sink(&stores).with_arg(Arg::Kernel(Arc::new(KernelInfo::default())));
    let (sink, args) = number(&sink, all.iter().map(|(slot, _)| *slot).collect());
    if !known.contains_key(&sink) {
        // Simplification may have dropped reads: what is left is numbered again.
        let outs = (0..all.len()).collect();
        let simple = number_params(&simplify(&sink)?, outs, |local| local as usize);
        known.insert(sink.clone(), simple);
    }
    let (simple, left) = &known[&sink];
    Ok(Call {
        callee: Callee::Compute(simple.clone()),
        args: left.iter().map(|&local| args[local]).collect(),
        outs: all.len(),
        device: stored.device,
    })
}

/// The rules, then ranges in the shape that loops like, until both agree; then no choice twice.
fn simplify(sink: &UOp) -> Result<UOp> {
    let mut sink = monoglot_uop::rules::kernel().rewrite(sink)?;
    for _ in 0..8 {
        let Some(next) = ranges::reshape(&sink)? else {
            break;
        };
        sink = monoglot_uop::rules::kernel().rewrite(&number_ranges(&next))?;
    }
    if let Some(next) = choices::once(&sink) {
        sink = monoglot_uop::rules::kernel().rewrite(&next)?;
    }
    let sink = in_place::in_place(&shared_first(&sink));
    Ok(number_ranges(&guarded(&sink)))
}

/// A kernel whose places lie in storage: one of which the rules cannot tell that, as several lengths are in it, has a gate.
/// What a user can get wrong (a position past the end) is asserted elsewhere, and does nothing here.
fn guarded(sink: &UOp) -> UOp {
    let guard = |u: UOp| {
        let (Op::Index, [storage, at]) = (u.op(), u.src()) else {
            return None;
        };
        let (lo, hi) = at.bounds();
        let n = storage.shape().first()?.max();
        let gated = at.op() == Op::Where && at.src()[1..].iter().any(UOp::is_invalid);
        let plain = !gated && !at.is_invalid();
        let within = (lo < 0).then(|| UOp::index_const(-1).lt(at));
        let below = (hi >= n).then(|| at.lt(&UOp::index_const(n)));
        let gate = within.into_iter().chain(below).reduce(|a, b| a & b)?;
        let new = u.with_src(vec![storage.clone(), at.valid(&gate)]);
        plain.then(|| (u.clone(), new))
    };
    let nodes = sink.toposort();
    match nodes.iter().any(UOp::is_variable) {
        true => sink.substitute(&nodes.into_iter().filter_map(guard).collect()),
        false => sink.clone(),
    }
}

/// The kernel of one store with the loops outermost with which its reductions vary: what the elements inside
/// of them share is computed before these.
fn shared_first(sink: &UOp) -> UOp {
    let [end] = sink.src() else {
        return sink.clone();
    };
    let loops = &end.src()[1..];
    let mut ranges = loops.to_vec();
    let mut sums = sink.toposort();
    sums.retain(|u| {
        let open = u.ranges();
        let fewer = open.len() < loops.len() && open.iter().all(|r| loops.contains(r));
        let folds = u.op() == Op::Reduce && u.src().len() > 1;
        (folds || u.op() == Op::After) && fewer
    });
    // Those of most loops first, so that those of fewer are outside of these in the end.
    sums.sort_by_key(|u| std::cmp::Reverse(u.ranges().len()));
    for sum in &sums {
        let open = sum.ranges();
        ranges.sort_by_key(|r| !open.contains(r));
    }
    if ranges == loops {
        return sink.clone();
    }
    let src = [end.src()[0].clone()].into_iter().chain(ranges);
    sink.with_src(vec![end.with_src(src.collect::<Vec<_>>())])
}

fn copy(stored: &Stored, slot: usize) -> Result<Call> {
    let from = stored.value.src()[0]
        .buffer_arg()
        .map_or(0, |b| b.slot as usize);
    // A contiguous part: the first element says which.
    let zeros = stored
        .ranges
        .iter()
        .map(|r| (r.clone(), UOp::index_const(0)))
        .collect();
    let index = stored.value.src()[1].substitute(&zeros);
    let start = monoglot_uop::rules::symbolic().rewrite(&index)?;
    let (copy, args) = part_copy(&stored.node, &start, [slot, from], stored.device)?;
    Ok(Call {
        callee: Callee::Copy(copy),
        args,
        outs: 1,
        device: stored.device,
    })
}

/// What copies all of a value, and its arguments: where to and from, and the variables that its lengths name.
pub(crate) fn whole_copy(
    value: &UOp,
    ends: [usize; 2],
    device: Device,
) -> Result<(UOp, Vec<usize>)> {
    part_copy(value, &UOp::index_const(0), ends, device)
}

/// What copies as many elements as a value has, from this one on, and its arguments.
fn part_copy(
    value: &UOp,
    start: &UOp,
    ends: [usize; 2],
    device: Device,
) -> Result<(UOp, Vec<usize>)> {
    let one = UOp::index_const(1);
    let length = value.shape().iter().fold(one, |n, d| n * d.to_uop());
    let length = monoglot_uop::rules::symbolic().rewrite(&length)?;
    let (start, args) = number_params(start, ends.to_vec(), |slot| slot as usize);
    let (length, args) = number_params(&length, args, |slot| slot as usize);
    let source = UOp::param(1, &Shape::of(&[i64::MAX >> 8]), value.dtype(), None);
    let part = source.shrink(&[Dim::of(&start)], &Shape::new([Dim::of(&length)]))?;
    let place = Arg::Place(Some(device), Some(AddrSpace::Global));
    Ok((UOp::new(Op::Copy, vec![part], place), args))
}

/// The kernel of the program's buffers with canonical numbers for all that has one, and the buffer of each of its
/// PARAMs, of which it writes the first, `args`.
fn number(sink: &UOp, mut args: Vec<usize>) -> (UOp, Vec<usize>) {
    let nodes = sink.toposort();
    let mut map = params(&nodes, |slot| place(&mut args, slot as usize));
    let of_a_length = |u: &&UOp| u.op() == Op::Range && u.ops_below().contains(Op::Param);
    if nodes.iter().any(|u| of_a_length(&u)) {
        let sink = sink.substitute(&map);
        return (number_ranges(&sink), args);
    }
    match ranges_of(sink, &nodes) {
        Ok(ranges) => {
            map.extend(ranges);
            (sink.substitute(&map), args)
        }
        Err(reduce) => {
            let apart = own_ranges(&sink.substitute(&map), &reduce.substitute(&map));
            (number_ranges(&apart), args)
        }
    }
}

/// The kernel with its PARAMs numbered densely in order of first use, after `args`, the buffers that it
/// writes; `global` names the buffer of each. Flows out with the buffers in that order.
pub(crate) fn number_params(
    sink: &UOp,
    mut args: Vec<usize>,
    global: impl Fn(u64) -> usize,
) -> (UOp, Vec<usize>) {
    let sink = with_slots(sink, |l| place(&mut args, global(l)));
    (sink, args)
}

/// The place of a buffer among the arguments, at the end where it is none yet.
fn place(args: &mut Vec<usize>, buffer: usize) -> usize {
    args.iter().position(|&a| a == buffer).unwrap_or_else(|| {
        args.push(buffer);
        args.len() - 1
    })
}

/// The kernel with other numbers for its PARAMs, asked for in order of first use.
pub(crate) fn with_slots(sink: &UOp, slot: impl FnMut(u64) -> usize) -> UOp {
    sink.substitute(&params(&sink.toposort(), slot))
}

/// What PARAMs become that get other numbers.
fn params(nodes: &[UOp], mut slot: impl FnMut(u64) -> usize) -> FxHashMap<UOp, UOp> {
    let mut map = FxHashMap::default();
    for u in nodes {
        if let (Op::Param, Arg::Buffer(b)) = (u.op(), u.arg()) {
            let slot = slot(b.slot) as u64;
            if slot != b.slot {
                map.insert(u.clone(), u.with_arg(Arg::Buffer(BufferArg { slot, ..*b })));
            }
        }
    }
    map
}

/// RANGEs numbered by the kernel alone: those that stores close, in their order, then those of
/// reductions, and of what is kept, in order of appearance. Reductions with equal extents inside the same loops, none of
/// which needs another's result, get the same numbers.
pub(crate) fn number_ranges(sink: &UOp) -> UOp {
    match ranges_of(sink, &sink.toposort()) {
        Ok(map) => sink.substitute(&map),
        // Its range is another reduction's as well, which belongs to another loop.
        Err(reduce) => number_ranges(&own_ranges(sink, &reduce)),
    }
}

/// Whether a REDUCE is a product of what the kernel keeps of its slices: one of those has all registers.
fn multiplies_kept(u: &UOp) -> bool {
    let kept = |f: &UOp| f.op() == Op::Index && f.src()[0].op() == Op::After;
    let product = counted(&u.src()[0]);
    product.op() == Op::Mul && product.src().iter().any(kept)
}

/// What RANGEs and BUFFERs become that get other numbers; or a REDUCE that needs ranges of its own first.
fn ranges_of(sink: &UOp, nodes: &[UOp]) -> std::result::Result<FxHashMap<UOp, UOp>, UOp> {
    let mut map: FxHashMap<UOp, UOp> = FxHashMap::default();
    let mut next = 0;
    for end in sink.src().iter().filter(|e| e.op() == Op::End) {
        for r in &end.src()[1..] {
            if let (None, Some((_, t))) = (map.get(r), r.range_arg()) {
                map.insert(r.clone(), r.with_arg(Arg::Range(next, t)));
                next += 1;
            }
        }
    }
    type Key = (Vec<UOp>, Vec<UOp>, u32);
    let mut shared: Vec<(Key, Vec<UOp>)> = Vec::new();
    let mut depth: NodeMap<&UOp, u32> = NodeMap::with_capacity(nodes.len());
    let mut slot = 0;
    for u in nodes {
        if let (Op::Buffer, Arg::Buffer(b)) = (u.op(), u.arg()) {
            map.insert(u.clone(), u.with_arg(Arg::Buffer(BufferArg { slot, ..*b })));
            slot += 1;
        }
        let below = u.src().iter().map(|s| depth[s]).max().unwrap_or(0);
        let is_reduce = u.op() == Op::Reduce;
        depth.insert(u, below + is_reduce as u32);
        if u.op() == Op::End && !sink.src().contains(u) {
            for r in &u.src()[1..] {
                let axis = r.range_arg().map_or(AxisType::Loop, |(_, t)| t);
                map.insert(r.clone(), r.with_arg(Arg::Range(next, axis)));
                next += 1;
            }
        }
        if !is_reduce || u.src().len() < 2 {
            continue;
        }
        let own = &u.src()[1..];
        let bounds = own.iter().map(|r| r.src()[0].clone()).collect();
        let key: Key = (bounds, u.ranges().to_vec(), below);
        let own_loop = multiplies_kept(u);
        let numbers = match shared.iter().find(|(k, _)| *k == key && !own_loop) {
            Some((_, numbers)) => numbers.clone(),
            None => {
                let first = next;
                next += own.len() as u32;
                let axis = |r: &UOp| r.range_arg().map_or(AxisType::Reduce, |(_, t)| t);
                own.iter()
                    .zip(first..)
                    .map(|(r, id)| r.with_arg(Arg::Range(id, axis(r))))
                    .collect()
            }
        };
        if own
            .iter()
            .zip(&numbers)
            .any(|(r, n)| map.get(r).is_some_and(|m| m != n))
        {
            return Err(u.clone());
        }
        map.extend(own.iter().cloned().zip(numbers.iter().cloned()));
        shared.push((key, numbers));
    }
    map.retain(|a, b| a != b);
    Ok(map)
}

/// The kernel with ranges of its own for one REDUCE.
fn own_ranges(sink: &UOp, reduce: &UOp) -> UOp {
    let used = sink
        .toposort()
        .iter()
        .filter_map(|u| u.range_arg())
        .map(|(id, _)| id + 1)
        .max()
        .unwrap_or(0);
    let mut src = reduce.src().to_vec();
    for (k, r) in (1..).zip(&reduce.src()[1..]) {
        let Some((_, t)) = r.range_arg() else {
            continue;
        };
        src[k] = r.with_arg(Arg::Range(used + k as u32, t));
        // A REDUCE inside that closes the same range keeps it.
        let map = FxHashMap::from_iter([(r.clone(), src[k].clone())]);
        src[0] = src[0].rebuild(&map, |u| u.ranges().contains(r), |u, src| u.with_src(src));
    }
    sink.substitute(&FxHashMap::from_iter([(
        reduce.clone(),
        reduce.with_src(src),
    )]))
}

/// What stands for a stored node of a body, with the lengths of a call.
pub(crate) fn stored(node: &UOp, lengths: &FxHashMap<UOp, UOp>) -> UOp {
    let shape = Shape::new(node.shape().iter().map(|d| match d.as_int() {
        Some(_) => d.clone(),
        None => Dim::of(&d.to_uop().substitute(lengths)),
    }));
    UOp::param(0, &shape, node.dtype(), node.device())
}
