//! Products summed along what lies side by side in both factors, over several axes: gradients of a convolution's
//! weights. No axis of the results has vectors in memory, and results are fewer than terms, or no other way is cheaper.
//! Flows in: what a kernel does, as numbers, and the machine's; flows out: Opts, added to those chosen. Invariant: the
//! parts of a sum do not depend on the number of threads.
//!
//! One factor is staged, transposed: lanes are innermost in a panel of it. The other is read where it is, an
//! element for all lanes, so what it alone varies with (the taps of a window) repeats nothing but arithmetic.
//!
//! | loop | holds | of the |
//! | --- | --- | --- |
//! | blocks of results | the block's sums | second cache, half |
//! | parts of the sum, by the outer of its axes | what is read of the other factor | second cache, a quarter |
//! | vectors beside each other | a panel of the staged factor | first cache, three quarters |
//! | rows, and what else the other factor varies with | the tile's sums | registers |

use super::cpu::{self, Plan};
use super::product::factors::{FEW, LINE};
use super::product::nest::{sums_in_parts, unroll};
use super::tile::{BORDER, Terms, panel_of_part, register_tile, term_ahead};
use super::{Chosen, inner, keep};
use crate::graph::bits;
use crate::opt::features::{Access, Features, Reduction};
use crate::opt::staging;
use monoglot_uop::{AxisType, Op, OptOp, Target, UOp};
use std::ops::Range;

/// Fewest sums that an element of a panel is added to for which it is copied; as many as terms are too many to keep.
const AGAIN: f64 = 16.0;
/// Least share of the lanes that are no padding.
const USEFUL: f64 = 0.5;
/// Cycles of a vector's copy to a panel.
const COPY: f64 = 3.0;
/// Fewest terms of a part.
const TERMS: i64 = 32;
/// How many numbers of blocks are tried.
const TRIED: usize = 1 << 12;

/// A product as the loops see it.
struct Product<'a> {
    staged: &'a Access,
    read: &'a Access,
    /// Axes of the results with which both factors vary, and the other one alone, of which the longest is that of a
    /// tile's rows; the one with which the staged factor alone varies.
    around: Vec<usize>,
    above: Vec<usize>,
    row: usize,
    lane: usize,
    /// Rows and columns of a tile, and elements of a vector.
    tile: [i64; 2],
    lanes: i64,
    sum: &'a Reduction,
}

/// Where a sum is cut: its axes before this one are parts, and of this one so many.
struct Cut {
    at: usize,
    parts: i64,
    /// Terms of a part.
    terms: i64,
}

/// Blocks of results: so many, of so many turns of an axis.
struct Block {
    axis: usize,
    of: i64,
    count: i64,
}

/// Choose the loops of such a product, which threads share as this plan's; None, with nothing chosen, where it is none.
pub(super) fn choose(features: &Features, plan: &Plan, chosen: &mut Chosen) -> Option<()> {
    long(features, chosen.target)?.choose(features, plan.shared(), chosen)
}

/// Such a product of which the first cache does not hold a panel of all terms.
fn long<'a>(features: &'a Features, target: &Target) -> Option<Product<'a>> {
    let product = Product::of(features, AGAIN..terms(features), target)?;
    (terms(features) > product.most(target) as f64).then_some(product)
}

/// The same of however many results, where their sums take fewer cycles than a plan's: the gradients of the weights of
/// many channels of small images, and of one.
pub(super) fn instead(features: &Features, plan: &Plan, chosen: &mut Chosen) -> Option<()> {
    let product = Product::of(features, 1.0..f64::INFINITY, chosen.target)?;
    let cycles = product.duration(features, chosen.target)?;
    let fewer = cycles < plan.cycles();
    fewer.then(|| product.choose(features, plan.shared(), chosen))?
}

/// Terms of all sums.
fn terms(features: &Features) -> f64 {
    let mut sums = features.reductions.iter();
    sums.next().map_or(0.0, |sum| features.count(sum.closes))
}

/// Cycles of such a product; without end where it is none.
pub(super) fn cycles(features: &Features, target: &Target) -> f64 {
    let cycles = long(features, target).and_then(|p| p.duration(features, target));
    cycles.unwrap_or(f64::INFINITY)
}

impl<'a> Product<'a> {
    /// Such a product of so many results for each element that is staged.
    fn of(features: &'a Features, results: Range<f64>, target: &Target) -> Option<Product<'a>> {
        let [sum] = &features.reductions[..] else {
            return None;
        };
        let all = sum.open | sum.closes;
        let last = bits(sum.closes).skip(1).last()?;
        let reads = features.accesses.iter().filter(|a| !a.store);
        let factors: Vec<&Access> = reads.filter(|a| a.varies & sum.closes != 0).collect();
        let [a, b] = factors[..] else { return None };
        let every = (a.varies | b.varies) & all == all && features.outer & !sum.open == 0;
        let known = features.fills.is_empty() && all & !features.known == 0;
        let lanes = (target.vector_bytes / sum.bytes.max(1)).max(1) as i64;
        let near = |f: &&Access| {
            let step = f.stride[last].unsigned_abs().saturating_mul(f.bytes as u64);
            let vectors = |k: usize| f.stride[k] == 1 && features.extent[k] >= lanes;
            (1..LINE).contains(&step) && !bits(sum.open).any(vectors)
        };
        if !sum.products || !every || !known || lanes < 2 || ![a, b].iter().all(near) {
            return None;
        }
        let of = |staged: &'a Access, read: &'a Access| {
            let [with, without] = [staged.varies, read.varies].map(|m| m & sum.open);
            let mut beside = bits(with & !without);
            let lane = beside.next().filter(|_| beside.next().is_none())?;
            let row = bits(without & !with).max_by_key(|&k| features.extent[k])?;
            let extents = [features.extent[row], features.extent[lane]];
            let divides = |rows: i64| extents[0] % rows == 0;
            let terms = Terms {
                bytes: sum.bytes as i64,
                inner: 1,
                all: features.count(sum.closes) as i64,
                words: sum.packed > 1,
                whole: [1, 1],
                along: false,
            };
            let mut tile = register_tile(extents, terms, lanes, target, divides);
            let [above, around] = [without & !with & !(1 << row), with & without];
            let apart = features.count(above) > 1.0 && features.count(around) == 1.0;
            if apart && tile[0] == extents[0] && tile[1] >= extents[1] {
                // Blocks are of lanes, then: those of anything else copy the same panels.
                let vectors = tile[1] / lanes;
                let part = (1..vectors).rev().find(|part| vectors % part == 0);
                tile[1] = part.unwrap_or(vectors) * lanes;
            }
            let useful = extents[1] as f64 / padded(extents[1], tile[1]) as f64;
            let again = features.count(without & !with);
            let often = results.contains(&again);
            let worth = read.gate == 0 && tile[0] > 1 && useful >= USEFUL && often;
            worth.then(|| Product {
                staged,
                read,
                around: bits(around).collect(),
                above: bits(above).collect(),
                row,
                lane,
                tile,
                lanes,
                sum,
            })
        };
        let both = [of(a, b), of(b, a)].into_iter().flatten();
        both.min_by(|x, y| {
            let [x, y] = [x, y].map(|a| a.cycles(features, target));
            x.total_cmp(&y)
        })
    }

    fn choose(&self, features: &Features, shared: Option<f64>, chosen: &mut Chosen) -> Option<()> {
        let cut = self.cut(features, chosen.target)?;
        let block = self.block(features, &cut, shared.is_some(), chosen.target)?;
        let mut tried = chosen.fork();
        self.arrange(features, &cut, &block, shared, &mut tried)?;
        *chosen = tried;
        Some(())
    }

    /// Cycles, each part of its sum begun and ended.
    fn duration(&self, features: &Features, target: &Target) -> Option<f64> {
        let cut = self.cut(features, target)?;
        Some(self.cycles(features, target) * (1.0 + BORDER / cut.terms as f64))
    }

    /// Cycles of the terms of all tiles, and of copies.
    fn cycles(&self, features: &Features, target: &Target) -> f64 {
        let all = self.sum.open | self.sum.closes;
        let [rows, columns] = self.tile;
        let n = features.extent[self.lane];
        let added = features.count(all) * padded(n, columns) as f64 / n as f64;
        let tiles = added / (rows * columns) as f64;
        let copied = features.count(self.staged.varies & all) / self.lanes as f64;
        tiles * term_ahead(rows, columns / self.lanes, target) + COPY * copied
    }

    /// Terms of which the first cache holds a panel.
    fn most(&self, target: &Target) -> i64 {
        panel_of_part(target) / (self.tile[1] * self.sum.bytes as i64)
    }

    /// The longest parts of which the first cache holds a panel, two at least; None where these are short.
    fn cut(&self, features: &Features, target: &Target) -> Option<Cut> {
        let most = self.most(target);
        let axes: Vec<usize> = bits(self.sum.closes).collect();
        let mut terms = 1;
        for (at, n) in axes.iter().map(|&k| features.extent[k]).enumerate().rev() {
            if terms * n > most {
                let fits = |d: &i64| n % d == 0 && terms * d <= most;
                let of = (1..=most).rev().find(fits)?;
                let parts = n / of;
                let terms = terms * of;
                return (terms >= TERMS).then_some(Cut { at, parts, terms });
            }
            terms *= n;
        }
        // All fit one: as few parts as there may be.
        let n = features.extent[*axes.first()?];
        let parts = (2..=n).find(|p| n % p == 0)?;
        let terms = terms / parts;
        let cut = Cut {
            at: 0,
            parts,
            terms,
        };
        (terms >= TERMS).then_some(cut)
    }

    /// The blocks that make least be read again: of rows or lanes, or one for each turn of what is above besides.
    fn block(
        &self,
        features: &Features,
        cut: &Cut,
        shared: bool,
        target: &Target,
    ) -> Option<Block> {
        let alone = self.around.iter().all(|&k| features.extent[k] == 1);
        let threads = target.threads as i64;
        let divides = |k: &usize| features.extent[*k] % threads == 0;
        let even = self.around.iter().any(divides);
        let threads = if shared && !even { threads } else { 1 };
        let fewest = if alone { 2 } else { 1 };
        let second = (target.caches[1] as i64).min(target.local_bytes as i64);
        let inside = self.inside();
        let sums = inside.iter().map(|&k| features.extent[k]);
        let sums = sums.fold(self.sum.bytes as i64, i64::saturating_mul);
        let of = |axis: usize, tile: i64, again: &Access| {
            let all = padded(features.extent[axis], tile);
            let read = match axis == self.row {
                true => second / 4 / (cut.terms * self.read.bytes as i64),
                false => all,
            };
            let most = (second / 2 * all / sums).min(read).max(tile);
            let fits = |count: &i64| all / tile % count == 0 && all / count <= most;
            let counts = (fewest..=all / tile).take(TRIED).filter(fits);
            let count = counts.min_by_key(|count| (count % threads != 0, *count))?;
            let of = all / count;
            Some((Block { axis, of, count }, count * again.size))
        };
        let [rows, columns] = self.tile;
        let tiles = [
            of(self.row, rows, self.staged),
            of(self.lane, columns, self.read),
        ];
        let turns = self.above.iter().map(|&k| of(k, 1, self.staged));
        let all = tiles.into_iter().chain(turns).flatten();
        Some(
            all.min_by_key(|(b, read)| (b.count % threads != 0, *read))?
                .0,
        )
    }

    /// The axes of a block, lanes innermost.
    fn inside(&self) -> Vec<usize> {
        [&self.above[..], &[self.row, self.lane]].concat()
    }

    /// Cut the loops and put them in order.
    fn arrange(
        &self,
        features: &Features,
        cut: &Cut,
        block: &Block,
        shared: Option<f64>,
        chosen: &mut Chosen,
    ) -> Option<()> {
        let [rows, columns] = self.tile;
        if features.extent[self.lane] % columns != 0 {
            let at = chosen.axis(self.lane, AxisType::Loop)?;
            let multiple = columns;
            chosen.add(OptOp::PadTo { multiple }, at, "whole vectors");
        }
        let mut around = self.around.clone();
        let mut inside = self.inside();
        if block.count > 1 {
            let at = chosen.axis(block.axis, AxisType::Loop)?;
            match block.of {
                1 => inside.retain(|k| *k != block.axis),
                n => _ = chosen.add(inner(n, AxisType::Loop), at, "blocks of results"),
            }
            around.push(block.axis);
        }
        let order = [&around[..], &inside].concat();
        in_order(0, &order, "lanes innermost, blocks outermost", chosen);
        if let Some(cycles) = shared {
            cpu::threads(&around, cycles, chosen);
        }
        let loops = inside.len();
        let outside = chosen.last_loop()? + 1 - loops;
        let fill = sums_in_parts(outside, loops, cut.at, cut.parts, chosen)?;
        // Behind the loops of the tiles stand those that set the sums.
        let set = fill + 2 * loops - 1;
        let order: Vec<usize> = (fill..fill + loops).rev().collect();
        in_order(fill, &order, "rows read the same panel", chosen);
        let vectors = inner(columns, AxisType::Upcast);
        chosen.add(vectors, set, "vectors of sums");
        chosen.add(inner(rows, AxisType::Upcast), fill + 1, "rows of a tile");
        let whole = chosen.nest.axes[fill].extent() == Some(columns);
        chosen.add(vectors, fill, "columns of a tile");
        self.panel(if whole { fill - 1 } else { fill }, chosen);
        unroll(chosen);
        Some(())
    }

    /// Stage the panel of a part inside the loop at this place, transposed where its terms lie side by side.
    fn panel(&self, at: usize, chosen: &mut Chosen) -> Option<()> {
        let nodes = chosen.nest.kernel().toposort();
        let axes = crate::opt::ranges(&nodes);
        // The lanes of the tile were put there last.
        let lanes = axes
            .iter()
            .rposition(|r| crate::loops::kind(r) == AxisType::Upcast)?;
        let reads = |u: &UOp| u.op() != Op::Reduce && u.ranges().contains(&axes[lanes]);
        let operand = staging::operands(&nodes).iter().position(reads)?;
        chosen.add(keep(operand), at, "a panel with lanes innermost");
        let term = chosen.last_loop()? - 1;
        let side_by_side = self.staged.stride[bits(self.sum.closes).last()?] == 1;
        let turned = 1i64 << chosen.nest.axes[term].extent()?.trailing_zeros();
        if side_by_side && turned > 1 {
            let rows = inner(turned.min(FEW), AxisType::Upcast);
            chosen.add(rows, term, "read along the terms, and transposed");
        }
        let last = chosen.last_loop()?;
        chosen.add(inner(0, AxisType::Upcast), last, "vectors of a panel");
        Some(())
    }
}

/// An extent in whole tiles.
fn padded(extent: i64, tile: i64) -> i64 {
    (extent + tile - 1) / tile * tile
}

/// Exchange loops from a place on until what is left of these axes stands in this order.
pub(super) fn in_order(from: usize, order: &[usize], why: &'static str, chosen: &mut Chosen) {
    for (with, &k) in (from..).zip(order) {
        let rest = chosen.nest.axes.iter().skip(with);
        let at = rest
            .take_while(|a| a.kind() == AxisType::Loop)
            .position(|a| a.of == k);
        if let Some(at) = at.filter(|at| *at > 0) {
            chosen.add(OptOp::Swap { with }, with + at, why);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::opt::heuristic::choose;
    use crate::opt::tests::support::{check_on, conv_weights, flat_matmul, lowers, target};
    use monoglot_uop::Opt;

    fn small(threads: usize) -> Target {
        Target {
            caches: [11 << 10, 64 << 10, 1 << 20],
            threads,
            ..target(false)
        }
    }

    fn count(opts: &[Opt], is: impl Fn(&OptOp) -> bool) -> usize {
        opts.iter().filter(|o| is(&o.op)).count()
    }

    /// The sums are kept and done in parts, images around the rows of each; one factor is staged.
    #[test]
    fn gradients_of_weights_are_done_in_parts() {
        // Whole vectors and not, rows that divide and not, windows without channels, images of odd sizes.
        let sizes = [
            (3, 8, 16, 12, 3),
            (2, 5, 16, 12, 2),
            (4, 4, 13, 10, 3),
            (5, 1, 32, 12, 5),
            (9, 4, 16, 8, 3),
        ];
        for (n, c, o, h, k) in sizes {
            let kernel = conv_weights(n, c, o, h, k);
            let chosen = |threads: usize| {
                let opts = choose(&kernel, &small(threads));
                lowers(&check_on(&kernel, &opts, &small(threads)), false);
                opts
            };
            let [alone, two] = [chosen(1), chosen(2)];
            for opts in [&alone, &two] {
                let stages = count(opts, |o| matches!(o, OptOp::Stage { .. }));
                assert_eq!(stages, 2, "{n} {c} {o} {h} {k}: {opts:?}");
            }
            let parts = |opts: &[Opt]| -> Vec<Opt> {
                let of_sums = |o: &&Opt| match o.op {
                    OptOp::Split { target, .. } => target.is_reduce(),
                    _ => false,
                };
                opts.iter().filter(of_sums).copied().collect()
            };
            let factors =
                |opts: &[Opt]| -> Vec<OptOp> { parts(opts).iter().map(|o| o.op).collect() };
            assert_eq!(factors(&alone), factors(&two));
        }
    }

    /// The gradients of the weights of many channels of small images, of more results than terms, and of one channel, of
    /// fewer than an element is copied for: no plan does better.
    #[test]
    fn results_may_be_many_and_few() {
        let many = [(8, 24, 32, 6, 3), (4, 32, 16, 8, 3), (8, 40, 32, 6, 3)];
        let few = [(8, 1, 32, 9, 3), (24, 1, 64, 9, 3)];
        for (n, c, o, h, k) in many.into_iter().chain(few) {
            let kernel = conv_weights(n, c, o, h, k);
            let features = Features::of(&kernel).expect("a kernel with loops");
            assert!(Product::of(&features, AGAIN..terms(&features), &small(2)).is_none());
            for threads in [1, 2] {
                let opts = choose(&kernel, &small(threads));
                lowers(&check_on(&kernel, &opts, &small(threads)), false);
                let stages = count(&opts, |o| matches!(o, OptOp::Stage { .. }));
                assert_eq!(stages, 2, "{n} {c} {o} {h} {k}: {opts:?}");
            }
        }
    }

    /// Of one tile of rows and lanes blocks are of parts of the lanes, none of which is padding, and no panel is made twice.
    #[test]
    fn one_tile_is_parted_by_its_lanes() {
        let wide = Target {
            vector_bytes: 64,
            registers: 32,
            ..small(2)
        };
        let kernel = conv_weights(4, 1, 32, 12, 5);
        let features = Features::of(&kernel).expect("a kernel with loops");
        let product = Product::of(&features, AGAIN..terms(&features), &wide).expect("a product");
        assert_eq!(product.tile, [5, 16]);
        let cut = product.cut(&features, &wide).expect("parts");
        let block = product.block(&features, &cut, true, &wide).expect("blocks");
        assert_eq!([block.axis as i64, block.count], [product.lane as i64, 2]);
        let opts = choose(&kernel, &wide);
        lowers(&check_on(&kernel, &opts, &wide), false);
    }

    /// What has vectors in memory along an axis of the results is no such product, nor is a sum over one axis.
    #[test]
    fn other_products_are_left_alone() {
        let features = |k: &UOp| Features::of(k).expect("a kernel with loops");
        let of = |k: &UOp| {
            let features = features(k);
            Product::of(&features, AGAIN..terms(&features), &small(1)).is_some()
        };
        assert!(of(&conv_weights(3, 8, 16, 12, 3)));
        assert!(!of(&flat_matmul(64, 64, 4096)));
        assert!(!of(&crate::opt::tests::support::conv(2, 3, 16, 20, 3)));
    }
}
