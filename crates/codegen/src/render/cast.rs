//! CAST and BITCAST of vectors. Float → integer truncates and saturates and NaN gives 0, as C
//! itself leaves such values open; where the interval of the operand fits, it is a plain
//! conversion. Flows in: the operand and the kind of the result; flows out: text of an expression.
//! Invariant: what it computes is what `fold` does.

use super::renderer::{NONE, Renderer, ValueType};
use monoglot_uop::{DType, Result, Scalar, UOp};

/// What a conversion of a float to an integer is bounded by: the least and greatest integer, whether the
/// interval of the float fits between, and the float in which it is compared (f16 is in f32).
pub(super) fn limits(a: &UOp, to: DType) -> (i128, i128, bool, DType) {
    let least = to.min().to_i128();
    let most = to.max().to_i128();
    let fits = |v: Scalar| v.to_f64() >= least as f64 && v.to_f64() < most as f64 + 1.0;
    let within = a.min_max().is_some_and(|(lo, hi)| fits(lo) && fits(hi));
    let float = if a.dtype() == DType::F16 {
        DType::F32
    } else {
        a.dtype()
    };
    (least, most, within, float)
}

impl Renderer<'_> {
    pub(super) fn cast(&mut self, o: &mut String, a: &UOp, k: ValueType) -> Result<()> {
        if k.n == 0 {
            return self.scalar_cast(o, a, k);
        }
        let from = ValueType::new(k.n, a.dtype());
        match (from.d, k.d) {
            (_, DType::Bool) => {
                let zero = UOp::constant(from.d.zero(), from.d);
                self.put(o, from, "($M)($0 != $1)", &[a, &zero])
            }
            (f, d) if f.is_float() && d.is_int() => self.saturate(o, a, k),
            // A mask keeps the bits of 1.
            (DType::Bool, _) => {
                let one = UOp::constant(k.d.one(), k.d);
                self.put(o, k, "($V)($0 & ($M)$1)", &[a, &one])
            }
            (f, d) => {
                if f == DType::F16 || d == DType::F16 {
                    self.prelude.halves(k.n);
                }
                if (f, d) == (DType::F32, DType::F64) {
                    self.prelude.doubles(k.n);
                }
                let t = match (f, d) {
                    (DType::F16, DType::F32) => "F32_f16x$n($0)",
                    (DType::F16, _) => "__builtin_convertvector(F32_f16x$n($0), $V)",
                    (DType::F32, DType::F64) => "F64_f32x$n($0)",
                    (DType::F32, DType::F16) => "F16_f32x$n($0)",
                    // Integers go through f32; f64 rounds once.
                    (f, DType::F16) if f.is_int() => {
                        "F16_f32x$n(__builtin_convertvector($0, f32x$n))"
                    }
                    _ => "__builtin_convertvector($0, $V)",
                };
                self.put(o, k, t, &[a])
            }
        }
    }

    /// A value, an f16 vector as f32, which holds its values.
    fn widened(&mut self, o: &mut String, a: &UOp, k: ValueType) -> Result<()> {
        if k.d != DType::F16 || k.n == 0 {
            return self.operand(o, a, k);
        }
        self.prelude.halves(k.n);
        self.put(o, k, "F32_f16x$n($0)", &[a])
    }

    fn saturate(&mut self, o: &mut String, a: &UOp, k: ValueType) -> Result<()> {
        let (least, most, within, f) = limits(a, k.d);
        let float = |v: i128| UOp::constant(Scalar::Float(v as f64), f);
        let x = ValueType::new(k.n, f);
        // Lanes are compared several times: as a variable.
        o.push_str("({ ");
        self.put(o, x, "$V x_ = ", NONE)?;
        self.widened(o, a, ValueType::new(k.n, a.dtype()))?;
        o.push_str("; ");
        if within {
            return self.put(o, k, "__builtin_convertvector(x_, $V); })", NONE);
        }
        // Where the float holds the greatest integer, clamp, convert in a signed integer of the float's
        // width, drop NaN, and narrow.
        if most < 1 << if f == DType::F32 { 24 } else { 53 } {
            let t = "x_ = SEL($V, $M, ($M)(x_ < $0), SEL($V, $M, ($M)(x_ > $1), x_, $1), $0); \
                     __builtin_convertvector(__builtin_convertvector(x_, $M) & n_, ";
            self.put(o, x, "$M n_ = ($M)(x_ == x_); ", NONE)?;
            self.put(o, x, t, &[&float(most), &float(least)])?;
            return self.put(o, k, "$V); })", NONE);
        }
        // Otherwise what is too great, or NaN, converts as 0, and the great is replaced.
        self.put(o, x, "$M g_ = ($M)(x_ >= $0); ", &[&float(most + 1)])?;
        let t = "x_ = SEL($V, $M, ($M)(x_ < $0), SEL($V, $M, ($M)(x_ > $1), x_, $1), $2); ";
        self.put(o, x, t, &[&float(most + 1), &float(least), &float(0)])?;
        let great = if k.d.bytes() == f.bytes() {
            "g_"
        } else {
            "__builtin_convertvector(g_, $M)"
        };
        let t = format!("SEL($V, $M, {great}, $0, __builtin_convertvector(x_, $V)); }})");
        self.put(o, k, &t, &[&UOp::constant(Scalar::Int(most), k.d)])
    }

    pub(super) fn bitcast(&mut self, o: &mut String, a: &UOp, k: ValueType) -> Result<()> {
        let from = a.dtype();
        match (from == DType::Bool, k.d == DType::Bool) {
            _ if k.n == 0 => self.scalar_bitcast(o, a, k),
            (true, _) => self.put(o, k, "($V)($0 & $1)", &[a, &UOp::int(1, DType::I8)]),
            (_, true) => {
                let zero = UOp::constant(from.zero(), from);
                self.put(o, ValueType::new(k.n, from), "($M)($0 != $1)", &[a, &zero])
            }
            _ => self.put(o, k, "(($V)$0)", &[a]),
        }
    }
}
