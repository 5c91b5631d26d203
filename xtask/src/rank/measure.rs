//! Times of a kernel's schedules. Flows in: a kernel and lists of Opts; flows out: for each the median time
//! of a launch, of rounds in which every schedule runs once. Invariant: all run on the same storage, whose
//! numbers are neither denormal nor out of any range.

use monoglot_codegen::lower;
use monoglot_device::Runtime;
use monoglot_engine::backend;
use monoglot_uop::{Arg, DType, Op, Opt, Result, UOp};
use std::time::Instant;

/// Seconds for the rounds of a kernel, and fewest rounds.
const SECONDS: f64 = 0.6;
const ROUNDS: usize = 3;
/// Seconds from which on a launch is not done twice for its caches.
const LONG: f64 = 0.02;

/// Seconds of a launch with each of these schedules.
pub(super) fn times(
    kernel: &UOp,
    schedules: &[Vec<Opt>],
    runtime: &dyn Runtime,
) -> Result<Vec<f64>> {
    let target = runtime.target();
    let lowered = schedules.iter().map(|opts| {
        let backend = backend(target.dialect);
        Ok(lower(kernel, target, backend, Some(opts), &mut |_, _| {})?.0)
    });
    let compiled = runtime.compile(&lowered.collect::<Result<Vec<_>>>()?)?;
    let mut params: Vec<UOp> = kernel.toposort();
    params.retain(|u| u.op() == Op::Param && u.addrspace().is_some());
    params.sort_by_key(|p| p.buffer_arg().map(|b| b.slot));
    let mut storages = Vec::with_capacity(params.len());
    for p in &params {
        let bytes = filled(p.dtype(), p.shape().max_len() as usize);
        let storage = runtime.alloc(bytes.len())?;
        runtime.upload(&storage, 0, &bytes)?;
        storages.push(storage);
    }
    let once = |k: usize| -> Result<f64> {
        let at = Instant::now();
        runtime.launch(&compiled[k], &storages, &[])?;
        Ok(at.elapsed().as_secs_f64())
    };
    // What the one before left in the caches is no matter, unless a launch is long beside filling them.
    let run = |k: usize| -> Result<f64> {
        let first = once(k)?;
        if first > LONG { Ok(first) } else { once(k) }
    };
    let mut taken: Vec<Vec<f64>> = vec![Vec::new(); schedules.len()];
    for k in 0..schedules.len() {
        run(k)?;
    }
    let begin = Instant::now();
    while taken[0].len() < ROUNDS || begin.elapsed().as_secs_f64() < SECONDS {
        for (k, times) in taken.iter_mut().enumerate() {
            times.push(run(k)?);
        }
    }
    let median = |mut times: Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    Ok(taken.into_iter().map(median).collect())
}

/// Whether a kernel can be run by itself: it has storage alone, no words of variables.
pub(super) fn can_run(kernel: &UOp) -> bool {
    let nodes = kernel.toposort();
    let variable = |u: &UOp| u.op() == Op::Param && u.addrspace().is_none();
    matches!(kernel.arg(), Arg::Kernel(_)) && !nodes.iter().any(variable)
}

/// Numbers between 1/2 and 3/2 where they are f32, zeros else.
fn filled(dtype: DType, len: usize) -> Vec<u8> {
    match dtype {
        DType::F32 => (0..len)
            .flat_map(|i| (0.5 + (i * 7919 % 1024) as f32 / 1024.0).to_ne_bytes())
            .collect(),
        _ => vec![0; len * dtype.bytes()],
    }
}
