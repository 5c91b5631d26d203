//! What a kernel keeps of its slices: a value that several of its loops want, or that a product would compute
//! again for every tile, in LOCAL storage that each slice fills by loops of its own. Flows in: a node and who
//! wants it; flows out: whether one kernel keeps it, over which axes, and the instance that fills it.
//!
//! An axis at which all want the same index, one of the kernel's own loops, tells slices apart; the value is
//! kept over the others. Invariant: all that a kernel keeps or shares (`shared`) is of the same slices, whose
//! loops stand outermost, and what it keeps of as many slices as a vector has lanes fits its LOCAL storage.

use super::below::{TERMS, is_data, masks, names_places, terms};
use super::cost::{SHORT, TILE, count};
use super::{Around, At, Body, Instance, Rangeify};
use monoglot_uop::{AddrSpace, AxisType, DType, Op, Shape, UOp};

/// Operations that storing or reading an element of LOCAL storage costs.
const NEAR: f64 = 2.0;
/// Operations that a read costs where elements lie apart.
const APART: f64 = 3.0;
/// Vectors of a row that a tile has.
const ROW: usize = 4;
/// A value in a kernel's LOCAL storage.
pub(super) struct Kept {
    /// The instance of an element.
    pub(super) fill: u32,
    /// The loops that fill it.
    pub(super) own: Vec<UOp>,
    /// The axes that it is kept over, one for each of those.
    pub(super) axes: Vec<usize>,
}

/// How a value would be kept.
pub(super) struct Plan {
    axes: Vec<usize>,
    shared: Vec<UOp>,
    /// Of LOCAL storage for a vector of slices.
    pub(super) bytes: f64,
}

impl Rangeify<'_> {
    /// Keep a value in the one kernel that wants it, if that costs less than to compute it again; false, with
    /// nothing done, otherwise.
    pub(super) fn keep(&mut self, n: u32, u: &UOp, wanted: &[u32]) -> bool {
        let kept = self.plan(u, wanted).filter(|p| self.pays(n, u, wanted, p));
        let kept = kept.map(|plan| self.fill(n, u, wanted, plan));
        kept.is_some()
    }

    /// Keep a value as it was planned.
    pub(super) fn fill(&mut self, n: u32, u: &UOp, wanted: &[u32], plan: Plan) {
        let Plan {
            axes,
            shared,
            bytes,
        } = plan;
        let number = self.instances[wanted[0] as usize].kernel;
        let mut indices = self.instances[wanted[0] as usize].at.indices.clone();
        let mut own = Vec::new();
        for &a in &axes {
            let r = self.range(u.shape()[a].to_uop(), AxisType::Loop);
            indices[a] = r.clone();
            own.push(r);
        }
        let at = At {
            indices,
            gate: None,
            volume: count(&shared) * count(&own),
            around: Around::new(),
            kept: Some(self.kept.len() as u32),
        };
        let fill = self.instance(Instance {
            node: n,
            kernel: number,
            at,
            body: Body::Pending,
        });
        let kernel = &mut self.kernels[number as usize];
        kernel.shared = Some(shared);
        kernel.kept += bytes;
        for &i in wanted {
            self.instances[i as usize].body = Body::Kept(self.kept.len() as u32);
        }
        self.kept.push(Kept { fill, own, axes });
    }

    /// The instance that fills what this one reads, if it reads what is kept.
    pub(super) fn filled_by(&self, i: u32) -> Option<u32> {
        match self.instances[i as usize].body {
            Body::Kept(k) => Some(self.kept[k as usize].fill),
            _ => None,
        }
    }

    /// A read of what is kept at these indices, where `value` is an element of it.
    pub(super) fn read_kept(&mut self, k: u32, value: &UOp, at: &At) -> monoglot_uop::Result<UOp> {
        let Kept { own, axes, .. } = &self.kept[k as usize];
        let extent = |r: &UOp| r.src()[0].as_int().unwrap_or(1);
        let dims = Shape::of(&own.iter().map(extent).collect::<Vec<_>>());
        let storage = UOp::scratch(
            k.into(),
            &Shape::of(&[dims.max_len()]),
            value.dtype(),
            AddrSpace::Local,
        );
        let wanted: Vec<UOp> = axes.iter().map(|&a| at.indices[a].clone()).collect();
        let place = self.algebra.linear(&dims, own)?;
        let read = self.algebra.linear(&dims, &wanted)?;
        let fill = storage.at(&[place]).store(value).end(own);
        Ok(storage.after(&[fill]).at(&[read]))
    }

    /// Whether what surrounds rows is known to those who step over these one by one, and multiply each element once: a
    /// tile has whole rows of so many vectors, and masks at their ends. Of shorter rows other parts of tiles are empty.
    pub(super) fn has_whole_rows(&self, u: &UOp, wanted: &[u32]) -> bool {
        if u.op() != Op::Pad {
            return false;
        }
        let each = |&i: &u32| self.products(i) <= 1.0 && !self.steps_over(i);
        let row = u.src()[0].shape().last().map_or(0, |n| n.max()) as usize;
        let kernel = &self.kernels[self.instances[wanted[0] as usize].kernel as usize];
        let lanes = kernel.target.lanes(u.dtype());
        let fits = row > (ROW - 1) * lanes && row <= ROW * lanes;
        lanes > 1 && fits && wanted.iter().all(each)
    }

    /// How a value would be kept; None where it cannot be.
    pub(super) fn plan(&self, u: &UOp, wanted: &[u32]) -> Option<Plan> {
        let number = self.instances[wanted[0] as usize].kernel;
        let kernel = &self.kernels[number as usize];
        // What surrounds a slice is kept with it for windows over it, not for a product's.
        let padded = u.op() == Op::Pad && wanted.iter().all(|&i| self.products(i) <= 1.0);
        let padded = padded && !self.has_whole_rows(u, wanted);
        let stored = u.op().is_elementwise() || u.op() == Op::Reduce || padded;
        // What follows from the indices alone is cheaper to compute again.
        if !stored
            || masks(u)
            || names_places(u)
            || !is_data(u)
            || matches!(u.dtype(), DType::Index | DType::Void)
            || kernel.target.workgroups
        {
            return None;
        }
        let plain = |&i: &u32| {
            let Instance { kernel, at, .. } = &self.instances[i as usize];
            *kernel == number && at.gate.is_none() && !at.indices.iter().any(super::has_placeholder)
        };
        if !wanted.iter().all(plain) || kernel.size >= kernel.target.max_nodes {
            return None;
        }
        let mut axes = Vec::new();
        let mut shared: Vec<UOp> = Vec::new();
        let first = &self.instances[wanted[0] as usize].at.indices;
        for (a, index) in first.iter().enumerate() {
            let ranges = index.ranges();
            let outer = ranges.iter().all(|r| kernel.ranges.contains(r));
            let same = |&i: &u32| self.instances[i as usize].at.indices[a] == *index;
            if outer && wanted.iter().all(same) {
                shared.extend(ranges.iter().filter(|r| r.vmax() > 0).cloned());
            } else {
                u.shape()[a].as_int()?;
                axes.push(a);
            }
        }
        shared.sort_by_key(UOp::range_arg);
        shared.dedup();
        let slice: f64 = axes.iter().map(|&a| u.shape()[a].max() as f64).product();
        let lanes = kernel.target.lanes(u.dtype()) as f64;
        let bytes = slice * lanes * u.dtype().bytes() as f64;
        let fits = kernel.kept + bytes <= kernel.target.local_bytes as f64;
        let other = kernel.shared.as_ref().is_some_and(|s| *s != shared);
        let side_by_side = shared.iter().any(|r| r.vmax() as f64 >= lanes);
        let many = count(&shared) >= super::shared::PARTS && side_by_side;
        let held = !axes.is_empty() && many && fits && !other;
        held.then_some(Plan {
            axes,
            shared,
            bytes,
        })
    }

    /// Whether it costs less to keep a value like that than to compute it again.
    fn pays(&self, n: u32, u: &UOp, wanted: &[u32], plan: &Plan) -> bool {
        let slice: f64 = plan
            .axes
            .iter()
            .map(|&a| u.shape()[a].max() as f64)
            .product();
        let size = count(&plan.shared) * slice;
        let products = |&i: &u32| self.products(i);
        let products = wanted.iter().map(products).fold(1.0, f64::max);
        let Some(terms) = terms(u, size) else {
            return false;
        };
        if products > TERMS || terms > TERMS {
            return false;
        }
        // What sums are made into is no factor of others: the slices of both would not be the same.
        if terms > 0.0 && products > 1.0 {
            return true;
        }
        let work = self.costs.light[n as usize] + terms;
        let loads = |&i: &u32| self.evaluations(i) * (self.products(i) / TILE).max(1.0);
        let loads: f64 = wanted.iter().map(loads).sum();
        if u.op() == Op::Reduce && products <= 1.0 && terms <= SHORT {
            let read = self.read(wanted[0], plan, slice);
            let again = loads * terms * (read + 1.0);
            return again >= size * (2.0 * terms + 1.0) + loads * read;
        }
        loads * work > size * (work + NEAR) + loads * NEAR
    }

    /// What reading an element costs as an instance wants it: those that windows step over are put together.
    fn read(&self, i: u32, plan: &Plan, slice: f64) -> f64 {
        let Instance { at, .. } = &self.instances[i as usize];
        let outer = |r: &&UOp| self.loops(i).contains(r);
        let turns = |&a: &usize| count(at.indices[a].ranges().iter().filter(outer));
        let turns: f64 = plan.axes.iter().map(turns).product();
        if slice >= 1.5 * turns { APART } else { 1.0 }
    }

    /// How many sums take in an element of an instance: there are as many as turns of the loops with which the
    /// reductions around it vary, and it does not.
    fn products(&self, i: u32) -> f64 {
        let at = &self.instances[i as usize].at;
        let open = self.varies(i).unwrap_or_default();
        let number = |r: &UOp| r.range_arg().map_or(0, |(id, _)| id);
        let others = self.loops(i).iter();
        count(others.filter(|r| !open.contains(*r) && at.around.contains(&number(r))))
    }
}
