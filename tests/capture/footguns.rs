//! What captured functions get wrong elsewhere. Flows in: functions that alias, assign, read, keep and pass what
//! they should not; flows out: the values of the function itself, or a typed error.

use monoglot::prelude::*;
use std::sync::Mutex;

fn f32s(t: &Tensor) -> Vec<f32> {
    t.to_vec().expect("f32 values")
}

fn of(values: &[f32]) -> Tensor {
    Tensor::new(values, [values.len()])
}

fn capture_error<T>(r: Result<T>) -> String {
    let e = r.err().expect("an error");
    assert!(matches!(e.kind(), ErrorKind::Capture { .. }), "{e}");
    assert!(e.to_string().contains("footguns.rs"), "{e}");
    e.to_string()
}

#[test]
fn results_of_earlier_calls_stay() -> Result<()> {
    let double = jit(|x: &Tensor| x * 2.0)?;
    let mut all = Vec::new();
    for k in 0..5 {
        all.push(double.call(of(&[k as f32, 1.0]))?);
    }
    for (k, t) in all.iter().enumerate() {
        assert_eq!(f32s(t), [2.0 * k as f32, 2.0]);
    }
    Ok(())
}

#[test]
fn an_output_may_be_an_input_or_a_part_of_it() -> Result<()> {
    let x = of(&[1., 2., 3., 4.]);
    let same = jit(|x: &Tensor| (x.clone(), x.narrow(0, 1, 2), x.reshape([2, 2]), x * 1.0))?;
    let (y, part, square, copy) = same.call(&x)?;
    x.assign(9.0).realize()?;
    // The first is the tensor that was passed, as it is without a capture.
    assert_eq!(f32s(&y), [9.; 4]);
    assert_eq!(f32s(&part), [2., 3.]);
    assert_eq!(f32s(&square), [1., 2., 3., 4.]);
    assert_eq!(f32s(&copy), [1., 2., 3., 4.]);
    // A part that is given out is a view still.
    let (_, part, ..) = same.call(&x)?;
    part.assign(0.0);
    assert_eq!(f32s(&x), [9., 0., 0., 9.]);
    Ok(())
}

#[test]
fn two_outputs_of_one_value_and_one_tensor_twice() -> Result<()> {
    let step = jit(|x: &Tensor| {
        let y = (x * 3.0).contiguous();
        (y.clone(), y.reshape([2, 2]), y.clone(), &y + 1.0)
    })?;
    for k in 0..3 {
        let (a, b, c, d) = step.call(of(&[k as f32, 1., 2., 3.]))?;
        let want = [3.0 * k as f32, 3., 6., 9.];
        assert_eq!(f32s(&b), want);
        a.assign(0.0);
        assert_eq!(f32s(&c), [0.; 4], "one tensor given twice is one tensor");
        assert_eq!(f32s(&b), want);
        assert_eq!(f32s(&d), want.map(|v| v + 1.0));
    }
    Ok(())
}

#[test]
fn one_tensor_passed_twice_and_then_two() -> Result<()> {
    let step = jit(|x: &Tensor, y: &Tensor| -> Result<(Tensor, Vec<Tensor>)> {
        let z = x * y;
        let g = z.sum(.., false).gradient(&[x])?;
        Ok((z, g))
    })?;
    let a = of(&[2., 3.]);
    let b = of(&[5., 7.]);
    let (z, g) = step.call((&a, &b))?;
    assert_eq!((f32s(&z), f32s(&g[0])), (vec![10., 21.], vec![5., 7.]));
    let (z, g) = step.call((&a, &a))?;
    assert_eq!((f32s(&z), f32s(&g[0])), (vec![4., 9.], vec![4., 6.]));
    let (z, g) = step.call((&b, &a))?;
    assert_eq!((f32s(&z), f32s(&g[0])), (vec![10., 21.], vec![2., 3.]));
    // Equal in value is not the same tensor; equal expressions are.
    let (_, g) = step.call((of(&[2., 3.]), of(&[2., 3.])))?;
    assert_eq!(f32s(&g[0]), [2., 3.]);
    Ok(())
}

#[test]
fn a_tensor_that_is_passed_and_reached() -> Result<()> {
    let w = of(&[2., 3.]);
    let body = |x: &Tensor| -> Result<(Tensor, Tensor)> {
        let z = x * &w;
        let g = z.sum(.., false).gradient(&[x])?.remove(0);
        Ok((z, g))
    };
    let step = jit(body)?;
    for x in [of(&[1., 1.]), w.clone(), of(&[4., 4.]), w.clone()] {
        let (z, g) = step.call(&x)?;
        let (want_z, want_g) = body(&x)?;
        assert_eq!((f32s(&z), f32s(&g)), (f32s(&want_z), f32s(&want_g)));
    }
    // The same, first seen with the tensor itself.
    let step = jit(body)?;
    for x in [w.clone(), of(&[1., 1.]), w.clone()] {
        let (z, g) = step.call(&x)?;
        let (want_z, want_g) = body(&x)?;
        assert_eq!((f32s(&z), f32s(&g)), (f32s(&want_z), f32s(&want_g)));
    }
    Ok(())
}

#[test]
fn other_shapes_dtypes_and_views_are_other_programs() -> Result<()> {
    let body = |x: &Tensor| (x.sum(.., false), x.transpose(0, 1).contiguous());
    let step = jit(body)?;
    let wide = Tensor::new(&[1f32, 2., 3., 4., 5., 6.], [2, 3]);
    let inputs = [
        wide.clone(),
        wide.transpose(0, 1),
        wide.narrow(1, 1, 2),
        wide.narrow(0, 1, 1),
        wide.narrow(0, 0, 1),
        wide.flip(1),
        wide.cast(DType::I32),
        &wide + 1.0,
        Tensor::ones([2, 3]),
        wide.clone(),
    ];
    for x in &inputs {
        let (sum, turned) = step.call(x)?;
        let (want_sum, want) = body(x);
        assert_eq!(sum.to_bytes()?, want_sum.to_bytes()?);
        assert_eq!(turned.to_bytes()?, want.to_bytes()?);
        assert_eq!(turned.shape()?, want.shape()?);
    }
    Ok(())
}

#[test]
fn slices_of_one_tensor_share_a_program() -> Result<()> {
    let step = jit(|x: &Tensor| x * 2.0)?;
    let all = Tensor::new(&(0..32).map(|i| i as f32).collect::<Vec<_>>(), [8, 4]);
    for k in 0..8 {
        let got = step.call(all.narrow(0, k, 1))?;
        let at = 8.0 * k as f32;
        assert_eq!(f32s(&got), [at, at + 2., at + 4., at + 6.]);
    }
    assert_eq!(step.programs(), 1);
    Ok(())
}

#[test]
fn what_is_reached_is_looked_up_at_every_call() -> Result<()> {
    let w = of(&[1., 2.]);
    let step = jit(|x: &Tensor| x + &w)?;
    let x = of(&[10., 20.]);
    assert_eq!(f32s(&step.call(&x)?), [11., 22.]);
    w.assign(&w * 5.0);
    assert_eq!(f32s(&step.call(&x)?), [15., 30.]);
    w.assign(0.0).realize()?;
    assert_eq!(f32s(&step.call(&x)?), [10., 20.]);
    // Somebody else holds the earlier version meanwhile.
    let before = &w * 1.0;
    w.assign(7.0);
    assert_eq!(f32s(&step.call(&x)?), [17., 27.]);
    assert_eq!(f32s(&before), [0., 0.]);
    assert_eq!(step.programs(), 1);
    Ok(())
}

#[test]
fn constants_that_become_data_are_seen() -> Result<()> {
    let c = Tensor::full([2], 3.0f32);
    let step = jit(|x: &Tensor| x * &c)?;
    let x = of(&[1., 2.]);
    assert_eq!(f32s(&step.call(&x)?), [3., 6.]);
    c.assign(4.0);
    assert_eq!(f32s(&step.call(&x)?), [4., 8.]);
    c.assign(of(&[5., 6.]));
    assert_eq!(f32s(&step.call(&x)?), [5., 12.]);
    c.rebind(&of(&[1., 1.]));
    assert_eq!(f32s(&step.call(&x)?), [1., 2.]);
    Ok(())
}

#[test]
fn what_is_assigned_is_written() -> Result<()> {
    let total = of(&[0., 0.]);
    let count = Tensor::scalar(0i32);
    let step = jit(|x: &Tensor| {
        total.assign(&total + x);
        count.assign(&count + 1);
    })?;
    for k in 1..=4 {
        step.call(of(&[k as f32, 1.0]))?;
    }
    assert_eq!(f32s(&total), [10., 4.]);
    assert_eq!(count.item::<i32>()?, 4);
    // Who holds an earlier value keeps it.
    let earlier = total.index(0) * 1.0;
    step.call(of(&[1., 1.]))?;
    assert_eq!(earlier.item::<f32>()?, 10.0);
    assert_eq!(f32s(&total), [11., 5.]);
    assert_eq!(step.programs(), 1);
    Ok(())
}

#[test]
fn parts_of_what_is_reached_are_assigned() -> Result<()> {
    let run = |captured: bool| -> Result<Vec<f32>> {
        let table = Tensor::new(&[0f32; 12], [4, 3]);
        let last = table.index(3);
        let body = |x: &Tensor, y: &Tensor| {
            table.index(1).assign(x);
            let before = table.sum(0, false);
            last.assign(y);
            table.index(0).assign(&before + &last);
            last.clone()
        };
        let step = jit(body)?;
        let mut out = Vec::new();
        for k in 0..4 {
            let x = of(&[k as f32, 1., 2.]);
            let y = of(&[1., k as f32, 3.]);
            let l = if captured {
                step.call((&x, &y))?
            } else {
                body(&x, &y)
            };
            out.extend(f32s(&l));
            out.extend(f32s(&table));
            out.extend(f32s(&last));
        }
        Ok(out)
    };
    assert_eq!(run(false)?, run(true)?);
    Ok(())
}

#[test]
fn arguments_that_are_assigned_change() -> Result<()> {
    let step = jit(|cache: &Tensor, x: &Tensor| {
        let before = cache * 1.0;
        cache.index((1,)).assign(x);
        before
    })?;
    let a = Tensor::new(&[0f32; 4], [2, 2]);
    let b = Tensor::new(&[1f32; 4], [2, 2]);
    for (cache, v) in [(&a, 5.0), (&b, 6.0), (&a, 7.0)] {
        let want = f32s(cache);
        assert_eq!(f32s(&step.call((cache, of(&[v, v])))?), want);
        assert_eq!(f32s(cache)[2..], [v, v]);
    }
    assert_eq!(
        (f32s(&a), f32s(&b)),
        (vec![0., 0., 7., 7.], vec![1., 1., 6., 6.])
    );
    let whole = Tensor::new(&[0f32; 8], [4, 2]);
    let told = capture_error(step.call((whole.narrow(0, 0, 2), of(&[1., 1.]))));
    assert!(told.contains("is a view"), "{told}");
    assert_eq!(f32s(&whole), [0.; 8]);
    Ok(())
}

#[test]
fn one_tensor_passed_for_two_that_are_written() -> Result<()> {
    let body = |a: &Tensor, b: &Tensor| {
        a.assign(a + 1.0);
        b.assign(b * 2.0);
        a + b
    };
    let step = jit(body)?;
    let x = of(&[1., 2.]);
    let y = of(&[3., 4.]);
    for captured in [true, false] {
        let run = |a: &Tensor, b: &Tensor| match captured {
            true => step.call((a, b)),
            false => Ok(body(a, b)),
        };
        let x = x.contiguous();
        let y = y.contiguous();
        assert_eq!(f32s(&run(&x, &y)?), [8., 11.]);
        assert_eq!((f32s(&x), f32s(&y)), (vec![2., 3.], vec![6., 8.]));
        assert_eq!(f32s(&run(&x, &x)?), [12., 16.]);
        assert_eq!(f32s(&x), [6., 8.]);
    }
    Ok(())
}

#[test]
fn random_numbers_are_those_of_the_function() -> Result<()> {
    let _stream = crate::stream();
    let body = |x: &Tensor| {
        let noise = Tensor::randn([3]);
        let kept = x.dropout(0.5);
        (kept + noise, Tensor::randint([2], 0, 100))
    };
    let step = jit(body)?;
    let run = |captured: bool| -> Result<Vec<f32>> {
        Tensor::manual_seed(11);
        let mut out = Vec::new();
        for k in 0..5 {
            let x = of(&[1., 2., k as f32]);
            let (a, b) = if captured { step.call(&x)? } else { body(&x) };
            out.extend(f32s(&a));
            out.extend(b.to_vec::<i32>()?.into_iter().map(|v| v as f32));
            out.extend(f32s(&Tensor::rand([1])));
        }
        Ok(out)
    };
    let plain = run(false)?;
    assert_eq!(run(true)?, plain);
    assert_ne!(plain[..3], plain[6..9]);
    let seeded = jit(|| {
        Tensor::manual_seed(2);
        Tensor::rand([2])
    })?;
    assert_eq!(f32s(&seeded.call(())?), f32s(&seeded.call(())?));
    Ok(())
}

#[test]
fn to_read_what_depends_on_the_call_is_an_error() -> Result<()> {
    let w = of(&[1., 2.]);
    let item = jit(|x: &Tensor| -> Result<Tensor> {
        let scale = x.sum(.., false).item::<f32>()?;
        Ok(x * scale)
    })?;
    assert!(capture_error(item.call(&w)).contains("return it"));
    let reached = jit(|x: &Tensor| -> Result<Tensor> { Ok(x * w.to_vec::<f32>()?[0]) })?;
    capture_error(reached.call(of(&[1., 1.])));
    let drawn =
        jit(|| -> Result<Tensor> { Ok(Tensor::ones([1]) * Tensor::rand([1]).item::<f32>()?) })?;
    capture_error(drawn.call(()));
    // What does not depend on it may be read.
    let shape = jit(|x: &Tensor| -> Result<Tensor> {
        let n = (Tensor::ones([2]) * 2.0).sum(.., false).item::<f32>()?;
        Ok(x * n)
    })?;
    assert_eq!(f32s(&shape.call(&w)?), [4., 8.]);
    // Nothing was changed by what failed.
    assert_eq!(f32s(&w), [1., 2.]);
    Ok(())
}

#[test]
fn what_fails_or_panics_while_it_is_captured_changes_nothing() -> Result<()> {
    let w = of(&[1., 2.]);
    let fails = jit(|x: &Tensor| -> Result<Tensor> {
        w.assign(x);
        let wrong = x.reshape([7]);
        wrong.check()?;
        Ok(wrong)
    })?;
    assert!(fails.call(of(&[5., 5.])).is_err());
    assert_eq!(f32s(&w), [1., 2.]);
    let panics = jit(|x: &Tensor| -> Tensor {
        w.assign(x);
        panic!("within a function")
    })?;
    let x = of(&[5., 5.]);
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| panics.call(&x).is_ok()));
    assert!(caught.is_err());
    assert_eq!(f32s(&w), [1., 2.]);
    assert_eq!(f32s(&(&w + &x)), [6., 7.]);
    // An error that a result carries is the call's.
    let carries = jit(|x: &Tensor| x.reshape([3]))?;
    let e = carries.call(&x).map(|_| ()).expect_err("2 are no 3");
    assert!(matches!(e.kind(), ErrorKind::Shape { .. }), "{e}");
    Ok(())
}

#[test]
fn what_leaves_a_function_another_way_has_no_value() -> Result<()> {
    let left: Mutex<Vec<Tensor>> = Mutex::default();
    let step = jit(|x: &Tensor| {
        let y = x * 2.0;
        left.lock().expect("one thread").push(y.clone());
        y + 1.0
    })?;
    assert_eq!(f32s(&step.call(of(&[1.]))?), [3.]);
    let t = left.lock().expect("one thread")[0].clone();
    capture_error(t.to_vec::<f32>());
    capture_error((&t + 1.0).realize());
    Ok(())
}

#[test]
fn functions_nest_and_their_parameters_stay_apart() -> Result<()> {
    let w = of(&[10., 20.]);
    let inner = jit(|x: &Tensor, y: &Tensor| {
        w.assign(&w + 1.0);
        x * 2.0 + y + &w
    })?;
    let outer = jit(|y: &Tensor, x: &Tensor| -> Result<Tensor> {
        let a = inner.call((x, y))?;
        let b = inner.call((&a, x))?;
        Ok(a - b)
    })?;
    for k in 0..3 {
        let x = of(&[k as f32, 1.]);
        let y = of(&[2., k as f32]);
        let n = 2.0 * k as f32;
        let got = f32s(&outer.call((&y, &x))?);
        let a = [2. * k as f32 + 2. + 11. + n, 2. + k as f32 + 21. + n];
        let b = [2. * a[0] + k as f32 + 12. + n, 2. * a[1] + 1. + 22. + n];
        assert_eq!(got, [a[0] - b[0], a[1] - b[1]]);
    }
    assert_eq!(f32s(&w), [16., 26.]);
    assert_eq!((outer.programs(), inner.programs()), (1, 0));
    assert_eq!(
        f32s(&inner.call((of(&[0., 0.]), of(&[0., 0.])))?),
        [17., 27.]
    );
    Ok(())
}

#[test]
fn a_function_that_calls_itself_is_an_error() -> Result<()> {
    static SELF: std::sync::OnceLock<Jit<'static, (Tensor,), Tensor>> = std::sync::OnceLock::new();
    let step = jit(|x: &Tensor| -> Result<Tensor> {
        match SELF.get() {
            Some(step) => step.call(x * 0.5),
            None => Ok(x.clone()),
        }
    })?;
    assert!(SELF.set(step).is_ok());
    let told = capture_error(SELF.get().expect("set").call(of(&[1.])));
    assert!(told.contains("calls itself"), "{told}");
    Ok(())
}

#[test]
fn captures_and_tensors_may_go_first() -> Result<()> {
    let y;
    let step;
    {
        let w = of(&[1., 2.]);
        step = jit(move |x: &Tensor| {
            w.assign(&w + x);
            &w * 1.0
        })?;
        let x = of(&[1., 1.]);
        y = step.call(x)?;
    }
    assert_eq!(f32s(&step.call(of(&[1., 1.]))?), [3., 4.]);
    drop(step);
    assert_eq!(f32s(&y), [2., 3.]);
    Ok(())
}

#[test]
fn many_threads_call_one_function() -> Result<()> {
    let w = of(&[1., 2., 3., 4.]);
    let pure = jit(|x: &Tensor| (x * &w).sum(0, false) + (x + &w).max(0, false))?;
    let total = Tensor::scalar(0f32);
    let adding = jit(|x: &Tensor| {
        total.assign(&total + x);
    })?;
    std::thread::scope(|s| {
        for t in 0..4 {
            let pure = &pure;
            let adding = &adding;
            s.spawn(move || {
                for k in 0..50 {
                    let v = (t * 100 + k) as f32;
                    let got = pure.call(of(&[v; 4])).expect("a call");
                    assert_eq!(got.item::<f32>().expect("a number"), 10. * v + v + 4.);
                    adding.call(1.0f32).expect("a call");
                }
            });
        }
    });
    assert_eq!(total.item::<f32>()?, 200.0);
    Ok(())
}

#[test]
fn captured_and_plain_steps_on_many_threads_lose_nothing() -> Result<()> {
    let total = Tensor::new(&[0f32; 64], [64]);
    let add = jit(|x: &Tensor| {
        total.assign(&total + x);
        &total * 1.0
    })?;
    let also = jit(|x: &Tensor| {
        total.assign(&total - x);
    })?;
    std::thread::scope(|s| {
        for k in 0..5 {
            let add = &add;
            let also = &also;
            let total = &total;
            s.spawn(move || {
                for _ in 0..60 {
                    let seen = match k {
                        0 | 1 => add.call(2.0f32).expect("a call"),
                        2 => total * 1.0,
                        3 => {
                            total.assign(total + 4.0).realize().expect("a step");
                            total + 0.0
                        }
                        _ => {
                            also.call(0.0f32).expect("a call");
                            total.contiguous()
                        }
                    };
                    let seen = f32s(&seen);
                    assert!(seen.iter().all(|v| *v == seen[0]), "{seen:?}");
                    assert_eq!(seen[0] % 2.0, 0.0);
                }
            });
        }
    });
    // Calls of one function come one after the other; those of two leave one of their values.
    let last = f32s(&total)[0];
    assert!(last > 0.0 && last <= 480.0, "{last}");
    Ok(())
}

#[test]
fn broken_assertions_change_nothing_and_say_where() -> Result<()> {
    let table = Tensor::new(&[1f32, 2., 3., 4.], [2, 2]);
    let seen = Tensor::scalar(0i32);
    let step = jit(|ids: &Tensor| {
        seen.assign(&seen + 1);
        table.assign(&table * 2.0);
        table.embedding(ids)
    })?;
    let ids = |v: &[i32]| Tensor::new(v, [v.len()]);
    assert_eq!(f32s(&step.call(ids(&[1, 0]))?), [6., 8., 2., 4.]);
    let e = step
        .call(ids(&[1, 5]))
        .map(|_| ())
        .expect_err("there is no row 5");
    let ErrorKind::OutOfRange { value, .. } = e.kind() else {
        panic!("{e}");
    };
    assert_eq!(*value, Some(5));
    assert_eq!(seen.item::<i32>()?, 1);
    assert_eq!(f32s(&table), [2., 4., 6., 8.]);
    assert_eq!(f32s(&step.call(ids(&[0, 1]))?), [4., 8., 12., 16.]);
    Ok(())
}

#[test]
fn lengths_that_vary_are_passed() -> Result<()> {
    let most = 32;
    let length = monoglot::Variable::new(1..=most)?;
    let table = Tensor::new(&(0..64).map(|i| i as f32).collect::<Vec<_>>(), [32, 2]);
    let step = jit(|n: monoglot::Size, x: Tensor| {
        let rows = table.narrow(0, 0, &n);
        (rows.sum(0, false) + x, rows * 2.0, n)
    })?;
    for n in [1, 5, 32, 2] {
        let (sum, rows, back) = step.call((length.bind(n)?, of(&[0.5, 0.5])))?;
        let want: f32 = (0..n).map(|i| 2. * i as f32).sum();
        assert_eq!(f32s(&sum), [want + 0.5, want + n as f32 + 0.5]);
        assert_eq!(rows.shape()?, [n as usize, 2]);
        let all: Vec<f32> = (0..2 * n).map(|i| 2. * i as f32).collect();
        assert_eq!(f32s(&rows), all);
        assert_eq!(back.value(), n);
    }
    assert_eq!(step.programs(), 1);
    // So are tensors whose lengths vary.
    let sums = jit(|x: &Tensor| x.sum(0, false))?;
    for n in [3, 7, 1] {
        let got = sums.call(table.narrow(0, 0, length.bind(n)?))?;
        let want: f32 = (0..n).map(|i| 2. * i as f32).sum();
        assert_eq!(f32s(&got), [want, want + n as f32]);
    }
    assert_eq!(sums.programs(), 1);
    Ok(())
}

#[test]
fn lengths_whose_numbers_are_asked_for_are_not_kept() -> Result<()> {
    let length = monoglot::Variable::new(0..=30)?;
    let table = Tensor::new(&(0..64).map(|i| i as f32).collect::<Vec<_>>(), [32, 2]);
    let mean = jit(|x: &Tensor| -> Result<Tensor> { Ok(x.sum(0, false) / x.shape()?[0] as f64) })?;
    let shifted = jit(|n: &monoglot::Size| table.narrow(0, n, 2) + n.value() as f64)?;
    for n in [4i64, 3, 8, 4] {
        let got = mean.call(table.narrow(0, 0, length.bind(n)?))?;
        assert_eq!(f32s(&got), [n as f32 - 1.0, n as f32]);
        let at = 3.0 * n as f32;
        assert_eq!(
            f32s(&shifted.call(length.bind(n)?)?),
            [at, at + 1., at + 2., at + 3.]
        );
    }
    // What a view would leave is an error for the values for which it is one uncaptured.
    let numbers = Tensor::arange(0, 32, 1);
    let part = jit(|n: &monoglot::Size| numbers.narrow(0, n, 4).sum(.., false))?;
    assert!(part.call(length.bind(28)?).is_ok());
    let e = part
        .call(length.bind(29)?)
        .map(|_| ())
        .expect_err("4 from 29 of 32");
    assert!(matches!(e.kind(), ErrorKind::Argument { .. }), "{e}");
    assert_eq!(part.call(length.bind(1)?)?.item::<i64>()?, 10);
    assert_eq!(part.programs(), 1);
    Ok(())
}

#[test]
fn rates_are_set_within_and_numbers_are_weak() -> Result<()> {
    let _stream = crate::stream();
    let run = |captured: bool| -> Result<(Vec<f32>, f32)> {
        let net = Linear::new(2, 1);
        net.weight.assign(1.0).realize()?;
        net.bias.iter().for_each(|b| drop(b.assign(0.5)));
        let sgd = Sgd::new(&net, 0.5);
        let body = |x: &Tensor, rate: &Tensor| -> Result<()> {
            sgd.trained().rate().rebind(rate);
            sgd.step(&net.forward(x).sum(.., false))
        };
        let step = jit(body)?;
        for k in 1..4 {
            let x = of(&[k as f32, 1.0]).reshape([1, 2]);
            let rate = 0.25 / k as f64;
            match captured {
                true => step.call((&x, rate))?,
                false => body(&x, &Tensor::scalar(rate))?,
            }
        }
        assert_eq!(net.weight.dtype()?, DType::F32);
        Ok((
            f32s(&net.weight),
            sgd.trained().rate().item::<f64>()? as f32,
        ))
    };
    assert_eq!(run(true)?, run(false)?);
    let scaled = jit(|x: &Tensor, by: &Tensor| x * by)?;
    assert_eq!(scaled.call((of(&[1., 2.]), 0.5))?.dtype()?, DType::F32);
    assert_eq!(f32s(&scaled.call((of(&[1., 2.]), 3))?), [3., 6.]);
    Ok(())
}

#[test]
fn functions_on_other_devices_and_over_several() -> Result<()> {
    for name in ["INTERP", "INTERP:GPU"] {
        let device = Device::new(name);
        let state = of(&[1., 2.]).to(device);
        state.realize()?;
        let step = jit(|x: &Tensor| {
            let there = x.to(device);
            state.assign(&state + &there);
            let sum = (&state * 2.0).sum(0, false);
            (sum.to(Device::new("CPU")) + x.sum(0, false), sum)
        })?;
        for k in 1..4 {
            let (here, there) = step.call(of(&[k as f32, 1.0]))?;
            let total = 3.0 + (1..=k).map(|i| i as f32 + 1.0).sum::<f32>();
            assert_eq!(there.item::<f32>()?, 2.0 * total);
            assert_eq!(here.item::<f32>()?, 2.0 * total + k as f32 + 1.0);
            assert_eq!(there.device()?, device);
        }
        assert_eq!(step.programs(), 1);
        let moved = step.call(of(&[1., 1.]).to(device));
        assert!(moved.is_err(), "x is on two devices at once in the sum");
    }
    Ok(())
}

#[test]
fn files_are_passed_and_reached() -> Result<()> {
    let path = std::env::temp_dir().join(format!("monoglot-captured-{}", std::process::id()));
    let bytes: Vec<u8> = (0..8).flat_map(|i| (i as f32).to_le_bytes()).collect();
    std::fs::write(&path, bytes).expect("written");
    let file = Tensor::open(&path, DType::F32);
    let cpu = Device::new("CPU");
    let step = jit(|x: &Tensor, part: &Tensor| x + part.to(cpu) + file.narrow(0, 6, 2).to(cpu))?;
    for at in [0, 4] {
        let part = file.narrow(0, at, 2);
        let at = at as f32;
        let got = f32s(&step.call((of(&[1., 2.]), &part))?);
        assert_eq!(got, [at + 7.0, at + 10.0]);
    }
    std::fs::remove_file(&path).expect("removed");
    Ok(())
}

#[test]
fn a_function_makes_tensors_of_its_own() -> Result<()> {
    let step = jit(|x: &Tensor| -> Result<(Tensor, Tensor)> {
        let sums = Tensor::new(&[0f32; 2], [2]);
        let table = Tensor::new(&[1f32, 2., 3., 4.], [2, 2]);
        for k in 0..2 {
            sums.index(k).assign((table.index(k) * x).sum(0, false));
        }
        let learned = x.parameter();
        let g = (&learned * &sums).sum(.., false).gradient(&[&learned])?;
        Ok((sums, g[0].clone()))
    })?;
    for k in 0..3 {
        let x = [k as f32, 1.0];
        let (sums, g) = step.call(of(&x))?;
        let want = [x[0] + 2.0, 3.0 * x[0] + 4.0];
        assert_eq!((f32s(&sums), f32s(&g)), (want.to_vec(), want.to_vec()));
        // What was given may be assigned, and the next call gives the same again.
        sums.assign(9.0).realize()?;
    }
    Ok(())
}

#[test]
fn values_that_are_not_there_yet_are_computed_first() -> Result<()> {
    let a = of(&[1., 2.]);
    let lazy = &a * 2.0;
    let step = jit(|x: &Tensor| x + &lazy)?;
    for k in 0..3 {
        let x = of(&[k as f32, 0.0]);
        assert_eq!(f32s(&step.call(&x * 10.0)?), [10.0 * k as f32 + 2.0, 4.0]);
    }
    // It has its history still.
    let g = lazy.sum(.., false).gradient(&[&a])?;
    assert_eq!(f32s(&g[0]), [2., 2.]);
    // What is assigned while it is an expression is written from then on.
    let count = &a + 0.0;
    let counting = jit(|| {
        count.assign(&count + 1.0);
    })?;
    (0..3).try_for_each(|_| counting.call(()))?;
    assert_eq!(f32s(&count), [4., 5.]);
    assert_eq!(f32s(&a), [1., 2.]);
    Ok(())
}

#[test]
fn storage_that_another_value_takes_over_is_not_the_tensors() -> Result<()> {
    let body = |x: &Tensor| {
        // The greatest of one row is the row: both are computed where it lies, if that may be written.
        let top = x.max(0, true);
        let all = (&top * &top + 1.0).log2();
        let part = top.narrow(1, 0, 5);
        part.assign(part.maximum(1.0));
        x.assign(&all);
        (top, all)
    };
    let step = jit(body)?;
    let data = [-2f32, 1., 3., 0., 2., 4., 1., -1.];
    let plain = Tensor::new(&data, [1, 8]);
    let captured = Tensor::new(&data, [1, 8]);
    for _ in 0..3 {
        let (top, all) = body(&plain);
        Tensor::realize_all(&[&top, &all, &plain])?;
        let (got_top, got_all) = step.call(&captured)?;
        assert_eq!(f32s(&got_top), f32s(&top));
        assert_eq!(f32s(&got_all), f32s(&all));
        assert_eq!(f32s(&captured), f32s(&plain));
    }
    Ok(())
}
