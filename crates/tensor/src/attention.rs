//! Attention. Flows in: queries (…, l, d), keys (…, s, d), values (…, s, e), a mask; out: (…, l, e).

use crate::create::triangle;
use crate::elementwise::real;
use crate::functions as f;
use crate::reduce::peak;
use crate::tensor::{Tensor, tri};
use monoglot_uop::{DType, Op, ReduceOp};

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
        let width = tri!(self.shape()).last().copied().unwrap_or(1).max(1) as f64;
        let [q, k, v] = [self, key, value].map(Tensor::dtype);
        let d = tri!(q).promote(tri!(k)).promote(tri!(v));
        let d = if d.is_float() { d } else { DType::F32 };
        let exact = |t: &Tensor| t.cast(d.compute_type());
        let mut scores = (exact(self) * (1.0 / width.sqrt())).matmul(&exact(key).t());
        if let Some(m) = mask {
            let bools = m.dtype() == Ok(DType::Bool);
            scores = if bools {
                m.select(&scores, f64::NEG_INFINITY)
            } else {
                scores + exact(m)
            };
        }
        if causal {
            scores = scores.map(|u| {
                let seen = triangle("attention", u.shape(), |i, j| j.binary(Op::CmpLe, i))?;
                Ok(seen.select(u, &u.like(f64::NEG_INFINITY)))
            });
        }
        let weights = if mask.is_some() {
            scores.masked_softmax()
        } else {
            scores.softmax(-1)
        };
        weights.matmul(&exact(value)).cast(d)
    }

    /// softmax along the last axis; zeros where all is −∞.
    #[track_caller]
    fn masked_softmax(&self) -> Tensor {
        self.along("attention", -1, |u, a| {
            real(u, |x| {
                let e = f::exp_near(&(x - &peak(x, &[a])?.expand(x.shape())?));
                let s = e.reduce(ReduceOp::Add, &[a])?;
                let s = s.eq_(&s.like(0.0)).select(&s.like(1.0), &s);
                Ok(f::div(&e, &s.expand(x.shape())?))
            })
        })
    }
}
