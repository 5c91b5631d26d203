//! Programs over the models by name, as graphs to be compiled. Flows in: a name and a device; flows out:
//! roots whose leaves and weights have no storage.

use crate::{Bert, ConvNet, Gpt2, ResNet50};
use monoglot_nn::{Adam, Module, Optimizer, without_data};
use monoglot_tensor::{DType, Device, Reduction, Result, Tensor};
use std::time::{Duration, Instant};

/// A program over a built-in model.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Workload {
    /// The training step of the MNIST network: batch 512, cross-entropy, Adam.
    Convnet,
    /// BERT with 6 layers, 384 wide: forward, batch 1, 128 tokens.
    Minilm,
    /// GPT-2 with 12 layers, 768 wide: 128 tokens, cross-entropy, forward and backward.
    Gpt2,
    /// ResNet-50: forward, batch 1, 224×224.
    Resnet50,
}

impl Workload {
    /// All of them.
    pub const ALL: [Workload; 4] = [
        Workload::Convnet,
        Workload::Minilm,
        Workload::Gpt2,
        Workload::Resnet50,
    ];

    /// As written on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Workload::Convnet => "convnet",
            Workload::Minilm => "minilm",
            Workload::Gpt2 => "gpt2",
            Workload::Resnet50 => "resnet50",
        }
    }

    /// Whether it is a stack of equal layers, of which there may be any number.
    pub fn has_layers(self) -> bool {
        matches!(self, Workload::Minilm | Workload::Gpt2)
    }
}

/// What is to be computed, and how long it took to write it down.
pub struct Graph {
    /// The roots, in order: a loss before gradients or new parameters.
    pub roots: Vec<Tensor>,
    /// Time to write the forward part down, and the optimizer's.
    pub build: Duration,
    /// Time to differentiate it.
    pub gradient: Duration,
}

/// The graph of a program, its inputs on a device (the default one, where weights are); `layers` where it
/// has layers to count.
///
/// # Errors
/// `Device` where the weights are on another device.
pub fn graph(workload: Workload, layers: Option<usize>, device: Device) -> Result<Graph> {
    let input = |shape: &[usize]| Tensor::empty(shape, DType::F32, device);
    let numbers = |shape: &[usize]| Tensor::empty(shape, DType::I32, device);
    let start = Instant::now();
    without_data(|| match workload {
        Workload::Convnet => {
            let net = ConvNet::new();
            let adam = Adam::new(&net, 1e-3);
            let loss = net.forward(&input(&[512, 1, 28, 28])).cross_entropy(
                &numbers(&[512]),
                Reduction::Mean,
                0.0,
            );
            let build = start.elapsed();
            let start = Instant::now();
            let gradients = loss.gradient(&net.parameters().iter().collect::<Vec<_>>())?;
            let gradient = start.elapsed();
            let start = Instant::now();
            let mut roots = vec![loss];
            roots.extend(adam.update(&gradients));
            roots.extend(net.buffers());
            Ok(Graph {
                roots,
                build: build + start.elapsed(),
                gradient,
            })
        }
        Workload::Minilm => {
            let net = Bert::minilm(layers.unwrap_or(6));
            Ok(forward(net.forward(&numbers(&[1, 128])), start))
        }
        Workload::Gpt2 => {
            let net = Gpt2::small(layers.unwrap_or(12));
            let logits = net.forward(&numbers(&[1, 128]));
            let loss = logits
                .flatten(0, 1)
                .cross_entropy(&numbers(&[128]), Reduction::Mean, 0.0);
            let build = start.elapsed();
            let start = Instant::now();
            let gradients = loss.gradient(&net.parameters().iter().collect::<Vec<_>>())?;
            let gradient = start.elapsed();
            Ok(Graph {
                roots: std::iter::once(loss).chain(gradients).collect(),
                build,
                gradient,
            })
        }
        Workload::Resnet50 => {
            let net = ResNet50::new();
            net.eval();
            Ok(forward(net.forward(&input(&[1, 3, 224, 224])), start))
        }
    })
}

fn forward(out: Tensor, start: Instant) -> Graph {
    Graph {
        roots: vec![out],
        build: start.elapsed(),
        gradient: Duration::ZERO,
    }
}
