//! One operation as a C expression. Invariant: the text computes what `fold` computes, for every
//! value of the operands: integers wrap (in unsigned types, unless intervals show that nothing
//! wraps), shifts past the width shift all out, float → integer saturates, MAX propagates NaN.

use super::c::{Renderer, address, gathered, lanes, splat};
use super::c_types::{builtin, literal, scalar, signed, unsigned};
use monoglot_uop::{DType, Op, Scalar, UOp};
use std::fmt::Write;

/// Lanes and element of a result: 0 lanes is a scalar.
#[derive(Copy, Clone)]
struct Kind {
    n: usize,
    d: DType,
}

impl Renderer {
    /// The text of `u`, in parentheses where an operator could bind to its parts.
    pub(super) fn expression(&mut self, o: &mut String, u: &UOp) {
        let k = Kind { n: lanes(u), d: u.dtype() };
        let src = u.src();
        match u.op() {
            Op::Load => self.load(o, u, k),
            Op::Stack => self.stack(o, u, k),
            Op::Index | Op::Shrink => self.pick(o, u, k),
            Op::Cast => self.cast(o, &src[0], k),
            Op::Bitcast => self.bitcast(o, &src[0], k),
            Op::Where => self.select(o, u, k),
            op if op.is_comparison() => self.compare(o, u, k),
            _ if k.d == DType::Bool => self.logic(o, u, k),
            Op::Add | Op::Sub | Op::Mul => {
                let sign = [" + ", " - ", " * "][(u.op() != Op::Add) as usize + (u.op() == Op::Mul) as usize];
                self.wrapping(o, u, k, &[(None, 0), (Some(sign), 1)]);
            }
            Op::Neg if k.d.is_float() => self.around(o, "(-", &src[0], k, ")"),
            Op::Neg => self.wrapping(o, u, k, &[(Some("0 - "), 0)]),
            Op::MulAcc if !k.d.is_float() => {
                self.wrapping(o, u, k, &[(None, 0), (Some(" * "), 1), (Some(" + "), 2)]);
            }
            Op::Max => self.max(o, u, k),
            Op::And | Op::Or | Op::Xor => {
                let sign = [" & ", " | ", " ^ "][(u.op() != Op::And) as usize + (u.op() == Op::Xor) as usize];
                self.between(o, &src[0], sign, &src[1], k);
            }
            Op::Not => {
                self.narrow(o, k);
                self.around(o, "(~", &src[0], k, ")");
            }
            Op::Shl | Op::Shr => self.shift(o, u, k),
            Op::Div => self.between(o, &src[0], " / ", &src[1], k),
            Op::Recip => {
                o.push('(');
                self.constant(o, Scalar::Float(1.0), k);
                self.around(o, " / ", &src[0], k, ")");
            }
            Op::TruncDiv | Op::TruncMod => self.divide(o, u, k),
            Op::Trunc if !k.d.is_float() => self.operand(o, &src[0], k),
            _ => self.function(o, u, k),
        }
    }

    /// `address = value`, where the gate holds.
    pub(super) fn store(&mut self, o: &mut String, u: &UOp) {
        let (Some(a), value) = (address(&u.src()[0]), &u.src()[1]) else { return };
        let d = u.src()[0].dtype();
        let k = Kind { n: a.lanes, d };
        match u.src().get(2) {
            Some(g) if lanes(g) == 0 => {
                o.push_str("if (");
                self.value(o, g);
                o.push_str(") ");
            }
            Some(g) => {
                let bytes = d.bytes();
                self.prelude.masked(o, true, bytes, k.n);
                o.push('(');
                self.pointer(o, &a);
                o.push_str(", ");
                self.as_mask(o, g, k.n, bytes);
                o.push_str(", ");
                match d {
                    DType::Bool => {
                        self.as_mask(o, value, k.n, 1);
                        o.push_str(" & 1");
                    }
                    _ => self.operand(o, value, k),
                }
                return o.push(')');
            }
            None => {}
        }
        self.place(o, &a);
        o.push_str(" = ");
        if d == DType::Bool && k.n > 0 {
            if self.holds_masks(&a) {
                return self.as_mask(o, value, k.n, 1);
            }
            o.push('(');
            self.prelude.vector(o, "u8", k.n);
            o.push_str(")(");
            self.as_mask(o, value, k.n, 1);
            return o.push_str(" & 1)");
        }
        self.operand(o, value, k);
    }

    fn load(&mut self, o: &mut String, u: &UOp, k: Kind) {
        let Some(a) = address(&u.src()[0]) else { return };
        let (alt, gate) = (u.src().get(1), u.src().get(2));
        match gate {
            Some(g) if lanes(g) > 0 => {
                let bytes = k.d.bytes();
                // A bool is true where its byte is not 0.
                o.push('(');
                self.type_of(o, u);
                o.push_str(if k.d == DType::Bool { ")(" } else { ")" });
                self.prelude.masked(o, false, bytes, k.n);
                o.push('(');
                self.pointer(o, &a);
                o.push_str(", ");
                self.as_mask(o, g, k.n, bytes);
                o.push_str(", ");
                match alt {
                    Some(alt) if k.d == DType::Bool => self.as_mask(o, alt, k.n, 1),
                    Some(alt) => self.operand(o, alt, k),
                    None => self.constant(o, k.d.zero(), k),
                }
                o.push_str(if k.d == DType::Bool { ") != 0)" } else { ")" });
            }
            Some(g) => {
                o.push('(');
                self.value(o, g);
                o.push_str(" ? ");
                if k.n > 0 && k.d != DType::Bool {
                    self.cast_to(o, scalar(k.d), k.n);
                }
                self.fetch(o, &a, k);
                o.push_str(" : ");
                match alt {
                    Some(alt) if k.d == DType::Bool && k.n > 0 => self.as_mask(o, alt, k.n, 1),
                    Some(alt) => self.operand(o, alt, k),
                    None => self.constant(o, k.d.zero(), k),
                }
                o.push(')');
            }
            None => self.fetch(o, &a, k),
        }
    }

    fn fetch(&mut self, o: &mut String, a: &super::c::Address, k: Kind) {
        if k.d != DType::Bool || self.holds_masks(a) {
            return self.place(o, a);
        }
        if k.n > 0 {
            o.push('(');
            self.prelude.vector(o, "i8", k.n);
            o.push(')');
        }
        // Bytes of a user's file may be other than 0 and 1.
        o.push('(');
        self.place(o, a);
        o.push_str(" != 0)");
    }

    /// One lane of a value as a scalar (of a mask: 0 or 1).
    fn lane(&mut self, o: &mut String, u: &UOp, i: usize) {
        if lanes(u) == 0 {
            return self.value(o, u);
        }
        o.push_str(if u.dtype() == DType::Bool { "((" } else { "(" });
        self.value(o, u);
        let _ = write!(o, ")[{i}]");
        o.push_str(if u.dtype() == DType::Bool { " & 1)" } else { "" });
    }

    /// A constant of the kind.
    fn constant(&mut self, o: &mut String, v: Scalar, k: Kind) {
        if k.n == 0 {
            return literal(o, v, k.d);
        }
        self.broadcast(o, scalar(k.d), k.n);
        literal(o, v, k.d);
        o.push(')');
    }

    /// A value as an operand among values of this kind: a scalar among vectors is broadcast.
    fn operand(&mut self, o: &mut String, u: &UOp, k: Kind) {
        if k.n == 0 || lanes(u) > 0 {
            return self.value(o, u);
        }
        self.broadcast(o, scalar(u.dtype()), k.n);
        self.value(o, u);
        o.push(')');
    }

    /// `Xn(type, `: a scalar in every lane.
    fn broadcast(&mut self, o: &mut String, name: &'static str, n: usize) {
        let _ = write!(o, "X{n}(");
        self.prelude.vector(o, name, n);
        o.push_str(", ");
    }

    /// A bool as a mask with lanes of `bytes`.
    fn as_mask(&mut self, o: &mut String, u: &UOp, n: usize, bytes: usize) {
        if lanes(u) == 0 {
            self.broadcast(o, signed(bytes), n);
            let _ = write!(o, "-({})", signed(bytes));
            self.value(o, u);
            return o.push(')');
        }
        if self.mask(u) == bytes {
            return self.value(o, u);
        }
        o.push_str("__builtin_convertvector(");
        self.value(o, u);
        o.push_str(", ");
        self.prelude.vector(o, signed(bytes), n);
        o.push(')');
    }

    fn around(&mut self, o: &mut String, before: &str, u: &UOp, k: Kind, after: &str) {
        o.push_str(before);
        self.operand(o, u, k);
        o.push_str(after);
    }

    fn between(&mut self, o: &mut String, a: &UOp, sign: &str, b: &UOp, k: Kind) {
        o.push('(');
        self.operand(o, a, k);
        o.push_str(sign);
        self.operand(o, b, k);
        o.push(')');
    }

    /// The cast back to a scalar narrower than C's int.
    fn narrow(&mut self, o: &mut String, k: Kind) {
        if k.n == 0 && k.d.is_int() && k.d.bytes() < 4 {
            let _ = write!(o, "({})", scalar(k.d));
        }
    }

    /// A type of the kind's width and lanes, as a cast.
    fn cast_to(&mut self, o: &mut String, name: &'static str, n: usize) {
        o.push('(');
        match n {
            0 => o.push_str(name),
            n => self.prelude.vector(o, name, n),
        }
        o.push(')');
    }

    /// Operators from left to right, computed in the unsigned type where an integer may wrap.
    fn wrapping(&mut self, o: &mut String, u: &UOp, k: Kind, parts: &[(Option<&str>, usize)]) {
        let wraps = k.d.is_int() && !k.d.is_unsigned() && may_wrap(u);
        let small = k.n == 0 && k.d.is_int() && k.d.bytes() < 4;
        let wide = if small { "u32" } else { unsigned(k.d.bytes()) };
        if wraps || small {
            self.cast_to(o, scalar(k.d), k.n);
        }
        o.push('(');
        for &(sign, i) in parts {
            match sign {
                // A vector has no operator with an untyped 0; `0 - x` is written for a negation.
                Some("0 - ") => o.push('-'),
                sign => o.push_str(sign.unwrap_or("")),
            }
            if wraps || small && u.op() != Op::Add && u.op() != Op::Sub {
                self.cast_to(o, wide, k.n);
            }
            self.operand(o, &u.src()[i], k);
        }
        o.push(')');
    }

    fn max(&mut self, o: &mut String, u: &UOp, k: Kind) {
        let (mut a, mut b) = (&u.src()[0], &u.src()[1]);
        // `x > y ? x : y` gives y where one is NaN: only a NaN in x is left to be kept.
        if k.d.is_float() && b.min_max().is_some() {
            (a, b) = (b, a);
        }
        let nan = k.d.is_float() && a.min_max().is_none();
        if k.n == 0 {
            o.push('(');
            self.value(o, a);
            o.push_str(" > ");
            self.value(o, b);
            if nan {
                o.push_str(" || ");
                self.value(o, a);
                o.push_str(" != ");
                self.value(o, a);
            }
            o.push_str(" ? ");
            self.value(o, a);
            o.push_str(" : ");
            self.value(o, b);
            return o.push(')');
        }
        let guarded = nan || !k.d.is_float();
        if guarded {
            // Integers: a > b. Floats: a is NaN.
            self.begin_select(o, k, signed(k.d.bytes()));
            self.operand(o, a, k);
            o.push_str(if nan { " != " } else { " > " });
            self.operand(o, if nan { a } else { b }, k);
            o.push_str("), ");
            self.operand(o, a, k);
            o.push_str(", ");
        }
        match (k.d, builtin(Op::Max)) {
            (DType::F32 | DType::F64, Some(max)) => {
                self.prelude.builtin(o, max, k.d, k.n);
                o.push('(');
                self.operand(o, a, k);
                o.push_str(", ");
                self.operand(o, b, k);
                o.push(')');
            }
            _ => self.operand(o, b, k),
        }
        if guarded {
            o.push(')');
        }
    }

    /// `SEL(V, M, (M)(`: what follows is a comparison, `), a, b)`.
    fn begin_select(&mut self, o: &mut String, k: Kind, mask: &'static str) {
        self.prelude.select();
        o.push_str("SEL(");
        self.prelude.vector(o, scalar(k.d), k.n);
        o.push_str(", ");
        self.prelude.vector(o, mask, k.n);
        o.push_str(", ");
        self.cast_to(o, mask, k.n);
        o.push('(');
    }

    fn select(&mut self, o: &mut String, u: &UOp, k: Kind) {
        let (c, a, b) = (&u.src()[0], &u.src()[1], &u.src()[2]);
        let bools = k.d == DType::Bool && k.n > 0;
        let width = if bools { self.mask(u) } else { k.d.bytes() };
        let branch = |r: &mut Renderer, o: &mut String, s: &UOp| match bools {
            true => r.as_mask(o, s, k.n, width),
            false => r.operand(o, s, k),
        };
        if lanes(c) == 0 {
            o.push('(');
            self.value(o, c);
            o.push_str(" ? ");
            branch(self, o, a);
            o.push_str(" : ");
            branch(self, o, b);
            return o.push(')');
        }
        let mask = signed(width);
        self.prelude.select();
        o.push_str("SEL(");
        self.prelude.vector(o, if bools { mask } else { scalar(k.d) }, k.n);
        o.push_str(", ");
        self.prelude.vector(o, mask, k.n);
        o.push_str(", ");
        self.as_mask(o, c, k.n, width);
        o.push_str(", ");
        branch(self, o, a);
        o.push_str(", ");
        branch(self, o, b);
        o.push(')');
    }

    fn compare(&mut self, o: &mut String, u: &UOp, k: Kind) {
        let (a, b) = (&u.src()[0], &u.src()[1]);
        let from = a.dtype();
        if from == DType::Bool {
            return self.compare_bools(o, u, k);
        }
        let sign = match u.op() {
            Op::CmpLt => " < ",
            Op::CmpGt => " > ",
            Op::CmpLe => " <= ",
            Op::CmpGe => " >= ",
            Op::CmpNe => " != ",
            _ => " == ",
        };
        if k.n > 0 {
            self.cast_to(o, signed(from.bytes()), k.n);
        }
        self.between(o, a, sign, b, Kind { n: k.n, d: from });
    }

    /// Truth values by `&`, `|`, `^` and a complement, on masks as on scalars 0 and 1.
    fn bits(&mut self, o: &mut String, k: Kind, width: usize, a: (&UOp, bool), sign: &str, b: (&UOp, bool)) {
        o.push('(');
        for (i, (u, negated)) in [a, b].into_iter().enumerate() {
            o.push_str(if i > 0 { sign } else { "" });
            match (k.n, negated) {
                (0, true) => o.push('!'),
                (_, true) => o.push('~'),
                _ => {}
            }
            match k.n {
                0 => self.value(o, u),
                n => self.as_mask(o, u, n, width),
            }
        }
        o.push(')');
    }

    fn compare_bools(&mut self, o: &mut String, u: &UOp, k: Kind) {
        let (a, b) = (&u.src()[0], &u.src()[1]);
        let w = if k.n > 0 { self.mask(u) } else { 1 };
        match u.op() {
            Op::CmpLt => self.bits(o, k, w, (a, true), " & ", (b, false)),
            Op::CmpGt => self.bits(o, k, w, (a, false), " & ", (b, true)),
            Op::CmpLe => self.bits(o, k, w, (a, true), " | ", (b, false)),
            Op::CmpGe => self.bits(o, k, w, (a, false), " | ", (b, true)),
            Op::CmpNe => self.bits(o, k, w, (a, false), " ^ ", (b, false)),
            _ => self.bits(o, k, w, (a, true), " ^ ", (b, false)),
        }
    }

    fn logic(&mut self, o: &mut String, u: &UOp, k: Kind) {
        let w = if k.n > 0 { self.mask(u) } else { 1 };
        let s = u.src();
        match u.op() {
            Op::Add | Op::Or | Op::Max => self.bits(o, k, w, (&s[0], false), " | ", (&s[1], false)),
            Op::Mul | Op::And | Op::Idiv => self.bits(o, k, w, (&s[0], false), " & ", (&s[1], false)),
            Op::Xor => self.bits(o, k, w, (&s[0], false), " ^ ", (&s[1], false)),
            Op::Mod => self.bits(o, k, w, (&s[0], false), " & ", (&s[1], true)),
            Op::Not => {
                o.push_str(if k.n > 0 { "(~" } else { "(!" });
                self.value(o, &s[0]);
                o.push(')');
            }
            Op::MulAcc => {
                o.push('(');
                self.bits(o, k, w, (&s[0], false), " & ", (&s[1], false));
                o.push_str(" | ");
                match k.n {
                    0 => self.value(o, &s[2]),
                    n => self.as_mask(o, &s[2], n, w),
                }
                o.push(')');
            }
            _ => self.value(o, &s[0]),
        }
    }

    fn shift(&mut self, o: &mut String, u: &UOp, k: Kind) {
        let (a, b) = (&u.src()[0], &u.src()[1]);
        let bits = k.d.bits() as i64;
        let (lo, hi) = b.bounds();
        let known = lo >= 0 && hi < bits;
        let left = u.op() == Op::Shl;
        let narrow = if k.n == 0 && bits < 32 { "u32" } else { unsigned(k.d.bytes()) };
        let plain = |r: &mut Renderer, o: &mut String| {
            r.cast_to(o, scalar(k.d), k.n);
            o.push('(');
            if left {
                r.cast_to(o, narrow, k.n);
            }
            r.operand(o, a, k);
            o.push_str(if left { " << " } else { " >> " });
            if known || k.n == 0 {
                r.operand(o, b, k);
            } else {
                // The count of lanes that the select drops must still be in range.
                o.push('(');
                r.operand(o, b, k);
                o.push_str(" & ");
                r.constant(o, Scalar::Int(bits as i128 - 1), k);
                o.push(')');
            }
            o.push(')');
        };
        // What is left when all is shifted out: the sign of a signed value, or 0.
        let rest = |r: &mut Renderer, o: &mut String| {
            if left || k.d.is_unsigned() {
                return r.constant(o, Scalar::Int(0), k);
            }
            o.push('(');
            r.operand(o, a, k);
            o.push_str(" >> ");
            r.constant(o, Scalar::Int(bits as i128 - 1), k);
            o.push(')');
        };
        let all = Kind { n: k.n, d: unsigned_type(k.d) };
        match (known, k.n) {
            (true, _) => plain(self, o),
            (_, 0) => {
                o.push('(');
                self.cast_to(o, unsigned(k.d.bytes()), 0);
                self.value(o, b);
                o.push_str(" < ");
                literal(o, Scalar::Int(bits as i128), all.d);
                o.push_str(" ? ");
                plain(self, o);
                o.push_str(" : ");
                rest(self, o);
                o.push(')');
            }
            _ => {
                self.begin_select(o, k, signed(k.d.bytes()));
                self.cast_to(o, unsigned(k.d.bytes()), k.n);
                self.operand(o, b, k);
                o.push_str(" < ");
                self.constant(o, Scalar::Int(bits as i128), all);
                o.push_str("), ");
                plain(self, o);
                o.push_str(", ");
                rest(self, o);
                o.push(')');
            }
        }
    }

    /// The machine's division; the least value by −1, which traps, is a negation.
    fn divide(&mut self, o: &mut String, u: &UOp, k: Kind) {
        let (a, b) = (&u.src()[0], &u.src()[1]);
        let sign = if u.op() == Op::TruncDiv { " / " } else { " % " };
        let least = k.d.min().as_int().unwrap_or(0);
        let (lo, hi) = b.bounds();
        let small = k.n == 0 && k.d.bytes() < 4;
        if k.d.is_unsigned() || small || lo > -1 || hi < -1 || a.vmin() > least {
            self.narrow(o, k);
            return self.between(o, a, sign, b, k);
        }
        let (wide, minus) = (unsigned(k.d.bytes()), Scalar::Int(-1));
        let negated = |r: &mut Renderer, o: &mut String| {
            if u.op() == Op::TruncMod {
                return r.constant(o, Scalar::Int(0), k);
            }
            r.cast_to(o, scalar(k.d), k.n);
            o.push_str("(-");
            r.cast_to(o, wide, k.n);
            r.operand(o, a, k);
            o.push(')');
        };
        if k.n == 0 {
            o.push('(');
            self.value(o, b);
            o.push_str(" == -1 ? ");
            negated(self, o);
            o.push_str(" : ");
            self.between(o, a, sign, b, k);
            return o.push(')');
        }
        let (name, mask) = (k, signed(k.d.bytes()));
        self.begin_select(o, name, mask);
        self.operand(o, b, k);
        o.push_str(" == ");
        self.constant(o, minus, k);
        o.push_str("), ");
        negated(self, o);
        o.push_str(", ");
        self.operand(o, a, k);
        o.push_str(sign);
        self.begin_select(o, name, mask);
        self.operand(o, b, k);
        o.push_str(" == ");
        self.constant(o, minus, k);
        o.push_str("), ");
        self.constant(o, Scalar::Int(1), k);
        o.push_str(", ");
        self.operand(o, b, k);
        o.push_str("))");
    }

    fn cast(&mut self, o: &mut String, a: &UOp, k: Kind) {
        let from = a.dtype();
        match (k.n, from, k.d) {
            (0, _, DType::Bool) => {
                o.push('(');
                self.value(o, a);
                o.push_str(" != 0)");
            }
            (n, _, DType::Bool) => {
                self.cast_to(o, signed(from.bytes()), n);
                o.push('(');
                self.operand(o, a, k);
                o.push_str(" != ");
                self.constant(o, from.zero(), Kind { n, d: from });
                o.push(')');
            }
            (n, DType::Bool, d) if n > 0 => {
                // A mask keeps the bits of 1.
                let m = signed(d.bytes());
                self.cast_to(o, scalar(d), n);
                o.push('(');
                self.as_mask(o, a, n, d.bytes());
                o.push_str(" & ");
                self.cast_to(o, m, n);
                self.constant(o, d.one(), k);
                o.push(')');
            }
            (_, f, d) if f.is_float() && d.is_int() => self.saturate(o, a, k),
            (0, f, DType::F16) if f.is_int() || f == DType::Bool => {
                // Integers that f32 rounds are far outside f16.
                o.push_str("(f16)(f32)");
                self.value(o, a);
            }
            (0, _, d) => {
                let _ = write!(o, "(({})", scalar(d));
                self.value(o, a);
                o.push(')');
            }
            (n, DType::F16, d) => {
                self.prelude.halves(n);
                let _ = if d == DType::F32 { Ok(()) } else { write!(o, "__builtin_convertvector(") };
                // The text may hold commas, which a macro takes for more arguments.
                let _ = write!(o, "F32_f16x{n}((");
                self.value(o, a);
                o.push_str("))");
                if d != DType::F32 {
                    o.push_str(", ");
                    self.prelude.vector(o, scalar(d), n);
                    o.push(')');
                }
            }
            (n, DType::F32, DType::F16) => {
                self.prelude.halves(n);
                let _ = write!(o, "F16_f32x{n}((");
                self.value(o, a);
                o.push_str("))");
            }
            (n, f, DType::F16) if f.is_int() => {
                self.prelude.halves(n);
                let _ = write!(o, "F16_f32x{n}(__builtin_convertvector(");
                self.value(o, a);
                let _ = write!(o, ", f32x{n}))");
            }
            (n, _, d) => {
                o.push_str("__builtin_convertvector(");
                self.value(o, a);
                o.push_str(", ");
                self.prelude.vector(o, scalar(d), n);
                o.push(')');
            }
        }
    }

    /// Float → integer: truncates and saturates, NaN gives 0. Plain where the bounds are within.
    fn saturate(&mut self, o: &mut String, a: &UOp, k: Kind) {
        let (f, d) = (a.dtype(), k.d);
        let (least, most) = (d.min().to_i128(), d.max().to_i128());
        let within =
            a.min_max().is_some_and(|(lo, hi)| lo.to_f64() >= least as f64 && hi.to_f64() <= most as f64)
                && a.min_max().is_some_and(|(_, hi)| hi.to_i128() <= most);
        if k.n == 0 {
            if within {
                let _ = write!(o, "(({})", scalar(d));
                self.value(o, a);
                return o.push(')');
            }
            // From 2^bits on, the greatest value; below the least, the least.
            o.push('(');
            self.value(o, a);
            o.push_str(" >= ");
            literal(o, Scalar::Float((most + 1) as f64), wide(f));
            o.push_str(" ? ");
            literal(o, Scalar::Int(most), d);
            o.push_str(" : ");
            self.value(o, a);
            o.push_str(" > ");
            literal(o, Scalar::Float(least as f64), wide(f));
            let _ = write!(o, " ? ({})", scalar(d));
            self.value(o, a);
            o.push_str(" : ");
            if least < 0 {
                self.value(o, a);
                o.push_str(" == ");
                self.value(o, a);
                o.push_str(" ? ");
                literal(o, Scalar::Int(least), d);
                o.push_str(" : ");
            }
            return o.push_str("0)");
        }
        self.saturate_vector(o, a, k, within);
    }

    fn saturate_vector(&mut self, o: &mut String, a: &UOp, k: Kind, within: bool) {
        let (f, d, n) = (a.dtype(), k.d, k.n);
        // f16 is compared and converted in f32, which holds its values.
        let g = if f == DType::F16 { DType::F32 } else { f };
        let x = Kind { n, d: g };
        let value = |r: &mut Renderer, o: &mut String| {
            if f != DType::F16 {
                return r.operand(o, a, x);
            }
            r.prelude.halves(n);
            let _ = write!(o, "F32_f16x{n}((");
            r.operand(o, a, x);
            o.push_str("))");
        };
        o.push_str("__builtin_convertvector(");
        if within {
            value(self, o);
            o.push_str(", ");
            self.prelude.vector(o, scalar(d), n);
            return o.push(')');
        }
        let (least, most) = (d.min().to_i128(), d.max().to_i128());
        let exact = most < 1 << if g == DType::F32 { 24 } else { 53 };
        // Integers no wider than the float are converted in a signed integer of the float's width,
        // wider ones directly.
        let middle = if exact { signed(g.bytes()) } else { scalar(d) };
        let middle_bytes = if exact { g.bytes() } else { d.bytes() };
        let mask = signed(g.bytes());
        let clamp = |r: &mut Renderer, o: &mut String| {
            // Above the top: the greatest value, or anything that converts and is replaced below.
            let top = if exact { most as f64 } else { 0.0 };
            r.begin_select(o, x, mask);
            value(r, o);
            o.push_str(" < ");
            r.constant(o, Scalar::Float((most + 1) as f64), x);
            o.push_str("), ");
            r.begin_select(o, x, mask);
            value(r, o);
            o.push_str(" > ");
            r.constant(o, Scalar::Float(least as f64), x);
            o.push_str("), ");
            value(r, o);
            o.push_str(", ");
            r.constant(o, Scalar::Float(least as f64), x);
            o.push_str("), ");
            r.constant(o, Scalar::Float(top), x);
            o.push(')');
        };
        // A condition on the float as a mask as wide as the integer in the middle.
        let widened = |r: &mut Renderer, o: &mut String, sign: &str, other: Option<f64>| {
            let convert = middle_bytes != g.bytes();
            o.push_str(if convert { "__builtin_convertvector(" } else { "" });
            r.cast_to(o, mask, n);
            o.push('(');
            value(r, o);
            o.push_str(sign);
            match other {
                Some(v) => r.constant(o, Scalar::Float(v), x),
                None => value(r, o),
            }
            o.push(')');
            if convert {
                o.push_str(", ");
                r.prelude.vector(o, signed(middle_bytes), n);
                o.push(')');
            }
        };
        // NaN fails every comparison: it is taken for the top, and dropped at the end.
        if exact {
            self.cast_to(o, middle, n);
            o.push_str("(__builtin_convertvector(");
            clamp(self, o);
            o.push_str(", ");
            self.prelude.vector(o, middle, n);
            o.push_str(") & ");
            widened(self, o, " == ", None);
            o.push(')');
        } else {
            self.prelude.select();
            o.push_str("SEL(");
            self.prelude.vector(o, middle, n);
            o.push_str(", ");
            self.prelude.vector(o, signed(middle_bytes), n);
            o.push_str(", ");
            widened(self, o, " >= ", Some((most + 1) as f64));
            o.push_str(", ");
            self.constant(o, Scalar::Int(most), k);
            o.push_str(", __builtin_convertvector(");
            clamp(self, o);
            o.push_str(", ");
            self.prelude.vector(o, middle, n);
            o.push_str("))");
        }
        o.push_str(", ");
        self.prelude.vector(o, scalar(d), n);
        o.push(')');
    }

    fn bitcast(&mut self, o: &mut String, a: &UOp, k: Kind) {
        let from = a.dtype();
        match (k.n, from, k.d) {
            (0, DType::Bool, _) | (0, _, DType::Bool) => {
                let _ = write!(o, "(({})", scalar(k.d));
                self.value(o, a);
                o.push_str(if k.d == DType::Bool { " != 0)" } else { ")" });
            }
            (0, f, d) if !c_float(f) && !c_float(d) => {
                let _ = write!(o, "(({})", scalar(d));
                self.value(o, a);
                o.push(')');
            }
            (0, f, d) => {
                let _ = write!(o, "((union {{ {} a; {} b; }}){{ ", scalar(f), scalar(d));
                self.value(o, a);
                o.push_str(" }).b");
            }
            (n, DType::Bool, _) => {
                self.cast_to(o, scalar(k.d), n);
                o.push('(');
                self.as_mask(o, a, n, 1);
                o.push_str(" & 1)");
            }
            (n, _, DType::Bool) => {
                self.cast_to(o, "i8", n);
                o.push('(');
                self.operand(o, a, k);
                o.push_str(" != 0)");
            }
            (n, _, d) => {
                o.push('(');
                self.cast_to(o, scalar(d), n);
                self.operand(o, a, k);
                o.push(')');
            }
        }
    }

    fn stack(&mut self, o: &mut String, u: &UOp, k: Kind) {
        let minus = if k.d == DType::Bool { "-(i8)" } else { "" };
        if let Some((a, b, lanes)) = gathered(u) {
            return self.shuffle(o, a, b, &lanes, k, self.mask(u));
        }
        let name = if k.d == DType::Bool { "i8" } else { scalar(k.d) };
        if let Some(s) = splat(u) {
            self.broadcast(o, name, k.n);
            o.push_str(minus);
            self.value(o, s);
            return o.push(')');
        }
        // In parentheses, as its commas would end an argument of a macro.
        o.push('(');
        self.cast_to(o, name, k.n);
        o.push('{');
        for (i, s) in u.src().iter().enumerate() {
            o.push_str(if i > 0 { ", " } else { "" });
            o.push_str(minus);
            self.value(o, s);
        }
        o.push_str("})");
    }

    fn shuffle(&mut self, o: &mut String, a: &UOp, b: &UOp, lanes: &[i64], k: Kind, mask: usize) {
        o.push_str("__builtin_shufflevector(");
        for v in [a, b] {
            match k.d {
                DType::Bool => self.as_mask(o, v, super::c::lanes(v), mask),
                _ => self.value(o, v),
            }
            o.push_str(", ");
        }
        for (i, l) in lanes.iter().enumerate() {
            let _ = write!(o, "{}{l}", if i > 0 { ", " } else { "" });
        }
        o.push(')');
    }

    /// Lanes of a vector: one, a list, or a run.
    fn pick(&mut self, o: &mut String, u: &UOp, k: Kind) {
        let (v, at) = (&u.src()[0], &u.src()[1]);
        if k.n == 0 {
            return match at.as_int() {
                Some(i) => self.lane(o, v, i as usize),
                None => self.lane_at(o, v, at),
            };
        }
        let first = at.src().first().and_then(UOp::as_int).or(at.as_int()).unwrap_or(0);
        let picks: Vec<i64> = match u.op() {
            Op::Shrink => (first..first + k.n as i64).collect(),
            _ => at.src().iter().map(|c| c.as_int().unwrap_or(0)).collect(),
        };
        let mask = if k.d == DType::Bool { self.mask(v) } else { 0 };
        self.shuffle(o, v, v, &picks, k, mask);
    }

    fn lane_at(&mut self, o: &mut String, v: &UOp, at: &UOp) {
        o.push('(');
        self.value(o, v);
        o.push_str(")[");
        self.value(o, at);
        o.push_str(if v.dtype() == DType::Bool { "] & 1" } else { "]" });
    }

    /// Functions: a builtin on vectors where there is one, otherwise lane by lane.
    fn function(&mut self, o: &mut String, u: &UOp, k: Kind) {
        let src = u.src();
        if let (true, Some(b)) = (k.n > 0 && matches!(k.d, DType::F32 | DType::F64), builtin(u.op())) {
            self.prelude.builtin(o, b, k.d, k.n);
            for (i, s) in src.iter().enumerate() {
                o.push_str(if i > 0 { ", " } else { "(" });
                self.operand(o, s, k);
            }
            return o.push(')');
        }
        let name = match u.op() {
            Op::MulAcc => "fma",
            Op::Sqrt => "sqrt",
            Op::Trunc => "trunc",
            Op::Exp2 => "exp2",
            Op::Log2 => "log2",
            Op::Sin => "sin",
            Op::Pow => "pow",
            // No text: the compiler's message names the op.
            op => {
                let _ = write!(o, "unsupported_{}", op.name());
                return;
            }
        };
        if k.n > 0 {
            o.push('(');
            self.cast_to(o, scalar(k.d), k.n);
            o.push('{');
        }
        for i in 0..k.n.max(1) {
            let suffix = if k.d == DType::F64 { "" } else { "f" };
            let _ = write!(o, "{}__builtin_{name}{suffix}(", if i > 0 { ", " } else { "" });
            for (j, s) in src.iter().enumerate() {
                o.push_str(if j > 0 { ", " } else { "" });
                self.lane(o, s, i);
            }
            o.push(')');
        }
        o.push_str(if k.n > 0 { "})" } else { "" });
    }
}

/// Whether the interval of a result is that of the whole dtype: it may have wrapped.
fn may_wrap(u: &UOp) -> bool {
    match u.min_max() {
        Some((lo, hi)) => lo == u.dtype().min() && hi == u.dtype().max(),
        None => true,
    }
}

fn c_float(d: DType) -> bool {
    matches!(d, DType::F16 | DType::F32 | DType::F64)
}

/// The type that holds a bound exactly when an f16 is compared with it.
fn wide(f: DType) -> DType {
    if f == DType::F16 { DType::F32 } else { f }
}

fn unsigned_type(d: DType) -> DType {
    match d.bytes() {
        1 => DType::U8,
        2 => DType::U16,
        4 => DType::U32,
        _ => DType::U64,
    }
}
