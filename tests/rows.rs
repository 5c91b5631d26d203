//! Kernels that write over the rows that they read: their values are those of kernels that have storage of their own.
//! Flows in: programs whose last kernel reads a row more than once; flows out: comparisons on each device.

use monoglot::prelude::*;
use monoglot::{Config, Result};

/// A normalisation, of what a product gives.
type Normalised = fn(&Tensor) -> Result<Tensor>;

/// Normalisations along one axis and along several, of rows read twice and three times, and by what comes after.
const ALL: [(&str, Normalised); 7] = [
    ("softmax", |y| Ok(y.softmax(-1))),
    ("log softmax", |y| Ok(y.log_softmax(-1))),
    ("along the first axis", |y| Ok(y.softmax(0))),
    ("variance", |y| {
        let centred = y - &y.mean([-1], true);
        Ok(&centred * &(centred.square().mean([-1], true) + 1e-5).rsqrt())
    }),
    ("both axes", |y| Ok(y - &y.max(.., true))),
    ("groups", |y| {
        let parts = y.reshape([160, 8, 20]);
        Ok((&parts - &parts.mean([1, 2], true)).reshape([160, 160]))
    }),
    ("sums up to each", |y| Ok(y.cumsum(-1))),
];

#[test]
fn rows_are_those_of_storage_apart() -> Result<()> {
    for device in ["CPU", "CPU:C", "CPU:X86:x86-64-v2", "INTERP"] {
        if device.contains("X86") && !cfg!(target_arch = "x86_64") {
            continue;
        }
        Config {
            device: Some(device.into()),
            ..Config::default()
        }
        .set();
        let ramp = |n: usize, step: f32| {
            let values: Vec<f32> = (0..n).map(|i| (i as f32 * step).sin()).collect();
            Tensor::new(&values, [160, n / 160])
        };
        let x = ramp(160 * 12, 0.7);
        let w = ramp(160 * 12, 1.3);
        for (name, normalised) in ALL {
            let y = x.matmul(&w.t()).tanh().contiguous();
            let over = normalised(&y)?.to_vec::<f32>()?;
            // What is asked for as well is not written over.
            let y = x.matmul(&w.t()).tanh().contiguous();
            let z = normalised(&y)?;
            Tensor::realize_all(&[&y, &z])?;
            let apart = z.to_vec::<f32>()?;
            for (i, (a, b)) in over.iter().zip(&apart).enumerate() {
                let close = (a - b).abs() <= 1e-5 * b.abs().max(1.0);
                assert!(close, "{name} on {device}, {i}: {a} is not {b}");
            }
        }
    }
    Ok(())
}
