//! Rules on tensor graphs, evaluated on small arrays by the tensor oracle. Flows in: a rule's two
//! sides; flows out: the first place where they differ, if any.

use crate::report;
use crate::sample::{Bound, Random, constant, meaningful};
use crate::scalar::equal;
use monoglot_oracle::eval::{Value, eval};
use monoglot_uop::rewrite::Rule;
use monoglot_uop::rewrite::pattern::Pat;
use monoglot_uop::{Arg, DType, Device, Op, ReduceOp, Scalar, Shape, UOp};

/// Samples a wanted hit.
const TRIES: usize = 150;
const DTYPES: &[DType] = &[
    DType::F32,
    DType::I32,
    DType::Bool,
    DType::F16,
    DType::I8,
    DType::U8,
];

/// How often the rule fired; its results are right on random data.
pub(crate) fn check(rule: &Rule, enough: usize, seed: u64) -> usize {
    let mut r = Random::new(seed << 41);
    let mut hits = 0;
    for t in 0..TRIES * enough {
        if hits >= enough {
            break;
        }
        let pattern = &rule.patterns[t % rule.patterns.len()];
        let d = r.of(DTYPES);
        let shape = shape(&mut r);
        let Some(before) = instance(pattern, &shape, d, &mut r, &mut Bound::default()) else {
            continue;
        };
        let Some(new) = rule.apply(&before) else {
            continue;
        };
        let scalar = new.shape().is_empty() && !before.shape().is_empty();
        let after = if scalar {
            new.broadcast(before.shape())
        } else {
            new
        };
        if after == before {
            continue;
        }
        hits += 1;
        if after.dtype() != before.dtype() || after.shape() != before.shape() {
            report(rule, &before, &after, "changes the type");
        }
        same(rule, &before, &after, t as u64);
    }
    hits
}

fn same(rule: &Rule, before: &UOp, after: &UOp, seed: u64) {
    let mut leaf = |u: &UOp| {
        let bytes = |i: u64| {
            let v =
                Scalar::Int(monoglot_uop::fold::threefry(i, seed) as i128 % 9 - 4).cast(u.dtype());
            v.to_bits(u.dtype()).to_le_bytes()[..u.dtype().bytes()].to_vec()
        };
        let n = u.shape().max_len() as u64;
        let data: Vec<u8> = (0..n).flat_map(bytes).collect();
        Value::from_bytes(&data, &u.shape().ints().unwrap(), u.dtype())
    };
    // The oracle has no tuples.
    let element = match before.arg() {
        Arg::Element(i) => &before.src()[0].src()[*i],
        _ => before,
    };
    let roots = [element.clone(), after.clone()];
    let values =
        eval(&roots, &mut leaf).unwrap_or_else(|e| report(rule, before, after, &e.to_string()));
    for i in 0..values[0].len() {
        let a = values[0].get(i);
        let b = values[1].get(i);
        // The order of a reduction is free, and a sum of equal floats is rounded once as a product.
        let near = match (a, b) {
            (Scalar::Float(x), Scalar::Float(y)) => {
                (x - y).abs() <= 2e-3 * x.abs() && rule.name.starts_with("reduce_")
            }
            _ => false,
        };
        if !near && !equal(a, b) {
            report(
                rule,
                before,
                after,
                &format!("gives {b:?} instead of {a:?} at element {i}"),
            );
        }
    }
}

fn shape(r: &mut Random) -> Vec<i64> {
    (0..1 + r.below(3))
        .map(|_| {
            if r.chance(8) {
                0
            } else {
                r.of(&[1, 1, 2, 3, 4])
            }
        })
        .collect()
}

/// An array of this shape: data, or a constant, or a view of either.
fn array(r: &mut Random, shape: &[i64], d: DType) -> UOp {
    let to = Shape::of(shape);
    match r.below(8) {
        0 | 1 => constant(r, d).broadcast(&to),
        2 => {
            let ones: Vec<i64> = shape
                .iter()
                .map(|n| if r.chance(50) { 1 } else { *n })
                .collect();
            data(r, &ones, d).expand(&to).unwrap()
        }
        3 => data(r, &[shape.iter().product()], d).reshape(&to).unwrap(),
        _ => data(r, shape, d),
    }
}

fn data(r: &mut Random, shape: &[i64], d: DType) -> UOp {
    UOp::param(
        r.below(3) as u64,
        &Shape::of(shape),
        d,
        Some(Device::new("CPU")),
    )
}

fn instance(p: &Pat, shape: &[i64], d: DType, r: &mut Random, bound: &mut Bound) -> Option<UOp> {
    let (ops, src, bind) = match p {
        Pat::Var(i, ops) => {
            let u = match &bound[*i] {
                Some(known) => known.clone(),
                None if ops.contains(Op::Add) => array(r, shape, d),
                None => constant(r, d),
            };
            bound[*i] = Some(u.clone());
            return Some(u);
        }
        Pat::Literal(_) => return None,
        Pat::Node { ops, src, bind, .. } => (ops, src, bind),
    };
    let list: Vec<Op> = Op::ALL
        .iter()
        .copied()
        .filter(|&op| ops.contains(op))
        .collect();
    let op = r.of(&list);
    let sub =
        |i: usize, shape: &[i64], d: DType, r: &mut Random, bound: &mut Bound| match src.get(i) {
            Some(p) => instance(p, shape, d, r, bound),
            None => Some(array(r, shape, d)),
        };
    let u = if op.is_elementwise() {
        elementwise(op, shape, d, r)?
    } else {
        other(op, src, &sub, shape, d, r, bound)?
    };
    if let Some(i) = bind {
        bound[*i] = Some(u.clone());
    }
    Some(u)
}

fn elementwise(op: Op, shape: &[i64], d: DType, r: &mut Random) -> Option<UOp> {
    let from = r.of(DTYPES);
    // The machine's division is none of the tensor level.
    if matches!(op, Op::TruncDiv | Op::TruncMod)
        || !meaningful(op, if op.is_comparison() { DType::Bool } else { d })
    {
        return None;
    }
    let d = if op.is_comparison() { from } else { d };
    let mut src: Vec<UOp> = (0..op.arity().0)
        .map(|i| {
            let d = match op {
                Op::Where if i == 0 => DType::Bool,
                Op::Cast => from,
                _ => d,
            };
            if r.chance(20) {
                constant(r, d)
            } else {
                array(r, shape, d)
            }
        })
        .collect();
    // A scalar beside scalars is for `symbolic`.
    if src.iter().all(|s| s.shape().is_empty()) {
        src[0] = array(r, shape, src[0].dtype());
    }
    let arg = if op == Op::Cast {
        Arg::DType(d)
    } else {
        Arg::None
    };
    UOp::try_new(op, src, arg).ok()
}

type Sub<'a> = &'a dyn Fn(usize, &[i64], DType, &mut Random, &mut Bound) -> Option<UOp>;

fn other(
    op: Op,
    src: &[Pat],
    sub: Sub,
    shape: &[i64],
    d: DType,
    r: &mut Random,
    bound: &mut Bound,
) -> Option<UOp> {
    if op == Op::Stack {
        let first = sub(0, shape, d, r, bound)?;
        let alike = r.chance(50);
        let mut parts = vec![first.clone()];
        for _ in 0..r.within(0, 3) {
            parts.push(if alike {
                first.clone()
            } else {
                array(r, &first.shape().ints()?, d)
            });
        }
        return UOp::try_new(op, parts, Arg::None).ok();
    }
    if op == Op::Tuple {
        return UOp::try_new(op, vec![array(r, shape, d), array(r, shape, d)], Arg::None).ok();
    }
    let x = sub(0, shape, d, r, bound)?;
    let at = x.shape().ints()?;
    let len: i64 = at.iter().product();
    let to_dims = |dims: &[i64]| UOp::dims(&Shape::of(dims));
    let mut more: Vec<UOp> = Vec::new();
    let mut arg = Arg::None;
    match op {
        Op::Permute => {
            let mut order: Vec<u8> = (0..at.len() as u8).collect();
            if r.chance(70) {
                (1..order.len()).for_each(|i| order.swap(i, r.below(i + 1)));
            }
            arg = Arg::Axes(order.into());
        }
        Op::Flip => arg = Arg::Flags(r.below(1 << at.len()) as u64),
        Op::Reshape => more.push(to_dims(&match r.below(4) {
            0 => at.clone(),
            1 => vec![len],
            2 => at.iter().rev().copied().collect(),
            _ => [&[1], &at[..], &[1]].concat(),
        })),
        Op::Expand => more.push(to_dims(
            &at.iter()
                .map(|n| {
                    if *n == 1 && r.chance(60) {
                        r.within(0, 4)
                    } else {
                        *n
                    }
                })
                .collect::<Vec<_>>(),
        )),
        Op::Pad => {
            let before: Vec<i64> = at.iter().map(|_| r.of(&[0, 0, 1, 2])).collect();
            let after: Vec<i64> = at
                .iter()
                .zip(&before)
                .map(|(n, b)| n + b + r.of(&[0, 0, 1, 2]))
                .collect();
            more.extend([to_dims(&before), to_dims(&after)]);
            arg = Arg::Fill(if r.chance(50) {
                d.zero()
            } else {
                constant(r, d).const_value()?
            });
        }
        Op::Shrink => {
            let size: Vec<i64> = at
                .iter()
                .map(|n| if r.chance(40) { *n } else { r.within(0, *n) })
                .collect();
            let from: Vec<i64> = at
                .iter()
                .zip(&size)
                .map(|(n, m)| r.within(0, n - m))
                .collect();
            more.extend([to_dims(&from), to_dims(&size)]);
        }
        Op::Index => {
            for n in at.iter().take(r.below(at.len() + 1)) {
                more.push(UOp::index_const(if r.chance(90) {
                    r.within(0, (n - 1).max(0))
                } else {
                    r.within(-1, *n)
                }));
            }
            // The pattern may ask for a constant first index.
            if src.len() > 1 && more.is_empty() {
                return None;
            }
        }
        Op::Reduce => {
            let axes: Vec<u8> = (0..at.len() as u8).filter(|_| r.chance(60)).collect();
            let op = r.of(&[ReduceOp::Add, ReduceOp::Mul, ReduceOp::Max]);
            if axes.is_empty() || op == ReduceOp::Max && at.contains(&0) {
                return None;
            }
            arg = Arg::Reduce(op, axes.into());
        }
        Op::GetTuple => arg = Arg::Element(r.below(x.src().len().max(1))),
        Op::Contiguous | Op::Detach | Op::ContiguousBackward => {}
        _ => return None,
    }
    for (i, s) in more.iter().enumerate() {
        if let Some(Pat::Var(v, _)) = src.get(i + 1) {
            bound[*v] = Some(s.clone());
        }
    }
    UOp::try_new(op, std::iter::once(x).chain(more).collect::<Vec<_>>(), arg).ok()
}
