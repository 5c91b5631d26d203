//! What vectors of one length give, those of others give, and so do small caches and large ones: shapes large enough for
//! tiles, panels, vectors across and lines that are asked for, which differ by machine. Flows in: the façade; flows out:
//! differences beyond rounding.

#![cfg(target_arch = "x86_64")]

use monoglot::prelude::*;
use monoglot::{Config, Conv};
use std::sync::Mutex;

/// The default device is the process's: one test at a time.
static ONE: Mutex<()> = Mutex::new(());

/// Numbers by a seed, alike in every run.
fn numbers(seed: u64) -> impl FnMut(i64) -> i64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        ((state >> 20) % below as u64) as i64
    }
}

/// Values in eighths, so that short sums are exact; longer ones differ by rounding alone.
fn filled(shape: &[i64], seed: u64) -> Tensor {
    let mut next = numbers(seed);
    let count: i64 = shape.iter().product();
    let values: Vec<f32> = (0..count).map(|_| (next(17) - 8) as f32 / 8.0).collect();
    Tensor::new(&values, shape.to_vec())
}

type Results = Vec<Vec<f32>>;

fn read<'a>(all: impl IntoIterator<Item = &'a Tensor>) -> Results {
    let one = |t: &Tensor| t.to_vec::<f32>().expect("it runs");
    all.into_iter().map(one).collect()
}

/// A small image's convolution, whose padding is much of what its windows reach, with its gradients.
fn padded(seed: u64) -> Results {
    let mut next = numbers(seed);
    let mut of = |list: &[i64]| list[next(list.len() as i64) as usize];
    let [channels, out] = [0, 1].map(|_| of(&[3, 8, 16, 32]));
    let kernel = of(&[3, 3, 5, 7]);
    let [rows, columns] = [0, 1].map(|_| of(&[1, 4, 7, 8, 12, 20]));
    let how = Conv {
        stride: of(&[1, 1, 2]).into(),
        padding: of(&[kernel / 2, kernel - 1, kernel + 1]).into(),
        dilation: of(&[1, 1, 2]).into(),
        ..Conv::default()
    };
    let x = filled(&[3, channels, rows + 8, columns + 8], seed);
    let w = filled(&[out, channels, kernel, kernel], seed + 1);
    let y = x.conv2d(&w, None, &how).relu();
    let gradients = y.square().sum(.., false).gradient(&[&x, &w]);
    let gradients = gradients.expect("it has gradients");
    read([&y].into_iter().chain(&gradients))
}

/// A convolution with its gradients, and pools of it.
fn convolution(seed: u64) -> Results {
    let mut next = numbers(seed);
    let mut of = |list: &[i64]| list[next(list.len() as i64) as usize];
    let groups = of(&[1, 1, 1, 4, 16]);
    let channels = of(&[16, 32, 48]);
    let out = of(&[16, 32, 64]);
    let kernel = of(&[1, 2, 3, 5]);
    let [rows, columns] = [0, 1].map(|_| of(&[9, 10, 13, 16, 29]));
    let how = Conv {
        stride: of(&[1, 1, 2]).into(),
        padding: (of(&[0, 1]) * (kernel / 2)).into(),
        groups,
        ..Conv::default()
    };
    let x = filled(&[2, channels, rows, columns], seed);
    let w = filled(&[out, channels / groups, kernel, kernel], seed + 1);
    let y = x.conv2d(&w, None, &how);
    let pooled = y.max_pool(2, 2, 0, 1) + y.avg_pool(2, 2, 0, true);
    let gradients = pooled.square().sum(.., false).gradient(&[&x, &w]);
    let gradients = gradients.expect("it has gradients");
    read([&y, &pooled].into_iter().chain(&gradients))
}

/// A product of any orientation, and what follows it.
fn product(seed: u64) -> Results {
    let mut next = numbers(seed);
    let mut of = |list: &[i64]| list[next(list.len() as i64) as usize];
    let [m, k, n] = [0, 1, 2].map(|_| of(&[7, 33, 64, 96, 130, 257]));
    let turned = |shape: [i64; 2], turns: bool, seed: u64| match turns {
        true => filled(&[shape[1], shape[0]], seed).permute([1, 0]),
        false => filled(&shape, seed),
    };
    let a = turned([m, k], of(&[0, 1]) == 1, seed);
    let b = turned([k, n], of(&[0, 1]) == 1, seed + 1);
    let y = a.matmul(&b);
    let rows = (&y / 16.0).softmax(-1);
    read([&y, &rows, &y.max(-1, false), &y.cumsum(0), &y.sum(0, false)])
}

/// Attention of some positions to others, those up to a distance or all before, and its gradients: by a mask, whose scores
/// are computed and replaced, or as causal, whose terms are left out.
fn attention(seed: u64) -> Results {
    let mut next = numbers(seed);
    let mut of = |list: &[i64]| list[next(list.len() as i64) as usize];
    let [queries, keys] = [0, 1].map(|_| of(&[33, 64, 100, 128, 160]));
    let width = of(&[8, 16, 32, 40]);
    let reach = of(&[keys, keys, 16]);
    let begin = of(&[0, 0, keys - queries]);
    let q = filled(&[4, 4, queries, width], seed);
    let [k, v] = [1, 2].map(|n| filled(&[4, 4, keys, width], seed + n));
    let from = Tensor::arange(begin, begin + queries, 1).reshape([queries, 1]);
    let apart = from - Tensor::arange(0, keys, 1);
    let seen = apart.ge(0) & apart.lt(reach);
    let causal = of(&[0, 1]) == 1;
    let mask = Some(&seen).filter(|_| !causal);
    let y = q.attention(&k, &v, mask, causal);
    let gradients = y.square().sum(.., false).gradient(&[&q, &k, &v]);
    let gradients = gradients.expect("it has gradients");
    // Sums over the terms before each, and over those after it.
    let scores = q.matmul(&k.permute([0, 1, 3, 2])).contiguous();
    let some = seen.select(&scores, 0.0);
    let sums = some.matmul(&v);
    let turned = some.permute([0, 1, 3, 2]).matmul(&q);
    read([&y, &sums, &turned].into_iter().chain(&gradients))
}

/// Many ids into few places, in lengths that parts divide and not, with ids that name no place; as often as threads
/// share it.
#[test]
fn counts_are_those_of_a_loop() {
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    for device in ["CPU", "CPU:X86:x86-64-v2", "INTERP"] {
        Config {
            device: Some(device.into()),
            threads: Some(2),
            ..Config::default()
        }
        .set();
        for (count, places) in [(131_072, 256), (70_000, 17), (70_001, 17), (65_536, 300)] {
            let mut next = numbers(count as u64);
            let ids: Vec<i32> = (0..count).map(|_| next(places + 20) as i32 - 10).collect();
            let mut want = vec![0i32; places as usize];
            for id in ids.iter().filter(|id| (0..places as i32).contains(id)) {
                want[*id as usize] += 1;
            }
            let ids = Tensor::new(&ids, [1, count]);
            let named = ids.eq(Tensor::arange(0, places, 1)
                .cast(DType::I32)
                .reshape([places, 1]));
            let got = named.cast(DType::I32).sum(1, false);
            let got: Vec<i64> = got.cast(DType::I64).to_vec().expect("it runs");
            let want: Vec<i64> = want.into_iter().map(i64::from).collect();
            assert!(got == want, "{device}: {count} into {places}");
        }
    }
}

#[test]
fn vectors_of_any_length_and_caches_of_any_size_give_the_same() {
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    let on = |device: &str, caches: Option<[usize; 3]>| {
        Config {
            device: Some(device.into()),
            caches,
            ..Config::default()
        }
        .set();
        let convolutions = (0..16).map(|k| convolution(100 + k));
        convolutions
            .chain((0..16).map(|k| padded(300 + k)))
            .chain((0..16).map(|k| product(200 + k)))
            .chain((0..16).map(|k| attention(400 + k)))
            .collect::<Vec<Results>>()
    };
    let want = on("CPU:X86:x86-64-v2", None);
    same(&want, &on("CPU", None), "the machine's own");
    if !is_x86_feature_detected!("avx2") || !is_x86_feature_detected!("fma") {
        println!("this machine has no AVX2: its vectors did not run with small caches");
        return;
    }
    // Nearly all storage is more than a cache holds.
    let small = Some([8 << 10, 64 << 10, 512 << 10]);
    same(&want, &on("CPU:X86:x86-64-v3", small), "small caches");
}

fn same(want: &[Results], got: &[Results], which: &str) {
    assert_eq!(want.len(), got.len());
    for (case, (want, got)) in want.iter().zip(got).enumerate() {
        for (part, (want, got)) in want.iter().zip(got).enumerate() {
            let most = want.iter().fold(1f32, |m, x| m.max(x.abs()));
            for (at, (x, y)) in want.iter().zip(got).enumerate() {
                let near = (x - y).abs() <= 2e-5 * most;
                assert!(
                    near,
                    "{which}: case {case}, result {part}, element {at}: {x} and {y}"
                );
            }
        }
    }
}
