//! The command: runs a folder of cases and prints what failed and how many passed. Exit code 0
//! where none failed, 1 where some did, 2 where the folder cannot be used. Flows in: a folder, a
//! device and which cases; flows out: a line for each that failed, and the count.

use clap::Parser;
use monoglot_conformance::{Options, run};
use std::process::ExitCode;

/// Run a folder of operator cases against expected values and gradients.
#[derive(Parser)]
struct Arguments {
    /// The folder with cases.json and tensors.safetensors.
    folder: std::path::PathBuf,
    /// The device that computes, such as CPU, INTERP or INTERP:GPU.
    #[arg(long)]
    device: Option<String>,
    /// Only cases whose name or ops contain this text.
    #[arg(long)]
    filter: Option<String>,
    /// Evaluate the tensor graph directly instead of compiling it.
    #[arg(long)]
    oracle: bool,
    /// List every case with its time.
    #[arg(long)]
    verbose: bool,
}

fn main() -> ExitCode {
    let a = Arguments::parse();
    let options = Options {
        device: a.device,
        filter: a.filter,
        oracle: a.oracle,
        verbose: a.verbose,
    };
    match run(&a.folder, &options, &mut |line| println!("{line}")) {
        Ok(report) => {
            println!("{report}");
            // A case that did not run has not passed.
            if report.failed.is_empty() && report.unsupported.is_empty() {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::from(2)
        }
    }
}
