//! Stores over the same ranges share a kernel. Flows in and out: kernels, sources before users.
//!
//! Two kernels are merged where they loop over the same ranges on one device, read something in
//! common, and neither can depend on the other because both lie on one level (the longest way to them
//! from the inputs is equally long). Matrix products stay apart: each wants the registers for itself.

use crate::kernel::{Kernel, Kernels, Work, number_ranges, renumber_params};
use monoglot_uop::{Arg, Device, Op, Result, Target, UOp};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Most stores of a kernel.
const STORES: usize = 8;
/// How many kernels are tried as company for another.
const HOSTS: usize = 16;

pub(crate) fn fuse(all: Kernels, target: &dyn Fn(Device) -> Result<Arc<Target>>) -> Result<Kernels> {
    let Kernels { kernels, nodes, inputs, params, outputs } = all;
    let mut level_of: Vec<u32> = vec![0; inputs + nodes.len()];
    let mut buckets: FxHashMap<(u32, Device, Vec<UOp>), Vec<usize>> = FxHashMap::default();
    let mut out: Vec<(u32, Kernel)> = Vec::with_capacity(kernels.len());
    let mut order: Vec<usize> = (0..kernels.len()).collect();
    // Later kernels are sources of earlier ones: rangeify works from the roots.
    order.sort_by_key(|&i| std::cmp::Reverse(i));
    for i in order {
        let k = kernels[i].clone();
        let level = k.args[k.outs..].iter().map(|&a| level_of[a]).max().unwrap_or(0) + 1;
        k.args[..k.outs].iter().for_each(|&a| level_of[a] = level);
        let Work::Compute(sink) = &k.work else {
            out.push((level, k));
            continue;
        };
        if is_contraction(sink) {
            out.push((level, k));
            continue;
        }
        let key = (level, k.device, closed(sink));
        let limits = target(k.device)?;
        let bucket = buckets.entry(key).or_default();
        let host = bucket.iter().rev().take(HOSTS).copied().find(|&h| fits(&out[h].1, &k, &limits));
        match host {
            Some(h) => out[h].1 = merge(&out[h].1, &k),
            None => {
                bucket.push(out.len());
                out.push((level, k));
            }
        }
    }
    // Companies that met different members first may fit together as well.
    let mut members: Vec<Vec<usize>> = buckets.into_values().filter(|b| b.len() > 1).collect();
    members.sort();
    let mut gone = vec![false; out.len()];
    for bucket in members {
        for (i, &b) in bucket.iter().enumerate().skip(1) {
            let limits = target(out[b].1.device)?;
            let mut earlier = bucket[..i].iter().rev().take(HOSTS).copied();
            let host = earlier.find(|&a| !gone[a] && fits(&out[a].1, &out[b].1, &limits));
            if let Some(a) = host {
                out[a].1 = merge(&out[a].1, &out[b].1);
                gone[b] = true;
            }
        }
    }
    let mut kept = gone.iter();
    out.retain(|_| kept.next() == Some(&false));
    out.sort_by_key(|(level, _)| *level);
    Ok(Kernels { kernels: out.into_iter().map(|(_, k)| k).collect(), nodes, inputs, params, outputs })
}

/// The ranges that the stores of a kernel close.
fn closed(sink: &UOp) -> Vec<UOp> {
    sink.src()
        .first()
        .map_or(Vec::new(), |e| if e.op() == Op::End { e.src()[1..].to_vec() } else { Vec::new() })
}

fn fits(a: &Kernel, b: &Kernel, target: &Target) -> bool {
    let shared = b.args[b.outs..].iter().filter(|x| a.args[a.outs..].contains(x)).count();
    a.outs + b.outs <= STORES && shared > 0 && a.args.len() + b.args.len() - shared <= target.max_buffers
}

fn merge(a: &Kernel, b: &Kernel) -> Kernel {
    let (Work::Compute(x), Work::Compute(y)) = (&a.work, &b.work) else { return a.clone() };
    // Both count their PARAMs from 0: move b's out of the way, then number all anew.
    let outs: Vec<usize> = a.args[..a.outs].iter().chain(&b.args[..b.outs]).copied().collect();
    let global = |args: &[usize], local: u64| args[local as usize];
    let x = to_global(x, |l| global(&a.args, l));
    let y = to_global(&apart(y, x.toposort().len() as u32), |l| global(&b.args, l));
    let effects: Vec<UOp> = x.src().iter().chain(y.src()).cloned().collect();
    let sink = UOp::sink(&effects).with_arg(x.arg().clone());
    let position = |slot: u64| outs.iter().position(|&o| o as u64 == slot);
    // Written buffers first, in the order of `outs`.
    let shifted = to_global(&sink, |s| position(s).unwrap_or(s as usize + outs.len()));
    let (sink, args) = renumber_params(&shifted, outs.len(), |s| match outs.get(s as usize) {
        Some(&o) => o,
        None => s as usize - outs.len(),
    });
    Kernel { work: Work::Compute(number_ranges(&sink)), args, outs: outs.len(), device: a.device }
}

/// The kernel with the ranges of its reductions numbered from `first` on: what two kernels call by one
/// number need not be one loop. `number_ranges` finds out which are.
fn apart(sink: &UOp, first: u32) -> UOp {
    let outer = closed(sink);
    let mut map = FxHashMap::default();
    for r in sink.toposort().into_iter().filter(|u| u.op() == Op::Range && !outer.contains(u)) {
        if let Some((id, t)) = r.range_arg() {
            map.insert(r.clone(), r.with_arg(Arg::Range(first + id, t)));
        }
    }
    sink.substitute(&map)
}

/// The kernel with its PARAMs numbered otherwise.
fn to_global(sink: &UOp, slot: impl Fn(u64) -> usize) -> UOp {
    let mut map = FxHashMap::default();
    for u in sink.toposort() {
        if let (Op::Param, Arg::Buffer(b)) = (u.op(), u.arg()) {
            let arg = monoglot_uop::BufferArg { slot: slot(b.slot) as u64, ..*b };
            map.insert(u.clone(), u.with_arg(Arg::Buffer(arg)));
        }
    }
    map.retain(|a, b| a != b);
    sink.substitute(&map)
}

/// Whether a reduction reads something again and again: an operand that does not vary over one of the
/// output's ranges, as in a matrix product.
fn is_contraction(sink: &UOp) -> bool {
    let outer = closed(sink);
    sink.toposort().iter().filter(|u| u.op() == Op::Reduce).any(|reduce| {
        reduce.src()[0].toposort().iter().filter(|u| u.op() == Op::Index).any(|read| {
            let over = read.src()[1].ranges();
            outer.iter().any(|r| r.vmax() >= 8 && !over.contains(r))
                && over.iter().any(|r| reduce.src()[1..].contains(r))
        })
    })
}
