//! Functions whose calls are nodes: they give what their bodies give, forward and backward, inlined or scheduled
//! once for all calls.

mod calls;
mod checkpoints;
mod gradients;
mod marked;
mod mistakes;
mod odd_scans;
mod programs;
mod scans;
mod stand_ins;

use monoglot::prelude::*;

/// Numbers that are no pattern.
fn values(shape: &[i64], salt: u64) -> Tensor {
    let n: i64 = shape.iter().product();
    let one = |i: i64| {
        let x = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15 ^ (salt << 17));
        ((x >> 40) as f32 / (1u64 << 24) as f32) - 0.5
    };
    let data: Vec<f32> = (0..n).map(one).collect();
    Tensor::new(&data, shape)
}

fn read(t: &Tensor) -> Vec<f32> {
    t.to_vec::<f32>().expect("it is computed")
}

/// Equal but for rounding.
#[track_caller]
fn close(a: &Tensor, b: &Tensor) {
    let a = read(a);
    let b = read(b);
    assert_eq!(a.len(), b.len());
    for (i, (x, y)) in a.iter().zip(&b).enumerate() {
        let near = (x - y).abs() <= 1e-5 * (1.0 + x.abs().max(y.abs()));
        assert!(near, "element {i}: {x} and {y}");
    }
}
