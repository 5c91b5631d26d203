//! Constants and the values between brackets: how they are written, and what a written one is.
//!
//! Flows in: a scalar and its dtype, or what the lexer read; flows out: text, or a scalar. Invariant:
//! `literal` without a suffix is read back in the same context as the same constant.

use crate::dtype::DType;
use crate::scalar::Scalar;
use std::fmt::{Display, Formatter, Result as Written};

/// A constant as it stands inline: without a suffix where `context`, or its form, says the dtype.
pub(super) fn literal(v: Scalar, d: DType, context: Option<DType>) -> String {
    let (mut text, default) = match v {
        Scalar::Bool(b) => (b.to_string(), DType::Bool),
        Scalar::Int(i) => (i.to_string(), DType::Index),
        Scalar::Invalid => ("INVALID".to_string(), DType::Index),
        Scalar::Float(f) if f.to_bits() == f64::NAN.to_bits() => ("nan".into(), DType::F32),
        Scalar::Float(f) if f.is_nan() => (format!("nan#{:016x}", f.to_bits()), DType::F32),
        // The shortest digits of an f32 are fewer than those of the same value as f64.
        Scalar::Float(f) if d == DType::F32 && f as f32 as f64 == f => {
            (format!("{:?}", f as f32), d)
        }
        Scalar::Float(f) => (format!("{:?}", short(f, d)), DType::F32),
    };
    if context.unwrap_or(default) != d {
        let word = text.ends_with(|c: char| c.is_ascii_alphabetic()) || text.starts_with("nan");
        text.push_str(if word { "_" } else { "" });
        text.push_str(d.name());
    }
    text
}

/// The number of fewest digits that is `f` in `d`.
fn short(f: f64, d: DType) -> f64 {
    if d == DType::F64 || !f.is_finite() {
        return f;
    }
    let near = |digits| format!("{f:.digits$e}").parse::<f64>().ok();
    let same = |v: &f64| Scalar::Float(*v).round_to(d) == Scalar::Float(f);
    (0..17).filter_map(near).find(same).unwrap_or(f)
}

/// What was read, or why it cannot be.
pub(super) type Read<T> = Result<T, String>;

/// A literal as written, before it is known what dtype it is taken for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Literal {
    pub(super) text: String,
    pub(super) suffix: Option<DType>,
}

impl Literal {
    /// The value, in its suffix' dtype, else `context`'s, else the one that its form says.
    pub(super) fn value(&self, context: Option<DType>) -> Read<(Scalar, DType)> {
        let text = &*self.text;
        let form = match text {
            "true" | "false" => DType::Bool,
            "INVALID" => DType::Index,
            _ if text.contains(['.', 'e', 'n']) => DType::F32,
            _ => DType::Index,
        };
        let d = self.suffix.or(context).unwrap_or(form);
        let v = match text {
            "INVALID" => Some(Scalar::Invalid),
            "true" | "false" => (d == DType::Bool).then_some(Scalar::Bool(text == "true")),
            _ if d.is_float() => match text.strip_prefix("nan#") {
                Some(bits) => u64::from_str_radix(bits, 16)
                    .ok()
                    .map(|b| Scalar::Float(f64::from_bits(b))),
                None if text == "nan" => Some(Scalar::Float(f64::NAN)),
                None if d == DType::F32 => {
                    text.parse::<f32>().ok().map(|f| Scalar::Float(f as f64))
                }
                None => text.parse().ok().map(|f| Scalar::Float(f).round_to(d)),
            },
            _ if d.is_int() => {
                let range = d.min().to_i128()..=d.max().to_i128();
                let number = text.parse().ok().filter(|i| range.contains(i));
                number.map(Scalar::Int)
            }
            _ => None,
        };
        v.map(|v| (v, d)).ok_or_else(|| format!("{text} is no {d}"))
    }
}

/// A value between brackets.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Word(String),
    Literal(Literal),
    Text(String),
    List(Vec<Value>),
    Apply(String, Vec<Value>),
    Named(String, Box<Value>),
}

impl Value {
    /// A literal without a suffix.
    pub(super) fn number(n: impl ToString) -> Value {
        Value::Literal(Literal {
            text: n.to_string(),
            suffix: None,
        })
    }

    /// Whether this is the word `word`.
    pub(super) fn is(&self, word: &str) -> bool {
        matches!(self, Value::Word(w) if w == word)
    }
}

impl Display for Value {
    fn fmt(&self, f: &mut Formatter<'_>) -> Written {
        match self {
            Value::Word(w) => f.write_str(w),
            Value::Literal(l) => f.write_str(&l.text),
            Value::Text(t) => {
                let plain = t.replace('\\', "\\\\").replace('"', "\\\"");
                let plain = plain.replace('\n', "\\n");
                write!(f, "\"{plain}\"")
            }
            Value::List(items) => write!(f, "[{}]", Items(items)),
            Value::Apply(name, items) => write!(f, "{name}({})", Items(items)),
            Value::Named(name, v) => write!(f, "{name}={v}"),
        }
    }
}

/// Values with commas between them.
pub(super) struct Items<'a>(pub(super) &'a [Value]);

impl Display for Items<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Written {
        for (i, v) in self.0.iter().enumerate() {
            write!(f, "{}{v}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}
