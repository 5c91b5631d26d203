//! Layers without axes of space: linear maps, tables of vectors, dropout. Flows in: (…, in), or
//! ids; flows out: (…, out). Always: the weights are parameters that `visit` names.

use crate::init::{Init, parameter};
use crate::module::{Mode, Module, Part, join};
use monoglot_tensor::Tensor;

/// x·Wᵀ + b along the last axis.
#[derive(Debug)]
pub struct Linear {
    /// (outputs, inputs), from a uniform distribution on ±1/√inputs.
    pub weight: Tensor,
    /// (outputs,), from the same.
    pub bias: Option<Tensor>,
}

impl Linear {
    /// From `inputs` numbers to `outputs`, with a bias.
    #[track_caller]
    pub fn new(inputs: usize, outputs: usize) -> Linear {
        let start = Init::fan_in(inputs);
        let bias = Some(parameter(&[outputs], start));
        Linear {
            weight: parameter(&[outputs, inputs], start),
            bias,
        }
    }

    /// The same with nothing added.
    pub fn without_bias(self) -> Linear {
        Linear { bias: None, ..self }
    }

    /// (…, inputs) → (…, outputs).
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        x.linear(&self.weight, self.bias.as_ref())
    }
}

impl Module for Linear {
    fn visit(&self, path: &str, see: &mut dyn FnMut(&str, Part)) {
        see(&join(path, "weight"), Part::Parameter(&self.weight));
        if let Some(b) = &self.bias {
            see(&join(path, "bias"), Part::Parameter(b));
        }
    }
}

/// A table of vectors, looked up by number.
#[derive(Debug)]
pub struct Embedding {
    /// (count, width), from a normal distribution.
    pub weight: Tensor,
}

impl Embedding {
    /// A table of `count` vectors of `width` numbers.
    #[track_caller]
    pub fn new(count: usize, width: usize) -> Embedding {
        Embedding {
            weight: parameter(&[count, width], Init::Normal(1.0)),
        }
    }

    /// Integers (…) → (…, width). Realizing it is an error where a number is not in the table.
    #[track_caller]
    pub fn forward(&self, ids: &Tensor) -> Tensor {
        self.weight.embedding(ids)
    }
}

impl Module for Embedding {
    fn visit(&self, path: &str, see: &mut dyn FnMut(&str, Part)) {
        see(&join(path, "weight"), Part::Parameter(&self.weight));
    }
}

/// While training, sets elements to 0 with a probability and scales the others up to keep the mean.
#[derive(Debug)]
pub struct Dropout {
    /// The probability.
    pub p: f64,
    /// Whether it does anything.
    pub mode: Mode,
}

impl Dropout {
    /// Dropout with probability `p`.
    pub fn new(p: f64) -> Dropout {
        Dropout {
            p,
            mode: Mode::default(),
        }
    }

    /// Of any shape.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        if self.mode.training() {
            x.dropout(self.p)
        } else {
            x.clone()
        }
    }
}

impl Module for Dropout {
    fn visit(&self, path: &str, see: &mut dyn FnMut(&str, Part)) {
        see(path, Part::Mode(&self.mode));
    }
}
