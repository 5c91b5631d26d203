//! Expressions of scalars where they differ from those of vectors: calls of functions, shifts past
//! the width, saturating conversions. Flows in: a node and the kind of its value; flows out: text
//! of an expression. Invariant: nothing here is undefined in C, whatever the operands are.

use super::renderer::{Renderer, ValueType};
use crate::build::bits_type;
use monoglot_uop::{DType, Op, Result, Scalar, UOp};

impl Renderer<'_> {
    /// A call of the language's function for an op, on one lane.
    pub(super) fn call(&mut self, o: &mut String, u: &UOp, lane: usize) -> Result<()> {
        let name =
            (self.language.function)(u.op(), u.dtype()).ok_or_else(|| self.unsupported(u))?;
        o.push_str(&name);
        o.push('(');
        for (j, s) in u.src().iter().enumerate() {
            o.push_str(if j > 0 { ", " } else { "" });
            self.lane(o, s, lane)?;
        }
        o.push(')');
        Ok(())
    }

    /// Past the width: the sign of a signed value where it is shifted right, else 0.
    pub(super) fn scalar_shift(&mut self, o: &mut String, u: &UOp, k: ValueType) -> Result<()> {
        let a = &u.src()[0];
        let b = &u.src()[1];
        let bits = k.d.bits() as i64;
        let width = UOp::int(bits, bits_type(k.d));
        let last = UOp::int(bits - 1, k.d);
        let t = match u.op() {
            Op::Shl if k.small() => "(($U)$1 < $2 ? ($V)((u32)$0 << $1) : 0)",
            Op::Shl => "(($U)$1 < $2 ? ($V)(($U)$0 << $1) : 0)",
            _ if k.d.is_unsigned() => "(($U)$1 < $2 ? $0 >> $1 : 0)",
            _ => "($0 >> (($U)$1 < $2 ? $1 : $3))",
        };
        self.put(o, k, t, &[a, b, &width, &last])
    }

    /// CAST of a scalar.
    pub(super) fn scalar_cast(&mut self, o: &mut String, a: &UOp, k: ValueType) -> Result<()> {
        let from = a.dtype();
        match k.d {
            DType::Bool => self.put(o, k, "($0 != 0)", &[a]),
            d if from.is_float() && d.is_int() => self.scalar_saturate(o, a, k),
            // Integers that f32 rounds are far outside f16.
            DType::F16 if !from.is_float() => self.put(o, k, "(f16)(f32)$0", &[a]),
            _ => self.put(o, k, "(($V)$0)", &[a]),
        }
    }

    fn scalar_saturate(&mut self, o: &mut String, a: &UOp, k: ValueType) -> Result<()> {
        let (least, most, within, f) = super::cast::limits(a, k.d);
        let float = |v: i128| UOp::constant(Scalar::Float(v as f64), f);
        let int = |v: i128| UOp::constant(Scalar::Int(v), k.d);
        let t = match (within, least < 0) {
            (true, _) => "(($V)$0)",
            (_, true) => "($0 >= $1 ? $2 : $0 > $3 ? ($V)$0 : $0 == $0 ? $4 : 0)",
            (_, false) => "($0 >= $1 ? $2 : $0 > $3 ? ($V)$0 : 0)",
        };
        let operands = [a, &float(most + 1), &int(most), &float(least), &int(least)];
        self.put(o, k, t, &operands)
    }

    /// BITCAST of a scalar; of a byte to a bool, whether it is not 0.
    pub(super) fn scalar_bitcast(&mut self, o: &mut String, a: &UOp, k: ValueType) -> Result<()> {
        let from = a.dtype();
        if k.d == DType::Bool && from != DType::Bool {
            return self.put(o, k, "($0 != 0)", &[a]);
        }
        if !(c_float(from) || c_float(k.d)) {
            return self.put(o, k, "(($V)$0)", &[a]);
        }
        let [before, after] = (self.language.bits)(from, k.d);
        o.push_str(&before);
        self.value(o, a)?;
        o.push_str(&after);
        Ok(())
    }
}

/// Floats that the language has.
fn c_float(d: DType) -> bool {
    matches!(d, DType::F16 | DType::F32 | DType::F64)
}
