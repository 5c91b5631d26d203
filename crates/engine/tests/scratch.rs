//! Kernels with storage of their own, put there by hand or by staging, with Opts and without, on each
//! device against the oracle. Flows in: kernels in the text form; flows out: what differs.

mod support;

use monoglot_codegen::lower;
use monoglot_codegen::opt::staging::{Staging, stage};
use monoglot_device::open;
use monoglot_engine::backend;
use monoglot_oracle::eval_kernel::eval_kernel;
use monoglot_oracle::random::sample;
use monoglot_uop::text::parse;
use monoglot_uop::*;
use support::{f32s, run};

const DEVICES: [&str; 3] = ["CPU", "INTERP", "INTERP:GPU"];

/// The sums of what stands before each element of a row: a turn stores what the last one left, then adds.
const SCAN: &str = r#"
p0 = PARAM[0, f32, GLOBAL] (4, 7)
r0 = RANGE[0, LOOP] 4
r1 = RANGE[1, LOOP] 7
b0 = BUFFER[0, f32, REG] (1,)
%0 = AFTER b0 r0 : f32(1,)
%1 = INDEX %0 0 : f32
%2 = STORE %1 0.0
%3 = AFTER b0 %2 r1 : f32(1,)
%4 = INDEX %3 0 : f32
p1 = PARAM[1, f32, GLOBAL] (4, 7)
%5 = INDEX p1 r0 r1 : f32
%6 = ADD %4 %5
%7 = STORE %4 %6
%8 = INDEX p0 r0 r1 : f32
%9 = STORE %8 %4
%10 = GROUP %7 %9
%11 = END %10 r1
%12 = END %11 r0
SINK["scan"] %12
"#;

/// Two places that take each other's values: both are read before one is written.
const FIBONACCI: &str = r#"
p0 = PARAM[0, f32, GLOBAL] (8,)
p1 = PARAM[1, f32, GLOBAL] (2,)
r0 = RANGE[0, LOOP] 8
b0 = BUFFER[0, f32, SPACE] (1,)
b1 = BUFFER[1, f32, SPACE] (1,)
%0 = INDEX b0 0 : f32
%1 = INDEX p1 0 : f32
%2 = STORE %0 %1
%3 = AFTER b0 %2 r0 : f32(1,)
%4 = INDEX %3 0 : f32
%5 = INDEX b1 0 : f32
%6 = INDEX p1 1 : f32
%7 = STORE %5 %6
%8 = AFTER b1 %7 r0 : f32(1,)
%9 = INDEX %8 0 : f32
%10 = STORE %4 %9
%11 = ADD %4 %9
%12 = STORE %9 %11
%13 = INDEX p0 r0 : f32
%14 = STORE %13 %4
%15 = GROUP %10 %12 %14
%16 = END %15 r0
SINK["fibonacci"] %16
"#;

/// A product of matrices, (8, 12) and (12, 4).
const PRODUCT: &str = r#"
p0 = PARAM[0, f32, GLOBAL] (8, 4)
r0 = RANGE[0, LOOP] 8
r1 = RANGE[1, LOOP] 4
%0 = INDEX p0 r0 r1 : f32
p1 = PARAM[1, f32, GLOBAL] (8, 12)
r2 = RANGE[2, REDUCE] 12
%1 = INDEX p1 r0 r2 : f32
p2 = PARAM[2, f32, GLOBAL] (12, 4)
%2 = INDEX p2 r2 r1 : f32
%3 = MUL %1 %2
%4 = REDUCE[ADD] %3 r2
%5 = STORE %0 %4
%6 = END %5 r0 r1
SINK["product"] %6
"#;

/// How many elements are the greatest: a fold by a group of what another has folded, kept in LOCAL storage.
const GREATEST: &str = r#"
p0 = PARAM[0, f32, GLOBAL] (4,)
r0 = RANGE[0, LOOP] 4
%0 = INDEX p0 r0 : f32
b0 = BUFFER[0, f32, LOCAL] (4,)
r1 = RANGE[1, LOOP] 4
%1 = INDEX b0 r1 : f32
p1 = PARAM[1, f32, GLOBAL] (4, 6)
r2 = RANGE[2, REDUCE] 6
%2 = INDEX p1 r1 r2 : f32
r3 = RANGE[3, REDUCE] 6
%3 = INDEX p1 r1 r3 : f32
%4 = REDUCE[MAX] %3 r3
%5 = CMPEQ %2 %4
%6 = CAST[f32] %5 : f32
%7 = REDUCE[ADD] %6 r2
%8 = STORE %1 %7
%9 = END %8 r1
%10 = BARRIER %9
%11 = AFTER b0 %10 : f32(4,)
%12 = INDEX %11 r0 : f32
%13 = STORE %0 %12
%14 = END %13 r0
SINK["greatest"] %14
"#;

fn kernel(text: &str) -> UOp {
    parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// Small numbers, whose sums and products are exact; nothing where the kernel writes.
fn buffers(kernel: &UOp) -> Vec<Vec<u8>> {
    let nodes = kernel.toposort();
    let mut params: Vec<&UOp> = nodes.iter().filter(|u| u.op() == Op::Param).collect();
    params.sort_by_key(|p| p.buffer_arg().map(|b| b.slot));
    let sizes = params.iter().map(|p| p.shape().max_len() as usize);
    let data = |(k, n): (usize, usize)| {
        let value = |i: usize| {
            if k == 0 {
                -1.0
            } else {
                ((i * 7 + k) % 11) as f32 - 4.0
            }
        };
        f32s(&(0..n).map(value).collect::<Vec<_>>())
    };
    sizes.enumerate().map(data).collect()
}

/// What a device makes of a kernel with these Opts.
fn on(device: &str, kernel: &UOp, opts: &[Opt]) -> Vec<Vec<u8>> {
    let runtime = open(Device::new(device)).unwrap();
    let target = runtime.target();
    let backend = backend(target.dialect);
    let lowered = lower(kernel, target, backend, Some(opts), &mut |_, _| {});
    let (program, _) = lowered.unwrap_or_else(|e| panic!("{device} {opts:?}: {e}\n{kernel}"));
    let compiled = runtime.compile(&[program]).unwrap().remove(0);
    run(&**runtime, &compiled, &buffers(kernel), &[]).unwrap()
}

/// Twenty random schedules on each device give what the kernel says.
fn agrees(kernel: &UOp) {
    let mut want = buffers(kernel);
    eval_kernel(kernel, &mut want, &[]).unwrap();
    for device in DEVICES {
        let target = open(Device::new(device)).unwrap().target().clone();
        let mut schedules: Vec<Vec<Opt>> = (0..20).map(|s| sample(kernel, &target, s)).collect();
        schedules.push(Vec::new());
        schedules.sort_by_key(|opts| format!("{opts:?}"));
        schedules.dedup();
        for opts in schedules {
            let got = on(device, kernel, &opts);
            assert!(got == want, "{device} {opts:?}\n{kernel}");
        }
    }
}

#[test]
fn what_a_turn_leaves_is_read_before_it_is_overwritten() {
    agrees(&kernel(SCAN));
    for space in ["REG", "LOCAL"] {
        let kernel = kernel(&FIBONACCI.replace("SPACE", space));
        let mut bufs = buffers(&kernel);
        bufs[1] = f32s(&[0.0, 1.0]);
        eval_kernel(&kernel, &mut bufs, &[]).unwrap();
        assert_eq!(bufs[0], f32s(&[0.0, 1.0, 1.0, 2.0, 3.0, 5.0, 8.0, 13.0]));
        agrees(&kernel);
    }
}

#[test]
fn a_factor_is_kept_in_storage_of_each_kind_over_any_axes() {
    let product = kernel(PRODUCT);
    let nodes = product.toposort();
    let axes: Vec<&UOp> = nodes.iter().filter(|u| u.op() == Op::Range).collect();
    let factors = |u: &&UOp| u.op() == Op::Index && u.ranges().iter().any(|r| r == axes[2]);
    for value in nodes.iter().filter(factors) {
        let open = value.ranges();
        for over in [&open[..], &open[..1], &open[1..], &[]] {
            for (device, space) in [
                ("CPU", AddrSpace::Local),
                ("CPU", AddrSpace::Reg),
                ("INTERP:GPU", AddrSpace::Local),
            ] {
                let target = open_target(device);
                let staging = Staging { value, over, space };
                let kept = stage(&product, &staging, &target).unwrap();
                let mut want = buffers(&product);
                eval_kernel(&product, &mut want, &[]).unwrap();
                for seed in 0..8 {
                    let opts = sample(&kept, &target, seed);
                    assert!(
                        on(device, &kept, &opts) == want,
                        "{device} {opts:?}\n{kept}"
                    );
                }
            }
        }
    }
}

#[test]
fn what_one_group_has_folded_is_the_same_for_all_threads_of_another() {
    let greatest = kernel(GREATEST);
    let mut want = buffers(&greatest);
    eval_kernel(&greatest, &mut want, &[]).unwrap();
    for (inner, outer) in [(3, 3), (2, 6), (6, 6)] {
        let group = |factor: i64, axis: usize| format!("SPLIT({axis},{factor},GROUP_REDUCE)");
        // The first group stands before the reductions that are left.
        let opts = [group(inner, 3), group(outer, 3)];
        let opts: Vec<Opt> = opts.iter().map(|o| o.parse().unwrap()).collect();
        assert!(on("INTERP:GPU", &greatest, &opts) == want, "{opts:?}");
    }
}

fn open_target(device: &str) -> Target {
    open(Device::new(device)).unwrap().target().clone()
}
