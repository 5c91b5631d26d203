//! This machine as a `Target`. Flows in: the settings, what the processor says and what the
//! operating system says, believed in this order; flows out: vector width, registers, caches, cores
//! and threads. Numbers only; what they mean for a kernel is the compiler's business.

use super::topology::{self, CACHES};
use super::units::{self, Extension};
use crate::config::Config;
use crate::kind::{Kind, Name, missing};
use monoglot_uop::op::{Comparison, Unary};
use monoglot_uop::{DType, Device, Dialect, Op, OpSet, Result, Target};

/// The ops that a CPU has instructions for, or short code in a compiler; MULACC where it is fused.
const NATIVE: OpSet = OpSet::PRIMITIVES
    .union(OpSet::of(Unary::OPS))
    .union(OpSet::of(Comparison::OPS))
    .union(OpSet::of(&[Op::Sub, Op::Max]));

/// Dtypes a CPU computes in.
fn arithmetic() -> Vec<DType> {
    let computed = |d: &&DType| d.compute_type() == **d && !matches!(d, DType::Index | DType::Void);
    DType::ALL.iter().filter(computed).copied().collect()
}

/// The instruction sets that decide widths, by the name a compiler gives to the whole.
struct Level {
    arch: &'static str,
    vector_bytes: usize,
    registers: usize,
    fma: bool,
}

/// Floats that are stored and converted, but not computed in.
const HALF: &[DType] = if cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
    &[DType::F16]
} else {
    &[]
};

/// From the highest to the lowest.
const LEVELS: [Level; 4] = [
    Level {
        arch: "x86-64-v4",
        vector_bytes: 64,
        registers: 32,
        fma: true,
    },
    Level {
        arch: "x86-64-v3",
        vector_bytes: 32,
        registers: 16,
        fma: true,
    },
    Level {
        arch: "x86-64-v2",
        vector_bytes: 16,
        registers: 16,
        fma: false,
    },
    Level {
        arch: "x86-64",
        vector_bytes: 16,
        registers: 16,
        fma: false,
    },
];

/// The levels that there is machine code of our own for.
const NATIVE_LEVELS: [&str; 3] = ["x86-64-v4", "x86-64-v3", "x86-64-v2"];

/// What to do without it.
const OTHERS: &str = "DEV=CPU:C compiles for any machine that has a C compiler";

/// What a name of a device of this kind stands for: this machine, or this machine at the level that is named.
///
/// # Errors
/// `NoDevice` where there is no such level, or no machine code of our own for it or this machine.
pub(crate) fn named(kind: &Kind, name: &Name, config: &Config) -> Result<Target> {
    let device = name.device;
    let renderer = name.renderer.unwrap_or(kind.renderers[0]);
    if renderer == Dialect::X86.name() {
        return native(device, config, name.arch);
    }
    match name.arch {
        None => Ok(target(device, config)),
        Some(arch) => target_of(device, config, arch),
    }
}

/// What programs of the CPU are written in where nothing is said: machine code, where there is some for this machine,
/// else C.
pub(crate) fn usual() -> &'static str {
    match NATIVE_LEVELS.contains(&here().arch) {
        true => Dialect::X86.name(),
        false => Dialect::C.name(),
    }
}

/// This machine, for programs in C.
pub fn target(device: Device, config: &Config) -> Target {
    build(device, config, here())
}

/// This machine at another level of x86-64.
fn target_of(device: Device, config: &Config, arch: &str) -> Result<Target> {
    let found = LEVELS.iter().find(|l| l.arch.eq_ignore_ascii_case(arch));
    let level = found.ok_or_else(|| {
        let message = format!("no instruction set is called {arch}; x86-64-v2, -v3 and -v4 are");
        missing(device, message)
    })?;
    Ok(build(device, config, level))
}

/// This machine, or this machine at another level, for machine code of our own.
fn native(device: Device, config: &Config, arch: Option<&str>) -> Result<Target> {
    let mut words = arch.unwrap_or(here().arch).split('+');
    let wanted = words.next().unwrap_or_default();
    let made = LEVELS.iter().filter(|l| NATIVE_LEVELS.contains(&l.arch));
    let mut fitting = made.filter(|l| l.arch.eq_ignore_ascii_case(wanted));
    let level = fitting.next().ok_or_else(|| {
        let levels = NATIVE_LEVELS.join(", ");
        let message = format!("there is machine code for {levels}, not for {wanted}; {OTHERS}");
        missing(device, message)
    })?;
    let mut with: Vec<&Extension> = Vec::new();
    for word in words {
        let found = units::extensions(level.arch).find(|e| e.name.eq_ignore_ascii_case(word));
        with.push(found.ok_or_else(|| {
            let names: Vec<&str> = units::extensions(level.arch).map(|e| e.name).collect();
            let known = match names[..] {
                [] => "has no extensions".to_string(),
                _ => format!("may have {}", names.join(" and ")),
            };
            missing(device, format!("{} {known}, not {word}", level.arch))
        })?);
    }
    if arch.is_none() {
        with.extend(units::extensions(level.arch).filter(|e| e.is_here()));
    }
    // Conversions of halves came with v3: before, they are moved as integers.
    let halves: &[DType] = if level.fma { &[DType::F16] } else { &[] };
    // Where instructions write over an operand, one register is the encoder's.
    let registers = level.registers - usize::from(level.vector_bytes == 16);
    Ok(Target {
        dialect: Dialect::X86,
        registers,
        matrix_units: units::units(with),
        storage: [&arithmetic(), halves].concat(),
        ..build(device, config, level)
    })
}

/// Whether this machine has the instructions of a target.
///
/// # Errors
/// `NoDevice` where it has not.
pub(crate) fn runs(target: &Target) -> Result<()> {
    let here = here().arch;
    let place = |arch: &str| LEVELS.iter().position(|l| l.arch == arch);
    // The highest level stands first.
    match (place(here), place(&target.arch)) {
        (Some(own), Some(wanted)) if own <= wanted => {
            let with = units::extensions(&target.arch).filter(|e| e.is_here());
            let here = units::units(with);
            match target.matrix_units.iter().find(|u| !here.contains(u)) {
                None => Ok(()),
                Some(unit) => {
                    let message = format!("this machine has no {}; {OTHERS}", unit.name);
                    Err(missing(target.device, message))
                }
            }
        }
        _ => {
            let message = format!("this machine is {here}, not {}; {OTHERS}", target.arch);
            Err(missing(target.device, message))
        }
    }
}

/// The same with common caches and two threads, whatever this machine is: what is rendered for it is the same
/// everywhere.
pub(crate) fn ordinary(target: Target, config: &Config) -> Target {
    let threads = config.threads.unwrap_or(2);
    Target {
        threads,
        cores: config.cores.unwrap_or(threads),
        caches: config.caches.unwrap_or([32 << 10, 1 << 20, 32 << 20]),
        ..target
    }
}

#[cfg(target_arch = "x86_64")]
fn here() -> &'static Level {
    use std::arch::is_x86_feature_detected as has;
    let v2 = has!("sse4.1") && has!("sse4.2") && has!("ssse3") && has!("popcnt");
    let v3 = v2 && has!("avx2") && has!("fma") && has!("f16c") && has!("bmi2");
    let v4 = v3
        && has!("avx512f")
        && has!("avx512bw")
        && has!("avx512cd")
        && has!("avx512dq")
        && has!("avx512vl");
    &LEVELS[[v4, v3, v2, true].iter().position(|&l| l).unwrap_or(3)]
}

#[cfg(not(target_arch = "x86_64"))]
fn here() -> &'static Level {
    const FMA: bool = cfg!(target_arch = "aarch64");
    &Level {
        arch: std::env::consts::ARCH,
        vector_bytes: 16,
        registers: 32,
        fma: FMA,
    }
}

fn build(device: Device, config: &Config, level: &Level) -> Target {
    let native = if level.fma {
        NATIVE.with(Op::MulAcc)
    } else {
        NATIVE
    };
    Target {
        arch: level.arch.into(),
        vector_bytes: level.vector_bytes,
        registers: level.registers,
        caches: config.caches.unwrap_or_else(topology::caches),
        native,
        matrix_units: match LEVELS.iter().any(|l| l.arch == level.arch) {
            true => units::units([]),
            false => Vec::new(),
        },
        ..machine(device, config, HALF)
    }
}

/// What is the same of every machine without workgroups, which stores these floats besides.
pub(crate) fn machine(device: Device, config: &Config, floats: &[DType]) -> Target {
    let threads = config.thread_count();
    Target {
        device,
        dialect: Dialect::C,
        arch: String::new(),
        vector_bytes: 16,
        registers: 32,
        threads,
        cores: config.cores.unwrap_or_else(|| topology::cores(threads)),
        workgroups: false,
        max_workgroup: 1,
        warp: 1,
        local_bytes: 8 << 20,
        caches: config.caches.unwrap_or(CACHES),
        native: OpSet::EMPTY,
        arithmetic: arithmetic(),
        storage: [&arithmetic(), floats].concat(),
        arranged: true,
        matrix_units: Vec::new(),
        max_buffers: 64,
        max_nodes: 2000,
    }
}

/// Every feature that `-march=native` may use, as part of the key of compiled code.
pub(crate) fn features() -> String {
    let mut out = String::from(std::env::consts::ARCH);
    #[cfg(target_arch = "x86_64")]
    {
        macro_rules! flags {
            ($($name:tt)*) => { [$(std::arch::is_x86_feature_detected!($name)),*] };
        }
        let flags = flags!(
            "sse4.1" "sse4.2" "popcnt" "avx" "avx2" "fma" "f16c" "bmi1" "bmi2" "lzcnt" "movbe" "adx"
            "avx512f" "avx512bw" "avx512cd" "avx512dq" "avx512vl" "avx512ifma" "avx512vbmi" "avx512vbmi2"
            "avx512vnni" "avx512bf16" "avx512bitalg" "avx512vpopcntdq" "gfni" "vaes"
        );
        out.extend(flags.map(|f| if f { '1' } else { '0' }));
    }
    out
}
