//! The gradient of a call is a call.

use crate::{close, values};
use monoglot::prelude::*;
use monoglot::{CustomOp, Output, function, scan};

/// A layer with a normalisation, a product and a residual way.
fn layer(x: &Tensor, w: &Tensor, b: &Tensor) -> Tensor {
    let centred = x - x.mean(1, true);
    let deviation = (centred.square().mean(1, true) + 1e-5).sqrt();
    x + (centred / deviation).matmul(w).gelu() * b
}

#[test]
fn gradients_are_those_of_the_body() -> Result<()> {
    let f = function(layer);
    let w: Vec<Tensor> = (0..4).map(|k| values(&[6, 6], k).parameter()).collect();
    let b = values(&[6], 8).parameter();
    let x = values(&[5, 6], 9).parameter();
    let mut targets: Vec<&Tensor> = w.iter().collect();
    targets.extend([&b, &x]);
    let mut by_call = x.clone();
    let mut plain = x.clone();
    for w in &w {
        by_call = f.call((&by_call, w, &b))?;
        plain = layer(&plain, w, &b);
    }
    let one = by_call.square().sum(.., false).gradient(&targets)?;
    let other = plain.square().sum(.., false).gradient(&targets)?;
    for (a, b) in one.iter().zip(&other) {
        close(a, b);
    }
    Ok(())
}

#[test]
fn some_targets_and_some_values() -> Result<()> {
    let f = function(|x: &Tensor, w: &Tensor| {
        let y = x.matmul(w);
        (y.softmax(1), y.sum(.., false), w.square().sum(.., false))
    });
    let x = values(&[3, 4], 1).parameter();
    let w = values(&[4, 4], 2).parameter();
    let (a, b, c) = f.call((&x, &w))?;
    let (d, _, _) = f.call((&a, &w))?;
    let loss = (&d * &a).sum(.., false) + &c * &b;
    let y = x.matmul(&w);
    let pa = y.softmax(1);
    let pd = pa.matmul(&w).softmax(1);
    let plain = (&pd * &pa).sum(.., false) + w.square().sum(.., false) * y.sum(.., false);
    for targets in [vec![&x], vec![&w], vec![&w, &x]] {
        let one = loss.gradient(&targets)?;
        let other = plain.gradient(&targets)?;
        for (a, b) in one.iter().zip(&other) {
            close(a, b);
        }
    }
    Ok(())
}

#[test]
fn a_value_that_no_target_reaches_needs_no_derivative() -> Result<()> {
    let twice = CustomOp::kernel("twice", |k| {
        let i = k.range(k.input(0).shape()[0].clone());
        let value = k.input(0).at(&[i.clone()]) * 2.0;
        Ok(k.output(0).at(&[i.clone()]).store(&value).end(&[i]))
    });
    let of = |x: &Tensor| -> Result<Tensor> {
        let [y] = twice.call([Output::new(x.shape()?, DType::F32)], &[x]);
        Ok(y)
    };
    let inner = function(|x: &Tensor, w: &Tensor| (x + 1, w.square()));
    let outer = |x: &Tensor, w: &Tensor| -> Result<(Tensor, Tensor)> {
        let (later, square) = inner.call((x, w))?;
        Ok((square, of(&later)?))
    };
    for f in [function(outer), function(outer).checkpoint()] {
        let x = list(&[1.0, 2.0, 3.0]);
        let w = list(&[0.5, -1.0, 4.0]);
        let (square, other) = f.call((&x, &w))?;
        let loss = (&square * 3 + &other).sum(.., false);
        let found = loss.gradient(&[&w])?;
        close(&found[0], &list(&[3.0, -6.0, 24.0]));
        // Where one does reach it, the derivative that is missing is told.
        let missing = loss.gradient(&[&x]).err().map(|e| e.to_string());
        assert!(missing.is_some_and(|m| m.contains("of `twice`")));
    }
    Ok(())
}

#[test]
fn gradients_of_gradients() -> Result<()> {
    let f = function(|x: &Tensor, w: &Tensor| x.matmul(w).tanh());
    let x = values(&[3, 3], 1).parameter();
    let w = values(&[3, 3], 2).parameter();
    let second = |y: Tensor| -> Result<Tensor> {
        let g = y.square().sum(.., false).gradient(&[&w])?.remove(0);
        Ok(g.square().sum(.., false).gradient(&[&x])?.remove(0))
    };
    let by_call = f.call((&f.call((&x, &w))?, &w))?;
    let plain = x.matmul(&w).tanh().matmul(&w).tanh();
    close(&second(by_call)?, &second(plain)?);
    Ok(())
}

#[test]
fn gradients_within_a_function() -> Result<()> {
    let inner = function(|x: &Tensor, w: &Tensor| x.matmul(w).tanh());
    let step = function(|x: &Tensor, w: &Tensor| -> Result<Tensor> {
        let y = inner.call((&inner.call((x, w))?, w))?;
        let g = y.square().sum(.., false).gradient(&[w])?.remove(0);
        Ok(w - g * 0.1)
    });
    let x = values(&[3, 3], 1);
    let mut w = values(&[3, 3], 2).parameter();
    let mut plain = w.clone();
    for _ in 0..3 {
        w = step.call((&x, &w))?.parameter();
        let y = x.matmul(&plain).tanh().matmul(&plain).tanh();
        let g = y.square().sum(.., false).gradient(&[&plain])?.remove(0);
        plain = (&plain - g * 0.1).parameter();
    }
    close(&w, &plain);
    Ok(())
}

#[test]
fn a_training_step_is_captured() -> Result<()> {
    let f = function(layer);
    let train = |by_call: bool| -> Result<Vec<f32>> {
        let w: Vec<Tensor> = (0..3).map(|k| values(&[6, 6], k).parameter()).collect();
        let b = values(&[6], 8).parameter();
        let step = jit(|x: Tensor| -> Result<Tensor> {
            let mut y = x;
            for w in &w {
                y = match by_call {
                    true => f.call((&y, w, &b))?,
                    false => layer(&y, w, &b),
                };
            }
            let loss = y.square().mean(.., false);
            let targets: Vec<&Tensor> = w.iter().collect();
            for (w, g) in w.iter().zip(loss.gradient(&targets)?) {
                w.assign(w - g * 0.1);
            }
            Ok(loss)
        })?;
        let mut losses = Vec::new();
        for k in 0..4 {
            losses.push(step.call(values(&[5, 6], 20 + k))?.item::<f32>()?);
        }
        Ok(losses)
    };
    close(&list(&train(true)?), &list(&train(false)?));
    Ok(())
}

fn list(numbers: &[f32]) -> Tensor {
    Tensor::new(numbers, [numbers.len() as i64])
}

/// In f64 some functions put their sign on by bits: what a step keeps of it has the derivative's derivative.
#[test]
fn gradients_of_gradients_of_functions_in_doubles() -> Result<()> {
    type Function = fn(&Tensor) -> Tensor;
    let functions: [(&str, Function); 12] = [
        ("tanh", |x| x.tanh()),
        ("sinh", |x| x.sinh()),
        ("asinh", |x| x.asinh()),
        ("atanh", |x| x.atanh()),
        ("atan", |x| x.atan()),
        ("asin", |x| x.asin()),
        ("erf", |x| x.erf()),
        ("expm1", |x| x.expm1()),
        ("log1p", |x| x.log1p()),
        ("abs", |x| x.abs().square()),
        ("gelu", |x| x.gelu()),
        ("sort", |x| x.sort(-1, false).sin()),
    ];
    let h = values(&[1, 3], 1).cast(DType::F64).parameter();
    let w = values(&[3, 3], 2).cast(DType::F64).parameter();
    let xs = values(&[2, 1, 3], 3).cast(DType::F64);
    for (name, f) in functions {
        let step = |h: &Tensor, x: &Tensor| h * 0.5 + f(&((h.matmul(&w) + x) * 0.5));
        let by_scan = |h: Tensor, x: Tensor| {
            let next = step(&h, &x);
            (next.clone(), next)
        };
        let (last, _) = scan(by_scan, h.clone(), &xs)?;
        let plain = step(&step(&h, &xs.index(0)), &xs.index(1));
        let second = |y: &Tensor| -> Result<Vec<f64>> {
            let g = y.sum(.., false).gradient(&[&h])?.remove(0);
            let gg = g.square().sum(.., false).gradient(&[&h, &w])?;
            Ok([gg[0].to_vec::<f64>()?, gg[1].to_vec::<f64>()?].concat())
        };
        let got = second(&last)?;
        let want = second(&plain)?;
        for (a, b) in got.iter().zip(&want) {
            assert!((a - b).abs() < 1e-10, "{name}: {got:?}, not {want:?}");
        }
    }
    Ok(())
}

/// A name, how often an operation is done, and what does it.
type Way<'a> = (&'a str, i32, &'a dyn Fn(&Tensor) -> Result<Tensor>);

/// What a user's own derivative reads besides, stored or not, is given to the derivatives of functions, of their
/// checkpoints and of scans; what flows to it flows on.
#[test]
fn rules_of_ones_own_read_what_they_like() -> Result<()> {
    let stored = Tensor::new(&[2f32, 3., 4.], [3]);
    stored.realize()?;
    let weight = Tensor::new(&[5f32, 2., 3.], [3]).parameter();
    let made = &stored * 2.0;
    for (table, name) in [
        (&stored, "stored"),
        (&weight, "a parameter"),
        (&made, "made"),
    ] {
        let read = table.clone();
        let double = CustomOp::kernel("double", |k| {
            let x = k.input(0);
            let i = k.range(x.shape()[0].clone());
            let at = std::slice::from_ref(&i);
            Ok(k.output(0).at(at).store(&(x.at(at) * 2.0)).end(at))
        })
        .with_gradient(move |b| Ok(vec![Some(&b.gradients[0] * &read)]));
        let one = |x: &Tensor| {
            let [y] = double.call([Output::new([3], DType::F32)], &[x]);
            y
        };
        let x = Tensor::new(&[1f32, 2., 3.], [3]).parameter();
        let along = Tensor::new(&[1f32, 10., 100.], [3]);
        let twice = |x: &Tensor| {
            let step = |h: Tensor, _: Tensor| (one(&h), ());
            scan(step, x.clone(), &Tensor::ones([2, 1])).map(|(h, ())| h)
        };
        let ways: [Way; 4] = [
            ("plain", 1, &|x| Ok(one(x))),
            ("function", 1, &|x| function(one).call((x,))),
            ("checkpoint", 1, &|x| function(one).checkpoint().call((x,))),
            ("scan", 2, &twice),
        ];
        for (way, times, f) in ways {
            let g = (f(&x)? * &along).sum(.., false).gradient(&[&x])?.remove(0);
            let want: Vec<f32> = table
                .to_vec::<f32>()?
                .iter()
                .map(|t| t.powi(times))
                .collect();
            let want: Vec<f32> = want
                .iter()
                .zip([1., 10., 100.])
                .map(|(t, v)| t * v)
                .collect();
            assert_eq!(g.to_vec::<f32>()?, want, "{name} {way}");
            // What flows to the table through the derivative: along, times what is left of the power.
            let Ok(second) = g.sum(.., false).gradient(&[table]) else {
                assert_ne!(name, "a parameter", "{way}");
                continue;
            };
            let rest = table.to_vec::<f32>()?;
            let left = rest.iter().map(|t| times as f32 * t.powi(times - 1));
            let want: Vec<f32> = left.zip([1., 10., 100.]).map(|(t, v)| t * v).collect();
            assert_eq!(second[0].to_vec::<f32>()?, want, "{name} {way} twice");
        }
    }
    Ok(())
}
