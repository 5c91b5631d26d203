//! The example's transformer, trained for four steps.

#[path = "../../examples/char_transformer.rs"]
#[allow(dead_code, reason = "the example's own main and what it writes")]
pub(crate) mod example;

use crate::reference::Reference;
use crate::start;
use example::{CharTransformer, batch, corpus};
use monoglot::prelude::*;

#[test]
fn a_transformer_learns_as_pytorchs_does() -> Result<()> {
    let reference = Reference::new(include_str!("char_transformer.txt"));
    let text = corpus(20_000);
    let net = CharTransformer::new(3, 128, 4, 64, 128);
    start(&net)?;
    let adam = AdamW::new(&net, 1e-3, 0.01);
    let parameters = net.named();
    for step in 0..4 {
        let places = (0..16).map(|i| (step * 16 + i) * 257 % (20_000 - 65));
        let (inputs, targets) = batch(&text, &places.collect::<Vec<i32>>());
        let loss = net.loss(&inputs, &targets);
        if step == 0 {
            let tensors: Vec<&Tensor> = parameters.iter().map(|(_, t)| t).collect();
            let gradients = loss.gradient(&tensors)?;
            let named = parameters.iter().zip(&gradients);
            reference.check_all(named.map(|((n, _), g)| (format!("gradient.{n}"), g)), 1e-4)?;
            reference.check("logits", &net.forward(&inputs), 1e-5)?;
        }
        adam.step(&loss)?;
        reference.check(&format!("loss{step}"), &loss, 1e-5)?;
    }
    for (name, t) in &parameters {
        // The gradient of a bias of keys is 0 but for rounding, of which AdamW makes steps of any sign.
        if !name.ends_with("qkv.bias") {
            reference.check(&format!("after.{name}"), t, 1e-3)?;
        }
    }
    Ok(())
}
