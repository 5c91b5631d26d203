//! Arrays in files: .npy with one, .safetensors with any number by name. Flows in: a path, or arrays; flows
//! out: the other, or an error that names the file.

use super::array::Array;
use super::npy;
use crate::Failure;
use monoglot::DType;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use std::path::Path;

/// What dtypes are called in .safetensors.
const DTYPES: [(DType, Dtype); 15] = [
    (DType::Bool, Dtype::BOOL),
    (DType::I8, Dtype::I8),
    (DType::I16, Dtype::I16),
    (DType::I32, Dtype::I32),
    (DType::I64, Dtype::I64),
    (DType::U8, Dtype::U8),
    (DType::U16, Dtype::U16),
    (DType::U32, Dtype::U32),
    (DType::U64, Dtype::U64),
    (DType::F8E4M3, Dtype::F8_E4M3),
    (DType::F8E5M2, Dtype::F8_E5M2),
    (DType::F16, Dtype::F16),
    (DType::BF16, Dtype::BF16),
    (DType::F32, Dtype::F32),
    (DType::F64, Dtype::F64),
];

/// The array of a file: of several the one of that name, or of the one behind a #.
pub(super) fn read(path: &str, name: &str) -> Result<Array, Failure> {
    let asked = path.rsplit_once(".safetensors#");
    let path = asked.map_or(path, |(stem, _)| &path[..stem.len() + ".safetensors".len()]);
    let asked = asked.map(|(_, name)| name);
    let path = Path::new(path);
    let told = |message: String| Failure::Told(format!("{}: {message}", path.display()));
    let bytes = std::fs::read(path).map_err(|e| told(e.to_string()))?;
    match extension(path) {
        "npy" => npy::parse(&bytes, name).map_err(told),
        "safetensors" => named(&bytes, name, asked).map_err(told),
        _ => Err(told(
            "is neither .npy nor .safetensors, and no number".into(),
        )),
    }
}

/// Write arrays to a file.
pub(super) fn write(path: &Path, all: &[Array]) -> Result<(), Failure> {
    let told = |message: String| Failure::Told(format!("{}: {message}", path.display()));
    let bytes = match (extension(path), all) {
        ("npy", [one]) => npy::text(one).map_err(told)?,
        ("npy", _) => {
            let message = format!(
                "a .npy holds one array, and there are {}; name it .safetensors",
                all.len()
            );
            return Err(told(message));
        }
        ("safetensors", _) => packed(all).map_err(told)?,
        _ => return Err(told("is neither .npy nor .safetensors".into())),
    };
    std::fs::write(path, bytes).map_err(|e| told(e.to_string()))
}

fn extension(path: &Path) -> &str {
    let extension = path.extension().and_then(|e| e.to_str());
    extension.unwrap_or_default()
}

/// The array that is asked for by its name in the file, or the one of that name, or the only one.
fn named(bytes: &[u8], name: &str, asked: Option<&str>) -> Result<Array, String> {
    let wanted = asked.unwrap_or(name);
    let file = SafeTensors::deserialize(bytes).map_err(|e| e.to_string())?;
    let all = file.tensors();
    let found = all.iter().find(|(n, _)| n == wanted);
    let (_, view) = match (found, &all[..]) {
        (Some(one), _) => one,
        (None, [one]) if asked.is_none() => one,
        (None, []) => return Err("has no array".into()),
        (None, _) => {
            let mut names: Vec<&str> = all.iter().map(|(n, _)| &**n).collect();
            names.sort_unstable();
            return Err(format!(
                "has no {wanted:?}; it has {}, of which one is named by FILE#NAME",
                names.join(", ")
            ));
        }
    };
    let known = DTYPES.iter().find(|(_, d)| *d == view.dtype());
    let (dtype, _) = known.ok_or_else(|| format!("{wanted:?} is of {:?}", view.dtype()))?;
    Ok(Array {
        name: wanted.into(),
        dtype: *dtype,
        shape: view.shape().to_vec(),
        bytes: view.data().to_vec(),
    })
}

fn packed(all: &[Array]) -> Result<Vec<u8>, String> {
    let mut views = Vec::with_capacity(all.len());
    for array in all {
        let known = DTYPES.iter().find(|(d, _)| *d == array.dtype);
        let (_, dtype) = known.ok_or_else(|| format!("no array is of {}", array.dtype))?;
        let view = TensorView::new(*dtype, array.shape.clone(), &array.bytes);
        views.push((array.name.clone(), view.map_err(|e| e.to_string())?));
    }
    safetensors::serialize(views, None).map_err(|e| e.to_string())
}
