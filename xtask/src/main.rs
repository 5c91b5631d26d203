//! Project tasks that are no part of the build: `cargo run --release -p xtask -- TASK`. Flows in:
//! the task and its settings; flows out: what it found, and exit code 1 where that is a fault.
//!
//! `prove`: the integer rules, by an SMT solver (Debian's package `z3`).
//! `rank`: the order of schedules that the heuristic's estimate predicts, and the measured one.
//! `ulp`: the errors of the transcendental functions, over every f32.

mod prove;
mod rank;
mod ulp;

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        Some("prove") => prove::main(&args[1..]),
        Some("rank") => rank::main(&args[1..]),
        Some("ulp") => ulp::main(&args[1..]),
        _ => {
            eprintln!(
                "tasks: prove [--instances N] [--timeout MS] [--rule NAME] [--seed N], \
                 rank [--kernels N] [--first N] [--schedules N] [--threads N] [--times FILE] [--all], \
                 ulp [exp2 log2 sin sqrt] [--every N]"
            );
            ExitCode::FAILURE
        }
    }
}
