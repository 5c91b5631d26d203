//! Attention. Flows in: queries (…, l, d), keys (…, s, d), values (…, s, e), a mask; out: (…, l, e).

use crate::functions as f;
use crate::reduce::try_real;
use crate::tensor::{Tensor, tri};
use monoglot_uop::{DType, Op, ReduceOp};

impl Tensor {
    /// softmax(q·kᵀ/√d + mask)·v. A bool mask says which keys count, a float one is added; `causal`
    /// lets query i see keys 0 to i. A query that sees nothing gets zeros.
    #[track_caller]
    pub fn attention(&self, key: &Tensor, value: &Tensor, mask: Option<&Tensor>, causal: bool) -> Tensor {
        let d = tri!(self.shape()).last().copied().unwrap_or(1).max(1) as f64;
        let scores = (self * (1.0 / d.sqrt())).matmul(&key.t());
        let scores = match mask {
            None => scores,
            Some(m) if m.dtype() == Ok(DType::Bool) => m.select(&scores, f64::NEG_INFINITY),
            Some(m) => scores + m,
        };
        let scores = if causal { scores.below_diagonal() } else { scores };
        let weights = if mask.is_some() { scores.masked_softmax() } else { scores.softmax(-1) };
        weights.matmul(value)
    }

    /// −∞ above the diagonal of the last two axes.
    #[track_caller]
    fn below_diagonal(&self) -> Tensor {
        self.map(|u| {
            let s = u.sizes("attention")?;
            let (i, j) = crate::create::grid(s[s.len() - 2], s[s.len() - 1])?;
            let seen = crate::promote::broadcast_to(&j.binary(Op::CmpLe, &i), u.shape())?;
            Ok(seen.select(u, &u.like(f64::NEG_INFINITY)))
        })
    }

    /// softmax along the last axis; zeros where all is −∞.
    #[track_caller]
    fn masked_softmax(&self) -> Tensor {
        self.map(|u| {
            let a = u.shape().len() - 1;
            try_real(u, |x| {
                let m = crate::reduce::peak(x, &[a])?;
                let e = f::exp_near(&(x - &m.expand(x.shape())?));
                let s = e.reduce(ReduceOp::Add, &[a])?;
                let s = s.eq_(&s.like(0.0)).select(&s.like(1.0), &s);
                Ok(f::div(&e, &s.expand(x.shape())?))
            })
        })
    }
}
