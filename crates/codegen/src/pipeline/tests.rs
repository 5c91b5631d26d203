//! Kernels lowered and run, against the oracle of kernels. Flows in: kernels as text or built here;
//! flows out: a failed test where the lowered one gives other values, or where its list is not what
//! is wanted.

use super::{Timings, lower};
use crate::build::alu;
use crate::opt::tests::support::{
    backend, buffers, flat_matmul, kernels, linear, matmul, param, ranges, sink, split, tc_by,
    transpose,
};
use monoglot_device::{Config, Runtime, Storage, cpu::Cpu, interp::Interp};
use monoglot_oracle::eval_kernel::eval_kernel;
use monoglot_oracle::random::{Choice, sample};
use monoglot_uop::{
    AddrSpace, Arg, AxisType, Backend, Code, DType, Device, Listing, Op, OpSet, Opt, OptOp,
    Program, ProgramInfo, ReduceOp, Result, Scalar, Shape, Target, TcInfo, UOp,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

mod across;
mod asked;
mod far;
mod lanes;
mod masks;
mod ops;
mod turned;
mod windows;

/// A kernel lowered with the back end of the target's dialect.
fn lower_for(kernel: &UOp, target: &Target, opts: Option<&[Opt]>) -> Result<(Program, Timings)> {
    let backend = backend(target.dialect);
    lower(kernel, target, backend, opts, &mut |_, _| {})
}

/// The devices that run what is lowered: C where there is a compiler, and the interpreter.
fn devices() -> Vec<Arc<dyn Runtime>> {
    let config = Config::default();
    let mut all: Vec<Arc<dyn Runtime>> = Vec::new();
    if let Ok(cpu) = Cpu::open(Device::new("CPU"), &config) {
        all.push(Arc::new(cpu));
    }
    all.push(Arc::new(Interp::cpu(Device::new("INTERP"), &config)));
    all.push(Arc::new(Interp::gpu(
        Device::new("INTERP:GPU"),
        &Config::default(),
    )));
    all
}

/// The dtype of each PARAM, by slot.
fn dtypes(kernel: &UOp) -> Vec<DType> {
    let mut params: Vec<UOp> = kernel
        .toposort()
        .into_iter()
        .filter(|u| u.op() == Op::Param)
        .collect();
    params.sort_by_key(|p| p.buffer_arg().map(|b| b.slot));
    params.iter().map(UOp::dtype).collect()
}

/// Lower kernels with Opts on every device, run them and compare with the oracle.
fn check(cases: &[(UOp, Vec<Opt>)]) {
    devices().iter().for_each(|d| check_on(d, cases));
}

/// Storage that holds what is given, so many bytes from where memory was taken.
fn upload(device: &dyn Runtime, bytes: &[Vec<u8>], from: usize) -> Vec<Arc<Storage>> {
    let one = |b: &Vec<u8>| {
        let s = device.alloc(from + b.len()).unwrap();
        let s = s.slice(from, b.len()).unwrap();
        device.upload(&s, 0, b).unwrap();
        s
    };
    bytes.iter().map(one).collect()
}

fn check_on(device: &Arc<dyn Runtime>, cases: &[(UOp, Vec<Opt>)]) {
    check_for(device, device.target(), cases, 0);
}

/// The same for a target that is said, with storage so many bytes from where memory was taken; the programs.
fn check_for(
    device: &Arc<dyn Runtime>,
    target: &Target,
    cases: &[(UOp, Vec<Opt>)],
    from: usize,
) -> Vec<Program> {
    let lowered: Vec<Program> = cases
        .iter()
        .map(|(k, opts)| {
            let got = lower_for(k, target, Some(opts));
            got.unwrap_or_else(|e| panic!("{opts:?}: {e}")).0
        })
        .collect();
    let compiled = device.compile(&lowered).unwrap();
    for (((k, opts), program), kernel) in cases.iter().zip(&lowered).zip(compiled) {
        let mut want = buffers(k, 7);
        let bufs = upload(device.as_ref(), &want, from);
        eval_kernel(k, &mut want, &[]).unwrap();
        device.launch(&kernel, &bufs, &[]).unwrap();
        for ((want, s), d) in want.iter().zip(&bufs).zip(dtypes(k)) {
            let mut got = vec![0; want.len()];
            device.download(s, 0, &mut got).unwrap();
            if *want != got {
                let Some(source) = program.src()[2].arg().text() else {
                    continue;
                };
                panic!(
                    "{opts:?} on {}\n{want:?}\n{got:?} {d}\n{source}",
                    device.device()
                );
            }
        }
    }
    lowered
}

/// Where a thread's storage lies is asked once: all else goes by a pointer.
#[test]
fn storage_of_a_thread_is_named_by_a_pointer() {
    let r = ranges(&[64, 8192], &[8192]);
    let x = param(1, &[8192], DType::F32).at(&r[1..2]);
    let storage = UOp::scratch(0, &Shape::of(&[8192]), DType::F32, AddrSpace::Local);
    let fill = storage.at(&r[1..2]).store(&(&x + &x)).end(&r[1..2]);
    let read = storage.after(&[fill]).at(&r[2..]);
    let out = param(0, &[64], DType::F32).at(&r[..1]);
    let sum = read.reduce_ranges(ReduceOp::Add, &r[2..]);
    let kernel = sink(&[out.store(&sum).end(&r[..1])]);
    let target = crate::opt::tests::support::target(false);
    let (program, _) = lower_for(&kernel, &target, Some(&[])).expect("it is lowered");
    let source = program.src().iter().find(|s| s.op() == Op::Source);
    let Some(text) = source.and_then(|s| s.arg().text()) else {
        panic!("no SOURCE: {program:?}");
    };
    assert!(
        text.contains("static _Thread_local f32 l0_[8192]"),
        "{text}"
    );
    assert!(text.contains("f32 *l0 = l0_;"), "{text}");
    assert_eq!(text.matches("l0_").count(), 2, "{text}");
    assert!(
        text.matches("l0 + ").count() + text.matches("l0[").count() > 1,
        "{text}"
    );
}

/// Products of pairs of floats, a pair at a time: an element is the number that its bits are, whatever the other's are.
#[test]
fn words_by_themselves_are_exact() {
    let r = ranges(&[5, 3], &[12]);
    let row = |slot: u64, i: usize| {
        let at = linear(&[(&r[i], 12), (&r[2], 1)]);
        param(slot, &[12 * 5], DType::BF16)
            .at(&[at])
            .cast(DType::F32)
    };
    let sum = (row(1, 0) * row(2, 1)).reduce_ranges(ReduceOp::Add, &r[2..]);
    let out = param(0, &[15], DType::F32).at(&[linear(&[(&r[0], 3), (&r[1], 1)])]);
    let cases = [(sink(&[out.store(&sum).end(&r[..2])]), vec![tc_by(0, 2)])];
    for device in devices() {
        let mut target = device.target().clone();
        target.matrix_units = vec![TcInfo::dot("pairs", [DType::BF16; 2], DType::F32)];
        check_for(&device, &target, &cases, 0);
    }
}

/// How often the listing of a [`Byte`] was written.
static LISTINGS: AtomicUsize = AtomicUsize::new(0);

/// A back end whose code is one byte.
struct Byte;

// SAFETY: nothing runs what it gives.
unsafe impl Backend for Byte {
    fn emit(&self, _: &Listing, _: &ProgramInfo, _: &Target) -> Result<Code> {
        Ok(Code::Machine {
            binary: vec![0xc3],
            listing: Box::new(|_, _| {
                LISTINGS.fetch_add(1, Ordering::Relaxed);
                "ret".into()
            }),
        })
    }
}

#[test]
fn a_program_in_machine_code_says_so_and_holds_it() {
    let null = monoglot_device::open(Device::new("NULL:X86:x86-64-v3")).unwrap();
    let kernel = transpose(8, 8);
    let (program, _) = lower(&kernel, null.target(), &Byte, None, &mut |_, _| {}).unwrap();
    let (_, info) = monoglot_device::program_parts(&program).unwrap();
    let devices = [
        "NULL:X86:x86-64-v3",
        "CPU:X86:x86-64-v3",
        "CPU:X86:x86-64-v2",
    ];
    for name in devices {
        if let Ok(device) = monoglot_device::open(Device::new(name)) {
            device.compile(std::slice::from_ref(&program)).unwrap();
        }
    }
    let listings = || LISTINGS.load(Ordering::Relaxed);
    assert_eq!(listings(), 0, "nobody read it");
    assert_eq!(monoglot_device::program_source(&program).unwrap(), "ret");
    assert_eq!(listings(), 1);
    assert!(info.target.ends_with(":X86:x86-64-v3"), "{}", info.target);
    let code = monoglot_device::program_binary(&program).unwrap();
    assert_eq!(code, [0xc3]);
    let text = program.to_string();
    assert!(text.contains(":X86:x86-64-v3"), "{text}");
}

#[test]
fn kernels_without_opts_compute_what_the_oracle_says() {
    check(
        &kernels()
            .into_iter()
            .map(|k| (k, Vec::new()))
            .collect::<Vec<_>>(),
    );
}

#[test]
fn tiles_are_vectors_and_register_accumulators() {
    let k = matmul(8, 32, 12);
    let tile = vec![
        split(0, 4, AxisType::Upcast, false),
        split(1, 32, AxisType::Upcast, false),
    ];
    check(&[(k, tile)]);
}

/// A barrier inside a loop of one step waits for no iteration.
#[test]
fn a_fold_by_a_group_inside_a_loop_of_one_step() {
    let k = matmul(1, 4, 12);
    let device: Arc<dyn Runtime> =
        Arc::new(Interp::gpu(Device::new("INTERP:GPU"), &Config::default()));
    let group = vec![
        split(1, 4, AxisType::Local, false),
        split(2, 3, AxisType::GroupReduce, false),
    ];
    check_on(&device, &[(k, group)]);
}

/// Threads of a workgroup that wait for each other in a loop turn alike, though a mask lets through fewer
/// turns for some of them.
#[test]
fn a_fold_by_a_group_inside_a_loop_that_a_mask_ends() {
    let r = ranges(&[4], &[32, 6]);
    let [i, turn, term] = &r[..] else {
        panic!("three ranges");
    };
    let x = param(1, &[32, 6], DType::F32).at(&[turn.clone(), term.clone()]);
    let most = x.reduce_ranges(ReduceOp::Max, std::slice::from_ref(term));
    let counts = turn.lt(&(i * 8 + 8));
    let value = counts.select(&most, &UOp::float(0.0, DType::F32));
    let sum = value.reduce_ranges(ReduceOp::Add, std::slice::from_ref(turn));
    let out = param(0, &[4], DType::F32).at(std::slice::from_ref(i));
    let kernel = sink(&[out.store(&sum).end(std::slice::from_ref(i))]);
    let group = vec![
        split(0, 4, AxisType::Local, false),
        split(2, 3, AxisType::GroupReduce, false),
    ];
    let device: Arc<dyn Runtime> =
        Arc::new(Interp::gpu(Device::new("INTERP:GPU"), &Config::default()));
    check_on(&device, &[(kernel, group)]);
}

/// Two loops over one range that fill storage, each from the same sum: what is summed is so in either.
#[test]
fn a_sum_in_two_loops_that_were_one_is_two() {
    let r = ranges(&[4, 4], &[6]);
    let x = param(1, &[4, 6], DType::F32).at(&r[1..]);
    let sum = x.reduce_ranges(ReduceOp::Add, &r[2..]);
    let kept = |slot: u64, value: UOp| {
        let storage = UOp::scratch(slot, &Shape::of(&[4]), DType::F32, AddrSpace::Local);
        let fill = storage.at(&r[1..2]).store(&value).end(&r[1..2]);
        storage.after(&[fill]).at(&r[..1])
    };
    let value = kept(0, &sum + 1.0) * kept(1, &sum * 2.0);
    let out = param(0, &[4], DType::F32).at(&r[..1]);
    let kernel = sink(&[out.store(&value).end(&r[..1])]);
    check(&[(kernel, vec![])]);
}

/// Two sums over one pair of loops, of which a schedule leaves one sum's terms alike along the outer.
#[test]
fn a_sum_whose_terms_a_schedule_makes_alike_has_loops_of_its_own() {
    let r = ranges(&[], &[36, 22]);
    let [i, j] = &r[..] else {
        panic!("two ranges");
    };
    let hit = ((i + j) % 3).binary(Op::CmpEq, &UOp::index_const(0));
    let [zero, one] = [0.0, 1.0].map(|v| UOp::float(v, DType::F32));
    let x = param(1, &[36, 22], DType::F32).at(&r);
    let sums = [hit.select(&x, &zero), hit.select(&zero, &one)];
    let [some, count] = sums.map(|v| v.reduce_ranges(ReduceOp::Add, &r));
    let out = param(0, &[1], DType::F32).at(&[UOp::index_const(0)]);
    let kernel = sink(&[out.store(&(some - count))]);
    let in_threes = ["SPLIT(0,12,UNROLL)", "SPLIT(1,11,UNROLL)"];
    check(&[(kernel, in_threes.map(|o| o.parse().unwrap()).to_vec())]);
}

/// A slice that threads share, filled in the one turn of a loop around.
#[test]
fn threads_wait_for_no_turn_of_a_loop_of_one() {
    let device: Arc<dyn Runtime> =
        Arc::new(Interp::gpu(Device::new("INTERP:GPU"), &Config::default()));
    let share = ["SPLIT(1,4,LOCAL)", "STAGE(0,2)"].map(|o| o.parse().unwrap());
    check_on(&device, &[(matmul(1, 4, 12), share.to_vec())]);
}

/// Bits of the exponent choose between all lanes and one number for all of them.
#[test]
fn powers_of_lanes_by_a_known_exponent() {
    let r = ranges(&[3, 8], &[]);
    let [i, j] = &r[..] else {
        panic!("two ranges");
    };
    let power = i.binary(Op::Pow, &UOp::index_const(5)) + j;
    let out = param(0, &[3, 8], DType::I32).at(&r[..2]);
    let kernel = sink(&[out.store(&power.cast(DType::I32)).end(&r[..2])]);
    let rows = split(0, 3, AxisType::Upcast, false);
    let both = vec![rows, split(0, 8, AxisType::Upcast, false)];
    check(&[(kernel.clone(), vec![rows]), (kernel, both)]);
}

#[test]
fn random_schedules_keep_what_kernels_compute() {
    for device in devices() {
        let mut cases = Vec::new();
        for (n, kernel) in kernels().into_iter().enumerate() {
            for seed in 0..4 {
                cases.push((
                    kernel.clone(),
                    sample(&kernel, device.target(), seed * 100 + n as u64),
                ));
            }
        }
        check_on(&device, &cases);
    }
}
