//! The .npy format: a magic word, a header that is a literal of Python, and elements in memory's order. Flows
//! in: bytes, or an array; flows out: the other, or what is wrong. Invariant: an array that is given has as many
//! bytes as its shape says.

use super::array::Array;
use monoglot::DType;

const MAGIC: &[u8] = b"\x93NUMPY";

/// What the format calls dtypes, little-endian.
const NAMES: [(DType, &str); 12] = [
    (DType::Bool, "|b1"),
    (DType::I8, "|i1"),
    (DType::U8, "|u1"),
    (DType::I16, "<i2"),
    (DType::U16, "<u2"),
    (DType::I32, "<i4"),
    (DType::U32, "<u4"),
    (DType::I64, "<i8"),
    (DType::U64, "<u8"),
    (DType::F16, "<f2"),
    (DType::F32, "<f4"),
    (DType::F64, "<f8"),
];

/// The array of a file's bytes.
pub(super) fn parse(bytes: &[u8], name: &str) -> Result<Array, String> {
    let short = || "is no .npy file, or is cut off".to_string();
    let rest = bytes.strip_prefix(MAGIC).ok_or_else(short)?;
    let (&[major, _], rest) = rest.split_first_chunk::<2>().ok_or_else(short)?;
    let (length, rest) = match major {
        1 => {
            let (word, rest) = rest.split_first_chunk::<2>().ok_or_else(short)?;
            (usize::from(u16::from_le_bytes(*word)), rest)
        }
        2 | 3 => {
            let (word, rest) = rest.split_first_chunk::<4>().ok_or_else(short)?;
            (u32::from_le_bytes(*word) as usize, rest)
        }
        _ => return Err(format!("is .npy of version {major}; 1 to 3 are read")),
    };
    let (header, data) = rest.split_at_checked(length).ok_or_else(short)?;
    let header = std::str::from_utf8(header).map_err(|_| short())?;
    let unread = |key: &str| {
        format!(
            "has a header whose {key:?} is not read here: {}",
            header.trim()
        )
    };
    let kind = value(header, "descr").and_then(quoted);
    let kind = kind.ok_or_else(|| unread("descr"))?;
    let known = NAMES.iter().find(|(_, n)| *n == kind);
    let (dtype, _) = known.ok_or_else(|| match kind.starts_with('>') {
        true => format!(
            "is of {kind:?}, big-endian; save it with array.astype('<{}')",
            &kind[1..]
        ),
        false => format!("is of {kind:?}, which is no dtype here"),
    })?;
    match value(header, "fortran_order") {
        Some(v) if v.starts_with("False") => {}
        Some(v) if v.starts_with("True") => {
            let message = "is in the order of columns; save it with numpy.ascontiguousarray";
            return Err(message.into());
        }
        _ => return Err(unread("fortran_order")),
    }
    let shape = value(header, "shape").and_then(|v| v.strip_prefix('('));
    let shape = shape.and_then(|v| v.split_once(')'));
    let (shape, _) = shape.ok_or_else(|| unread("shape"))?;
    let sizes = shape.split(',').map(str::trim).filter(|n| !n.is_empty());
    let shape: Result<Vec<usize>, _> = sizes.map(str::parse).collect();
    let shape = shape.map_err(|_| unread("shape"))?;
    let wanted = shape
        .iter()
        .try_fold(dtype.bytes(), |n, &m| n.checked_mul(m));
    if wanted != Some(data.len()) {
        let has = data.len();
        return Err(format!("has {has} bytes of data for {dtype}{shape:?}"));
    }
    Ok(Array {
        name: name.into(),
        dtype: *dtype,
        shape,
        bytes: data.to_vec(),
    })
}

/// The bytes of a file for an array.
pub(super) fn text(array: &Array) -> Result<Vec<u8>, String> {
    let known = NAMES.iter().find(|(d, _)| *d == array.dtype);
    let (_, kind) = known.ok_or_else(|| format!("a .npy has no {}", array.dtype))?;
    let sizes: String = array.shape.iter().map(|n| format!("{n}, ")).collect();
    let sizes = sizes.trim_end();
    let mut header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({sizes}), }}");
    // Data begins at a multiple of 64; the header ends with a line's end.
    while !(MAGIC.len() + 4 + header.len() + 1).is_multiple_of(64) {
        header.push(' ');
    }
    header.push('\n');
    let length = u16::try_from(header.len()).map_err(|_| "has too many axes".to_string())?;
    let mut out = MAGIC.to_vec();
    out.extend([1, 0]);
    out.extend(length.to_le_bytes());
    out.extend(header.as_bytes());
    out.extend(&array.bytes);
    Ok(out)
}

/// What follows a key of the header.
fn value<'a>(header: &'a str, key: &str) -> Option<&'a str> {
    let of = |quote: char| header.split_once(&format!("{quote}{key}{quote}"));
    let (_, rest) = of('\'').or_else(|| of('"'))?;
    Some(rest.trim_start().strip_prefix(':')?.trim_start())
}

/// A string in quotes of either kind.
fn quoted(text: &str) -> Option<&str> {
    let quote = text.chars().next().filter(|c| ['\'', '"'].contains(c))?;
    let (inner, _) = text[1..].split_once(quote)?;
    Some(inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_come_back() {
        for shape in [vec![], vec![3], vec![2, 5], vec![0, 7]] {
            let length: usize = shape.iter().product();
            let array = Array {
                name: "x".into(),
                dtype: DType::F32,
                shape,
                bytes: vec![7; 4 * length],
            };
            let bytes = text(&array).expect("f32 has a name");
            assert_eq!((bytes.len() - 4 * length) % 64, 0);
            let back = parse(&bytes, "x").expect("what was written");
            assert_eq!(back.shape, array.shape);
            assert_eq!(back.bytes, array.bytes);
            for cut in 0..bytes.len() {
                assert!(parse(&bytes[..cut], "x").is_err());
            }
        }
    }

    #[test]
    fn what_is_no_array_is_told() {
        let file = |header: &str| {
            let mut out = MAGIC.to_vec();
            out.extend([1, 0]);
            out.extend((header.len() as u16).to_le_bytes());
            out.extend(header.as_bytes());
            parse(&out, "x").err().expect("it is none")
        };
        assert!(file("{'descr': '<c8', 'fortran_order': False, 'shape': ()}").contains("<c8"));
        assert!(file("{'descr': '<f4', 'fortran_order': True, 'shape': ()}").contains("columns"));
        let huge = "{'descr': '<f4', 'fortran_order': False, 'shape': (9999999999, 9999999999)}";
        assert!(file(huge).contains("0 bytes"));
        assert!(file("{}").contains("\"descr\""));
        assert!(file("{'descr': '<f4', 'shape': ()}").contains("\"fortran_order\""));
        let long = "{'descr': '<f4', 'fortran_order': False, 'shape': (4L,)}";
        assert!(file(long).contains("(4L,)"));
        let big = "{'descr': '>f4', 'fortran_order': False, 'shape': ()}";
        assert!(file(big).contains("astype('<f4')"));
        let double = "{\"descr\": \"<f4\", \"fortran_order\": False, \"shape\": ()}";
        assert!(file(double).contains("0 bytes"));
    }
}
