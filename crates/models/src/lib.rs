//! Room `models`: known architectures, written as a user would write them. Flows in: images or token
//! numbers; flows out: class scores, hidden states or logits.
//!
//! Invariant: a model is a struct of layers and a `forward`, over public methods of `nn` and `tensor`
//! alone. Made inside `nn::without_data`, it has no storage and can be compiled but not run.

mod attention;
mod bert;
mod convnet;
mod gpt2;
mod resnet;
#[cfg(test)]
mod tests;
mod workload;

pub use bert::{Bert, BertLayer};
pub use convnet::ConvNet;
pub use gpt2::{Block, Gpt2, KeysAndValues};
pub use resnet::{Bottleneck, ResNet50};
pub use workload::{Graph, Workload, graph};
