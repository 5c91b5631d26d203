//! Runs `tests/filetests`: tensor graphs, and what each stage of scheduling makes of them.
//! `UPDATE=1 cargo test --workspace files_give` accepts what is computed. Flows in: the files;
//! flows out: a failed test for each that says something else.

#[path = "../tests/support/mod.rs"]
mod support;

use crate::kernel::{Callee, Calls};
use crate::{Timings, callify, checks, fuse, kernel, order, prepare, rangeify, schedule};
use monoglot_oracle::filetest;
use monoglot_uop::spec::verify_tensor;
use monoglot_uop::{Arg, Device, Error, Op, Result, UOp};
use support::target;

/// The sources of the graph's SINK are what is wanted.
fn pass(name: &str, u: UOp) -> Result<UOp> {
    let sink = |all: Vec<UOp>| UOp::try_new(Op::Sink, all, Arg::None);
    let device = Device::new("CPU");
    let prepared = || prepare::prepare(&checks::words(&callify(u.src(), |_| true)?.0)?.0, &target);
    let stored = || rangeify::rangeify(&prepared()?, device, &target);
    let kernels = || kernel::kernels(stored()?);
    match name {
        "verify-tensor" => verify_tensor(u).map(|v| v.into_inner()),
        "callify" => sink(callify(u.src(), |_| true)?.0.roots),
        "prepare" => sink(prepared()?),
        // The value of an iteration of all that is stored.
        "rangeify" => sink(stored()?.stored.into_iter().map(|s| s.value).collect()),
        "kernels" => sink(computed(kernels()?)),
        "fuse" => sink(computed(fuse::fuse(kernels()?, &target)?)),
        "order" => sink(computed(order::order(
            fuse::fuse(kernels()?, &target)?,
            &[],
            &[],
            &target,
        )?)),
        "schedule" => {
            let (function, _) = callify(u.src(), |_| true)?;
            let done = schedule(&function, device, &target, &mut Timings::default())?;
            Ok(done.linear.into_inner())
        }
        name => Err(Error::argument(
            "filetest",
            format!("there is no pass {name}"),
        )),
    }
}

fn computed(all: Calls) -> Vec<UOp> {
    let compute = |work| {
        if let Callee::Compute(kernel) = work {
            Some(kernel)
        } else {
            None
        }
    };
    all.calls
        .into_iter()
        .filter_map(|k| compute(k.callee))
        .collect()
}

#[test]
fn files_give_what_they_say() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/filetests");
    filetest::run(dir, pass).unwrap_or_else(|e| panic!("{e}"));
}
