//! `monoglot-fuzz programs`, `schedules`, `replay`, `saved` and `texts`: as many random cases as one likes. Flows in: how
//! many, from which seed, on which devices; flows out: progress and failures, and exit code 1 where
//! there were any.

use clap::{Parser, Subcommand};
use monoglot_device::Config;
use monoglot_fuzz::check::{self, Tally};
use monoglot_fuzz::kernels;
use monoglot_fuzz::linear::{Machine, Rules, linear, program};
use monoglot_fuzz::replay::replay;
use monoglot_fuzz::saved::{own_folder, saved};
use monoglot_fuzz::spills;
use monoglot_fuzz::texts::{Limits, Texts, texts, work};
use monoglot_uop::{Device, ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Parser)]
#[command(
    about = "Random programs and schedules, compared over devices; texts that are almost valid"
)]
struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Programs of movement, reductions, arithmetic and assigns, with Opts and without.
    Programs {
        /// How many.
        #[arg(long, default_value_t = 2000)]
        count: u64,
        /// The first seed.
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// Most operations of a program.
        #[arg(long, default_value_t = 40)]
        ops: u64,
        /// Devices to compare.
        #[arg(long, value_delimiter = ',', default_value = "CPU,INTERP")]
        devices: Vec<String>,
    },
    /// Random lists of Opts on kernels of the models, of operator cases and of random programs.
    Schedules {
        /// How many.
        #[arg(long, default_value_t = 2000)]
        count: u64,
        /// The first seed.
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// Devices to compare.
        #[arg(long, value_delimiter = ',', default_value = "CPU,INTERP:GPU")]
        devices: Vec<String>,
        /// A folder of operator cases.
        #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/conformance"))]
        cases: PathBuf,
    },
    /// Random functions, captured and called with other tensors, compared with the functions themselves.
    Replay {
        /// How many.
        #[arg(long, default_value_t = 2000)]
        count: u64,
        /// The first seed.
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// Most operations of a function.
        #[arg(long, default_value_t = 25)]
        ops: u64,
        /// The device.
        #[arg(long, default_value = "CPU")]
        device: String,
    },
    /// Saved programs with bytes, numbers or words of their files changed: refused by an error, or run.
    Saved {
        /// How many.
        #[arg(long, default_value_t = 2000)]
        count: u64,
        /// The first seed.
        #[arg(long, default_value_t = 0)]
        seed: u64,
    },
    /// Linear programs, each compared with the interpreter; a failure is made as small as it goes.
    Linear {
        /// How many.
        #[arg(long, default_value_t = 2000)]
        count: u64,
        /// The first seed.
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// Devices to compare.
        #[arg(
            long,
            value_delimiter = ',',
            default_value = "CPU:X86,CPU:X86:x86-64-v2"
        )]
        devices: Vec<String>,
        /// Print the program of the first seed, as it is for each device, and nothing else.
        #[arg(long)]
        print: bool,
    },
    /// Which kernels of the benchmarks and the models keep values in the frame in their innermost loops.
    #[command(hide = true)]
    Spills {
        /// Targets of machine code.
        #[arg(
            long,
            value_delimiter = ',',
            default_value = "NULL:X86:x86-64-v3,NULL:X86:x86-64-v2"
        )]
        devices: Vec<String>,
        /// Print the code of kernels with this in their names too.
        #[arg(long)]
        show: Option<String>,
    },
    /// Texts of valid graphs with some numbers, ops, dtypes and operands changed, through all passes.
    Texts {
        /// How many.
        #[arg(long, default_value_t = 2000)]
        count: u64,
        /// The first seed.
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// Most seconds of one stage.
        #[arg(long, default_value_t = 20)]
        seconds: u64,
        /// Most mebibytes of a process.
        #[arg(long, default_value_t = 4096)]
        mebibytes: u64,
        /// Print the text of the first seed, and nothing else.
        #[arg(long)]
        print: bool,
        /// Take the text of a file, and nothing else.
        #[arg(long)]
        file: Option<PathBuf>,
        /// Be one of the processes that take the texts.
        #[arg(long, hide = true)]
        worker: bool,
    },
}

fn run(args: Args, tally: &mut Tally) -> Result<()> {
    match args.what {
        What::Programs {
            count,
            seed,
            ops,
            devices,
        } => {
            let devices: Vec<&str> = devices.iter().map(String::as_str).collect();
            check::programs(seed..seed + count, ops, &devices, tally)
        }
        What::Schedules {
            count,
            seed,
            devices,
            cases,
        } => {
            let devices: Vec<&str> = devices.iter().map(String::as_str).collect();
            let gpu = Device::new("INTERP:GPU");
            Config {
                device: Some(gpu.name().into()),
                ..Config::default()
            }
            .set();
            let kernels = check::kernels(400, &kernels::programs(&cases, gpu)?, gpu)?;
            println!("{} kernels", kernels.len());
            check::schedules(seed..seed + count, &kernels, &devices, tally)
        }
        What::Replay {
            count,
            seed,
            ops,
            device,
        } => {
            Config {
                device: Some(device.clone()),
                ..Config::default()
            }
            .set();
            replay(seed..seed + count, ops, &device, tally)
        }
        What::Saved { count, seed } => {
            let folder = own_folder();
            let outcomes = saved(seed..seed + count, &folder, tally)?;
            println!("{outcomes:?}");
            let _ = std::fs::remove_dir_all(&folder);
            Ok(())
        }
        What::Linear {
            count,
            seed,
            devices,
            ..
        } => {
            let devices: Vec<&str> = devices.iter().map(String::as_str).collect();
            linear(seed..seed + count, &devices, tally)
        }
        What::Spills { devices, show } => {
            for name in &devices {
                tell_spills(name, show.as_deref())?;
            }
            Ok(())
        }
        What::Texts {
            count,
            seed,
            seconds,
            mebibytes,
            ..
        } => {
            let limits = Limits { seconds, mebibytes };
            texts(seed..seed + count, limits, tally)
        }
    }
}

/// What is no run over seeds: a worker, the text of a seed, or a text of the user's own.
fn aside(args: &Args) -> Option<Result<()>> {
    match &args.what {
        What::Texts {
            file: Some(path), ..
        } => Some(one(path)),
        What::Texts {
            count,
            seed,
            worker: true,
            ..
        } => Some(work(*seed..seed + count, &mut std::io::stdout().lock())),
        What::Linear {
            seed,
            devices,
            print: true,
            ..
        } => Some(devices.iter().try_for_each(|name| {
            let machine = Machine::new(name)?;
            let made = program(*seed, Rules::of(machine.target()));
            println!("{}", made.linear);
            Ok(())
        })),
        What::Texts {
            seed, print: true, ..
        } => Some(Texts::new().map(|all| println!("{}", all.text(*seed)))),
        _ => None,
    }
}

/// The kernels that spill on a target, and for what.
fn tell_spills(name: &str, show: Option<&str>) -> Result<()> {
    let device = Device::new(name);
    Config {
        device: Some(name.into()),
        ..Config::default()
    }
    .set();
    let programs = spills::programs(device)?;
    let (count, found) = spills::spilling(&programs, device)?;
    println!(
        "{name}: {} innermost loops of {count} kernels spill",
        found.len()
    );
    for s in found {
        println!("  {s}");
        if show.is_some_and(|part| s.kernel.contains(part)) {
            println!("{}", s.listing);
        }
    }
    Ok(())
}

/// Take the text of a file as far as it goes.
fn one(path: &Path) -> Result<()> {
    let read = std::fs::read_to_string(path);
    let text = read.map_err(|e| ErrorKind::Io {
        path: path.display().to_string(),
        message: e.to_string(),
    })?;
    match Texts::new()?.run(&text, &mut |stage| println!("{stage}")) {
        Ok(seen) => println!("{seen:?}"),
        Err(wrong) => println!("wrong: {wrong}"),
    }
    Ok(())
}

fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(done) = aside(&args) {
        return done.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
    }
    let mut tell = |line: &str| eprintln!("{line}");
    let mut tally = Tally::new(&mut tell);
    let done = run(args, &mut tally);
    let failures = &tally.failures;
    // Of those that begin alike, the first.
    let mut shown: Vec<&str> = Vec::new();
    for f in failures {
        let begins = f.message.split(": ").next().unwrap_or_default();
        if shown.len() < 10 && !shown.contains(&begins) {
            shown.push(begins);
            println!(
                "seed {} on {}: {}\n{}",
                f.seed, f.setting, f.message, f.text
            );
        }
    }
    println!("{} comparisons, {} failed", tally.compared, failures.len());
    if let Err(e) = done {
        eprintln!("error: {e}");
        return ExitCode::from(2);
    }
    if failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
