//! What programs do with lengths that vary: batches, masks, caches, slices, lengths of 0, limits. Flows in: the
//! façade; flows out: values beside those of plain tensors, and the engine's counters, which are the process's: one
//! test at a time.

use monoglot::prelude::*;
use monoglot::{ErrorKind, Size, counters, release_kept, set_memory_limit, storage_use};
use std::sync::{Mutex, MutexGuard};

/// What every test holds: the counts are of all threads.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(|e| e.into_inner())
}

/// Some numbers between −1 and 1.
fn numbers(shape: &[usize]) -> Tensor {
    let n: usize = shape.iter().product();
    let all: Vec<f32> = (0..n)
        .map(|i| ((i * 37) % 41) as f32 / 20.5 - 1.0)
        .collect();
    Tensor::new(&all, shape)
}

fn close(what: &str, got: &Tensor, want: &Tensor) -> Result<()> {
    let name = |e: Error| panic!("{what}: {e}");
    assert_eq!(got.shape()?, want.shape()?, "{what}");
    let got = got.to_vec::<f32>().unwrap_or_else(name);
    for (g, w) in got.iter().zip(&want.to_vec::<f32>()?) {
        assert!((g - w).abs() <= 1e-4 * w.abs().max(1.0), "{what}: {g} {w}");
    }
    Ok(())
}

#[test]
fn the_last_batch_of_an_epoch_is_of_the_same_program() -> Result<()> {
    let _one = alone();
    struct Net {
        conv: Conv2d,
        norm: BatchNorm,
        out: Linear,
    }
    module!(Net { conv, norm, out });
    let losses = |vary: bool| -> Result<Vec<f32>> {
        Tensor::manual_seed(3);
        let net = Net {
            conv: Conv2d::new(1, 4, 3),
            norm: BatchNorm::new(4),
            out: Linear::new(36, 5),
        };
        let drop = Dropout::new(0.2);
        let adam = AdamW::new(&net, 1e-2, 0.1);
        let step = jit(|x: &Tensor, y: &Tensor| -> Result<Tensor> {
            let h = net.norm.forward(&net.conv.forward(x)).relu();
            let h = drop.forward(&h.max_pool(2, (), 0, 1).flatten(1, -1));
            let loss = net.out.forward(&h).cross_entropy(y, Reduction::Mean, 0.1);
            adam.step(&loss)?;
            Ok(loss)
        })?;
        let mut out = Vec::new();
        for (k, n) in [8usize, 8, 3, 8, 1, 7].into_iter().enumerate() {
            let classes: Vec<i32> = (0..n).map(|i| (i * 7 % 5) as i32).collect();
            let mut x = numbers(&[n, 1, 8, 8]);
            let mut y = Tensor::new(&classes, [n]);
            if vary {
                x = x.dynamic(0, 1..=8);
                y = y.dynamic(0, 1..=8);
            }
            Tensor::realize_all(&[&x, &y])?;
            let before = counters();
            out.push(step.call((&x, &y))?.item::<f32>()?);
            let now = counters();
            let made = (now.schedules, now.compiled) != (before.schedules, before.compiled);
            assert!(!vary || k == 0 || !made, "a batch of {n}");
        }
        Ok(out)
    };
    for (got, want) in losses(true)?.iter().zip(&losses(false)?) {
        assert!((got - want).abs() < 1e-4, "{got} {want}");
    }
    Ok(())
}

#[test]
fn two_lengths_and_masks_from_a_tensor_of_lengths() -> Result<()> {
    let _one = alone();
    let pooled = |x: &Tensor, lengths: &Tensor| -> Tensor {
        let n = x.size(1).expect("it has two axes");
        let places = Tensor::arange(0, 64, 1).narrow(0, 0, n);
        let counts = places.unsqueeze(0).lt(lengths.unsqueeze(1));
        let h = x.attention(x, x, Some(&counts.unsqueeze(1)), false);
        let sum = counts.unsqueeze(2).select(&h, 0.0).sum(1, false);
        sum / lengths.unsqueeze(1).cast(DType::F32)
    };
    let step = jit(pooled)?;
    for (n, lengths) in [(9, vec![9, 1, 4]), (64, vec![64, 30]), (1, vec![1])] {
        let x = numbers(&[lengths.len(), n, 4]);
        let lengths = Tensor::new(&lengths, [lengths.len()]);
        let varying = x.dynamic(0, 1..=8).dynamic(1, 1..=64);
        let got = step.call((&varying, &lengths.dynamic(0, 1..=8)))?;
        close(&format!("{n}"), &got, &pooled(&x, &lengths))?;
    }
    assert_eq!(step.programs(), 1);
    Ok(())
}

#[test]
fn slices_begin_and_end_anywhere() -> Result<()> {
    let _one = alone();
    let first = Variable::new(0..=31)?;
    let length = Variable::new(1..=32)?;
    let x = numbers(&[32, 4]);
    let step =
        jit(|x: &Tensor, first: &Size, length: &Size| x.narrow(0, first, length).softmax(0))?;
    for (at, n) in [(0, 32), (5, 7), (31, 1), (16, 16)] {
        let got = step.call((&x, first.bind(at)?, length.bind(n)?))?;
        close(
            &format!("{n} from {at}"),
            &got,
            &x.narrow(0, at, n).softmax(0),
        )?;
    }
    let far = step.call((&x, first.bind(20)?, length.bind(20)?));
    let e = far.expect_err("20 from 20 of 32").to_string();
    assert!(e.contains("20 elements from 20 of an axis of 32"), "{e}");
    assert_eq!(step.programs(), 1);
    Ok(())
}

#[test]
fn what_does_not_fit_says_which_variables() -> Result<()> {
    let _one = alone();
    let add = jit(|a: &Tensor, b: &Tensor| a + b)?;
    let of = |n: usize| numbers(&[n, 6]).dynamic(0, 1..=16);
    add.call((of(3), of(3)))?;
    let e = add.call((of(3), of(4))).expect_err("3 and 4").to_string();
    assert!(e.contains("(3 of 16, 6) and (4 of 16, 6)"), "{e}");
    // Equal now, and not always.
    let own = Variable::new(1..=16)?;
    let mine = numbers(&[16, 6]).narrow(0, 0, own.bind(3)?);
    let e = (&mine + of(3)).check().expect_err("two variables");
    assert!(e.to_string().contains("of two variables"), "{e}");
    let store = Tensor::zeros([16, 6]).contiguous();
    let e = store.narrow(0, 0, own.bind(3)?).assign(of(3)).check();
    let e = e.expect_err("two variables").to_string();
    assert!(e.contains("of two variables"), "{e}");
    Ok(())
}

#[test]
fn a_length_of_0_is_one_of_many() -> Result<()> {
    let _one = alone();
    let all = |a: &Tensor| {
        vec![
            a.sum(0, false),
            a.softmax(0),
            a.matmul(&a.t()),
            a.t().matmul(a),
            Tensor::cat(&[a, &numbers(&[2, 6])], 0),
            a.cumsum(0),
            a.sort(0, false),
        ]
    };
    let step = jit(move |a: &Tensor| all(a))?;
    for n in [3, 0, 5] {
        let x = numbers(&[n, 6]);
        let got = step.call(x.dynamic(0, 0..=16))?;
        for (k, (got, want)) in got.iter().zip(&all(&x)).enumerate() {
            close(&format!("{k} of {n}"), got, want)?;
        }
    }
    assert_eq!(step.programs(), 1);
    // Nothing has no greatest element.
    let e = numbers(&[3, 6]).dynamic(0, 0..=16).max(0, false).check();
    let e = e.expect_err("it may be of none").to_string();
    assert!(e.contains("let its length begin at 1"), "{e}");
    Ok(())
}

#[test]
fn a_saved_program_draws_as_many_random_numbers_as_its_length_takes() -> Result<()> {
    let _one = alone();
    let folder = std::env::temp_dir().join(format!("monoglot-declared-{}", std::process::id()));
    let step = jit(|x: &Tensor| x.dropout(0.5))?;
    let of = |n: usize| Tensor::ones([n, 6]).dynamic(0, 1..=16);
    let program = step.program(of(5))?;
    program.save(&folder)?;
    let loaded = Program::load(&folder)?;
    std::fs::remove_dir_all(&folder).expect("it was written");
    for n in [5, 1, 16, 16, 9] {
        let [a, b] = [&program, &loaded].map(|p| p.call(vec![of(n)]));
        let a = a?[0].to_vec::<f32>()?;
        assert_eq!(a, b?[0].to_vec::<f32>()?, "{n}");
        assert_eq!(a.len(), 6 * n);
        assert!(n == 1 || a.contains(&0.0) && a.contains(&2.0), "{a:?}");
    }
    Ok(())
}

#[test]
fn a_limit_holds_for_the_length_of_a_call() -> Result<()> {
    let _one = alone();
    release_kept();
    let total = Tensor::zeros([64]).contiguous();
    total.realize()?;
    let step = jit(|x: &Tensor| -> Result<Tensor> {
        let scores = x.matmul(&x.t()).softmax(-1).contiguous();
        let y = scores.matmul(x);
        total.assign(&total + y.sum(0, false));
        Ok(y)
    })?;
    // Scores of 4,096 by 4,096 are 64 MiB.
    let of = |n: usize| numbers(&[n, 64]).dynamic(0, 1..=4096);
    let few = of(16);
    let many = of(4096);
    Tensor::realize_all(&[&few, &many])?;
    let want = step.call(&few)?.to_vec::<f32>()?;
    release_kept();
    let cpu = Device::new("CPU");
    let limit = storage_use(cpu).in_use + (8 << 20);
    set_memory_limit(cpu, Some(limit));
    let held = total.to_vec::<f32>()?;
    let e = step.call(&many).expect_err("64 MiB of 8");
    assert!(matches!(e.kind(), ErrorKind::Limit { .. }), "{e}");
    // Nothing has run, and what fits does.
    assert_eq!(total.to_vec::<f32>()?, held);
    assert_eq!(step.call(&few)?.to_vec::<f32>()?, want);
    let once = total.to_vec::<f32>()?;
    assert_ne!(once, held);
    set_memory_limit(cpu, None);
    let programs = counters().schedules;
    let y = step.call(&many)?;
    close(
        "many",
        &total,
        &(Tensor::new(&once, [64]) + y.sum(0, false)),
    )?;
    let plain = numbers(&[4096, 64]);
    let scores = plain.matmul(&plain.t()).softmax(-1);
    close("many", &y, &scores.matmul(&plain))?;
    assert_eq!(step.programs(), 1);
    assert!(counters().schedules >= programs);
    Ok(())
}
