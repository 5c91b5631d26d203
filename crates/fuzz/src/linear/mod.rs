//! Random linear programs on several devices: the interpreter says what is right. Flows in: seeds; flows out: the
//! programs that differ, made as small as they go.
//!
//! Invariant: a program is of the rules of the target that it is compared on; integers agree to the bit, floats too,
//! but for which NaN it is.

mod maker;
mod memory;
mod run;
mod shrink;
mod steps;
mod values;

pub use maker::Made;
pub use run::{BESIDE, Inputs, Machine, difference};
pub use steps::program;

use crate::check::Tally;
use monoglot_uop::{DType, Dialect, ErrorKind, Op, Result, Target, TcInfo, UOp};
use std::ops::Range;

/// What programs for a target may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Halves are stored and converted.
    pub half: bool,
    /// Products and sums are one operation.
    pub fused: bool,
    /// Dot products of words that there are.
    pub dots: Vec<TcInfo>,
    /// What C does not say: vectors that pass the caches anywhere in memory, and vectors of arrays of bools.
    pub beyond_c: bool,
}

impl Rules {
    /// Those of a target.
    pub fn of(target: &Target) -> Rules {
        Rules {
            half: target.storage.contains(&DType::F16),
            fused: target.native.contains(Op::MulAcc),
            dots: (target.matrix_units.iter())
                .filter(|unit| unit.word().is_some() && unit.tile().is_none())
                .cloned()
                .collect(),
            beyond_c: target.dialect != Dialect::C,
        }
    }
}

const INTEGERS: [DType; 8] = [
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::U8,
    DType::U16,
    DType::U32,
    DType::U64,
];
const WIDTHS: [usize; 7] = [2, 4, 4, 8, 8, 16, 32];
const NUMBERS: [i64; 16] = [
    i64::MIN,
    i64::MAX,
    i32::MIN as i64,
    i32::MAX as i64,
    u32::MAX as i64,
    1 << 32,
    i16::MIN as i64,
    u16::MAX as i64,
    i8::MIN as i64,
    i8::MAX as i64,
    128,
    255,
    -1,
    0,
    31,
    1 << 24,
];
const FLOATS: [f64; 28] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -1.5,
    2.5,
    f64::NAN,
    f64::INFINITY,
    f64::NEG_INFINITY,
    1e-40,
    -1e-45,
    5e-324,
    1e30,
    -3e38,
    1e300,
    65504.0,
    65520.0,
    6e-8,
    127.5,
    -128.7,
    255.99,
    2147483648.0,
    -2147483904.0,
    4294967295.5,
    9.3e18,
    -9.3e18,
    1.9e19,
];

/// A program that was not made here, such as one of a text, as that of a seed.
pub fn made(linear: UOp, seed: u64) -> Made {
    let info = maker::record(&linear, seed);
    Made { linear, info }
}

/// How many programs are compiled at once.
const BATCH: u64 = 200;

/// Compare the programs of these seeds on devices with the interpreter.
///
/// # Errors
/// Where a device cannot be opened.
pub fn linear(seeds: Range<u64>, devices: &[&str], tally: &mut Tally) -> Result<()> {
    let oracle = Machine::new("INTERP")?;
    let names = devices.iter().filter(|n| !n.starts_with("INTERP"));
    let machines = names.map(|n| Machine::new(n)).collect::<Result<Vec<_>>>()?;
    let mut refused = 0;
    let starts = seeds.clone().step_by(BATCH as usize);
    for start in starts {
        let batch = start..(start + BATCH).min(seeds.end);
        for machine in &machines {
            let rules = Rules::of(machine.target());
            let all: Vec<Made> = batch.clone().map(|s| program(s, rules.clone())).collect();
            let refs: Vec<&Made> = all.iter().collect();
            let kernels = machine.compile(&refs);
            let oracles = oracle.compile(&refs);
            for (((seed, made), kernel), right) in batch.clone().zip(&all).zip(kernels).zip(oracles)
            {
                tally.looked();
                let inputs = Inputs::of(&made.linear, seed);
                let wrong = match (kernel, right) {
                    (Ok(kernel), Ok(right)) => against(&oracle, &right, machine, &kernel, &inputs),
                    // What a target has no way to say is no fault.
                    (Err(e), _) if matches!(e.kind(), ErrorKind::Unsupported { .. }) => {
                        refused += 1;
                        None
                    }
                    (Err(e), _) => Some(format!("{e}")),
                    (_, Err(e)) => Some(format!("INTERP: {e}")),
                };
                let Some(message) = wrong else { continue };
                let small = shrink::shrink(made, seed, &mut |made| {
                    fails(&oracle, machine, made, seed)
                        .is_some_and(|m| alike(&m) == alike(&message))
                });
                let last = fails(&oracle, machine, &small, seed).unwrap_or(message);
                tally.wrong(seed, &machine.name, &last, small.linear.to_string());
            }
        }
        tally.tell(&format!(
            "{} of {} seeds; {refused} refused",
            batch.end - seeds.start,
            seeds.end - seeds.start
        ));
    }
    Ok(())
}

/// The beginning of a message, which those of one kind have in common.
fn alike(message: &str) -> String {
    let words = message.split([' ', ':', ',']).take(1);
    words.collect::<Vec<_>>().join(" ")
}

fn against(
    oracle: &Machine,
    right: &std::sync::Arc<dyn monoglot_device::Kernel>,
    machine: &Machine,
    kernel: &std::sync::Arc<dyn monoglot_device::Kernel>,
    inputs: &Inputs,
) -> Option<String> {
    let want = match oracle.run(right, inputs) {
        Ok(want) => want,
        Err(e) => return Some(format!("INTERP: {e}")),
    };
    match machine.run(kernel, inputs) {
        Ok(got) => difference(inputs, &want, &got),
        Err(e) => Some(e.to_string()),
    }
}

/// What goes wrong with a program.
pub fn fails(oracle: &Machine, machine: &Machine, made: &Made, seed: u64) -> Option<String> {
    let one = |m: &Machine| m.compile(&[made]).remove(0);
    let right = match one(oracle) {
        Ok(right) => right,
        Err(e) => return Some(format!("INTERP: {e}")),
    };
    let inputs = Inputs::of(&made.linear, seed);
    match one(machine) {
        Ok(kernel) => against(oracle, &right, machine, &kernel, &inputs),
        Err(e) => Some(e.to_string()),
    }
}
