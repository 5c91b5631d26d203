//! One operation as an expression: a table of forms. Invariant: the text computes what `fold`
//! computes, for every value of the operands: integers wrap (in unsigned types, unless intervals
//! show that nothing wraps), shifts past the width shift all out, MAX propagates NaN. Flows in: a
//! node; flows out: its text, or an error that names the op.

use super::renderer::{NONE, Renderer, ValueType};
use monoglot_uop::linear::{gathered, lanes};
use monoglot_uop::op::{
    Arithmetic, Class, Comparison, Conversion, Memory, Movement, Ternary, Unary,
};
use monoglot_uop::vouched::is_vouched;
use monoglot_uop::{DType, Op, Result, UOp};
use std::borrow::Cow;

/// How an elementwise op is written.
enum Form {
    /// As a template of its operands.
    Operator(&'static str),
    /// A sum or product, which may wrap.
    Sum,
    Max,
    Shift,
    Divide,
    Reciprocal,
    Choice,
    Convert,
    /// A call of a function.
    Function,
    /// Not at all: select has made something else of it.
    Missing,
}

use Form::*;

/// The form of an op on operands of `k` (of a WHERE, its values).
fn form(op: Op, k: ValueType) -> Form {
    let bool = k.d == DType::Bool;
    match op.class() {
        Class::Unary(op) => match op {
            Unary::Neg if bool => Operator("$0"),
            Unary::Neg => Sum,
            Unary::Not if bool => Operator("($!$0)"),
            Unary::Not if k.small() => Operator("($V)(~$0)"),
            Unary::Not => Operator("(~$0)"),
            Unary::Trunc if k.d.is_float() => Function,
            Unary::Trunc => Operator("$0"),
            Unary::Recip => Reciprocal,
            Unary::Sqrt => Function,
        },
        Class::Transcendental(_) => Function,
        Class::Conversion(Conversion::Cast) => Convert,
        Class::Arithmetic(op) => match op {
            Arithmetic::Add | Arithmetic::Max | Arithmetic::Or if bool => Operator("($0 | $1)"),
            Arithmetic::Mul | Arithmetic::And if bool => Operator("($0 & $1)"),
            Arithmetic::Add | Arithmetic::Sub | Arithmetic::Mul => Sum,
            Arithmetic::Div => Operator("($0 / $1)"),
            Arithmetic::Max => Max,
            Arithmetic::Xor => Operator("($0 ^ $1)"),
            Arithmetic::Or => Operator("($0 | $1)"),
            Arithmetic::And => Operator("($0 & $1)"),
            Arithmetic::Shl | Arithmetic::Shr => Shift,
            Arithmetic::TruncDiv | Arithmetic::TruncMod => Divide,
            Arithmetic::Pow => Function,
            Arithmetic::Idiv | Arithmetic::Mod | Arithmetic::Threefry => Missing,
        },
        Class::Comparison(op) => Operator(match op {
            Comparison::CmpNe if bool => "($0 ^ $1)",
            Comparison::CmpEq if bool => "($!$0 ^ $1)",
            Comparison::CmpLt if bool => "($!$0 & $1)",
            Comparison::CmpGt if bool => "($0 & $!$1)",
            Comparison::CmpLe if bool => "($!$0 | $1)",
            Comparison::CmpGe if bool => "($0 | $!$1)",
            Comparison::CmpNe => "($0 != $1)",
            Comparison::CmpEq => "($0 == $1)",
            Comparison::CmpLt => "($0 < $1)",
            Comparison::CmpGt => "($0 > $1)",
            Comparison::CmpLe => "($0 <= $1)",
            Comparison::CmpGe => "($0 >= $1)",
        }),
        Class::Ternary(op) => match op {
            Ternary::Where => Choice,
            Ternary::MulAcc if bool => Operator("(($0 & $1) | $2)"),
            Ternary::MulAcc if k.d.is_int() => Sum,
            Ternary::MulAcc => Function,
        },
        _ => Missing,
    }
}

impl Renderer<'_> {
    /// A CUSTOM: its text, in which `{k}` is operand k, if somebody answers for it.
    fn custom(&mut self, o: &mut String, u: &UOp) -> Result<()> {
        let text = u.arg().text().filter(|text| is_vouched(text));
        let (Some(text), 0) = (text, lanes(u)) else {
            return Err(self.unsupported(u));
        };
        let mut rest = text;
        o.push('(');
        while let Some((before, after)) = rest.split_once('{') {
            o.push_str(before);
            let inner = after.split_once('}');
            let operand = inner.and_then(|(k, _)| u.src().get(k.parse::<usize>().ok()? + 1));
            let (Some((_, after)), Some(operand)) = (inner, operand) else {
                return Err(self.unsupported(u));
            };
            self.value(o, operand)?;
            rest = after;
        }
        o.push_str(rest);
        o.push(')');
        Ok(())
    }

    /// The text of `u`, in parentheses where an operator could bind to its parts.
    pub(super) fn expression(&mut self, o: &mut String, u: &UOp) -> Result<()> {
        let s = u.src();
        let k = self.type_of(u);
        match u.op().class() {
            Class::Memory(Memory::Load) => return self.load(o, u, k),
            Class::Movement(op) => match op {
                Movement::Stack => return self.stack(o, u, k),
                Movement::Shuffle => match gathered(u) {
                    Some((from, lanes)) => return self.shuffle(o, from, &lanes, k),
                    None => return Err(self.unsupported(u)),
                },
                Movement::Index | Movement::Shrink => return self.pick(o, u, k),
                Movement::Bitcast => return self.bitcast(o, &s[0], k),
                _ => return Err(self.unsupported(u)),
            },
            _ if u.op() == Op::Wmma => return self.dot(o, u, k),
            _ if u.op() == Op::Custom => return self.custom(o, u),
            _ => {}
        }
        let compares = u.op().is_comparison();
        let of = ValueType {
            d: if compares { s[0].dtype() } else { k.d },
            ..k
        };
        match form(u.op(), of) {
            Operator(t) => {
                // A comparison of vectors gives integers as wide as their lanes.
                let mask = compares && k.n > 0 && of.d != DType::Bool;
                self.put(o, of, if mask { "($M)" } else { "" }, NONE)?;
                self.put(o, of, t, s)
            }
            Sum => self.sum(o, u, k),
            Max => self.max(o, u, k),
            Shift => self.shift(o, u, k),
            Divide => self.divide(o, u, k),
            Reciprocal => {
                let one = UOp::constant(k.d.one(), k.d);
                self.put(o, k, "($1 / $0)", &[&s[0], &one])
            }
            Choice if lanes(&s[0]) == 0 => {
                o.push('(');
                self.value(o, &s[0])?;
                self.put(o, k, " ? $0 : $1)", &[&s[1], &s[2]])
            }
            Choice if s[0].op() == Op::CmpLt && s[0].src()[..] == s[1..] => {
                self.vector_min(o, &s[0], k)
            }
            Choice => self.put(o, k, "SEL($V, $M, $0, $1, $2)", s),
            Convert => self.cast(o, &s[0], k),
            Function if k.n > 0 => self.vector_function(o, u, k),
            Function => self.call(o, u, 0),
            Missing => Err(self.unsupported(u)),
        }
    }

    /// Sums and products; of integers in the unsigned type where they may leave a signed one, which in C
    /// means anything.
    fn sum(&mut self, o: &mut String, u: &UOp, k: ValueType) -> Result<()> {
        let plain = match u.op() {
            Op::Add => "($0 + $1)",
            Op::Sub => "($0 - $1)",
            Op::Neg => "(-$0)",
            Op::Mul => "($0 * $1)",
            Op::MulAcc => "($0 * $1 + $2)",
            _ => return Err(self.unsupported(u)),
        };
        let wraps = || k.d.is_int() && !k.d.is_unsigned() && may_wrap(u);
        let t: Cow<str> = match u.op() {
            Op::Mul | Op::MulAcc if k.small() => {
                format!("($V){}", plain.replace('$', "(u32)$")).into()
            }
            _ if k.small() => format!("($V){plain}").into(),
            _ if wraps() => format!("($V){}", plain.replace('$', "($U)$")).into(),
            _ => plain.into(),
        };
        self.put(o, k, &t, u.src())
    }

    fn max(&mut self, o: &mut String, u: &UOp, k: ValueType) -> Result<()> {
        let mut a = &u.src()[0];
        let mut b = &u.src()[1];
        // `x > y ? x : y` gives y where one is NaN: only a NaN in x is left to be kept.
        if k.d.is_float() && b.min_max().is_some() {
            (a, b) = (b, a);
        }
        let nan = k.d.is_float() && a.min_max().is_none();
        match (k.n, nan) {
            (0, false) => self.put(o, k, "($0 > $1 ? $0 : $1)", &[a, b]),
            (0, true) => self.put(o, k, "($0 > $1 || $0 != $0 ? $0 : $1)", &[a, b]),
            _ => self.vector_max(o, [a, b], nan, k),
        }
    }

    fn shift(&mut self, o: &mut String, u: &UOp, k: ValueType) -> Result<()> {
        let left = u.op() == Op::Shl;
        let (lo, hi) = u.src()[1].bounds();
        let inside = lo >= 0 && hi < k.d.bits() as i64;
        let t = match (inside, left) {
            (true, true) if k.small() => "($V)((u32)$0 << $1)",
            (true, true) if k.d.is_unsigned() => "($0 << $1)",
            (true, true) => "($V)(($U)$0 << $1)",
            (true, false) => "($0 >> $1)",
            _ if k.n > 0 => return self.vector_shift(o, u, k),
            _ => return self.scalar_shift(o, u, k),
        };
        self.put(o, k, t, u.src())
    }

    /// The machine's division; the least value by −1, which traps, is a negation.
    fn divide(&mut self, o: &mut String, u: &UOp, k: ValueType) -> Result<()> {
        let a = &u.src()[0];
        let b = &u.src()[1];
        let (lo, hi) = b.bounds();
        let traps = !k.d.is_unsigned()
            && !k.small()
            && (lo <= -1 && hi >= -1)
            && Some(a.vmin()) == k.d.min().as_int();
        let quotient = u.op() == Op::TruncDiv;
        match (traps, quotient) {
            (false, true) => self.put(o, k, "(($V)($0 / $1))", &[a, b]),
            (false, false) => self.put(o, k, "(($V)($0 % $1))", &[a, b]),
            (true, _) if k.n > 0 => self.vector_divide(o, u, k),
            (true, true) => self.put(o, k, "($1 == -1 ? ($V)(-($U)$0) : $0 / $1)", &[a, b]),
            (true, false) => self.put(o, k, "($1 == -1 ? 0 : $0 % $1)", &[a, b]),
        }
    }
}

/// Whether the interval of a result is that of the whole dtype: it may have wrapped.
fn may_wrap(u: &UOp) -> bool {
    u.min_max()
        .is_none_or(|(lo, hi)| lo == u.dtype().min() && hi == u.dtype().max())
}
