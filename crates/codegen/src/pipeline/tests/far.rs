//! What lists write beyond the caches: stores that pass them by, and rows that are written a turn later. Flows in:
//! kernels; flows out: a failed test where a list does neither, or another value comes.

use super::*;

/// The devices that do a thing after the other, as targets whose loops are arranged for a machine's caches.
pub(super) fn in_order() -> Vec<(Arc<dyn Runtime>, Target)> {
    let arranged = |device: Arc<dyn Runtime>| {
        let mut target = device.target().clone();
        target.arranged = true;
        (device, target)
    };
    let all = devices().into_iter().map(arranged);
    all.filter(|(_, target)| !target.workgroups).collect()
}

/// Whether a program has a STORE that passes the caches by.
fn streams(program: &Program) -> bool {
    let list = program.src()[1].src();
    let past = |u: &UOp| u.op() == Op::Store && *u.arg() != Arg::None;
    list.iter().any(past)
}

/// Rows from some storage, times three.
fn copy(rows: i64, columns: i64, from: u64) -> UOp {
    let r = ranges(&[rows, columns], &[]);
    let at = linear(&[(&r[0], columns), (&r[1], 1)]);
    let place = |slot| param(slot, &[rows * columns], DType::F32).at(&[at.clone()]);
    let value = &place(from) * &UOp::float(3.0, DType::F32);
    sink(&[place(0).store(&value).end(&r)])
}

/// Rows of a line and a half, wherever their storage begins: every second one has its vectors in the middle of lines.
#[test]
fn vectors_in_the_middle_of_lines_pass_the_caches_by_in_halves() {
    let Ok(cpu) = Cpu::open(Device::new("CPU"), &Config::default()) else {
        return;
    };
    let device: Arc<dyn Runtime> = Arc::new(cpu);
    let mut target = device.target().clone();
    target.threads = 1;
    target.caches[2] = 0;
    let opts = vec![split(1, 24, AxisType::Upcast, false)];
    for from in [0, 4, 8, 16] {
        let cases = [(copy(37, 24, 1), opts.clone())];
        let programs = check_for(&device, &target, &cases, from);
        let wide = target.vector_bytes >= 32;
        assert_eq!(streams(&programs[0]), wide, "{}", programs[0].src()[1]);
    }
}

/// Several threads keep what they write in caches that hold all of it, but where they work on it and these are nearly full.
#[test]
fn what_is_worked_on_leaves_the_caches_to_what_is_read() {
    let squares = |n: usize| {
        let r = ranges(&[64, 256], &[]);
        let at = linear(&[(&r[0], 256), (&r[1], 1)]);
        let place = |slot| param(slot, &[64 * 256], DType::F32).at(&[at.clone()]);
        let value = (0..n).fold(place(1), |v, _| &(&v * &v) + &place(1));
        let opts = vec![split(1, 16, AxisType::Upcast, false)];
        (sink(&[place(0).store(&value).end(&r)]), opts)
    };
    let storage = 2 * 64 * 256 * 4;
    for (device, mut target) in in_order() {
        target.threads = 2;
        target.cores = 2;
        target.caches[1] = 0;
        let cases = [
            (0, storage, false),
            (9, storage, true),
            (9, storage / 2 * 3, false),
        ];
        for (squared, last, past) in cases {
            target.caches[2] = last;
            let programs = check_for(&device, &target, &[squares(squared)], 0);
            assert_eq!(streams(&programs[0]), past, "{}", programs[0].src()[1]);
        }
    }
}

#[test]
fn what_passes_the_caches_by_is_the_same() {
    let Ok(cpu) = Cpu::open(Device::new("CPU"), &Config::default()) else {
        return;
    };
    let device: Arc<dyn Runtime> = Arc::new(cpu);
    let mut target = device.target().clone();
    // Which rows are whole lines depends on the width of vectors.
    target.vector_bytes = target.vector_bytes.min(32);
    // One thread, for which only the last cache counts.
    target.threads = 1;
    target.caches[2] = 0;
    let opts = |k: UOp| (k.clone(), crate::opt::choose(&k, &target));
    let tile = |n: i64| {
        let axis = |axis: usize| split(axis, n, AxisType::Upcast, false);
        (transpose(64, 96), vec![axis(0), axis(1)])
    };
    // Whole lines, rows that are none, tiles that are turned, and what the kernel itself reads.
    let wanted = [true, true, false, true, false, false, true];
    let mut cases = vec![
        opts(copy(64, 256, 1)),
        opts(copy(37, 40, 1)),
        opts(copy(9, 13, 1)),
        tile(16),
        tile(8),
        opts(copy(64, 256, 0)),
        opts(flat_matmul(64, 64, 64)),
    ];
    cases.extend(kernels().into_iter().map(opts));
    // Vectors may not be where storage begins that is a part of some other.
    for from in [0, 8, 16] {
        let programs = check_for(&device, &target, &cases, from);
        for (wanted, program) in wanted.iter().zip(&programs) {
            assert_eq!(streams(program), *wanted, "{}", program.src()[1]);
        }
    }
    target.caches = device.target().caches;
    let all = check_for(&device, &target, &cases, 0);
    assert!(
        !all.iter().any(streams),
        "what fits the last cache stays in it"
    );
}

/// `out[r, c] = v[r, c] + y[r] + Σ_c v[r, c]` with v = 2·x, of which a row is kept in storage where that is asked.
fn rows_by_their_sums(rows: i64, n: i64, kept: bool) -> UOp {
    let r = ranges(&[rows, n, n], &[n]);
    let twice = |c: &UOp| {
        let at = linear(&[(&r[0], n), (c, 1)]);
        &param(1, &[rows * n], DType::F32).at(&[at]) * &UOp::float(2.0, DType::F32)
    };
    let storage = UOp::scratch(0, &Shape::of(&[n]), DType::F32, AddrSpace::Local);
    let fill = storage.at(&r[2..3]).store(&twice(&r[2])).end(&r[2..3]);
    let full = storage.after(&[fill]);
    let value = |c: &UOp| match kept {
        true => full.at(std::slice::from_ref(c)),
        false => twice(c),
    };
    let sum = value(&r[3]).reduce_ranges(ReduceOp::Add, &r[3..]);
    let of_row = param(2, &[rows], DType::F32).at(&r[..1]);
    let place = linear(&[(&r[0], n), (&r[1], 1)]);
    let out = param(0, &[rows * n], DType::F32).at(&[place]);
    sink(&[out.store(&(&(&value(&r[1]) + &of_row) + &sum)).end(&r[..2])])
}

/// The target of a device for one thread, with no last cache: what is written passes all caches by. None where threads
/// come in groups.
fn without_last_cache(device: &dyn Runtime) -> Option<Target> {
    let mut target = device.target().clone();
    target.arranged = true;
    target.threads = 1;
    target.vector_bytes = target.vector_bytes.min(32);
    target.caches[2] = 0;
    (!target.workgroups).then_some(target)
}

/// Whether rows of a program are written a turn later.
fn turned(program: &Program) -> bool {
    let list = program.src()[1].src();
    list.iter().any(|u| u.op() == Op::If)
}

/// Rows that pass the caches by are written while the next one is worked out, if there are some.
#[test]
fn rows_are_written_while_others_are_worked_out() {
    for device in devices() {
        let Some(target) = without_last_cache(device.as_ref()) else {
            continue;
        };
        let opts = |k: UOp| (k.clone(), crate::opt::choose(&k, &target));
        // Loops of the writer that turn as often as those of the row's sum, and more often.
        let lanes = |axis: usize, n: i64, to: AxisType| split(axis, n, to, false);
        let more = |kept: bool| {
            let sums = lanes(3 - usize::from(!kept), 32, AxisType::Unroll);
            let all = vec![lanes(1, 8, AxisType::Upcast), sums];
            (rows_by_their_sums(40, 256, kept), all)
        };
        let cases = [
            opts(rows_by_their_sums(40, 256, true)),
            opts(rows_by_their_sums(40, 256, false)),
            opts(rows_by_their_sums(33, 96, true)),
            more(true),
            more(false),
            opts(rows_by_their_sums(31, 256, true)),
        ];
        // Loops that go through a row of which something is kept turn as often as each other.
        let factors = cases[0].1.iter().filter_map(|opt| match opt.op {
            OptOp::Split { factor, .. } => Some(factor),
            _ => None,
        });
        let factors: Vec<i64> = factors.collect();
        assert!(
            factors.len() == 3 && factors.iter().all(|f| *f == factors[0]),
            "{:?}",
            cases[0].1
        );
        for from in [0, 8] {
            let programs = check_for(&device, &target, &cases, from);
            let found: Vec<bool> = programs.iter().map(turned).collect();
            assert_eq!(found, [true, true, true, true, true, false]);
        }
    }
}

/// The same where the loops that fill, read and write turn as often as each other, or some multiple of that, or not.
#[test]
fn rows_are_written_by_loops_of_any_turns() {
    for device in devices() {
        let Some(target) = without_last_cache(device.as_ref()) else {
            continue;
        };
        let mut cases: Vec<(UOp, Vec<Opt>)> = Vec::new();
        for n in [96, 128, 320] {
            for (kept, writer, sum) in (0..18).map(|k| (k % 2 == 0, k / 2 % 3, k / 6)) {
                let kernel = rows_by_their_sums(35, n, kept);
                let lanes = |axis: usize, n: i64| split(axis, n, AxisType::Upcast, false);
                let sums = split(2 + usize::from(kept), 8 << sum, AxisType::Unroll, false);
                let mut opts = vec![lanes(1, 8 << writer), sums];
                if kept {
                    opts.insert(1, lanes(2, 8 << ((writer + sum) % 3)));
                }
                cases.push((kernel, opts));
            }
        }
        let programs = check_for(&device, &target, &cases, 0);
        let found = programs.iter().filter(|p| turned(p)).count();
        assert!(
            found > 20 && found < cases.len(),
            "{found} of {}",
            cases.len()
        );
    }
}
