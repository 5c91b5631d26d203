//! How compiling grows with a program, on NULL, which compiles and runs nothing. Flows in: programs of n
//! and of 4n equal parts; flows out: what every pass did for each, counted: nodes looked at, rules fired,
//! nodes made, bytes written. Four times the parts may cost what n log n says, not more.

#[path = "growth/shapes.rs"]
mod shapes;

use monoglot::Config;
use monoglot::compiler::engine::compile;
use monoglot::compiler::uop::{Effort, UOp};
use shapes::{ALL, Shape};

/// Counts so small that what a pass does once is most of them.
const LITTLE: u64 = 20_000;

/// What each pass did for a program of n parts; the first is its writer's and the gradient's.
fn efforts(shape: &Shape, n: usize) -> Vec<(&'static str, Effort)> {
    let then = Effort::so_far();
    let roots: Vec<UOp> = (shape.program)(n)
        .iter()
        .map(|t| t.uop().expect("it is well-formed"))
        .collect();
    let written = Effort::since(then);
    let compiled = compile(&roots).unwrap_or_else(|e| panic!("{} {n}: {e}", shape.name));
    [("write", written)]
        .into_iter()
        .chain(compiled.effort)
        .collect()
}

/// What grew by more than n log n from n to 4n.
fn grown(shape: &Shape) -> Vec<String> {
    let n = shape.parts;
    let m = 4 * shape.parts;
    let few = efforts(shape, n);
    let many = efforts(shape, m);
    let log = |n: usize| (n as f64).log2();
    let most = 4.0 * log(m) / log(n);
    let mut out = Vec::new();
    for ((pass, a), (_, b)) in few.iter().zip(&many) {
        for ((what, a), (_, b)) in a.counts().into_iter().zip(b.counts()) {
            if b as f64 > most * a.max(LITTLE / 4) as f64 {
                out.push(format!(
                    "{} of {n} and {m} parts: {pass} {what} {a} and {b}",
                    shape.name
                ));
            }
        }
    }
    out
}

#[test]
fn every_pass_costs_at_most_n_log_n() {
    Config {
        device: Some("NULL".into()),
        ..Config::default()
    }
    .set();
    let over: Vec<String> = ALL.iter().flat_map(grown).collect();
    assert!(over.is_empty(), "{over:#?}");
}
