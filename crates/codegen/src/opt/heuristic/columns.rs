//! Sums along an axis that is not the innermost: a few rows at a time are added to the sums of all columns
//! that the first cache holds, so that memory is read along rows. Flows in: what a kernel does, as numbers,
//! and the machine's; flows out: Opts, added to those chosen. Invariant: the parts of a sum do not depend on
//! the number of threads.
//!
//! Walking down a few columns instead, lines are a row away from each other, and nothing fetches them ahead.

use super::cpu::{THREADED, threads};
use super::{Chosen, inner, keep, outermost};
use crate::graph::bits;
use crate::opt::cost::{BANDWIDTH, chunks};
use crate::opt::features::{Access, Features};
use crate::opt::staging;
use monoglot_uop::{AxisType, Op, OptOp, Target};

/// Rows that are added at a time, and fewest of these: each time, all sums are read and written, and a read of a row waits
/// for a write before it whose address ends in the same bits.
const ROWS: i64 = 8;
const FEWEST: i64 = 4;
/// Fewest rows of a sum, fewest columns, and fewest of these in a vector.
const LONG: i64 = 32;
const COLUMNS: i64 = 256;
const NARROWEST: i64 = 4;
/// Most vectors that are added at once where no whole ones divide all columns, and by how much worse these may be filled.
const VECTORS: i64 = 8;
const NEARLY: f64 = 1.15;

/// Choose the loops of sums of columns; None, with nothing chosen, where the kernel is none.
pub(super) fn choose(features: &Features, chosen: &mut Chosen) -> Option<()> {
    let ([row, column], cycles) = sums(features, chosen.target)?;
    let mut at = chosen.axis(column, AxisType::Loop)?;
    let columns = together(features, column, chosen.target)?;
    if columns == features.extent[column] {
        at = at.checked_sub(1)?;
    } else {
        let columns = inner(columns, AxisType::Loop);
        let held = chosen.add(columns, at, "columns whose sums the first cache holds");
        held.then_some(())?;
    }
    let nodes = chosen.nest.kernel().toposort();
    let mut operands = staging::operands(&nodes).into_iter();
    let operand = operands.position(|u| u.op() == Op::Reduce)?;
    chosen.add(keep(operand), at, "sums in parts");
    // Behind the loop that reads the sums stand the one that fills them, and the rows.
    let [read, fill, rows] = [at + 1, at + 2, at + 3];
    let of = features.extent[row];
    let mut few = (1..=ROWS).rfind(|few| of % few == 0)?;
    let multiple = ROWS;
    if few < FEWEST && chosen.add(OptOp::PadTo { multiple }, rows, "whole parts") {
        few = ROWS;
    }
    if few > 1 {
        let parts = outermost((of + few - 1) / few, AxisType::Reduce);
        chosen.add(parts, rows, "parts of a few rows");
    }
    chosen.add(OptOp::Swap { with: fill }, rows, "around columns");
    let [own, set, rows] = [fill + 1, fill + 2, fill + 3];
    if few > 1 {
        let few = chosen.axis(rows, AxisType::Reduce)?;
        chosen.add(inner(0, AxisType::Unroll), few, "rows at once");
    }
    let several = vectors(columns, lanes(features, chosen.target))?;
    for of in [read, own, set] {
        if let Some(at) = chosen.axis(of, AxisType::Loop) {
            chosen.add(inner(several, AxisType::Upcast), at, "vectors of columns");
        }
    }
    if chosen.target.threads > 1 && cycles >= THREADED {
        let around: Vec<usize> = bits(features.outer).collect();
        threads(&around, cycles, chosen);
    }
    Some(())
}

/// The axes of rows and columns of a sum that reads each element once, and cycles in which all are read.
fn sums(features: &Features, target: &Target) -> Option<([usize; 2], f64)> {
    let [sum] = &features.reductions[..] else {
        return None;
    };
    let row = bits(sum.closes).next().filter(|k| sum.closes == 1 << k)?;
    let column = bits(features.outer).last()?;
    let known = features.known >> row & features.known >> column & 1 == 1;
    let mut stores = features.accesses.iter().filter(|a| a.store);
    let [n, rows] = [features.extent[column], features.extent[row]];
    let inside = sum.open == features.outer && stores.all(|a| a.stride[column] == 1);
    let long = rows >= LONG && n >= COLUMNS;
    // One read is of an element for each term of each sum, along rows; others are of a row or a column.
    let whole = |a: &&Access| !a.store && a.varies >> row & a.varies >> column & 1 == 1;
    let mut reads = features.accesses.iter().filter(whole);
    let read = reads.next().filter(|_| reads.next().is_none())?;
    let far = read.stride[column] == 1 && read.stride[row] >= n && read.gate == 0;
    let once = features.outer & !read.varies == 0;
    let beyond = read.size > target.caches[1] as i64;
    let all = known && inside && long && far && once && beyond;
    all.then_some(([row, column], read.size as f64 / BANDWIDTH))
}

/// How many columns are done together: their sums are held in eight bytes. There is a loop around them, which
/// threads share.
fn together(features: &Features, column: usize, target: &Target) -> Option<i64> {
    let n = features.extent[column];
    let lanes = lanes(features, target);
    let around = features.count(features.outer & !(1 << column)) as i64;
    let parts = match around {
        1 => 2.max(target.threads as i64),
        _ => 1,
    };
    let most = (target.caches[0] as i64 / 2 / 8).min(n / parts);
    let fits = |c: &i64| n % c == 0 && vectors(*c, lanes).is_some();
    (COLUMNS / 2..=most).rev().find(fits)
}

/// Elements of a vector.
fn lanes(features: &Features, target: &Target) -> i64 {
    (target.vector_bytes / features.reductions[0].bytes.max(1)).max(1) as i64
}

/// How many columns are added at once: the fewest that fill vectors nearly as well as any number of them that divides all;
/// None where most of a vector would be empty.
fn vectors(columns: i64, lanes: i64) -> Option<i64> {
    let taken = |f: i64| chunks(f, lanes as usize) / f as f64;
    let several = (1..=VECTORS * lanes).filter(|f| columns % f == 0);
    let least = several.clone().map(taken).fold(f64::INFINITY, f64::min);
    let most = (NEARLY * least).min(1.0 / NARROWEST as f64);
    several.into_iter().find(|f| taken(*f) <= most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::opt::heuristic::choose;
    use crate::opt::tests::support::{check_on, linear, lowers, param, ranges, sink, target};
    use monoglot_uop::{DType, ReduceOp, UOp};

    /// A vector of k elements times each of several matrices.
    fn sums(matrices: &[i64], n: i64, k: i64) -> UOp {
        let r = ranges(&[matrices, &[n]].concat(), &[k]);
        let count: i64 = matrices.iter().product();
        let outer = &r[..matrices.len() + 1];
        let rows = &r[matrices.len() + 1..];
        let a = param(1, &[k], DType::F32).at(rows);
        let place = |width: i64| {
            let mut terms = vec![(&outer[matrices.len()], 1)];
            terms.extend(outer[..matrices.len()].iter().map(|r| (r, width * n)));
            terms
        };
        let mut read = place(k);
        read.push((&rows[0], n));
        let b = param(2, &[count * k * n], DType::F32).at(&[linear(&read)]);
        let out = param(0, &[count * n], DType::F32).at(&[linear(&place(1))]);
        let sum = (a * b).reduce_ranges(ReduceOp::Add, rows);
        sink(&[out.store(&sum).end(outer)])
    }

    /// The same parts for any number of threads; what other results read again is no sum of columns.
    #[test]
    fn sums_of_columns_are_done_a_few_rows_at_a_time() {
        let small = Target {
            vector_bytes: 32,
            caches: [8 << 10, 16 << 10, 128 << 10],
            ..target(false)
        };
        for (kernel, parts) in [
            (sums(&[], 1024, 160), Some(20)),
            (sums(&[], 1536, 128), Some(16)),
            (sums(&[], 1024, 161), Some(23)),
            (sums(&[], 512, 160), Some(20)),
            (sums(&[], 514, 160), None),
            (sums(&[], 1024, 31), None),
            (sums(&[3], 260, 40), Some(5)),
            (sums(&[2], 256, 37), Some(5)),
            (sums(&[], 1024, 166), Some(21)),
            (sums(&[2], 1024, 160), Some(20)),
        ] {
            for threads in [1, 3] {
                let target = Target {
                    threads,
                    ..small.clone()
                };
                let opts = choose(&kernel, &target);
                lowers(&check_on(&kernel, &opts, &target), false);
                let terms = |o: &monoglot_uop::Opt| match o.op {
                    OptOp::Split {
                        factor,
                        target,
                        top: true,
                    } if target.is_reduce() => Some(factor),
                    _ => None,
                };
                let found = opts.iter().find_map(terms);
                assert_eq!(found, parts, "{opts:?}");
            }
        }
    }
}
