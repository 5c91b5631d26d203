//! SWAP of a reduction's axis with a loop: a sum that is kept in storage of the kernel's own is done in
//! parts, and the loop over the parts goes around the loops that fill the storage. Flows in: the nest, a
//! REDUCE axis and the outermost LOOP axis of those that fill the storage; flows out: the nest in which
//! the storage is set to the identity, and every part of the sum is then combined with what it holds. With
//! SPLIT and STAGE that is the loop over blocks of k of the blocked product (Goto and van de Geijn 2008,
//! section 4). Parts of a sum may be done in parts again, by another of its axes: the loop over these goes
//! around the first. Many parts of floats that are each read for one sum alone are added in the widest float.
//!
//! Preconditions:
//! * the REDUCE over the axis is stored in storage of the kernel's own as it is, or combined with what that
//!   holds, and used nowhere else;
//! * the loop is the outermost of those that fill the storage, and each of these says by itself where an
//!   element lies along one axis of the storage;
//! * no thread of a workgroup waits for others there.

use super::nest::LoopNest;
use super::{refuse, scan};
use crate::build;
use crate::loops;
use crate::scratch;
use monoglot_uop::{Arg, AxisType, DType, Op, Opt, ReduceOp, Result, Target, UOp};
use rustc_hash::FxHashMap;

pub(super) fn step(nest: &mut LoopNest, opt: &Opt, with: usize, target: &Target) -> Result<()> {
    let kernel = nest.kernel();
    let nodes = kernel.toposort();
    let axes = super::ranges(&nodes);
    let kept = kept(&nodes, &axes[opt.axis], &axes[with]).ok_or_else(|| {
        refuse(
            opt,
            "no loop fills storage with the sum over that axis alone",
        )
    })?;
    let part = &axes[opt.axis];
    let dtype = kept.held(part, target);
    if !kept.behind.is_empty() && dtype != kept.storage().dtype() {
        return Err(refuse(opt, "the storage holds floats for fewer parts"));
    }
    *nest = LoopNest::new(&in_parts(&kernel, &kept, part, &axes[with], dtype))?;
    Ok(())
}

/// A sum in storage of the kernel's own.
struct Kept {
    /// `AFTER(b, END(STORE(INDEX(b, at), REDUCE), own))`.
    filled: UOp,
    store: UOp,
    sum: UOp,
    op: ReduceOp,
    /// The loops that fill the storage, outermost first, those over parts among them.
    own: Vec<UOp>,
    /// What sets the storage, and the loops over parts; nothing where the sum is not in parts yet.
    behind: Vec<UOp>,
}

/// Parts from which on a sum of floats loses what each of them adds.
const MANY: i64 = 16;

impl Kept {
    /// The dtype in which the parts are added: in a product, whose reads serve many sums, that of the sum.
    fn held(&self, part: &UOp, target: &Target) -> DType {
        let sum = &self.sum;
        let around = self.filled.ranges();
        let read = |u: &UOp| {
            let ranges = u.ranges();
            let mut open = self.own.iter().chain(around.iter()).chain([part]);
            u.op() == Op::Index && open.all(|r| ranges.contains(r))
        };
        let turns = self.behind.iter().filter(|u| u.op() == Op::Range);
        let parts = turns.chain([part]).map(|r| r.src()[0].vmax());
        let count = parts.fold(1, |n: i64, p| n.saturating_mul(p.saturating_add(1)));
        let many = count > MANY && sum.toposort().iter().any(read);
        let dtype = sum.dtype();
        let held = scan::held(self.op, dtype, target);
        let bytes = self.filled.shape().max_len() * held.bytes() as i64;
        let fits = target.local_bytes == 0 || bytes <= target.local_bytes as i64;
        if many && fits { held } else { dtype }
    }

    fn storage(&self) -> &UOp {
        &self.filled.src()[0]
    }
}

/// The one place where the sum over `part` is kept, filled by loops of which `outermost` is the first.
fn kept(nodes: &[UOp], part: &UOp, outermost: &UOp) -> Option<Kept> {
    let closes = |u: &&UOp| u.op() == Op::Reduce && u.src()[1..].contains(part);
    let mut sums = nodes.iter().filter(closes);
    let sum = sums.next().filter(|_| sums.next().is_none())?;
    let Arg::Reduce(op, _) = *sum.arg() else {
        return None;
    };
    let user = |of: &UOp| {
        let mut users = nodes.iter().filter(|u| u.src().contains(of));
        users.next().filter(|_| users.next().is_none()).cloned()
    };
    // Parts are combined with what the storage holds, as that.
    let stored = |u: &UOp| user(u).filter(|u| u.op() == Op::Store && u.src().len() == 2);
    let cast = user(sum).filter(|u| u.op() == Op::Cast);
    let part_sum = cast.unwrap_or(sum.clone());
    let combined = user(&part_sum).filter(|u| u.op() != Op::Store);
    let store = stored(combined.as_ref().unwrap_or(sum))?;
    let end = user(&store).filter(|u| u.op() == Op::End)?;
    let filled = user(&end).filter(|u| u.op() == Op::After && u.src().len() == 2)?;
    let mut own = end.src()[1..].to_vec();
    own.sort_by_key(loops::depth);
    let storage = &filled.src()[0];
    let address = &store.src()[0];
    let behind = match combined {
        Some(c) => {
            let same = [address, &part_sum].iter().all(|s| c.src().contains(s));
            let now = &address.src()[0];
            // Another operation may read both as what they are not, as a comparison does.
            let same = same && address.dtype() == part_sum.dtype();
            let of = || build::combine(op, address, &part_sum).op();
            let in_parts = same && c.op() == of() && now.op() == Op::After;
            now.src().get(1..).filter(|_| in_parts)?
        }
        None => &[],
    };
    let placed = |r: &UOp| address.src()[1..].contains(r) || behind.contains(r);
    let direct =
        address.src()[0].named() == storage && storage.op() == Op::Buffer && own.iter().all(placed);
    let found = own.first() == Some(outermost) && direct;
    found.then_some(Kept {
        behind: behind.to_vec(),
        sum: sum.clone(),
        filled,
        store,
        op,
        own,
    })
}

/// The kernel in which that sum is done in parts, one for each turn of `part`, a loop around `outermost`.
fn in_parts(kernel: &UOp, kept: &Kept, part: &UOp, outermost: &UOp, held: DType) -> UOp {
    let number = |r: &UOp| r.range_arg().map_or(0, |(id, _)| id);
    let mut next = loops::next_id(kernel) + 1;
    // Ranges are numbered in the order of their loops: those from the outermost on make room for one more.
    let at = number(outermost);
    let mut moved: FxHashMap<UOp, UOp> = FxHashMap::default();
    for r in kernel.toposort().iter().filter(|u| u.op() == Op::Range) {
        let (id, axis) = r.range_arg().unwrap_or((0, AxisType::Loop));
        let arg = match r == part {
            true => Arg::Range(at, AxisType::Loop),
            false if id >= at => Arg::Range(id + 1, axis),
            false => continue,
        };
        moved.insert(r.clone(), r.with_arg(arg));
    }
    let rename = |u: &UOp| u.substitute(&moved);
    let turn = rename(part);
    let own: Vec<UOp> = kept.own.iter().map(rename).collect();
    let storage = &scratch::retyped(kept.storage(), held);
    let place: Vec<UOp> = kept.store.src()[0].src()[1..].iter().map(rename).collect();
    let mut behind: Vec<UOp> = kept.behind.iter().map(rename).collect();
    if behind.is_empty() {
        // The storage is set by loops of its own, in every turn, or thread, of those around.
        let around: Vec<UOp> = (kept.filled.ranges().iter())
            .filter(|r| scratch::sets_anew(loops::kind(r)))
            .map(rename)
            .collect();
        let setting: FxHashMap<UOp, UOp> = (own.iter())
            .map(|r| (r.clone(), loops::fresh(r, AxisType::Loop, &mut next)))
            .collect();
        let set: Vec<UOp> = own.iter().map(|r| setting[r].clone()).collect();
        let first: Vec<UOp> = place.iter().map(|i| i.substitute(&setting)).collect();
        let identity = UOp::constant(kept.op.identity(storage.dtype()), storage.dtype());
        let empty = match around.is_empty() {
            true => storage.clone(),
            false => storage.after(&around),
        };
        behind.push(empty.at(&first).store(&identity).end(&set));
    }
    behind.push(turn.clone());

    let sum = &kept.sum;
    let rest: Vec<UOp> = (sum.src()[1..].iter())
        .filter(|r| *r != part)
        .map(rename)
        .collect();
    let body = rename(&sum.src()[0]);
    let term = match rest.is_empty() {
        true => body,
        false => body.reduce_ranges(kept.op, &rest),
    };
    let now = storage.after(&behind).at(&place);
    let combined = build::combine(kept.op, &now, &term.cast(held));
    let closes: Vec<UOp> = std::iter::once(turn).chain(own).collect();
    let filled = storage.after(&[now.store(&combined).end(&closes)]);
    let reads = |u: &&UOp| u.op() == Op::Index && u.src()[0] == kept.filled;
    let read = |u: &UOp| {
        let at: Vec<UOp> = u.src()[1..].iter().map(rename).collect();
        (u.clone(), filled.at(&at).cast(u.dtype()))
    };
    let nodes = kernel.toposort();
    let all: Vec<(UOp, UOp)> = nodes.iter().filter(reads).map(read).collect();
    moved.extend(all);
    kernel.substitute(&moved)
}

#[cfg(test)]
mod tests {
    use crate::opt::apply;
    use crate::opt::tests::support::{check_on, kernels, matmul, target};
    use monoglot_uop::{Opt, UOp};

    fn opts(list: &[&str]) -> Vec<Opt> {
        let parsed = list.iter().map(|o| o.parse().expect("an Opt"));
        parsed.collect()
    }

    fn check(kernel: &UOp, opts: &[Opt]) -> UOp {
        check_on(kernel, opts, &target(false))
    }

    fn refused(kernel: &UOp, opts: &[Opt], why: &str) {
        let error = apply(kernel, opts, &target(false)).expect_err("it cannot be done");
        assert!(error.to_string().contains(why), "{error}");
    }

    /// Blocks of rows, and their sums in three parts.
    fn blocks() -> Vec<Opt> {
        opts(&[
            "SPLIT(0,4,LOOP)",
            "STAGE(0,2)",
            "SPLIT(5,3,REDUCE,top)",
            "SWAP(5,3)",
        ])
    }

    #[test]
    fn a_sum_in_parts_is_the_same() {
        let product = matmul(8, 4, 12);
        let kernel = check(&product, &blocks());
        let extents: Vec<i64> = crate::opt::axes(&kernel)
            .iter()
            .map(|r| r.vmax() + 1)
            .collect();
        // Blocks; what reads the sums; parts, and what fills the sums; what sets them; a part's terms.
        assert_eq!(extents, [2, 4, 4, 3, 4, 4, 4, 4, 4]);
        // A register tile of the parts, and both factors staged.
        let tile = opts(&[
            "SPLIT(5,2,UPCAST)",
            "SPLIT(4,4,UPCAST)",
            "STAGE(3,0)",
            "STAGE(3,1)",
        ]);
        check(&product, &[blocks(), tile].concat());
    }

    #[test]
    fn every_sum_that_is_kept_can_be_done_in_parts() {
        for kernel in kernels() {
            let target = target(false);
            let reads = crate::opt::staging::operands(&kernel.toposort()).len();
            for operand in 0..reads {
                let Ok(kept) = apply(&kernel, &opts(&[&format!("STAGE(0,{operand})")]), &target)
                else {
                    continue;
                };
                let axes = crate::opt::axes(&kept).len();
                for (a, b) in (0..axes).flat_map(|a| (0..axes).map(move |b| (a, b))) {
                    let list = opts(&[&format!("STAGE(0,{operand})"), &format!("SWAP({a},{b})")]);
                    if apply(&kernel, &list, &target).is_ok() {
                        check(&kernel, &list);
                    }
                }
            }
        }
    }

    #[test]
    fn a_sum_in_registers_stays_inside_its_loops() {
        refused(
            &matmul(8, 4, 12),
            &opts(&["SWAP(2,0)"]),
            "no loop fills storage",
        );
    }

    /// The axes of a sum one after the other, each around the last.
    #[test]
    fn parts_are_done_in_parts() {
        let product = matmul(8, 4, 24);
        let more = opts(&["SPLIT(8,2,REDUCE,top)", "SWAP(8,3)"]);
        let list = [blocks(), more].concat();
        let kernel = check(&product, &list);
        let extents: Vec<i64> = crate::opt::axes(&kernel)
            .iter()
            .map(|r| r.vmax() + 1)
            .collect();
        assert_eq!(extents, [2, 4, 4, 2, 3, 4, 4, 4, 4, 4]);
        let tile = opts(&[
            "SPLIT(6,2,UPCAST)",
            "SPLIT(5,4,UPCAST)",
            "STAGE(4,0)",
            "STAGE(3,1)",
        ]);
        check(&product, &[list, tile].concat());
    }

    /// The carried loop stays where it is; those that fill the storage may be split and exchanged.
    #[test]
    fn parts_stay_in_order() {
        let product = matmul(8, 4, 12);
        let with = |more: &str| [blocks(), opts(&[more])].concat();
        refused(&product, &with("SPLIT(3,3,LOOP)"), "what the last one left");
        refused(&product, &with("SWAP(3,4)"), "what the last one left");
        check(&product, &with("SWAP(4,5)"));
    }
}
