//! Shapes and sizes of the models, and small ones run. Flows in: the models; flows out: comparisons
//! with what was published, and of ways to compute the same.

use crate::{Bert, BertLayer, Block, Bottleneck, ConvNet, Gpt2, ResNet50};
use monoglot_nn::{Module, without_data};
use monoglot_tensor::{DType, Reduction, Result, Tensor};

#[test]
fn sizes_are_the_published_ones() -> Result<()> {
    without_data(|| {
        let net = ConvNet::new();
        assert_eq!((net.parameters().len(), net.buffers().len()), (14, 4));
        assert_eq!(
            net.parameter_count()?,
            832 + 25632 + 64 + 18496 + 36928 + 128 + 5770
        );
        // Without BERT's pooler.
        assert_eq!(Bert::minilm(6).parameter_count()?, 22_565_376);
        assert_eq!(Gpt2::small(12).parameter_count()?, 124_439_808);
        assert_eq!(ResNet50::new().parameter_count()?, 25_557_032);
        Ok(())
    })
}

#[test]
fn shapes_come_out_right() -> Result<()> {
    without_data(|| {
        let images = |s: [usize; 4]| Tensor::zeros(s);
        let ids = |s: [usize; 2]| Tensor::full(s, 0i32);
        assert_eq!(
            ConvNet::new().forward(&images([3, 1, 28, 28])).shape()?,
            [3, 10]
        );
        assert_eq!(
            Bert::minilm(1).forward(&ids([2, 16])).shape()?,
            [2, 16, 384]
        );
        let gpt = Gpt2::small(1);
        assert_eq!(gpt.forward(&ids([2, 8])).shape()?, [2, 8, 50257]);
        assert_eq!(gpt.next(&ids([2, 8])).shape()?, [2, 1, 50257]);
        let net = ResNet50::new();
        net.eval();
        assert_eq!(net.forward(&images([2, 3, 64, 64])).shape()?, [2, 1000]);
        // A wrong input is an error, not a panic.
        assert!(
            ConvNet::new()
                .forward(&images([3, 2, 28, 28]))
                .shape()
                .is_err()
        );
        assert!(Bert::minilm(1).forward(&ids([1, 600])).shape().is_err());
        Ok(())
    })
}

#[test]
fn small_ones_run() -> Result<()> {
    let x = Tensor::randn([2, 5, 12]);
    let y = BertLayer::new(12, 24, 3).forward(&x);
    let rows = y.square().mean(-1, false).to_vec::<f32>()?;
    assert!(
        rows.iter().all(|v| (v - 1.0).abs() < 1e-3),
        "every row is normalised: {rows:?}"
    );
    let net = Bottleneck::new(8, 2, 2);
    net.eval();
    let y = net.forward(&Tensor::randn([1, 8, 6, 6]));
    assert_eq!(y.shape()?, [1, 8, 3, 3]);
    assert!(y.to_vec::<f32>()?.iter().all(|&v| v >= 0.0));
    Ok(())
}

#[test]
fn a_block_sees_only_what_came_before() -> Result<()> {
    let block = Block::new(12, 3);
    block.realize()?;
    let x = Tensor::randn([1, 6, 12]);
    x.realize()?;
    let whole = block.forward(&x, None, 0).to_vec::<f32>()?;
    let part = block.forward(&x.narrow(1, 0, 4), None, 0).to_vec::<f32>()?;
    close(&whole[..48], &part);
    Ok(())
}

#[test]
fn a_cache_gives_what_the_whole_gives() -> Result<()> {
    let net = Gpt2::with(1, 12, 3, 20, 16);
    net.realize()?;
    let ids = Tensor::new(&[3i32, 1, 4, 1, 5], [1, 5]);
    let whole = net.forward(&ids).to_vec::<f32>()?;
    let cache = net.cache(8);
    let first = net
        .decode(&ids.narrow(1, 0, 3), &cache, 0)
        .to_vec::<f32>()?;
    close(&first, &whole[..3 * 20]);
    for i in 3..5 {
        let logits = net.decode(&ids.narrow(1, i, 1), &cache, i);
        Tensor::realize_all(
            &cache
                .iter()
                .flat_map(|c| c.tensors())
                .chain([&logits])
                .collect::<Vec<_>>(),
        )?;
        close(&logits.to_vec::<f32>()?, &whole[i as usize * 20..][..20]);
    }
    assert_eq!(ids.dtype()?, DType::I32);
    Ok(())
}

fn close(a: &[f32], b: &[f32]) {
    assert_eq!(a.len(), b.len());
    let far = a
        .iter()
        .zip(b)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f32::max);
    assert!(far < 1e-4, "{far} apart");
}

/// Forty-eight layers whose block is a function, and the same with every block where it is called.
#[test]
fn a_deep_gpt2_of_functions_learns_as_one_without() -> Result<()> {
    let net = Gpt2::with(48, 8, 2, 13, 6);
    net.realize()?;
    let ids = Tensor::new(&[1i32, 5, 0, 12, 7, 3, 9, 9, 2, 4], [2, 5]);
    let next = Tensor::new(&[5i32, 0, 12, 7, 3, 9, 2, 4, 1, 6], [10]);
    let loss = |logits: &Tensor| {
        let rows = logits.reshape([10, 13]);
        rows.cross_entropy(&next, Reduction::Mean, 0.0)
    };
    let mut x = net.wte.forward(&ids) + net.wpe.weight.narrow(0, 0, 5);
    for block in &net.blocks {
        x = block.forward(&x, None, 0);
    }
    let inlined = loss(&net.logits(&net.ln.forward(&x)));
    let by_call = loss(&net.forward(&ids));
    let parameters = net.parameters();
    let all: Vec<&Tensor> = parameters.iter().collect();
    let learnt = |loss: &Tensor| -> Result<(f32, Vec<Vec<f32>>)> {
        let gradients = loss.gradient(&all)?;
        let mut roots: Vec<&Tensor> = gradients.iter().collect();
        roots.push(loss);
        Tensor::realize_all(&roots)?;
        let numbers = gradients
            .iter()
            .map(|g| g.to_vec())
            .collect::<Result<_>>()?;
        Ok((loss.item()?, numbers))
    };
    let (want, wanted) = learnt(&inlined)?;
    let (got, found) = learnt(&by_call)?;
    assert!((want - got).abs() <= 1e-6 * want.abs(), "{want} and {got}");
    for (a, b) in wanted.iter().zip(&found) {
        let most = a.iter().fold(0f32, |m, v| m.max(v.abs()));
        for (x, y) in a.iter().zip(b) {
            assert!((x - y).abs() <= 1e-5 * most, "{x} and {y} of {most}");
        }
    }
    Ok(())
}
