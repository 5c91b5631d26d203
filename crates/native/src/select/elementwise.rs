//! Elementwise operations, by what they work on: integers and bools in general registers, floats in vector
//! registers, vectors of each. Flows in: a node; flows out: its registers. Always: what no instruction does to a vector
//! is done to its lanes.

use super::builder::{Parts, one};
use super::{Selector, Shape};
use crate::code::{Class, Operand, Reg};
use monoglot_uop::linear::lanes;
use monoglot_uop::{DType, Op, Result, UOp};

impl<'a> Selector<'a> {
    /// The registers of an elementwise operation's value.
    pub(super) fn elementwise(&mut self, u: &'a UOp) -> Result<Parts> {
        let shape = self.shape(u);
        match u.op() {
            Op::Cast => return self.cast(u),
            Op::Where => return self.choose(u),
            _ => {}
        }
        if shape.n > 0 {
            return self.vectors(u, shape);
        }
        let d = u.src()[0].dtype();
        let reg = match Self::class(d) {
            Class::General => self.integer(u)?,
            Class::Vector => self.float(u)?,
        };
        Ok(one(reg))
    }

    /// The lanes of an operation one by one, where no instruction does all of them.
    pub(super) fn each_lane(
        &mut self,
        u: &'a UOp,
        shape: Shape,
        mut f: impl FnMut(&mut Self, &[Reg]) -> Result<Reg>,
    ) -> Result<Parts> {
        let mut sources: Vec<(Parts, Shape, DType)> = Vec::with_capacity(u.src().len());
        for s in u.src() {
            let own = match lanes(s) {
                0 => Shape {
                    n: 0,
                    bytes: s.dtype().bytes(),
                },
                _ => self.shape(s),
            };
            sources.push((self.parts(s)?, own, s.dtype()));
        }
        let mut out = Vec::with_capacity(shape.n);
        for i in 0..shape.n {
            let mut regs: Vec<Reg> = Vec::with_capacity(sources.len());
            for (parts, own, d) in &sources {
                regs.push(match own.n {
                    0 => parts[0],
                    _ => self.lane(parts, *own, *d, i),
                });
            }
            out.push(f(self, &regs)?);
        }
        let mut out: Vec<Operand> = out.into_iter().map(Operand::Reg).collect();
        if u.dtype() == DType::Bool {
            for r in &mut out {
                let neg = crate::code::Do::Neg;
                *r = Operand::Reg(self.b.general(neg, crate::code::Width::W64, &[*r]));
            }
        }
        Ok(self.build(&out, shape))
    }
}
