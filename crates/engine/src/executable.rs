//! Executables: compiled programs, kept by structure. Flows in: a function of PARAMs; flows out: steps that name
//! compiled kernels and which storage each argument is.

use crate::backends::backend;
use crate::cache::Cache;
use crate::check::{self, Check};
use crate::counters::{Totals, count};
use crate::family;
use crate::own::{self, Compute};
use crate::report;
use crate::wrong::broken;
use monoglot_codegen::{Stage, Timings, lower};
use monoglot_device::{Commands, Config, Kernel, Storage, open, program_parts};
use monoglot_schedule::{Function, Plan, schedule};
use monoglot_uop as uop;
use monoglot_uop::own::FunctionInfo;
use monoglot_uop::{Arg, Device, Effort, Op, ProgramInfo, Result, Target, UOp};
use rustc_hash::{FxHashMap, FxHashSet};
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, Once, OnceLock};
use std::time::{Duration, Instant};

/// A program ready to run: its steps name compiled kernels.
pub(crate) struct Executable {
    pub(crate) steps: Vec<Step>,
    /// Steps that run again and again, in order; a loop stands before those within it.
    pub(crate) loops: Vec<Loop>,
    /// The launches of loops that are in no other, once they are known (`batch`).
    pub(crate) lists: OnceLock<Vec<LoopList>>,
    pub(crate) outputs: Vec<UOp>,
    pub(crate) plan: Plan,
    pub(crate) written: Vec<bool>,
    /// In the order of the steps.
    pub(crate) checks: Vec<Check>,
    /// The schedule that the steps are of.
    pub(crate) linear: UOp,
}

/// One CALL.
pub(crate) struct Step {
    pub(crate) action: Action,
    pub(crate) args: Vec<Slot>,
    /// The arguments that are parts of storage.
    pub(crate) parts: Vec<Part>,
    /// The PARAMs among the arguments that it writes, in place.
    pub(crate) writes: Vec<usize>,
    pub(crate) info: Arc<ProgramInfo>,
    pub(crate) device: Device,
}

/// Steps that run again and again.
pub(crate) struct Loop {
    pub(crate) steps: Range<usize>,
    pub(crate) rounds: i64,
}

/// A loop that is in no other.
pub(crate) struct LoopList {
    pub(crate) steps: Range<usize>,
    /// All that it does; None where it has to go through queues.
    pub(crate) commands: Option<Commands>,
}

/// An argument that is a part of storage, from byte `first` on in the first round, and so many bytes further in
/// each one after it: for each loop around, the outermost first.
pub(crate) struct Part {
    pub(crate) argument: usize,
    pub(crate) first: i64,
    pub(crate) further: Vec<i64>,
    bytes: usize,
}

impl Part {
    /// This part of what storage there is.
    pub(crate) fn of(&self, whole: &Storage, rounds: &[i64]) -> Result<Arc<Storage>> {
        let ways = self.further.iter().zip(rounds);
        let at = ways.fold(self.first, |at, (further, round)| at + further * round);
        let at = usize::try_from(at).ok();
        let part = at.and_then(|at| whole.slice(at, self.bytes));
        part.ok_or_else(|| broken("engine", "a part past the end of its storage"))
    }
}

impl Executable {
    /// Give each step of this range to `each` as often as it runs, with its number and the rounds of the loops
    /// around it, the outermost first. The range has all or nothing of a loop.
    ///
    /// # Errors
    /// The first of `each`, which ends it.
    pub(crate) fn turns(
        &self,
        steps: Range<usize>,
        mut each: impl FnMut(&Step, usize, &[i64]) -> Result<()>,
    ) -> Result<()> {
        let mut at = steps.start;
        let mut open: Vec<usize> = Vec::new();
        let mut rounds: Vec<i64> = Vec::new();
        while at < steps.end {
            for (k, around) in self.loops.iter().enumerate() {
                if around.steps.start == at && !around.steps.is_empty() && !open.contains(&k) {
                    open.push(k);
                    rounds.push(0);
                }
            }
            each(&self.steps[at], at, &rounds)?;
            at += 1;
            while let (Some(&k), Some(round)) = (open.last(), rounds.last_mut()) {
                let around = &self.loops[k];
                if around.steps.end != at {
                    break;
                }
                *round += 1;
                if *round < around.rounds {
                    at = around.steps.start;
                    break;
                }
                open.pop();
                rounds.pop();
            }
        }
        Ok(())
    }

    /// The loops that are in no other.
    pub(crate) fn outermost(&self) -> impl Iterator<Item = &Loop> {
        let mut end = 0;
        let loops = self.loops.iter().filter(|l| !l.steps.is_empty());
        loops.filter(move |l| {
            let outside = l.steps.start >= end;
            end = end.max(l.steps.end);
            outside
        })
    }
}

pub(crate) enum Action {
    Launch(Arc<dyn Kernel>),
    /// So many elements of argument 1, which is on a device, from this one on, to argument 0. Both are expressions of the
    /// variables among the arguments, by position.
    Copy {
        from: UOp,
        count: UOp,
        element: usize,
        source: Option<Device>,
    },
}

/// What an argument is: storage, or a variable.
#[derive(Copy, Clone, Debug)]
pub(crate) enum Slot {
    Param(usize),
    Allocation(usize),
    Word(usize),
}

/// What compiling a program took and gave.
#[derive(Clone, Debug, Default)]
pub struct Compiled {
    /// Seconds by stage: callify, rangeify, memory_plan, optimize, expand, select, linearize, render.
    pub stages: Vec<(&'static str, f64)>,
    /// What each pass of these stages did.
    pub effort: Vec<(&'static str, Effort)>,
    /// CALLs of kernels in the program.
    pub kernels: usize,
    /// Different kernels among them.
    pub unique_kernels: usize,
    /// Nodes in the linear programs of the different kernels.
    pub uops: usize,
    /// The lowered kernels: PROGRAM nodes, in order of first use.
    pub programs: Vec<UOp>,
    /// Seconds from the SINK of each to its code.
    pub seconds: Vec<f64>,
}

/// Programs that are kept, and kernels, at most; those of a program that is in use stay with it.
const KEPT: usize = 1024;
/// A structure, and the device of what names none.
pub(crate) type Key = (UOp, Device);
static EXECUTABLES: Cache<Key, Arc<Executable>> = Cache::new(KEPT);
static KERNELS: Cache<Key, Compute> = Cache::new(KEPT);

/// An executable with the words for one run of it.
pub(crate) struct Invocation {
    pub(crate) executable: Arc<Executable>,
    /// The words of its variables.
    pub(crate) words: Vec<i64>,
}

/// What runs a function: an executable of its own, or one for all functions of its structure. It is compiled if
/// there is none. `roots` are the function's as the user wrote them, for reports.
pub(crate) fn executable(function: &Function, roots: &[UOp]) -> Result<Invocation> {
    let device = crate::default_device();
    let exact = (function.key(), device);
    if let Some(executable) = EXECUTABLES.find(&exact) {
        let words = Vec::new();
        return Ok(Invocation { executable, words });
    }
    let (executable, words) = match family::general(function, device, roots)? {
        None => {
            let make = || {
                report::grown(function, roots);
                made(function, device, |c| &c.exact)
            };
            (EXECUTABLES.get(&exact, make)?, Vec::new())
        }
        Some((general, words)) => {
            let make = || made(&general.function, device, |c| &c.generalised);
            (
                EXECUTABLES.get(&(general.key.clone(), device), make)?,
                words,
            )
        }
    };
    Ok(Invocation { executable, words })
}

/// The program of a function for which there is none.
fn made(
    function: &Function,
    device: Device,
    counter: impl FnOnce(&Totals) -> &AtomicU64,
) -> Result<Arc<Executable>> {
    count(counter);
    let scheduled = schedule(function, device, &target, &mut Default::default())?;
    let keys = unique_kernels(&scheduled.linear);
    let kernels = kernels(&keys)?;
    let kernels = keys.into_iter().zip(kernels).collect();
    Ok(Arc::new(Executable {
        steps: steps(&scheduled.linear, function.donated.len(), &kernels)?,
        loops: loops(&scheduled.linear),
        lists: OnceLock::new(),
        checks: check::checks(&scheduled)?,
        linear: scheduled.linear.into_inner(),
        outputs: scheduled.outputs,
        plan: scheduled.plan,
        written: scheduled.written,
    }))
}

/// What kernels of a device are compiled for.
pub(crate) fn target(device: Device) -> Result<Arc<Target>> {
    Ok(Arc::new(open(device)?.target().clone()))
}

/// These kernels, compiled where they were not seen before.
pub(crate) fn kernels(keys: &[Key]) -> Result<Vec<Compute>> {
    KERNELS.get_all(keys, compute)
}

/// These kernels as programs, whatever is known of them.
pub(crate) fn lowered(keys: &[Key]) -> Result<Vec<uop::Program>> {
    let lowered = lower_all(keys)?;
    Ok(lowered.into_iter().map(|(program, _)| program).collect())
}

/// The steps of a schedule; variables are numbered after `params` PARAMs.
pub(crate) fn steps(
    linear: &UOp,
    params: usize,
    kernels: &FxHashMap<Key, Compute>,
) -> Result<Vec<Step>> {
    let mut open: Vec<&UOp> = Vec::new();
    let mut out = Vec::new();
    for u in linear.src() {
        match u.op() {
            Op::Range => open.push(u),
            Op::End => drop(open.pop()),
            _ => out.push(step(u, params, &open, kernels)?),
        }
    }
    Ok(out)
}

/// The loops of a schedule.
pub(crate) fn loops(linear: &UOp) -> Vec<Loop> {
    let mut out: Vec<Loop> = Vec::new();
    let mut open: Vec<usize> = Vec::new();
    let mut step = 0;
    for u in linear.src() {
        match u.op() {
            Op::Range => {
                open.push(out.len());
                out.push(Loop {
                    steps: step..step,
                    rounds: u.vmax() + 1,
                });
            }
            Op::End => {
                if let Some(around) = open.pop() {
                    out[around].steps.end = step;
                }
            }
            _ => step += 1,
        }
    }
    out
}

/// What part of storage an argument is, if it is one, within these loops.
fn part(argument: usize, u: &UOp, around: &[&UOp]) -> Result<Option<Part>> {
    let mut bytes = None;
    let mut first = 0;
    let mut further = vec![0; around.len()];
    let mut view = u;
    // Each part is a line of lines that stand one after the other.
    while matches!(view.op(), Op::Reshape | Op::Shrink) {
        if view.op() == Op::Shrink {
            let line = view.shape().max_len() * view.dtype().bytes() as i64;
            bytes.get_or_insert(line);
            let start = view.dims_src(1)[0].to_uop();
            let begin = line_of(&start, around, None)?;
            first += line * begin;
            for (k, further) in further.iter_mut().enumerate() {
                *further += line * (line_of(&start, around, Some(k))? - begin);
            }
        }
        view = &view.src()[0];
    }
    Ok(bytes.map(|bytes| Part {
        argument,
        first,
        further,
        bytes: bytes as usize,
    }))
}

/// The line that this is in the first round of all loops, but for one that is in its second.
fn line_of(start: &UOp, around: &[&UOp], second: Option<usize>) -> Result<i64> {
    let round = |(k, range): (usize, &&UOp)| {
        let round = UOp::index_const(i64::from(second == Some(k)));
        ((*range).clone(), round)
    };
    let rounds = around.iter().enumerate().map(round).collect();
    let place = uop::rules::symbolic().rewrite(&start.substitute(&rounds))?;
    let place = place.as_int();
    place.ok_or_else(|| broken("engine", "a part that begins nowhere"))
}

/// Kernels that were not seen before, lowered and compiled.
fn compute(missing: &[Key]) -> Result<Vec<Compute>> {
    let lowered = lower_all(missing)?;
    let mut all: Vec<Option<Compute>> = vec![None; missing.len()];
    // Programs of one device are compiled together: one run of a C compiler costs more than a kernel.
    let mut devices: Vec<Device> = missing.iter().map(|(_, d)| *d).collect();
    devices.sort_by_key(|d| d.name());
    devices.dedup();
    for device in devices {
        let of_device: Vec<usize> = (0..missing.len())
            .filter(|&i| missing[i].1 == device)
            .collect();
        let programs: Vec<uop::Program> = of_device.iter().map(|&i| lowered[i].0.clone()).collect();
        let runtime = open(device)?;
        report::opened(&**runtime);
        let compiled = runtime.compile(&programs)?;
        for ((i, program), kernel) in of_device.into_iter().zip(&programs).zip(compiled) {
            count(|c| &c.compiled);
            report::compiled(&missing[i].0, program, &**runtime);
            let info = program_parts(program)?.1.clone();
            all[i] = Some(Compute { kernel, info });
        }
    }
    let all = all.into_iter();
    Ok(all
        .map(|c| c.expect("every kernel has one of these devices"))
        .collect())
}

fn step(
    call: &UOp,
    params: usize,
    around: &[&UOp],
    kernels: &FxHashMap<Key, Compute>,
) -> Result<Step> {
    let body = &call.src()[0];
    let args = &call.src()[1..];
    let slot = |a: &UOp| {
        let a = if a.op().is_movement() { a.viewed() } else { a };
        let number = a.buffer_arg().map_or(0, |b| b.slot as usize);
        match a.op() {
            Op::Param if a.is_variable() => Slot::Word(number - params),
            Op::Param => Slot::Param(number),
            _ => Slot::Allocation(number),
        }
    };
    let slots: Vec<Slot> = args.iter().map(slot).collect();
    let mut parts = Vec::new();
    for (k, a) in args.iter().enumerate() {
        parts.extend(part(k, a, around)?);
    }
    let outs: &[usize] = if let Arg::Call(info) = call.arg() {
        &info.outs
    } else {
        &[]
    };
    let written = |&k: &usize| match slots[k] {
        Slot::Param(i) => Some(i),
        Slot::Allocation(_) | Slot::Word(_) => None,
    };
    let writes = outs.iter().filter_map(written).collect();
    let device = kernel_device(call)?;
    if body.op() == Op::Copy {
        let part = &body.src()[0];
        let [from, count] = [1, 2].map(|k| part.dims_src(k)[0].to_uop());
        let element = part.dtype().bytes();
        let bytes = part.shape().max_len() as usize * element;
        let info = Arc::new(ProgramInfo {
            name: "copy".into(),
            bytes: 2 * bytes as u64,
            ..ProgramInfo::default()
        });
        return Ok(Step {
            action: Action::Copy {
                from,
                count,
                element,
                source: args.get(1).and_then(UOp::device),
            },
            args: slots,
            parts,
            writes,
            info,
            device,
        });
    }
    let Compute { kernel, info } = match FunctionInfo::of(body) {
        Some(function) => own::compute(function, args, outs.len())?,
        None => kernels[&(body.clone(), device)].clone(),
    };
    Ok(Step {
        action: Action::Launch(kernel),
        args: slots,
        parts,
        writes,
        info,
        device,
    })
}

pub(crate) fn kernel_device(call: &UOp) -> Result<Device> {
    let body = &call.src()[0];
    let own = match body.arg() {
        Arg::Place(d, _) => *d,
        Arg::Function(_) => FunctionInfo::of(body).map(|f| f.device),
        _ => body
            .toposort()
            .iter()
            .filter(|u| u.op() == Op::Param)
            .find_map(UOp::device),
    };
    own.ok_or_else(|| broken("schedule", "a kernel without a device"))
}

/// The different kernels of a program, in order of first use.
pub(crate) fn unique_kernels(linear: &UOp) -> Vec<Key> {
    let mut seen = FxHashSet::default();
    let kernels = linear
        .src()
        .iter()
        .filter(|call| call.src()[0].op() == Op::Sink);
    let keys = kernels.filter_map(|call| Some((call.src()[0].clone(), kernel_device(call).ok()?)));
    keys.filter(|key| seen.insert(key.clone())).collect()
}

/// Bytes that passes may give back before the allocator gives them back to the system.
const HEAP: usize = 16 << 20;

/// Let the allocator keep what one pass gives back until the next one asks: glibc's returns the end of its heap as soon
/// as a few hundred KiB are free, and has every page made anew, until it has seen a larger block go (mallopt(3),
/// M_TRIM_THRESHOLD). Nothing is written to that block, and others do not mind it.
fn keep_heap() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| drop(std::hint::black_box(Vec::<u8>::with_capacity(HEAP))));
}

/// Lower kernels, over as many threads as the configuration allows.
fn lower_all(kernels: &[Key]) -> Result<Vec<(uop::Program, Timings)>> {
    keep_heap();
    let targets = kernels.iter().map(|&(_, d)| Ok((d, target(d)?)));
    let targets: FxHashMap<Device, Arc<Target>> = targets.collect::<Result<_>>()?;
    let workers = Config::current()
        .thread_count()
        .min(kernels.len().div_ceil(2))
        .max(1);
    let next = std::sync::atomic::AtomicUsize::new(0);
    let done: Mutex<Vec<Option<Result<_>>>> = Mutex::new(vec![None; kernels.len()]);
    let work = || loop {
        let i = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let Some((kernel, device)) = kernels.get(i) else {
            break;
        };
        let target = &targets[device];
        let lowered = lower(
            kernel,
            target,
            backend(target.dialect),
            None,
            &mut |_, _| {},
        );
        let lowered = lowered.inspect_err(|e| report::not_compiled(kernel, e));
        let mut done = done.lock().unwrap_or_else(|e| e.into_inner());
        done[i] = Some(lowered);
    };
    std::thread::scope(|s| {
        for _ in 1..workers {
            s.spawn(work);
        }
        work();
    });
    let results = done.into_inner().unwrap_or_else(|e| e.into_inner());
    results
        .into_iter()
        .map(|r| r.expect("every kernel was taken by a worker"))
        .collect()
}

/// Schedule and lower what these roots need, to rendered source, with no cache and without running or
/// compiling anything.
pub fn compile(roots: &[UOp]) -> Result<Compiled> {
    let start = Instant::now();
    let then = Effort::so_far();
    let (function, _) = monoglot_schedule::callify(roots, |_| true)?;
    let callify = start.elapsed();
    let mut effort = vec![("callify", Effort::since(then))];
    let mut timings = monoglot_schedule::Timings::default();
    let scheduled = schedule(&function, crate::default_device(), &target, &mut timings)?;
    let unique = unique_kernels(&scheduled.linear);
    let lowered = lower_all(&unique)?;
    let mut lowering = Timings::default();
    lowered.iter().for_each(|(_, taken)| lowering.add(taken));
    let seconds = |d: Duration| d.as_secs_f64();
    let mut stages = vec![
        ("callify", seconds(callify)),
        ("rangeify", seconds(timings.rangeify)),
        ("memory_plan", seconds(timings.memory_plan)),
    ];
    stages.extend(Stage::ALL.map(|s| (s.name(), lowering.of(s))));
    effort.extend(timings.effort);
    effort.extend(Stage::ALL.map(|s| (s.name(), lowering.effort(s))));
    let linear_uops = |p: &uop::Program| {
        p.src()
            .iter()
            .find(|u| u.op() == Op::Linear)
            .map_or(0, |l| l.src().len())
    };
    Ok(Compiled {
        stages,
        effort,
        kernels: scheduled
            .linear
            .src()
            .iter()
            .filter(|c| c.src()[0].op() == Op::Sink)
            .count(),
        unique_kernels: unique.len(),
        uops: lowered.iter().map(|(p, _)| linear_uops(p)).sum(),
        seconds: lowered.iter().map(|(_, taken)| taken.total()).collect(),
        programs: lowered.into_iter().map(|(p, _)| p.into_inner()).collect(),
    })
}
