//! Sums of products and over windows against plain loops: einsum, correlations, pools, resampling. Flows in: arrays;
//! flows out: comparisons.

mod common;

use common::{f32s, ints, on_interpreter};
use monoglot_tensor::{Conv, DType, Interpolation, Tensor};

/// Products, a number and other values in one sum: each product is a sum of its own, and the rest another.
#[test]
fn sums_of_products_and_numbers() {
    on_interpreter();
    let values = |n: i64| -> Vec<f32> { (0..n).map(|i| (i * 7 % 11 - 5) as f32).collect() };
    let [a, b, c] = [12, 15, 60].map(values);
    let x = Tensor::new(&a, [4, 3, 1]);
    let y = Tensor::new(&b, [3, 5]);
    let z = Tensor::new(&c, [4, 3, 5]);
    let term = |i: usize, k: usize, j: usize| [a[i * 3 + k] * b[k * 5 + j], c[(i * 3 + k) * 5 + j]];
    let cases: [(&str, Tensor, f32, f32); 4] = [
        ("a number", &x * &y + 2.0, 0.0, 2.0),
        (
            "a number first",
            (&x * &y * 1.0 + 2.0) + &x * &y * 0.0,
            0.0,
            2.0,
        ),
        ("a value", &x * &y + &z, 1.0, 0.0),
        ("both", &z + 3.0 + &x * &y, 1.0, 3.0),
    ];
    for (name, all, of_z, number) in cases {
        let got = f32s(&all.sum(1, false));
        let sum = |e: usize| {
            let terms = (0..3).map(|k| term(e / 5, k, e % 5));
            terms.map(|[p, z]| p + of_z * z + number).sum::<f32>()
        };
        assert_eq!(got, (0..20).map(sum).collect::<Vec<_>>(), "{name}");
    }
}

/// Whatever pair is contracted first, the sum is the same: of whole numbers, exactly.
#[test]
fn sums_of_many_factors_in_any_order() {
    on_interpreter();
    let sizes = |letter: char| 2 + (letter as i64 - 'a' as i64) % 3;
    let factor = |letters: &str, k: usize| {
        let shape: Vec<i64> = letters.chars().map(sizes).collect();
        let n: i64 = shape.iter().product();
        let values: Vec<f64> = (0..n)
            .map(|i| ((i + k as i64) * 7 % 11 - 5) as f64)
            .collect();
        (values.clone(), Tensor::new(&values, shape))
    };
    for equation in [
        "ab,bc,cd->ad",
        "ab,cd,bc->da",
        "a,b,c,d->ca",
        "ab,ab,b->a",
        "abc,c,b,ad->d",
        "ab,bc,cd,de,ef,fa->be",
        "a,ab,abc->",
    ] {
        let (left, right) = equation.split_once("->").expect("a result");
        let terms: Vec<&str> = left.split(',').collect();
        let factors: Vec<_> = terms
            .iter()
            .enumerate()
            .map(|(k, t)| factor(t, k))
            .collect();
        let tensors: Vec<&Tensor> = factors.iter().map(|f| &f.1).collect();
        let got: Vec<f64> = Tensor::einsum(equation, &tensors).to_vec().expect("values");
        let place = |letters: &str, at: &[i64; 6]| {
            letters
                .chars()
                .fold(0, |all, c| all * sizes(c) + at[(c as u8 - b'a') as usize])
        };
        let mut want = vec![0.0; got.len()];
        let used = |k: usize| {
            if left.contains((b'a' + k as u8) as char) {
                sizes((b'a' + k as u8) as char)
            } else {
                1
            }
        };
        let all: i64 = (0..6).map(used).product();
        for mut turn in 0..all {
            let at: [i64; 6] = std::array::from_fn(|k| {
                let digit = turn % used(k);
                turn /= used(k);
                digit
            });
            let product = terms
                .iter()
                .zip(&factors)
                .map(|(t, f)| f.0[place(t, &at) as usize]);
            want[place(right, &at) as usize] += product.product::<f64>();
        }
        assert_eq!(got, want, "{equation}");
    }
}

#[test]
fn long_axes_are_resampled() {
    on_interpreter();
    let n = 60_000;
    let x = Tensor::arange(0, n, 1).reshape([1, 1, -1]);
    let far = x
        .interpolate(n + 30_000, Interpolation::Nearest)
        .index((0, 0, 80_000..80_003));
    assert_eq!(ints(&far), [53_333, 53_334, 53_334]);
}

#[test]
fn axes_are_resampled_by_every_mode() {
    on_interpreter();
    let x = Tensor::new(&[1.0f32, 4.0, 2.0, 8.0, 5.0], [5]);
    for (how, n, want) in [
        (Interpolation::NearestExact, 3, &[1.0, 2.0, 5.0][..]),
        (Interpolation::Area, 3, &[2.5, 14.0 / 3.0, 6.5]),
        (
            Interpolation::Linear {
                align_corners: true,
            },
            3,
            &[1.0, 2.0, 5.0],
        ),
        (
            Interpolation::Cubic {
                align_corners: false,
            },
            3,
            &[2.0555556, 2.0, 6.277_778],
        ),
        (
            Interpolation::Cubic {
                align_corners: true,
            },
            9,
            &[1.0, 2.6875, 4.0, 2.71875, 2.0, 5.09375, 8.0, 7.0625, 5.0],
        ),
    ] {
        let got = x.interpolate(n, how).to_vec::<f32>().unwrap();
        let near = got
            .iter()
            .zip(want)
            .all(|(g, w): (&f32, &f32)| (g - w).abs() < 1e-5);
        assert!(
            got.len() == want.len() && near,
            "{how:?}: {got:?}, not {want:?}"
        );
    }
}

/// Sums of products so long that they are done in parts.
#[test]
fn long_correlations_are_exact() {
    let n = 20_480usize;
    let shifts = 160;
    let x: Vec<i32> = (0..n + shifts - 1)
        .map(|i| (i * i % 97) as i32 - 48)
        .collect();
    let g: Vec<i32> = (0..n).map(|i| (i * 7 % 23) as i32 - 11).collect();
    let on_cpu = |v: &[i32]| Tensor::new(v, [v.len()]).to(monoglot_tensor::Device::new("CPU"));
    let got = (on_cpu(&x).unfold(0, n as i64, 1) * on_cpu(&g)).sum(1, false);
    let want = |s: usize| {
        g.iter()
            .zip(&x[s..])
            .map(|(a, b)| (a * b) as i64)
            .sum::<i64>()
    };
    assert_eq!(
        got.to_vec::<i64>().unwrap(),
        (0..shifts).map(want).collect::<Vec<_>>()
    );
}

/// What is computed in two places rounds alike in both, or what is equal would differ.
#[test]
fn ties_of_sums_are_found() {
    for device in ["CPU", "INTERP"] {
        for (rows, n) in [(5, 300), (3, 37), (16, 1000), (900, 7), (700, 300)] {
            let values: Vec<f32> = (0..rows * n)
                .map(|i| ((i * 7919) % 1013) as f32 * 0.37 - 100.0)
                .collect();
            let x = Tensor::new(&values, [rows, n]).to(monoglot_tensor::Device::new(device));
            let sums = x.sum(1, false);
            let (top, at) = sums.topk(rows as i64, 0, true);
            let sorted = sums.sort(0, true);
            assert_eq!(f32s(&top), f32s(&sorted));
            assert_eq!(
                f32s(&sums.index_select(0, &at)),
                f32s(&top),
                "{device} {rows} {n}"
            );
            let few = sums.topk(5.min(rows as i64), 0, true);
            assert_eq!(f32s(&few.0), f32s(&sorted)[..5.min(rows as usize)]);
            assert_eq!(
                f32s(&sums.index_select(0, &few.1)),
                f32s(&few.0),
                "{device} {rows} {n}"
            );
            let soft = x.softmax(1);
            assert!(
                f32s(&soft.ge(soft.max(1, true)).cast(DType::F32).sum(1, false))
                    .iter()
                    .all(|&c| c >= 1.0)
            );
        }
    }
}

/// Sums of integers are exact, whatever phases of a stride are summed by themselves.
#[test]
fn transposed_convolutions_are_sums_over_all_taps() {
    for device in ["CPU", "INTERP"] {
        let on = |t: Tensor| t.to(monoglot_tensor::Device::new(device));
        let axes = [
            // elements, taps, stride, padding, more at the end
            [4i64, 3, 2, 1, 1],
            [3, 5, 2, 2, 0],
            [5, 4, 3, 1, 2],
            [2, 7, 3, 4, 0],
            [3, 1, 2, 0, 1],
            [2, 2, 4, 1, 3],
            [1, 6, 4, 0, 0],
            [4, 3, 1, 1, 0],
        ];
        for (a, b) in axes.iter().zip(axes.iter().cycle().skip(3)) {
            let [groups, cin, cout] = [2i64, 2, 3];
            let places = |[m, k, s, p, more]: [i64; 5]| (m - 1) * s + k - 2 * p + more;
            let [ny, nx] = [places(*a), places(*b)];
            let whole = |n: i64, by: i64| (0..n).map(move |i| (i * by % 11 - 5) as f32);
            let x: Vec<f32> = whole(groups * cin * a[0] * b[0], 7).collect();
            let w: Vec<f32> = whole(groups * cin * cout * a[1] * b[1], 5).collect();
            let mut sums = vec![0f32; (groups * cout * ny * nx) as usize];
            for (i, xi) in x.iter().enumerate() {
                let i = i as i64;
                let [channel, iy, ix] = [i / (a[0] * b[0]), i / b[0] % a[0], i % b[0]];
                for j in 0..cout * a[1] * b[1] {
                    let [to, ky, kx] = [j / (a[1] * b[1]), j / b[1] % a[1], j % b[1]];
                    let [y, x] = [iy * a[2] + ky - a[3], ix * b[2] + kx - b[3]];
                    if (0..ny).contains(&y) && (0..nx).contains(&x) {
                        let to = (channel / cin * cout + to) * ny * nx + y * nx + x;
                        sums[to as usize] += xi * w[(channel * cout * a[1] * b[1] + j) as usize];
                    }
                }
            }
            let how = Conv {
                stride: [a[2], b[2]].into(),
                padding: [a[3], b[3]].into(),
                output_padding: [a[4], b[4]].into(),
                groups,
                ..Conv::default()
            };
            let x = on(Tensor::new(&x, [1, groups * cin, a[0], b[0]]));
            let w = on(Tensor::new(&w, [groups * cin, cout, a[1], b[1]]));
            let y = x.conv_transpose(&w, None, &how);
            assert_eq!(y.to_vec::<f32>().unwrap(), sums, "{device} {a:?} {b:?}");
        }
    }
}

/// What is folded along one axis first, kept beside its readers or not, is what a window holds.
#[test]
fn pools_fold_what_their_windows_hold() {
    for device in ["CPU", "INTERP", "INTERP:GPU"] {
        let on = |t: Tensor| t.to(monoglot_tensor::Device::new(device));
        for (k, s, p) in [
            (2i64, 2i64, 0i64),
            (3, 2, 0),
            (3, 2, 1),
            (3, 1, 1),
            (5, 3, 2),
        ] {
            let [planes, ny, nx] = [80i64, 13, 18];
            let x: Vec<f32> = (0..planes * ny * nx)
                .map(|i| (i * 31 % 257 - 128) as f32)
                .collect();
            let [oy, ox] = [ny, nx].map(|n| (n + 2 * p - k) / s + 1);
            let mut most = Vec::new();
            let mut mean = Vec::new();
            for at in 0..planes * oy * ox {
                let [plane, y, x0] = [at / (oy * ox), at / ox % oy, at % ox];
                let inside = (0..k * k).filter_map(|j| {
                    let [y, x] = [y * s + j / k - p, x0 * s + j % k - p];
                    let there = (0..ny).contains(&y) && (0..nx).contains(&x);
                    there.then(|| x + nx * (y + ny * plane))
                });
                let inside = inside.map(|i| x[i as usize]);
                most.push(inside.clone().fold(f32::NEG_INFINITY, f32::max));
                mean.push(inside.sum::<f32>() / (k * k) as f32);
            }
            let x = on(Tensor::new(&x, [1, planes, ny, nx]));
            assert_eq!(
                f32s(&x.max_pool([k, k], [s, s], [p, p], 1)),
                most,
                "{k} {s} {p}"
            );
            let got = f32s(&x.avg_pool([k, k], [s, s], [p, p], true));
            for (a, b) in got.iter().zip(&mean) {
                assert!((a - b).abs() < 1e-3, "{device} {k} {s} {p}: {a} {b}");
            }
        }
    }
}

/// A depthwise convolution's padding is kept with each plane.
#[test]
fn planes_by_their_own_weights_are_padded() {
    for device in ["CPU", "INTERP", "INTERP:GPU"] {
        let on = |t: Tensor| t.to(monoglot_tensor::Device::new(device));
        let [planes, n] = [72i64, 11];
        let whole = |n: i64, by: i64| (0..n).map(move |i| (i * by % 13 - 6) as f32);
        let x: Vec<f32> = whole(planes * n * n, 29).collect();
        let w: Vec<f32> = whole(planes * 9, 5).collect();
        let sum = |at: i64| -> f32 {
            let [plane, y, x0] = [at / (n * n), at / n % n, at % n];
            let tap = |j: i64| {
                let [y, x1] = [y + j / 3 - 1, x0 + j % 3 - 1];
                let there = (0..n).contains(&y) && (0..n).contains(&x1);
                let at = (plane * n + y) * n + x1;
                let product = || x[at as usize] * w[(plane * 9 + j) as usize];
                if there { product() } else { 0.0 }
            };
            (0..9).map(tap).sum()
        };
        let sums: Vec<f32> = (0..planes * n * n).map(sum).collect();
        let how = Conv {
            padding: 1.into(),
            groups: planes,
            ..Conv::default()
        };
        let x = on(Tensor::new(&x, [1, planes, n, n]));
        let w = on(Tensor::new(&w, [planes, 1, 3, 3]));
        assert_eq!(f32s(&x.conv2d(&w, None, &how)), sums, "{device}");
    }
}
