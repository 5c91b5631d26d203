//! Nodes out of what a target has. Flows in: an op and its operands in machine types; flows out: the
//! node where the target has the op, or what takes its place. Invariant: what is made needs no second
//! pass.

use crate::build::alu;
use crate::graph::Srcs;
use monoglot_uop::{Op, Scalar, Target, UOp};

/// Ops that every target has, folded on constants.
macro_rules! primitives {
    ($($name:ident $op:ident($($arg:ident),*);)*) => { $(
        pub(crate) fn $name(&self, $($arg: &UOp),*) -> UOp {
            alu(Op::$op, &[$($arg.clone()),*])
        }
    )* };
}

/// Builds nodes out of what a target has.
pub(crate) struct Native<'a> {
    pub(crate) target: &'a Target,
}

impl Native<'_> {
    /// Whether an op stays a node.
    pub(crate) fn has(&self, op: Op) -> bool {
        self.target.native.contains(op)
    }

    /// The op where it stays a node, or what takes its place.
    pub(crate) fn native(&self, op: Op, src: &[&UOp], otherwise: impl FnOnce() -> UOp) -> UOp {
        let node = || alu(op, &src.iter().map(|&s| s.clone()).collect::<Srcs>());
        if self.has(op) { node() } else { otherwise() }
    }

    primitives! {
        add Add(a, b);
        mul Mul(a, b);
        shl Shl(a, b);
        shr Shr(a, b);
        and And(a, b);
        or Or(a, b);
        xor Xor(a, b);
        cmplt CmpLt(a, b);
        cmpne CmpNe(a, b);
        select Where(c, a, b);
        trunc Trunc(a);
        div Div(a, b);
        quotient TruncDiv(a, b);
        remainder TruncMod(a, b);
    }

    pub(crate) fn recip(&self, a: &UOp) -> UOp {
        self.div(&UOp::float(1.0, a.dtype()), a)
    }

    pub(crate) fn sub(&self, a: &UOp, b: &UOp) -> UOp {
        self.native(Op::Sub, &[a, b], || {
            self.add(a, &self.mul(b, &UOp::constant(Scalar::Int(-1), b.dtype())))
        })
    }

    /// a·b + c, rounded once where the target can.
    pub(crate) fn mulacc(&self, a: &UOp, b: &UOp, c: &UOp) -> UOp {
        self.native(Op::MulAcc, &[a, b, c], || self.add(&self.mul(a, b), c))
    }

    pub(crate) fn not(&self, x: &UOp) -> UOp {
        self.native(Op::Not, &[x], || self.xor(x, &UOp::bool(true)))
    }

    pub(crate) fn equal(&self, a: &UOp, b: &UOp) -> UOp {
        self.native(Op::CmpEq, &[a, b], || self.not(&self.cmpne(a, b)))
    }
}
