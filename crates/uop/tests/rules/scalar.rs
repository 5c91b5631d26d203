//! Rules on expressions, evaluated at points of their leaves. Flows in: a rule's two sides; flows
//! out: the first point where they differ, if any.

use crate::report;
use crate::sample::{Bound, Random, expression, gated, instance};
use monoglot_uop::graph::toposort_many;
use monoglot_uop::rewrite::Rule;
use monoglot_uop::{DType, Op, Scalar, Shape, UOp, fold, rules};
use rustc_hash::FxHashMap;

/// Samples a wanted hit.
const TRIES: usize = 150;
const POINTS: usize = 160;

/// How often the rule fired; its results are right at every point looked at.
pub(crate) fn check(rule: &Rule, enough: usize, seed: u64) -> usize {
    let mut r = Random::new(seed << 40);
    let mut hits = 0;
    for t in 0..TRIES * enough {
        if hits >= enough {
            break;
        }
        let pattern = &rule.patterns[t % rule.patterns.len()];
        let d = r.dtype();
        let mut bound = Bound::default();
        let sample = match rule.name {
            "gate_known" => Some(gated(&mut r)),
            _ => instance(pattern, d, &mut r, &mut bound),
        };
        let Some(before) = sample else { continue };
        let Some(after) = rule.apply(&before) else {
            continue;
        };
        if after == before {
            continue;
        }
        hits += 1;
        if after.dtype() != before.dtype() || after.shape() != before.shape() {
            report(rule, &before, &after, "changes the type");
        }
        same(rule, &before, &after, &mut r);
    }
    hits
}

/// Random expressions keep their values under whole sets of rules, which end, at a form that stays.
pub(crate) fn check_sets(samples: usize, seed: u64) {
    let mut r = Random::new(seed << 43);
    for t in 0..samples {
        let d = r.dtype();
        let before = expression(&mut r, d, 2 + t % 5);
        for set in [rules::symbolic(), rules::kernel()] {
            let after = set
                .rewrite(&before)
                .unwrap_or_else(|e| panic!("{e}\n{}", before));
            compare(&before, &after, &mut r, 1 << 40)
                .unwrap_or_else(|e| failed(set.name, &before, &after, &e));
            let again = set
                .rewrite(&after)
                .unwrap_or_else(|e| panic!("{e}\n{}", after));
            if again != after {
                failed(
                    set.name,
                    &after,
                    &again,
                    "changes again what it has simplified",
                );
            }
        }
    }
}

/// Two conditions on one integer are what they are also where they are told with its least and greatest values.
pub(crate) fn check_ends(seed: u64) {
    let mut r = Random::new(seed << 45);
    let conditions: [fn(&UOp, &UOp) -> UOp; 6] = [
        |x, c| x.eq_(c),
        |x, c| x.ne_(c),
        |x, c| x.lt(c),
        |x, c| c.lt(x),
        |x, c| x.lt(c).unary(Op::Not),
        |x, c| c.lt(x).unary(Op::Not),
    ];
    let ints = DType::ALL.iter().copied();
    let ints = ints.filter(|d| d.is_int() && *d != DType::Index);
    for d in ints {
        let x = UOp::param(0, &Shape::SCALAR, d, None);
        let numbers = [
            d.min().to_i128(),
            d.min().to_i128() + 1,
            d.max().to_i128() - 1,
            d.max().to_i128(),
        ];
        let numbers = numbers.map(|n| UOp::constant(Scalar::Int(n), d));
        for (c, e) in numbers
            .iter()
            .flat_map(|c| numbers.iter().map(move |e| (c, e)))
        {
            for (p, q) in conditions
                .iter()
                .flat_map(|p| conditions.iter().map(move |q| (p, q)))
            {
                for op in [Op::And, Op::Or] {
                    let before = p(&x, c).binary(op, &q(&x, e));
                    let set = rules::symbolic();
                    let after = set
                        .rewrite(&before)
                        .unwrap_or_else(|e| panic!("{e}\n{before}"));
                    compare(&before, &after, &mut r, i128::MAX)
                        .unwrap_or_else(|e| failed(set.name, &before, &after, &e));
                }
            }
        }
    }
}

fn failed(set: &str, before: &UOp, after: &UOp, what: &str) -> ! {
    panic!("{set} {what}\nbefore:\n{}\nafter:\n{}", before, after)
}

fn same(rule: &Rule, before: &UOp, after: &UOp, r: &mut Random) {
    compare(before, after, r, i128::MAX).unwrap_or_else(|e| report(rule, before, after, &e));
}

/// Compare both sides at points of their leaves, except where data beyond `far` becomes an index.
fn compare(before: &UOp, after: &UOp, r: &mut Random, far: i128) -> Result<(), String> {
    let program = Program::new(&[before.clone(), after.clone()]);
    let domains: Vec<Vec<Scalar>> = program.leaves.iter().map(|l| domain(l, r)).collect();
    let all = domains
        .iter()
        .fold(1usize, |n, d| n.saturating_mul(d.len()));
    for p in 0..all.min(POINTS) {
        // All of them where there are few; otherwise any.
        let mut k = if all <= POINTS {
            p
        } else {
            r.bits() as usize % all
        };
        let mut values = Vec::with_capacity(domains.len());
        for d in &domains {
            values.push(d[k % d.len()]);
            k /= d.len();
        }
        let out = program.run(&values, far);
        // An invalid index may become anything, and so may what is too large for an index.
        let ((Some(a), false), (b, _)) = (out[0], out[1]) else {
            continue;
        };
        if a == Scalar::Invalid {
            continue;
        }
        if !b.is_some_and(|b| equal(a, b)) {
            let names: Vec<String> = program
                .leaves
                .iter()
                .zip(&values)
                .map(|(l, v)| format!("{} = {v:?}", l.to_string().trim()))
                .collect();
            return Err(format!(
                "gives {b:?} instead of {a:?} at {}",
                names.join("; ")
            ));
        }
    }
    Ok(())
}

/// Up to the sign of zero and a NaN's payload.
pub(crate) fn equal(a: Scalar, b: Scalar) -> bool {
    match (a, b) {
        (Scalar::Float(x), Scalar::Float(y)) => x == y || x.is_nan() && y.is_nan(),
        _ => a == b,
    }
}

/// Values at which a leaf is looked at: all of them where there are few, else the ends and others.
fn domain(leaf: &UOp, r: &mut Random) -> Vec<Scalar> {
    let d = leaf.dtype();
    let int = |v: i128| Scalar::Int(v).cast(d);
    if d.is_float() {
        let list = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            -2.5,
            3.0,
            1e4,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
            1e-40,
        ];
        let mut out: Vec<Scalar> = list.iter().map(|&v| Scalar::Float(v).cast(d)).collect();
        // Signalling NaNs aside: what computes with one may or may not quieten it first.
        out.extend(
            (0..4)
                .map(|_| Scalar::from_bits(r.bits(), d))
                .filter(|v| !v.to_f64().is_nan()),
        );
        return out;
    }
    if d == DType::Bool {
        return vec![Scalar::Bool(false), Scalar::Bool(true)];
    }
    let (lo, hi) = leaf
        .min_max()
        .map_or((0, 1), |(a, b)| (a.to_i128(), b.to_i128()));
    if hi - lo < 300 {
        return (lo..=hi).map(int).collect();
    }
    let mut out: Vec<i128> = vec![lo, lo + 1, hi, hi - 1, -1, 0, 1, 2, 3, 7, -2, -9, 100];
    out.extend((0..10).map(|_| lo + (r.bits() as i128).rem_euclid(hi - lo)));
    out.retain(|v| *v >= lo && *v <= hi);
    out.into_iter().map(int).collect()
}

/// Expressions compiled for evaluation at many points.
pub(crate) struct Program {
    pub(crate) leaves: Vec<UOp>,
    nodes: Vec<Node>,
    roots: Vec<usize>,
}

enum Node {
    Leaf(usize),
    Const(Scalar),
    Apply(Op, DType, DType, Vec<usize>),
}

impl Program {
    pub(crate) fn new(roots: &[UOp]) -> Program {
        let is_leaf = |u: &UOp| matches!(u.op(), Op::Param | Op::Range | Op::Special | Op::Index);
        let mut leaves = Vec::new();
        let mut nodes = Vec::new();
        let mut at: FxHashMap<UOp, usize> = FxHashMap::default();
        for u in toposort_many(roots, |u| !is_leaf(u)) {
            let node = if is_leaf(&u) {
                leaves.push(u.clone());
                Node::Leaf(leaves.len() - 1)
            } else if let Some(v) = u.const_value() {
                Node::Const(v)
            } else {
                Node::Apply(
                    u.op(),
                    u.src()[0].dtype(),
                    u.dtype(),
                    u.src().iter().map(|s| at[s]).collect(),
                )
            };
            at.insert(u, nodes.len());
            nodes.push(node);
        }
        Program {
            leaves,
            nodes,
            roots: roots.iter().map(|r| at[r]).collect(),
        }
    }

    /// The value of each root, and whether `index` left 64 bits on the way there. It may in sums and
    /// products, which come back right; what orders or divides gets no value then.
    pub(crate) fn run(&self, values: &[Scalar], far: i128) -> Vec<(Option<Scalar>, bool)> {
        let mut out: Vec<(Option<Scalar>, bool)> = Vec::with_capacity(self.nodes.len());
        for n in &self.nodes {
            out.push(match n {
                Node::Leaf(i) => (Some(values[*i]), false),
                Node::Const(v) => (Some(*v), false),
                Node::Apply(Op::Where, _, _, src) => match out[src[0]] {
                    (Some(Scalar::Bool(c)), far) => {
                        let (v, more) = out[src[if c { 1 } else { 2 }]];
                        (v, far || more)
                    }
                    _ => (None, false),
                },
                Node::Apply(op, from, to, src) => {
                    let (v, beyond) = apply(*op, *from, *to, src.iter().map(|&s| out[s]).collect());
                    let large = |v: Scalar| v.to_i128().unsigned_abs() > far.unsigned_abs();
                    (
                        v,
                        beyond || *op == Op::Cast && *to == DType::Index && v.is_some_and(large),
                    )
                }
            });
        }
        self.roots.iter().map(|&r| out[r]).collect()
    }
}

fn apply(
    op: Op,
    from: DType,
    to: DType,
    src: Vec<(Option<Scalar>, bool)>,
) -> (Option<Scalar>, bool) {
    let far = src.iter().any(|s| s.1);
    let ring = matches!(op, Op::Add | Op::Sub | Op::Mul | Op::Neg | Op::Cast);
    // One side may decide alone.
    let decides = |v| src.iter().any(|s| s.0 == Some(Scalar::Bool(v)));
    match op {
        Op::And if decides(false) => return (Some(Scalar::Bool(false)), far),
        Op::Or if decides(true) => return (Some(Scalar::Bool(true)), far),
        _ => {}
    }
    let Some(a) = src.iter().map(|s| s.0).collect::<Option<Vec<Scalar>>>() else {
        return (None, far);
    };
    let outside =
        |d: DType, v: &Scalar| d == DType::Index && *v != Scalar::Invalid && v.as_int().is_none();
    if !ring && a.iter().any(|v| outside(from, v)) {
        return (None, true);
    }
    let value = match op {
        // A NaN's payload is free.
        Op::Bitcast if a[0].to_f64().is_nan() => None,
        Op::Bitcast => Some(Scalar::from_bits(a[0].to_bits(from), to)),
        op => fold::fold(op, from, to, &a),
    };
    (value, far || value.is_some_and(|v| outside(to, &v)))
}
