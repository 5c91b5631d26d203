//! Attributes of a step, typed. Flows in: a JSON object; out: numbers, lists and texts, PyTorch's
//! default where one is missing, or an error that names it.

use crate::format_error;
use monoglot_tensor::{DType, Result};
use serde_json::{Map, Value};

pub(crate) struct Attrs<'a> {
    pub(crate) op: &'a str,
    pub(crate) map: &'a Map<String, Value>,
}

impl Attrs<'_> {
    /// The attribute, unless it is missing or null.
    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        self.map.get(name).filter(|v| !v.is_null())
    }

    fn typed<T>(&self, name: &str, read: impl Fn(&Value) -> Option<T>) -> Result<Option<T>> {
        match self.get(name) {
            None => Ok(None),
            Some(v) => match read(v) {
                Some(t) => Ok(Some(t)),
                None => Err(format_error(self.op, format!("attribute {name} is {v}"))),
            },
        }
    }

    fn needed<T>(&self, name: &str, v: Option<T>) -> Result<T> {
        v.ok_or_else(|| format_error(self.op, format!("attribute {name} is missing")))
    }

    pub(crate) fn maybe_int(&self, name: &str) -> Result<Option<i64>> {
        self.typed(name, as_int)
    }

    pub(crate) fn int(&self, name: &str) -> Result<i64> {
        self.needed(name, self.maybe_int(name)?)
    }

    pub(crate) fn int_or(&self, name: &str, default: i64) -> Result<i64> {
        Ok(self.maybe_int(name)?.unwrap_or(default))
    }

    pub(crate) fn maybe_float(&self, name: &str) -> Result<Option<f64>> {
        self.typed(name, |v| v.as_f64().or_else(|| v.as_str()?.parse().ok()))
    }

    pub(crate) fn float(&self, name: &str) -> Result<f64> {
        self.needed(name, self.maybe_float(name)?)
    }

    pub(crate) fn float_or(&self, name: &str, default: f64) -> Result<f64> {
        Ok(self.maybe_float(name)?.unwrap_or(default))
    }

    pub(crate) fn bool_or(&self, name: &str, default: bool) -> Result<bool> {
        Ok(self.typed(name, Value::as_bool)?.unwrap_or(default))
    }

    pub(crate) fn text_or<'b>(&'b self, name: &str, default: &'b str) -> Result<&'b str> {
        match self.get(name) {
            None => Ok(default),
            Some(v) => v
                .as_str()
                .ok_or_else(|| format_error(self.op, format!("attribute {name} is {v}"))),
        }
    }

    /// A list of integers; one integer is a list of one.
    pub(crate) fn maybe_ints(&self, name: &str) -> Result<Option<Vec<i64>>> {
        self.typed(name, |v| match v {
            Value::Array(a) => a.iter().map(as_int).collect(),
            v => as_int(v).map(|i| vec![i]),
        })
    }

    pub(crate) fn ints(&self, name: &str) -> Result<Vec<i64>> {
        self.needed(name, self.maybe_ints(name)?)
    }

    pub(crate) fn ints_or(&self, name: &str, default: &[i64]) -> Result<Vec<i64>> {
        Ok(self.maybe_ints(name)?.unwrap_or_else(|| default.to_vec()))
    }

    pub(crate) fn list(&self, name: &str) -> Result<Vec<Value>> {
        self.needed(name, self.typed(name, |v| v.as_array().cloned())?)
    }

    pub(crate) fn dtype(&self, name: &str) -> Result<Option<DType>> {
        self.typed(name, |v| dtype_named(v.as_str()?))
    }
}

fn as_int(v: &Value) -> Option<i64> {
    v.as_i64()
        .or_else(|| v.as_f64().filter(|f| f.fract() == 0.0).map(|f| f as i64))
}

fn dtype_named(name: &str) -> Option<DType> {
    Some(match name {
        "bool" => DType::Bool,
        "uint8" => DType::U8,
        "uint16" => DType::U16,
        "uint32" => DType::U32,
        "uint64" => DType::U64,
        "int8" => DType::I8,
        "int16" => DType::I16,
        "int32" => DType::I32,
        "int64" => DType::I64,
        "float16" => DType::F16,
        "bfloat16" => DType::BF16,
        "float32" => DType::F32,
        "float64" => DType::F64,
        "float8_e4m3fn" => DType::F8E4M3,
        "float8_e5m2" => DType::F8E5M2,
        _ => return None,
    })
}
