//! Scans as people write them, each beside the plain loop: on the processor and in the interpreter.

use crate::{close, read, values};
use monoglot::prelude::*;
use monoglot::{Tensors, scan, scan_reversed};

/// A state with parts of several kinds.
#[derive(Tensors, Clone)]
struct State {
    position: Tensor,
    speeds: Vec<Tensor>,
    seen: Option<Tensor>,
    count: Tensor,
}

#[derive(Tensors, Clone)]
struct Push {
    force: Tensor,
    mask: (Tensor, Option<Tensor>),
}

fn pushed(mut s: State, push: Push) -> (State, Vec<Tensor>) {
    for (k, v) in s.speeds.iter_mut().enumerate() {
        *v = (&*v + &push.force * (1.0 + k as f64)) * &push.mask.0;
    }
    s.position = &s.position + &s.speeds[0] - &s.speeds[1] * 0.5;
    s.seen = s.seen.map(|seen| seen.maximum(&s.position));
    s.count = s.count + 1;
    let out = vec![s.position.clone(), s.speeds[1].sum(.., false)];
    (s, out)
}

fn start() -> State {
    State {
        position: values(&[2, 3], 1),
        speeds: vec![values(&[2, 3], 2), values(&[2, 3], 3)],
        seen: Some(values(&[2, 3], 4)),
        count: Tensor::new(&[0i32], &[] as &[i64]),
    }
}

#[test]
fn trees_are_carried_and_gathered() -> Result<()> {
    for times in [1, 2, 3, 6] {
        let pushes = Push {
            force: values(&[times, 2, 3], 5),
            mask: (values(&[times, 3], 6), None),
        };
        let row = |t: i64| Push {
            force: pushes.force.index(t),
            mask: (pushes.mask.0.index(t).expand([2, 3]), None),
        };
        let step = |s: State, mut p: Push| {
            p.mask.0 = p.mask.0.expand([2, 3]);
            pushed(s, p)
        };
        let (last, all) = scan(step, start(), &pushes)?;
        let mut state = start();
        for t in 0..times {
            let (next, out) = pushed(state, row(t));
            state = next;
            close(&all[0].index(t), &out[0]);
            close(&all[1].index(t), &out[1]);
        }
        close(&last.position, &state.position);
        close(&last.speeds[1], &state.speeds[1]);
        close(
            &last.seen.expect("it was passed"),
            &state.seen.expect("it was passed"),
        );
        assert_eq!(i64::from(last.count.item::<i32>()?), times);
    }
    Ok(())
}

#[test]
fn zero_elements_and_zero_times() -> Result<()> {
    let step = |a: Tensor, x: Tensor| (&a + x.sum(0, false), (a, x));
    let (last, (all, xs)) = scan(step, Tensor::zeros([0]), Tensor::zeros([4, 3, 0]))?;
    assert_eq!(last.shape()?, [0]);
    assert_eq!(all.shape()?, [4, 0]);
    assert_eq!(xs.to_vec::<f32>()?.len(), 0);
    let begin = values(&[2], 1).parameter();
    let xs = Tensor::zeros([0, 3, 2]);
    let (last, (all, parts)) = scan(step, &begin, &xs)?;
    assert_eq!(read(&last), read(&begin));
    assert_eq!((all.shape()?, parts.shape()?), (vec![0, 2], vec![0, 3, 2]));
    let g = last.square().sum(.., false).gradient(&[&begin])?;
    close(&g[0], &(&begin * 2.0));
    Ok(())
}

#[test]
fn nothing_gathered_nothing_carried() -> Result<()> {
    let xs = values(&[5, 3], 1).parameter();
    let (_, all) = scan(|_: (), x: Tensor| ((), x.exp()), (), &xs)?;
    close(&all, &xs.exp());
    let (sum, ()) = scan(
        |s: Tensor, x: Tensor| (s * 0.5 + x, ()),
        Tensor::zeros([3]),
        &xs,
    )?;
    let mut plain = Tensor::zeros([3]);
    for t in 0..5 {
        plain = plain * 0.5 + xs.index(t);
    }
    close(&sum, &plain);
    let one = sum.square().sum(.., false).gradient(&[&xs])?;
    let other = plain.square().sum(.., false).gradient(&[&xs])?;
    close(&one[0], &other[0]);
    Ok(())
}

#[test]
fn dropout_draws_what_a_loop_draws() -> Result<()> {
    let w = values(&[6, 6], 2).parameter();
    let xs = values(&[7, 2, 6], 1).parameter();
    let step = |h: Tensor, x: Tensor| {
        let h = (h.matmul(&w) + x).dropout(0.4).tanh();
        (h.clone(), h.dropout(0.2))
    };
    Tensor::manual_seed(11);
    let (last, all) = scan(step, Tensor::zeros([2, 6]), &xs)?;
    let one = (last.sum(.., false) + all.square().sum(.., false)).gradient(&[&w, &xs])?;
    Tensor::manual_seed(11);
    let mut h = Tensor::zeros([2, 6]);
    let mut every = Vec::new();
    for t in 0..7 {
        let (next, out) = step(h, xs.index(t));
        h = next;
        every.push(out);
    }
    let plain = Tensor::stack(&every.iter().collect::<Vec<_>>(), 0);
    close(&all, &plain);
    let other = (h.sum(.., false) + plain.square().sum(.., false)).gradient(&[&w, &xs])?;
    close(&one[0], &other[0]);
    close(&one[1], &other[1]);
    Ok(())
}

#[test]
fn parts_of_what_is_reached_are_written() -> Result<()> {
    let table = Tensor::zeros([4, 2]).parameter();
    let calls = Tensor::new(&[0i32], &[] as &[i64]).parameter();
    let step = |s: Tensor, x: Tensor| {
        table.index(1).assign(table.index(1) * 0.5 + &x);
        table.narrow(0, 2, 2).assign(table.narrow(0, 0, 2) + 1.0);
        calls.assign(&calls + 1);
        (s + table.sum(0, false), table.index(3))
    };
    let xs = values(&[6, 2], 3);
    let (sum, all) = scan_reversed(step, Tensor::zeros([2]), &xs)?;
    Tensor::realize_all(&[&sum, &all, &table, &calls])?;
    let scanned = [read(&sum), read(&all.index(0)), read(&table)];
    assert_eq!(calls.item::<i32>()?, 6);
    table.assign(Tensor::zeros([4, 2]));
    let mut s = Tensor::zeros([2]);
    let mut last = Tensor::zeros([2]);
    for t in (0..6).rev() {
        let (next, row) = step(s, xs.index(t));
        s = next;
        last = row;
    }
    let plain = [read(&s), read(&last), read(&table)];
    for (a, b) in scanned.iter().zip(&plain) {
        for (x, y) in a.iter().zip(b) {
            assert!((x - y).abs() <= 1e-5, "{scanned:?} {plain:?}");
        }
    }
    Ok(())
}

#[test]
fn views_and_other_dtypes_go_in() -> Result<()> {
    let base = values(&[3, 8, 4], 1);
    // Every second time of a transposed view, the last first.
    let xs = base
        .transpose(0, 1)
        .flip(0)
        .narrow(0, 1, 6)
        .index((.., 1..3));
    let ints = (values(&[6, 3], 2) * 100.0).cast(DType::I64);
    let flags = ints.gt(0);
    let step = |(sum, any): (Tensor, Tensor), (x, n, f): (Tensor, Tensor, Tensor)| {
        let sum = sum * 2.0 + x.sum(.., false) + f.select(&n, 0).sum(.., false).cast(DType::F32);
        let any = any | &f;
        ((sum.clone(), any.clone()), (n * 3, any))
    };
    let begin = (0.0f32, Tensor::zeros([3]).cast(DType::Bool));
    let ((sum, any), (threes, every)) = scan(step, begin, (&xs, &ints, &flags))?;
    let mut state = (
        Tensor::zeros(&[] as &[i64]),
        Tensor::zeros([3]).cast(DType::Bool),
    );
    for t in 0..6 {
        state = step(state, (xs.index(t), ints.index(t), flags.index(t))).0;
    }
    close(&sum, &state.0);
    assert_eq!(any.to_vec::<bool>()?, state.1.to_vec::<bool>()?);
    assert_eq!(every.index(5).to_vec::<bool>()?, any.to_vec::<bool>()?);
    assert_eq!(threes.to_vec::<i64>()?, (ints * 3).to_vec::<i64>()?);
    Ok(())
}

#[test]
fn threads_scan_at_once() -> Result<()> {
    let w = values(&[8, 8], 1).parameter();
    w.realize()?;
    let step = jit(|xs: Tensor| {
        let step = |h: Tensor, x: Tensor| {
            let h = (h.matmul(&w) + x).tanh();
            (h.clone(), h)
        };
        let (last, all) = scan(step, Tensor::zeros([4, 8]), &xs)?;
        let loss = last.sum(.., false) + all.square().sum(.., false);
        Ok(loss.gradient(&[&w])?.remove(0))
    })?;
    let plain: Vec<Tensor> = (0..4)
        .map(|k| step.call(values(&[20, 4, 8], k)))
        .collect::<Result<_>>()?;
    std::thread::scope(|s| {
        for k in 0..4 {
            let step = &step;
            let plain = &plain;
            s.spawn(move || {
                for _ in 0..5 {
                    let g = step.call(values(&[20, 4, 8], k)).expect("it runs");
                    assert_eq!(read(&g), read(&plain[k as usize]));
                }
            });
        }
    });
    Ok(())
}

/// What a time gives as one number, with numbers that are the same each time.
#[test]
fn single_numbers_meet() -> Result<()> {
    let number = Tensor::new(&[0.75f32], &[] as &[i64]).parameter();
    let w = values(&[3], 5).parameter();
    let v = values(&[4], 6).parameter();
    let xs = values(&[5, 3], 7).parameter();
    type Step<'a> = &'a dyn Fn(&Tensor) -> Tensor;
    let steps: [Step; 6] = [
        &|x| x.sum(.., false) + w.sum(.., false),
        &|x| x.sum(.., false) * w.mean(.., false) + &number,
        &|x| (x * &w).sum(.., false).square() + v.square().sum(.., false) * 0.01,
        &|x| (x.sum(.., false) + w.index(0)).maximum(&(&number * 2.0)),
        &|x| x.index(1) - &number,
        &|x| {
            x.sum(.., false)
                .gt(&number)
                .select(w.sum(.., false), x.index(0))
        },
    ];
    for step in steps {
        let (_, got) = scan(|(): (), x: Tensor| ((), step(&x)), (), &xs)?;
        let lines: Vec<Tensor> = (0..5).map(|t| step(&xs.index(t))).collect();
        let want = Tensor::stack(&lines.iter().collect::<Vec<_>>(), 0);
        close(&got, &want);
        let to: Vec<&Tensor> = vec![&xs, &w];
        // A step of them reads no weights.
        let of = |y: &Tensor| (y.square().sum(.., false) + w.sum(.., false)).gradient(&to);
        for (a, b) in of(&got)?.iter().zip(&of(&want)?) {
            close(a, b);
        }
    }
    Ok(())
}

#[test]
fn what_a_scan_does_not_take_is_told() {
    let xs = values(&[3, 4], 1);
    let told = |made: Result<(Tensor, Tensor)>, words: &str| {
        let read = made.and_then(|(_, y)| y.to_vec::<f32>());
        let e = read.expect_err(words).to_string();
        assert!(e.contains(words), "{e}");
        assert!(e.contains("odd_scans.rs"), "{e}");
    };
    let sizes = xs.dynamic(1, 1..=5);
    let step = |h: Tensor, x: Tensor| (h.tanh(), x * 2.0);
    told(scan(step, Tensor::zeros([1]), &sizes), "varies");
    let away = |h: Tensor, x: Tensor| ((h + &x).to(Device::new("INTERP")), x);
    told(
        scan(away, Tensor::zeros([4]), &xs),
        "carry 0 is on CPU, and then on INTERP",
    );
}

/// What is added each time, of one size along an axis of the carry, is summed at once: its sizes are those of what is around.
#[test]
fn sums_over_the_times_are_of_the_lengths_around() -> Result<()> {
    let step = |(h, same): (Tensor, Tensor), _: Tensor| ((&h + &same, same), ());
    for (n, times) in [(2, 1), (2, 3), (6, 2), (1, 4)] {
        let x = values(&[n, 3], 1);
        let column = values(&[n, 1], 2);
        let xs = Tensor::ones([times, 2]);
        let of = |x: &Tensor, column: &Tensor| -> Result<Vec<f32>> {
            let ((h, same), ()) = scan(step, (x.clone(), column.clone()), &xs)?;
            (h + same * 10.0).to_vec::<f32>()
        };
        let varying = of(&x.dynamic(0, 1..=6), &column.dynamic(0, 1..=6))?;
        let want = (&x + &column * (times as f64 + 10.0)).to_vec::<f32>()?;
        for (got, want) in [varying, of(&x, &column)?]
            .iter()
            .flat_map(|g| g.iter().zip(&want))
        {
            assert!((got - want).abs() < 1e-4, "{n} {times}: {got}, not {want}");
        }
    }
    Ok(())
}
