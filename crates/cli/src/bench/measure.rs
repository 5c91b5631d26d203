//! Timing one row. Flows in: a workload or a probe of the machine, and seconds to spend on it; flows out: a
//! record. The machine's limits are sampled in turn with the runs, so that both met the same machine.
//!
//! Invariant: a run that compiles is never counted, and at least one that does not is, however long it
//! takes.

use super::limit::{Samples, median};
use super::others::Clock;
use super::workloads::{Launches, Subject, Values, Workload};
use monoglot::compiler::engine;
use monoglot::{Result, Tensor, counters};
use monoglot_roofline::{Machine, Probe};
use serde::Serialize;
use std::time::Instant;

/// A row. What a row has not got is None: the roofline's own rows run no program, and other devices than
/// the CPU have no limit here.
#[derive(Debug, Serialize)]
pub(super) struct Record {
    pub(super) name: String,
    pub(super) threads: usize,
    /// Of launching the compiled program again on its storage, or of the user's call.
    pub(super) median_s: Option<f64>,
    /// Of the user's call: the expression built and realized.
    pub(super) realize_s: Option<f64>,
    pub(super) rate: f64,
    pub(super) unit: &'static str,
    /// The limit, in the same unit.
    pub(super) roofline: Option<f64>,
    /// The rate over the limit.
    pub(super) share: Option<f64>,
    /// Launches of one run.
    pub(super) kernels: Option<u64>,
    /// Scheduling, lowering and compiling, with nothing cached.
    pub(super) compile_s: Option<f64>,
    /// Cores that other processes kept busy meanwhile.
    pub(super) others: Option<f64>,
}

/// A machine that is measured, and the bytes from which on all are in memory.
pub(super) struct Limits {
    pub(super) machine: Machine,
    pub(super) memory: usize,
    /// The best that any row saw of each kind of arithmetic: that does not drift, as memory does that is
    /// shared with whoever else is on the machine.
    pub(super) peaks: Vec<(Probe, f64)>,
}

/// Times at which the limits are sampled between the runs.
const ROUNDS: usize = 5;
/// Most runs of a round.
const RUNS: usize = 400;
/// Calls of which each may compile.
const COMPILES: usize = 8;
/// The part of the time that is spent on the user's call, where a program is launched besides.
const CALLS: f64 = 0.25;

/// One of the roofline's own rows; None where the processor has not got it.
pub(super) fn probe(
    name: &str,
    probe: Probe,
    threads: usize,
    limits: &mut Limits,
    seconds: f64,
) -> Option<Record> {
    let mut samples = Samples::of([probe]);
    let clock = Clock::now();
    let begin = Instant::now();
    // As many samples as a workload's limit is taken from, or more.
    for k in 0.. {
        if k > ROUNDS && begin.elapsed().as_secs_f64() > seconds / 5.0 {
            break;
        }
        samples.take(&mut limits.machine);
    }
    let rate = median(samples.first())?;
    let best = samples.first().iter().copied().reduce(f64::max)?;
    if let Probe::Peak(_) = probe {
        limits.peaks.push((probe, best));
    }
    let unit = match probe {
        Probe::Peak(monoglot_roofline::Arithmetic::I8) => "GOP/s",
        Probe::Peak(_) => "GFLOP/s",
        Probe::Bandwidth { .. } => "GB/s",
    };
    Some(Record {
        name: name.into(),
        threads,
        median_s: None,
        realize_s: None,
        rate: rate / 1e9,
        unit,
        roofline: Some(best / 1e9),
        share: Some(rate / best),
        kernels: None,
        compile_s: None,
        others: clock.and_then(|c| c.others()),
    })
}

/// A workload.
///
/// # Errors
/// What building, compiling or running it says.
pub(super) fn workload(
    w: &Workload,
    threads: usize,
    mut limits: Option<&mut Limits>,
    seconds: f64,
) -> Result<Record> {
    let mut subject = (w.prepare)()?;
    let clock = Clock::now();
    let probes = limits.as_ref().map(|l| {
        let has = |probe| l.machine.has(probe);
        w.work.probes(l.memory, has)
    });
    let probes = probes.unwrap_or_default();
    let mut samples = Samples::of(probes.iter().copied());
    let mut sample = || {
        if let Some(l) = &mut limits {
            samples.take(&mut l.machine);
        }
    };
    let run = match &mut subject {
        Subject::Values(values) => launched(values, seconds, &mut sample)?,
        Subject::Call(call) => called(call, seconds, &mut sample)?,
        Subject::Launches(launches) => alone(launches, seconds)?,
    };
    let mut measured = samples.rates();
    if let Some(l) = limits {
        let peaks = measured.iter().filter(|(p, _)| matches!(p, Probe::Peak(_)));
        l.peaks.extend(peaks);
        let needed = l.peaks.iter().filter(|(p, _)| probes.contains(p));
        measured.extend(needed);
    }
    let rate = w.work.amount() / run.median;
    let roofline = w.work.seconds(&measured).map(|s| w.work.amount() / s);
    Ok(Record {
        name: w.name.into(),
        threads,
        median_s: Some(run.median),
        realize_s: Some(run.realize),
        rate,
        unit: w.work.unit(),
        roofline,
        share: roofline.map(|r| rate / r),
        kernels: Some(run.kernels),
        compile_s: Some(run.compile),
        others: clock.and_then(|c| c.others()),
    })
}

/// What was measured of a workload.
struct Run {
    median: f64,
    realize: f64,
    kernels: u64,
    compile: f64,
}

/// The values' program is launched again and again on its storage; in turn with that they are realized as
/// a user would.
fn launched(values: &Values, seconds: f64, sample: &mut dyn FnMut()) -> Result<Run> {
    let realize = || {
        let tensors = values.tensors()?;
        Tensor::realize_all(&tensors.iter().collect::<Vec<_>>())
    };
    let roots = values.tensors()?;
    let roots: Vec<_> = roots.iter().map(Tensor::uop).collect::<Result<_>>()?;
    let start = Instant::now();
    let bound = engine::bind(&roots)?;
    let compile = start.elapsed().as_secs_f64();
    drop(roots);
    let mut launches = Vec::new();
    let mut calls = Vec::new();
    // The first launch and the first call meet pages that nobody has touched: they do not count.
    bound.launch()?;
    realize()?;
    sample();
    let of_round = seconds / ROUNDS as f64;
    for _ in 0..ROUNDS {
        if wants_more(&launches, seconds) {
            repeated(&mut launches, of_round * (1.0 - CALLS), || bound.launch())?;
        }
        if wants_more(&calls, seconds * CALLS) {
            repeated(&mut calls, of_round * CALLS, realize)?;
        }
        sample();
    }
    Ok(Run {
        median: median(&launches).unwrap_or_default(),
        realize: median(&calls).unwrap_or_default(),
        kernels: bound.kernels().count() as u64,
        compile,
    })
}

/// A call that does more than compute values is made again and again.
fn called(
    call: &mut dyn FnMut() -> Result<()>,
    seconds: f64,
    sample: &mut dyn FnMut(),
) -> Result<Run> {
    // A step that is written with other constants than the last one compiles once more.
    let mut compiling = Vec::new();
    while compiling.len() < COMPILES {
        let before = counters();
        let time = timed(&mut *call)?;
        let now = counters();
        if now.schedules == before.schedules && now.compiled == before.compiled {
            break;
        }
        compiling.push(time);
    }
    let mut times = Vec::new();
    let mut kernels = 0;
    sample();
    for _ in 0..ROUNDS {
        if wants_more(&times, seconds) {
            let before = counters().launches;
            let runs = repeated(&mut times, seconds / ROUNDS as f64, &mut *call)?;
            kernels = (counters().launches - before) / runs as u64;
        }
        sample();
    }
    let median = median(&times).unwrap_or_default();
    // A sum of no floats is -0.
    let beyond = |sum: f64, t: &f64| sum + (t - median).max(0.0);
    let compile = compiling.iter().fold(0.0, beyond);
    Ok(Run {
        median,
        realize: median,
        kernels,
        compile,
    })
}

/// A kernel is launched by itself.
fn alone(launches: &Launches, seconds: f64) -> Result<Run> {
    // The first one starts the workers and meets code that nobody has run.
    launches.time()?;
    let mut times = Vec::new();
    let begin = Instant::now();
    while times.is_empty() || begin.elapsed().as_secs_f64() < seconds {
        times.push(launches.time()?);
    }
    let median = median(&times).unwrap_or_default();
    Ok(Run {
        median,
        realize: median,
        kernels: 1,
        compile: launches.compile,
    })
}

/// Whether there are no runs yet, or they took less than they may.
fn wants_more(times: &[f64], seconds: f64) -> bool {
    times.is_empty() || times.iter().sum::<f64>() < seconds
}

/// The seconds that something takes.
fn timed(mut run: impl FnMut() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    run()?;
    Ok(start.elapsed().as_secs_f64())
}

/// Run for so many seconds, at least once; the number of runs, whose times go to `times`.
fn repeated(
    times: &mut Vec<f64>,
    seconds: f64,
    mut run: impl FnMut() -> Result<()>,
) -> Result<usize> {
    let begin = Instant::now();
    let before = times.len();
    loop {
        times.push(timed(&mut run)?);
        let runs = times.len() - before;
        if runs >= RUNS || begin.elapsed().as_secs_f64() >= seconds {
            return Ok(runs);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_timed_runs_once_at_least() {
        let mut times = Vec::new();
        let mut runs = 0;
        let count = || {
            runs += 1;
            Ok(())
        };
        assert_eq!(repeated(&mut times, 0.0, count), Ok(1));
        assert_eq!((runs, times.len()), (1, 1));
    }

    #[test]
    fn calls_that_compile_are_not_counted() {
        let x = Tensor::new(&[1.0f32, 2.0], [2]);
        let mut call = || (&x + 1.0).realize();
        let mut samples = 0;
        let run = called(&mut call, 0.0, &mut || samples += 1);
        let run = run.expect("an addition runs");
        assert!(run.kernels > 0);
        assert_eq!(samples, ROUNDS + 1);
    }
}
