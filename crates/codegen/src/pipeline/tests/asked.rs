//! Lines beyond the caches that lists ask for before they are read: of rows, panels, stripes and places from data. Flows
//! in: kernels; flows out: a failed test where a list asks for none, or another value comes.

use super::far::in_order;
use super::*;
use crate::opt::tests::support::conv;

/// How many lines a program asks for before it reads them.
fn asks(program: &Program) -> usize {
    let list = program.src()[1].src();
    let ahead = |u: &&UOp| u.op() == Op::Load && *u.arg() != Arg::None;
    list.iter().filter(ahead).count()
}

/// Whether a program asks for what is several pages apart: the number of a turn is taken apart, or goes on by a line where
/// the turn's own place goes on by several.
fn asks_apart(program: &Program) -> bool {
    let list = program.src()[1].src();
    let ahead = |u: &&UOp| u.op() == Op::Load && *u.arg() != Arg::None;
    let place = |u: &UOp| monoglot_uop::linear::address(&u.src()[0]).map(|a| a.index.clone());
    let mut offsets = list.iter().filter(ahead).filter_map(place);
    offsets.any(|index| index.op() == Op::Add && index.src()[1].op() != Op::Const)
}

#[test]
fn rows_are_asked_for_while_others_are_read_again() {
    let rows = |n: i64| {
        let r = ranges(&[7, n], &[n]);
        let x = param(1, &[7 * n], DType::F32);
        let at = |c: &UOp| linear(&[(&r[0], n), (c, 1)]);
        let greatest = x.at(&[at(&r[2])]).reduce_ranges(ReduceOp::Max, &r[2..]);
        let value = &x.at(&[at(&r[1])]) + &greatest;
        let out = param(0, &[7 * n], DType::F32).at(&[at(&r[1])]);
        sink(&[out.store(&value).end(&r[..2])])
    };
    for (device, mut target) in in_order() {
        // Of wider vectors a row of 40 has no loop.
        target.vector_bytes = target.vector_bytes.min(32);
        let opts = |k: UOp| (k.clone(), crate::opt::choose(&k, &target));
        // Four vectors at a time, one, and rows of several pages.
        let mut cases = vec![opts(rows(256)), opts(rows(40)), opts(rows(4096))];
        cases.extend(kernels().into_iter().map(opts));
        let near = check_for(&device, &target, &cases, 0);
        assert!(near.iter().all(|p| asks(p) == 0));
        target.caches[2] = 0;
        let far = check_for(&device, &target, &cases, 0);
        assert!(
            asks(&far[0]) > 0 && asks(&far[1]) > 0,
            "{}",
            far[0].src()[1]
        );
        assert!(asks_apart(&far[2]), "{}", far[2].src()[1]);
        assert!(!asks_apart(&far[0]), "{}", far[0].src()[1]);
        target.caches[1] = 0;
        let wide = check_for(&device, &target, &cases, 0);
        assert!(wide.iter().all(|p| asks(p) == 0));
    }
}

/// A block's sums beyond the second cache are asked for before the loop that adds to them.
#[test]
fn sums_are_asked_for_while_terms_are_added() {
    for (device, mut target) in in_order() {
        target.caches = [4 << 10, 32 << 10, 256 << 10];
        let kernel = flat_matmul(256, 128, 384);
        let opts = crate::opt::choose(&kernel, &target);
        let cases = [(kernel, opts)];
        let far = check_for(&device, &target, &cases, 0);
        assert!(asks(&far[0]) > 0, "{}", far[0].src()[1]);
        target.caches[1] = 1 << 20;
        let near = check_for(&device, &target, &cases, 0);
        assert_eq!(asks(&near[0]), 0, "{}", near[0].src()[1]);
    }
}

/// Long parts of rows that others have the rest of are asked for a row ahead; short ones are not, and neither are rows
/// that follow each other.
#[test]
fn parts_of_rows_are_asked_for_while_others_are_worked_with() {
    let doubled = |rows: i64, n: i64, pitch: i64| {
        let r = ranges(&[rows, n], &[]);
        let place = |slot| {
            let at = linear(&[(&r[0], pitch), (&r[1], 1)]);
            param(slot, &[rows * pitch], DType::F32).at(&[at])
        };
        let twice = &place(1) * &UOp::float(2.0, DType::F32);
        sink(&[place(0).store(&twice).end(&r)])
    };
    for (device, mut target) in in_order() {
        target.vector_bytes = target.vector_bytes.min(32);
        target.caches = [4 << 10, 32 << 10, 64 << 10];
        let vectors = |k: UOp| (k, vec![split(1, 8, AxisType::Upcast, false)]);
        let cases = [
            vectors(doubled(9, 1024, 2048)),
            vectors(doubled(90, 64, 2048)),
            vectors(doubled(9, 2048, 2048)),
        ];
        let programs = check_for(&device, &target, &cases, 0);
        let found: Vec<bool> = programs.iter().map(|p| asks(p) > 0).collect();
        assert_eq!(found, [true, false, false]);
        target.caches[2] = 16 << 20;
        let near = check_for(&device, &target, &cases, 0);
        assert!(near.iter().all(|p| asks(p) == 0));
    }
}

/// Loops that do much with each line of storage beyond the second cache ask for later ones: not where they do little,
/// nor for what is near, nor for what a loop before went through.
#[test]
fn lines_are_asked_for_while_others_are_worked_on() {
    let polynomial = |x: &UOp, terms: i64| {
        let term = |sum: UOp, k: i64| &(&sum * x) + &x.like(k as f64);
        (0..terms).fold(x.clone(), term)
    };
    let worked = |n: i64, terms: i64| {
        let r = ranges(&[n], &[]);
        let place = |slot| param(slot, &[n], DType::F32).at(&r);
        sink(&[place(0).store(&polynomial(&place(1), terms)).end(&r)])
    };
    // The same elements are gone through once more.
    let again = |n: i64| {
        let [first, second] = [0, 1].map(|k| ranges(&[n, n], &[])[k].clone());
        let x = |r: &UOp| param(2, &[n], DType::F32).at(std::slice::from_ref(r));
        let to = |slot, r: &UOp| param(slot, &[n], DType::F32).at(std::slice::from_ref(r));
        let one = to(0, &first).store(&x(&first)).end(&[first.clone()]);
        let two = to(1, &second).store(&polynomial(&x(&second), 9));
        sink(&[one, two.end(&[second])])
    };
    for (device, mut target) in in_order() {
        target.vector_bytes = target.vector_bytes.min(32);
        target.caches = [4 << 10, 32 << 10, 1 << 20];
        let upcast = |k: UOp, n| (k, vec![split(0, n, AxisType::Upcast, false)]);
        let vectors = |k: UOp| upcast(k, 8);
        let twice = [0, 1].map(|axis| split(axis, 8, AxisType::Upcast, false));
        let cases = [
            vectors(worked(1 << 14, 9)),
            vectors(worked(1 << 14, 1)),
            vectors(worked(1 << 12, 9)),
            (again(1 << 14), twice.to_vec()),
            upcast(worked(1 << 14, 9), 16),
            upcast(worked(1 << 12, 9), 16),
        ];
        let programs = check_for(&device, &target, &cases, 0);
        let found: Vec<usize> = programs.iter().map(asks).collect();
        assert_eq!(found, [1, 0, 0, 0, 1, 0], "{}", programs[0].src()[1]);
        let apart: Vec<bool> = programs.iter().map(asks_apart).collect();
        assert_eq!(apart, [true, false, false, false, true, false]);
    }
}

/// What panels are made of, beyond the second cache, is asked for a few rows before it is copied; also past ends, where
/// some rows are none.
#[test]
fn panels_are_asked_for_while_others_are_copied() {
    // Whether rows past an end were asked about.
    let mut past = false;
    for (device, mut target) in in_order() {
        target.caches = [4 << 10, 32 << 10, 16 << 20];
        // Whatever this machine has: narrower tiles have no rows past an end.
        target.vector_bytes = 64;
        target.registers = 32;
        let opts = |k: UOp| (k.clone(), crate::opt::choose(&k, &target));
        let cases = [
            opts(flat_matmul(96, 256, 192)),
            opts(flat_matmul(75, 256, 192)),
        ];
        let copied = |p: &Program| {
            let loads = p.src()[1].src().iter().filter(|u| u.op() == Op::Load);
            let params = loads.filter(|u| *u.arg() != Arg::None);
            let storage =
                |u: &UOp| monoglot_uop::linear::address(&u.src()[0]).map(|a| a.buffer.op());
            params.filter(|u| storage(u) == Some(Op::Param)).count()
        };
        let masked = |p: &Program| {
            let list = p.src()[1].src();
            let loads = list
                .iter()
                .filter(|u| u.op() == Op::Load && *u.arg() != Arg::None);
            loads
                .filter_map(|u| u.src().get(2))
                .filter(|g| g.op() == Op::And)
                .count()
        };
        let far = check_for(&device, &target, &cases, 0);
        for program in &far {
            assert!(copied(program) > 0, "{}", program.src()[1]);
        }
        past |= far.iter().any(|p| masked(p) > 0);
        target.caches[1] = 1 << 20;
        let near = check_for(&device, &target, &cases, 0);
        for program in &near {
            assert_eq!(copied(program), 0, "{}", program.src()[1]);
        }
    }
    assert!(past);
}

/// Rows of several vectors are copied by a loop over these inside of that along them: the next rows are asked for, not
/// those of the next vector.
#[test]
fn rows_of_several_vectors_are_asked_for_while_others_are_copied() {
    for (device, mut target) in in_order() {
        target.vector_bytes = 16;
        target.caches = [4 << 10, 32 << 10, 16 << 20];
        let image = conv(2, 64, 256, 6, 1);
        let opts = crate::opt::choose(&image, &target);
        let programs = check_for(&device, &target, &[(image, opts)], 0);
        let list = programs[0].src()[1].src();
        let asked = list
            .iter()
            .position(|u| u.op() == Op::Load && *u.arg() != Arg::None);
        let asked = asked.unwrap_or_else(|| panic!("{}", programs[0].src()[1]));
        let around: Vec<&UOp> = list[..asked]
            .iter()
            .filter(|u| u.op() == Op::Range)
            .collect();
        let nodes = list[asked].toposort();
        let turn = nodes.iter().find(|u| u.op() == Op::Max);
        let over = turn.map(|turn| turn.toposort());
        let over = over.and_then(|all| all.into_iter().find(|u| u.op() == Op::Range));
        // Blocks, panels, terms, vectors.
        assert_eq!(around.len(), 4);
        assert_eq!(over.as_ref(), Some(around[1]), "{}", programs[0].src()[1]);
    }
}

/// Of a product whose terms go in runs, what a panel is made of is asked for in those of the tiles that use the one before,
/// a few lines in each, however the factor lies and whether tiles and runs divide its lines or not; the loop that copies asks for nothing.
#[test]
fn panels_are_asked_for_while_others_are_worked_with() {
    let turned = |m: i64, n: i64, k: i64| {
        let r = ranges(&[m, n], &[k]);
        let read = |slot, row: &UOp, rows: i64| {
            param(slot, &[rows * k], DType::F32).at(&[linear(&[(row, k), (&r[2], 1)])])
        };
        let sum = (read(1, &r[0], m) * read(2, &r[1], n)).reduce_ranges(ReduceOp::Add, &r[2..]);
        let to = param(0, &[m * n], DType::F32).at(&[linear(&[(&r[0], n), (&r[1], 1)])]);
        sink(&[to.store(&sum).end(&r[..2])])
    };
    let of_columns = |u: &UOp| {
        let a = monoglot_uop::linear::address(&u.src()[0]);
        a.and_then(|a| a.buffer.buffer_arg())
            .is_some_and(|b| b.slot == 2)
    };
    let asked = |u: &UOp| u.op() == Op::Load && *u.arg() != Arg::None && of_columns(u);
    for (device, mut target) in in_order() {
        let widest = target.vector_bytes;
        // Sums of more terms than a float should add one after the other are in parts around the runs.
        let sizes = [(64, 320, 11, 128), (32, 320, 11, 128), (32, 512, 22, 448)];
        for (bytes, terms, first, second) in sizes.into_iter().filter(|s| s.0 <= widest) {
            target.caches = [first << 10, second << 10, 16 << 20];
            target.vector_bytes = bytes;
            let opts = |k: UOp| (k.clone(), crate::opt::choose(&k, &target));
            // Of few tiles each run asks for lines of several terms.
            let few = 24;
            let cases = [
                opts(flat_matmul(128, 256, terms)),
                opts(turned(128, 256, terms)),
                opts(flat_matmul(192, 256, terms)),
                opts(turned(192, 256, terms)),
                opts(flat_matmul(few, 256, terms)),
            ];
            for program in check_for(&device, &target, &cases, 0) {
                let list = program.src()[1].src();
                let loops = crate::nests::Loop::all(list);
                let asks = |inner: bool| {
                    let some = loops.iter().filter(|l| l.inside.is_empty() == inner);
                    let own = |l: &crate::nests::Loop, i: usize| {
                        !l.inside.iter().any(|&k| loops[k].contains(i))
                    };
                    let of = |l: &crate::nests::Loop| {
                        let places = (l.begin..l.end).filter(|&i| own(l, i));
                        places.filter(|&i| asked(&list[i])).count()
                    };
                    some.map(of).sum::<usize>()
                };
                assert!((1..=8).contains(&asks(false)), "{}", program.src()[1]);
                assert_eq!(asks(true), 0, "{}", program.src()[1]);
                // Whether it is asked for is not worked out in a run that does not change that.
                let gates = list.iter().filter(|u| asked(u)).map(|u| &u.src()[2]);
                for gate in gates {
                    let at = list.iter().position(|u| u == gate).expect("a gate");
                    let around = loops.iter().filter(|l| l.contains(at));
                    let in_vain = |l: &crate::nests::Loop| !gate.ranges().contains(&list[l.begin]);
                    let runs = around.filter(|l| in_vain(l) && !l.inside.is_empty());
                    let mut inner =
                        runs.map(|l| l.inside.iter().all(|&k| loops[k].inside.is_empty()));
                    assert!(!inner.any(|last| last), "{}", program.src()[1]);
                }
            }
        }
    }
}

/// A product of few rows with rows of a matrix, and terms that lie together: of the matrix a tile's next rows are asked for,
/// in each pass over the others, where the second cache holds both.
#[test]
fn rows_of_a_tile_are_asked_for_while_others_are_multiplied() {
    let tile = |m: i64, k: i64| {
        let r = ranges(&[m, 64], &[k]);
        let read = |slot, row: &UOp, rows: i64| {
            param(slot, &[rows * k], DType::F32).at(&[linear(&[(row, k), (&r[2], 1)])])
        };
        let sum = (read(1, &r[0], m) * read(2, &r[1], 64)).reduce_ranges(ReduceOp::Add, &r[2..]);
        let to = param(0, &[m * 64], DType::F32).at(&[linear(&[(&r[0], 64), (&r[1], 1)])]);
        let kernel = sink(&[to.store(&sum).end(&r[..2])]);
        let outermost = Opt {
            op: OptOp::Swap { with: 0 },
            axis: 1,
        };
        let opts = vec![
            outermost,
            split(1, 4.min(m), AxisType::Upcast, false),
            split(0, 4, AxisType::Upcast, false),
            split(usize::from(m > 4) + 1, 16, AxisType::Unroll, false),
        ];
        (kernel, opts)
    };
    let cases = [tile(4, 192), tile(8, 192), tile(2, 192), tile(4, 1024)];
    for (device, mut target) in in_order() {
        target.caches = [4 << 10, 32 << 10, 16 << 20];
        // Whatever this machine has: of narrower vectors there are several to a line.
        target.vector_bytes = 64;
        target.registers = 32;
        let programs = check_for(&device, &target, &cases, 0);
        // By rows, and of the terms of rows longer than that within the same ones; not where there is little to do.
        let over = |p: &Program| {
            let list = p.src()[1].src();
            let loops = crate::nests::Loop::all(list);
            let asked = list
                .iter()
                .filter(|u| u.op() == Op::Load && *u.arg() != Arg::None);
            let far = |u: &UOp| u.toposort().iter().any(|s| s.op() == Op::Max);
            let outside = &list[loops[0].begin];
            asked
                .filter(|u| far(u) && u.ranges().contains(outside))
                .count()
        };
        assert_eq!(over(&programs[0]) % 4, 0);
        assert!(over(&programs[0]) > 0, "{}", programs[0].src()[1]);
        assert!(over(&programs[1]) > 0, "{}", programs[1].src()[1]);
        assert_eq!(asks(&programs[2]), 0, "{}", programs[2].src()[1]);
        assert_eq!(over(&programs[3]), 0, "{}", programs[3].src()[1]);
        target.caches[1] = 1 << 20;
        let near = check_for(&device, &target, &cases, 0);
        assert!(near.iter().all(|p| asks(p) == 0));
    }
}

#[test]
fn stripes_are_asked_for_while_others_are_multiplied() {
    // Eight columns at a time, of which the last may be some of those before; columns by themselves; whole lines.
    let columns = |n: i64, op: OptOp| (flat_matmul(4, n, 16), vec![Opt { op, axis: 1 }]);
    let eight = split(1, 8, AxisType::Upcast, false).op;
    let cover = OptOp::Cover {
        factor: 8,
        target: AxisType::Upcast,
    };
    let lines = split(1, 16, AxisType::Upcast, false).op;
    let cases = vec![
        columns(256, eight),
        columns(253, cover),
        (flat_matmul(4, 256, 16), Vec::new()),
        columns(256, lines),
        (
            flat_matmul(4, 256, 48),
            vec![split(1, 8, AxisType::Upcast, false)],
        ),
    ];
    for (device, mut target) in in_order() {
        // A matrix is more than the second cache, which holds four times the lines of a stripe of 32 rows.
        target.caches[1] = 4 * 32 * 64;
        let programs = check_for(&device, &target, &cases, 0);
        let asked: Vec<usize> = programs.iter().map(asks).collect();
        assert_eq!(asked, [1, 1, 1, 0, 0]);
        target.caches[1] = 16 * 256 * 4;
        let near = check_for(&device, &target, &cases[..3], 0);
        assert!(near.iter().all(|p| asks(p) == 0));
    }
}

/// Terms of which the loop over stripes says where they begin or end, as in the gradients of causal attention: the
/// counter of the terms is the one of the loop that reads them, whichever stripe is asked for.
#[test]
fn stripes_of_a_triangle_are_asked_for() {
    let triangle = |above: bool| {
        let r = ranges(&[128, 16], &[32]);
        let a = param(1, &[32 * 128], DType::F32).at(&[linear(&[(&r[2], 128), (&r[0], 1)])]);
        let b = param(2, &[32 * 16], DType::F32).at(&[linear(&[(&r[2], 16), (&r[1], 1)])]);
        let [row, term] = [&r[0], &(&r[2] * &r[2].like(4))];
        let some = if above { row.lt(term) } else { term.lt(row) };
        let value = &a * &b;
        let sum = some
            .select(&value, &value.like(0.0))
            .reduce_ranges(ReduceOp::Add, &r[2..]);
        let to = param(0, &[128 * 16], DType::F32).at(&[linear(&[(&r[0], 16), (&r[1], 1)])]);
        sink(&[to.store(&sum).end(&r[..2])])
    };
    let opts = vec![
        split(0, 8, AxisType::Upcast, false),
        split(1, 16, AxisType::Upcast, false),
    ];
    let cases = [true, false].map(|above| (triangle(above), opts.clone()));
    for (device, mut target) in in_order() {
        target.caches[1] = 4 * 32 * 64;
        for program in check_for(&device, &target, &cases, 0) {
            let list = program.src()[1].src();
            let told = |u: &UOp| u.op() == Op::Range && u.src().iter().any(|s| s.op() != Op::Const);
            assert!(list.iter().any(told), "{}", program.src()[1]);
            assert!(asks(&program) > 0, "{}", program.src()[1]);
        }
    }
}

#[test]
fn rows_at_places_from_data_are_asked_for() {
    // Rows of a table, of the sum of two tables, and a row that another loop is around.
    let rows = |columns: i64, gated: bool, two: bool| {
        let r = ranges(&[40, columns], &[]);
        let at = |slot: u64| param(slot, &[40], DType::U8).at(&r[..1]).cast(DType::Index);
        let read = |slot: u64, table: u64| {
            let at = at(slot);
            let gate = at.lt(&at.like(if gated { 200 } else { 256 }));
            let x = param(table, &[256, columns], DType::F32);
            let x = x.at(&[at.valid(&gate), r[1].clone()]);
            gate.select(&x, &x.like(-1.0))
        };
        let value = if two {
            &read(2, 1) + &read(4, 3)
        } else {
            read(2, 1)
        };
        let store = param(0, &[40, columns], DType::F32).at(&r).store(&value);
        sink(&[store.end(&r)])
    };
    for (device, mut target) in in_order() {
        let opts = |k: UOp| (k.clone(), crate::opt::choose(&k, &target));
        let mut cases = vec![
            opts(rows(256, true, false)),
            opts(rows(1024, false, false)),
            opts(rows(256, true, true)),
            opts(rows(40, true, false)),
        ];
        // Of two tables twice as much in the same tile.
        cases[2].1 = cases[0].1.clone();
        cases.extend(kernels().into_iter().map(opts));
        let near = check_for(&device, &target, &cases, 0);
        assert!(near.iter().all(|p| asks(p) == 0));
        target.caches[2] = 0;
        let far = check_for(&device, &target, &cases, 0);
        for program in &far[..3] {
            assert!(asks(program) > 0, "{}", program.src()[1]);
        }
        assert!(asks(&far[2]) >= 2 * asks(&far[0]));
        target.caches[1] = 0;
        let wide = check_for(&device, &target, &cases, 0);
        assert!(wide.iter().all(|p| asks(p) == 0));
    }
}

/// What no lane reads is not asked for far away: rows that come from elsewhere are read from where storage begins while
/// their condition does not hold.
#[test]
fn lanes_that_read_nothing_have_an_address_that_is_there() {
    let r = ranges(&[24, 48], &[]);
    let [row, column] = [&r[0], &r[1]];
    let first = row.lt(&row.like(10));
    let left = column.lt(&column.like(21));
    let far = linear(&[(row, 48), (column, 1)]) + 14 * 48;
    let there = &first & &left;
    let x = param(1, &[24 * 48], DType::F32).at(&[far.valid(&there)]);
    let value = there.select(&x, &x.like(0.5));
    let out = param(0, &[24, 48], DType::F32).at(&r);
    let kernel = sink(&[out.store(&value).end(&r)]);
    let lanes = vec![split(1, 16, AxisType::Upcast, false)];
    for device in devices() {
        let program = &check_for(
            &device,
            device.target(),
            &[(kernel.clone(), lanes.clone())],
            0,
        )[0];
        let list = program.src()[1].src();
        let gated = |u: &&UOp| u.op() == Op::Load && u.src().len() > 2;
        let vectors = list.iter().filter(gated);
        let vectors: Vec<&UOp> = vectors.filter(|u| !u.shape().is_empty()).collect();
        let chosen = |u: &&UOp| u.src()[0].src()[1].src()[0].op() == Op::Where;
        assert!(vectors.iter().all(chosen), "{}", program.src()[1]);
        let wide = device.target().vector_bytes > DType::F32.bytes();
        assert_eq!(vectors.is_empty(), !wide, "{}", program.src()[1]);
    }
}
