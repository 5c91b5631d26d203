//! Attention and variants of it are one kernel, in which no score goes through memory that others see, and whose
//! values are those of plain loops. Flows in: the façade; flows out: comparisons with f64 on every device here,
//! and counts on NULL, for one kind of machine.

use monoglot::compiler::engine::{compile, default_device};
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

/// The scores of one head are 256 MiB.
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
        let more = peak() - before;
        assert!(more < 64, "{more} MiB");
    }
}
