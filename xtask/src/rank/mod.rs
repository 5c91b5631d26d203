//! `rank`: does the heuristic's estimate order schedules as the machine does? Flows in: how many kernels and
//! schedules; flows out: for each kernel Spearman's rank correlation of predicted and measured times, and
//! their median; a failure where that is below [`LEAST`].
//!
//! The schedules of a kernel are the heuristic's own, most of the others a few random steps from it, every fourth
//! random altogether. With `--times FILE` measured times are kept there and taken from there again, so that a
//! change of the estimate is judged at once by what was measured before.

mod kernels;
mod measure;
mod times;

use monoglot_codegen::opt::{apply, choose, predict::predict};
use monoglot_device::{Config, open};
use monoglot_oracle::random;
use monoglot_uop::{Device, Opt, Result, Target, UOp};
use rustc_hash::FxHashSet;
use std::process::ExitCode;
use times::Times;

/// The median correlation that is asked for.
const LEAST: f64 = 0.7;

struct Settings {
    kernels: usize,
    first: usize,
    schedules: usize,
    threads: usize,
    times: Option<String>,
    all: bool,
}

pub(crate) fn main(args: &[String]) -> ExitCode {
    let after = |name: &str| {
        let at = args.iter().position(|a| a == name)?;
        args.get(at + 1)
    };
    let number = |name: &str, or: usize| after(name).and_then(|n| n.parse().ok()).unwrap_or(or);
    let settings = Settings {
        kernels: number("--kernels", 50),
        first: number("--first", 0),
        schedules: number("--schedules", 20),
        threads: number("--threads", 1),
        times: after("--times").cloned(),
        all: args.iter().any(|a| a == "--all"),
    };
    match run(&settings) {
        Ok(median) if median >= LEAST => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}

/// The median correlation.
fn run(settings: &Settings) -> Result<f64> {
    Config {
        threads: Some(settings.threads),
        ..(*Config::current()).clone()
    }
    .set();
    let device = Device::new("CPU");
    let runtime = open(device)?;
    let target = runtime.target();
    let mut known = Times::read(settings.times.as_deref());
    let mut all = Vec::new();
    println!(
        "{:<16} {:>5} {:>9} {:>9}  of the fastest's time",
        "kernel", "rank", "fastest", "chosen"
    );
    let kernels = kernels::kernels(settings.kernels, device, target)?;
    for (name, kernel) in kernels.iter().skip(settings.first) {
        if !measure::can_run(kernel) {
            continue;
        }
        let schedules = schedules(kernel, settings.schedules, target);
        let measured = match known.of(name, &schedules) {
            Some(times) => times,
            None => {
                let times = measure::times(kernel, &schedules, &**runtime)?;
                known.add(name, &schedules, &times);
                times
            }
        };
        let predicted: Vec<f64> = schedules
            .iter()
            .map(
                |opts| Ok(predict(&apply(kernel, opts, target)?, target).map_or(0.0, |p| p.cycles)),
            )
            .collect::<Result<_>>()?;
        let rank = correlation(&predicted, &measured);
        let best = measured.iter().copied().fold(f64::INFINITY, f64::min);
        let own = measured[0] / best;
        println!("{name:<16} {rank:>5.2} {:>7.1}us {own:>9.2}", best * 1e6);
        if settings.all {
            tell(&schedules, &predicted, &measured);
        }
        all.push(rank);
    }
    all.sort_by(f64::total_cmp);
    let median = all.get(all.len() / 2).copied().unwrap_or(0.0);
    println!("{} kernels: median rank correlation {median:.3}", all.len());
    Ok(median)
}

/// Every schedule of a kernel, the fastest first; the heuristic's own has a star.
fn tell(schedules: &[Vec<Opt>], predicted: &[f64], measured: &[f64]) {
    let mut order: Vec<usize> = (0..schedules.len()).collect();
    order.sort_by(|&a, &b| measured[a].total_cmp(&measured[b]));
    for k in order {
        let opts: Vec<String> = schedules[k].iter().map(Opt::to_string).collect();
        let us = measured[k] * 1e6;
        let own = if k == 0 { '*' } else { ' ' };
        println!(
            "{own} {us:>10.1}us {:>12.0} cycles  {}",
            predicted[k],
            opts.join(" ")
        );
    }
}

/// Different schedules of a kernel: see the module.
fn schedules(kernel: &UOp, count: usize, target: &Target) -> Vec<Vec<Opt>> {
    let own = choose(kernel, target);
    let mut seen: FxHashSet<UOp> = FxHashSet::default();
    let mut all = Vec::with_capacity(count);
    let mut add = |opts: Vec<Opt>| {
        let after = apply(kernel, &opts, target);
        // The list of Opts is part of a kernel; equal loops are the same schedule.
        let loops = after.map(|k| k.with_arg(kernel.arg().clone()));
        if loops.is_ok_and(|l| seen.insert(l)) {
            all.push(opts);
        }
        all.len()
    };
    let mut len = add(own.clone());
    for seed in 0..20 * count as u64 {
        if len == count {
            break;
        }
        len = match seed % 4 {
            0 => add(random::sample(kernel, target, seed)),
            _ => random::near(kernel, &own, target, seed).map_or(len, &mut add),
        };
    }
    all
}

/// Spearman's: the correlation of the ranks, equal values having the mean of theirs.
fn correlation(x: &[f64], y: &[f64]) -> f64 {
    let [x, y] = [x, y].map(ranks);
    let mean = (x.len() as f64 + 1.0) / 2.0;
    let product = |a: &[f64], b: &[f64]| -> f64 {
        a.iter().zip(b).map(|(a, b)| (a - mean) * (b - mean)).sum()
    };
    let spread = (product(&x, &x) * product(&y, &y)).sqrt();
    if spread == 0.0 {
        0.0
    } else {
        product(&x, &y) / spread
    }
}

/// The rank of each value among all.
fn ranks(values: &[f64]) -> Vec<f64> {
    let below = |v: f64| values.iter().filter(|&&w| w < v).count() as f64;
    let equal = |v: f64| values.iter().filter(|&&w| w == v).count() as f64;
    let rank = |&v: &f64| below(v) + (equal(v) + 1.0) / 2.0;
    values.iter().map(rank).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_that_agree_are_correlated() {
        assert_eq!(ranks(&[3.0, 1.0, 3.0, 7.0]), [2.5, 1.0, 2.5, 4.0]);
        assert_eq!(correlation(&[1.0, 2.0, 9.0], &[10.0, 11.0, 12.0]), 1.0);
        assert_eq!(correlation(&[1.0, 2.0, 9.0], &[3.0, 2.0, 1.0]), -1.0);
        assert_eq!(correlation(&[1.0, 1.0, 1.0], &[3.0, 2.0, 1.0]), 0.0);
        let half = correlation(&[1.0, 2.0, 3.0, 4.0], &[2.0, 1.0, 4.0, 3.0]);
        assert!((half - 0.6).abs() < 1e-12, "{half}");
    }
}
