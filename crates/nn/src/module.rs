//! What layers and networks have in common: their parts can be visited. Flows in: a network; flows out:
//! its parameters and buffers by name, in the order of its fields, and whether it trains.

use monoglot_tensor::{DType, Error, Result, Tensor, observe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A part of a layer.
pub enum Part<'a> {
    /// A tensor that is learned.
    Parameter(&'a Tensor),
    /// A tensor that the layer updates itself, such as a running mean.
    Buffer(&'a Tensor),
    /// Whether the layer is training.
    Mode(&'a Mode),
}

/// Whether a layer is training, where that makes a difference. Layers are made training.
#[derive(Debug)]
pub struct Mode(Arc<AtomicBool>);

impl Mode {
    /// Whether it trains.
    pub fn training(&self) -> bool {
        observe(&self.0)
    }

    /// Make it train, or not.
    pub fn set(&self, training: bool) {
        self.0.store(training, Ordering::Relaxed);
    }
}

impl Default for Mode {
    fn default() -> Mode {
        Mode(Arc::new(AtomicBool::new(true)))
    }
}

/// A layer, or a struct of layers. A network of one's own gets this by `module!(Net { conv, head });`,
/// which names the fields that have parts; a `Tensor` among them is a parameter.
pub trait Module {
    /// Call `see` with the name and every part of this module; names begin with `path`.
    fn visit(&self, path: &str, see: &mut dyn FnMut(&str, Part));

    /// The tensors that are learned, each once: clones of one tensor in several layers (tied weights) are one
    /// parameter, at its first place.
    fn parameters(&self) -> Vec<Tensor> {
        let mut out: Vec<Tensor> = Vec::new();
        self.visit("", &mut |_, part| {
            if let Part::Parameter(t) = part
                && !out.iter().any(|known| known.is_clone_of(t))
            {
                out.push(t.clone());
            }
        });
        out
    }

    /// The tensors that layers update themselves.
    fn buffers(&self) -> Vec<Tensor> {
        let mut out = Vec::new();
        self.visit("", &mut |_, part| {
            if let Part::Buffer(t) = part {
                out.push(t.clone());
            }
        });
        out
    }

    /// Parameters and buffers with their names, such as `blocks.0.conv.weight`; a tied one with each of its names.
    fn named(&self) -> Vec<(String, Tensor)> {
        let mut out = Vec::new();
        self.visit("", &mut |name, part| match part {
            Part::Parameter(t) | Part::Buffer(t) => out.push((name.to_string(), t.clone())),
            Part::Mode(_) => {}
        });
        out
    }

    /// How many numbers are learned.
    ///
    /// # Errors
    /// The error that a parameter carries.
    fn parameter_count(&self) -> Result<usize> {
        self.parameters().iter().map(|p| p.numel()).sum()
    }

    /// Train from now on: batch statistics, dropout.
    fn train(&self) {
        self.visit("", &mut |_, part| {
            if let Part::Mode(m) = part {
                m.set(true);
            }
        });
    }

    /// Do not train from now on: running statistics, no dropout.
    fn eval(&self) {
        self.visit("", &mut |_, part| {
            if let Part::Mode(m) = part {
                m.set(false);
            }
        });
    }

    /// Hold everything that is a float in this dtype from now on: a network in `BF16` takes half the memory and half
    /// the time to read. Optimizers that were made before keep their own numbers in the old one.
    ///
    /// # Errors
    /// `Argument` for a dtype that is no float's; what went wrong in compiling or running.
    fn cast(&self, dtype: DType) -> Result<()> {
        if !dtype.is_float() {
            let message = format!("a network's numbers are floats, not {dtype}");
            return Err(Error::argument("Module::cast", message));
        }
        for (_, t) in self.named() {
            if t.dtype()?.is_float() && t.dtype()? != dtype {
                t.rebind(&t.cast(dtype).parameter());
            }
        }
        self.realize()
    }

    /// Compute everything that is still only written down, in one program: initial values, or
    /// statistics after a forward pass in training mode that no optimizer step followed.
    ///
    /// # Errors
    /// What went wrong in compiling or running.
    fn realize(&self) -> Result<()> {
        let all: Vec<Tensor> = self.named().into_iter().map(|(_, t)| t).collect();
        Tensor::realize_all(&all.iter().collect::<Vec<_>>())
    }
}

/// `path.name`, or `name` where there is no path.
pub fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_string()
    } else {
        format!("{path}.{name}")
    }
}

/// Makes a struct a `Module` whose parts are those of the fields named.
///
/// ```
/// use monoglot_nn::{Conv2d, Linear, module};
///
/// struct Net { conv: Conv2d, head: Linear }
/// module!(Net { conv, head });
/// ```
#[macro_export]
macro_rules! module {
    ($name:ty { $($field:ident),* $(,)? }) => {
        impl $crate::Module for $name {
            fn visit(&self, path: &str, see: &mut dyn FnMut(&str, $crate::Part)) {
                $( $crate::Module::visit(&self.$field, &$crate::join(path, stringify!($field)), see); )*
            }
        }
    };
}

/// A tensor in a field is one that is learned.
impl Module for Tensor {
    fn visit(&self, path: &str, see: &mut dyn FnMut(&str, Part)) {
        see(path, Part::Parameter(self));
    }
}

impl<M: Module> Module for [M] {
    fn visit(&self, path: &str, see: &mut dyn FnMut(&str, Part)) {
        for (i, m) in self.iter().enumerate() {
            m.visit(&join(path, &i.to_string()), see);
        }
    }
}

impl<M: Module> Module for Vec<M> {
    fn visit(&self, path: &str, see: &mut dyn FnMut(&str, Part)) {
        self.as_slice().visit(path, see);
    }
}

impl<M: Module, const N: usize> Module for [M; N] {
    fn visit(&self, path: &str, see: &mut dyn FnMut(&str, Part)) {
        self.as_slice().visit(path, see);
    }
}

impl<M: Module> Module for Option<M> {
    fn visit(&self, path: &str, see: &mut dyn FnMut(&str, Part)) {
        if let Some(m) = self {
            m.visit(path, see);
        }
    }
}

impl<A: Module, B: Module> Module for (A, B) {
    fn visit(&self, path: &str, see: &mut dyn FnMut(&str, Part)) {
        self.0.visit(&join(path, "0"), see);
        self.1.visit(&join(path, "1"), see);
    }
}
