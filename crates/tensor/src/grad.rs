//! Gradients of tensors, and parameters. Flows in: a loss of one element and the tensors it is to be
//! differentiated by; out: one gradient each, again a lazy tensor that can be differentiated.

use crate::tensor::Tensor;
use monoglot_engine as engine;
use monoglot_uop::{Error, ErrorKind, Op, OpSet, Result, UOp, gradient};
use rustc_hash::FxHashSet;
use std::cell::LazyCell;
use std::panic::Location;

impl Tensor {
    /// The gradient of this tensor (of one element) by each of `targets`; zeros where it depends on a
    /// target only through steps (comparisons, rounding, `detach`).
    ///
    /// # Errors
    /// `Gradient` where this tensor has more than one element or no float dtype, where it does not
    /// depend on a target (also because one of them was realized in between, which ends its history),
    /// where a target is no float, and where two targets are one value or one is a constant (`parameter`
    /// gives it a storage of its own).
    #[track_caller]
    pub fn gradient(&self, targets: &[&Tensor]) -> Result<Vec<Tensor>> {
        let u = self.uop()?;
        if u.shape().ints().is_none_or(|s| s.iter().any(|&n| n != 1)) {
            return Err(failed(format!(
                "of a tensor of shape {}; reduce it to one element",
                u.shape()
            )));
        }
        self.gradient_from(&UOp::full(u.dtype().one(), u.dtype(), u.shape()), targets)
    }

    /// The gradient of Σ(self · seed) by each of `targets`.
    ///
    /// # Errors
    /// As `gradient`; the seed has this tensor's shape and dtype.
    #[track_caller]
    pub fn gradient_with(&self, seed: &Tensor, targets: &[&Tensor]) -> Result<Vec<Tensor>> {
        self.gradient_from(&seed.uop()?, targets)
    }

    #[track_caller]
    fn gradient_from(&self, seed: &UOp, targets: &[&Tensor]) -> Result<Vec<Tensor>> {
        let here = Location::caller();
        let root = self.uop()?;
        let wanted = targets
            .iter()
            .map(|t| t.uop())
            .collect::<Result<Vec<UOp>>>()?;
        if let Some(t) = wanted.iter().find(|t| !t.dtype().is_float()) {
            return Err(failed(format!(
                "by a tensor of {}; only floats have gradients",
                t.dtype()
            )));
        }
        const STORED: OpSet = OpSet::of(&[Op::Buffer, Op::Param]);
        if wanted.iter().any(|t| !t.ops_below().intersects(STORED)) {
            return Err(failed(
                "by a constant; equal constants are one value: make it a `parameter`".into(),
            ));
        }
        let found = gradient::gradient(&root, seed, &wanted).map_err(|e| e.at(here))?;
        let below = LazyCell::new(|| root.toposort().into_iter().collect::<FxHashSet<UOp>>());
        let mut out = Vec::with_capacity(found.len());
        for (k, (g, t)) in found.into_iter().zip(&wanted).enumerate() {
            out.push(Tensor::from_uop(match g {
                Some(g) => g,
                None if below.contains(t) || t.shape().contains(&0i64.into()) => {
                    UOp::full(t.dtype().zero(), t.dtype(), t.shape())
                }
                None => {
                    return Err(failed(format!(
                        "the value does not depend on tensor {k} of {}, of shape {}; if it did, one of the two was \
                         realized, assigned or given by a captured function in between, which ends its history",
                        wanted.len(),
                        t.shape()
                    )));
                }
            }));
        }
        Ok(out)
    }

    /// A parameter that starts as this value: it owns storage from now on, so that it is never the same
    /// value as another parameter, however equal they begin.
    #[track_caller]
    pub fn parameter(&self) -> Tensor {
        self.map(|u| {
            let device = u.device().unwrap_or_else(engine::default_device);
            let own = UOp::buffer(u.shape(), u.dtype(), device);
            // What it begins as is no part of what it is a function of.
            Ok(own.after(&[own.store(&u.unary(Op::Detach))]))
        })
    }
}

#[track_caller]
fn failed(message: String) -> Error {
    Error::from(ErrorKind::Gradient { message }).at(Location::caller())
}
