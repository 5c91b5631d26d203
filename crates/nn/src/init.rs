//! How weights begin. Flows in: shapes and a rule; flows out: tensors with storage of their own, or,
//! inside `without_data`, with none at all.

use monoglot_tensor::{DType, Device, Tensor};
use std::cell::Cell;

/// The values that a new tensor begins with.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Init {
    /// All the same.
    Full(f64),
    /// Uniform between −bound and bound.
    Uniform(f64),
    /// Normal with mean 0 and this standard deviation.
    Normal(f64),
}

impl Init {
    /// Uniform on ±1/√inputs: what PyTorch's linear and convolution layers begin with.
    pub fn fan_in(inputs: usize) -> Init {
        Init::Uniform(1.0 / (inputs.max(1) as f64).sqrt())
    }
}

thread_local! {
    static WITHOUT_DATA: Cell<bool> = const { Cell::new(false) };
}

/// Run `make` so that the parameters and buffers it makes are never filled: they have shape and dtype
/// and no storage until something runs on them. For compiling a network that is not to run.
pub fn without_data<T>(make: impl FnOnce() -> T) -> T {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            WITHOUT_DATA.set(self.0);
        }
    }
    let _restore = Restore(WITHOUT_DATA.replace(true));
    make()
}

/// A tensor to be learned: f32 of this shape.
#[track_caller]
pub fn parameter(shape: &[usize], start: Init) -> Tensor {
    buffer(shape, start)
}

/// A tensor that a layer keeps: f32 of this shape, in storage of its own.
#[track_caller]
pub fn buffer(shape: &[usize], start: Init) -> Tensor {
    match start {
        _ if WITHOUT_DATA.get() => absent(shape, DType::F32),
        Init::Full(v) => filled(shape, v, DType::F32),
        Init::Uniform(bound) => Tensor::uniform(shape, -bound, bound).parameter(),
        Init::Normal(deviation) => Tensor::normal(shape, 0.0, deviation).parameter(),
    }
}

/// A tensor that an optimizer keeps: of one value, f64 where that is asked for and else f32, in storage
/// of its own.
#[track_caller]
pub(crate) fn filled(shape: &[usize], value: f64, dtype: DType) -> Tensor {
    let n = shape.iter().product();
    match dtype {
        _ if WITHOUT_DATA.get() => absent(shape, dtype),
        DType::F64 => Tensor::new(&vec![value; n], shape),
        _ => Tensor::new(&vec![value as f32; n], shape),
    }
}

/// On whatever device is the default one; the error of one that cannot be opened comes later.
fn absent(shape: &[usize], dtype: DType) -> Tensor {
    let device = Tensor::zeros(())
        .device()
        .unwrap_or_else(|_| Device::new("CPU"));
    Tensor::empty(shape, dtype, device)
}

/// Whether parameters have no data now.
pub(crate) fn is_without_data() -> bool {
    WITHOUT_DATA.get()
}
