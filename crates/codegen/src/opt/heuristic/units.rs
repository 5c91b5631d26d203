//! Matrix units of a CPU, each of which is a dot product of words. Flows in: what a kernel does, as numbers, and the
//! machine's; flows out: Opts, added to those chosen. Invariant: a unit is used only where the words are staged, so that
//! they are put together once for many products.

use super::{Chosen, cpu, product};
use crate::graph::bits;
use crate::opt::dot::may_fit;
use crate::opt::features::Features;
use monoglot_uop::OptOp;

/// How many times as many terms as there are an axis may be padded to.
const PADDED: f64 = 1.34;

/// Choose a unit for the kernel's sum of products, and the loops of the blocked product that it makes; None, with nothing
/// chosen, where there is none.
pub(super) fn choose(features: &Features, chosen: &mut Chosen) -> Option<()> {
    let [sum] = &features.reductions[..] else {
        return None;
    };
    for (unit, info) in chosen.target.matrix_units.iter().enumerate() {
        if info.word().is_none() || !may_fit(&chosen.nest, info) {
            continue;
        }
        let depth = info.depth();
        let padded = |k: usize| (features.extent[k] + depth - 1) / depth * depth;
        let grown = |k: usize| padded(k) as f64 / features.extent[k] as f64;
        let mut axes: Vec<usize> = bits(sum.closes & features.known).collect();
        // The words of a tile are those of the axis that is cut in parts.
        let first = bits(sum.closes).next();
        axes.retain(|&k| grown(k) <= PADDED && (info.tile().is_none() || Some(k) == first));
        axes.sort_by(|&a, &b| grown(a).total_cmp(&grown(b)));
        for k in axes {
            let mut tried = chosen.fork();
            if arranged(unit, (k, features, padded(k)), &mut tried).is_some() {
                *chosen = tried;
                return Some(());
            }
        }
    }
    None
}

/// One axis of the sum on a unit, padded to so many terms.
fn arranged(
    unit: usize,
    (k, features, padded): (usize, &Features, i64),
    tried: &mut Chosen,
) -> Option<()> {
    let kind = features.kind(k);
    if padded != features.extent[k] {
        let multiple = padded;
        let at = tried.axis(k, kind)?;
        tried.add(OptOp::PadTo { multiple }, at, "whole words of terms");
    }
    let at = tried.axis(k, kind)?;
    if !tried.add(OptOp::Tc { unit }, at, "products of words") {
        return None;
    }
    let features = tried.features()?;
    let plan = cpu::Plan::of(&features, tried.target);
    product::choose(&features, &plan, tried)
}
