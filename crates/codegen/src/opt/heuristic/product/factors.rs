//! What a product is. Flows in: what a kernel does, as numbers; flows out: its rows, columns and terms, the register tile,
//! and how the factors lie. Invariant: each factor varies with the rows or with the columns, not with both.

use super::super::tile::{
    LATENCY, ROWS, STREAMED, Terms, VECTORS, best_tile, parts, tile_of_units,
};
use crate::graph::bits;
use crate::opt::cost;
use crate::opt::features::{Access, Features, Mask, Reduction};
use monoglot_uop::Target;

/// Fewest tiles above each other for which the columns' factor is staged, and where its columns are neighbours.
const ABOVE: i64 = 4;
const NEAR_ABOVE: i64 = 5;
/// Fewest rows for which words of the columns' factor are put together, and for which words of halves that lie together are
/// transposed: fewer are done along these, each line of which is read once.
const WORDS: i64 = 4;
const HALVES: i64 = 8;
/// Least share of the padded extents that is no padding, and where factors are words: what does without them takes
/// more than twice as long.
const USEFUL: f64 = 0.75;
const USEFUL_WORDS: f64 = 0.5;
/// The same of the terms of a unit's tiles, which do several times what vectors do.
const USEFUL_TERMS: f64 = 0.2;
/// Turns of an innermost loop over terms that are worth no loop.
pub(crate) const FEW: i64 = 8;
/// Bytes of a line of a cache.
pub(crate) const LINE: u64 = 64;
/// Terms of a tile whose lines the first cache holds at least, where they do not collide.
const TERMS: i64 = 64;
/// How many times as many cycles a tile of several turns may take.
const GAIN: f64 = 0.97;

/// A product as the loops see it.
pub(super) struct Product {
    pub(super) row: usize,
    pub(super) column: usize,
    /// The axis of the sum that is cut in parts, its outermost.
    pub(super) term: usize,
    /// Bytes of a factor for each turn of that.
    pub(super) term_bytes: i64,
    /// Bytes of a sum.
    pub(super) bytes: i64,
    /// Elements of a vector.
    pub(super) lanes: i64,
    /// Rows and columns of a register tile.
    pub(super) tile: [i64; 2],
    /// Rows, columns and words of the tiles that a unit multiplies; a register tile is several of those.
    pub(super) unit: Option<[i64; 3]>,
    /// Elements of a word.
    pub(super) packed: i64,
    /// An axis around both of which a tile has several turns, and how many.
    pub(super) turns: Option<(usize, i64)>,
    /// Axes around both.
    pub(super) others: Vec<usize>,
    /// Axes with which the rows' factor varies.
    pub(super) varies: Mask,
    /// Whether a tile meets a new line of the rows' factor, or a mask, in every term.
    pub(super) scattered: bool,
    /// Whether lines of its terms take each other's place in the first cache, so that each tile reads them from the second.
    pub(super) collide: bool,
    /// Whether panels hold what is made of the factors: words of a dot product, or what is wider.
    pub(super) made: bool,
    /// How the rows' factor lies, and the columns'.
    pub(super) lies: [Lies; 2],
    /// Whether no cache that is near holds the columns' factor.
    pub(super) far: bool,
    /// Cycles of all tiles.
    pub(super) cycles: f64,
}

/// What elements of a factor are neighbours.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Lies {
    /// Those of one term: a panel is filled a term at a time.
    Together,
    /// Terms: vectors of these are read, and transposed.
    Along,
    Otherwise,
}

impl Product {
    /// The product of a kernel that so many threads share, if it is one.
    pub(super) fn of(features: &Features, threads: i64, target: &Target) -> Option<Product> {
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
            all: features.count(sum.closes) as i64,
            words: sum.packed > 1,
            // Of what stands alone the longer side is halved (`Product::shares`).
            whole: match features.count(rest) > 1.0 {
                true => [1, 1],
                false if extents[1] > extents[0] => [1, 2],
                false => [2, 1],
            },
            along: lies(rows, row) == Lies::Along,
        };
        let (mut cycles, mut tile) = match sum.tile {
            Some(unit) => (0.0, tile_of_units(extents, unit)),
            None => best_tile(extents, deep, lanes, 1, target, |_| true),
        };
        let mut most = GAIN * cycles;
        let mut turns = None;
        // Where loops are around, a panel has all terms: those of several turns may come from the second cache.
        let panel = features.extent[term] * term_bytes * lanes;
        let streamed = |n: i64| match n * panel > target.caches[0] as i64 {
            true => (n * target.vector_bytes as i64) as f64 / STREAMED,
            false => 0.0,
        };
        let reads_on = |k: &usize| columns.varies & !rows.varies >> k & 1 == 1;
        if let Some(k) = bits(rest).filter(reads_on).last() {
            // Threads that take parts of the loop take whole tiles.
            let extent = features.extent[k];
            let busy = |n: i64| cost::part(n, threads).map_or(1.0, |p| p.1);
            let fits = |n: &i64| extent % n == 0 && busy(extent / n) >= 0.95 * busy(extent);
            for n in (2..=VECTORS).filter(fits) {
                let (own, other) = best_tile(extents, deep, lanes, n, target, |_| true);
                let tiles = (other[0] * n) as f64;
                let own = own.max(own * streamed(n) / (tiles / 2.0).max(LATENCY));
                if own < most {
                    most = own;
                    cycles = own;
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
        // Columns that are no neighbours are put together once, for all rows.
        let neighbours = columns.stride[column].unsigned_abs() <= 1;
        let held = rows_and_columns * deep <= 4.0 * target.caches[0] as f64;
        let near = !made && divides && neighbours && held;
        let second = target.caches[1] as i64;
        // What is staged is worth its copy where enough tiles read it: two, where each would fetch it from beyond the second
        // cache again, or no tile of several rows divides them; words, where enough rows do.
        let above = match neighbours {
            _ if !divides => 2,
            true if columns.size > second / 2 => 2,
            true => NEAR_ABOVE,
            false => ABOVE,
        };
        let turned = sum.packed == 2 && lies(columns, column) == Lies::Along;
        let again = match (words, turned) {
            (true, true) => extents[0] >= HALVES,
            (true, false) => extents[0] >= WORDS,
            (false, _) => parts(extents[0], tile[0]) >= above,
        };
        let useful = |k: usize| {
            let padded = (extents[k] + tile[k] - 1) / tile[k] * tile[k];
            extents[k] as f64 / padded as f64
        };
        let terms = sum.tile.is_none_or(|[_, _, words]| {
            let n = features.extent[term];
            let padded = (n + words - 1) / words * words;
            n as f64 >= USEFUL_TERMS * padded as f64
        });
        let step = rows.stride[last].unsigned_abs();
        let least = if words || !divides {
            USEFUL_WORDS
        } else {
            USEFUL
        };
        (again && terms && !near && useful(0) * useful(1) >= least).then_some(Product {
            row,
            column,
            term,
            term_bytes,
            bytes: sum.bytes as i64,
            lanes,
            tile,
            unit: sum.tile,
            packed: sum.packed,
            turns,
            varies: rows.varies,
            others: bits(rest).filter(|&k| features.extent[k] > 1).collect(),
            made,
            scattered: rows.gate != 0 || step.saturating_mul(rows.bytes as u64) >= LINE,
            collide: cost::beside((step as i64).saturating_mul(rows.bytes as i64)) < TERMS,
            lies: [lies(rows, row), lies(columns, column)],
            far: columns.size > second,
            cycles: cycles * features.count(sum.closes) * features.count(rest),
        })
    }

    /// What varies with an axis that is padded is masked: no vectors of its terms are read.
    pub(super) fn mask(&mut self, axis: usize) {
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
}

/// The factor that varies with one of these axes and not with the other.
pub(crate) fn factor<'a>(
    features: &'a Features,
    sum: &Reduction,
    with: usize,
    without: usize,
) -> Option<&'a Access> {
    let varies = |a: &&Access| a.varies >> with & 1 == 1 && a.varies >> without & 1 == 0;
    let factors = |a: &&Access| !a.store && a.varies & sum.closes != 0;
    features.accesses.iter().find(|a| factors(a) && varies(a))
}
