//! The blocked product (Goto and van de Geijn 2008; Van Zee and van de Geijn 2015): a sum of products of
//! which the caches hold neither factor. Flows in: what a kernel does, as numbers, and the machine's; flows
//! out: Opts, added to those chosen. Invariant: the parts of a sum do not depend on the number of threads.
//!
//! Blocks of rows and columns are outermost; the sums of one are kept in storage of the kernel's own, and
//! done in parts. Within a part the rows' factor is staged for the whole block, and the columns' factor for one
//! tile at a time, each in the order in which the tile reads it:
//!
//! | loop | holds | of the |
//! | --- | --- | --- |
//! | blocks of rows, of columns | the block's sums | second cache, all |
//! | parts of the sum | the rows' factor | second cache, a quarter |
//! | columns of tiles | the columns' factor | first cache, three quarters |
//! | rows of tiles | the tile's sums | registers |
//!
//! What does not divide is padded: what is staged past an end is zero, so the innermost loops have no masks.

use super::{Chosen, inner, outermost};
use crate::graph::bits;
use crate::loops;
use crate::opt::features::{Access, Features, Reduction};
use crate::opt::staging;
use monoglot_uop::{AxisType, Op, OptOp, Target, UOp};

/// Most rows of a tile.
const ROWS: i64 = 16;
/// Most vectors side by side in a tile.
const VECTORS: i64 = 4;
/// Cycles from a fused multiply-add to one that needs its result, and what a load costs beside those.
const LATENCY: f64 = 4.0;
const BESIDE: f64 = 0.05;
/// Fewest tiles above and beside each other.
const ABOVE: i64 = 8;
const ASIDE: i64 = 4;
/// What beginning and ending a part of a sum costs, in terms.
const BORDER: f64 = 16.0;
/// What masks cost where an extent is padded, as a share.
const MASKS: f64 = 0.01;

/// A product as the loops see it.
struct Product {
    row: usize,
    column: usize,
    /// The axis of the sum that is cut in parts, its outermost.
    term: usize,
    /// Bytes of a factor for each turn of that.
    term_bytes: i64,
    /// Bytes of a sum.
    bytes: i64,
    /// Rows and columns of a register tile.
    tile: [i64; 2],
}

/// An extent as so many blocks of so many.
#[derive(Clone, Copy)]
struct Blocks {
    count: i64,
    of: i64,
}

/// Choose the loops of a blocked product; None, with nothing chosen, where it is none.
pub(super) fn choose(features: &Features, shared: bool, chosen: &mut Chosen) -> Option<()> {
    let product = Product::of(features, chosen.target)?;
    let target = chosen.target;
    let [tile_rows, tile_columns] = product.tile;
    let extent = |k: usize| features.extent[k];
    let terms = extent(product.term);
    let threads = if shared { target.threads as i64 } else { 1 };

    let second = target.caches[1] as i64;
    let most = panel(target) / (tile_columns * product.term_bytes);
    let parts = in_parts(terms, most.max(1));
    // Short sums have no parts: their factors pass by once for every tile.
    if parts.count == 1 {
        return None;
    }
    let deep = parts.of * product.term_bytes;
    let most = (second / 4 / deep / tile_rows).max(1);
    // Two at least, so that there is a loop around a block.
    let rows = in_blocks(extent(product.row), tile_rows, most, 2, threads);
    let most = second.min(target.local_bytes as i64) / (rows.of * product.bytes) / tile_columns;
    let columns = in_blocks(extent(product.column), tile_columns, most.max(1), 1, 1);

    for (k, b) in [
        (product.row, rows),
        (product.column, columns),
        (product.term, parts),
    ] {
        if b.count * b.of != extent(k) {
            let at = chosen.axis(k, features.kind(k))?;
            let multiple = b.count * b.of;
            chosen.add(OptOp::PadTo { multiple }, at, "whole blocks");
        }
    }
    cut(chosen, product.row, rows, product.column, columns);
    if threads > 1 {
        let outer = chosen.axis(product.row, AxisType::Loop)?;
        let split = outermost(threads, AxisType::Thread);
        chosen.add(split, outer, "blocks of rows for each thread");
    }
    let rows_at = chosen.last_loop()? - 1;
    let nest = Nest::in_parts(rows_at, parts.count, tile_columns, chosen)?;
    nest.tiles(product.tile, chosen);
    nest.panels(chosen);
    Some(())
}

impl Product {
    fn of(features: &Features, target: &Target) -> Option<Product> {
        let [sum] = &features.reductions[..] else {
            return None;
        };
        let along = |k: &usize| {
            let mut stores = features.accesses.iter().filter(|a| a.store);
            stores.all(|a| a.stride[*k] == 1)
        };
        let column = bits(sum.open & features.known).find(along)?;
        let others = bits(sum.open & features.known & !(1 << column));
        let factors = |row: usize| {
            let rows = factor(features, sum, row, column)?;
            let columns = factor(features, sum, column, row)?;
            Some((row, rows, columns))
        };
        // Of what repeats the columns' factor, the longest.
        let (row, rows, columns) = others
            .filter_map(factors)
            .max_by_key(|f| features.extent[f.0])?;
        let known = sum.closes & !features.known == 0;
        let term = bits(sum.closes).next()?;
        let beyond = rows.size + columns.size > 2 * target.caches[1] as i64;
        if !sum.products || !known || !beyond {
            return None;
        }
        let lanes = (target.vector_bytes / sum.bytes.max(1)).max(1) as i64;
        let inner = features.count(sum.closes & !(1 << term)) as i64;
        let term_bytes = inner * rows.bytes.max(columns.bytes) as i64;
        let extents = [features.extent[row], features.extent[column]];
        let tile = register_tile(extents, term_bytes, lanes, target);
        // What is staged is worth its copy where enough tiles read it.
        let again = extents[0] >= ABOVE * tile[0] && extents[1] >= ASIDE * tile[1];
        again.then_some(Product {
            row,
            column,
            term,
            term_bytes,
            bytes: sum.bytes as i64,
            tile,
        })
    }
}

/// The factor that varies with one of these axes and not with the other.
fn factor<'a>(
    features: &'a Features,
    sum: &Reduction,
    with: usize,
    without: usize,
) -> Option<&'a Access> {
    let varies = |a: &&Access| a.varies >> with & 1 == 1 && a.varies >> without & 1 == 0;
    let factors = |a: &&Access| !a.store && a.varies & sum.closes != 0;
    features.accesses.iter().find(|a| factors(a) && varies(a))
}

/// Rows and columns of the tile of least cost, whether they divide the extents or not: what it adds in each
/// term, what it loads, what is past the ends, and how often it ends.
fn register_tile(extents: [i64; 2], term_bytes: i64, lanes: i64, target: &Target) -> [i64; 2] {
    let mut best = (f64::INFINITY, [1, lanes]);
    let whole = |n: i64, part: i64| ((n + part - 1) / part) as f64;
    for vectors in 1..=VECTORS {
        // Sums, a row of one factor and an element of the other are in registers.
        let most = (target.registers as i64 - 1 - vectors) / vectors;
        let columns = vectors * lanes;
        let deep = (panel(target) / (columns * term_bytes)).max(1);
        for rows in 1..=most.min(ROWS) {
            let added = (rows * vectors) as f64 / 2.0;
            let loaded = (rows + vectors) as f64;
            let term = added.max(loaded / 2.0).max(LATENCY) + BESIDE * loaded;
            let tiles = whole(extents[0], rows) * whole(extents[1], columns);
            let cycles = tiles * term * (1.0 + BORDER / deep as f64);
            if cycles < best.0 {
                best = (cycles, [rows, columns]);
            }
        }
    }
    best.1
}

/// Bytes of the columns' factor that are staged for a tile.
fn panel(target: &Target) -> i64 {
    target.caches[0] as i64 * 3 / 4
}

/// A sum in parts of at most so many terms: as few terms more as there are, in as few parts.
fn in_parts(terms: i64, most: i64) -> Blocks {
    let least = (terms + most - 1) / most;
    let of = |count: i64| Blocks {
        count,
        of: (terms + count - 1) / count,
    };
    let cost = |b: &Blocks| {
        let all = b.count * b.of;
        let masks = if all == terms { 1.0 } else { 1.0 + MASKS };
        all as f64 * masks * (1.0 + BORDER / b.of as f64)
    };
    let tried = (least..=2 * least).map(of);
    let best = tried.min_by(|a, b| cost(a).total_cmp(&cost(b)));
    best.unwrap_or(of(least))
}

/// An extent in blocks of whole tiles, at most so many tiles each: at least `fewest`, in a number that these
/// threads divide among them, and with least past the end.
fn in_blocks(extent: i64, tile: i64, most: i64, fewest: i64, threads: i64) -> Blocks {
    let tiles = (extent + tile - 1) / tile;
    let least = ((tiles + most - 1) / most).max(fewest);
    let of = |count: i64| Blocks {
        count,
        of: (tiles + count - 1) / count * tile,
    };
    let tried = (least..=2 * least + threads).filter(|c| c % threads == 0);
    let best = tried.map(of).min_by_key(|b| b.count * b.of);
    best.unwrap_or(of(least))
}

/// Cut rows and columns in blocks, with the loops over the blocks outermost and that over the columns of one
/// innermost.
fn cut(chosen: &mut Chosen, row: usize, rows: Blocks, column: usize, columns: Blocks) {
    for (k, b, why) in [
        (row, rows, "blocks of rows"),
        (column, columns, "blocks of columns"),
    ] {
        if let Some(at) = chosen.axis(k, AxisType::Loop).filter(|_| b.count > 1) {
            chosen.add(inner(b.of, AxisType::Loop), at, why);
        }
    }
    for (k, from_last) in [(column, 0), (row, 1)] {
        let mut axes = chosen.nest.axes.iter();
        let at = axes.rposition(|a| a.of == k && a.kind() == AxisType::Loop);
        let with = chosen.last_loop().map(|last| last - from_last);
        if let (Some(at), Some(with)) = (at, with)
            && at != with
        {
            chosen.add(OptOp::Swap { with }, at, "blocks outermost");
        }
    }
}

/// The loops of a block, each by the place that it had in the nest when it was made.
struct Nest {
    /// Around all of its tiles.
    around: usize,
    rows: usize,
    columns: usize,
}

impl Nest {
    /// The block whose rows stand at this place, its columns next: its sums are kept, and done in so many parts.
    fn in_parts(rows: usize, parts: i64, tile: i64, chosen: &mut Chosen) -> Option<Nest> {
        let nodes = chosen.nest.clone().finish().toposort();
        let mut operands = staging::operands(&nodes).into_iter();
        let operand = operands.position(|u| u.op() == Op::Reduce)?;
        let stage = OptOp::Stage { operand };
        if !chosen.add(stage, rows - 1, "a block's sums, done in parts") {
            return None;
        }
        // Behind the loops that read the sums stand those that fill them, and then the terms.
        let fill = rows + 2;
        let terms = rows + 4;
        let split = outermost(parts, AxisType::Reduce);
        chosen.add(split, terms, "parts of the sum");
        chosen.add(
            OptOp::Swap { with: fill },
            terms,
            "parts of the sum around its tiles",
        );
        // Behind these stand the loops that set the sums.
        let nest = Nest {
            around: fill,
            rows: fill + 1,
            columns: fill + 2,
        };
        let vectors = inner(tile, AxisType::Upcast);
        for columns in [rows + 1, nest.columns + 2] {
            let at = chosen.axis(columns, AxisType::Loop)?;
            chosen.add(vectors, at, "vectors of sums");
        }
        Some(nest)
    }

    /// Register tiles, those side by side in the outer loop.
    fn tiles(&self, [rows, columns]: [i64; 2], chosen: &mut Chosen) {
        let place = |of: usize| chosen.axis(of, AxisType::Loop);
        if let (Some(at), Some(with)) = (place(self.rows), place(self.columns)) {
            let why = "tiles above each other read the same columns";
            chosen.add(OptOp::Swap { with }, at, why);
        }
        for (of, factor, why) in [
            (self.rows, rows, "rows of a tile"),
            (self.columns, columns, "columns of a tile"),
        ] {
            if let Some(at) = chosen.axis(of, AxisType::Loop) {
                chosen.add(inner(factor, AxisType::Upcast), at, why);
            }
        }
    }

    /// Both factors in the order in which the tiles read them.
    fn panels(&self, chosen: &mut Chosen) {
        let place = |of: usize| chosen.axis(of, AxisType::Loop);
        let Some(around) = place(self.around) else {
            return;
        };
        let at = place(self.columns).unwrap_or(around);
        let axes = chosen.nest.axes.iter().enumerate();
        let columns: Vec<usize> = axes
            .filter(|(_, a)| a.of == self.columns)
            .map(|(i, _)| i)
            .collect();
        let apart = |u: &UOp, axes: &[UOp]| columns.iter().all(|&c| !u.ranges().contains(&axes[c]));
        stage(chosen, around, "rows of a part", apart);
        stage(chosen, at, "columns of a tile", |_, _| true);
    }
}

/// Stage the first read inside the sum that is one of these, and fill its storage with vectors.
fn stage(chosen: &mut Chosen, at: usize, why: &'static str, is: impl Fn(&UOp, &[UOp]) -> bool) {
    let nodes = chosen.nest.clone().finish().toposort();
    let axes = crate::opt::ranges(&nodes);
    let summed = |u: &UOp| {
        u.ranges()
            .iter()
            .any(|r| loops::kind(r) == AxisType::Reduce)
    };
    let operands = staging::operands(&nodes);
    let reads = |u: &UOp| u.op() != Op::Reduce && summed(u) && is(u, &axes);
    let Some(operand) = operands.iter().position(reads) else {
        return;
    };
    if chosen.add(OptOp::Stage { operand }, at, why) {
        // The loops that fill it are the last; elements side by side are stored as vectors.
        if let Some(last) = chosen.last_loop() {
            chosen.add(inner(0, AxisType::Upcast), last, "vectors of a panel");
        }
    }
}
