//! Products with vectors across the axis that they are stored along: an image's row of a few pixels leaves parts of
//! vectors empty, where the channels of a pixel fill them. Flows in: what a kernel does, as numbers, and the machine's;
//! flows out: Opts, added to those chosen. Invariant: no sum is done in parts.
//!
//! The factor that varies with the lanes (a convolution's weights) is staged once, in the order in which the tiles read
//! it; elements of the other one are read where they are, each for all lanes. A tile ends by turning its sums, which
//! are then stored as they lie: that costs a few instructions for as many vectors as terms were added to each.

use super::along::in_order;
use super::cpu::{self, Plan};
use super::product::{LINE, factor, unroll};
use super::{Chosen, Weighed, inner, outermost};
use crate::graph::bits;
use crate::opt::features::{Access, Features, Mask};
use crate::opt::staging;
use monoglot_uop::{AxisType, Op, OptOp, Target, UOp};

/// Most vectors side by side in a tile, and most elements that they are multiplied by.
const VECTORS: i64 = 4;
const ROWS: i64 = 16;
/// Fewest elements that are neighbours once sums are turned.
const NEAR: i64 = 4;
/// Fewest terms of a sum for which turning it costs nothing.
const TERMS: f64 = 64.0;
/// Cycles from a fused multiply-add to one that needs its result, what a load costs beside those, and bytes that a
/// tile reads from the second cache in a cycle.
const LATENCY: f64 = 4.0;
const BESIDE: f64 = 0.05;
const STREAMED: f64 = 20.0;

/// Such a product.
struct Product {
    /// The axis that results are stored along, and that of the lanes.
    row: usize,
    lane: usize,
    /// Turns of both that are a tile.
    tile: [i64; 2],
    /// Axes around both.
    others: Vec<usize>,
    /// Cycles of all tiles.
    cycles: f64,
}

/// Choose the loops; None, with nothing chosen, where vectors along the results cost no more.
pub(super) fn choose(features: &Features, plan: &Plan, chosen: &mut Chosen) -> Option<()> {
    let product = Product::of(features, chosen.target)?;
    let along = plan.cycles(features, chosen.target);
    if product.cycles > along {
        return None;
    }
    let mut fork = chosen.fork();
    product.arrange(features, plan.shared, &mut fork)?;
    let others = vec![("lanes along the results".to_string(), along)];
    if let Some(choice) = fork.list.iter_mut().rev().find(|_| chosen.explained) {
        choice.weighed = Some(Weighed::new(product.cycles, "cycles", others));
    }
    *chosen = fork;
    Some(())
}

impl Product {
    fn of(features: &Features, target: &Target) -> Option<Product> {
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
        let is_plain = |a: &Access| a.gate == 0;
        let lanes = (target.vector_bytes / sum.bytes.max(1)).max(1) as i64;
        let terms = features.count(sum.closes);
        let of = |lane: usize| {
            let rows = factor(features, sum, row, lane).filter(|a| is_plain(a))?;
            let weights = factor(features, sum, lane, row).filter(|a| is_plain(a))?;
            let shared = weights.varies & sum.open == 1 << lane;
            let fits = weights.size <= target.caches[1] as i64 / 2;
            let apart = rows.stride[row].unsigned_abs();
            let near = apart.saturating_mul(rows.bytes as u64) <= LINE;
            let same = weights.bytes == sum.bytes && rows.bytes == sum.bytes;
            if !shared || !fits || !near || !same || terms < TERMS {
                return None;
            }
            let extents = [features.extent[row], features.extent[lane]];
            // Which products of a whole row are with padding is known.
            let known = sum.padded >> row & 1 == 1;
            let whole = known.then(|| best_tile(extents, terms, lanes, true, target));
            let any = || best_tile(extents, terms, lanes, false, target);
            let (turn, tile) = whole.flatten().or_else(any)?;
            let around = features.count(sum.open & !(1 << lane) & !(1 << row));
            Some((lane, tile, turn * around * terms))
        };
        let lanes = bits(sum.open & !(1 << row)).filter_map(of);
        let (lane, tile, cycles) = lanes.min_by(|a, b| a.2.total_cmp(&b.2))?;
        let rest: Mask = sum.open & !(1 << row) & !(1 << lane);
        Some(Product {
            row,
            lane,
            tile,
            others: bits(rest).filter(|&k| features.extent[k] > 1).collect(),
            cycles,
        })
    }

    fn arrange(&self, features: &Features, shared: Option<f64>, chosen: &mut Chosen) -> Option<()> {
        let [rows, columns] = self.tile;
        let order = [&self.others[..], &[self.lane, self.row]].concat();
        in_order(0, &order, "the results' axis innermost", chosen);
        if let Some(cycles) = shared {
            cpu::even_threads(&self.others, cycles, chosen);
        }
        // What all tiles read is staged inside of the outermost loop: one of two turns, where threads have none.
        let threads = |chosen: &Chosen| {
            let mut axes = chosen.nest.axes.iter();
            axes.position(|a| a.kind() == AxisType::Thread)
        };
        let around = match threads(chosen) {
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
            let at = chosen.axis(k, AxisType::Loop)?;
            let whole = features.extent[k] == n;
            chosen
                .add(inner(if whole { 0 } else { n }, AxisType::Upcast), at, why)
                .then_some(())?;
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
        let stage = OptOp::Stage { operand };
        let why = "what all tiles read, in their order";
        chosen.add(stage, around, why).then_some(())?;
        let last = chosen.last_loop().filter(|last| *last > before)?;
        chosen.add(inner(0, AxisType::Upcast), last, "vectors of a panel");
        unroll(chosen);
        Some(())
    }
}

/// Rows and columns of the tile of least cost among those that divide both extents, with the cycles of a term of all
/// tiles.
fn best_tile(
    extents: [i64; 2],
    terms: f64,
    lanes: i64,
    whole: bool,
    target: &Target,
) -> Option<(f64, [i64; 2])> {
    let mut best: Option<(f64, [i64; 2])> = None;
    for vectors in (1..=VECTORS).filter(|v| extents[1] % (v * lanes) == 0) {
        // Sums, a row of one factor, an element of the other, and a product that is not added at once.
        let between = i64::from(!target.native.contains(Op::MulAcc));
        let most = (target.registers as i64 - 1 - between - vectors) / vectors;
        let least = if whole { extents[0] } else { NEAR };
        let most = if whole { most } else { most.min(ROWS) };
        for rows in (least..=most).filter(|r| extents[0] % r == 0) {
            let added = (rows * vectors) as f64 / 2.0;
            let loaded = (rows + vectors) as f64;
            let panel = terms * (vectors * target.vector_bytes as i64) as f64;
            let streamed = match panel > target.caches[0] as f64 / 2.0 {
                true => (vectors * target.vector_bytes as i64) as f64 / STREAMED,
                false => 0.0,
            };
            let term = added.max(loaded / 2.0).max(LATENCY).max(streamed) + BESIDE * loaded;
            let tiles = (extents[0] / rows * (extents[1] / (vectors * lanes))) as f64;
            let cycles = tiles * term;
            if best.is_none_or(|b| cycles < b.0) {
                best = Some((cycles, [rows, vectors * lanes]));
            }
        }
    }
    best
}
