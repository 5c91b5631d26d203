//! Sampling from a transformer, whose sequence grows by one number at a time.

use crate::char_transformer::example::CharTransformer;
use crate::reference::Reference;
use crate::{doubles, start};
use monoglot::prelude::*;

#[test]
fn a_growing_sequence_is_sampled_as_pytorch_samples_it() -> Result<()> {
    let reference = Reference::new(include_str!("sampling.txt"));
    let net = CharTransformer::new(1, 32, 2, 24, 16);
    start(&net)?;
    let mut first = [0i32; 13];
    first[..3].copy_from_slice(&[3, 1, 4]);
    let ids = Tensor::new(&first, [1, 13]);
    let length = Variable::new(3..=13)?;
    for (step, luck) in doubles(9, 10).into_iter().enumerate() {
        let seen = ids.narrow(1, 0, length.bind(3 + step)?);
        let scores = net.forward(&seen).index((0, -1));
        let sums = (&scores / 0.7).softmax(0).cumsum(0);
        let next = sums.lt((luck + 1.0) / 2.0).sum(.., false);
        ids.index((0, 3 + step)).assign(next.cast(DType::I32));
        Tensor::realize_all(&[&ids, &scores])?;
        reference.check(&format!("logits{step}"), &scores, 1e-5)?;
    }
    reference.check("ids", &ids.squeeze(0), 1e-9)
}
