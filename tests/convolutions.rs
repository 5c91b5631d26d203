//! Convolutions of odd sizes, and their gradients: images whose rows no tile divides, channels that are no whole vectors,
//! steps that leave places out, windows over what surrounds an image. Flows in: the façade; flows out: comparisons of
//! the machine's kernels with the interpreter's.

use monoglot::prelude::*;
use monoglot::{Config, Conv};

/// Images, channels in and out, height, width, taps, step, groups.
type Sizes = [i64; 8];

const ALL: &[Sizes] = &[
    // Rows of a prime number of places, and of more than a tile has.
    [1, 8, 32, 5, 17, 3, 1, 1],
    [1, 8, 64, 3, 37, 3, 1, 1],
    [2, 12, 48, 7, 35, 1, 1, 1],
    // Channels that are no whole vectors.
    [2, 8, 20, 10, 10, 3, 1, 1],
    [1, 24, 44, 9, 13, 3, 1, 1],
    [2, 20, 50, 6, 6, 5, 1, 1],
    // Small images of many channels, of which weights lie one behind the other.
    [1, 48, 64, 7, 7, 3, 1, 1],
    [2, 64, 96, 4, 4, 3, 2, 1],
    // Steps of two over an odd number of places.
    [1, 6, 16, 15, 15, 3, 2, 1],
    [2, 12, 12, 19, 11, 3, 2, 12],
    // Windows over whole rows of some vectors, and of others.
    [2, 5, 5, 9, 56, 3, 1, 5],
    [1, 4, 4, 7, 64, 5, 1, 4],
    [1, 4, 4, 6, 49, 3, 1, 4],
    [1, 3, 3, 5, 30, 3, 1, 3],
    [1, 3, 3, 5, 80, 3, 1, 3],
    // Groups that threads do not divide.
    [1, 12, 12, 11, 11, 3, 1, 3],
];

/// Numbers of which sums of products are exact.
fn numbers(count: i64, seed: i64) -> Vec<f32> {
    (0..count)
        .map(|i| ((i * 37 + seed * 11) % 15 - 7) as f32)
        .collect()
}

/// The convolution, and the gradients of the image and of the weights.
fn results(&[n, i, o, h, w, k, step, groups]: &Sizes) -> Result<Vec<Vec<f32>>> {
    let x = Tensor::new(&numbers(n * i * h * w, 1), [n, i, h, w]);
    let weights = Tensor::new(&numbers(o * i / groups * k * k, 2), [o, i / groups, k, k]);
    let how = Conv {
        stride: vec![step, step].into(),
        padding: vec![k / 2, k / 2].into(),
        groups,
        ..Conv::default()
    };
    let y = x.conv2d(&weights, None, &how);
    let shape: Vec<i64> = y.shape()?.iter().map(|&n| n as i64).collect();
    let seed = Tensor::new(&numbers(shape.iter().product(), 3), shape);
    let gradients = y.gradient_with(&seed, &[&x, &weights])?;
    [y].iter()
        .chain(&gradients)
        .map(|t| t.to_vec::<f32>())
        .collect()
}

#[test]
fn convolutions_of_odd_sizes_are_what_the_interpreter_says() {
    let on = |device: &str, threads: usize| {
        Config {
            device: Some(device.into()),
            threads: Some(threads),
            ..Config::default()
        }
        .set();
    };
    // The first has the widest vectors that the machine has.
    let levels = match cfg!(target_arch = "x86_64") {
        true => &["CPU", "CPU:X86:x86-64-v3", "CPU:X86:x86-64-v2"][..],
        false => &["CPU"],
    };
    for sizes in ALL {
        on("INTERP", 1);
        let want = results(sizes).expect("the interpreter's");
        for device in levels {
            for threads in [1, 2] {
                on(device, threads);
                let got = results(sizes).unwrap_or_else(|e| panic!("{sizes:?} on {device}: {e}"));
                assert!(got == want, "{sizes:?} on {device} by {threads}");
            }
        }
    }
}
