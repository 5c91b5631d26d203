//! Values written over row by row: what nobody needs any more is overwritten by the kernel that normalises it. Flows in:
//! the façade; flows out: results beside those of programs in which the same value is wanted, too, and stays.

use monoglot::Config;
use monoglot::compiler::engine;
use monoglot::prelude::*;

/// Rows of a value that is stored, and a normalisation of it.
type Normalise = fn(&Tensor) -> Tensor;

const ALL: [Normalise; 4] = [|x| x.softmax(-1), |x| x.log_softmax(-1), layer_norm, uneven];
const MIXED: [Normalise; 2] = [mixed, twice_summed];

fn layer_norm(x: &Tensor) -> Tensor {
    let centred = x - x.mean(-1, true);
    &centred / (centred.square().mean(-1, true) + 1e-5).sqrt()
}

/// Later elements of a row are told by its first ones, and by those of the row before.
fn uneven(x: &Tensor) -> Tensor {
    let highest = x.max(-1, true);
    let e = (x - &highest).exp();
    (x * &e.sum(-1, true) + &highest).maximum(x.min(-1, true) * 0.5)
}

/// Every element of a row is made of all of that row: none can be written before the last is made.
fn mixed(x: &Tensor) -> Tensor {
    let n = x.shape().map_or(0, |s| s[1] as i64);
    let weights = Tensor::arange(0, n * n, 1).cast(DType::F32);
    x.matmul(&weights.sin().reshape([n, n]))
}

/// The same, of sums of the row before them.
fn twice_summed(x: &Tensor) -> Tensor {
    let sums = mixed(&(x - x.mean(-1, true)));
    sums.tanh()
}

fn input(shape: [i64; 2]) -> Result<Tensor> {
    let count = shape[0] * shape[1];
    let x = Tensor::arange(0, count, 1).cast(DType::F32);
    let x = ((x * 0.37).sin() * 3.0).reshape(shape).contiguous();
    x.realize()?;
    Ok(x)
}

/// What is normalised is `3x`; `kept`: it is wanted as well, and cannot be overwritten.
fn normalised(x: &Tensor, f: Normalise, kept: bool) -> Result<Vec<f32>> {
    let stored = (x * 3.0 + 0.125).contiguous();
    let y = f(&stored);
    match kept {
        true => Tensor::realize_all(&[&stored, &y])?,
        false => {
            drop(stored);
            y.realize()?
        }
    };
    y.to_vec()
}

#[test]
fn rows_are_what_they_are_where_their_storage_is_another() -> Result<()> {
    for device in ["CPU", "CPU:X86:x86-64-v2", "INTERP"] {
        for threads in [1, 2] {
            Config {
                device: Some(device.into()),
                threads: Some(threads),
                ..Config::default()
            }
            .set();
            assert_eq!(engine::default_device(), Device::new(device));
            for shape in [[128, 130], [67, 251], [512, 64], [4099, 7], [17, 2000]] {
                let x = input(shape)?;
                let products = if shape[1] < 200 { &MIXED[..] } else { &[] };
                for (i, f) in ALL.iter().chain(products).enumerate() {
                    let apart = normalised(&x, *f, true)?;
                    let over = normalised(&x, *f, false)?;
                    assert_eq!(apart.len(), over.len());
                    for (at, (a, b)) in apart.iter().zip(&over).enumerate() {
                        let close = (a - b).abs() <= 1e-4 * a.abs().max(1.0);
                        let place = format!("{device} {threads} {shape:?} {i}: {at}");
                        assert!(close, "{place}: {b}, not {a}");
                    }
                }
            }
        }
    }
    Ok(())
}
