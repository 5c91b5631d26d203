//! Machine code of our own on a processor in software: for levels that this machine may not have, and that the
//! processor does what the machine does. Flows in: kernels of cases, models and random programs, lists of Opts;
//! flows out: kernels that differ from the kernel oracle, or by a byte from the machine.

#[path = "../../native/tests/emulator/mod.rs"]
mod emulator;

use emulator::{Function, Memory};
use monoglot_codegen::lower;
use monoglot_device::{Config, open, program_binary, program_parts};
use monoglot_engine::backend;
use monoglot_fuzz::check::{self, compare_kernel};
use monoglot_fuzz::kernels;
use monoglot_fuzz::linear::{self, BESIDE, Inputs, Machine};
use monoglot_fuzz::run::{CompiledKernels, Words};
use monoglot_native::own_bytes;
use monoglot_oracle::eval_kernel::eval_kernel;
use monoglot_oracle::random;
use monoglot_uop::linear::phase_count;
use monoglot_uop::{AxisType, DType, Device, Error, ErrorKind, Opt, OptOp, Result, Target, UOp};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

/// The processor's numbers of where the arguments, a thread's own storage and buffers lie.
const WORDS: u64 = 0x1000_0000;
const OWN: u64 = 0x2000_0000;
const BUFFERS: u64 = 0x40_0000_0000;
const APART: u64 = 0x1_0000_0000;

/// Levels, with what machines of them may have besides and without, and how many kernels or programs of each.
const LEVELS: [(&str, usize); 6] = [
    ("x86-64-v4", 300),
    ("x86-64-v4+avx512vnni+avx512bf16", 300),
    ("x86-64-v4+amxbf16+amxint8", 100),
    ("x86-64-v3", 100),
    ("x86-64-v3+avxvnni", 100),
    ("x86-64-v2", 100),
];

/// Kernels small enough to be run in software.
fn all_kernels(count: u64) -> Vec<UOp> {
    let device = Device::new("INTERP:GPU");
    Config {
        device: Some(device.name().into()),
        ..Config::default()
    }
    .set();
    let cases = Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/conformance"
    ));
    let programs = kernels::programs(cases, device).expect("the cases are read");
    check::kernels(count, &programs, device).expect("the device is opened")
}

/// Run a program in software on buffers, each so many bytes after where its region begins.
fn run(program: &UOp, bufs: &mut [(Vec<u8>, usize)], words: &[i64]) -> Result<()> {
    let (linear, info) = program_parts(program)?;
    let mut function = Function::new(program_binary(program)?);
    let mut memory = Memory::default();
    let place = |k: usize| BUFFERS + k as u64 * APART;
    let mut arguments: Vec<u8> = vec![];
    for (k, (bytes, offset)) in bufs.iter().enumerate() {
        arguments.extend((place(k) + *offset as u64).to_le_bytes());
        memory.add(place(k), bytes.clone(), true);
    }
    arguments.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    memory.add(WORDS, arguments, false);
    memory.add(OWN, vec![0xa5; own_bytes(linear)], true);
    for thread in 0..phase_count(linear) as u64 * info.threads.max(1) as u64 {
        let result = function.call(&mut memory, [WORDS, thread, OWN]);
        result.map_err(|message| Error::new(ErrorKind::Run { message }))?;
    }
    for (k, (bytes, _)) in bufs.iter_mut().enumerate() {
        *bytes = memory.remove(place(k));
    }
    Ok(())
}

/// Lower a kernel and run it in software.
fn emulate(
    kernel: &UOp,
    target: &Target,
    opts: Option<&[Opt]>,
    bufs: &mut [Vec<u8>],
    words: &Words,
) -> Result<()> {
    let backend = backend(target.dialect);
    let program = lower(kernel, target, backend, opts, &mut |_, _| {})?.0;
    let is_word = |slot: usize| words.iter().any(|w| w.0 == slot as u64);
    let stored: Vec<usize> = (0..bufs.len()).filter(|slot| !is_word(*slot)).collect();
    let mut given: Vec<(Vec<u8>, usize)> = stored.iter().map(|&s| (bufs[s].clone(), 0)).collect();
    let words: Vec<i64> = words.iter().map(|w| w.1).collect();
    run(&program, &mut given, &words)?;
    for (slot, (bytes, _)) in stored.into_iter().zip(given) {
        bufs[slot] = bytes;
    }
    Ok(())
}

/// Opts for a kernel: what the heuristics choose, then some by chance.
fn schedule(kernel: &UOp, target: &Target, seed: u64) -> (UOp, Option<Vec<Opt>>) {
    if seed.is_multiple_of(2) {
        return (kernel.clone(), None);
    }
    let kernel = random::staged(kernel, target, seed);
    let opts = random::sample(&kernel, target, seed);
    (kernel, Some(opts))
}

/// How many of each: more by a variable of the environment.
fn count(few: usize) -> usize {
    let asked = std::env::var("EMULATED").ok();
    asked.and_then(|n| n.parse().ok()).unwrap_or(few)
}

/// An error of what comes before machine code, for which there are tests of its own.
fn is_before(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Verify { stage, .. } if &**stage == "linearize")
}

fn say(line: &str) {
    // Not through the macro, whose text is shown of failing tests alone.
    let _ = writeln!(std::io::stderr(), "{line}");
}

#[test]
fn kernels_agree_with_the_oracle() {
    let kernels = all_kernels(60);
    let mut wrong = vec![];
    for (name, few) in LEVELS {
        let device =
            open(Device::new(&format!("NULL:X86:{name}"))).expect("NULL takes every level");
        let target = device.target();
        let mut ran = 0;
        for seed in 0..count(few) {
            // Spread over all of them, both kinds of Opts.
            let kernel = &kernels[(seed / 2 * 37) % kernels.len()];
            let (kernel, opts) = schedule(kernel, target, seed as u64);
            let mut run = |k: &UOp, bufs: &mut [Vec<u8>], words: &Words| match emulate(
                k,
                target,
                opts.as_deref(),
                bufs,
                words,
            ) {
                Err(error) if is_before(&error) => eval_kernel(k, bufs, words).map(|_| ()),
                result => result,
            };
            if let Some(what) = compare_kernel(seed as u64, &kernel, &mut run) {
                wrong.push(format!("{name}, seed {seed}, {opts:?}: {what}\n{kernel}"));
            }
            ran += 1;
        }
        say(&format!(
            "EMULATED: {ran} kernels at {name} of {}",
            kernels.len()
        ));
    }
    let first: Vec<&String> = wrong.iter().take(3).collect();
    assert!(wrong.is_empty(), "{} wrong: {first:#?}", wrong.len());
}

/// What the units of a level do is what the sums that they stand for are.
#[test]
fn dot_products_are_done_by_the_units() {
    let device = Device::new("INTERP:GPU");
    let programs: Vec<Vec<UOp>> = kernels::dots().into_iter().map(|root| vec![root]).collect();
    let kernels = check::kernels(0, &programs, device).expect("the device is opened");
    for (name, _) in LEVELS {
        let device =
            open(Device::new(&format!("NULL:X86:{name}"))).expect("NULL takes every level");
        let target = device.target();
        let mut used = vec![0; target.matrix_units.len()];
        for (seed, kernel) in kernels.iter().enumerate() {
            for opt in monoglot_codegen::opt::choose(kernel, target) {
                if let OptOp::Tc { unit } = opt.op {
                    used[unit] += 1;
                }
            }
            let mut run = |k: &UOp, bufs: &mut [Vec<u8>], words: &Words| {
                emulate(k, target, None, bufs, words)
            };
            let what = compare_kernel(seed as u64, kernel, &mut run);
            assert!(what.is_none(), "{name}: {what:?}: {kernel}");
        }
        // Where two do the same, the one that stands first does.
        let units = target.matrix_units.iter().enumerate();
        for (k, unit) in units {
            let mut before = target.matrix_units[..k].iter();
            let first = !before.any(|other| other.dtypes_in == unit.dtypes_in);
            assert_eq!(used[k] > 0, first, "{name}: {}", unit.name);
        }
    }
}

/// Units are taken for as many terms and rows as are worth it, and tiles of them read whole lines of what lies together.
#[test]
fn units_are_taken_where_they_pay() {
    let opts = |name: &str, sizes: [i64; 3], turned: bool| {
        let product = kernels::wide_matmul(sizes, [DType::BF16; 2], DType::F32, turned);
        let device = Device::new("INTERP:GPU");
        let kernels = check::whole_kernels(&[vec![product]], device).expect("it is opened");
        let level = format!("NULL:X86:x86-64-v4+{name}");
        let device = open(Device::new(&level)).expect("NULL takes every level");
        monoglot_codegen::opt::choose(&kernels[0], device.target())
    };
    let is_unit = |o: &Opt| matches!(o.op, OptOp::Tc { .. });
    let taken = |name, sizes, turned| opts(name, sizes, turned).iter().any(is_unit);
    for (terms, fills) in [(4, false), (8, true), (31, true)] {
        let sizes = [256, terms, 256];
        assert_eq!(taken("amxbf16", sizes, false), fills, "{terms} terms");
    }
    // Few rows of a matrix that lies along its columns are read as they are.
    for (rows, along_terms, along_columns) in
        [(4, false, false), (8, true, false), (16, true, true)]
    {
        let sizes = [rows, 1024, 1024];
        assert_eq!(taken("avx512bf16", sizes, true), along_terms, "{rows} rows");
        assert_eq!(
            taken("avx512bf16", sizes, false),
            along_columns,
            "{rows} rows"
        );
    }
    // A tile has two units' tiles beside each other: four tiles are eight of these.
    let all = opts("amxbf16", [256, 512, 1024], false);
    let eight = OptOp::Split {
        factor: 8,
        target: AxisType::Loop,
        top: false,
    };
    assert!(all.iter().any(|o| o.op == eight), "{all:?}");
}

/// Products of sizes that tiles do not divide, in every orientation, on whole tiles: in software, and where there is such a
/// machine by the same bytes.
#[test]
fn tiles_are_multiplied_whole() {
    let name = "x86-64-v4+amxbf16+amxint8";
    let device = open(Device::new(&format!("NULL:X86:{name}"))).expect("NULL takes every level");
    let target = device.target();
    let here = open(Device::new(&format!("CPU:X86:{name}"))).ok();
    if here.is_none() {
        say("NOT COMPARED: this machine has no tiles");
    }
    let programs: Vec<Vec<UOp>> = kernels::tiles()
        .into_iter()
        .map(|root| vec![root])
        .collect();
    let interpreter = Device::new("INTERP:GPU");
    let kernels = check::whole_kernels(&programs, interpreter).expect("the device is opened");
    assert_eq!(kernels.len(), programs.len());
    for kernel in &kernels {
        let program = lower(
            kernel,
            target,
            backend(target.dialect),
            None,
            &mut |_, _| {},
        );
        let program = program.expect("it is lowered").0;
        let (linear, _) = program_parts(&program).expect("a program");
        let whole = |u: &&UOp| u.dot().is_some_and(|unit| unit.tile().is_some());
        assert!(linear.src().iter().any(|u| whole(&u)), "{kernel}");
        let compiled = here.as_ref().map(|device| {
            let all = [(kernel.clone(), None)];
            CompiledKernels::new(Arc::clone(device), &all).expect("it is compiled")
        });
        let mut run = |k: &UOp, bufs: &mut [Vec<u8>], words: &Words| {
            let mut emulated = bufs.to_vec();
            emulate(k, target, None, &mut emulated, words)?;
            if let Some(compiled) = &compiled {
                compiled.run(k, bufs, words)?;
                assert!(emulated == bufs, "{k}");
            }
            bufs.clone_from_slice(&emulated);
            Ok(())
        };
        let what = compare_kernel(0, kernel, &mut run);
        assert!(what.is_none(), "{what:?}: {kernel}");
    }
}

#[test]
fn the_processor_in_software_is_this_machine() {
    let kernels = all_kernels(20);
    let tiles = "x86-64-v4+amxbf16+amxint8";
    for name in ["x86-64-v2", "x86-64-v3", "x86-64-v4", tiles] {
        let Ok(device) = open(Device::new(&format!("CPU:X86:{name}"))) else {
            say(&format!("NOT COMPARED: this machine does not run {name}"));
            continue;
        };
        let mut seed = 0;
        for kernel in kernels.iter().step_by(kernels.len() / count(100) + 1) {
            seed += 1;
            let (kernel, opts) = schedule(kernel, device.target(), seed);
            let all = [(kernel.clone(), opts.clone())];
            let compiled = match CompiledKernels::new(device.clone(), &all) {
                Ok(compiled) => compiled,
                Err(error) if is_before(&error) => continue,
                Err(error) => panic!("{name}, seed {seed}, {opts:?}: {error}\n{kernel}"),
            };
            let mut run = |k: &UOp, bufs: &mut [Vec<u8>], words: &Words| {
                let mut emulated = bufs.to_vec();
                compiled.run(k, bufs, words)?;
                emulate(k, device.target(), opts.as_deref(), &mut emulated, words)?;
                assert!(emulated == bufs, "{name}, {opts:?}: {kernel}");
                Ok(())
            };
            let what = compare_kernel(seed, &kernel, &mut run);
            assert!(what.is_none(), "{name}, {opts:?}: {what:?}: {kernel}");
        }
    }
}

/// What goes wrong with a random linear program in software.
fn wrong_linear(oracle: &Machine, machine: &Machine, seed: u64) -> Option<String> {
    let made = linear::program(seed, linear::Rules::of(machine.target()));
    let inputs = Inputs::of(&made.linear, seed);
    // What breaks the rules of linear programs is not for machine code to say.
    let right = oracle.compile(&[&made]).remove(0).ok()?;
    let want = match oracle.run(&right, &inputs) {
        Ok(want) => want,
        Err(error) => return Some(format!("INTERP: {error}")),
    };
    let around = |(bytes, &offset): (&Vec<u8>, &usize)| {
        let mut all = vec![0x5a; bytes.len() + 2 * BESIDE];
        all[offset..offset + bytes.len()].copy_from_slice(bytes);
        (all, offset)
    };
    let mut given: Vec<(Vec<u8>, usize)> = inputs
        .bytes
        .iter()
        .zip(&inputs.offsets)
        .map(around)
        .collect();
    let program = machine.program(&made);
    // What nobody lowers to, such as three lanes, may be refused.
    let refused = |e: &Error| matches!(e.kind(), ErrorKind::Unsupported { .. });
    if program.as_ref().is_err_and(refused) {
        return None;
    }
    if let Err(error) = program.and_then(|program| run(&program, &mut given, &inputs.words)) {
        return Some(error.to_string());
    }
    let mut got = vec![];
    for ((all, offset), bytes) in given.iter().zip(&inputs.bytes) {
        let end = offset + bytes.len();
        if all[..*offset].iter().chain(&all[end..]).any(|&b| b != 0x5a) {
            return Some("what lies beside an argument was written".into());
        }
        got.push(all[*offset..end].to_vec());
    }
    linear::difference(&inputs, &want, &got)
}

#[test]
fn linear_programs_agree_with_the_interpreter() {
    let oracle = Machine::new("INTERP").expect("it is always there");
    let mut wrong = vec![];
    for (name, few) in LEVELS {
        let machine = Machine::new(&format!("NULL:X86:{name}")).expect("NULL takes every level");
        for seed in 0..count(few) as u64 {
            if let Some(what) = wrong_linear(&oracle, &machine, seed) {
                wrong.push(format!("{name}, seed {seed}: {what}"));
            }
        }
        say(&format!(
            "EMULATED: {} linear programs at {name}",
            count(few)
        ));
    }
    let first: Vec<&String> = wrong.iter().take(5).collect();
    assert!(wrong.is_empty(), "{} wrong: {first:#?}", wrong.len());
}
