//! Sums of products of words on a unit of tiles. Flows in: a REDUCE of a WMMA whose factors are read from storage in
//! which tiles lie whole; flows out: tiles of sums in REG storage, to which the unit adds in the loop; behind it they
//! are written to LOCAL storage, from which the sums are read as vectors. Invariant: what is no such REDUCE is none
//! of this file's, and written out elsewhere (`dot`).
//!
//! # The form
//!
//! ```text
//! REDUCE(ADD, WMMA(LOAD(a + 16·m + k), LOAD(b + 16·k + n), 0), …, k)      k < 16, n < 16, m < 16·M
//! ```
//!
//! m are the rows, n the columns and k the terms of tiles. Along other axes there are other tiles; those that the REDUCE
//! closes are added to the same sums.

use super::chunks::{Devectorise, broken};
use super::layout::Steps;
use super::table::{Axes, Table};
use crate::build::{lane_const, splat};
use crate::graph::{Srcs, group, node};
use monoglot_uop::{AddrSpace, Arg, DType, Op, ReduceOp, Result, Shape, TcInfo, UOp};
use smallvec::smallvec;
use std::sync::Arc;

/// A REDUCE that a unit of tiles does.
pub(super) struct Tiled {
    reduce: usize,
    unit: TcInfo,
    /// The factor with rows, and that with columns.
    factors: [Factor; 2],
    /// The axes of rows, columns and terms of a tile.
    axes: [usize; 3],
}

/// Where a factor is read: storage, and the element of it.
#[derive(Clone, Copy)]
struct Factor {
    storage: usize,
    index: usize,
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

/// Where tiles begin of a value of these extents, which has so many elements of one along each axis; row-major.
fn begins(dims: &[u32], of_one: &[u32]) -> Vec<Axes<u32>> {
    let mut places: Vec<Axes<u32>> = vec![smallvec![0; dims.len()]];
    for (k, (&extent, &step)) in dims.iter().zip(of_one).enumerate() {
        let along = |place: &Axes<u32>| {
            let starts = (0..extent).step_by(step as usize);
            let place = place.clone();
            starts.map(move |at| {
                let mut place = place.clone();
                place[k] = at;
                place
            })
        };
        places = places.iter().flat_map(along).collect();
    }
    places
}

/// So many elements of storage from a place.
fn part(storage: &UOp, at: UOp, n: i64) -> UOp {
    let sizes = [at, lane_const(n as usize)].map(|u| node(Op::Stack, [u]));
    node(Op::Shrink, [storage.clone()].into_iter().chain(sizes))
}

fn number(n: i64) -> UOp {
    UOp::int(n, DType::I32)
}

/// The vector that a register holds.
fn first(register: &UOp) -> UOp {
    register.at(&[number(0)])
}

impl Devectorise<'_> {
    /// The sums of a REDUCE that the unit of tiles does.
    pub(super) fn reduce_tiles(&mut self, tiled: &Tiled) -> Result<()> {
        let t = self.t;
        let i = tiled.reduce;
        let product = t.src[i][0] as usize;
        let [row, column, _] = tiled.axes;
        let mut of_one: Axes<u32> = smallvec![1; t.rank];
        for (axis, n) in tiled
            .axes
            .into_iter()
            .zip(tiled.unit.tile().unwrap_or_default())
        {
            of_one[axis] = n as u32;
        }
        let size = i64::from(of_one[row] * of_one[column]);
        let sums = begins(&t.dims[i], &of_one);
        let mut storage = |space: AddrSpace, dims: &[i64]| {
            self.slot += 1;
            UOp::scratch(self.slot - 1, &Shape::of(dims), tiled.unit.dtype_out, space)
        };
        let registers = sums.iter().map(|_| storage(AddrSpace::Reg, &[1, size]));
        let registers: Vec<UOp> = registers.collect();
        let kept = storage(AddrSpace::Local, &[size * sums.len() as i64]);

        let closed = t.src[i][1..].iter();
        let mut ranges: Vec<UOp> = closed.map(|&r| t.nodes[r as usize].clone()).collect();
        ranges.sort_by_key(crate::loops::depth);
        let outer: Vec<UOp> = t.open(t.loops[i]).cloned().collect();
        let dtype = tiled.unit.dtype_out;
        let zero = splat(&UOp::constant(dtype.zero(), dtype), size as usize);
        let place = |register: &UOp| {
            let set = first(&register.after(&outer)).store(&zero);
            first(&register.after(&[&[set], &ranges[..]].concat()))
        };
        let places: Vec<UOp> = registers.iter().map(place).collect();
        let held = |place: &UOp| node(Op::Load, [place.clone()]);
        let mut acc: Vec<UOp> = places.iter().map(held).collect();
        for begin in begins(&t.dims[product], &of_one) {
            let added =
                |sum: &Axes<u32>| (0..t.rank).all(|k| t.dims[i][k] == 1 || sum[k] == begin[k]);
            let Some(sum) = sums.iter().position(added) else {
                continue;
            };
            let [a, b] = tiled.factors;
            let src: Srcs = smallvec![
                self.tile_at(a, &begin, size)?,
                self.tile_at(b, &begin, size)?,
                acc[sum].clone(),
            ];
            acc[sum] = UOp::new(Op::Wmma, src, Arg::Wmma(Arc::new(tiled.unit.clone())));
        }
        let stores = places.iter().zip(&acc).map(|(place, sum)| place.store(sum));
        let body = group(stores.collect());
        let end = |body: UOp, r: &UOp| body.end(std::slice::from_ref(r));
        let done = [ranges.iter().rev().fold(body, end)];

        let written = registers.iter().enumerate().map(|(k, register)| {
            let to = part(&kept, number(k as i64 * size), size);
            to.store(&held(&first(&register.after(&done))))
        });
        let filled = kept.after(&[group(written.collect())]);
        let value = |(start, lanes): (Axes<u32>, usize)| {
            let begin: Axes<u32> = (start.iter().zip(&of_one))
                .map(|(at, n)| at / n * n)
                .collect();
            let tile = sums.iter().position(|sum| *sum == begin).unwrap_or(0) as i64;
            let inside = (start[row] - begin[row]) * of_one[column] + start[column] - begin[column];
            let at = number(tile * size + i64::from(inside));
            let address = match lanes {
                1 => filled.at(&[at]),
                n => part(&filled, at, n as i64),
            };
            node(Op::Load, [address])
        };
        self.data[i] = self.each_chunk(&t.dims[i]).into_iter().map(value).collect();
        Ok(())
    }

    /// The tile of a factor that begins at a place.
    fn tile_at(&self, f: Factor, begin: &[u32], size: i64) -> Result<UOp> {
        let Some(storage) = &self.effect[f.storage] else {
            return Err(broken("a tile of no storage"));
        };
        let dims = &self.t.dims[f.index];
        let place: Axes<u32> = (begin.iter().zip(dims))
            .map(|(&at, &n)| at.min(n - 1))
            .collect();
        Ok(node(
            Op::Load,
            [part(storage, self.index_at(f.index, &place), size)],
        ))
    }
}
