//! Choices within what is chosen by the same condition. Flows in: a kernel; flows out: the same kernel, where the first
//! value of a WHERE does not choose again by what that WHERE has found, and reads without asking what may be read anyhow.
//! Padding what several operations give of images and of numbers of each channel leaves such choices and such reads:
//! without them what a channel has alone is computed once for it.
//!
//! Invariant: only floats lose a choice, of which none is an index, a divisor that may be 0 or the number of turns of a
//! loop: the other value may be what keeps a program from a fault.

use monoglot_uop::marks::NodeMap;
use monoglot_uop::rules::conjuncts;
use monoglot_uop::{Arg, Op, UOp};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Most nodes that are looked at below a WHERE.
const MOST: usize = 256;

/// The kernel without them; None where it has none.
pub(super) fn once(kernel: &UOp) -> Option<UOp> {
    if !kernel.ops_below().contains(Op::Where) {
        return None;
    }
    let nodes = kernel.toposort();
    let mut done: NodeMap<&UOp, UOp> = NodeMap::with_capacity(nodes.len());
    for u in &nodes {
        let src: Vec<UOp> = u.src().iter().map(|s| done[s].clone()).collect();
        let same = src[..] == *u.src();
        let new = if same { u.clone() } else { u.with_src(src) };
        let fewer = is_choice(&new).then(|| without(&new)).flatten();
        done.insert(u, fewer.unwrap_or(new));
    }
    // What others want with the choice is computed once more without it.
    let new = &done[kernel];
    let less = |k: &UOp| work(&k.toposort()) <= work(&nodes);
    (new != kernel && less(new)).then(|| new.clone())
}

/// What the arithmetic of some nodes costs, each once.
fn work(nodes: &[UOp]) -> f32 {
    let floats = nodes.iter().filter(|u| u.dtype().is_float());
    let arithmetic = floats.filter(|u| u.op().is_elementwise());
    arithmetic.map(|u| u.op().traits().cost as f32).sum()
}

fn is_choice(u: &UOp) -> bool {
    u.op() == Op::Where && u.dtype().is_float() && *u.arg() == Arg::None
}

/// Whether a node is computed of others of its iteration, or of a loop of its own, without a fault whatever they are.
fn is_harmless(u: &UOp) -> bool {
    let of_floats = |s: &UOp| s.dtype().is_float();
    let compares = u.op().is_comparison() && u.src().iter().all(of_floats);
    let computed = u.op().is_elementwise() || u.op() == Op::Reduce;
    compares || computed && u.dtype().is_float()
}

/// A WHERE whose first value has lost the choices that this one has made; None where there are none.
fn without(outer: &UOp) -> Option<UOp> {
    let known = conjuncts(&outer.src()[0]);
    let taken = |u: &UOp| -> Option<UOp> {
        let chosen = u.src().get(1).filter(|_| is_choice(u))?;
        let settled = conjuncts(&u.src()[0]).iter().all(|c| known.contains(c));
        // What is read only where it may be says so itself, and reading it is choosing.
        let gated = chosen.op() == Op::Index;
        let gated = gated && chosen.src()[1..].iter().any(|i| i.op() == Op::Where);
        (settled && !gated).then(|| chosen.clone())
    };
    let read = |u: &UOp| -> Option<UOp> {
        let [storage, at] = u.src() else { return None };
        let gated = u.op() == Op::Index && at.op() == Op::Where && at.src()[2].is_invalid();
        let place = at.src().get(1).filter(|_| gated)?;
        let [condition, ..] = at.src() else {
            return None;
        };
        let settled = conjuncts(condition).iter().all(|c| known.contains(c));
        let (lo, hi) = place.bounds();
        let inside = lo >= 0 && hi < storage.shape().first()?.as_int()?;
        let same = |r: &UOp| place.ranges().contains(r);
        let again = condition.ranges().iter().any(|r| !same(r));
        (settled && inside && again).then(|| storage.at(&[place.clone()]))
    };
    let first = &outer.src()[1];
    let mut done: FxHashMap<UOp, UOp> = FxHashMap::default();
    let mut found = false;
    let mut stack: Vec<(UOp, bool)> = vec![(first.clone(), false)];
    while let Some((u, ready)) = stack.pop() {
        if done.contains_key(&u) {
            continue;
        }
        if done.len() + stack.len() > MOST {
            return None;
        }
        if let Some(plain) = read(&u) {
            found = true;
            done.insert(u, plain);
            continue;
        }
        let new = |s: &UOp| done.get(s).unwrap_or(s).clone();
        let chosen = taken(&u);
        let below: SmallVec<[UOp; 3]> = match &chosen {
            Some(chosen) => [chosen.clone()].into_iter().collect(),
            None if is_harmless(&u) => u.src().iter().cloned().collect(),
            None => SmallVec::new(),
        };
        if !ready && !below.is_empty() {
            stack.push((u.clone(), true));
            stack.extend(below.into_iter().map(|s| (s, false)));
            continue;
        }
        found |= chosen.is_some();
        let value = match chosen {
            Some(chosen) => new(&chosen),
            None if below.is_empty() => u.clone(),
            None => u.with_src(u.src().iter().map(new).collect::<Vec<_>>()),
        };
        done.insert(u, value);
    }
    let [condition, _, other] = outer.src() else {
        return None;
    };
    let srcs = [condition, &done[first], other];
    found.then(|| outer.with_src(srcs.map(UOp::clone).to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use monoglot_oracle::eval_kernel::eval_kernel;
    use monoglot_uop::{AxisType, DType, KernelInfo, Shape};
    use std::sync::Arc;

    fn param(slot: u64, size: i64) -> UOp {
        UOp::param(slot, &Shape::of(&[size]), DType::F32, None)
    }

    /// Three rows of ten, and where none of their first and last elements is.
    fn rows() -> ([UOp; 2], UOp) {
        let r = [(3, 0), (10, 1)].map(|(n, id)| UOp::range(n, id, AxisType::Loop));
        let inside = r[1].like(0).lt(&r[1]) & r[1].lt(&r[1].like(9));
        (r, inside)
    }

    /// A kernel that writes this to the rows.
    fn kernel(r: &[UOp; 2], value: &UOp) -> UOp {
        let out = param(0, 30).at(&[&(&r[0] * 10) + &r[1]]);
        let info = Arg::Kernel(Arc::new(KernelInfo::default()));
        UOp::sink(&[out.store(value).end(r)]).with_arg(info)
    }

    fn run(k: &UOp) -> Vec<u8> {
        let bytes = |n: usize| -> Vec<u8> {
            let value = |i: usize| (i as f32 * 0.37 - 2.0).to_le_bytes();
            (0..n).flat_map(value).collect()
        };
        let mut all = vec![bytes(30), bytes(24), bytes(3)];
        eval_kernel(k, &mut all, &[]).unwrap();
        all.swap_remove(0)
    }

    /// What a row's number and an element give, each 0 at the ends, of which the result is 0 too.
    fn padded(of: impl Fn(&UOp, &UOp, &UOp) -> UOp) -> UOp {
        let (r, inside) = rows();
        let at = &(&(&r[0] * 8) + &r[1]) + -1;
        let x = param(1, 24).at(&[at.valid(&inside)]);
        let number = param(2, 3).at(&r[..1]);
        let zero = UOp::float(0.0, DType::F32);
        let [x, number] = [x, number].map(|v| inside.select(&v, &zero));
        let value = inside.select(&of(&x, &number, &inside), &zero);
        kernel(&r, &value)
    }

    fn choices(k: &UOp) -> usize {
        k.toposort().iter().filter(|u| is_choice(u)).count()
    }

    #[test]
    fn what_is_chosen_is_not_chosen_again() {
        let normal = |x: &UOp, number: &UOp, _: &UOp| x * &(number + 0.5).unary(Op::Recip);
        // A condition that holds where this one does, and one that may not.
        let half = |x: &UOp, number: &UOp, inside: &UOp| {
            let more = inside & &x.lt(&x.like(0.5));
            x + &more.select(number, &x.like(1.0))
        };
        for (k, wanted) in [(padded(normal), 2), (padded(half), 3)] {
            let less = once(&k).unwrap();
            assert!(choices(&k) > wanted, "{k}");
            assert_eq!(choices(&less), wanted, "{less}");
            assert_eq!(run(&k), run(&less));
        }
    }

    #[test]
    fn what_others_want_is_not_computed_twice() {
        let (r, inside) = rows();
        let x = param(1, 30).at(&[&(&r[0] * 10) + &r[1]]);
        let power = inside.select(&x, &(&x * -1.0)).unary(Op::Exp2);
        let chosen = inside.select(&power, &x.like(1.0));
        let k = kernel(&r, &(&chosen * &(&power + 1.0).unary(Op::Recip)));
        assert_eq!(once(&k), None);
        assert!(once(&kernel(&r, &chosen)).is_some());
    }

    #[test]
    fn what_may_be_read_anyhow_is_read_without_asking() {
        let (r, inside) = rows();
        let numbers = |size: i64| {
            let at = r[0].valid(&inside);
            let number = param(2, size).at(&[at]);
            kernel(&r, &inside.select(&(&number + 0.5), &number.like(0.0)))
        };
        let gates = |k: &UOp| {
            let nodes = k.toposort();
            nodes.iter().filter(|u| u.is_invalid()).count()
        };
        let less = once(&numbers(3)).unwrap();
        assert_eq!(gates(&less), 0, "{less}");
        // One place fewer than there are rows.
        let k = numbers(2);
        assert_eq!(once(&k), None);
    }

    /// A row's sum is read for the row, whichever of its elements asks.
    #[test]
    fn what_a_row_adds_up_does_not_ask_for_its_ends() {
        let (r, inside) = rows();
        let term = UOp::range(8, 7, AxisType::Reduce);
        let at = &(&r[0] * 8) + &term;
        let x = param(1, 24).at(&[at.valid(&inside)]);
        let sum = x.reduce_ranges(monoglot_uop::ReduceOp::Add, &[term]);
        let k = kernel(&r, &inside.select(&sum, &sum.like(0.0)));
        let less = once(&k).unwrap();
        let sums = less.toposort();
        let sum = sums.iter().find(|u| u.op() == Op::Reduce).unwrap();
        assert_eq!(sum.ranges().to_vec(), [r[0].clone()], "{less}");
        assert_eq!(run(&k), run(&less));
    }

    #[test]
    fn what_keeps_from_a_fault_stays() {
        let divided = |x: &UOp, number: &UOp, inside: &UOp| {
            let n = number.cast(DType::I32);
            let divisor = inside.select(&n, &n.like(1));
            let quotient = &x.cast(DType::I32) / &divisor;
            quotient.cast(DType::F32)
        };
        let k = padded(divided);
        assert_eq!(once(&k), None);
    }
}
