//! LOADs and STOREs of shaped values. Flows in: addresses whose index is known along every axis;
//! flows out: vector accesses where the lanes are neighbours in memory, one scalar access where they
//! are one place, scalar accesses elsewhere. Invariant: a gate that varies over the lanes is a vector
//! of bools on a vector access, and a lane's own gate on scalar ones.

use super::build::{alu, lane, lane_const, splat, uniform};
use super::lanes::Plan;
use super::pieces::{Devectorise, broken};
use super::table::Axes;
use crate::graph::{group, node, node_of};
use monoglot_uop::{Op, Result, UOp};

/// How the lanes of an access lie in memory.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Lie {
    /// One after the other.
    Forward,
    /// One before the other.
    Backward,
    /// In one place.
    Same,
    /// Anywhere.
    Apart,
}

/// How lanes along an axis lie, by the steps of their index.
pub(super) fn lie(plan: &Plan, index: usize, axis: Option<usize>) -> Lie {
    match axis.map(|k| plan.steps[index][k]) {
        Some(Some(1)) => Lie::Forward,
        Some(Some(-1)) => Lie::Backward,
        Some(Some(0)) => Lie::Same,
        _ => Lie::Apart,
    }
}

/// One piece of an access: so many lanes from a place.
struct Piece<'a> {
    d: &'a Devectorise<'a>,
    storage: &'a UOp,
    index: usize,
    gate: Option<usize>,
    start: &'a [u32],
    axis: Option<usize>,
    lanes: usize,
}

impl Piece<'_> {
    fn place(&self, lane: usize) -> Axes<u32> {
        let mut s: Axes<u32> = self.start.into();
        if let Some(k) = self.axis {
            s[k] += lane as u32;
        }
        s
    }

    fn index(&self, lane: usize) -> UOp {
        self.d.index_at(self.index, &self.place(lane))
    }

    /// The address of all lanes from one of them.
    fn vector(&self, first: usize) -> UOp {
        match self.lanes {
            1 => self.scalar(0),
            n => {
                let (from, lanes) = (node(Op::Stack, [self.index(first)]), node(Op::Stack, [lane_const(n)]));
                node(Op::Shrink, [self.storage.clone(), from, lanes])
            }
        }
    }

    fn scalar(&self, lane: usize) -> UOp {
        self.storage.at(&[self.index(lane)])
    }

    /// Whether all lanes from one lie in the storage whatever the gate: by interval (`proved`), or as
    /// far as is known.
    fn within(&self, first: usize, proved: bool) -> bool {
        let size = self.storage.shape()[0].max();
        let (lo, hi) = self.index(first).bounds();
        match proved {
            true => lo >= 0 && hi <= size - self.lanes as i64,
            false => lo != hi || lo >= 0 && hi + self.lanes as i64 <= size,
        }
    }

    /// The gate of all lanes; None where it is true.
    fn gate(&self) -> Option<UOp> {
        let g = self.gate?;
        let data = &self.d.data[g];
        let piece = match data.len() {
            0 => return Some(self.d.index_at(g, self.start)),
            1 => &data[0],
            _ => &data[self.d.piece_at(&self.d.t.dims[g], self.start)],
        };
        match uniform(piece) {
            Some(v) if v.truthy() => None,
            Some(_) => Some(UOp::bool(false)),
            None => Some(piece.clone()),
        }
    }

    /// The gate of one lane; None where it is true.
    fn lane_gate(&self, k: usize) -> Option<UOp> {
        let g = self.gate?;
        let gate = match self.d.plan.demand[g].index {
            true => self.d.index_at(g, &self.place(k)),
            false => lane(&self.gate()?, k),
        };
        (!gate.is_bool(true)).then_some(gate)
    }

    fn load(&self, address: UOp, alt: Option<&UOp>, gate: Option<UOp>) -> UOp {
        match (alt, gate) {
            (Some(alt), Some(gate)) if gate.is_bool(false) => self.wide(alt),
            (Some(alt), Some(gate)) => {
                let alt = if address.shape().is_empty() { lane(alt, 0) } else { self.wide(alt) };
                node(Op::Load, [address, alt, gate])
            }
            _ => node(Op::Load, [address]),
        }
    }

    fn wide(&self, x: &UOp) -> UOp {
        if x.shape().is_empty() { splat(x, self.lanes) } else { x.clone() }
    }

    /// The value of a LOAD.
    fn read(&self, lie: Lie, alt: Option<&UOp>) -> UOp {
        let n = self.lanes;
        if n == 1 {
            return self.load(self.scalar(0), alt, self.gate());
        }
        let first = if lie == Lie::Backward { n - 1 } else { 0 };
        if lie == Lie::Apart || lie != Lie::Same && !self.within(first, false) {
            return self.read_lanes(alt);
        }
        let gate = self.gate();
        let varies = gate.as_ref().is_some_and(|g| !g.shape().is_empty());
        let single = Piece { lanes: 1, ..*self };
        let proved = if lie == Lie::Same { single.within(0, true) } else { self.within(first, true) };
        if varies && !proved && lie != Lie::Forward {
            return self.read_lanes(alt);
        }
        // What may be read anyway is read, and its gate chooses.
        let (before, after) = if varies && proved { (None, gate) } else { (gate, None) };
        let value = match lie {
            Lie::Same => splat(&single.load(self.scalar(0), alt, before), n),
            Lie::Backward => {
                let order = node_of(Op::Stack, (0..n).rev().map(lane_const));
                self.load(self.vector(first), alt, before).at(&[order])
            }
            _ => self.load(self.vector(0), alt, before),
        };
        match (after, alt) {
            (Some(gate), Some(alt)) => alu(Op::Where, &[gate, value, alt.clone()]),
            _ => value,
        }
    }

    fn read_lanes(&self, alt: Option<&UOp>) -> UOp {
        let single = Piece { lanes: 1, ..*self };
        let one = |k: usize| single.load(self.scalar(k), alt.map(|a| lane(a, k)).as_ref(), self.lane_gate(k));
        node_of(Op::Stack, (0..self.lanes).map(one))
    }

    /// The STOREs of a value.
    fn write(&self, lie: Lie, value: &UOp, out: &mut Vec<UOp>) {
        let n = self.lanes;
        let mut put = |address: UOp, value: UOp, gate: Option<UOp>| {
            if !gate.as_ref().is_some_and(|g| g.is_bool(false)) {
                out.push(node_of(Op::Store, [Some(address), Some(value), gate].into_iter().flatten()));
            }
        };
        if n == 1 || lie == Lie::Forward && self.within(0, false) {
            return put(self.vector(0), self.wide(value), self.gate());
        }
        for k in 0..n {
            put(self.scalar(k), lane(value, k), self.lane_gate(k));
        }
    }
}

impl Devectorise<'_> {
    /// The storage that an address refers to and the node of its index.
    fn target_of(&self, address: usize) -> Result<(UOp, usize)> {
        let src = &self.t.src[address];
        let storage = self.effect[src[0] as usize].clone();
        match (storage, src.get(1)) {
            (Some(s), Some(&index)) if src.len() == 2 => Ok((s, index as usize)),
            _ => Err(broken("an address that is not one index into storage")),
        }
    }

    pub(super) fn load(&self, i: usize) -> Result<Vec<UOp>> {
        let (src, dims) = (&self.t.src[i], &self.t.dims[i]);
        let (storage, index) = self.target_of(src[0] as usize)?;
        let axis = self.lane_axis(dims);
        let lie = lie(&self.plan, index, axis);
        let gate = src.get(2).map(|&g| g as usize);
        let read = |(p, (start, lanes)): (usize, (Axes<u32>, usize))| {
            let piece = Piece { d: self, storage: &storage, index, gate, start: &start, axis, lanes };
            let alt = src.get(1).map(|&a| self.operand(a as usize, p));
            piece.read(lie, alt.as_ref())
        };
        Ok(self.each_piece(dims).into_iter().enumerate().map(read).collect())
    }

    pub(super) fn store(&self, i: usize) -> Result<UOp> {
        let src = &self.t.src[i];
        let (storage, index) = self.target_of(src[0] as usize)?;
        let dims = &self.t.dims[src[0] as usize];
        let axis = self.lane_axis(dims);
        let lie = lie(&self.plan, index, axis);
        let gate = src.get(2).map(|&g| g as usize);
        let mut out = Vec::with_capacity(self.count(dims));
        for (p, (start, lanes)) in self.each_piece(dims).iter().enumerate() {
            let piece = Piece { d: self, storage: &storage, index, gate, start, axis, lanes: *lanes };
            piece.write(lie, &self.operand(src[1] as usize, p), &mut out);
        }
        Ok(group(out))
    }
}
