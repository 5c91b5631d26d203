//! Sums of products on a unit of tiles. Flows in: a REDUCE that the unit does (`tiled`); flows out: tiles of sums in REG
//! storage, to which the unit adds in the loop; behind it they are written to LOCAL storage, from which the sums are
//! read as vectors. Invariant: a sum is what the REDUCE says, its terms added tile by tile.

use super::chunks::{Devectorise, broken};
use super::table::Axes;
use super::tiled::{Factor, Tiled};
use crate::build::{lane_const, splat};
use crate::graph::{Srcs, group, node};
use monoglot_uop::{AddrSpace, Arg, DType, Op, Result, Shape, UOp};
use smallvec::smallvec;
use std::sync::Arc;

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
