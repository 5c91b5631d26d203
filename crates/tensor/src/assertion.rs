//! Integers that come as data and name classes, rows or places. Flows in: the integers, and how many of
//! those there are; flows out: the same integers, with the assertion that all of them name one. The
//! realize that would compute with others is an error.
//!
//! What is known of them when it is written down is decided there.

use crate::promote::constant_of;
use crate::tensor::Tensor;
use monoglot_engine::Config;
use monoglot_uop::{Error, ErrorKind, Op, Result, UOp};
use std::ops::Range;

impl Tensor {
    /// These integers, which `op` takes for `what` of this range, or `besides`.
    #[track_caller]
    pub(crate) fn naming(
        &self,
        op: &str,
        what: &str,
        range: Range<i64>,
        besides: Option<i64>,
    ) -> Tensor {
        self.map(|u| naming(u, op, what, range, besides))
    }

    /// As `naming`, for places along an axis of `x`, where the settings ask for that: negative ones count
    /// from the end where `signed` says so.
    #[track_caller]
    pub(crate) fn placing(&self, op: &str, x: &Tensor, axis: i64, signed: bool) -> Tensor {
        if !Config::current().check {
            return self.clone();
        }
        let size = x.uop().ok().and_then(|u| {
            let axes = u.shape().len().max(1) as i64;
            let at = axis.rem_euclid(axes) as usize;
            u.shape().get(at).map_or(Some(1), |d| d.as_int())
        });
        // Without a size the op itself says what is wrong.
        let Some(n) = size else { return self.clone() };
        let from = if signed { -n } else { 0 };
        self.naming(op, "indices", from..n, None)
    }
}

fn naming(u: &UOp, op: &str, what: &str, range: Range<i64>, besides: Option<i64>) -> Result<UOp> {
    // Of others the op itself says what is wrong.
    if !u.dtype().is_int() || u.shape().max_len() == 0 {
        return Ok(u.clone());
    }
    let mut rule = format!("{op}: {what} are {}..{}", range.start, range.end);
    if let Some(other) = besides {
        rule += &format!(", or {other}, which does not count");
    }
    if let Some(value) = constant_of(u) {
        let names = |n: i128| range.start as i128 <= n && n < range.end as i128;
        let other = besides.map(i128::from);
        return match value.to_i128() {
            n if names(n) || other == Some(n) => Ok(u.clone()),
            n => Err(outside(u, Some(n), rule)),
        };
    }
    if range.is_empty() && besides.is_none() && u.shape().ints().is_some() {
        return Err(outside(u, None, rule));
    }
    let (least, most) = u.bounds();
    let mut right: Option<UOp> = None;
    if least < range.start {
        right = Some(u.ge(&u.like(range.start)));
    }
    if most >= range.end {
        let below = u.lt(&u.like(range.end));
        right = Some(right.map_or(below.clone(), |r| r & below));
    }
    let Some(mut right) = right else {
        return Ok(u.clone());
    };
    if let Some(other) = besides.filter(|v| (least..=most).contains(v)) {
        right = right.binary(Op::Or, &u.eq_(&u.like(other)));
    }
    u.asserting(&right, &rule)
}

/// The error of integers that are all wrong, and this value if they are all one.
fn outside(u: &UOp, value: Option<i128>, rule: String) -> Error {
    Error::new(ErrorKind::OutOfRange {
        value,
        position: vec![0; u.shape().len()],
        rule,
        standing: Vec::new(),
    })
}
