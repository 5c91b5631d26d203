//! Which FUNCTIONs of a graph are scheduled once for all their calls. Flows in: roots with FUNCTIONs; flows out:
//! roots in which only those are left, and their bodies.
//!
//! A body that is called once, or folds nothing, is worth more inside of what is around it. Any other is a program
//! of its own; so is what is called again and again, of which what can be had for all times at once is done once
//! (`uop::hoist`).

use monoglot_uop::function::{each_graph, inline_functions, merge_functions, params, slot};
use monoglot_uop::graph::toposort_many;
use monoglot_uop::hoist::hoisted;
use monoglot_uop::{Arg, Op, Result, UOp};
use rustc_hash::FxHashMap;

/// Roots whose FUNCTIONs are those that are scheduled once.
///
/// # Errors
/// Where the arguments of a FUNCTION do not fit its body.
pub(crate) fn resolved(roots: &[UOp]) -> Result<Vec<UOp>> {
    let has = |u: &UOp| u.ops_below().contains(Op::Function);
    if !roots.iter().any(has) {
        return Ok(roots.to_vec());
    }
    let roots = hoisted(&each_graph(roots, merge_functions)?)?;
    if !roots.iter().any(has) {
        return Ok(roots);
    }
    let mut times: FxHashMap<UOp, usize> = FxHashMap::default();
    for u in toposort_many(&roots, has) {
        if u.op() == Op::Function {
            *times.entry(u.src()[0].clone()).or_default() += 1;
        }
    }
    let shared = |f: &UOp| times[&f.src()[0]] > 1 && is_program(f);
    inline_functions(&roots, |f| matches!(f.arg(), Arg::Scan(_)) || shared(f))
}

/// Whether a call may be of a program of its own.
fn is_program(function: &UOp) -> bool {
    let body = &function.src()[0];
    let below = body.ops_below();
    let argument = |p: &UOp| function.src().get(1 + slot(p)?);
    let mut lengths = params(body).into_iter().filter(UOp::is_variable);
    below.contains(Op::Reduce)
        && !below.contains(Op::Assert)
        && lengths.all(|p| argument(&p).is_some_and(UOp::is_variable))
}

/// How many arguments a body has at most.
pub(crate) fn arguments(body: &UOp) -> usize {
    let own = params(body);
    let slots = own.iter().filter_map(slot);
    slots.max().map_or(0, |most| most + 1)
}
