//! What lies along lanes. Flows in: kernels built here; flows out: a failed test where the lowered one gives other values
//! than the oracle, or where its list has other vectors than are wanted.

use super::*;

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
