//! Operations of one's own: kernels in UOps, source text and closures among other tensors. Flows in: the
//! operations and what they are called with; flows out: comparisons with what the library computes, and the
//! errors of what does not fit.

use monoglot_tensor::*;

fn f32s(t: &Tensor) -> Vec<f32> {
    t.to_vec().expect("f32 values")
}

/// y = 2x of any shape of one axis.
fn double() -> CustomOp {
    CustomOp::kernel("double", |k| {
        let i = k.range(k.input(0).shape()[0].clone());
        let twice = k.input(0).at(&[i.clone()]) * 2.0;
        Ok(k.output(0).at(&[i.clone()]).store(&twice).end(&[i]))
    })
    .with_gradient(|b| Ok(vec![Some(&b.gradients[0] * 2.0)]))
}

/// The product of two matrices.
fn product() -> CustomOp {
    CustomOp::kernel("product", |k| {
        let [x, w] = [k.input(0), k.input(1)];
        let i = k.range(x.shape()[0].clone());
        let j = k.range(w.shape()[1].clone());
        let r = k.reduce_range(x.shape()[1].clone());
        let terms = x.at(&[i.clone(), r.clone()]) * w.at(&[r.clone(), j.clone()]);
        let sum = terms.reduce_ranges(ReduceOp::Add, &[r]);
        Ok(k.output(0)
            .at(&[i.clone(), j.clone()])
            .store(&sum)
            .end(&[i, j]))
    })
    .with_gradient(|b| {
        let g = &b.gradients[0];
        let x = g.matmul(&b.inputs[1].t());
        let w = b.inputs[0].t().matmul(g);
        Ok(vec![Some(x), Some(w)])
    })
}

/// The elements in order, by a closure.
fn sorted() -> CustomOp {
    CustomOp::function("sorted", |a| {
        let x = a.input::<f32>(0)?;
        let y = a.output::<f32>(0)?;
        y.copy_from_slice(x);
        y.sort_by(f32::total_cmp);
        Ok(())
    })
}

#[track_caller]
fn error(t: &Tensor) -> Error {
    match t.check().and_then(|()| t.realize()) {
        Err(e) => e,
        Ok(()) => panic!("it gives {t}"),
    }
}

#[track_caller]
fn says(t: &Tensor, words: &[&str]) {
    let text = error(t).to_string();
    for word in words {
        assert!(text.contains(word), "{word} is not in: {text}");
    }
    assert!(text.contains("tests/custom.rs:"), "no line: {text}");
}

#[test]
fn a_kernel_stands_among_others() {
    let x = Tensor::arange(0, 100, 1).cast(DType::F32);
    let op = double();
    let [y] = op.call([Output::new([100], DType::F32)], &[&(&x + 1.0)]);
    let z = &y * &x;
    let want: Vec<f32> = (0..100).map(|i| (2 * (i + 1) * i) as f32).collect();
    assert_eq!(f32s(&z), want);
    // On views, which are put in order first, and on what is of no device.
    let [y] = op.call(
        [Output::new([50], DType::F32)],
        &[&x.index((..,)).flip(0).narrow(0, 10, 50)],
    );
    let want: Vec<f32> = (0..50).map(|i| 2.0 * (89 - i) as f32).collect();
    assert_eq!(f32s(&y), want);
    let [y] = op.call([Output::new([4], DType::F32)], &[&Tensor::ones([4])]);
    let [y] = op.call([Output::new([4], DType::F32)], &[&y]);
    assert_eq!(f32s(&y), [4.0; 4]);
}

#[test]
fn kernels_have_gradients() {
    let x = Tensor::randn([37, 20]).parameter();
    let w = Tensor::randn([20, 33]).parameter();
    let [y] = product().call([Output::new([37, 33], DType::F32)], &[&x, &w]);
    let known = x.matmul(&w);
    let close = |a: &Tensor, b: &Tensor| {
        for (a, b) in f32s(a).iter().zip(f32s(b)) {
            assert!((a - b).abs() < 1e-4, "{a} {b}");
        }
    };
    close(&y, &known);
    let got = y.square().sum(.., false).gradient(&[&x, &w]).unwrap();
    let want = known.square().sum(.., false).gradient(&[&x, &w]).unwrap();
    close(&got[0], &want[0]);
    close(&got[1], &want[1]);
    // Of the gradient, too.
    let again = got[0].sum(.., false).gradient(&[&w]).unwrap();
    let known = want[0].sum(.., false).gradient(&[&w]).unwrap();
    close(&again[0], &known[0]);
}

#[test]
fn several_outputs_flow_back_together() {
    let op = CustomOp::kernel("both", |k| {
        let i = k.range(5);
        let x = k.input(0).at(&[i.clone()]);
        let sum = k.output(0).at(&[i.clone()]).store(&(&x + 1.0));
        let square = k.output(1).at(&[i.clone()]).store(&(&x * &x));
        Ok(UOp::sink(&[sum.end(&[i.clone()]), square.end(&[i])]))
    })
    .with_gradient(|b| {
        let [g, h] = [&b.gradients[0], &b.gradients[1]];
        Ok(vec![Some(g + &(h * &b.inputs[0] * 2.0))])
    });
    let x = Tensor::new(&[1.0f32, 2.0, 3.0, 4.0, 5.0], [5]).parameter();
    let both = || {
        op.call(
            [Output::new([5], DType::F32), Output::new([5], DType::F32)],
            &[&x],
        )
    };
    let [a, b] = both();
    assert_eq!(f32s(&a), [2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_eq!(f32s(&b), [1.0, 4.0, 9.0, 16.0, 25.0]);
    let [a, b] = both();
    let g = (a * 3.0 + b).sum(.., false).gradient(&[&x]).unwrap();
    assert_eq!(f32s(&g[0]), [5.0, 7.0, 9.0, 11.0, 13.0]);
    // One of them alone.
    let [_, b] = both();
    let g = b.sum(.., false).gradient(&[&x]).unwrap();
    assert_eq!(f32s(&g[0]), [2.0, 4.0, 6.0, 8.0, 10.0]);
    let [a, b] = both();
    Tensor::realize_all(&[&b, &a]).unwrap();
    assert_eq!(f32s(&a), [2.0, 3.0, 4.0, 5.0, 6.0]);
}

#[test]
fn what_is_not_written_is_zero_or_stays() {
    // Every other element.
    let op = CustomOp::kernel("even", |k| {
        let i = k.range(3);
        let value = k.input(0).at(&[i.clone()]);
        Ok(k.output(0).at(&[&i * 2]).store(&value).end(&[i]))
    });
    let x = Tensor::new(&[1.0f32, 2.0, 3.0], [3]);
    let [y] = op.call([Output::new([6], DType::F32)], &[&x]);
    assert_eq!(f32s(&y), [1.0, 0.0, 2.0, 0.0, 3.0, 0.0]);
    let old = Tensor::full([6], 9.0f32);
    old.realize().unwrap();
    let [y] = op.call([Output::of(&old)], &[&x]);
    assert_eq!(f32s(&y), [1.0, 9.0, 2.0, 9.0, 3.0, 9.0]);
    assert_eq!(f32s(&old), [9.0; 6]);
    old.assign(&y);
    assert_eq!(f32s(&old), [1.0, 9.0, 2.0, 9.0, 3.0, 9.0]);
}

#[test]
fn outputs_in_place_and_running_folds() {
    // Reads the element that it writes.
    let add = CustomOp::kernel("add", |k| {
        let i = k.range(4);
        let at = k.output(0).at(&[i.clone()]);
        Ok(at.store(&(&at + &k.input(0).at(&[i.clone()]))).end(&[i]))
    })
    .with_gradient(|b| {
        Ok(vec![
            Some(b.gradients[0].clone()),
            Some(b.gradients[0].clone()),
        ])
    });
    let x = Tensor::new(&[1.0f32, 2.0, 3.0, 4.0], [4]).parameter();
    let s = Tensor::new(&[10.0f32, 20.0, 30.0, 40.0], [4]).parameter();
    let [y] = add.call([Output::of(&s)], &[&x]);
    assert_eq!(f32s(&y), [11.0, 22.0, 33.0, 44.0]);
    let [y] = add.call([Output::of(&s)], &[&x]);
    let g = (y * 3.0).sum(.., false).gradient(&[&s, &x]).unwrap();
    assert_eq!(f32s(&g[0]), [3.0; 4]);
    assert_eq!(f32s(&g[1]), [3.0; 4]);
    let fresh = || {
        let [y] = add.call([Output::new([4], DType::F32)], &[&x]);
        y
    };
    assert_eq!(f32s(&fresh()), [1.0, 2.0, 3.0, 4.0]);
    // Reads what the turn before has written.
    let running = CustomOp::kernel("running", |k| {
        let i = k.range(4);
        let out = k.output(0).after(&[i.clone()]);
        let later = i.ge(&i.like(1));
        let before = out.at(&[(&i - 1).valid(&later)]);
        let before = later.select(&before, &UOp::float(0.0, DType::F32));
        let sum = before + k.input(0).at(&[i.clone()]);
        Ok(k.output(0).at(&[i.clone()]).store(&sum).end(&[i]))
    });
    let [y] = running.call([Output::new([4], DType::F32)], &[&x]);
    assert_eq!(f32s(&y), [1.0, 3.0, 6.0, 10.0]);
}

#[test]
fn closures_are_steps_of_programs() {
    let x = Tensor::new(&[3.0f32, 1.0, 2.0], [3]);
    let [y] = sorted().call([Output::new([3], DType::F32)], &[&(&x * 2.0)]);
    assert_eq!(f32s(&(&y + 1.0)), [3.0, 5.0, 7.0]);
    // Bools are bytes; several outputs; shapes.
    let op = CustomOp::function("signs", |a| {
        let shape = a.input_shape(0).ok_or("no input")?.to_vec();
        let x = a.input::<f32>(0)?;
        let mask = a.output::<u8>(0)?;
        let count = a.output::<i64>(1)?;
        for (m, x) in mask.iter_mut().zip(x) {
            *m = if *x < 0.0 { 2 } else { 0 };
        }
        count[0] = shape[0] as i64 * 10 + shape[1] as i64;
        Ok(())
    });
    let x = Tensor::new(&[1.0f32, -1.0, -2.0, 4.0, 5.0, -6.0], [6]).reshape([2, 3]);
    let [mask, count] = op.call(
        [
            Output::new([2, 3], DType::Bool),
            Output::new((), DType::I64),
        ],
        &[&x],
    );
    let kept = mask.select(&x, 0.0);
    assert_eq!(f32s(&kept), [0.0, -1.0, -2.0, 0.0, 0.0, -6.0]);
    assert_eq!(count.item::<i64>().unwrap(), 23);
}

#[test]
fn a_closure_that_fails_says_so() {
    let fails = CustomOp::function("fails", |_| Err("the disk is full".into()));
    let [y] = fails.call([Output::new([3], DType::F32)], &[]);
    says(&y, &["fails", "the disk is full"]);
    let panics = CustomOp::function("panics", |a| {
        let x = a.input::<f32>(0)?;
        assert!(x[7] > 0.0);
        Ok(())
    });
    let x = Tensor::ones([3]);
    let [y] = panics.call([Output::new([3], DType::F32)], &[&x]);
    says(&y, &["panics", "panicked", "index out of bounds"]);
    let wrong = CustomOp::function("wrong", |a| {
        a.input::<f64>(0)?;
        Ok(())
    });
    let [y] = wrong.call([Output::new([3], DType::F32)], &[&x]);
    says(&y, &["input 0 is of f32, not of f64"]);
    let twice = CustomOp::function("twice", |a| {
        a.output::<f32>(0)?;
        a.output::<f32>(0)?;
        Ok(())
    });
    let [y] = twice.call([Output::new([3], DType::F32)], &[&x]);
    says(&y, &["output 0 was taken before"]);
    let missing = CustomOp::function("missing", |a| a.input::<f32>(5).map(|_| ()));
    let [y] = missing.call([Output::new([3], DType::F32)], &[&x]);
    says(&y, &["there is no input 5 of 1"]);
    // Computing within it would wait for itself.
    let inner = CustomOp::function("inner", |_| {
        Tensor::ones([2]).sum(.., false).item::<f32>()?;
        Ok(())
    });
    let [y] = inner.call([Output::new([3], DType::F32)], &[&x]);
    says(&y, &["`inner` computes tensors while it runs"]);
    // And what failed is no harm to what comes after.
    assert_eq!(f32s(&(x + 1.0)), [2.0; 3]);
}

#[test]
fn what_is_no_kernel_is_refused_at_its_line() {
    let x = Tensor::ones([4]);
    let on = |build: fn(&KernelBuilder) -> Result<UOp>, words: &[&str]| {
        let [y] = CustomOp::kernel("mine", build).call([Output::new([4], DType::F32)], &[&x]);
        assert!(matches!(error(&y).kind(), ErrorKind::Argument { .. }));
        says(&y, words);
    };
    // Out of bounds, by what is known of the index.
    on(
        |k| {
            let i = k.range(5);
            Ok(k.output(0)
                .at(&[i.clone()])
                .store(&k.input(0).at(&[i.clone()]))
                .end(&[i]))
        },
        &["mine", "outside its axis of 4"],
    );
    on(
        |k| {
            let i = k.range(4);
            let x = k.input(0).at(&[&i - 1]);
            Ok(k.output(0).at(&[i.clone()]).store(&x).end(&[i]))
        },
        &["outside its axis of 4"],
    );
    // A loop that nothing closes, a value of another dtype, an input that is written.
    on(
        |k| {
            let i = k.range(4);
            Ok(k.output(0).at(&[i.clone()]).store(&k.input(0).at(&[i])))
        },
        &["closes this RANGE"],
    );
    on(
        |k| {
            let i = k.range(4);
            Ok(k.output(0)
                .at(&[i.clone()])
                .store(&UOp::int(1, DType::I32))
                .end(&[i]))
        },
        &["a i32 is stored as f32"],
    );
    on(
        |k| {
            let i = k.range(4);
            let x = k.input(0).at(&[i.clone()]);
            Ok(x.store(&(&x * 2.0)).end(&[i]))
        },
        &["it stores to PARAM 1, which is an input"],
    );
    // Nothing is written, what is no effect, no such input, operands that do not fit.
    on(|_| Ok(UOp::sink(&[])), &["it stores nothing to output 0"]);
    on(
        |k| Ok(k.input(0).at(&[UOp::index_const(0)])),
        &["is no effect"],
    );
    on(|k| Ok(k.input(3).clone()), &["there is no input 3 of 1"]);
    on(
        |k| {
            let i = k.range(4);
            let x = k.input(0).at(&[i.clone()]) + UOp::int(1, DType::I32);
            Ok(k.output(0).at(&[i.clone()]).store(&x).end(&[i]))
        },
        &["it cannot be built", "f32 and i32"],
    );
    // Another turn may have written it already, or not.
    on(
        |k| {
            let i = k.range(4);
            let other = k.output(0).at(&[UOp::index_const(3) - &i]);
            Ok(k.output(0).at(&[i.clone()]).store(&other).end(&[i]))
        },
        &["say after what it is read"],
    );
    on(
        |k| {
            let i = k.range(4);
            let at = k.output(0).at(&[UOp::index_const(0)]);
            Ok(at.store(&(&at + &k.input(0).at(&[i.clone()]))).end(&[i]))
        },
        &["say after what it is read"],
    );
    // What the closure itself reports.
    on(
        |_| Err(Error::argument("mine", "no kernel today")),
        &["no kernel today"],
    );
}

#[test]
fn what_does_not_fit_is_an_error() {
    let x = Tensor::ones([4]);
    let op = double();
    let nothing: [Tensor; 0] = op.call([], &[&x]);
    assert!(nothing.is_empty());
    let [y] = op.call([Output::new([4], DType::Void)], &[&x]);
    says(&y, &["no tensor is of void"]);
    let [y] = op.call([Output::new([-4], DType::F32)], &[&x]);
    says(&y, &["negative size"]);
    // The declared shape is not what the kernel writes.
    let [y] = op.call([Output::new([3], DType::F32)], &[&x]);
    says(&y, &["outside its axis of 3"]);
    let [y] = op.call([Output::new([4], DType::F64)], &[&x]);
    says(&y, &["a f32 is stored as f64"]);
    // An error that an input carries.
    let [y] = op.call([Output::new([4], DType::F32)], &[&x.reshape([5])]);
    says(&y, &["RESHAPE"]);
    // Values on two devices.
    let there = x.to(Device::new("INTERP"));
    let here = x.to(Device::new("CPU"));
    let [y] = product().call([Output::new([4], DType::F32)], &[&there, &here]);
    says(&y, &["CPU", "INTERP"]);
    // Opts that do not fit, and Opts for what is no kernel.
    let opt: Opt = "SPLIT(0, 3, UPCAST)".parse().unwrap();
    let [y] = op
        .clone()
        .with_opts(&[opt])
        .call([Output::new([4], DType::F32)], &[&x]);
    says(&y, &["SPLIT(0, 3, UPCAST)"]);
    let [y] = sorted()
        .with_opts(&[opt])
        .call([Output::new([4], DType::F32)], &[&x]);
    says(&y, &["Opts are for kernels"]);
}

#[test]
fn without_a_gradient_asking_for_one_says_how() {
    let x = Tensor::ones([3]).parameter();
    let [y] = sorted().call([Output::new([3], DType::F32)], &[&x]);
    let e = y.sum(.., false).gradient(&[&x]).unwrap_err().to_string();
    assert!(e.contains("`sorted`") && e.contains("with_gradient"), "{e}");
    assert!(e.contains("tests/custom.rs:"), "{e}");
    // What is cut off needs none.
    let [y] = sorted().call([Output::new([3], DType::F32)], &[&x.detach()]);
    let g = (y * &x).sum(.., false).gradient(&[&x]).unwrap();
    assert_eq!(f32s(&g[0]), [1.0; 3]);
    let gradient = |parts: fn(&Backward) -> Vec<Option<Tensor>>| {
        let op = sorted().with_gradient(move |b| Ok(parts(b)));
        let [y] = op.call([Output::new([3], DType::F32)], &[&x]);
        y.sum(.., false).gradient(&[&x]).unwrap_err().to_string()
    };
    let few = gradient(|_| vec![]);
    assert!(few.contains("gives 0 values for 1 inputs"), "{few}");
    let shape = gradient(|b| vec![Some(b.gradients[0].sum(0, false))]);
    assert!(shape.contains("for an argument of f32(3,)"), "{shape}");
    let dtype = gradient(|b| vec![Some(b.gradients[0].cast(DType::F64))]);
    assert!(dtype.contains("gives f64(3,)"), "{dtype}");
    let carried = gradient(|b| vec![Some(b.gradients[0].reshape([7]))]);
    assert!(carried.contains("RESHAPE"), "{carried}");
}

#[test]
fn empty_and_aliased_arguments() {
    let x = Tensor::randn([6, 6]);
    let [y] = product().call([Output::new([6, 6], DType::F32)], &[&x, &x]);
    for (a, b) in f32s(&y).iter().zip(f32s(&x.matmul(&x))) {
        assert!((a - b).abs() < 1e-4);
    }
    let empty = Tensor::ones([0]);
    let [y] = double().call([Output::new([0], DType::F32)], &[&empty]);
    assert_eq!(y.shape().unwrap(), [0]);
    assert!(f32s(&y).is_empty());
    let none = Tensor::randn([6, 0]);
    let [y] = product().call([Output::new([6, 6], DType::F32)], &[&none, &none.t()]);
    assert_eq!(f32s(&y), [0.0; 36]);
    let count = CustomOp::function("count", |a| {
        a.output::<i32>(0)?[0] = a.input::<f32>(0)?.len() as i32;
        Ok(())
    });
    let [n] = count.call([Output::new([1], DType::I32)], &[&empty]);
    assert_eq!(n.to_vec::<i32>().unwrap(), [0]);
}

#[test]
fn captured_and_from_several_threads() {
    let op = double();
    let sort = sorted();
    let step = jit(|x: Tensor| {
        let [y] = op.call([Output::new([64], DType::F32)], &[&(&x + 1.0)]);
        let [z] = sort.call([Output::new([64], DType::F32)], &[&y.flip(0)]);
        Ok(z - &x)
    })
    .unwrap();
    let want = |x: &Tensor| {
        let y = (x + 1.0) * 2.0;
        f32s(&(y.sort(0, false) - x))
    };
    for _ in 0..3 {
        let x = Tensor::randn([64]);
        x.realize().unwrap();
        assert_eq!(f32s(&step.call(x.clone()).unwrap()), want(&x));
    }
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                for _ in 0..10 {
                    let x = Tensor::randn([64]);
                    x.realize().unwrap();
                    assert_eq!(f32s(&step.call(x.clone()).unwrap()), want(&x));
                    let [y] = op.call([Output::new([64], DType::F32)], &[&x]);
                    assert_eq!(f32s(&y), f32s(&(&x * 2.0)));
                }
            });
        }
    });
}

#[test]
fn lengths_vary() {
    let rows = Variable::new(1..=16).unwrap();
    let table = Tensor::arange(0, 32, 1).cast(DType::F32).reshape([16, 2]);
    table.realize().unwrap();
    let op = CustomOp::kernel("rows", |k| {
        let shape = k.input(0).shape().clone();
        let i = k.range(shape[0].clone());
        let j = k.range(2);
        let x = k.input(0).at(&[i.clone(), j.clone()]) * 3.0;
        Ok(k.output(0)
            .at(&[i.clone(), j.clone()])
            .store(&x)
            .end(&[i, j]))
    });
    for n in [1, 5, 16, 3] {
        let size = rows.bind(n).unwrap();
        let x = table.narrow(0, 0, &size);
        let [y] = op.call([Output::new((&size, 2), DType::F32)], &[&x]);
        let want: Vec<f32> = (0..2 * n).map(|i| 3.0 * i as f32).collect();
        assert_eq!(f32s(&y), want);
    }
    // What is no kernel in UOps refuses by name.
    let x = table.narrow(0, 0, rows.bind(3).unwrap()).sum(1, false);
    let [y] = sorted().call([Output::new((rows.bind(3).unwrap(),), DType::F32)], &[&x]);
    says(&y, &["sorted", "a length that varies (1..=16)"]);
}

#[test]
fn every_device_runs_kernels_and_closures() {
    for device in ["CPU", "CPU:C", "INTERP", "INTERP:GPU"] {
        let x = Tensor::randn([32, 24]).to(Device::new(device));
        let [y] = product().call([Output::new([32, 32], DType::F32)], &[&x, &x.t()]);
        for (a, b) in f32s(&y).iter().zip(f32s(&x.matmul(&x.t()))) {
            assert!((a - b).abs() < 1e-4, "{device}: {a} {b}");
        }
        let [y] = sorted().call([Output::new([24], DType::F32)], &[&x.sum(0, false)]);
        assert_eq!(y.device().unwrap(), Device::new(device));
        let want = x.sum(0, false).sort(0, false);
        assert_eq!(f32s(&y), f32s(&want), "{device}");
    }
}

#[test]
fn source_runs_where_programs_are_written_in_it() {
    let text = "
        static float half(float x) { return x / 2; }
        void halves(float *y, const float *x) { for (int i = 0; i < 5; i++) y[i] = half(x[i]); }
    ";
    // SAFETY: it is called with five elements alone.
    let op = unsafe { CustomOp::c("halves", text, "halves") };
    let x = Tensor::new(&[1.0f32, 2.0, 3.0, 4.0, 5.0], [5]);
    let [y] = op.call(
        [Output::new([5], DType::F32).whole()],
        &[&x.to(Device::new("CPU:C"))],
    );
    assert_eq!(f32s(&(y + 1.0)), [1.5, 2.0, 2.5, 3.0, 3.5]);
    let [y] = op.call(
        [Output::new([5], DType::F32)],
        &[&x.to(Device::new("INTERP"))],
    );
    assert!(matches!(error(&y).kind(), ErrorKind::Unsupported { .. }));
    says(&y, &["halves", "its source is C", "CPU:C"]);
    // What does not compile says what the compiler says.
    // SAFETY: it never runs.
    let op = unsafe { CustomOp::c("broken", "void f(float *y) { y[0] = nothing; }", "f") };
    let [y] = op.call(
        [Output::new([1], DType::F32)],
        &[&x.to(Device::new("CPU:C"))],
    );
    assert!(matches!(error(&y).kind(), ErrorKind::Compile { .. }));
    says(&y, &["nothing"]);
    // So does what is called as nothing in it is, or calls what is nowhere.
    for [text, entry] in [
        ["void f(float *y) { y[0] = 1; }", "g"],
        ["void other(float *); void f(float *y) { other(y); }", "f"],
    ] {
        // SAFETY: it never runs.
        let op = unsafe { CustomOp::c("unknown", text, entry) };
        let [y] = op.call(
            [Output::new([1], DType::F32)],
            &[&x.to(Device::new("CPU:C"))],
        );
        assert!(matches!(error(&y).kind(), ErrorKind::Compile { .. }));
    }
}

/// Counts how often each of 16 numbers stands among the first input, in steps of the second.
fn histogram(dtype: DType) -> CustomOp {
    CustomOp::kernel("histogram", move |k| {
        let i = k.range(k.input(0).shape()[0].clone());
        let at = k.input(0).at(&[i.clone()]).cast(DType::Index);
        let inside = at.ge(&at.like(0)) & at.lt(&at.like(16));
        let place = k.output(0).at(&[at.valid(&inside)]);
        let step = k.input(1).at(&[i.clone()]).cast(dtype);
        Ok(place.atomic_add(&step).end(&[i]))
    })
}

#[test]
fn elements_are_added_to_at_once() {
    let n = 4096;
    let numbers: Vec<i32> = (0..n).map(|i| (i * 7919) % 19 - 1).collect();
    let steps: Vec<f32> = (0..n).map(|i| (i % 5) as f32).collect();
    let mut want = [0.0f64; 16];
    for (&at, &step) in numbers.iter().zip(&steps) {
        // What is outside is dropped.
        if let Some(place) = usize::try_from(at).ok().and_then(|at| want.get_mut(at)) {
            *place += f64::from(step);
        }
    }
    let threads: Opt = "SPLIT(0, 4, THREAD, top)".parse().unwrap();
    for device in ["CPU:C", "INTERP", "CPU"] {
        for dtype in [DType::I32, DType::U64, DType::F32, DType::F64] {
            let x = Tensor::new(&numbers, [n]).to(Device::new(device));
            let s = Tensor::new(&steps, [n]).to(Device::new(device));
            let op = histogram(dtype);
            let at_once = op.clone().with_opts(&[threads]);
            for op in [&op, &at_once] {
                let [y] = op.call([Output::new([16], dtype)], &[&x, &s]);
                let got = y.cast(DType::F64).to_vec::<f64>();
                assert_eq!(got.unwrap(), want, "{device} {dtype}");
            }
        }
    }
    let half = histogram(DType::F16);
    let x = Tensor::new(&numbers, [n]);
    let [y] = half.call([Output::new([16], DType::F16)], &[&x, &x.cast(DType::F16)]);
    says(&y, &["an ATOMICADD of f16"]);
}

#[test]
fn additions_to_one_element_come_one_after_the_other() {
    let op = CustomOp::kernel("twice", |k| {
        let i = k.range(10);
        let place = k.output(0).at(&[UOp::index_const(0)]);
        let x = k.input(0).at(&[i.clone()]);
        let first = place.atomic_add(&x).end(&[i.clone()]);
        let second = place.atomic_add(&(&x * 10)).end(&[i]);
        Ok(UOp::sink(&[first, second]))
    });
    for device in ["CPU", "CPU:C", "INTERP", "INTERP:GPU"] {
        let x = Tensor::arange(0, 10, 1)
            .cast(DType::I32)
            .to(Device::new(device));
        let [y] = op.call([Output::new([1], DType::I32)], &[&x]);
        assert_eq!(y.to_vec::<i32>().unwrap(), [495], "{device}");
        let old = Tensor::full([1], 5).to(Device::new(device));
        let [y] = op.call([Output::of(&old)], &[&x]);
        assert_eq!(y.to_vec::<i32>().unwrap(), [500], "{device}");
    }
}

#[test]
fn text_within_a_kernel_where_there_is_source() {
    let op = |with: bool| {
        CustomOp::kernel("bits", move |k| {
            let i = k.range(4);
            let x = k.input(0).at(&[i.clone()]);
            let mut count = UOp::int(0, DType::I32);
            for bit in 0..31 {
                count = count + ((&x / (1i64 << bit)) & UOp::int(1, DType::I32));
            }
            let otherwise = Some(&count).filter(|_| with);
            // SAFETY: it counts the bits of a number.
            let own = unsafe {
                k.custom(
                    "__builtin_popcount({0}) + 0 * {1}",
                    &[x, i.cast(DType::I32)],
                    DType::I32,
                    otherwise,
                )?
            };
            Ok(k.output(0).at(&[i.clone()]).store(&(own + 1)).end(&[i]))
        })
    };
    let bits = |device: &str, with: bool| {
        let x = Tensor::new(&[0, 7, 1 << 30, 1023], [4]).to(Device::new(device));
        let [y] = op(with).call([Output::new([4], DType::I32)], &[&x]);
        y
    };
    for (device, with) in [
        ("CPU:C", true),
        ("CPU:C", false),
        ("CPU", true),
        ("INTERP", true),
    ] {
        let y = bits(device, with);
        assert_eq!(y.to_vec::<i32>().unwrap(), [1, 4, 2, 11], "{device}");
    }
    let y = bits("INTERP", false);
    assert!(matches!(error(&y).kind(), ErrorKind::Unsupported { .. }));
    says(&y, &["bits", "otherwise", "__builtin_popcount"]);
}

#[test]
fn text_that_nobody_answers_for_is_not_compiled() {
    let op = CustomOp::kernel("hostile", |k| {
        let i = k.range(4);
        let zero = UOp::float(0.0, DType::F32);
        let text = UOp::try_new(
            monoglot_uop::Op::Custom,
            vec![zero],
            monoglot_uop::Arg::Text("abort()".into()),
        )?;
        Ok(k.output(0).at(&[i.clone()]).store(&text).end(&[i]))
    });
    for device in ["CPU:C", "CPU", "INTERP"] {
        let x = Tensor::ones([4]).to(Device::new(device));
        let [y] = op.call([Output::new([4], DType::F32)], &[&x]);
        assert!(
            matches!(error(&y).kind(), ErrorKind::Unsupported { .. }),
            "{device}"
        );
    }
}
