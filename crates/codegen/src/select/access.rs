//! LOADs and STOREs of shaped values. Flows in: addresses whose index is known along every axis;
//! flows out: vector accesses where the lanes are neighbours in memory, one scalar access where they
//! are one place, scalar accesses elsewhere. Invariant: a gate that varies over the lanes is a vector
//! of bools on a vector access, and a lane's own gate on scalar ones.
//!
//! Where lanes lie apart and another axis of the value has neighbours, vectors along that one are read or
//! written, and transposed.

use super::chunks::{Devectorise, broken};
use super::table::Axes;
use super::transpose::{by_turns, transpose, turns};
use crate::build::{NEAR, alu, cast, lane, lane_const, shuffle, splat, uniform};
use crate::graph::{group, node};
use monoglot_uop::{AddrSpace, DType, Op, Result, UOp};

/// Of an index, the share past the ends of a storage that costs little: a load of no lanes from a page that is not there
/// takes a hundred times as long as others.
const PAST: i64 = 256;

/// One chunk of an access: so many lanes from a place.
#[derive(Clone)]
struct ChunkAccess<'a> {
    d: &'a Devectorise<'a>,
    storage: &'a UOp,
    index: usize,
    gate: Option<usize>,
    /// The gate, where it is that of one lane of another chunk.
    of_lane: Option<UOp>,
    start: Axes<u32>,
    axis: Option<usize>,
    lanes: usize,
    /// By how much the index grows from lane to lane, where it is a sum.
    step: Option<i64>,
    is_load: bool,
}

impl ChunkAccess<'_> {
    fn place(&self, lane: usize) -> Axes<u32> {
        let mut s = self.start.clone();
        if let Some(k) = self.axis {
            s[k] += lane as u32;
        }
        s
    }

    fn index(&self, lane: usize) -> UOp {
        self.d.index_at(self.index, &self.place(lane))
    }

    /// How far it begins from where the value does.
    fn offset(&self) -> i64 {
        let steps = self.d.layout.steps[self.index].iter();
        let along = steps.zip(&self.start);
        along.map(|(k, &at)| k.unwrap_or(0) * at as i64).sum()
    }

    /// The address of all lanes from one of them.
    fn vector(&self, first: usize) -> UOp {
        if self.lanes == 1 {
            return self.scalar(0);
        }
        let at = node(Op::Stack, [self.index(first)]);
        let size = node(Op::Stack, [lane_const(self.lanes)]);
        node(Op::Shrink, [self.storage.clone(), at, size])
    }

    fn scalar(&self, lane: usize) -> UOp {
        self.storage.at(&[self.index(lane)])
    }

    /// Whether all lanes from one lie in the storage whatever the gate: by interval (`proved`), or as
    /// far as is known.
    fn within(&self, first: usize, proved: bool) -> bool {
        let size = self.storage.shape()[0].max();
        let (lo, hi) = self.index(first).bounds();
        !proved && lo != hi || lo >= 0 && hi <= size - self.lanes as i64
    }

    /// What keeps an address in its storage where its interval no longer says so: what proved it may have
    /// been lowered to ops that say less.
    fn guard(&self, address: &UOp) -> Option<UOp> {
        let index = if address.op() == Op::Index {
            &address.src()[1]
        } else {
            &address.src()[1].src()[0]
        };
        let end = self.storage.shape()[0].max() - address.shape().max_len() + 1;
        let (lo, hi) = index.bounds();
        if lo >= 0 && hi < end {
            return None;
        }
        let below = |a: &UOp, b: &UOp| alu(Op::CmpLt, &[a.clone(), b.clone()]);
        let from_the_start = below(&index.like(-1), index);
        let to_the_end = below(index, &index.like(end));
        Some(alu(Op::And, &[from_the_start, to_the_end]))
    }

    /// The gate of all lanes; None where it is true.
    fn gate(&self) -> Option<UOp> {
        if self.of_lane.is_some() {
            return self.of_lane.clone();
        }
        let g = self.gate?;
        let data = &self.d.data[g];
        let chunk = match data.len() {
            0 => return Some(self.d.index_at(g, &self.start)),
            1 => &data[0],
            _ => &data[self.d.chunk_at(&self.d.t.dims[g], &self.start)],
        };
        match uniform(chunk) {
            Some(v) if v.truthy() => None,
            Some(_) => Some(UOp::bool(false)),
            None => Some(chunk.clone()),
        }
    }

    /// The gate of one lane; None where it is true.
    fn lane_gate(&self, k: usize) -> Option<UOp> {
        let g = self.gate?;
        let gate = if self.d.layout.demand[g].index {
            self.d.index_at(g, &self.place(k))
        } else {
            lane(&self.gate()?, k)
        };
        (!gate.is_bool(true)).then_some(gate)
    }

    fn load(&self, address: UOp, alt: Option<&UOp>, gate: Option<UOp>) -> UOp {
        match (alt, gate) {
            (Some(alt), Some(gate)) if gate.is_bool(false) => self.wide(alt),
            (Some(alt), Some(gate)) => {
                if address.shape().is_empty() {
                    return node(Op::Load, [address, lane(alt, 0), gate]);
                }
                let address = match alike(&gate) {
                    Some(holds) => here(&address, &holds),
                    None => address,
                };
                node(Op::Load, [address, self.wide(alt), gate])
            }
            _ => match self.guard(&address) {
                Some(gate) => {
                    let zero = UOp::constant(address.dtype().zero(), address.dtype());
                    let alt = splat(&zero, address.shape().max_len() as usize);
                    node(Op::Load, [address, alt, gate])
                }
                None => node(Op::Load, [address]),
            },
        }
    }

    fn wide(&self, x: &UOp) -> UOp {
        if x.shape().is_empty() {
            splat(x, self.lanes)
        } else {
            x.clone()
        }
    }

    /// The value of a LOAD.
    fn read(&self, alt: Option<&UOp>) -> UOp {
        let n = self.lanes;
        if n == 1 {
            return self.load(self.scalar(0), alt, self.gate());
        }
        if self.step == Some(2)
            && let Some(value) = self.every_other(alt)
        {
            return value;
        }
        let same = self.step == Some(0);
        let backward = self.step == Some(-1);
        let first = if backward { n - 1 } else { 0 };
        if !matches!(self.step, Some(-1..=1)) || !same && !self.within(first, false) {
            return self.read_lanes(alt);
        }
        let gate = self.gate();
        let varies = gate.as_ref().is_some_and(|g| !g.shape().is_empty());
        let single = ChunkAccess {
            lanes: 1,
            ..self.clone()
        };
        let proved = varies
            && match same {
                true => single.within(0, true),
                false => self.within(first, true),
            };
        if varies && !proved && (same || backward) {
            return self.read_lanes(alt);
        }
        // What may be read anyway is read, and its gate chooses.
        let (before, after) = if varies && proved {
            (None, gate)
        } else {
            (gate, None)
        };
        let value = if same {
            splat(&single.load(self.scalar(0), alt, before), n)
        } else if backward {
            let order = node(Op::Stack, (0..n).rev().map(lane_const));
            self.load(self.vector(first), alt, before).at(&[order])
        } else {
            self.load(self.vector(0), alt, before)
        };
        match (after, alt) {
            (Some(gate), Some(alt)) => alu(Op::Where, &[gate, value, alt.clone()]),
            _ => value,
        }
    }

    /// Lanes two places apart: every other one of the vector that begins with the first of them and of the one
    /// that ends with the last. None where each lane has a gate of its own, or another value where it is shut.
    fn every_other(&self, alt: Option<&UOp>) -> Option<UOp> {
        if let Some(value) = self.by_pairs().or_else(|| self.behind_pairs()) {
            return Some(value);
        }
        let n = self.lanes;
        let gate = self.gate();
        let axis = self.axis?;
        let by_lane = self.gate.is_some_and(|g| self.d.t.dims[g][axis] > 1);
        let same = |alt: &UOp| alt.shape().is_empty() || uniform(alt).is_some();
        if n < 4 || by_lane || gate.is_some() && !alt.is_none_or(same) {
            return None;
        }
        let index = self.index(0);
        let size = self.storage.shape()[0].max();
        let (lo, hi) = index.bounds();
        if lo == hi && (lo < 0 || hi + 2 * n as i64 - 1 > size) {
            return None;
        }
        let vector = |offset: usize| self.load(self.beside(&index, offset), alt, gate.clone());
        let pick = |k: usize| match 2 * k < n {
            true => (0, 2 * k),
            false => (1, 2 * k - (n - 1)),
        };
        let picks: Vec<(usize, usize)> = (0..n).map(pick).collect();
        Some(shuffle(&[vector(0), vector(n - 1)], &picks))
    }

    /// The address of as many lanes from so many places behind an index.
    fn beside(&self, index: &UOp, offset: usize) -> UOp {
        let at = alu(Op::Add, &[index.clone(), index.like(offset as i64)]);
        let sizes = [at, lane_const(self.lanes)].map(|u| node(Op::Stack, [u]));
        node(Op::Shrink, [self.storage.clone()].into_iter().chain(sizes))
    }

    /// An axis that has what lies between lanes two places apart, and how far from its first of two this chunk is.
    fn between(&self) -> Option<(usize, u32)> {
        let dims = &self.d.t.dims[self.index];
        let steps = &self.d.layout.steps[self.index];
        let other = |k: &usize| Some(*k) != self.axis && dims[*k] > 1 && steps[*k] == Some(1);
        let axis = (0..dims.len()).find(other)?;
        let odd = self.start[axis] % 2;
        let pair = odd == 1 || self.start[axis] + 1 < dims[axis];
        (pair && self.step == Some(2) && self.gate.is_none()).then_some((axis, odd))
    }

    /// Lanes two places apart, where another axis has what lies between them: the even, or odd, lanes of two vectors
    /// that both read. They are taken within groups of neighbours first, and then these are put in order.
    fn by_pairs(&self) -> Option<UOp> {
        let n = self.lanes;
        let near = NEAR / self.storage.dtype().bytes();
        let (axis, odd) = self.between()?;
        if near < 2 {
            return None;
        }
        let mut first = self.clone();
        first.start[axis] -= odd;
        let odd = odd as usize;
        let index = first.index(0);
        let both = [0, n].map(|offset| self.load(self.beside(&index, offset), None, None));
        if n <= near {
            let pick = |k: usize| ((2 * k + odd) / n, (2 * k + odd) % n);
            return Some(shuffle(&both, &(0..n).map(pick).collect::<Vec<_>>()));
        }
        let half = near / 2;
        let pick = |k: usize| (k % near / half, k / near * near + k % half * 2 + odd);
        let taken = shuffle(&both, &(0..n).map(pick).collect::<Vec<_>>());
        let place = |k: usize| {
            let at = k % (n / 2);
            (0, at / half * near + k / (n / 2) * half + at % half)
        };
        Some(shuffle(&[taken], &(0..n).map(place).collect::<Vec<_>>()))
    }

    /// Lanes two places apart of the kernel's own storage, where another axis has what lies between those before: but for
    /// the last they lie in the vectors that hold these. Vectors that begin with the first would lie across those that
    /// were written, and be waited for.
    fn behind_pairs(&self) -> Option<UOp> {
        let n = self.lanes;
        let own = self.storage.addrspace() == Some(AddrSpace::Local);
        let dims = &self.d.t.dims[self.index];
        let steps = &self.d.layout.steps[self.index];
        let third = |k: &usize| steps[*k] == Some(1) && self.start[*k] == 2 && dims[*k] == 3;
        let axis = (0..dims.len()).find(third).filter(|_| own && n >= 4)?;
        if self.gate.is_some() || self.axis == Some(axis) {
            return None;
        }
        let mut first = self.clone();
        first.start[axis] = 0;
        let index = first.index(0);
        let both = [0, n].map(|offset| self.load(self.beside(&index, offset), None, None));
        let pick = |k: usize| ((2 * k + 2) / n % 2, (2 * k + 2) % n);
        let most = shuffle(&both, &(0..n).map(pick).collect::<Vec<_>>());
        let last = splat(&self.load(self.scalar(n - 1), None, None), n);
        let place = |k: usize| if k + 1 < n { (0, k) } else { (1, k) };
        Some(shuffle(
            &[most, last],
            &(0..n).map(place).collect::<Vec<_>>(),
        ))
    }

    /// The chunk, of those after this one in a STORE, whose lanes lie between those of this one.
    fn other_of_pair(&self, dims: &[u32]) -> Option<usize> {
        let (axis, odd) = self.between()?;
        let registers = self.storage.addrspace() == Some(AddrSpace::Reg);
        let apart = NEAR / self.storage.dtype().bytes() < 2;
        if odd == 1 || registers || apart || self.lanes == 1 {
            return None;
        }
        let mut start = self.start.clone();
        start[axis] += 1;
        Some(self.d.chunk_at(dims, &start))
    }

    /// The STOREs of two values, of this chunk and of the one whose lanes lie between: they are put together within
    /// groups of neighbours first, and then these are put in order.
    fn write_pair(&self, values: &[UOp; 2], out: &mut Vec<UOp>) {
        let n = self.lanes;
        let near = (NEAR / self.storage.dtype().bytes()).min(n);
        let turned = [false, true].map(|high| shuffle(values, &by_turns(high, n, near)));
        let groups = n / near;
        let index = self.index(0);
        for part in 0..2 {
            // Of the groups of both, by turns, this half.
            let place = |k: usize| {
                let group = part * groups + k / near;
                (group % 2, group / 2 * near + k % near)
            };
            let value = match groups {
                1 => turned[part].clone(),
                _ => shuffle(&turned, &(0..n).map(place).collect::<Vec<_>>()),
            };
            let address = self.beside(&index, part * n);
            let guard = self.guard(&address);
            out.push(node(Op::Store, [address, value].into_iter().chain(guard)));
        }
    }

    /// An axis along which the chunks from this one on are neighbours where its lanes are not; of those that are
    /// read or written together the first in memory, and where each of them stands. An element is so many bytes
    /// where it is moved.
    fn across(&self, dims: &[u32], bytes: usize) -> Option<(usize, Self, Vec<usize>)> {
        let two = |s: i64| self.is_load && s == 2;
        let near = self.step.is_some_and(|s| (-1..=1).contains(&s) || two(s));
        let registers = self.storage.addrspace() == Some(AddrSpace::Reg);
        if near || registers || self.lanes == 1 {
            return None;
        }
        let steps = &self.d.layout.steps[self.index];
        let back = |k: usize| steps[k] == Some(-1);
        let alike = |k: usize| self.gate.is_none_or(|g| self.d.t.dims[g][k] == 1);
        let beside = |k: usize| alike(k) && (steps[k] == Some(1) || back(k) && self.gate.is_none());
        let along = |k: &usize| Some(*k) != self.axis && dims[*k] > 1 && beside(*k);
        let axis = (0..dims.len()).find(along)?;
        let most = self.d.target.vector_bytes / bytes.max(1);
        let all = dims[axis] as usize;
        let left = all - self.start[axis] as usize;
        // Those that are left over go together with some before them, once more: what is written twice is the same.
        let whole = left.next_power_of_two().min(most);
        let n = (0..).map(|p| whole >> p).find(|n| *n <= all)?;
        let begin = (self.start[axis] as usize).min(all - n);
        let start = |j: usize| {
            let mut start = self.start.clone();
            start[axis] = (begin + if back(axis) { n - 1 - j } else { j }) as u32;
            start
        };
        let place = |j: usize| self.d.chunk_at(dims, &start(j));
        let first = ChunkAccess {
            start: start(0),
            ..self.clone()
        };
        let mut rows = (0..self.lanes).map(|lane| first.along(axis, n, lane));
        let fits = match self.gate {
            None => !back(axis) || first.along(axis, n, 0).within(0, false),
            Some(_) => rows.all(|row| row.within(0, false)),
        };
        let fits = fits && turns(n, self.lanes, bytes);
        fits.then(|| (axis, first, (0..n).map(place).collect()))
    }

    /// The chunk of `n` neighbours in memory along an axis, from a lane of this one, whose gate holds for all of them.
    fn along(&self, axis: usize, n: usize, lane: usize) -> Self {
        ChunkAccess {
            gate: None,
            of_lane: self.lane_gate(lane),
            start: self.place(lane),
            axis: Some(axis),
            lanes: n,
            step: Some(1),
            ..self.clone()
        }
    }

    /// Lanes at places of data, each with its gate: where that does not hold, an element that is there is read and not
    /// used, so that no lane waits for its gate. None where the places are not lanes of one value.
    fn gather(&self, alt: Option<&UOp>) -> Option<UOp> {
        let alt = self.wide(alt?);
        let gate = self.gate().filter(|g| !g.shape().is_empty())?;
        let first = self.index(0);
        let places = first.src().first().filter(|_| first.op() == Op::Index)?;
        let own = (0..self.lanes).all(|k| self.index(k) == lane(places, k));
        let last = self.storage.shape()[0].as_int()? - 1;
        let known = self.d.target.native.contains(Op::Max) && own;
        if !known || !(0..i32::MAX.into()).contains(&last) {
            return None;
        }
        let near = narrowed(places);
        let above = |x: &UOp| alu(Op::Max, &[x.clone(), x.like(0)]);
        let before = |x: &UOp| alu(Op::Sub, &[x.like(last), x.clone()]);
        // The lesser of it and the last place is as far before that as what is not negative.
        let near = before(&above(&before(&above(&near))));
        let read = |k: usize| node(Op::Load, [self.storage.at(&[lane(&near, k)])]);
        let values = node(Op::Stack, (0..self.lanes).map(read));
        Some(alu(Op::Where, &[gate, values, alt]))
    }

    fn read_lanes(&self, alt: Option<&UOp>) -> UOp {
        if let Some(values) = self.gather(alt) {
            return values;
        }
        let single = ChunkAccess {
            lanes: 1,
            ..self.clone()
        };
        let one = |k: usize| {
            let alt = alt.map(|a| lane(a, k));
            single.load(self.scalar(k), alt.as_ref(), self.lane_gate(k))
        };
        node(Op::Stack, (0..self.lanes).map(one))
    }

    /// The STOREs of a value.
    fn write(&self, value: &UOp, out: &mut Vec<UOp>) {
        let n = self.lanes;
        let mut put = |address: UOp, value: UOp, gate: Option<UOp>| {
            if !gate.as_ref().is_some_and(|g| g.is_bool(false)) {
                let gate = gate.or_else(|| self.guard(&address));
                out.push(node(Op::Store, [address, value].into_iter().chain(gate)));
            }
        };
        if n == 1 || self.step == Some(1) && self.within(0, false) {
            return put(self.vector(0), self.wide(value), self.gate());
        }
        for k in 0..n {
            put(self.scalar(k), lane(value, k), self.lane_gate(k));
        }
    }
}

impl Devectorise<'_> {
    /// The chunks of the access of a LOAD or STORE whose value has these extents.
    fn accesses(&self, i: usize, dims: &[u32]) -> Result<Vec<ChunkAccess<'_>>> {
        let src = &self.t.src[i];
        let address = &self.t.src[src[0] as usize];
        let storage = |of: u32| self.effect[of as usize].as_ref();
        let (Some(storage), &[_, index]) =
            (address.first().and_then(|&u| storage(u)), &address[..])
        else {
            return Err(broken("an address that is not one index into storage"));
        };
        let index = index as usize;
        let gate = src.get(2).map(|&g| g as usize);
        let axis = self.lane_axis(dims);
        let step = axis.and_then(|k| self.layout.steps[index][k]);
        let chunk = |(start, lanes)| ChunkAccess {
            d: self,
            storage,
            index,
            gate,
            of_lane: None,
            start,
            axis,
            lanes,
            step,
            is_load: self.t.nodes[i].op() == Op::Load,
        };
        Ok(self.each_chunk(dims).into_iter().map(chunk).collect())
    }

    /// The value of a LOAD, or of a CAST of one to wider elements: those are transposed as they are read.
    pub(super) fn load(&self, i: usize, wider: Option<&UOp>) -> Result<Vec<UOp>> {
        let dims = &self.t.dims[i];
        let bytes = wider.unwrap_or(&self.t.nodes[i]).dtype().bytes();
        let cast = |u: UOp| wider.map_or(u.clone(), |w| w.with_src(vec![u]));
        let alt = |p: usize| self.t.src[i].get(1).map(|&a| self.operand(a as usize, p));
        let chunks = self.accesses(i, dims)?;
        let mut out: Vec<Option<UOp>> = vec![None; chunks.len()];
        for (p, chunk) in chunks.iter().enumerate() {
            if out[p].is_some() {
                continue;
            }
            // Where a gate is shut, rows are of one number, and columns as well.
            let closed = alt(p).map(|a| uniform(&a).map(|v| UOp::constant(v, a.dtype())));
            let turned = chunk.across(dims, bytes).filter(|_| closed != Some(None));
            let Some((axis, first, places)) = turned else {
                out[p] = Some(cast(chunk.read(alt(p).as_ref())));
                continue;
            };
            let n = places.len();
            let closed = closed.flatten();
            let row = |lane| first.along(axis, n, lane).read(closed.as_ref());
            let rows = (0..chunk.lanes).map(|lane| cast(row(lane)));
            for (q, value) in places.into_iter().zip(transpose(rows.collect())) {
                out[q].get_or_insert(value);
            }
        }
        Ok(out.into_iter().flatten().collect())
    }

    pub(super) fn store(&self, i: usize) -> Result<UOp> {
        let src = &self.t.src[i];
        let dims = &self.t.dims[src[0] as usize];
        let value = |p: usize| self.operand(src[1] as usize, p);
        let chunks = self.accesses(i, dims)?;
        let mut out = Vec::with_capacity(chunks.len());
        let mut done = vec![false; chunks.len()];
        let mut turned = Vec::new();
        let mut columns = Vec::new();
        for (p, chunk) in chunks.iter().enumerate() {
            if done[p] {
                continue;
            }
            let bytes = chunk.storage.dtype().bytes();
            let Some((axis, first, places)) = chunk.across(dims, bytes) else {
                let before = out.len();
                if let Some(q) = chunk.other_of_pair(dims) {
                    let values = [p, q].map(|p| chunk.wide(&value(p)));
                    chunk.write_pair(&values, &mut out);
                    turned.extend((before..out.len()).map(|k| (chunk.offset(), k)));
                    done[q] = true;
                    continue;
                }
                chunk.write(&value(p), &mut out);
                let column = chunk.axis.map_or(0, |k| chunk.start[k]);
                columns.extend((before..out.len()).map(|k| (column, k)));
                continue;
            };
            let rows = places.iter().map(|&q| chunk.wide(&value(q)));
            for (lane, value) in transpose(rows.collect()).iter().enumerate() {
                let row = first.along(axis, places.len(), lane);
                let before = out.len();
                row.write(value, &mut out);
                turned.extend((before..out.len()).map(|k| (row.offset(), k)));
            }
            places.into_iter().for_each(|q| done[q] = true);
        }
        let near = |c: &ChunkAccess| c.storage.addrspace() == Some(AddrSpace::Local);
        if chunks.iter().all(near) {
            // What is transposed at once is written at once: it has registers until then.
            if columns.len() == out.len() {
                columns.sort();
                out = columns.into_iter().map(|(_, k)| out[k].clone()).collect();
            }
        } else if turned.len() == out.len() {
            // Neighbours in memory come one after the other: a line is written whole before the next one is begun.
            turned.sort();
            out = turned.into_iter().map(|(_, k)| out[k].clone()).collect();
        }
        Ok(group(out))
    }
}

/// The low 32 bits of an integer, out of those of what it is made of.
fn narrowed(x: &UOp) -> UOp {
    let wraps = matches!(x.op(), Op::Add | Op::Sub | Op::Mul);
    match x.op() {
        _ if x.dtype() == DType::I32 => x.clone(),
        Op::Cast if x.src()[0].dtype() == DType::I32 => x.src()[0].clone(),
        _ if wraps => {
            let narrow: Vec<UOp> = x.src().iter().map(narrowed).collect();
            alu(x.op(), &narrow)
        }
        _ => cast(x, DType::I32),
    }
}

/// What must hold for all lanes of a gate alike; None where each has a gate of its own.
fn alike(gate: &UOp) -> Option<UOp> {
    match gate.op() {
        Op::And => {
            let parts = gate.src().iter().filter_map(alike);
            parts.reduce(|a, b| alu(Op::And, &[a, b]))
        }
        _ => monoglot_uop::linear::splat(gate).cloned(),
    }
}

/// The address of a vector, or the storage's first where a condition does not hold and many would be past the ends.
fn here(address: &UOp, holds: &UOp) -> UOp {
    let [storage, at, size] = address.src() else {
        return address.clone();
    };
    let index = &at.src()[0];
    let all = storage.shape()[0].max();
    let (lo, hi) = index.bounds();
    let past = lo.saturating_neg().max(hi.saturating_sub(all));
    if past < all / PAST || all < address.shape().max_len() {
        return address.clone();
    }
    let index = alu(Op::Where, &[holds.clone(), index.clone(), index.like(0)]);
    let at = node(Op::Stack, [index]);
    node(Op::Shrink, [storage.clone(), at, size.clone()])
}
