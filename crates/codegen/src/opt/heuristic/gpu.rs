//! Machines with workgroups: the matrix unit, or workgroups of a few warps and groups for long
//! reductions. Flows in: what a kernel does, as numbers, and the machine's; flows out: Opts, added
//! to those chosen. Invariant: a workgroup has no more threads than the target allows.

use super::{Chosen, inner};
use crate::graph::bits;
use crate::opt::features::Features;
use monoglot_uop::{AxisType, OptOp};

/// Threads of a workgroup to aim for.
const GROUP: i64 = 64;
/// Iterations of a reduction from which a workgroup shares it, where there are few results.
const LONG: i64 = 256;
/// Results below which a machine is not filled by them.
const FEW: f64 = 256.0;

pub(super) fn choose(features: &Features, chosen: &mut Chosen) {
    let unit = matrix_unit(features, chosen);
    // A launch has as many workgroups as its code says: what varies is a loop of each thread.
    for k in bits(features.outer & features.known) {
        if let Some(at) = chosen.axis(k, AxisType::Loop) {
            let whole = inner(0, AxisType::Global);
            chosen.add(whole, at, "iterations of stores are independent");
        }
    }
    if unit {
        return;
    }
    let results: f64 = features.count(features.outer);
    let mut room = GROUP.min(chosen.target.max_workgroup as i64);
    let long = bits(features.known & !features.outer).filter(|&k| features.extent[k] >= LONG);
    if results < FEW
        && let Some(k) = long.max_by_key(|&k| features.extent[k])
        && let Some(at) = chosen.axis(k, AxisType::Reduce)
        && let Some(factor) = divisor(features.extent[k], room.min(32))
    {
        let group = inner(factor, AxisType::GroupReduce);
        if chosen.add(group, at, "few results, each of a long reduction") {
            room /= factor;
        }
    }
    // The contiguous axis first, so that neighbours in a warp read neighbours in memory.
    let contiguous = |k: &usize| {
        features
            .accesses
            .iter()
            .filter(|a| a.stride[*k] == 1)
            .count()
    };
    let mut by_contact: Vec<usize> = bits(features.outer).collect();
    by_contact.sort_by_key(|k| std::cmp::Reverse((contiguous(k), *k)));
    for k in by_contact {
        let Some(at) = chosen.axis(k, AxisType::Global) else {
            continue;
        };
        let Some(n) = chosen.nest.axes[at].extent() else {
            continue;
        };
        if let Some(factor) = divisor(n, room) {
            let local = inner(factor, AxisType::Local);
            if chosen.add(local, at, "neighbours share a workgroup") {
                room /= factor;
            }
        }
    }
}

/// The greatest divisor of `n` up to `most`, from 2.
fn divisor(n: i64, most: i64) -> Option<i64> {
    (2..=most.min(n)).rev().find(|d| n % d == 0)
}

/// TC where a sum of products fits, after padding that at most doubles the work.
fn matrix_unit(features: &Features, chosen: &mut Chosen) -> bool {
    let products = features.reductions.iter().any(|r| r.products);
    if !products || chosen.target.matrix_units.is_empty() {
        return false;
    }
    let kinds = |k: &usize| {
        matches!(features.kind(*k), AxisType::Loop | AxisType::Reduce) && features.extent[*k] >= 6
    };
    for unit in 0..chosen.target.matrix_units.len() {
        let [m, n, depth] = chosen.target.matrix_units[unit].dims;
        // Which output axis is which is not known before the Opt finds out.
        let multiple = |k: usize| match features.kind(k) {
            AxisType::Reduce => depth,
            _ => m.max(n),
        };
        let padded = |k: usize| (features.extent[k] + multiple(k) - 1) / multiple(k) * multiple(k);
        let grown: f64 = bits(features.known)
            .filter(kinds)
            .map(|k| padded(k) as f64 / features.extent[k] as f64)
            .product();
        for k in bits(features.known & !features.outer) {
            let start = (chosen.nest.clone(), chosen.list.len());
            if grown <= 2.0 {
                for p in bits(features.known)
                    .filter(kinds)
                    .filter(|p| features.extent[*p] % multiple(*p) != 0)
                {
                    let multiple = multiple(p);
                    chosen.add(OptOp::PadTo { multiple }, p, "tiles of the matrix unit");
                }
            }
            if chosen.add(
                OptOp::Tc { unit },
                k,
                "a sum of products on the matrix unit",
            ) {
                return true;
            }
            chosen.nest = start.0;
            chosen.list.truncate(start.1);
        }
    }
    false
}
