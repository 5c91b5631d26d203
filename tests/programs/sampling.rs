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
    let mut ids = Tensor::new(&[3i32, 1, 4], [1, 3]);
    for (step, luck) in doubles(9, 10).into_iter().enumerate() {
        let scores = net.forward(&ids).index((0, -1));
        let sums = (&scores / 0.7).softmax(0).cumsum(0);
        let next = sums.lt((luck + 1.0) / 2.0).sum(.., false);
        ids = Tensor::cat(&[&ids, &next.cast(DType::I32).reshape([1, 1])], 1);
        Tensor::realize_all(&[&ids, &scores])?;
        reference.check(&format!("logits{step}"), &scores, 1e-5)?;
    }
    reference.check("ids", &ids.squeeze(0), 1e-9)
}
