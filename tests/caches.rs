//! Values beside caches of a few KiB. Flows in: the façade, in processes of their own, as an open device keeps the caches
//! that it was opened with; flows out: comparisons with the interpreter, and what kernels read and write.

use monoglot::compiler::engine::compile;
use monoglot::compiler::uop::{Op, UOp};
use monoglot::prelude::*;
use monoglot::{Config, Device};
use std::process::Command;

/// Says to a process that it is one of those.
const INSIDE: &str = "MONOGLOT_TEST_INSIDE";

/// Run a test in a process for each of these caches.
fn beside(caches: &[&str], test: &str, body: fn() -> Result<()>) -> Result<()> {
    if std::env::var_os(INSIDE).is_some() {
        return body();
    }
    let exe = std::env::current_exe().expect("a test has a binary");
    for caches in caches {
        let mut command = Command::new(&exe);
        command.args([test, "--exact", "--nocapture"]);
        command.env(INSIDE, "").env("DEV", "CPU");
        command
            .env("MONOGLOT_CACHES", caches)
            .env("MONOGLOT_THREADS", "2");
        let out = command.output().expect("it starts");
        let said = [out.stdout, out.stderr].map(|s| String::from_utf8_lossy(&s).into_owned());
        assert!(out.status.success(), "{caches}: {}", said.concat());
        assert!(said[0].contains("1 passed"), "{caches}: {}", said.concat());
    }
    Ok(())
}

/// Put tensors on this device, which is opened with this process's caches.
fn on(device: &str) {
    Config {
        device: Some(device.into()),
        ..(*Config::current()).clone()
    }
    .set();
}

/// What becomes of a product of queries and keys, times values.
type Weighed = fn(&Tensor, &Tensor, &Tensor) -> Tensor;

fn scores(q: &Tensor, k: &Tensor) -> Tensor {
    (q * 0.5).matmul(&k.t())
}

const CASES: [(&str, Weighed); 6] = [
    ("attention", |q, k, v| q.attention(k, v, None, false)),
    ("causal attention", |q, k, v| q.attention(k, v, None, true)),
    ("a softmax", |q, k, v| scores(q, k).softmax(-1).matmul(v)),
    ("under a soft cap", |q, k, v| {
        (scores(q, k).tanh() * 3.0).softmax(-1).matmul(v)
    }),
    ("divided last", |q, k, v| {
        let x = scores(q, k);
        let e = (&x - x.max(-1, true).detach()).exp();
        e.matmul(v) / e.sum(-1, true)
    }),
    ("without a sum", |q, k, v| scores(q, k).sigmoid().matmul(v)),
];

/// What flows to queries, keys and values, and what they come to.
fn flows([q, k, v, g]: &[Tensor; 4], of: Weighed) -> Result<[Tensor; 4]> {
    let y = of(q, k, v);
    let mut all = y.gradient_with(g, &[q, k, v])?;
    all.push(y);
    Ok(all.try_into().expect("three of them"))
}

/// Kernels that compute these store no scores, which have so many bytes, and read nothing that they store.
fn is_little(name: &str, roots: &[&Tensor], scores: i64) -> Result<()> {
    let roots: Vec<UOp> = roots.iter().map(|t| t.uop()).collect::<Result<_>>()?;
    for kernel in compile(&roots)?.programs.iter().map(|p| p.src()[0].clone()) {
        let nodes = kernel.toposort();
        let params = nodes.iter().filter(|u| u.op() == Op::Param);
        let most = params.map(|u| u.shape().max_len() * u.dtype().bytes() as i64);
        assert!(most.max() < Some(scores), "{name}: {kernel}");
        let stores = nodes.iter().filter(|u| u.op() == Op::Store);
        let stored: Vec<&UOp> = stores.map(|u| &u.src()[0].src()[0]).collect();
        let is_stored = |u: &&UOp| {
            let from = u.src().first().filter(|_| u.op() == Op::Index);
            from.is_some_and(|p| p.op() == Op::Param && stored.contains(&p))
        };
        for u in &nodes {
            let address = usize::from(u.op() == Op::Store);
            let read = u.src().iter().skip(address).find(is_stored);
            assert_eq!(read, None, "{name}: {kernel}");
        }
    }
    Ok(())
}

/// As near as the rounding of sums lets values be.
fn agree(got: &Tensor, want: &Tensor, name: &str) -> Result<()> {
    let [got, want] = [got.to_vec::<f32>()?, want.to_vec::<f32>()?];
    let most = want.iter().fold(1f32, |m, x| m.max(x.abs()));
    let near = |(a, b): (&f32, &f32)| (a - b).abs() <= 2e-5 * most;
    assert!(got.iter().zip(&want).all(near), "{name}");
    Ok(())
}

fn compare() -> Result<()> {
    for [l, s, d, e] in [
        [64, 100, 4, 4],
        [101, 77, 3, 5],
        [128, 128, 8, 8],
        [300, 200, 16, 24],
    ] {
        let of = |rows: i64, width: i64| Tensor::randn([1, rows, width]);
        let data = [of(l, d), of(s, d), of(s, e), of(l, e)];
        Tensor::realize_all(&data.each_ref())?;
        let other = data.each_ref().map(|t| t.to(Device::new("INTERP")));
        for (name, case) in CASES {
            let want = flows(&other, case)?;
            for some in [&[0usize, 1, 2, 3][..], &[1, 2], &[0, 3]] {
                let got = flows(&data, case)?;
                let roots: Vec<&Tensor> = some.iter().map(|&k| &got[k]).collect();
                is_little(name, &roots, 4 * l * s)?;
                Tensor::realize_all(&roots)?;
                for (got, &k) in roots.iter().zip(some) {
                    agree(got, &want[k], &format!("{name} of {l} by {s}"))?;
                }
            }
        }
    }
    Ok(())
}

/// What fits no cache is computed again by each kernel that wants it, and kernels of the same slices become one, unless
/// one of them wants what the other stores.
#[test]
fn scores_that_fit_no_cache_are_never_all_there() -> Result<()> {
    let test = "scores_that_fit_no_cache_are_never_all_there";
    beside(&["1K,64K,4K", "4K,256K,16K"], test, compare)
}

fn train() -> Result<()> {
    for [l, s, d] in [[128, 257, 32], [100, 300, 48], [67, 515, 32]] {
        let of = |rows: i64| Tensor::randn([rows, d]);
        let data = [of(l), of(s), of(s), of(l)];
        Tensor::realize_all(&data.each_ref())?;
        let other = data.each_ref().map(|t| t.to(Device::new("INTERP")));
        let plain: Weighed = |q, k, v| q.matmul(&k.t()).sigmoid().matmul(v);
        for (name, case) in [CASES[0], CASES[1], ("sigmoid", plain)] {
            let [got, want] = [flows(&data, case)?, flows(&other, case)?];
            Tensor::realize_all(&[&got[1], &got[2]])?;
            for (got, want) in got.iter().zip(&want) {
                agree(got, want, &format!("{name} of {l} by {s}"))?;
            }
        }
    }
    Ok(())
}

/// Two panels of one loop, each asked for while the one before it is worked with: their number is worked out once, where
/// both see it.
#[test]
fn panels_side_by_side_are_asked_for() -> Result<()> {
    let test = "panels_side_by_side_are_asked_for";
    beside(&["16K,32K,4K", "32K,128K,100K"], test, train)
}

fn gather() -> Result<()> {
    for device in ["CPU", "CPU:X86:x86-64-v2"] {
        on(device);
        let ids =
            |n: i32, of: i32| Tensor::new(&(0..n).map(|i| i * 7 % of).collect::<Vec<i32>>(), [n]);
        let [q, k] = [[8i64, 63].as_slice(), &[2, 8, 65]].map(|s| Tensor::ones(s).contiguous());
        let some = ids(13, 65);
        Tensor::realize_all(&[&q, &k, &some])?;
        let found = q.t().matmul(&k).index_select(-1, &some).sum(-2, false);
        assert_eq!(found.to_vec::<f32>()?, [504f32; 26], "{device}");
        let [q, k] = [[65i64, 2]; 2].map(|s| Tensor::ones(s).contiguous());
        let some = ids(23, 65);
        Tensor::realize_all(&[&q, &k, &some])?;
        let scores = q.matmul(&k.t()).softmax(-1).triu(2);
        let found = scores.index_select(-1, &some).sum(.., false);
        // Of column c the c − 1 rows that begin two to the left, each with a 65th.
        let columns = some.to_vec::<i32>()?;
        let want: f32 = columns.iter().map(|c| (c - 1).max(0) as f32 / 65.0).sum();
        assert!((found.item::<f32>()? - want).abs() < 1e-4, "{device}");
    }
    Ok(())
}

/// Columns at places that come from data, of a product beyond all caches.
#[test]
fn columns_of_a_product_are_gathered() -> Result<()> {
    let test = "columns_of_a_product_are_gathered";
    beside(&["1K,64K,4K", "1K,16K,4K", "1K,16K,2K"], test, gather)
}

fn multiply() -> Result<()> {
    for device in ["CPU", "CPU:X86:x86-64-v2"] {
        on(device);
        for [rows, terms, columns] in [[16, 32, 467], [15, 127, 257], [4, 127, 256]] {
            let ids: Vec<i32> = (0..terms).rev().map(|id| id as i32).collect();
            let ids = Tensor::new(&ids, [terms]);
            let table = Tensor::arange(0, terms, 1).reshape([terms, 1]);
            let table = table.expand([terms, columns]).cast(DType::F32).contiguous();
            let x = Tensor::ones([rows, terms]).contiguous();
            Tensor::realize_all(&[&x, &table])?;
            let found = table.index_select(0, &ids);
            let product = x.matmul(&found);
            let want = (terms * (terms - 1) / 2) as f32;
            let got: Vec<f32> = product.to_vec()?;
            assert!(got.iter().all(|v| *v == want), "{device}: {terms}");
            let loss = product.relu().sum(.., false);
            let gradient = loss.gradient(&[&found])?.remove(0);
            let got: Vec<f32> = gradient.to_vec()?;
            assert!(got.iter().all(|v| *v == rows as f32), "{device}: {rows}");
        }
    }
    Ok(())
}

/// Rows at places that come from data, as a factor beyond the second cache: of vectors whose lanes are each asked whether
/// they are there, no row is asked for.
#[test]
fn gathered_factors_beyond_the_caches_are_multiplied() -> Result<()> {
    let test = "gathered_factors_beyond_the_caches_are_multiplied";
    beside(&["2K,16K,32K", "2K,8K,64K"], test, multiply)
}
