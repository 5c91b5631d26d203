//! `ulp`: the error of the functions of a float (EXP2, SIN, SQRT, …) as compiled for this machine,
//! over all 2^32 arguments of f32, against f64. Flows in: names of functions; flows out: for each
//! the greatest error in units of the last place and the argument that has it.

use monoglot_codegen::lower;
use monoglot_device::{Config, Runtime, cpu::Cpu};
use monoglot_engine::backend;
use monoglot_uop::fold::transcendental;
use monoglot_uop::op::{Class, Transcendental};
use monoglot_uop::{Arg, AxisType, DType, Device, KernelInfo, Op, Result, Scalar, Shape, UOp};
use std::process::ExitCode;
use std::sync::Arc;

/// Arguments of one run.
const CHUNK: u64 = 1 << 22;

/// The functions: all that the op table has, and the square root.
fn functions() -> Vec<Op> {
    [Transcendental::OPS, &[Op::Sqrt]].concat()
}

/// The value that is known better.
fn reference(op: Op, x: f64) -> f64 {
    match op.class() {
        Class::Transcendental(f) => transcendental(f, x),
        _ => x.sqrt(),
    }
}

pub(crate) fn main(args: &[String]) -> ExitCode {
    let every = args
        .iter()
        .position(|a| a == "--every")
        .and_then(|i| args.get(i + 1)?.parse().ok())
        .unwrap_or(1);
    let all = functions();
    let is_named = |op: &Op| args.iter().any(|a| a.eq_ignore_ascii_case(op.name()));
    let any = all.iter().any(is_named);
    let mut good = true;
    for &op in all.iter().filter(|op| !any || is_named(op)) {
        match measure(op, every) {
            Ok(Worst { ulps, at }) => {
                println!(
                    "{}: at most {ulps:.4} ulp, at {at:e} ({:#010x})",
                    op.name(),
                    at.to_bits()
                );
                good &= ulps <= op.traits().ulps;
            }
            Err(e) => {
                eprintln!("{}: {e}", op.name());
                good = false;
            }
        }
    }
    if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// The greatest error, and the argument that has it.
struct Worst {
    ulps: f64,
    at: f32,
}

/// Over every `every`-th chunk of arguments.
fn measure(op: Op, every: u64) -> Result<Worst> {
    let cpu = Cpu::open(Device::new("CPU"), &Config::current())?;
    let program = lower(
        &kernel(op),
        cpu.target(),
        backend(cpu.target().dialect),
        None,
        &mut |_, _| {},
    )?
    .0;
    let run = cpu.compile(&[program])?.remove(0);
    let out = cpu.alloc(CHUNK as usize * 4)?;
    let base = cpu.alloc(4)?;
    let mut bytes = vec![0u8; CHUNK as usize * 4];
    let mut worst = Worst { ulps: 0.0, at: 0.0 };
    for chunk in (0..(1u64 << 32) / CHUNK).step_by(every.max(1) as usize) {
        let first = (chunk * CHUNK) as u32;
        cpu.upload(&base, 0, &first.to_le_bytes())?;
        cpu.launch(&run, &[out.clone(), base.clone()], &[])?;
        cpu.download(&out, 0, &mut bytes)?;
        let half = bytes.len() / 2;
        let parts = std::thread::scope(|s| {
            let part = |bytes, first| s.spawn(move || compare(bytes, first, op));
            let (low, high) = bytes.split_at(half);
            let all = [part(low, first), part(high, first + (half / 4) as u32)];
            let gone = |_| Worst {
                ulps: f64::NAN,
                at: f32::NAN,
            };
            all.map(|t| t.join().unwrap_or_else(gone))
        });
        for part in parts {
            if part.ulps.is_nan() || part.ulps > worst.ulps {
                worst = part;
            }
        }
    }
    Ok(worst)
}

/// `out[i] = op(the f32 whose bits are base + i)`.
fn kernel(op: Op) -> UOp {
    let i = UOp::range(CHUNK as i64, 0, AxisType::Loop);
    let base = UOp::param(1, &Shape::of(&[1]), DType::U32, None).at(&[UOp::index_const(0)]);
    let x = (i.cast(DType::U32) + base).bitcast(DType::F32);
    let out =
        UOp::param(0, &Shape::of(&[CHUNK as i64]), DType::F32, None).at(std::slice::from_ref(&i));
    let info = KernelInfo {
        name: "ulp".into(),
        ..Default::default()
    };
    UOp::sink(&[out.store(&x.unary(op)).end(&[i])]).with_arg(Arg::Kernel(Arc::new(info)))
}

/// The greatest error among results for consecutive bit patterns.
fn compare(bytes: &[u8], first: u32, op: Op) -> Worst {
    let mut worst = Worst { ulps: 0.0, at: 0.0 };
    for (i, b) in bytes.chunks_exact(4).enumerate() {
        let got = f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
        let x = f32::from_bits(first.wrapping_add(i as u32));
        let ulps = error(got, reference(op, x as f64));
        if ulps > worst.ulps {
            worst = Worst { ulps, at: x };
        }
    }
    worst
}

/// Units of the last place between a result and what is known better.
fn error(got: f32, want: f64) -> f64 {
    let near = Scalar::Float(want).cast(DType::F32).to_f64();
    if near.is_nan() || got.is_nan() {
        return if near.is_nan() && got.is_nan() {
            0.0
        } else {
            f64::INFINITY
        };
    }
    if near.to_bits() == (got as f64).to_bits() {
        // The rounded result itself is off by what rounding costs.
        return if near.is_finite() {
            (near - want).abs() / unit(want)
        } else {
            0.0
        };
    }
    if want.is_infinite() || near == got as f64 {
        return f64::INFINITY;
    }
    let got = if got.is_infinite() {
        2f64.powi(128).copysign(got as f64)
    } else {
        got as f64
    };
    (got - want).abs() / unit(want)
}

fn unit(want: f64) -> f64 {
    let e = ((want.to_bits() >> 52) & 0x7ff) as i32 - 1023;
    2f64.powi(e.clamp(-126, 127) - 23)
}
