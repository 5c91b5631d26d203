//! Functions whose calls keep nothing but their arguments for gradients.

use crate::{close, read, values};
use monoglot::prelude::*;
use monoglot::scan;
use std::sync::Mutex;

/// Held by tests that draw from the stream of random numbers, which the process has one of.
static STREAM: Mutex<()> = Mutex::new(());

type Block = Function<'static, (Tensor, Vec<Tensor>), Tensor>;

/// A block of GPT-2's shape: attention with a mask, and two linear maps, each normalised first and added.
fn block(x: &Tensor, w: &[Tensor], drop: f64) -> Tensor {
    let [qkv, proj, up, down] = [&w[0], &w[1], &w[2], &w[3]];
    let shape = x.shape().expect("it has a shape");
    let [t, width] = [shape[0], shape[1]];
    let heads = 2;
    let split = |z: &Tensor| {
        let z = z.reshape([t, heads, width / heads]);
        z.permute([1, 0, 2])
    };
    let parts = x
        .layer_norm([width], None, None, 1e-5)
        .matmul(qkv)
        .chunk(3, -1);
    let a = split(&parts[0]).attention(&split(&parts[1]), &split(&parts[2]), None, true);
    let a = a.permute([1, 0, 2]).reshape([t, width]);
    let x = x + a.matmul(proj).dropout(drop);
    let f = x.layer_norm([width], None, None, 1e-5).matmul(up);
    &x + f.gelu_tanh().matmul(down)
}

fn weights(width: i64, layers: u64) -> Vec<Vec<Tensor>> {
    let shapes = [[1, 3], [1, 1], [1, 4], [4, 1]];
    let weight = |k: u64, i: u64| {
        let [rows, columns] = shapes[i as usize];
        let numbers = values(&[rows * width, columns * width], 10 * k + i);
        (numbers * 0.5).parameter()
    };
    let layer = |k| (0..4).map(|i| weight(k, i)).collect();
    (0..layers).map(layer).collect()
}

fn flat(w: &[Vec<Tensor>]) -> Vec<&Tensor> {
    w.iter().flatten().collect()
}

fn kinds(drop: f64) -> [Block; 2] {
    let of = || function(move |x: &Tensor, w: &Vec<Tensor>| block(x, w, drop));
    [of(), of().checkpoint()]
}

/// The loss of a stack, and its gradients.
fn trained(block: &Block, x: &Tensor, w: &[Vec<Tensor>]) -> Result<(Tensor, Vec<Tensor>)> {
    let mut y = x.clone();
    for w in w {
        y = block.call((&y, w))?;
    }
    let loss = y.square().mean(.., false);
    let gradients = loss.gradient(&flat(w))?;
    Ok((loss, gradients))
}

/// Equal within a millionth of the greatest.
#[track_caller]
fn near(a: &Tensor, b: &Tensor) {
    within(1e-6, a, b);
}

/// Apart by no more than such a share of the greatest.
fn within(share: f32, a: &Tensor, b: &Tensor) {
    let a = read(a);
    let b = read(b);
    let most = a.iter().fold(0.0f32, |m, x| m.max(x.abs()));
    for (x, y) in a.iter().zip(&b) {
        assert!((x - y).abs() <= share * most.max(1.0), "{x} and {y}");
    }
}

#[test]
fn values_and_gradients_are_the_same() -> Result<()> {
    let w = weights(16, 3);
    let x = values(&[8, 16], 99);
    let [kept, again] = kinds(0.0);
    let (loss, gradients) = trained(&kept, &x, &w)?;
    let (other, others) = trained(&again, &x, &w)?;
    near(&loss, &other);
    for (a, b) in gradients.iter().zip(&others) {
        near(a, b);
    }
    // Called once, it is no program of its own, but what it computes again is.
    let (loss, gradients) = trained(&kept, &x, &w[..1])?;
    let (other, others) = trained(&again, &x, &w[..1])?;
    near(&loss, &other);
    for (a, b) in gradients.iter().zip(&others) {
        near(a, b);
    }
    Ok(())
}

#[test]
fn random_numbers_are_drawn_once() -> Result<()> {
    let _stream = STREAM.lock().unwrap_or_else(|e| e.into_inner());
    let w = weights(16, 3);
    let x = values(&[8, 16], 99);
    let run = |block: &Block| -> Result<(Vec<Tensor>, Vec<f32>)> {
        Tensor::manual_seed(5);
        let (loss, mut all) = trained(block, &x, &w)?;
        all.push(loss);
        Tensor::realize_all(&all.iter().collect::<Vec<_>>())?;
        Ok((all, read(&Tensor::rand([3]))))
    };
    let [kept, again] = kinds(0.4);
    let (one, after) = run(&kept)?;
    let (other, then) = run(&again)?;
    for (a, b) in one.iter().zip(&other) {
        near(a, b);
    }
    assert_eq!(after, then);
    // They are random.
    let [none, _] = kinds(0.0);
    let (without, _) = run(&none)?;
    assert_ne!(read(&one[12]), read(&without[12]));
    Ok(())
}

#[test]
fn they_nest() -> Result<()> {
    let w = weights(16, 2);
    let x = values(&[8, 16], 3).parameter();
    let [kept, again] = kinds(0.0);
    let mut targets = flat(&w);
    targets.push(&x);
    let mut first: Option<Vec<Tensor>> = None;
    for inner in [&kept, &again] {
        let both = || {
            function(|x: &Tensor| -> Result<Tensor> {
                Ok(inner.call((&inner.call((x, &w[0]))?, &w[1]))?.tanh())
            })
        };
        for outer in [both(), both().checkpoint()] {
            let y = outer.call(&outer.call(&x)?)?;
            let got = y.square().sum(.., false).gradient(&targets)?;
            let want = first.get_or_insert_with(|| got.clone());
            for (a, b) in got.iter().zip(want) {
                near(a, b);
            }
        }
    }
    let plain = |x: &Tensor| block(&block(x, &w[0], 0.0), &w[1], 0.0).tanh();
    let want = plain(&plain(&x)).square().sum(.., false);
    let want = want.gradient(&targets)?;
    for (a, b) in first.iter().flatten().zip(&want) {
        within(1e-5, a, b);
    }
    Ok(())
}

#[test]
fn gradients_of_gradients() -> Result<()> {
    let body = |x: &Tensor, w: &Tensor| x.matmul(w).tanh().softmax(1);
    let f = function(body).checkpoint();
    let x = values(&[3, 3], 1).parameter();
    let w = values(&[3, 3], 2).parameter();
    let second = |y: Tensor| -> Result<Vec<Tensor>> {
        let g = y.square().sum(.., false).gradient(&[&w])?.remove(0);
        g.square().sum(.., false).gradient(&[&x, &w])
    };
    let got = second(f.call((&f.call((&x, &w))?, &w))?)?;
    let want = second(body(&body(&x, &w), &w))?;
    for (a, b) in got.iter().zip(&want) {
        near(a, b);
    }
    Ok(())
}

#[test]
fn within_a_scan() -> Result<()> {
    let w = values(&[6, 6], 1).parameter();
    let xs = values(&[5, 2, 6], 2).parameter();
    let cell = |h: &Tensor, x: &Tensor| (h.matmul(&w) + x).tanh().softmax(-1) + x;
    let f = function(cell).checkpoint();
    let loss = |by_call: bool| -> Result<Vec<Tensor>> {
        let step = |h: Tensor, x: Tensor| -> Result<(Tensor, Tensor)> {
            let h = if by_call {
                f.call((&h, &x))?
            } else {
                cell(&h, &x)
            };
            Ok((h.clone(), h))
        };
        let (last, all) = scan(step, Tensor::zeros([2, 6]), &xs)?;
        let loss = last.square().sum(.., false) + all.sin().sum(.., false);
        loss.gradient(&[&w, &xs])
    };
    for (a, b) in loss(true)?.iter().zip(&loss(false)?) {
        near(a, b);
    }
    Ok(())
}

#[test]
fn what_it_looks_up_is_checked_once_and_told() -> Result<()> {
    let table = values(&[5, 4], 1).parameter();
    let w = values(&[4, 5], 2).parameter();
    let f = function(|ids: &Tensor, w: &Tensor| {
        let scores = table.embedding(ids).matmul(w);
        scores.cross_entropy(ids, Reduction::Mean, 0.0)
    })
    .checkpoint();
    let gradients = |ids: &[i32]| -> Result<Vec<Tensor>> {
        let loss = f.call((&Tensor::new(ids, [ids.len()]), &w))?;
        loss.gradient(&[&table, &w])
    };
    let ids = Tensor::new(&[0i32, 4, 2], [3]);
    let plain = table.embedding(&ids).matmul(&w);
    let plain = plain.cross_entropy(&ids, Reduction::Mean, 0.0);
    let want = plain.gradient(&[&table, &w])?;
    for (a, b) in gradients(&[0, 4, 2])?.iter().zip(&want) {
        near(a, b);
    }
    let wrong = gradients(&[0, 9, 2])?;
    let e = wrong[1].realize().expect_err("there is no row 9");
    assert!(matches!(e.kind(), ErrorKind::OutOfRange { .. }), "{e}");
    assert!(e.to_string().contains('9'), "{e}");
    Ok(())
}

#[test]
fn a_step_is_captured_and_states_are_written_once() -> Result<()> {
    let run = |checkpoint: bool| -> Result<Vec<f32>> {
        let w = values(&[4, 4], 1).parameter();
        let mean = Tensor::zeros([4]).parameter();
        let f = function(|x: &Tensor| {
            let now = x.mean(0, false);
            mean.assign(&mean * 0.9 + &now * 0.1);
            ((x - &mean).matmul(&w)).gelu()
        });
        let f = if checkpoint { f.checkpoint() } else { f };
        let step = jit(|x: &Tensor| -> Result<Tensor> {
            let loss = f.call(&f.call(x)?)?.square().mean(.., false);
            let g = loss.gradient(&[&w])?.remove(0);
            w.assign(&w - g * 0.1);
            Ok(loss)
        })?;
        let mut out = Vec::new();
        for k in 0..3 {
            out.push(step.call(values(&[3, 4], k))?.item::<f32>()?);
        }
        out.extend(read(&mean));
        out.extend(read(&w));
        Ok(out)
    };
    let kept = run(false)?;
    let again = run(true)?;
    let list = |v: &[f32]| Tensor::new(v, [v.len()]);
    close(&list(&kept), &list(&again));
    Ok(())
}

#[test]
fn lengths_vary() -> Result<()> {
    let rows = Variable::new(1..=16)?;
    let body = |x: &Tensor, w: &Tensor| x.matmul(w).softmax(0).matmul(w);
    let f = function(body).checkpoint();
    let w = values(&[4, 4], 1).parameter();
    let whole = values(&[16, 4], 2);
    let gradient = |y: Tensor| y.square().sum(.., false).gradient(&[&w]);
    for n in [1, 7, 16] {
        let x = whole.narrow(0, 0, rows.bind(n)?);
        let got = gradient(f.call((&f.call((&x, &w))?, &w))?)?;
        let x = whole.narrow(0, 0, n);
        let want = gradient(body(&body(&x, &w), &w))?;
        close(&got[0], &want[0]);
    }
    Ok(())
}

/// A function that is marked within another, with an operation of one's own, whose derivative is asked again.
#[test]
fn operations_of_ones_own_are_done_again() -> Result<()> {
    use monoglot::{CustomOp, Output};
    #[function(checkpoint)]
    fn cubed(x: &Tensor, w: &Tensor) -> Tensor {
        let op = CustomOp::kernel("square", |k| {
            let i = k.range(k.input(0).shape()[0].clone());
            let x = k.input(0).at(&[i.clone()]);
            Ok(k.output(0).at(&[i.clone()]).store(&(&x * &x)).end(&[i]))
        })
        .with_gradient(|b| Ok(vec![Some(&b.gradients[0] * &b.inputs[0] * 2.0)]));
        let [y] = op.call([Output::new([6], DType::F32)], &[x]);
        y * x * w.sum(.., false)
    }
    let x = values(&[6], 1).parameter();
    let w = values(&[6], 2).parameter();
    let plain = |x: &Tensor| x * x * x * w.sum(.., false);
    let got = cubed(&cubed(&x, &w), &w)
        .sum(.., false)
        .gradient(&[&x, &w])?;
    let want = plain(&plain(&x)).sum(.., false).gradient(&[&x, &w])?;
    for (a, b) in got.iter().zip(&want) {
        near(a, b);
    }
    Ok(())
}

/// A length that a derivative does not read is an argument of it all the same, and no data.
#[test]
fn lengths_that_a_derivative_does_not_read_are_lengths() -> Result<()> {
    let body = |x: &Tensor, ts: &Tensor| -> (Tensor, Tensor) {
        let passed = scan(|h: Tensor, s: Tensor| (h, s), x, ts);
        passed.expect("it fits")
    };
    let f = function(body).checkpoint();
    let ts = Tensor::ones([2, 1]).parameter();
    for n in [3, 7] {
        let x = values(&[n], 1).dynamic(0, 1..=9).parameter();
        let (h, y) = f.call((&x, &ts))?;
        let loss = h.square().sum(.., false) + y.square().sum(.., false);
        let of_x = loss.gradient(&[&x])?.remove(0);
        let of_ts = loss.gradient(&[&ts])?.remove(0);
        Tensor::realize_all(&[&of_x, &of_ts])?;
        let want: Vec<f32> = x.to_vec::<f32>()?.iter().map(|v| v * 2.0).collect();
        assert_eq!(of_x.to_vec::<f32>()?, want);
        assert_eq!(of_ts.to_vec::<f32>()?, [2.0, 2.0]);
    }
    Ok(())
}
