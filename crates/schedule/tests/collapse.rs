//! Reductions that need no loop, through rangeify and the kernel rules. Flows in: tensor graphs;
//! flows out: a failed test where a loop is left.

mod support;

use monoglot_schedule::{Timings, callify, schedule};
use monoglot_uop::{DType, Device, ReduceOp, Scalar, Shape, UOp};
use support::target;

/// The kernels that compute this, as text.
fn kernels(root: &UOp) -> Vec<String> {
    let (function, _) = callify(std::slice::from_ref(root), |_| false).unwrap();
    let plan = schedule(
        &function,
        Device::new("TEST"),
        &target,
        &mut Timings::default(),
    )
    .unwrap();
    plan.linear
        .src()
        .iter()
        .map(|c| c.src()[0].to_string())
        .collect()
}

fn no_loop(root: &UOp) {
    for k in kernels(root) {
        assert!(!k.contains("REDUCE"), "{k}");
    }
}

fn expand(u: &UOp, ones: &[i64], to: &[i64]) -> UOp {
    u.reshape(&Shape::of(ones))
        .unwrap()
        .expand(&Shape::of(to))
        .unwrap()
}

/// Sums of the first 1, 2, … elements of the last axis, as the specification composes them.
fn prefix_sum(x: &UOp) -> UOp {
    let shape = x.shape().ints().unwrap();
    let axis = shape.len() - 1;
    let n = shape[shape.len() - 1];
    let padded = x.pad_axis(axis, n - 1, 0, x.dtype().zero()).unwrap();
    let sums = padded
        .windows(n, 1, 1)
        .unwrap()
        .reduce(ReduceOp::Add, &[axis + 1])
        .unwrap();
    sums.reshape(&Shape::of(&shape)).unwrap()
}

#[test]
fn counting_needs_no_loop() {
    for n in [2, 3, 5, 8, 100, 1024, 5000] {
        for dtype in [DType::I32, DType::I64, DType::U8] {
            no_loop(&UOp::arange(n, dtype));
        }
        no_loop(&UOp::arange(n, DType::Index).cast(DType::I64));
    }
}

#[test]
fn counting_in_two_levels_needs_no_loop() {
    for (a, b) in [(2, 3), (4, 4), (3, 7), (10, 100)] {
        let ones = UOp::full(Scalar::Int(1), DType::I32, &Shape::of(&[a, b]));
        let inner = prefix_sum(&ones);
        let totals = inner
            .narrow(1, b - 1, 1)
            .unwrap()
            .reshape(&Shape::of(&[a]))
            .unwrap();
        let before = prefix_sum(&totals) - &totals;
        let sums = inner + expand(&before, &[a, 1], &[a, b]);
        no_loop(&sums.reshape(&Shape::of(&[a * b])).unwrap());
    }
}

#[test]
fn an_identity_matrix_needs_no_loop() {
    let a = UOp::arange(7, DType::I32);
    let mask = expand(&a, &[7, 1], &[7, 7]).eq_(&expand(&a, &[1, 7], &[7, 7]));
    no_loop(&mask.cast(DType::F32));
    // Its trace, too: a sum over a one-hot of the range.
    let ones = UOp::full(Scalar::Float(1.0), DType::F32, &Shape::of(&[7, 7]));
    let zeros = UOp::full(Scalar::Float(0.0), DType::F32, &Shape::of(&[7, 7]));
    no_loop(
        &mask
            .select(&ones, &zeros)
            .reduce(ReduceOp::Add, &[0, 1])
            .unwrap(),
    );
}

/// 6 rows of a table of 100, chosen by a one-hot along the table.
fn gather(op: ReduceOp, otherwise: f64, counter: DType) -> UOp {
    let table = UOp::buffer(&Shape::of(&[100, 8]), DType::F32, Device::new("TEST"));
    let rows = UOp::buffer(&Shape::of(&[6]), counter, Device::new("TEST"));
    let wide = [6, 100, 8];
    let position = expand(&UOp::arange(100, DType::I32), &[1, 100, 1], &wide).cast(counter);
    let here = expand(&rows, &[6, 1, 1], &wide).eq_(&position);
    let other = UOp::full(Scalar::Float(otherwise), DType::F32, &Shape::of(&wide));
    here.select(&expand(&table, &[1, 100, 8], &wide), &other)
        .reduce(op, &[1])
        .unwrap()
}

#[test]
fn a_gather_reads_only_its_rows() {
    for counter in [DType::I32, DType::I64, DType::U8, DType::F32] {
        no_loop(&gather(ReduceOp::Add, 0.0, counter));
        no_loop(&gather(ReduceOp::Max, f64::NEG_INFINITY, counter));
        no_loop(&gather(ReduceOp::Mul, 1.0, counter));
    }
}

#[test]
fn a_maximum_is_no_sum() {
    for (op, other) in [
        (ReduceOp::Max, 0.0),
        (ReduceOp::Mul, 0.0),
        (ReduceOp::Add, 1.0),
    ] {
        let loops = kernels(&gather(op, other, DType::I32));
        assert!(loops.iter().any(|k| k.contains("REDUCE")), "{loops:?}");
    }
}
