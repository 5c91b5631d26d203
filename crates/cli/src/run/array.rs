//! An array: what is read from a file or written to one. Flows in: a tensor, or bytes; flows out: the other.

use crate::Failure;
use monoglot::compiler::uop::Scalar;
use monoglot::{DType, Device, Tensor};

/// Numbers with a shape.
pub(super) struct Array {
    pub(super) name: String,
    pub(super) dtype: DType,
    pub(super) shape: Vec<usize>,
    /// Row-major, little-endian.
    pub(super) bytes: Vec<u8>,
}

impl Array {
    /// The value of a tensor.
    pub(super) fn of(name: &str, tensor: &Tensor) -> Result<Array, Failure> {
        Ok(Array {
            name: name.into(),
            dtype: tensor.dtype()?,
            shape: tensor.shape()?,
            bytes: tensor.to_bytes()?,
        })
    }

    /// A tensor of it.
    pub(super) fn tensor(&self, device: Option<Device>) -> Tensor {
        let shape: Vec<i64> = self.shape.iter().map(|&n| n as i64).collect();
        match device {
            Some(device) => Tensor::from_bytes_on(&self.bytes, shape, self.dtype, device),
            None => Tensor::from_bytes(&self.bytes, shape, self.dtype),
        }
    }

    /// The first elements.
    pub(super) fn first(&self, count: usize) -> impl Iterator<Item = Scalar> {
        let size = self.dtype.bytes().max(1);
        let elements = self.bytes.chunks_exact(size).take(count);
        elements.map(move |bytes| {
            let mut word = [0; 8];
            word[..size].copy_from_slice(bytes);
            let bits = u64::from_le_bytes(word);
            Scalar::from_bits(bits, self.dtype)
        })
    }
}
