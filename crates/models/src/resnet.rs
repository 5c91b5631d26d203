//! ResNet-50. Flows in: images (n, 3, h, w); flows out: logits (n, 1000).

use monoglot_nn::{BatchNorm, Conv2d, ConvOptions, Linear, module};
use monoglot_tensor::Tensor;

#[track_caller]
fn conv(inputs: usize, outputs: usize, size: usize, stride: usize) -> Conv2d {
    let options = ConvOptions {
        stride: stride.into(),
        padding: (size / 2).into(),
        ..ConvOptions::default()
    };
    Conv2d::with(inputs, outputs, [size; 2], options).without_bias()
}

/// 1×1, 3×3 and 1×1 convolutions, added to the input or to a 1×1 convolution of it.
#[derive(Debug)]
pub struct Bottleneck {
    c1: Conv2d,
    b1: BatchNorm,
    c2: Conv2d,
    b2: BatchNorm,
    c3: Conv2d,
    b3: BatchNorm,
    down: Option<(Conv2d, BatchNorm)>,
}
module!(Bottleneck {
    c1,
    b1,
    c2,
    b2,
    c3,
    b3,
    down
});

impl Bottleneck {
    /// From `inputs` channels to four times `middle`.
    #[track_caller]
    pub fn new(inputs: usize, middle: usize, stride: usize) -> Bottleneck {
        let outputs = 4 * middle;
        let changes = stride != 1 || inputs != outputs;
        Bottleneck {
            c1: conv(inputs, middle, 1, 1),
            b1: BatchNorm::new(middle),
            c2: conv(middle, middle, 3, stride),
            b2: BatchNorm::new(middle),
            c3: conv(middle, outputs, 1, 1),
            b3: BatchNorm::new(outputs),
            down: changes.then(|| (conv(inputs, outputs, 1, stride), BatchNorm::new(outputs))),
        }
    }

    /// (N, inputs, H, W) → (N, 4·middle, H / stride, W / stride).
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        let y = self.b1.forward(&self.c1.forward(x)).relu();
        let y = self.b2.forward(&self.c2.forward(&y)).relu();
        let y = self.b3.forward(&self.c3.forward(&y));
        match &self.down {
            Some((conv, norm)) => (y + norm.forward(&conv.forward(x))).relu(),
            None => (y + x).relu(),
        }
    }
}

/// The whole network.
#[derive(Debug)]
pub struct ResNet50 {
    c1: Conv2d,
    b1: BatchNorm,
    blocks: Vec<Bottleneck>,
    fc: Linear,
}
module!(ResNet50 { c1, b1, blocks, fc });

impl ResNet50 {
    /// For three channels and 1,000 classes.
    #[track_caller]
    pub fn new() -> ResNet50 {
        let mut blocks = Vec::new();
        let mut inputs = 64;
        for (middle, count, stride) in [(64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)] {
            for i in 0..count {
                blocks.push(Bottleneck::new(
                    inputs,
                    middle,
                    if i == 0 { stride } else { 1 },
                ));
                inputs = 4 * middle;
            }
        }
        ResNet50 {
            c1: conv(3, 64, 7, 2),
            b1: BatchNorm::new(64),
            blocks,
            fc: Linear::new(2048, 1000),
        }
    }

    /// Images (N, 3, H, W) → scores (N, 1000).
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        let x = self
            .b1
            .forward(&self.c1.forward(x))
            .relu()
            .max_pool(3, 2, 1, 1);
        let x = self.blocks.iter().fold(x, |x, block| block.forward(&x));
        self.fc.forward(&x.mean([2, 3], false))
    }
}

impl Default for ResNet50 {
    fn default() -> ResNet50 {
        ResNet50::new()
    }
}
