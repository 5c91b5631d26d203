//! Sums and storage under masks: loops end, or begin, where a mask does. Flows in: kernels built here; flows out: a failed
//! test where the lowered one gives other values than the oracle, or where its loops are others.

use super::*;

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
