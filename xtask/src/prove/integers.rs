//! Expressions as SMT-LIB integers: `index` without end, other dtypes wrapped after each operation.
//! Short reductions are written out, reads are an unknown function of the index. The invalid index
//! is any number; where the first side is invalid the second may be anything. Flows in: a rule's
//! two sides; flows out: the question to the solver whether they differ anywhere, or nothing where
//! an op has no such form.

use monoglot_uop::{Arg, DType, Op, UOp};
use rustc_hash::FxHashMap;
use std::fmt::Write;

/// A node in the solver's words: its value, and whether that means anything.
#[derive(Clone)]
struct Term {
    value: String,
    valid: String,
}

impl Term {
    /// A value that always means something.
    fn always(value: String) -> Term {
        Term {
            value,
            valid: "true".into(),
        }
    }
}

#[derive(Default)]
struct Writer {
    text: String,
    /// Names, by node and binding of the ranges that are written out.
    names: FxHashMap<(UOp, Vec<i64>), Term>,
    leaves: usize,
}

/// Declarations and the assertion that the two differ.
pub(crate) fn query(before: &UOp, after: &UOp) -> Option<String> {
    let mut w = Writer::default();
    let env: Vec<(UOp, i64)> = Vec::new();
    let Term { value: a, valid } = w.value(before, &env)?;
    let b = w.value(after, &env)?.value;
    writeln!(w.text, "(assert (and {valid} (distinct {a} {b})))").ok()?;
    Some(w.text)
}

impl Writer {
    /// Sub-terms are named, so that sharing stays. Samples are small: recursion is bounded by their depth.
    fn value(&mut self, u: &UOp, env: &[(UOp, i64)]) -> Option<Term> {
        let inside = u.ranges();
        let bound: Vec<i64> = env
            .iter()
            .filter(|(r, _)| inside.contains(r))
            .map(|(_, v)| *v)
            .collect();
        let key = (u.clone(), bound);
        if let Some(known) = self.names.get(&key) {
            return Some(known.clone());
        }
        let Term { value, valid } = self.term(u, env)?;
        let n = self.names.len();
        let sort = if u.dtype() == DType::Bool {
            "Bool"
        } else {
            "Int"
        };
        writeln!(
            self.text,
            "(define-fun t{n} () {sort} {value})\n(define-fun v{n} () Bool {valid})"
        )
        .ok()?;
        let names = Term {
            value: format!("t{n}"),
            valid: format!("v{n}"),
        };
        self.names.insert(key, names.clone());
        Some(names)
    }

    fn leaf(&mut self, u: &UOp) -> Option<String> {
        let name = format!("x{}", self.leaves);
        self.leaves += 1;
        if u.dtype() == DType::Bool {
            writeln!(self.text, "(declare-const {name} Bool)").ok()?;
            return Some(name);
        }
        let (lo, hi) = u.min_max().map(|(a, b)| (a.to_i128(), b.to_i128()))?;
        writeln!(
            self.text,
            "(declare-const {name} Int)\n(assert (<= {} {name} {}))",
            int(lo),
            int(hi)
        )
        .ok()?;
        Some(name)
    }

    fn term(&mut self, u: &UOp, env: &[(UOp, i64)]) -> Option<Term> {
        if let Some((_, v)) = env.iter().find(|(r, _)| r == u) {
            return Some(Term::always(v.to_string()));
        }
        if u.is_invalid() {
            return Some(Term {
                value: self.leaf(u)?,
                valid: "false".into(),
            });
        }
        if let Some(v) = u.const_value() {
            let text = if u.dtype() == DType::Bool {
                v.truthy().to_string()
            } else {
                int(v.to_i128())
            };
            return Some(Term::always(text));
        }
        match u.op() {
            Op::Param | Op::Range => return Some(Term::always(self.leaf(u)?)),
            Op::Index => return self.read(u, env),
            Op::Reduce => return self.reduce(u, env),
            _ => {}
        }
        let mut src: Vec<Term> = Vec::new();
        for s in u.src() {
            src.push(self.value(s, env)?);
        }
        if let (Op::Where, [c, a, b]) = (u.op(), &src[..]) {
            let chosen = format!("(ite {} {} {})", c.value, a.valid, b.valid);
            return Some(Term {
                value: format!("(ite {} {} {})", c.value, a.value, b.value),
                valid: format!("(and {} {chosen})", c.valid),
            });
        }
        let valid = match &src[..] {
            [one] => one.valid.clone(),
            all => {
                let all: Vec<&str> = all.iter().map(|s| s.valid.as_str()).collect();
                format!("(and {})", all.join(" "))
            }
        };
        let arg = |i: usize| src.get(i).map_or("", |s| s.value.as_str());
        Some(Term {
            value: apply(u, arg(0), arg(1), arg(2))?,
            valid,
        })
    }

    /// An element of a buffer: an unknown function of the index, within the dtype.
    fn read(&mut self, u: &UOp, env: &[(UOp, i64)]) -> Option<Term> {
        let [buffer, at] = u.src() else { return None };
        let Term { value: at, valid } = self.value(at, env)?;
        let name = format!("f{}", buffer.buffer_arg()?.slot);
        if !self.text.contains(&format!("(declare-fun {name} ")) {
            writeln!(self.text, "(declare-fun {name} (Int) Int)").ok()?;
        }
        Some(Term {
            value: wrapped(u.dtype(), format!("({name} {at})")),
            valid,
        })
    }

    fn reduce(&mut self, u: &UOp, env: &[(UOp, i64)]) -> Option<Term> {
        let [x, r] = u.src() else { return None };
        let Arg::Reduce(op, _) = u.arg() else {
            return None;
        };
        let d = u.dtype();
        let mut all: Option<Term> = None;
        for v in 0..r.src()[0].as_int()? {
            let mut env = env.to_vec();
            env.push((r.clone(), v));
            let step = self.value(x, &env)?;
            all = Some(match all {
                None => step,
                Some(all) => Term {
                    value: apply_op(op.op(), d, d, &all.value, &step.value, "")?,
                    valid: format!("(and {} {})", all.valid, step.valid),
                },
            });
        }
        all
    }
}

fn apply(u: &UOp, a: &str, b: &str, c: &str) -> Option<String> {
    apply_op(u.op(), u.src()[0].dtype(), u.dtype(), a, b, c)
}

fn apply_op(op: Op, from: DType, to: DType, a: &str, b: &str, c: &str) -> Option<String> {
    if from == DType::Bool {
        return Some(match op {
            Op::Add | Op::Or | Op::Max => format!("(or {a} {b})"),
            Op::Mul | Op::And | Op::Idiv => format!("(and {a} {b})"),
            Op::Mod | Op::CmpGt => format!("(and {a} (not {b}))"),
            Op::Xor | Op::CmpNe => format!("(xor {a} {b})"),
            Op::CmpEq => format!("(= {a} {b})"),
            Op::CmpLt => format!("(and (not {a}) {b})"),
            Op::CmpLe => format!("(=> {a} {b})"),
            Op::CmpGe => format!("(=> {b} {a})"),
            Op::Not => format!("(not {a})"),
            Op::Trunc => a.to_string(),
            Op::MulAcc => format!("(or (and {a} {b}) {c})"),
            Op::Cast if to == DType::Bool => a.to_string(),
            Op::Cast => format!("(ite {a} 1 0)"),
            _ => return None,
        });
    }
    let wrap = |s: String| Some(wrapped(to, s));
    match op {
        Op::Add => wrap(format!("(+ {a} {b})")),
        Op::Sub => wrap(format!("(- {a} {b})")),
        Op::Mul => wrap(format!("(* {a} {b})")),
        Op::Neg => wrap(format!("(- {a})")),
        Op::MulAcc => wrap(format!("(+ (* {a} {b}) {c})")),
        Op::Not => wrap(format!("(- (- {a}) 1)")),
        Op::Trunc => Some(a.to_string()),
        Op::Max => Some(format!("(ite (< {a} {b}) {b} {a})")),
        Op::Idiv => wrap(floor_div(a, b)),
        Op::Mod => Some(format!("(- {a} (* {b} {}))", floor_div(a, b))),
        Op::Cast if to == DType::Bool => Some(format!("(distinct {a} 0)")),
        Op::Cast => wrap(a.to_string()),
        Op::CmpLt => Some(format!("(< {a} {b})")),
        Op::CmpGt => Some(format!("(> {a} {b})")),
        Op::CmpLe => Some(format!("(<= {a} {b})")),
        Op::CmpGe => Some(format!("(>= {a} {b})")),
        Op::CmpNe => Some(format!("(distinct {a} {b})")),
        Op::CmpEq => Some(format!("(= {a} {b})")),
        _ => None,
    }
}

/// SMT-LIB's `div` floors where the divisor is positive.
fn floor_div(a: &str, b: &str) -> String {
    match b.parse::<i128>() {
        Ok(n) if n > 0 => format!("(div {a} {b})"),
        _ => format!("(ite (= {b} 0) 0 (ite (> {b} 0) (div {a} {b}) (div (- {a}) (- {b}))))"),
    }
}

fn int(v: i128) -> String {
    if v < 0 {
        format!("(- {})", v.unsigned_abs())
    } else {
        v.to_string()
    }
}

fn wrapped(d: DType, s: String) -> String {
    if d == DType::Index || d == DType::Bool {
        return s;
    }
    let n = 1i128 << d.bits();
    if d.is_unsigned() {
        format!("(mod {s} {n})")
    } else {
        format!("(- (mod (+ {s} {}) {n}) {})", n / 2, n / 2)
    }
}
