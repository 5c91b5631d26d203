//! Optimizers. Flows in: a loss; flows out: assigned parameters, in one program with the loss.
//!
//! Invariant: the learning rate, the step's number and everything else that changes are buffers, never
//! constants, so that every step has the structure of the first.

use crate::init::{filled, is_without_data};
use crate::module::Module;
use monoglot_tensor::{DType, Result, Tensor};

/// What every optimizer works on. Making it computes the network's initial values, if they are not yet.
pub struct Trained {
    parameters: Vec<Tensor>,
    buffers: Vec<Tensor>,
    /// Of the rate and the steps' number: f64 where a parameter is.
    dtype: DType,
    rate: Tensor,
    /// Whether the initial values could be computed.
    begun: Result<()>,
}

impl Trained {
    fn new(net: &(impl Module + ?Sized), rate: f64) -> Trained {
        let parameters = net.parameters();
        let double = parameters.iter().any(|p| state(p) == DType::F64);
        let dtype = if double { DType::F64 } else { DType::F32 };
        let rate = beside(parameters.first(), filled(&[], rate, dtype));
        // Initial values are computed now, so that the first step has the structure of all others.
        let begun = if is_without_data() {
            Ok(())
        } else {
            net.realize()
        };
        Trained {
            parameters,
            buffers: net.buffers(),
            dtype,
            rate,
            begun,
        }
    }

    /// The tensors that are learned.
    pub fn parameters(&self) -> &[Tensor] {
        &self.parameters
    }

    /// The learning rate: one number, f32, or f64 where a parameter is.
    pub fn rate(&self) -> Tensor {
        self.rate.clone()
    }

    /// Each parameter's value and gradient in the dtype of what is kept of its past: in half types the square of a
    /// gradient, or what a step changes, may be nothing or no number.
    fn wide(&self, gradients: &[Tensor]) -> Vec<[Tensor; 2]> {
        let pairs = self.parameters.iter().zip(gradients);
        pairs
            .map(|(p, g)| [p, g].map(|t| t.cast(state(p))))
            .collect()
    }

    /// One buffer of zeros for each parameter.
    fn zeros(&self) -> Vec<Tensor> {
        let zeros = |p: &Tensor| {
            let shape = p.shape().unwrap_or_default();
            beside(Some(p), filled(&shape, 0.0, state(p)))
        };
        self.parameters.iter().map(zeros).collect()
    }

    fn number(&self, value: f64) -> Tensor {
        beside(self.parameters.first(), filled(&[], value, self.dtype))
    }
}

/// What an optimizer keeps, on the device of a parameter.
fn beside(parameter: Option<&Tensor>, kept: Tensor) -> Tensor {
    match parameter.map(Tensor::device) {
        Some(Ok(device)) if kept.device() != Ok(device) => kept.to(device).contiguous(),
        _ => kept,
    }
}

/// The dtype of what is kept of a parameter's past: f64 for f64, else f32.
fn state(parameter: &Tensor) -> DType {
    parameter
        .dtype()
        .ok()
        .filter(|&d| d == DType::F64)
        .unwrap_or(DType::F32)
}

/// What changes parameters against their gradients.
pub trait Optimizer {
    /// The network's tensors and the learning rate.
    fn trained(&self) -> &Trained;

    /// Write down the assignments of one step and return every tensor that it changes. Nothing is
    /// computed; `step` is this and the rest. `gradients` are in the order of `trained().parameters()`.
    fn update(&self, gradients: &[Tensor]) -> Vec<Tensor>;

    /// One step: the loss, the parameters' new values, the optimizer's state and the buffers of the
    /// network (such as running means) are computed in one program.
    ///
    /// # Errors
    /// An error that the loss carries, a parameter that it does not depend on, or what went wrong in
    /// compiling or running. After `OutOfRange` (a class or an id that there is not) the step has not
    /// been: parameters, state and buffers are what they were before it.
    #[track_caller]
    fn step(&self, loss: &Tensor) -> Result<()> {
        self.trained().begun.clone()?;
        let parameters: Vec<&Tensor> = self.trained().parameters.iter().collect();
        // Held any longer, gradients would keep the parameters that they read from being written in place.
        let changed = self.update(&loss.gradient(&parameters)?);
        let mut all = vec![loss];
        all.extend(&changed);
        all.extend(&self.trained().buffers);
        Tensor::realize_all(&all)
    }

    /// The learning rate from the next step on.
    fn set_rate(&self, rate: f64) {
        let trained = self.trained();
        trained.rate.rebind(&trained.number(rate));
    }
}

/// Stochastic gradient descent, with momentum where one is given:
/// v ← μ·v + g, p ← p − r·v (Nesterov: p ← p − r·(g + μ·v)), g with weight decay's λ·p in it.
pub struct Sgd {
    trained: Trained,
    momentum: f64,
    nesterov: bool,
    weight_decay: f64,
    velocity: Vec<Tensor>,
}

impl Sgd {
    /// Plain gradient descent.
    #[track_caller]
    pub fn new(net: &(impl Module + ?Sized), rate: f64) -> Sgd {
        let trained = Trained::new(net, rate);
        Sgd {
            trained,
            momentum: 0.0,
            nesterov: false,
            weight_decay: 0.0,
            velocity: Vec::new(),
        }
    }

    /// With momentum μ.
    #[track_caller]
    pub fn momentum(mut self, momentum: f64) -> Sgd {
        self.velocity = if momentum == 0.0 {
            Vec::new()
        } else {
            self.trained.zeros()
        };
        self.momentum = momentum;
        self
    }

    /// With Nesterov's momentum μ.
    #[track_caller]
    pub fn nesterov(self, momentum: f64) -> Sgd {
        Sgd {
            nesterov: true,
            ..self.momentum(momentum)
        }
    }

    /// With weight decay λ.
    pub fn weight_decay(self, weight_decay: f64) -> Sgd {
        Sgd {
            weight_decay,
            ..self
        }
    }
}

impl Optimizer for Sgd {
    fn trained(&self) -> &Trained {
        &self.trained
    }

    fn update(&self, gradients: &[Tensor]) -> Vec<Tensor> {
        let rate = self.trained.rate();
        let wide = self.trained.wide(gradients);
        for (i, (to, [p, mut g])) in self.trained.parameters.iter().zip(wide).enumerate() {
            if self.weight_decay != 0.0 {
                g = g + &p * self.weight_decay;
            }
            if let Some(v) = self.velocity.get(i) {
                v.assign(&(v * self.momentum + &g));
                g = if self.nesterov {
                    g + v * self.momentum
                } else {
                    v.clone()
                };
            }
            to.assign(&(p - g * &rate));
        }
        self.trained
            .parameters
            .iter()
            .chain(&self.velocity)
            .cloned()
            .collect()
    }
}

/// Adam (Kingma and Ba, 2015): m ← β₁·m + (1−β₁)·g, v ← β₂·v + (1−β₂)·g²,
/// p ← p − r · m/(1−β₁ᵗ) / (√(v/(1−β₂ᵗ)) + ε), g with weight decay's λ·p in it.
pub struct Adam {
    trained: Trained,
    betas: [f64; 2],
    eps: f64,
    weight_decay: f64,
    decoupled: bool,
    first: Vec<Tensor>,
    second: Vec<Tensor>,
    /// The number of steps so far, of the rate's dtype: exact as long as it counts.
    steps: Tensor,
}

impl Adam {
    /// β = (0.9, 0.999), ε = 10⁻⁸, no weight decay.
    #[track_caller]
    pub fn new(net: &(impl Module + ?Sized), rate: f64) -> Adam {
        let trained = Trained::new(net, rate);
        Adam {
            betas: [0.9, 0.999],
            eps: 1e-8,
            weight_decay: 0.0,
            decoupled: false,
            first: trained.zeros(),
            second: trained.zeros(),
            steps: trained.number(0.0),
            trained,
        }
    }

    /// With these β₁ and β₂.
    pub fn betas(self, first: f64, second: f64) -> Adam {
        Adam {
            betas: [first, second],
            ..self
        }
    }

    /// With this ε.
    pub fn eps(self, eps: f64) -> Adam {
        Adam { eps, ..self }
    }

    /// With weight decay λ.
    pub fn weight_decay(self, weight_decay: f64) -> Adam {
        Adam {
            weight_decay,
            ..self
        }
    }
}

impl Optimizer for Adam {
    fn trained(&self) -> &Trained {
        &self.trained
    }

    fn update(&self, gradients: &[Tensor]) -> Vec<Tensor> {
        let rate = self.trained.rate();
        let [b1, b2] = self.betas;
        let t = &self.steps + 1.0;
        // p − size · m / (√v + ε′), both corrections taken out of what is done for every element.
        let correction = |b: f64| -(&t * b.ln()).expm1();
        let root = correction(b2).sqrt();
        let size = &rate * &root / correction(b1);
        let eps = &root * self.eps;
        let wide = self.trained.wide(gradients).into_iter();
        let state = self.first.iter().zip(&self.second);
        for ((to, [p, mut g]), (m, v)) in self.trained.parameters.iter().zip(wide).zip(state) {
            if self.weight_decay != 0.0 && !self.decoupled {
                g = g + &p * self.weight_decay;
            }
            m.assign(&(m * b1 + &g * (1.0 - b1)));
            v.assign(&(v * b2 + &g * &g * (1.0 - b2)));
            let kept = if self.decoupled {
                p * (1f64 - &rate * self.weight_decay)
            } else {
                p
            };
            to.assign(&(kept - m * &size / (v.sqrt() + &eps)));
        }
        self.steps.assign(t);
        let all = self
            .trained
            .parameters
            .iter()
            .chain(&self.first)
            .chain(&self.second);
        all.chain([&self.steps]).cloned().collect()
    }
}

/// Adam with weight decay apart from the gradient (Loshchilov and Hutter, 2019): p ← p·(1 − r·λ) first.
pub struct AdamW(Adam);

impl AdamW {
    /// β = (0.9, 0.999), ε = 10⁻⁸.
    #[track_caller]
    pub fn new(net: &(impl Module + ?Sized), rate: f64, weight_decay: f64) -> AdamW {
        AdamW(Adam {
            decoupled: true,
            weight_decay,
            ..Adam::new(net, rate)
        })
    }

    /// With these β₁ and β₂.
    pub fn betas(self, first: f64, second: f64) -> AdamW {
        AdamW(self.0.betas(first, second))
    }

    /// With this ε.
    pub fn eps(self, eps: f64) -> AdamW {
        AdamW(self.0.eps(eps))
    }
}

impl Optimizer for AdamW {
    fn trained(&self) -> &Trained {
        self.0.trained()
    }

    fn update(&self, gradients: &[Tensor]) -> Vec<Tensor> {
        self.0.update(gradients)
    }
}
