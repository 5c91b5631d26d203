//! Stores over the same ranges share a kernel. Flows in and out: kernels, sources before users.
//!
//! Two kernels are merged where they loop over the same ranges on one device, read something in
//! common, and neither can depend on the other because both lie on one level (the longest way to them
//! from the inputs is equally long). Matrix products stay apart: each wants the registers for itself.

use crate::kernel::{Call, Callee, Calls, confining, number_params, number_ranges, with_slots};
use crate::rangeify::STORES;
use monoglot_uop::{Arg, BufferArg, Device, Op, Result, Target, UOp};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// How many kernels are tried as company for another.
const HOSTS: usize = 16;

pub(crate) fn fuse(all: Calls, target: &dyn Fn(Device) -> Result<Arc<Target>>) -> Result<Calls> {
    let Calls {
        calls: kernels,
        nodes,
        inputs,
        params,
        outputs,
    } = all;
    let mut level_of: Vec<u32> = vec![0; inputs + nodes.len()];
    let mut buckets: FxHashMap<(u32, Device, Vec<UOp>), Vec<usize>> = FxHashMap::default();
    let mut out: Vec<(u32, Call)> = Vec::with_capacity(kernels.len());
    // How many nodes those have that may be joined.
    let mut sizes: FxHashMap<usize, usize> = FxHashMap::default();
    // Later kernels are sources of earlier ones: rangeify works from the roots.
    for k in kernels.into_iter().rev() {
        // What it writes may have been begun before.
        let below = k.args.iter().map(|&a| level_of[a]);
        let level = below.max().unwrap_or(0) + 1;
        for &a in &k.args[..k.outs] {
            level_of[a] = level;
        }
        let key = match &k.callee {
            Callee::Compute(sink) if !is_contraction(sink) => {
                let loops = closed(sink).into_iter().chain(confining(sink));
                (level, k.device, loops.collect())
            }
            _ => {
                out.push((level, k));
                continue;
            }
        };
        let limits = target(k.device)?;
        let bucket = buckets.entry(key).or_default();
        let size = size(&k);
        let mut hosts = bucket.iter().rev().take(HOSTS).copied();
        let host =
            hosts.find(|h| sizes[h] + size <= limits.max_nodes && fits(&out[*h].1, &k, &limits));
        match host {
            Some(h) => {
                out[h].1 = merge(&out[h].1, &k);
                sizes.insert(h, sizes[&h] + size);
            }
            None => {
                bucket.push(out.len());
                sizes.insert(out.len(), size);
                out.push((level, k));
            }
        }
    }
    let mut companies: Vec<Vec<usize>> = buckets.into_values().filter(|b| b.len() > 1).collect();
    companies.sort();
    join(&mut out, &companies, &mut sizes, target)?;
    out.sort_by_key(|(level, _)| *level);
    Ok(Calls {
        calls: out.into_iter().map(|(_, k)| k).collect(),
        nodes,
        inputs,
        params,
        outputs,
    })
}

/// Merge companies that met different members first and fit together as well.
fn join(
    kernels: &mut Vec<(u32, Call)>,
    companies: &[Vec<usize>],
    sizes: &mut FxHashMap<usize, usize>,
    target: &dyn Fn(Device) -> Result<Arc<Target>>,
) -> Result<()> {
    let mut gone = vec![false; kernels.len()];
    for list in companies {
        for (i, &b) in list.iter().enumerate().skip(1) {
            let limits = target(kernels[b].1.device)?;
            let mut earlier = list[..i].iter().rev().take(HOSTS).copied();
            let both = |a: usize| sizes[&a] + sizes[&b];
            let room = |a: usize| !gone[a] && both(a) <= limits.max_nodes;
            let host = earlier.find(|&a| room(a) && fits(&kernels[a].1, &kernels[b].1, &limits));
            if let Some(a) = host {
                let size = both(a);
                kernels[a].1 = merge(&kernels[a].1, &kernels[b].1);
                sizes.insert(a, size);
                gone[b] = true;
            }
        }
    }
    let mut kept = gone.iter();
    kernels.retain(|_| kept.next() == Some(&false));
    Ok(())
}

fn size(k: &Call) -> usize {
    match &k.callee {
        Callee::Compute(sink) => sink.toposort().len(),
        _ => 0,
    }
}

/// The ranges that the stores of a kernel close.
fn closed(sink: &UOp) -> Vec<UOp> {
    let end = sink.src().first().filter(|e| e.op() == Op::End);
    end.map_or(Vec::new(), |e| e.src()[1..].to_vec())
}

fn fits(a: &Call, b: &Call, target: &Target) -> bool {
    let shared = b.args[b.outs..]
        .iter()
        .filter(|x| a.args[a.outs..].contains(x))
        .count();
    a.outs + b.outs <= STORES
        && shared > 0
        && a.args.len() + b.args.len() - shared <= target.max_buffers
}

fn merge(a: &Call, b: &Call) -> Call {
    let (Callee::Compute(x), Callee::Compute(y)) = (&a.callee, &b.callee) else {
        return a.clone();
    };
    // Both count their PARAMs from 0: name the buffers, then number all anew, written ones first.
    let outs: Vec<usize> = a.args[..a.outs]
        .iter()
        .chain(&b.args[..b.outs])
        .copied()
        .collect();
    let x = with_slots(x, |l| a.args[l as usize]);
    let y = with_slots(&apart(y, x.toposort().len() as u32), |l| b.args[l as usize]);
    let effects: Vec<UOp> = x.src().iter().chain(y.src()).cloned().collect();
    let sink = UOp::sink(&effects).with_arg(x.arg().clone());
    let (sink, args) = number_params(&sink, outs.clone(), |slot| slot as usize);
    Call {
        callee: Callee::Compute(number_ranges(&sink)),
        args,
        outs: outs.len(),
        device: a.device,
    }
}

/// The kernel with the ranges of its reductions, and its own storage, numbered from `first` on: what two kernels
/// call by one number need not be one loop. `number_ranges` finds out which are.
fn apart(sink: &UOp, first: u32) -> UOp {
    let outer = closed(sink);
    let inner = sink.toposort().into_iter().filter(|r| !outer.contains(r));
    let moved = inner.filter_map(|u| {
        let arg = match (u.op(), u.arg()) {
            (Op::Range, Arg::Range(id, t)) => Arg::Range(first + id, *t),
            (Op::Buffer, Arg::Buffer(b)) => Arg::Buffer(BufferArg {
                slot: b.slot + u64::from(first),
                ..*b
            }),
            _ => return None,
        };
        Some((u.clone(), u.with_arg(arg)))
    });
    sink.substitute(&moved.collect())
}

/// Whether a reduction reads something again and again: an operand that does not vary over one of the
/// output's ranges, as in a matrix product.
fn is_contraction(sink: &UOp) -> bool {
    let outer = closed(sink);
    sink.toposort()
        .iter()
        .filter(|u| u.op() == Op::Reduce)
        .any(|reduce| {
            reduce.src()[0]
                .toposort()
                .iter()
                .filter(|u| u.op() == Op::Index)
                .any(|read| {
                    let over = read.src()[1].ranges();
                    outer.iter().any(|r| r.vmax() >= 8 && !over.contains(r))
                        && over.iter().any(|r| reduce.src()[1..].contains(r))
                })
        })
}
