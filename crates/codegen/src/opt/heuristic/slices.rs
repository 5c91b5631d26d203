//! Kernels that go through a slice several times: reductions that all the elements of a slice share, each in
//! loops of its own, then loops over the elements. Flows in: what a kernel does, as numbers; flows out:
//! the tile for it. Invariant: the loops over slices stay outermost, and only they are shared by threads, so
//! what a slice shares is computed once.
//!
//! Vectors lie along an axis of slices, where slices that lie side by side are folded together, or within
//! each slice, where each of these loops has lanes of its own.

use super::Chosen;
use super::cpu::{arrange, climb, lane_factors};
use crate::graph::bits;
use crate::opt::cost::Tile;
use crate::opt::features::{Features, Mask};
use monoglot_uop::Target;

pub(super) struct Slices {
    /// The axes that tell slices apart.
    apart: Mask,
    /// The axes of each run through a slice.
    runs: Vec<Mask>,
}

impl Slices {
    /// None where all is done in one run, or reductions are over different slices.
    pub(super) fn of(features: &Features) -> Option<Slices> {
        let closed = features.reductions.iter().fold(0, |m, r| m | r.closes);
        let (outermost, nested): (Vec<_>, Vec<_>) =
            (features.reductions.iter()).partition(|r| r.open & closed == 0);
        let apart = outermost.first()?.open;
        if outermost.iter().any(|r| r.open != apart) {
            return None;
        }
        let elements = features.outer & !apart;
        if elements != 0 && elements.trailing_zeros() < Mask::BITS - apart.leading_zeros() {
            return None;
        }
        let mut runs: Vec<Mask> = Vec::new();
        let ends = [elements].into_iter().filter(|m| *m != 0);
        for axes in outermost.iter().map(|r| r.closes).chain(ends) {
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
        let tile = self.tile(features, chosen.target);
        let left = |k: &usize| features.extent[*k] > tile.factor[*k];
        let loops: Vec<usize> = bits(self.apart & features.outer).filter(left).collect();
        arrange(features, &tile, &loops, chosen);
    }

    /// The tile of least cost. It is that of one thread: slices are many.
    fn tile(&self, features: &Features, target: &Target) -> Tile {
        let (across, more) = self.across(features, target);
        let (within, cycles) = self.within(features, target);
        if cycles < more { within } else { across }
    }

    /// Vectors along an axis of slices.
    fn across(&self, features: &Features, target: &Target) -> (Tile, f64) {
        let estimate = |t: &Tile| t.cycles(features, target);
        let climb = |tile: Tile| climb(features, features.known, tile, &estimate);
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

    /// Vectors along an axis of each run.
    fn within(&self, features: &Features, target: &Target) -> (Tile, f64) {
        let mut tile = Tile::single(features);
        for &run in &self.runs {
            let estimate = |t: &Tile| t.cycles_within(run, features, target);
            let free = run & features.known;
            let mut best = climb(features, free, tile.clone(), &estimate);
            for k in bits(free) {
                for f in lane_factors(features, k, target) {
                    let mut next = tile.clone();
                    next.factor[k] = f;
                    next.beside |= 1 << k;
                    let next = climb(features, free, next, &estimate);
                    if next.1 < best.1 {
                        best = next;
                    }
                }
            }
            tile = best.0;
        }
        // Slices side by side would have more code and no more to do at a time: they wait for nothing of each
        // other.
        let cycles = tile.cycles(features, target).unwrap_or(f64::INFINITY);
        (tile, cycles)
    }
}
