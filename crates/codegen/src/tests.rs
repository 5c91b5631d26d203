//! Runs `tests/filetests`: kernels, the passes applied to them, and what they become. A pass is an
//! Opt written without spaces, such as `SPLIT(0,4,UPCAST)`, or a name; passes after the Opts are
//! those of a machine with two threads and vectors. `UPDATE=1 cargo test --workspace files_give`
//! accepts what is computed. Flows in: the files; flows out: a failed test for each that says
//! something else.

use crate::opt::tests::support::{backend, target};
use crate::{expand, linearize, loops, memory, opt, peel, pipeline, select};
use monoglot_oracle::filetest;
use monoglot_uop::spec::{verify_expanded, verify_kernel, verify_linear};
use monoglot_uop::{Error, Op, Opt, Result, UOp, rules};

fn pass(name: &str, u: UOp) -> Result<UOp> {
    if let Ok(step) = name.parse::<Opt>() {
        return opt::apply(&u, &[step], &target(true));
    }
    match name {
        "verify-kernel" => verify_kernel(u).map(|v| v.into_inner()),
        "verify-expanded" => verify_expanded(u).map(|v| v.into_inner()),
        "verify-linear" => verify_linear(u).map(|v| v.into_inner()),
        "normalise" => loops::normalise(&u),
        "flatten" => memory::flatten(&u),
        "simplify" => rules::kernel().rewrite(&u),
        "peel" => peel::peel(&u),
        "hoist" => Ok(memory::hoist(&u)),
        "expand" => expand::expand(&u),
        "select" => select::select(&u, &target(false)),
        "linearize" => linearize::linearize(&u, target(false).registers),
        "render" => {
            let (program, _) = {
                let target = target(false);
                let backend = backend(target.dialect);
                pipeline::lower(&u, &target, backend, Some(&[]), &mut |_, _| {})?
            };
            let source = program.src().iter().find(|s| s.op() == Op::Source);
            source
                .cloned()
                .ok_or_else(|| Error::argument("filetest", "no SOURCE"))
        }
        name => Err(Error::argument(
            "filetest",
            format!("there is no pass {name}"),
        )),
    }
}

#[test]
fn files_give_what_they_say() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/filetests");
    filetest::run(dir, pass).unwrap_or_else(|e| panic!("{e}"));
}
