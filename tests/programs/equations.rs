//! Numerics without networks: conjugate gradients, k-means, the heat equation by assignments.

use crate::reference::Reference;
use crate::{doubles, floats};
use monoglot::prelude::*;

#[test]
fn conjugate_gradients_solve_as_numpy_does() -> Result<()> {
    let reference = Reference::new(include_str!("conjugate_gradients.txt"));
    let n = 48;
    let m = Tensor::new(&doubles(3, n * n), [n, n]);
    let a = m.matmul(&m.t()) + Tensor::eye(48, 48).cast(DType::F64) * 4.0;
    let b = Tensor::new(&doubles(4, n), [n]);
    a.realize()?;
    let mut x = b.zeros_like();
    let mut residual = b.clone();
    let mut direction = b.clone();
    let mut square = residual.dot(&residual);
    for step in 0..n {
        let image = a.matmul(&direction);
        let size = &square / direction.dot(&image);
        x = x + &direction * &size;
        residual = residual - image * size;
        let next = residual.dot(&residual);
        direction = &residual + direction * (&next / square);
        square = next;
        Tensor::realize_all(&[&x, &residual, &direction, &square])?;
        if step < 12 {
            reference.check(&format!("residual{step}"), &square.sqrt(), 1e-9)?;
        }
        if step == 11 {
            reference.check("after12", &x, 1e-9)?;
        }
        if square.item::<f64>()? < 1e-26 {
            break;
        }
    }
    reference.check("solution", &x, 1e-9)
}

#[test]
fn k_means_moves_as_numpys_does() -> Result<()> {
    let reference = Reference::new(include_str!("k_means.txt"));
    let centres = [[-0.6, -0.5], [0.5, -0.6], [0.0, 0.7], [0.8, 0.6]];
    let spread = doubles(5, 800);
    let points = spread.iter().enumerate();
    let points = points.map(|(i, v)| (v * 0.35 + centres[i / 2 % 4][i % 2]) as f32);
    let points = Tensor::new(&points.collect::<Vec<f32>>(), [400, 2]);
    let mut means = points.index(..4);
    let mut near = Tensor::zeros(400);
    for step in 0..8 {
        let apart = points.unsqueeze(1) - means.unsqueeze(0);
        let distances = apart.square().sum(-1, false);
        near = distances.argmin(1, false);
        let inertia = distances.min(1, false).sum(.., false);
        let member = near.one_hot(4).cast(DType::F32);
        let counts = member.sum(0, false).unsqueeze(1);
        means = member.t().matmul(&points) / counts;
        Tensor::realize_all(&[&means, &near, &inertia])?;
        reference.check(&format!("inertia{step}"), &inertia, 1e-5)?;
    }
    reference.check("means", &means, 1e-5)?;
    reference.check("near", &near, 1e-9)
}

#[test]
fn heat_spreads_by_assignments_as_in_numpy() -> Result<()> {
    let reference = Reference::new(include_str!("heat.txt"));
    let first: Vec<f32> = floats(8, 1600).iter().map(|v| (v + 1.0) / 2.0).collect();
    let u = Tensor::new(&first, [40, 40]);
    u.set_at(0, 1.0);
    u.set_at(-1, 0.0);
    u.realize()?;
    for step in 1..=60 {
        let centre = u.index((1..-1, 1..-1));
        let around = u.index((..-2, 1..-1))
            + u.index((2.., 1..-1))
            + u.index((1..-1, ..-2))
            + u.index((1..-1, 2..));
        u.set_at((1..-1, 1..-1), &centre + (around - &centre * 4.0) * 0.2);
        u.realize()?;
        if step % 20 == 0 {
            reference.check(&format!("after{step}"), &u, 1e-5)?;
        }
    }
    Ok(())
}
