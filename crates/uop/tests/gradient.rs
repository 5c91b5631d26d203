//! Derivatives against differences of the evaluator in f64, first and second, and the shapes of
//! graph that break recursive implementations. Flows in: graphs and points; flows out: comparisons.

use monoglot_oracle::eval::{Data, Value, eval};
use monoglot_uop::gradient::gradient;
use monoglot_uop::node::Srcs;
use monoglot_uop::op::Transcendental;
use monoglot_uop::{Arg, DType, Dim, Error, Op, ReduceOp, Scalar, Shape, UOp};
use std::sync::Arc;

const N: i64 = 6;

fn param(slot: u64) -> UOp {
    UOp::param(slot, &Shape::of(&[2, 3]), DType::F64, None)
}

fn value(x: &[f64]) -> Value {
    Value {
        dtype: DType::F64,
        shape: vec![2, 3],
        data: Data::Float(Arc::new(x.to_vec())),
    }
}

fn run(u: &UOp, x: &[f64], y: &[f64]) -> Vec<f64> {
    let mut leaf = |p: &UOp| match p.buffer_arg().map(|b| b.slot) {
        Some(0) => Ok(value(x)),
        Some(1) => Ok(value(y)),
        _ => Err(Error::argument("leaf", "unknown")),
    };
    let v = eval(std::slice::from_ref(u), &mut leaf)
        .expect("evaluates")
        .remove(0);
    match v.data {
        Data::Float(f) => f.to_vec(),
        d => panic!("{d:?}"),
    }
}

/// A scalar with a different weight for every element of `u`.
fn loss(u: &UOp) -> UOp {
    let n = u.shape().max_len();
    let flat = u.reshape(&Shape::of(&[n])).unwrap();
    let weight = (UOp::arange(n, DType::I64).cast(DType::F64) * 0.37 + 0.3).unary(Op::Sin);
    (flat * weight)
        .reduce(ReduceOp::Add, &[0])
        .unwrap()
        .reshape(&Shape::SCALAR)
        .unwrap()
}

fn check(name: &str, of: impl Fn(&UOp, &UOp) -> UOp) {
    let x = param(0);
    let y = param(1);
    let xs = [0.5, -1.25, 2.0, 0.75, -0.3, 1.1];
    let ys = [1.5, 0.6, -0.7, 2.25, 0.9, -1.6];
    let one = UOp::float(1.0, DType::F64);
    let first = loss(&of(&x, &y));
    let grads = gradient(&first, &one, &[x.clone(), y.clone()]).expect("differentiates");
    let mut pairs = Vec::new();
    for (k, g) in grads.iter().enumerate() {
        if let Some(g) = g {
            pairs.push((k, first.clone(), g.clone()));
            let second = loss(g);
            for (j, h) in gradient(&second, &one, &[x.clone(), y.clone()])
                .expect("twice")
                .iter()
                .enumerate()
            {
                if let Some(h) = h {
                    pairs.push((j, second.clone(), h.clone()));
                }
            }
        }
    }
    assert!(!pairs.is_empty(), "{name}: no gradient");
    for (k, f, g) in pairs {
        let got = run(&g, &xs, &ys);
        for i in 0..N as usize {
            let h = 1e-5;
            let at = |d: f64| {
                let mut a = xs;
                let mut b = ys;
                if k == 0 {
                    a[i] += d
                } else {
                    b[i] += d
                }
                run(&f, &a, &b)[0]
            };
            let want = (at(h) - at(-h)) / (2.0 * h);
            let error = (got[i] - want).abs();
            assert!(
                error <= 1e-5 * (1.0 + want.abs()),
                "{name}: d{k}[{i}] {} is not {want}",
                got[i]
            );
        }
    }
}

fn dims(d: &[i64]) -> Vec<Dim> {
    d.iter().map(|&n| Dim::Int(n)).collect()
}

#[test]
fn elementwise_rules() {
    check("add", |x, y| x + y);
    check("sub", |x, y| y - x);
    check("mul", |x, y| &(x * y) * x);
    check("mul const", |x, _| &(x * 3.0) * x);
    check("neg", |x, _| (x * x).unary(Op::Neg));
    check("div", |x, y| x.binary(Op::Div, y));
    check("recip", |_, y| y.unary(Op::Recip));
    for f in Transcendental::ALL {
        check(f.op().name(), |x, _| ((x * x) + 0.5).unary(f.op()));
    }
    check("sqrt", |x, _| ((x * x) + 1.0).unary(Op::Sqrt));
    check("max", |x, y| &x.max_(y) * x);
    check("where", |x, y| x.lt(y).select(&(x * x), &(x * y)));
    check("pow", |x, y| ((x * x) + 0.1).binary(Op::Pow, y));
    check("mulacc", |x, y| x.mul_acc(y, &(x * x)));
    check("mod", |x, y| (x * x).binary(Op::Mod, y));
    check("detach", |x, y| {
        &UOp::new(
            Op::Detach,
            [x.clone()].into_iter().collect::<Srcs>(),
            Arg::None,
        ) * y
    });
    check("assert", |x, y| {
        let holds = y.lt(&(x * x)) | x.eq_(x);
        (x * x).asserting(&holds, "anything").unwrap() * y
    });
    check("cast", |x, _| &x.cast(DType::F64) * x);
}

#[test]
fn movement_rules() {
    let shape = |d: &[i64]| Shape::of(d);
    check("permute", |x, _| &(x * x).permute(&[1, 0]).unwrap() * 2.0);
    check("flip", |x, _| &(x * x).flip(2).unwrap() * x);
    check("reshape", |x, _| (x * x).reshape(&shape(&[3, 2])).unwrap());
    check("expand", |x, _| {
        let e = x
            .reshape(&shape(&[2, 1, 3]))
            .unwrap()
            .expand(&shape(&[2, 4, 3]))
            .unwrap();
        &e * &e
    });
    check("pad", |x, _| {
        (x * x)
            .pad(&dims(&[1, 0]), &shape(&[4, 5]), Scalar::Float(2.0))
            .unwrap()
    });
    check("shrink", |x, _| {
        (x * x).shrink(&dims(&[0, 1]), &shape(&[2, 2])).unwrap()
    });
    check("stack", |x, y| {
        UOp::new(
            Op::Stack,
            [x * x, x * y, x * x].into_iter().collect::<Srcs>(),
            Arg::None,
        )
    });
    check("windows", |x, _| {
        (x * x)
            .reshape(&shape(&[6]))
            .unwrap()
            .windows(3, 1, 1)
            .unwrap()
    });
    check("index", |x, _| {
        let at = UOp::arange(5, DType::I32) - 1;
        let i = at.lt(&(&at * 0 + 2));
        let i = i.select(&at, &(&at * 0 + 1)).reshape(&shape(&[5])).unwrap();
        (x * x).at(&[UOp::index_const(1), i])
    });
    check("index two", |x, _| {
        (x * x).at(&[UOp::arange(2, DType::I64), UOp::arange(3, DType::I32) % 2])
    });
}

#[test]
fn reduce_rules() {
    check("sum", |x, y| (x * y).reduce(ReduceOp::Add, &[1]).unwrap());
    check("max", |x, y| (x * y).reduce(ReduceOp::Max, &[0]).unwrap());
    check("prod", |x, _| x.reduce(ReduceOp::Mul, &[0, 1]).unwrap());
    check("prod of zeros", |x, _| {
        (x - 0.5).reduce(ReduceOp::Mul, &[1]).unwrap()
    });
}

#[test]
fn stores_pass_on_what_they_replace() {
    check("after", |x, y| {
        let base = x * x;
        let view = base
            .shrink(&dims(&[0, 1]), &Shape::of(&[2, 2]))
            .unwrap()
            .flip(1)
            .unwrap();
        let new = (y * y).shrink(&dims(&[0, 0]), &Shape::of(&[2, 2])).unwrap();
        let a = base.after(&[view.store(&new)]);
        &a * &a
    });
    check("after twice", |x, y| {
        let row = |u: &UOp, i: i64| u.shrink(&dims(&[i, 0]), &Shape::of(&[1, 3])).unwrap();
        let base = x * y;
        let both = base.after(&[
            row(&base, 0).store(&row(y, 1)),
            row(&base, 0).store(&row(&(x * x), 0)),
        ]);
        &both * x
    });
}

#[test]
fn functions_are_differentiated() {
    check("function", |x, y| {
        let p = |i| UOp::param(i, &Shape::of(&[2, 3]), DType::F64, None);
        let body = UOp::new(
            Op::Tuple,
            [&p(0) * &p(1), p(0)].into_iter().collect::<Srcs>(),
            Arg::None,
        );
        let f = UOp::new(
            Op::Function,
            [body, x * x, y.clone()].into_iter().collect::<Srcs>(),
            Arg::None,
        );
        UOp::new(
            Op::GetTuple,
            [f].into_iter().collect::<Srcs>(),
            Arg::Element(0),
        )
    });
}

#[test]
fn ties_share_and_one_node_is_one_target() {
    let x = param(0);
    let one = UOp::float(1.0, DType::F64);
    let m = x.reduce(ReduceOp::Max, &[1]).unwrap();
    let f = m
        .reduce(ReduceOp::Add, &[0])
        .unwrap()
        .reshape(&Shape::SCALAR)
        .unwrap();
    let g = gradient(&f, &one, &[x.clone()]).unwrap().remove(0).unwrap();
    assert_eq!(
        run(&g, &[3.0, 3.0, 1.0, 2.0, 2.0, 2.0], &[0.0; 6])[..3],
        [0.5, 0.5, 0.0]
    );
    assert!(gradient(&f, &one, &[x.clone(), x.clone()]).is_err());
    assert!(gradient(&f, &one, &[param(1)]).unwrap()[0].is_none());
}

#[test]
fn deep_and_wide_graphs_in_a_small_stack() {
    let work = || {
        let x = UOp::param(0, &Shape::of(&[4]), DType::F32, None);
        let one = UOp::float(1.0, DType::F32);
        let mut y = x.clone();
        for i in 0..50_000 {
            y = y * (1.0 + i as f64 * 1e-9) + 0.5;
        }
        let total = |u: &UOp| {
            u.reduce(ReduceOp::Add, &[0])
                .unwrap()
                .reshape(&Shape::SCALAR)
                .unwrap()
        };
        assert!(gradient(&total(&y), &one, &[x.clone()]).unwrap()[0].is_some());
        let parts: Srcs = (0..6000).map(|i| &x * i as f64).collect();
        let s = UOp::new(Op::Stack, parts, Arg::None)
            .reshape(&Shape::of(&[24000]))
            .unwrap();
        assert!(gradient(&total(&s), &one, &[x]).unwrap()[0].is_some());
    };
    let small = std::thread::Builder::new()
        .stack_size(512 << 10)
        .spawn(work)
        .expect("starts");
    small.join().expect("no overflow");
}
