//! `monoglot compile`: builds, schedules and lowers a built-in model to rendered source, and tells
//! what each stage took. No weight is allocated, nothing is read from or written to a cache,
//! nothing runs. Flows in: a model and how many layers of it; flows out: the time of each stage,
//! the kernels and the bytes of their source.

use crate::bench::median;
use crate::{Failure, Outcome, configure, json_line, seconds};
use clap::builder::{PossibleValuesParser, RangedU64ValueParser, TypedValueParser};
use monoglot::compiler::engine;
use monoglot::compiler::uop::{Arg, UOp};
use monoglot::models::{Workload, graph};
use serde::Serialize;
use std::io::Write;
use std::time::Instant;

/// What may be asked.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// convnet, minilm, gpt2 or resnet50
    #[arg(long, value_parser = workload(), hide_possible_values = true)]
    model: Workload,
    /// Its number of layers (minilm and gpt2)
    #[arg(long, value_parser = layers())]
    layers: Option<usize>,
    /// The device to compile for
    #[arg(long, default_value = "NULL")]
    device: String,
    /// Threads that compile, and that a kernel is compiled for (default: all)
    #[arg(long)]
    threads: Option<usize>,
    /// One object
    #[arg(long)]
    json: bool,
}

/// A built-in model by name.
pub(crate) fn workload() -> impl TypedValueParser<Value = Workload> {
    PossibleValuesParser::new(Workload::ALL.map(Workload::name)).map(|name| {
        let known = Workload::ALL.into_iter().find(|w| w.name() == name);
        known.expect("the parser lets only these names pass")
    })
}

/// A number of layers: at least one.
pub(crate) fn layers() -> impl TypedValueParser<Value = usize> {
    RangedU64ValueParser::<usize>::new().range(1..)
}

#[derive(Serialize)]
struct Record {
    model: String,
    stages: Stages,
    total_s: f64,
    kernels: usize,
    unique_kernels: usize,
    uops: usize,
    /// Seconds from a kernel's SINK to its code: the median, and the most.
    kernel_median_s: f64,
    kernel_slowest_s: f64,
    slowest_kernel: String,
    peak_bytes: u64,
}

/// Seconds of every stage. Lowering may use several threads, whose seconds are added up.
#[derive(Default, Serialize)]
struct Stages {
    build: f64,
    gradient: f64,
    callify: f64,
    rangeify: f64,
    memory_plan: f64,
    optimize: f64,
    expand: f64,
    select: f64,
    linearize: f64,
    render: f64,
}

impl Stages {
    fn rows(&mut self) -> [(&'static str, &mut f64); 10] {
        [
            ("build", &mut self.build),
            ("gradient", &mut self.gradient),
            ("callify", &mut self.callify),
            ("rangeify", &mut self.rangeify),
            ("memory_plan", &mut self.memory_plan),
            ("optimize", &mut self.optimize),
            ("expand", &mut self.expand),
            ("select", &mut self.select),
            ("linearize", &mut self.linearize),
            ("render", &mut self.render),
        ]
    }
}

/// Compile a model.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Outcome {
    if args.layers.is_some() && !args.model.has_layers() {
        return Err(Failure::Told(format!(
            "{} has no number of layers to choose",
            args.model.name()
        )));
    }
    configure(Some(&args.device), args.threads);
    // Opening a device looks at the machine; that is no part of compiling. One that runs no kernels says so.
    monoglot::compiler::device::open(engine::default_device())?.compile(&[])?;
    let start = Instant::now();
    let model = graph(args.model, args.layers, engine::default_device())?;
    let roots: Vec<UOp> = model
        .roots
        .iter()
        .map(|t| t.uop())
        .collect::<monoglot::Result<_>>()?;
    let compiled = engine::compile(&roots)?;
    let total_s = start.elapsed().as_secs_f64();

    let mut stages = Stages::default();
    let measured = [
        ("build", model.build.as_secs_f64()),
        ("gradient", model.gradient.as_secs_f64()),
    ];
    for (name, spent) in measured.into_iter().chain(compiled.stages.iter().copied()) {
        if let Some((_, to)) = stages.rows().into_iter().find(|(n, _)| *n == name) {
            *to += spent;
        }
    }
    let slowest = (0..compiled.seconds.len()).max_by(|&a, &b| {
        let seconds = &compiled.seconds;
        seconds[a].total_cmp(&seconds[b])
    });
    let kernel_slowest_s = slowest.map_or(0.0, |k| compiled.seconds[k]);
    let slowest_kernel = slowest.map_or_else(String::new, |k| name(&compiled.programs[k]));
    let mut record = Record {
        model: args.model.name().into(),
        stages,
        total_s,
        kernels: compiled.kernels,
        unique_kernels: compiled.unique_kernels,
        uops: compiled.uops,
        kernel_median_s: median(&compiled.seconds).unwrap_or(0.0),
        kernel_slowest_s,
        slowest_kernel,
        peak_bytes: peak_bytes(),
    };
    if args.json {
        json_line(out, &record)
    } else {
        table(out, &mut record)
    }
}

fn table(out: &mut dyn Write, r: &mut Record) -> Outcome {
    writeln!(out, "{} compiled in {}", r.model, seconds(r.total_s))?;
    writeln!(
        out,
        "  {} kernels, {} of them different, {} uops in these",
        r.kernels, r.unique_kernels, r.uops
    )?;
    writeln!(
        out,
        "  a kernel in {}, {} at most ({})",
        seconds(r.kernel_median_s),
        seconds(r.kernel_slowest_s),
        r.slowest_kernel
    )?;
    writeln!(
        out,
        "  {:.1} MB of memory at most",
        r.peak_bytes as f64 / 1e6
    )?;
    for (name, spent) in r.stages.rows() {
        writeln!(out, "  {name:<12} {:>12}", seconds(*spent))?;
    }
    Ok(())
}

/// The name of a kernel.
fn name(program: &UOp) -> String {
    match program.arg() {
        Arg::Program(info) => info.name.clone(),
        _ => String::new(),
    }
}

/// The most memory this process ever had, as the kernel counts it; 0 where it does not say.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    let kib = line
        .and_then(|l| l.split_whitespace().next())
        .and_then(|n| n.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
