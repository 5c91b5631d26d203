//! The folder's two files as values. Flows in: a path; out: cases and arrays, or a typed error that
//! says what is wrong with them.

use crate::format_error;
use monoglot_tensor::{DType, ErrorKind, Result};
use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::path::Path;

/// An input of a case.
#[derive(Deserialize)]
pub(crate) struct Input {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) grad: bool,
}

/// One op of a case.
#[derive(Deserialize)]
pub(crate) struct Step {
    pub(crate) out: String,
    pub(crate) op: String,
    #[serde(rename = "in")]
    pub(crate) inputs: Vec<String>,
    #[serde(default)]
    pub(crate) attrs: Map<String, Value>,
}

/// A program with expected outputs.
#[derive(Deserialize)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) inputs: Vec<Input>,
    pub(crate) steps: Vec<Step>,
    pub(crate) outputs: Vec<String>,
    pub(crate) rtol: f64,
    pub(crate) atol: f64,
}

impl Case {
    pub(crate) fn ops(&self) -> String {
        self.steps
            .iter()
            .map(|s| s.op.as_str())
            .collect::<Vec<_>>()
            .join(" ")
    }

    pub(crate) fn matches(&self, text: &str) -> bool {
        self.name.contains(text) || self.steps.iter().any(|s| s.op.contains(text))
    }
}

/// A stored array.
#[derive(Clone, Debug)]
pub(crate) struct Array {
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<i64>,
    pub(crate) bytes: Vec<u8>,
}

/// Everything a folder holds.
pub(crate) struct Folder {
    pub(crate) cases: Vec<Case>,
    arrays: HashMap<String, Array>,
}

impl Folder {
    pub(crate) fn read(folder: &Path) -> Result<Folder> {
        let load = |name: &str| {
            let path = folder.join(name);
            std::fs::read(&path).map_err(|e| {
                monoglot_tensor::Error::from(ErrorKind::Io {
                    path: path.display().to_string(),
                    message: e.to_string(),
                })
            })
        };
        // Python writes what JSON has no numbers for; here they are texts.
        let text = ["-Infinity", "Infinity", "NaN"].iter().fold(
            String::from_utf8_lossy(&load("cases.json")?).into_owned(),
            |text, v| text.replace(&format!(": {v}"), &format!(": \"{v}\"")),
        );
        let cases: Vec<Case> =
            serde_json::from_str(&text).map_err(|e| format_error("cases.json", e.to_string()))?;
        let bytes = load("tensors.safetensors")?;
        let wrong =
            |e: safetensors::SafeTensorError| format_error("tensors.safetensors", e.to_string());
        let file = SafeTensors::deserialize(&bytes).map_err(wrong)?;
        let mut arrays = HashMap::new();
        for (name, view) in file.iter() {
            let dtype = dtype_of(view.dtype()).ok_or_else(|| {
                format_error(name, format!("dtype {:?} is not known", view.dtype()))
            })?;
            let shape = view.shape().iter().map(|&n| n as i64).collect();
            arrays.insert(
                name.to_string(),
                Array {
                    dtype,
                    shape,
                    bytes: view.data().to_vec(),
                },
            );
        }
        Ok(Folder { cases, arrays })
    }

    pub(crate) fn array(&self, name: &str) -> Result<&Array> {
        self.arrays
            .get(name)
            .ok_or_else(|| format_error("tensors.safetensors", format!("has no {name:?}")))
    }

    /// The inputs' dtypes and shapes, for messages.
    pub(crate) fn shapes(&self, case: &Case) -> String {
        let one = |i: &Input| match self.arrays.get(&format!("{}:{}", case.name, i.name)) {
            Some(a) => format!("{} {}{:?}", i.name, a.dtype, a.shape),
            None => format!("{} missing", i.name),
        };
        case.inputs.iter().map(one).collect::<Vec<_>>().join(", ")
    }
}

fn dtype_of(d: Dtype) -> Option<DType> {
    Some(match d {
        Dtype::BOOL => DType::Bool,
        Dtype::U8 => DType::U8,
        Dtype::I8 => DType::I8,
        Dtype::I16 => DType::I16,
        Dtype::U16 => DType::U16,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::BF16,
        Dtype::I32 => DType::I32,
        Dtype::U32 => DType::U32,
        Dtype::F32 => DType::F32,
        Dtype::F64 => DType::F64,
        Dtype::I64 => DType::I64,
        Dtype::U64 => DType::U64,
        Dtype::F8_E4M3 => DType::F8E4M3,
        Dtype::F8_E5M2 => DType::F8E5M2,
        _ => return None,
    })
}
