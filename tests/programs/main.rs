//! Programs as a new user would write them, checked against values made with PyTorch or NumPy. Flows in:
//! `NAME.txt`, made by `make.py` beside them; out: whether forward values, losses over several steps and
//! gradients agree, each within the tolerance that its line states.
//!
//! A tolerance is relative to the greatest magnitude of what is compared.

mod char_transformer;
mod equations;
mod images;
mod lstm;
mod reference;
mod sampling;
mod second_order;
mod serving;
mod vae;

use monoglot::prelude::*;

/// Numbers in [−1, 1) that make.py makes alike: the top 24 bits of SplitMix64 of a counter.
fn numbers<const N: usize>(seed: u64, shape: [usize; N]) -> Tensor {
    Tensor::new(&floats(seed, shape.iter().product()), shape)
}

fn floats(seed: u64, n: usize) -> Vec<f32> {
    doubles(seed, n).into_iter().map(|v| v as f32).collect()
}

fn doubles(seed: u64, n: usize) -> Vec<f64> {
    let one = |i: u64| {
        let z = (i + (seed << 32)).wrapping_add(1);
        let z = z.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 40) as f64 / (1 << 23) as f64 - 1.0
    };
    (0..n as u64).map(one).collect()
}

/// What the weight of this number, name and shape starts with.
fn weights(seed: u64, name: &str, shape: &[usize]) -> Tensor {
    let scale = match shape {
        [_] => 0.1,
        [.., inputs] => (1.0 / *inputs as f64).sqrt(),
        [] => 1.0,
    };
    let offset = if shape.len() == 1 && name.ends_with("weight") {
        1.0
    } else {
        0.0
    };
    let all = doubles(seed, shape.iter().product());
    let all: Vec<f32> = all.iter().map(|v| (v * scale + offset) as f32).collect();
    Tensor::new(&all, shape)
}

/// Give a network the weights that it has on the other side.
fn start(net: &impl Module) -> Result<()> {
    for (k, (name, p)) in net.named().into_iter().enumerate() {
        p.assign(weights(1000 + k as u64, &name, &p.shape()?));
    }
    net.realize()
}
