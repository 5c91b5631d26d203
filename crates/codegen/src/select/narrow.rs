//! What memory holds of values that it holds otherwise. Floats narrower than the target computes
//! with: a value is held as the f32 of its value; storage holds its own bits, as the dtype where
//! the target moves it, as an unsigned integer elsewhere. Bools are bytes in memory, true where not
//! 0. Invariant: every rounding is one rounding to nearest even, and NaN, infinities and overflow
//! are those of `scalar.rs`. Flows in: a value and its dtype; flows out: what stands for it in
//! memory, or the other way about.

use crate::build::{bitcast, bits_type, c, cast};
use crate::native::Native;
use monoglot_uop::{DType, Op, UOp};

/// A small float: stored significand bits, exponent bias, bits of the greatest finite value, of what
/// overflows and of NaN.
struct Small {
    mantissa: i64,
    bias: i64,
    max: i64,
    overflow: i64,
    nan: i64,
}

fn small(d: DType) -> Small {
    match d {
        DType::F8E4M3 => Small {
            mantissa: 3,
            bias: 7,
            max: 0x7e,
            overflow: 0x7e,
            nan: 0x7f,
        },
        DType::F8E5M2 => Small {
            mantissa: 2,
            bias: 15,
            max: 0x7b,
            overflow: 0x7c,
            nan: 0x7f,
        },
        _ => Small {
            mantissa: 10,
            bias: 15,
            max: 0x7bff,
            overflow: 0x7c00,
            nan: 0x7e00,
        },
    }
}

impl Native<'_> {
    /// The dtype in which a value of `d` is computed.
    pub(super) fn held(&self, d: DType) -> DType {
        if d.is_float() && d.compute_type() != d && !self.target.arithmetic.contains(&d) {
            DType::F32
        } else {
            d
        }
    }

    /// The dtype in which memory holds `d`.
    pub(super) fn stored(&self, d: DType) -> DType {
        if d == DType::Bool {
            DType::U8
        } else if d.is_float() && !self.target.storage.contains(&d) {
            bits_type(d)
        } else {
            d
        }
    }

    /// A held value as memory holds it; it is representable there.
    pub(super) fn encode(&self, x: &UOp, d: DType) -> UOp {
        if d == DType::Bool {
            return cast(x, DType::U8);
        }
        if self.held(d) == d {
            return bitcast(x, self.stored(d));
        }
        if let Some(bits) = self.kept(x, d) {
            return bits;
        }
        if self.stored(d) == d {
            return cast(x, d);
        }
        match d {
            DType::BF16 => {
                let bits = rounded(x).unwrap_or_else(|| bitcast(x, DType::U32));
                cast(&self.shr(&bits, &UOp::int(16, DType::U32)), DType::U16)
            }
            d => self.pack(x, d),
        }
    }

    /// What memory holds of a value that was rounded, or read and nothing done with, or chosen among such.
    fn kept(&self, x: &UOp, d: DType) -> Option<UOp> {
        let own = self.stored(d) == d;
        match x.op() {
            Op::Const => {
                let bits = UOp::int(x.const_value()?.to_bits(d) as i64, bits_type(d));
                Some(bitcast(&bits, self.stored(d)))
            }
            Op::Cast if own => Some(x.src()[0].clone()).filter(|b| b.dtype() == d),
            Op::Where => {
                let bits = |v: &UOp| Some(bitcast(&self.kept(v, d)?, bits_type(d)));
                let chosen = self.select(&x.src()[0], &bits(&x.src()[1])?, &bits(&x.src()[2])?);
                Some(bitcast(&chosen, self.stored(d)))
            }
            _ if !own && d == DType::BF16 => decoded(x),
            _ => None,
        }
    }

    /// What memory holds, as it is computed with.
    pub(super) fn decode(&self, x: &UOp, d: DType) -> UOp {
        if d == DType::Bool {
            return self.cmpne(x, &UOp::int(0, DType::U8));
        }
        if self.held(d) == d {
            return bitcast(x, d);
        }
        if self.stored(d) == d {
            return cast(x, DType::F32);
        }
        match d {
            DType::BF16 => bitcast(
                &self.shl(&cast(x, DType::U32), &UOp::int(16, DType::U32)),
                DType::F32,
            ),
            d => self.unpack(x, d),
        }
    }

    /// An f32 rounded to a value of `d`, where that is held as f32.
    pub(super) fn round(&self, x: &UOp, d: DType) -> UOp {
        if self.held(d) == d || !d.is_float() {
            return x.clone();
        }
        if let Some(v) = x.const_value() {
            return UOp::constant(v.round_to(d), DType::F32);
        }
        if self.stored(d) == d {
            return cast(&cast(x, d), DType::F32);
        }
        match d {
            DType::BF16 => {
                let bits = bitcast(x, DType::U32);
                let k = |v: i64| c(&bits, v);
                let odd = self.and(&self.shr(&bits, &k(16)), &k(1));
                let up = self.add(&self.add(&bits, &odd), &k(0x7fff));
                let quiet = self.or(&bits, &k(0x40_0000));
                let either = self.select(&self.cmpne(x, x), &quiet, &up);
                bitcast(&self.and(&either, &k(0xffff_0000)), DType::F32)
            }
            d => self.unpack(&self.pack(x, d), d),
        }
    }

    /// CAST of a value of dtype `from`, as held, to a narrow float, rounded once.
    pub(super) fn narrow(&self, x: &UOp, from: DType, to: DType) -> UOp {
        let x = match from {
            DType::F64 => self.f64_to_odd_f32(x),
            DType::Bool | DType::I8 | DType::U8 | DType::I16 | DType::U16 => cast(x, DType::F32),
            d if d.is_int() && d.bytes() == 4 || x.dtype() == DType::I32 => {
                cast(&self.rounded_to_odd(x, 9, 24), DType::F32)
            }
            d if d.is_int() => {
                self.f64_to_odd_f32(&cast(&self.rounded_to_odd(x, 16, 32), DType::F64))
            }
            _ => x.clone(),
        };
        self.round(&x, to)
    }

    /// An integer of which so many low bits matter only as one, unless it is less than 2^`exact`: what is left fits a
    /// significand, and rounding it again is rounding once.
    fn rounded_to_odd(&self, x: &UOp, low: u32, exact: u32) -> UOp {
        let k = |v: i64| c(x, v);
        let mask = (1 << low) - 1;
        let sticky = self.cmpne(&self.and(x, &k(mask)), &k(0));
        let one = self.select(&sticky, &k(1 << (low - 1)), &k(0));
        let odd = self.or(&self.and(x, &k(!mask)), &one);
        let mut near = self.cmplt(x, &k(1 << exact));
        if !x.dtype().is_unsigned() {
            near = self.and(&near, &self.cmplt(&k(-(1 << exact)), x));
        }
        self.select(&near, x, &odd)
    }

    /// An f64 as f32 rounded to odd, so that rounding it again is rounding once.
    fn f64_to_odd_f32(&self, x: &UOp) -> UOp {
        let near = cast(x, DType::F32);
        let back = cast(&near, DType::F64);
        let magnitude =
            |v: &UOp| self.and(&bitcast(v, DType::U64), &UOp::int(i64::MAX, DType::U64));
        let bits = bitcast(&near, DType::U32);
        let above = self.cmplt(&magnitude(x), &magnitude(&back));
        let down = self.select(&above, &self.add(&bits, &c(&bits, u32::MAX as i64)), &bits);
        let kept = self.or(&self.equal(&back, x), &self.cmpne(x, x));
        bitcast(
            &self.select(&kept, &bits, &self.or(&down, &c(&bits, 1))),
            DType::F32,
        )
    }

    /// f32 to the bits of a small float, rounded to nearest even.
    fn pack(&self, x: &UOp, d: DType) -> UOp {
        let t = small(d);
        let k = |v: i64| UOp::int(v & 0xffff_ffff, DType::U32);
        let bits = bitcast(x, DType::U32);
        let a = self.and(&bits, &k(0x7fff_ffff));
        let drop = 23 - t.mantissa;
        let odd = self.and(&self.shr(&a, &k(drop)), &k(1));
        let up = self.add(&self.add(&a, &odd), &k((1 << (drop - 1)) - 1));
        let normal = self.add(
            &self.shr(&up, &k(drop)),
            &k(-((127 - t.bias) << t.mantissa)),
        );
        // Added to a power of two whose last place is the least subnormal, the sum's last bits count it.
        let magic = (23 - t.mantissa + 1 - t.bias + 127) << 23;
        let tiny = self.add(&bitcast(&a, DType::F32), &bitcast(&k(magic), DType::F32));
        let tiny = self.add(&bitcast(&tiny, DType::U32), &k(-magic));
        let is_tiny = self.cmplt(&a, &k((127 - t.bias + 1) << 23));
        let code = self.select(&is_tiny, &tiny, &normal);
        let code = self.select(&self.cmplt(&k(t.max), &code), &k(t.overflow), &code);
        let code = self.select(&self.cmplt(&k(0x7f80_0000), &a), &k(t.nan), &code);
        let sign = self.shl(&self.shr(&bits, &k(31)), &k(d.bits() as i64 - 1));
        cast(&self.or(&code, &sign), bits_type(d))
    }

    /// The bits of a small float to f32.
    fn unpack(&self, x: &UOp, d: DType) -> UOp {
        let t = small(d);
        let k = |v: i64| UOp::int(v, DType::U32);
        let float = |v: f64| UOp::float(v, DType::F32);
        let bits = cast(x, DType::U32);
        let top = d.bits() as i64 - 1;
        let code = self.and(&bits, &k((1 << top) - 1));
        let sign = self.shl(&self.shr(&bits, &k(top)), &k(31));
        let scaled = bitcast(&self.shl(&code, &k(23 - t.mantissa)), DType::F32);
        let value = self.mul(&scaled, &float(2f64.powi((127 - t.bias) as i32)));
        let infinite = self.equal(&code, &k(t.overflow));
        let odd = self.select(&infinite, &float(f64::INFINITY), &float(f64::NAN));
        let value = self.select(&self.cmplt(&k(t.max), &code), &odd, &value);
        bitcast(&self.or(&bitcast(&value, DType::U32), &sign), DType::F32)
    }
}

/// The bits of what was rounded to a bf16 by cutting off the lower half, with that.
fn rounded(x: &UOp) -> Option<UOp> {
    let cut = (x.op() == Op::Bitcast).then(|| &x.src()[0])?;
    let masked = cut.op() == Op::And && cut.src()[1].as_int() == Some(0xffff_0000);
    masked.then(|| cut.src()[0].clone())
}

/// What memory holds of a bf16 that nothing was done with.
fn decoded(x: &UOp) -> Option<UOp> {
    let shifted = (x.op() == Op::Bitcast).then(|| &x.src()[0])?;
    let [wide, by] = shifted.src() else {
        return None;
    };
    let shifts = shifted.op() == Op::Shl && by.as_int() == Some(16);
    let bits = wide
        .src()
        .first()
        .filter(|_| shifts && wide.op() == Op::Cast)?;
    (bits.dtype() == DType::U16).then(|| bits.clone())
}
