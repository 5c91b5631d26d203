//! `monoglot-fuzz programs` and `monoglot-fuzz schedules`: as many random cases as one likes. Flows
//! in: how many, from which seed, on which devices; flows out: progress and failures, and exit code
//! 1 where there were any.

use clap::{Parser, Subcommand};
use monoglot_device::Config;
use monoglot_fuzz::check::{self, Tally};
use monoglot_fuzz::kernels;
use monoglot_uop::{Device, Result};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Parser)]
#[command(about = "Random programs and schedules, compared over devices")]
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
    }
}

fn main() -> ExitCode {
    let mut tell = |line: &str| eprintln!("{line}");
    let mut tally = Tally::new(&mut tell);
    let done = run(Args::parse(), &mut tally);
    let failures = &tally.failures;
    for f in failures.iter().take(10) {
        println!(
            "seed {} on {}: {}\n{}",
            f.seed, f.setting, f.message, f.text
        );
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
