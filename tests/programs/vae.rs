//! A variational autoencoder on the digits, with noise that is given.

use crate::reference::Reference;
use crate::{numbers, start};
use monoglot::prelude::*;

struct Vae {
    read: Linear,
    mean: Linear,
    spread: Linear,
    draw: Linear,
    paint: Linear,
}
module!(Vae {
    read,
    mean,
    spread,
    draw,
    paint
});

impl Vae {
    fn new() -> Vae {
        Vae {
            read: Linear::new(64, 96),
            mean: Linear::new(96, 8),
            spread: Linear::new(96, 8),
            draw: Linear::new(8, 96),
            paint: Linear::new(96, 64),
        }
    }

    /// Images (N, 64) and noise (N, 8) → the negated bound on the likelihood, and what is painted.
    fn forward(&self, x: &Tensor, noise: &Tensor) -> (Tensor, Tensor) {
        let h = self.read.forward(x).relu();
        let mean = self.mean.forward(&h);
        let log_var = self.spread.forward(&h);
        let z = &mean + noise * (&log_var * 0.5).exp();
        let logits = self.paint.forward(&self.draw.forward(&z).relu());
        let kl = (mean.square() + log_var.exp() - 1.0 - log_var).sum(1, false) * 0.5;
        let bce = logits.bce_with_logits(x, Reduction::None).sum(1, false);
        ((bce + kl).mean(.., false), logits)
    }
}

#[test]
fn a_variational_autoencoder_learns_as_pytorchs_does() -> Result<()> {
    let reference = Reference::new(include_str!("vae.txt"));
    let digits = data::digits()?;
    let net = Vae::new();
    start(&net)?;
    let adam = Adam::new(&net, 2e-3);
    let named = net.named();
    for step in 0..6 {
        let first = step % 4 * 32;
        let (x, _) = digits.batch(&(first..first + 32).collect::<Vec<_>>());
        let noise = numbers(20 + step as u64, [32, 8]) * 1.7320508;
        let (loss, logits) = net.forward(&x.flatten(1, -1), &noise);
        if step == 0 {
            let tensors: Vec<&Tensor> = named.iter().map(|(_, t)| t).collect();
            let gradients = loss.gradient(&tensors)?;
            let gradients = named.iter().zip(&gradients);
            let gradients = gradients.map(|((n, _), g)| (format!("gradient.{n}"), g));
            reference.check_all(gradients, 1e-4)?;
            reference.check("logits", &logits, 1e-5)?;
        }
        adam.step(&loss)?;
        reference.check(&format!("loss{step}"), &loss, 1e-5)?;
    }
    for (name, t) in &named {
        reference.check(&format!("after.{name}"), t, 1e-4)?;
    }
    Ok(())
}
