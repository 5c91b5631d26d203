//! What `DEBUG` tells: one stream of lines on standard error, and the same as `tracing` events:
//! compiling and launching at DEBUG, all texts at TRACE. Flows in: what was opened, compiled or
//! run; flows out: those lines. Always: where nobody listens, nothing is formatted.

use crate::events::{self, Event};
use crate::queues::Queues;
use monoglot_codegen::opt::explain;
use monoglot_codegen::opt::heuristic::{Choice, Weighed};
use monoglot_device::{Config, Runtime, program_parts, program_source};
use monoglot_schedule::{Function, users};
use monoglot_uop::graph::toposort_many;
use monoglot_uop::{DType, Device, Error, Op, Program, ProgramInfo, Result, Scalar, UOp};
use rustc_hash::{FxHashMap, FxHasher};
use std::hash::{Hash, Hasher};
use std::io::Write;
use std::panic::Location;
use std::sync::Mutex;
use std::time::Instant;

/// Tell those who want to hear what `level` tells; whether there are any.
fn tell(level: u8, text: impl FnOnce() -> String) -> bool {
    let asked = Config::current().debug >= level;
    let heard = asked || tracing::enabled!(target: "monoglot", tracing::Level::TRACE);
    if heard {
        let text = text();
        tracing::trace!(target: "monoglot", level, "{text}");
        if asked {
            // A closed standard error is no reason to fail.
            let _ = writeln!(std::io::stderr().lock(), "{text}");
        }
    }
    heard
}

/// DEBUG=2 tells what a room above has to say.
pub fn note(text: impl FnOnce() -> String) {
    tell(2, text);
}

/// DEBUG=1 tells which devices are used, each once.
pub(crate) fn opened(runtime: &dyn Runtime) {
    static TOLD: Mutex<Vec<Device>> = Mutex::new(Vec::new());
    let mut told = TOLD.lock().unwrap_or_else(|e| e.into_inner());
    let device = runtime.device();
    if !told.contains(&device) && tell(1, || format!("{device}: {}", runtime.about())) {
        told.push(device);
    }
}

/// DEBUG=1 tells why the kernels of a saved program are compiled again.
pub(crate) fn compiles_again(device: Device, why: &str) {
    tell(1, || {
        format!("{device}: a saved program is compiled from its text: {why}")
    });
}

/// Of each kernel when it is compiled, DEBUG=3 shows what is expected of it, the Opts and why, and what was
/// weighed against them, 4 the source, 5 the kernel's UOps, 6 its linear program, 7 the machine code.
pub(crate) fn compiled(kernel: &UOp, program: &Program, runtime: &dyn Runtime) {
    let Ok((linear, info)) = program_parts(program) else {
        return;
    };
    let name = &info.name;
    let n = linear.src().len();
    tracing::debug!(target: "monoglot", kernel = %name, uops = n, "compiled");
    tell(3, || {
        let (choices, prediction) = explain(kernel, runtime.target());
        let expected = prediction.map_or(String::new(), |p| {
            let share = 100.0 * p.share();
            format!(
                "\n    {} cycles expected, {share:.0}% of the limit",
                scaled(p.cycles)
            )
        });
        let choices: String = choices.iter().map(choice).collect();
        format!("{name}: {n} instructions{expected}{choices}")
    });
    tell(4, || {
        program_source(program).unwrap_or_default().to_string()
    });
    tell(5, || kernel.to_string());
    tell(6, || linear.to_string());
    tell(7, || {
        runtime
            .assembly(program)
            .map_or_else(|e| e.to_string(), Option::unwrap_or_default)
    });
}

/// DEBUG=5 shows a kernel that could not be compiled as well.
pub(crate) fn not_compiled(kernel: &UOp, why: &Error) {
    tell(5, || format!("{kernel}\nnot compiled: {why}"));
}

/// An Opt and its reason; below, its estimate and those of others, the best first.
fn choice(c: &Choice) -> String {
    let Choice { opt, why, weighed } = c;
    let line = format!("\n    {opt}: {why}");
    let Some(Weighed { cost, unit, others }) = weighed else {
        return line;
    };
    let each = |(what, cost): &(String, f64)| format!("{what}: {}", scaled(*cost));
    let others: Vec<String> = others.iter().map(each).collect();
    let against = if others.is_empty() { "" } else { "; against " };
    format!(
        "{line}\n        {} {unit}{against}{}",
        scaled(*cost),
        others.join(", ")
    )
}

/// Whether anybody wants to know of each step.
pub(crate) fn steps_are_told() -> bool {
    events::are_heard()
        || Config::current().debug >= 2
        || tracing::enabled!(target: "monoglot", tracing::Level::DEBUG)
}

/// Give a step to its queue. DEBUG=2 waits for it and gives a line a kernel: time, operations, bytes, both
/// rates, and the end of a long name.
pub(crate) fn step(
    device: Device,
    info: &ProgramInfo,
    queues: &mut Queues,
    submit: impl FnOnce(&mut Queues) -> Result<()>,
) -> Result<()> {
    if !steps_are_told() {
        return submit(queues);
    }
    queues.wait(device)?;
    let start = Instant::now();
    let out = submit(queues).and_then(|()| queues.wait(device));
    let end = Instant::now();
    let seconds = (end - start).as_secs_f64();
    let ProgramInfo {
        name, flops, bytes, ..
    } = info;
    if out.is_ok() && events::are_heard() {
        events::tell(&Event {
            kernel: name,
            device,
            start,
            end,
            bytes: *bytes,
            flops: *flops,
        });
    }
    tracing::debug!(target: "monoglot", kernel = %name, %device, seconds, flops, bytes, "launched");
    tell(2, || {
        let rate = *flops as f64 / seconds / 1e9;
        let moved = *bytes as f64 / seconds / 1e9;
        let device = device.name();
        let us = seconds * 1e6;
        let work = scaled(*flops as f64);
        let bytes = scaled(*bytes as f64);
        let rates = format!("{work:>5}FLOP {rate:>5.1}GFLOP/s {bytes:>5}B {moved:>5.1}GB/s");
        let end = name.get(name.len().saturating_sub(20)..).unwrap_or(name);
        let cut = if end.len() < name.len() { "…" } else { "" };
        format!("{device:<6} {us:>8.1}us {rates} {cut}{end}")
    });
    out
}

/// DEBUG=2 tells which constants and offsets make a program general, with the lines that wrote them.
/// `roots` are the function's before its buffers became PARAMs.
pub(crate) fn varies(roots: &[UOp], before: &[Scalar], now: &[Scalar]) {
    tell(2, || {
        let written = lines(roots);
        let mut changes: Vec<String> = Vec::new();
        for (edge, (old, new)) in before.iter().zip(now).enumerate() {
            let line = written.get(edge).copied().flatten();
            let at = line.map_or(String::new(), |l| format!(" at {l}"));
            let change = format!("{} is {} now{at}", text(old), text(new));
            if old != new && !changes.contains(&change) {
                changes.push(change);
            }
        }
        format!("one more program, for all values: {}", changes.join("; "))
    });
}

/// The greatest sizes of each input and of each slice, which a length may be written in.
type Sizes = Vec<(bool, Vec<i64>)>;

/// A function that was compiled.
struct Known {
    /// What it has in common with those that differ from it in how long things are.
    key: u64,
    sizes: Sizes,
    /// Whether the remedy was told.
    told: bool,
}

/// DEBUG=2 tells, once, when a function is compiled that differs from one before in how long its inputs or slices of
/// them are, with the line that asked for it and what lets one program serve both. `roots` are the function's as the
/// user wrote them.
pub(crate) fn grown(function: &Function, roots: &[UOp]) {
    static SEEN: Mutex<Vec<Known>> = Mutex::new(Vec::new());
    if !steps_are_told() {
        return;
    }
    let line = roots.iter().find_map(UOp::line);
    let mut hash = FxHasher::default();
    line.hash(&mut hash);
    let mut sizes = Sizes::new();
    for u in toposort_many(&function.roots, |_| true) {
        // Sizes and what is counted with them differ from one length to the next.
        if u.op() == Op::Const || u.dtype() == DType::Index {
            continue;
        }
        let varies = u.shape().ints().is_none();
        (u.op(), u.dtype(), u.shape().len(), varies).hash(&mut hash);
        let input = u.op() == Op::Param;
        if input || u.op() == Op::Shrink && u.ops_below().contains(Op::Param) {
            sizes.push((input, u.shape().max_ints()));
        }
    }
    let key = hash.finish();
    let mut seen = SEEN.lock().unwrap_or_else(|e| e.into_inner());
    let before = seen.iter().position(|k| k.key == key);
    let before = before.map(|at| seen.remove(at));
    let mut told = before.as_ref().is_some_and(|k| k.told);
    let found = before.filter(|k| !k.told);
    if let Some(remedy) = found.and_then(|k| remedy(&k.sizes, &sizes)) {
        told = true;
        tell(2, || {
            let place = line.map_or(String::new(), |l| format!(" at {l}"));
            remedy.replacen("{place}", &place, 1)
        });
    }
    // The oldest goes: who comes back to it is told nothing.
    if seen.len() >= SHAPES {
        seen.remove(0);
    }
    seen.push(Known { key, sizes, told });
}

/// What is another length, and what lets one program serve both; None where lengths are the same. Inputs come first:
/// slices follow from them.
fn remedy(before: &Sizes, now: &Sizes) -> Option<String> {
    let pairs = || before.iter().zip(now);
    let of = |inputs: bool| {
        pairs().find_map(|((input, a), (_, b))| {
            if *input != inputs || a.len() != b.len() {
                return None;
            }
            let mut axes = a.iter().zip(b).enumerate();
            let (axis, (was, is)) = axes.find(|(_, (was, is))| was != is)?;
            Some((axis, *was, *is))
        })
    };
    let bounds = |was: i64, is: i64| {
        let most = was.max(is).max(1).saturating_mul(2).max(1).ilog2();
        format!("1..={}", 1i64 << most)
    };
    let input = of(true).map(|(axis, was, is)| {
        format!(
            "one more program: axis {axis} of an input is {is} long and was {was}{{place}}: with `.dynamic({axis}, {})` of \
             that input one serves all lengths",
            bounds(was, is)
        )
    });
    input.or_else(|| {
        let (axis, was, is) = of(false)?;
        Some(format!(
            "one more program: axis {axis} of a slice is {is} long and was {was}{{place}}: with the length bound to a \
             `Variable` of {} one serves all lengths",
            bounds(was, is)
        ))
    })
}

/// Functions whose inputs' sizes are remembered, at most.
const SHAPES: usize = 256;

fn text(value: &Scalar) -> String {
    match value {
        Scalar::Float(v) => v.to_string(),
        Scalar::Int(v) => v.to_string(),
        Scalar::Bool(v) => v.to_string(),
        Scalar::Invalid => "nothing".into(),
    }
}

/// The user's line for each value that may vary: where the node that it is an operand of became (part
/// of) a tensor.
fn lines(roots: &[UOp]) -> Vec<Option<&'static Location<'static>>> {
    let (function, was) = bare(roots);
    let mut line: FxHashMap<UOp, &'static Location<'static>> = FxHashMap::default();
    for u in toposort_many(roots, |_| true).iter().rev() {
        let own = u.line().or(line.get(u).copied());
        let Some(own) = own else { continue };
        line.insert(u.clone(), own);
        // What has no line of its own was made on the way to its nearest user that has one.
        for s in u.src() {
            line.entry(s.clone()).or_insert(own);
        }
    }
    users(&function)
        .iter()
        .map(|u| line.get(was.get(u).unwrap_or(u)).copied())
        .collect()
}

/// These roots as callify has them, but over BUFFERs, and for each of its nodes that is another than the
/// user's which one that was.
fn bare(roots: &[UOp]) -> (Function, FxHashMap<UOp, UOp>) {
    let mut was: FxHashMap<UOp, UOp> = FxHashMap::default();
    let mut conditions = Vec::new();
    let asserts = |u: &UOp| u.ops_below().contains(Op::Assert);
    let all = UOp::sink(roots).rebuild(&FxHashMap::default(), asserts, |u, src| {
        if u.op() == Op::Assert {
            conditions.push(src[1].clone());
            return src[0].clone();
        }
        let new = u.with_src(src);
        was.insert(new.clone(), u.clone());
        new
    });
    let mut roots = all.src().to_vec();
    roots.extend_from_slice(&conditions);
    let function = Function {
        roots,
        conditions: conditions.len(),
        donated: Vec::new(),
        variables: 0,
    };
    (function, was)
}

/// Three digits and a decimal prefix.
fn scaled(x: f64) -> String {
    let k = (x.max(1.0).log10() / 3.0).floor().min(5.0);
    let part = x / 1000f64.powf(k);
    let prefix = ["", "k", "M", "G", "T", "P"][k as usize];
    format!(
        "{part:.*}{prefix}",
        if part < 9.95 && k > 0.0 { 1 } else { 0 }
    )
}
