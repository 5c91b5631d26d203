//! Normalisations: by batch, layer, root mean square, group. Flows in: a tensor; flows out: one of
//! its shape with the mean and variance that the layer's weights say. Always: running statistics
//! change only while training.

use crate::init::{Init, buffer, parameter};
use crate::module::{Mode, Module, Part, join};
use monoglot_tensor::Tensor;

/// Every channel to mean 0 and variance 1 over the batch and the axes of space, then scaled and
/// shifted. While training, by the batch's own statistics, and the running ones move towards them;
/// otherwise by the running ones.
#[derive(Debug)]
pub struct BatchNorm {
    /// (channels,), ones.
    pub weight: Tensor,
    /// (channels,), zeros.
    pub bias: Tensor,
    /// (channels,), zeros at first.
    pub running_mean: Tensor,
    /// (channels,), ones at first; of the unbiased variance.
    pub running_var: Tensor,
    /// The share of a batch in the running statistics.
    pub momentum: f64,
    /// Added to the variance.
    pub eps: f64,
    /// Whether it trains.
    pub mode: Mode,
}

impl BatchNorm {
    /// Over `channels` channels.
    #[track_caller]
    pub fn new(channels: usize) -> BatchNorm {
        BatchNorm {
            weight: parameter(&[channels], Init::Full(1.0)),
            bias: parameter(&[channels], Init::Full(0.0)),
            running_mean: buffer(&[channels], Init::Full(0.0)),
            running_var: buffer(&[channels], Init::Full(1.0)),
            momentum: 0.1,
            eps: 1e-5,
            mode: Mode::default(),
        }
    }

    /// (N, channels, …) → the same shape. While training this also writes down new running statistics;
    /// they are computed with whatever is realized next that uses them: an optimizer's step sees to it, and a captured function.
    /// Where neither is, `realize` the network after each batch: until then these hold all batches.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        let weight = Some(&self.weight);
        let bias = Some(&self.bias);
        if !self.mode.training() {
            return x.batch_norm_eval(
                weight,
                bias,
                &self.running_mean,
                &self.running_var,
                self.eps,
            );
        }
        let (y, mean, var) = x.batch_norm_train(weight, bias, self.eps);
        for (running, batch) in [(&self.running_mean, mean), (&self.running_var, var)] {
            // What was no batch leaves them as they are.
            if y.dtype().is_ok() {
                running.assign(x.batch_norm_moved(running, &batch, self.momentum));
            }
        }
        y
    }
}

impl Module for BatchNorm {
    fn visit(&self, path: &str, see: &mut dyn FnMut(&str, Part)) {
        see(&join(path, "weight"), Part::Parameter(&self.weight));
        see(&join(path, "bias"), Part::Parameter(&self.bias));
        see(
            &join(path, "running_mean"),
            Part::Buffer(&self.running_mean),
        );
        see(&join(path, "running_var"), Part::Buffer(&self.running_var));
        see(path, Part::Mode(&self.mode));
    }
}

/// The last axis to mean 0 and variance 1, then scaled and shifted.
#[derive(Debug)]
pub struct LayerNorm {
    /// (width,), ones.
    pub weight: Tensor,
    /// (width,), zeros.
    pub bias: Tensor,
    /// Added to the variance.
    pub eps: f64,
    width: usize,
}

impl LayerNorm {
    /// Over a last axis of `width`, with 1e-5 added to the variance.
    #[track_caller]
    pub fn new(width: usize) -> LayerNorm {
        LayerNorm::with(width, 1e-5)
    }

    /// Over a last axis of `width`, with `eps` added to the variance.
    #[track_caller]
    pub fn with(width: usize, eps: f64) -> LayerNorm {
        LayerNorm {
            weight: parameter(&[width], Init::Full(1.0)),
            bias: parameter(&[width], Init::Full(0.0)),
            eps,
            width,
        }
    }

    /// (…, width) → the same shape.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        x.layer_norm(self.width, Some(&self.weight), Some(&self.bias), self.eps)
    }
}

impl Module for LayerNorm {
    fn visit(&self, path: &str, see: &mut dyn FnMut(&str, Part)) {
        see(&join(path, "weight"), Part::Parameter(&self.weight));
        see(&join(path, "bias"), Part::Parameter(&self.bias));
    }
}

/// The last axis divided by its root mean square, then scaled.
#[derive(Debug)]
pub struct RmsNorm {
    /// (width,), ones.
    pub weight: Tensor,
    /// Added to the mean square.
    pub eps: f64,
    width: usize,
}

impl RmsNorm {
    /// Over a last axis of `width`.
    #[track_caller]
    pub fn new(width: usize) -> RmsNorm {
        RmsNorm {
            weight: parameter(&[width], Init::Full(1.0)),
            eps: 1e-6,
            width,
        }
    }

    /// (…, width) → the same shape.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        x.rms_norm(self.width, Some(&self.weight), self.eps)
    }
}

impl Module for RmsNorm {
    fn visit(&self, path: &str, see: &mut dyn FnMut(&str, Part)) {
        see(&join(path, "weight"), Part::Parameter(&self.weight));
    }
}

/// Groups of channels of every sample to mean 0 and variance 1, then every channel scaled and shifted.
#[derive(Debug)]
pub struct GroupNorm {
    /// (channels,), ones.
    pub weight: Tensor,
    /// (channels,), zeros.
    pub bias: Tensor,
    /// Number of groups.
    pub groups: usize,
    /// Added to the variance.
    pub eps: f64,
}

impl GroupNorm {
    /// `channels` channels in `groups` groups.
    #[track_caller]
    pub fn new(groups: usize, channels: usize) -> GroupNorm {
        GroupNorm {
            weight: parameter(&[channels], Init::Full(1.0)),
            bias: parameter(&[channels], Init::Full(0.0)),
            groups,
            eps: 1e-5,
        }
    }

    /// (N, channels, …) → the same shape.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        x.group_norm(
            self.groups as i64,
            Some(&self.weight),
            Some(&self.bias),
            self.eps,
        )
    }
}

impl Module for GroupNorm {
    fn visit(&self, path: &str, see: &mut dyn FnMut(&str, Part)) {
        see(&join(path, "weight"), Part::Parameter(&self.weight));
        see(&join(path, "bias"), Part::Parameter(&self.bias));
    }
}
