//! `monoglot show`: any stage of a program, in the text form. The program is a file (`-`: standard
//! input) that holds a tensor graph or a kernel, or a built-in model. What is printed parses back;
//! comments say which kernel follows. Flows in: that program, a stage and perhaps a kernel's
//! number; flows out: the text; or its memory plan.

mod memory;
mod picture;

use crate::compile::workload;
use crate::{Failure, Outcome, configure};
use clap::ValueEnum;
use monoglot::compiler::codegen::{self, Stage as Lowering};
use monoglot::compiler::uop::spec::{verify_kernel, verify_tensor};
use monoglot::compiler::uop::text::{parse_many, print, print_many};
use monoglot::compiler::uop::{Arg, Op, Target, UOp};
use monoglot::compiler::{device, engine, schedule};
use monoglot::models::{Workload, graph};
use monoglot::{ErrorKind, Result};
use std::io::Write;
use std::sync::Arc;

/// A stage, in the order of the pipeline.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum Stage {
    /// The graph as written
    Tensor,
    /// The same over parameters instead of buffers
    Callified,
    /// Calls of kernels in order, with storage planned
    Schedule,
    /// A kernel as scheduled
    Kernel,
    /// Its ranges split, reordered and made parallel
    Optimized,
    /// Upcast and unrolled ranges as shape
    Expanded,
    /// The target's instructions
    Selected,
    /// One list
    Linear,
    /// Source text
    Source,
}

/// What may be asked.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A file in the text form; `-` for standard input
    #[arg(conflicts_with = "model")]
    file: Option<String>,
    /// A built-in model
    #[arg(long, value_parser = workload())]
    model: Option<Workload>,
    /// Its number of layers (minilm and gpt2)
    #[arg(long, value_parser = crate::compile::layers())]
    layers: Option<usize>,
    /// The stage to print
    #[arg(long, value_enum, default_value = "linear")]
    stage: Stage,
    /// The memory plan instead: each buffer, where it lies and while it is in use
    #[arg(long, conflicts_with_all = ["stage", "kernel", "unoptimized"])]
    memory: bool,
    /// Draw storage over time into this file
    #[arg(long, value_name = "FILE", requires = "memory")]
    svg: Option<String>,
    /// The plan as one object
    #[arg(long, requires = "memory")]
    json: bool,
    /// Only this kernel, counted from 0 in order of first use
    #[arg(long)]
    kernel: Option<usize>,
    /// Apply no optimisations
    #[arg(long)]
    unoptimized: bool,
    /// The device to compile for, whatever the file says
    #[arg(long, default_value = "NULL")]
    device: String,
}

/// Print a stage.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Outcome {
    configure(Some(&args.device), None);
    let roots = roots(args)?;
    let kernels = match roots.as_slice() {
        [kernel] if is_kernel(kernel) => {
            if args.memory || args.stage < Stage::Kernel {
                return Err(Failure::Told(
                    "the file holds a kernel; the stages before `kernel` are past".into(),
                ));
            }
            vec![verify_kernel(kernel.clone())?.into_inner()]
        }
        _ if args.stage == Stage::Tensor && !args.memory => {
            return Ok(out.write_all(print_many(&roots).as_bytes())?);
        }
        _ => {
            // What a text says is not to be relied on before it is verified.
            let all = UOp::try_new(Op::Sink, roots.clone(), Arg::None)?;
            verify_tensor(all)?;
            let (function, _) = schedule::callify(&roots, |_| true)?;
            if args.stage == Stage::Callified && !args.memory {
                return Ok(out.write_all(print_many(&function.roots).as_bytes())?);
            }
            let mut timings = schedule::Timings::default();
            let plan = schedule::schedule(
                &function,
                engine::default_device(),
                &|_| target(),
                &mut timings,
            )?;
            if args.memory {
                let file = args.file.as_deref().unwrap_or("-");
                let how = memory::How {
                    name: args.model.map_or(file, |m| m.name()),
                    svg: args.svg.as_deref(),
                    json: args.json,
                };
                return memory::run(&plan, &how, out);
            }
            if args.stage == Stage::Schedule {
                return Ok(out.write_all(print(&plan.linear).as_bytes())?);
            }
            unique(&plan.linear)
        }
    };
    if let Some(k) = args.kernel.filter(|&k| k >= kernels.len()) {
        let last = kernels.len().saturating_sub(1);
        return Err(Failure::Told(format!(
            "there is no kernel {k}; the last of {} is {last}",
            kernels.len()
        )));
    }
    for (i, kernel) in kernels
        .iter()
        .enumerate()
        .filter(|(i, _)| args.kernel.is_none_or(|k| k == *i))
    {
        if kernels.len() > 1 {
            writeln!(out, "// kernel {i} of {}", kernels.len())?;
        }
        out.write_all(stage_text(kernel, args)?.as_bytes())?;
    }
    Ok(())
}

fn roots(args: &Args) -> std::result::Result<Vec<UOp>, Failure> {
    match (&args.model, &args.file) {
        (Some(name), _) => {
            let graph = graph(*name, args.layers, engine::default_device())?;
            Ok(graph.roots.iter().map(|t| t.uop()).collect::<Result<_>>()?)
        }
        (None, Some(path)) => {
            parse_many(&read(path)?).map_err(|e| Failure::Told(format!("{path}: {e}")))
        }
        (None, None) => Err(Failure::Told(
            "what shall be shown: FILE in the text form, or --model NAME?".into(),
        )),
    }
}

fn read(path: &str) -> Result<String> {
    let read = match path {
        "-" => std::io::read_to_string(std::io::stdin()),
        _ => std::fs::read_to_string(path),
    };
    Ok(read.map_err(|e| ErrorKind::Io {
        path: path.into(),
        message: e.to_string(),
    })?)
}

fn is_kernel(u: &UOp) -> bool {
    u.op() == Op::Sink && matches!(u.arg(), Arg::Kernel(_))
}

fn target() -> Result<Arc<Target>> {
    Ok(Arc::new(
        device::open(engine::default_device())?.target().clone(),
    ))
}

/// The different kernels of a schedule, in order of first use.
fn unique(linear: &UOp) -> Vec<UOp> {
    let mut out: Vec<UOp> = Vec::new();
    for call in linear.src() {
        let body = &call.src()[0];
        if is_kernel(body) && !out.contains(body) {
            out.push(body.clone());
        }
    }
    out
}

fn stage_text(kernel: &UOp, args: &Args) -> Result<String> {
    let wanted = match args.stage {
        Stage::Optimized => Lowering::Optimize,
        Stage::Expanded => Lowering::Expand,
        Stage::Selected => Lowering::Select,
        Stage::Linear => Lowering::Linearize,
        Stage::Source => Lowering::Render,
        Stage::Tensor | Stage::Callified | Stage::Schedule | Stage::Kernel => {
            return Ok(print(kernel));
        }
    };
    let mut seen = None;
    let opts = if args.unoptimized {
        Some(&[][..])
    } else {
        None
    };
    let target = target()?;
    let backend = engine::backend(target.dialect);
    let lowered = codegen::lower(kernel, &target, backend, opts, &mut |stage, graph| {
        if stage == wanted {
            seen = Some(graph.clone());
        }
    });
    // A stage that is reached is shown, also where a later one fails.
    if let (Some(graph), true) = (&seen, wanted != Lowering::Render) {
        return Ok(print(graph));
    }
    let (program, _) = lowered?;
    if wanted == Lowering::Render {
        return Ok(device::program_source(&program)?.to_string());
    }
    Ok(print(&seen.unwrap_or(program.into_inner())))
}
