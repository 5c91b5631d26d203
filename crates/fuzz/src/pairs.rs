//! One kernel on two devices. Flows in: kernels; flows out: those that give something else on one than on the other.
//!
//! Integers and bools agree to the bit. Floats agree within two units of the last place where nothing is summed up;
//! sums, whose order is each target's own, within what schedules are compared by.

use crate::check::{Tally, compile_apart, inputs, params, words};
use crate::run::difference;
use monoglot_device::open;
use monoglot_oracle::eval::Value;
use monoglot_uop::{DType, Device, Op, Result, Scalar, UOp};

/// Units of the last place that elementwise floats may differ by.
const ULPS: u64 = 2;

/// Compare kernels on two devices, on the data of a seed.
///
/// # Errors
/// Where a device cannot be opened.
pub fn pairs(kernels: &[UOp], devices: [&str; 2], seed: u64, tally: &mut Tally) -> Result<()> {
    let mut compiled = Vec::new();
    let mut broken: Vec<UOp> = Vec::new();
    for name in devices {
        let runtime = open(Device::new(name))?;
        let all = kernels.iter().map(|k| (k.clone(), None)).collect();
        let kernels = compile_apart(runtime, all, &mut |k, e| {
            broken.push(k.clone());
            tally.wrong(seed, name, &e.to_string(), k.to_string());
        });
        compiled.push(kernels);
    }
    for k in kernels.iter().filter(|k| !broken.contains(k)) {
        tally.looked();
        let words = words(k, seed);
        let mut all = Vec::new();
        let mut failed = None;
        for (name, compiled) in devices.iter().zip(&compiled) {
            let mut bytes = inputs(k, seed);
            if let Err(e) = compiled.run(k, &mut bytes, &words) {
                failed = Some(format!("{name}: {e}"));
            }
            all.push(bytes);
        }
        let message = failed.or_else(|| apart(k, &all[0], &all[1]));
        if let Some(message) = message {
            let setting = devices.join(" and ");
            tally.wrong(seed, &setting, &message, k.to_string());
        }
    }
    Ok(())
}

/// What differs by more than it may.
fn apart(kernel: &UOp, first: &[Vec<u8>], second: &[Vec<u8>]) -> Option<String> {
    let sums = kernel.toposort().iter().any(|u| u.op() == Op::Reduce);
    let both = first.iter().zip(second);
    let all = params(kernel).into_iter().zip(both).enumerate();
    for (i, (p, (a, b))) in all.filter(|(_, (p, _))| !p.is_variable()) {
        let shape = p.sizes("PARAM").ok()?;
        let value = |b: &[u8]| Value::from_bytes(b, &shape, p.dtype());
        let a = value(a).ok()?;
        let b = value(b).ok()?;
        let message = match p.dtype() {
            d if d.is_float() && sums => difference(&a, &b),
            d => (0..a.len()).find_map(|i| {
                let x = a.get(i);
                let y = b.get(i);
                let far = units(x, y, d) > if d.is_float() { ULPS } else { 0 };
                far.then(|| format!("element {i} is {x:?} and {y:?}"))
            }),
        };
        if let Some(message) = message {
            return Some(format!("buffer {i}: {message}"));
        }
    }
    None
}

/// How many values of a dtype lie between two and one of them; two NaNs are one value.
fn units(a: Scalar, b: Scalar, d: DType) -> u64 {
    let nan = |s: Scalar| d.is_float() && s.to_f64().is_nan();
    if nan(a) && nan(b) || a == b {
        return 0;
    }
    if nan(a) != nan(b) {
        return u64::MAX;
    }
    // Floats are in the order of their bits, those below 0 backwards.
    let place = |s: Scalar| {
        let bits = s.to_bits(d);
        let sign = 1u64 << (d.bits() - 1);
        let size = (bits & !sign) as i128;
        if d.is_float() && bits & sign != 0 {
            -size
        } else if d.is_float() {
            size
        } else {
            s.to_i128()
        }
    };
    u64::try_from((place(a) - place(b)).unsigned_abs()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_count_values_between() {
        let f = Scalar::Float;
        for (a, b, d, want) in [
            (f(0.0), f(-0.0), DType::F32, 0),
            (f(1.0), f(1.0 + f32::EPSILON as f64), DType::F32, 1),
            (f(-1e-45f32 as f64), f(1e-45f32 as f64), DType::F32, 2),
            (f(f64::NAN), f(-f64::NAN), DType::F64, 0),
            (f(f64::NAN), f(1.0), DType::F64, u64::MAX),
            (f(65504.0), f(f64::INFINITY), DType::F16, 1),
            (Scalar::Int(-3), Scalar::Int(4), DType::I8, 7),
            (Scalar::Bool(false), Scalar::Bool(true), DType::Bool, 1),
        ] {
            assert_eq!(units(a, b, d), want, "{a:?} {b:?} {d}");
        }
    }
}
