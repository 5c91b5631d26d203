//! The register tile of a product: rows of one factor times vectors of the other, whose sums stay in registers. Flows
//! in: extents, terms and the machine's numbers; flows out: rows and columns of the tile of least cost. Invariant: sums,
//! and what is multiplied at a time, fit the registers.

use monoglot_uop::{Op, Target};

/// Most rows of a tile.
pub(super) const ROWS: i64 = 16;
/// Most vectors side by side in a tile.
pub(super) const VECTORS: i64 = 4;
/// Cycles from a fused multiply-add to one that needs its result, how many times as many the sums of a tile should take
/// (where they only just cover it, what comes late makes all of them late), and what a load costs beside those.
pub(super) const LATENCY: f64 = 4.0;
const SLACK: f64 = 1.05;
const BESIDE: f64 = 0.05;
/// Bytes of the vectors of which panels may be longer than the first cache.
const WIDE: usize = 64;
/// What a unit's product of tiles takes beside reading one.
const UNITS: i64 = 2;
/// Panels of them that the second cache could hold, for each element of a word.
const PARTS: i64 = 8;
/// Bytes that a tile reads from the second cache in a cycle.
pub(super) const STREAMED: f64 = 24.0;
/// What beginning and ending a part of a sum costs, in terms.
pub(super) const BORDER: f64 = 16.0;
/// Rows that are transposed at a time, cycles to copy an element of a panel with others, and by itself.
pub(super) const TURNED: i64 = 4;
const TOGETHER: f64 = 0.25;
const ONE_BY_ONE: f64 = 1.0;
/// What masks cost of columns that no whole tiles are, as a share.
const MASKED: f64 = 0.05;
/// Tiles beside each other for which the rows' factor is copied in any case.
pub(super) const OFTEN: i64 = 64;

/// The terms of a product's sum.
#[derive(Clone, Copy)]
pub(super) struct Terms {
    /// Bytes of a factor for each turn of the axis of the sum that is cut in parts.
    pub(super) bytes: i64,
    /// Terms of such a turn, and in all.
    pub(super) inner: i64,
    pub(super) all: i64,
    /// Whether they are dot products of words.
    pub(super) words: bool,
    /// Of how many tiles of rows, and of columns, there is a multiple.
    pub(super) whole: [i64; 2],
    /// Whether those of a row are neighbours: a panel is filled by transposing vectors of them, a few rows at a time.
    pub(super) along: bool,
}

/// Rows and columns of the tile of least cost, whether they divide the extents or not: what it adds in each
/// term, what it loads, what is past the ends, and how often it ends. Of rows there are so many as fit.
pub(super) fn register_tile(
    extents: [i64; 2],
    deep: Terms,
    lanes: i64,
    target: &Target,
    fits: impl Fn(i64) -> bool,
) -> [i64; 2] {
    best_tile(extents, deep, lanes, 1, target, fits).1
}

/// The same for tiles of so many turns of a loop around, with the cycles of one turn.
pub(super) fn best_tile(
    extents: [i64; 2],
    terms: Terms,
    lanes: i64,
    turns: i64,
    target: &Target,
    fits: impl Fn(i64) -> bool,
) -> (f64, [i64; 2]) {
    let mut best = (f64::INFINITY, [1, lanes]);
    let tiles = |k: usize, part: i64| {
        let each = part * terms.whole[k];
        parts(extents[k], each) * terms.whole[k]
    };
    for vectors in (turns..=VECTORS).step_by(turns as usize) {
        // Sums, a row of one factor and an element of the other are in registers, and a product that is not added at
        // once.
        let between = i64::from(terms.words || !target.native.contains(Op::MulAcc));
        let most = (target.registers as i64 - 1 - between - vectors) / vectors;
        let columns = vectors / turns * lanes;
        let turn = vectors * lanes * terms.bytes;
        let deep = (panel(target, terms.all, turn / terms.inner) / turn).max(1) * terms.inner;
        let masked = extents[1] % columns != 0;
        let ends = if masked { MASKED } else { 0.0 };
        for rows in (1..=most.min(ROWS)).filter(|rows| fits(*rows)) {
            // Tiles above each other read other rows, which come from the second cache.
            let others = if rows < extents[0] { rows } else { 0 };
            let bytes = (others * terms.bytes / terms.inner) as f64;
            let term = term(rows, vectors, bytes / STREAMED, 0.0, target);
            let tiles = (tiles(0, rows) * tiles(1, columns)) as f64;
            let padded = extents[0] % rows != 0;
            let copied = padded || terms.all > deep || extents[1] >= OFTEN * columns;
            let each = match terms.along && rows % TURNED != 0 {
                true => ONE_BY_ONE,
                false => TOGETHER,
            };
            let each = if copied { each } else { 0.0 };
            // Beside what is done with an element.
            let copies = each * (2 * lanes) as f64 / extents[1] as f64;
            let beside = (1.0 + ends + copies) * (1.0 + BORDER / deep as f64);
            let cycles = tiles / turns as f64 * term * beside;
            if cycles < best.0 {
                best = (cycles, [rows, columns]);
            }
        }
    }
    best
}

/// Rows and columns of a register tile of tiles of a unit: two of each at most, which leaves the unit registers for
/// what it multiplies.
pub(super) fn tile_of_units(extents: [i64; 2], [rows, columns, _]: [i64; 3]) -> [i64; 2] {
    let cost = |[above, beside]: &[i64; 2]| {
        let tiles = parts(extents[0], above * rows) * parts(extents[1], beside * columns);
        tiles * (UNITS * above * beside + above + beside)
    };
    let each = [[2, 2], [2, 1], [1, 2], [1, 1]];
    let best = each.into_iter().min_by_key(cost).unwrap_or([1, 1]);
    [best[0] * rows, best[1] * columns]
}

/// Cycles of a term of a tile whose rows, and whose vectors, take so many to come from where they are: elements of
/// rows while others are loaded, vectors ahead of their use.
fn term(rows: i64, vectors: i64, fetched: f64, streamed: f64, target: &Target) -> f64 {
    let added = issued(rows, vectors, fetched);
    added.max(SLACK * LATENCY).max(streamed) + beside(rows, vectors, target)
}

/// The same where sums need not be waited for.
pub(super) fn term_ahead(rows: i64, vectors: i64, target: &Target) -> f64 {
    issued(rows, vectors, 0.0) + beside(rows, vectors, target)
}

/// Cycles in which a term of a tile is loaded and added.
fn issued(rows: i64, vectors: i64, fetched: f64) -> f64 {
    let added = (rows * vectors) as f64 / 2.0;
    added.max((rows + vectors) as f64 / 2.0 + fetched)
}

/// What loads cost beside what is added: those of elements that are no operands of this. There are no more of both than
/// sums, vectors counted twice (`native/src/allocate/embed.rs`).
fn beside(rows: i64, vectors: i64, target: &Target) -> f64 {
    let loads = rows + vectors;
    if target.arch != "x86-64-v4" {
        return BESIDE * loads as f64;
    }
    let more = (rows * vectors - loads - vectors).max(0);
    let operands = match vectors {
        1 => rows,
        n => rows.min(more / (n - 1)),
    };
    BESIDE * (loads - operands) as f64
}

/// The tile of least cost among those of this many rows at least that have so many columns at most, with the cycles of a
/// term of all tiles: those that divide both extents, or, where turns may be done again, are no longer. Its vectors, and
/// the bytes of lines in which a term of so many rows lies, come from the second cache where half of the first does not
/// hold those of so many terms; for each term, so many cycles go to find the page that it lies in.
pub(super) fn whole_tile(
    extents: [i64; 2],
    terms: f64,
    lanes: i64,
    [fewest_rows, most_columns]: [i64; 2],
    again: bool,
    (lines, walked): (impl Fn(i64) -> f64, f64),
    target: &Target,
) -> Option<(f64, [i64; 2])> {
    let mut best: Option<(f64, [i64; 2])> = None;
    let fits = |n: i64, part: i64, again: bool| n % part == 0 || again && part < n;
    // Some number of vectors divides what one does.
    let odd = again && extents[1] % lanes != 0;
    let beside = |v: &i64| fits(extents[1], v * lanes, odd) && v * lanes <= most_columns;
    for vectors in (1..=VECTORS).filter(beside) {
        // Sums, a row of one factor, an element of the other, and a product that is not added at once.
        let between = i64::from(!target.native.contains(Op::MulAcc));
        let held = (target.registers as i64 - 1 - between - vectors) / vectors;
        let most = held.min(fewest_rows.max(ROWS));
        let all = (most + 1..=held).filter(|r| *r == extents[0]);
        for rows in (fewest_rows..=most).chain(all) {
            if !fits(extents[0], rows, again) {
                continue;
            }
            let tiles = parts(extents[0], rows) * parts(extents[1], vectors * lanes);
            let bytes = (vectors * target.vector_bytes as i64) as f64 + lines(rows);
            let streamed = match terms * bytes > target.caches[0] as f64 / 2.0 {
                true => bytes / STREAMED,
                false => 0.0,
            };
            let cycles = tiles as f64 * (term(rows, vectors, 0.0, streamed, target) + walked);
            if best.is_none_or(|b| cycles < b.0) {
                best = Some((cycles, [rows, vectors * lanes]));
            }
        }
    }
    best
}

/// How many parts of an extent there are, the last of which may be past its end, or begin in the one before.
pub(super) fn parts(extent: i64, part: i64) -> i64 {
    (extent + part - 1) / part
}

/// Bytes of the columns' factor that are staged for a tile, for a part of a sum: three quarters of the first cache. Rows and
/// sums go through the rest, and where a core has two threads the other one has some of it: of a panel that fills it a
/// part comes from the second cache each time.
pub(super) fn panel_of_part(target: &Target) -> i64 {
    target.caches[0] as i64 * 3 / 4
}

/// The same of so many terms in all of so many bytes each: that all of it comes from the second cache, ahead of its use, costs less
/// than keeping the sums of two parts. So it is measured with vectors of 64 bytes; with shorter ones what fills the first
/// cache takes a twentieth longer already.
pub(super) fn panel(target: &Target, all: i64, term: i64) -> i64 {
    let first = target.caches[0] as i64;
    let most = if target.vector_bytes >= WIDE {
        2 * first
    } else {
        first
    };
    match all * term <= most {
        true => most,
        false => panel_of_part(target),
    }
}

/// The same for a tile of a unit's tiles, in a part of the second cache: they add so much in a cycle that sums in longer
/// parts, which are kept less often, are worth more than a first cache. There are as many terms whatever a word holds of
/// these: each lies in another page, and of so many is known where they are.
pub(super) fn panel_of_units(target: &Target, packed: i64) -> i64 {
    target.caches[1] as i64 / (PARTS * packed)
}
