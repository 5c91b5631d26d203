//! Printing as NumPy does. Flows in: a tensor, which is computed; out: nested brackets with aligned
//! numbers, `...` in the middle of long axes; or the error that it carries.

use crate::create::scalar;
use crate::tensor::Tensor;
use monoglot_uop::{DType, Scalar};
use std::fmt;

/// More elements than this are summarized, to so many at each edge of an axis.
const WHOLE: usize = 1000;
const EDGE: usize = 3;
/// Columns of a line.
const WIDTH: usize = 75;

impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let read = self.shape().and_then(|s| Ok((s, self.dtype()?, self.to_bytes()?)));
        match read {
            Ok((shape, dtype, bytes)) => f.write_str(&array(&shape, dtype, &bytes)),
            Err(e) => write!(f, "{e}"),
        }
    }
}

/// An array as text.
fn array(shape: &[usize], dtype: DType, bytes: &[u8]) -> String {
    let total: usize = shape.iter().product();
    if total == 0 {
        return "[]".into();
    }
    let cut = total > WHOLE;
    let gap = |n: usize| cut && n > 2 * EDGE;
    let mut shown = vec![0usize];
    for &n in shape {
        let next = (0..n).filter(|p| !gap(n) || !(EDGE..n - EDGE).contains(p));
        shown = shown.iter().flat_map(|s| next.clone().map(move |p| s * n + p)).collect();
    }
    let w = dtype.bytes();
    let at = |i: usize| scalar(&bytes[i * w..(i + 1) * w], dtype);
    let mut texts = aligned(&shown.iter().map(|&i| at(i)).collect::<Vec<_>>(), dtype, shape.is_empty());
    // From the innermost axis outward: so many neighbours become one text.
    for (axis, &n) in shape.iter().enumerate().rev() {
        let inner = shape.len() - 1 - axis;
        let separator = format!("{}{}", "\n".repeat(inner), " ".repeat(axis + 1));
        let close = |parts: &[String]| {
            let mut parts = parts.to_vec();
            if gap(n) {
                parts.insert(EDGE, "...".into());
            }
            let text = if inner == 0 { wrapped(&parts, axis + 1) } else { parts.join(&separator) };
            format!("[{text}]")
        };
        texts = texts.chunks(if gap(n) { 2 * EDGE } else { n }).map(close).collect();
    }
    texts.concat()
}

/// The innermost axis, wrapped at the width of a line.
fn wrapped(parts: &[String], indent: usize) -> String {
    let (mut out, mut column) = (parts[0].clone(), indent + parts[0].len());
    for text in &parts[1..] {
        column += text.len() + 1;
        if column > WIDTH {
            out.push_str(&format!("\n{}", " ".repeat(indent)));
            column = indent + text.len();
        } else {
            out.push(' ');
        }
        out.push_str(text);
    }
    out
}

/// The elements as texts of one width.
fn aligned(values: &[Scalar], dtype: DType, alone: bool) -> Vec<String> {
    let texts: Vec<String> = match dtype.is_float() {
        true => floats(&values.iter().map(|v| v.to_f64()).collect::<Vec<_>>(), dtype),
        false => values.iter().map(|v| whole(*v)).collect(),
    };
    let width = if alone { 0 } else { texts.iter().map(|t| t.len()).max().unwrap_or(0) };
    let one = |t: String| if alone { t.trim().to_string() } else { format!("{t:>width$}") };
    texts.into_iter().map(one).collect()
}

fn whole(v: Scalar) -> String {
    match v {
        Scalar::Bool(true) => "True".into(),
        Scalar::Bool(false) => "False".into(),
        v => v.to_i128().to_string(),
    }
}

/// Digits as short as they identify the value, at most 8 after the point, points under each other;
/// with exponents where the magnitudes are far apart or far from 1.
fn floats(values: &[f64], dtype: DType) -> Vec<String> {
    let finite: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    let sizes = finite.iter().map(|v| v.abs()).filter(|&v| v > 0.0);
    let (low, high) = (sizes.clone().fold(f64::INFINITY, f64::min), sizes.fold(0.0, f64::max));
    let far = high >= 1e8 || low < 1e-4 || high / low > 1e3 && low.is_finite();
    let far = far && high > 0.0;
    fn shortest(v: impl fmt::Display + fmt::LowerExp, exponent: bool) -> String {
        if exponent { format!("{v:e}") } else { v.to_string() }
    }
    let digits = |v: f64| {
        let text = match dtype {
            DType::F64 => shortest(v, far),
            DType::F16 => shortest(half::f16::from_f64(v), far),
            _ => shortest(v as f32, far),
        };
        let mantissa = text.split('e').next().unwrap_or(&text);
        mantissa.split_once('.').map_or(0, |(_, d)| d.len())
    };
    let places = finite.iter().map(|&v| digits(v)).max().unwrap_or(0).min(8);
    let one = |v: f64| -> String {
        if !v.is_finite() {
            return format!("{v}").to_lowercase();
        }
        if far {
            let text = format!("{v:.places$e}");
            let (m, e) = text.split_once('e').unwrap_or((&text, "0"));
            let e: i32 = e.parse().unwrap_or(0);
            let point = if places == 0 { "." } else { "" };
            return format!("{m}{point}e{}{:02}", if e < 0 { '-' } else { '+' }, e.abs());
        }
        let fixed = format!("{v:.places$}");
        if places == 0 {
            return format!("{fixed}.");
        }
        // Zeros at the end are blanks, so that points stay in line.
        let trimmed = fixed.trim_end_matches('0');
        format!("{trimmed:<w$}", w = fixed.len())
    };
    values.iter().map(|&v| one(v)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(shape: &[usize], values: &[f32], want: &str) {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        assert_eq!(array(shape, DType::F32, &bytes), want);
    }

    #[test]
    fn prints_as_numpy() {
        check(&[], &[2.5], "2.5");
        check(&[3], &[1.0, 2.0, 3.0], "[1. 2. 3.]");
        check(&[2, 2], &[1.0, -2.5, 10.25, 0.1], "[[ 1.   -2.5 ]\n [10.25  0.1 ]]");
        check(&[2], &[1e-10, 1.0], "[1.e-10 1.e+00]");
        check(&[3], &[f32::NAN, 1.5, f32::NEG_INFINITY], "[ nan  1.5 -inf]");
        check(&[2, 1, 2], &[1.0, 2.0, 3.0, 4.0], "[[[1. 2.]]\n\n [[3. 4.]]]");
        check(&[0, 3], &[], "[]");
        let many: Vec<f32> = (0..1200).map(|v| v as f32).collect();
        check(&[1200], &many, "[0.000e+00 1.000e+00 2.000e+00 ... 1.197e+03 1.198e+03 1.199e+03]");
        let ints: Vec<u8> = (0..2000i32).flat_map(|v| (v % 10).to_le_bytes()).collect();
        let want = "[[0 1 2 ... 7 8 9]\n [0 1 2 ... 7 8 9]\n [0 1 2 ... 7 8 9]\n ...\n [0 1 2 ... 7 8 9]\n [0 1 2 ... 7 8 9]\n [0 1 2 ... 7 8 9]]";
        assert_eq!(array(&[100, 20], DType::I32, &ints), want);
    }
}
