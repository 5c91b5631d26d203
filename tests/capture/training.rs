//! Training steps, captured and not. Flows in: networks of equal weights; flows out: their losses, which are
//! the same bits.

use crate::common::Net;
use monoglot::prelude::*;

/// The losses of ten steps whose rate falls, and what the network says of some images afterwards.
fn trained<O: Optimizer + Sync + Send>(
    make: impl Fn(&Net) -> O,
    captured: bool,
) -> Result<(Vec<f32>, Vec<f32>)> {
    Tensor::manual_seed(3);
    let images = data::digits()?;
    let net = Net::new();
    let optimizer = make(&net);
    let body = |x: &Tensor, y: &Tensor| -> Result<Tensor> {
        let loss = net.forward(x).cross_entropy(y, Reduction::Mean, 0.0);
        optimizer.step(&loss)?;
        Ok(loss)
    };
    let step = jit(body)?;
    let mut losses = Vec::new();
    for k in 0..10 {
        optimizer.set_rate(1e-2 / (1.0 + k as f64));
        let rows: Vec<usize> = (0..16).map(|i| (i + 16 * k) % 64).collect();
        let (x, y) = images.batch(&rows);
        let loss = if captured {
            step.call((&x, &y))?
        } else {
            body(&x, &y)?
        };
        losses.push(loss.item::<f32>()?);
    }
    assert_eq!(step.programs(), usize::from(captured));
    net.eval();
    let scores = net.forward(&images.batch(&[1, 2, 3]).0).to_vec()?;
    Ok((losses, scores))
}

#[test]
fn a_captured_step_trains_as_the_step_does() -> Result<()> {
    let _stream = crate::stream();
    let adam = |net: &Net| Adam::new(net, 1e-2);
    assert_eq!(trained(adam, false)?, trained(adam, true)?);
    let adamw = |net: &Net| AdamW::new(net, 1e-2, 0.1);
    assert_eq!(trained(adamw, false)?, trained(adamw, true)?);
    let sgd = |net: &Net| Sgd::new(net, 1e-2).nesterov(0.9).weight_decay(1e-3);
    assert_eq!(trained(sgd, false)?, trained(sgd, true)?);
    Ok(())
}

#[test]
fn captured_and_plain_steps_take_turns() -> Result<()> {
    let _stream = crate::stream();
    let run = |captured: fn(usize) -> bool| -> Result<Vec<f32>> {
        Tensor::manual_seed(4);
        let net = Linear::new(5, 3);
        let adam = Adam::new(&net, 1e-2);
        let body = |x: &Tensor| -> Result<Tensor> {
            let loss = net.forward(&x.dropout(0.3)).square().mean(.., false);
            adam.step(&loss)?;
            Ok(loss)
        };
        let step = jit(body)?;
        let mut losses = Vec::new();
        for k in 0..8 {
            let x = Tensor::randn([4, 5]);
            x.realize()?;
            let loss = if captured(k) {
                step.call(&x)?
            } else {
                body(&x)?
            };
            losses.push(loss.item::<f32>()?);
        }
        losses.extend(net.weight.to_vec::<f32>()?);
        Ok(losses)
    };
    let plain = run(|_| false)?;
    assert_eq!(plain, run(|_| true)?);
    assert_eq!(plain, run(|k| k % 2 == 0)?);
    assert_eq!(plain, run(|k| k % 3 != 0)?);
    Ok(())
}

#[test]
fn the_mode_of_layers_is_seen() -> Result<()> {
    let _stream = crate::stream();
    Tensor::manual_seed(5);
    let net = Net::new();
    let forward = jit(|x: &Tensor| net.forward(x))?;
    let x = Tensor::randn([2, 1, 8, 8]);
    net.realize()?;
    net.eval();
    let plain = net.forward(&x).to_vec::<f32>()?;
    assert_eq!(forward.call(&x)?.to_vec::<f32>()?, plain);
    net.train();
    assert_ne!(forward.call(&x)?.to_vec::<f32>()?, plain);
    // Running statistics were written by that call.
    net.eval();
    let moved = net.forward(&x).to_vec::<f32>()?;
    assert_ne!(moved, plain);
    assert_eq!(forward.call(&x)?.to_vec::<f32>()?, moved);
    assert_eq!(forward.programs(), 2);
    Ok(())
}

#[test]
fn a_rate_that_is_passed_or_assigned_is_no_constant() -> Result<()> {
    let _stream = crate::stream();
    let run = |captured: bool| -> Result<Vec<f32>> {
        Tensor::manual_seed(6);
        let net = Linear::new(3, 2);
        net.realize()?;
        let momentum = Tensor::scalar(0.5f32);
        let body = |x: &Tensor, rate: &Tensor| -> Result<Tensor> {
            let loss = net.forward(x).square().sum(.., false);
            let gradients = loss.gradient(&[&net.weight])?;
            net.weight
                .assign(&net.weight - &gradients[0] * rate * &momentum);
            Ok(loss)
        };
        let step = jit(body)?;
        let mut losses = Vec::new();
        for k in 0..6 {
            momentum.assign(0.5 + 0.1 * k as f64);
            let rate = 0.01f32 * k as f32;
            let x = Tensor::randn([4, 3]);
            let loss = match captured {
                true => step.call((&x, rate))?,
                false => body(&x, &Tensor::scalar(rate))?,
            };
            losses.push(loss.item::<f32>()?);
        }
        losses.extend(net.weight.to_vec::<f32>()?);
        Ok(losses)
    };
    // Loss and weights are one program here and two there, which may round differently.
    for (plain, captured) in run(false)?.into_iter().zip(run(true)?) {
        assert!(
            (plain - captured).abs() <= 1e-5 * plain.abs(),
            "{plain} {captured}"
        );
    }
    Ok(())
}

#[test]
fn weights_are_written_where_they_are_unless_somebody_holds_them() -> Result<()> {
    let _stream = crate::stream();
    let net = Linear::new(4, 2);
    let adam = Adam::new(&net, 1e-2);
    let step = jit(|x: &Tensor| -> Result<()> {
        let y = net.forward(x);
        adam.step(&y.square().sum(.., false))
    })?;
    let x = Tensor::randn([3, 4]);
    let place = || net.weight.uop().map(|u| u.buffer_arg().map(|b| b.slot));
    let before = place()?;
    step.call(&x)?;
    step.call(&x)?;
    assert_eq!(place()?, before);
    let held = Tensor::from_uop(net.weight.uop()?);
    let values = held.to_vec::<f32>()?;
    step.call(&x)?;
    assert_ne!(place()?, before);
    assert_eq!(held.to_vec::<f32>()?, values);
    assert_ne!(net.weight.to_vec::<f32>()?, values);
    assert_eq!(step.programs(), 1);
    Ok(())
}
