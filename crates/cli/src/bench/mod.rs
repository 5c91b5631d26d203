//! `monoglot bench`: the workloads of `workloads`, each built and realized again and again. Flows
//! in: which workloads, on which device, and for how long each; flows out: for each the median
//! time, what that is in work a second, and how many kernels it takes. Runs that compile are never
//! counted.

mod workloads;

use crate::{Outcome, configure, json_line, seconds};
use monoglot::{Config, Result, counters};
use serde::Serialize;
use std::io::Write;
use std::time::Instant;
use workloads::{Amount, Workload};

/// What may be asked.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only workloads whose name contains this
    #[arg(long)]
    filter: Option<String>,
    /// CPU threads of a kernel
    #[arg(long)]
    threads: Option<usize>,
    /// The device to run on
    #[arg(long)]
    device: Option<String>,
    /// Seconds for each workload, after warming up
    #[arg(long, default_value = "1", value_parser = duration)]
    seconds: f64,
    /// Print the names and run nothing
    #[arg(long, conflicts_with = "json")]
    list: bool,
    /// An object a line
    #[arg(long)]
    json: bool,
}

/// Seconds, zero or more.
fn duration(text: &str) -> std::result::Result<f64, String> {
    let finite = text
        .parse::<f64>()
        .ok()
        .filter(|s| s.is_finite() && *s >= 0.0);
    finite.ok_or_else(|| "a number of seconds, zero or more, is needed".into())
}

#[derive(Serialize)]
struct Record {
    name: &'static str,
    threads: usize,
    median_s: f64,
    rate: f64,
    unit: &'static str,
    kernels: u64,
}

/// Fewest and most measured runs of a workload.
const RUNS: std::ops::Range<usize> = 5..1000;

/// Run the workloads that were asked for.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Outcome {
    configure(args.device.as_deref(), args.threads);
    let wanted = |w: &&Workload| {
        args.filter
            .as_ref()
            .is_none_or(|f| w.name.contains(f.as_str()))
    };
    let chosen: Vec<&Workload> = workloads::ALL.iter().filter(wanted).collect();
    if chosen.is_empty() {
        let filter = args.filter.as_deref().unwrap_or_default();
        return Err(crate::Failure::Told(format!(
            "no workload's name contains `{filter}`; --list shows them"
        )));
    }
    if args.list {
        for w in chosen {
            writeln!(out, "{}", w.name)?;
        }
        return Ok(());
    }
    if !args.json {
        writeln!(
            out,
            "{:<22} {:>7} {:>12} {:>16} {:>8}",
            "workload", "threads", "median", "rate", "kernels"
        )?;
    }
    for w in chosen {
        let record = measure(w, args.seconds)?;
        if args.json {
            json_line(out, &record)?;
        } else {
            let Record {
                name,
                threads,
                median_s,
                rate,
                unit,
                kernels,
            } = record;
            let rate = format!("{rate:.1} {unit}");
            writeln!(
                out,
                "{name:<22} {threads:>7} {:>12} {rate:>16} {kernels:>8}",
                seconds(median_s)
            )?;
        }
        out.flush()?;
    }
    Ok(())
}

fn measure(w: &Workload, budget: f64) -> Result<Record> {
    let mut step = (w.prepare)()?;
    let start = Instant::now();
    step()?;
    // What takes long needs no warming up beyond its first run, which compiled it.
    let long = start.elapsed().as_secs_f64() > 5.0;
    let warming = if long { 1 } else { 3 };
    for _ in 0..warming {
        step()?;
    }
    let mut times = Vec::new();
    let begin = Instant::now();
    let before = counters().launches;
    while times.len() < RUNS.start
        || (begin.elapsed().as_secs_f64() < budget && times.len() < RUNS.end)
    {
        let start = Instant::now();
        step()?;
        times.push(start.elapsed().as_secs_f64());
        if begin.elapsed().as_secs_f64() > 10.0 * budget.max(0.1) && times.len() >= 2 {
            break;
        }
    }
    let kernels = (counters().launches - before) / times.len() as u64;
    times.sort_by(f64::total_cmp);
    let median_s = (times[times.len() / 2] + times[(times.len() - 1) / 2]) / 2.0;
    let (amount, unit) = match w.amount {
        Amount::Flops(n) => (n, "GFLOP/s"),
        Amount::Bytes(n) => (n, "GB/s"),
    };
    let threads = Config::current().thread_count();
    Ok(Record {
        name: w.name,
        threads,
        median_s,
        rate: amount / median_s / 1e9,
        unit,
        kernels,
    })
}
