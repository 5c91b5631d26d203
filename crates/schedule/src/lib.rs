//! Tensor graph → LINEAR of CALLs. Flows in: the roots that somebody wants realized; flows out: a
//! stateless program, its kernels in an order that respects every hazard, with storage planned.
//! Invariant: nothing here knows a concrete buffer; a schedule is a function of structure alone.
//!
//! | pass | in → out | file |
//! | --- | --- | --- |
//! | callify | roots → function of PARAMs, and the buffers they stand for | `callify` |
//! | lift | a function → its structure, and its constants and offsets | `lift` |
//! | checks | what a function asserts → words, wanted too, that tell whether it holds | `checks` |
//! | bodies | FUNCTIONs of which each call becomes its body, and the others | `bodies` |
//! | functions | bodies that are called more than once, scheduled once each; later: their kernels, for each call | `functions` |
//! | prepare | tensor rules; long reductions and wide stacks split; files copied, then viewed | `prepare` |
//! | rangeify | movement → index arithmetic; what is stored is decided by cost | `rangeify` |
//! | kernels | values over ranges → kernels in canonical form | `kernel` |
//! | fuse | stores over the same ranges share a kernel | `fuse` |
//! | scan | a body that runs again and again: CALLs, and a loop around some | `scan` |
//! | order | assigns in place where hazards allow, an order for all | `order`, `rows` |
//! | memory plan | storage reused by lifetime | `memory` |

mod bodies;
mod callify;
mod checks;
mod functions;
mod fuse;
mod kernel;
mod lift;
mod memory;
mod order;
mod prepare;
mod rangeify;
mod rows;
mod scan;
#[cfg(test)]
mod tests;

pub use callify::{Arguments, Function, assigned_buffer, callify};
pub use checks::Check;
pub use lift::{Guards, Lifted, LiftedKind, Structure, lift, users};
pub use memory::{ALIGN, Allocation, Layout, Memory, Plan};

use functions::Apart;
use kernel::Calls;
use monoglot_uop::spec::{Scheduled, verify_function};
use monoglot_uop::{Device, Effort, Result, Target, UOp};
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A program ready to be lowered and run.
#[derive(Debug)]
pub struct Schedule {
    /// LINEAR of CALLs: `CALL(kernel, args…)` runs a kernel, `CALL(COPY(source), destination, source)`
    /// moves bytes. Arguments are the function's PARAMs and BUFFERs numbered by the plan.
    pub linear: Scheduled,
    /// For each root that is wanted, where its value is: a view of a PARAM or of a BUFFER.
    pub outputs: Vec<UOp>,
    /// Where it says whether what the function asserts holds. What it writes in place it writes after
    /// these, but for those that are computed from what it writes.
    pub checks: Vec<Check>,
    /// What each BUFFER slot of this program is, and where.
    pub plan: Plan,
    /// For each PARAM, whether a kernel writes its storage in place.
    pub written: Vec<bool>,
}

/// Seconds spent in the stages of scheduling, and what its passes did.
#[derive(Clone, Debug, Default)]
pub struct Timings {
    /// Preparation and rangeify, kernels and their order.
    pub rangeify: Duration,
    /// The memory plan.
    pub memory_plan: Duration,
    /// Each pass by name.
    pub effort: Vec<(&'static str, Effort)>,
}

/// The schedule of a function; what reads no buffer at all is computed on `device`.
///
/// # Errors
/// `Verify`, or `Text` of a text's, for what is no tensor graph, `Unsupported` for ops that nothing runs yet, and
/// errors of the compiler's own checks.
pub fn schedule(
    function: &Function,
    device: Device,
    target: &dyn Fn(Device) -> Result<Arc<Target>>,
    timings: &mut Timings,
) -> Result<Schedule> {
    let start = Instant::now();
    let mut then = Effort::so_far();
    let mut passed = |pass: &'static str| {
        timings.effort.push((pass, Effort::since(then)));
        then = Effort::so_far();
    };
    let arguments = function.donated.len() + function.variables;
    verify_function(UOp::sink(&function.roots), arguments)?;
    passed("verify");
    let (roots, mut words) = checks::words(function)?;
    let mut known = FxHashMap::default();
    for body in monoglot_uop::function::bodies(&roots) {
        let calls = program(body.src(), bodies::arguments(&body), &known, device, target)?;
        known.insert(body, Arc::new(calls));
    }
    passed("functions");
    let Apart {
        roots,
        sites,
        given,
    } = functions::apart(&roots, arguments, device)?;
    let roots = prepare::prepare(&roots, target)?;
    let roots = functions::in_place(roots, given);
    passed("prepare");
    let stored = rangeify::rangeify(&roots, device, target)?;
    passed("rangeify");
    let mut kernels = kernel::kernels(stored)?;
    checks::without_proved(&mut kernels, &mut words);
    passed("kernels");
    let called = functions::with_sites(kernels, sites, given, arguments, device, &known)?;
    let fused = functions::expanded(fuse::fuse(called, target)?);
    passed("fuse");
    let ordered = order::order(fused, &function.donated, &words, target)?;
    passed("order");
    let planning = Instant::now();
    let mut schedule = memory::plan(ordered, function.donated.len())?;
    checks::placed(words, &mut schedule);
    passed("memory plan");
    timings.rangeify += planning - start;
    timings.memory_plan += planning.elapsed();
    Ok(schedule)
}

/// The kernels of a body, all of whose values are buffers.
fn program(
    values: &[UOp],
    arguments: usize,
    known: &FxHashMap<UOp, Arc<Calls>>,
    device: Device,
    target: &dyn Fn(Device) -> Result<Arc<Target>>,
) -> Result<Calls> {
    let Apart {
        roots,
        sites,
        given,
    } = functions::apart(values, arguments, device)?;
    let roots = prepare::prepare(&roots, target)?;
    let all = roots.len();
    let roots = functions::in_place(roots, all);
    let stored = rangeify::rangeify(&roots, device, target)?;
    let kernels = kernel::kernels(stored)?;
    let called = functions::with_sites(kernels, sites, given, arguments, device, known)?;
    Ok(functions::expanded(fuse::fuse(called, target)?))
}
