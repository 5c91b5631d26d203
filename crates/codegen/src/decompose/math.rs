//! The elementary functions' common ground: building arithmetic of a float format, and what is known
//! of f32 and f64. Flows in: values in f32 or f64; flows out: nodes of primitive ops. Invariant: a
//! sequence is fixed and free of branches; `(x + magic) − magic` is never folded; NaN is made by WHERE,
//! not by 0·x.

use crate::build::{bitcast, bits_type};
use crate::native::Native;
use monoglot_uop::{DType, Scalar, UOp};

/// The constant of these bits.
fn konst(d: DType, bits: u64) -> UOp {
    UOp::constant(Scalar::from_bits(bits, d), d)
}

/// The bits that are these words, high ones first.
pub(super) fn joined(words: &[u32]) -> u64 {
    words.iter().fold(0, |bits, &w| bits << 32 | w as u64)
}

pub(super) fn u64c(x: u64) -> UOp {
    konst(DType::U64, x)
}

/// Arithmetic in one format.
pub(super) struct Math<'a> {
    pub(super) o: &'a Native<'a>,
    pub(super) format: &'static Format,
}

impl Math<'_> {
    /// Bits of a number.
    pub(super) fn width(&self) -> usize {
        self.format.float.bits() as usize
    }
    /// Float constant; `x` must be exact in the format or is rounded to it.
    pub(super) fn c(&self, x: f64) -> UOp {
        UOp::float(x, self.format.float)
    }
    /// Float constant by bit pattern.
    pub(super) fn cb(&self, bits: u64) -> UOp {
        konst(self.format.float, bits)
    }
    /// Unsigned constant of the float's width.
    pub(super) fn u(&self, bits: u64) -> UOp {
        konst(
            bits_type(self.format.float),
            bits & u64::MAX >> (64 - self.width()),
        )
    }
    pub(super) fn bits(&self, x: &UOp) -> UOp {
        bitcast(x, bits_type(self.format.float))
    }
    pub(super) fn float(&self, x: &UOp) -> UOp {
        bitcast(x, self.format.float)
    }
    pub(super) fn shr(&self, x: &UOp, n: u32) -> UOp {
        self.o.shr(x, &self.u(n as u64))
    }
    pub(super) fn iadd(&self, x: &UOp, n: u64) -> UOp {
        self.o.add(x, &self.u(n))
    }
    pub(super) fn neg(&self, a: &UOp) -> UOp {
        self.o.mul(a, &self.c(-1.0))
    }
    pub(super) fn one(&self) -> u64 {
        self.format.bias << self.format.mant
    }
    pub(super) fn sign(&self) -> u64 {
        1 << (self.width() - 1)
    }
    pub(super) fn abs(&self, x: &UOp) -> UOp {
        self.float(&self.o.and(&self.bits(x), &self.u(self.sign() - 1)))
    }
    /// Horner with fma; `coef` from degree 0 up, as the words of each number's bits, high ones first.
    pub(super) fn poly(&self, x: &UOp, coef: &[u32]) -> UOp {
        self.poly_of(x, coef, 1.0)
    }
    /// The same times a power of two.
    pub(super) fn poly_of(&self, x: &UOp, coef: &[u32], scale: f64) -> UOp {
        let d = self.format.float;
        let number = |words: &[u32]| Scalar::from_bits(joined(words), d).to_f64();
        let numbers = coef
            .chunks(self.width() / 32)
            .map(|words| self.c(number(words) * scale));
        numbers
            .rev()
            .reduce(|p, c| self.o.mulacc(&p, x, &c))
            .expect("a polynomial has a coefficient")
    }
}

/// What the format-independent code needs to know of f32 and f64. Bit patterns sit in the low bits of a u64.
pub(super) struct Format {
    pub(super) float: DType,
    /// stored significand bits
    pub(super) mant: u32,
    pub(super) bias: u64,
    /// The least number not below sqrt(1/2). With the number before it, the x just below sqrt(2) would become
    /// k = 1 and its log2, just below 1/2, a difference whose rounding errors count double in that binade.
    pub(super) sqrt_half: u64,
    pub(super) exp2: &'static [u32],
    /// 2/ln 2 and 2/(3 ln 2), each as two parts, then the polynomial that follows them
    pub(super) pow_c0: [u64; 2],
    pub(super) pow_c1: [u64; 2],
    pub(super) pow_t: &'static [u32],
    /// first guess for 1/sqrt, Newton steps, power of two that lifts small arguments
    pub(super) rsqrt_magic: u64,
    pub(super) rsqrt_steps: u32,
    pub(super) sqrt_lift: i32,
}

pub(super) static F32: Format = Format {
    float: DType::F32,
    mant: 23,
    bias: 127,
    sqrt_half: 0x3f3504f4,
    exp2: &[
        0x3f317218, 0x3e75fdee, 0x3d6357bd, 0x3c1d96e8, 0x3aaf84a7, 0x3920c7ef,
    ],
    pow_c0: [0x4038aa3b, 0x33257060],
    pow_c1: [0x3f76384f, 0xb1f17f01],
    pow_t: &[0x3f13bb87, 0x3ed2ddfc, 0x3eacf75a],
    rsqrt_magic: 0x5f375a86,
    rsqrt_steps: 2,
    sqrt_lift: 64,
};

pub(super) static F64: Format = Format {
    float: DType::F64,
    mant: 52,
    bias: 1023,
    sqrt_half: 0x3fe6a09e667f3bcd,
    exp2: &[
        0x3fe62e42, 0xfefa39ef, 0x3fcebfbd, 0xff82c59c, 0x3fac6b08, 0xd704a0d4, 0x3f83b2ab,
        0x6fba11f6, 0x3f55d87f, 0xe78b3af0, 0x3f243091, 0x30c00d25, 0x3eeffcbf, 0xbf92e444,
        0x3eb62bfc, 0xde0a8b2c, 0x3e7b5260, 0xce123052, 0x3e3e6119, 0x8b5dffda, 0x3dfe80d6,
        0x87e0c413,
    ],
    pow_c0: [0x40071547652b82fe, 0x3c8777d0ffda0d24],
    pow_c1: [0x3feec709dc3a03fd, 0x3c8d27f05548af0c],
    pow_t: &[
        0x3fe2776c, 0x50ef9bfc, 0x3fda6176, 0x2a7aeddc, 0x3fd484b1, 0x3d6ad185, 0x3fd0c9a8,
        0x53ad93e9, 0x3fcc68ee, 0x9704d8c0, 0x3fc8a09b, 0x50e732f5, 0x3fc58fd0, 0x8f54b82f,
        0x3fc61eec, 0x0f373af4,
    ],
    rsqrt_magic: 0x5fe6eb50c7b537a9,
    rsqrt_steps: 3,
    sqrt_lift: 256,
};
