//! Products with vectors across the axis that they are stored along: an image's row of a few pixels leaves parts of
//! vectors empty, where the channels of a pixel fill them. Flows in: what a kernel does, as numbers, and the machine's;
//! flows out: Opts, added to those chosen. Invariant: no sum is done in parts.
//!
//! The factor that varies with the lanes (a convolution's weights) is staged once, in the order in which the tiles read
//! it, or, where the second cache does not hold it, a block of lanes at a time; elements of the other one are read where
//! they are, each for all lanes. A tile ends by turning its sums, which are then stored as they lie: that costs a few
//! instructions for as many vectors as terms were added to each. Of rows and lanes that no tile divides the last one begins
//! in the one before it (COVER), where turns may be done twice. Staged is inside of a loop: that over threads' parts, or
//! over blocks of lanes, of which there are two at least where no other loop has equal parts.

use super::along::{self, in_order};
use super::cpu::{self, Plan};
use super::product;
use super::product::factors::{FEW, LINE, factor};
use super::product::nest::unroll;
use super::tile::{parts, whole_tile};
use super::{Chosen, Weighed, covered, inner, keep, outermost};
use crate::graph::bits;
use crate::opt::cost::{BANDWIDTH, PAGE};
use crate::opt::features::{Access, Features, Mask};
use crate::opt::nest::LoopNest;
use crate::opt::staging;
use monoglot_uop::{AxisType, Op, OptOp, Target, UOp};

/// Fewest elements that are neighbours once sums, or weights, are turned.
const NEAR: i64 = 4;
/// Fewest terms of a sum that is turned.
const TERMS: f64 = 64.0;
/// How many times the cycles of blocks there may be: what these read is put together first.
const NEARLY: f64 = 0.95;
/// Cycles of a vector that is turned: of the sums, and of what is read beside them.
const TURNED: f64 = 1.0;
/// Cycles of an element that is copied by itself, and of a vector that is copied, or transposed with its neighbours.
const ALONE: f64 = 0.5;
const COPY: f64 = 1.0;
/// How many pages a core has at hand, and cycles to find one more.
const PAGES: f64 = 64.0;
const WALKED: f64 = 7.0;

/// Such a product.
struct Product {
    /// The axis that results are stored along, and that of the lanes.
    row: usize,
    lane: usize,
    /// Turns of both that are a tile.
    tile: [i64; 2],
    /// Elements of a vector.
    lanes: i64,
    /// Lanes whose factor is staged at a time.
    block: i64,
    /// Terms of it that are read at once, where they are neighbours, and transposed.
    turned: i64,
    /// Axes around both, and whether the sum goes over several.
    others: Vec<usize>,
    windows: bool,
    /// Cycles of all tiles, and of what is staged.
    cycles: f64,
}

/// Choose the loops; None, with nothing chosen, where vectors along the results, or blocks, cost no more.
pub(super) fn choose(features: &Features, plan: &Plan, chosen: &mut Chosen) -> Option<()> {
    let product = Product::of(features, &chosen.nest, chosen.target)?;
    let terms = along::cycles(features, chosen.target);
    if product.cycles > terms {
        return None;
    }
    // Blocks of a row of an image, around which its windows are summed, are short.
    let short = !product.others.is_empty() && product.windows;
    let blocked = match short {
        true => f64::INFINITY,
        false => product::cycles(features, chosen.target),
    };
    if product.cycles > NEARLY * blocked {
        return None;
    }
    let results = plan.cycles();
    if product.cycles > results {
        return None;
    }
    let mut fork = chosen.fork();
    product.arrange(features, plan.shared(), &mut fork)?;
    let others = [
        ("lanes along the results", results),
        ("along the terms", terms),
        ("in blocks", blocked),
    ];
    let others = others.map(|(name, cycles)| (name.to_string(), cycles));
    if let Some(choice) = fork.list.iter_mut().rev().find(|_| chosen.explained) {
        choice.weighed = Some(Weighed::new(product.cycles, "cycles", others.to_vec()));
    }
    *chosen = fork;
    Some(())
}

impl Product {
    fn of(features: &Features, nest: &LoopNest, target: &Target) -> Option<Product> {
        let [sum] = &features.reductions[..] else {
            return None;
        };
        let known = (sum.closes | sum.open) & !features.known == 0;
        if !sum.products || !known || sum.packed > 1 || !features.fills.is_empty() {
            return None;
        }
        let along = |k: &usize| {
            let mut stores = features.accesses.iter().filter(|a| a.store);
            stores.all(|a| a.stride[*k] == 1)
        };
        let row = bits(sum.open).find(along)?;
        let last = bits(sum.closes).last()?;
        let is_plain = |a: &Access| a.gate == 0;
        let lanes = (target.vector_bytes / sum.bytes.max(1)).max(1) as i64;
        let terms = features.count(sum.closes);
        let again = nest.repeats();
        let second = target.caches[1] as i64;
        let of = |lane: usize| {
            let rows = factor(features, sum, row, lane).filter(|a| is_plain(a))?;
            let weights = factor(features, sum, lane, row).filter(|a| is_plain(a))?;
            let all_share = weights.varies & sum.open == 1 << lane;
            let [wide, next] = [row, last].map(|k| {
                let step = rows.stride[k].unsigned_abs();
                step.saturating_mul(rows.bytes as u64)
            });
            let near = wide <= LINE;
            let same = weights.bytes == sum.bytes && rows.bytes == sum.bytes;
            // Lines of which each tile reads a part come again and again: from a cache.
            let image = features.count(rows.varies & (sum.closes | 1 << row));
            let far = image * rows.bytes as f64 > target.caches[2] as f64;
            if !all_share || !near || !same || terms < TERMS || far {
                return None;
            }
            let [length, width] = [row, lane].map(|k| features.extent[k]);
            let others: Mask = sum.open & !(1 << row) & !(1 << lane);
            let divides = |by: i64| bits(others).any(|k| features.extent[k] % by == 0);
            // Half of the second cache holds all weights, or three quarters those of a block: rows pass by. Where no other
            // loop has halves, blocks of lanes are those.
            let most = match weights.size <= second / 2 {
                true if divides(2) => width,
                true => width / 2,
                false => second / 4 * 3 / (terms as i64 * weights.bytes as i64),
            };
            // Terms that are no neighbours lie in lines of their own.
            let lines = |n: i64| match next >= LINE {
                true => LINE as f64 + n as f64 * wide as f64,
                false => 0.0,
            };
            let all = terms * next as f64 / PAGE;
            let walked = match all > PAGES {
                true => WALKED * (next as f64 / PAGE).min(1.0),
                false => 0.0,
            };
            let tile = |rows: i64| {
                let limits = [rows, most];
                let late = (lines, walked);
                whole_tile([length, width], terms, lanes, limits, again, late, target)
            };
            // Which products of a whole row are with padding is known.
            let known = sum.padded >> row & 1 == 1;
            let whole = known.then(|| tile(length)).flatten();
            let (cycles, tile) = whole.or_else(|| tile(NEAR))?;
            let fits = |n: &i64| *n <= most.max(tile[1]) && (again || width % n == 0);
            let blocks = (1..=parts(width, tile[1])).map(|n| (n * tile[1]).min(width));
            let threads = target.threads as i64;
            let shared = divides(threads);
            let least = |n: &i64| {
                let count = parts(width, *n);
                (!shared && count % threads != 0, count * n, -n)
            };
            let block = blocks.filter(fits).min_by_key(least)?;
            // Terms that follow each other are copied as those of one axis.
            let closes: Vec<usize> = bits(sum.closes).collect();
            let mut together = 1i64;
            for &k in closes.iter().rev() {
                if weights.stride[k] != together {
                    break;
                }
                together *= features.extent[k];
            }
            let even = 1 << together.trailing_zeros().min(FEW.ilog2());
            let turned = if even >= NEAR { even } else { 1 };
            let vectors = turned > 1 || weights.stride[lane] == 1;
            let each = if vectors { COPY / lanes as f64 } else { ALONE };
            // They are fetched before they are copied.
            let each = match weights.size > second {
                true => each + weights.bytes as f64 / BANDWIDTH,
                false => each,
            };
            let copied = each * features.count(weights.varies);
            let both = |a: &&Access| a.varies >> row & a.varies >> lane & 1 == 1;
            let sums = features.count(sum.open) / lanes as f64;
            let turning = TURNED * sums * features.accesses.iter().filter(both).count() as f64;
            Some(Product {
                row,
                lane,
                tile,
                lanes,
                block,
                turned,
                others: bits(others).filter(|&k| features.extent[k] > 1).collect(),
                windows: sum.closes.count_ones() > 1,
                cycles: cycles * features.count(others) * terms + copied + turning,
            })
        };
        let lanes = bits(sum.open & !(1 << row)).filter_map(of);
        lanes.min_by(|a, b| a.cycles.total_cmp(&b.cycles))
    }

    fn arrange(&self, features: &Features, shared: Option<f64>, chosen: &mut Chosen) -> Option<()> {
        let [rows, columns] = self.tile;
        let mut around = self.others.clone();
        if self.block < features.extent[self.lane] {
            let at = chosen.axis(self.lane, AxisType::Loop)?;
            let lanes = covered(features.extent[self.lane], self.block, AxisType::Loop);
            chosen.add(lanes, at, "blocks of lanes").then_some(())?;
            around.insert(0, self.lane);
        }
        let order = [&around[..], &[self.lane, self.row]].concat();
        in_order(0, &order, "the results' axis innermost", chosen);
        if let Some(cycles) = shared {
            cpu::even_threads(&around, None, cycles, chosen);
        }
        // What all tiles read is staged inside of the loop over blocks, or the outermost: one of two turns, where threads
        // have none.
        let mut axes = chosen.nest.axes.iter();
        let threads = axes.position(|a| a.kind() == AxisType::Thread);
        let blocks = chosen.axis(self.lane, AxisType::Loop);
        let blocks = blocks.filter(|at| chosen.innermost(self.lane) != Some(*at));
        let around = match blocks.or(threads) {
            Some(at) => at,
            None => {
                let even = |k: &&usize| features.extent[**k] % 2 == 0;
                let of = *self.others.iter().find(even)?;
                let at = chosen.axis(of, AxisType::Loop)?;
                let first = of == self.others[0];
                let halves = chosen.add(outermost(2, AxisType::Loop), at, "halves");
                (halves && first).then_some(at)?
            }
        };
        for (k, n, why) in [
            (self.row, rows, "registers reuse what lanes share"),
            (self.lane, columns, "vectors across the results"),
        ] {
            let at = chosen.innermost(k)?;
            let extent = chosen.nest.axes[at].extent()?;
            let tile = covered(extent, n, AxisType::Upcast);
            chosen.add(tile, at, why).then_some(())?;
        }
        let nodes = chosen.nest.kernel().toposort();
        let axes = crate::opt::ranges(&nodes);
        let lanes = axes
            .iter()
            .rposition(|r| crate::loops::kind(r) == AxisType::Upcast)?;
        let is_term = |r: &UOp| crate::loops::kind(r).is_reduce();
        let reads = |u: &UOp| {
            let open = u.ranges();
            u.op() != Op::Reduce && open.contains(&axes[lanes]) && open.iter().any(is_term)
        };
        let operand = staging::operands(&nodes).iter().position(reads)?;
        let before = chosen.last_loop()?;
        let stage = keep(operand);
        let why = "what all tiles read, in their order";
        chosen.add(stage, around, why).then_some(())?;
        let last = chosen.last_loop().filter(|last| *last > before)?;
        if self.turned > 1 {
            let terms = inner(self.turned, AxisType::Upcast);
            chosen.add(terms, last - 1, "read along the terms, and transposed");
        }
        let last = chosen.last_loop()?;
        // What is transposed at once is a vector's rows: those of several are a loop, not more code, around that along the
        // terms: each row is a stream of memory.
        let several = self.turned > 1 && columns > self.lanes;
        let lanes = if several { self.lanes } else { 0 };
        chosen.add(inner(lanes, AxisType::Upcast), last, "vectors of a panel");
        if several {
            let why = "rows that go on from one turn to the next";
            chosen.add(OptOp::Swap { with: last }, last - 1, why);
        }
        unroll(chosen);
        Some(())
    }
}
