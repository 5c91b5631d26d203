//! Dot products of words. Flows in: two words, or vectors of them, and what is added to; flows out: the WMMA of
//! vectors, or for single words the arithmetic that it is. Invariant: integers wrap, as the machine's do.

use crate::build::{bitcast, cast, splat};
use crate::graph::Srcs;
use crate::native::Native;
use monoglot_uop::{DType, TcInfo, UOp};
use smallvec::smallvec;

impl Native<'_> {
    /// `acc + Σ a[j]·b[j]`, as the WMMA `of` where there are several lanes, unless that is one of tiles.
    pub(super) fn dot(&self, of: &UOp, unit: &TcInfo, [a, b, acc]: [&UOp; 3], lanes: usize) -> UOp {
        let wide = |u: &UOp| match u.shape().is_empty() {
            true => splat(u, lanes),
            false => u.clone(),
        };
        if lanes > 1 && unit.tile().is_none() {
            return of.with_src(smallvec![wide(a), wide(b), wide(acc)] as Srcs);
        }
        let [a, b, acc] = [a, b, acc].map(|u| if lanes > 1 { wide(u) } else { u.clone() });
        (0..unit.depth()).fold(acc, |sum, j| {
            let [of_a, of_b] = unit.dtypes_in;
            let x = self.element(&a, of_a, unit.dtype_out, j);
            let y = self.element(&b, of_b, unit.dtype_out, j);
            match unit.dtype_out.is_float() {
                true => self.mulacc(&x, &y, &sum),
                false => self.add(&sum, &self.mul(&x, &y)),
            }
        })
    }

    /// Element j of a word, as a product has it.
    fn element(&self, word: &UOp, from: DType, to: DType, j: i64) -> UOp {
        let bits = 8 * from.bytes() as i64;
        let top = 8 * DType::U32.bytes() as i64 - bits;
        let by = |n: i64, d: DType| UOp::int(n, d);
        let high = self.shl(word, &by(top - bits * j, DType::U32));
        if from.is_float() {
            // The elements below it are no part of its significand.
            let own = UOp::int(((1 << bits) - 1) << top, DType::U32);
            let alone = if j == 0 { high } else { self.and(&high, &own) };
            return bitcast(&alone, DType::F32);
        }
        let held = match from.is_unsigned() {
            true => DType::U32,
            false => DType::I32,
        };
        cast(&self.shr(&bitcast(&high, held), &by(top, held)), to)
    }
}
