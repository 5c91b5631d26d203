//! Tensors from data and from nothing. Flows in: Rust values, shapes, dtypes; out: uploaded buffers, or
//! constants that take no storage until they are realized.

use crate::args::{Dims, Element};
use crate::elementwise::methods;
use crate::index::named;
use crate::length::Sizes;
use crate::promote::{counter, triangle};
use crate::shape::{MOST, sizes, whole};
use crate::tensor::{Tensor, held};
use monoglot_engine as engine;
use monoglot_uop::{DType, Device, Dim, Error, Op, Result, Scalar, UOp};
use std::path::Path;

impl Tensor {
    /// The elements of a slice, row-major in `shape` (one size may be −1), on the default device.
    #[track_caller]
    pub fn new<T: Element>(data: &[T], shape: impl Into<Dims>) -> Tensor {
        let mut bytes = Vec::with_capacity(data.len() * T::DTYPE.bytes());
        T::write(data, &mut bytes);
        Tensor::from_bytes(&bytes, shape, T::DTYPE)
    }

    /// Row-major little-endian bytes, on the default device.
    #[track_caller]
    pub fn from_bytes(bytes: &[u8], shape: impl Into<Dims>, dtype: DType) -> Tensor {
        Tensor::from_bytes_on(bytes, shape, dtype, engine::default_device())
    }

    /// As `from_bytes`, on a device.
    #[track_caller]
    pub fn from_bytes_on(
        bytes: &[u8],
        shape: impl Into<Dims>,
        dtype: DType,
        device: Device,
    ) -> Tensor {
        Tensor::wrap(upload(bytes, shape.into(), dtype, device))
    }

    /// The values in a file, shape (n,), on DISK: `to` a device what is needed, and only that is read.
    #[track_caller]
    pub fn open(path: impl AsRef<Path>, dtype: DType) -> Tensor {
        Tensor::wrap(held(dtype).and_then(|dtype| engine::open_file(path, dtype)))
    }

    /// A 0-d tensor.
    #[track_caller]
    pub fn scalar<T: Element>(value: T) -> Tensor {
        Tensor::new(&[value], ())
    }

    /// A shape filled with one value.
    #[track_caller]
    pub fn full<T: Element>(shape: impl Into<Sizes>, value: T) -> Tensor {
        let mut bytes = Vec::new();
        T::write(&[value], &mut bytes);
        Tensor::filled(shape, scalar(&bytes, T::DTYPE), T::DTYPE)
    }

    /// A shape filled with one value, brought into `dtype`.
    #[track_caller]
    pub fn filled(shape: impl Into<Sizes>, value: Scalar, dtype: DType) -> Tensor {
        Tensor::wrap(sizes("full", shape).map(|s| UOp::full(value, dtype, &s)))
    }

    /// Zeros, f32.
    #[track_caller]
    pub fn zeros(shape: impl Into<Sizes>) -> Tensor {
        Tensor::filled(shape, Scalar::Float(0.0), DType::F32)
    }

    /// Ones, f32.
    #[track_caller]
    pub fn ones(shape: impl Into<Sizes>) -> Tensor {
        Tensor::filled(shape, Scalar::Float(1.0), DType::F32)
    }

    /// A buffer of its own without storage, whose elements are not set until it is assigned.
    #[track_caller]
    pub fn empty(shape: impl Into<Dims>, dtype: DType, device: Device) -> Tensor {
        Tensor::wrap(sizes("empty", shape.into()).map(|s| UOp::buffer(&s, dtype, device)))
    }

    /// start, start + step, … before `stop`: i32 where both fit, else i64.
    #[track_caller]
    pub fn arange(start: i64, stop: i64, step: i64) -> Tensor {
        let long = i128::from(stop) - i128::from(start);
        let n = if step == 0 {
            -1
        } else {
            (long + i128::from(step - step.signum())) / i128::from(step)
        };
        if step == 0 || n > MOST.into() {
            let message = format!("from {start} to {stop} by {step}");
            return Tensor::failed(Error::argument("arange", message));
        }
        let fits = [start, stop, step]
            .iter()
            .all(|&v| i32::try_from(v).is_ok());
        let d = if fits { DType::I32 } else { DType::I64 };
        Tensor::from_uop(UOp::arange(n.max(0) as i64, d) * step + start)
    }

    /// start, start + step, … before `stop`, in a dtype.
    #[track_caller]
    pub fn arange_of(start: f64, stop: f64, step: f64, dtype: DType) -> Tensor {
        let n = ((stop - start) / step).ceil();
        if step == 0.0 || !n.is_finite() || n > MOST as f64 {
            let message = format!("from {start} to {stop} by {step}");
            return Tensor::failed(Error::argument("arange", message));
        }
        let n = n.max(0.0) as i64;
        Tensor::from_uop(match dtype {
            d if d.is_float() => {
                let i = UOp::arange(n, counter(n)).cast(d.compute_type());
                i.mul_acc(&i.like(step), &i.like(start)).cast(d)
            }
            DType::Bool => {
                (UOp::arange(n, DType::I64) * step as i64 + start as i64).cast(DType::Bool)
            }
            d => UOp::arange(n, d) * step as i64 + start as i64,
        })
    }

    /// `steps` values evenly from `start` to `stop`, both included, f32.
    #[track_caller]
    pub fn linspace(start: f64, stop: f64, steps: i64) -> Tensor {
        if !(0..=MOST).contains(&steps) {
            return Tensor::failed(Error::argument("linspace", format!("{steps} steps")));
        }
        // From both ends, so that the last value is exact.
        let step = (stop - start) / (steps - 1).max(1) as f64;
        let i = UOp::arange(steps, counter(steps));
        let up = i.cast(DType::F32);
        let n = (steps - 1) as f64;
        let low = up.mul_acc(&up.like(step), &up.like(start));
        let high = (&up - n).mul_acc(&up.like(step), &up.like(stop));
        Tensor::wrap(Ok(i.lt(&i.like(steps / 2 + steps % 2)).select(&low, &high)))
    }

    /// Ones where row and column agree, f32.
    #[track_caller]
    pub fn eye(rows: i64, columns: i64) -> Tensor {
        let on = sizes("eye", Dims(vec![rows, columns]));
        Tensor::wrap(on.and_then(|s| Ok(triangle("eye", &s, |i, j| i.eq_(j))?.cast(DType::F32))))
    }
}

methods! {
    /// The elements of the last two axes where column ≤ row + `diagonal`; 0 elsewhere.
    tril(diagonal: i64) map |x| kept("tril", x, diagonal, |i, j| j.binary(Op::CmpLe, i));
    /// The elements of the last two axes where column ≥ row + `diagonal`; 0 elsewhere.
    triu(diagonal: i64) map |x| kept("triu", x, diagonal, |i, j| i.binary(Op::CmpLe, j));
}

impl Tensor {
    /// 1 where the last axis counts to the element, as i32, in a new last axis of `classes`. Realizing it
    /// is an error where an element is none of 0 to `classes` − 1.
    #[track_caller]
    pub fn one_hot(&self, classes: i64) -> Tensor {
        if classes < 1 {
            return Tensor::failed(Error::argument("one_hot", format!("{classes} classes")));
        }
        let x = self.naming("one_hot", "classes", 0..classes, None);
        x.map(|x| Ok(named("one_hot", x, x.shape().len(), classes)?.cast(DType::I32)))
    }
}

/// The elements for which something holds of row + `diagonal` and column; 0 elsewhere.
fn kept(op: &str, x: &UOp, diagonal: i64, holds: impl Fn(&UOp, &UOp) -> UOp) -> Result<UOp> {
    let far = 1 << 30;
    let on = triangle(op, x.shape(), |i, j| {
        holds(&(i + diagonal.clamp(-far, far)), j)
    })?;
    Ok(on.select(x, &UOp::constant(x.dtype().zero(), x.dtype())))
}

/// The element in its little-endian bytes.
pub(crate) fn scalar(bytes: &[u8], dtype: DType) -> Scalar {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    Scalar::from_bits(u64::from_le_bytes(word), dtype)
}

pub(crate) fn upload(bytes: &[u8], dims: Dims, dtype: DType, device: Device) -> Result<UOp> {
    let n = bytes.len() / held(dtype)?.bytes();
    let shape = whole("new", &[Dim::from(n)], &Sizes::from(dims).0)?;
    if shape.max_len() != n as i64 || n * dtype.bytes() != bytes.len() {
        let whole = n * dtype.bytes() == bytes.len();
        let count = match whole {
            true => format!("{n} elements"),
            false => format!("{} bytes", bytes.len()),
        };
        let message = format!("{count} of {dtype} for shape {shape}");
        return Err(Error::shape("new", message));
    }
    engine::upload(bytes, &shape, dtype, device)
}
