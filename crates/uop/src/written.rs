//! What a kernel does to its outputs. Flows in: a kernel; flows out: for each output whether all of it is
//! written, and whether the order of the loops can be seen, or why the order is not told.
//!
//! Invariant: only what follows from the indices alone is believed: each is a sum of multiples of the loops
//! around it, as the digits of a number are.

use crate::graph::ordered;
use crate::node::UOp;
use crate::op::{Op, OpSet};
use crate::rules::Affine;
use rustc_hash::{FxHashMap, FxHashSet};
use std::slice::from_ref;

/// What a kernel does to its first PARAMs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// By output: whether every element of it is written, and none is read.
    pub whole: Vec<bool>,
    /// Whether all iterations may run in any order, at the same time.
    pub apart: bool,
}

/// What a kernel does to its PARAMs 0 to `outs`, or what is wrong with that.
pub fn written(kernel: &UOp, outs: usize) -> Result<Written, String> {
    let nodes = ordered(from_ref(kernel), UOp::src);
    let loops = loops(&nodes);
    let targets: FxHashSet<&UOp> = nodes.iter().filter_map(|u| target(u)).collect();
    let mut read = vec![false; outs];
    const AS_WRITTEN: OpSet = OpSet::of(&[Op::Buffer, Op::Custom]);
    let mut apart = !kernel.ops_below().intersects(AS_WRITTEN);
    let mut stores: Vec<Vec<&UOp>> = vec![Vec::new(); outs];
    for &u in &nodes {
        let Some(to) = target(u) else { continue };
        match output(to) {
            Some(k) if k < outs => stores[k].push(u),
            Some(k) => return Err(format!("it stores to PARAM {k}, which is an input")),
            None => {}
        }
    }
    for &u in &nodes {
        let effect = matches!(u.op(), Op::Store | Op::AtomicAdd);
        apart &= u.op() != Op::AtomicAdd;
        for (i, s) in u.src().iter().enumerate() {
            let is_target = effect && i == 0 && u.op() == Op::Store;
            let Some(k) = Some(s).filter(|s| s.op() == Op::Index && !is_target) else {
                continue;
            };
            let Some(k) = output(k).filter(|&k| k < outs) else {
                continue;
            };
            read[k] = true;
            let ordered = s.src()[0].op() == Op::After;
            apart &= !ordered;
            if u.op() == Op::AtomicAdd && i == 0 || ordered {
                continue;
            }
            let own = targets.contains(s);
            let once = own && stores[k].len() == 1 && is_injective(s, &loops[stores[k][0]]);
            if !once {
                return Err(format!(
                    "it reads output {k} where it may have been written already: say after what it is \
                     read, as `output.after(&[range])` does"
                ));
            }
        }
    }
    let mut whole = Vec::with_capacity(outs);
    for (k, list) in stores.iter().enumerate() {
        if list.is_empty() {
            return Err(format!("it stores nothing to output {k}"));
        }
        apart &= list.len() == 1;
        apart &= list.iter().all(|s| is_injective(&s.src()[0], &loops[s]));
        let covers = |s: &&&UOp| {
            let plain = s.op() == Op::Store && s.src().len() == 2;
            plain && is_whole(&s.src()[0], &loops[*s])
        };
        whole.push(!read[k] && list.iter().any(|s| covers(&s)));
    }
    Ok(Written { whole, apart })
}

/// The INDEX that a node writes to.
fn target(u: &UOp) -> Option<&UOp> {
    let writes = matches!(u.op(), Op::Store | Op::AtomicAdd);
    u.src().first().filter(|s| writes && s.op() == Op::Index)
}

/// The slot of the PARAM that an INDEX is of.
fn output(index: &UOp) -> Option<usize> {
    let storage = index.src()[0].named();
    let slot = storage.buffer_arg().filter(|_| storage.op() == Op::Param)?;
    slot.addrspace.map(|_| slot.slot as usize)
}

/// The RANGEs around each effect.
fn loops<'a>(nodes: &[&'a UOp]) -> FxHashMap<&'a UOp, Vec<&'a UOp>> {
    let mut out: FxHashMap<&UOp, Vec<&UOp>> = FxHashMap::default();
    for &u in nodes {
        if matches!(u.op(), Op::Store | Op::AtomicAdd) {
            out.entry(u).or_default();
        }
        if u.op() != Op::End {
            continue;
        }
        for inner in ordered(from_ref(&u.src()[0]), UOp::src) {
            if matches!(inner.op(), Op::Store | Op::AtomicAdd) {
                out.entry(inner).or_default().extend(&u.src()[1..]);
            }
        }
    }
    out
}

/// An index without its gate.
fn ungated(u: &UOp) -> &UOp {
    match (u.op(), u.src()) {
        (Op::Where, [_, index, otherwise]) if otherwise.is_invalid() => index,
        (Op::Where, [_, otherwise, index]) if otherwise.is_invalid() => index,
        _ => u,
    }
}

/// The loops that are axes of an INDEX, each of one, and whether they are all of it.
fn by_axis(index: &UOp, loops: &[&UOp]) -> (Vec<UOp>, bool) {
    let mut used: Vec<UOp> = Vec::new();
    let mut whole = true;
    for (at, size) in index.src()[1..].iter().zip(index.src()[0].shape().iter()) {
        let plain = ungated(at);
        whole &= plain == at;
        if plain.op() == Op::Range && loops.contains(&plain) && !used.contains(plain) {
            whole &= plain.src()[0] == size.to_uop();
            used.push(plain.clone());
        } else {
            whole &= size.is(1);
        }
    }
    (used, whole)
}

/// An index as digits: the stride and extent of each loop, ascending; None where it is none.
fn digits(index: &UOp, loops: &[&UOp]) -> Option<Vec<(i128, i128)>> {
    let shape = index.src()[0].shape().ints()?;
    let mut sum: Option<Affine> = None;
    let mut stride = 1i128;
    for (at, &n) in index.src()[1..].iter().zip(&shape).rev() {
        let at = ungated(at);
        let sum = sum.get_or_insert_with(|| Affine::number(at.dtype(), 0));
        sum.add(at, stride)?;
        stride *= i128::from(n.max(1));
    }
    let mut out = Vec::new();
    for (atom, k) in sum.map_or(Vec::new(), |s| s.terms.to_vec()) {
        let turns = atom.src().first().and_then(UOp::as_int)?;
        if atom.op() != Op::Range || !loops.contains(&&atom) || k <= 0 {
            return None;
        }
        out.push((k, turns.into()));
    }
    let turning = |r: &&&UOp| r.src()[0].as_int() != Some(1);
    let distinct: FxHashSet<&UOp> = loops.iter().filter(turning).copied().collect();
    out.retain(|&(_, turns)| turns != 1);
    out.sort_unstable();
    (out.len() == distinct.len()).then_some(out)
}

/// Whether no two turns of the loops have one place.
fn is_injective(index: &UOp, loops: &[&UOp]) -> bool {
    let (used, _) = by_axis(index, loops);
    if loops.iter().all(|r| used.contains(r)) {
        return true;
    }
    let Some(digits) = digits(index, loops) else {
        return false;
    };
    let mut least = 1;
    digits.iter().all(|&(stride, turns)| {
        let apart = stride >= least;
        least = stride * turns;
        apart
    })
}

/// Whether the turns of the loops have every place.
fn is_whole(index: &UOp, loops: &[&UOp]) -> bool {
    let (used, whole) = by_axis(index, loops);
    if whole && loops.iter().all(|r| used.contains(r)) {
        return true;
    }
    let gated = index.src()[1..].iter().any(|at| ungated(at) != at);
    let zero = index.src()[1..].iter().all(|at| at.vmin() == 0);
    let Some(digits) = digits(index, loops).filter(|_| !gated && zero) else {
        return false;
    };
    let mut next = 1;
    let dense = digits.iter().all(|&(stride, turns)| {
        let follows = stride == next;
        next = stride * turns;
        follows
    });
    let len = index.src()[0].shape().ints();
    dense && len.is_some_and(|n| n.iter().map(|&n| i128::from(n)).product::<i128>() == next)
}
