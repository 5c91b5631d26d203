//! CAST and BITCAST in C. Float → integer truncates and saturates and NaN gives 0, as C itself leaves
//! such values open; where the interval of the operand fits, it is a plain conversion.

use super::c::Renderer;
use super::c_expr::{Kind, NONE};
use super::c_types::scalar;
use monoglot_uop::{DType, Scalar, UOp};
use std::fmt::Write;

impl Renderer {
    pub(super) fn cast(&mut self, o: &mut String, a: &UOp, k: Kind) {
        let from = Kind::new(k.n, a.dtype());
        match (k.n, from.d, k.d) {
            (0, _, DType::Bool) => self.put(o, k, "($0 != 0)", &[a]),
            (_, _, DType::Bool) => {
                self.put(
                    o,
                    from,
                    "($M)($0 != $1)",
                    &[a, &UOp::constant(from.d.zero(), from.d)],
                );
            }
            (_, f, d) if f.is_float() && d.is_int() => self.saturate(o, a, k),
            // Integers that f32 rounds are far outside f16.
            (0, f, DType::F16) if !f.is_float() => self.put(o, k, "(f16)(f32)$0", &[a]),
            (0, ..) => self.put(o, k, "(($V)$0)", &[a]),
            // A mask keeps the bits of 1.
            (_, DType::Bool, _) => self.put(
                o,
                k,
                "($V)($0 & ($M)$1)",
                &[a, &UOp::constant(k.d.one(), k.d)],
            ),
            (n, f, d) => {
                if f == DType::F16 || d == DType::F16 {
                    self.prelude.halves(n);
                }
                let t = match (f, d) {
                    (DType::F16, DType::F32) => "F32_f16x$n($0)",
                    (DType::F16, _) => "__builtin_convertvector(F32_f16x$n($0), $V)",
                    (DType::F32, DType::F16) => "F16_f32x$n($0)",
                    // Integers go through f32; f64 rounds once.
                    (f, DType::F16) if f.is_int() => {
                        "F16_f32x$n(__builtin_convertvector($0, f32x$n))"
                    }
                    _ => "__builtin_convertvector($0, $V)",
                };
                self.put(o, k, t, &[a]);
            }
        }
    }

    /// A value, an f16 vector as f32, which holds its values.
    fn widened(&mut self, o: &mut String, a: &UOp, k: Kind) {
        if k.d != DType::F16 || k.n == 0 {
            return self.operand(o, a, k);
        }
        self.prelude.halves(k.n);
        self.put(o, k, "F32_f16x$n($0)", &[a]);
    }

    fn saturate(&mut self, o: &mut String, a: &UOp, k: Kind) {
        let (least, most) = (k.d.min().to_i128(), k.d.max().to_i128());
        let fits = |v: Scalar| v.to_f64() >= least as f64 && v.to_f64() < most as f64 + 1.0;
        let within = a.min_max().is_some_and(|(lo, hi)| fits(lo) && fits(hi));
        // f16 is compared and converted in f32.
        let f = if a.dtype() == DType::F16 {
            DType::F32
        } else {
            a.dtype()
        };
        let float = |v: i128| UOp::constant(Scalar::Float(v as f64), f);
        if k.n == 0 {
            let int = |v: i128| UOp::constant(Scalar::Int(v), k.d);
            let t = match (within, least < 0) {
                (true, _) => "(($V)$0)",
                (_, true) => "($0 >= $1 ? $2 : $0 > $3 ? ($V)$0 : $0 == $0 ? $4 : 0)",
                (_, false) => "($0 >= $1 ? $2 : $0 > $3 ? ($V)$0 : 0)",
            };
            return self.put(
                o,
                k,
                t,
                &[a, &float(most + 1), &int(most), &float(least), &int(least)],
            );
        }
        let x = Kind::new(k.n, f);
        // Lanes are compared several times: as a variable.
        o.push_str("({ ");
        self.put(o, x, "$V x_ = ", NONE);
        self.widened(o, a, Kind::new(k.n, a.dtype()));
        o.push_str("; ");
        if within {
            return self.put(o, k, "__builtin_convertvector(x_, $V); })", NONE);
        }
        // Where the float holds the greatest integer, clamp, convert in a signed integer of the float's
        // width, drop NaN, and narrow.
        if most < 1 << if f == DType::F32 { 24 } else { 53 } {
            let t = "x_ = SEL($V, $M, ($M)(x_ < $0), SEL($V, $M, ($M)(x_ > $1), x_, $1), $0); \
                     __builtin_convertvector(__builtin_convertvector(x_, $M) & n_, ";
            self.put(o, x, "$M n_ = ($M)(x_ == x_); ", NONE);
            self.put(o, x, t, &[&float(most), &float(least)]);
            return self.put(o, k, "$V); })", NONE);
        }
        // Otherwise what is too great, or NaN, converts as 0, and the great is replaced.
        self.put(o, x, "$M g_ = ($M)(x_ >= $0); ", &[&float(most + 1)]);
        let t = "x_ = SEL($V, $M, ($M)(x_ < $0), SEL($V, $M, ($M)(x_ > $1), x_, $1), $2); ";
        self.put(o, x, t, &[&float(most + 1), &float(least), &float(0)]);
        let great = if k.d.bytes() == f.bytes() {
            "g_"
        } else {
            "__builtin_convertvector(g_, $M)"
        };
        let t = format!("SEL($V, $M, {great}, $0, __builtin_convertvector(x_, $V)); }})");
        self.put(o, k, &t, &[&UOp::constant(Scalar::Int(most), k.d)]);
    }

    pub(super) fn bitcast(&mut self, o: &mut String, a: &UOp, k: Kind) {
        let from = a.dtype();
        let one = UOp::int(1, DType::I8);
        match (k.n, from == DType::Bool, k.d == DType::Bool) {
            (0, false, true) => self.put(o, k, "($0 != 0)", &[a]),
            (0, ..) if !(c_float(from) || c_float(k.d)) => self.put(o, k, "(($V)$0)", &[a]),
            (0, ..) => {
                let _ = write!(
                    o,
                    "((union {{ {} a; {} b; }}){{ ",
                    scalar(from),
                    scalar(k.d)
                );
                self.value(o, a);
                o.push_str(" }).b");
            }
            (_, true, _) => self.put(o, k, "($V)($0 & $1)", &[a, &one]),
            (_, _, true) => self.put(o, Kind::new(k.n, from), "($M)($0 != 0)", &[a]),
            _ => self.put(o, k, "(($V)$0)", &[a]),
        }
    }
}

fn c_float(d: DType) -> bool {
    matches!(d, DType::F16 | DType::F32 | DType::F64)
}
