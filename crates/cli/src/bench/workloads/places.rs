//! What reads and writes at places that come from data: lookups, their gradients, histograms, sorts. Flows
//! in: nothing; flows out: workloads, whose sizes are in their names.

use super::{Call, DType, Result, Sizes, Tensor, Workload, call, count, moving, normal, numbers};
use super::{one, values};
use monoglot::nn::{Embedding, Optimizer, Sgd};

/// See the module.
pub(super) fn all() -> Vec<Workload> {
    vec![
        lookup("embedding_8192x512", [8192, 512], 32768),
        embedding_sgd("embedding_sgd_30000x128_1024", [30_000, 128], 1024),
        histogram("histogram_393216_256", 393_216, 256),
        sort("sort_100000", &[100_000]),
        sort("sort_64x4096", &[64, 4096]),
        argsort("argsort_100000", &[100_000]),
        argsort("argsort_64x4096", &[64, 4096]),
        topk("topk10_100000", &[100_000], 10),
        topk("topk10_64x4096", &[64, 4096], 10),
    ]
}

/// So many rows of a table that has more.
pub(super) fn lookup(name: &'static str, taken: [i64; 2], rows: i64) -> Workload {
    let inputs = |s: &Sizes| vec![normal(&s[1..]), numbers(&s[..1], s[1])];
    let moved = count(&taken);
    let work = moving(moved + taken[0] as f64, moved);
    values(name, work, &[taken[0], rows, taken[1]], inputs, |x, _| {
        one(x[0].index_select(0, &x[1]))
    })
}

/// One step of gradient descent on a table of which so many rows are looked up.
fn embedding_sgd(name: &'static str, table: [i64; 2], ids: i64) -> Workload {
    let [rows, width] = table;
    let moved = count(&[ids, width]);
    let work = moving(2.0 * moved + ids as f64, moved);
    call(name, work, move || {
        descent(Embedding::new(rows as usize, width as usize), ids)
    })
}

/// The step: the loss is a weighted sum of the rows.
pub(super) fn descent(table: Embedding, ids: i64) -> Result<Call> {
    let shape = table.weight.shape()?;
    let weights = normal(&[ids, shape[1] as i64]);
    let ids = numbers(&[ids], shape[0] as i64);
    let sgd = Sgd::new(&table, 0.1);
    Tensor::realize_all(&[&table.weight, &weights])?;
    Ok(Box::new(move || {
        sgd.step(&(table.forward(&ids) * &weights).sum(.., false))
    }))
}

/// How often each number below `bins` occurs.
pub(super) fn histogram(name: &'static str, n: i64, bins: i64) -> Workload {
    let inputs = |s: &Sizes| vec![numbers(&s[..1], s[1])];
    let work = moving(n as f64, bins as f64);
    values(name, work, &[n, bins], inputs, |x, s| {
        let none = Tensor::zeros(vec![s[1]]).cast(DType::I32);
        let ones = Tensor::ones(vec![s[0]]).cast(DType::I32);
        one(none.scatter_add(0, &x[0], &ones))
    })
}

type Of = fn(&[Tensor], &Sizes) -> Result<Vec<Tensor>>;

/// Each row in ascending order.
pub(super) fn sort(name: &'static str, shape: &[i64]) -> Workload {
    ordered(name, shape, |x, _| one(x[0].sort(-1, false)))
}

/// The places of each row's elements in ascending order.
pub(super) fn argsort(name: &'static str, shape: &[i64]) -> Workload {
    ordered(name, shape, |x, _| one(x[0].argsort(-1, false)))
}

fn ordered(name: &'static str, shape: &[i64], of: Of) -> Workload {
    let n = count(shape);
    values(name, moving(n, n), shape, |s| vec![normal(s)], of)
}

/// The greatest of each row, with their places.
pub(super) fn topk(name: &'static str, shape: &[i64], k: i64) -> Workload {
    let n = count(shape);
    let taken = n / shape[shape.len() - 1] as f64 * k as f64;
    let inputs = |s: &Sizes| vec![normal(&s[..s.len() - 1])];
    let sizes = [shape, &[k]].concat();
    values(name, moving(n, 2.0 * taken), &sizes, inputs, |x, s| {
        let (greatest, places) = x[0].topk(s[s.len() - 1], -1, true);
        Ok(vec![greatest, places])
    })
}
