//! One operation as a C expression: a table of templates. Invariant: the text computes what `fold`
//! computes, for every value of the operands: integers wrap (in unsigned types, unless intervals show
//! that nothing wraps), shifts past the width shift all out, MAX propagates NaN.
//!
//! In a template `$0`, `$1`, … are operands, brought to the kind of the expression (scalars broadcast,
//! bools as masks of its width); `$V` is the kind's type, `$n` its lanes, `$B` bytes, `$M` and `$U` the signed and unsigned
//! integers as wide, `$!` a complement (`!` of a scalar bool, `~` of a mask).

use super::c::Renderer;
use super::c_plan::{gathered, splat};
use super::c_types::{builtin, literal, scalar, signed, unsigned};
use crate::select::bits_type;
use monoglot_uop::linear::lanes;
use monoglot_uop::{DType, Op, UOp};
use std::borrow::{Borrow, Cow};
use std::fmt::Write;

/// What an expression is made of: lanes (0: a scalar), element, and for bools the bytes of a mask's lane.
#[derive(Copy, Clone)]
pub(super) struct Kind {
    pub(super) n: usize,
    pub(super) d: DType,
    pub(super) mask: usize,
}

/// No operands.
pub(super) const NONE: &[UOp] = &[];

impl Kind {
    pub(super) fn new(n: usize, d: DType) -> Kind {
        Kind { n, d, mask: 1 }
    }

    /// Bytes of a lane.
    fn bytes(self) -> usize {
        if self.d == DType::Bool {
            self.mask
        } else {
            self.d.bytes()
        }
    }

    /// A scalar narrower than C's int, in which C computes instead.
    fn small(self) -> bool {
        self.n == 0 && self.d.is_int() && self.d.bytes() < 4
    }
}

impl Renderer {
    /// The text of `u`, in parentheses where an operator could bind to its parts.
    pub(super) fn expression(&mut self, o: &mut String, u: &UOp) {
        let s = u.src();
        let k = self.kind(u);
        match u.op() {
            Op::Load => self.load(o, u, k),
            Op::Stack => self.stack(o, u, k),
            Op::Index | Op::Shrink => self.pick(o, u, k),
            Op::Cast => self.cast(o, &s[0], k),
            Op::Bitcast => self.bitcast(o, &s[0], k),
            Op::Where if lanes(&s[0]) == 0 => {
                o.push('(');
                self.value(o, &s[0]);
                self.put(o, k, " ? $0 : $1)", &[&s[1], &s[2]]);
            }
            Op::Where => self.put(o, k, "SEL($V, $M, $0, $1, $2)", &[&s[0], &s[1], &s[2]]),
            op if op.is_comparison() => {
                let k = Kind {
                    d: s[0].dtype(),
                    ..k
                };
                self.put(
                    o,
                    k,
                    if k.n > 0 && k.d != DType::Bool {
                        "($M)"
                    } else {
                        ""
                    },
                    NONE,
                );
                self.put(o, k, template(op, k), s);
            }
            op => match (template(op, k), op) {
                ("", Op::Add | Op::Sub | Op::Mul | Op::Neg) => self.sum(o, u, k),
                ("", Op::MulAcc) if k.d.is_int() => self.sum(o, u, k),
                ("", Op::Max) => self.max(o, u, k),
                ("", Op::Shl | Op::Shr) => self.shift(o, u, k),
                ("", Op::TruncDiv | Op::TruncMod) => self.divide(o, u, k),
                ("", Op::Recip) => {
                    self.put(o, k, "($1 / $0)", &[&s[0], &UOp::constant(k.d.one(), k.d)])
                }
                ("", _) => self.function(o, u, k),
                (t, _) => self.put(o, k, t, s),
            },
        }
    }

    /// What a value is made of.
    pub(super) fn kind(&self, u: &UOp) -> Kind {
        Kind {
            n: lanes(u),
            d: u.dtype(),
            mask: self.plan.mask(u),
        }
    }

    /// Write a template.
    pub(super) fn put<S: Borrow<UOp>>(&mut self, o: &mut String, k: Kind, template: &str, s: &[S]) {
        // A select's first argument is the type.
        if template.contains("SEL($V") {
            self.prelude.select();
        }
        let mut rest = template;
        while let Some(at) = rest.find('$') {
            o.push_str(&rest[..at]);
            let what = rest.as_bytes().get(at + 1).copied().unwrap_or(b' ');
            rest = &rest[(at + 2).min(rest.len())..];
            match what {
                b'V' if k.d == DType::Bool && k.n > 0 => self.type_name(o, signed(k.mask), k.n),
                b'V' => self.type_name(o, scalar(k.d), k.n),
                b'B' => self.type_name(o, "u8", k.n),
                b'M' => self.type_name(o, signed(k.bytes()), k.n),
                b'U' => self.type_name(o, unsigned(k.bytes()), k.n),
                b'n' => drop(write!(o, "{}", k.n)),
                b'!' => o.push(if k.n == 0 { '!' } else { '~' }),
                digit => {
                    if let Some(u) = s.get(digit.wrapping_sub(b'0') as usize) {
                        self.operand(o, u.borrow(), k);
                    }
                }
            }
        }
        o.push_str(rest);
    }

    /// A scalar or vector type.
    pub(super) fn type_name(&mut self, o: &mut String, name: &'static str, n: usize) {
        match n {
            0 => o.push_str(name),
            n => self.prelude.vector(o, name, n),
        }
    }

    /// A value as an operand among values of this kind.
    pub(super) fn operand(&mut self, o: &mut String, u: &UOp, k: Kind) {
        let bool = u.dtype() == DType::Bool;
        let name = if bool {
            signed(k.bytes())
        } else {
            scalar(u.dtype())
        };
        match (k.n, lanes(u)) {
            (0, _) => self.value(o, u),
            (n, 0) => {
                let _ = write!(o, "X{n}(");
                self.prelude.vector(o, name, n);
                o.push_str(if bool { ", -(i8)" } else { ", " });
                self.value(o, u);
                o.push(')');
            }
            (n, _) if bool && self.plan.mask(u) != k.bytes() => {
                o.push_str("__builtin_convertvector(");
                self.value(o, u);
                o.push_str(", ");
                self.prelude.vector(o, name, n);
                o.push(')');
            }
            _ => self.value(o, u),
        }
    }

    /// Sums and products; of integers in the unsigned type where they may leave a signed one, which in C
    /// means anything.
    fn sum(&mut self, o: &mut String, u: &UOp, k: Kind) {
        let plain = match u.op() {
            Op::Add => "($0 + $1)",
            Op::Sub => "($0 - $1)",
            Op::Neg => "(-$0)",
            Op::Mul => "($0 * $1)",
            _ => "($0 * $1 + $2)",
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
        self.put(o, k, &t, u.src());
    }

    fn max(&mut self, o: &mut String, u: &UOp, k: Kind) {
        let (mut a, mut b) = (&u.src()[0], &u.src()[1]);
        // `x > y ? x : y` gives y where one is NaN: only a NaN in x is left to be kept.
        if k.d.is_float() && b.min_max().is_some() {
            (a, b) = (b, a);
        }
        let nan = k.d.is_float() && a.min_max().is_none();
        let machine = builtin(Op::Max, k.d).filter(|_| k.n > 0);
        let t = match (k.n, nan, machine) {
            (0, false, _) => "($0 > $1 ? $0 : $1)",
            (0, true, _) => "($0 > $1 || $0 != $0 ? $0 : $1)",
            (_, false, None) => "SEL($V, $M, ($M)($0 > $1), $0, $1)",
            (_, true, None) => "SEL($V, $M, ($M)($0 > $1) | ($M)($0 != $0), $0, $1)",
            (_, false, _) => "",
            (_, true, _) => "SEL($V, $M, ($M)($0 != $0), $0, ",
        };
        self.put(o, k, t, &[a, b]);
        if let Some(machine) = machine {
            self.prelude.builtin(o, machine, k.d, k.n);
            self.put(o, k, if nan { "($0, $1))" } else { "($0, $1)" }, &[a, b]);
        }
    }

    fn shift(&mut self, o: &mut String, u: &UOp, k: Kind) {
        let (a, b) = (&u.src()[0], &u.src()[1]);
        let bits = k.d.bits() as i64;
        let (lo, hi) = b.bounds();
        let left = u.op() == Op::Shl;
        let (width, last) = (UOp::int(bits, bits_type(k.d)), UOp::int(bits - 1, k.d));
        // Past the width: the sign of a signed value where it is shifted right, else 0.
        let signed = !left && !k.d.is_unsigned();
        let t = match (lo >= 0 && hi < bits, k.n, left) {
            (true, _, true) if k.small() => "($V)((u32)$0 << $1)",
            (true, _, true) if k.d.is_unsigned() => "($0 << $1)",
            (true, _, true) => "($V)(($U)$0 << $1)",
            (true, _, false) => "($0 >> $1)",
            (_, 0, true) if k.small() => "(($U)$1 < $2 ? ($V)((u32)$0 << $1) : 0)",
            (_, 0, true) => "(($U)$1 < $2 ? ($V)(($U)$0 << $1) : 0)",
            (_, 0, false) if signed => "($0 >> (($U)$1 < $2 ? $1 : $3))",
            (_, 0, false) => "(($U)$1 < $2 ? $0 >> $1 : 0)",
            (_, _, true) => "(($V)(($U)$0 << ($1 & $3)) & ($V)(($U)$1 < $2))",
            (_, _, false) if signed => "($0 >> SEL($V, $M, ($M)(($U)$1 < $2), $1, $3))",
            (_, _, false) => "(($0 >> ($1 & $3)) & ($V)(($U)$1 < $2))",
        };
        self.put(o, k, t, &[a, b, &width, &last]);
    }

    /// The machine's division; the least value by −1, which traps, is a negation.
    fn divide(&mut self, o: &mut String, u: &UOp, k: Kind) {
        let (a, b) = (&u.src()[0], &u.src()[1]);
        let (lo, hi) = b.bounds();
        let traps = !k.d.is_unsigned()
            && !k.small()
            && (lo <= -1 && hi >= -1)
            && Some(a.vmin()) == k.d.min().as_int();
        let t = match (u.op(), traps, k.n) {
            (Op::TruncDiv, false, _) => "(($V)($0 / $1))",
            (_, false, _) => "(($V)($0 % $1))",
            (Op::TruncDiv, _, 0) => "($1 == -1 ? ($V)(-($U)$0) : $0 / $1)",
            (_, _, 0) => "($1 == -1 ? 0 : $0 % $1)",
            (Op::TruncDiv, ..) => {
                "SEL($V, $M, ($M)($1 == $2), ($V)(-($U)$0), $0 / SEL($V, $M, ($M)($1 == $2), $3, $1))"
            }
            _ => "($0 % SEL($V, $M, ($M)($1 == $2), $3, $1))",
        };
        self.put(o, k, t, &[a, b, &UOp::int(-1, k.d), &UOp::int(1, k.d)]);
    }

    /// Functions: a builtin on vectors where there is one, otherwise lane by lane.
    fn function(&mut self, o: &mut String, u: &UOp, k: Kind) {
        if let (true, Some(b)) = (k.n > 0, builtin(u.op(), k.d)) {
            self.prelude.builtin(o, b, k.d, k.n);
            let t = if u.src().len() == 1 {
                "($0)"
            } else {
                "($0, $1, $2)"
            };
            return self.put(o, k, t, u.src());
        }
        let name = match u.op() {
            Op::MulAcc => "fma".into(),
            op @ (Op::Sqrt | Op::Trunc | Op::Exp2 | Op::Log2 | Op::Sin | Op::Pow) => {
                op.name().to_lowercase()
            }
            // No text: the compiler's message names the op.
            op => {
                let _ = write!(o, "unsupported_{}", op.name());
                return;
            }
        };
        self.put(o, k, if k.n > 0 { "(($V){" } else { "" }, NONE);
        for i in 0..k.n.max(1) {
            let suffix = if k.d == DType::F64 { "" } else { "f" };
            let _ = write!(
                o,
                "{}__builtin_{name}{suffix}(",
                if i > 0 { ", " } else { "" }
            );
            for (j, s) in u.src().iter().enumerate() {
                o.push_str(if j > 0 { ", " } else { "" });
                self.lane(o, s, i);
            }
            o.push(')');
        }
        o.push_str(if k.n > 0 { "})" } else { "" });
    }

    /// One lane of a value as a scalar (of a mask: 0 or 1).
    pub(super) fn lane(&mut self, o: &mut String, u: &UOp, i: usize) {
        if lanes(u) == 0 {
            return self.value(o, u);
        }
        o.push_str(if u.dtype() == DType::Bool { "(" } else { "" });
        self.value(o, u);
        let _ = write!(o, "[{i}]");
        o.push_str(if u.dtype() == DType::Bool {
            " & 1)"
        } else {
            ""
        });
    }

    fn stack(&mut self, o: &mut String, u: &UOp, k: Kind) {
        if let Some((a, b, lanes)) = gathered(u) {
            return self.shuffle(o, [a, b], &lanes, k);
        }
        if let Some(s) = splat(u) {
            return self.operand(o, s, k);
        }
        // In parentheses, as its commas would end an argument of a macro.
        self.put(o, k, "(($V){", NONE);
        for (i, s) in u.src().iter().enumerate() {
            o.push_str(if i > 0 { ", " } else { "" });
            o.push_str(if k.d == DType::Bool { "-(i8)" } else { "" });
            match s.const_value() {
                Some(v) => literal(o, v, s.dtype()),
                None => self.value(o, s),
            }
        }
        o.push_str("})");
    }

    fn shuffle(&mut self, o: &mut String, from: [&UOp; 2], lanes: &[i64], k: Kind) {
        let wide = Kind {
            n: monoglot_uop::linear::lanes(from[0]),
            ..k
        };
        self.put(o, wide, "__builtin_shufflevector($0, $1", &from);
        for l in lanes {
            let _ = write!(o, ", {l}");
        }
        o.push(')');
    }

    /// Lanes of a vector: one, a list, or a run.
    fn pick(&mut self, o: &mut String, u: &UOp, k: Kind) {
        let (v, at) = (&u.src()[0], &u.src()[1]);
        if k.n == 0 {
            return match at.as_int() {
                Some(i) => self.lane(o, v, i as usize),
                None => o.push_str("unsupported_lane"),
            };
        }
        let mut picks: Vec<i64> = at.src().iter().map(|c| c.as_int().unwrap_or(0)).collect();
        if u.op() == Op::Shrink {
            let first = picks.first().copied().or(at.as_int()).unwrap_or(0);
            picks = (first..first + k.n as i64).collect();
        }
        self.shuffle(o, [v, v], &picks, k);
    }
}

/// Ops that are an operator of C on the kind's values.
fn template(op: Op, k: Kind) -> &'static str {
    match (op, k.d == DType::Bool, k.d.is_float()) {
        (Op::Add | Op::Or | Op::Max, true, _) => "($0 | $1)",
        (Op::Mul | Op::And, true, _) => "($0 & $1)",
        (Op::Xor, ..) | (Op::CmpNe, true, _) => "($0 ^ $1)",
        (Op::CmpGt, true, _) => "($0 & $!$1)",
        (Op::CmpLt, true, _) => "($!$0 & $1)",
        (Op::CmpLe, true, _) => "($!$0 | $1)",
        (Op::CmpGe, true, _) => "($0 | $!$1)",
        (Op::CmpEq, true, _) => "($!$0 ^ $1)",
        (Op::CmpLt, ..) => "($0 < $1)",
        (Op::CmpGt, ..) => "($0 > $1)",
        (Op::CmpLe, ..) => "($0 <= $1)",
        (Op::CmpGe, ..) => "($0 >= $1)",
        (Op::CmpNe, ..) => "($0 != $1)",
        (Op::CmpEq, ..) => "($0 == $1)",
        (Op::Not, true, _) => "($!$0)",
        (Op::MulAcc, true, _) => "(($0 & $1) | $2)",
        (Op::Neg | Op::Trunc, true, _) | (Op::Trunc, _, false) => "$0",
        (Op::Div, ..) => "($0 / $1)",
        (Op::And, ..) => "($0 & $1)",
        (Op::Or, ..) => "($0 | $1)",
        (Op::Not, ..) if k.small() => "($V)(~$0)",
        (Op::Not, ..) => "(~$0)",
        _ => "",
    }
}

/// Whether the interval of a result is that of the whole dtype: it may have wrapped.
fn may_wrap(u: &UOp) -> bool {
    u.min_max()
        .is_none_or(|(lo, hi)| lo == u.dtype().min() && hi == u.dtype().max())
}
