//! How long a kernel takes, whatever Opts made it. Flows in: a kernel after its Opts, and a machine; flows
//! out: cycles, by the estimate that the heuristic chooses tiles with. Invariant: the kernel is read as it
//! is: its UPCAST and UNROLL axes are the tile, its other axes the loops in their order.

use super::cost::{self, Tile};
use super::features::{Features, Mask};
use crate::graph::bits;
use monoglot_uop::{AxisType, Target, UOp};

/// What is expected of a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// Cycles of a core, from the beginning to the end, with as many threads as the target has.
    pub cycles: f64,
    /// Those that its arithmetic alone takes at the machine's peak, or its memory's bytes alone, each moved
    /// once: whichever is more.
    pub least: f64,
}

impl Prediction {
    /// The share of the machine's limit that is reached.
    pub fn share(&self) -> f64 {
        (self.least / self.cycles).min(1.0)
    }
}

/// See the module; None for a kernel without loops.
pub fn predict(kernel: &UOp, target: &Target) -> Option<Prediction> {
    let features = Features::of(kernel)?;
    let axes = 0..features.extent.len();
    let of = |kinds: &[AxisType]| {
        let those = axes.clone().filter(|&k| kinds.contains(&features.kind(k)));
        those.fold(0, |m: Mask, k| m | 1 << k)
    };
    let copies = of(&[AxisType::Upcast, AxisType::Unroll]);
    let mut tile = Tile::single(&features);
    for k in bits(copies) {
        tile.factor[k] = features.extent[k];
    }
    // Lanes lie along the axis with which it costs least, as they do when vectors are chosen.
    let lanes = bits(copies).map(Some).chain([None]);
    let cycles = lanes.map(|lane| {
        tile.lane = lane;
        tile.whole(&features, target)
    });
    let alone = cycles.fold(f64::INFINITY, f64::min);
    let parts = features.count(of(&[AxisType::Thread]));
    let threads = target.threads as f64;
    let busy = parts / (parts / threads).ceil();
    Some(Prediction {
        cycles: alone / busy,
        least: cost::least(&features, target) / threads,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::opt::tests::support::{flat_matmul, kernels, target, transpose};
    use crate::opt::{apply, choose};

    #[test]
    fn what_is_chosen_is_expected_to_take_less() {
        let target = target(false);
        let all = [flat_matmul(256, 256, 64), transpose(1024, 1024)];
        for k in kernels().iter().chain(&all) {
            let chosen = apply(k, &choose(k, &target), &target).unwrap();
            let (Some(before), Some(after)) = (predict(k, &target), predict(&chosen, &target))
            else {
                continue;
            };
            assert!(after.cycles <= before.cycles * 1.05, "{before:?} {after:?}");
            assert!(after.share() <= 1.0);
        }
    }

    /// Expected cycles of a product with these Opts.
    fn cycles(opts: &[&str]) -> f64 {
        let target = target(false);
        let opts: Vec<_> = opts.iter().map(|o| o.parse().unwrap()).collect();
        let kernel = apply(&flat_matmul(256, 256, 64), &opts, &target).unwrap();
        predict(&kernel, &target).unwrap().cycles
    }

    /// What fills storage that varies with no loop around it stands beside the loops that read it.
    #[test]
    fn a_fill_of_all_is_done_once() {
        let tile = ["SPLIT(0,4,UPCAST)", "SPLIT(1,16,UPCAST)"];
        let staged = ["SPLIT(0,4,UPCAST)", "SPLIT(1,16,UPCAST)", "STAGE(0,1)"];
        let share = cycles(&staged) / cycles(&tile);
        assert!((0.5..2.0).contains(&share), "{share}");
    }

    #[test]
    fn the_tile_is_read_off_the_kernel() {
        let plain = cycles(&[]);
        let lanes = cycles(&["SPLIT(1,8,UPCAST)"]);
        let tile = cycles(&["SPLIT(0,4,UPCAST)", "SPLIT(1,16,UPCAST)"]);
        // Along rows the elements of a product are not side by side.
        let across = cycles(&["SPLIT(0,8,UPCAST)"]);
        assert!(tile < lanes / 2.0 && lanes < plain / 2.0 && across > lanes);
        // A loop cut in two is the same loop.
        let cut = cycles(&["SPLIT(0,8,LOOP)"]);
        assert!((cut / plain - 1.0).abs() < 0.2, "{cut} {plain}");
    }
}
