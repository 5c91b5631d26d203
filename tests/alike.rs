//! Graphs that look much alike, computed in turn: each is another program, or the same one over other storage.
//! Flows in: the façade; flows out: values, against those of the host.

use monoglot::counters;
use monoglot::prelude::*;
use std::sync::{Mutex, MutexGuard};

/// What every test holds: the counts are of all threads.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(|e| e.into_inner())
}

/// What is computed of two rows of four, and what it is.
type Case = (fn(&Tensor, &Tensor) -> Tensor, fn(f32, f32) -> f32);

const CASES: [Case; 12] = [
    (|a, b| a - b, |a, b| a - b),
    (|a, b| b - a, |a, b| b - a),
    (|a, _| a - a * 0.5, |a, _| a - a * 0.5),
    (|a, b| a - b * 0.5, |a, b| a - b * 0.5),
    (|a, b| a * 0.5 - b, |a, b| a * 0.5 - b),
    (|a, b| b - a * 0.5, |a, b| b - a * 0.5),
    (|a, b| b - a * 0.25, |a, b| b - a * 0.25),
    (|a, _| a.maximum(1.0), |a, _| a.max(1.0)),
    (|a, _| a.maximum(2.0), |a, _| a.max(2.0)),
    (|_, b| b.maximum(2.0), |_, b| b.max(2.0)),
    (|a, b| a.minimum(b), |a, b| a.min(b)),
    (|a, b| a.maximum(b), |a, b| a.max(b)),
];

fn row(from: f32) -> [f32; 4] {
    std::array::from_fn(|i| from + (i * i) as f32 * 0.75)
}

#[test]
fn each_gives_its_own_values_every_time() -> Result<()> {
    let _one = alone();
    for round in 0..4 {
        for (k, (compute, host)) in CASES.iter().enumerate() {
            let a = row(round as f32 - 2.0);
            let b = row(1.5 - k as f32);
            let want: Vec<f32> = a.iter().zip(&b).map(|(a, b)| host(*a, *b)).collect();
            let of = |values: &[f32; 4]| Tensor::new(values, [4]);
            let got = compute(&of(&a), &of(&b));
            assert_eq!(got.to_vec::<f32>()?, want, "case {k} in round {round}");
        }
    }
    Ok(())
}

#[test]
fn roots_shapes_dtypes_and_devices_tell_graphs_apart() -> Result<()> {
    let _one = alone();
    let a = Tensor::new(&row(1.0), [4]);
    let b = Tensor::new(&row(2.0), [4]);
    for _ in 0..3 {
        let both = [&a + 1.0, &b * 2.0];
        Tensor::realize_all(&[&both[0], &both[1]])?;
        let turned = [&b * 2.0, &a + 1.0];
        Tensor::realize_all(&[&turned[0], &turned[1]])?;
        let twice = [&a * 2.0, &a + 1.0];
        Tensor::realize_all(&[&twice[0], &twice[1]])?;
        let want = |from, f: fn(f32) -> f32| row(from).map(f).to_vec();
        assert_eq!(both[0].to_vec::<f32>()?, want(1.0, |v| v + 1.0));
        assert_eq!(turned[0].to_vec::<f32>()?, want(2.0, |v| v * 2.0));
        assert_eq!(turned[1].to_vec::<f32>()?, want(1.0, |v| v + 1.0));
        assert_eq!(twice[0].to_vec::<f32>()?, want(1.0, |v| v * 2.0));
        for n in [4i64, 6, 4] {
            let ones = Tensor::new(&vec![1i32; n as usize], [n as usize]);
            assert_eq!(ones.sum(.., false).item::<i64>()?, n);
            let ones = Tensor::new(&vec![1i64; n as usize], [n as usize]);
            assert_eq!(ones.sum(.., false).item::<i64>()?, n);
        }
        // What tells these apart is an arg: which sum it is, and in what order axes stand.
        let square = Tensor::new(&[1.0f32, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0], [2, 2, 2]);
        assert_eq!(square.sum(.., false).item::<f32>()?, 255.0);
        assert_eq!(square.max(.., false).item::<f32>()?, 128.0);
        assert_eq!(square.min(.., false).item::<f32>()?, 1.0);
        let turned = square.permute([0, 2, 1]) + 0.0;
        assert_eq!(turned.to_vec::<f32>()?[..4], [1.0, 4.0, 2.0, 8.0]);
        let turned = square.permute([2, 1, 0]) + 0.0;
        assert_eq!(turned.to_vec::<f32>()?[..4], [1.0, 16.0, 4.0, 64.0]);
        for device in ["CPU", "INTERP", "CPU"] {
            let there = a.to(Device::new(device)) * 3.0;
            there.realize()?;
            assert_eq!(there.device()?, Device::new(device));
            assert_eq!(there.to_vec::<f32>()?, want(1.0, |v| v * 3.0));
        }
    }
    Ok(())
}

/// More graphs than a thread keeps, in turn, and one that many threads have.
#[test]
fn what_was_computed_before_is_scheduled_no_more() -> Result<()> {
    let _one = alone();
    // Each has storage of its own: what others computed of it is found, too.
    let graph = |k: usize| {
        let x = Tensor::new(&row(0.0), [4]);
        (0..k).fold(x.clone(), |y, _| (y + &x).sqrt())
    };
    let all = || {
        let each = (1..40).map(|k| graph(k).to_vec::<f32>());
        each.collect::<Result<Vec<_>>>()
    };
    let first = all()?;
    let then = counters();
    assert_eq!(all()?, first);
    let threads: Vec<_> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..3).map(|_| scope.spawn(all)).collect();
        running
            .into_iter()
            .map(|t| t.join().expect("no panic"))
            .collect()
    });
    for given in threads {
        assert_eq!(given?, first);
    }
    let now = counters();
    assert_eq!(now.compiled, then.compiled);
    Ok(())
}
