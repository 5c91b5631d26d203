//! The convolutional network for 28×28 images that training is measured on: four convolutions, two
//! normalisations, 14 parameter tensors. Flows in: images (n, 1, 28, 28); flows out: scores (n,
//! 10).

use monoglot_nn::{BatchNorm, Conv2d, Linear, module};
use monoglot_tensor::Tensor;

/// conv 1→32 5×5, relu, conv 32→32 5×5, relu, batch norm, max pool 2, conv 32→64 3×3, relu,
/// conv 64→64 3×3, relu, batch norm, max pool 2, linear 576→10.
#[derive(Debug)]
pub struct ConvNet {
    c1: Conv2d,
    c2: Conv2d,
    b1: BatchNorm,
    c3: Conv2d,
    c4: Conv2d,
    b2: BatchNorm,
    fc: Linear,
}
module!(ConvNet {
    c1,
    c2,
    b1,
    c3,
    c4,
    b2,
    fc
});

impl ConvNet {
    /// For one grey channel and ten classes.
    #[track_caller]
    pub fn new() -> ConvNet {
        ConvNet {
            c1: Conv2d::new(1, 32, 5),
            c2: Conv2d::new(32, 32, 5),
            b1: BatchNorm::new(32),
            c3: Conv2d::new(32, 64, 3),
            c4: Conv2d::new(64, 64, 3),
            b2: BatchNorm::new(64),
            fc: Linear::new(576, 10),
        }
    }

    /// Images (N, 1, 28, 28) → scores (N, 10).
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        let x = self.c2.forward(&self.c1.forward(x).relu()).relu();
        let x = self.b1.forward(&x).max_pool(2, 2, 0, 1);
        let x = self.c4.forward(&self.c3.forward(&x).relu()).relu();
        let x = self.b2.forward(&x).max_pool(2, 2, 0, 1);
        self.fc.forward(&x.flatten(1, -1))
    }
}

impl Default for ConvNet {
    fn default() -> ConvNet {
        ConvNet::new()
    }
}
