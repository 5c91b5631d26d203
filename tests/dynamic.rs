//! Axes whose lengths vary. Flows in: the façade; flows out: values beside those of the plain lengths, and the
//! engine's counters, which are the process's: one test at a time.

use monoglot::prelude::*;
use monoglot::{Counters, CustomOp, Output, counters, release_kept, scan};
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

fn close(name: &str, n: usize, got: &[f32], want: &[f32]) {
    assert_eq!(got.len(), want.len(), "{name} {n}");
    for (g, w) in got.iter().zip(want) {
        assert!(
            (g - w).abs() <= 1e-4 * w.abs().max(1.0),
            "{name} {n}: {g} {w}"
        );
    }
}

fn made(before: Counters) -> (u64, u64) {
    let now = counters();
    (
        now.schedules - before.schedules,
        now.compiled - before.compiled,
    )
}

type Program = fn(&Tensor) -> Tensor;

/// Programs over (n, 6) numbers whose n varies.
const PROGRAMS: &[(&str, Program)] = &[
    ("elementwise", |x| (x * 2.0 + 1.0).tanh()),
    ("softmax over the length", |x| x.softmax(0)),
    ("softmax beside it", |x| x.softmax(-1)),
    ("sum over the length", |x| x.sum(0, false)),
    ("mean of all", |x| x.mean(.., false)),
    ("variance over the length", |x| x.var(0, true, 0)),
    ("argmax over the length", |x| {
        x.argmax(0, false).cast(DType::F32)
    }),
    ("gram", |x| x.matmul(&x.t())),
    ("product over the length", |x| x.t().matmul(x)),
    ("attention", |x| {
        let h = x.unsqueeze(0).unsqueeze(0);
        h.attention(&h, &h, None, true)
    }),
    ("layer norm", |x| LayerNorm::new(6).forward(x)),
    ("the last row", |x| x.index(-1)),
    ("flattened", |x| x.reshape([-1]).square()),
    ("every other row from the third", |x| {
        x.slice_axis(0, Some(2), None, 2)
    }),
    ("every third from behind", |x| {
        x.slice_axis(0, Some(-4), None, 3) * 2.0
    }),
    ("all pairs, twice", |x| {
        x.matmul(&x.t()).flatten(0, -1).repeat([2])
    }),
    ("the last of those behind each other", |x| {
        let last = x.slice_axis(0, Some(-2), None, 1);
        let both = Tensor::stack(&[&last, &(&last * 2.0)], 0);
        let all = Tensor::cat(&[&both, &both.flip(1), &both], 1);
        all.slice_axis(1, Some(-2), None, 1)
    }),
    ("turned over", |x| x.flip(0) + x),
    ("rows by number", |x| {
        x.index_select(0, &Tensor::new(&[0i32, 0, 0], [3]))
    }),
    ("gathered", |x| {
        x.gather(1, &(x.argmax(1, true) * 0 + 2)).square()
    }),
    ("masked", |x| x.lt(0.0).select(x.exp(), x * 0.5)),
    ("running sum", |x| x.cumsum(0)),
    ("one behind another", |x| Tensor::cat(&[x, &(x * 2.0)], 0)),
    ("behind a row", |x| {
        Tensor::cat(&[&x.mean(0, true), x], 0).square()
    }),
    ("padded", |x| {
        x.pad(&[[2, 1], [0, 0]], PadMode::Constant(0.5)) * 2.0
    }),
    ("windows", |x| {
        let wide = x.pad(&[[1, 1], [0, 0]], PadMode::Constant(0.0));
        let n = x.size(0).expect("it has an axis");
        wide.narrow(0, 0, &n) + wide.narrow(0, 2, &n)
    }),
    ("to another length", |x| {
        x.unsqueeze(1).expand([-1, 4, 6]).sum(1, false)
    }),
];

#[test]
fn what_is_declared_to_vary_is_compiled_once() -> Result<()> {
    let _one = alone();
    for (name, program) in PROGRAMS {
        let mut late = Vec::new();
        for n in [5, 1, 2, 16, 33, 7, 64] {
            let plain = numbers(&[n, 6]);
            let want = program(&plain)
                .to_vec::<f32>()
                .unwrap_or_else(|e| panic!("{name} {n}: {e}"));
            let x = plain.dynamic(0, 1..=64);
            let before = counters();
            let y = program(&x);
            let got = y
                .to_vec::<f32>()
                .unwrap_or_else(|e| panic!("{name} {n}: {e}"));
            late.push(made(before));
            close(name, n, &got, &want);
        }
        assert!(late[2..].iter().all(|m| *m == (0, 0)), "{name}: {late:?}");
    }
    Ok(())
}

#[test]
fn a_captured_step_takes_all_lengths() -> Result<()> {
    let _one = alone();
    let w = numbers(&[6, 6]);
    let total = Tensor::zeros([6]).contiguous();
    total.realize()?;
    let step = jit(|x: &Tensor| -> Result<Tensor> {
        let y = x.matmul(&w).softmax(0);
        total.assign(&total + y.sum(0, false));
        Ok(y.matmul(&x.t()).softmax(-1))
    })?;
    let mut sum = 0.0;
    for (k, n) in [9, 64, 1, 33, 33, 2].into_iter().enumerate() {
        let plain = numbers(&[n, 6]);
        let before = counters();
        let y = step.call(plain.dynamic(0, 1..=64))?.to_vec::<f32>()?;
        assert!(k == 0 || made(before) == (0, 0), "{n}");
        let want = plain.matmul(&w).softmax(0).matmul(&plain.t()).softmax(-1);
        close("step", n, &y, &want.to_vec::<f32>()?);
        sum += 1.0;
        close("total", n, &total.to_vec::<f32>()?, &[sum; 6]);
    }
    assert_eq!(step.programs(), 1);
    Ok(())
}

/// The most storage that was in use beyond what was before.
fn peak_of(run: impl FnOnce() -> Result<Tensor>) -> Result<usize> {
    release_kept();
    let before = counters().in_use;
    let y = run()?;
    let held = counters().in_use - before;
    drop(y);
    Ok((held + counters().kept) as usize)
}

#[test]
fn few_of_many_cost_what_few_do() -> Result<()> {
    let _one = alone();
    // Scores of 4,096 by 4,096 are 64 MiB.
    let scores = |x: &Tensor| -> Result<Tensor> {
        let y = x.matmul(&x.t()).softmax(-1).contiguous().matmul(x);
        y.realize()?;
        Ok(y)
    };
    let x = numbers(&[16, 64]);
    scores(&x)?;
    scores(&x.dynamic(0, 1..=4096))?;
    let plain = peak_of(|| scores(&x))?;
    let varying = peak_of(|| scores(&x.dynamic(0, 1..=4096)))?;
    assert!(varying <= 4 * plain + (1 << 20), "{varying} and {plain}");
    let step = jit(|x: &Tensor| scores(x))?;
    step.call(numbers(&[4096, 64]).dynamic(0, 1..=4096))?;
    let before = counters().in_use;
    step.call(x.dynamic(0, 1..=4096))?;
    // The storage of the long call was given back.
    assert!(
        counters().in_use + (60 << 20) < before,
        "{} {before}",
        counters().in_use
    );
    let read = |y: &Tensor| y.to_vec::<f32>();
    close(
        "scores",
        16,
        &read(&step.call(x.dynamic(0, 1..=4096))?)?,
        &read(&scores(&x)?)?,
    );
    Ok(())
}

#[test]
fn what_does_not_fit_says_so() -> Result<()> {
    let _one = alone();
    let x = numbers(&[9, 6]);
    let line = line!() + 1;
    let e = x.dynamic(0, 10..=20).check().expect_err("9 of 10 to 20");
    assert!(e.to_string().contains("9 is outside 10..=20"), "{e}");
    assert!(e.to_string().contains(&format!("dynamic.rs:{line}")), "{e}");
    assert!(x.dynamic(2, 1..=20).check().is_err());
    let y = x.dynamic(0, 1..=20);
    assert_eq!(y.shape()?, [9, 6]);
    assert!(y.dynamic(0, 1..=20).check().is_ok());
    let e = y.dynamic(0, 1..=30).check().expect_err("another variable");
    assert!(e.to_string().contains("varies already"), "{e}");
    assert!((&y + &numbers(&[8, 6]).dynamic(0, 1..=20)).check().is_err());
    assert!((&y + &numbers(&[9, 6]).dynamic(0, 1..=20)).check().is_ok());
    let e = x.dynamic(0, 0..=20).index(-1).check().expect_err("of none");
    assert!(e.to_string().contains("begins too low"), "{e}");
    assert!(y.index(-1).check().is_ok());
    // What takes no such length names itself.
    let refused: [(&str, Program); 3] = [
        ("chunk", |x| x.chunk(2, 0).remove(0)),
        ("split", |x| x.split([3, 6], 0).remove(0)),
        ("pad", |x| x.pad(&[[1, 1], [0, 0]], PadMode::Reflect)),
    ];
    for (name, program) in refused {
        let e = program(&y).check().expect_err(name);
        assert!(e.to_string().contains(name), "{name}: {e}");
    }
    Ok(())
}

#[test]
fn a_training_step_takes_batches_of_any_length() -> Result<()> {
    let _one = alone();
    Tensor::manual_seed(3);
    let losses = |vary: bool| -> Result<Vec<f32>> {
        Tensor::manual_seed(3);
        let net = Linear::new(6, 4);
        let adam = Adam::new(&net, 1e-2);
        let step = jit(|x: &Tensor, y: &Tensor| -> Result<Tensor> {
            let scores = net.forward(x).gelu_tanh();
            let loss = scores.cross_entropy(y, Reduction::Mean, 0.0);
            adam.step(&loss)?;
            Ok(loss)
        })?;
        let mut out = Vec::new();
        for (k, n) in [8, 3, 16, 5, 12].into_iter().enumerate() {
            let classes: Vec<i32> = (0..n).map(|i| (i * 7 % 4) as i32).collect();
            let mut x = numbers(&[n, 6]);
            let mut y = Tensor::new(&classes, [n]);
            if vary {
                x = x.dynamic(0, 1..=16);
                y = y.dynamic(0, 1..=16);
            }
            let before = counters();
            out.push(step.call((&x, &y))?.item::<f32>()?);
            assert!(!vary || k == 0 || made(before) == (0, 0), "{n}");
        }
        assert!(!vary || step.programs() == 1);
        Ok(out)
    };
    close("losses", 0, &losses(true)?, &losses(false)?);
    Ok(())
}

/// Also one that may only be 0 or 1, or a number: loops that have a turn or none are loops.
#[test]
fn short_lengths_are_lengths() -> Result<()> {
    let _one = alone();
    type Step = fn(&Tensor) -> Tensor;
    let steps: [(&str, Step); 7] = [
        ("normalised", |x| x.layer_norm([3], None, None, 1e-5)),
        ("shares of a row", |x| x.softmax(-1)),
        ("shares of a column", |x| x.softmax(0)),
        ("running", |x| x.cumsum(0)),
        ("attention", |x| x.attention(x, x, None, false)),
        ("products of rows", |x| x.matmul(&x.t())),
        ("products of columns", |x| x.t().matmul(x)),
    ];
    let lengths = [(0, 0..=0), (0, 0..=1), (1, 0..=1), (1, 1..=1), (2, 2..=2)];
    for device in ["CPU", "INTERP"].map(Device::new) {
        for (name, step) in steps {
            for (n, bounds) in &lengths {
                let x = numbers(&[*n, 3]).to(device);
                let got = step(&x.dynamic(0, bounds.clone())).to_vec::<f32>()?;
                close(name, *n, &got, &step(&x).to_vec::<f32>()?);
            }
            for n in [0, 1, 4] {
                // Every fourth: none, or one.
                let x = numbers(&[n, 3]).to(device);
                let fourth = |x: Tensor| step(&x.slice_axis(0, None, None, 4)).to_vec::<f32>();
                close(name, n, &fourth(x.dynamic(0, 0..=4))?, &fourth(x)?);
            }
        }
    }
    let table = numbers(&[5, 3]).parameter();
    let ids = Tensor::new(&[4i64, 1], [2]).dynamic(0, 2..=2);
    let loss = table.embedding(&ids).square().sum(.., false);
    let gradient = loss.gradient(&[&table])?;
    let want = Tensor::new(&[0f32, 1., 0., 0., 1.], [5, 1]) * &table * 2.0;
    close(
        "looked up",
        2,
        &gradient[0].to_vec::<f32>()?,
        &want.to_vec::<f32>()?,
    );
    Ok(())
}

/// What is copied from one device to another is as long as it is now: what lies behind it stays.
#[test]
fn devices_are_given_as_many_elements_as_there_are() -> Result<()> {
    let _one = alone();
    let other = Device::new("INTERP");
    let own = Tensor::zeros([1]).device()?;
    let back = |x: &Tensor| {
        let doubled = (x * 2.0).contiguous();
        let there = (x.to(other) * 2.0).contiguous();
        (there + doubled.to(other)).to(own)
    };
    let step = jit(|x: Tensor| back(&x))?;
    for n in [18, 4, 40, 1, 7, 18] {
        let x = numbers(&[n]);
        let want: Vec<f32> = x.to_vec::<f32>()?.iter().map(|v| v * 4.0).collect();
        let varying = x.dynamic(0, 1..=40);
        close("at once", n, &back(&varying).to_vec::<f32>()?, &want);
        let got = step.call(&varying)?.to_vec::<f32>()?;
        close("captured", n, &got, &want);
    }
    Ok(())
}

/// A step of a scan that gives what it was given copies it, as long as it is.
#[test]
fn a_scan_copies_as_many_elements_as_there_are() -> Result<()> {
    let _one = alone();
    let step = |(a, b): (Tensor, Tensor), x: Tensor| ((b.clone(), a * 0.5 + x), ());
    let all = |x: &Tensor| {
        let times = Tensor::new(&[1f32, 2., 3., 4., 5.], [5]);
        let ((a, b), ()) = scan(step, (x * 2.0, x * 3.0), &times)?;
        (a * 10.0 + b + x).to_vec::<f32>()
    };
    for n in [9, 30, 1, 40] {
        let x = numbers(&[n]);
        close("scan", n, &all(&x.dynamic(0, 1..=40))?, &all(&x)?);
    }
    Ok(())
}

#[test]
fn a_kernel_of_ones_own_is_over_one_axis_that_varies() -> Result<()> {
    let _one = alone();
    let sum = CustomOp::kernel("sum", |k| {
        let [x, y] = [k.input(0), k.input(1)];
        let i = k.range(x.shape()[0].clone());
        let at = std::slice::from_ref(&i);
        let value = &x.at(at) + &y.at(at);
        Ok(k.output(0).at(at).store(&value).end(at))
    });
    for n in [18, 4, 40] {
        let x = numbers(&[n]);
        let want: Vec<f32> = x.to_vec::<f32>()?.iter().map(|v| v * 2.0 + 1.0).collect();
        let varying = x.dynamic(0, 4..=200);
        let length = varying.size(0)?;
        let outputs = [Output::new((&length,), DType::F32)];
        // The ones are of no device: they are made where they are wanted.
        let [got] = sum.call(outputs, &[&(&varying * 2.0), &Tensor::ones((&length,))]);
        close("sum", n, &got.to_vec::<f32>()?, &want);
    }
    Ok(())
}

/// What a program was captured for varies, and what it is given need not: it gives views of that.
#[test]
fn a_program_gives_views_of_what_it_was_given() -> Result<()> {
    let _one = alone();
    let views: [Program; 4] = [
        |x| x.unsqueeze(1),
        |x| x.flatten(0, 1),
        |x| x.unflatten(1, [2, 3]),
        |x| x.t(),
    ];
    for view in views {
        let captured = jit(move |x: Tensor| view(&x))?;
        let program = captured.program(numbers(&[5, 6]).dynamic(0, 1..=8))?;
        for n in [3, 8, 1] {
            let x = numbers(&[n, 6]);
            let want = view(&x);
            for given in [x.clone(), x.dynamic(0, 1..=8), x.dynamic(0, 1..=9)] {
                let got = program.call(&given)?.remove(0);
                assert_eq!(got.shape()?, want.shape()?);
                assert_eq!(got.to_vec::<f32>()?, want.to_vec::<f32>()?);
            }
        }
    }
    let square = jit(|x: Tensor| x.flatten(0, 1))?;
    let program = square.program(numbers(&[5, 5]).dynamic(0, 1..=8).dynamic(1, 1..=8))?;
    let x = numbers(&[3, 3]);
    assert_eq!(program.call(&x)?[0].shape()?, [9]);
    let e = program.call(x.dynamic(0, 1..=8)).expect_err("one of two");
    assert!(
        e.to_string().contains("all equal lengths vary alike"),
        "{e}"
    );
    assert!(e.to_string().contains("dynamic.rs"), "{e}");
    let writes = jit(|x: Tensor| {
        x.assign(&x * 2.0);
        x.unsqueeze(0)
    })?;
    let program = writes.program(numbers(&[5, 6]).dynamic(0, 1..=8))?;
    let short = numbers(&[3, 6]).contiguous();
    short.realize()?;
    let e = program.call(&short).expect_err("it has no room");
    assert!(
        e.to_string().contains("one that `dynamic` gives has"),
        "{e}"
    );
    let roomy = numbers(&[3, 6]).dynamic(0, 1..=8);
    program.call(&roomy)?;
    let want: Vec<f32> = numbers(&[3, 6])
        .to_vec::<f32>()?
        .iter()
        .map(|v| v * 2.0)
        .collect();
    assert_eq!(roomy.to_vec::<f32>()?, want);
    Ok(())
}

/// A sum over axes that both vary is done in blocks, as one over known axes is: it keeps the ends of what it adds.
#[test]
fn sums_over_axes_that_vary_are_exact() -> Result<()> {
    let _one = alone();
    for [rows, columns] in [[63i64, 63], [1, 64], [64, 1], [40, 17]] {
        let n = rows * columns * 2;
        let data: Vec<f32> = (0..n).map(|i| 0.635149 + (i % 7) as f32 * 1e-3).collect();
        let x = Tensor::new(&data, [rows, columns, 2]);
        let x = x.dynamic(0, 1..=64).dynamic(1, 1..=64);
        let want: f64 = data.iter().map(|&v| f64::from(v)).sum();
        let got = f64::from(x.sum(.., false).item::<f32>()?);
        assert!(
            (got / want - 1.0).abs() < 3e-7,
            "{rows} × {columns}: {got}, not {want}"
        );
        let halves = x.sum([0, 1], false).to_vec::<f32>()?;
        let got: f64 = halves.iter().map(|&v| f64::from(v)).sum();
        assert!(
            (got / want - 1.0).abs() < 3e-7,
            "{rows} × {columns}: {got}, not {want}"
        );
    }
    Ok(())
}
