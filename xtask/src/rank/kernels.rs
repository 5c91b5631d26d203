//! The kernels whose schedules are ranked. Flows in: how many; flows out: kernels of the models, spread
//! evenly over them, and beside them shapes of work at the sizes at which users do it: products,
//! convolutions, reductions along either axis, transposes, chains. Invariant: each runs long enough for its
//! time to mean something, and not so long that twenty schedules of it take minutes.

use monoglot_codegen::opt::axes;
use monoglot_fuzz::kernels::{conv, matmul};
use monoglot_fuzz::run::Scheduled;
use monoglot_models::{Workload, graph};
use monoglot_uop::{DType, Device, Op, ReduceOp, Result, Shape, Target, UOp};
use std::sync::Arc;

/// Iterations of a kernel: fewest and most.
const ITERATIONS: std::ops::Range<i64> = 1 << 15..1 << 26;

/// Kernels, each with a name.
pub(super) fn kernels(count: usize, device: Device, target: &Target) -> Result<Vec<(String, UOp)>> {
    let target = Arc::new(target.clone());
    let of = |roots: &[UOp]| -> Result<Vec<UOp>> {
        Ok(Scheduled::new(roots, device, &target, false)?.kernels())
    };
    let mut own = Vec::new();
    for (name, root) in by_hand(device) {
        own.extend(of(&[root])?.into_iter().map(|k| (name.to_string(), k)));
    }
    let mut models: Vec<(String, UOp)> = Vec::new();
    for w in Workload::ALL {
        let roots = graph(w, w.has_layers().then_some(1), device)?.roots;
        let roots: Vec<UOp> = roots.iter().map(|t| t.uop()).collect::<Result<_>>()?;
        let named = |(n, k)| (format!("{}_{n}", w.name()), k);
        models.extend(of(&roots)?.into_iter().enumerate().map(named));
    }
    own.retain(|k| is_fit(&k.1));
    models.retain(|k| is_fit(&k.1));
    own.truncate(count / 2);
    let rest = count - own.len();
    let step = (models.len() as f64 / rest.max(1) as f64).max(1.0);
    let places = (0..rest).map(|i| (i as f64 * step) as usize);
    own.extend(places.filter_map(|i| models.get(i).cloned()));
    Ok(own)
}

/// See the invariant; lengths that vary and accesses at places from data have no one time.
fn is_fit(kernel: &UOp) -> bool {
    let mut extents = axes(kernel).into_iter().map(|a| a.src()[0].as_int());
    let iterations = extents.try_fold(1i64, |n, e| n.checked_mul(e?));
    iterations.is_some_and(|n| ITERATIONS.contains(&n))
}

/// Shapes of work.
fn by_hand(device: Device) -> Vec<(&'static str, UOp)> {
    let buffer = |shape: &[i64]| UOp::buffer(&Shape::of(shape), DType::F32, device);
    let fits = "shapes and axes are written to fit";
    let matrix = buffer(&[1024, 1024]);
    let wide = buffer(&[4096, 512]);
    let images = buffer(&[8, 32, 28, 28]);
    let over = |x: &UOp, op, axis| x.reduce(op, &[axis]).expect(fits);
    let row = buffer(&[512, 1])
        .reshape(&Shape::of(&[1, 512]))
        .expect(fits);
    let row = row.expand(&Shape::of(&[4096, 512])).expect(fits);
    let squares = (&wide * &wide).reduce(ReduceOp::Add, &[1]).expect(fits);
    vec![
        ("gemm_64", matmul(64, 64, 64, DType::F32)),
        ("gemm_256", matmul(256, 256, 256, DType::F32)),
        ("gemm_384", matmul(384, 384, 384, DType::F32)),
        ("gemm_tall", matmul(2048, 64, 48, DType::F32)),
        ("gemm_flat", matmul(64, 2048, 64, DType::F32)),
        ("gemm_odd", matmul(255, 129, 301, DType::F32)),
        ("gemv", matmul(1, 1024, 1024, DType::F32)),
        ("gemv_t", matmul(1024, 1024, 1, DType::F32)),
        ("conv3x3", conv(4, 32, 30, 32, 3)),
        ("conv5x5", conv(4, 8, 36, 16, 5)),
        ("conv1x1", conv(4, 64, 28, 32, 1)),
        ("sum_rows", over(&wide, ReduceOp::Add, 1)),
        ("sum_columns", over(&wide, ReduceOp::Add, 0)),
        ("max_rows", over(&wide, ReduceOp::Max, 1)),
        ("max_columns", over(&wide, ReduceOp::Max, 0)),
        ("squares", squares),
        (
            "sum_channels",
            images.reduce(ReduceOp::Add, &[0, 2, 3]).expect(fits),
        ),
        ("transpose", matrix.permute(&[1, 0]).expect(fits) * 2.0),
        ("permute", images.permute(&[0, 2, 3, 1]).expect(fits) + 1.0),
        ("chain", (&wide * 2.0 + 1.0).unary(Op::Exp2) * &wide),
        ("bias", &wide + &row),
    ]
}
