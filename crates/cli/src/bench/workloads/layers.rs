//! Layers as networks put them together, where what meets in one expression decides what is a kernel: products that
//! meet, statistics between convolutions, images cut in patches, means over the middle axis. Flows in: nothing; flows
//! out: workloads, whose sizes are in their names.

use super::{Sizes, Workload, computing, count, moving, normal, one, values};
use monoglot::Conv;

/// See the module.
pub(super) fn all() -> Vec<Workload> {
    vec![
        swiglu("swiglu_512x1024x2048", [512, 1024, 2048]),
        lora("lora_512x1024_16", [512, 1024, 16]),
        rnn_cell("rnn_cell_64x256", [64, 256]),
        norm_and_conv("bn_conv3x3_8x64x28x28", [8, 64, 28]),
        patches("patches4x4_3_96_8x224x224", [8, 3, 224, 96, 4]),
        mean_axis1("mean_axis1_128x197x768", [128, 197, 768]),
    ]
}

/// A gate, a product with what it lets through, and the product back: rows, width, and width within.
pub(super) fn swiglu(name: &'static str, shape: [i64; 3]) -> Workload {
    let [rows, width, within] = shape;
    let inputs = |s: &Sizes| {
        let weight = || normal(&[s[2], s[1]]);
        vec![normal(&s[..2]), weight(), weight(), normal(&[s[1], s[2]])]
    };
    let all = (rows * width) as f64;
    let weights = 3.0 * (width * within) as f64;
    let work = computing(2.0 * rows as f64 * weights, all + weights, all);
    values(name, work, &shape, inputs, |x, _| {
        let gate = x[0].linear(&x[1], None).silu();
        one((gate * x[0].linear(&x[2], None)).linear(&x[3], None))
    })
}

/// A product, and one of few columns between two thin matrices: rows, width and rank.
pub(super) fn lora(name: &'static str, shape: [i64; 3]) -> Workload {
    let [rows, width, rank] = shape;
    let inputs = |s: &Sizes| {
        let [rows, width, rank] = [s[0], s[1], s[2]];
        let shapes = [[rows, width], [width, width], [rank, width], [width, rank]];
        shapes.map(|s| normal(&s)).to_vec()
    };
    let all = (rows * width) as f64;
    let weights = (width * (width + 2 * rank)) as f64;
    let work = computing(2.0 * rows as f64 * weights, all + weights, all);
    values(name, work, &shape, inputs, |x, _| {
        let thin = x[0].linear(&x[2], None).linear(&x[3], None);
        one(x[0].linear(&x[1], None) + thin * 0.5)
    })
}

/// tanh of what an input and a state give, of rows and width.
pub(super) fn rnn_cell(name: &'static str, shape: [i64; 2]) -> Workload {
    let [rows, width] = shape;
    let inputs = |s: &Sizes| {
        let weight = || normal(&[s[1], s[1]]);
        vec![normal(s), weight(), normal(s), weight(), normal(&s[1..])]
    };
    let all = (rows * width) as f64;
    let weights = 2.0 * (width * width) as f64;
    let work = computing(2.0 * rows as f64 * weights, 2.0 * all + weights, all);
    values(name, work, &shape, inputs, |x, _| {
        let state = x[2].linear(&x[3], None);
        one((x[0].linear(&x[1], Some(&x[4])) + state).tanh())
    })
}

/// Images normed by channel as in training, then a convolution of 3×3: batch, channels and size.
pub(super) fn norm_and_conv(name: &'static str, shape: [i64; 3]) -> Workload {
    let [batch, channels, size] = shape;
    let inputs = |s: &Sizes| {
        let images = normal(&[s[0], s[1], s[2], s[2]]);
        vec![images, normal(&[s[1], s[1], 3, 3])]
    };
    let all = (batch * channels * size * size) as f64;
    let weights = (9 * channels * channels) as f64;
    let work = computing(2.0 * all * (9 * channels) as f64, all + weights, all);
    values(name, work, &shape, inputs, |x, _| {
        let padded = Conv {
            padding: 1.into(),
            ..Conv::default()
        };
        let normed = x[0].batch_norm_train(None, None, 1e-5).0;
        one(normed.relu().conv2d(&x[1], None, &padded))
    })
}

/// What each square patch of an image is embedded as: batch, channels, size, width and size of a patch.
pub(super) fn patches(name: &'static str, shape: [i64; 5]) -> Workload {
    let [batch, channels, size, width, patch] = shape;
    let inputs = |s: &Sizes| {
        let images = normal(&[s[0], s[1], s[2], s[2]]);
        vec![images, normal(&[s[3], s[1], s[4], s[4]])]
    };
    let all = (batch * channels * size * size) as f64;
    let weights = (width * channels * patch * patch) as f64;
    let results = (batch * width * (size / patch) * (size / patch)) as f64;
    let work = computing(2.0 * all * width as f64, all + weights, results);
    values(name, work, &shape, inputs, |x, s| {
        let apart = Conv {
            stride: s[4].into(),
            ..Conv::default()
        };
        one(x[0].conv2d(&x[1], None, &apart))
    })
}

/// The mean over the middle of three axes.
pub(super) fn mean_axis1(name: &'static str, shape: [i64; 3]) -> Workload {
    let [batch, _, width] = shape;
    let work = moving(count(&shape), (batch * width) as f64);
    let array = |s: &Sizes| vec![normal(s)];
    values(name, work, &shape, array, |x, _| one(x[0].mean(1, false)))
}
