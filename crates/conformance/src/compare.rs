//! Comparison of an array with what is expected. Flows in: both and the tolerances; out: nothing, or a
//! sentence with the largest difference and where it is.

use crate::cases::Array;
use monoglot_uop::Scalar;

/// |got − want| ≤ atol + rtol·|want|; NaN equals NaN, infinities match, integers and bools are exact.
pub(crate) fn compare(want: &Array, got: &Array, rtol: f64, atol: f64) -> Result<(), String> {
    if want.dtype != got.dtype || want.shape != got.shape {
        return Err(format!(
            "is {}{:?}, expected {}{:?}",
            got.dtype, got.shape, want.dtype, want.shape
        ));
    }
    let d = want.dtype;
    let w = want.dtype.bytes();
    let at = |a: &Array, i: usize| {
        let mut word = [0u8; 8];
        word[..w].copy_from_slice(&a.bytes[i * w..(i + 1) * w]);
        Scalar::from_bits(u64::from_le_bytes(word), d)
    };
    let n = want.bytes.len() / w;
    let mut worst: Option<(f64, usize)> = None;
    let mut wrong = 0;
    for i in 0..n {
        let a = at(want, i);
        let b = at(got, i);
        let off = match (a, b) {
            (Scalar::Float(a), Scalar::Float(b)) => {
                if a == b
                    || a.is_nan() && b.is_nan()
                    || (a - b).abs() <= atol + rtol * a.abs() && a.is_finite()
                {
                    continue;
                }
                if a.is_finite() && b.is_finite() {
                    (a - b).abs()
                } else {
                    f64::INFINITY
                }
            }
            (a, b) if a == b => continue,
            (a, b) => (a.to_i128() as f64 - b.to_i128() as f64).abs(),
        };
        wrong += 1;
        if worst.is_none_or(|(o, _)| off > o) {
            worst = Some((off, i));
        }
    }
    match worst {
        None => Ok(()),
        Some((off, i)) => Err(format!(
            "{wrong} of {n} elements differ, by at most {off:e}: element {i} is {:?}, expected {:?}",
            at(got, i),
            at(want, i)
        )),
    }
}
