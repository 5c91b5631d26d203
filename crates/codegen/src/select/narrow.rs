//! Floats narrower than the target computes with. A value is held as the f32 of its value; storage
//! holds its own bits, as the dtype where the target moves it, as an unsigned integer elsewhere.
//! Invariant: every rounding is one rounding to nearest even, and NaN, infinities and overflow are
//! those of `scalar.rs`.

use super::build::{alu, bitcast, cast};
use super::legal::Legal;
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
        DType::F8E4M3 => Small { mantissa: 3, bias: 7, max: 0x7e, overflow: 0x7f, nan: 0x7f },
        DType::F8E5M2 => Small { mantissa: 2, bias: 15, max: 0x7b, overflow: 0x7c, nan: 0x7f },
        _ => Small { mantissa: 10, bias: 15, max: 0x7bff, overflow: 0x7c00, nan: 0x7e00 },
    }
}

fn op2(op: Op, a: &UOp, c: i64) -> UOp {
    alu(op, &[a.clone(), UOp::int(c, a.dtype())])
}

fn bits_type(d: DType) -> DType {
    match d.bytes() {
        1 => DType::U8,
        2 => DType::U16,
        4 => DType::U32,
        _ => DType::U64,
    }
}

impl Legal<'_> {
    /// The dtype in which memory holds `d`.
    pub(super) fn stored(&self, d: DType) -> DType {
        if d.is_float() && !self.target.storage.contains(&d) { bits_type(d) } else { d }
    }

    /// A held value as memory holds it; it is representable there.
    pub(super) fn encode(&self, x: &UOp, d: DType) -> UOp {
        if self.held(d) == d {
            return if self.stored(d) == d { x.clone() } else { bitcast(x, self.stored(d)) };
        }
        if self.stored(d) == d {
            return cast(x, d);
        }
        if let Some(v) = x.const_value() {
            return UOp::int(v.to_bits(d) as i64, bits_type(d));
        }
        match d {
            DType::BF16 => cast(&op2(Op::Shr, &bitcast(x, DType::U32), 16), DType::U16),
            d => self.pack(x, d),
        }
    }

    /// What memory holds, as it is computed with.
    pub(super) fn decode(&self, x: &UOp, d: DType) -> UOp {
        if self.held(d) == d {
            return if self.stored(d) == d { x.clone() } else { bitcast(x, d) };
        }
        if self.stored(d) == d {
            return cast(x, DType::F32);
        }
        match d {
            DType::BF16 => bitcast(&op2(Op::Shl, &cast(x, DType::U32), 16), DType::F32),
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
                let odd = op2(Op::And, &op2(Op::Shr, &bits, 16), 1);
                let up = alu(Op::Add, &[alu(Op::Add, &[bits.clone(), odd]), UOp::int(0x7fff, DType::U32)]);
                let quiet = op2(Op::Or, &bits, 0x40_0000);
                let nan = alu(Op::CmpNe, &[x.clone(), x.clone()]);
                let bits = op2(Op::And, &alu(Op::Where, &[nan, quiet, up]), 0xffff_0000);
                bitcast(&bits, DType::F32)
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
                self.f64_to_odd_f32(&cast(x, DType::F64))
            }
            d if d.is_int() => {
                // The low bits only matter as one: what is left fits the significand of f64.
                let low = op2(Op::And, x, 0xffff);
                let sticky = alu(Op::CmpNe, &[low, UOp::int(0, x.dtype())]);
                let high = op2(Op::And, x, !0xffff);
                let one = alu(Op::Where, &[sticky, UOp::int(1, x.dtype()), UOp::int(0, x.dtype())]);
                let odd = alu(Op::Or, &[high, op2(Op::Shl, &one, 15)]);
                let near = match x.dtype().is_unsigned() {
                    true => op2(Op::CmpLt, x, 1 << 32),
                    false => alu(
                        Op::And,
                        &[
                            op2(Op::CmpLt, x, 1 << 32),
                            alu(Op::CmpLt, &[UOp::int(-(1 << 32), x.dtype()), x.clone()]),
                        ],
                    ),
                };
                self.f64_to_odd_f32(&cast(&alu(Op::Where, &[near, x.clone(), odd]), DType::F64))
            }
            _ => x.clone(),
        };
        self.round(&x, to)
    }

    /// An f64 as f32 rounded to odd, so that rounding it again is rounding once.
    fn f64_to_odd_f32(&self, x: &UOp) -> UOp {
        let near = cast(x, DType::F32);
        let back = cast(&near, DType::F64);
        let magnitude = |v: &UOp| op2(Op::And, &bitcast(v, DType::U64), i64::MAX);
        let bits = bitcast(&near, DType::U32);
        let above = alu(Op::CmpLt, &[magnitude(x), magnitude(&back)]);
        let down = alu(Op::Where, &[above, op2(Op::Add, &bits, u32::MAX as i64), bits.clone()]);
        let odd = op2(Op::Or, &down, 1);
        let exact = self.equal(&back, x);
        let nan = alu(Op::CmpNe, &[x.clone(), x.clone()]);
        bitcast(&alu(Op::Where, &[alu(Op::Or, &[exact, nan]), bits, odd]), DType::F32)
    }

    /// f32 to the bits of a small float, rounded to nearest even.
    fn pack(&self, x: &UOp, d: DType) -> UOp {
        let t = small(d);
        let u32c = |v: i64| UOp::int(v, DType::U32);
        let bits = bitcast(x, DType::U32);
        let a = op2(Op::And, &bits, 0x7fff_ffff);
        let drop = 23 - t.mantissa;
        let odd = op2(Op::And, &op2(Op::Shr, &a, drop), 1);
        let up = alu(Op::Add, &[alu(Op::Add, &[a.clone(), odd]), u32c((1 << (drop - 1)) - 1)]);
        let normal = op2(Op::Add, &op2(Op::Shr, &up, drop), -((127 - t.bias) << t.mantissa) & 0xffff_ffff);
        // Added to a power of two whose last place is the least subnormal, the sum's last bits count it.
        let magic = (23 - t.mantissa + 1 - t.bias + 127) << 23;
        let tiny = alu(Op::Add, &[bitcast(&a, DType::F32), bitcast(&u32c(magic), DType::F32)]);
        let tiny = op2(Op::Add, &bitcast(&tiny, DType::U32), -magic & 0xffff_ffff);
        let is_tiny = op2(Op::CmpLt, &a, (127 - t.bias + 1) << 23);
        let code = alu(Op::Where, &[is_tiny, tiny, normal]);
        let over = alu(Op::CmpLt, &[u32c(t.max), code.clone()]);
        let code = alu(Op::Where, &[over, u32c(t.overflow), code]);
        let nan = alu(Op::CmpLt, &[u32c(0x7f80_0000), a]);
        let code = alu(Op::Where, &[nan, u32c(t.nan), code]);
        let sign = op2(Op::Shl, &op2(Op::Shr, &bits, 31), d.bits() as i64 - 1);
        cast(&alu(Op::Or, &[code, sign]), bits_type(d))
    }

    /// The bits of a small float to f32.
    fn unpack(&self, x: &UOp, d: DType) -> UOp {
        let t = small(d);
        let bits = cast(x, DType::U32);
        let top = d.bits() as i64 - 1;
        let code = op2(Op::And, &bits, (1 << top) - 1);
        let sign = op2(Op::Shl, &op2(Op::Shr, &bits, top), 31);
        let scaled = bitcast(&op2(Op::Shl, &code, 23 - t.mantissa), DType::F32);
        let value = alu(Op::Mul, &[scaled, UOp::float(2f64.powi((127 - t.bias) as i32), DType::F32)]);
        let special = alu(Op::CmpLt, &[UOp::int(t.max, DType::U32), code.clone()]);
        let infinite =
            self.equal(&code, &UOp::int(if t.overflow == t.nan { -1 } else { t.overflow }, DType::U32));
        let (inf, nan) = (UOp::float(f64::INFINITY, DType::F32), UOp::float(f64::NAN, DType::F32));
        let odd = alu(Op::Where, &[infinite, inf, nan]);
        let value = alu(Op::Where, &[special, odd, value]);
        bitcast(&alu(Op::Or, &[bitcast(&value, DType::U32), sign]), DType::F32)
    }
}
