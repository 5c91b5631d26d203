//! Expressions of vectors, in GNU C's extensions: operators work by lane, comparisons give masks,
//! and what is no operator is a macro of the prelude, or goes lane by lane. Flows in: a node and
//! the kind of its value; flows out: text of an expression, and what it uses of the prelude noted.

use super::language::{scalar, signed};
use super::prelude::builtin;
use super::renderer::{NONE, Renderer, ValueType};
use crate::build::bits_type;
use monoglot_uop::linear::{gathered, lanes, splat};
use monoglot_uop::{DType, Op, Result, UOp};
use std::fmt::Write;

impl Renderer<'_> {
    /// A value as an operand among values of this kind.
    pub(super) fn operand(&mut self, o: &mut String, u: &UOp, k: ValueType) -> Result<()> {
        let bool = u.dtype() == DType::Bool;
        let name = if bool {
            signed(k.bytes())
        } else {
            scalar(u.dtype())
        };
        match (k.n, lanes(u)) {
            (0, _) => self.value(o, u)?,
            (n, 0) => {
                let _ = write!(o, "X{n}(");
                self.prelude.vector(o, name, n);
                o.push_str(if bool { ", -(i8)" } else { ", " });
                self.value(o, u)?;
                o.push(')');
            }
            (n, _) if bool && self.listing.mask(u) != k.bytes() => {
                o.push_str("__builtin_convertvector(");
                self.value(o, u)?;
                o.push_str(", ");
                self.prelude.vector(o, name, n);
                o.push(')');
            }
            _ => self.value(o, u)?,
        }
        Ok(())
    }

    /// The greater of two, b where a is NaN unless `nan` is to be kept.
    pub(super) fn vector_max(
        &mut self,
        o: &mut String,
        operands: [&UOp; 2],
        nan: bool,
        k: ValueType,
    ) -> Result<()> {
        let Some(machine) = builtin(Op::Max, k.d) else {
            let t = if nan {
                "SEL($V, $M, ($M)($0 > $1) | ($M)($0 != $0), $0, $1)"
            } else {
                "SEL($V, $M, ($M)($0 > $1), $0, $1)"
            };
            return self.put(o, k, t, &operands);
        };
        if nan {
            self.put(o, k, "SEL($V, $M, ($M)($0 != $0), $0, ", &operands)?;
        }
        self.prelude.builtin(o, machine, k.d, k.n);
        let t = if nan { "($0, $1))" } else { "($0, $1)" };
        self.put(o, k, t, &operands)
    }

    /// acc + Σ a[j]·b[j] of the elements of words, in every lane.
    pub(super) fn dot(&mut self, o: &mut String, u: &UOp, k: ValueType) -> Result<()> {
        let types = u.dot().map(|unit| (unit.dtypes_in, unit.dtype_out));
        let (Some(([DType::I16, DType::I16], DType::I32)), true) = (types, k.n > 0) else {
            return Err(self.unsupported(u));
        };
        self.put(o, k, "($V)(($U)$2 + ($U)", u.src())?;
        self.prelude.pairs(o, k.n);
        self.put(o, k, "($0, $1))", u.src())
    }

    /// `a < b ? a : b` of a comparison's operands.
    pub(super) fn vector_min(&mut self, o: &mut String, less: &UOp, k: ValueType) -> Result<()> {
        let Some(machine) = builtin(Op::CmpLt, k.d) else {
            return self.put(o, k, "SEL($V, $M, ($M)($0 < $1), $0, $1)", less.src());
        };
        self.prelude.builtin(o, machine, k.d, k.n);
        self.put(o, k, "($0, $1)", less.src())
    }

    /// Past the width: the sign of a signed value where it is shifted right, else 0.
    pub(super) fn vector_shift(&mut self, o: &mut String, u: &UOp, k: ValueType) -> Result<()> {
        let a = &u.src()[0];
        let b = &u.src()[1];
        let bits = k.d.bits() as i64;
        let width = UOp::int(bits, bits_type(k.d));
        let last = UOp::int(bits - 1, k.d);
        let t = match u.op() {
            Op::Shl => "(($V)(($U)$0 << ($1 & $3)) & ($V)(($U)$1 < $2))",
            _ if k.d.is_unsigned() => "(($0 >> ($1 & $3)) & ($V)(($U)$1 < $2))",
            _ => "($0 >> SEL($V, $M, ($M)(($U)$1 < $2), $1, $3))",
        };
        self.put(o, k, t, &[a, b, &width, &last])
    }

    /// A division in which the least value may meet −1.
    pub(super) fn vector_divide(&mut self, o: &mut String, u: &UOp, k: ValueType) -> Result<()> {
        let t = match u.op() {
            Op::TruncDiv => {
                "SEL($V, $M, ($M)($1 == $2), ($V)(-($U)$0), $0 / SEL($V, $M, ($M)($1 == $2), $3, $1))"
            }
            _ => "($0 % SEL($V, $M, ($M)($1 == $2), $3, $1))",
        };
        let a = &u.src()[0];
        let b = &u.src()[1];
        self.put(o, k, t, &[a, b, &UOp::int(-1, k.d), &UOp::int(1, k.d)])
    }

    /// Functions: a builtin where there is one, otherwise lane by lane.
    pub(super) fn vector_function(&mut self, o: &mut String, u: &UOp, k: ValueType) -> Result<()> {
        if let Some(b) = builtin(u.op(), k.d) {
            self.prelude.builtin(o, b, k.d, k.n);
            let t = if u.src().len() == 1 {
                "($0)"
            } else {
                "($0, $1, $2)"
            };
            return self.put(o, k, t, u.src());
        }
        self.put(o, k, "(($V){", NONE)?;
        for i in 0..k.n {
            o.push_str(if i > 0 { ", " } else { "" });
            self.call(o, u, i)?;
        }
        o.push_str("})");
        Ok(())
    }

    /// One lane of a value as a scalar (of a mask: 0 or 1).
    pub(super) fn lane(&mut self, o: &mut String, u: &UOp, i: usize) -> Result<()> {
        if lanes(u) == 0 {
            return self.value(o, u);
        }
        let bool = u.dtype() == DType::Bool;
        o.push_str(if bool { "(" } else { "" });
        self.value(o, u)?;
        let _ = write!(o, "[{i}]");
        o.push_str(if bool { " & 1)" } else { "" });
        Ok(())
    }

    /// A vector made of scalars.
    pub(super) fn stack(&mut self, o: &mut String, u: &UOp, k: ValueType) -> Result<()> {
        if let Some((from, lanes)) = gathered(u) {
            return self.shuffle(o, from, &lanes, k);
        }
        if let Some(s) = splat(u) {
            return self.operand(o, s, k);
        }
        // In parentheses, as its commas would end an argument of a macro.
        self.put(o, k, "(($V){", NONE)?;
        for (i, s) in u.src().iter().enumerate() {
            o.push_str(if i > 0 { ", " } else { "" });
            o.push_str(if k.d == DType::Bool { "-(i8)" } else { "" });
            self.value(o, s)?;
        }
        o.push_str("})");
        Ok(())
    }

    pub(super) fn shuffle(
        &mut self,
        o: &mut String,
        from: [&UOp; 2],
        picks: &[i64],
        k: ValueType,
    ) -> Result<()> {
        let wide = ValueType {
            n: lanes(from[0]),
            ..k
        };
        self.put(o, wide, "__builtin_shufflevector($0, $1", &from)?;
        for l in picks {
            let _ = write!(o, ", {l}");
        }
        o.push(')');
        Ok(())
    }

    /// Lanes of a vector: one, a list, or a run.
    pub(super) fn pick(&mut self, o: &mut String, u: &UOp, k: ValueType) -> Result<()> {
        let v = &u.src()[0];
        let at = &u.src()[1];
        let list = match at.op() {
            Op::Stack => at.src(),
            _ => std::slice::from_ref(at),
        };
        let known: Option<Vec<i64>> = list.iter().map(UOp::as_int).collect();
        let picks = known.ok_or_else(|| self.unsupported(u))?;
        let first = *picks.first().ok_or_else(|| self.unsupported(u))?;
        match u.op() {
            _ if k.n == 0 => self.lane(o, v, first as usize),
            Op::Shrink => {
                let run: Vec<i64> = (first..first + k.n as i64).collect();
                self.shuffle(o, [v, v], &run, k)
            }
            _ => self.shuffle(o, [v, v], &picks, k),
        }
    }
}
