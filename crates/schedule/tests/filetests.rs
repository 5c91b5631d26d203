//! Runs `tests/filetests`: tensor graphs and the schedules they become. `UPDATE=1 cargo test -p
//! monoglot-schedule --test filetests` accepts what is computed.

use monoglot_oracle::filetest;
use monoglot_schedule::{Timings, callify, schedule};
use monoglot_uop::spec::verify_tensor;
use monoglot_uop::{Arg, DType, Device, Dialect, Error, Op, OpSet, Result, Target, UOp};
use std::sync::Arc;

fn target(device: Device) -> Result<Arc<Target>> {
    Ok(Arc::new(Target {
        device,
        dialect: Dialect::Linear,
        arch: String::new(),
        vector_bytes: 16,
        registers: 16,
        threads: 2,
        workgroups: false,
        max_workgroup: 1,
        warp: 1,
        local_bytes: 0,
        caches: [32 << 10, 1 << 20, 32 << 20],
        native: OpSet::ANY,
        arithmetic: DType::ALL.to_vec(),
        storage: DType::ALL.to_vec(),
        matrix_units: Vec::new(),
        max_buffers: 32,
        max_nodes: 400,
    }))
}

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
