//! What random schedules are drawn for besides the kernels of random programs: the models, the
//! operator cases, and the shapes of work that models do. Flows in: the folder of cases and a
//! device; flows out: programs, each a list of roots.

use monoglot_models::{Workload, graph};
use monoglot_uop::{DType, Device, Op, ReduceOp, Result, Shape, UOp};
use std::path::Path;

fn buffer(shape: &[i64], dtype: DType) -> UOp {
    UOp::buffer(&Shape::of(shape), dtype, Device::new("INTERP:GPU"))
}

fn view(u: &UOp, one: &[i64], wide: &[i64]) -> UOp {
    let u = u
        .reshape(&Shape::of(one))
        .and_then(|u| u.expand(&Shape::of(wide)));
    u.expect("shapes are written to fit")
}

fn sum(u: UOp, axes: &[usize]) -> UOp {
    u.reduce(ReduceOp::Add, axes)
        .expect("axes are written to fit")
}

/// A matrix product of (m, k) and (k, n).
pub fn matmul(m: i64, k: i64, n: i64, dtype: DType) -> UOp {
    let a = buffer(&[m, k], dtype);
    let b = buffer(&[k, n], dtype);
    let b = b.permute(&[1, 0]).expect("two axes");
    sum(
        view(&a, &[m, 1, k], &[m, n, k]) * view(&b, &[1, n, k], &[m, n, k]),
        &[2],
    )
}

/// The same of dtypes that are made wider first, the second factor turned or not.
pub fn wide_matmul([m, k, n]: [i64; 3], of: [DType; 2], wide: DType, turned: bool) -> UOp {
    let a = buffer(&[m, k], of[0]).cast(wide);
    let b = match turned {
        true => buffer(&[n, k], of[1]),
        false => buffer(&[k, n], of[1]).permute(&[1, 0]).expect("two axes"),
    };
    let b = b.cast(wide);
    sum(
        view(&a, &[m, 1, k], &[m, n, k]) * view(&b, &[1, n, k], &[m, n, k]),
        &[2],
    )
}

/// A convolution of (n, c, h, h) with (o, c, k, k).
pub fn conv(n: i64, c: i64, h: i64, o: i64, k: i64) -> UOp {
    conv_of([n, c, h, o, k], DType::F32)
}

/// The same of a dtype, in f32.
fn conv_of([n, c, h, o, k]: [i64; 5], of: DType) -> UOp {
    let x = buffer(&[n, c, h, h], of).cast(DType::F32);
    let w = buffer(&[o, c, k, k], of).cast(DType::F32);
    let windows = |u: &UOp| u.windows(k, 1, 1).expect("the window fits");
    // (n, c, h, ow, kw) → (n, c, ow, kw, oh, kh) → (n, oh, ow, c, kh, kw)
    let x = windows(&windows(&x).permute(&[0, 1, 3, 4, 2]).expect("five axes"));
    let x = x.permute(&[0, 4, 2, 1, 5, 3]).expect("six axes");
    let s = h - k + 1;
    let wide = [n, o, s, s, c, k, k];
    sum(
        view(&x, &[n, 1, s, s, c, k, k], &wide) * view(&w, &[1, o, 1, 1, c, k, k], &wide),
        &[4, 5, 6],
    )
}

/// Elements of a value added up where an index of its shape names one of so many places along an axis.
pub fn at_places(x: &UOp, index: &UOp, axis: usize, places: i64) -> Option<UOp> {
    let mut one = x.shape().ints()?;
    one.insert(axis, 1);
    let mut all = one.clone();
    all[axis] = places;
    let mut along = vec![1; all.len()];
    along[axis] = places;
    let place = view(&UOp::arange(places, index.dtype()), &along, &all);
    let hit = view(index, &one, &all).eq_(&place);
    let value = hit.select(
        &view(x, &one, &all),
        &view(&x.like(0), &vec![1; all.len()], &all),
    );
    let mut out = all;
    out.remove(axis + 1);
    sum(value, &[axis + 1]).reshape(&Shape::of(&out)).ok()
}

/// Sums of columns, or of rows, at places of their own, which are read or folded.
fn columns_at_places() -> Vec<UOp> {
    let x = buffer(&[7, 8], DType::F32);
    let read = buffer(&[7, 8], DType::I32);
    let folded = buffer(&[3, 7, 8], DType::I32).reduce(ReduceOp::Max, &[0]);
    let folded = folded.and_then(|u| u.reshape(&Shape::of(&[7, 8])));
    let folded = folded.expect("three axes");
    let cases = [(&read, 0), (&read, 1), (&folded, 0), (&folded, 1)];
    let cases = cases.into_iter().flat_map(|(index, axis)| {
        let sums = at_places(&x, index, axis, 5).expect("sizes are known");
        [sums.permute(&[1, 0]).expect("two axes"), sums]
    });
    cases.collect()
}

/// All programs there are: hand-written ones, one layer of each model, and the cases of a folder.
///
/// # Errors
/// Where the folder cannot be read.
pub fn programs(cases: &Path, device: Device) -> Result<Vec<Vec<UOp>>> {
    let own = by_hand().into_iter().chain(dots());
    let own = own.chain(columns_at_places());
    let mut out: Vec<Vec<UOp>> = own.map(|root| vec![root]).collect();
    for w in Workload::ALL {
        let roots = graph(w, w.has_layers().then_some(1), device)?.roots;
        out.push(roots.iter().map(|t| t.uop()).collect::<Result<_>>()?);
    }
    out.extend(monoglot_conformance::graphs(cases, device)?);
    Ok(out)
}

/// Matrix products of narrow dtypes, which are dot products of words where there are units for them.
pub fn dots() -> Vec<UOp> {
    let integers = [
        [DType::I8, DType::I8],
        [DType::I8, DType::U8],
        [DType::I16, DType::I16],
    ];
    let mut out = Vec::new();
    for of in integers {
        out.push(wide_matmul([16, 24, 24], of, DType::I32, false));
        out.push(wide_matmul([12, 9, 20], of, DType::I32, false));
        out.push(wide_matmul([10, 14, 8], of, DType::I32, true) * 3 + 1);
    }
    let halves = [DType::BF16; 2];
    out.push(wide_matmul([9, 13, 16], halves, DType::F32, false));
    out.push(wide_matmul([16, 24, 40], halves, DType::F32, true));
    let unsigned = [DType::U8; 2];
    out.push(wide_matmul([16, 24, 24], unsigned, DType::I32, false));
    out.push(wide_matmul([12, 9, 20], unsigned, DType::I32, true));
    out
}

/// Matrix products of narrow dtypes that units of tiles do, of sizes that no tile divides, and of some that all do, and
/// convolutions.
pub fn tiles() -> Vec<UOp> {
    let mut out = Vec::new();
    for sizes in [
        [64, 64, 64],
        [33, 70, 49],
        [20, 130, 30],
        [96, 36, 40],
        [40, 95, 256],
    ] {
        for turned in [false, true] {
            for (of, wide) in [
                ([DType::I8, DType::I8], DType::I32),
                ([DType::U8, DType::I8], DType::I32),
                ([DType::U8, DType::U8], DType::I32),
                ([DType::BF16, DType::BF16], DType::F32),
            ] {
                out.push(wide_matmul(sizes, of, wide, turned));
            }
        }
    }
    for sizes in [[1, 64, 18, 32, 3], [2, 32, 16, 48, 1]] {
        out.push(conv_of(sizes, DType::BF16));
    }
    out
}

/// Matrix products, convolutions, reductions, transposes and their like.
fn by_hand() -> Vec<UOp> {
    let x = buffer(&[24, 40], DType::F32);
    let over = |op| x.reduce(op, &[1]).expect("two axes");
    let scaled = (&x + view(&over(ReduceOp::Max), &[24, 1], &[24, 40]) * -1.0).unary(Op::Exp2);
    vec![
        matmul(16, 24, 32, DType::F32),
        matmul(8, 8, 8, DType::F32),
        matmul(7, 13, 5, DType::F32),
        matmul(16, 16, 16, DType::I32),
        matmul(16, 8, 24, DType::F16),
        (matmul(8, 12, 16, DType::F32) + 1.0).max_(&UOp::float(0.0, DType::F32)),
        conv(2, 3, 8, 4, 3),
        conv(1, 1, 9, 8, 5),
        over(ReduceOp::Add),
        over(ReduceOp::Mul),
        over(ReduceOp::Max),
        scaled,
        x.reduce(ReduceOp::Add, &[0]).expect("two axes"),
        x.permute(&[1, 0]).expect("two axes") * 2.0,
        &x * &x + 1.0,
        buffer(&[12, 6, 10], DType::I64)
            .reduce(ReduceOp::Add, &[0, 2])
            .expect("three axes"),
    ]
}
