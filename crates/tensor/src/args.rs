//! What methods take: shapes, axes, operands and element types in the forms that people write. Flows
//! in: arrays, slices, numbers, tensors; out: plain lists and operands.

use crate::Tensor;
use monoglot_uop::DType;

/// Sizes, or any list of integers: `[2, 3]`, `&[2, 3]`, `vec![2, 3]`, `7`, `()` for none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dims(pub Vec<i64>);

/// Axes: one, a list, or `..` for all; negative ones count from the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Axes {
    /// Every axis.
    All,
    /// These.
    Some(Vec<i64>),
}

/// A Rust integer that sizes, axes and positions are written as.
pub trait Integer: Copy {
    /// Its value.
    fn value(self) -> i64;
}

macro_rules! integers {
    ($($t:ty),*) => { $( impl Integer for $t { fn value(self) -> i64 { self as i64 } } )* };
}
integers!(i32, i64, usize);

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

/// `[generics] from => to, |value| made;`
macro_rules! conversions {
    ($([$($of:tt)*] $from:ty => $to:ty, |$v:pat_param| $made:expr;)*) => { $(
        impl<$($of)*> From<$from> for $to {
            fn from($v: $from) -> $to { $made }
        }
    )* };
}
pub(crate) use conversions;

conversions! {
    [] () => Dims, |_| Dims::default();
    [T: Integer] T => Dims, |n| Dims(vec![n.value()]);
    [T: Integer] &[T] => Dims, |v| Dims(v.iter().map(|n| n.value()).collect());
    [T: Integer, const N: usize] [T; N] => Dims, |v| Dims::from(&v[..]);
    [T: Integer, const N: usize] &[T; N] => Dims, |v| Dims::from(&v[..]);
    [T: Integer] Vec<T> => Dims, |v| Dims::from(&v[..]);
    [T: Integer] &Vec<T> => Dims, |v| Dims::from(&v[..]);
    [D: Into<Dims>] D => Axes, |axes| Axes::Some(axes.into().0);
    [] std::ops::RangeFull => Axes, |_| Axes::All;
    [] Tensor => Operand, |t| Operand::Tensor(t);
    [] &Tensor => Operand, |t| Operand::Tensor(t.clone());
    [T: Integer] T => Operand, |n| Operand::Int(n.value());
    [] f32 => Operand, |v| Operand::Float(v.into());
    [] f64 => Operand, |v| Operand::Float(v);
    [] bool => Operand, |v| Operand::Bool(v);
}

/// A Rust type that elements are read and written as.
pub trait Element: Copy {
    /// The dtype it stands for.
    const DTYPE: DType;
    /// The element in its `DTYPE.bytes()` little-endian bytes.
    fn read(bytes: &[u8]) -> Self;
    /// Append those bytes.
    fn write(self, out: &mut Vec<u8>);
}

macro_rules! elements {
    ($($t:ty => $d:ident),*) => { $(
        impl Element for $t {
            const DTYPE: DType = DType::$d;
            fn read(bytes: &[u8]) -> $t {
                <$t>::from_le_bytes(bytes.try_into().expect("the width of the dtype"))
            }
            fn write(self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
        }
    )* };
}
elements!(i8 => I8, i16 => I16, i32 => I32, i64 => I64, u8 => U8, u16 => U16, u32 => U32, u64 => U64,
    f32 => F32, f64 => F64, half::f16 => F16, half::bf16 => BF16);

impl Element for bool {
    const DTYPE: DType = DType::Bool;
    fn read(bytes: &[u8]) -> bool {
        bytes[0] != 0
    }
    fn write(self, out: &mut Vec<u8>) {
        out.push(self as u8);
    }
}
