//! An image pipeline: blur, Sobel's edges, a smaller size, a histogram; and its gradient.

use crate::reference::Reference;
use crate::{floats, numbers};
use monoglot::prelude::*;
use monoglot::{Interpolation, PadMode};

fn picture() -> Tensor {
    let noise = floats(6, 48 * 64);
    let pixel = |i: usize| {
        let y = (i / 64) as f64;
        let x = (i % 64) as f64;
        let disc = (x - 30.0).powi(2) + (y - 20.0).powi(2) < 150.0;
        (0.5 * f64::from(disc) + x / 256.0) as f32 + 0.1 * (noise[i] + 1.0)
    };
    Tensor::new(
        &(0..48 * 64).map(pixel).collect::<Vec<f32>>(),
        [1, 1, 48, 64],
    )
}

#[test]
fn an_image_is_blurred_edged_resized_and_counted() -> Result<()> {
    let reference = Reference::new(include_str!("image_pipeline.txt"));
    let image = picture();
    let taps = Tensor::new(&[1f32, 4.0, 6.0, 4.0, 1.0], 5) / 16.0;
    let gauss = (taps.unsqueeze(1) * &taps).reshape([1, 1, 5, 5]);
    let around = image.pad(&[[2, 2], [2, 2]], PadMode::Reflect);
    let blurred = around.conv(&gauss, None, &ConvOptions::default());

    let dx = Tensor::new(&[-1f32, 0., 1., -2., 0., 2., -1., 0., 1.], [3, 3]);
    let sobel = Tensor::stack(&[&dx, &dx.t()], 0).unsqueeze(1);
    let around = blurred.pad(&[[1, 1], [1, 1]], PadMode::Replicate);
    let slopes = around.conv(&sobel, None, &ConvOptions::default());
    let edges = (slopes.square().sum(1, true) + 1e-6).sqrt();

    let linear = Interpolation::Linear {
        align_corners: false,
    };
    let small = edges.interpolate([20, 28], linear);
    let bins = (&small / small.max(.., false) * 16.0)
        .floor()
        .clamp(0.0, 15.0);
    let histogram = bins
        .cast(DType::I32)
        .flatten(0, -1)
        .one_hot(16)
        .sum(0, false);

    reference.check("blurred", &blurred, 1e-6)?;
    reference.check("edges", &edges, 1e-5)?;
    reference.check("small", &small, 1e-5)?;
    reference.check("histogram", &histogram, 1e-9)?;
    let loss = (&small * numbers(7, [1, 1, 20, 28])).sum(.., false);
    let gradient = loss.gradient(&[&image])?;
    reference.check("gradient", &gradient[0], 1e-4)
}
