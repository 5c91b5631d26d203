//! Running folds along every axis, and what goes to places that come from data, on every device. Flows in:
//! the façade; flows out: comparisons with plain loops.

use monoglot::Config;
use monoglot::prelude::*;
use std::collections::HashSet;
use std::sync::Mutex;

/// The default device is the process's: one test at a time.
static ONE: Mutex<()> = Mutex::new(());

fn on_each(mut f: impl FnMut(&str)) {
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    for device in ["CPU", "INTERP", "INTERP:GPU"] {
        Config {
            device: Some(device.into()),
            ..Config::default()
        }
        .set();
        f(device);
    }
}

/// Numbers from -1 to 1.
fn numbers(n: i64, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

fn close(what: &str, got: &[f32], want: &[f64]) {
    near(what, got, want, 1e-5);
}

fn near(what: &str, got: &[f32], want: &[f64], most: f64) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        let off = (f64::from(*g) - w).abs();
        assert!(off <= most * w.abs().max(1.0), "{what}: {g} for {w} at {i}");
    }
}

/// Places below `n`, some of which are negative or too far.
fn places(count: i64, n: i64, seed: u64) -> Vec<i32> {
    let spread = numbers(count, seed);
    spread
        .iter()
        .map(|v| ((v + 1.0) / 2.0 * (n as f32 * 1.3)) as i32 - (n / 8) as i32)
        .collect()
}

#[test]
fn what_is_added_at_places_is_what_a_loop_adds() {
    on_each(|device| {
        for (rows, width, count) in [
            (40, 1, 300),
            (257, 3, 50),
            (1000, 33, 64),
            (9, 16, 5),
            (4001, 130, 90),
        ] {
            let ids = places(count, rows, 3);
            let values = numbers(count * width, 5);
            let start = numbers(rows * width, 7);
            let mut want: Vec<f64> = start.iter().map(|v| f64::from(*v)).collect();
            for (j, &id) in ids.iter().enumerate() {
                if (0..rows as i32).contains(&id) {
                    for e in 0..width as usize {
                        want[id as usize * width as usize + e] +=
                            f64::from(values[j * width as usize + e]);
                    }
                }
            }
            let index = Tensor::new(&ids[..], [count, 1]).expand([count, width]);
            let v = Tensor::new(&values[..], [count, width]);
            let x = Tensor::new(&start[..], [rows, width]);
            let y = x.scatter_add(0, &index, &v);
            close(
                &format!("{device} {rows} {width} {count}"),
                &y.to_vec::<f32>().unwrap(),
                &want,
            );
            // Along the last axis.
            let y = x.t().scatter_add(1, &index.t(), &v.t()).t();
            close(
                &format!("{device} last {rows} {width}"),
                &y.to_vec::<f32>().unwrap(),
                &want,
            );
        }
    });
}

#[test]
fn gradients_of_lookups_are_added_where_rows_came_from() {
    on_each(|device| {
        for (rows, width, count) in [(300, 20, 70), (513, 128, 1), (1201, 7, 400)] {
            let ids: Vec<i32> = places(count, rows, 11)
                .iter()
                .map(|i| (*i).clamp(0, rows as i32 - 1))
                .collect();
            let values = numbers(count * width, 13);
            let mut want = vec![0.0; (rows * width) as usize];
            for (j, &id) in ids.iter().enumerate() {
                for e in 0..width as usize {
                    want[id as usize * width as usize + e] +=
                        f64::from(values[j * width as usize + e]);
                }
            }
            let table = Tensor::new(&numbers(rows * width, 17)[..], [rows, width]);
            let v = Tensor::new(&values[..], [count, width]);
            let index = Tensor::new(&ids[..], [count]);
            for y in [
                table.embedding(&index),
                table.index(&index),
                table.index_select(0, &index),
            ] {
                let g = (y * &v)
                    .sum(.., false)
                    .gradient(&[&table])
                    .unwrap()
                    .remove(0);
                close(
                    &format!("{device} {rows} {width} {count}"),
                    &g.to_vec::<f32>().unwrap(),
                    &want,
                );
            }
            let wide = index.reshape([count, 1]).expand([count, width]);
            let g = (table.gather(0, &wide) * &v)
                .sum(.., false)
                .gradient(&[&table])
                .unwrap()
                .remove(0);
            close(
                &format!("{device} gather {rows}"),
                &g.to_vec::<f32>().unwrap(),
                &want,
            );
        }
    });
}

#[test]
fn what_is_added_at_folded_places_is_what_a_loop_adds() {
    on_each(|device| {
        for (rows, count, columns) in [(65, 2, 64), (33, 2, 64), (72, 3, 128), (100, 4, 20)] {
            let n = (count * columns) as usize;
            let ids: Vec<i32> = (0..n as i64).map(|i| (i * 7919 % rows) as i32).collect();
            let added = numbers(n as i64, 5);
            let twice = Tensor::new(&[ids.clone(), ids.clone()].concat(), [2, count, columns]);
            let source = Tensor::new(&added, [count, columns]);
            let zeros = Tensor::zeros([rows, columns]);
            let got = zeros.scatter_add(0, &twice.max(0, false), &source);
            let mut want = vec![0.0; (rows * columns) as usize];
            for (i, v) in added.iter().enumerate() {
                want[ids[i] as usize * columns as usize + i % columns as usize] += f64::from(*v);
            }
            let what = format!("{device}: {rows}×{columns}, {count} added to each column");
            close(&what, &got.to_vec().unwrap(), &want);
        }
    });
}

#[test]
fn what_is_put_at_a_place_last_has_its_gradient() {
    on_each(|device| {
        for (rows, count, columns) in [
            (2, 65, 64),
            (2, 70, 64),
            (2, 80, 80),
            (3, 70, 64),
            (4, 65, 20),
        ] {
            let ids: Vec<i32> = numbers(count * columns, 9)
                .iter()
                .map(|v| ((v + 1.0) / 2.0 * rows as f32) as i32)
                .collect();
            let index = Tensor::new(&ids, [count, columns]);
            let put = Tensor::ones([count, columns]).parameter();
            let all = Tensor::zeros([rows, columns]).scatter(0, &index, &put);
            let got = all.sum(.., false).gradient(&[&put]).unwrap().remove(0);
            let mut want = vec![0.0; ids.len()];
            let mut taken = HashSet::new();
            for i in (0..ids.len()).rev() {
                let last = taken.insert((ids[i], i % columns as usize));
                want[i] = if last { 1.0 } else { 0.0 };
            }
            let what = format!("{device}: {count}×{columns} into {rows} rows");
            close(&what, &got.to_vec().unwrap(), &want);
        }
    });
}

/// What a fold is set to before its loop is set in every turn of a loop that says how long it is, though what is folded
/// there is a constant.
#[test]
fn products_of_triangles_are_of_their_own_row() {
    on_each(|device| {
        for n in [4, 7, 33] {
            for (k, lower) in [(0, true), (0, false), (1, true)] {
                let ones = Tensor::full([n, n], 1i32);
                let part = if lower { ones.tril(k) } else { ones.triu(k) };
                let got = part.prod(1, false).to_vec::<i64>().unwrap();
                let whole = |r: i64| {
                    let last = if lower { n - 1 <= r + k } else { r == 0 };
                    i64::from(last)
                };
                assert_eq!(got, Vec::from_iter((0..n).map(whole)), "{device}: {n}, {k}");
            }
        }
    });
}

#[test]
fn numbers_are_counted_in_every_dtype() {
    on_each(|device| {
        let ids = places(5000, 200, 19);
        let mut want = vec![0i64; 200];
        for &id in ids.iter().filter(|i| (0..200).contains(*i)) {
            want[id as usize] += 1;
        }
        let index = Tensor::new(&ids[..], [5000]);
        for dtype in [DType::I64, DType::I32, DType::U16, DType::F32, DType::F16] {
            let none = Tensor::zeros([200]).cast(dtype);
            let y = none.scatter_add(0, &index, &Tensor::ones([5000]).cast(dtype));
            assert_eq!(
                y.cast(DType::I64).to_vec::<i64>().unwrap(),
                want,
                "{device} {dtype}"
            );
        }
        // A count of one's own, by comparison.
        let hit = index
            .reshape([5000, 1])
            .eq(Tensor::arange(0, 200, 1).reshape([1, 200]));
        assert_eq!(hit.sum(0, false).to_vec::<i64>().unwrap(), want, "{device}");
        // Whether there is any, and the last of them.
        let any: Vec<bool> = want.iter().map(|n| *n > 0).collect();
        assert_eq!(hit.any(0, false).to_vec::<bool>().unwrap(), any, "{device}");
        let source = Tensor::arange(0, 5000, 1).cast(DType::I32);
        let last = Tensor::full([200], -1)
            .cast(DType::I32)
            .scatter(0, &index, &source);
        let mut want = vec![-1i32; 200];
        for (j, &id) in ids
            .iter()
            .enumerate()
            .filter(|(_, i)| (0..200).contains(*i))
        {
            want[id as usize] = j as i32;
        }
        assert_eq!(last.to_vec::<i32>().unwrap(), want, "{device}");
    });
}

/// Folds along the middle of three axes, by a loop.
fn looped(x: &[f64], dims: [i64; 3], f: impl Fn(f64, f64) -> f64) -> Vec<f64> {
    let mut y = x.to_vec();
    let [a, n, b] = dims.map(|d| d as usize);
    for at in (0..a * n * b).filter(|at| at / b % n > 0) {
        y[at] = f(y[at - b], x[at]);
    }
    y
}

/// Shapes as three axes, the middle one being scanned.
const SHAPES: &[[i64; 3]] = &[
    [1, 1, 1],
    [1, 2, 1],
    [3, 5, 2],
    [1, 17, 1],
    [1, 100, 1],
    [37, 41, 1],
    [64, 33, 1],
    [12, 40, 1],
    [8, 128, 1],
    [1, 50, 64],
    [1, 129, 1031],
    [5, 23, 7],
    [2, 40, 96],
    [16, 16, 16],
];

fn of_shape(values: &[f32], dims: [i64; 3], dtype: DType) -> (Tensor, i64) {
    let [a, n, b] = dims;
    let x = match (a, b) {
        (1, 1) => (Tensor::new(values, [n]), 0),
        (_, 1) => (Tensor::new(values, [a, n]), 1),
        (1, _) => (Tensor::new(values, [n, b]), 0),
        _ => (Tensor::new(values, [a, n, b]), 1),
    };
    (x.0.cast(dtype), x.1)
}

#[test]
fn running_folds_are_what_a_loop_folds() {
    on_each(|device| {
        for &dims in SHAPES {
            let values = numbers(dims.iter().product(), 23);
            for dtype in [DType::F32, DType::F64, DType::F16] {
                let (x, axis) = of_shape(&values, dims, dtype);
                let held: Vec<f64> = x.cast(DType::F64).to_vec().unwrap();
                let off = if dtype == DType::F16 { 2e-3 } else { 1e-6 };
                let check = |what: &str, got: Tensor, want: Vec<f64>| {
                    let got: Vec<f64> = got.cast(DType::F64).to_vec().unwrap();
                    for (i, (g, w)) in got.iter().zip(&want).enumerate() {
                        let fine = (g - w).abs() <= off * w.abs().max(1.0);
                        assert!(fine, "{device} {what} {dims:?} {dtype}: {g} for {w} at {i}");
                    }
                };
                check("cumsum", x.cumsum(axis), looped(&held, dims, |a, b| a + b));
                let back = x.flip([axis]).cumsum(axis).flip([axis]);
                let mut turned: Vec<f64> = held.iter().rev().copied().collect();
                turned = looped(&turned, dims, |a, b| a + b);
                turned.reverse();
                check("cumsum from the end", back, turned);
                check("cummax", x.cummax(axis), looped(&held, dims, f64::max));
                check(
                    "cumprod",
                    x.cumprod(axis),
                    looped(&held, dims, |a, b| a * b),
                );
            }
            let whole: Vec<f32> = values.iter().map(|v| (v * 20.0).trunc()).collect();
            let (x, axis) = of_shape(&whole, dims, DType::I32);
            let held: Vec<f64> = whole.iter().map(|v| f64::from(*v)).collect();
            let sums: Vec<i64> = looped(&held, dims, |a, b| a + b)
                .iter()
                .map(|v| *v as i64)
                .collect();
            assert_eq!(
                x.cumsum(axis).to_vec::<i64>().unwrap(),
                sums,
                "{device} {dims:?}"
            );
            let tops: Vec<i32> = looped(&held, dims, f64::max)
                .iter()
                .map(|v| *v as i32)
                .collect();
            assert_eq!(
                x.cummax(axis).to_vec::<i32>().unwrap(),
                tops,
                "{device} {dims:?}"
            );
        }
    });
}

#[test]
fn a_long_row_is_summed_in_blocks() {
    on_each(|device| {
        for n in [16_384, 20_001, 100_000] {
            let values = numbers(n, 29);
            let held: Vec<f64> = values.iter().map(|v| f64::from(*v)).collect();
            let x = Tensor::new(&values[..], [n]);
            let y = x.cumsum(0).to_vec::<f32>().unwrap();
            near(
                &format!("{device} {n}"),
                &y,
                &looped(&held, [1, n, 1], |a, b| a + b),
                1e-4,
            );
            let y = x.cummax(0).to_vec::<f32>().unwrap();
            close(
                &format!("{device} {n}"),
                &y,
                &looped(&held, [1, n, 1], f64::max),
            );
        }
    });
}

type Holds = fn(i64, i64) -> bool;

/// Sums of one's own over what stands before a place, behind it, and strictly.
#[test]
fn a_sum_under_a_mask_is_carried_along_by_whoever_wrote_it() {
    on_each(|device| {
        for (n, width) in [(30, 40), (65, 3), (40, 130)] {
            let values = numbers(n * width, 31);
            let x = Tensor::new(&values[..], [1, n, width]);
            let i = Tensor::arange(0, n, 1).reshape([n, 1, 1]);
            let j = Tensor::arange(0, n, 1).reshape([1, n, 1]);
            let rules: [(&str, Tensor, Holds); 5] = [
                ("up to", j.le(&i), |i, j| j <= i),
                ("before", j.lt(&i), |i, j| j < i),
                ("from", i.le(&j), |i, j| i <= j),
                ("behind", i.lt(&j), |i, j| i < j),
                ("three before", (&j + 3).le(&i), |i, j| j + 3 <= i),
            ];
            for (what, mask, holds) in rules {
                let y = (mask.select(&x, Tensor::zeros([1, 1, 1])) * 2.0).sum(1, false);
                let mut want = vec![0.0; (n * width) as usize];
                for i in 0..n {
                    for j in (0..n).filter(|j| holds(i, *j)) {
                        for e in 0..width {
                            want[(i * width + e) as usize] +=
                                2.0 * f64::from(values[(j * width + e) as usize]);
                        }
                    }
                }
                close(
                    &format!("{device} {what} {n} {width}"),
                    &y.to_vec::<f32>().unwrap(),
                    &want,
                );
            }
        }
    });
}

/// Gradients whose masks are read by several, while more is in use than there are registers.
#[test]
fn gradients_of_running_sums_are_masked_where_they_are_negative() {
    on_each(|device| {
        for (m, len) in [(6, 47), (7, 47), (8, 33), (8, 47), (9, 21)] {
            let v = numbers(m * len, 777);
            let x = Tensor::new(&v, [m, len]);
            let loss = x.cumsum(0).leaky_relu(0.1).square().mean(.., false);
            let got = loss.gradient(&[&x]).expect("a gradient")[0].to_vec::<f32>();
            let n = (m * len) as usize;
            let len = len as usize;
            let mut sums: Vec<f64> = v.iter().map(|&x| f64::from(x)).collect();
            for i in len..n {
                sums[i] += sums[i - len];
            }
            let slope = |s: &f64| 2.0 / n as f64 * if *s > 0.0 { *s } else { 0.01 * s };
            let mut want: Vec<f64> = sums.iter().map(slope).collect();
            for i in (0..n - len).rev() {
                want[i] += want[i + len];
            }
            close(
                &format!("{device}: {m} rows of {len}"),
                &got.expect("values"),
                &want,
            );
        }
    });
}

/// The gradient of the greatest of each window, of a row that the windows do not fill.
#[test]
fn gradients_of_windows_leave_out_what_is_in_none() {
    on_each(|device| {
        for (window, step) in [
            (2, 2),
            (4, 4),
            (4, 3),
            (5, 6),
            (8, 8),
            (12, 12),
            (12, 13),
            (16, 17),
            (32, 33),
        ] {
            for n in (window..6 * window + 3).step_by(1 + window as usize / 8) {
                let v: Vec<f32> = (0..n).map(|i| (i * 37 % 23) as f32).collect();
                let x = Tensor::new(&v, [1, 1, n]);
                let y = x.max_pool([window], [step], [0], [1]);
                let count = (n - window) / step + 1;
                let seed = Tensor::new(&vec![1.5f32; count as usize], [1, 1, count]);
                let g = &y.gradient_with(&seed, &[&x]).expect("a gradient")[0];
                Tensor::realize_all(&[&y, g]).expect("it runs");
                let mut want = vec![0.0; n as usize];
                for first in (0..count as usize).map(|k| k * step as usize) {
                    let mut best = first;
                    for k in first..first + window as usize {
                        if v[k] > v[best] {
                            best = k;
                        }
                    }
                    want[best] += 1.5;
                }
                let got = g.to_vec::<f32>().expect("values");
                assert_eq!(got, want, "{device}: windows of {window} by {step} in {n}");
            }
        }
    });
}

/// What a row takes over from is filled for each row, also the part that is the same in all: padding of axes of which
/// one has a length that varies.
#[test]
fn padding_is_filled_for_every_row() {
    on_each(|device| {
        let x = Tensor::new(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3]);
        for pads in [[[1, 0], [1, 0]], [[0, 1], [0, 1]], [[2, 1], [1, 2]]] {
            let of = |x: &Tensor| {
                let x = x.pad(&pads, PadMode::Constant(0.5));
                let y = &x - x.sum([1], true);
                let z = &y - y.sum([1], true);
                [z.to_vec::<f32>(), x.softmax(1).to_vec::<f32>()].map(|v| v.expect("values"))
            };
            let [want, got] = [of(&x), of(&x.dynamic(0, 1..=64))];
            for (want, got) in want.iter().zip(&got) {
                let want: Vec<f64> = want.iter().map(|&x| f64::from(x)).collect();
                close(&format!("{device}: {pads:?}"), got, &want);
            }
        }
    });
}

/// What each element adds up of all elements of its row is added up of the row as it was.
#[test]
fn rows_that_are_added_at_places_are_read_whole() {
    on_each(|device| {
        for (n, m) in [(64, 4), (64, 8), (9, 16)] {
            let v = numbers(n * m, 5);
            let ids: Vec<i32> = (0..n * m)
                .map(|i| ((i % m * 3 + i / m) % m) as i32)
                .collect();
            let x = Tensor::new(&v, [n, m]);
            let at = Tensor::new(&ids, [n, m]);
            let z = x.roll([-1], [1]);
            let loss = z.scatter_add(1, &at, &z).square().mean(.., false);
            let got = loss.gradient(&[&x]).expect("a gradient")[0].to_vec::<f32>();
            let [n, m] = [n, m].map(|k| k as usize);
            let next = |i: usize| i / m * m + (i + 1) % m;
            let place = |i: usize| i / m * m + ids[i] as usize;
            let mut y: Vec<f64> = (0..n * m).map(|i| f64::from(v[next(i)])).collect();
            for i in 0..n * m {
                y[place(i)] += f64::from(v[next(i)]);
            }
            let mut want = vec![0.0; n * m];
            for i in 0..n * m {
                want[next(i)] += 2.0 / (n * m) as f64 * (y[i] + y[place(i)]);
            }
            close(
                &format!("{device}: {n} rows of {m}"),
                &got.expect("values"),
                &want,
            );
        }
    });
}

/// The gradient of running sums of a stack, whose parts are added up by what keeps them.
#[test]
fn running_sums_of_a_stack_have_gradients() {
    on_each(|device| {
        for (rows, columns) in [(13, 17), (40, 2), (33, 3)] {
            let v = numbers(rows * columns, 3);
            let x = Tensor::new(&v, [rows, columns]);
            for axis in [1, 2] {
                let loss = Tensor::stack(&[&x, &(&x * 2.0)], 0)
                    .cumsum(axis)
                    .square()
                    .sum(.., false);
                let got = loss.gradient(&[&x]).expect("a gradient")[0].to_vec::<f32>();
                let (step, len) = match axis {
                    1 => (columns as usize, rows as usize),
                    _ => (1, columns as usize),
                };
                let place = |i: usize| i / step % len;
                let mut sums: Vec<f64> = v.iter().map(|&x| f64::from(x)).collect();
                for i in (0..sums.len()).filter(|&i| place(i) > 0) {
                    sums[i] += sums[i - step];
                }
                // Twice the sums of x, and four times those of 2x.
                let mut want: Vec<f64> = sums.iter().map(|s| 10.0 * s).collect();
                for i in (0..sums.len()).rev().filter(|&i| place(i) + 1 < len) {
                    want[i] += want[i + step];
                }
                close(
                    &format!("{device}: {rows} by {columns}, axis {axis}"),
                    &got.expect("values"),
                    &want,
                );
            }
        }
    });
}
