//! What is compiled for calls.

use crate::values;
use monoglot::compiler::engine::{Compiled, compile};
use monoglot::function;
use monoglot::prelude::*;

/// What `layers` of them need, forward and backward.
fn compiled(layers: u64) -> Result<Compiled> {
    let block = function(|x: &Tensor, w: &Tensor, v: &Tensor| {
        let y = x.softmax(1).matmul(w).gelu();
        x + y.matmul(v)
    });
    let mut x = values(&[16, 32], 99);
    let mut weights = Vec::new();
    for k in 0..layers {
        let w = values(&[32, 64], k).parameter();
        let v = values(&[64, 32], k).parameter();
        x = block.call((&x, &w, &v))?;
        weights.extend([w, v]);
    }
    let loss = x.square().mean(.., false);
    let targets: Vec<&Tensor> = weights.iter().collect();
    let mut roots = vec![loss.uop()?];
    for g in loss.gradient(&targets)? {
        roots.push(g.uop()?);
    }
    compile(&roots)
}

#[test]
fn a_body_is_compiled_once() -> Result<()> {
    let few = compiled(3)?;
    let many = compiled(12)?;
    assert_eq!(few.unique_kernels, many.unique_kernels);
    assert_eq!(few.uops, many.uops);
    let a_layer = (many.kernels - few.kernels) / 9;
    assert_eq!(few.kernels + 9 * a_layer, many.kernels);
    Ok(())
}
