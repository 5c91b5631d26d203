//! Functions that are marked `#[function]`.

use crate::{close, read, values};
use monoglot::compiler::engine::compile;
use monoglot::prelude::*;

#[derive(Tensors)]
struct Weights {
    up: Tensor,
    down: Tensor,
}

#[derive(Clone, PartialEq, Eq)]
enum Activation {
    Relu,
    Tanh,
}

fn weights(salt: u64) -> Weights {
    Weights {
        up: values(&[6, 8], salt).parameter(),
        down: values(&[8, 6], salt + 50).parameter(),
    }
}

fn plain(x: &Tensor, w: &Weights, by: usize) -> Tensor {
    x + x.softmax(1).matmul(&w.up).gelu().matmul(&w.down) * by as f32
}

/// With a line of documentation.
#[function]
fn block(x: &Tensor, w: &Weights, by: usize) -> Tensor {
    plain(x, w, by)
}

#[test]
fn calls_and_gradients_are_those_of_the_function() -> Result<()> {
    let layers: Vec<Weights> = (0..3).map(weights).collect();
    let x = values(&[5, 6], 9).parameter();
    let mut by_call = x.clone();
    let mut inlined = x.clone();
    for w in &layers {
        by_call = block(&by_call, w, 2);
        inlined = plain(&inlined, w, 2);
    }
    let targets = [&x, &layers[0].up, &layers[2].down];
    let one = by_call.square().sum(.., false).gradient(&targets)?;
    let other = inlined.square().sum(.., false).gradient(&targets)?;
    close(&by_call, &inlined);
    for (a, b) in one.iter().zip(&other) {
        close(a, b);
    }
    Ok(())
}

#[test]
fn a_body_is_compiled_once() -> Result<()> {
    let kernels = |layers: u64| -> Result<_> {
        let mut x = values(&[16, 6], 1);
        for k in 0..layers {
            x = block(&x, &weights(k), 3);
        }
        Ok(compile(&[x.uop()?])?.unique_kernels)
    };
    assert_eq!(kernels(3)?, kernels(12)?);
    Ok(())
}

#[function]
#[allow(clippy::too_many_arguments)]
fn all_forms(
    (a, b): (Tensor, Tensor),
    list: &[Tensor],
    mut sum: Tensor,
    mask: Option<&Tensor>,
    name: &str,
    #[fixed] how: &Activation,
    #[fixed] range: std::ops::Range<i64>,
    four: [Tensor; 2],
) -> Result<(Tensor, Vec<Tensor>)> {
    if name == "refuse" {
        return Err(Error::argument("all_forms", "refused"));
    }
    for t in list {
        sum = sum + t.matmul(&a);
    }
    if let Some(mask) = mask {
        sum = sum * mask;
    }
    let [c, _] = four;
    let y = match how {
        Activation::Relu => sum.relu(),
        Activation::Tanh => sum.tanh(),
    };
    y.check()?;
    let part = y.narrow(0, range.start, range.end - range.start);
    Ok((y * b + c, vec![part]))
}

#[test]
fn parameters_of_all_forms() -> Result<()> {
    let t = |salt| values(&[3, 3], salt);
    let list = [t(1), t(2)];
    let call = |how: Activation, mask: Option<&Tensor>, name: &str| {
        let pair = (t(3), t(4));
        all_forms(pair, &list, t(5), mask, name, &how, 1..3, [t(6), t(7)])
    };
    for how in [Activation::Relu, Activation::Tanh] {
        for mask in [None, Some(t(8))] {
            let (y, part) = call(how.clone(), mask.as_ref(), "do")?;
            let mut sum = t(5) + t(1).matmul(&t(3)) + t(2).matmul(&t(3));
            sum = mask.map_or(sum.clone(), |m| &sum * m);
            let want = match how {
                Activation::Relu => sum.relu(),
                Activation::Tanh => sum.tanh(),
            };
            close(&y, &(&want * t(4) + t(6)));
            close(&part[0], &want.narrow(0, 1, 2));
        }
    }
    let e = call(Activation::Relu, None, "refuse");
    let told = e.map(|_| ()).expect_err("it refuses").to_string();
    assert!(told.contains("refused"), "{told}");
    Ok(())
}

#[function]
fn both(x: &Tensor, y: &Tensor) -> (Tensor, [Tensor; 2]) {
    let z = x.matmul(y);
    (z.clone(), [z.relu(), z.tanh()])
}

#[test]
fn what_goes_wrong_is_carried_with_the_callers_line() {
    let line = line!() + 1;
    let (a, [b, c]) = both(&values(&[2, 3], 1), &values(&[2, 3], 1));
    for t in [a, b, c] {
        let e = t.check().expect_err("shapes do not fit");
        assert!(matches!(e.kind(), ErrorKind::Shape { .. }), "{e}");
        // The line is that of the product, which is a function's own.
        let at = e.location().expect("a line");
        assert!(at.file().ends_with("marked.rs"), "{e}");
    }
    let failed = Tensor::zeros([2]).reshape([3]);
    let (a, _) = both(&failed, &failed);
    let e = a.check().expect_err("it carries the argument's error");
    let at = e.location().expect("a line").line();
    assert!(at > line, "{e}");
}

impl Weights {
    #[function]
    fn forward(&self, x: &Tensor, _: usize) -> Tensor {
        x.matmul(&self.up).relu().matmul(&self.down)
    }

    #[function(checkpoint)]
    pub fn moved(self, (x, by): (Tensor, Tensor)) -> Tensor {
        let this = self;
        this.forward(&x, 1) * by
    }

    #[function]
    fn of(x: &Tensor) -> Tensor {
        let first = Self {
            up: x * 2.0,
            down: x.transpose(0, 1),
        };
        first.up.matmul(&first.down)
    }
}

#[test]
fn methods() -> Result<()> {
    let w = weights(3);
    let x = values(&[4, 6], 1);
    let y = w.forward(&x, 1);
    let plain = |x: &Tensor| x.matmul(&w.up).relu().matmul(&w.down);
    close(&y, &plain(&x));
    let z = weights(3).moved((y.clone(), Tensor::full([1], 0.5f32)));
    close(&z, &(plain(&y) * 0.5));
    let g = w.forward(&w.forward(&x, 1), 1).sum(.., false);
    let g = g.gradient(&[&w.up])?.remove(0);
    let want = plain(&plain(&x)).sum(.., false).gradient(&[&w.up])?;
    close(&g, &want[0]);
    close(&Weights::of(&x), &(&x * 2.0).matmul(&x.transpose(0, 1)));
    Ok(())
}

#[function]
fn generic<T: Tensors + Send + Sync + 'static, const N: usize>(
    x: T,
    of: [Tensor; N],
) -> Result<(T, Tensor)> {
    let mut sum = Tensor::zeros([2]);
    for t in &of {
        sum = sum + t;
    }
    Ok((x, sum))
}

#[test]
fn a_generic_one_is_one_for_each_type() -> Result<()> {
    let t = |salt| values(&[2], salt);
    let (a, sum) = generic(t(1), [t(2)])?;
    let ((b, c), other) = generic((t(3), t(4)), [t(5), t(6)])?;
    close(&a, &t(1));
    close(&sum, &t(2));
    close(&b, &t(3));
    close(&c, &t(4));
    close(&other, &(t(5) + t(6)));
    Ok(())
}

#[function]
fn tower(x: &Tensor, height: usize) -> Tensor {
    match height {
        0 => x.clone(),
        _ => tower(&(x * 2.0), height - 1) + 1.0,
    }
}

#[function]
fn endless(x: &Tensor) -> Tensor {
    endless(&(x * 0.5))
}

#[test]
fn one_that_calls_itself_is_a_part_of_itself() -> Result<()> {
    let x = values(&[3], 1);
    close(&tower(&x, 5), &(&x * 32.0 + 5.0));
    let e = endless(&x).check().expect_err("it never ends");
    assert!(matches!(e.kind(), ErrorKind::Capture { .. }), "{e}");
    assert!(e.to_string().contains("marked.rs"), "{e}");
    Ok(())
}

/// One whose body captures nothing calls another such.
#[function]
fn outer(x: &Tensor) -> Tensor {
    inner(&inner(x)).sum(.., false)
}

#[function]
fn inner(x: &Tensor) -> Tensor {
    x.softmax(0)
}

#[test]
fn they_nest_and_are_captured_and_called_by_threads() -> Result<()> {
    let x = values(&[7], 1);
    let want = read(&x.softmax(0).softmax(0).sum(.., false));
    close(&outer(&x), &Tensor::new(&want, [] as [i64; 0]));
    let step = jit(|x: &Tensor| outer(x) * 2.0)?;
    close(&step.call(&x)?, &(outer(&x) * 2.0));
    std::thread::scope(|s| {
        for k in 0..4 {
            s.spawn(move || {
                let x = values(&[7], k);
                close(&outer(&x), &x.softmax(0).softmax(0).sum(.., false));
            });
        }
    });
    Ok(())
}

#[function]
fn assigns(count: &Tensor, x: &Tensor) -> Tensor {
    count.assign(count + 1.0);
    x.matmul(x) * count
}

#[test]
fn what_is_passed_may_be_assigned() -> Result<()> {
    let count = Tensor::zeros([2, 2]).parameter();
    let x = values(&[2, 2], 1);
    for k in 1..4 {
        let y = assigns(&count, &x);
        close(&y, &(x.matmul(&x) * k as f32));
    }
    assert_eq!(read(&count), [3.0; 4]);
    Ok(())
}
