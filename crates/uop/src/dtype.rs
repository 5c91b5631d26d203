//! Element types and the promotion lattice. Flows in: one dtype or two; flows out: its width or
//! neighbours, or the dtype of both. Always: promotion does not depend on the order.
//!
//! Promotion is PyTorch's table for the types it has. PyTorch has no table for u16, u32 and u64;
//! ours: two unsigned types promote to the wider; an unsigned and a signed type promote to the
//! smallest signed type that holds both, and u64 with a signed type to i64 (as u64 has no such
//! type, large values wrap). Any float beats any integer; f16 with bf16 gives f32; an fp8 type with
//! any other float gives the other (two different fp8 types: f16).

named! {
    /// The type of one element.
    #[derive(Default)]
    #[repr(u8)]
    DType {
        /// No value: effects and order.
        #[default]
        Void "void",
        /// A truth value, stored as one byte 0 or 1.
        Bool "bool",
        /// Signed 8-bit integer.
        I8 "i8",
        /// Signed 16-bit integer.
        I16 "i16",
        /// Signed 32-bit integer.
        I32 "i32",
        /// Signed 64-bit integer.
        I64 "i64",
        /// Unsigned 8-bit integer.
        U8 "u8",
        /// Unsigned 16-bit integer.
        U16 "u16",
        /// Unsigned 32-bit integer.
        U32 "u32",
        /// Unsigned 64-bit integer.
        U64 "u64",
        /// 8-bit float, 4 exponent and 3 mantissa bits, no infinities (OCP E4M3); casts saturate.
        F8E4M3 "f8e4m3",
        /// 8-bit float, 5 exponent and 2 mantissa bits (OCP E5M2).
        F8E5M2 "f8e5m2",
        /// IEEE half.
        F16 "f16",
        /// bfloat16.
        BF16 "bf16",
        /// IEEE single.
        F32 "f32",
        /// IEEE double.
        F64 "f64",
        /// Integer of index arithmetic, whose width is chosen when it is lowered.
        Index "index",
    }
}

use DType::*;

impl DType {
    /// Bytes of one stored element; 8 for `index`, 0 for void.
    pub fn bytes(self) -> usize {
        match self {
            Void => 0,
            Bool | I8 | U8 | F8E4M3 | F8E5M2 => 1,
            I16 | U16 | F16 | BF16 => 2,
            I32 | U32 | F32 => 4,
            I64 | U64 | F64 | Index => 8,
        }
    }

    /// Bits of one stored element.
    pub fn bits(self) -> u32 {
        self.bytes() as u32 * 8
    }

    /// Any floating type.
    pub fn is_float(self) -> bool {
        matches!(self, F8E4M3 | F8E5M2 | F16 | BF16 | F32 | F64)
    }

    /// Any integer type, `index` included, bool not.
    pub fn is_int(self) -> bool {
        matches!(self, I8 | I16 | I32 | I64 | U8 | U16 | U32 | U64 | Index)
    }

    /// An integer type without negative values.
    pub fn is_unsigned(self) -> bool {
        matches!(self, U8 | U16 | U32 | U64)
    }

    /// The type in which a sum of elements is held: integers and bools widen to 64 bits (PyTorch's
    /// sum of u8 is i64).
    pub fn sum_type(self) -> DType {
        match self {
            Bool | I8 | I16 | I32 | U8 => I64,
            U16 | U32 => U64,
            d => d,
        }
    }

    /// The type in which floats narrower than f32 are computed and accumulated.
    pub fn compute_type(self) -> DType {
        match self {
            F8E4M3 | F8E5M2 | F16 | BF16 => F32,
            d => d,
        }
    }

    /// The least type that both convert to (see the module's comment). `void` promotes to nothing.
    pub fn promote(self, other: DType) -> DType {
        // Of two types the later in the table is `b`; bool and `index` come first.
        let rank = |d: DType| if d == Index { 1 } else { d as u8 };
        let (a, b) = if rank(self) <= rank(other) {
            (self, other)
        } else {
            (other, self)
        };
        match (a, b) {
            (a, b) if a == b => a,
            (Bool, d) => d,
            (Index, d) if !d.is_float() => Index,
            (F8E4M3, F8E5M2) => F16,
            (F16, BF16) => F32,
            (_, b) if b.is_float() => b,
            (a, b) if a.is_unsigned() == b.is_unsigned() => b,
            // Signed types come before unsigned ones.
            (s, u) => match u.bytes().max(s.bytes() / 2) {
                1 => I16,
                2 => I32,
                _ => I64,
            },
        }
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promotion_follows_the_table() {
        for (a, b, want) in [
            (Bool, I8, I8),
            (U8, I8, I16),
            (U8, I32, I32),
            (I64, F16, F16),
            (F16, BF16, F32),
            (F32, F64, F64),
            (U16, I16, I32),
            (U32, I8, I64),
            (U64, I32, I64),
            (U8, U32, U32),
            (F8E4M3, F8E5M2, F16),
            (F8E5M2, BF16, BF16),
            (Index, I32, Index),
            (Index, F32, F32),
            (I8, I64, I64),
        ] {
            assert_eq!(a.promote(b), want, "{a} {b}");
            assert_eq!(b.promote(a), want, "{b} {a}");
        }
    }
}
