//! Powers of what is at most 0. Flows in: a kernel; flows out: the same kernel, where an EXP2 whose argument is a
//! difference from the greatest of a set, of which what is subtracted from is one, says so (`Arg::Below`).
//!
//! Half of the range is enough for less work (`decompose`), and a softmax does little else. What is known of a
//! reduction's result is seen here, while it is a REDUCE.

use crate::graph::rebuild;
use monoglot_uop::{Arg, Op, ReduceOp, Result, UOp};
use rustc_hash::{FxHashMap, FxHashSet};

/// Most pairs of nodes that are compared.
const PAIRS: usize = 256;

/// The kernel that says so.
///
/// # Errors
/// None for a kernel that obeys its spec.
pub(crate) fn say(kernel: &UOp) -> Result<UOp> {
    let ops = kernel.ops_below();
    if !ops.contains(Op::Exp2) || !ops.contains(Op::Reduce) {
        return Ok(kernel.clone());
    }
    let nodes = kernel.toposort();
    let known: FxHashSet<&UOp> = nodes.iter().filter(|u| is_below(u)).collect();
    if known.is_empty() {
        return Ok(kernel.clone());
    }
    rebuild(kernel, |u, src| {
        let same = src[..] == *u.src();
        let new = if same { u.clone() } else { u.with_src(src) };
        Ok(if known.contains(u) {
            new.with_arg(Arg::Below)
        } else {
            new
        })
    })
}

/// Whether this is a power of what is at most 0, or NaN: of a positive multiple of a difference from the greatest.
fn is_below(u: &UOp) -> bool {
    let positive = |c: &UOp| c.const_value().is_some_and(|c| c.to_f64() > 0.0);
    let multiple = |u: &UOp| u.op() == Op::Mul && positive(&u.src()[1]);
    let of = u.src().first().filter(|_| u.op() == Op::Exp2);
    let of = of.map(|x| if multiple(x) { &x.src()[0] } else { x });
    of.is_some_and(|x| x.op() == Op::Sub && is_one_of(&x.src()[0], &x.src()[1]))
}

/// Whether a value is one of those of which the other is the greatest: it is what they are, at places that its own
/// ranges give.
fn is_one_of(one: &UOp, greatest: &UOp) -> bool {
    if !matches!(greatest.arg(), Arg::Reduce(ReduceOp::Max, _)) {
        return false;
    }
    let ranges = &greatest.src()[1..];
    let mut places: FxHashMap<&UOp, &UOp> = FxHashMap::default();
    let mut seen: FxHashSet<(&UOp, &UOp)> = FxHashSet::default();
    let mut pairs = vec![(one, &greatest.src()[0])];
    while let Some((x, y)) = pairs.pop() {
        if !seen.insert((x, y)) {
            continue;
        }
        if ranges.contains(y) {
            let within = x.dtype() == y.dtype() && x.vmin() >= 0 && x.vmax() <= y.vmax();
            if !within || *places.entry(y).or_insert(x) != x {
                return false;
            }
            continue;
        }
        let alike = x.op() == y.op() && x.arg() == y.arg() && x.dtype() == y.dtype();
        let leaf = y.src().is_empty() || y.op() == Op::Range;
        if seen.len() > PAIRS || !alike || x.src().len() != y.src().len() || leaf && x != y {
            return false;
        }
        pairs.extend(x.src().iter().zip(y.src()).filter(|_| !leaf));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::opt::tests::support::{linear, param, ranges, sink};
    use monoglot_oracle::eval_kernel::eval_kernel;
    use monoglot_uop::DType;

    /// Powers of differences from the greatest of a row of so many columns, read with this stride.
    fn kernel(columns: i64, stride: i64, factor: f64) -> UOp {
        let r = ranges(&[4, 8], &[columns]);
        let x = param(1, &[64], DType::F32);
        let at = |c: &UOp, by: i64| x.at(&[linear(&[(&r[0], 16), (c, by)])]);
        let greatest = at(&r[2], stride).reduce_ranges(ReduceOp::Max, &r[2..]);
        let value = &(&at(&r[1], 1) - &greatest) * &UOp::float(factor, DType::F32);
        let out = param(0, &[32], DType::F32).at(&[linear(&[(&r[0], 8), (&r[1], 1)])]);
        sink(&[out.store(&value.unary(Op::Exp2)).end(&r[..2])])
    }

    #[test]
    fn what_is_one_of_a_set_is_at_most_the_greatest() {
        for columns in [8, 16] {
            let k = kernel(columns, 1, 1.5);
            let said = say(&k).unwrap();
            assert_ne!(said, k);
            let values = [
                1.0,
                f32::NAN,
                f32::INFINITY,
                -3.0e38,
                f32::NEG_INFINITY,
                -0.0,
            ];
            let bytes = |n: usize, f: &dyn Fn(usize) -> f32| -> Vec<u8> {
                (0..n).flat_map(|i| f(i).to_le_bytes()).collect()
            };
            let x = bytes(64, &|i| match i / 16 {
                0 => i as f32,
                row => values[(i * row / 3) % values.len()],
            });
            let run = |k: &UOp| {
                let mut buffers = vec![bytes(32, &|_| 0.0), x.clone()];
                eval_kernel(k, &mut buffers, &[]).unwrap();
                buffers.swap_remove(0)
            };
            assert_eq!(run(&k), run(&said));
        }
    }

    #[test]
    fn what_is_not_may_be_greater() {
        // Fewer columns, others, and what grows as the difference falls.
        for k in [kernel(7, 1, 1.5), kernel(8, 2, 1.5), kernel(8, 1, -1.5)] {
            assert_eq!(say(&k).unwrap(), k);
        }
    }
}
