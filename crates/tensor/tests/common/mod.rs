//! What the tests of values share. Flows in: tensors; flows out: their elements.

use monoglot_tensor::{Device, Tensor};

/// No compiler is waited for.
pub(crate) fn on_interpreter() {
    monoglot_engine::set_default_device(Device::new("INTERP"));
}

pub(crate) fn f32s(t: &Tensor) -> Vec<f32> {
    t.to_vec().expect("f32 values")
}

pub(crate) fn ints(t: &Tensor) -> Vec<i32> {
    t.to_vec().expect("i32 values")
}
