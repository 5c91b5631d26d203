//! What `DEBUG` tells: one stream of lines on standard error, and the same as `tracing` events.

use crate::program::Step;
use monoglot_device::{Config, program_parts};
use monoglot_uop::{Result, UOp};
use std::io::Write;
use std::time::Instant;

fn say(line: &str) {
    // Nobody to tell is no reason to fail.
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// DEBUG=4 shows the source of each compiled kernel, 6 its linear program.
pub(crate) fn compiled(program: &UOp) {
    let debug = Config::current().debug;
    let Ok((linear, source, info)) = program_parts(program) else { return };
    tracing::debug!(target: "monoglot", kernel = %info.name, uops = linear.src().len(), "compiled");
    if debug >= 4 {
        say(source);
    }
    if debug >= 6 {
        say(&linear.to_string());
    }
}

/// DEBUG=2 gives a line a kernel: time, rates.
pub(crate) fn launch(step: &Step, run: impl FnOnce() -> Result<()>) -> Result<()> {
    if Config::current().debug < 2 {
        return run();
    }
    let start = Instant::now();
    let out = run();
    let seconds = start.elapsed().as_secs_f64();
    let rate = |n: u64| n as f64 / seconds / 1e9;
    let info = &step.info;
    say(&format!(
        "*** {:<8} {:<34} {:>10.1} us {:>8.1} GFLOP/s {:>8.1} GB/s",
        step.device.name(),
        info.name,
        seconds * 1e6,
        rate(info.flops),
        rate(info.bytes)
    ));
    tracing::debug!(target: "monoglot", kernel = %info.name, seconds, "launched");
    out
}
