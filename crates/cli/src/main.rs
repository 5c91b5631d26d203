//! The command line, binary `monoglot`. Flows in: arguments; flows out: text for people at most 80
//! columns wide, or with `--json` an object a line for programs. Errors go to standard error; the exit
//! code is 0, 1 where something failed, 2 where the arguments mean nothing.

mod bench;
mod compile;
mod devices;
mod run;
mod show;

use clap::{Parser, Subcommand};
use monoglot::Config;
use std::io::Write;
use std::process::ExitCode;

/// One dialect from tensor programs to command buffers.
#[derive(Parser)]
#[command(name = "monoglot", version, about, max_term_width = 80)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the devices and what they are on this machine
    Devices(devices::Args),
    /// Time the benchmark workloads: build and realize
    Bench(bench::Args),
    /// Compile a built-in model to source and tell what each stage took
    Compile(compile::Args),
    /// Print a stage of a program in the text form, or of a built-in model
    Show(show::Args),
    /// Start a saved program, call it, and tell what it gave
    Run(run::Args),
}

/// What a command may fail with.
type Outcome = Result<(), Failure>;

/// An error for the person at the terminal.
enum Failure {
    /// The library's.
    Library(monoglot::Error),
    /// Writing the answer failed.
    Output(std::io::Error),
    /// The command's own.
    Told(String),
}

impl From<monoglot::Error> for Failure {
    fn from(e: monoglot::Error) -> Failure {
        Failure::Library(e)
    }
}

impl From<std::io::Error> for Failure {
    fn from(e: std::io::Error) -> Failure {
        Failure::Output(e)
    }
}

fn main() -> ExitCode {
    let out = &mut std::io::stdout().lock();
    let outcome = match Cli::parse().command {
        Command::Devices(args) => devices::run(&args, out),
        Command::Bench(args) => bench::run(&args, out),
        Command::Compile(args) => compile::run(&args, out),
        Command::Show(args) => show::run(&args, out),
        Command::Run(args) => run::run(&args, out),
    };
    let message = match outcome.and_then(|()| Ok(out.flush()?)) {
        Ok(()) => return ExitCode::SUCCESS,
        // Whoever read us has seen enough.
        Err(Failure::Output(e)) if e.kind() == std::io::ErrorKind::BrokenPipe => {
            return ExitCode::SUCCESS;
        }
        Err(Failure::Output(e)) => format!("the answer could not be written: {e}"),
        // A line of ours says nothing to whoever wrote a command.
        Err(Failure::Library(e)) => monoglot::Error::new(e.kind().clone()).to_string(),
        Err(Failure::Told(message)) => message,
    };
    // Nobody to tell is no reason to fail further.
    let _ = writeln!(std::io::stderr(), "error: {message}");
    ExitCode::FAILURE
}

/// The environment's settings with what the command line says instead.
fn configure(device: Option<&str>, threads: Option<usize>) {
    let mut config = Config::from_env();
    config.device = device.map(str::to_string).or(config.device);
    config.threads = threads.or(config.threads);
    config.set();
}

/// A record as a line of JSON.
fn json_line(out: &mut dyn Write, record: &impl serde::Serialize) -> Outcome {
    let line = serde_json::to_string(record).map_err(|e| Failure::Told(e.to_string()))?;
    Ok(writeln!(out, "{line}")?)
}

/// Seconds in the unit that reads best.
fn seconds(s: f64) -> String {
    match s {
        s if s >= 1.0 => format!("{s:.3} s"),
        s if s >= 1e-3 => format!("{:.3} ms", s * 1e3),
        s => format!("{:.1} us", s * 1e6),
    }
}
