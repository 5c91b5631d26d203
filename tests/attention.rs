//! Attention and variants of it are one kernel, in which no score goes through memory that others see, and whose
//! values are those of plain loops. Flows in: the façade; flows out: comparisons with f64 on every device here,
//! and counts on NULL, for one kind of machine.

use monoglot::compiler::engine::{compile, default_device};
use monoglot::compiler::uop::Op;
use monoglot::prelude::*;
use monoglot::{Config, Device};
use std::sync::Mutex;

/// The default device is the process's: one at a time.
static ONE: Mutex<()> = Mutex::new(());

fn on(device: &str) {
    Config {
        device: Some(device.into()),
        ..Config::default()
    }
    .set();
}

/// Queries, keys, values and a mask of (heads, length, width); what becomes of a score between two places, and
/// of those of a query.
struct Case {
    name: &'static str,
    of: fn([&Tensor; 4]) -> Tensor,
    score: fn(f64, usize, usize, f64) -> f64,
    weights: fn(&mut [f64]),
}

/// softmax of scores, times the values.
fn weighed(scores: Tensor, values: &Tensor) -> Tensor {
    scores.softmax(-1).matmul(values)
}

/// Half the product of queries and keys.
fn scores(q: &Tensor, k: &Tensor) -> Tensor {
    (q * 0.5).matmul(&k.t())
}

fn softmax(x: &mut [f64]) {
    let top = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    x.iter_mut().for_each(|v| *v = (*v - top).exp());
    let sum: f64 = x.iter().sum();
    x.iter_mut().for_each(|v| *v /= sum);
}

/// How far a key is from a query.
fn distances(q: &Tensor, k: &Tensor) -> Tensor {
    let length = |t: &Tensor| t.shape().expect("well-formed")[1];
    let places = |n| Tensor::arange(0, n as i64, 1).cast(DType::F32);
    let [l, s] = [length(q), length(k)];
    (places(l).reshape([l, 1]) - places(s).reshape([1, s])).abs()
}

fn cases() -> Vec<Case> {
    let case = |name, of, score, weights| Case {
        name,
        of,
        score,
        weights,
    };
    vec![
        case(
            "attention",
            |[q, k, v, _]| q.attention(k, v, None, false),
            |x, _, _, _| x * 0.5,
            softmax,
        ),
        case(
            "weights divided behind the values",
            |[q, k, v, _]| {
                let x = scores(q, k);
                let weights = (&x - x.max(-1, true)).exp();
                weights.matmul(v) / weights.sum(-1, true)
            },
            |x, _, _, _| x * 0.5,
            softmax,
        ),
        case(
            "causal attention",
            |[q, k, v, _]| q.attention(k, v, None, true),
            |x, i, j, _| if j <= i { x * 0.5 } else { f64::NEG_INFINITY },
            softmax,
        ),
        case(
            "attention under a mask",
            |[q, k, v, m]| q.attention(k, v, Some(m), false),
            |x, _, _, m| x * 0.5 + m,
            softmax,
        ),
        case(
            "scores under a soft cap",
            |[q, k, v, _]| weighed((scores(q, k) / 2.0).tanh() * 2.0, v),
            |x, _, _, _| (x * 0.25).tanh() * 2.0,
            softmax,
        ),
        case(
            "scores with a slope",
            |[q, k, v, _]| weighed(scores(q, k) - distances(q, k) * 0.125, v),
            |x, i, j, _| x * 0.5 - i.abs_diff(j) as f64 * 0.125,
            softmax,
        ),
        case(
            "a normalisation without a name",
            |[q, k, v, _]| {
                let x = scores(q, k).exp();
                let top = x.max(-1, true) + x.sum(-1, true) * 0.5;
                (&x / top).matmul(v)
            },
            |x, _, _, _| x * 0.5,
            |x| {
                x.iter_mut().for_each(|v| *v = v.exp());
                let top = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let top = top + x.iter().sum::<f64>() * 0.5;
                x.iter_mut().for_each(|v| *v /= top);
            },
        ),
    ]
}

/// Numbers from -1 to 1, the same every time.
fn numbers(count: usize, seed: u32) -> Vec<f32> {
    let next = |i: usize| (i as u32 + seed).wrapping_mul(2_654_435_761) >> 8;
    let to = |n: u32| n as f32 / (1u32 << 24) as f32 * 2.0 - 1.0;
    (0..count).map(|i| to(next(i + 1))).collect()
}

/// Heads, queries, keys, and the widths of keys and of values.
type Sizes = [usize; 5];

fn loops(case: &Case, [h, l, s, d, e]: Sizes, data: &[Vec<f32>; 4]) -> Vec<f64> {
    let [q, k, v, m] = data;
    let mut out = Vec::new();
    for (head, i) in (0..h).flat_map(|head| (0..l).map(move |i| (head, i))) {
        let of = |x: &[f32], at: usize| f64::from(x[at]);
        let dot = |j: usize| -> f64 {
            let term = |c| of(q, (head * l + i) * d + c) * of(k, (head * s + j) * d + c);
            (0..d).map(term).sum()
        };
        let score = |j: usize| (case.score)(dot(j), i, j, of(m, i * s + j));
        let mut weights: Vec<f64> = (0..s).map(score).collect();
        (case.weights)(&mut weights);
        out.extend((0..e).map(|c| -> f64 {
            let term = |j: usize| weights[j] * of(v, (head * s + j) * e + c);
            (0..s).map(term).sum()
        }));
    }
    out
}

fn agrees(device: &str, sizes: &[Sizes]) {
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    on(device);
    for case in cases() {
        for &all in sizes {
            let [h, l, s, d, e] = all;
            let shapes = [vec![h, l, d], vec![h, s, d], vec![h, s, e], vec![l, s]];
            let count = |k: usize| shapes[k].iter().product();
            let data = [0, 1, 2, 3].map(|k| numbers(count(k), 1000 * k as u32));
            // `attention` scales by the root of a width of 4.
            assert_eq!(d, 4);
            let tensor = |k: usize| {
                let shape: Vec<i64> = shapes[k].iter().map(|n| *n as i64).collect();
                Tensor::new(&data[k], shape).to(Device::new(device))
            };
            let [q, k, v, m] = [0, 1, 2, 3].map(tensor);
            let got = (case.of)([&q, &k, &v, &m]).to_vec::<f32>();
            let got = got.expect("it runs");
            let want = loops(&case, all, &data);
            assert_eq!(got.len(), want.len());
            for (i, (g, w)) in got.iter().zip(&want).enumerate() {
                let near = (f64::from(*g) - w).abs() <= 2e-5 * (1.0 + w.abs());
                let name = case.name;
                assert!(near, "{name} of {all:?} at {i}: {g}, not {w}");
            }
        }
    }
}

#[test]
fn attention_agrees_with_plain_loops_on_the_cpu() {
    let sizes = [
        [2, 64, 64, 4, 8],
        [3, 32, 200, 4, 12],
        [2, 48, 31, 4, 5],
        [5, 100, 100, 4, 4],
        [1, 7, 9, 4, 3],
        [4, 16, 1000, 4, 64],
        [70, 1, 40, 4, 4],
        [9, 13, 17, 4, 1],
    ];
    agrees("CPU", &sizes);
}

#[test]
fn attention_agrees_with_plain_loops_in_the_interpreter() {
    agrees("INTERP", &[[2, 40, 24, 4, 8], [3, 32, 33, 4, 5]]);
}

#[test]
fn attention_agrees_with_plain_loops_in_workgroups() {
    agrees("INTERP:GPU", &[[2, 40, 24, 4, 8]]);
}

/// What stands behind a query is no part of what it sees, as little as room that nobody has filled yet.
#[test]
fn keys_behind_a_query_count_for_nothing_whatever_they_are() {
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    for device in ["CPU", "INTERP", "INTERP:GPU"] {
        on(device);
        let [l, first] = [70, 33];
        let clean = [1, 2, 3].map(|seed| numbers(l * 4, seed));
        let mut filled = clean.clone();
        for x in &mut filled[1..] {
            x[first * 4..l * 2].fill(f32::NAN);
            x[l * 2..].fill(f32::INFINITY);
        }
        let rows = |data: &[Vec<f32>; 3]| {
            let tensor = |x: &Vec<f32>| Tensor::new(x, [l as i64, 4]).to(Device::new(device));
            let [q, k, v] = [&data[0], &data[1], &data[2]].map(tensor);
            let y = q.attention(&k, &v, None, true).to_vec::<f32>();
            y.expect("it runs")[..first * 4].to_vec()
        };
        assert_eq!(rows(&filled), rows(&clean), "on {device}");
    }
}

/// d/dq, d/dk and d/dv of Σ y·g where y is the attention, causal or not.
fn gradients(
    [l, s, d, e]: [usize; 4],
    [q, k, v, g]: &[Vec<f32>; 4],
    causal: bool,
) -> [Vec<f64>; 3] {
    let of = |x: &[f32], row: usize, width: usize, c: usize| f64::from(x[row * width + c]);
    let mut all = [vec![0.0; l * d], vec![0.0; s * d], vec![0.0; s * e]];
    let scale = 1.0 / (d as f64).sqrt();
    for i in 0..l {
        let seen = if causal { s.min(i + 1) } else { s };
        let score = |j: usize| {
            (0..d)
                .map(|c| of(q, i, d, c) * of(k, j, d, c) * scale)
                .sum()
        };
        let mut weights: Vec<f64> = (0..seen).map(score).collect();
        softmax(&mut weights);
        let flow = |j: usize| (0..e).map(|c| of(g, i, e, c) * of(v, j, e, c)).sum();
        let flows: Vec<f64> = (0..seen).map(flow).collect();
        let mean: f64 = flows.iter().zip(&weights).map(|(f, w)| f * w).sum();
        for j in 0..seen {
            let slope = weights[j] * (flows[j] - mean) * scale;
            for c in 0..d {
                all[0][i * d + c] += slope * of(k, j, d, c);
                all[1][j * d + c] += slope * of(q, i, d, c);
            }
            for c in 0..e {
                all[2][j * e + c] += weights[j] * of(g, i, e, c);
            }
        }
    }
    all
}

/// Gradients of one head of attention of these sizes, compared with plain loops.
fn flows_back(device: &str, [l, s, d, e]: [usize; 4], causal: bool) {
    let data = [l * d, s * d, s * e, l * e];
    let data = [0, 1, 2, 3].map(|k| numbers(data[k], 77 * k as u32));
    let tensor = |k: usize, rows: usize| {
        let width = (data[k].len() / rows) as i64;
        Tensor::new(&data[k], [rows as i64, width]).to(Device::new(device))
    };
    let [q, k, v, g] = [tensor(0, l), tensor(1, s), tensor(2, s), tensor(3, l)];
    let y = q.attention(&k, &v, None, causal);
    let got = y.gradient_with(&g, &[&q, &k, &v]).expect("it has one");
    Tensor::realize_all(&[&got[0], &got[1], &got[2]]).expect("it runs");
    let want = gradients([l, s, d, e], &data, causal);
    for (got, want) in got.iter().zip(&want) {
        let got = got.to_vec::<f32>().expect("it runs");
        for (i, (g, w)) in got.iter().zip(want).enumerate() {
            let near = (f64::from(*g) - w).abs() <= 5e-5 * (1.0 + w.abs());
            assert!(near, "{device}, {l} by {s}, at {i}: {g}, not {w}");
        }
    }
}

/// Also where a kernel keeps scores, weights and their gradients side by side.
#[test]
fn gradients_of_attention_agree_with_plain_loops() {
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    for device in ["CPU", "INTERP", "INTERP:GPU"] {
        on(device);
        let long = (device == "CPU").then_some([330, 330, 40, 24]);
        let sizes = [[106, 10, 4, 14], [40, 64, 4, 8], [70, 70, 4, 3]];
        for sizes in sizes.into_iter().chain(long) {
            flows_back(device, sizes, true);
            flows_back(device, sizes, false);
        }
    }
}

/// Of 12 heads of 1,024 by 1,024 scores no kernel reads or writes all: neither of attention nor of a softmax between two
/// products, with or without what it comes to. The greatest score of a row and the sum of its weights are one kernel's.
#[test]
fn gradients_of_attention_store_no_scores() {
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    on("NULL:C:x86-64-v3");
    let tensor = || Tensor::empty([12, 1024, 64], DType::F32, default_device());
    let [q, k, v, g] = [(); 4].map(|_| tensor());
    let of: [fn(&Tensor, &Tensor, &Tensor) -> Tensor; 3] = [
        |q, k, v| q.attention(k, v, None, false),
        |q, k, v| q.attention(k, v, None, true),
        |q, k, v| weighed(scores(q, k), v),
    ];
    for (of, most) in of.into_iter().zip([6, 6, 5]) {
        let y = of(&q, &k, &v);
        let flows = y.gradient_with(&g, &[&q, &k, &v]).expect("it has them");
        let roots = flows.iter().chain([&y]);
        let roots: Vec<_> = roots.map(|t| t.uop().expect("well-formed")).collect();
        let n = compile(&roots).expect("it compiles");
        assert!(n.kernels <= most, "{} kernels", n.kernels);
        let params = n.programs.iter().flat_map(|p| p.toposort());
        let sizes = params.filter(|u| u.op() == Op::Param);
        let greatest = sizes.map(|u| u.shape().max_len()).max();
        assert_eq!(greatest, Some(12 * 1024 * 64));
    }
}

#[test]
fn attention_is_one_kernel() {
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    on("NULL:C:x86-64-v3");
    for sizes in [
        [12, 128, 128, 64],
        [12, 512, 512, 64],
        [12, 2048, 2048, 64],
        [8, 100, 77, 32],
        [1, 8192, 8192, 64],
    ] {
        let [h, l, s, d] = sizes;
        for case in cases() {
            let tensor = |shape: &[i64]| Tensor::empty(shape, DType::F32, default_device());
            let q = tensor(&[h, l, d]);
            let [k, v] = [(); 2].map(|_| tensor(&[h, s, d]));
            let y = (case.of)([&q, &k, &v, &tensor(&[l, s])]);
            let n = compile(&[y.uop().expect("well-formed")]).expect("it compiles");
            assert_eq!(n.kernels, 1, "{} of {sizes:?}", case.name);
        }
    }
}

/// The most memory that this process has held, in MiB.
#[cfg(target_os = "linux")]
fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux says");
    let line = status.lines().find(|l| l.starts_with("VmHWM:"));
    let words = line.and_then(|l| l.split_whitespace().nth(1));
    words.and_then(|w| w.parse::<usize>().ok()).expect("in kB") / 1024
}

/// The scores of one head are 256 MiB; neither they nor what flows back to them are ever all there.
#[test]
#[cfg(target_os = "linux")]
fn a_long_attention_takes_little_memory() {
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    on("CPU");
    let [q, k, v] = [0, 1, 2].map(|seed| {
        let values = numbers(8192 * 16, seed);
        Tensor::new(&values, [1, 8192, 16]).to(Device::new("CPU"))
    });
    for causal in [false, true] {
        let before = peak();
        let y = q.attention(&k, &v, None, causal).to_vec::<f32>();
        assert!(y.expect("it runs").iter().all(|x| x.abs() <= 1.0));
        let flows = q.attention(&k, &v, None, causal);
        let flows = flows.square().sum(.., false).gradient(&[&q, &k, &v]);
        let flows = flows.expect("it has them");
        Tensor::realize_all(&[&flows[0], &flows[1], &flows[2]]).expect("it runs");
        let more = peak() - before;
        assert!(more < 64, "{more} MiB");
    }
}

/// A fold within a masked sum is done in both of the loops that the sum is cut into.
#[test]
fn what_flows_back_through_few_places_is_computed() {
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    for device in ["CPU", "INTERP"] {
        on(device);
        for n in [3, 16, 17, 31] {
            let x = Tensor::new(&numbers(2 * n * 4, 5), [2, n, 4]).parameter();
            let seen = Tensor::ones([n, n]).contiguous();
            seen.realize().expect("it runs");
            let seen = seen.tril(0).gt(0.5);
            let flow = |y: Tensor| {
                let g = (&y * y.detach().cos()).sum(.., false).gradient(&[&x]);
                let g = g.and_then(|g| g[0].to_vec::<f32>());
                g.unwrap_or_else(|e| panic!("{device} {n}: {e}"))
            };
            let got = flow(x.attention(&x, &x, None, true));
            let want = flow(x.attention(&x, &x, Some(&seen), false));
            for (g, w) in got.iter().zip(&want) {
                assert!((g - w).abs() < 1e-4, "{device} {n}: {g} {w}");
            }
        }
    }
}

/// A mask that no loop ends at stays where what flows is stored: each term of a product would ask it.
#[test]
fn masks_that_loops_know_stand_around_products() {
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    on("CPU");
    let tensor = |seed| Tensor::new(&numbers(256 * 256, seed), [256, 256]);
    let [a, b, g] = [1, 2, 3].map(tensor);
    let i = Tensor::arange(0, 256, 1).reshape([256, 1]);
    let j = i.t();
    let other = (&i + &j).eq(40) | (&j % 7).eq(0);
    for (mask, stored) in [(j.le(&i), 0), (j.gt(&(&i + 3)), 0), (other, 1)] {
        let y = mask.select(a.matmul(&b), 0.0);
        let flows = y.gradient_with(&g, &[&a, &b]).expect("it has them");
        let roots = [0, 1].map(|k| flows[k].uop().expect("well-formed"));
        let n = compile(&roots).expect("it compiles");
        assert_eq!(n.kernels, 2 + stored);
        let shown = mask.select(&g, 0.0).contiguous();
        let want = [shown.matmul(&b.t()), a.t().matmul(&shown)];
        for (got, want) in flows.iter().zip(want) {
            let [got, want] = [got, &want].map(|t| t.to_vec::<f32>().expect("it runs"));
            let near = got.iter().zip(&want).all(|(x, y)| (x - y).abs() < 1e-3);
            assert!(near);
        }
    }
}

/// A query of no keys sees nothing, and gets zeros; so does one of as many keys as there are, which may be none.
#[test]
fn queries_without_keys_get_zeros() -> Result<()> {
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    on("CPU");
    let query = Tensor::ones([2, 3, 4]);
    for causal in [false, true] {
        let none = Tensor::zeros([2, 0, 4]);
        let got = query.attention(&none, &none, None, causal);
        assert_eq!(got.to_vec::<f32>()?, [0.0; 24], "causal: {causal}");
    }
    for n in [0, 2] {
        let keys = Tensor::ones([n, 4]).dynamic(0, 0..=5);
        let got = Tensor::ones([1, 4]).attention(&keys, &keys, None, false);
        let want = if n == 0 { 0.0 } else { 1.0 };
        assert_eq!(got.to_vec::<f32>()?, [want; 4], "{n} keys");
    }
    Ok(())
}
