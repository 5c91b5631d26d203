//! The other side of an operation. Flows in: a tensor or a literal, as people write it; flows out: an
//! operand.

use crate::args::{Integer, conversions};
use crate::tensor::Tensor;

/// The other side of an operation: a tensor, or a literal, whose dtype is weak (it takes the tensor's
/// unless it is of a higher kind: a float beside integers gives f32, an integer beside bools i64).
#[derive(Clone, Debug)]
pub enum Operand {
    /// A tensor.
    Tensor(Tensor),
    /// An integer literal.
    Int(i64),
    /// A float literal.
    Float(f64),
    /// A truth value.
    Bool(bool),
}

conversions! {
    [] Tensor => Operand, |t| Operand::Tensor(t);
    [] &Tensor => Operand, |t| Operand::Tensor(t.clone());
    [T: Integer] T => Operand, |n| Operand::Int(n.value());
    [] f32 => Operand, |v| Operand::Float(v.into());
    [] f64 => Operand, |v| Operand::Float(v);
    [] bool => Operand, |v| Operand::Bool(v);
}
