//! Optimize: a schedule's OptOps applied to a kernel's ranges. Flows in: a kernel (SINK of ENDs of
//! STOREs over RANGEs) and a list of [`Opt`]s; flows out: the same kernel over other ranges, whose
//! axis types say what is parallel. Invariant: the kernel computes the same elements (sums in another
//! order), and its SINK lists every Opt applied.
//!
//! # Axes
//!
//! The axes of a kernel are its RANGEs, sorted by axis type (in the order of [`AxisType::ALL`](monoglot_uop::AxisType::ALL)) and
//! then by number; an [`Opt`] names an axis by its position in that list. Applied kernels number
//! their ranges by position, so the list reads from the outermost loop to the innermost, and ENDs and
//! REDUCEs close their ranges in that order. A new axis becomes the innermost of its type, or the
//! outermost where it was split off the top. The last axes are those that expansion turns into shape.
//!
//! # Files
//!
//! One a transform, with its preconditions: [`split`], [`padto`], [`swap`], [`accumulate`], [`nolocals`], [`tc`],
//! [`staging`], [`scatter`], [`scan`]; what the last two look for is in `masked`.
//! `rows` says which loops stay inside which. `nest` holds the axes while Opts are applied and rebuilds the graph at the
//! end; staging finishes what stands before it and begins another, with the loops that fill the storage as axes.

pub mod accumulate;
mod cost;
mod cover;
mod dot;
mod features;
pub mod heuristic;
pub(crate) mod masked;
mod nest;
pub mod nolocals;
pub mod padto;
pub mod predict;
mod rows;
pub mod scan;
pub mod scatter;
pub mod split;
pub mod staging;
pub mod swap;
pub mod tc;
#[cfg(test)]
pub(crate) mod tests;

use monoglot_uop::{Arg, Error, Op, Opt, OptOp, Result, Target, UOp};
use nest::LoopNest;

pub use heuristic::{choose, explain, optimize};

/// The kernel after these Opts, from left to right.
///
/// # Errors
/// `Argument` names the Opt and the precondition that does not hold; the kernel is left as it is.
pub fn apply(kernel: &UOp, opts: &[Opt], target: &Target) -> Result<UOp> {
    if opts.is_empty() {
        return Ok(kernel.clone());
    }
    let mut nest = LoopNest::new(kernel)?;
    for opt in opts {
        nest.step(opt, target)?;
    }
    Ok(nest.kernel())
}

/// The axes of a kernel, in the order by which Opts name them.
pub fn axes(kernel: &UOp) -> Vec<UOp> {
    ranges(&kernel.toposort())
}

fn ranges(nodes: &[UOp]) -> Vec<UOp> {
    let mut all: Vec<UOp> = nodes
        .iter()
        .filter(|u| u.op() == Op::Range)
        .cloned()
        .collect();
    all.sort_by_key(|r| r.range_arg().map(|(id, t)| (t, id)));
    all
}

/// The Opts that made this kernel.
pub fn applied(kernel: &UOp) -> &[Opt] {
    match kernel.arg() {
        Arg::Kernel(info) => &info.opts,
        _ => &[],
    }
}

/// Whether a kernel reads whole rows of an argument before it writes over them.
pub fn overwrites_rows(kernel: &UOp) -> bool {
    let nodes = kernel.toposort();
    !rows::Rows::of(&nodes, &ranges(&nodes)).is_empty()
}

/// Whether a kernel says that it is to have no other Opts than it has.
pub fn is_settled(kernel: &UOp) -> bool {
    matches!(kernel.arg(), Arg::Kernel(info) if info.settled)
}

impl LoopNest {
    fn step(&mut self, opt: &Opt, target: &Target) -> Result<()> {
        let fits = opt.axis < self.axes.len() || matches!(opt.op, OptOp::NoLocals);
        if !fits {
            return Err(refuse(
                opt,
                format!("the kernel has {} axes", self.axes.len()),
            ));
        }
        if !self.rows.is_empty() && self.rows.refuse(opt, &self.kinds()) {
            return Err(refuse(
                opt,
                "rows are read whole before they are written over",
            ));
        }
        let before = (!self.rows.is_empty()).then(|| self.clone());
        let done = match opt.op {
            OptOp::Split {
                factor,
                target,
                top,
            } => split::step(self, opt, factor, target, top),
            OptOp::Cover { factor, target } => cover::step(self, opt, factor, target),
            OptOp::PadTo { multiple } => padto::step(self, opt, multiple),
            OptOp::Swap { with } => swap::step(self, opt, with, target),
            OptOp::NoLocals => nolocals::step(self, opt),
            OptOp::Tc { unit } => tc::step(self, opt, unit, target),
            OptOp::Stage { operand, last } => staging::step(self, opt, (operand, last), target),
            OptOp::Scatter => scatter::step(self, opt, target),
            OptOp::Scan { turns } => scan::step(self, opt, turns, target),
        };
        self.changed();
        done?;
        if let Some(before) = before.filter(|_| !self.rows.are_kept(&self.kinds())) {
            *self = before;
            let message = "a row would be written over before all of it is read";
            return Err(refuse(opt, message));
        }
        self.info.opts.push(*opt);
        Ok(())
    }
}

/// The error of an Opt whose precondition does not hold.
fn refuse(opt: &Opt, message: impl Into<String>) -> Error {
    Error::argument(opt.to_string(), message)
}
