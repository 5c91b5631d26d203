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
use monoglot_device::{Config, Kernel, Storage, open, program_parts};
use monoglot_schedule::{Function, Plan, schedule};
use monoglot_uop as uop;
use monoglot_uop::own::FunctionInfo;
use monoglot_uop::{Arg, Device, Effort, Op, ProgramInfo, Result, Target, UOp};
use rustc_hash::{FxHashMap, FxHashSet};
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A program ready to run: its steps name compiled kernels.
pub(crate) struct Executable {
    pub(crate) steps: Vec<Step>,
    /// Steps that run again and again, in order.
    pub(crate) loops: Vec<Loop>,
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

/// An argument that is a part of storage, from byte `first` on in the first round of a loop, and so many bytes
/// further in each one after it.
pub(crate) struct Part {
    pub(crate) argument: usize,
    first: i64,
    further: i64,
    bytes: usize,
}

impl Part {
    /// This part of what storage there is.
    pub(crate) fn of(&self, whole: &Storage, round: i64) -> Result<Arc<Storage>> {
        let at = usize::try_from(self.first + self.further * round).ok();
        let part = at.and_then(|at| whole.slice(at, self.bytes));
        part.ok_or_else(|| broken("engine", "a part past the end of its storage"))
    }
}

impl Executable {
    /// The steps of this range as they run, with the round of the loop around each. It has all or nothing of a
    /// loop.
    pub(crate) fn turns(&self, steps: Range<usize>) -> impl Iterator<Item = (&Step, usize, i64)> {
        let mut at = steps.start;
        let mut round = 0;
        std::iter::from_fn(move || {
            if at == steps.end {
                return None;
            }
            let here = at;
            let now = round;
            at += 1;
            if let Some(around) = self.loops.iter().find(|l| l.steps.contains(&here))
                && at == around.steps.end
            {
                round += 1;
                match round < around.rounds {
                    true => at = around.steps.start,
                    false => round = 0,
                }
            }
            Some((&self.steps[here], here, now))
        })
    }
}

pub(crate) enum Action {
    Launch(Arc<dyn Kernel>),
    /// Bytes of argument 1, from this element on, to argument 0. The element is an expression of the
    /// variables among the arguments, by position.
    Copy {
        from: UOp,
        element: usize,
        bytes: usize,
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
    let calls = linear.src().iter().filter(|u| u.op() == Op::Call);
    calls.map(|call| step(call, params, kernels)).collect()
}

/// The loops of a schedule.
pub(crate) fn loops(linear: &UOp) -> Vec<Loop> {
    let mut out: Vec<Loop> = Vec::new();
    let mut step = 0;
    for u in linear.src() {
        match u.op() {
            Op::Range => out.push(Loop {
                steps: step..step,
                rounds: u.vmax() + 1,
            }),
            Op::End => {
                if let Some(around) = out.last_mut() {
                    around.steps.end = step;
                }
            }
            _ => step += 1,
        }
    }
    out
}

/// What part of storage an argument is, if it is one.
fn part(argument: usize, u: &UOp) -> Result<Option<Part>> {
    let mut view = u;
    while view.op() == Op::Reshape {
        view = &view.src()[0];
    }
    if view.op() != Op::Shrink {
        return Ok(None);
    }
    // A line of lines that stand one after the other.
    let bytes = view.shape().max_len() * view.dtype().bytes() as i64;
    let start = view.dims_src(1)[0].to_uop();
    let at = |round: i64| -> Result<i64> {
        let ranges = start.ranges();
        let over = ranges.iter().map(|r| (r.clone(), UOp::index_const(round)));
        let place = uop::rules::symbolic().rewrite(&start.substitute(&over.collect()))?;
        let place = place.as_int().map(|n| n * bytes);
        place.ok_or_else(|| broken("engine", "a part that begins nowhere"))
    };
    let first = at(0)?;
    Ok(Some(Part {
        argument,
        first,
        further: at(1)? - first,
        bytes: bytes as usize,
    }))
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
        report::opened(&*runtime);
        let compiled = runtime.compile(&programs)?;
        for ((i, program), kernel) in of_device.into_iter().zip(&programs).zip(compiled) {
            count(|c| &c.compiled);
            report::compiled(&missing[i].0, program, &*runtime);
            let info = program_parts(program)?.2.clone();
            all[i] = Some(Compute { kernel, info });
        }
    }
    let all = all.into_iter();
    Ok(all
        .map(|c| c.expect("every kernel has one of these devices"))
        .collect())
}

fn step(call: &UOp, params: usize, kernels: &FxHashMap<Key, Compute>) -> Result<Step> {
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
        parts.extend(part(k, a)?);
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
        let from = part.dims_src(1)[0].to_uop();
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
                element,
                bytes,
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

/// Lower kernels, over as many threads as the configuration allows.
fn lower_all(kernels: &[Key]) -> Result<Vec<(uop::Program, Timings)>> {
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
