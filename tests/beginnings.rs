//! What a parameter begins as is computed once, by whoever first reads it, and not again by each who does. Flows in:
//! the façade; flows out: values, and the engine's counters, which are the process's: one test at a time.

use monoglot::counters;
use monoglot::prelude::*;
use std::sync::Mutex;

static ONE: Mutex<()> = Mutex::new(());

/// How many kernels `f` runs, and how many programs it schedules.
fn cost(f: impl FnOnce() -> Result<()>) -> Result<(u64, u64)> {
    let before = counters();
    f()?;
    let after = counters();
    Ok((
        after.launches - before.launches,
        after.schedules - before.schedules,
    ))
}

#[test]
fn a_network_that_nobody_trained_draws_its_numbers_once() -> Result<()> {
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    Tensor::manual_seed(3);
    // So many numbers that they are drawn by a kernel of their own.
    let x: Vec<f32> = (0..128 * 384).map(|i| (i % 40) as f32 / 40.0).collect();
    let x = Tensor::new(&x, [128, 384]);
    let layer = Linear::new(384, 1536);
    let mut given = Vec::new();
    let mut costs = Vec::new();
    for _ in 0..3 {
        costs.push(cost(|| {
            given.push(layer.forward(&x).to_vec::<f32>()?);
            Ok(())
        })?);
    }
    assert_eq!(costs[1], (1, 0), "{costs:?}");
    assert_eq!(costs[2], (1, 0), "{costs:?}");
    assert_eq!(given[0], given[1]);
    assert_eq!(given[0], given[2]);
    let w = layer.weight.to_vec::<f32>()?;
    let b = layer.bias.as_ref().expect("a bias").to_vec::<f32>()?;
    for (at, y) in given[0].iter().enumerate() {
        let row = at / 1536;
        let column = at % 1536;
        let terms =
            (0..384).map(|k| ((row * 384 + k) % 40) as f64 / 40.0 * w[column * 384 + k] as f64);
        let right = terms.sum::<f64>() + b[column] as f64;
        assert!((*y as f64 - right).abs() < 1e-2, "{at}: {y} {right}");
    }
    Ok(())
}

/// What nobody else holds is not kept: of a network that is cast there are not both.
#[test]
fn what_nobody_reads_again_is_not_kept() -> Result<()> {
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    Tensor::manual_seed(4);
    let n = 1u64 << 22;
    let before = counters().in_use;
    let half = || {
        let whole = Tensor::randn([n as i64]).parameter();
        whole.cast(DType::BF16).parameter()
    };
    let half = half();
    half.realize()?;
    assert_eq!(counters().in_use - before, 2 * n);
    let most = counters().peak - before;
    // Those that it was cast from are there for a moment, and once.
    assert!(most < 7 * n, "{most}");
    let w = Tensor::randn([n as i64]).parameter();
    let sum = w.sum(.., false);
    sum.realize()?;
    let kept = counters().in_use - before - 2 * n;
    assert!((4 * n..5 * n).contains(&kept), "{kept}");
    Ok(())
}

#[test]
fn what_is_assigned_before_anybody_read_it_begins_where_it_should() -> Result<()> {
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    let start = Tensor::new(&[1.0f32, -2.0, 4.0], [3]);
    let w = (&start * 2.0).parameter();
    let mut schedules = Vec::new();
    for step in 1..=4 {
        let (_, scheduled) = cost(|| {
            let loss = (&w * &w).sum(.., false);
            let g = loss.gradient(&[&w])?;
            w.assign(&w - &g[0] * 0.25);
            Tensor::realize_all(&[&w, &loss])?;
            let before = [2.0f32, -4.0, 8.0].map(|v| v * 0.5f32.powi(step - 1));
            assert_eq!(
                loss.item::<f32>()?,
                before.iter().map(|v| v * v).sum::<f32>()
            );
            assert_eq!(w.to_vec::<f32>()?, before.map(|v| v / 2.0));
            Ok(())
        })?;
        schedules.push(scheduled);
    }
    assert_eq!(
        schedules[2..],
        [0; 2],
        "steps are one program: {schedules:?}"
    );

    let w = (&start + 1.0).parameter();
    let early = &w * 10.0;
    w.narrow(0, 1, 1).assign(7.0);
    assert_eq!(w.to_vec::<f32>()?, [2.0, 7.0, 5.0]);
    assert_eq!(early.to_vec::<f32>()?, [20.0, -10.0, 50.0]);

    // One whose beginning reads another's.
    let a = (&start * 3.0).parameter();
    let b = (&a + 1.0).parameter();
    let sum = &a + &b;
    assert_eq!(sum.to_vec::<f32>()?, [7.0, -11.0, 25.0]);
    a.assign(0.0).realize()?;
    assert_eq!(b.to_vec::<f32>()?, [4.0, -5.0, 13.0]);
    Ok(())
}

#[test]
fn threads_that_read_it_at_once_find_the_same() -> Result<()> {
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    for round in 0..20 {
        let w = Tensor::randn([33, 17]).parameter();
        let sums: Vec<Result<Vec<f32>>> = std::thread::scope(|scope| {
            let readers: Vec<_> = (0..3)
                .map(|_| scope.spawn(|| (&w * 2.0).to_vec::<f32>()))
                .collect();
            let values = readers.into_iter().map(|r| r.join().expect("no panic"));
            values.collect()
        });
        let twice: Vec<f32> = w.to_vec::<f32>()?.iter().map(|v| v * 2.0).collect();
        for seen in sums {
            assert_eq!(seen?, twice, "round {round}");
        }
    }
    Ok(())
}
