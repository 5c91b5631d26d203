//! Programs as people write them, captured and not. Flows in: small trainings and loops; flows out: that both
//! ways end alike.

use monoglot::prelude::*;

fn f32s(t: &Tensor) -> Vec<f32> {
    t.to_vec().expect("f32 values")
}

fn alike(plain: &[f32], captured: &[f32]) {
    assert_eq!(plain.len(), captured.len());
    for (k, (a, b)) in plain.iter().zip(captured).enumerate() {
        assert!((a - b).abs() <= 2e-5 * a.abs().max(1.0), "{k}: {a} {b}");
    }
}

/// Two networks that learn against each other: two optimizers' steps, one after the other, in one function.
#[test]
fn two_optimizers_in_one_function() -> Result<()> {
    let _stream = crate::stream();
    let run = |captured: bool| -> Result<Vec<f32>> {
        Tensor::manual_seed(21);
        let maker = Linear::new(2, 3);
        let judge = Linear::new(3, 1);
        let make = Adam::new(&maker, 1e-2);
        let judges = Sgd::new(&judge, 1e-2).momentum(0.9);
        let body = |real: &Tensor| -> Result<(Tensor, Tensor)> {
            let fake = maker.forward(&Tensor::randn([4, 2]));
            let said = |x: &Tensor| judge.forward(x).sigmoid();
            let right = (said(real) - 1.0).square() + said(&fake.detach()).square();
            let right = right.mean(.., false);
            judges.step(&right)?;
            let fooled = (said(&fake) - 1.0).square().mean(.., false);
            make.step(&fooled)?;
            Ok((right, fooled))
        };
        let step = jit(body)?;
        let mut out = Vec::new();
        for k in 0..6 {
            let real = Tensor::randn([4, 3]) + k as f64;
            real.realize()?;
            let (a, b) = if captured {
                step.call(&real)?
            } else {
                body(&real)?
            };
            out.extend([a.item::<f32>()?, b.item::<f32>()?]);
        }
        out.extend(f32s(&maker.weight));
        out.extend(f32s(&judge.weight));
        Ok(out)
    };
    alike(&run(false)?, &run(true)?);
    Ok(())
}

/// Gradients that are summed over parts of a batch, and an average of the weights beside them.
#[test]
fn gradients_are_accumulated_and_weights_averaged() -> Result<()> {
    let _stream = crate::stream();
    let run = |captured: bool| -> Result<Vec<f32>> {
        Tensor::manual_seed(22);
        let net = Linear::new(3, 2);
        net.realize()?;
        let sum = Tensor::zeros([2, 3]).contiguous();
        let average = net.weight.contiguous();
        Tensor::realize_all(&[&sum, &average])?;
        let part = |x: &Tensor, y: &Tensor| -> Result<Tensor> {
            let loss = (net.forward(x) - y).square().mean(.., false);
            sum.assign(&sum + &loss.gradient(&[&net.weight])?[0]);
            Tensor::realize_all(&[&loss, &sum])?;
            Ok(loss)
        };
        let update = |parts: usize| -> Result<()> {
            net.weight.assign(&net.weight - &sum * (0.1 / parts as f64));
            sum.assign(0.0);
            average.assign(&average * 0.9 + &net.weight * 0.1);
            Tensor::realize_all(&[&net.weight, &sum, &average])
        };
        let parts = jit(part)?;
        let updates = jit(update)?;
        let mut out = Vec::new();
        for k in 0..9 {
            let x = Tensor::randn([4, 3]);
            let y = Tensor::randn([4, 2]);
            Tensor::realize_all(&[&x, &y])?;
            let loss = if captured {
                parts.call((&x, &y))?
            } else {
                part(&x, &y)?
            };
            out.push(loss.item::<f32>()?);
            if k % 3 == 2 {
                match captured {
                    true => updates.call(3)?,
                    false => update(3)?,
                }
                out.extend(f32s(&average));
            }
        }
        Ok(out)
    };
    alike(&run(false)?, &run(true)?);
    Ok(())
}

/// A state that is passed from call to call, in a struct, with another length at the end of the sequence.
#[test]
fn a_state_goes_from_call_to_call() -> Result<()> {
    #[derive(Tensors)]
    struct State {
        hidden: Tensor,
        seen: Vec<Tensor>,
    }

    struct Reader<'a> {
        step: Jit<'a, (State, Tensor), State>,
    }

    let _stream = crate::stream();
    Tensor::manual_seed(23);
    let inner = Linear::new(4, 4);
    let outer = Linear::new(3, 4);
    Tensor::realize_all(&[&inner.weight, &outer.weight])?;
    let body = |state: State, x: Tensor| -> State {
        let hidden = (inner.forward(&state.hidden) + outer.forward(&x)).tanh();
        let mut seen = state.seen;
        seen.remove(0);
        seen.push(hidden.sum(.., false));
        State { hidden, seen }
    };
    let reader = Reader { step: jit(body)? };
    let begin = |rows: usize| State {
        hidden: Tensor::zeros([rows as i64, 4]),
        seen: (0..3).map(|_| Tensor::scalar(0f32)).collect(),
    };
    for rows in [2, 5, 2] {
        let mut plain = begin(rows);
        let mut captured = begin(rows);
        for _ in 0..5 {
            let x = Tensor::randn([rows as i64, 3]);
            plain = body(plain, x.clone());
            captured = reader.step.call((captured, &x))?;
        }
        alike(&f32s(&plain.hidden), &f32s(&captured.hidden));
        for (a, b) in plain.seen.iter().zip(&captured.seen) {
            alike(&f32s(a), &f32s(b));
        }
    }
    // Constant first states, data later, and both numbers of rows.
    assert!(reader.step.programs() <= 4, "{}", reader.step.programs());
    Ok(())
}
