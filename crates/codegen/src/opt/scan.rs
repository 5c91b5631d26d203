//! SCAN: what a reduction folds up to a turn of an axis (`Σ_j (j ≤ r ? x[j] : 0)`) is what it folded up to the
//! last one and an element more, so the axis carries it along. Flows in: the nest and an axis; flows out: the
//! nest in which storage of its own, for each of the axes inside, is set to the identity around the axis, and
//! each turn folds one element into it. Where what is folded is what stands from a turn on, the axis turns
//! backwards. Several turns at a time are an UPCAST axis inside of it: each folds what is carried and those of
//! their elements, along an UNROLL axis, that come before its own.
//! Invariant: elements are folded in their order (or its reverse), so no sum depends on the number of threads; those
//! of floats narrower than the widest that the target computes with are held in that.
//!
//! Preconditions:
//! * the axis is a loop of a known extent, and every store of the kernel is inside of it;
//! * at least one reduction folds what stands below, or above, a place that moves with the axis by one, and
//!   nothing else of it varies with the axis; the first turn folds one element at most;
//! * turns that are taken at a time divide it, and have no loop inside and no other storage that is filled;
//! * the axes inside are loops of known extents that close with it, and all of it varies with each of them;
//! * where there are some, threads do not share storage, which is within what LOCAL storage may be.

use super::masked::Masked;
use super::nest::{Axis, LoopNest};
use super::refuse;
use crate::build::combine;
use crate::graph::group;
use crate::loops::{fresh, kind, next_id};
use crate::scratch;
use monoglot_uop::rules::{Affine, placed, solve_less};
use monoglot_uop::{AddrSpace, AxisType, DType, Op, Opt, ReduceOp, Result, Shape, Target, UOp};
use rustc_hash::FxHashMap;

/// Most bytes of what is carried.
const MOST: i64 = 1 << 22;

/// A reduction that each turn of an axis has folded one element more of.
pub(super) struct Running {
    pub(super) masked: Masked,
    /// Which condition says so, and of which of its RANGEs.
    condition: usize,
    pub(super) over: UOp,
    /// Whether it folds what stands from the turn on, and so each turn less than the last.
    pub(super) backwards: bool,
    /// The element that a turn adds, as an offset from the turn.
    offset: i64,
}

impl Running {
    /// None where this is no such reduction of this axis.
    pub(super) fn of(u: &UOp, axis: &UOp) -> Option<Running> {
        let masked = Masked::of(u)?;
        let condition = masked.relates(axis)?;
        let turns = axis.src()[0].as_int()?;
        if masked.is_nested() {
            return None;
        }
        let moves = |over: &UOp| {
            let (below, end) = solve_less(&masked.conditions[condition], over)?;
            let mut from = Affine::number(DType::Index, -i128::from(below));
            from.add(&end.simplify(), 1)
                .and_then(|()| from.add(axis, -1))?;
            let n = over.src()[0].as_int().filter(|_| from.terms.is_empty())?;
            let offset = i64::try_from(from.constant).ok()?;
            // The first turn folds one element at most.
            let first = if below {
                offset <= 0
            } else {
                offset >= n - turns
            };
            first.then(|| (over.clone(), !below, offset))
        };
        let (over, backwards, offset) = masked.closes().iter().find_map(moves)?;
        Some(Running {
            masked,
            condition,
            over,
            backwards,
            offset,
        })
    }

    /// What a turn adds: the identity where there is no more.
    fn step(&self, axis: &UOp) -> UOp {
        let Running { masked, over, .. } = self;
        let at = (axis + self.offset).simplify();
        let gate = at.like(-1).lt(&at) & at.lt(&over.src()[0]);
        let gate = gate.simplify();
        let inside = Some(&gate).filter(|g| !g.is_bool(true));
        let here = FxHashMap::from_iter([(over.clone(), at)]);
        let put = |u: &UOp| placed(u, over, inside, &here);
        let others = masked.others(self.condition).map(|c| put(&c));
        let gate = others
            .into_iter()
            .chain(inside.cloned())
            .reduce(|a, b| a & b);
        let value = put(&masked.value);
        let value = gate.map_or(value.clone(), |g| g.select(&value, &masked.identity()));
        let rest: Vec<UOp> = masked
            .closes()
            .iter()
            .filter(|r| *r != over)
            .cloned()
            .collect();
        if rest.is_empty() {
            value
        } else {
            value.reduce_ranges(masked.op, &rest)
        }
    }
}

/// The reductions that SCAN along an axis carries: none where they do not agree on the direction.
pub(super) fn along(nodes: &[UOp], axis: &UOp) -> Vec<Running> {
    let all: Vec<Running> = nodes.iter().filter_map(|u| Running::of(u, axis)).collect();
    let backwards = all.first().is_some_and(|r| r.backwards);
    if all.iter().any(|r| r.backwards != backwards) {
        return Vec::new();
    }
    all
}

/// The dtype in which a fold of such elements is held.
pub(super) fn held(op: ReduceOp, dtype: DType, target: &Target) -> DType {
    let wide = dtype.is_float() && op != ReduceOp::Max && target.arithmetic.contains(&DType::F64);
    if wide { DType::F64 } else { dtype }
}

pub(super) fn step(nest: &mut LoopNest, opt: &Opt, together: i64, target: &Target) -> Result<()> {
    let kernel = nest.kernel();
    let nodes = kernel.toposort();
    let axes = super::ranges(&nodes);
    let axis = &axes[opt.axis];
    let Some(turns) = axis.src()[0].as_int() else {
        return Err(refuse(opt, "the extent is not known"));
    };
    let same = |e: &UOp| {
        e.op() == Op::End
            && e.src()[1..].contains(axis)
            && e.src()[1..] == kernel.src()[0].src()[1..]
    };
    if kind(axis) != AxisType::Loop || !kernel.src().iter().all(same) {
        return Err(refuse(opt, "it is no loop around all stores"));
    }
    let found = along(&nodes, axis);
    let Some(backwards) = found.first().map(|r| r.backwards) else {
        return Err(refuse(opt, "nothing is folded up to its turns"));
    };
    let is_loop = |r: &&UOp| kind(r) == AxisType::Loop;
    let is_outer = |r: &&UOp| {
        let outer = scratch::sets_anew(kind(r)) && !kind(r).is_reduce();
        outer && (kind(r) != AxisType::Loop || r.range_arg() < axis.range_arg())
    };
    if together < 1 || turns % together != 0 {
        return Err(refuse(opt, format!("{together} does not divide {turns}")));
    }
    let closed = |r: &UOp| kernel.src()[0].src()[1..].contains(r);
    if axes[opt.axis + 1..]
        .iter()
        .filter(is_loop)
        .any(|r| !closed(r))
    {
        return Err(refuse(opt, "a loop inside fills other storage"));
    }
    if together > 1 && nodes.iter().any(|u| u.op() == Op::After) {
        return Err(refuse(opt, "other storage is filled in its order"));
    }
    let carry = Carry {
        axis,
        blocks: Blocks::new(&kernel, axis, together, backwards),
        around: axes.iter().filter(is_outer).cloned().collect(),
        inside: axes[opt.axis + 1..]
            .iter()
            .filter(is_loop)
            .cloned()
            .collect(),
    };
    let new = carry.put(&kernel, &found, opt, target)?;
    *nest = LoopNest::new(&new)?;
    if backwards && together == 1 {
        let axis = nest.axes[opt.axis].clone();
        let range = nest.fresh(turns, axis.kind());
        nest.rebind(&axis, &(range.like(turns - 1) - &range));
        nest.axes[opt.axis] = Axis { range, of: axis.of };
    }
    Ok(())
}

/// An axis that carries something, and the loops around it and inside.
struct Carry<'a> {
    axis: &'a UOp,
    blocks: Option<Blocks>,
    around: Vec<UOp>,
    inside: Vec<UOp>,
}

impl Carry<'_> {
    /// The kernel in which the axis carries these.
    fn put(&self, kernel: &UOp, found: &[Running], opt: &Opt, target: &Target) -> Result<UOp> {
        if target.workgroups && !self.inside.is_empty() {
            return Err(refuse(opt, "threads share LOCAL storage"));
        }
        let dims: Option<Vec<i64>> = self.inside.iter().map(|r| r.src()[0].as_int()).collect();
        let Some(dims) = dims else {
            return Err(refuse(opt, "an extent inside is not known"));
        };
        if self.blocks.is_some() && !dims.is_empty() {
            return Err(refuse(opt, "several turns at a time around other loops"));
        }
        let elements = dims.iter().try_fold(8i64, |n, &d| n.checked_mul(d));
        if elements.is_none_or(|n| n > MOST / found.len() as i64) {
            return Err(refuse(opt, format!("{dims:?} elements are too many")));
        }
        let mut next = next_id(kernel) + 2;
        let mut values = FxHashMap::default();
        let mut effects = Vec::new();
        for (slot, r) in (scratch::next_slot(kernel)..).zip(found) {
            let open = r.masked.reduce.ranges();
            if self.inside.iter().any(|i| !open.contains(i)) {
                return Err(refuse(opt, "a loop inside is not one of what it carries"));
            }
            let d = r.masked.reduce.dtype();
            let held = held(r.masked.op, d, target);
            let now = self.storage(&dims, &r.masked, held, &mut next, slot);
            let step = r.step(self.axis).cast(held);
            let (place, new) = match &self.blocks {
                Some(blocks) => blocks.fold(r.masked.op, &now, &step, self.axis),
                None => (now.clone(), combine(r.masked.op, &now, &step)),
            };
            effects.push(place.store(&new));
            values.insert(r.masked.reduce.clone(), new.cast(d));
        }
        let new = kernel.substitute(&values);
        let mut ends = new.src().to_vec();
        effects.push(ends[0].src()[0].clone());
        ends[0] = group(effects).end(&ends[0].src()[1..]);
        if let Some(blocks) = &self.blocks {
            ends.iter_mut()
                .for_each(|e| *e = blocks.close(e, self.axis));
        }
        Ok(new.with_src(ends))
    }

    /// What was folded before a turn.
    fn storage(&self, dims: &[i64], of: &Masked, held: DType, next: &mut u32, slot: u64) -> UOp {
        let identity = UOp::constant(of.op.identity(held), held);
        let blocks = self.blocks.as_ref();
        let places = [blocks.map_or(1, |b| b.inner.vmax() + 1)];
        let (space, dims) = match dims {
            [] => (AddrSpace::Reg, &places[..]),
            dims => (AddrSpace::Local, dims),
        };
        let storage = UOp::scratch(slot, &Shape::of(dims), held, space);
        let empty = match &self.around[..] {
            [] => storage.clone(),
            around => storage.after(around),
        };
        let turn = std::slice::from_ref(blocks.map_or(self.axis, |b| &b.outer));
        if self.inside.is_empty() {
            let last = [UOp::index_const(places[0] - 1)];
            let set = empty.at(&last).store(&identity);
            return storage.after(&[&[set], turn].concat()).at(&last);
        }
        let one = |r| fresh(r, AxisType::Loop, next);
        let own: Vec<UOp> = self.inside.iter().map(one).collect();
        let set = empty.at(&own).store(&identity).end(&own);
        storage.after(&[&[set], turn].concat()).at(&self.inside)
    }
}

/// The turns of an axis, several at a time.
struct Blocks {
    outer: UOp,
    /// The turns of one time, and their elements.
    inner: UOp,
    element: UOp,
    /// Which turn of the axis one of `inner` is.
    turn: UOp,
}

impl Blocks {
    /// None where turns are taken one by one.
    fn new(kernel: &UOp, axis: &UOp, together: i64, backwards: bool) -> Option<Blocks> {
        let (id, kind) = axis.range_arg().filter(|_| together > 1)?;
        let turns = axis.src()[0].as_int()?;
        let next = next_id(kernel);
        let outer = UOp::range(turns / together, id, kind);
        let inner = UOp::range(together, next, AxisType::Upcast);
        let turn = &outer * together + &inner;
        Some(Blocks {
            element: UOp::range(together, next + 1, AxisType::Unroll),
            turn: match backwards {
                true => turn.like(turns - 1) - &turn,
                false => turn,
            },
            outer,
            inner,
        })
    }

    /// What each of these turns has folded, and where that is put: what the last one has is carried on.
    fn fold(&self, op: ReduceOp, now: &UOp, step: &UOp, axis: &UOp) -> (UOp, UOp) {
        let Blocks { inner, element, .. } = self;
        let one = |from: &UOp, to: &UOp| FxHashMap::from_iter([(from.clone(), to.clone())]);
        let turn = self.turn.substitute(&one(inner, element));
        let step = step.substitute(&one(axis, &turn));
        let first = element.lt(&element.like(1));
        let terms = first.select(&combine(op, now, &step), &step);
        let identity = UOp::constant(op.identity(step.dtype()), step.dtype());
        let before = element.lt(&(inner + 1)).select(&terms, &identity);
        let place = now.src()[0].at(std::slice::from_ref(inner));
        let new = before.reduce_ranges(op, std::slice::from_ref(element));
        (place, new)
    }

    /// An END of the axis.
    fn close(&self, end: &UOp, axis: &UOp) -> UOp {
        let map = FxHashMap::from_iter([(axis.clone(), self.turn.clone())]);
        let outer = |r: &UOp| if r == axis { &self.outer } else { r }.clone();
        let mut closes: Vec<UOp> = end.src()[1..].iter().map(outer).collect();
        closes.push(self.inner.clone());
        end.src()[0].substitute(&map).end(&closes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::opt::tests::support::*;
    use monoglot_uop::OptOp;

    fn scanned(axis: usize) -> Opt {
        together(axis, 1)
    }

    fn together(axis: usize, turns: i64) -> Opt {
        let op = OptOp::Scan { turns };
        Opt { op, axis }
    }

    #[test]
    fn what_is_folded_up_to_a_turn_is_carried() {
        let forms: [fn(&UOp, &UOp) -> UOp; 5] = [
            |j, i| j.lt(&(i + 1)),
            |j, i| i.lt(j).unary(Op::Not).simplify(),
            |j, i| j.lt(i),
            |j, i| i.lt(j),
            |j, i| i.lt(&(j + 1)),
        ];
        for holds in forms {
            for op in [ReduceOp::Add, ReduceOp::Max] {
                let kernel = running(op, holds);
                let columns = split(1, 5, AxisType::Upcast, false);
                check_on(&kernel, &[scanned(0), columns], &target(false));
                check_on(&kernel, &[swap(0, 1), scanned(1)], &target(false));
                // Several turns at a time, of several rows.
                let several = [swap(0, 1), together(1, 6)];
                check_on(&kernel, &several, &target(false));
                let rows = split(0, 5, AxisType::Upcast, false);
                let list = [&several[..], &[rows]].concat();
                let rows = crate::opt::apply(&kernel, &list, &target(false));
                lowers(&rows.expect("5 divides 10"), false);
                // Innermost, rows of it side by side, for threads of a workgroup too.
                for kind in [AxisType::Upcast, AxisType::Local] {
                    let list = [swap(0, 1), scanned(1), split(0, 5, kind, false)];
                    let rows = crate::opt::apply(&kernel, &list, &target(true));
                    lowers(&rows.expect("5 divides 10"), true);
                }
            }
        }
    }

    #[test]
    fn what_the_first_turn_folds_more_than_one_element_of_is_no_scan() {
        let kernel = running(ReduceOp::Add, |j, i| j.lt(&(i + 2)));
        refused(&kernel, &[scanned(0)], "nothing is folded up to its turns");
        refused(&kernel, &[scanned(1)], "nothing is folded up to its turns");
        let window = |j: &UOp, i: &UOp| j.lt(&(i + 1)) & i.lt(&(j + 3));
        let kernel = running(ReduceOp::Add, window);
        refused(&kernel, &[scanned(0)], "nothing is folded up to its turns");
        // Loops around it stay around it.
        let kernel = running(ReduceOp::Add, |j, i| j.lt(&(i + 1)));
        let inside = split(0, 5, AxisType::Loop, false);
        refused(&kernel, &[together(0, 5)], "5 does not divide 12");
        let message = "a loop inside begins";
        refused(&kernel, &[swap(0, 1), scanned(1), inside], message);
        refused(&kernel, &[scanned(0)], "threads share");
    }
}
