//! Gradients of gradients: products with the Hessian, and a critic with a penalty on its slope.

use crate::reference::Reference;
use crate::{numbers, weights};
use monoglot::prelude::*;

struct Critic {
    layers: [Linear; 3],
}
module!(Critic { layers });

impl Critic {
    fn new() -> Critic {
        let layer = |k: u64, outputs: usize, inputs: usize| Linear {
            weight: weights(1000 + k, "", &[outputs, inputs]).parameter(),
            bias: Some(weights(1001 + k, "", &[outputs]).parameter()),
        };
        Critic {
            layers: [layer(0, 24, 6), layer(2, 24, 24), layer(4, 1, 24)],
        }
    }

    fn forward(&self, x: &Tensor) -> Tensor {
        let h = self.layers[0].forward(x).tanh();
        self.layers[2].forward(&self.layers[1].forward(&h).silu())
    }
}

#[test]
fn a_hessian_times_a_vector() -> Result<()> {
    let reference = Reference::new(include_str!("second_order.txt"));
    let net = Critic::new();
    let parameters = net.parameters();
    let targets: Vec<&Tensor> = parameters.iter().collect();
    let x = numbers(10, [16, 6]);
    let y = numbers(11, [16, 1]);
    let loss = net.forward(&x).mse_loss(&y, Reduction::Mean);
    let gradients = loss.gradient(&targets)?;
    let mut along = Tensor::scalar(0f32);
    for (k, g) in gradients.iter().enumerate() {
        let shape = g.shape()?;
        let direction = numbers(30 + k as u64, [shape.iter().product()]).reshape(shape);
        along = along + (g * direction).sum(.., false);
    }
    let products = along.gradient(&targets)?;
    reference.check("loss", &loss, 1e-5)?;
    let named = |name: &str, all| -> Vec<(String, &Tensor)> {
        let all: &Vec<Tensor> = all;
        let all = all.iter().enumerate();
        all.map(|(k, t)| (format!("{name}{k}"), t)).collect()
    };
    reference.check_all(named("gradient", &gradients), 1e-5)?;
    reference.check_all(named("product", &products), 1e-4)
}

#[test]
fn a_critic_learns_with_a_penalty_on_its_slope() -> Result<()> {
    let reference = Reference::new(include_str!("second_order.txt"));
    let net = Critic::new();
    let sgd = Sgd::new(&net, 0.1);
    let parameters = net.parameters();
    for step in 0..4 {
        let real = numbers(40 + step, [16, 6]);
        let fake = numbers(50 + step, [16, 6]);
        let mix = (numbers(60 + step, [16, 1]) + 1.0) / 2.0;
        let between = &mix * &real + (1.0 - &mix) * &fake;
        let slope = net.forward(&between).sum(.., false).gradient(&[&between])?;
        let length = slope[0].square().sum(1, false).sqrt();
        let penalty = (length - 1.0).square().mean(.., false);
        let apart = net.forward(&fake).mean(.., false) - net.forward(&real).mean(.., false);
        let loss = apart + &penalty * 10.0;
        if step == 0 {
            let gradients = loss.gradient(&parameters.iter().collect::<Vec<_>>())?;
            let named = gradients.iter().enumerate();
            let named = named.map(|(k, g)| (format!("critic.gradient{k}"), g));
            reference.check_all(named, 1e-4)?;
        }
        reference.check(&format!("penalty{step}"), &penalty, 1e-5)?;
        sgd.step(&loss)?;
        reference.check(&format!("critic{step}"), &loss, 1e-4)?;
    }
    Ok(())
}
