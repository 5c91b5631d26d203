//! The rule check. Every rule of every set is instantiated from its own pattern, applied, and both
//! sides are evaluated: expressions at points of their variables, tensor graphs and kernels on
//! data. A rule that no sample exercises fails. Flows in: the rule sets and a seed; flows out: a
//! failed test that names the rule and prints both sides.

mod array;
mod kernel;
mod sample;
mod scalar;

use monoglot_uop::rewrite::Rule;
use monoglot_uop::rules;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How a rule is evaluated.
#[derive(Copy, Clone, PartialEq)]
enum Kind {
    Scalar,
    Array,
    Kernel,
}

fn all() -> Vec<(Kind, Arc<Rule>)> {
    let of = |kind, set: &'static monoglot_uop::rewrite::RuleSet| {
        set.rules().iter().map(move |r| (kind, r.clone()))
    };
    let mut out: BTreeMap<&'static str, (Kind, Arc<Rule>)> = BTreeMap::new();
    for (kind, rule) in of(Kind::Array, rules::tensor()).chain(of(Kind::Kernel, rules::kernel())) {
        let kind = if rule.file.ends_with("movement.rs")
            || rule.name.starts_with("index_") && kind == Kind::Kernel
        {
            Kind::Array
        } else if rule.file.ends_with("reduce.rs")
            || ["end_closed", "turn_waited"].contains(&rule.name)
        {
            Kind::Kernel
        } else {
            Kind::Scalar
        };
        out.insert(rule.name, (kind, rule));
    }
    out.into_values().collect()
}

/// How often each rule fires in an ordinary run; `HITS=1000` looks harder, `SEED=2` elsewhere.
const HITS: usize = 40;

fn setting(name: &str, default: usize) -> usize {
    std::env::var(name)
        .ok()
        .and_then(|v| v.parse().ok())
        .unwrap_or(default)
}

#[test]
fn every_rule_keeps_values() {
    let hits_wanted = setting("HITS", HITS);
    let seed = setting("SEED", 1) as u64;
    let mut idle = Vec::new();
    for (kind, rule) in all() {
        let hits = match kind {
            Kind::Scalar => scalar::check(&rule, hits_wanted, seed),
            Kind::Array => array::check(&rule, hits_wanted, seed),
            Kind::Kernel => kernel::check(&rule, hits_wanted, seed),
        };
        if std::env::var("SHOW").is_ok() {
            println!("{hits:4} {} ({}:{})", rule.name, rule.file, rule.line);
        }
        if hits == 0 {
            idle.push(rule.name);
        }
    }
    assert!(idle.is_empty(), "no sample exercises {}", idle.join(", "));
}

#[test]
fn sets_of_rules_end_and_keep_values() {
    scalar::check_sets(setting("HITS", HITS) * 50, setting("SEED", 1) as u64);
}

#[test]
fn conditions_at_the_ends_of_integers_keep_values() {
    scalar::check_ends(setting("SEED", 1) as u64);
}

/// What a failing rule is reported with.
fn report(rule: &Rule, before: &monoglot_uop::UOp, after: &monoglot_uop::UOp, what: &str) -> ! {
    panic!(
        "{} ({}:{}) {what}\nbefore:\n{}\nafter:\n{}",
        rule.name, rule.file, rule.line, before, after
    )
}
