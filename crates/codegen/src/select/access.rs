//! LOADs and STOREs of shaped values. Flows in: addresses whose index is known along every axis;
//! flows out: vector accesses where the lanes are neighbours in memory, one scalar access where they
//! are one place, scalar accesses elsewhere. Invariant: a gate that varies over the lanes is a vector
//! of bools on a vector access, and a lane's own gate on scalar ones.

use super::build::{lane, lane_const, splat};
use super::pieces::{Devectorise, broken};
use crate::graph::{Srcs, group, node, node_of};
use monoglot_uop::{Op, Result, UOp};
use smallvec::smallvec;

/// How the lanes of an access lie in memory.
#[derive(Clone, Copy, PartialEq)]
enum Lie {
    /// One after the other.
    Forward,
    /// One before the other.
    Backward,
    /// In one place.
    Same,
    /// Anywhere.
    Apart,
}

/// The address of `n` elements from `index`.
fn place(storage: &UOp, index: UOp, n: usize) -> UOp {
    match n {
        1 => storage.at(&[index]),
        n => node(Op::Shrink, [storage.clone(), node(Op::Stack, [index]), node(Op::Stack, [lane_const(n)])]),
    }
}

/// Whether a vector from a known element lies in the storage: where some lanes are gated off it may not.
fn within(storage: &UOp, index: &UOp, n: usize) -> bool {
    let size = storage.shape()[0].max();
    index.as_int().is_none_or(|i| i >= 0 && i + n as i64 <= size)
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

    fn lie(&self, index: usize, dims: &[u32]) -> Lie {
        match self.lane_axis(dims).map(|k| self.plan.steps[index][k]) {
            Some(Some(1)) => Lie::Forward,
            Some(Some(-1)) => Lie::Backward,
            Some(Some(0)) => Lie::Same,
            _ => Lie::Apart,
        }
    }

    /// The gate for the piece of an access at `start`, and whether its lanes differ.
    fn gate(&self, gate: Option<usize>, start: &[u32]) -> Option<UOp> {
        let g = gate?;
        let piece = match self.data[g].len() {
            1 => self.data[g][0].clone(),
            _ => self.data[g][self.piece_at(&self.t.dims[g], start)].clone(),
        };
        (!piece.is_bool(true)).then_some(piece)
    }

    pub(super) fn load(&mut self, i: usize) -> Result<Vec<UOp>> {
        let (src, dims) = (&self.t.src[i], &self.t.dims[i]);
        let (storage, index) = self.target_of(src[0] as usize)?;
        let gate = src.get(2).map(|&g| g as usize);
        let alt = src.get(1).map(|&a| a as usize);
        let (lie, axis) = (self.lie(index, dims), self.lane_axis(dims));
        let mut out = Vec::with_capacity(self.count(dims));
        self.each_piece(dims, |p, start, n| {
            let gate = self.gate(gate, start);
            let alt = alt.map(|a| self.operand(a, p));
            let one = |address: UOp, alt: Option<UOp>, gate: Option<UOp>| {
                let mut s: Srcs = smallvec![address];
                if let (Some(alt), Some(gate)) = (alt, gate) {
                    s.extend([alt, gate]);
                }
                node_of(Op::Load, s)
            };
            if let (Some(alt), true) = (&alt, gate.as_ref().is_some_and(|g| g.is_bool(false))) {
                out.push(if alt.shape().is_empty() { splat(alt, n) } else { alt.clone() });
                return Ok(());
            }
            let uniform = gate.as_ref().is_none_or(|g| g.shape().is_empty());
            let at = |lane: usize| {
                let mut s: super::table::Axes<u32> = start.into();
                if let Some(k) = axis {
                    s[k] += lane as u32;
                }
                self.index_at(index, &s)
            };
            out.push(if n == 1 {
                one(place(&storage, at(0), 1), alt, gate)
            } else if (lie == Lie::Forward || lie == Lie::Backward && uniform)
                && within(&storage, &at(if lie == Lie::Forward { 0 } else { n - 1 }), n)
            {
                // An alternative of shape () stands for every lane.
                let wide = alt.map(|a| if a.shape().is_empty() { splat(&a, n) } else { a });
                let first = if lie == Lie::Forward { 0 } else { n - 1 };
                let vector = one(place(&storage, at(first), n), wide, gate);
                match lie {
                    Lie::Forward => vector,
                    _ => vector.at(&[node_of(Op::Stack, (0..n).rev().map(lane_const))]),
                }
            } else if lie == Lie::Same && uniform && alt.as_ref().is_none_or(|a| a.shape().is_empty()) {
                splat(&one(place(&storage, at(0), 1), alt, gate), n)
            } else {
                let lanes: Srcs = (0..n)
                    .map(|l| {
                        let alt = alt.as_ref().map(|a| lane(a, l));
                        one(place(&storage, at(l), 1), alt, gate.as_ref().map(|g| lane(g, l)))
                    })
                    .collect();
                node_of(Op::Stack, lanes)
            });
            Ok(())
        })?;
        Ok(out)
    }

    pub(super) fn store(&mut self, i: usize) -> Result<UOp> {
        let src = &self.t.src[i];
        let (storage, index) = self.target_of(src[0] as usize)?;
        let dims = &self.t.dims[src[0] as usize];
        let value = src[1] as usize;
        let gate = src.get(2).map(|&g| g as usize);
        let (lie, axis) = (self.lie(index, dims), self.lane_axis(dims));
        let mut out = Vec::with_capacity(self.count(dims));
        self.each_piece(dims, |p, start, n| {
            let gate = self.gate(gate, start);
            if gate.as_ref().is_some_and(|g| g.is_bool(false)) {
                return Ok(());
            }
            let value = self.operand(value, p);
            let at = |lane: usize| {
                let mut s: super::table::Axes<u32> = start.into();
                if let Some(k) = axis {
                    s[k] += lane as u32;
                }
                self.index_at(index, &s)
            };
            let one = |address: UOp, value: UOp, gate: Option<UOp>| {
                let mut s: Srcs = smallvec![address, value];
                s.extend(gate);
                node_of(Op::Store, s)
            };
            if n == 1 || lie == Lie::Forward && within(&storage, &at(0), n) {
                let value = if value.shape().is_empty() { splat(&value, n) } else { value };
                out.push(one(place(&storage, at(0), n), value, gate));
            } else {
                for l in 0..n {
                    let gate = gate.as_ref().map(|g| lane(g, l));
                    if !gate.as_ref().is_some_and(|g| g.is_bool(false)) {
                        out.push(one(
                            place(&storage, at(l), 1),
                            lane(&value, l),
                            gate.filter(|g| !g.is_bool(true)),
                        ));
                    }
                }
            }
            Ok(())
        })?;
        Ok(group(out))
    }
}
