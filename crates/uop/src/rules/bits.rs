//! AND, OR, XOR of integers, SHL and SHR. A shift by the width or more gives 0 (the sign). Flows
//! in: a node of these ops; flows out: an equal value that costs no more, or nothing. Always: what
//! is decided by intervals holds for every value in them.

use super::{int, int_const, interval, limits};
use crate::dtype::DType;
use crate::node::UOp;
use crate::op::{Op, OpSet};
use crate::rewrite::Rule;
use crate::rule;

const SHIFTS: OpSet = OpSet::of(&[Op::Shl, Op::Shr]);

pub(super) fn rules() -> Vec<Rule> {
    vec![
        // x ^ x = 0
        rule!(xor_itself[x]: x ^ x => x.like(0)),
        // x & 1…1 = x; x | 1…1 = 1…1; x ^ 1…1 = not x
        rule!(and_ones[x, c: cnst]: x & c => x, if ones(c)),
        rule!(or_ones[x, c: cnst]: x | c => c, if ones(c)),
        // x & (2ᵏ - 1) = x where 0 ≤ x < 2ᵏ
        rule!(and_mask[x, c: cnst]: x & c => x, if inside(x, c)),
        // in `index`, x & (2ᵏ - 1) = x % 2ᵏ
        rule!(and_index[x, c: cnst]: x & c => x % &int_const(int(c)? + 1, DType::Index), if x.dtype() == DType::Index && mask(c)),
        // 0 << x = 0; 0 >> x = 0
        rule!(zero_shifted[z: cnst, x]: z.with_(SHIFTS, x) => z, if int(z) == Some(0)),
        // x << c = 0, and unsigned x >> c = 0, where c is the width or more
        rule!(shifted_out[u, x, c: cnst]: x.with_(SHIFTS, c).bind(u) => x.like(0), if past(u, c)),
        // (x << c) << d = x << (c + d); (x >> c) >> d = x >> (c + d)
        rule!(shift_shift[u, v, x, c: cnst, d: cnst]: x.with_(SHIFTS, c).bind(v).with_(SHIFTS, d).bind(u) =>
            shift(u.op(), x, c, d), if u.op() == v.op()),
        // in `index`, shifts are multiplication and floor division
        rule!(shift_index[u, x, c: cnst]: x.with_(SHIFTS, c).bind(u) => {
            let by = int_const(1 << small(c)?, DType::Index);
            if u.op() == Op::Shl { x * &by } else { x / &by }
        }, if x.dtype() == DType::Index),
    ]
}

/// Whether every bit of the constant is 1.
fn ones(c: &UOp) -> bool {
    let d = c.dtype();
    d.is_int() && int(c) == Some(if d.is_unsigned() { limits(d).1 } else { -1 })
}

/// Whether a shift by a constant leaves no bit of what is shifted.
fn past(u: &UOp, c: &UOp) -> bool {
    let zeros = u.op() == Op::Shl || u.dtype().is_unsigned();
    let width = i128::from(u.dtype().bits());
    zeros && u.dtype() != DType::Index && int(c).is_some_and(|by| by >= width)
}

fn mask(c: &UOp) -> bool {
    int(c).is_some_and(|v| v > 0 && v < 1 << 62 && (v + 1) & v == 0)
}

fn inside(x: &UOp, c: &UOp) -> bool {
    let (lo, hi) = interval(x);
    mask(c) && lo >= 0 && int(c).is_some_and(|v| hi <= v)
}

/// A shift that neither passes the width nor leaves i64.
fn small(c: &UOp) -> Option<i128> {
    int(c).filter(|c| (0..62).contains(c))
}

fn shift(op: Op, x: &UOp, c: &UOp, d: &UOp) -> Option<UOp> {
    let bits = x.dtype().bits() as i128;
    let whole = |v: &UOp| int(v).filter(|v| (0..bits).contains(v));
    let sum = whole(c)? + whole(d)?;
    if sum < bits {
        return Some(x.binary(op, &int_const(sum, c.dtype())));
    }
    // Both together pass the width.
    let zero = op == Op::Shl || x.dtype().is_unsigned();
    Some(if zero {
        x.like(0)
    } else {
        x.binary(op, &int_const(bits - 1, c.dtype()))
    })
}
