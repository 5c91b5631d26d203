//! Which REDUCE a unit of tiles does. Flows in: a kernel's nodes and how indices change along the axes; flows out: the
//! REDUCE with its factors, and which axes are the rows, columns and terms of a tile. Invariant: the factors are read
//! from storage in which tiles lie whole.
//!
//! # The form
//!
//! ```text
//! REDUCE(ADD, WMMA(LOAD(a + 16·m + k), LOAD(b + 16·k + n), 0), …, k)      k < 16, n < 16, m < 16·M
//! ```
//!
//! m are the rows, n the columns and k the terms of tiles. Along other axes there are other tiles; those that the REDUCE
//! closes are added to the same sums.

use super::table::{Steps, Table};
use monoglot_uop::{Arg, Op, ReduceOp, TcInfo};

/// A REDUCE that a unit of tiles does.
pub(super) struct Tiled {
    pub(super) reduce: usize,
    pub(super) unit: TcInfo,
    /// The factor with rows, and that with columns.
    pub(super) factors: [Factor; 2],
    /// The axes of rows, columns and terms of a tile.
    pub(super) axes: [usize; 3],
}

/// Where a factor is read: storage, and the element of it.
#[derive(Clone, Copy)]
pub(super) struct Factor {
    pub(super) storage: usize,
    pub(super) index: usize,
}

impl Factor {
    /// What a LOAD without a gate reads, behind what only shapes it.
    fn of(t: &Table, mut i: usize) -> Option<Factor> {
        while matches!(t.nodes[i].op(), Op::Expand | Op::Reshape) {
            i = *t.src[i].first()? as usize;
        }
        let [address] = t.src[i][..] else { return None };
        let [storage, index] = t.src[address as usize][..] else {
            return None;
        };
        let reads = t.nodes[i].op() == Op::Load && t.nodes[address as usize].op() == Op::Index;
        reads.then_some(Factor {
            storage: storage as usize,
            index: index as usize,
        })
    }
}

/// The one REDUCE of a kernel that a unit of tiles does: all of its registers are that one's.
pub(super) fn tiled(t: &Table, steps: &[Steps]) -> Option<Tiled> {
    let mut all = (0..t.len()).filter_map(|i| Tiled::of(t, steps, i));
    all.next().filter(|_| all.next().is_none())
}

impl Tiled {
    fn of(t: &Table, steps: &[Steps], reduce: usize) -> Option<Tiled> {
        let Arg::Reduce(ReduceOp::Add, closed) = t.nodes[reduce].arg() else {
            return None;
        };
        let product = t.src[reduce][0] as usize;
        let Arg::Wmma(unit) = t.nodes[product].arg() else {
            return None;
        };
        let [_, size, terms] = unit.tile()?;
        let added = &t.nodes[t.src[product][2] as usize];
        if !added.const_value().is_some_and(|v| v.is_zero()) {
            return None;
        }
        if (t.groups.values()).any(|g| g.len() > 1 && g.contains(&(reduce as u32))) {
            return None;
        }
        let first = Factor::of(t, t.src[product][0] as usize)?;
        let second = Factor::of(t, t.src[product][1] as usize)?;
        let [of_first, of_second] = unit.dtypes_in;
        let orders = [
            ([first, second], [of_first, of_second]),
            ([second, first], [of_second, of_first]),
        ];
        orders.into_iter().find_map(|([a, b], dtypes)| {
            let step = |f: Factor, k: usize| match t.dims[f.index][k] {
                1 => Some(0),
                _ => steps[f.index][k],
            };
            let extent = |k: usize| i64::from(t.dims[product][k]);
            let find = |of_a: i64, of_b: i64, fits: &dyn Fn(usize) -> bool| {
                let found =
                    |k: &usize| step(a, *k) == Some(of_a) && step(b, *k) == Some(of_b) && fits(*k);
                (0..t.rank).find(found)
            };
            let is_closed = |k: usize| closed.contains(&(k as u8));
            let row = find(size, 0, &|k| extent(k) % size == 0 && !is_closed(k))?;
            let column = find(0, 1, &|k| extent(k) == size && !is_closed(k))?;
            let term = find(1, size, &|k| extent(k) == terms && is_closed(k))?;
            Some(Tiled {
                reduce,
                unit: TcInfo::tiles(&unit.name, dtypes, unit.dtype_out),
                factors: [a, b],
                axes: [row, column, term],
            })
        })
    }

    /// The axis whose elements are lanes of the sums.
    pub(super) fn column(&self) -> usize {
        self.axes[1]
    }

    /// Whether a node is the REDUCE.
    pub(super) fn is(&self, i: usize) -> bool {
        self.reduce == i
    }

    /// The indices at which tiles are read.
    pub(super) fn indices(&self) -> [usize; 2] {
        self.factors.map(|f| f.index)
    }
}
