//! Attention. Flows in: queries (…, l, d), keys (…, s, d), values (…, s, e), a mask; out: (…, l, e).

use crate::functions as f;
use crate::linalg::matmul;
use crate::promote::{size_of, triangle};
use crate::reduce::{peak, top};
use crate::tensor::{Tensor, tri};
use monoglot_uop::{DType, Error, Op, ReduceOp, Result, UOp};

impl Tensor {
    /// softmax(q·kᵀ/√d + mask)·v. A bool mask says which keys count, a float one is added; `causal`
    /// lets query i see keys 0 to i. A query that sees nothing gets zeros. Floats narrower than f32 are
    /// rounded once, at the end.
    #[track_caller]
    pub fn attention(
        &self,
        key: &Tensor,
        value: &Tensor,
        mask: Option<&Tensor>,
        causal: bool,
    ) -> Tensor {
        let query = tri!(self.uop());
        let last = query.shape().len().checked_sub(1);
        let [keys, values] = [tri!(key.uop()), tri!(value.uop())];
        let from_end = |u: &UOp, k: usize| Some(u.shape()[u.shape().len().checked_sub(k)?].clone());
        let meet = from_end(&query, 1) == from_end(&keys, 1);
        if !meet || from_end(&keys, 2) != from_end(&values, 2) {
            let [q, k, v] = [&query, &keys, &values].map(|u| u.shape());
            let message = format!(
                "queries {q}, keys {k}, values {v}, where (…, l, d), (…, s, d) and (…, s, e) are wanted"
            );
            return Tensor::failed(Error::shape("attention", message));
        }
        let width = tri!(last.map_or(Ok(1), |a| size_of("attention", &query, a)));
        let width = width.max(1) as f64;
        let [q, k, v] = [self, key, value].map(Tensor::dtype);
        let d = tri!(q).promote(tri!(k)).promote(tri!(v));
        let d = if d.is_float() { d } else { DType::F32 };
        let exact = |t: &Tensor| t.cast(d.compute_type());
        let mut scores = (exact(self) * (1.0 / width.sqrt())).matmul(&exact(key).t());
        if let Some(m) = mask {
            scores = match tri!(m.dtype()) {
                DType::Bool => m.select(&scores, f64::NEG_INFINITY),
                d if d.is_float() => scores + exact(m),
                d => {
                    let message = format!("a mask of {d}; cast one of 0 and 1 to bool");
                    return Tensor::failed(Error::dtype("attention", message));
                }
            };
        }
        let values = exact(value);
        // Where there are no keys a query sees nothing.
        let none = from_end(&keys, 2).is_some_and(|n| n.min() < 1);
        let weighed = |u: &[UOp]| weighed(&u[0], &u[1], causal, mask.is_some() || none);
        Tensor::map_all(&[&scores, &values], weighed).cast(d)
    }
}

/// Values weighed by the softmax of scores along the last axis. `causal` leaves out keys behind the query, whatever
/// their values are; `masked` gives zeros where all scores are −∞.
fn weighed(scores: &UOp, values: &UOp, causal: bool, masked: bool) -> Result<UOp> {
    let last = scores.shape().len() - 1;
    let seen = |i: &UOp, j: &UOp| j.binary(Op::CmpLe, i);
    let seen = causal.then(|| triangle("attention", scores.shape(), seen));
    let seen = seen.transpose()?;
    let or = |x: &UOp, other: f64| match &seen {
        Some(seen) => seen.select(x, &x.like(other)),
        None => x.clone(),
    };
    let scores = or(scores, f64::NEG_INFINITY);
    let most = if masked { peak } else { top };
    let e = f::exp_near(&(&scores - &most(&scores, &[last])?.expand(scores.shape())?));
    let mut sum = or(&e, 0.0).reduce(ReduceOp::Add, &[last])?;
    if masked {
        sum = sum.eq_(&sum.like(0.0)).select(&sum.like(1.0), &sum);
    }
    let weighed = matmul(&e, values, seen.as_ref())?;
    Ok(f::div(&weighed, &sum.expand(weighed.shape())?))
}
