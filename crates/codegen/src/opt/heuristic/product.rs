//! The blocked product (Goto and van de Geijn 2008; Van Zee and van de Geijn 2015): a sum of products of
//! which the caches hold neither factor. Flows in: what a kernel does, as numbers, and the machine's; flows
//! out: Opts, added to those chosen. Invariant: the parts of a sum do not depend on the number of threads.
//!
//! Blocks of rows and columns are outermost; the sums of one are kept in storage of the kernel's own, and
//! done in parts. Within a part the columns' factor is staged for all of the block's columns and the rows' factor
//! for as many of its rows as the second cache holds, each in the order in which the tile reads it:
//!
//! | loop | holds | of the |
//! | --- | --- | --- |
//! | blocks of rows, of columns | the block's sums | half of the storage there is |
//! | parts of the sum | the columns' factor | a quarter of it, and of the last cache |
//! | rows at a time | the rows' factor | second cache, half |
//! | columns of tiles | a tile's columns | first cache, three quarters |
//! | rows of tiles | the tile's sums | registers |
//!
//! Where one such number of rows is all there are, the columns' factor is staged for a tile at a time. Where threads
//! share the product, they divide its longer side: each stages the factor of the other one.
//!
//! Sums of one part are not kept: a tile stores them. Where loops are around a product (batches, the images and
//! rows of a convolution), a panel of the columns may be longer, a quarter of the second cache, and the rows'
//! factor is staged around as many of these as leave it as it is. A factor that few tiles read is read where it
//! is. Sums of few terms that no second cache holds are stored by tiles beside each other innermost, and of the
//! columns' factor half of the second cache is staged for all rows. A panel is filled as its factor lies: a term at a
//! time, or vectors of terms that are transposed; parts are then whole vectors.
//!
//! Where columns are few (a row of an image), a tile may have those of several turns of a loop around: each element of
//! the rows' factor is then used for more of them.
//!
//! What does not divide is padded: what is staged past an end is zero, so the innermost loops have no masks.

use super::tile::{
    BORDER, LATENCY, ROWS, STREAMED, TURNED, Terms, VECTORS, best_tile, panel, panel_of_units,
    tile_of_units,
};
use super::{Chosen, cpu, inner, keep, outermost};
use crate::graph::bits;
use crate::opt::cost;
use crate::opt::features::{Access, Features, Mask, Reduction};
use crate::opt::nest::Axis;
use crate::opt::staging;
use monoglot_uop::{AxisType, Op, OptOp, Target, UOp};

/// Fewest tiles above and beside each other for which a factor is staged.
const ABOVE: i64 = 4;
const ASIDE: i64 = 4;
/// Fewest rows for which words of the columns' factor are put together.
const WORDS: i64 = 4;
/// How often a factor is read again where a copy of it costs nothing beside that.
const OFTEN: i64 = 64;
/// Least share of the padded extents that is no padding, and where factors are words: what does without them takes
/// more than twice as long.
const USEFUL: f64 = 0.75;
const USEFUL_WORDS: f64 = 0.5;
/// Turns of an innermost loop over terms that are worth no loop.
pub(super) const FEW: i64 = 8;
/// Bytes of a line of a cache.
pub(super) const LINE: u64 = 64;
/// Terms of a tile whose lines the first cache holds at least, where they do not collide.
const TERMS: i64 = 64;
/// Most terms of sums for which writing these takes time beside adding: of more, a line has a hundred cycles and more on
/// its way.
const WRITTEN: i64 = 256;
/// Tiles that cost as much as staging what they read.
const FILLED: i64 = 2;
/// How many times as many cycles a tile of several turns may take.
const GAIN: f64 = 0.97;
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
    /// Elements of a vector.
    lanes: i64,
    /// Rows and columns of a register tile.
    tile: [i64; 2],
    /// Rows, columns and words of the tiles that a unit multiplies; a register tile is several of those.
    unit: Option<[i64; 3]>,
    /// An axis around both of which a tile has several turns, and how many.
    turns: Option<(usize, i64)>,
    /// Axes around both.
    others: Vec<usize>,
    /// Axes with which the rows' factor varies.
    varies: Mask,
    /// Whether a tile meets a new line of the rows' factor, or a mask, in every term.
    scattered: bool,
    /// Whether lines of its terms take each other's place in the first cache, so that each tile reads them from the second.
    collide: bool,
    /// Whether panels hold what is made of the factors: words of a dot product, or what is wider.
    made: bool,
    /// How the rows' factor lies, and the columns'.
    lies: [Lies; 2],
    /// Whether no cache that is near holds the columns' factor.
    far: bool,
}

/// What elements of a factor are neighbours.
#[derive(Clone, Copy, PartialEq)]
enum Lies {
    /// Those of one term: a panel is filled a term at a time.
    Together,
    /// Terms: vectors of these are read, and transposed.
    Along,
    Otherwise,
}

/// What is done at a time.
struct Block {
    rows: Blocks,
    columns: Blocks,
    /// The rows of a block, so many for which their factor is staged.
    within: Blocks,
}

/// An extent as so many blocks of so many.
#[derive(Clone, Copy)]
struct Blocks {
    count: i64,
    of: i64,
}

/// Into how many blocks an extent is divided: at least so many, a multiple of the threads that share them.
#[derive(Clone, Copy)]
struct Share {
    fewest: i64,
    threads: i64,
}

impl Share {
    const WHOLE: Share = Share {
        fewest: 1,
        threads: 1,
    };
}

/// Choose the loops of a blocked product, whose cycles are these where threads share it; None, with nothing
/// chosen, where it is none.
pub(super) fn choose(features: &Features, shared: Option<f64>, chosen: &mut Chosen) -> Option<()> {
    let product = Product::of(features, chosen.target)?;
    let mut fork = chosen.fork();
    arrange(product, features, shared, &mut fork)?;
    *chosen = fork;
    Some(())
}

/// Put the loops of a product in order.
fn arrange(
    mut product: Product,
    features: &Features,
    shared: Option<f64>,
    chosen: &mut Chosen,
) -> Option<()> {
    let target = chosen.target;
    let [_, tile_columns] = product.tile;
    let extent = |k: usize| features.extent[k];
    let terms = extent(product.term);
    let alone = product.others.is_empty();
    let threads = if shared.is_some() && alone {
        target.threads as i64
    } else {
        1
    };
    let shares = product.shares(extent, threads);

    let most = product.panel(target) / (tile_columns * product.term_bytes);
    let each = product.term_bytes / product.bytes;
    let step = match (
        product.unit,
        each == 1 && product.lies.contains(&Lies::Along),
    ) {
        (Some([_, _, words]), _) => words,
        (None, true) => product.lanes,
        (None, false) => 1,
    };
    let parts = in_parts(terms, most.max(step), step, each);
    if parts.count > 1 && product.unit.is_some() && each > 1 {
        return None;
    }
    let along_rows = parts.count == 1 && product.stores_far(terms, extent, target);
    let blocks = match parts.count {
        1 => product.stored(terms, along_rows, extent, shares, target),
        _ => product.kept(parts.of, extent, shares, target),
    };
    let Block { rows, columns, .. } = blocks;

    for (k, b) in [
        (product.row, rows),
        (product.column, columns),
        (product.term, parts),
    ] {
        if b.count * b.of != extent(k) {
            let at = chosen.axis(k, features.kind(k))?;
            let multiple = b.count * b.of;
            chosen.add(OptOp::PadTo { multiple }, at, "whole blocks");
            if k != product.row {
                product.mask(k);
            }
        }
    }
    cut(chosen, product.row, rows, product.column, columns);
    if let Some(cycles) = shared {
        let mut order = product.others.clone();
        order.extend((rows.count > 1).then_some(product.row));
        order.extend((columns.count > 1).then_some(product.column));
        cpu::even_threads(&order, cycles, chosen);
    }
    let rows_at = chosen.last_loop()?.checked_sub(1)?;
    let scattered = product.scattered || rows.count * rows.of != extent(product.row);
    let least = match scattered || parts.count > 1 {
        _ if product.made => 1,
        true if product.collide => FILLED,
        true => ASIDE,
        false => OFTEN,
    };
    let nest = match parts.count {
        1 if along_rows => Nest::along_rows(rows_at, &product, chosen),
        1 => Nest::whole(rows_at, &product, chosen),
        n => Nest::in_parts(rows_at, n, &product, blocks.within, chosen)?,
    };
    let again = columns.of / tile_columns * nest.again;
    nest.panels(again >= least, &product, chosen);
    if product.unit.is_none() {
        unroll(chosen);
    }
    // Panels of a tile's columns follow each other.
    let each = !along_rows && blocks.within.count == 1;
    let above = blocks.within.of / product.tile[0];
    if let Some(run) = product.run(parts.of, above).filter(|_| each) {
        let at = chosen.nest.axes.iter().rposition(is_term)?;
        let runs = inner(run, AxisType::Reduce);
        chosen.add(
            runs,
            at,
            "runs of terms, between which panels are asked for",
        );
    }
    if features.reductions.len() > 1 {
        // What the rows share, before the loops over them.
        sums_beside(rows_at.checked_sub(1)?, chosen)?;
    }
    Some(())
}

/// Stage the sum that is the same for all rows around those of a block. What it adds lies in rows: a few of these at a time
/// are added for all columns.
fn sums_beside(at: usize, chosen: &mut Chosen) -> Option<()> {
    let nodes = chosen.nest.kernel().toposort();
    let product = main_sum(&nodes)?;
    let operands = staging::operands(&nodes);
    let other = |u: &UOp| u.op() == Op::Reduce && *u != product;
    let operand = operands.iter().position(other)?;
    let one_axis = operands[operand].src().len() == 2;
    let before = chosen.last_loop()?;
    let stage = keep(operand);
    let staged = chosen.add(stage, at, "sums of columns that all rows share");
    staged.then_some(())?;
    let loops = chosen.last_loop()? - before;
    let fill = before + 1;
    let term = chosen.nest.axes.iter().rposition(is_term)?;
    let terms = chosen.nest.axes[term].extent()?;
    let few = [8, 4]
        .into_iter()
        .find(|n| one_axis && terms % n == 0 && terms > *n);
    if let Some(few) = few {
        let parts = outermost(terms / few, AxisType::Reduce);
        chosen.add(parts, term, "parts of a few rows");
        // They stand first among the axes of their type.
        let part = chosen.nest.axes.iter().position(is_term)?;
        chosen.add(OptOp::Swap { with: fill }, part, "around columns");
        // Behind the parts stand the loops of the columns, and then those that set the sums.
        let vectors = inner(0, AxisType::Upcast);
        for last in [fill + 2 * loops, fill + loops] {
            chosen.add(vectors, last, "vectors of sums");
        }
        let few = chosen.nest.axes.iter().rposition(is_term)?;
        chosen.add(inner(0, AxisType::Unroll), few, "rows at once");
    } else {
        let last = fill + loops - 1;
        chosen.add(inner(0, AxisType::Upcast), last, "vectors of sums");
    }
    Some(())
}

/// Of the sums of a kernel the one that varies with most axes.
fn main_sum(nodes: &[UOp]) -> Option<UOp> {
    let sums = nodes.iter().filter(|u| u.op() == Op::Reduce);
    sums.max_by_key(|u| u.ranges().len()).cloned()
}

impl Product {
    fn of(features: &Features, target: &Target) -> Option<Product> {
        let sums = features.reductions.iter().filter(|r| r.products);
        let sum = sums.max_by_key(|r| r.open.count_ones())?;
        let along = |k: &usize| {
            let mut stores = features.accesses.iter().filter(|a| a.store);
            stores.all(|a| a.stride[*k] == 1)
        };
        // What another sum goes over is no loop.
        let open = sum.open & features.known & features.outer;
        let column = bits(open).find(along)?;
        let factors = |row: usize| {
            let rows = factor(features, sum, row, column)?;
            let columns = factor(features, sum, column, row)?;
            Some((row, rows, columns))
        };
        // Of what repeats the columns' factor, the longest.
        let (row, rows, columns) = bits(open & !(1 << column))
            .filter_map(factors)
            .max_by_key(|f| features.extent[f.0])?;
        // Other sums are the same for all rows.
        let mut others = features
            .reductions
            .iter()
            .filter(|r| r.closes != sum.closes);
        if features.reductions.len() > 2 || others.any(|r| r.open >> row & 1 == 1) {
            return None;
        }
        let known = sum.closes & !features.known == 0;
        let term = bits(sum.closes).next()?;
        let last = bits(sum.closes).last()?;
        if !sum.products || !known || sum.open & !features.known != 0 {
            return None;
        }
        let lanes = (target.vector_bytes / sum.bytes.max(1)).max(1) as i64;
        let inner = features.count(sum.closes & !(1 << term)) as i64;
        let term_bytes = inner * sum.bytes as i64;
        let extents = [features.extent[row], features.extent[column]];
        let rest = open & !(1 << column) & !(1 << row);
        let lies = |a: &Access, k: usize| {
            let [across, along] = [a.stride[k], a.stride[last]].map(i64::unsigned_abs);
            // The next term's, of elements or of words.
            let next = match a.bytes == sum.bytes {
                true => 1,
                false => sum.packed as u64,
            };
            match across < along {
                true => Lies::Together,
                false if along == next && across > along && a.gate == 0 => Lies::Along,
                false => Lies::Otherwise,
            }
        };
        let deep = Terms {
            bytes: term_bytes,
            inner,
            words: sum.packed > 1,
            along: lies(rows, row) == Lies::Along,
        };
        let (mut least, mut tile) = match sum.tile {
            Some(unit) => (0.0, tile_of_units(extents, unit)),
            None => best_tile(extents, deep, lanes, 1, target, |_| true),
        };
        least *= GAIN;
        let mut turns = None;
        // Where loops are around, a panel has all terms: those of several turns may come from the second cache.
        let panel = features.extent[term] * term_bytes * lanes;
        let streamed = |n: i64| match n * panel > target.caches[0] as i64 {
            true => (n * target.vector_bytes as i64) as f64 / STREAMED,
            false => 0.0,
        };
        let reads_on = |k: &usize| columns.varies & !rows.varies >> k & 1 == 1;
        if let Some(k) = bits(rest).filter(reads_on).last() {
            for n in (2..=VECTORS).filter(|n| features.extent[k] % n == 0) {
                let (cycles, other) = best_tile(extents, deep, lanes, n, target, |_| true);
                let tiles = (other[0] * n) as f64;
                let cycles = cycles.max(cycles * streamed(n) / (tiles / 2.0).max(LATENCY));
                if cycles < least {
                    least = cycles;
                    tile = other;
                    turns = Some((k, n));
                }
            }
        }
        let words = sum.packed > 1;
        // Both factors of one turn of the loops around, which the first cache does not hold.
        let deep = features.extent[term] as f64 * term_bytes as f64;
        let rows_and_columns = extents[0] as f64 + extents[1] as f64;
        // What is made of the factors is made once, however near they are.
        let made = words || [rows, columns].iter().any(|a| a.bytes < sum.bytes);
        // Rows that no tile divides are padded, which blocks are.
        let divides = (ABOVE..=ROWS).any(|n| extents[0] % n == 0);
        let near = !made && divides && rows_and_columns * deep <= 4.0 * target.caches[0] as f64;
        // What is staged is worth its copy where enough tiles read it; words, where enough rows do.
        let again = extents[0] >= if words { WORDS } else { ABOVE * tile[0] };
        let useful = |k: usize| {
            let padded = (extents[k] + tile[k] - 1) / tile[k] * tile[k];
            extents[k] as f64 / padded as f64
        };
        let step = rows.stride[last].unsigned_abs();
        let least = if words { USEFUL_WORDS } else { USEFUL };
        (again && !near && useful(0) * useful(1) >= least).then_some(Product {
            row,
            column,
            term,
            term_bytes,
            bytes: sum.bytes as i64,
            lanes,
            tile,
            unit: sum.tile,
            turns,
            varies: rows.varies,
            others: bits(rest).filter(|&k| features.extent[k] > 1).collect(),
            made,
            scattered: rows.gate != 0 || step.saturating_mul(rows.bytes as u64) >= LINE,
            collide: cost::beside((step as i64).saturating_mul(rows.bytes as i64)) < TERMS,
            lies: [lies(rows, row), lies(columns, column)],
            far: columns.size > target.caches[1] as i64,
        })
    }

    /// What varies with an axis that is padded is masked: no vectors of its terms are read.
    fn mask(&mut self, axis: usize) {
        let [rows, columns] = &mut self.lies;
        let masked = |lies: &mut Lies| {
            if *lies == Lies::Along {
                *lies = Lies::Otherwise;
            }
        };
        if axis != self.column {
            masked(rows);
        }
        if axis != self.row {
            masked(columns);
        }
    }

    /// How many blocks of rows and of columns there are at least, and threads that divide them: where nothing else
    /// is around a block, two at least of the longer: each stages the other's factor again.
    fn shares(&self, extent: impl Fn(usize) -> i64, threads: i64) -> [Share; 2] {
        let divided = Share { fewest: 2, threads };
        match self.others.is_empty() {
            false => [Share::WHOLE; 2],
            true if extent(self.column) > extent(self.row) => [Share::WHOLE, divided],
            true => [divided, Share::WHOLE],
        }
    }

    /// Blocks of sums that each tile stores. Where tiles beside each other are innermost, there are so many columns as half
    /// of the second cache holds the factor of, which each row of tiles reads again.
    fn stored(
        &self,
        terms: i64,
        along_rows: bool,
        extent: impl Fn(usize) -> i64,
        shares: [Share; 2],
        target: &Target,
    ) -> Block {
        let [tile_rows, tile_columns] = self.tile;
        let deep = terms * self.term_bytes;
        let second = target.caches[1] as i64 / 4;
        let most = match along_rows {
            true => extent(self.row),
            false => 3 * second / deep / tile_rows,
        };
        let rows = in_blocks(extent(self.row), tile_rows, most, shares[0]);
        let sums = target.local_bytes as i64 / 2 / (rows.of * self.bytes);
        let nearby = target.caches[2] as i64 / 4 / deep;
        let most = match along_rows {
            true => 2 * second / deep,
            false => sums.min(nearby),
        };
        let within = Blocks {
            count: 1,
            of: rows.of,
        };
        let most = most / tile_columns;
        Block {
            rows,
            columns: in_blocks(extent(self.column), tile_columns, most, shares[1]),
            within,
        }
    }

    /// Whether no cache that is near holds the sums that tiles store, each of a few terms: those above each other would
    /// each begin to write rows elsewhere, those beside each other go on with theirs.
    fn stores_far(&self, terms: i64, extent: impl Fn(usize) -> i64, target: &Target) -> bool {
        let sums = extent(self.row).saturating_mul(extent(self.column)) * self.bytes;
        let far = terms <= WRITTEN && sums > target.caches[1] as i64;
        far && self.others.is_empty() && self.unit.is_none()
    }

    /// Blocks of sums that are kept between parts of so many terms.
    fn kept(
        &self,
        terms: i64,
        extent: impl Fn(usize) -> i64,
        shares: [Share; 2],
        target: &Target,
    ) -> Block {
        let [tile_rows, tile_columns] = self.tile;
        let deep = terms * self.term_bytes;
        let sums = target.local_bytes as i64 / 2 / self.bytes;
        let panel = target.local_bytes.min(target.caches[2]) as i64 / 4 / deep;
        let each = (extent(self.row) + shares[0].threads - 1) / shares[0].threads;
        let most = (sums / each.min(sums.isqrt())).min(panel) / tile_columns;
        let columns = in_blocks(extent(self.column), tile_columns, most, shares[1]);
        let most = sums / columns.of / tile_rows + 1;
        let mut rows = in_blocks(extent(self.row), tile_rows, most, shares[0]);
        let most = target.caches[1] as i64 / 2 / deep / tile_rows + 1;
        let within = in_blocks(rows.of, tile_rows, most, Share::WHOLE);
        rows.of = within.count * within.of;
        Block {
            rows,
            columns,
            within,
        }
    }

    /// Terms of a run, where the panel of the columns' next tile comes from memory: it is asked for between runs (`meanwhile`).
    /// A panel that is filled a term at a time needs as many turns as there are terms, shared by so many tiles.
    fn run(&self, terms: i64, tiles: i64) -> Option<i64> {
        let shared = |run: i64| self.lies[1] != Lies::Together || run <= tiles;
        let run = [self.lanes, self.lanes / 2]
            .into_iter()
            .find(|r| shared(*r));
        let plain = self.far && self.unit.is_none() && self.term_bytes == self.bytes;
        let several = |run: &i64| *run >= FEW && terms % run == 0 && terms >= 4 * run;
        run.filter(several).filter(|_| plain)
    }

    /// Bytes of the columns' factor that are staged for a tile: where loops are around, sums are not kept.
    fn panel(&self, target: &Target) -> i64 {
        match self.others.is_empty() {
            true if self.unit.is_some() => panel_of_units(target),
            true => panel(target),
            false => target.caches[1] as i64 / 4,
        }
    }
}

/// The factor that varies with one of these axes and not with the other.
pub(super) fn factor<'a>(
    features: &'a Features,
    sum: &Reduction,
    with: usize,
    without: usize,
) -> Option<&'a Access> {
    let varies = |a: &&Access| a.varies >> with & 1 == 1 && a.varies >> without & 1 == 0;
    let factors = |a: &&Access| !a.store && a.varies & sum.closes != 0;
    features.accesses.iter().find(|a| factors(a) && varies(a))
}

/// An axis of a sum in parts of at most so many turns, a multiple of `step`, of `each` terms: as few turns more as
/// there are, in as few parts.
fn in_parts(terms: i64, most: i64, step: i64, each: i64) -> Blocks {
    let most = most / step * step;
    let least = (terms + most - 1) / most;
    let of = |count: i64| Blocks {
        count,
        of: (terms + count * step - 1) / (count * step) * step,
    };
    let cost = |b: &Blocks| {
        let all = b.count * b.of;
        let masks = if all == terms { 1.0 } else { 1.0 + MASKS };
        all as f64 * masks * (1.0 + BORDER / (b.of * each) as f64)
    };
    let tried = (least..=2 * least).map(of);
    let best = tried.min_by(|a, b| cost(a).total_cmp(&cost(b)));
    best.unwrap_or(of(least))
}

/// An extent in blocks of whole tiles, at most so many tiles each: in a number that the threads divide among them,
/// and with least past the end and to fill.
fn in_blocks(extent: i64, tile: i64, most: i64, Share { fewest, threads }: Share) -> Blocks {
    let most = most.max(1);
    let tiles = (extent + tile - 1) / tile;
    let least = ((tiles + most - 1) / most).max(fewest);
    let of = |count: i64| Blocks {
        count,
        of: (tiles + count - 1) / count * tile,
    };
    let tried = (least..=2 * least + threads).filter(|c| c % threads == 0);
    let best = tried
        .map(of)
        .min_by_key(|b| b.count * (b.of * FILLED + tile));
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
        let at = chosen.innermost(k);
        let with = chosen.last_loop().map(|last| last - from_last);
        if let (Some(at), Some(with)) = (at, with)
            && at != with
        {
            chosen.add(OptOp::Swap { with }, at, "blocks outermost");
        }
    }
}

/// The loops around the register tiles of a block, by their places.
struct Nest {
    /// Where the rows' factor is staged: around all of its tiles.
    around: Option<usize>,
    /// How often all columns are done with that.
    again: i64,
    /// Around those above each other.
    beside: Option<usize>,
    /// Those of the columns.
    columns: Vec<usize>,
    /// That over the tiles of a unit beside each other.
    units: Option<usize>,
    /// Whether the tiles beside each other are inside those above each other: the factors change places.
    along_rows: bool,
}

impl Nest {
    /// The block whose rows stand at this place, its columns next.
    fn whole(rows: usize, product: &Product, chosen: &mut Chosen) -> Nest {
        above(rows, chosen);
        let units = tiles(rows, product, chosen);
        let term = chosen.axis(product.term, AxisType::Reduce);
        terms_of_unit(term, product, chosen);
        let axes = &chosen.nest.axes;
        let beside = axes[rows].of == product.column && axes[rows].kind() == AxisType::Loop;
        // Loops that leave the factor as it is may be inside.
        let inside = axes[..rows].iter().rev();
        let inside: Vec<i64> = inside
            .take_while(|a| product.varies >> a.of & 1 == 0)
            .filter_map(|a| a.extent())
            .collect();
        let above = inside.len().min(rows.saturating_sub(1));
        Nest {
            around: rows.checked_sub(1 + above),
            again: inside[..above].iter().product(),
            beside: if beside {
                Some(rows)
            } else {
                rows.checked_sub(1)
            },
            columns: places(product.column, chosen),
            units: chosen.last_loop().filter(|_| units),
            along_rows: false,
        }
    }

    /// The same with the tiles beside each other innermost.
    fn along_rows(rows: usize, product: &Product, chosen: &mut Chosen) -> Nest {
        let [tile_rows, tile_columns] = product.tile;
        let columns = inner(tile_columns, AxisType::Upcast);
        chosen.add(inner(tile_rows, AxisType::Upcast), rows, "rows of a tile");
        let at = chosen.innermost(product.column);
        at.map(|at| chosen.add(columns, at, "columns of a tile, which go on with its rows"));
        Nest {
            around: rows.checked_sub(1),
            again: 1,
            beside: Some(rows),
            columns: places(product.column, chosen),
            units: None,
            along_rows: true,
        }
    }

    /// The same with its sums kept, and done in so many parts.
    fn in_parts(
        rows: usize,
        parts: i64,
        product: &Product,
        within: Blocks,
        chosen: &mut Chosen,
    ) -> Option<Nest> {
        let fill = sums_in_parts(rows, 2, 0, parts, chosen)? - 1;
        // The loop over the parts stands before those that fill the sums, and behind these those that set them.
        let block = fill + 1;
        if within.count > 1 {
            let rows_of = inner(within.of, AxisType::Loop);
            chosen.add(rows_of, block, "rows that the second cache holds");
            // The new loop is the last: before those that set the sums it has their places in turn.
            let last = chosen.last_loop()?;
            for with in (block + 2..last).rev() {
                let why = "blocks around their tiles";
                chosen.add(OptOp::Swap { with }, with + 1, why);
            }
        } else {
            above(block, chosen);
        }
        let columns_at = if within.count > 1 { block + 1 } else { block };
        let units = tiles(columns_at, product, chosen);
        let vectors = inner(product.tile[1], AxisType::Upcast);
        for columns in [rows + 1, fill + 4] {
            let at = chosen.axis(columns, AxisType::Loop)?;
            chosen.add(vectors, at, "vectors of sums");
        }
        let term = chosen.nest.axes.iter().rposition(is_term);
        terms_of_unit(term, product, chosen);
        Some(Nest {
            around: Some(columns_at - 1),
            again: 1,
            // What blocks of rows read again is staged once for all.
            beside: Some(if within.count > 1 { fill } else { block }),
            columns: places(fill + 2, chosen),
            units: chosen.last_loop().filter(|_| units),
            along_rows: false,
        })
    }

    /// The columns' factor in the order in which a tile reads it, and that of the rows as well.
    fn panels(&self, rows: bool, product: &Product, chosen: &mut Chosen) {
        let of_columns = |u: &UOp, axes: &[UOp]| {
            let open = u.ranges();
            self.columns.iter().any(|&c| open.contains(&axes[c]))
        };
        let [rows_lie, columns_lie] = product.lies;
        let lanes = product.lanes;
        let columns_of = Panel {
            lies: columns_lie,
            lanes,
            last: None,
        };
        if self.along_rows {
            let rows_of = Panel {
                lies: rows_lie,
                ..columns_of
            };
            if let Some(at) = self.beside.filter(|_| rows) {
                let of_rows = |u: &UOp, axes: &[UOp]| !of_columns(u, axes);
                stage(chosen, at, "rows of a tile", rows_of, of_rows);
            }
            if let Some(at) = self.around {
                stage(chosen, at, "columns of all tiles", columns_of, of_columns);
            }
            return;
        }
        if let Some(at) = self.beside.or(self.around) {
            stage(chosen, at, "columns of a tile", columns_of, of_columns);
        }
        let mut rows_of = Panel {
            lies: rows_lie,
            lanes,
            last: None,
        };
        // Those of a row's tile lie together.
        if product.unit.is_some() {
            let Some(at) = chosen.nest.axes.iter().rposition(is_term) else {
                return;
            };
            let why = "a unit's terms at once";
            chosen.add(inner(0, AxisType::Unroll), at, why);
            let is_unrolled = |a: &Axis| a.kind() == AxisType::Unroll;
            rows_of.last = chosen.nest.axes.iter().rposition(is_unrolled);
            rows_of.lies = match rows_lie {
                Lies::Together => Lies::Along,
                _ => Lies::Otherwise,
            };
        }
        if let Some(at) = self.around.filter(|_| rows) {
            stage(chosen, at, "rows of a part", rows_of, |_, _| true);
        }
        if let Some(at) = self.units {
            let why = "a unit's tiles beside each other, at once";
            chosen.add(inner(0, AxisType::Upcast), at, why);
        }
    }
}

/// Keep the sums that so many loops make, from this place on, and do them in parts: the axes of the sum before one
/// are parts, and of that one so many. The place of the first loop that fills the sums.
pub(super) fn sums_in_parts(
    at: usize,
    loops: usize,
    cut: usize,
    parts: i64,
    chosen: &mut Chosen,
) -> Option<usize> {
    let nodes = chosen.nest.kernel().toposort();
    let sum = main_sum(&nodes)?;
    let operand = staging::operands(&nodes).iter().position(|u| *u == sum)?;
    let stage = keep(operand);
    if !chosen.add(stage, at.checked_sub(1)?, "a block's sums, done in parts") {
        return None;
    }
    // Behind the loops that read the sums stand those that fill them, and then the terms.
    let fill = at + loops;
    let mut terms = fill + loops;
    let split = outermost(parts, AxisType::Reduce);
    chosen.add(split, terms + cut, "parts of the sum");
    let around = OptOp::Swap { with: fill };
    chosen.add(around, terms, "parts of the sum around its tiles");
    for k in (0..cut).rev() {
        // Behind those that fill the sums stand those that set them now.
        terms += if k + 1 == cut { loops + 1 } else { 1 };
        chosen.add(around, terms + k, "parts of the sum around its tiles");
    }
    Some(fill + 1 + cut)
}

/// The places of what is left of an axis.
fn places(of: usize, chosen: &Chosen) -> Vec<usize> {
    let axes = chosen.nest.axes.iter().enumerate();
    axes.filter(|(_, a)| a.of == of).map(|(i, _)| i).collect()
}

/// The loop over rows at this place inside that over columns.
fn above(at: usize, chosen: &mut Chosen) {
    let why = "tiles above each other read the same columns";
    chosen.add(OptOp::Swap { with: at + 1 }, at, why);
}

/// Register tiles of the columns at this place and the rows next. Whether the last loop is one over the tiles of a unit
/// beside each other.
fn tiles(at: usize, product: &Product, chosen: &mut Chosen) -> bool {
    let [rows, columns] = product.tile;
    chosen.add(inner(rows, AxisType::Upcast), at + 1, "rows of a tile");
    // An element of the rows is used for all that is beside it before the next one.
    if let Some((k, n)) = product.turns
        && let Some(at) = chosen.axis(k, AxisType::Loop)
    {
        chosen.add(inner(n, AxisType::Upcast), at, "turns of a tile");
    }
    let Some([_, unit, _]) = product.unit else {
        chosen.add(inner(columns, AxisType::Upcast), at, "columns of a tile");
        return false;
    };
    let several = chosen.nest.axes[at].extent() != Some(columns);
    // Those of each tile of the unit lie together: the loop over these is there until they are staged.
    chosen.add(
        inner(unit, AxisType::Upcast),
        at,
        "columns of a unit's tile",
    );
    let beside = inner(columns / unit, AxisType::Loop);
    several && columns > unit && chosen.add(beside, at, "a unit's tiles beside each other")
}

/// Where a unit multiplies tiles, the terms of one are innermost.
fn terms_of_unit(term: Option<usize>, product: &Product, chosen: &mut Chosen) {
    if let (Some(at), Some([_, _, words])) = (term, product.unit) {
        let why = "terms of a unit's tile";
        chosen.add(inner(words, AxisType::Reduce), at, why);
    }
}

fn is_term(a: &Axis) -> bool {
    a.kind() == AxisType::Reduce
}

/// Unroll the innermost loop over terms where it is short and has others around it, unless the terms would be lanes.
pub(super) fn unroll(chosen: &mut Chosen) {
    let axes = &chosen.nest.axes;
    let Some(last) = axes.iter().rposition(is_term) else {
        return;
    };
    let short = axes[last].extent().is_some_and(|n| n <= FEW && n % 4 != 0);
    if short && axes.iter().filter(|a| is_term(a)).count() > 1 {
        chosen.add(inner(0, AxisType::Unroll), last, "few terms at once");
    }
}

/// How a factor lies, as to the order of the storage that is filled with it.
struct Panel {
    lies: Lies,
    /// Elements of a vector.
    lanes: i64,
    /// The axis that is the last of the storage, where that is another than the last.
    last: Option<usize>,
}

/// Stage the first read inside the sum that is one of these, and fill its storage with vectors, in the order in
/// which it lies.
fn stage(
    chosen: &mut Chosen,
    at: usize,
    why: &'static str,
    Panel { lies, lanes, last }: Panel,
    is: impl Fn(&UOp, &[UOp]) -> bool,
) {
    let nodes = chosen.nest.kernel().toposort();
    let axes = crate::opt::ranges(&nodes);
    let Some(sum) = main_sum(&nodes) else {
        return;
    };
    let terms = &sum.src()[1..];
    let summed = |u: &UOp| u.ranges().iter().any(|r| terms.contains(r));
    let operands = staging::operands(&nodes);
    let reads = |u: &UOp| u.op() != Op::Reduce && summed(u) && is(u, &axes);
    let Some(operand) = operands.iter().position(reads) else {
        return;
    };
    let before = chosen.last_loop();
    if !chosen.add(OptOp::Stage { operand, last }, at, why) {
        return;
    }
    // The loops that fill it are the last.
    let (Some(before), Some(last)) = (before, chosen.last_loop()) else {
        return;
    };
    let even = |chosen: &Chosen, at: usize| {
        let extent = chosen.nest.axes[at].extent();
        extent.is_some_and(|n| n % TURNED == 0)
    };
    match lies {
        Lies::Together if last == before + 3 => {
            let why = "as the factor lies";
            chosen.add(OptOp::Swap { with: before + 2 }, before + 1, why);
        }
        Lies::Along if last > before + 1 && even(chosen, last) => {
            let vectors = inner(lanes, AxisType::Upcast);
            chosen.add(vectors, last - 1, "vectors of terms, transposed");
        }
        _ => {}
    }
    let last = chosen.last_loop().unwrap_or(last);
    chosen.add(inner(0, AxisType::Upcast), last, "vectors of a panel");
}
