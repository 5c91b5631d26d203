//! Loops made unambiguous. Flows in: an optimised kernel; flows out: the same kernel in which every
//! range is closed by one nest of ENDs or by one group of REDUCEs that can share a loop, and in which
//! hardware axes are SPECIALs and a reduction over a workgroup is staged through LOCAL storage.
//! Invariant: no RANGE of type GLOBAL, THREAD, LOCAL, WARP or GROUP_REDUCE is left.

use crate::graph::{group as effects_of, rebuild};
use crate::scratch::{self, copied};
use monoglot_uop::marks::NodeMap;
use monoglot_uop::node::Srcs;
use monoglot_uop::{
    AddrSpace, Arg, AxisType, DType, Error, Op, Ranges, ReduceOp, Result, Shape, UOp, shape::Dim,
};
use rustc_hash::{FxHashMap, FxHashSet};

/// Close every range once and name the hardware's axes.
pub(crate) fn normalise(kernel: &UOp) -> Result<UOp> {
    let kernel = group_reduce(kernel)?;
    let mut names = Names::of(&kernel);
    let kernel = close_reduces_once(&kernel, &mut names, |_| true);
    let kernel = close_stores_once(&kernel, &mut names);
    let mut kernel = close_fills_once(&kernel, &mut names);
    // A loop that has become two has reductions in both, and those may fill storage.
    loop {
        let closed = close_reduces_once(&kernel, &mut names, |_| true);
        if closed == kernel {
            return hardware(&kernel);
        }
        kernel = close_fills_once(&closed, &mut names);
    }
}

/// The kernel in which each loop is one of REDUCEs that can share it, where rewriting left some fewer loops than they
/// had: of (12·i + j) mod 3 a loop over i is gone.
pub(crate) fn part_reduces(kernel: &UOp) -> UOp {
    close_reduces_once(kernel, &mut Names::of(kernel), is_loop)
}

/// How deep a loop over a range stands among the others: hardware, then loops by number, then
/// reductions, then what becomes lanes.
pub(crate) fn depth(r: &UOp) -> (u8, u32) {
    match r.range_arg() {
        None => (0, 0),
        Some((id, AxisType::Global | AxisType::Thread | AxisType::Local | AxisType::Warp)) => {
            (1, id)
        }
        Some((id, AxisType::Loop)) => (2, id),
        Some((id, AxisType::GroupReduce | AxisType::Reduce)) => (3, id),
        Some((id, AxisType::Upcast | AxisType::Unroll)) => (4, id),
    }
}

fn is_axis(u: &UOp, types: &[AxisType]) -> bool {
    u.range_arg().is_some_and(|(_, t)| types.contains(&t))
}

/// Whether a RANGE is a loop, not lanes.
pub(crate) fn is_loop(r: &UOp) -> bool {
    r.op() == Op::Range && !matches!(kind(r), AxisType::Upcast | AxisType::Unroll)
}

pub(crate) fn kind(r: &UOp) -> AxisType {
    r.range_arg().map_or(AxisType::Reduce, |(_, t)| t)
}

/// The least number that no range of the kernel has.
pub(crate) fn next_id(kernel: &UOp) -> u32 {
    kernel
        .nodes()
        .into_iter()
        .filter_map(UOp::range_arg)
        .map(|(id, _)| id + 1)
        .max()
        .unwrap_or(0)
}

pub(crate) fn fresh(r: &UOp, axis: AxisType, id: &mut u32) -> UOp {
    *id += 1;
    r.with_arg(Arg::Range(*id - 1, axis))
}

/// A REDUCE over a range of the workgroup becomes a sum of each thread's part: the parts go to LOCAL
/// storage, and after a barrier every thread folds all of them.
fn group_reduce(kernel: &UOp) -> Result<UOp> {
    let group = |u: &UOp| is_axis(u, &[AxisType::GroupReduce]);
    if !kernel.nodes().into_iter().any(group) {
        return Ok(kernel.clone());
    }
    let mut id = next_id(kernel);
    let mut slot = scratch::next_slot(kernel);
    let mut parts: FxHashMap<UOp, (ReduceOp, Vec<UOp>)> = FxHashMap::default();
    rebuild(kernel, |u, src| {
        let new = u.with_src(src);
        Ok(match (u.op(), u.arg()) {
            (Op::Reduce, Arg::Reduce(op, _)) if u.src()[1..].iter().any(group) => {
                let (across, within): (Vec<UOp>, Vec<UOp>) =
                    new.src()[1..].iter().cloned().partition(group);
                parts.insert(u.clone(), (*op, across.clone()));
                let part = new.src()[0].reduce_ranges(*op, &within);
                if part.shape().is_empty() {
                    stage(&part, *op, &across, &mut slot, &mut id)?
                } else {
                    part
                }
            }
            // The fragments of a matrix unit go through LOCAL storage by element.
            (Op::Index, _) if !u.src()[0].shape().is_empty() && parts.contains_key(&u.src()[0]) => {
                let (op, across) = &parts[&u.src()[0]];
                stage(&new, *op, across, &mut slot, &mut id)?
            }
            _ => new,
        })
    })
}

/// Each thread's `part` through LOCAL storage, folded by every thread.
fn stage(part: &UOp, op: ReduceOp, across: &[UOp], slot: &mut u64, id: &mut u32) -> Result<UOp> {
    let open = part.ranges();
    use AxisType::*;
    let inside = |r: &&UOp| is_axis(r, &[Local, Warp, GroupReduce, Upcast, Unroll]);
    let all: Vec<&UOp> = open.iter().filter(inside).collect();
    if all.len() > 128 {
        return Err(Error::argument(
            "kernel",
            "more than 128 axes in a workgroup",
        ));
    }
    // What has passed a barrier is the same for all threads that were folded there.
    let topo = part.toposort_gated(|u| u.op() != Op::Barrier);
    let varies = open_threads(&topo, &all).last().copied().unwrap_or(0);
    let axes: Vec<UOp> = (all.iter().enumerate())
        .filter(|(k, r)| varies >> k & 1 == 1 || across.contains(r))
        .map(|(_, r)| (*r).clone())
        .collect();
    let across: Vec<UOp> = axes
        .iter()
        .filter(|r| across.contains(r))
        .cloned()
        .collect();
    let Some(dims) = axes
        .iter()
        .map(|r| r.src()[0].as_int().map(Dim::Int))
        .collect::<Option<Vec<_>>>()
    else {
        return Err(Error::argument(
            "GROUP_REDUCE",
            "a workgroup axis has no known size",
        ));
    };
    let dims = Shape::new(dims);
    if dims.max_len() > 1 << 24 {
        return Err(Error::argument(
            "GROUP_REDUCE",
            format!("a workgroup and its copies of {dims} elements"),
        ));
    }
    // Memory has no `index`.
    let index = part.dtype() == DType::Index;
    let stored = if index {
        part.cast(DType::I64)
    } else {
        part.clone()
    };
    let local = UOp::scratch(*slot, &dims, stored.dtype(), AddrSpace::Local);
    *slot += 1;
    let around = |r: &&UOp| !axes.contains(r) && scratch::turns(kind(r)) && r.vmax() > 0;
    let loops: Vec<UOp> = open.iter().filter(around).cloned().collect();
    let full = scratch::filled(&local, &axes, &stored, &[], &loops, true);
    let again: Vec<UOp> = across
        .iter()
        .map(|r| fresh(r, AxisType::Reduce, id))
        .collect();
    let other = |r: &UOp| {
        across
            .iter()
            .position(|a| a == r)
            .map_or(r.clone(), |i| again[i].clone())
    };
    let at: Vec<UOp> = axes.iter().map(other).collect();
    Ok(full.at(&at).cast(part.dtype()).reduce_ranges(op, &again))
}

/// What REDUCEs that share a loop have in common.
#[derive(Clone, PartialEq)]
struct Shared<'a> {
    /// The ranges that they close.
    closes: &'a [UOp],
    /// Those around them.
    around: Ranges,
    /// How many REDUCEs stand below.
    below: u32,
}

/// Two REDUCEs share a loop where they close the same ranges inside the same ones and neither needs
/// the other; where they only share some range, one of them gets ranges of its own.
fn close_reduces_once(kernel: &UOp, names: &mut Names, which: fn(&UOp) -> bool) -> UOp {
    let mut kernel = kernel.clone();
    // One renaming may duplicate a nested reduction, which then needs the next.
    'again: loop {
        let topo = kernel.toposort();
        let mut level: NodeMap<&UOp, u32> = NodeMap::new();
        let mut owner: NodeMap<&UOp, Shared> = NodeMap::new();
        for u in &topo {
            let below = u.src().iter().filter_map(|s| level.get(s)).max();
            let below = below.copied().unwrap_or(0);
            let closes = u.op() == Op::Reduce && u.src().len() > 1;
            level.insert(u, below + closes as u32);
            if !closes {
                continue;
            }
            let own = Shared {
                closes: &u.src()[1..],
                around: u.ranges(),
                below,
            };
            let taken = |r: &&UOp| owner.get(r).is_some_and(|other| *other != own);
            let of = own.closes.iter().filter(|r| which(r));
            let clash: Vec<&UOp> = of.filter(taken).collect();
            if clash.is_empty() {
                owner.extend(own.closes.iter().map(|r| (r, own.clone())));
                continue;
            }
            let map: FxHashMap<UOp, UOp> = clash
                .iter()
                .map(|r| ((*r).clone(), fresh(r, kind(r), &mut names.id)))
                .collect();
            let renamed = copied(u, map, &mut names.slot);
            kernel = kernel.substitute(&[(u.clone(), renamed)].into_iter().collect());
            continue 'again;
        }
        return kernel;
    }
}

/// Numbers of ranges and slots of storage that a kernel does not have yet.
struct Names {
    id: u32,
    slot: u64,
}

impl Names {
    fn of(kernel: &UOp) -> Names {
        Names {
            id: next_id(kernel),
            slot: scratch::next_slot(kernel),
        }
    }
}

/// One loop of the kernel's outer nest: its range, and what it runs in order; a RANGE stands for its loop.
struct Loop {
    range: UOp,
    parent: usize,
    items: Vec<UOp>,
}

/// ENDs as one tree of loops, each closing one range; stores over the same ranges share them.
fn close_stores_once(kernel: &UOp, names: &mut Names) -> UOp {
    let root = UOp::sink(&[]);
    let mut loops = vec![Loop {
        range: root,
        parent: 0,
        items: Vec::new(),
    }];
    // Effects with the ranges around them, in the order of the SINK.
    let mut stack: Vec<(UOp, Vec<UOp>)> = kernel
        .src()
        .iter()
        .rev()
        .map(|u| (u.clone(), Vec::new()))
        .collect();
    while let Some((u, mut ranges)) = stack.pop() {
        match u.op() {
            Op::End => {
                ranges.extend(u.src()[1..].iter().cloned());
                stack.push((u.src()[0].clone(), ranges));
            }
            Op::Group | Op::Sink => {
                stack.extend(u.src().iter().rev().map(|s| (s.clone(), ranges.clone())))
            }
            _ => {
                ranges.sort_by_key(depth);
                ranges.dedup();
                place(&mut loops, u, &ranges, names);
            }
        }
    }
    // Inner loops were made after outer ones.
    let mut built: FxHashMap<UOp, UOp> = FxHashMap::default();
    while let Some(Loop { range, items, .. }) = loops.pop() {
        let effects: Vec<UOp> = items
            .into_iter()
            .map(|u| built.remove(&u).unwrap_or(u))
            .collect();
        if loops.is_empty() {
            return UOp::new(Op::Sink, effects, kernel.arg().clone());
        }
        let closed = effects_of(effects).end(std::slice::from_ref(&range));
        built.insert(range, closed);
    }
    kernel.clone()
}

fn place(loops: &mut Vec<Loop>, effect: UOp, ranges: &[UOp], names: &mut Names) {
    let mut at = 0;
    let mut renamed: FxHashMap<UOp, UOp> = FxHashMap::default();
    for r in ranges {
        let taken = loops.iter().position(|n| n.range == *r);
        if let Some(k) = taken.filter(|&k| loops[k].parent == at && renamed.is_empty()) {
            at = k;
            continue;
        }
        let range = if taken.is_none() {
            r.clone()
        } else {
            fresh(r, kind(r), &mut names.id)
        };
        if range != *r {
            renamed.insert(r.clone(), range.clone());
        }
        let k = loops.len();
        loops[at].items.push(range.clone());
        loops.push(Loop {
            range,
            parent: at,
            items: Vec::new(),
        });
        at = k;
    }
    loops[at]
        .items
        .push(copied(&effect, renamed, &mut names.slot));
}

/// ENDs inside other loops, which fill storage of the kernel's own, close one range each, that no other END
/// closes.
fn close_fills_once(kernel: &UOp, names: &mut Names) -> UOp {
    if !kernel.ops_below().contains(Op::After) {
        return kernel.clone();
    }
    let mut taken: FxHashSet<UOp> = FxHashSet::default();
    kernel.rebuild(
        &FxHashMap::default(),
        |_| true,
        |u, src| {
            let new = u.with_src(src);
            if u.op() != Op::End {
                return new;
            }
            let clashes = new.src()[1..].iter().filter(|r| taken.contains(*r));
            let map: FxHashMap<UOp, UOp> = clashes
                .map(|r| (r.clone(), fresh(r, kind(r), &mut names.id)))
                .collect();
            let mut ranges: Vec<UOp> = (new.src()[1..].iter())
                .map(|r| map.get(r).unwrap_or(r).clone())
                .collect();
            ranges.sort_by_key(depth);
            taken.extend(ranges.iter().cloned());
            let body = if map.is_empty() {
                new.src()[0].clone()
            } else {
                copied(&new.src()[0], map, &mut names.slot)
            };
            let close = |body: UOp, r: &UOp| body.end(std::slice::from_ref(r));
            ranges.iter().rev().fold(body, close)
        },
    )
}

/// GLOBAL, THREAD, LOCAL, WARP and GROUP_REDUCE ranges as expressions of SPECIALs.
fn hardware(kernel: &UOp) -> Result<UOp> {
    let topo = kernel.toposort();
    let of = |kind: AxisType| -> Vec<UOp> {
        let mut v: Vec<UOp> = topo
            .iter()
            .filter(|u| is_axis(u, &[kind]))
            .cloned()
            .collect();
        v.sort_by_key(UOp::range_arg);
        v
    };
    let [global, thread, warp, local, groups] = [
        AxisType::Global,
        AxisType::Thread,
        AxisType::Warp,
        AxisType::Local,
        AxisType::GroupReduce,
    ]
    .map(of);
    let all: Vec<&UOp> = [&global, &thread, &warp, &local, &groups]
        .into_iter()
        .flatten()
        .collect();
    if all.is_empty() {
        return Ok(kernel.clone());
    }
    if all.len() > 128 {
        return Err(Error::argument("kernel", "more than 128 hardware axes"));
    }
    let alone = |r: &UOp| vec![r.clone()];
    let mut map: FxHashMap<UOp, UOp> = FxHashMap::default();
    assign(
        &mut map,
        "gidx",
        global.iter().rev().map(alone).collect(),
        3,
    )?;
    assign(&mut map, "tid", thread.iter().rev().map(alone).collect(), 1)?;
    let open = open_threads(&topo, &all);
    let bit = |r: &UOp| bit(&all, r);
    let shared = sharing(&groups, &open, bit);
    let single = [&global, &thread, &warp, &local]
        .into_iter()
        .flatten()
        .map(alone);
    let threads: Vec<Vec<UOp>> = single.chain(shared.iter().cloned()).collect();
    // Lanes of a warp are neighbours in the first dimension.
    let inner = warp.iter().chain(local.iter().rev()).map(alone);
    assign(
        &mut map,
        "lidx",
        inner.chain(shared.into_iter().rev()).collect(),
        3,
    )?;
    let threads: Vec<(u128, UOp)> = threads
        .iter()
        .map(|set| (set.iter().fold(0, |m, r| m | bit(r)), map[&set[0]].clone()))
        .collect();
    let mut open = open.into_iter();
    rebuild(kernel, |u, src| {
        let mask = open.next().unwrap_or(0);
        Ok(match u.op() {
            Op::Range if map.contains_key(u) => map[u].clone(),
            // ENDs of ranges that are no loops go.
            Op::End if map.contains_key(&u.src()[1]) => src[0].clone(),
            // Every thread begins by itself.
            Op::After => {
                let ranges = u.src().iter().map(|s| map.contains_key(s));
                let left = src.into_iter().zip(ranges).filter(|(_, gone)| !gone);
                let src: Srcs = left.map(|(s, _)| s).collect();
                match &src[..] {
                    [storage] => storage.clone(),
                    _ => u.with_src(src),
                }
            }
            Op::Store => {
                let idle = threads.iter().filter(|(set, _)| mask & set == 0);
                stored_once(u, src, idle.map(|(_, place)| place))
            }
            _ => u.with_src(src),
        })
    })
}

/// Ranges of different reductions in sets that share threads: those of which no value is open in two.
fn sharing(groups: &[UOp], open: &[u128], bit: impl Fn(&UOp) -> u128) -> Vec<Vec<UOp>> {
    let mut shared: Vec<Vec<UOp>> = Vec::new();
    for g in groups {
        let meets = |s: &UOp| open.iter().any(|m| m & bit(g) != 0 && m & bit(s) != 0);
        let fits = |set: &Vec<UOp>| set[0].src() == g.src() && !set.iter().any(meets);
        match shared.iter().position(fits) {
            Some(i) => shared[i].push(g.clone()),
            None => shared.push(vec![g.clone()]),
        }
    }
    shared
}

/// A store over new sources. Threads, by these places, that would all store the same element leave it to the
/// first of them. Every workgroup has LOCAL storage of its own, every thread its registers.
fn stored_once<'a>(store: &UOp, mut src: Srcs, idle: impl Iterator<Item = &'a UOp>) -> UOp {
    let space = store.src()[0].addrspace();
    let shares = |place: &&UOp| match space {
        Some(AddrSpace::Local) => is_local(place),
        Some(AddrSpace::Reg) => false,
        _ => true,
    };
    let first = idle.filter(shares).map(|p| p.lt(&UOp::index_const(1)));
    let gate = src.get(2).cloned().into_iter();
    let gate = gate.chain(first).reduce(|a, b| a & b);
    src.truncate(2);
    src.extend(gate);
    store.with_src(src)
}

/// The bit of a range, by its number among all.
fn bit(all: &[&UOp], range: &UOp) -> u128 {
    let number = all.iter().position(|r| *r == range);
    number.map_or(0, |k| 1 << k)
}

/// By node, on which of these ranges it depends. What a barrier lets pass is the same for all threads.
fn open_threads(topo: &[UOp], all: &[&UOp]) -> Vec<u128> {
    let mut open: NodeMap<&UOp, u128> = NodeMap::new();
    let mut out = Vec::with_capacity(topo.len());
    for u in topo {
        let sources = u.src().iter().filter_map(|s| open.get(s));
        let mut mask = sources.fold(0, |m, s| m | s);
        match u.op() {
            Op::Range => mask |= bit(all, u),
            Op::Reduce | Op::End => mask &= !u.src()[1..].iter().fold(0, |m, r| m | bit(all, r)),
            Op::Barrier => mask = 0,
            _ => {}
        }
        open.insert(u, mask);
        out.push(mask);
    }
    out
}

/// Whether a part of a hardware axis tells threads of one workgroup apart.
pub(crate) fn is_local(part: &UOp) -> bool {
    part.toposort()
        .iter()
        .any(|u| matches!(u.arg(), Arg::Text(name) if name.starts_with("lidx")))
}

/// Spread sets of ranges, fastest first, over the SPECIALs `name0`, `name1`, …: those that exceed
/// the dimensions share the last. Ranges of one set are one axis.
fn assign(
    map: &mut FxHashMap<UOp, UOp>,
    name: &str,
    sets: Vec<Vec<UOp>>,
    dims: usize,
) -> Result<()> {
    let mut rest = &sets[..];
    for d in 0..dims {
        let take = if d + 1 == dims {
            rest.len()
        } else {
            rest.len().min(1)
        };
        let (now, later) = rest.split_at(take);
        if now.is_empty() {
            break;
        }
        let Some(sizes) = now
            .iter()
            .map(|s| s[0].src()[0].as_int())
            .collect::<Option<Vec<i64>>>()
        else {
            return Err(Error::argument(
                "kernel",
                "a hardware axis has no known size",
            ));
        };
        let total = sizes.iter().try_fold(1i64, |n, &size| n.checked_mul(size));
        let Some(total) = total.filter(|&n| n <= i32::MAX.into()) else {
            return Err(Error::argument(
                "kernel",
                "more than 2^31 places along a hardware axis",
            ));
        };
        let text = if name == "tid" {
            name.to_string()
        } else {
            format!("{name}{d}")
        };
        let special = UOp::new(
            Op::Special,
            vec![UOp::index_const(total)],
            Arg::Text(text.into()),
        );
        let mut below = 1;
        for (set, size) in now.iter().zip(sizes) {
            let part = if below == 1 {
                special.clone()
            } else {
                &special / below
            };
            let part = if below * size == total {
                part
            } else {
                part % size
            };
            map.extend(set.iter().map(|r| (r.clone(), part.clone())));
            below *= size;
        }
        rest = later;
    }
    Ok(())
}
