//! Printing as NumPy does. Flows in: a tensor, of which what is shown is computed; out: nested brackets
//! with aligned numbers, `...` in the middle of long axes; or the error that it carries. A dtype that
//! NumPy does not have is printed as f16 is, with digits of its own.

use crate::create::scalar;
use crate::tensor::Tensor;
use monoglot_uop::{DType, Result, Scalar};
use std::fmt;

/// More elements than this are summarized, to so many at each edge of an axis.
const WHOLE: usize = 1000;
const EDGE: usize = 3;
/// Columns of a line.
const WIDTH: usize = 75;

impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let read = self.shape().and_then(|s| {
            let dtype = self.dtype()?;
            Ok(array(&s, dtype, &shown(self, &s, dtype)?))
        });
        match read {
            Ok(text) => f.write_str(&text),
            Err(e) => write!(f, "{e}"),
        }
    }
}

/// Whether the middle of an axis of n is left out, where there are so many elements in all.
fn gap(total: usize, n: usize) -> bool {
    total > WHOLE && n > 2 * EDGE
}

/// The elements that are shown, row-major: only these are computed and read.
fn shown(t: &Tensor, shape: &[usize], dtype: DType) -> Result<Vec<Scalar>> {
    let total: usize = shape.iter().product();
    let values = |bytes: &[u8]| -> Vec<Scalar> {
        let parts = bytes.chunks_exact(dtype.bytes());
        parts.map(|b| scalar(b, dtype)).collect()
    };
    if !shape.iter().any(|&n| gap(total, n)) {
        return Ok(values(&t.to_bytes()?));
    }
    // The ends of a varying length would be a program of their own for each length.
    let known = if t.dims()?.ints().is_some() {
        t.known()?
    } else {
        Some(t.value()?)
    };
    if let Some(value) = known {
        let mut bytes = Vec::new();
        for (at, count) in runs(shape) {
            let start = bytes.len();
            bytes.resize(start + count * dtype.bytes(), 0);
            value.read(at * dtype.bytes(), &mut bytes[start..])?;
        }
        return Ok(values(&bytes));
    }
    let mut edges = t.clone();
    for (axis, &n) in shape.iter().enumerate().filter(|(_, n)| gap(total, **n)) {
        let edge = |from: usize| edges.narrow(axis as i64, from as i64, EDGE as i64);
        edges = Tensor::cat(&[&edge(0), &edge(n - EDGE)], axis as i64);
    }
    Ok(values(&edges.to_bytes()?))
}

/// Where the shown elements of a summarized array lie: the first of each run, and how many it has.
fn runs(shape: &[usize]) -> Vec<(usize, usize)> {
    let total: usize = shape.iter().product();
    let mut runs = vec![(0, 1)];
    for &n in shape {
        let parts = if gap(total, n) {
            vec![(0, EDGE), (n - EDGE, EDGE)]
        } else {
            vec![(0, n)]
        };
        let within = |(at, count): (usize, usize)| {
            let rows = (at..at + count).map(move |row| row * n);
            let parts = &parts;
            rows.flat_map(move |row| parts.iter().map(move |&(from, count)| (row + from, count)))
        };
        runs = runs.into_iter().flat_map(within).collect();
    }
    runs
}

/// An array as text, of the elements of it that are shown.
fn array(shape: &[usize], dtype: DType, shown: &[Scalar]) -> String {
    let total: usize = shape.iter().product();
    if total == 0 {
        return "[]".into();
    }
    let gap = |n: usize| gap(total, n);
    let mut texts = aligned(shown, dtype, shape.is_empty());
    // From the innermost axis outward: so many neighbours become one text.
    for (axis, &n) in shape.iter().enumerate().rev() {
        let inner = shape.len() - 1 - axis;
        let separator = format!("{}{}", "\n".repeat(inner), " ".repeat(axis + 1));
        let close = |parts: &[String]| {
            let mut parts = parts.to_vec();
            if gap(n) {
                parts.insert(EDGE, "...".into());
            }
            let text = if inner == 0 {
                wrapped(&parts, axis + 1)
            } else {
                parts.join(&separator)
            };
            format!("[{text}]")
        };
        texts = texts
            .chunks(if gap(n) { 2 * EDGE } else { n })
            .map(close)
            .collect();
    }
    texts.concat()
}

/// The innermost axis, wrapped at the width of a line, which has room for the brackets of all axes.
fn wrapped(parts: &[String], axes: usize) -> String {
    let mut out = parts[0].clone();
    let mut column = axes + parts[0].len();
    for text in &parts[1..] {
        column += text.len() + 1;
        if column > WIDTH - axes.min(WIDTH) {
            out.truncate(out.trim_end().len());
            out.push_str(&format!("\n{}", " ".repeat(axes)));
            column = axes + text.len();
        } else {
            out.push(' ');
        }
        out.push_str(text);
    }
    out
}

/// The elements as texts of one width.
fn aligned(values: &[Scalar], dtype: DType, alone: bool) -> Vec<String> {
    let texts: Vec<String> = if dtype.is_float() {
        let values: Vec<f64> = values.iter().map(|v| v.to_f64()).collect();
        floats(&values, dtype, alone)
    } else {
        values.iter().map(|v| whole(*v)).collect()
    };
    // NumPy leaves room for False even where all are True.
    let least = if dtype == DType::Bool && !alone { 5 } else { 0 };
    let width = texts.iter().map(String::len).fold(least, usize::max);
    texts.into_iter().map(|t| format!("{t:>width$}")).collect()
}

fn whole(v: Scalar) -> String {
    match v {
        Scalar::Bool(true) => "True".into(),
        Scalar::Bool(false) => "False".into(),
        v => v.to_i128().to_string(),
    }
}

/// As many digits as tell the value from its neighbours in its dtype, at most 8 after the point unless
/// it is alone, points under each other; with exponents where the magnitudes are far apart or far from 1.
fn floats(values: &[f64], dtype: DType, alone: bool) -> Vec<String> {
    let own = |v: f64| Scalar::Float(v).cast(dtype).to_f64();
    let finite: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    let sizes = finite.iter().map(|v| v.abs()).filter(|&v| v > 0.0);
    let low = sizes.clone().fold(f64::INFINITY, f64::min);
    let high = sizes.fold(0.0, f64::max);
    let large = match dtype {
        DType::F64 if alone => 1e16,
        DType::F64 => 1e8,
        DType::F32 => 1e6,
        _ => 1e3,
    };
    let apart = if alone {
        low < 1e-4
    } else {
        low < own(1e-4) || own(high / low) > 1e3
    };
    let far = high >= large || apart;
    let text = |v: f64, places: usize| {
        if far {
            format!("{v:.places$e}")
        } else {
            format!("{v:.places$}")
        }
    };
    // A number alone is written `2.0` and `1e-07`, one among others `2.` and `1.e-07`.
    let (least, most, point) = if alone {
        (usize::from(!far), 32, "")
    } else {
        (0, 8, ".")
    };
    let places = |v: f64| {
        let value = |places: usize| text(v, places).parse().unwrap_or(f64::NAN);
        let last = value(most);
        (least..most)
            .find(|&k| value(k) == last || own(value(k)) == v)
            .unwrap_or(most)
    };
    let all = finite.iter().map(|&v| places(v)).max().unwrap_or(0);
    let exponent = |v: f64| text(v, all).rsplit(['e', '-']).next().map_or(0, str::len);
    let digits = exponent(low).max(exponent(high)).max(2);
    let one = |v: f64| -> String {
        if !v.is_finite() {
            return v.to_string().to_lowercase();
        }
        let places = if far { all } else { places(v) };
        let text = text(v, places);
        let point = if places == 0 { point } else { "" };
        match text.split_once('e') {
            Some((m, e)) => {
                let (sign, e) = e.strip_prefix('-').map_or(('+', e), |e| ('-', e));
                format!("{m}{point}e{sign}{e:0>digits$}")
            }
            None => text + point + &" ".repeat(all - places),
        }
    };
    values.iter().map(|&v| one(v)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // What is wanted here is what NumPy 2.4 prints.
    fn check_of(dtype: DType, shape: &[usize], values: &[f64], want: &str) {
        let own = |&v: &f64| Scalar::Float(v).cast(dtype);
        let all: Vec<Scalar> = values.iter().map(own).collect();
        let runs = runs(shape).into_iter();
        let shown: Vec<Scalar> = runs.flat_map(|(at, n)| all[at..at + n].to_vec()).collect();
        assert_eq!(array(shape, dtype, &shown), want);
    }

    fn check(shape: &[usize], values: &[f64], want: &str) {
        check_of(DType::F32, shape, values, want);
    }

    fn counted(n: usize) -> Vec<f64> {
        (0..n).map(|v| v as f64).collect()
    }

    #[test]
    fn prints_as_numpy() {
        check(&[3], &[1.0, 2.0, 3.0], "[1. 2. 3.]");
        check(
            &[2, 2],
            &[1.0, -2.5, 10.25, 0.1],
            "[[ 1.   -2.5 ]\n [10.25  0.1 ]]",
        );
        check(
            &[3],
            &[f64::NAN, 1.5, f64::NEG_INFINITY],
            "[ nan  1.5 -inf]",
        );
        check(&[2], &[f64::NAN, f64::NEG_INFINITY], "[ nan -inf]");
        check(
            &[2, 1, 2],
            &[1.0, 2.0, 3.0, 4.0],
            "[[[1. 2.]]\n\n [[3. 4.]]]",
        );
        check(&[0, 3], &[], "[]");
        check(&[2], &[-0.0, 0.5], "[-0.   0.5]");
    }

    #[test]
    fn digits_are_those_of_the_dtype() {
        check(&[2], &[8.0 / 7.0, 1.0 / 7.0], "[1.1428572  0.14285715]");
        check(&[2], &[0.123456789, 1.0], "[0.12345679 1.        ]");
        check_of(DType::F64, &[1], &[0.1 + 0.2], "[0.3]");
        check_of(
            DType::F64,
            &[2],
            &[16777217.0, 1e6],
            "[16777217.  1000000.]",
        );
        check_of(DType::F16, &[2], &[0.1, 1.0 / 3.0], "[0.1    0.3333]");
        check_of(DType::BF16, &[2], &[0.1, 1.0 / 3.0], "[0.1   0.334]");
    }

    #[test]
    fn magnitudes_far_apart_have_exponents() {
        check(&[2], &[1e-10, 1.0], "[1.e-10 1.e+00]");
        check(&[2], &[67108872.0, 1.0], "[6.710887e+07 1.000000e+00]");
        check(&[1], &[1e-4], "[0.0001]");
        check(&[2], &[1.1, 1e9], "[1.1e+00 1.0e+09]");
        check(&[2], &[999999.0, 1e6], "[9.99999e+05 1.00000e+06]");
        let mixed = [f64::NAN, f64::NEG_INFINITY, 1e-5, 2.5];
        check(&[2, 2], &mixed, "[[    nan    -inf]\n [1.0e-05 2.5e+00]]");
        check_of(DType::F64, &[2], &[1e100, -1e-5], "[ 1.e+100 -1.e-005]");
        check_of(DType::F16, &[2], &[999.0, 1000.0], "[9.99e+02 1.00e+03]");
    }

    #[test]
    fn a_number_alone_has_all_its_digits() {
        check(&[], &[2.5], "2.5");
        check(&[], &[1e-7], "1e-07");
        check(&[], &[1e-4], "1e-04");
        check(&[], &[100.0], "100.0");
        check(&[], &[1.0 / 3.0], "0.33333334");
        check(&[], &[1e6], "1e+06");
        check(&[], &[f64::NAN], "nan");
        check(&[], &[-0.0], "-0.0");
        check_of(DType::F64, &[], &[0.1 + 0.2], "0.30000000000000004");
        check_of(DType::F64, &[], &[123456789.0], "123456789.0");
        check_of(DType::F64, &[], &[1e16], "1e+16");
        check_of(DType::F16, &[], &[0.1], "0.1");
        check_of(DType::I32, &[], &[7.0], "7");
        check_of(DType::Bool, &[], &[1.0], "True");
    }

    #[test]
    fn bools_and_integers() {
        check_of(DType::Bool, &[2], &[1.0, 1.0], "[ True  True]");
        check_of(DType::Bool, &[1, 2], &[1.0, 0.0], "[[ True False]]");
        check_of(DType::I32, &[2], &[-1.0, 100.0], "[ -1 100]");
    }

    #[test]
    fn long_rows_are_wrapped() {
        let want = "[ 0  1  2  3  4  5  6  7  8  9 10 11 12 13 14 15 16 17 18 19 20 21 22 23
 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47
 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64 65 66 67 68 69 70 71
 72 73 74 75 76 77 78 79 80 81 82 83 84 85 86 87 88 89 90 91 92 93 94 95
 96 97 98 99]";
        check_of(DType::I32, &[100], &counted(100), want);
        let want = "[[[ 0  1  2  3  4  5  6  7  8  9 10 11 12 13 14 15 16 17 18 19 20 21 22
   23 24 25 26 27 28 29]
  [30 31 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52
   53 54 55 56 57 58 59]]]";
        check_of(DType::I32, &[1, 2, 30], &counted(60), want);
        let want = "[0.   0.25 0.5  0.75 1.   1.25 1.5  1.75 2.   2.25 2.5  2.75 3.   3.25
 3.5  3.75]";
        check(
            &[16],
            &counted(16).iter().map(|v| v / 4.0).collect::<Vec<_>>(),
            want,
        );
    }

    #[test]
    fn many_are_summarized() {
        let want = "[0.000e+00 1.000e+00 2.000e+00 ... 1.197e+03 1.198e+03 1.199e+03]";
        check(&[1200], &counted(1200), want);
        let rows = "[0 1 2 ... 7 8 9]\n [0 1 2 ... 7 8 9]\n [0 1 2 ... 7 8 9]";
        let digits: Vec<f64> = (0..2000).map(|v| f64::from(v % 10)).collect();
        check_of(
            DType::I32,
            &[100, 20],
            &digits,
            &format!("[{rows}\n ...\n {rows}]"),
        );
        let want = "[[[   0]\n  [   1]\n  [   2]\n  ...\n  [ 998]\n  [ 999]\n  [1000]]]";
        check_of(DType::I32, &[1, 1001, 1], &counted(1001), want);
    }
}
