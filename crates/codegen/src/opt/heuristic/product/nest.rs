//! The loops of a product's blocks. Flows in: a product, its blocks, and the Opts chosen so far; flows out: register tiles,
//! sums that are kept, panels of the factors, added to those. Invariant: a loop that fills storage stands before those
//! that read it.

use super::super::tile::TURNED;
use super::super::{Chosen, inner, keep, outermost};
use super::blocks::Blocks;
use super::factors::{FEW, Lies, Product};
use crate::opt::nest::Axis;
use crate::opt::staging;
use monoglot_uop::{AxisType, Op, OptOp, UOp};

/// The loops around the register tiles of a block, by their places.
pub(super) struct Nest {
    /// Where the rows' factor is staged: around all of its tiles.
    around: Option<usize>,
    /// How often all columns are done with that.
    pub(super) again: i64,
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
    pub(super) fn whole(rows: usize, panels: i64, product: &Product, chosen: &mut Chosen) -> Nest {
        above(rows, chosen);
        let (units, gone) = tiles(rows, panels, product, chosen);
        let rows = rows - gone;
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
    pub(super) fn along_rows(rows: usize, product: &Product, chosen: &mut Chosen) -> Nest {
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
    pub(super) fn in_parts(
        rows: usize,
        parts: i64,
        panels: i64,
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
        let (units, gone) = tiles(columns_at, panels, product, chosen);
        let vectors = inner(product.tile[1], AxisType::Upcast);
        for columns in [rows + 1, fill + 4] {
            let at = chosen.axis(columns, AxisType::Loop)?;
            chosen.add(vectors, at, "vectors of sums");
        }
        let term = chosen.nest.axes.iter().rposition(is_term);
        terms_of_unit(term, product, chosen);
        Some(Nest {
            around: Some(columns_at - 1 - gone),
            again: 1,
            // What blocks of rows read again is staged once for all.
            beside: Some(if within.count > 1 { fill } else { block } - gone),
            columns: places(fill + 2, chosen),
            units: chosen.last_loop().filter(|_| units),
            along_rows: false,
        })
    }

    /// The columns' factor in the order in which a tile reads it, and that of the rows as well.
    pub(super) fn panels(&self, rows: bool, product: &Product, chosen: &mut Chosen) {
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
            goes_on: None,
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
            let together = self.units.filter(|_| columns_lie == Lies::Together);
            let goes_on = together.map(|unit| {
                let around = self.columns.iter().filter(|c| (at + 1..unit).contains(*c));
                around.count()
            });
            let columns_of = Panel {
                goes_on,
                ..columns_of
            };
            stage(chosen, at, "columns of a tile", columns_of, of_columns);
        }
        let mut rows_of = Panel {
            lies: rows_lie,
            lanes,
            last: None,
            goes_on: None,
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
            let [_, columns] = product.tile;
            let few = product.unit.map_or(0, |[_, unit, _]| columns / unit);
            chosen.add(inner(few, AxisType::Upcast), at, why);
        }
    }
}

/// Keep the sums that so many loops make, from this place on, and do them in parts: the axes of the sum before one
/// are parts, and of that one so many. The place of the first loop that fills the sums.
pub(crate) fn sums_in_parts(
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
/// beside each other, and how many loops before that place are gone.
fn tiles(at: usize, panels: i64, product: &Product, chosen: &mut Chosen) -> (bool, usize) {
    let [rows, columns] = product.tile;
    chosen.add(inner(rows, AxisType::Upcast), at + 1, "rows of a tile");
    // An element of the rows is used for all that is beside it before the next one.
    let mut gone = 0;
    if let Some((k, n)) = product.turns
        && let Some(around) = chosen.axis(k, AxisType::Loop)
    {
        gone = usize::from(chosen.nest.axes[around].extent() == Some(n));
        chosen.add(inner(n, AxisType::Upcast), around, "turns of a tile");
    }
    let at = at - gone;
    let Some([_, unit, _]) = product.unit else {
        chosen.add(inner(columns, AxisType::Upcast), at, "columns of a tile");
        return (false, gone);
    };
    let several = chosen.nest.axes[at].extent() != Some(columns) && columns > unit;
    // Those of each tile of the unit lie together: the loop over these is there until they are staged.
    chosen.add(
        inner(unit, AxisType::Upcast),
        at,
        "columns of a unit's tile",
    );
    let beside = inner(panels * columns / unit, AxisType::Loop);
    (
        several && chosen.add(beside, at, "a unit's tiles beside each other"),
        gone,
    )
}

/// Where a unit multiplies tiles, the terms of one are innermost.
fn terms_of_unit(term: Option<usize>, product: &Product, chosen: &mut Chosen) {
    if let (Some(at), Some([_, _, words])) = (term, product.unit) {
        let why = "terms of a unit's tile";
        chosen.add(inner(words, AxisType::Reduce), at, why);
    }
}

pub(crate) fn is_term(a: &Axis) -> bool {
    a.kind() == AxisType::Reduce
}

/// Unroll the innermost loop over terms where it is short and has others around it, unless the terms would be lanes.
pub(crate) fn unroll(chosen: &mut Chosen) {
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
    /// Which of the loops that fill it goes on where a vector ends: all of its turns are read at once, line by line.
    goes_on: Option<usize>,
}

/// Stage the first read inside the sum that is one of these, and fill its storage with vectors, in the order in
/// which it lies.
fn stage(
    chosen: &mut Chosen,
    at: usize,
    why: &'static str,
    panel: Panel,
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
    let Panel {
        lies, lanes, last, ..
    } = panel;
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
    if let Some(goes_on) = panel.goes_on {
        let why = "what shares lines, at once";
        chosen.add(inner(0, AxisType::Upcast), before + 1 + goes_on, why);
    }
}

/// Of the sums of a kernel the one that varies with most axes.
pub(super) fn main_sum(nodes: &[UOp]) -> Option<UOp> {
    let sums = nodes.iter().filter(|u| u.op() == Op::Reduce);
    sums.max_by_key(|u| u.ranges().len()).cloned()
}
