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
    let mut known: FxHashMap<UOp, Body> = FxHashMap::default();
    let mut functions = toposort_many(&roots, has);
    functions.retain(|u| u.op() == Op::Function);
    for f in &functions {
        let body = &f.src()[0];
        let body = known.entry(body.clone()).or_insert_with(|| Body::of(body));
        body.times += 1;
    }
    let has_lengths = |f: &UOp| known[&f.src()[0]].has_lengths(f);
    let shared = |f: &UOp| known[&f.src()[0]].times > 1 && is_worth_it(f) && has_lengths(f);
    let keep = |f: &UOp| match f.arg() {
        Arg::Scan(_) => true,
        Arg::Recompute(Recompute::Again) => has_lengths(f),
        _ => shared(f),
    };
    let roots = match functions.iter().all(keep) {
        true => roots,
        false => inline_functions(&roots, keep)?,
    };
    assertions_outside(&roots, |f| matches!(f.arg(), Arg::Recompute(_)))
}

/// Whether a body that is called several times is better a program of its own.
fn is_worth_it(function: &UOp) -> bool {
    let below = function.src()[0].ops_below();
    below.contains(Op::Reduce) && !below.contains(Op::Assert)
}

/// What is asked of a body for each of its calls.
struct Body {
    /// How many of them there are.
    times: usize,
    /// The numbers of its variables.
    lengths: Vec<usize>,
}

impl Body {
    fn of(body: &UOp) -> Body {
        let lengths = params(body).into_iter().filter(UOp::is_variable);
        Body {
            times: 0,
            lengths: lengths.filter_map(|p| slot(&p)).collect(),
        }
    }

    /// Whether a call may be of a program of its own: its lengths are variables there, too.
    fn has_lengths(&self, function: &UOp) -> bool {
        let argument = |&k: &usize| function.src().get(1 + k).is_some_and(UOp::is_variable);
        self.lengths.iter().all(argument)
    }
}

/// How many arguments a body has at most.
pub(crate) fn arguments(body: &UOp) -> usize {
    let own = params(body);
    let slots = own.iter().filter_map(slot);
    slots.max().map_or(0, |most| most + 1)
}
