//! What is chosen: kernels of many shapes, each computed as it is and as it is arranged, and what their Opts say. Flows in:
//! kernels and machines; flows out: failed tests.

use super::*;
use crate::opt::apply;
use crate::opt::cost::beside;
use crate::opt::tests::support::*;
use monoglot_uop::{DType, ReduceOp};

fn letters(k: &UOp) -> String {
    let axes = crate::opt::axes(k);
    axes.iter()
        .filter_map(|r| Some(format!("{}{}", r.range_arg()?.1.letter(), r.vmax() + 1)))
        .collect()
}

#[test]
fn parts_of_the_longest_loops_are_not_sought_one_by_one() {
    let rows = UOp::range(8i64, 0, AxisType::Loop);
    // No small number divides it.
    let far = UOp::range((1i64 << 50) - 27, 1, AxisType::Loop);
    let n = far.vmax() + 1;
    let read = param(1, &[n], DType::F32).at(std::slice::from_ref(&far));
    let to = param(0, &[8, n], DType::F32).at(&[rows.clone(), far.clone()]);
    let effect = to.store(&read).end(&[rows, far]);
    let info = monoglot_uop::Arg::Kernel(Default::default());
    let kernel = UOp::sink(&[effect]).with_arg(info);
    for workgroups in [false, true] {
        let chosen = choose(&kernel, &target(workgroups));
        assert!(apply(&kernel, &chosen, &target(workgroups)).is_ok());
    }
}

#[test]
fn what_is_chosen_can_be_applied_and_keeps_the_result() {
    let mut all = kernels();
    all.extend([
        matmul(5, 9, 11),
        flat_matmul(16, 32, 24),
        flat_matmul(64, 48, 8),
        flat_matmul(3, 17, 40),
        transpose(64, 96),
        transpose(97, 160),
        transpose(160, 97),
        transpose(1024, 48),
    ]);
    all.extend([
        conv(2, 3, 4, 8, 3),
        conv_weights(2, 3, 4, 8, 3),
        conv_images(2, 3, 4, 8, 3),
    ]);
    for k in &all {
        for workgroups in [false, true] {
            let opts = choose(k, &target(workgroups));
            check(k, &opts);
        }
    }
}

/// The statistics of what comes back to windows: where the greatest stands and what comes back do not change in the loops
/// over a window, so ten rows of them at once would be more than there are registers.
#[test]
fn values_that_the_innermost_loop_does_not_change_take_registers() {
    let text = "p0 = PARAM[0, f32, CPU] (8,)
r0 = RANGE[0, LOOP] 8
%0 = INDEX p0 r0 : f32
p2 = PARAM[2, i32, CPU] (51200,)
r1 = RANGE[1, REDUCE] 64
r2 = RANGE[2, REDUCE] 10
r3 = RANGE[3, REDUCE] 2
r4 = RANGE[4, REDUCE] 10
r5 = RANGE[5, REDUCE] 2
%1 = MUL r0 6400
%2 = MUL r1 100
%3 = ADD %1 %2
%4 = MUL r2 10
%5 = ADD %3 %4
%6 = ADD %5 r4
%7 = INDEX p2 %6 : i32
%8 = MUL r3 2
%9 = ADD %8 r5
%10 = CAST[i32] %9
%11 = CMPEQ %10 %7
p3 = PARAM[3, f32, CPU] (51200,)
%12 = INDEX p3 %6 : f32
%13 = WHERE %11 %12 0.0
p4 = PARAM[4, f32, CPU] (204800,)
%14 = MUL r0 25600
%15 = MUL r1 400
%16 = ADD %14 %15
%17 = MUL r2 40
%18 = ADD %16 %17
%19 = MUL r3 20
%20 = ADD %18 %19
%21 = MUL r4 2
%22 = ADD %20 %21
%23 = ADD %22 r5
%24 = INDEX p4 %23 : f32
%25 = MUL %13 %24
%26 = REDUCE[ADD] %25 r1 r2 r3 r4 r5
%27 = STORE %0 %26
%28 = END %27 r0
p1 = PARAM[1, f32, CPU] (8,)
%29 = INDEX p1 r0 : f32
%30 = REDUCE[ADD] %13 r1 r2 r3 r4 r5
%31 = STORE %29 %30
%32 = END %31 r0
SINK[\"\"] %28 %32
";
    let kernel = monoglot_uop::text::parse(text).expect("a kernel");
    for registers in [16, 32] {
        let target = Target {
            registers,
            ..target(false)
        };
        let opts = choose(&kernel, &target);
        let arranged = check_on(&kernel, &opts, &target);
        let all = letters(&arranged);
        assert_eq!(
            all.matches("r10").count(),
            1,
            "{registers} registers: {all}"
        );
    }
}

/// What lies between elements two apart is in the tile, where it is an axis of two: what comes back to windows of
/// two by two.
#[test]
fn windows_of_two_are_whole_in_a_tile() {
    let wide = Target {
        vector_bytes: 64,
        registers: 32,
        ..target(false)
    };
    let r = ranges(&[24, 10, 2], &[]);
    let row = linear(&[(&r[0], 20), (&r[1], 2), (&r[2], 1)]);
    let pooled = param(1, &[240], DType::F32).at(&[linear(&[(&r[0], 10), (&r[1], 1)])]);
    let x = param(2, &[480], DType::F32).at(std::slice::from_ref(&row));
    let store = param(0, &[480], DType::F32).at(&[row]).store(&(x + pooled));
    let kernel = sink(&[store.end(&r)]);
    let opts = choose(&kernel, &wide);
    let tile = check_on(&kernel, &opts, &wide);
    let axes = letters(&tile);
    assert!(axes.contains("u2") && axes.contains("u10"), "{axes}");
    lowers(&tile, false);
}

#[test]
fn what_is_explained_is_what_is_chosen() {
    for k in kernels().iter().chain(&[flat_matmul(64, 48, 32)]) {
        for workgroups in [false, true] {
            let target = target(workgroups);
            let (choices, prediction) = explain(k, &target);
            let opts: Vec<Opt> = choices.iter().map(|c| c.opt).collect();
            assert_eq!(opts, choose(k, &target));
            assert!(prediction.is_none_or(|p| p.cycles > 0.0 && p.share() > 0.0));
        }
    }
    let (choices, _) = explain(&flat_matmul(64, 48, 32), &target(false));
    let weighed: Vec<&Weighed> = choices.iter().filter_map(|c| c.weighed.as_ref()).collect();
    assert!(weighed.len() > 1, "{choices:?}");
    for w in weighed {
        assert!(w.others.is_sorted_by(|a, b| a.1 <= b.1), "{w:?}");
        assert!(w.others.iter().all(|o| w.cost < o.1 * 1.05), "{w:?}");
    }
}

/// What is read again for every row is read a part at a time, as much as the last cache holds.
#[test]
fn sums_beyond_the_caches_are_done_in_parts() {
    for (rows, n, parts) in [(4096, 4096, true), (16, 512, false)] {
        // The greatest of a row's sums with a column: no product, which would be staged.
        let r = ranges(&[rows, n], &[n]);
        let [row, column, term] = [0, 1, 2].map(|k| &r[k]);
        let a = param(1, &[rows * n], DType::F32).at(&[linear(&[(row, n), (term, 1)])]);
        let b = param(2, &[n * n], DType::F32).at(&[linear(&[(term, n), (column, 1)])]);
        let most = (a + b).reduce_ranges(ReduceOp::Max, &r[2..]);
        let out = param(0, &[rows * n], DType::F32).at(&[linear(&[(row, n), (column, 1)])]);
        let kernel = sink(&[out.store(&most).end(&r[..2])]);
        let opts = choose(&kernel, &target(false));
        let split = |o: &Opt| {
            matches!(
                o.op,
                OptOp::Split {
                    target: AxisType::Loop,
                    top: true,
                    ..
                }
            )
        };
        assert_eq!(opts.iter().any(split), parts, "{opts:?}");
    }
}

/// Neither factor stays in the second cache: both are staged, and long sums are done in parts, the same
/// whatever the number of threads.
#[test]
fn a_product_beyond_the_second_cache_is_done_in_blocks() {
    let small = Target {
        caches: [1 << 10, 16 << 10, 128 << 10],
        ..target(false)
    };
    let sizes = [
        (512, 128, 64),
        (1024, 96, 112),
        (512, 320, 47),
        (200, 99, 71),
        (177, 301, 53),
    ];
    for (m, n, k) in sizes {
        let kernel = flat_matmul(m, n, k);
        let chosen = |threads: usize| {
            let target = Target {
                threads,
                ..small.clone()
            };
            let opts = choose(&kernel, &target);
            lowers(&check_on(&kernel, &opts, &target), false);
            opts
        };
        let [alone, two] = [chosen(1), chosen(2)];
        let stages = |opts: &[Opt]| {
            let stage = |o: &&Opt| matches!(o.op, OptOp::Stage { .. });
            opts.iter().filter(stage).count()
        };
        assert_eq!(stages(&alone), 3, "{m} {n} {k}: {alone:?}");
        assert_eq!(stages(&two), 3, "{m} {n} {k}: {two:?}");
        let parts = |opts: &[Opt]| {
            let of_sums = |o: &Opt| match o.op {
                OptOp::Split { factor, target, .. } if target.is_reduce() => Some(factor),
                _ => None,
            };
            opts.iter().filter_map(of_sums).collect::<Vec<_>>()
        };
        assert_eq!(parts(&alone), parts(&two));
    }
}

/// A sum too short for parts is whole in each tile; the loops around a product stay around its blocks.
#[test]
fn short_sums_are_not_done_in_parts() {
    let small = Target {
        caches: [1 << 10, 16 << 10, 128 << 10],
        ..target(false)
    };
    let products = [
        flat_matmul(4096, 1024, 2),
        flat_matmul(512, 96, 4),
        flat_matmul(300, 100, 3),
        conv(3, 5, 64, 18, 3),
        conv(1, 4, 70, 17, 2),
        conv_images(2, 64, 6, 16, 3),
    ];
    for kernel in products {
        for threads in [1, 2] {
            let target = Target {
                threads,
                ..small.clone()
            };
            let opts = choose(&kernel, &target);
            let staged = |o: &&Opt| matches!(o.op, OptOp::Stage { .. });
            let parts = |o: &Opt| match o.op {
                OptOp::Split { target, .. } => target == AxisType::Reduce,
                _ => false,
            };
            assert!(opts.iter().filter(staged).count() > 0, "{opts:?}");
            assert!(!opts.iter().any(parts), "{opts:?}");
            lowers(&check_on(&kernel, &opts, &target), false);
        }
    }
}

/// Tiles whose sums no second cache holds are beside each other innermost, and others above each other.
#[test]
fn tiles_that_write_far_away_go_along_rows() {
    let small = Target {
        caches: [1 << 10, 16 << 10, 128 << 10],
        ..target(false)
    };
    let near = Target {
        caches: [1 << 10, 1 << 20, 8 << 20],
        ..target(false)
    };
    let along = |target: &Target| {
        let (choices, _) = explain(&flat_matmul(512, 96, 4), target);
        choices
            .iter()
            .any(|c| c.why.ends_with("go on with its rows"))
    };
    assert!(along(&small));
    assert!(!along(&near));
}

/// Rows a whole number of times as far apart as a cache's sets repeat lie in one set of it, and so do those
/// a few bytes less apart, until these are a line's width off; rows inside a line do not.
#[test]
fn rows_that_share_a_set_of_the_cache_are_few() {
    for (step, rows) in [(4096, 8), (8192, 8), (2048, 16), (4092, 8), (4100, 8)] {
        assert_eq!(beside(step), rows, "{step}");
    }
    for step in [4, 64, 4004, 4032] {
        assert!(beside(step) > 64, "{step}: {}", beside(step));
    }
}

/// The factor by which an axis of a kernel is unrolled, by one thread of a machine with long vectors.
fn unrolled(k: &UOp, axis: usize) -> i64 {
    let factors = choose(k, &wide_for_one())
        .into_iter()
        .filter_map(|o| match o.op {
            OptOp::Split {
                factor,
                target: AxisType::Upcast | AxisType::Unroll,
                ..
            } if o.axis == axis => Some(factor),
            _ => None,
        });
    factors.product()
}

/// Each row of each image is a stream of what no near cache holds: a core follows a few of them.
#[test]
fn sums_of_images_have_few_streams() {
    let r = ranges(&[64], &[16, 1024]);
    let at = linear(&[(&r[1], 64 << 10), (&r[0], 1024), (&r[2], 1)]);
    let read = param(1, &[1 << 20], DType::F32).at(&[at]);
    let sum = read.reduce_ranges(ReduceOp::Add, &r[1..]);
    let place = param(0, &[64], DType::F32).at(&r[..1]);
    let k = sink(&[place.store(&sum).end(&r[..1])]);
    let streams = unrolled(&k, 0) * unrolled(&k, 1);
    assert!(streams <= 16, "{streams}");
}

/// Vectors of what lies apart take operations to put together, which much work beside them does not hide.
#[test]
fn sums_of_much_work_go_along_what_is_read() {
    let r = ranges(&[256], &[1024]);
    let at = linear(&[(&r[0], 1024), (&r[1], 1)]);
    let read = |slot| param(slot, &[1 << 18], DType::F32).at(std::slice::from_ref(&at));
    let power = |x: &UOp| x.unary(monoglot_uop::Op::Exp2);
    let logarithm = |x: &UOp| x.unary(monoglot_uop::Op::Log2);
    let value = logarithm(&(power(&read(1)) + power(&read(2))));
    let sum = value.reduce_ranges(ReduceOp::Add, &r[1..]);
    let place = param(0, &[256], DType::F32).at(&r[..1]);
    let k = sink(&[place.store(&sum).end(&r[..1])]);
    let along = unrolled(&k, 1);
    assert!(along >= 16 && unrolled(&k, 0) < 16, "{along}");
}

/// Both axes are unrolled, so that vectors are read along one and written along the other, and a line that a
/// loop steps over is used while it is there.
#[test]
fn a_transpose_gets_a_tile_of_both_axes() {
    for (m, n) in [(4096, 4096), (16, 16), (97, 20000)] {
        let k = transpose(m, n);
        let opts = choose(&k, &target(false));
        let after = apply(&k, &opts, &target(false)).unwrap();
        assert_eq!(letters(&after).matches('u').count(), 2, "{after}");
    }
}

/// What no number of whole vectors divides is padded to them, and turned in squares, rather than read in rows of
/// what divides it.
#[test]
fn a_transpose_of_odd_rows_gets_whole_vectors() {
    let wide = Target {
        vector_bytes: 64,
        ..target(false)
    };
    for (m, n) in [(3000, 2000), (700, 4992)] {
        let k = transpose(m, n);
        let opts = choose(&k, &wide);
        let of = |axis: usize| {
            let mut all = opts.iter().filter(|o| o.axis == axis);
            all.find_map(|o| match o.op {
                OptOp::Split {
                    factor,
                    target: AxisType::Upcast,
                    ..
                } => Some(factor),
                _ => None,
            })
        };
        let padded = opts
            .iter()
            .any(|o| matches!(o.op, OptOp::PadTo { multiple: 16 }));
        assert!(padded && of(0) > Some(8) && of(1) > Some(8), "{opts:?}");
    }
}

/// The loops of a transpose go along what is read, a few tiles beside each other inside.
#[test]
fn a_transpose_reads_along_rows() {
    for (m, n, wanted) in [(256, 1024, 2), (96, 256, 2), (1024, 96, 1)] {
        let k = transpose(m, n);
        for threads in [1, 2] {
            let target = Target {
                threads,
                ..target(false)
            };
            let opts = choose(&k, &target);
            let loops = |o: &&Opt| match o.op {
                OptOp::Swap { .. } => true,
                OptOp::Split { target, top, .. } => target == AxisType::Loop && !top,
                _ => false,
            };
            let count = opts.iter().filter(loops).count();
            assert!(count >= wanted, "{opts:?}");
            check_on(&k, &opts, &target);
        }
    }
}

/// Sums add in one order however many threads there are: what is folded is cut the same way.
#[test]
fn what_is_folded_does_not_depend_on_the_threads() {
    let mut all = kernels();
    all.extend([flat_matmul(512, 512, 512), flat_matmul(8, 8, 8192)]);
    all.extend([flat_matmul(1, 64, 6480), flat_matmul(1, 1, 1 << 20)]);
    all.extend([conv(2, 3, 4, 8, 3), conv_weights(2, 3, 4, 8, 3)]);
    for k in &all {
        let folded = |threads: usize| {
            let target = monoglot_uop::Target {
                threads,
                ..target(false)
            };
            let opts = choose(k, &target);
            let axes = crate::opt::axes(&apply(k, &opts, &target).unwrap());
            let folded = axes.iter().filter(|r| crate::loops::kind(r).is_reduce());
            folded
                .map(|r| (crate::loops::kind(r), r.vmax()))
                .collect::<Vec<_>>()
        };
        for threads in [2, 3, 16, 128] {
            assert_eq!(folded(threads), folded(1), "{threads} threads");
        }
    }
}

/// A row of three and a half vectors leaves registers for the sums of two rows, not of four, once windows are
/// unrolled: what was enlarged first is made smaller again.
#[test]
fn a_tile_is_made_smaller_again_where_that_is_better() {
    let target = Target {
        vector_bytes: 32,
        registers: 16,
        ..target(false)
    };
    let (choices, _) = explain(&conv(8, 64, 4, 29, 2), &target);
    let tiles = choices.iter().filter_map(|c| c.weighed.as_ref());
    let tiles: Vec<&Weighed> = tiles.filter(|w| w.unit == "cycles").collect();
    assert!(tiles.len() > 2, "{choices:?}");
    for w in tiles {
        assert!(w.others.iter().all(|o| w.cost < o.1 * 1.05), "{w:?}");
    }
}

/// Rows of a few pixels leave parts of vectors empty, which the channels of a pixel fill.
#[test]
fn narrow_images_have_vectors_across_their_channels() {
    let across = |k: &UOp, threads: usize| {
        let target = Target {
            threads,
            ..target(false)
        };
        let opts = choose(k, &target);
        lowers(&check_on(k, &opts, &target), false);
        let after = apply(k, &opts, &target).unwrap();
        let nodes = after.toposort();
        let stores: Vec<&UOp> = nodes
            .iter()
            .filter(|u| u.op() == monoglot_uop::Op::Store)
            .collect();
        let wide = |r: &UOp| crate::loops::kind(r) == AxisType::Upcast && r.vmax() >= 15;
        // The sum's store is the one into a parameter.
        let out = stores
            .iter()
            .find(|s| s.src()[0].src()[0].op() == monoglot_uop::Op::Param);
        let index = out.expect("a result").src()[0].src()[1].clone();
        let affine = monoglot_uop::rules::Affine::of(&index).expect("a linear place");
        affine.terms.iter().any(|(r, step)| *step > 1 && wide(r))
    };
    for threads in [1, 2] {
        assert!(across(&conv(2, 8, 32, 10, 3), threads), "{threads}");
        assert!(across(&conv(2, 8, 64, 9, 2), threads), "{threads}");
        assert!(!across(&conv(2, 8, 32, 34, 3), threads), "{threads}");
        // One image of an odd height, a prime width, channels that are no whole vectors: the last tiles begin earlier.
        assert!(across(&conv(1, 8, 32, 15, 3), threads), "{threads}");
        assert!(across(&conv(1, 8, 64, 19, 3), threads), "{threads}");
        assert!(across(&conv(2, 8, 44, 12, 3), threads), "{threads}");
    }
}

/// A factor of which each tile reads parts of lines is read where it lies while a cache holds it.
#[test]
fn vectors_across_need_a_factor_that_a_cache_holds() {
    let k = flat_matmul(192, 50, 128);
    for (last, held) in [(32 << 10, true), (16 << 10, false)] {
        let mut target = target(false);
        target.caches[2] = last;
        let opts = choose(&k, &target);
        lowers(&check_on(&k, &opts, &target), false);
        let stage = |o: &Opt| matches!(o.op, OptOp::Stage { .. });
        assert_eq!(opts.iter().any(stage), held, "{opts:?}");
    }
}

/// Products of images by one matrix, of columns that are no whole vectors.
fn images_by_a_matrix(images: i64, rows: i64, columns: i64, terms: i64) -> UOp {
    let r = ranges(&[images, rows, columns], &[terms]);
    let [image, row, column, term] = [0, 1, 2, 3].map(|k| &r[k]);
    let a = linear(&[(row, terms), (term, 1)]);
    let b = linear(&[(image, terms * columns), (term, columns), (column, 1)]);
    let to = linear(&[(image, rows * columns), (row, columns), (column, 1)]);
    let a = param(1, &[rows * terms], DType::F32).at(&[a]);
    let b = param(2, &[images * terms * columns], DType::F32).at(&[b]);
    let sum = (a * b).reduce_ranges(ReduceOp::Add, &r[3..]);
    let out = param(0, &[images * rows * columns], DType::F32).at(&[to]);
    sink(&[out.store(&sum).end(&r[..3])])
}

/// One with long vectors and one thread.
fn wide_for_one() -> Target {
    Target {
        threads: 1,
        caches: [32 << 10, 1 << 20, 32 << 20],
        ..wide()
    }
}

/// A machine with long vectors and a large second cache.
fn wide() -> Target {
    Target {
        vector_bytes: 64,
        registers: 32,
        caches: [48 << 10, 2 << 20, 32 << 20],
        local_bytes: 1 << 20,
        ..target(false)
    }
}

/// Vectors lie across the results where terms are found quickly: not where each lies in another page, of more than a core
/// has at hand, and weights come from far away, and not where blocks of an image's product cost less.
#[test]
fn vectors_across_are_weighed_against_blocks_of_images_and_far_terms() {
    let wide = wide();
    for (images, rows, columns, terms, across) in [
        (1, 256, 196, 256, true),
        (1, 128, 784, 512, false),
        (1, 512, 49, 2048, false),
        (8, 64, 784, 64, false),
        (8, 256, 196, 256, true),
    ] {
        let kernel = images_by_a_matrix(images, rows, columns, terms);
        let (choices, _) = explain(&kernel, &wide);
        let found = choices
            .iter()
            .any(|c| c.why == "vectors across the results");
        assert_eq!(
            found, across,
            "{images} {rows} {columns} {terms}: {choices:?}"
        );
    }
}

/// A number of rows that no tile divides is padded: one row at a time, each would read all columns again from where they
/// are.
#[test]
fn a_prime_number_of_rows_is_done_in_tiles() {
    let wide = wide();
    for (rows, columns, terms) in [
        (17, 4096, 256),
        (37, 512, 512),
        (29, 23, 128),
        (31, 768, 768),
    ] {
        let (choices, _) = explain(&flat_matmul(rows, columns, terms), &wide);
        let found = choices.iter().any(|c| c.why == "rows of a tile");
        assert!(found, "{rows} {columns} {terms}: {choices:?}");
    }
}

/// A product of rows with rows of a matrix: terms lie beside each other in both factors.
fn by_rows(m: i64, n: i64, k: i64) -> UOp {
    let r = ranges(&[m, n], &[k]);
    let [row, column, term] = [0, 1, 2].map(|k| &r[k]);
    let a = param(1, &[m * k], DType::F32).at(&[linear(&[(row, k), (term, 1)])]);
    let b = param(2, &[n * k], DType::F32).at(&[linear(&[(column, k), (term, 1)])]);
    let sum = (a * b).reduce_ranges(ReduceOp::Add, &r[2..]);
    let out = param(0, &[m * n], DType::F32).at(&[linear(&[(row, n), (column, 1)])]);
    sink(&[out.store(&sum).end(&r[..2])])
}

/// Of few rows of terms that lie beside each other in both factors, several of each are done at once.
#[test]
fn tiles_along_the_terms_have_several_of_each_factor() {
    let opts = choose(&by_rows(16, 512, 512), &wide());
    let several = |o: &&Opt| match o.op {
        OptOp::Split { target, factor, .. } => target == AxisType::Upcast && factor > 1,
        _ => false,
    };
    assert_eq!(opts.iter().filter(several).count(), 2, "{opts:?}");
}

/// Rows that the first cache does not hold come from the second again, for each tile: one that is nearly square reads fewer.
#[test]
fn tiles_of_long_rows_read_few_lines() {
    for (m, k) in [(7, 768), (8, 3072), (16, 3072), (8, 768)] {
        let product = by_rows(m, 768, k);
        let [rows, columns] = [0, 1].map(|axis| unrolled(&product, axis));
        let [rows, columns] = [rows, columns].map(|n| n as f64);
        let lines = (rows + columns) / (rows * columns);
        assert!(lines <= 0.55, "{m} {k}: {rows} {columns}");
    }
}

/// Of a matrix that is read once, for all of few rows, rows far apart are read at once, and each goes on.
#[test]
fn few_rows_times_a_matrix_are_streams_of_it() {
    for (m, streams) in [(1, true), (2, true), (4, true), (8, false), (20, false)] {
        let (choices, _) = explain(&by_rows(m, 768, 768), &wide_for_one());
        let found = choices.iter().any(|c| c.why.contains("streams of memory"));
        assert_eq!(found, streams, "{m}: {choices:?}");
    }
}

/// Where threads leave as many turns of a loop as a tile has, it is none any more: its columns are vectors still.
#[test]
fn tiles_of_several_turns_have_vectors() {
    for threads in [1, 2] {
        let wide = Target {
            threads,
            ..target(false)
        };
        let k = images_by_a_matrix(4, 116, 196, 116);
        let (choices, _) = explain(&k, &wide);
        let has = |why: &str| choices.iter().any(|c| c.why == why);
        assert!(has("turns of a tile"), "{choices:?}");
        let opts: Vec<Opt> = choices.iter().map(|c| c.opt).collect();
        let vectors = axes_of_type(&k, &opts, &wide, AxisType::Loop);
        assert!(vectors.contains(&(208 / 16)), "{opts:?}");
        let shares = axes_of_type(&k, &opts, &wide, AxisType::Thread);
        assert_eq!(shares.len() + 1, threads, "{opts:?}");
        lowers(&apply(&k, &opts, &wide).unwrap(), false);
    }
}

/// Threads share the rows of a product that stands in a loop which they cannot divide.
#[test]
fn threads_share_rows_where_loops_around_are_prime() {
    // Of few terms: results of more are turned.
    let k = images_by_a_matrix(37, 1024, 53, 48);
    let opts = choose(&k, &target(false));
    let staged = |o: &Opt| matches!(o.op, OptOp::Stage { .. });
    assert!(opts.iter().any(staged), "no product: {opts:?}");
    let shares = axes_of_type(&k, &opts, &target(false), AxisType::Thread);
    assert_eq!(shares, [2], "{opts:?}");
    lowers(&apply(&k, &opts, &target(false)).unwrap(), false);
}

/// Of weights of which the second cache does not hold all, so many channels' are staged at a time; threads share the
/// blocks.
#[test]
fn channels_are_done_in_blocks_that_the_second_cache_holds() {
    for (outputs, height, threads, shared) in
        [(64, 10, 1, false), (64, 10, 2, true), (96, 9, 2, false)]
    {
        let small = Target {
            caches: [8 << 10, 32 << 10, 1 << 20],
            threads,
            ..target(false)
        };
        let k = conv(5, 16, outputs, height, 3);
        let opts = choose(&k, &small);
        lowers(&check_on(&k, &opts, &small), false);
        let stages = opts.iter().filter(|o| matches!(o.op, OptOp::Stage { .. }));
        assert_eq!(stages.count(), 1, "{opts:?}");
        let blocks = inner(32, AxisType::Loop);
        assert_eq!(opts[0].op, blocks, "{opts:?}");
        let blocks = [outputs / 32];
        let shares = axes_of_type(&k, &opts, &small, AxisType::Thread);
        assert_eq!(shares == blocks, shared, "{opts:?}");
        // A block's weights are staged once: images are inside.
        let loops = axes_of_type(&k, &opts, &small, AxisType::Loop);
        assert!(shared || loops.starts_with(&blocks), "{opts:?}");
    }
}

/// What is chosen for one thread, and for two, each checked.
fn by_one_thread_and_two(k: &UOp) -> [Vec<Opt>; 2] {
    [1, 2].map(|threads| {
        let target = Target {
            threads,
            ..target(false)
        };
        let opts = choose(k, &target);
        lowers(&check_on(k, &opts, &target), false);
        opts
    })
}

/// Channels of weights that lie one behind the other are read along these, and transposed as they are staged.
#[test]
fn weights_of_one_place_are_transposed() {
    let r = ranges(&[4, 32, 5], &[128]);
    let [image, output, place, channel] = [0, 1, 2, 3].map(|k| &r[k]);
    let x = linear(&[(image, 128 * 5), (channel, 5), (place, 1)]);
    let w = linear(&[(output, 128), (channel, 1)]);
    let to = linear(&[(image, 32 * 5), (output, 5), (place, 1)]);
    let x = param(1, &[4 * 128 * 5], DType::F32).at(&[x]);
    let w = param(2, &[32 * 128], DType::F32).at(&[w]);
    let sum = (x * w).reduce_ranges(ReduceOp::Add, &r[3..]);
    let store = param(0, &[4 * 32 * 5], DType::F32).at(&[to]).store(&sum);
    let k = sink(&[store.end(&r[..3])]);
    for opts in by_one_thread_and_two(&k) {
        let staged = opts
            .iter()
            .position(|o| matches!(o.op, OptOp::Stage { .. }));
        let staged = staged.expect("weights that are staged");
        let terms = opts[staged + 1].op;
        assert_eq!(terms, inner(8, AxisType::Upcast), "{opts:?}");
    }
}

/// Of factors that lie near, rows that no tile divides are padded and done in blocks; others are read where they are.
#[test]
fn rows_of_no_tile_are_done_in_blocks() {
    for (rows, blocks) in [(53, true), (54, false), (56, false)] {
        let k = flat_matmul(rows, 48, 32);
        let opts = choose(&k, &target(false));
        lowers(&check_on(&k, &opts, &target(false)), false);
        let stage = |o: &Opt| matches!(o.op, OptOp::Stage { .. });
        assert_eq!(opts.iter().any(stage), blocks, "{rows}: {opts:?}");
    }
}

/// A product within another sum has no rows that are loops.
#[test]
fn products_within_a_sum_are_no_blocks() {
    let r = ranges(&[64], &[8, 64]);
    let at = |slot, by: &UOp| {
        let place = param(slot, &[64, 8], DType::F32).at(&[by.clone(), r[1].clone()]);
        place.cast(DType::F64)
    };
    let score = (at(1, &r[0]) * at(2, &r[2])).reduce_ranges(ReduceOp::Add, &r[1..2]);
    let all = (&score * &score).reduce_ranges(ReduceOp::Add, &r[2..]);
    let out = param(0, &[64], DType::F64).at(&r[..1]);
    let k = sink(&[out.store(&all).end(&r[..1])]);
    by_one_thread_and_two(&k);
}

/// The extents of the axes of a type after these Opts.
fn axes_of_type(k: &UOp, opts: &[Opt], target: &Target, kind: AxisType) -> Vec<i64> {
    let after = apply(k, opts, target).expect("Opts that can be applied");
    let axes = crate::opt::axes(&after);
    let of_type = axes.iter().filter(|r| crate::loops::kind(r) == kind);
    of_type.map(|r| r.vmax() + 1).collect()
}

/// Threads that others slow down have fewer parts of what is long; short kernels have a part for each, and so has
/// what only turns its tiles.
#[test]
fn long_kernels_have_more_parts_than_threads() {
    let powers = |n: i64| {
        let place = UOp::range(n, 0, AxisType::Loop);
        let at = |slot: u64| param(slot, &[n], DType::F32).at(std::slice::from_ref(&place));
        let power = at(1).unary(monoglot_uop::Op::Exp2);
        sink(&[at(0).store(&power).end(std::slice::from_ref(&place))])
    };
    for (k, parts) in [
        (powers(1 << 22), "t8"),
        (powers(1 << 16), "t2"),
        (conv(16, 64, 64, 58, 3), "t8"),
        (flat_matmul(128, 512, 512), "t2"),
        (transpose(4096, 1024), "t2"),
    ] {
        let opts = choose(&k, &target(false));
        let after = letters(&apply(&k, &opts, &target(false)).unwrap());
        assert!(after.starts_with(parts), "{after}");
    }
}

/// The rows and columns of the register tile of a product by one thread, with so many registers of so many bytes.
fn register_tile_of(k: &UOp, registers: usize, vector_bytes: usize) -> [i64; 2] {
    let machine = Target {
        registers,
        vector_bytes,
        threads: 1,
        caches: [32 << 10, 1 << 20, 32 << 20],
        ..target(false)
    };
    let (choices, _) = explain(k, &machine);
    ["rows of a tile", "columns of a tile"].map(|why| {
        let choice = choices.iter().find(|c| c.why == why);
        match choice.map(|c| c.opt.op) {
            Some(OptOp::Split { factor, .. }) => factor,
            _ => panic!("no {why}: {choices:?}"),
        }
    })
}

/// Eight sums take as long as one multiply-add: a tile has more where there are registers for them.
#[test]
fn tiles_have_more_sums_than_a_multiply_add_takes() {
    for n in [512, 1024, 2048] {
        let k = flat_matmul(n, n, n);
        assert_eq!(register_tile_of(&k, 16, 32), [6, 16], "{n}");
        let [rows, columns] = register_tile_of(&k, 32, 64);
        assert_eq!(columns, 32, "{n}");
        assert!(rows * columns / 16 > 8, "{n}: {rows}");
    }
}

/// Rows past the end are copied, one by one where they lie along the terms: few columns do not make up for that.
#[test]
fn of_few_columns_tiles_divide_the_rows() {
    let k = flat_matmul(200, 100, 300);
    let [rows, _] = register_tile_of(&k, 32, 64);
    assert_eq!(200 % rows, 0);
    let k = flat_matmul(64, 256, 256);
    let [rows, _] = register_tile_of(&k, 16, 32);
    assert_eq!(64 % rows, 0);
}

#[test]
fn a_large_product_gets_threads_a_register_tile_and_vectors() {
    let k = flat_matmul(512, 512, 512);
    let opts = choose(&k, &target(false));
    let after = letters(&apply(&k, &opts, &target(false)).unwrap());
    assert!(after.starts_with("t2") && after.contains("u32"), "{after}");
    let opts = choose(&k, &target(true));
    assert!(
        apply(&k, &opts, &target(true))
            .unwrap()
            .ops_below()
            .contains(monoglot_uop::Op::Wmma)
    );
}
