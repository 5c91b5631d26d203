//! Layers and optimizers against their formulas, computed here by hand. Flows in: small layers and
//! losses; flows out: comparisons.

use crate::{
    Adam, AdamW, BatchNorm, Conv2d, Dropout, Embedding, GroupNorm, LayerNorm, Linear, Module,
    Optimizer, Part, RmsNorm, Sgd, join, module, without_data,
};
use monoglot_tensor::{DType, ErrorKind, Result, Tensor};

/// Learned numbers alone.
struct Weights(Tensor);

impl Module for Weights {
    fn visit(&self, path: &str, see: &mut dyn FnMut(&str, Part)) {
        see(&join(path, "w"), Part::Parameter(&self.0));
    }
}

fn close(got: &[f32], want: &[f64]) {
    assert_eq!(got.len(), want.len());
    for (g, w) in got.iter().zip(want) {
        assert!(
            (*g as f64 - w).abs() <= 2e-6 + 2e-6 * w.abs(),
            "{got:?} is not {want:?}"
        );
    }
}

/// Five steps on Σ (w − t)², by an optimizer and by `by_hand(w, gradient, step from 1)`.
fn compare(
    make: impl Fn(&Weights) -> Box<dyn Optimizer>,
    mut by_hand: impl FnMut(usize, f64, f64, i32) -> f64,
) {
    let start = [0.5f64, -1.0, 2.0];
    let goal = [1.0f64, 1.0, -3.0];
    let net = Weights(Tensor::new(&start.map(|x| x as f32), [3]));
    let t = Tensor::new(&goal.map(|x| x as f32), [3]);
    let optimizer = make(&net);
    let mut w = start;
    for step in 1..=5 {
        let loss = (&net.0 - &t).square().sum(.., false);
        optimizer.step(&loss).expect("a step");
        let want_loss: f64 = w.iter().zip(&goal).map(|(w, t)| (w - t) * (w - t)).sum();
        close(&[loss.item().expect("a loss")], &[want_loss]);
        w = std::array::from_fn(|i| by_hand(i, w[i], 2.0 * (w[i] - goal[i]), step));
        close(&net.0.to_vec::<f32>().expect("weights"), &w);
    }
}

#[test]
fn gradient_descent() {
    compare(|n| Box::new(Sgd::new(n, 0.1)), |_, w, g, _| w - 0.1 * g);
    let mut v = [0.0; 3];
    let mut u = [0.0; 3];
    compare(
        |n| Box::new(Sgd::new(n, 0.1).momentum(0.9)),
        |i, w, g, _| {
            v[i] = 0.9 * v[i] + g;
            w - 0.1 * v[i]
        },
    );
    compare(
        |n| Box::new(Sgd::new(n, 0.1).nesterov(0.9).weight_decay(0.01)),
        |i, w, g, _| {
            let g = g + 0.01 * w;
            u[i] = 0.9 * u[i] + g;
            w - 0.1 * (g + 0.9 * u[i])
        },
    );
}

/// Adam's step as it is published.
fn adam(m: &mut f64, v: &mut f64, g: f64, step: i32, eps: f64) -> f64 {
    *m = 0.9 * *m + 0.1 * g;
    *v = 0.999 * *v + 0.001 * g * g;
    let first = *m / (1.0 - 0.9f64.powi(step));
    let second = *v / (1.0 - 0.999f64.powi(step));
    first / (second.sqrt() + eps)
}

#[test]
fn adaptive_moments() {
    // f32 holds 1 − 0.999 to 5 digits.
    let mut m = [0.0; 3];
    let mut v = [0.0; 3];
    compare(
        |n| Box::new(Adam::new(n, 0.001).eps(1e-3)),
        |i, w, g, step| w - 0.001 * adam(&mut m[i], &mut v[i], g, step, 1e-3),
    );
    let mut m = [0.0; 3];
    let mut v = [0.0; 3];
    compare(
        |n| Box::new(Adam::new(n, 0.001).weight_decay(0.1)),
        |i, w, g, step| w - 0.001 * adam(&mut m[i], &mut v[i], g + 0.1 * w, step, 1e-8),
    );
    let mut m = [0.0; 3];
    let mut v = [0.0; 3];
    compare(
        |n| Box::new(AdamW::new(n, 0.001, 0.1)),
        |i, w, g, step| w * (1.0 - 0.0001) - 0.001 * adam(&mut m[i], &mut v[i], g, step, 1e-8),
    );
}

#[test]
fn the_learning_rate_can_change() -> Result<()> {
    let net = Weights(Tensor::new(&[1f32], [1]));
    let sgd = Sgd::new(&net, 0.5);
    sgd.step(&net.0.sum(.., false))?;
    assert_eq!(net.0.to_vec::<f32>()?, [0.5]);
    sgd.set_rate(0.25);
    sgd.step(&net.0.sum(.., false))?;
    assert_eq!(net.0.to_vec::<f32>()?, [0.25]);
    Ok(())
}

/// What is kept of f64 parameters is f64, of narrow ones f32.
#[test]
fn every_float_is_learned_at_its_own_width() -> Result<()> {
    let start = [0.3, -0.7, 1.1];
    let cases = [
        (DType::F64, 1e-14, 1e-8),
        (DType::F64, 1e-14, 0.5),
        (DType::F16, 2e-3, 1e-8),
        (DType::BF16, 2e-2, 1e-8),
    ];
    for (dtype, bound, eps) in cases {
        let net = Weights(Tensor::new(&start, [3]).cast(dtype).parameter());
        let adam_w = AdamW::new(&net, 0.1, 0.01).eps(eps);
        let mut want = start;
        let mut m = [0.0; 3];
        let mut v = [0.0; 3];
        for step in 1..=4 {
            adam_w.step(&net.0.square().sum(.., false))?;
            for (i, w) in want.iter_mut().enumerate() {
                let g = 2.0 * *w;
                *w = *w * 0.999 - 0.1 * adam(&mut m[i], &mut v[i], g, step, eps);
            }
        }
        assert_eq!(net.0.dtype()?, dtype);
        for (got, want) in net.0.cast(DType::F64).to_vec::<f64>()?.iter().zip(want) {
            assert!((got - want).abs() < bound, "{dtype}: {got}, not {want}");
        }
    }
    Ok(())
}

#[test]
fn a_loss_without_parameters_is_an_error() {
    let net = Weights(Tensor::new(&[1f32], [1]));
    let e = Sgd::new(&net, 0.5)
        .step(&Tensor::zeros(()))
        .expect_err("nothing to learn from");
    assert!(matches!(e.kind(), ErrorKind::Gradient { .. }), "{e}");
    let bad = net.0.reshape([7]).sum(.., false);
    let e = Sgd::new(&net, 0.5)
        .step(&bad)
        .expect_err("one element is not seven");
    assert!(matches!(e.kind(), ErrorKind::Shape { .. }), "{e}");
}

#[test]
fn batch_norm_follows_its_batches() -> Result<()> {
    let norm = BatchNorm::new(2);
    // Channel 0: 1, 3, 5, 7 with mean 4 and variance 5; channel 1 ten times that.
    let x = Tensor::new(&[1f32, 3.0, 10.0, 30.0, 5.0, 7.0, 50.0, 70.0], [2, 2, 2]);
    let y = norm.forward(&x).to_vec::<f32>()?;
    let unit = |v: f64| v / (5.0f64 + 1e-5).sqrt();
    close(&y[..2], &[unit(-3.0), unit(-1.0)]);
    norm.realize()?;
    close(&norm.running_mean.to_vec::<f32>()?, &[0.4, 4.0]);
    // Moved by a tenth of the unbiased variances 20/3 and 2000/3.
    close(
        &norm.running_var.to_vec::<f32>()?,
        &[0.9 + 2.0 / 3.0, 0.9 + 200.0 / 3.0],
    );
    norm.eval();
    let y = norm.forward(&x).to_vec::<f32>()?;
    close(&y[..1], &[(1.0 - 0.4) / (0.9f64 + 2.0 / 3.0 + 1e-5).sqrt()]);
    close(&norm.running_mean.to_vec::<f32>()?, &[0.4, 4.0]);
    Ok(())
}

/// Of no rows, and of one where there may be more, nothing is learned: statistics stay, and are numbers.
#[test]
fn batch_norm_keeps_its_statistics_where_there_is_no_variance() -> Result<()> {
    let norm = BatchNorm::new(2);
    assert!(
        norm.forward(&Tensor::zeros([0, 2]))
            .to_vec::<f32>()?
            .is_empty()
    );
    norm.realize()?;
    close(&norm.running_mean.to_vec::<f32>()?, &[0.0, 0.0]);
    close(&norm.running_var.to_vec::<f32>()?, &[1.0, 1.0]);
    let rows = |data: &[f32]| Tensor::new(data, [data.len() as i64 / 2, 2]).dynamic(0, 0..=4);
    close(
        &norm.forward(&rows(&[1.0, 2.0])).to_vec::<f32>()?,
        &[0.0, 0.0],
    );
    norm.realize()?;
    close(&norm.running_var.to_vec::<f32>()?, &[1.0, 1.0]);
    norm.forward(&rows(&[1.0, 2.0, 3.0, 6.0])).realize()?;
    norm.realize()?;
    close(&norm.running_mean.to_vec::<f32>()?, &[0.2, 0.4]);
    close(&norm.running_var.to_vec::<f32>()?, &[1.1, 1.7]);
    Ok(())
}

#[test]
fn a_step_updates_running_statistics() -> Result<()> {
    struct Net {
        norm: BatchNorm,
        head: Linear,
    }
    module!(Net { norm, head });
    let net = Net {
        norm: BatchNorm::new(2),
        head: Linear::new(2, 1),
    };
    let sgd = Sgd::new(&net, 0.1);
    let x = Tensor::new(&[0f32, 2.0, 4.0, 6.0], [2, 2]);
    for _ in 0..2 {
        sgd.step(
            &net.head
                .forward(&net.norm.forward(&x))
                .square()
                .sum(.., false),
        )?;
    }
    close(
        &net.norm.running_mean.to_vec::<f32>()?,
        &[0.2 * 0.9 + 0.2, 0.4 * 0.9 + 0.4],
    );
    Ok(())
}

#[test]
fn parts_have_names() {
    struct Net {
        convs: Vec<Conv2d>,
        norm: BatchNorm,
        dropout: Dropout,
        head: Option<Linear>,
        none: Option<Linear>,
    }
    module!(Net {
        convs,
        norm,
        dropout,
        head,
        none
    });
    let net = Net {
        convs: vec![Conv2d::new(1, 2, 3), Conv2d::new(2, 2, 3).without_bias()],
        norm: BatchNorm::new(2),
        dropout: Dropout::new(0.5),
        head: Some(Linear::new(2, 3)),
        none: None,
    };
    let names: Vec<String> = net.named().into_iter().map(|(n, _)| n).collect();
    let want = [
        "convs.0.weight",
        "convs.0.bias",
        "convs.1.weight",
        "norm.weight",
        "norm.bias",
        "norm.running_mean",
        "norm.running_var",
        "head.weight",
        "head.bias",
    ];
    assert_eq!(names, want);
    assert_eq!(net.parameters().len(), 7);
    assert_eq!(net.buffers().len(), 2);
    assert_eq!(net.parameter_count(), Ok(18 + 2 + 36 + 2 + 2 + 6 + 3));
    net.eval();
    assert!(!net.norm.mode.training() && !net.dropout.mode.training());
    net.train();
    assert!(net.norm.mode.training() && net.dropout.mode.training());
}

#[test]
fn layers_keep_shapes() -> Result<()> {
    let x = Tensor::ones([2, 4, 6]);
    assert_eq!(Linear::new(6, 5).forward(&x).shape()?, [2, 4, 5]);
    assert_eq!(LayerNorm::new(6).forward(&x).shape()?, [2, 4, 6]);
    assert_eq!(RmsNorm::new(6).forward(&x).shape()?, [2, 4, 6]);
    assert_eq!(GroupNorm::new(2, 4).forward(&x).shape()?, [2, 4, 6]);
    assert_eq!(crate::Conv1d::new(4, 3, 3).forward(&x).shape()?, [2, 3, 4]);
    let table = Embedding::new(10, 3);
    assert_eq!(
        table
            .forward(&Tensor::new(&[1i32, 2, 3, 4], [2, 2]))
            .shape()?,
        [2, 2, 3]
    );
    assert!(Linear::new(7, 5).forward(&x).shape().is_err());
    Ok(())
}

#[test]
fn dropout_keeps_the_mean_and_stops_in_prediction() -> Result<()> {
    let layer = Dropout::new(0.25);
    let x = Tensor::ones([4096]);
    let y = layer.forward(&x).to_vec::<f32>()?;
    assert!(y.iter().all(|&v| v == 0.0 || (v - 1.0 / 0.75).abs() < 1e-6));
    let kept = y.iter().filter(|&&v| v != 0.0).count() as f64 / 4096.0;
    assert!(
        (kept - 0.75).abs() < 0.05,
        "{kept} of the elements are kept"
    );
    layer.eval();
    assert_eq!(layer.forward(&x).to_vec::<f32>()?, vec![1.0; 4096]);
    Ok(())
}

#[test]
fn weights_begin_as_documented() -> Result<()> {
    let layer = Linear::new(25, 40);
    let w = layer.weight.to_vec::<f32>()?;
    assert!(w.iter().all(|v| v.abs() <= 0.2));
    let spread = w.iter().map(|v| (v * v) as f64).sum::<f64>() / 1000.0;
    assert!(
        (spread - 0.04 / 3.0).abs() < 0.002,
        "uniform on ±0.2 has variance {spread}"
    );
    // Equal shapes, different values.
    assert_ne!(w, Linear::new(25, 40).weight.to_vec::<f32>()?);
    Ok(())
}

#[test]
fn a_network_without_data_has_shapes_alone() -> Result<()> {
    let layer = without_data(|| Linear::new(1 << 20, 1 << 20));
    assert_eq!(layer.weight.shape()?, [1 << 20, 1 << 20]);
    assert_eq!(
        layer.forward(&Tensor::ones([2, 1 << 20])).shape()?,
        [2, 1 << 20]
    );
    Ok(())
}

#[test]
fn a_network_is_held_in_another_dtype() -> Result<()> {
    let net = Linear::new(64, 32);
    let x = Tensor::arange(0, 128, 1).cast(DType::F32).reshape([2, 64]) / 128.0;
    let before = net.forward(&x).to_vec::<f32>()?;
    assert!(net.cast(DType::I32).is_err());
    assert_eq!(net.weight.dtype()?, DType::F32);
    net.cast(DType::BF16)?;
    for t in net.parameters() {
        assert_eq!(t.dtype()?, DType::BF16);
    }
    let y = net.forward(&x.cast(DType::BF16));
    assert_eq!(y.dtype()?, DType::BF16);
    let after = y.cast(DType::F32).to_vec::<f32>()?;
    for (a, b) in before.iter().zip(&after) {
        assert!((a - b).abs() < 0.03, "{a} {b}");
    }
    assert!(before != after, "numbers of 8 bits are others");
    // Gradients reach what it holds now.
    let loss = y.cast(DType::F32).square().sum(.., false);
    let found = loss.gradient(&[&net.weight])?.remove(0);
    assert_eq!(found.dtype()?, DType::BF16);
    assert_eq!(found.shape()?, [32, 64]);
    Ok(())
}

#[test]
fn tied_weights_are_one_parameter() -> Result<()> {
    let embedding = Embedding::new(3, 2);
    let weight = Tensor::new(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], [3, 2]);
    embedding.weight.rebind(&weight.parameter());
    let mut head = Linear::new(2, 3).without_bias();
    head.weight = embedding.weight.clone();
    let net = (embedding, head);
    assert_eq!(net.parameters().len(), 1);
    assert_eq!(net.parameter_count()?, 6);
    let names: Vec<String> = net.named().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["0.weight", "1.weight"]);
    // Of w₀·(w₀ + w₁ + w₂): w₀ has 2·w₀ + w₁ + w₂, the others have w₀.
    let optimizer = Sgd::new(&net, 0.5);
    for _ in 0..2 {
        let x = net.0.forward(&Tensor::new(&[0i64], [1]));
        optimizer.step(&net.1.forward(&x).sum(.., false))?;
    }
    // First (10, 14), (1, 2); then w = (-4, -5), (2.5, 3), (4.5, 5) has (-1, -2), (-4, -5).
    let want = [-3.5, -4.0, 4.5, 5.5, 6.5, 7.5];
    close(&net.1.weight.to_vec::<f32>()?, &want);
    Ok(())
}

#[test]
fn half_types_are_learned_with_wide_state() -> Result<()> {
    // Whatever its size, Adam moves against a constant gradient by its rate.
    for gradient in [1e-4, 1e-2, 1e3] {
        let net = Weights(Tensor::new(&[1f32], [1]).cast(DType::F16).parameter());
        let adam = Adam::new(&net, 0.1);
        for _ in 0..3 {
            adam.step(&(&net.0 * gradient).sum(.., false))?;
        }
        let at = net.0.cast(DType::F32).item::<f32>()?;
        assert!((at - 0.7).abs() < 2e-3, "{gradient}: {at}");
    }
    Ok(())
}

#[test]
fn running_variances_are_rounded_once() -> Result<()> {
    let norm = BatchNorm::new(1);
    norm.cast(DType::F16)?;
    let x = Tensor::new(&[300f32, -300.0, 280.0, -290.0], [4, 1]).cast(DType::F16);
    Tensor::realize_all(&[&norm.forward(&x), &norm.running_var])?;
    // 0.9 · 1 + 0.1 · 114,158.33; the batch's own is past what f16 holds.
    assert_eq!(norm.running_var.cast(DType::F32).item::<f32>()?, 11_416.0);
    Ok(())
}

#[test]
fn one_value_is_no_batch() -> Result<()> {
    let norm = BatchNorm::new(2);
    let e = norm.forward(&Tensor::ones([1, 2])).realize().unwrap_err();
    assert!(e.to_string().contains("one value a channel"), "{e}");
    assert_eq!(norm.running_var.to_vec::<f32>()?, [1.0, 1.0]);
    Ok(())
}

#[test]
fn an_lstm_promotes_its_input_as_other_layers_do() -> Result<()> {
    let net = crate::Lstm::new(3, 2);
    let half = Tensor::ones([4, 2, 3]).cast(DType::BF16);
    let (all, (h, _)) = net.forward(&half)?;
    let (want, _) = net.forward(&half.cast(DType::F32))?;
    assert_eq!(h.dtype()?, DType::F32);
    assert_eq!(all.to_vec::<f32>()?, want.to_vec::<f32>()?);
    Ok(())
}
