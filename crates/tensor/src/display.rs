//! Printing as NumPy does. Flows in: a tensor, which is computed; out: nested brackets with aligned
//! numbers, `...` in the middle of long axes; or the error that it carries.

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
    let w = dtype.bytes();
    let at = |i: usize| {
        let mut word = [0u8; 8];
        word[..w].copy_from_slice(&bytes[i * w..(i + 1) * w]);
        Scalar::from_bits(u64::from_le_bytes(word), dtype)
    };
    let total: usize = shape.iter().product();
    if total == 0 && !shape.is_empty() {
        return "[]".into();
    }
    let cut = total > WHOLE;
    // Positions along an axis; None is the gap.
    let along = |n: usize| -> Vec<Option<usize>> {
        match cut && n > 2 * EDGE {
            true => (0..EDGE).map(Some).chain([None]).chain((n - EDGE..n).map(Some)).collect(),
            false => (0..n).map(Some).collect(),
        }
    };
    let axes: Vec<Vec<Option<usize>>> = shape.iter().map(|&n| along(n)).collect();
    let mut shown = vec![0usize];
    for (axis, places) in axes.iter().enumerate() {
        let next = places.iter().flatten();
        shown = shown.iter().flat_map(|s| next.clone().map(move |p| s * shape[axis] + p)).collect();
    }
    let texts = aligned(&shown.iter().map(|&i| at(i)).collect::<Vec<_>>(), dtype, shape.is_empty());
    let mut out = String::new();
    let mut next = texts.iter();
    layout(&axes, &mut next, &mut out);
    out
}

/// Brackets around every axis, innermost lines wrapped.
fn layout<'a>(axes: &[Vec<Option<usize>>], next: &mut impl Iterator<Item = &'a String>, out: &mut String) {
    let rank = axes.len();
    let Some((last, outer)) = axes.split_last() else {
        out.push_str(next.next().map_or("", |s| s));
        return;
    };
    let mut counter = vec![0usize; outer.len()];
    let mut open = 0;
    loop {
        // A gap in an outer axis stands for everything below it.
        let gap = (0..outer.len()).find(|&a| outer[a].get(counter[a]) == Some(&None));
        let depth = gap.map_or(rank, |a| a + 1);
        out.push_str(&"[".repeat(depth - open));
        let mut moved = match gap {
            Some(a) => {
                out.push_str("...");
                a + 1
            }
            None => {
                line(last, next, rank, out);
                outer.len()
            }
        };
        // The next place: close every axis that ends here.
        loop {
            if moved == 0 {
                out.push_str(&"]".repeat(depth));
                return;
            }
            counter[moved - 1] += 1;
            counter[moved..].fill(0);
            if counter[moved - 1] < outer[moved - 1].len() {
                break;
            }
            moved -= 1;
        }
        out.push_str(&"]".repeat(depth - moved));
        open = moved;
        out.push_str(&"\n".repeat(rank - open));
        out.push_str(&" ".repeat(open));
    }
}

/// The innermost axis, wrapped at the width of a line.
fn line<'a>(
    last: &[Option<usize>],
    next: &mut impl Iterator<Item = &'a String>,
    rank: usize,
    out: &mut String,
) {
    let mut column = rank;
    for (i, p) in last.iter().enumerate() {
        let text = if p.is_some() { next.next().map_or("", |s| s) } else { "..." };
        if i > 0 && column + text.len() + 1 > WIDTH {
            out.push('\n');
            out.push_str(&" ".repeat(rank));
            column = rank;
        } else if i > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(text);
        column += text.len();
    }
}

/// The elements as texts of one width.
fn aligned(values: &[Scalar], dtype: DType, alone: bool) -> Vec<String> {
    let texts: Vec<String> = match dtype.is_float() {
        true => floats(&values.iter().map(|v| v.to_f64()).collect::<Vec<_>>(), dtype),
        false => values
            .iter()
            .map(|v| match v {
                Scalar::Bool(true) => "True".to_string(),
                Scalar::Bool(false) => "False".to_string(),
                v => v.to_i128().to_string(),
            })
            .collect(),
    };
    if alone {
        return texts.into_iter().map(|t| t.trim().to_string()).collect();
    }
    let width = texts.iter().map(|t| t.len()).max().unwrap_or(0);
    texts.into_iter().map(|t| format!("{t:>width$}")).collect()
}

/// Digits as short as they identify the value, at most 8 after the point, points under each other;
/// with exponents where the magnitudes are far apart or far from 1.
fn floats(values: &[f64], dtype: DType) -> Vec<String> {
    let finite: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    let sizes = finite.iter().map(|v| v.abs()).filter(|&v| v > 0.0);
    let (low, high) = (sizes.clone().fold(f64::INFINITY, f64::min), sizes.fold(0.0, f64::max));
    let far = high >= 1e8 || low < 1e-4 || high / low > 1e3 && low.is_finite();
    let far = far && high > 0.0;
    let special = |v: f64| match v {
        v if v.is_nan() => "nan".to_string(),
        v if v > 0.0 => "inf".to_string(),
        _ => "-inf".to_string(),
    };
    let shortest = |v: f64, exponent: bool| match (dtype, exponent) {
        (DType::F64, true) => format!("{v:e}"),
        (DType::F64, false) => format!("{v}"),
        (DType::F16, true) => format!("{:e}", half::f16::from_f64(v)),
        (DType::F16, false) => format!("{}", half::f16::from_f64(v)),
        (_, true) => format!("{:e}", v as f32),
        (_, false) => format!("{}", v as f32),
    };
    let digits = |text: &str| {
        let mantissa = text.split('e').next().unwrap_or(text);
        mantissa.split_once('.').map_or(0, |(_, d)| d.len())
    };
    let places = finite.iter().map(|&v| digits(&shortest(v, far))).max().unwrap_or(0).min(8);
    let one = |v: f64| -> String {
        if !v.is_finite() {
            return special(v);
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
