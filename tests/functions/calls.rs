//! What a call gives and does.

use crate::{close, read, values};
use monoglot::prelude::*;
use monoglot::{Op, ReduceOp, function};

#[test]
fn calls_give_what_the_body_gives() -> Result<()> {
    let body = |x: &Tensor, w: &Tensor| x.matmul(w).relu() + 0.5;
    let f = function(move |x: &Tensor, w: &Tensor| body(x, w));
    let w: Vec<Tensor> = (0..3).map(|k| values(&[6, 6], k)).collect();
    let mut by_call = values(&[4, 6], 9);
    let mut plain = by_call.clone();
    for w in &w {
        by_call = f.call((&by_call, w))?;
        plain = body(&plain, w);
    }
    close(&by_call, &plain);
    assert_eq!(f.bodies(), 1);
    Ok(())
}

#[test]
fn other_shapes_and_fixed_values_have_bodies_of_their_own() -> Result<()> {
    let f = function(|x: &Tensor, n: usize| x.sum(0, false) * n as f32);
    for (rows, n) in [(3, 2), (4, 2), (3, 5), (3, 2)] {
        let x = values(&[rows, 4], 1);
        let twice = &f.call((&x, n))? + &f.call((&(&x * 2.0), n))?;
        close(&twice, &(x.sum(0, false) * (3 * n) as f32));
    }
    assert_eq!(f.bodies(), 3);
    Ok(())
}

#[test]
fn trees_go_in_and_come_out() -> Result<()> {
    #[derive(monoglot::Tensors)]
    struct Pair {
        a: Tensor,
        b: Option<Tensor>,
    }
    let f = function(|p: &Pair, scale: &Tensor| {
        let sum = (&p.a * scale).sum(.., false);
        (
            Pair {
                a: &p.a * &sum,
                b: p.b.as_ref().map(|b| b + &sum),
            },
            vec![sum.clone(), sum],
        )
    });
    let pair = |k: u64, b: bool| Pair {
        a: values(&[5], k),
        b: b.then(|| values(&[2], k + 1)),
    };
    let one = f.call((&pair(1, true), 2.0f32))?;
    let other = f.call((&pair(3, true), 0.5f32))?;
    let none = f.call((&pair(1, false), 2.0f32))?;
    assert!(none.0.b.is_none());
    let sum = (values(&[5], 3) * 0.5).sum(.., false);
    close(&other.0.a, &(values(&[5], 3) * &sum));
    close(
        &other.0.b.expect("it was passed"),
        &(values(&[2], 4) + &sum),
    );
    close(&other.1[0], &other.1[1]);
    let sum = (values(&[5], 1) * 2.0).sum(.., false);
    close(&one.1[1], &sum);
    Ok(())
}

#[test]
fn arguments_may_be_one_tensor_unused_given_back_views_or_constants() -> Result<()> {
    let f = function(|x: &Tensor, y: &Tensor, _z: &Tensor| {
        (x.matmul(y).sum(.., true), y.clone(), x.transpose(0, 1))
    });
    let x = values(&[4, 4], 1);
    let big = values(&[8, 6], 2);
    let part = big.narrow(0, 2, 4).narrow(1, 1, 4);
    let ones = Tensor::ones([4, 4]);
    let mut all = Vec::new();
    let mut plain = Vec::new();
    for (a, b) in [(&x, &x), (&x, &part), (&part, &ones), (&ones, &x)] {
        let (sum, y, turned) = f.call((a, b, &big))?;
        all.extend([sum, y, turned]);
        plain.extend([a.matmul(b).sum(.., true), b.clone(), a.transpose(0, 1)]);
    }
    let both: Vec<&Tensor> = all.iter().collect();
    Tensor::realize_all(&both)?;
    for (a, b) in all.iter().zip(&plain) {
        close(a, b);
    }
    Ok(())
}

#[test]
fn what_is_reached_is_looked_up_in_every_call() -> Result<()> {
    let w = values(&[3, 3], 1).parameter();
    let f = function(|x: &Tensor| x.matmul(&w));
    let x = values(&[2, 3], 2);
    close(&f.call(&x)?, &x.matmul(&w));
    w.assign(&w * 2.0);
    let both = f.call(&x)? + f.call(&(&x * 3.0))?;
    close(&both, &(x.matmul(&w) * 4.0));
    assert_eq!(f.bodies(), 1);
    Ok(())
}

#[test]
fn what_is_assigned_has_its_value_after_the_call() -> Result<()> {
    let count = Tensor::zeros([3]).parameter();
    let mean = Tensor::zeros([3]).parameter();
    let f = function(|x: &Tensor| {
        count.assign(&count + 1.0);
        mean.narrow(0, 1, 2).assign(x.sum(0, false).narrow(0, 0, 2));
        x.matmul(&x.transpose(0, 1)).sum(.., false) * &count.sum(.., false)
    });
    let x = values(&[4, 3], 1);
    let mut all = Tensor::scalar(0.0f32);
    for k in 0..3 {
        all = all + f.call(&(&x * (1.0 + k as f32)))?;
    }
    let square = x.matmul(&x.transpose(0, 1)).sum(.., false);
    close(&all, &(square * (3.0 + 4.0 * 6.0 + 9.0 * 9.0)));
    assert_eq!(read(&count), [3.0; 3]);
    let sum = read(&(x.sum(0, false) * 3.0));
    close(&mean, &Tensor::new(&[0.0, sum[0], sum[1]], [3]));
    Ok(())
}

#[test]
fn a_view_is_assigned_where_nothing_else_is_of_its_storage() -> Result<()> {
    let base = Tensor::new(&[1f32, 2.0, 3.0, 4.0], [4]).parameter();
    let alone = function(|v: &Tensor| {
        v.assign(9.0);
        v + 1.0
    });
    assert_eq!(read(&alone.call(base.index(..2))?), [10.0; 2]);
    assert_eq!(read(&base), [9.0, 9.0, 3.0, 4.0]);
    let with = function(|v: &Tensor, b: &Tensor| {
        v.assign(7.0);
        b * 1.0
    });
    let reached = function(|v: &Tensor| {
        v.assign(7.0);
        &base * 1.0
    });
    let front = base.index(..2);
    let back = base.index(1..);
    let refused = [
        with.call((&front, &base)),
        with.call((&front, &back)),
        reached.call(&front),
    ];
    for e in refused.into_iter().map(|r| r.map(|y| read(&y))) {
        let e = e.expect_err("a view").to_string();
        assert!(e.contains("is a view, and the function assigns it"), "{e}");
    }
    assert_eq!(read(&base), [9.0, 9.0, 3.0, 4.0]);
    // Others are none of its concern.
    let other = values(&[3], 1);
    close(&with.call((&front, &other))?, &other);
    assert_eq!(read(&base), [7.0, 7.0, 3.0, 4.0]);
    Ok(())
}

#[test]
fn random_numbers_are_those_of_the_body() -> Result<()> {
    let body = |x: &Tensor| x.matmul(&Tensor::randn([4, 4])) + Tensor::rand([4]);
    let f = function(body);
    let x = values(&[2, 4], 1);
    Tensor::manual_seed(7);
    let by_call = [f.call(&x)?, f.call(&x)?, f.call(&(&x * 2.0))?];
    let all: Vec<&Tensor> = by_call.iter().collect();
    Tensor::realize_all(&all)?;
    Tensor::manual_seed(7);
    for (k, t) in by_call.iter().enumerate() {
        let x = if k == 2 { &x * 2.0 } else { x.clone() };
        close(t, &body(&x));
    }
    Ok(())
}

#[test]
fn functions_nest_and_are_captured() -> Result<()> {
    let inner = function(|x: &Tensor, w: &Tensor| x.matmul(w).tanh());
    let w = [values(&[4, 4], 1), values(&[4, 4], 2)];
    let outer = function(|x: &Tensor| -> Result<Tensor> {
        let y = inner.call((x, &w[0]))?;
        inner.call((&y, &w[1]))
    });
    let plain = |x: &Tensor| x.matmul(&w[0]).tanh().matmul(&w[1]).tanh();
    let x = values(&[3, 4], 3);
    close(&outer.call(&outer.call(&x)?)?, &plain(&plain(&x)));
    let step = jit(|x: Tensor| -> Result<Tensor> { outer.call(&outer.call(&x)?) })?;
    for k in 0..3 {
        let x = &x * k as f32;
        close(&step.call(&x)?, &plain(&plain(&x)));
    }
    Ok(())
}

/// What is passed has no part in what is computed, which is found when that is simplified.
#[test]
fn the_last_arguments_may_fold_away() -> Result<()> {
    let f = function(|x: &Tensor, chosen: &Tensor| -> Result<Tensor> {
        let u = x.uop()?;
        let all = chosen.uop()?.select(&u, &u).reduce(ReduceOp::Add, &[1])?;
        let all = all.expand(u.shape())?;
        Ok(Tensor::from_uop(all.binary(Op::Xor, &all)))
    });
    let x = Tensor::new(&[1i64, 2, 3, 4, 5, 6], [2, 3]);
    let chosen = Tensor::new(&[true, false, true, false, true, true], [2, 3]);
    let a = f.call((&x, &chosen))?;
    let b = f.call((&x, &chosen.flip(1)))?;
    Tensor::realize_all(&[&a, &b])?;
    assert_eq!(a.to_vec::<i64>()?, [0; 6]);
    assert_eq!(b.to_vec::<i64>()?, [0; 6]);
    Ok(())
}

#[test]
fn lengths_vary() -> Result<()> {
    let rows = Variable::new(1..=16)?;
    let f = function(|x: &Tensor, w: &Tensor| x.matmul(w).softmax(0));
    let w = values(&[4, 4], 1);
    let whole = values(&[16, 4], 2);
    for n in [1, 7, 16] {
        let x = whole.narrow(0, 0, rows.bind(n)?);
        let y = f.call((&f.call((&x, &w))?, &w))?;
        let x = whole.narrow(0, 0, n);
        let plain = x.matmul(&w).softmax(0).matmul(&w).softmax(0);
        close(&y, &plain);
    }
    assert_eq!(f.bodies(), 1);
    Ok(())
}

#[test]
fn mistakes_are_errors() {
    let f = function(|x: &Tensor| Tensor::new(&x.to_vec::<f32>().expect("no value"), [2]));
    let read = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| f.call(values(&[2], 1))));
    assert!(read.is_err(), "what depends on the call was read");
    let f = function(|x: &Tensor, y: &Tensor| x.matmul(y));
    let e = f.call((&values(&[2, 3], 1), &values(&[2, 3], 1)));
    let e = e.map(|_| ()).expect_err("shapes do not fit");
    assert!(e.to_string().contains("calls.rs"), "{e}");
    let ok = f.call((&values(&[2, 3], 1), &values(&[3, 2], 1)));
    assert_eq!(ok.expect("they fit").shape().expect("a shape"), [2, 2]);
}

#[test]
fn threads_call_at_once() {
    let w = values(&[8, 8], 1);
    let f = function(|x: &Tensor| x.matmul(&w).tanh());
    std::thread::scope(|s| {
        for k in 0..4 {
            let f = &f;
            let w = &w;
            s.spawn(move || {
                let x = values(&[2, 8], k);
                let y = f.call(f.call(&x).expect("a call")).expect("a call");
                close(&y, &x.matmul(w).tanh().matmul(w).tanh());
            });
        }
    });
}

/// What is repeated of a part of a tensor is a view of that tensor, and no place of its own.
#[test]
fn a_passed_view_is_expanded() -> Result<()> {
    let whole = Tensor::new(&[0f32, 1.0, 2.0, 3.0], [4]);
    whole.realize()?;
    let f = function(|x: &Tensor| x.expand([2, 3]));
    let captured = jit(|x: &Tensor| x.expand([2, 3]))?;
    let want = [1.0, 2.0, 3.0, 1.0, 2.0, 3.0];
    for part in [whole.narrow(0, 1, 3), whole.flip(0).narrow(0, 0, 3).flip(0)] {
        let y: Tensor = f.call((&part,))?;
        assert_eq!(read(&y), want);
        assert_eq!(read(&captured.call(&part)?), want);
        let refused = y
            .assign(1.0)
            .check()
            .expect_err("it has no place of its own");
        assert!(refused.to_string().contains("EXPAND"), "{refused}");
    }
    Ok(())
}
