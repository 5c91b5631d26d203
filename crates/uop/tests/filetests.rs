//! Runs `tests/filetests`: the text form and the specs. `UPDATE=1 cargo test -p monoglot-uop --test
//! filetests` accepts what is computed.

use monoglot_uop::text::filetest;
use monoglot_uop::{Error, Result, UOp, spec};

fn pass(name: &str, u: UOp) -> Result<UOp> {
    match name {
        "verify-tensor" => spec::verify_tensor(u).map(|v| v.into_inner()),
        "verify-kernel" => spec::verify_kernel(u).map(|v| v.into_inner()),
        "verify-expanded" => spec::verify_expanded(u).map(|v| v.into_inner()),
        "verify-scheduled" => spec::verify_scheduled(u).map(|v| v.into_inner()),
        "verify-linear" => spec::verify_linear(u).map(|v| v.into_inner()),
        "verify-program" => spec::verify_program(u).map(|v| v.into_inner()),
        name => Err(Error::argument("filetest", format!("there is no pass {name}"))),
    }
}

#[test]
fn files_give_what_they_say() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/filetests");
    filetest::run(dir, pass).unwrap_or_else(|e| panic!("{e}"));
}
