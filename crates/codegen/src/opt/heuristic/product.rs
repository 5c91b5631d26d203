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
//! is, unless its columns are apart there. Sums of few terms that no second cache holds are stored by tiles beside each other innermost, and of the
//! columns' factor half of the second cache is staged for all rows. A panel is filled as its factor lies: a term at a
//! time, or vectors of terms that are transposed; parts are then whole vectors.
//!
//! Where columns are few (a row of an image), a tile may have those of several turns of a loop around: each element of
//! the rows' factor is then used for more of them.
//!
//! Where the columns' factor is beyond the second cache and tiles fill their panels one after the other, the terms go in
//! runs, between which lines of the next panel are asked for.
//!
//! A unit's product stages the columns of a few tiles at once: of a row of their factor lines are read whole, and several
//! beside each other.
//!
//! What does not divide is padded: what is staged past an end is zero, so the innermost loops have no masks.

mod blocks;
pub(super) mod factors;
pub(super) mod nest;

use self::blocks::{Block, Blocks, FILLED, in_parts};
use self::factors::{Lies, Product};
use self::nest::{Nest, is_term, main_sum, unroll};
use super::tile::OFTEN;
use super::{Chosen, cpu, inner, keep, outermost};
use crate::opt::cost::part;
use crate::opt::features::Features;
use crate::opt::staging;
use monoglot_uop::{AxisType, Op, OptOp, Target, UOp};

/// Fewest tiles beside each other for which the rows' factor is staged.
const ASIDE: i64 = 4;

/// One term past the end is worth reading for so many before it.
const PAST: i64 = 8;

/// Choose the loops of a blocked product, which threads share as this plan's; None, with nothing chosen, where it is
/// none.
pub(super) fn choose(features: &Features, plan: &cpu::Plan, chosen: &mut Chosen) -> Option<()> {
    let shared = plan.shared();
    let threads = shared.map_or(1, |_| chosen.target.threads as i64);
    let product = Product::of(features, threads, chosen.target)?;
    let mut fork = chosen.fork();
    arrange(product, features, shared, &mut fork)?;
    *chosen = fork;
    Some(())
}

/// How many terms are read together where they lie next to each other: as many as a vector has lanes, or a part of that
/// where too many past the end would be staged, and multiplied, with them.
fn squares(terms: i64, lanes: i64) -> i64 {
    let past = |step: i64| (step - terms % step) % step;
    let halved = |step: &i64| Some(step / 2);
    let mut tried = std::iter::successors(Some(lanes), halved);
    tried.find(|&step| past(step) * PAST <= terms).unwrap_or(1)
}

/// Estimated cycles of one thread for the tiles of a blocked product; infinite where it is none.
pub(super) fn cycles(features: &Features, target: &Target) -> f64 {
    Product::of(features, 1, target).map_or(f64::INFINITY, |p| p.cycles)
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
    let threads = target.threads as i64;
    let mut around = product.others.iter();
    let alone = around.all(|k| part(extent(*k), threads).is_none());
    let threads = if shared.is_some() && alone {
        threads
    } else {
        1
    };
    let shares = product.shares(extent, threads);

    let each = product.term_bytes / product.bytes;
    let panel = product.panel(terms * each, target);
    let most = panel / (tile_columns * product.term_bytes);
    let step = match (
        product.unit,
        each == 1 && product.lies.contains(&Lies::Along),
    ) {
        (Some([_, _, words]), _) => words,
        (None, true) => squares(terms, product.lanes),
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
    let panels = product.panels(parts.of, &blocks, target);
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
        cpu::even_threads(&order, product.turns, cycles, chosen);
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
        1 => Nest::whole(rows_at, panels, &product, chosen),
        n => Nest::in_parts(rows_at, n, panels, &product, blocks.within, chosen)?,
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
