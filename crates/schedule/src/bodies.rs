//! Which FUNCTIONs of a graph are scheduled once for all their calls. Flows in: roots with FUNCTIONs; flows out:
//! roots in which only those are left, and their bodies.
//!
//! A body that is called once, or folds nothing, is worth more inside of what is around it. Any other is a program
//! of its own; so is what is called again and again, of which what can be had for all times at once is done once
//! (`uop::hoist`), and what computes again what would be found around it.

use monoglot_uop::function::{
    assertions_outside, each_graph, inline_functions, merge_functions, params, slot,
};
use monoglot_uop::graph::toposort_many;
use monoglot_uop::hoist::hoisted;
use monoglot_uop::{Arg, Op, Recompute, Result, UOp};
use rustc_hash::FxHashMap;

/// Roots whose FUNCTIONs are those that are scheduled once, and what their bodies asserted, over what they are
/// called with.
///
/// # Errors
/// Where the arguments of a FUNCTION do not fit its body.
pub(crate) fn resolved(roots: &[UOp]) -> Result<(Vec<UOp>, Vec<UOp>)> {
    let has = |u: &UOp| u.ops_below().contains(Op::Function);
    if !roots.iter().any(has) {
        return Ok((roots.to_vec(), Vec::new()));
    }
    let roots = hoisted(&each_graph(roots, merge_functions)?)?;
    if !roots.iter().any(has) {
        return Ok((roots, Vec::new()));
    }
    let mut times: FxHashMap<UOp, usize> = FxHashMap::default();
    for u in toposort_many(&roots, has) {
        if u.op() == Op::Function {
            *times.entry(u.src()[0].clone()).or_default() += 1;
        }
    }
    let shared = |f: &UOp| times[&f.src()[0]] > 1 && is_worth_it(f) && has_lengths(f);
    let roots = inline_functions(&roots, |f| match f.arg() {
        Arg::Scan(_) => true,
        Arg::Recompute(Recompute::Again) => has_lengths(f),
        _ => shared(f),
    })?;
    assertions_outside(&roots, |f| matches!(f.arg(), Arg::Recompute(_)))
}

/// Whether a body that is called several times is better a program of its own.
fn is_worth_it(function: &UOp) -> bool {
    let below = function.src()[0].ops_below();
    below.contains(Op::Reduce) && !below.contains(Op::Assert)
}

/// Whether a call may be of a program of its own: its lengths are variables there, too.
fn has_lengths(function: &UOp) -> bool {
    let argument = |p: &UOp| function.src().get(1 + slot(p)?);
    let mut lengths = params(&function.src()[0])
        .into_iter()
        .filter(UOp::is_variable);
    lengths.all(|p| argument(&p).is_some_and(UOp::is_variable))
}

/// How many arguments a body has at most.
pub(crate) fn arguments(body: &UOp) -> usize {
    let own = params(body);
    let slots = own.iter().filter_map(slot);
    slots.max().map_or(0, |most| most + 1)
}
