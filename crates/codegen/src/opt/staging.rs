//! A value kept in storage of the kernel's own: what a copy into a nearer memory is, whatever it is of.
//! Flows in: a kernel, one of its values, and axes that the value varies with; flows out: the kernel in
//! which loops over new ranges, as many as those axes, fill a BUFFER inside the other loops that the value
//! varies with, and every use of the value reads that. Invariant: the kernel computes the same elements, and
//! Opts apply to what comes out, each by its preconditions.
//!
//! Preconditions:
//! * the value is an element of a dtype that is stored, no address and no effect, and no index is made of it;
//! * it varies with each of the axes, whose extents are known;
//! * in a workgroup, it is not made of storage of the kernel's own where axes that are no loops are among those;
//! * the storage is LOCAL or REG; LOCAL storage fits the target's, where that is limited.

use super::cost;
use super::nest::LoopNest;
use super::refuse as refuse_opt;
use crate::loops::{fresh, kind, next_id};
use crate::scratch;
use monoglot_uop::marks::{NodeMap, NodeSet};
use monoglot_uop::rules::Affine;
use monoglot_uop::{AddrSpace, AxisType, DType, Error, Op, Opt, Result, Shape, Target, UOp};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Rows of storage that a tile has at once, and bytes of a line of a cache.
const ROWS: i64 = 32;
const LINE: i64 = 64;

/// What is to be stored, and where.
pub struct Staging<'a> {
    /// A value of the kernel.
    pub value: &'a UOp,
    /// RANGEs of the kernel over which it is kept, in the order in which the storage has them.
    pub over: &'a [UOp],
    /// LOCAL or REG.
    pub space: AddrSpace,
}

/// The kernel in which a value is kept in storage of its own.
///
/// # Errors
/// `Argument` names the precondition that does not hold.
pub fn stage(kernel: &UOp, staging: &Staging, target: &Target) -> Result<UOp> {
    let mut nest = LoopNest::new(kernel)?;
    nest.stage(staging, target)?;
    Ok(nest.kernel())
}

fn refuse(message: impl Into<String>) -> Error {
    Error::argument("staging", message)
}

/// STAGE: what the axes inside of one make of an operand, kept in LOCAL storage in the order of these axes, but for the
/// one that is said to be the last.
pub(super) fn step(
    nest: &mut LoopNest,
    opt: &Opt,
    (operand, last): (usize, Option<usize>),
    target: &Target,
) -> Result<()> {
    let nodes = nest.kernel().toposort();
    let operands = operands(&nodes);
    let Some(value) = operands.get(operand) else {
        let message = format!("the kernel has {} operands", operands.len());
        return Err(refuse_opt(opt, message));
    };
    let mut axes = super::ranges(&nodes);
    let last = last.map(|k| axes.get(k).cloned());
    let inside = axes.split_off(opt.axis + 1);
    let open = value.ranges();
    let mut over: Vec<UOp> = inside.into_iter().filter(|r| open.contains(r)).collect();
    if let Some(last) = last {
        let at = over.iter().position(|r| Some(r) == last.as_ref());
        let Some(at) = at else {
            return Err(refuse_opt(opt, "the last axis is none that is kept"));
        };
        over[at..].rotate_left(1);
    }
    if over.is_empty() {
        return Err(refuse_opt(opt, "the operand varies with no axis inside"));
    }
    let staging = Staging {
        value,
        over: &over,
        space: AddrSpace::Local,
    };
    nest.stage(&staging, target)
        .map_err(|e| refuse_opt(opt, e.to_string()))
}

/// What a STAGE names by its place: what a kernel reads of storage that is not its own, in the order of the
/// graph, and then its sums. A read that is only used as another dtype, in arithmetic with constants, or where a
/// condition holds and a constant elsewhere, is named as that: what is kept is converted once, and has no masks. What
/// the words of a dot product are made of is named as the word, once.
pub(super) fn operands(nodes: &[UOp]) -> Vec<UOp> {
    let mut users: NodeMap<&UOp, SmallVec<[&UOp; 2]>> = NodeMap::with_capacity(nodes.len());
    for u in nodes {
        for s in u.src() {
            users.get_or_insert_with(s, SmallVec::new).push(u);
        }
    }
    let used = |u: &UOp| {
        let mut u = u;
        while let Some([user]) = users.get(u).map(SmallVec::as_slice) {
            let masks = user.op() == Op::Where && user.src()[1] == *u;
            let masks = masks && user.src()[2].op() == Op::Const;
            let constant = |s: &UOp| s == u || s.op() == Op::Const;
            let alone = user.op().is_elementwise() && user.src().iter().all(constant);
            if !masks && !alone {
                break;
            }
            u = user;
        }
        u.clone()
    };
    let stores = nodes.iter().filter(|u| u.op() == Op::Store);
    let written: Vec<&UOp> = stores.map(|u| &u.src()[0]).collect();
    let is_read = |u: &&UOp| {
        u.op() == Op::Index
            && u.src()[0].addrspace() == Some(AddrSpace::Global)
            && !written.contains(u)
    };
    let dots = nodes.iter().filter(|u| u.dot().is_some());
    let words: Vec<&UOp> = dots.flat_map(|u| &u.src()[..2]).collect();
    let mut out: Vec<UOp> = Vec::new();
    for read in nodes.iter().filter(is_read) {
        let made = |w: &&&UOp| !w.ops_below().contains(Op::After) && w.toposort().contains(read);
        let operand = words
            .iter()
            .find(made)
            .map_or_else(|| used(read), |w| (*w).clone());
        if !out.contains(&operand) {
            out.push(operand);
        }
    }
    let sums = nodes.iter().filter(|u| u.op() == Op::Reduce);
    out.extend(sums.cloned());
    out
}

impl LoopNest {
    /// Keep a value of the kernel as it is after the Opts so far; the RANGEs are those of its axes.
    pub(super) fn stage(&mut self, staging: &Staging, target: &Target) -> Result<()> {
        let kernel = self.kernel();
        let Staging { value, over, .. } = staging;
        let runs = runs(value, over);
        let storage = storage(&kernel, staging, &runs, target)?;
        let mut next = next_id(&kernel);
        let mut all = |run: &&[UOp]| fresh(&whole(run), AxisType::Loop, &mut next);
        let own: Vec<UOp> = runs.iter().map(&mut all).collect();
        let mut slot = scratch::next_slot(&kernel) + 1;
        let part = scratch::copied(value, in_runs(value, &runs, &own), &mut slot);
        let around: Vec<UOp> = (value.ranges().iter())
            .filter(|r| !over.contains(r) && scratch::turns(kind(r)))
            .cloned()
            .collect();
        let shared = staging.space == AddrSpace::Local && target.workgroups;
        // Loops would take the place of lanes around storage that threads wait for before its next turn.
        let lanes = over.iter().any(|r| !scratch::turns(kind(r)));
        if shared && lanes && value.ops_below().contains(Op::Buffer) {
            return Err(refuse("it is made of what its lanes keep"));
        }
        let filled = scratch::filled(&storage, &own, &part, &own, &around, shared);
        let read = filled.at(&runs.iter().map(|run| number(run)).collect::<Vec<_>>());
        *self =
            LoopNest::new(&kernel.substitute(&[((*value).clone(), read)].into_iter().collect()))?;
        Ok(())
    }
}

/// The place that a value reads, where it is nothing but that read, converted or with constants.
fn place(value: &UOp) -> Option<&UOp> {
    let mut u = value;
    while u.op().is_elementwise() {
        let mut made_of = u.src().iter().filter(|s| s.op() != Op::Const);
        u = made_of.next().filter(|_| made_of.next().is_none())?;
    }
    match u.src() {
        [storage, index] if u.op() == Op::Index && storage.op() == Op::Param => Some(index),
        _ => None,
    }
}

/// Axes in their order; those of a sum along which a value reads on from one to the next are together: they are kept, and
/// filled, as one.
fn runs<'a>(value: &UOp, over: &'a [UOp]) -> Vec<&'a [UOp]> {
    let sum = place(value).and_then(Affine::of);
    let terms = sum.map_or_else(SmallVec::new, |sum| sum.terms);
    let factor = |r: &UOp| {
        let mut of = terms.iter().filter(|t| t.0.ranges().contains(r));
        let one = of.next().filter(|t| t.0 == *r)?;
        of.next().is_none().then_some(one.1)
    };
    let turns = |r: &UOp| r.src()[0].as_int().filter(|_| kind(r) == AxisType::Reduce);
    let goes_on = |outer: &UOp, inner: &UOp| {
        let known = turns(outer).and(turns(inner)).map(i128::from);
        let after = known.zip(factor(inner)).map(|(n, step)| n * step);
        after.is_some() && factor(outer) == after
    };
    over.chunk_by(goes_on).collect()
}

/// An axis as long as all of a run.
fn whole(run: &[UOp]) -> UOp {
    let [first, _, ..] = run else {
        return run[0].clone();
    };
    let turns = run.iter().filter_map(|r| r.src()[0].as_int());
    let all = turns.fold(1i64, i64::saturating_mul);
    first.with_src(vec![UOp::int(all, first.dtype())])
}

/// The number of a turn among all of a run.
fn number(run: &[UOp]) -> UOp {
    let next = |at: UOp, r: &UOp| &(&at * &r.src()[0]) + r;
    run[1..].iter().fold(run[0].clone(), next)
}

/// What takes the place of axes, and of where a value reads, where each run is an axis of its own.
fn in_runs(value: &UOp, runs: &[&[UOp]], own: &[UOp]) -> FxHashMap<UOp, UOp> {
    let all = runs.iter().zip(own);
    let alone = all.clone().filter(|(run, _)| run.len() == 1);
    let mut here: FxHashMap<UOp, UOp> = alone.map(|(run, r)| (run[0].clone(), r.clone())).collect();
    if let Some(index) = place(value).filter(|_| here.len() < runs.len())
        && let Some(mut sum) = Affine::of(index)
    {
        for (run, r) in all.filter(|(run, _)| run.len() > 1) {
            let last = run.len() - 1;
            sum.terms.retain(|t| !run[..last].contains(&t.0));
            let step = sum.terms.iter_mut().find(|t| t.0 == run[last]);
            step.into_iter().for_each(|t| t.0 = r.clone());
        }
        here.insert(index.clone(), sum.build().substitute(&here));
    }
    here
}

/// The storage for a value, if it can be stored.
fn storage(kernel: &UOp, staging: &Staging, runs: &[&[UOp]], target: &Target) -> Result<UOp> {
    let Staging { value, space, .. } = staging;
    let nodes = kernel.toposort();
    if !nodes.contains(value) {
        return Err(refuse("the value is none of the kernel's"));
    }
    let element = value.shape().is_empty()
        && !matches!(value.op(), Op::Range | Op::Const)
        && !matches!(value.dtype(), DType::Index | DType::Void);
    if !element {
        return Err(refuse(format!("{} is no element", value.op().name())));
    }
    if nodes
        .iter()
        .any(|u| u.op() == Op::Store && u.src()[0] == **value)
    {
        return Err(refuse("the kernel writes over it"));
    }
    // Storage does not say within which bounds its elements are.
    let mut above = NodeSet::new();
    above.insert(value);
    let mut leads = false;
    for u in &nodes {
        if u.src().iter().any(|s| above.contains(s)) {
            above.insert(u);
        }
        leads |= u.op() == Op::Index && u.src()[1..].iter().any(|i| above.contains(i));
    }
    if leads {
        return Err(refuse("it says where something is read or written"));
    }
    if !matches!(space, AddrSpace::Local | AddrSpace::Reg) {
        return Err(refuse(format!("in {} storage", space.name())));
    }
    let open = value.ranges();
    let mut dims = Vec::with_capacity(runs.len());
    for run in runs {
        let within = run.iter().all(|r| open.contains(r));
        let known = whole(run).src()[0].as_int().filter(|_| within);
        let Some(extent) = known else {
            return Err(refuse("it does not vary with an axis of a known extent"));
        };
        dims.push(extent);
    }
    if let [_, .., inner] = &mut dims[..]
        && *space == AddrSpace::Local
        && !target.workgroups
    {
        *inner += apart(*inner, value.dtype());
    }
    let elements = dims.iter().try_fold(1i64, |n, d| n.checked_mul(*d));
    let bytes = elements.and_then(|n| n.checked_mul(value.dtype().bytes() as i64));
    let most = match space {
        AddrSpace::Local if target.local_bytes > 0 => target.local_bytes as i64,
        _ => i64::MAX,
    };
    if bytes.is_none_or(|bytes| bytes > most) {
        return Err(refuse(format!("it does not fit {most} bytes")));
    }
    let slot = scratch::next_slot(kernel);
    Ok(UOp::scratch(slot, &Shape::of(&dims), value.dtype(), *space))
}

/// By how many elements rows of so many are longer in storage, so that a tile of some of them does not lie in one set
/// of the first cache.
fn apart(row: i64, dtype: DType) -> i64 {
    let bytes = dtype.bytes() as i64;
    match cost::beside(row.saturating_mul(bytes)) < ROWS {
        true => LINE / bytes.max(1),
        false => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::opt::tests::support::*;
    use crate::opt::{apply, axes};
    use monoglot_oracle::eval_kernel::eval_kernel;

    fn result(kernel: &UOp) -> Vec<Vec<u8>> {
        let mut bufs = buffers(kernel, 5);
        eval_kernel(kernel, &mut bufs, &[]).unwrap();
        bufs
    }

    #[test]
    fn a_kernel_computes_the_same_from_storage_of_its_own() {
        let product = matmul(8, 4, 12);
        let want = result(&product);
        for kernel in &staged_kernels(true)[..6] {
            assert!(kernel.ops_below().contains(Op::Buffer));
            assert!(result(kernel) == want, "{kernel}");
        }
    }

    #[test]
    fn axes_that_run_at_the_same_time_have_parts_of_their_own() {
        let target = target(true);
        let rows = staged(&matmul(8, 4, 12), Some(1), &[2], AddrSpace::Local, &target);
        let shape = |opts: &[&str]| {
            let opts: Vec<_> = opts.iter().map(|o| o.parse().unwrap()).collect();
            let kernel = apply(&rows, &opts, &target).unwrap();
            let nodes = kernel.toposort();
            let storage = nodes.iter().find(|u| u.op() == Op::Buffer).unwrap();
            storage.shape().ints().unwrap()
        };
        assert_eq!(shape(&[]), [12]);
        assert_eq!(shape(&["SPLIT(0,4,UPCAST)"]), [12, 4]);
        assert_eq!(
            shape(&["SPLIT(0,2,LOCAL)", "SPLIT(0,4,UPCAST)"]),
            [2, 12, 4]
        );
        // Columns read the same row.
        assert_eq!(shape(&["SPLIT(1,2,LOCAL)", "SPLIT(1,2,UPCAST)"]), [12]);
    }

    /// Columns of the second factor as they are kept, and with their terms or themselves innermost.
    #[test]
    fn the_last_axis_of_storage_may_be_another() {
        let product = matmul(8, 4, 12);
        let want = result(&product);
        let target = target(false);
        for (opt, dims) in [
            ("STAGE(0,1)", [4, 12]),
            ("STAGE(0,1,2)", [4, 12]),
            ("STAGE(0,1,1)", [12, 4]),
        ] {
            let kernel = apply(&product, &[opt.parse().unwrap()], &target).unwrap();
            let nodes = kernel.toposort();
            let storage = nodes.iter().find(|u| u.op() == Op::Buffer).unwrap();
            assert_eq!(storage.shape().ints().unwrap(), dims, "{opt}");
            assert!(result(&kernel) == want, "{opt}");
        }
        let opt = "STAGE(0,1,0)".parse().unwrap();
        let error = apply(&product, &[opt], &target).unwrap_err().to_string();
        assert!(error.contains("none that is kept"), "{error}");
    }

    /// Weights of one output lie one behind the other, elements of an image do not.
    #[test]
    fn terms_that_follow_each_other_are_kept_as_one_axis() {
        let image = conv(1, 2, 4, 6, 3);
        let want = result(&image);
        for (opt, dims) in [
            ("STAGE(1,1)", vec![18]),
            ("STAGE(0,1)", vec![4, 18]),
            ("STAGE(0,1,1)", vec![18, 4]),
            ("STAGE(0,1,4)", vec![4, 9, 2]),
            ("STAGE(2,0)", vec![4, 2, 3, 3]),
        ] {
            let kernel = apply(&image, &[opt.parse().unwrap()], &target(false)).unwrap();
            let nodes = kernel.toposort();
            let storage = nodes.iter().find(|u| u.op() == Op::Buffer).unwrap();
            assert_eq!(storage.shape().ints().unwrap(), dims, "{opt}");
            assert!(result(&kernel) == want, "{opt}");
        }
    }

    /// A row that is kept, and lanes of sums of it.
    #[test]
    fn what_lanes_keep_is_not_kept_again_in_a_workgroup() {
        let target = target(true);
        let rows = staged(&matmul(8, 4, 12), Some(1), &[2], AddrSpace::Local, &target);
        let opts = ["SPLIT(0,4,UPCAST)", "STAGE(0,2)"].map(|o| o.parse().unwrap());
        let error = apply(&rows, &opts, &target).unwrap_err().to_string();
        assert!(error.contains("what its lanes keep"), "{error}");
    }

    /// A row of the second factor, shared by the threads of a workgroup that has a column of it.
    #[test]
    fn who_shares_a_slice_does_not_fill_it_for_another_turn() {
        let opts = ["SPLIT(1,4,GLOBAL)", "STAGE(0,1)", "SPLIT(0,4,LOOP)"];
        let opts = opts.map(|o| o.parse().unwrap());
        let error = apply(&matmul(8, 4, 12), &opts, &target(true)).unwrap_err();
        assert!(error.to_string().contains("may still read"), "{error}");
    }

    #[test]
    fn what_cannot_be_kept_is_an_error() {
        let target = target(true);
        let product = matmul(8, 4, 12);
        let nodes = product.toposort();
        let r = axes(&product);
        let sum = nodes.iter().find(|u| u.op() == Op::Reduce).unwrap();
        let out = nodes.iter().find(|u| u.op() == Op::Store).unwrap();
        let refused = |value: &UOp, over: &[UOp], space, why: &str| {
            let staging = Staging { value, over, space };
            let error = stage(&product, &staging, &target).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        };
        refused(sum, &r[2..], AddrSpace::Local, "does not vary");
        refused(&r[0], &[], AddrSpace::Local, "RANGE is no element");
        refused(&out.src()[0], &r[..1], AddrSpace::Reg, "writes over it");
        refused(sum, &r[..1], AddrSpace::Global, "in GLOBAL storage");
        refused(
            &UOp::float(2.0, DType::F32),
            &[],
            AddrSpace::Reg,
            "none of the kernel's",
        );
        let gather = &kernels()[6];
        let nodes = gather.toposort();
        let staging = Staging {
            value: nodes
                .iter()
                .find(|u| u.dtype() == DType::U8 && u.op() == Op::Index)
                .unwrap(),
            over: &[],
            space: AddrSpace::Reg,
        };
        let error = stage(gather, &staging, &target).unwrap_err().to_string();
        assert!(error.contains("says where something is read"), "{error}");
        let wide = matmul(80, 80, 12);
        let nodes = wide.toposort();
        let staging = Staging {
            value: nodes.iter().find(|u| u.op() == Op::Reduce).unwrap(),
            over: &axes(&wide)[..2],
            space: AddrSpace::Local,
        };
        let error = stage(&wide, &staging, &target).unwrap_err().to_string();
        assert!(error.contains("does not fit 16384 bytes"), "{error}");
    }
}
