//! The pipeline: one function, one line a pass. Flows in: a kernel and what it is compiled for; flows
//! out: PROGRAM(sink, LINEAR, SOURCE, BINARY?). Pure and safe to call from many threads.

use crate::{
    ahead, atomics, below, busy, expand, gathers, info, limits, linearize, loops, memory, opt,
    overlap, padding, panels, peel, registers, select, streams, stripes, tiles,
};
use monoglot_uop::spec::{Expanded, Lowered, verify_expanded, verify_kernel, verify_linear};
use monoglot_uop::{Arg, Backend, Effort, Opt, Program, Result, Target, UOp, rules};
use std::time::Instant;

/// A stage of the pipeline.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// OptOps.
    Optimize,
    /// UPCAST and UNROLL ranges become shape.
    Expand,
    /// Shaped values become the target's instructions.
    Select,
    /// One order for everything.
    Linearize,
    /// Source text or machine code.
    Render,
}

impl Stage {
    /// Every stage, in order.
    pub const ALL: [Stage; 5] = [
        Stage::Optimize,
        Stage::Expand,
        Stage::Select,
        Stage::Linearize,
        Stage::Render,
    ];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        ["optimize", "expand", "select", "linearize", "render"][self as usize]
    }
}

/// Seconds spent in each stage, and what was done in them.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Timings {
    seconds: [f64; 5],
    effort: [Effort; 5],
}

impl Timings {
    /// Seconds of one stage.
    pub fn of(&self, stage: Stage) -> f64 {
        self.seconds[stage as usize]
    }

    /// Effort of one stage.
    pub fn effort(&self, stage: Stage) -> Effort {
        self.effort[stage as usize]
    }

    /// Seconds of all stages.
    pub fn total(&self) -> f64 {
        self.seconds.iter().sum()
    }

    /// Add what another measured.
    pub fn add(&mut self, other: &Timings) {
        for (a, b) in self.seconds.iter_mut().zip(other.seconds) {
            *a += b;
        }
        for (a, b) in self.effort.iter_mut().zip(other.effort) {
            *a = a.plus(b);
        }
    }
}

/// Lower a kernel: apply these Opts, or those that the heuristic chooses, and have a back end make code.
/// `watch` sees the graph that each stage gives (after `Render`, the PROGRAM).
///
/// # Errors
/// `Argument` for Opts that do not fit, `Unsupported` for an op that the target or the back end cannot run, `Verify`
/// for a graph that breaks the spec of a border, `Text` where it is a text's.
pub fn lower(
    kernel: &UOp,
    target: &Target,
    backend: &dyn Backend,
    opts: Option<&[Opt]>,
    watch: &mut dyn FnMut(Stage, &UOp),
) -> Result<(Program, Timings)> {
    let mut timings = Timings::default();
    let mut last = Instant::now();
    let mut then = Effort::so_far();
    let mut done = |stage: Stage, graph: &UOp| {
        timings.seconds[stage as usize] += last.elapsed().as_secs_f64();
        timings.effort[stage as usize] = Effort::since(then);
        watch(stage, graph);
        last = Instant::now();
        then = Effort::so_far();
    };
    let kernel = &padding::admit(&below::say(kernel)?, target)?;
    let optimized = match opts {
        Some(opts) => opt::apply(kernel, opts, target)?,
        None if opt::is_settled(kernel) => kernel.clone(),
        None => opt::optimize(kernel, target),
    };
    let optimized = verify_kernel(optimized)?.into_inner();
    done(Stage::Optimize, &optimized);

    let closed = loops::normalise(&optimized)?;
    let flat = memory::flatten(&closed)?;
    let simple = loops::part_reduces(&rules::kernel().rewrite(&flat)?);
    let limited = limits::asked_once(&padding::settle(&limits::limit(&simple)?)?)?;
    let limited = peel::peel(&limited)?;
    let hoisted = memory::hoist(&limited);
    let expanded = verify_expanded(expand::expand(&hoisted)?)?.into_inner();
    done(Stage::Expand, &expanded);

    let linear = in_order(&expanded, info::moved(&optimized), target, &mut done)?;
    let program = emit(optimized, linear, target, backend)?;
    done(Stage::Render, &program);
    Ok((program, timings))
}

/// Lower a kernel from its shaped form on.
///
/// # Errors
/// As `lower`.
pub fn lower_shaped(kernel: Expanded, target: &Target, backend: &dyn Backend) -> Result<Program> {
    let linear = in_order(&kernel, 0, target, &mut |_, _| {})?;
    emit(kernel.into_inner(), linear, target, backend)
}

/// Have a back end make code of a list alone.
///
/// # Errors
/// As `lower`.
pub fn render(linear: Lowered, target: &Target, backend: &dyn Backend) -> Result<Program> {
    let unknown = UOp::sink(&[]).with_arg(Arg::Kernel(Default::default()));
    emit(unknown, linear, target, backend)
}

/// A shaped kernel, which moves so many bytes, as instructions in one order.
fn in_order(
    expanded: &UOp,
    moved: u64,
    target: &Target,
    done: &mut dyn FnMut(Stage, &UOp),
) -> Result<Lowered> {
    let selected = select::select(expanded, target)?;
    done(Stage::Select, &selected);

    let ordered = atomics::alone(&linearize::linearize(&selected, target.registers)?);
    let mut linear = registers::split(&ordered);
    let threads = target.arranged && !target.workgroups;
    if threads {
        linear = gathers::ask(tiles::ask(linear, target), target);
        linear = busy::ask(panels::ask(linear, target), target);
        linear = stripes::ask(linear, target);
    }
    if threads && moved > target.caches[2] as u64 / 2 {
        linear = ahead::ask(linear, target);
        if !streams::is_kept(&linear, target) {
            linear = overlap::rows(streams::mark(linear)?);
        }
    }
    let linear = verify_linear(linear)?;
    done(Stage::Linearize, &linear);
    Ok(linear)
}

fn emit(kernel: UOp, linear: Lowered, target: &Target, to: &dyn Backend) -> Result<Program> {
    let record = info::describe(&kernel, &linear, target);
    Program::emit(to, kernel, linear, record, target)
}

#[cfg(test)]
mod tests;
