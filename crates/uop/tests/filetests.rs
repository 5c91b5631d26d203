//! Runs `tests/filetests`: the text form, the specs, the rules, gradients. `UPDATE=1 cargo test
//! --workspace files_give` accepts what is computed. Flows in: the files; flows out: a failed test
//! for each that says something else.

use monoglot_oracle::filetest;
use monoglot_uop::gradient::gradient;
use monoglot_uop::{Arg, Error, Op, Result, UOp, rules, spec};

fn pass(name: &str, u: UOp) -> Result<UOp> {
    match name {
        "verify-tensor" => spec::verify_tensor(u).map(|v| v.into_inner()),
        "verify-kernel" => spec::verify_kernel(u).map(|v| v.into_inner()),
        "verify-expanded" => spec::verify_expanded(u).map(|v| v.into_inner()),
        "verify-scheduled" => spec::verify_scheduled(u).map(|v| v.into_inner()),
        "verify-linear" => spec::verify_linear(u).map(|v| v.into_inner()),
        "verify-program" => spec::verify_program(u),
        "symbolic" => rules::symbolic().rewrite(&u),
        "kernel" => rules::kernel().rewrite(&u),
        "tensor" => rules::tensor().rewrite(&u),
        "simplify-tensors" => rules::simplify_tensors(&u),
        "gradient" => gradients(&u),
        name => Err(Error::argument(
            "filetest",
            format!("there is no pass {name}"),
        )),
    }
}

/// Of TUPLE(y, seed, x…): the gradients of Σ(y · seed) for each x, as a TUPLE; x itself where there is
/// none.
fn gradients(u: &UOp) -> Result<UOp> {
    let [y, seed, targets @ ..] = u.src() else {
        return Err(Error::argument("gradient", "of TUPLE(y, seed, x…)"));
    };
    let found = gradient(y, seed, targets)?;
    let all: Vec<UOp> = found
        .into_iter()
        .zip(targets)
        .map(|(g, x)| g.unwrap_or_else(|| x.clone()))
        .collect();
    UOp::try_new(Op::Tuple, all, Arg::None)
}

#[test]
fn files_give_what_they_say() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/filetests");
    filetest::run(dir, pass).unwrap_or_else(|e| panic!("{e}"));
}
