//! Kernels that go through a slice several times: reductions that all the elements of a slice share, each in
//! loops of its own, then loops over the elements. Flows in: what a kernel does, as numbers; flows out:
//! the tile for it. Invariant: the loops over slices stay outermost, and only they are shared by threads, so
//! what a slice shares is computed once.
//!
//! Vectors lie along an axis of slices, where slices that lie side by side are folded together, or within
//! each slice, where each of these loops has lanes of its own.

use super::Chosen;
use super::cpu::{Estimates, GAIN, SLIGHT, arrange, climb, lane_factors};
use crate::graph::bits;
use crate::opt::cost::Tile;
use crate::opt::features::{Access, Features, Mask};
use monoglot_uop::{AxisType, Target};
use std::cell::LazyCell;

/// How many times as many cycles less is less by any estimate.
const CLEAR: f64 = 0.9;

pub(super) struct Slices {
    /// The axes that tell slices apart.
    pub(super) apart: Mask,
    /// The axes of each run through a slice.
    pub(super) runs: Vec<Mask>,
}

impl Slices {
    /// None where all is done in one run, or reductions are over different slices.
    pub(super) fn of(features: &Features) -> Option<Slices> {
        let filled = features.filled();
        let closed = features.closed();
        let slice = features.slices();
        // What stands inside of a loop through a slice: reductions, what fills storage, and then the elements.
        let inside = match slice {
            Some(apart) => (closed | filled | features.outer) & !apart,
            None => closed,
        };
        let (outermost, nested): (Vec<_>, Vec<_>) =
            (features.reductions.iter()).partition(|r| r.open & inside == 0);
        let apart = slice.or(outermost.first().map(|r| r.open))?;
        let loops = features.of_kind(AxisType::Loop);
        let mut opens = outermost.iter().map(|r| r.open);
        // What is kept for several slices is filled before these.
        let mut fills = features.fills.iter().map(|f| f.open & !apart);
        if opens.any(|open| (open ^ apart) & loops != 0) || fills.any(|open| open & loops != 0) {
            return None;
        }
        let elements = features.outer & !apart & !filled;
        let before = elements.trailing_zeros() < Mask::BITS - (apart & loops).leading_zeros();
        if elements != 0 && before {
            return None;
        }
        let mut runs: Vec<Mask> = Vec::new();
        let ends = [elements].into_iter().filter(|m| *m != 0);
        let fills = features.fills.iter().map(|f| f.closes);
        let folds = outermost.iter().map(|r| r.closes);
        for axes in fills.chain(folds).chain(ends) {
            let meets = |run: &&mut Mask| **run & axes != 0;
            match runs.iter_mut().find(meets) {
                Some(run) => *run |= axes,
                None => runs.push(axes),
            }
        }
        for r in nested {
            for run in runs.iter_mut().filter(|run| **run & r.open != 0) {
                *run |= r.closes;
            }
        }
        (runs.len() > 1).then_some(Slices { apart, runs })
    }

    pub(super) fn choose(&self, features: &Features, chosen: &mut Chosen) {
        let target = chosen.target;
        let across = LazyCell::new(|| self.across(features, target));
        let within = self.by_run(features, Tile::single(features), target);
        // Where nothing is kept of a slice, what is staged for it is so for lanes alone.
        let most = match features.fills.is_empty() {
            true => within.1.min(across.1) * CLEAR,
            false => within.1,
        };
        if self.beside(features, most, chosen).is_some() {
            return;
        }
        // The tile is that of one thread: slices are many.
        let within_slices = within.1 < across.1;
        let tile = if within_slices { &within.0 } else { &across.0 };
        let left = |k: &usize| features.extent[*k] > tile.factor[*k];
        let loops: Vec<usize> = bits(self.apart & features.outer).filter(left).collect();
        arrange(features, tile, &loops, chosen);
    }

    /// Vectors along an axis of slices.
    fn across(&self, features: &Features, target: &Target) -> (Tile, f64) {
        let estimates = Estimates::new(features, target);
        let estimate = |t: &Tile| estimates.shared_by(1, t);
        let climb = |tile: Tile| climb(features, features.known, tile, target, &estimate);
        let mut best = climb(Tile::single(features));
        for k in bits(self.apart & features.known) {
            for f in lane_factors(features, k, target) {
                let mut tile = Tile::single(features);
                tile.factor[k] = f;
                tile.lane = Some(k);
                let next = climb(tile);
                if next.1 < best.1 {
                    best = next;
                }
            }
        }
        best
    }

    /// The tile with each run's own factors, and lanes where it has none yet.
    pub(super) fn by_run(
        &self,
        features: &Features,
        mut tile: Tile,
        target: &Target,
    ) -> (Tile, f64) {
        let lane = tile.lane;
        for &run in &self.runs {
            let with_lane = |a: &Access| {
                let lane = lane.filter(|l| a.varies >> l & 1 == 1);
                a.varies & run != 0 && lane.is_some()
            };
            let has_lanes = features.accesses.iter().any(with_lane);
            let estimates = Estimates::within(run, features, target);
            let estimate = |t: &Tile| estimates.shared_by(1, t);
            let free = run & features.known;
            let mut best = climb(features, free, tile.clone(), target, &estimate);
            for k in bits(free).filter(|_| !has_lanes) {
                for f in lane_factors(features, k, target) {
                    let mut next = tile.clone();
                    next.factor[k] = f;
                    next.beside |= 1 << k;
                    let next = climb(features, free, next, target, &estimate);
                    if next.1 < best.1 * GAIN {
                        best = next;
                    }
                }
            }
            tile = best.0;
        }
        // Slices side by side would have more code and no more to do at a time: they wait for nothing of each
        // other.
        let cycles = tile.cycles(features, target).unwrap_or(f64::INFINITY);
        let even = self.even(features, tile.clone());
        match even.cycles(features, target) {
            Some(c) if c <= cycles * SLIGHT => (even, c),
            _ => (tile, cycles),
        }
    }

    /// The tile whose runs through a slice of which something is kept do as many elements in a turn: each turn of the run
    /// that keeps them may then be one of the next run, and of what is written.
    fn even(&self, features: &Features, mut tile: Tile) -> Tile {
        if features.fills.is_empty() {
            return tile;
        }
        let lanes = || bits(tile.beside & !self.apart);
        let Some(most) = lanes().max_by_key(|&k| tile.factor[k]) else {
            return tile;
        };
        let as_long = |k: &usize| features.extent[*k] == features.extent[most];
        for k in lanes().filter(as_long).collect::<Vec<_>>() {
            tile.factor[k] = tile.factor[most];
        }
        tile
    }
}
