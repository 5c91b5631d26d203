//! Kernels lowered and run, against the oracle of kernels.

use super::lower;
use crate::opt::random::sample;
use crate::opt::testing::{buffers, kernels, matmul, split};
use monoglot_device::{Config, Runtime, cpu::Cpu, interp::Interp};
use monoglot_uop::eval_kernel::eval_kernel;
use monoglot_uop::{Arg, AxisType, DType, Device, Op, Opt, UOp};
use std::sync::Arc;

/// The devices that run what is lowered: C where there is a compiler, and the interpreter.
fn devices() -> Vec<Arc<dyn Runtime>> {
    let config = Config::default();
    let mut all: Vec<Arc<dyn Runtime>> = Vec::new();
    if let Ok(cpu) = Cpu::open(Device::new("CPU"), &config) {
        all.push(Arc::new(cpu));
    }
    all.push(Arc::new(Interp::cpu(Device::new("INTERP"), &config)));
    all.push(Arc::new(Interp::gpu(Device::new("INTERP:GPU"))));
    all
}

/// The dtype of each PARAM, by slot.
fn dtypes(kernel: &UOp) -> Vec<DType> {
    let mut params: Vec<UOp> = kernel.toposort().into_iter().filter(|u| u.op() == Op::Param).collect();
    params.sort_by_key(|p| p.buffer_arg().map(|b| b.slot));
    params.iter().map(UOp::dtype).collect()
}

/// Lower kernels with Opts on every device, run them and compare with the oracle.
fn check(cases: &[(UOp, Vec<Opt>)]) {
    devices().iter().for_each(|d| check_on(d, cases));
}

fn check_on(device: &Arc<dyn Runtime>, cases: &[(UOp, Vec<Opt>)]) {
    let lowered: Vec<UOp> = cases
        .iter()
        .map(|(k, opts)| {
            let got = lower(k, device.target(), Some(opts), &mut |_, _| {});
            got.unwrap_or_else(|e| panic!("{opts:?}: {e}")).0
        })
        .collect();
    let compiled = device.compile(&lowered).unwrap();
    for (((k, opts), program), kernel) in cases.iter().zip(&lowered).zip(compiled) {
        let mut want = buffers(k, 7);
        let bufs: Vec<_> = want
            .iter()
            .map(|b| {
                let s = device.alloc(b.len()).unwrap();
                device.upload(&s, 0, b).unwrap();
                s
            })
            .collect();
        eval_kernel(k, &mut want, &[]).unwrap();
        kernel.launch(&bufs, &[]).unwrap();
        device.synchronize().unwrap();
        for ((want, s), d) in want.iter().zip(&bufs).zip(dtypes(k)) {
            let mut got = vec![0; want.len()];
            device.download(s, 0, &mut got).unwrap();
            if *want != got {
                let Arg::Text(source) = program.src()[2].arg() else { continue };
                panic!("{opts:?} on {}\n{want:?}\n{got:?} {d}\n{source}", device.device());
            }
        }
    }
}

#[test]
fn kernels_without_opts_compute_what_the_oracle_says() {
    check(&kernels().into_iter().map(|k| (k, Vec::new())).collect::<Vec<_>>());
}

#[test]
fn tiles_are_vectors_and_register_accumulators() {
    let k = matmul(8, 32, 12);
    let tile = vec![split(0, 4, AxisType::Upcast, false), split(1, 32, AxisType::Upcast, false)];
    check(&[(k, tile)]);
}

#[test]
fn random_schedules_keep_what_kernels_compute() {
    for device in devices() {
        let mut cases = Vec::new();
        for (n, kernel) in kernels().into_iter().enumerate() {
            for seed in 0..4 {
                cases.push((kernel.clone(), sample(&kernel, device.target(), seed * 100 + n as u64)));
            }
        }
        check_on(&device, &cases);
    }
}
