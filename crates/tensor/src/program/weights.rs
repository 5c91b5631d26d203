//! Tensors in a file, by name: safetensors, as others read and write them. A word of 8 bytes says how long the
//! header is, an object of JSON that says of each tensor its dtype, shape and place; then come their bytes,
//! row-major, without gaps. Flows in: tensors and a folder that is written, or one that is read; flows out: the
//! file, or the tensors. Invariant: nothing in a header is believed before it is checked.

use crate::tensor::Tensor;
use monoglot_engine as engine;
use monoglot_engine::{Folder, NewFolder, SavedSum};
use monoglot_uop::{DType, Device, Error, Result, Shape, UOp};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The file.
pub(super) const FILE: &str = "weights.safetensors";

/// Bytes of a header, at most, as others have it.
const MOST_HEADER: u64 = 100_000_000;

/// Bytes that are written at a time.
const PIECE: usize = 1 << 20;

/// What dtypes are called in such files.
const NAMES: [(DType, &str); 15] = [
    (DType::Bool, "BOOL"),
    (DType::I8, "I8"),
    (DType::I16, "I16"),
    (DType::I32, "I32"),
    (DType::I64, "I64"),
    (DType::U8, "U8"),
    (DType::U16, "U16"),
    (DType::U32, "U32"),
    (DType::U64, "U64"),
    (DType::F8E4M3, "F8_E4M3"),
    (DType::F8E5M2, "F8_E5M2"),
    (DType::F16, "F16"),
    (DType::BF16, "BF16"),
    (DType::F32, "F32"),
    (DType::F64, "F64"),
];

/// What a header says of a tensor.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    dtype: String,
    shape: Vec<i64>,
    data_offsets: [u64; 2],
}

/// Write tensors, which have names that differ.
///
/// # Errors
/// `Io` where the file cannot be written, and those of computing the tensors.
pub(super) fn write(folder: &NewFolder, all: &[(String, UOp)]) -> Result<SavedSum> {
    let mut header: BTreeMap<&str, Entry> = BTreeMap::new();
    let mut values = Vec::with_capacity(all.len());
    let mut at = 0;
    for (name, u) in all {
        let value = engine::value(u)?;
        let shape = u.shape().now();
        let shape = shape.ok_or_else(|| Error::shape("save", format!("{name}: its sizes vary")))?;
        let known = NAMES.iter().find(|(d, _)| *d == u.dtype());
        let (_, dtype) =
            known.ok_or_else(|| Error::dtype("save", format!("{name}: {}", u.dtype())))?;
        let end = at + value.bytes() as u64;
        header.insert(
            name,
            Entry {
                dtype: dtype.to_string(),
                shape,
                data_offsets: [at, end],
            },
        );
        at = end;
        values.push(value);
    }
    let text = serde_json::to_string(&header);
    let mut text = text.map_err(|e| Error::argument("save", e.to_string()))?;
    // Elements of 8 bytes lie at multiples of 8.
    while text.len() % 8 != 0 {
        text.push(' ');
    }
    let sum = folder.write(FILE, |put| {
        put(&(text.len() as u64).to_le_bytes())?;
        put(text.as_bytes())?;
        for value in &values {
            let mut piece = vec![0; value.bytes().min(PIECE)];
            for at in (0..value.bytes()).step_by(PIECE) {
                let part = &mut piece[..PIECE.min(value.bytes() - at)];
                value.read(at, part)?;
                put(part)?;
            }
        }
        Ok(())
    })?;
    Ok(SavedSum::of(&sum))
}

/// Read the tensors of these names, each on its device. The file has those, and no others.
///
/// # Errors
/// `Io` and `Format` where the file is missing, damaged or says what cannot be, and `Memory` where there is not
/// enough.
pub(super) fn read(
    folder: &Folder,
    saved: &SavedSum,
    wanted: &[(&str, Device)],
) -> Result<Vec<UOp>> {
    let wrong = |message: String| folder.wrong(FILE, message);
    let sum = saved.sum();
    let sum = sum.ok_or_else(|| Error::argument("program", "the digest of the weights is none"))?;
    let mut pieces = folder.pieces(FILE, &sum)?;
    let mut length = [0; 8];
    pieces.next(&mut length)?;
    let length = u64::from_le_bytes(length);
    if length > MOST_HEADER.min(pieces.left()) {
        let message = format!("its header would be {length} bytes long");
        return Err(wrong(message));
    }
    let mut header = vec![0; length as usize];
    pieces.next(&mut header)?;
    let entries = entries(&header, pieces.left()).map_err(wrong)?;
    let mut place_of: FxHashMap<&str, usize> = FxHashMap::default();
    for (k, (name, _)) in wanted.iter().enumerate() {
        place_of.insert(name, k);
    }
    let mut out: Vec<Option<UOp>> = vec![None; wanted.len()];
    for (name, dtype, shape) in entries {
        let Some(&k) = place_of.get(&*name) else {
            return Err(wrong(format!("has {name:?}, which the program has not")));
        };
        let device = wanted[k].1;
        let u = engine::upload_pieces(&Shape::of(&shape), dtype, device, &mut |part| {
            pieces.next(part)?;
            match dtype == DType::Bool && part.iter().any(|b| *b > 1) {
                true => Err(wrong(format!(
                    "{name:?} has bools that are neither 0 nor 1"
                ))),
                false => Ok(()),
            }
        })?;
        out[k] = Some(u);
    }
    pieces.finish()?;
    let named = out.into_iter().zip(wanted);
    let there = named.map(|(u, (name, _))| u.ok_or_else(|| wrong(format!("has no {name:?}"))));
    there.collect()
}

/// What a header says, in the order of the bytes, of which there are so many.
fn entries(
    header: &[u8],
    bytes: u64,
) -> std::result::Result<Vec<(String, DType, Vec<i64>)>, String> {
    let all: BTreeMap<String, serde_json::Value> =
        serde_json::from_slice(header).map_err(|e| format!("its header is no JSON: {e}"))?;
    let mut entries: Vec<(String, Entry)> = Vec::with_capacity(all.len());
    for (name, value) in all {
        if name != "__metadata__" {
            let entry = serde_json::from_value(value).map_err(|e| format!("{name:?}: {e}"))?;
            entries.push((name, entry));
        }
    }
    entries.sort_by_key(|(_, e)| e.data_offsets);
    let mut at = 0;
    let mut out = Vec::with_capacity(entries.len());
    for (name, entry) in entries {
        let known = NAMES.iter().find(|(_, n)| *n == entry.dtype);
        let Some(&(dtype, _)) = known else {
            return Err(format!("{name:?} is of {:?}", entry.dtype));
        };
        let axes = entry.shape.len() <= 64 && entry.shape.iter().all(|&n| n >= 0);
        let length = entry.shape.iter().try_fold(1i64, |n, &m| n.checked_mul(m));
        let length = length.filter(|&n| axes && n <= 1 << 59);
        let wanted = length.and_then(|n| (n as u64).checked_mul(dtype.bytes() as u64));
        let [from, to] = entry.data_offsets;
        let has = to.checked_sub(from);
        if from != at || has.is_none() || has != wanted || to > bytes {
            let shape = entry.shape;
            return Err(format!(
                "{name:?}, {dtype}{shape:?}, does not lie at {from}..{to}"
            ));
        }
        at = to;
        out.push((name, dtype, entry.shape));
    }
    match at == bytes {
        true => Ok(out),
        false => Err(format!(
            "it has {bytes} bytes of data, and {at} are of tensors"
        )),
    }
}

/// The expression of a tensor that is saved.
///
/// # Errors
/// The error that it carries.
pub(super) fn expression(name: &str, tensor: &Tensor) -> Result<(String, UOp)> {
    Ok((name.to_string(), tensor.uop()?))
}
