//! An LSTM written from tensor operations, against PyTorch's own.

use crate::reference::Reference;
use crate::{numbers, weights};
use monoglot::prelude::*;

/// Input, forget, cell and output gates in one product each of the input and of what was kept.
struct Lstm {
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias_ih: Tensor,
}
module!(Lstm {
    weight_ih,
    weight_hh,
    bias_ih
});

impl Lstm {
    /// x (batch, inputs), h and c (batch, width) → the new h and c.
    fn cell(&self, x: &Tensor, h: &Tensor, c: &Tensor) -> (Tensor, Tensor) {
        let all = x.linear(&self.weight_ih, Some(&self.bias_ih)) + h.linear(&self.weight_hh, None);
        let gates = all.chunk(4, 1);
        let i = gates[0].sigmoid();
        let f = gates[1].sigmoid();
        let o = gates[3].sigmoid();
        let c = f * c + i * gates[2].tanh();
        (o * c.tanh(), c)
    }

    /// x (steps, batch, inputs) → h of every step (steps, batch, width), and the last h and c.
    fn forward(&self, x: &Tensor) -> Result<(Tensor, Tensor, Tensor)> {
        let steps = x.shape()?[0];
        let batch = x.shape()?[1];
        let width = self.weight_hh.shape()?[1];
        let mut h = Tensor::zeros([batch, width]);
        let mut c = Tensor::zeros([batch, width]);
        let mut outputs = Vec::new();
        for t in 0..steps {
            (h, c) = self.cell(&x.index(t), &h, &c);
            outputs.push(h.clone());
        }
        let outputs = Tensor::stack(&outputs.iter().collect::<Vec<_>>(), 0);
        Ok((outputs, h, c))
    }
}

#[test]
fn an_lstm_from_operations_is_pytorchs() -> Result<()> {
    let reference = Reference::new(include_str!("lstm.txt"));
    let net = Lstm {
        weight_ih: weights(1000, "", &[64, 8]).parameter(),
        weight_hh: weights(1001, "", &[64, 16]).parameter(),
        bias_ih: weights(1002, "", &[64]).parameter(),
    };
    let x = numbers(1, [12, 4, 8]);
    let target = numbers(2, [12, 4, 16]);
    let sgd = Sgd::new(&net, 0.5);
    for step in 0..4 {
        let (outputs, h, c) = net.forward(&x)?;
        let loss = outputs.mse_loss(&target, Reduction::Mean);
        if step == 0 {
            let named = net.named();
            let tensors: Vec<&Tensor> = named.iter().map(|(_, t)| t).collect();
            let gradients = loss.gradient(&tensors)?;
            let gradients = named.iter().zip(&gradients);
            let gradients = gradients.map(|((n, _), g)| (format!("gradient.{n}"), g));
            reference.check_all(gradients, 1e-5)?;
            reference.check("outputs", &outputs, 1e-5)?;
            reference.check("hidden", &h, 1e-5)?;
            reference.check("cell", &c, 1e-5)?;
        }
        sgd.step(&loss)?;
        reference.check(&format!("loss{step}"), &loss, 1e-5)?;
    }
    Ok(())
}
