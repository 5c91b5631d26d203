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

/// How many loops of a program end, or begin, where those around them say.
fn bounded(program: &Program) -> usize {
    let list = program.src()[1].src();
    let varies = |u: &&UOp| u.op() == Op::Range && u.src().iter().any(|s| s.op() != Op::Const);
    list.iter().filter(varies).count()
}

/// `out[i, c] = Σ_j (a·j + b·i + d ≤ 0 ? x[j, c] : 0)`, or another fold.
fn banded(op: ReduceOp, [a, b, d]: [i64; 3]) -> UOp {
    let r = ranges(&[40, 8], &[64]);
    let x = param(1, &[64, 8], DType::F32).at(&[r[2].clone(), r[1].clone()]);
    let identity = UOp::constant(op.identity(DType::F32), DType::F32);
    let sum = linear(&[(&r[2], a), (&r[0], b)]);
    let fold = sum.lt(&sum.like(1 - d)).select(&x, &identity);
    let out = param(0, &[40, 8], DType::F32).at(&r[..2]);
    sink(&[out.store(&fold.reduce_ranges(op, &r[2..])).end(&r[..2])])
}

/// A sum whose loop is cut in two, where a mask holds and where it may not, goes on in the same registers.
#[test]
fn parts_of_a_sum_go_on_in_its_registers() {
    let rows = split(0, 8, AxisType::Upcast, false);
    let columns = split(1, 8, AxisType::Upcast, false);
    let opts = [columns, rows];
    let registers = |kernel: &UOp, target: &Target| {
        let (program, _) = lower_for(kernel, target, Some(&opts)).expect("a kernel");
        let list = program.src()[1].src();
        let own = |u: &&UOp| u.op() == Op::Buffer && u.addrspace() == Some(AddrSpace::Reg);
        let loops = list.iter().filter(|u| u.op() == Op::Range).count();
        [list.iter().filter(own).count(), loops]
    };
    for device in devices() {
        for op in [ReduceOp::Add, ReduceOp::Max] {
            let r = ranges(&[40, 8], &[64]);
            let at = [&r[0], &r[2], &r[1]].map(UOp::clone);
            let x = param(1, &[40, 64, 8], DType::F32).at(&at);
            let out = param(0, &[40, 8], DType::F32).at(&r[..2]);
            let of = |value: &UOp| {
                let store = out.store(&value.reduce_ranges(op, &r[2..]));
                registers(&sink(&[store.end(&r[..2])]), device.target())
            };
            let identity = UOp::constant(op.identity(DType::F32), DType::F32);
            let below = r[2].lt(&(&r[0] + 1));
            let [whole, parts] = [of(&x), of(&below.select(&x, &identity))];
            assert!(parts[1] > whole[1], "{} {op:?}", device.device());
            assert_eq!(parts[0], whole[0], "{} {op:?}", device.device());
        }
    }
}

#[test]
fn loops_end_where_masks_do() {
    let rows = split(0, 8, AxisType::Upcast, false);
    let terms = split(2, 4, AxisType::Unroll, false);
    let lists = [vec![], vec![rows], vec![terms], vec![terms, rows]];
    let lines = [
        [1, -1, 0],
        [1, -1, -7],
        [1, 1, -40],
        [-1, 1, 3],
        [-1, -1, 30],
        [2, -3, 5],
        [-3, 2, -11],
        [5, -4, 20],
    ];
    let mut cases = Vec::new();
    for line in lines {
        for op in [ReduceOp::Add, ReduceOp::Max] {
            cases.extend(lists.iter().map(|l| (banded(op, line), l.clone())));
        }
    }
    for device in devices() {
        let programs = check_for(&device, device.target(), &cases, 0);
        for (program, (_, opts)) in programs.iter().zip(&cases) {
            assert!(bounded(program) > 0, "{opts:?}\n{}", program.src()[1]);
        }
    }
}

/// Parts of a loop whose last turns are padding have loops of their own inside, one of which ends where another says.
#[test]
fn parts_of_a_loop_have_inner_loops_of_their_own() {
    let r = ranges(&[2, 3, 40], &[64]);
    let x = param(1, &[2, 3, 64], DType::F32).at(&[r[0].clone(), r[1].clone(), r[3].clone()]);
    let above = r[3].lt(&r[2]).select(&x.like(0.0), &x);
    let sum = above.reduce_ranges(ReduceOp::Add, &r[3..]);
    let out = param(0, &[2, 3, 40], DType::F32).at(&r[..3]);
    let kernel = sink(&[out.store(&sum).end(&r[..3])]);
    let padded = Opt {
        op: OptOp::PadTo { multiple: 2 },
        axis: 1,
    };
    check(&[(kernel, vec![padded])]);
}

/// A loop past whose end nothing counts is not taken apart around one that fills a register which it does not vary with:
/// both parts would fill it.
#[test]
fn parts_of_a_loop_do_not_fill_one_register() {
    let r = ranges(&[10, 15], &[16]);
    let place = |slot, row: &UOp, of: i64| {
        let at = linear(&[(row, 16), (&r[2], 1)]);
        param(slot, &[of * 16], DType::F32).at(&[at])
    };
    let kept = UOp::scratch(0, &Shape::of(&[]), DType::F32, AddrSpace::Reg);
    let filled = kept.after(&[kept.at(&[]).store(&place(2, &r[1], 15))]);
    let product = &place(1, &r[0], 10) * &filled.at(&[]);
    let sum = product.reduce_ranges(ReduceOp::Add, &r[2..]);
    let out = param(0, &[10, 15], DType::F32).at(&r[..2]);
    let kernel = sink(&[out.store(&sum).end(&r[..2])]);
    let padded = |axis: usize, multiple: i64| Opt {
        op: OptOp::PadTo { multiple },
        axis,
    };
    let opts = vec![
        split(1, 0, AxisType::Global, false),
        split(1, 2, AxisType::Local, false),
        padded(3, 16),
        padded(1, 3),
        padded(0, 5),
        split(1, 2, AxisType::Loop, false),
    ];
    for device in devices().iter().filter(|d| d.target().workgroups) {
        check_for(
            device,
            device.target(),
            &[(kernel.clone(), opts.clone())],
            0,
        );
    }
}

/// `out[i] = Σ b[j]²` over j ≤ i, or over j ≥ i, of storage b with b[j] = x[i]·x[j] that is filled for every i.
fn kept(above: bool) -> UOp {
    let r = ranges(&[64, 64], &[64]);
    let place = |slot, at: &UOp| param(slot, &[64], DType::F32).at(std::slice::from_ref(at));
    let storage = UOp::scratch(0, &Shape::of(&[64]), DType::F32, AddrSpace::Local);
    let product = place(1, &r[0]) * place(1, &r[1]);
    let fill = storage.at(&r[1..2]).store(&product).end(&r[1..2]);
    let read = storage.after(&[fill]).at(&r[2..]);
    let counts = match above {
        true => r[0].lt(&(&r[2] + 1)),
        false => r[2].lt(&(&r[0] + 1)),
    };
    let square = counts.select(&(&read * &read), &read.like(0.0));
    let sum = square.reduce_ranges(ReduceOp::Add, &r[2..]);
    sink(&[place(0, &r[0]).store(&sum).end(&r[..1])])
}

/// What no one reads is not filled: both parts of the sum, and the loop that fills, end or begin at the row.
#[test]
fn storage_is_filled_as_far_as_it_is_read() {
    let rows = split(0, 8, AxisType::Upcast, false);
    for above in [false, true] {
        let cases = [(kept(above), vec![]), (kept(above), vec![rows])];
        for device in devices().iter().filter(|d| !d.target().workgroups) {
            let programs = check_for(device, device.target(), &cases, 0);
            assert!(
                bounded(&programs[1]) >= 3,
                "{above} {} {}",
                bounded(&programs[0]),
                bounded(&programs[1])
            );
        }
    }
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

/// Lanes two places apart, with what lies between them along another axis: read and written as whole vectors.
#[test]
fn what_lies_between_lanes_is_written_with_them() {
    let pairs = |n: i64, d: DType, over: bool| {
        let r = ranges(&[3, n, 2], &[]);
        let at = |count: i64| linear(&[(&r[0], count), (&r[1], 2), (&r[2], 1)]);
        let place = |slot| param(slot, &[3 * 2 * n], d).at(&[at(2 * n)]);
        let once = param(1, &[3 * n], d).at(&[linear(&[(&r[0], n), (&r[1], 1)])]);
        let other = if over { place(0) } else { place(2) };
        sink(&[place(0).store(&(&once + &other)).end(&r)])
    };
    let stores = |p: &Program| {
        let list = p.src()[1].src();
        list.iter().filter(|u| u.op() == Op::Store).count()
    };
    let dtypes = [DType::F32, DType::I8, DType::I16, DType::F64];
    for device in devices() {
        for (d, over) in dtypes.into_iter().flat_map(|d| [(d, false), (d, true)]) {
            for lanes in [2, 4, 8, 10, 16] {
                let opts = vec![
                    split(2, 2, AxisType::Upcast, false),
                    split(1, lanes, AxisType::Upcast, false),
                ];
                let cases = [(pairs(3 * lanes, d, over), opts)];
                let programs = check_for(&device, device.target(), &cases, 0);
                let wide = device.target().lanes(d) >= 4 && d != DType::F64;
                if wide && !device.target().workgroups {
                    let found = stores(&programs[0]);
                    assert!(found <= lanes as usize, "{d:?} {lanes}: {found}");
                }
            }
        }
    }
}

/// What is read once for vectors of several widths is put into the lanes of one.
#[test]
fn narrower_vectors_share_the_lanes_of_what_is_read_once() {
    for device in devices() {
        let lanes = device.target().lanes(DType::F32) as i64;
        let opts = vec![
            split(0, 2, AxisType::Upcast, false),
            split(1, 5 * lanes / 2, AxisType::Upcast, false),
        ];
        let cases = [(flat_matmul(4, 5 * lanes, 7), opts)];
        let programs = check_for(&device, device.target(), &cases, 0);
        if lanes < 4 || device.target().workgroups {
            continue;
        }
        let list = programs[0].src()[1].src();
        let element = |u: &&UOp| {
            let of = monoglot_uop::linear::splat(u);
            u.op() == Op::Stack && of.is_some_and(|s| s.op() == Op::Load)
        };
        let found = list.iter().filter(element).count();
        assert_eq!(found, 2, "{}", programs[0].src()[1]);
    }
}

/// Rows that are turned to columns and end within a tile: but for the last, whole vectors are written.
#[test]
fn all_but_the_last_tile_of_odd_rows_are_turned() {
    let whole = |p: &Program| {
        let list = p.src()[1].src();
        let ungated = list
            .iter()
            .filter(|u| u.op() == Op::Store && u.src().len() == 2);
        ungated
            .filter(|u| monoglot_uop::linear::lanes(&u.src()[1]) >= 4)
            .count()
    };
    for device in devices() {
        for columns in [8, 16, 40] {
            let pad = Opt {
                axis: 0,
                op: OptOp::PadTo { multiple: 16 },
            };
            let opts = vec![
                pad,
                split(0, 16, AxisType::Upcast, false),
                split(1, columns, AxisType::Upcast, false),
            ];
            let cases = [(transpose(72, 2 * columns), opts)];
            let programs = check_for(&device, device.target(), &cases, 0);
            if device.target().lanes(DType::F32) >= 4 && !device.target().workgroups {
                let found = whole(&programs[0]);
                assert!(found >= 16, "{columns}: {found}");
            }
        }
    }
}

/// Places that are worked out of numbers are so for all lanes. Those that are kept within a row need no gate; of others
/// each lane reads what is there, whatever its own gate, which chooses.
#[test]
fn places_of_a_gather_are_worked_out_for_all_lanes() {
    let r = ranges(&[64], &[]);
    let x = param(1, &[64], DType::F32).at(&r);
    let place = (&x * 8.0).cast(DType::I32) + 1;
    let kept = place.lt(&place.like(40)).select(&place, &place.like(39));
    let kept = alu(Op::Max, &[kept.clone(), kept.like(0)]).cast(DType::Index);
    let inside = place.like(-1).lt(&place) & place.lt(&place.like(40));
    let masked = place.cast(DType::Index).valid(&inside);
    let read = |place: UOp| param(2, &[40], DType::F32).at(&[place]);
    let masked = read(masked);
    let masked = inside.select(&masked, &masked.like(0.0));
    for value in [read(kept), masked] {
        let kernel = sink(&[param(0, &[64], DType::F32).at(&r).store(&value).end(&r)]);
        let opts = vec![split(0, 8, AxisType::Upcast, false)];
        for device in devices().iter().filter(|d| !d.target().workgroups) {
            let target = device.target();
            let programs = check_for(device, target, &[(kernel.clone(), opts.clone())], 0);
            let list = programs[0].src()[1].src();
            let scalar = |u: &&UOp| u.op() == Op::Max && u.shape().is_empty();
            let gated = |u: &&UOp| u.op() == Op::Load && u.src().len() > 2;
            let wide = target.lanes(DType::F32) >= 4;
            assert!(!wide || list.iter().filter(gated).count() == 0);
            assert!(!wide || list.iter().filter(scalar).count() == 0);
        }
    }
}

/// Of what a tile's updates read, the kind of which there are fewer is held and the other passes by.
#[test]
fn updates_hold_the_operands_of_which_there_are_fewer() {
    let mut target = crate::opt::tests::support::target(false);
    target.native = OpSet::of(&[Op::MulAcc]);
    for (rows, vectors) in [(2, 4), (8, 2)] {
        let tile = [
            split(0, rows, AxisType::Upcast, false),
            split(1, vectors * 16, AxisType::Upcast, false),
        ];
        let kernel = flat_matmul(rows * 2, vectors * 32, 12);
        let (program, _) = lower_for(&kernel, &target, Some(&tile)).unwrap();
        let list = &program.src()[1];
        let is_scalar = |u: &&UOp| monoglot_uop::linear::splat(u).is_some();
        let passes = |u: &&UOp| is_scalar(u) == (rows > vectors);
        let updates = list.src().iter().filter(|u| u.op() == Op::MulAcc);
        let mut passing: Vec<UOp> = updates
            .filter_map(|u| u.src()[..2].iter().find(passes).cloned())
            .collect();
        assert_eq!(passing.len() as i64, rows * vectors, "{list}");
        passing.dedup();
        assert_eq!(passing.len() as i64, rows.max(vectors), "{list}");
    }
}

/// Rows that windows of several results share are read once, where registers hold what they are multiplied by.
#[test]
fn vectors_of_windows_pass_by() {
    let mut target = crate::opt::tests::support::target(false);
    target.native = OpSet::of(&[Op::MulAcc]);
    // Σ over four planes and three rows of what a column of six results has beside it.
    let r = ranges(&[6, 32], &[4, 3]);
    let [row, column, plane, window] = &r[..] else {
        panic!("four ranges");
    };
    let place = linear(&[(plane, 256), (row, 32), (window, 32), (column, 1)]);
    let x = param(1, &[4 * 8 * 32], DType::F32).at(&[place]);
    let w = param(2, &[12], DType::F32).at(&[linear(&[(plane, 3), (window, 1)])]);
    let sum = (w * x).reduce_ranges(ReduceOp::Add, &r[2..]);
    let out = param(0, &[6 * 32], DType::F32).at(&[linear(&[(row, 32), (column, 1)])]);
    let kernel = sink(&[out.store(&sum).end(&r[..2])]);
    let tile = [
        split(3, 0, AxisType::Unroll, false),
        split(1, 16, AxisType::Upcast, false),
        split(0, 0, AxisType::Upcast, false),
    ];
    check(&[(kernel.clone(), tile.to_vec())]);
    let mut passing = |registers: usize| {
        target.registers = registers;
        let (program, _) = lower_for(&kernel, &target, Some(&tile)).unwrap();
        let list = program.src()[1].clone();
        let is_scalar = |u: &UOp| monoglot_uop::linear::splat(u).is_some();
        let updates = list.src().iter().filter(|u| u.op() == Op::MulAcc);
        let vectors = updates.filter_map(|u| u.src()[..2].iter().find(|s| !is_scalar(s)).cloned());
        let mut vectors: Vec<UOp> = vectors.collect();
        let all = vectors.len();
        vectors.dedup();
        (all, vectors.len())
    };
    let [held, not] = [32, 8].map(&mut passing);
    assert!(held.0 > held.1 && held.1 == 8, "{held:?}");
    assert!(not.1 > 8, "{not:?}");
}

/// What padding adds to windows of three by three over eight rows of eight is left out: rows by loops that end where
/// it begins, columns by lanes that lack these terms. All padding here holds numbers, which no result has in it.
#[test]
fn products_with_padding_are_left_out() {
    let r = ranges(&[16, 8, 8], &[4, 3, 3]);
    let [channel, row, column, plane, down, right] = &r[..] else {
        panic!("six ranges");
    };
    let inside = |at: &UOp| at.like(0).lt(at) & at.lt(&at.like(9));
    let [y, x] = [row + down, column + right];
    let counts = inside(&y) & inside(&x);
    let image = param(1, &[4 * 100], DType::F32).at(&[linear(&[(plane, 100), (&y, 10), (&x, 1)])]);
    let place = linear(&[(plane, 144), (down, 48), (right, 16), (channel, 1)]);
    let weight = param(2, &[4 * 144], DType::F32).at(&[place]);
    let product = &weight * &image;
    let counted = counts.select(&product, &product.like(0.0));
    let counted = counted.with_arg(Arg::Padding);
    let sum = counted.reduce_ranges(ReduceOp::Add, &r[3..]);
    let place = linear(&[(channel, 64), (row, 8), (column, 1)]);
    let out = param(0, &[16 * 64], DType::F32).at(&[place]);
    let kernel = sink(&[out.store(&sum).end(&r[..3])]);
    let tile = [
        split(5, 0, AxisType::Unroll, false),
        split(2, 0, AxisType::Upcast, false),
        split(0, 0, AxisType::Upcast, false),
    ];
    let cases = [(kernel.clone(), vec![]), (kernel, tile.to_vec())];
    for device in devices().iter().filter(|d| !d.target().workgroups) {
        let programs = check_for(device, device.target(), &cases, 0);
        assert!(programs.iter().all(|p| bounded(p) > 0));
    }
    let mut target = crate::opt::tests::support::target(false);
    target.native = OpSet::of(&[Op::MulAcc]);
    let (program, _) = lower_for(&cases[1].0, &target, Some(&tile)).unwrap();
    let list = &program.src()[1];
    let updates = list.src().iter().filter(|u| u.op() == Op::MulAcc).count();
    assert_eq!(updates, 3 * 8 - 2, "{list}");
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

/// Values at the edges of a dtype, then random ones.
fn edges(d: DType, n: usize, seed: u64) -> Vec<u8> {
    let special: Vec<Scalar> = match d {
        DType::Bool => vec![Scalar::Bool(true), Scalar::Bool(false)],
        d if d.is_float() => [
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            2.5,
            -3.5,
            1e-8,
            300.0,
            -1e10,
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
        ]
        .map(|f| d.from_f64(f))
        .to_vec(),
        d => [
            d.min(),
            d.max(),
            d.from_i128(0),
            d.from_i128(1),
            d.from_i128(-1),
            d.from_i128(2),
            d.from_i128(7),
            d.from_i128(-7),
        ]
        .to_vec(),
    };
    let mut choice = Choice::new(seed);
    let mut out = Vec::new();
    for _ in 0..n {
        let v = match choice.below(3) {
            0 => special[choice.below(special.len())],
            1 => d.from_i128(choice.below(40) as i128 - 20),
            _ => Scalar::from_bits(
                (choice.below(1 << 31) as u64) << 33 | choice.below(1 << 31) as u64,
                d,
            ),
        };
        out.extend_from_slice(&v.to_bits(d).to_le_bytes()[..d.bytes()]);
    }
    out
}

/// `out[i] = f(a[i], b[i])` for 48 elements, as eight lanes a time.
fn by_element(d: DType, f: impl Fn(&UOp, &UOp) -> UOp) -> UOp {
    let i = UOp::range(48i64, 0, AxisType::Loop);
    let read = |slot| param(slot, &[48], d).at(std::slice::from_ref(&i));
    let value = f(&read(1), &read(2));
    let out = param(0, &[48], value.dtype()).at(std::slice::from_ref(&i));
    sink(&[out.store(&value).end(std::slice::from_ref(&i))])
}

const DTYPES: [DType; 15] = [
    DType::Bool,
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::U8,
    DType::U16,
    DType::U32,
    DType::U64,
    DType::F8E4M3,
    DType::F8E5M2,
    DType::F16,
    DType::BF16,
    DType::F32,
    DType::F64,
];

fn elementwise() -> Vec<UOp> {
    use Op::*;
    let mut all = Vec::new();
    for d in DTYPES {
        let shared = [Add, Mul, Max, CmpLt, CmpNe, CmpEq, CmpLe, CmpGe, CmpGt];
        let ints = [Xor, Or, And, Idiv, Mod, Shl, Shr, Sub, Pow];
        let floats = [Sub, Div];
        for op in shared {
            all.push(by_element(d, |a, b| a.binary(op, b)));
        }
        let own = if d.is_float() {
            &floats[..]
        } else if d == DType::Bool {
            &ints[..5]
        } else {
            &ints[..]
        };
        for op in own {
            all.push(by_element(d, |a, b| a.binary(*op, b)));
        }
        if d.is_int() {
            for k in [1, 2, 8, 3, 7, -1, -2, -5] {
                let k = if d.is_unsigned() { i64::abs(k) } else { k };
                all.push(by_element(d, |a, _| a / k));
                all.push(by_element(d, |a, _| a % k));
            }
        }
        let unary = if d.is_float() {
            &[Neg, Trunc, Sqrt, Recip][..]
        } else if d == DType::Bool {
            &[Not][..]
        } else {
            &[Neg, Not][..]
        };
        for op in unary {
            all.push(by_element(d, |a, _| a.unary(*op)));
        }
        all.push(by_element(d, |a, b| a.lt(b).select(a, b)));
        for to in DTYPES.into_iter().filter(|to| *to != d) {
            all.push(by_element(d, |a, _| a.cast(to)));
        }
    }
    all.push(by_element(DType::U64, |a, b| a.binary(Threefry, b)));
    all
}

/// Equal but for what a NaN carries.
fn same(want: &[u8], got: &[u8], d: DType) -> bool {
    let read = |b: &[u8]| {
        let mut all = [0; 8];
        all[..b.len()].copy_from_slice(b);
        Scalar::from_bits(u64::from_le_bytes(all), d)
    };
    let n = d.bytes();
    want.chunks(n)
        .zip(got.chunks(n))
        .all(|(w, g)| w == g || read(w).to_f64().is_nan() && read(g).to_f64().is_nan())
}

#[test]
fn every_op_of_every_dtype_is_that_of_the_oracle() {
    let all = elementwise();
    for device in devices() {
        for opts in [vec![], vec![split(0, 8, AxisType::Upcast, false)]] {
            let lower = |k: &UOp| lower_for(k, device.target(), Some(&opts)).map(|l| l.0);
            let programs: Vec<Program> = all
                .iter()
                .map(|k| lower(k).unwrap_or_else(|e| panic!("{e}\n{k}")))
                .collect();
            let compiled = device.compile(&programs).unwrap();
            for ((k, program), kernel) in all.iter().zip(&programs).zip(compiled) {
                let types = dtypes(k);
                let mut want: Vec<Vec<u8>> = types
                    .iter()
                    .enumerate()
                    .map(|(i, d)| edges(*d, 48, i as u64))
                    .collect();
                let bufs = upload(device.as_ref(), &want, 0);
                eval_kernel(k, &mut want, &[]).unwrap();
                device.launch(&kernel, &bufs, &[]).unwrap();
                let mut got = vec![0; want[0].len()];
                device.download(&bufs[0], 0, &mut got).unwrap();
                let Some(source) = program.src()[2].arg().text() else {
                    continue;
                };
                assert!(
                    same(&want[0], &got, types[0]),
                    "{}\n{want:?}\n{got:?}\n{source}\n{}",
                    device.device(),
                    k
                );
            }
        }
    }
}

/// A product that is marked is not fused with its sum, nor with any matrix unit, and keeps its mark.
#[test]
fn products_that_are_rounded_are_no_part_of_a_fused_sum() {
    let fused = [Op::MulAcc, Op::Wmma];
    for device in devices() {
        for rounded in [false, true] {
            let k = matmul(16, 16, 16);
            let products: rustc_hash::FxHashMap<UOp, UOp> = k
                .toposort()
                .into_iter()
                .filter(|u| rounded && u.op() == Op::Mul && u.dtype() == DType::F32)
                .map(|u| (u.clone(), u.with_arg(Arg::Rounded)))
                .collect();
            let k = k.substitute(&products);
            let program = lower_for(&k, device.target(), None).unwrap().0;
            let linear = program.src()[1].toposort();
            let has = |keep: &dyn Fn(&UOp) -> bool| linear.iter().any(keep);
            let name = device.device();
            let can = device.target().native.contains(Op::MulAcc);
            assert_eq!(has(&|u| fused.contains(&u.op())), !rounded && can, "{name}");
            assert_eq!(has(&|u| *u.arg() == Arg::Rounded), rounded, "{name}");
        }
    }
}
