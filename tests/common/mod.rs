//! The network of tests that train. Flows in: images; flows out: scores. Invariant: it has a layer of each kind that holds
//! something: weights, statistics, random numbers.

use monoglot::prelude::*;

/// Images of 8 × 8 pixels to scores of ten classes.
pub(crate) struct Net {
    pub(crate) conv: Conv2d,
    pub(crate) norm: BatchNorm,
    pub(crate) dropout: Dropout,
    pub(crate) head: Linear,
}
module!(Net {
    conv,
    norm,
    dropout,
    head
});

impl Net {
    pub(crate) fn new() -> Net {
        Net {
            conv: Conv2d::new(1, 4, 3),
            norm: BatchNorm::new(4),
            dropout: Dropout::new(0.2),
            head: Linear::new(4 * 36, 10),
        }
    }

    pub(crate) fn forward(&self, x: &Tensor) -> Tensor {
        let x = self.norm.forward(&self.conv.forward(x)).relu();
        self.head.forward(&self.dropout.forward(&x.flatten(1, -1)))
    }
}
