//! Runs `tests/filetests`: tensor graphs and the schedules they become. `UPDATE=1 cargo test -p
//! monoglot-schedule --test filetests` accepts what is computed.

mod support;

use monoglot_oracle::filetest;
use monoglot_schedule::{Timings, callify, schedule};
use monoglot_uop::spec::verify_tensor;
use monoglot_uop::{Arg, Device, Error, Op, Result, UOp};
use support::target;

/// The sources of the graph's SINK are what is wanted.
fn pass(name: &str, u: UOp) -> Result<UOp> {
    match name {
        "verify-tensor" => verify_tensor(u).map(|v| v.into_inner()),
        "callify" => UOp::try_new(Op::Sink, callify(u.src(), |_| true)?.roots, Arg::None),
        "schedule" => {
            let function = callify(u.src(), |_| true)?;
            let done = schedule(&function, Device::new("CPU"), &target, &mut Timings::default())?;
            Ok(done.linear.into_inner())
        }
        name => Err(Error::argument("filetest", format!("there is no pass {name}"))),
    }
}

#[test]
fn files_give_what_they_say() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/filetests");
    filetest::run(dir, pass).unwrap_or_else(|e| panic!("{e}"));
}
