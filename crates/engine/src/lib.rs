//! Room `engine`: realize, caches, replay. The one room that sees schedule, codegen and device.
//!
//! For now values are computed by the evaluator of the tensor graph and kept in host memory: the four
//! functions below are what the tensor room is written against.

use monoglot_uop::error::{ErrorKind, Result};
use monoglot_uop::eval::{Value, eval};
use monoglot_uop::{DType, Device, Op, Shape, UOp};
use std::sync::{Arc, RwLock};

static DEFAULT: RwLock<Option<Device>> = RwLock::new(None);

/// The device of values that name none.
pub fn default_device() -> Device {
    let chosen = *DEFAULT.read().unwrap_or_else(|e| e.into_inner());
    chosen.unwrap_or_else(|| Device::new("CPU"))
}

/// Choose the device of values that name none.
pub fn set_default_device(device: Device) {
    *DEFAULT.write().unwrap_or_else(|e| e.into_inner()) = Some(device);
}

/// Bring row-major bytes to a device, as a BUFFER.
///
/// # Errors
/// Where the number of bytes is not what shape and dtype need.
pub fn upload(bytes: &[u8], shape: &Shape, dtype: DType, device: Device) -> Result<UOp> {
    let want = shape.max_len() as usize * dtype.bytes();
    if bytes.len() != want {
        let message = format!("{} bytes for shape {shape} of {dtype}, which needs {want}", bytes.len());
        return Err(ErrorKind::Argument { op: "upload".into(), message }.into());
    }
    let buffer = UOp::buffer(shape, dtype, device);
    buffer.set_storage(Arc::new(bytes.to_vec()));
    Ok(buffer)
}

/// Compute all roots; each result is a BUFFER of the same shape and dtype.
///
/// # Errors
/// What cannot run, or a BUFFER without storage.
pub fn realize(roots: &[UOp]) -> Result<Vec<UOp>> {
    let todo: Vec<UOp> = roots.iter().filter(|r| r.storage().is_none()).cloned().collect();
    let mut values = eval(&todo, &mut stored)?.into_iter();
    roots
        .iter()
        .map(|r| match r.storage() {
            Some(_) => Ok(r.clone()),
            None => {
                let v = values.next().expect("one value a root");
                upload(&v.to_bytes(), r.shape(), r.dtype(), r.device().unwrap_or_else(default_device))
            }
        })
        .collect()
}

/// The row-major bytes of a value, computed if need be.
///
/// # Errors
/// As `realize`.
pub fn read(u: &UOp) -> Result<Vec<u8>> {
    Ok(eval(std::slice::from_ref(u), &mut stored)?.remove(0).to_bytes())
}

fn stored(u: &UOp) -> Result<Value> {
    let bytes = u.storage().and_then(|s| s.downcast::<Vec<u8>>().ok());
    match (bytes, u.sizes(Op::Buffer.name())?) {
        (Some(b), shape) => Value::from_bytes(&b, &shape, u.dtype()),
        (None, _) => Err(ErrorKind::Run { message: format!("{u:?} has no storage") }.into()),
    }
}
