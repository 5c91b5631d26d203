//! Runs `tests/filetests`: kernels, the Opts applied to them, and what they become. A pass is an Opt
//! written without spaces, such as `SPLIT(0,4,UPCAST)`, or a name. `UPDATE=1 cargo test -p
//! monoglot-codegen --test filetests` accepts what is computed.

use monoglot_codegen::opt;
use monoglot_oracle::filetest;
use monoglot_uop::spec::verify_kernel;
use monoglot_uop::{DType, Device, Dialect, Error, OpSet, Opt, Result, Target, TcInfo, UOp};

/// A machine with workgroups, LOCAL memory and a matrix unit: every Opt can be applied.
fn target() -> Target {
    Target {
        device: Device::new("INTERP:GPU"),
        dialect: Dialect::Linear,
        arch: String::new(),
        vector_bytes: 16,
        registers: 32,
        threads: 1,
        workgroups: true,
        max_workgroup: 256,
        warp: 32,
        local_bytes: 16 << 10,
        caches: [32 << 10, 1 << 20, 32 << 20],
        native: OpSet::ANY,
        arithmetic: DType::ALL.to_vec(),
        storage: DType::ALL.to_vec(),
        matrix_units: vec![TcInfo {
            name: "mma8".into(),
            dims: [8, 8, 8],
            threads: 32,
            dtype_in: DType::F32,
            dtype_out: DType::F32,
        }],
        max_buffers: 31,
        max_nodes: 4096,
    }
}

fn pass(name: &str, u: UOp) -> Result<UOp> {
    if let Ok(step) = name.parse::<Opt>() {
        return opt::apply(&u, &[step], &target());
    }
    match name {
        "verify-kernel" => verify_kernel(u).map(|v| v.into_inner()),
        name => Err(Error::argument("filetest", format!("there is no pass {name}"))),
    }
}

#[test]
fn files_give_what_they_say() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/filetests");
    filetest::run(dir, pass).unwrap_or_else(|e| panic!("{e}"));
}
