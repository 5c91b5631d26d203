//! Comparisons. Programs: the tensor oracle against each device, with Opts and without. Schedules:
//! kernels with random Opts against the kernel oracle. Flows in: seeds, or programs and a count;
//! flows out: how many agreed, and for each failure what reproduces it.

use crate::program;
use crate::run::{CompiledKernels, Run, Scheduled, difference};
use monoglot_device::{Runtime, open};
use monoglot_oracle::eval::{Value, eval};
use monoglot_oracle::{eval_kernel::eval_kernel, random};
use monoglot_uop::{Arg, DType, Device, Error, ErrorKind, Op, Opt, Result, Scalar, UOp};
use rustc_hash::{FxHashMap, FxHashSet};
use std::ops::Range;
use std::sync::Arc;

/// A case that went wrong.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed that makes it again.
    pub seed: u64,
    /// On which device, with which Opts.
    pub setting: String,
    /// What differs, or the error.
    pub message: String,
    /// The roots or the kernel, in the text form.
    pub text: String,
}

/// What was compared, and what went wrong.
pub struct Tally<'a> {
    /// Comparisons that were made.
    pub compared: u64,
    /// Those that failed, and what could not be compared.
    pub failures: Vec<Failure>,
    tell: &'a mut dyn FnMut(&str),
}

impl<'a> Tally<'a> {
    /// Nothing yet; `tell` hears a line after each batch.
    pub fn new(tell: &'a mut dyn FnMut(&str)) -> Tally<'a> {
        Tally {
            compared: 0,
            failures: Vec::new(),
            tell,
        }
    }

    /// A comparison was made: what differs, if anything.
    fn compared(&mut self, seed: u64, setting: &str, message: Option<String>, graph: &UOp) {
        self.compared += 1;
        if let Some(message) = message {
            self.fail(seed, setting, &message, graph);
        }
    }

    fn fail(&mut self, seed: u64, setting: &str, message: &str, graph: &UOp) {
        self.wrong(seed, setting, message, graph.to_string());
    }

    /// Something was looked at, and is as it should be.
    pub(crate) fn looked(&mut self) {
        self.compared += 1;
    }

    /// What went wrong with a text. It is told at once: a run of hours may be ended before its end tells all.
    pub(crate) fn wrong(&mut self, seed: u64, setting: &str, message: &str, text: String) {
        let begins = message.lines().next().unwrap_or_default();
        (self.tell)(&format!("seed {seed} on {setting}: {begins}"));
        self.failures.push(Failure {
            seed,
            setting: setting.into(),
            message: message.into(),
            text,
        });
    }

    /// Say how far it is.
    pub(crate) fn tell(&mut self, line: &str) {
        let failed = self.failures.len();
        (self.tell)(&format!("{line}; {failed} failed"));
    }

    fn progress(&mut self, setting: &str, batch: &Range<u64>, seeds: &Range<u64>) {
        let compared = self.compared;
        let failed = self.failures.len();
        let done = batch.end - seeds.start;
        let all = seeds.end - seeds.start;
        (self.tell)(&format!(
            "{setting}: {done} of {all} seeds; {compared} comparisons, {failed} failed"
        ));
    }
}

/// How many programs one compiler run takes.
const BATCH: u64 = 100;
/// Most iterations of a kernel that gets random schedules, and bytes of its buffers.
const ITERATIONS: i64 = 4096;
const BYTES: usize = 4 << 20;

/// These seeds in batches.
fn batches(seeds: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
    let end = seeds.end;
    let starts = seeds.clone().step_by(BATCH as usize);
    starts.map(move |at| at..(at + BATCH).min(end))
}

/// Compare the programs of these seeds on devices, optimised and not.
///
/// # Errors
/// Where a device cannot be opened.
pub fn programs(seeds: Range<u64>, ops: u64, devices: &[&str], tally: &mut Tally) -> Result<()> {
    for batch in batches(&seeds) {
        scheduled(batch.clone(), ops, tally)?;
        tally.progress("the kernel oracle", &batch, &seeds);
        for name in devices {
            let device = Device::new(name);
            let runtime = open(device)?;
            let target = Arc::new(runtime.target().clone());
            let mut ready = Vec::new();
            for seed in batch.clone() {
                let roots = program::random(seed, ops, device);
                match Scheduled::new(&roots, device, &target, seed % 2 == 1) {
                    Ok(scheduled) => ready.push((seed, roots, scheduled)),
                    Err(e) => tally.fail(seed, name, &e.to_string(), &UOp::sink(&roots)),
                }
            }
            for plain in [false, true] {
                let setting = format!("{name}{}", if plain { " without Opts" } else { "" });
                let opts = plain.then(Vec::new);
                let all = ready
                    .iter()
                    .flat_map(|(_, _, p)| p.kernels())
                    .map(|k| (k, opts.clone()))
                    .collect();
                let compiled = compile_apart(runtime, all, &mut |k, e| {
                    tally.fail(batch.start, &setting, &e.to_string(), k);
                });
                for (seed, roots, scheduled) in &ready {
                    let message = compare(*seed, roots, scheduled, &mut |k, b, w| {
                        compiled.run(k, b, w)
                    });
                    tally.compared(*seed, &setting, message, &UOp::sink(roots));
                }
            }
            tally.progress(name, &batch, &seeds);
        }
    }
    Ok(())
}

/// The same programs kernel by kernel through the kernel oracle: what is wrong here is the schedule's.
fn scheduled(seeds: Range<u64>, ops: u64, tally: &mut Tally) -> Result<()> {
    let device = Device::new("INTERP");
    let target = Arc::new(open(device)?.target().clone());
    for seed in seeds {
        let roots = program::random(seed, ops, device);
        for generalised in [false, true] {
            let message = match Scheduled::new(&roots, device, &target, generalised) {
                Ok(scheduled) => compare(seed, &roots, &scheduled, &mut |k, bufs, words| {
                    eval_kernel(k, bufs, words).map(|_| ())
                }),
                Err(e) => Some(e.to_string()),
            };
            let setting = if generalised {
                "the kernel oracle, generalised"
            } else {
                "the kernel oracle"
            };
            tally.compared(seed, setting, message, &UOp::sink(&roots));
        }
    }
    Ok(())
}

/// All kernels at once; where one of them fails, one by one, and the failures are reported.
pub(crate) fn compile_apart(
    runtime: &Arc<dyn Runtime>,
    kernels: Vec<(UOp, Option<Vec<Opt>>)>,
    report: &mut dyn FnMut(&UOp, Error),
) -> CompiledKernels {
    let mut seen = FxHashMap::default();
    let unique: Vec<_> = kernels
        .into_iter()
        .filter(|(k, _)| seen.insert(k.clone(), ()).is_none())
        .collect();
    if let Ok(all) = CompiledKernels::new(runtime.clone(), &unique) {
        return all;
    }
    let mut good = Vec::new();
    for k in unique {
        match CompiledKernels::new(runtime.clone(), std::slice::from_ref(&k)) {
            Ok(_) => good.push(k),
            Err(e) => report(&k.0, e),
        }
    }
    CompiledKernels::new(runtime.clone(), &good)
        .unwrap_or_else(|_| CompiledKernels::none(runtime.clone()))
}

/// Random bytes for the BUFFERs of a program.
pub(crate) struct Inputs<'a> {
    params: &'a [UOp],
    pub(crate) bytes: Vec<Vec<u8>>,
}

impl Inputs<'_> {
    pub(crate) fn of(params: &[UOp], seed: u64) -> Inputs<'_> {
        let data = |(i, p): (usize, &UOp)| program::data(p, seed ^ (i as u64) << 32);
        Inputs {
            params,
            bytes: params.iter().enumerate().map(data).collect(),
        }
    }

    /// The value of a BUFFER.
    pub(crate) fn leaf(&self, u: &UOp) -> Result<Value> {
        let i = self.params.iter().position(|p| p == u);
        let unknown = || {
            Error::new(ErrorKind::Run {
                message: "a leaf that is no parameter".into(),
            })
        };
        let bytes = &self.bytes[i.ok_or_else(unknown)?];
        Value::from_bytes(bytes, &u.sizes("leaf")?, u.dtype())
    }
}

fn compare(seed: u64, roots: &[UOp], scheduled: &Scheduled, run: &mut Run) -> Option<String> {
    let data = Inputs::of(&scheduled.params, seed);
    let want = match eval(roots, &mut |u: &UOp| data.leaf(u)) {
        Ok(v) => v,
        Err(e) => return Some(format!("oracle: {e}")),
    };
    match scheduled.run(&data.bytes, run) {
        Err(e) => Some(e.to_string()),
        Ok(got) => want
            .iter()
            .zip(&got)
            .enumerate()
            .find_map(|(r, (w, g))| difference(w, g).map(|d| format!("root {r}: {d}"))),
    }
}

/// Kernels of these programs and of `count` random ones, each with its ranges shrunk and able to run on
/// random data: no index read from it leads outside a buffer.
///
/// # Errors
/// Where the device cannot be opened.
pub fn kernels(count: u64, programs: &[Vec<UOp>], device: Device) -> Result<Vec<UOp>> {
    let target = Arc::new(open(device)?.target().clone());
    let random = (0..count).map(|seed| program::random(seed, 20, device));
    let mut seen = FxHashSet::default();
    let mut out: Vec<UOp> = Vec::new();
    for roots in programs.iter().cloned().chain(random) {
        // Every other program with variables in place of its constants.
        let generalised = out.len() % 2 == 1;
        let Ok(scheduled) = Scheduled::new(&roots, device, &target, generalised) else {
            continue;
        };
        // A settled kernel takes no Opts but those it came with: its turns may have to go in order.
        let free = |k: &UOp| !monoglot_codegen::opt::is_settled(k);
        for k in scheduled.kernels().into_iter().filter(free) {
            let small = random::shrink(&asked(&k), ITERATIONS, out.len() as u64);
            let stored = params(&small).into_iter().filter(|p| !p.is_variable());
            let bytes: usize = stored.map(|p| program::bytes(&p)).sum();
            if bytes <= BYTES
                && seen.insert(small.clone())
                && eval_kernel(&small, &mut inputs(&small, 0), &words(&small, 0)).is_ok()
            {
                out.push(small);
            }
        }
    }
    Ok(out)
}

/// The kernels of programs as they are, however large.
///
/// # Errors
/// Where the device cannot be opened.
pub fn whole_kernels(programs: &[Vec<UOp>], device: Device) -> Result<Vec<UOp>> {
    let target = Arc::new(open(device)?.target().clone());
    let scheduled = programs.iter().map(|roots| {
        let scheduled = Scheduled::new(roots, device, &target, false)?;
        Ok(scheduled.kernels())
    });
    let all: Result<Vec<Vec<UOp>>> = scheduled.collect();
    Ok(all?.concat())
}

/// The kernel in which no product is taken to be with padding: on random data that is no zero.
fn asked(kernel: &UOp) -> UOp {
    kernel.rebuild(
        &FxHashMap::default(),
        |_| true,
        |u, src| match u.arg() {
            Arg::Padding => u.with_arg(Arg::None).with_src(src),
            _ => u.with_src(src),
        },
    )
}

/// Compare random valid lists of Opts on kernels with the kernels themselves.
///
/// # Errors
/// Where a device cannot be opened, or there are no kernels.
pub fn schedules(
    seeds: Range<u64>,
    kernels: &[UOp],
    devices: &[&str],
    tally: &mut Tally,
) -> Result<()> {
    if kernels.is_empty() {
        return Err(Error::argument("schedules", "there are no kernels"));
    }
    for name in devices {
        let runtime = open(Device::new(name))?;
        for batch in batches(&seeds) {
            let mut cases = Vec::new();
            for seed in batch.clone() {
                let kernel = &kernels[seed as usize % kernels.len()];
                let kernel = random::staged(kernel, runtime.target(), seed);
                let opts = random::sample(&kernel, runtime.target(), seed);
                cases.push(Case { seed, kernel, opts });
            }
            schedule_batch(name, runtime, &cases, tally);
            tally.progress(name, &batch, &seeds);
        }
    }
    Ok(())
}

/// A kernel with a schedule of its own.
struct Case {
    seed: u64,
    kernel: UOp,
    opts: Vec<Opt>,
}

fn schedule_batch(name: &str, runtime: &Arc<dyn Runtime>, cases: &[Case], tally: &mut Tally) {
    // One kernel may be there with several lists: compile in rounds in which each occurs once.
    let mut rest: Vec<&Case> = cases.iter().collect();
    while !rest.is_empty() {
        let mut round: Vec<&Case> = Vec::new();
        let mut later: Vec<&Case> = Vec::new();
        for c in rest {
            if round.iter().any(|r| r.kernel == c.kernel) {
                later.push(c);
            } else {
                round.push(c);
            }
        }
        rest = later;
        let all = round
            .iter()
            .map(|c| (c.kernel.clone(), Some(c.opts.clone())))
            .collect();
        let mut broken: Vec<UOp> = Vec::new();
        let mut reports = Vec::new();
        let compiled = compile_apart(runtime, all, &mut |k, e| {
            broken.push(k.clone());
            reports.push((k.clone(), e));
        });
        for (k, e) in reports {
            if let Some(c) = round.iter().find(|c| c.kernel == k) {
                let setting = format!("{name} {:?}", c.opts);
                tally.fail(c.seed, &setting, &e.to_string(), &k);
            }
        }
        for c in round.into_iter().filter(|c| !broken.contains(&c.kernel)) {
            let setting = format!("{name} {:?}", c.opts);
            let message = compare_kernel(c.seed, &c.kernel, &mut |k, b, w| compiled.run(k, b, w));
            tally.compared(c.seed, &setting, message, &c.kernel);
        }
    }
}

/// The PARAMs of a kernel by slot.
pub(crate) fn params(kernel: &UOp) -> Vec<UOp> {
    let mut params: Vec<UOp> = kernel
        .toposort()
        .into_iter()
        .filter(|u| u.op() == Op::Param)
        .collect();
    params.sort_by_key(|p| p.buffer_arg().map_or(0, |b| b.slot));
    params
}

/// Random bytes for each; none for a variable.
pub(crate) fn inputs(kernel: &UOp, seed: u64) -> Vec<Vec<u8>> {
    let data = |(i, p): (usize, &UOp)| {
        if p.is_variable() {
            Vec::new()
        } else {
            program::data(p, seed ^ (i as u64) << 32)
        }
    };
    params(kernel).iter().enumerate().map(data).collect()
}

/// A random word for each variable.
pub(crate) fn words(kernel: &UOp, seed: u64) -> Vec<(u64, i64)> {
    let mut choice = random::Choice::new(seed);
    let mut word = |p: &UOp| {
        let slot = p.buffer_arg()?.slot;
        let value = match p.dtype() {
            DType::Index => p.vmin() + choice.below((p.vmax() - p.vmin() + 1) as usize) as i64,
            d => Scalar::Int(choice.below(5) as i128 - 2).cast(d).to_bits(d) as i64,
        };
        Some((slot, value))
    };
    let all = params(kernel);
    all.iter()
        .filter(|p| p.is_variable())
        .filter_map(&mut word)
        .collect()
}

/// What differs between the kernel oracle and something that runs a kernel, on random data.
pub fn compare_kernel(seed: u64, kernel: &UOp, run: &mut Run) -> Option<String> {
    let params = params(kernel);
    let words = words(kernel, seed);
    let mut want = inputs(kernel, seed);
    let mut got = want.clone();
    if let Err(e) = eval_kernel(kernel, &mut want, &words) {
        return Some(format!("oracle: {e}"));
    }
    if let Err(e) = run(kernel, &mut got, &words) {
        return Some(e.to_string());
    }
    params
        .iter()
        .zip(want.iter().zip(&got))
        .enumerate()
        .filter(|(_, (p, _))| !p.is_variable())
        .find_map(|(i, (p, (w, g)))| {
            let shape = p.sizes("PARAM").ok()?;
            let value = |b: &[u8]| Value::from_bytes(b, &shape, p.dtype());
            let w = value(w).ok()?;
            let g = value(g).ok()?;
            difference(&w, &g).map(|d| format!("buffer {i}: {d}"))
        })
}
