//! Elementwise expressions, reductions, normalisations, losses, scans and copies. Flows in: nothing; flows
//! out: workloads, whose sizes are in their names.

use super::{Result, Sizes, Tensor, Workload, count, moving, normal, numbers, one, values};
use monoglot::Reduction;

const M16: i64 = 1 << 24;

/// See the module.
pub(super) fn all() -> Vec<Workload> {
    vec![
        chain("chain_16M", M16),
        folded("sum_16M", &[M16], |x, _| one(x[0].sum(.., false))),
        folded("max_16M", &[M16], |x, _| one(x[0].max(.., false))),
        folded("mean_16M", &[M16], |x, _| one(x[0].mean(.., false))),
        sum_axis0("sum_axis0_4096x4096", [4096, 4096]),
        softmax("softmax_4096x4096", [4096, 4096]),
        layernorm("layernorm_4096x1024", [4096, 1024]),
        cross_entropy("cross_entropy_4096x32000", [4096, 32000]),
        cross_entropy_grad("cross_entropy_4096x32000_bwd", [4096, 32000]),
        transpose("transpose_4096", 4096),
        cumsum("cumsum_4096", &[4096, 4096]),
        cumsum_axis0("cumsum_axis0_4096", 4096),
        cumsum("cumsum_100000", &[100_000]),
    ]
}

/// A few operations on each element of two vectors.
pub(super) fn chain(name: &'static str, n: i64) -> Workload {
    let inputs = |s: &Sizes| vec![normal(s), normal(s)];
    let work = moving(2.0 * n as f64, n as f64);
    values(name, work, &[n], inputs, |x, _| {
        one((&x[0] * 2.0 + 1.0).relu().exp() * &x[1])
    })
}

type Of = fn(&[Tensor], &Sizes) -> Result<Vec<Tensor>>;

/// One number of all elements.
pub(super) fn folded(name: &'static str, shape: &[i64], of: Of) -> Workload {
    values(name, moving(count(shape), 1.0), shape, array, of)
}

/// The sum of all rows.
pub(super) fn sum_axis0(name: &'static str, shape: [i64; 2]) -> Workload {
    let work = moving(count(&shape), shape[1] as f64);
    values(name, work, &shape, array, |x, _| one(x[0].sum(0, false)))
}

/// Of each row.
pub(super) fn softmax(name: &'static str, shape: [i64; 2]) -> Workload {
    mapped(name, &shape, |x, _| one(x[0].softmax(1)))
}

/// Of each row, with a weight and a bias.
pub(super) fn layernorm(name: &'static str, shape: [i64; 2]) -> Workload {
    let inputs = |s: &Sizes| vec![normal(s), normal(&s[1..]), normal(&s[1..])];
    let all = count(&shape);
    let work = moving(all + 2.0 * shape[1] as f64, all);
    values(name, work, &shape, inputs, |x, s| {
        one(x[0].layer_norm(vec![s[1]], Some(&x[1]), Some(&x[2]), 1e-5))
    })
}

/// Scores (rows, classes), and the class of each row.
fn scores(s: &Sizes) -> Vec<Tensor> {
    vec![normal(s), numbers(&s[..1], s[1])]
}

fn loss(x: &[Tensor]) -> Tensor {
    x[0].cross_entropy(&x[1], Reduction::Mean, 0.0)
}

/// The mean over the rows of −ln of the softmax of the row's class.
pub(super) fn cross_entropy(name: &'static str, shape: [i64; 2]) -> Workload {
    let work = moving(count(&shape) + shape[0] as f64, 1.0);
    values(name, work, &shape, scores, |x, _| one(loss(x)))
}

/// Its gradient by the scores.
pub(super) fn cross_entropy_grad(name: &'static str, shape: [i64; 2]) -> Workload {
    let all = count(&shape);
    let work = moving(all + shape[0] as f64, all);
    values(name, work, &shape, scores, |x, _| {
        loss(x).gradient(&[&x[0]])
    })
}

/// A square, turned in storage.
pub(super) fn transpose(name: &'static str, n: i64) -> Workload {
    mapped(name, &[n, n], |x, _| one(x[0].t().contiguous()))
}

/// Sums of what came before along the last axis.
pub(super) fn cumsum(name: &'static str, shape: &[i64]) -> Workload {
    mapped(name, shape, |x, _| one(x[0].cumsum(-1)))
}

/// The same along the first axis of a square.
pub(super) fn cumsum_axis0(name: &'static str, n: i64) -> Workload {
    mapped(name, &[n, n], |x, _| one(x[0].cumsum(0)))
}

/// An array that gives one of its own shape.
fn mapped(name: &'static str, shape: &[i64], of: Of) -> Workload {
    let n = count(shape);
    values(name, moving(n, n), shape, array, of)
}

fn array(s: &Sizes) -> Vec<Tensor> {
    vec![normal(s)]
}
