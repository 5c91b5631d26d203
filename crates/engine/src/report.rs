//! What `DEBUG` tells: one stream of lines on standard error, and the same as `tracing` events.

use monoglot_codegen::opt::choose;
use monoglot_device::{Config, Runtime, program_parts};
use monoglot_uop::{Device, ProgramInfo, Result, UOp};
use std::io::Write;
use std::sync::Mutex;
use std::time::Instant;

fn say(line: &str) {
    // Nobody to tell is no reason to fail.
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// DEBUG=1 tells which devices are used, each once.
pub(crate) fn opened(runtime: &dyn Runtime) {
    static TOLD: Mutex<Vec<Device>> = Mutex::new(Vec::new());
    let mut told = TOLD.lock().unwrap_or_else(|e| e.into_inner());
    if Config::current().debug >= 1 && !told.contains(&runtime.device()) {
        told.push(runtime.device());
        say(&format!("{}: {}", runtime.device(), runtime.about()));
    }
}

/// Of each kernel when it is compiled, DEBUG=3 shows the Opts and why, 4 the source, 5 the kernel's
/// UOps, 6 its linear program, 7 the machine code.
pub(crate) fn compiled(kernel: &UOp, program: &UOp, runtime: &dyn Runtime) {
    let debug = Config::current().debug;
    let Ok((linear, source, info)) = program_parts(program) else { return };
    tracing::debug!(target: "monoglot", kernel = %info.name, uops = linear.src().len(), "compiled");
    if debug >= 3 {
        say(&format!("{}: {} instructions", info.name, linear.src().len()));
        choose(kernel, runtime.target()).iter().for_each(|(opt, why)| say(&format!("    {opt}: {why}")));
    }
    if debug >= 4 {
        say(source);
    }
    if debug >= 5 {
        say(&kernel.to_string());
    }
    if debug >= 6 {
        say(&linear.to_string());
    }
    if debug >= 7 {
        match runtime.assembly(program) {
            Ok(text) => say(&text.unwrap_or_default()),
            Err(e) => say(&e.to_string()),
        }
    }
}

/// DEBUG=2 gives a line a kernel: time, rates.
pub(crate) fn launch(device: Device, info: &ProgramInfo, run: impl FnOnce() -> Result<()>) -> Result<()> {
    let told = Config::current().debug >= 2;
    if !told && !tracing::enabled!(target: "monoglot", tracing::Level::DEBUG) {
        return run();
    }
    let start = Instant::now();
    let out = run();
    let seconds = start.elapsed().as_secs_f64();
    tracing::debug!(target: "monoglot", kernel = %info.name, %device, seconds, "launched");
    if told {
        let rate = |n: u64| n as f64 / seconds / 1e9;
        let (name, us, flops, bytes) = (&info.name, seconds * 1e6, rate(info.flops), rate(info.bytes));
        say(&format!(
            "*** {:<8} {name:<34} {us:>9.1} us {flops:>7.1} GFLOP/s {bytes:>6.1} GB/s",
            device.name()
        ));
    }
    out
}
