//! Dot products of words: matrix units of one thread. Flows in: a WMMA of vectors; flows out: registers. Always: a unit
//! that the level has no instruction for is an error that names the node.

use super::Selector;
use super::builder::Parts;
use crate::code::Operand;
use crate::table::Vector;
use monoglot_uop::linear::{lanes, splat};
use monoglot_uop::{DType, Op, Result, UOp};

impl<'a> Selector<'a> {
    /// acc + Σ a[j]·b[j] of the elements of words, in every lane.
    pub(super) fn dot(&mut self, u: &'a UOp) -> Result<Parts> {
        let types = u.dot().map(|unit| (unit.dtype_in, unit.dtype_out));
        let (Some((DType::I16, DType::I32)), true) = (types, lanes(u) > 1) else {
            return Err(self.unsupported(u));
        };
        let [a, b, acc] = u.src() else {
            return Err(self.unsupported(u));
        };
        // What is one word for all lanes is in a register; the other factor may be in memory.
        let [a, b] = match splat(b).is_some() || b.op() == Op::Const {
            true => [b, a],
            false => [a, b],
        };
        let of = self.shape(u);
        let width = self.width(of);
        let first = self.vector_parts(a, of)?;
        let sums = self.vector_parts(acc, of)?;
        let mut out = Parts::new();
        for (k, (&a, &sum)) in first.iter().zip(&sums).enumerate() {
            let b = self.source(b, of, k)?;
            let products = [Operand::Reg(a), b];
            let products = self.b.vector(Vector::MaddWD, width, &products);
            out.push(self.b.of(Vector::AddD, width, &[sum, products], None));
        }
        Ok(out)
    }
}
