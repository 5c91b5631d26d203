//! Into how many blocks, and parts, a product is cut. Flows in: a product, its extents and the machine's caches; flows out:
//! blocks of rows and of columns, parts of the sum, runs of terms. Invariant: parts do not depend on the number of threads.

use super::super::tile::{BORDER, panel, panel_of_units};
use super::factors::{FEW, LINE, Lies, Product};
use crate::meanwhile::AT_ONCE;
use monoglot_uop::Target;

/// Most terms of sums for which writing these takes time beside adding: of more, a line has a hundred cycles and more on
/// its way.
const WRITTEN: i64 = 256;
/// Tiles that cost as much as staging what they read.
pub(super) const FILLED: i64 = 2;
/// Panels of tiles beside each other that the second cache could hold: what is above them needs it more.
const BESIDE: i64 = 8;
/// What masks cost where an extent is padded, as a share.
const MASKS: f64 = 0.01;

/// What is done at a time.
pub(super) struct Block {
    pub(super) rows: Blocks,
    pub(super) columns: Blocks,
    /// The rows of a block, so many for which their factor is staged.
    pub(super) within: Blocks,
}

/// An extent as so many blocks of so many.
#[derive(Clone, Copy)]
pub(super) struct Blocks {
    pub(super) count: i64,
    pub(super) of: i64,
}

/// Into how many blocks an extent is divided: at least so many, a multiple of the threads that share them.
#[derive(Clone, Copy)]
pub(super) struct Share {
    pub(super) fewest: i64,
    pub(super) threads: i64,
}

impl Share {
    pub(super) const WHOLE: Share = Share {
        fewest: 1,
        threads: 1,
    };
}

impl Product {
    /// How many blocks of rows and of columns there are at least, and threads that divide them: where nothing else
    /// is around a block, two at least of the longer: each stages the other's factor again. Where threads cannot divide
    /// what is around, they divide the rows.
    pub(super) fn shares(&self, extent: impl Fn(usize) -> i64, threads: i64) -> [Share; 2] {
        let alone = self.others.is_empty();
        let fewest = if alone { 2 } else { 1 };
        let divided = Share { fewest, threads };
        match alone && extent(self.column) > extent(self.row) {
            true => [Share::WHOLE, divided],
            false => [divided, Share::WHOLE],
        }
    }

    /// Blocks of sums that each tile stores. Where tiles beside each other are innermost, there are so many columns as half
    /// of the second cache holds the factor of, which each row of tiles reads again.
    pub(super) fn stored(
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
    pub(super) fn stores_far(
        &self,
        terms: i64,
        extent: impl Fn(usize) -> i64,
        target: &Target,
    ) -> bool {
        let sums = extent(self.row).saturating_mul(extent(self.column)) * self.bytes;
        let far = terms <= WRITTEN && sums > target.caches[1] as i64;
        far && self.others.is_empty() && self.unit.is_none()
    }

    /// Blocks of sums that are kept between parts of so many terms.
    pub(super) fn kept(
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
    /// A panel that is filled a term at a time needs as many turns as there are terms, shared by so many tiles, whose runs ask
    /// for few of them at once.
    pub(super) fn run(&self, terms: i64, tiles: i64) -> Option<i64> {
        let most = match self.lies[1] {
            Lies::Together => {
                let turns = AT_ONCE * LINE as i64 / (self.tile[1] * self.bytes);
                (tiles * turns / 2)
                    .max(FEW)
                    .min(tiles * turns)
                    .min(4 * self.lanes)
            }
            _ => self.lanes,
        };
        let plain = self.far && self.unit.is_none() && self.term_bytes == self.bytes;
        let several = |run: &i64| *run >= FEW && terms % run == 0 && terms >= 4 * run;
        let mut runs = [8, 4, 2, 1].map(|k| k * self.lanes / 2).into_iter();
        let run = runs.find(|run| *run <= most && several(run));
        run.filter(|_| plain)
    }

    /// Register tiles of a unit whose columns are staged at once: what is read of a row of their factor is then more than a
    /// line. Where the columns of a whole block are, one.
    pub(super) fn panels(&self, terms: i64, block: &Block, target: &Target) -> i64 {
        let columns = self.tile[1];
        let bytes = columns * terms * self.term_bytes;
        let fits = |n: &i64| {
            let few = n * bytes <= target.caches[1] as i64 / BESIDE;
            few && block.columns.of % (n * columns) == 0 && block.columns.of > n * columns
        };
        let several = self.unit.is_some() && block.within.count == 1;
        let most = [4, 2].into_iter().filter(|_| several).find(fits);
        most.unwrap_or(1)
    }

    /// Bytes of the columns' factor that are staged for a tile, of so many terms in all: where loops are around, sums are not
    /// kept.
    pub(super) fn panel(&self, all: i64, target: &Target) -> i64 {
        match self.others.is_empty() {
            true if self.unit.is_some() => panel_of_units(target, self.packed),
            true => panel(target, all, self.tile[1] * self.bytes),
            false => target.caches[1] as i64 / 4,
        }
    }
}

/// An axis of a sum in parts of at most so many turns, a multiple of `step`, of `each` terms: as few turns more as
/// there are, in as few parts.
pub(super) fn in_parts(terms: i64, most: i64, step: i64, each: i64) -> Blocks {
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
