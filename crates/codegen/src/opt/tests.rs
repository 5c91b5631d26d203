//! Random schedules on the kernels of `support`, against the oracle of kernels. Flows in: a seed;
//! flows out: a failed test that prints the Opts under which a kernel computes something else.

pub(crate) mod support;

use monoglot_oracle::eval_kernel::eval_kernel;
use monoglot_oracle::random::{sample, shrink};
use support::{buffers, check, check_on, kernels, lowers, matmul, staged_kernels, target};

#[test]
fn random_schedules_keep_what_kernels_compute() {
    let mut kinds = rustc_hash::FxHashSet::default();
    let mut all = kernels();
    all.extend([matmul(16, 8, 24), matmul(7, 5, 9)]);
    for k in &all {
        for seed in 0..60 {
            let opts = sample(k, &target(true), seed);
            kinds.extend(opts.iter().map(|o| std::mem::discriminant(&o.op)));
            check(k, &opts);
            check_on(k, &sample(k, &target(false), seed), &target(false));
            assert_eq!(opts, sample(k, &target(true), seed));
        }
    }
    assert_eq!(kinds.len(), 7, "every OptOp is drawn");
}

#[test]
fn random_schedules_keep_what_kernels_with_storage_of_their_own_compute() {
    for workgroups in [true, false] {
        for k in &staged_kernels(workgroups) {
            check(k, &[]);
            for seed in 0..60 {
                let opts = sample(k, &target(workgroups), seed);
                lowers(&check_on(k, &opts, &target(workgroups)), workgroups);
            }
        }
    }
}

#[test]
fn a_shrunk_kernel_is_small_and_stays_within_its_buffers() {
    let k = shrink(&matmul(512, 300, 1000), 2000, 1);
    assert!(
        super::axes(&k)
            .iter()
            .map(|r| r.vmax() + 1)
            .product::<i64>()
            <= 2000
    );
    let mut bufs = buffers(&k, 1);
    assert!(bufs.iter().map(Vec::len).sum::<usize>() < 1 << 16);
    eval_kernel(&k, &mut bufs, &[]).unwrap();
    for k in kernels() {
        let k = shrink(&k, 20, 3);
        eval_kernel(&k, &mut buffers(&k, 1), &[]).unwrap();
    }
}
