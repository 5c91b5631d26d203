//! The pipeline: one function, one line a pass. Flows in: a kernel and what it is compiled for; flows
//! out: PROGRAM(sink, LINEAR, SOURCE, BINARY?). Pure and safe to call from many threads.

use crate::{expand, info, linearize, loops, memory, opt, registers, select};
use monoglot_uop::spec::{verify_expanded, verify_kernel, verify_linear};
use monoglot_uop::{Backend, Effort, Opt, Program, Result, Target, UOp, rules};
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
/// for a graph that breaks the spec of a border.
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
    let chosen = || {
        opt::choose(kernel, target)
            .into_iter()
            .map(|o| o.0)
            .collect()
    };
    let opts: Vec<Opt> = opts.map_or_else(chosen, <[Opt]>::to_vec);
    let optimized = verify_kernel(opt::apply(kernel, &opts, target)?)?.into_inner();
    done(Stage::Optimize, &optimized);

    let closed = loops::normalise(&optimized)?;
    let flat = memory::flatten(&closed)?;
    let simple = rules::kernel().rewrite(&flat)?;
    let hoisted = memory::hoist(&simple);
    let expanded = verify_expanded(expand::expand(&hoisted)?)?.into_inner();
    done(Stage::Expand, &expanded);

    let selected = select::select(&expanded, target)?;
    done(Stage::Select, &selected);

    let ordered = linearize::linearize(&selected)?;
    let linear = verify_linear(registers::split(&ordered))?;
    done(Stage::Linearize, &linear);

    let record = info::describe(&optimized, &linear, target);
    let program = Program::emit(backend, optimized, linear, record, target)?;
    done(Stage::Render, &program);
    Ok((program, timings))
}

#[cfg(test)]
mod tests;
