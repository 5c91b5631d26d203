//! Constants and the values between brackets: how a constant is written, what a written one is.
//!
//! Flows in: a scalar and its dtype, or what the lexer read; flows out: text, or a scalar, number, word.
//! Invariant: `literal` without a suffix is read back in the same context as the same constant.

use crate::arg::AddrSpace;
use crate::device::Device;
use crate::dtype::DType;
use crate::scalar::Scalar;

/// A constant as it stands inline: without a suffix where `context`, or its form, says the dtype.
pub(super) fn literal(v: Scalar, d: DType, context: Option<DType>) -> String {
    let (mut text, default) = match v {
        Scalar::Bool(b) => (b.to_string(), DType::Bool),
        Scalar::Int(i) => (i.to_string(), DType::Index),
        Scalar::Invalid => ("INVALID".to_string(), DType::Index),
        Scalar::Float(f) if f.is_nan() && f.to_bits() == f64::NAN.to_bits() => ("nan".into(), DType::F32),
        Scalar::Float(f) if f.is_nan() => (format!("nan#{:016x}", f.to_bits()), DType::F32),
        // The shortest digits of an f32 are fewer than those of the same value as f64.
        Scalar::Float(f) if d == DType::F32 && f as f32 as f64 == f => {
            (format!("{:?}", f as f32), DType::F32)
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

/// A literal as written, before it is known what dtype it is taken for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Literal<'a> {
    pub(super) text: &'a str,
    pub(super) suffix: Option<DType>,
}

impl Literal<'_> {
    /// The value, in its suffix' dtype, else `context`'s, else the one that its form says.
    pub(super) fn value(self, context: Option<DType>) -> Result<(Scalar, DType), String> {
        let text = self.text;
        let float = text.contains(['.', 'e', 'n']) && text != "INVALID" && text != "true" && text != "false";
        let form = match text {
            "true" | "false" => DType::Bool,
            _ if float => DType::F32,
            _ => DType::Index,
        };
        let d = self.suffix.or(context).unwrap_or(form);
        let misfit = || format!("{text} is no {d}");
        let v = match text {
            "INVALID" => Scalar::Invalid,
            "true" | "false" if d == DType::Bool => Scalar::Bool(text == "true"),
            _ if d.is_float() => match text.strip_prefix("nan#") {
                Some(bits) => {
                    Scalar::Float(f64::from_bits(u64::from_str_radix(bits, 16).map_err(|_| misfit())?))
                }
                None if text == "nan" => Scalar::Float(f64::NAN),
                None if d == DType::F32 => Scalar::Float(text.parse::<f32>().map_err(|_| misfit())? as f64),
                None => Scalar::Float(text.parse().map_err(|_| misfit())?).round_to(d),
            },
            _ if d.is_int() => Scalar::Int(text.parse().map_err(|_| misfit())?),
            _ => return Err(misfit()),
        };
        match (v, d.min(), d.max()) {
            (Scalar::Int(i), Scalar::Int(lo), Scalar::Int(hi)) if i < lo || i > hi => Err(misfit()),
            _ => Ok((v, d)),
        }
    }
}

/// A value read between brackets.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value<'a> {
    Word(&'a str),
    Literal(Literal<'a>),
    Text(String),
    Bytes(Vec<u8>),
    List(Vec<Value<'a>>),
    Apply(&'a str, Vec<Value<'a>>),
    Named(&'a str, Box<Value<'a>>),
}

/// What was read, or why it cannot be.
pub(super) type Read<T> = Result<T, String>;

impl Value<'_> {
    pub(super) fn int<T: std::str::FromStr>(&self) -> Read<T> {
        match self {
            Value::Literal(Literal { text, suffix: None }) => {
                text.parse().map_err(|_| format!("{text} is not a number that fits here"))
            }
            _ => Err("a number was expected".into()),
        }
    }

    pub(super) fn list<T: std::str::FromStr>(&self) -> Read<Vec<T>> {
        match self {
            Value::List(items) => items.iter().map(Value::int).collect(),
            _ => Err("a list of numbers was expected".into()),
        }
    }

    pub(super) fn three(&self) -> Read<[i64; 3]> {
        self.list()?.try_into().map_err(|_| "three numbers were expected".into())
    }

    pub(super) fn text(&self) -> Read<String> {
        match self {
            Value::Text(t) => Ok(t.clone()),
            _ => Err("a text in quotes was expected".into()),
        }
    }

    pub(super) fn word(&self) -> Read<&str> {
        match self {
            Value::Word(w) => Ok(w),
            _ => Err("a word was expected".into()),
        }
    }

    pub(super) fn dtype(&self) -> Read<DType> {
        let word = self.word()?;
        DType::from_name(word).ok_or_else(|| format!("there is no dtype {word}"))
    }

    pub(super) fn device(&self) -> Read<Device> {
        match self {
            Value::Text(t) => Ok(Device::new(t)),
            value => value.word().map(Device::new),
        }
    }

    pub(super) fn space(&self) -> Option<AddrSpace> {
        let Value::Word(w) = self else { return None };
        AddrSpace::ALL.iter().copied().find(|s| s.name() == *w)
    }
}
