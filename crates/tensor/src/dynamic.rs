//! Axes that are declared to vary. Flows in: a tensor, an axis and the bounds of its length; flows out: the same
//! elements with a length that is a variable's. Invariant: equal bounds are one variable.

use crate::length::Variable;
use crate::tensor::{Tensor, axis_of};
use monoglot_uop::{Error, Result, Shape};
use std::ops::RangeInclusive;
use std::sync::Mutex;

/// The variables of `Tensor::dynamic`, by their bounds.
static DECLARED: Mutex<Vec<Variable>> = Mutex::new(Vec::new());

impl Tensor {
    /// These elements, with an axis whose length varies from run to run within bounds: what is computed from
    /// them is compiled once for all lengths. They are computed now and copied, as many as there are; nothing
    /// is computed or stored for those that there could be. Axes of equal bounds and lengths are of one
    /// size, and fit together; for others use a `Variable`. Gradients end here.
    ///
    /// The tensor carries the error `Argument` where the length is outside the bounds, or varies within
    /// others already, and those of `realize`.
    ///
    /// ```
    /// use monoglot_tensor::Tensor;
    /// let w = Tensor::ones([8, 4]);
    /// for n in [3, 5, 64] {
    ///     let x = Tensor::ones([n, 8]).dynamic(0, 1..=64);
    ///     assert_eq!(x.matmul(&w).sum(.., false).item::<f32>()?, 32.0 * n as f32);
    /// }
    /// # Ok::<(), monoglot_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn dynamic(&self, axis: i64, bounds: RangeInclusive<i64>) -> Tensor {
        let made = || {
            let u = self.uop()?;
            let axis = axis_of("dynamic", axis, u.shape().len())?;
            let mut dims = u.shape().to_vec();
            let now = dims[axis].now().ok_or_else(|| {
                let message = format!("axis {axis} of shape {} has no value", u.shape());
                Error::argument("dynamic", message)
            })?;
            let length = declared(bounds)?.at("dynamic", now)?;
            let varies = dims[axis].as_int().is_none();
            if varies && dims[axis] == length.0 {
                return Ok(u);
            }
            if varies {
                let message = format!("axis {axis} of shape {} varies already", u.shape());
                return Err(Error::argument("dynamic", message));
            }
            dims[axis] = length.0;
            monoglot_engine::with_room(&u, &Shape::new(dims))
        };
        Tensor::wrap(made())
    }
}

/// The variable of these bounds.
fn declared(bounds: RangeInclusive<i64>) -> Result<Variable> {
    let new = Variable::within("dynamic", bounds)?;
    let mut all = DECLARED.lock().unwrap_or_else(|e| e.into_inner());
    let known = all.iter().find(|v| v.0.bounds() == new.0.bounds());
    if let Some(known) = known {
        return Ok(known.clone());
    }
    all.push(new.clone());
    Ok(new)
}
