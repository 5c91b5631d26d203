//! The integer rules, proved by an SMT solver. Every rule is instantiated from its own pattern (the
//! samples are those of the rule check, divisors and factors small constants), applied, and the
//! solver is asked for values of the variables at which the two sides differ. `index` is
//! mathematical, other dtypes wrap in 8 bits. Prints what the solver leaves open and what it
//! refutes, then `N proved, M open, 0 refuted`. Flows in: the rules; flows out: for each whether it
//! is proved, open or refuted. Always: what is not proved is counted and named.

mod bits;
mod integers;
#[path = "../../../crates/uop/tests/rules/sample.rs"]
mod sample;
mod solver;

use monoglot_uop::graph::toposort_many;
use monoglot_uop::rewrite::Rule;
use monoglot_uop::{Arg, AxisType, DType, Op, ReduceOp, Shape, UOp, rules};
use sample::{Bound, Random, gated, instance};
use solver::{Answer, Solver};
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;

/// What each dtype is tried in: all wrapping dtypes are alike but for their width.
const DTYPES: &[DType] = &[
    DType::Index,
    DType::Index,
    DType::Index,
    DType::Index,
    DType::Bool,
    DType::Bool,
    DType::I8,
    DType::U8,
];
/// Samples a wanted instance.
const TRIES: usize = 400;

struct Settings {
    instances: usize,
    timeout: u32,
    rule: Option<String>,
    seed: u64,
}

pub(crate) fn main(args: &[String]) -> ExitCode {
    let value = |name: &str| {
        args.iter()
            .position(|a| a == name)
            .and_then(|i| args.get(i + 1))
    };
    let number =
        |name: &str, default: usize| value(name).and_then(|v| v.parse().ok()).unwrap_or(default);
    let settings = Settings {
        instances: number("--instances", 24),
        timeout: number("--timeout", 2000) as u32,
        rule: value("--rule").cloned(),
        seed: number("--seed", 1) as u64,
    };
    let mut solver = match Solver::start(settings.timeout) {
        Ok(s) => s,
        Err(e) => {
            eprintln!("z3 does not start (Debian: apt-get install z3): {e}");
            return ExitCode::FAILURE;
        }
    };
    let mut proved = 0;
    let mut open = Vec::new();
    let mut refuted = Vec::new();
    let mut aside = Vec::new();
    let mut checked = 0;
    for rule in integer_rules()
        .into_iter()
        .filter(|r| settings.rule.as_deref().is_none_or(|n| n == r.name))
    {
        let found = prove(&rule, &settings, &mut solver);
        checked += found.proved + found.open + found.refuted;
        match found {
            Found { refuted: 1.., .. } => refuted.push(rule.name),
            Found {
                proved,
                open: n @ 1..,
                ..
            } => open.push(format!("{} ({proved} of {})", rule.name, proved + n)),
            Found { proved: 0, .. } => aside.push(rule.name),
            _ => proved += 1,
        }
    }
    println!("no integer instance: {}", aside.join(", "));
    println!(
        "open within {} ms an instance: {}",
        settings.timeout,
        open.join(", ")
    );
    if !refuted.is_empty() {
        println!("refuted: {}", refuted.join(", "));
    }
    println!("{checked} instances");
    println!(
        "{proved} proved, {} open, {} refuted",
        open.len(),
        refuted.len()
    );
    if refuted.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// The rules of `symbolic` and `kernel`, by name.
fn integer_rules() -> Vec<Arc<Rule>> {
    let all: BTreeMap<&'static str, Arc<Rule>> = rules::kernel()
        .rules()
        .iter()
        .map(|r| (r.name, r.clone()))
        .collect();
    all.into_values().collect()
}

#[derive(Default)]
struct Found {
    proved: usize,
    open: usize,
    refuted: usize,
}

fn prove(rule: &Rule, settings: &Settings, solver: &mut Solver) -> Found {
    let mut r = Random::new(settings.seed << 40);
    r.dtypes = DTYPES;
    let mut found = Found::default();
    let mut seen: Vec<UOp> = Vec::new();
    for t in 0..TRIES * settings.instances {
        if seen.len() >= settings.instances {
            break;
        }
        // Variables first as they are, then as small expressions.
        r.depth = if t < TRIES * settings.instances / 4 {
            t % 2
        } else {
            2
        };
        let pattern = &rule.patterns[t % rule.patterns.len()];
        let d = r.dtype();
        let before = match rule.name {
            "reduce_collapse" => Some(reduction(&mut r)),
            "gate_known" => Some(gated(&mut r)),
            _ => instance(pattern, d, &mut r, &mut Bound::default()),
        };
        let Some(before) = before.filter(|b| !seen.contains(b)) else {
            continue;
        };
        let Some(after) = rule.apply(&before).filter(|a| *a != before) else {
            continue;
        };
        let Some(query) = query(&before, &after) else {
            continue;
        };
        seen.push(before.clone());
        match solver.ask(&query) {
            Answer::Unsat => found.proved += 1,
            Answer::Unknown => found.open += 1,
            Answer::Sat(model) => {
                println!(
                    "{} ({}:{}) is refuted by {model}\nbefore:\n{}\nafter:\n{}",
                    rule.name, rule.file, rule.line, before, after
                );
                found.refuted += 1;
            }
        }
    }
    found
}

/// Whether the two differ anywhere: in bit-vectors where there is no `index` or there are operations on
/// bits, else in the integers. None where neither has a word for an op.
fn query(before: &UOp, after: &UOp) -> Option<String> {
    let nodes = toposort_many(&[before.clone(), after.clone()], |_| true);
    if nodes.iter().any(|u| u.dtype().is_float()) {
        return None;
    }
    let of_bits = |u: &UOp| {
        let op = matches!(
            u.op(),
            Op::And | Op::Or | Op::Xor | Op::Shl | Op::Shr | Op::Not
        );
        op && u.dtype() != DType::Bool
    };
    let index = nodes
        .iter()
        .any(|u| u.dtype() == DType::Index && u.op() != Op::Stack);
    if !index || nodes.iter().any(of_bits) {
        bits::query(before, after, &nodes)
    } else {
        integers::query(before, after)
    }
}

/// Sums, products and maxima over a short range, with bounds and equalities on it.
fn reduction(r: &mut Random) -> UOp {
    let d = r.of(&[DType::Index, DType::Index, DType::I8, DType::Bool]);
    let i = UOp::range(5i64, 0, AxisType::Loop);
    let n = r.within(1, 5);
    let k = UOp::range(n, 1, AxisType::Reduce);
    let data = UOp::param(0, &Shape::of(&[64]), DType::I8, None);
    let op = r.of(&[ReduceOp::Add, ReduceOp::Add, ReduceOp::Max, ReduceOp::Mul]);
    let mut gate: Option<UOp> = None;
    for _ in 0..1 + r.below(3) {
        let side = match r.below(3) {
            0 => UOp::index_const(r.within(-1, 6)),
            1 => &i * r.within(-1, 2) + r.within(-3, 3),
            _ => data.at(std::slice::from_ref(&i)).cast(DType::Index),
        };
        let scaled = &k * r.of(&[1, 1, -1, 2]) + r.within(-1, 1);
        let one = match r.below(4) {
            0 => scaled.lt(&side),
            1 => side.lt(&scaled),
            2 => scaled.eq_(&side),
            _ => i.lt(&side),
        };
        gate = Some(gate.map_or(one.clone(), |g| g & one));
    }
    let gate = gate.expect("there is at least one").simplify();
    let read = match r.below(3) {
        0 => data.at(&[(&i * 5 + &k).valid(&gate)]),
        1 => data.at(&[i.valid(&gate)]),
        _ => data.at(&[&i * 5 + &k]),
    };
    let value = match (d, r.below(3)) {
        (DType::Bool, _) => read.lt(&UOp::int(3, DType::I8)),
        (DType::Index, 0) => &k * 3 + &i,
        (_, 0) => UOp::int(r.within(-2, 3), d),
        (d, _) => read.cast(d),
    };
    let identity = UOp::constant(op.identity(d), d);
    let value = match r.below(5) {
        0 => value,
        1 if d != DType::Bool => gate.cast(d),
        _ => gate.select(&value, &identity),
    };
    UOp::new(Op::Reduce, vec![value, k], Arg::Reduce(op, [].into()))
}
