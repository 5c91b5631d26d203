//! Rules on reductions and loops, evaluated by the kernel oracle: `out[i] = REDUCE(…)` before and
//! after. Flows in: a rule's two sides; flows out: the first place where they differ, if any.

use crate::report;
use crate::sample::{Random, constant};
use crate::scalar::equal;
use monoglot_oracle::eval_kernel::eval_kernel;
use monoglot_uop::rewrite::Rule;
use monoglot_uop::{AddrSpace, Arg, AxisType, DType, Device, Op, ReduceOp, Scalar, Shape, UOp};

/// Samples a wanted hit.
const TRIES: usize = 60;
const LENGTH: i64 = 7;
const ROWS: i64 = 5;

/// How often the rule fired; its results are right on random data.
pub(crate) fn check(rule: &Rule, enough: usize, seed: u64) -> usize {
    let mut r = Random::new(seed << 42);
    let mut hits = 0;
    for t in 0..TRIES * enough {
        if hits >= enough {
            break;
        }
        let i = UOp::range(ROWS, 0, AxisType::Loop);
        if rule.name == "end_closed" {
            let store =
                param(0, DType::F32, ROWS)
                    .at(&[i.clone()])
                    .store(&read(&mut r, &i, DType::F32));
            let closed = UOp::new(
                Op::End,
                vec![store.clone(), UOp::index_const(0), i.clone()],
                Arg::None,
            );
            let after = rule.apply(&closed).unwrap();
            if after != store.end(&[i]) {
                report(rule, &closed, &after, "closes the wrong loops");
            }
            hits += 1;
            continue;
        }
        if rule.name == "turn_waited" {
            let storage = UOp::scratch(0, &Shape::of(&[ROWS]), DType::F32, AddrSpace::Local);
            for (op, first) in [(Op::Barrier, None), (Op::After, Some(storage))] {
                let waits = |turns: &[UOp]| {
                    let src: Vec<UOp> = first.iter().chain(turns).cloned().collect();
                    UOp::new(op, src, Arg::None)
                };
                let before = waits(&[UOp::index_const(0), i.clone()]);
                let after = rule.apply(&before).unwrap();
                if after != waits(&[i.clone()]) {
                    report(rule, &before, &after, "waits for other turns");
                }
                hits += 1;
            }
            continue;
        }
        let Some(before) = reduction(&mut r, &i, rule.name == "reduce_closed") else {
            continue;
        };
        let Some(after) = rule.apply(&before) else {
            continue;
        };
        hits += 1;
        if after.dtype() != before.dtype() || after.shape() != before.shape() {
            report(rule, &before, &after, "changes the type");
        }
        // What became a constant was a loop of one step.
        let one = UOp::range(1i64, 9, AxisType::Reduce);
        let src: Vec<UOp> = before
            .src()
            .iter()
            .enumerate()
            .map(|(n, s)| {
                if n > 0 && s.as_int().is_some() {
                    &one
                } else {
                    s
                }
                .clone()
            })
            .collect();
        same(rule, &before.with_src(src), &after, &i, t as u64);
    }
    hits
}

fn param(slot: u64, d: DType, n: i64) -> UOp {
    UOp::param(slot, &Shape::of(&[n]), d, Some(Device::new("CPU")))
}

fn slot(d: DType) -> u64 {
    match d {
        DType::F32 => 1,
        DType::I32 => 2,
        DType::F16 => 3,
        DType::I8 => 4,
        _ => 5,
    }
}

/// An element of the data of a dtype, at an index inside.
fn read(_r: &mut Random, at: &UOp, d: DType) -> UOp {
    param(slot(d), d, ROWS * LENGTH).at(std::slice::from_ref(at))
}

/// REDUCE of a value over one or two ranges.
fn reduction(r: &mut Random, i: &UOp, with_constant: bool) -> Option<UOp> {
    let op = r.of(&[
        ReduceOp::Add,
        ReduceOp::Add,
        ReduceOp::Add,
        ReduceOp::Max,
        ReduceOp::Mul,
    ]);
    let d = r.of(&[
        DType::F32,
        DType::I32,
        DType::Index,
        DType::F16,
        DType::I8,
        DType::Bool,
    ]);
    let k = UOp::range(LENGTH, 1, AxisType::Reduce);
    let mut ranges = vec![k.clone()];
    if r.chance(30) {
        ranges.push(UOp::range(r.within(2, 4), 2, AxisType::Reduce));
    }
    if with_constant {
        ranges.push(UOp::index_const(0));
    }
    let gate = gate(r, i, &k);
    let x = value(r, i, &k, &gate, d);
    let identity = UOp::constant(op.identity(d), d);
    let other = if r.chance(85) {
        identity
    } else {
        constant(r, d)
    };
    let chosen = match r.below(6) {
        0 => x,
        1 => gate.select(&other, &x),
        2 if d != DType::Bool => gate.cast(d),
        _ => gate.select(&x, &other),
    };
    let src: Vec<UOp> = std::iter::once(chosen).chain(ranges).collect();
    UOp::try_new(Op::Reduce, src, Arg::Reduce(op, [].into())).ok()
}

/// Conditions on the range k, and others.
fn gate(r: &mut Random, i: &UOp, k: &UOp) -> UOp {
    let mut all: Option<UOp> = None;
    for _ in 0..1 + r.below(3) {
        let other = match r.below(4) {
            0 => UOp::index_const(r.within(-1, LENGTH + 1)),
            1 => i + r.within(-2, 3),
            2 => read(r, i, DType::I32).cast(DType::Index),
            _ => i * r.within(-1, 2) + r.within(-3, 9),
        };
        let scaled = match r.chance(20) {
            // A remainder of what is less than twice the divisor, or not.
            true => (k * r.of(&[1, 1, 2]) + i + r.within(-1, 5)) % r.within(7, 14),
            false => k * r.of(&[1, 1, 1, -1, 2, 3]) + r.within(-2, 2),
        };
        let one = match r.below(7) {
            0 => scaled.lt(&other),
            1 => other.lt(&scaled),
            2 => scaled.eq_(&other),
            3 => k.cast(DType::I32).eq_(&read(r, i, DType::I32)),
            4 => k.cast(DType::F32).eq_(&read(r, i, DType::F32)),
            5 => i.lt(&UOp::index_const(r.within(0, ROWS))),
            _ => scaled.lt(&other),
        };
        all = Some(match all {
            None => one,
            Some(a) => a & one,
        });
    }
    all.unwrap().simplify()
}

/// A value: one that varies with k, read under the gate or not, or one that does not.
fn value(r: &mut Random, i: &UOp, k: &UOp, gate: &UOp, d: DType) -> UOp {
    let at = match r.below(5) {
        0 => k.clone(),
        1 => i * LENGTH + k,
        2 => i.clone(),
        3 => (k + 1).valid(gate),
        _ => i.valid(gate),
    };
    match (d, r.below(4)) {
        (DType::Index, 0) => k * 2 + i,
        (DType::Index, 1) => at.clone(),
        (DType::Index, _) => read(r, &at, DType::I32).cast(d),
        (DType::Bool, _) => read(r, &at, DType::F32).lt(&UOp::float(0.0, DType::F32)),
        (_, 0) => constant(r, d),
        (d, 1) if d.is_int() => (k * 3 + i).cast(d),
        (d, 2) if d.is_int() => read(r, &at, d) * read(r, i, d),
        _ => read(r, &at, d),
    }
}

fn same(rule: &Rule, before: &UOp, after: &UOp, i: &UOp, seed: u64) {
    let d = if before.dtype() == DType::Index {
        DType::I64
    } else {
        before.dtype()
    };
    let run = |value: &UOp| {
        let store = param(0, d, ROWS)
            .at(std::slice::from_ref(i))
            .store(&value.cast(d));
        let sink = UOp::sink(&[store.end(std::slice::from_ref(i))]);
        let mut bufs: Vec<Vec<u8>> = vec![vec![0; ROWS as usize * d.bytes()]];
        for d in [DType::F32, DType::I32, DType::F16, DType::I8, DType::U8] {
            let bits = |n: i64| {
                let x = monoglot_uop::fold::threefry(n as u64, seed) % 12;
                // Infinities and NaN too: they must not leak from where they are not chosen.
                let v = match x {
                    10 if d.is_float() => Scalar::Float(f64::INFINITY),
                    11 if d.is_float() => Scalar::Float(f64::NAN),
                    x => Scalar::Int(x as i128 - 3).cast(d),
                };
                v.to_bits(d).to_le_bytes()[..d.bytes()].to_vec()
            };
            bufs.push((0..ROWS * LENGTH).flat_map(bits).collect());
        }
        match eval_kernel(&sink, &mut bufs, &[]) {
            Ok(_) => bufs.swap_remove(0),
            Err(e) => report(rule, before, after, &e.to_string()),
        }
    };
    let a = run(before);
    let b = run(after);
    for (n, (x, y)) in a.chunks(d.bytes()).zip(b.chunks(d.bytes())).enumerate() {
        let scalar = |b: &[u8]| {
            let mut bits = [0; 8];
            bits[..b.len()].copy_from_slice(b);
            Scalar::from_bits(u64::from_le_bytes(bits), d)
        };
        let x = scalar(x);
        let y = scalar(y);
        let near = match (x, y) {
            (Scalar::Float(x), Scalar::Float(y)) => (x - y).abs() <= 2e-3 * x.abs(),
            _ => false,
        };
        if !near && !equal(x, y) {
            report(
                rule,
                before,
                after,
                &format!("gives {y:?} instead of {x:?} at row {n}"),
            );
        }
    }
}
