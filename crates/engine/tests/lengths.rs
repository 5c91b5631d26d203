//! Lengths that vary: graphs over bound variables, against the oracle of the same graph with
//! numbers in their place, and the engine's counters, which are the process's: nothing else is
//! tested in this one. Flows in: graphs and values of their variables; flows out: comparisons.

use monoglot_engine::{counters, read, realize, upload};
use monoglot_oracle::eval::{Value, eval};
use monoglot_uop::{DType, Device, Dim, ReduceOp, Shape, UOp};

fn numbers(shape: &[i64]) -> (Vec<u8>, UOp) {
    let n: i64 = shape.iter().product();
    let bytes: Vec<u8> = (0..n)
        .flat_map(|i| (((i * 37) % 23) as f32 * 0.25 - 2.0).to_le_bytes())
        .collect();
    let buffer = upload(&bytes, &Shape::of(shape), DType::F32, Device::new("CPU")).unwrap();
    (bytes, buffer)
}

/// Realize the graph that `build` makes of a length, for each of these lengths.
fn check(name: &str, lengths: &[i64], most: u64, build: impl Fn(&UOp, &UOp, &Dim) -> UOp) {
    let (a, x) = numbers(&[16, 6]);
    let (b, w) = numbers(&[6, 16]);
    let variable = UOp::variable(77, 1, 16);
    let before = counters();
    for &n in lengths {
        let got = build(&x, &w, &Dim::of(&variable.bind_to(n)));
        let bytes = read(&got).unwrap_or_else(|e| panic!("{name} {n}: {e}"));
        let mut leaf = |u: &UOp| {
            let (bytes, shape) = if *u == x {
                (&a, [16, 6])
            } else {
                (&b, [6, 16])
            };
            Value::from_bytes(bytes, &shape, DType::F32)
        };
        let want = eval(&[build(&x, &w, &Dim::Int(n))], &mut leaf)
            .unwrap()
            .remove(0);
        let floats = |b: &[u8]| -> Vec<f32> {
            b.chunks_exact(4)
                .map(|c| f32::from_le_bytes(c.try_into().unwrap()))
                .collect()
        };
        let got = floats(&bytes);
        let want = floats(&want.to_bytes());
        assert_eq!(got.len(), want.len(), "{name} {n}");
        for (g, w) in got.iter().zip(&want) {
            assert!(
                (g - w).abs() <= 1e-4 * w.abs().max(1.0),
                "{name} {n}: {got:?} {want:?}"
            );
        }
    }
    let after = counters();
    let made = after.schedules - before.schedules;
    assert!(made <= most, "{name}: {made} programs");
}

fn rows(x: &UOp, n: &Dim) -> UOp {
    let zero = vec![Dim::Int(0); 2];
    let to = Shape::new([n.clone(), x.shape()[1].clone()]);
    x.shrink(&zero, &to).unwrap()
}

#[test]
fn one_program_serves_every_length() {
    a_realized_length_is_one_still();
    let all: Vec<i64> = (1..=16).collect();
    check("elementwise", &all, 1, |x, _, n| rows(x, n) * 2.0 + 1.0);
    check("sum of rows", &all, 1, |x, _, n| {
        rows(x, n).reduce(ReduceOp::Add, &[1]).unwrap()
    });
    check("sum of columns", &all, 1, |x, _, n| {
        rows(x, n).reduce(ReduceOp::Add, &[0]).unwrap()
    });
    check("max of all", &all, 1, |x, _, n| {
        rows(x, n).reduce(ReduceOp::Max, &[0, 1]).unwrap()
    });
    check("transposed", &all, 1, |x, _, n| {
        rows(x, n).permute(&[1, 0]).unwrap() * 3.0
    });
    check("softmax", &all, 1, |x, _, n| {
        let x = rows(x, n).permute(&[1, 0]).unwrap();
        let top = x
            .reduce(ReduceOp::Max, &[1])
            .unwrap()
            .expand(x.shape())
            .unwrap();
        let e = (&x - &top).unary(monoglot_uop::Op::Exp2);
        let sum = e
            .reduce(ReduceOp::Add, &[1])
            .unwrap()
            .expand(x.shape())
            .unwrap();
        e.binary(monoglot_uop::Op::Div, &sum)
    });
    let product = |x: &UOp, y: &UOp| {
        let m = x.shape()[0].clone();
        let k = x.shape()[1].clone();
        let n = y.shape()[1].clone();
        let all = Shape::new([m.clone(), n.clone(), k.clone()]);
        let one = Dim::Int(1);
        let a = x
            .reshape(&Shape::new([m.clone(), one.clone(), k.clone()]))
            .unwrap();
        let b = y.permute(&[1, 0]).unwrap();
        let b = b.reshape(&Shape::new([one, n.clone(), k])).unwrap();
        (a.expand(&all).unwrap() * b.expand(&all).unwrap())
            .reduce(ReduceOp::Add, &[2])
            .unwrap()
            .reshape(&Shape::new([m, n]))
            .unwrap()
    };
    check("product", &all, 1, |x, w, n| product(&rows(x, n), w));
    check("gram", &all, 1, |x, _, n| {
        let x = rows(x, n);
        product(&x, &x.permute(&[1, 0]).unwrap())
    });
    check("product over the length", &all, 1, |x, _, n| {
        let x = rows(x, n);
        product(&x.permute(&[1, 0]).unwrap(), &x)
    });
    check("heads", &all, 1, |x, _, n| {
        let shape = Shape::new([n.clone(), Dim::Int(2), Dim::Int(3)]);
        let x = rows(x, n)
            .reshape(&shape)
            .unwrap()
            .permute(&[1, 0, 2])
            .unwrap();
        x * 2.0
    });
    check("the last", &all, 1, |x, _, n| {
        let x = rows(x, n);
        let last = Dim::of(&match n {
            Dim::Int(n) => UOp::index_const(n - 1),
            Dim::Sym(n) => n - 1,
        });
        x.shrink(&[last, Dim::Int(0)], &Shape::of(&[1, 6])).unwrap() * 2.0
    });
}

fn a_realized_length_is_one_still() {
    let (_, x) = numbers(&[16, 6]);
    let n = UOp::variable(78, 1, 16).bind_to(5);
    let part = rows(&x, &Dim::of(&n)) * 2.0;
    let done = realize(std::slice::from_ref(&part)).unwrap().remove(0);
    assert_eq!(done.shape(), part.shape());
    let more = &done + &part;
    assert_eq!(read(&more).unwrap().len(), 5 * 6 * 4);
}
