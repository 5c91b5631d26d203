//! `monoglot bench`: the machine's roofline, and workloads beside it. Flows in: which of them, on which
//! device, on how many cores, and for how long each; flows out: for each the median time, what that is
//! in work a second, the limit that was measured in turn with it, and what compiling took.

mod limit;
mod measure;
mod others;
mod workloads;

pub(crate) use limit::median;

use crate::{Failure, Outcome, configure, json_line};
use clap::builder::{RangedU64ValueParser, TypedValueParser};
use limit::roofline;
use measure::{Limits, Record};
use monoglot::Config;
use monoglot::compiler::{device, engine};
use monoglot_roofline as machine;
use std::io::Write;
use std::path::PathBuf;
use workloads::Workload;

/// What may be asked.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only rows whose name contains this
    #[arg(long)]
    filter: Option<String>,
    /// Only the row of that very name
    #[arg(long, requires = "filter")]
    exact: bool,
    /// Cores to keep to, with as many threads of a kernel
    #[arg(long, value_parser = cores())]
    threads: Option<usize>,
    /// The device to run on
    #[arg(long)]
    device: Option<String>,
    /// Seconds for each row, after warming up; what takes longer runs once
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

/// A number of cores: at least one.
fn cores() -> impl TypedValueParser<Value = usize> {
    RangedU64ValueParser::<usize>::new().range(1..)
}

/// Run the rows that were asked for.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Outcome {
    let filter = args.filter.as_deref().unwrap_or_default();
    let mut chosen = workloads::all();
    let asked = |name: &str| match args.exact {
        true => name == filter,
        false => name.contains(filter),
    };
    chosen.retain(|w| asked(w.name));
    // The names do not depend on the machine: these sizes are only for them.
    let named = |(name, _): &(String, _)| asked(name);
    let probes = roofline([0; 3], 1).iter().filter(|p| named(p)).count();
    if chosen.is_empty() && probes == 0 {
        return Err(Failure::Told(format!(
            "no workload's name {} `{filter}`; --list shows them",
            if args.exact { "is" } else { "contains" }
        )));
    }
    if args.list {
        for (name, _) in roofline([0; 3], 1).iter().filter(|p| named(p)) {
            writeln!(out, "{name}")?;
        }
        for w in chosen {
            writeln!(out, "{}", w.name)?;
        }
        return Ok(());
    }
    if let Some(threads) = args.threads {
        keep_to(threads)?;
    }
    configure(args.device.as_deref(), args.threads);
    let cache = Cold::new();
    let threads = Config::current().thread_count();
    let target = device::open(engine::default_device())?.target().clone();
    let of_cpu = target.device.name().split(':').next() == Some("CPU");
    let mut limits = of_cpu.then(|| Limits {
        machine: machine::Machine::new(threads),
        memory: limit::memory(target.caches),
        peaks: Vec::new(),
    });
    if !args.json {
        writeln!(out, "{}", heading(target.device.name(), threads))?;
    }
    let clock = others::Clock::now();
    let mut told = |record: &Record| -> Outcome {
        if args.json {
            json_line(out, record)?;
        } else {
            writeln!(out, "{}", line(record))?;
        }
        Ok(out.flush()?)
    };
    if let Some(limits) = &mut limits {
        for (name, probe) in roofline(target.caches, threads).iter().filter(|p| named(p)) {
            let record = measure::probe(name, *probe, threads, limits, args.seconds);
            record.iter().try_for_each(&mut told)?;
        }
    }
    for w in &chosen {
        told(&measured(w, threads, limits.as_mut(), args.seconds)?)?;
    }
    drop(cache);
    match clock.and_then(|c| c.others()) {
        Some(others) if !args.json => writeln!(
            out,
            "other processes kept {others:.1} cores busy meanwhile; 0.1 and less is quiet"
        )?,
        _ => {}
    }
    Ok(())
}

/// A workload's record; an error says which workload it is of.
fn measured(
    w: &Workload,
    threads: usize,
    limits: Option<&mut Limits>,
    seconds: f64,
) -> Result<Record, Failure> {
    let record = measure::workload(w, threads, limits, seconds);
    record.map_err(|e| Failure::Told(format!("{}: {e}", w.name)))
}

/// Keep this process to so many cores.
fn keep_to(cores: usize) -> Outcome {
    let allowed = machine::allowed();
    if cores > allowed {
        return Err(Failure::Told(format!(
            "--threads {cores}: this process may run on {allowed} cores at most"
        )));
    }
    if !machine::pin(cores) {
        let message = "this system keeps no process to some of its cores; threads may wander";
        writeln!(std::io::stderr(), "monoglot: {message}")?;
    }
    Ok(())
}

/// A folder for compiled programs that is empty when the bench begins, so that every row's compile time is
/// that of compiling. It goes with this.
struct Cold(PathBuf);

impl Cold {
    fn new() -> Cold {
        let folder = std::env::temp_dir().join(format!("monoglot-bench-{}", std::process::id()));
        let config = Config {
            cache_dir: Some(folder.clone()),
            ..(*Config::current()).clone()
        };
        config.set();
        Cold(folder)
    }
}

impl Drop for Cold {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What stands above the columns.
fn heading(device: &str, threads: usize) -> String {
    let many = if threads == 1 { "thread" } else { "threads" };
    let row = Row {
        name: "row",
        cells: ["median", "call", "rate", "limit", "", "%", "n", "compile"].map(String::from),
    };
    format!(
        "{device}, {threads} {many}. call: built and realized; n: kernels of a run; limit:\n\
         what samples of the machine, taken in turn with the row, say\n{}",
        row.line()
    )
}

/// A row of the table: the name, then cells.
struct Row<'a> {
    name: &'a str,
    cells: [String; 8],
}

impl Row<'_> {
    /// At most 80 columns where names have at most 28.
    fn line(&self) -> String {
        let [median, realize, rate, limit, unit, share, kernels, compile] = &self.cells;
        let line = format!(
            "{:<29}{median:>7} {realize:>6} {rate:>5} {limit:>5} {unit:<7} {share:>4} {kernels:>3} \
             {compile:>7}",
            self.name
        );
        line.trim_end().to_string()
    }
}

/// A record for people. A limit that was sampled while others had the cores is none, however far it is passed.
fn line(r: &Record) -> String {
    let time = |s: Option<f64>, count| s.map_or(String::new(), |s| scaled(s, count));
    let row = Row {
        name: &r.name,
        cells: [
            time(r.median_s, 4),
            time(r.realize_s, 3),
            digits(r.rate, 4),
            r.roofline.map_or(String::new(), |l| digits(l, 4)),
            r.unit.into(),
            r.share
                .map_or(String::new(), |s| format!("{:.0}%", 100.0 * s.min(9.99))),
            r.kernels.map_or(String::new(), |k| k.to_string()),
            time(r.compile_s, 3),
        ],
    };
    row.line()
}

/// Seconds in the unit that reads best, with so many digits.
fn scaled(s: f64, count: usize) -> String {
    match s {
        s if s >= 1.0 => format!("{}s", digits(s, count)),
        s if s >= 1e-3 => format!("{}ms", digits(s * 1e3, count)),
        s => format!("{}us", digits(s * 1e6, count)),
    }
}

/// So many digits, more before the point where they are needed.
fn digits(x: f64, count: usize) -> String {
    let whole = if x < 1.0 { 1 } else { x.log10() as usize + 1 };
    format!("{x:.*}", count.saturating_sub(whole))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cli;
    use clap::Parser;

    #[test]
    fn options_are_read() {
        let parsed = |text: &str| {
            let cli = Cli::try_parse_from(text.split(' ')).map_err(|e| e.to_string())?;
            match cli.command {
                crate::Command::Bench(args) => Ok((args.threads, args.seconds)),
                _ => Err("another command".to_string()),
            }
        };
        assert_eq!(parsed("monoglot bench"), Ok((None, 1.0)));
        assert_eq!(
            parsed("monoglot bench --threads 2 --seconds 0.25"),
            Ok((Some(2), 0.25))
        );
        for (wrong, why) in [
            ("--threads 0", "0 is not in 1.."),
            ("--threads two", "invalid digit"),
            ("--seconds -1", "unexpected argument"),
            ("--seconds=-1", "zero or more"),
            ("--seconds inf", "zero or more"),
            ("--list --json", "cannot be used with"),
        ] {
            let error = parsed(&format!("monoglot bench {wrong}")).expect_err(wrong);
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn numbers_have_as_many_digits() {
        let all = [0.01234, 1.0, 9.8765, 12.3456, 999.94, 12345.6].map(|x| digits(x, 4));
        assert_eq!(all, ["0.012", "1.000", "9.877", "12.35", "999.9", "12346"]);
        let all = [2.5e-5, 0.0123456, 12.3456].map(|x| scaled(x, 3));
        assert_eq!(all, ["25.0us", "12.3ms", "12.3s"]);
    }

    #[test]
    fn lines_fit_the_terminal() {
        let record = Record {
            name: "a".repeat(28),
            threads: 2,
            median_s: Some(0.9999),
            realize_s: Some(12.345),
            rate: 1234.56,
            unit: "GFLOP/s",
            roofline: Some(2345.6),
            share: Some(24.4),
            kernels: Some(999),
            compile_s: Some(12.34),
            others: None,
        };
        let line = line(&record);
        assert!(line.chars().count() <= 80, "{line}");
        assert!(heading("CPU", 16).lines().all(|l| l.chars().count() <= 80));
        assert!(line.ends_with("999   12.3s"), "{line}");
    }
}
