//! Which Opts a kernel gets without a search. Flows in: a kernel and a target; flows out: Opts, each
//! with the reason for it (`DEBUG=3` prints them). Invariant: `apply` accepts the list.
//!
//! A CPU's kernel is unrolled into a register tile, chosen by the estimate of `cost`;
//! then its loops are ordered for the caches, shared among threads and, where one reads more than the last
//! cache holds, done in parts. A machine with workgroups gets them, and its matrix unit where a sum of
//! products fits it. An interpreter gets the kernel as it is. Before all that, reductions that need not be
//! done for every turn of an axis are not.

mod across;
mod along;
mod beside;
mod columns;
mod cpu;
mod few;
mod gpu;
mod product;
mod serial;
mod slices;
mod tile;
mod units;

use super::features::Features;
use super::nest::{Axis, LoopNest};
use super::predict::{Prediction, predict};
use monoglot_uop::{AxisType, Opt, OptOp, Target, UOp};

/// A choice, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// What was chosen.
    pub opt: Opt,
    /// The reason, in words.
    pub why: &'static str,
    /// What it was chosen by; None where it follows from others, and where nobody asks.
    pub weighed: Option<Weighed>,
}

/// Estimates of which one is the least.
#[derive(Clone, Debug, PartialEq)]
pub struct Weighed {
    /// Of what was chosen.
    pub cost: f64,
    /// What is counted: `cycles`, `B`.
    pub unit: &'static str,
    /// Of what was not, the best first.
    pub others: Vec<(String, f64)>,
}

/// Most alternatives that are told.
const TOLD: usize = 4;

impl Weighed {
    fn new(cost: f64, unit: &'static str, mut others: Vec<(String, f64)>) -> Weighed {
        others.sort_by(|a, b| a.1.total_cmp(&b.1));
        others.truncate(TOLD);
        Weighed { cost, unit, others }
    }
}

/// Opts for a kernel on a target, in order.
pub fn choose(kernel: &UOp, target: &Target) -> Vec<Opt> {
    let list = chosen(kernel, target, false).map_or_else(Vec::new, |c| c.list);
    list.into_iter().map(|c| c.opt).collect()
}

/// The kernel after the Opts that `choose` gives.
pub fn optimize(kernel: &UOp, target: &Target) -> UOp {
    match chosen(kernel, target, false) {
        Some(chosen) if !chosen.list.is_empty() => chosen.nest.kernel(),
        _ => kernel.clone(),
    }
}

/// The same with what was weighed, and what is expected of the kernel after them.
pub fn explain(kernel: &UOp, target: &Target) -> (Vec<Choice>, Option<Prediction>) {
    let Some(chosen) = chosen(kernel, target, true) else {
        return (Vec::new(), None);
    };
    let after = predict(&chosen.nest.kernel(), target);
    (chosen.list, after)
}

fn chosen<'a>(kernel: &UOp, target: &'a Target, explained: bool) -> Option<Chosen<'a>> {
    let features = Features::of(kernel)?;
    let nest = LoopNest::new(kernel).ok()?;
    let mut chosen = Chosen {
        nest,
        target,
        list: Vec::new(),
        explained,
    };
    let serial = serial::choose(&mut chosen);
    match (target.arranged, target.workgroups) {
        (false, _) => {}
        (true, true) => {
            let kernel = serial.then(|| chosen.nest.kernel());
            let features = kernel.map_or(Some(features), |k| Features::of(&k));
            features.inspect(|f| gpu::choose(f, &mut chosen));
        }
        (true, false) if serial => {}
        (true, false) => match slices::Slices::of(&features) {
            Some(slices) => slices.choose(&features, &mut chosen),
            None if columns::choose(&features, &mut chosen).is_some() => {}
            None if few::choose(&features, &mut chosen).is_some() => {}
            None if units::choose(&features, &mut chosen).is_some() => {}
            None => {
                let plan = cpu::Plan::of(&features, target);
                if across::choose(&features, &plan, &mut chosen).is_none()
                    && along::choose(&features, &plan, &mut chosen).is_none()
                    && product::choose(&features, &plan, &mut chosen).is_none()
                    && along::instead(&features, &plan, &mut chosen).is_none()
                {
                    plan.choose(&mut chosen);
                }
            }
        },
    }
    Some(chosen)
}

/// SPLIT: a new axis of this type, the inner part.
fn inner(factor: i64, target: AxisType) -> OptOp {
    OptOp::Split {
        factor,
        target,
        top: false,
    }
}

/// SPLIT, or COVER where the factor does not divide the extent: a new axis of this type, the inner part.
fn covered(extent: i64, factor: i64, target: AxisType) -> OptOp {
    match extent % factor {
        0 if extent == factor => inner(0, target),
        0 => inner(factor, target),
        _ => OptOp::Cover { factor, target },
    }
}

/// SPLIT: a new axis of this type, the outer part.
fn outermost(factor: i64, target: AxisType) -> OptOp {
    OptOp::Split {
        factor,
        target,
        top: true,
    }
}

/// STAGE: the axes of an operand in their order.
fn keep(operand: usize) -> OptOp {
    let last = None;
    OptOp::Stage { operand, last }
}

/// Opts chosen so far, and the axes as they are after them.
struct Chosen<'a> {
    nest: LoopNest,
    target: &'a Target,
    list: Vec<Choice>,
    /// Whether somebody asks what was weighed.
    explained: bool,
}

impl<'a> Chosen<'a> {
    /// The same so far, to try what comes next.
    fn fork(&self) -> Chosen<'a> {
        Chosen {
            nest: self.nest.clone(),
            target: self.target,
            list: self.list.clone(),
            explained: self.explained,
        }
    }

    /// What the kernel does after the Opts so far; axes are those of that kernel from here on.
    fn features(&mut self) -> Option<Features> {
        let kernel = self.nest.kernel();
        self.nest = LoopNest::new(&kernel).ok()?;
        Features::of(&kernel)
    }

    /// Apply an Opt; false, with nothing done, where a precondition does not hold.
    fn add(&mut self, op: OptOp, axis: usize, why: &'static str) -> bool {
        let opt = Opt { op, axis };
        let done = self.nest.step(&opt, self.target).is_ok();
        if done {
            self.list.push(Choice {
                opt,
                why,
                weighed: None,
            });
        }
        done
    }

    /// What the last choice was chosen by.
    fn by(&mut self, weighed: impl FnOnce() -> Weighed) {
        if let Some(last) = self.list.last_mut().filter(|_| self.explained) {
            last.weighed = Some(weighed());
        }
    }

    /// The place of the innermost of the loops.
    fn last_loop(&self) -> Option<usize> {
        let is_loop = |a: &Axis| a.kind() == AxisType::Loop;
        self.nest.axes.iter().rposition(is_loop)
    }

    /// The place of the innermost loop of what is left of an axis of the kernel.
    fn innermost(&self, of: usize) -> Option<usize> {
        let is_loop = |a: &Axis| a.of == of && a.kind() == AxisType::Loop;
        self.nest.axes.iter().rposition(is_loop)
    }

    /// The place of what is left of an axis of the kernel, of this type.
    fn axis(&self, of: usize, kind: AxisType) -> Option<usize> {
        self.nest
            .axes
            .iter()
            .position(|a| a.of == of && a.kind() == kind)
    }
}

#[cfg(test)]
mod tests;
