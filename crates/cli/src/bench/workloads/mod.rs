//! The workloads, as a user would write them, with the work that each one is scored by: the operations of
//! its definition, and the bytes that must be moved at least. Those that the peers' scripts have bear the
//! peers' names; every name says the shapes. Flows in: nothing but names; flows out: for each its work and
//! how it is computed.

mod calls;
mod convolutions;
mod launches;
mod layers;
mod networks;
mod places;
mod products;
mod rows;
#[cfg(test)]
mod tests;

use super::limit::{Score, Work};
use monoglot::{DType, Result, Tensor};
use monoglot_roofline::Arithmetic;

pub(super) use launches::Launches;

/// A workload.
pub(super) struct Workload {
    pub(super) name: &'static str,
    pub(super) work: Work,
    /// Makes the inputs.
    pub(super) prepare: Box<dyn Fn() -> Result<Subject>>,
}

/// What is timed.
pub(super) enum Subject {
    /// Values that are computed from inputs and nothing else.
    Values(Values),
    /// A call that builds, computes and may change things: an inference, a training step.
    Call(Call),
    /// A kernel by itself.
    Launches(Launches),
}

type Call = Box<dyn FnMut() -> Result<()>>;

/// Values as expressions of inputs.
pub(super) struct Values {
    pub(super) inputs: Vec<Tensor>,
    of: fn(&[Tensor], &Sizes) -> Result<Vec<Tensor>>,
    sizes: Sizes,
}

/// The numbers that a workload is written with, by place.
type Sizes = Vec<i64>;

impl Values {
    /// The expressions, built anew.
    pub(super) fn tensors(&self) -> Result<Vec<Tensor>> {
        (self.of)(&self.inputs, &self.sizes)
    }
}

/// Every workload, by subject.
pub(super) fn all() -> Vec<Workload> {
    let mut all = products::all();
    all.extend(rows::all());
    all.extend(convolutions::all());
    all.extend(layers::all());
    all.extend(places::all());
    all.extend(networks::all());
    all.extend(launches::all());
    all.extend(calls::all());
    all
}

/// A workload of values: its inputs, realized when it is prepared, and what is computed of them.
fn values(
    name: &'static str,
    work: Work,
    sizes: &[i64],
    inputs: fn(&Sizes) -> Vec<Tensor>,
    of: fn(&[Tensor], &Sizes) -> Result<Vec<Tensor>>,
) -> Workload {
    let sizes = sizes.to_vec();
    let prepare = move || {
        let inputs = inputs(&sizes);
        Tensor::realize_all(&inputs.iter().collect::<Vec<_>>())?;
        let sizes = sizes.clone();
        Ok(Subject::Values(Values { inputs, of, sizes }))
    };
    Workload {
        name,
        work,
        prepare: Box::new(prepare),
    }
}

/// A workload that is a user's call.
fn call(name: &'static str, work: Work, prepare: impl Fn() -> Result<Call> + 'static) -> Workload {
    Workload {
        name,
        work,
        prepare: Box::new(move || Ok(Subject::Call(prepare()?))),
    }
}

/// Bytes of an f32.
const F32: f64 = 4.0;

/// So many operations on f32, and f32 elements read and written.
fn computing(operations: f64, reads: f64, writes: f64) -> Work {
    Work {
        operations,
        arithmetic: Arithmetic::F32,
        reads: F32 * reads,
        writes: F32 * writes,
        score: Score::Operations,
    }
}

/// So many f32 elements read and written.
fn moving(reads: f64, writes: f64) -> Work {
    Work {
        score: Score::Bytes,
        ..computing(0.0, reads, writes)
    }
}

/// The product of sizes.
fn count(sizes: &[i64]) -> f64 {
    sizes.iter().product::<i64>() as f64
}

/// Normal numbers.
fn normal(shape: &[i64]) -> Tensor {
    Tensor::randn(shape.to_vec())
}

/// Whole numbers below `limit`, spread evenly by a stride that has no factor in common with it.
fn numbers(shape: &[i64], limit: i64) -> Tensor {
    let n: i64 = shape.iter().product();
    let values: Vec<i32> = (0..n).map(|i| (i * 7919 % limit) as i32).collect();
    Tensor::new(&values, shape.to_vec())
}

/// One value.
fn one(x: Tensor) -> Result<Vec<Tensor>> {
    Ok(vec![x])
}
