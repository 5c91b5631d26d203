//! Products of a few rows with a matrix that lies along its results' columns, and that no near cache holds: a few of its
//! rows at a time are multiplied, and added to sums that the first cache holds, so that memory is read along rows. Flows
//! in: what a kernel does, as numbers, and the machine's; flows out: Opts, added to those chosen. Invariant: the parts of
//! a sum do not depend on the number of threads.
//!
//! Walking down a tile's columns instead, lines are a row away from each other, each in another page.

use super::along::in_order;
use super::cpu::{self, THREADED};
use super::product;
use super::product::nest::{is_term, sums_in_parts};
use super::tile::VECTORS;
use super::{Chosen, inner};
use crate::graph::bits;
use crate::opt::cost::BANDWIDTH;
use crate::opt::features::{Access, Features};
use monoglot_uop::{AxisType, Target};

/// Most rows of results, fewest terms, and fewest columns of a block.
const MOST: i64 = 16;
const LONG: i64 = 64;
const COLUMNS: i64 = 64;
/// Rows of the matrix that are multiplied at a time, half as many to twice as many: each time, all sums are read and written.
const ROWS: i64 = 8;
/// Most parts of a sum: each is added to a float of the sum's dtype, which loses more of each the more there are.
const PARTS: i64 = 256;
/// Most rows of a register tile, and vectors of its sums.
const ABOVE: i64 = 8;
const SUMS: i64 = 16;

/// Such a product.
struct Product {
    row: usize,
    column: usize,
    term: usize,
    /// Rows and columns of a register tile.
    tile: [i64; 2],
    /// Columns of a block, and rows of the matrix at a time.
    block: i64,
    part: i64,
    /// Cycles in which the matrix is read.
    cycles: f64,
}

/// Choose the loops of such a product; None, with nothing chosen, where the kernel is none.
pub(super) fn choose(features: &Features, chosen: &mut Chosen) -> Option<()> {
    let product = Product::of(features, chosen.target)?;
    let mut tried = chosen.fork();
    product.arrange(features, &mut tried)?;
    *chosen = tried;
    Some(())
}

impl Product {
    fn of(features: &Features, target: &Target) -> Option<Product> {
        let [sum] = &features.reductions[..] else {
            return None;
        };
        let term = bits(sum.closes).next().filter(|k| sum.closes == 1 << k)?;
        let column = bits(features.outer).last()?;
        let row = bits(features.outer)
            .next()
            .filter(|k| features.outer == 1 << k | 1 << column)?;
        let all = features.outer | sum.closes;
        let known = all & !features.known == 0 && sum.open == features.outer && row != column;
        let mut reads = features
            .accesses
            .iter()
            .filter(|a| !a.store && a.varies >> term & 1 == 1);
        let (Some(a), Some(b), None) = (reads.next(), reads.next(), reads.next()) else {
            return None;
        };
        let is_matrix = |a: &&Access| a.varies & all == 1 << column | 1 << term;
        let is_rows = |a: &&Access| a.varies & all == 1 << row | 1 << term;
        let matrix = [a, b].into_iter().find(is_matrix)?;
        let rows = [a, b].into_iter().find(is_rows)?;
        let [m, n, k] = [row, column, term].map(|k| features.extent[k]);
        let far = matrix.size > target.caches[1] as i64 && matrix.gate == 0 && rows.gate == 0;
        let along = matrix.stride[column] == 1 && matrix.stride[term] >= n;
        let mut stores = features.accesses.iter().filter(|a| a.store);
        let stored = stores.all(|a| a.stride[column] == 1);
        let plain =
            sum.products && sum.packed == 1 && sum.tile.is_none() && features.fills.is_empty();
        let few = (2..=MOST).contains(&m) && k >= LONG;
        if !(known && far && along && stored && plain && few) {
            return None;
        }
        // Panels of the matrix that several tiles read are put together once, and what is wider is made once.
        if m > ABOVE && (matrix.bytes < sum.bytes || product::cycles(features, target).is_finite())
        {
            return None;
        }
        let above = (1..=ABOVE).rfind(|d| m % d == 0)?;
        let lanes = (target.vector_bytes / sum.bytes.max(1)).max(1) as i64;
        let held = SUMS.min(target.registers as i64 / 2);
        // Half a vector is worth it where the matrix is read once.
        let wide = |c: i64| c >= lanes || above == m;
        let fit = |c: i64| (c + lanes - 1) / lanes * above <= held;
        let divides = |c: &i64| n % c == 0 && wide(*c) && fit(*c);
        let vectors = |of: i64| (1..=VECTORS * lanes / of).rev().map(move |v| v * of);
        let columns = vectors(lanes)
            .chain(vectors((lanes / 2).max(1)))
            .find(divides)?;
        let first = target.caches[0] as i64 / 2 / (m * sum.bytes as i64);
        let fits = |d: &i64| n % d == 0 && d % columns == 0 && n / d >= 2;
        let least = COLUMNS.min(first / 2).max(1);
        let blocks = || (least..=first).rev().filter(fits);
        let even = |d: &i64| n / d % target.threads as i64 == 0;
        let block = blocks().find(even).or_else(|| blocks().next())?;
        let fits = |part: &i64| k % part == 0 && k / part <= PARTS;
        let part = (ROWS / 2..=ROWS)
            .rev()
            .chain(ROWS + 1..=2 * ROWS)
            .find(fits)?;
        Some(Product {
            row,
            column,
            term,
            tile: [above, columns],
            block,
            part,
            cycles: matrix.size as f64 / BANDWIDTH,
        })
    }

    fn arrange(&self, features: &Features, chosen: &mut Chosen) -> Option<()> {
        let [rows, columns] = self.tile;
        let at = chosen.axis(self.column, AxisType::Loop)?;
        let block = inner(self.block, AxisType::Loop);
        chosen
            .add(block, at, "columns whose sums the first cache holds")
            .then_some(())?;
        let order = [self.column, self.row, self.column];
        in_order(0, &order, "blocks outermost", chosen);
        if chosen.target.threads > 1 && self.cycles >= THREADED {
            cpu::even_threads(&[self.column], None, self.cycles, chosen);
        }
        let outside = chosen.last_loop()?.checked_sub(1)?;
        let parts = features.extent[self.term] / self.part;
        let fill = sums_in_parts(outside, 2, 0, parts, chosen)?;
        in_order(fill, &[fill + 1, fill], "rows of a tile innermost", chosen);
        let vectors = inner(columns, AxisType::Upcast);
        chosen.add(vectors, fill + 3, "vectors of sums");
        chosen.add(inner(rows, AxisType::Upcast), fill + 1, "rows of a tile");
        chosen.add(vectors, fill, "columns of a tile");
        chosen.add(vectors, outside + 1, "vectors of results");
        let last = chosen.nest.axes.iter().rposition(is_term)?;
        chosen.add(
            inner(0, AxisType::Unroll),
            last,
            "rows of the matrix at once",
        );
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::opt::heuristic::explain;
    use crate::opt::tests::support::{check_on, flat_matmul, lowers, target};
    use monoglot_uop::{Opt, OptOp, UOp};

    /// The same parts for any number of threads; not where a near cache holds the matrix, where columns are no whole vectors,
    /// and where several tiles would read panels of it.
    #[test]
    fn few_rows_are_multiplied_by_a_matrix_along_its_rows() {
        let small = Target {
            vector_bytes: 32,
            caches: [8 << 10, 16 << 10, 128 << 10],
            ..target(false)
        };
        for ([m, n, k], parts) in [
            ([2, 512, 64], Some(8)),
            ([5, 512, 66], Some(11)),
            ([8, 256, 96], Some(12)),
            ([12, 256, 70], Some(10)),
            ([16, 256, 64], None),
            ([2, 500, 96], Some(12)),
            ([8, 250, 96], None),
            ([8, 256, 67], None),
            ([17, 512, 96], None),
            ([8, 32, 96], None),
        ] {
            let kernel = flat_matmul(m, n, k);
            for threads in [1, 3] {
                let target = Target {
                    threads,
                    ..small.clone()
                };
                let (choices, _) = explain(&kernel, &target);
                let opts: Vec<Opt> = choices.iter().map(|c| c.opt).collect();
                lowers(&check_on(&kernel, &opts, &target), false);
                let here = choices
                    .iter()
                    .any(|c| c.why == "rows of the matrix at once");
                let split = |o: &Opt| match o.op {
                    OptOp::Split {
                        factor,
                        target,
                        top: true,
                    } if target.is_reduce() => Some(factor),
                    _ => None,
                };
                let found = opts.iter().find_map(split).filter(|_| here);
                assert_eq!(found, parts, "{m} {n} {k}: {opts:?}");
            }
        }
        // A first cache that holds the sums of no column.
        let none = Target {
            caches: [16; 3],
            ..small
        };
        let kernel = flat_matmul(8, 256, 96);
        assert!(choose_here(&kernel, &none).is_none());
    }

    /// Sums of many parts would lose what each adds: of 8,192 terms, three times PyTorch's error.
    #[test]
    fn sums_of_many_parts_are_not_done_so() {
        for (terms, here) in [
            (2048, true),
            (4096, true),
            (4104, false),
            (1024, true),
            (8192, false),
        ] {
            let kernel = flat_matmul(8, 1024, terms);
            let wide = Target {
                caches: [32 << 10, 1 << 20, 32 << 20],
                ..target(false)
            };
            assert_eq!(choose_here(&kernel, &wide).is_some(), here, "{terms}");
        }
    }

    fn choose_here(kernel: &UOp, target: &Target) -> Option<()> {
        Product::of(&Features::of(kernel)?, target).map(|_| ())
    }
}
