//! Learns to read handwritten digits: `cargo run --release --example digits [-- --seed N]`.
mod common;
use monoglot::prelude::*;

fn main() -> Result<()> {
    let epochs = 20;
    let rate = 2e-3;
    Tensor::manual_seed(common::seed());
    let (test, train) = data::digits()?.split(|i| i % 5 == 4);
    let net = Net::new();
    let adam = AdamW::new(&net, rate, 0.01);
    let bar = common::progress(epochs);
    for epoch in 0..epochs {
        adam.set_rate(rate * (1.0 - epoch as f64 / epochs as f64));
        for rows in train.shuffled(32)? {
            let (images, labels) = train.batch(&rows);
            let scores = net.forward(&images);
            adam.step(&scores.cross_entropy(&labels, Reduction::Mean, 0.1))?;
        }
        bar.inc(1);
    }
    common::finish(&bar, &net, |x| net.forward(x), &test)
}

/// Two convolutions and two linear layers.
struct Net {
    c1: Conv2d,
    c2: Conv2d,
    l1: Linear,
    l2: Linear,
    dropout: Dropout,
}
module!(Net {
    c1,
    c2,
    l1,
    l2,
    dropout
});

impl Net {
    fn new() -> Net {
        let padded = || ConvOptions {
            padding: 1.into(),
            ..ConvOptions::default()
        };
        Net {
            c1: Conv2d::with(1, 32, [3, 3], padded()),
            c2: Conv2d::with(32, 64, [3, 3], padded()),
            l1: Linear::new(64 * 4 * 4, 128),
            l2: Linear::new(128, 10),
            dropout: Dropout::new(0.5),
        }
    }

    /// Images (N, 1, 8, 8) → scores (N, 10).
    fn forward(&self, x: &Tensor) -> Tensor {
        let x = self
            .c2
            .forward(&self.c1.forward(x).relu())
            .relu()
            .max_pool(2, 2, 0, 1);
        let x = self
            .l1
            .forward(&self.dropout.forward(&x.flatten(1, -1)))
            .relu();
        self.l2.forward(&self.dropout.forward(&x))
    }
}
