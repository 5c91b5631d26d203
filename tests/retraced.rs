//! `CHECK=2`: captured functions are traced again at every call. Flows in: functions that keep what no capture
//! sees; flows out: errors that say so. The settings are the process's: nothing else is tested in this one.

use monoglot::nn::Trained;
use monoglot::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Plain descent that keeps its step's number in an integer of Rust's: what no capture can see.
struct Counting {
    trained: Sgd,
    steps: AtomicUsize,
}

impl Optimizer for Counting {
    fn trained(&self) -> &Trained {
        self.trained.trained()
    }

    fn update(&self, gradients: &[Tensor]) -> Vec<Tensor> {
        let steps = 1 + self.steps.fetch_add(1, Ordering::Relaxed);
        let parameters = self.trained().parameters();
        for (p, g) in parameters.iter().zip(gradients) {
            p.assign(p - g * (0.1 / steps as f64));
        }
        parameters.to_vec()
    }
}

#[test]
fn what_a_trace_cannot_see_is_found_by_tracing_again() -> Result<()> {
    let net = Linear::new(3, 2);
    let counting = Counting {
        trained: Sgd::new(&net, 0.1),
        steps: AtomicUsize::new(0),
    };
    let step = jit(|x: &Tensor| -> Result<Tensor> {
        let loss = net.forward(x).square().sum(.., false);
        counting.step(&loss)?;
        Ok(loss)
    })?;
    let adam = Adam::new(&net, 0.1);
    let right = jit(|x: &Tensor| -> Result<Tensor> {
        let loss = net.forward(&x.dropout(0.5)).square().sum(.., false);
        adam.step(&loss)?;
        Ok(loss + Tensor::new(&[1f32, 2.], [2]))
    })?;
    let drawn = AtomicUsize::new(1);
    let draws = jit(|x: &Tensor| {
        let n = drawn.fetch_add(1, Ordering::Relaxed);
        let noise: Vec<Tensor> = (0..n).map(|_| Tensor::rand([2])).collect();
        x + &noise[0]
    })?;
    let data = jit(|x: &Tensor| {
        let n = drawn.fetch_add(1, Ordering::Relaxed);
        x + Tensor::new(&[n as f32, 2.0], [2])
    })?;
    let x = Tensor::randn([4, 3]);
    let pair = Tensor::randn([2]);
    step.call(&x)?;
    draws.call(&pair)?;
    data.call(&pair)?;
    monoglot::Config {
        retrace: true,
        ..(*monoglot::Config::current()).clone()
    }
    .set();
    for _ in 0..3 {
        right.call(&x)?;
    }
    // Other lengths are no other function.
    type Body = fn(&Tensor) -> Tensor;
    let bodies: [Body; 4] = [
        |x| x.dropout(0.5),
        |x| x + Tensor::randn((x.size(0).expect("rows"), x.size(1).expect("columns"))),
        |x| x.mean(.., false),
        |x| x.flatten(0, 1).cumsum(0),
    ];
    for body in bodies {
        let captured = jit(body)?;
        let called = monoglot::function(body);
        for [rows, columns] in [[6, 1], [1, 3], [2, 2]] {
            let t = Tensor::randn([rows, columns]);
            let t = t.dynamic(0, 1..=6).dynamic(1, 1..=3);
            captured.call(&t)?;
            called.call(&t)?;
        }
    }
    for (told, what) in [
        (step.call(&x), "computes something else"),
        (draws.call(&pair), "other random numbers"),
        (data.call(&pair), "data that it makes tensors of"),
    ] {
        let e = told.map(|_| ()).expect_err(what);
        assert!(matches!(e.kind(), ErrorKind::Capture { .. }), "{e}");
        assert!(e.to_string().contains(what), "{e}");
        assert!(e.to_string().contains("tests/retraced.rs"), "{e}");
    }
    Ok(())
}
