//! The built-in models by name, as graphs to be compiled: weights without storage, roots to compute.

use clap::ValueEnum;
use monoglot::nn::{Adam, Module, Optimizer, without_data};
use monoglot::{DType, Reduction, Result, Tensor, models};
use std::time::{Duration, Instant};

/// A built-in model.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Name {
    /// The training step of the MNIST network: batch 512, cross-entropy, Adam
    Convnet,
    /// BERT with 6 layers, 384 wide: forward, batch 1, 128 tokens
    Minilm,
    /// GPT-2 with 12 layers, 768 wide: 128 tokens, cross-entropy, forward and backward
    Gpt2,
    /// ResNet-50: forward, batch 1, 224x224
    Resnet50,
}

impl Name {
    /// As written on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or(String::new(), |v| v.get_name().to_string())
    }
}

/// What is to be computed, and how long it took to write it down.
pub(crate) struct Graph {
    pub(crate) roots: Vec<Tensor>,
    pub(crate) build: Duration,
    pub(crate) gradient: Duration,
}

/// The graph of a model; `layers` where it has layers to count.
pub(crate) fn graph(name: Name, layers: Option<usize>) -> Result<Graph> {
    let start = Instant::now();
    without_data(|| match name {
        Name::Convnet => {
            let net = models::ConvNet::new();
            let adam = Adam::new(&net, 1e-3);
            let loss =
                net.forward(&input([512, 1, 28, 28])).cross_entropy(&numbers([512]), Reduction::Mean, 0.0);
            let build = start.elapsed();
            let start = Instant::now();
            let gradients = loss.gradient(&net.parameters().iter().collect::<Vec<_>>())?;
            let gradient = start.elapsed();
            let start = Instant::now();
            let mut roots = vec![loss];
            roots.extend(adam.update(&gradients));
            roots.extend(net.buffers());
            Ok(Graph { roots, build: build + start.elapsed(), gradient })
        }
        Name::Minilm => {
            let net = models::Bert::minilm(layers.unwrap_or(6));
            Ok(forward(net.forward(&numbers([1, 128])), start))
        }
        Name::Gpt2 => {
            let net = models::Gpt2::small(layers.unwrap_or(12));
            let logits = net.forward(&numbers([1, 128]));
            let loss = logits.flatten(0, 1).cross_entropy(&numbers([128]), Reduction::Mean, 0.0);
            let build = start.elapsed();
            let start = Instant::now();
            let gradients = loss.gradient(&net.parameters().iter().collect::<Vec<_>>())?;
            let gradient = start.elapsed();
            Ok(Graph { roots: std::iter::once(loss).chain(gradients).collect(), build, gradient })
        }
        Name::Resnet50 => {
            let net = models::ResNet50::new();
            net.eval();
            Ok(forward(net.forward(&input([1, 3, 224, 224])), start))
        }
    })
}

fn forward(out: Tensor, start: Instant) -> Graph {
    Graph { roots: vec![out], build: start.elapsed(), gradient: Duration::ZERO }
}

fn input<const N: usize>(shape: [usize; N]) -> Tensor {
    empty(shape, DType::F32)
}

fn numbers<const N: usize>(shape: [usize; N]) -> Tensor {
    empty(shape, DType::I32)
}

fn empty<const N: usize>(shape: [usize; N], dtype: DType) -> Tensor {
    Tensor::empty(shape, dtype, monoglot::compiler::engine::default_device())
}
