//! What methods take: shapes, axes and element types in the forms that people write. Flows in: arrays,
//! slices, numbers; flows out: plain lists.

use monoglot_uop::DType;

/// Sizes, or any list of integers: `[2, 3]`, `(2, 3)`, `&[2, 3]`, `vec![2, 3]`, `7`, `()` for none.
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
}

/// A Rust type that elements are read and written as.
pub trait Element: Copy {
    /// The dtype it stands for.
    const DTYPE: DType;
    /// Append the elements that these bytes are, `DTYPE.bytes()` little-endian ones each.
    fn read(bytes: &[u8], out: &mut Vec<Self>);
    /// Append the bytes of these elements.
    fn write(data: &[Self], out: &mut Vec<u8>);
}

macro_rules! elements {
    ($($t:ty => $d:ident),*) => { $(
        impl Element for $t {
            const DTYPE: DType = DType::$d;
            fn read(bytes: &[u8], out: &mut Vec<$t>) {
                let (whole, _) = bytes.as_chunks::<{ size_of::<$t>() }>();
                out.extend(whole.iter().map(|b| <$t>::from_le_bytes(*b)));
            }
            fn write(data: &[$t], out: &mut Vec<u8>) {
                // Into places that are there: one after the other the compiler checks each for room.
                let from = out.len();
                out.resize(from + size_of_val(data), 0);
                let (places, _) = out[from..].as_chunks_mut::<{ size_of::<$t>() }>();
                for (place, x) in places.iter_mut().zip(data) {
                    *place = x.to_le_bytes();
                }
            }
        }
    )* };
}
elements!(i8 => I8, i16 => I16, i32 => I32, i64 => I64, u8 => U8, u16 => U16, u32 => U32, u64 => U64,
    f32 => F32, f64 => F64, half::f16 => F16, half::bf16 => BF16);

impl Element for bool {
    const DTYPE: DType = DType::Bool;
    fn read(bytes: &[u8], out: &mut Vec<bool>) {
        out.extend(bytes.iter().map(|b| *b != 0));
    }
    fn write(data: &[bool], out: &mut Vec<u8>) {
        out.extend(data.iter().map(|x| u8::from(*x)));
    }
}
