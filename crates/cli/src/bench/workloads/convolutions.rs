//! Convolutions with both gradients, and pooling. Flows in: nothing; flows out: workloads: kernel, channels
//! in and out of 8 images of 56×56; pools of 8 images of 64×112×112.

use super::{Result, Sizes, Tensor, Work, Workload, computing, count, moving, normal, one, values};
use monoglot::Conv;

/// The numbers of a convolution of square images with a square kernel.
#[derive(Clone, Copy)]
pub(super) struct Layer {
    pub(super) batch: i64,
    pub(super) inputs: i64,
    pub(super) outputs: i64,
    pub(super) image: i64,
    pub(super) kernel: i64,
    pub(super) stride: i64,
    pub(super) groups: i64,
}

/// From channels to channels with a kernel, on 8 images of 56×56.
const fn layer(inputs: i64, outputs: i64, kernel: i64) -> Layer {
    Layer {
        batch: 8,
        inputs,
        outputs,
        image: 56,
        kernel,
        stride: 1,
        groups: 1,
    }
}

/// See the module.
pub(super) fn all() -> Vec<Workload> {
    let dense = layer(64, 64, 3);
    let point = layer(256, 64, 1);
    let strided = Layer { stride: 2, ..dense };
    let wide = layer(32, 32, 5);
    let grouped = Layer { groups: 4, ..dense };
    let depthwise = Layer {
        groups: 64,
        ..dense
    };
    vec![
        forward("conv3x3_64_64", dense),
        grad_x("conv3x3_64_64_grad_x", dense),
        grad_w("conv3x3_64_64_grad_w", dense),
        forward("conv1x1_256_64", point),
        grad_x("conv1x1_256_64_grad_x", point),
        grad_w("conv1x1_256_64_grad_w", point),
        forward("conv3x3_64_64_stride2", strided),
        grad_x("conv3x3_64_64_stride2_grad_x", strided),
        grad_w("conv3x3_64_64_stride2_grad_w", strided),
        forward("conv5x5_32_32", wide),
        grad_x("conv5x5_32_32_grad_x", wide),
        grad_w("conv5x5_32_32_grad_w", wide),
        forward("conv3x3_64_64_groups4", grouped),
        grad_x("conv3x3_64_64_groups4_grad_x", grouped),
        grad_w("conv3x3_64_64_groups4_grad_w", grouped),
        by_bytes(forward("dwconv3x3_64", depthwise)),
        max_pool("max_pool_2x2_8x64x112x112", POOLED, 2, 2),
        max_pool("max_pool_3x3s2_8x64x112x112", POOLED, 3, 2),
        avg_pool("avg_pool_2x2_8x64x112x112", POOLED, 2, 2),
        avg_pool("avg_pool_3x3s2_8x64x112x112", POOLED, 3, 2),
    ]
}

impl Layer {
    /// Padding that keeps the size where the stride is 1.
    fn padding(&self) -> i64 {
        self.kernel / 2
    }

    /// Height and width of what comes out.
    fn out(&self) -> i64 {
        (self.image + 2 * self.padding() - self.kernel) / self.stride + 1
    }

    /// The shapes of images, weights and results, one after the other, then stride, padding and groups.
    fn sizes(&self) -> Sizes {
        let x = [self.batch, self.inputs, self.image, self.image];
        let inputs = self.inputs / self.groups;
        let w = [self.outputs, inputs, self.kernel, self.kernel];
        let y = [self.batch, self.outputs, self.out(), self.out()];
        let how = [self.stride, self.padding(), self.groups];
        [&x[..], &w, &y, &how].concat()
    }

    /// Elements of images, weights and results.
    fn elements(&self) -> [f64; 3] {
        let s = self.sizes();
        [&s[..4], &s[4..8], &s[8..12]].map(count)
    }

    /// Operations of the convolution, and of each of its gradients.
    fn operations(&self) -> f64 {
        let [_, weights, results] = self.elements();
        2.0 * results * weights / self.outputs as f64
    }
}

/// Images and weights.
fn operands(s: &Sizes) -> Vec<Tensor> {
    vec![normal(&s[..4]), normal(&s[4..8])]
}

/// Images, weights, and the gradient that comes back.
fn with_gradient(s: &Sizes) -> Vec<Tensor> {
    let mut all = operands(s);
    all.push(normal(&s[8..12]));
    all
}

fn convolved(x: &[Tensor], s: &Sizes) -> Tensor {
    let how = Conv {
        stride: s[12].into(),
        padding: s[13].into(),
        groups: s[14],
        ..Conv::default()
    };
    x[0].conv2d(&x[1], None, &how)
}

/// The convolution.
pub(super) fn forward(name: &'static str, l: Layer) -> Workload {
    let [x, w, y] = l.elements();
    let work = computing(l.operations(), x + w, y);
    values(name, work, &l.sizes(), operands, |x, s| {
        one(convolved(x, s))
    })
}

/// Its gradient by the images.
pub(super) fn grad_x(name: &'static str, l: Layer) -> Workload {
    let [x, w, y] = l.elements();
    let work = computing(l.operations(), y + w, x);
    let of = |x: &[Tensor], s: &Sizes| convolved(x, s).gradient_with(&x[2], &[&x[0]]);
    values(name, work, &l.sizes(), with_gradient, of)
}

/// Its gradient by the weights.
pub(super) fn grad_w(name: &'static str, l: Layer) -> Workload {
    let [x, w, y] = l.elements();
    let work = computing(l.operations(), x + y, w);
    let of = |x: &[Tensor], s: &Sizes| convolved(x, s).gradient_with(&x[2], &[&x[1]]);
    values(name, work, &l.sizes(), with_gradient, of)
}

/// Scored by the bytes that it moves.
fn by_bytes(w: Workload) -> Workload {
    let moved = moving(0.0, 0.0);
    Workload {
        work: Work {
            score: moved.score,
            ..w.work
        },
        ..w
    }
}

const POOLED: [i64; 4] = [8, 64, 112, 112];

/// The greatest of each window.
pub(super) fn max_pool(name: &'static str, shape: [i64; 4], size: i64, step: i64) -> Workload {
    pooled(name, shape, size, step, |x, s| {
        one(x[0].max_pool(s[4], s[5], 0, 1))
    })
}

/// The mean of each window.
pub(super) fn avg_pool(name: &'static str, shape: [i64; 4], size: i64, step: i64) -> Workload {
    pooled(name, shape, size, step, |x, s| {
        one(x[0].avg_pool(s[4], s[5], 0, true))
    })
}

fn pooled(
    name: &'static str,
    shape: [i64; 4],
    size: i64,
    step: i64,
    of: fn(&[Tensor], &Sizes) -> Result<Vec<Tensor>>,
) -> Workload {
    let [n, channels, height, width] = shape;
    let windows = |length: i64| (length - size) / step + 1;
    let work = moving(
        count(&shape),
        count(&[n, channels, windows(height), windows(width)]),
    );
    let sizes = [&shape[..], &[size, step]].concat();
    values(name, work, &sizes, |s| vec![normal(&s[..4])], of)
}
