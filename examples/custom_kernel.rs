//! Operations of one's own, in the ways that there are, each beside what the library computes: `cargo run
//! --release --example custom_kernel`. Flows in: nothing; flows out: a line for each way, with the greatest
//! difference of its values and of its gradients, or the reason why this machine has no such device.
//!
//! 1. A kernel in UOps, the dialect that kernels are compiled from, on any device.
//! 2. A text within such a kernel, where programs have source.
//! 3. Additions at once: places that come from data.
//! 4. A function in C.
//! 5. A closure on the host's memory.

use monoglot::prelude::*;
use monoglot::{CustomOp, Op, Output, ReduceOp};

fn main() -> Result<()> {
    let x = Tensor::randn([64, 48]).parameter();
    let w = Tensor::randn([48, 32]).parameter();
    let op = product();
    let ours = |x: &Tensor, w: &Tensor| {
        let [y] = op.call([Output::new([64, 32], DType::F32)], &[x, w]);
        y
    };
    compare("a kernel in UOps", &[&x, &w], &|t| ours(t[0], t[1]), &|t| {
        t[0].matmul(t[1])
    })?;

    let v = Tensor::randn([1000]).parameter();
    let op = hypotenuse();
    let ours = |t: &[&Tensor]| {
        let [y] = op.call([Output::new([1000], DType::F32)], t);
        y
    };
    let known = |t: &[&Tensor]| (t[0].square() + 1.0).sqrt();
    compare("a text within one", &[&v], &ours, &known)?;
    let c = Device::new("CPU:C");
    let there = v.detach().to(c).parameter();
    told(compare("a text within one, in C", &[&there], &ours, &known))?;

    let ids = Tensor::randint([1000], 0, 10);
    let op = sums();
    let ours = |t: &[&Tensor]| {
        let [y] = op.call([Output::new([10], DType::F32)], &[&ids, t[0]]);
        y
    };
    let known = |t: &[&Tensor]| Tensor::zeros([10]).scatter_add(0, &ids, t[0]);
    compare("additions at once", &[&v], &ours, &known)?;

    let op = cubes();
    let ours = |t: &[&Tensor]| {
        let [y] = op.call([Output::new([1000], DType::F32).whole()], t);
        y
    };
    let known = |t: &[&Tensor]| t[0] * t[0] * t[0];
    told(compare("a function in C", &[&there], &ours, &known))?;

    let op = sorted();
    let ours = |t: &[&Tensor]| {
        let outputs = [
            Output::new([1000], DType::F32),
            Output::new([1000], DType::I32),
        ];
        let [y, _] = op.call(outputs, t);
        y
    };
    compare("a closure", &[&v], &ours, &|t| t[0].sort(0, false))
}

/// The product of two matrices: what is written to each place of the output, in a loop for each of its axes.
fn product() -> CustomOp {
    CustomOp::kernel("product", |k| {
        let x = k.input(0);
        let w = k.input(1);
        let i = k.range(x.shape()[0].clone());
        let j = k.range(w.shape()[1].clone());
        let r = k.reduce_range(x.shape()[1].clone());
        let terms = x.at(&[i.clone(), r.clone()]) * w.at(&[r.clone(), j.clone()]);
        let sum = terms.reduce_ranges(ReduceOp::Add, &[r]);
        Ok(k.output(0)
            .at(&[i.clone(), j.clone()])
            .store(&sum)
            .end(&[i, j]))
    })
    .with_gradient(|b| {
        let g = &b.gradients[0];
        let x = g.matmul(&b.inputs[1].t());
        let w = b.inputs[0].t().matmul(g);
        Ok(vec![Some(x), Some(w)])
    })
}

/// √(x² + 1), by C's own function where programs are C, and in UOps elsewhere.
fn hypotenuse() -> CustomOp {
    CustomOp::kernel("hypotenuse", |k| {
        let i = k.range(k.input(0).shape()[0].clone());
        let x = k.input(0).at(&[i.clone()]);
        let square = &x * &x + 1.0;
        let otherwise = square.unary(Op::Sqrt);
        // SAFETY: a function of a number.
        let y = unsafe {
            k.custom(
                "__builtin_sqrtf({0} * {0} + 1)",
                &[x],
                DType::F32,
                Some(&otherwise),
            )?
        };
        Ok(k.output(0).at(&[i.clone()]).store(&y).end(&[i]))
    })
    .with_gradient(|b| Ok(vec![Some(&b.gradients[0] * &b.inputs[0] / &b.outputs[0])]))
}

/// The sums of the values that have each id. An id that names no place is dropped: the index says where it is one.
fn sums() -> CustomOp {
    CustomOp::kernel("sums", |k| {
        let i = k.range(k.input(0).shape()[0].clone());
        let id = k.input(0).at(&[i.clone()]).cast(DType::Index);
        let places = k.output(0).shape()[0].to_uop();
        let is_place = id.ge(&id.like(0)) & id.lt(&places);
        let value = k.input(1).at(&[i.clone()]);
        Ok(k.output(0)
            .at(&[id.valid(&is_place)])
            .atomic_add(&value)
            .end(&[i]))
    })
    .with_gradient(|b| {
        let values = b.gradients[0].gather(0, &b.inputs[0]);
        Ok(vec![None, Some(values)])
    })
}

/// x³ in C.
fn cubes() -> CustomOp {
    let text = "
        void cubes(float *y, const float *x) {
            for (int i = 0; i < 1000; i++) y[i] = x[i] * x[i] * x[i];
        }";
    // SAFETY: it is called with a thousand elements, all of which it writes.
    let op = unsafe { CustomOp::c("cubes", text, "cubes") };
    op.with_gradient(|b| Ok(vec![Some(&b.gradients[0] * b.inputs[0].square() * 3.0)]))
}

/// The elements in order, and where they were: what the gradient goes by.
fn sorted() -> CustomOp {
    CustomOp::function("sorted", |call| {
        let x = call.input::<f32>(0)?;
        let y = call.output::<f32>(0)?;
        let from = call.output::<i32>(1)?;
        for (k, place) in (0..).zip(from.iter_mut()) {
            *place = k;
        }
        from.sort_by(|a, b| x[*a as usize].total_cmp(&x[*b as usize]));
        for (y, &from) in y.iter_mut().zip(from.iter()) {
            *y = x[from as usize];
        }
        Ok(())
    })
    .with_gradient(|b| {
        let back = Tensor::zeros([1000]).scatter(0, &b.outputs[1], &b.gradients[0]);
        Ok(vec![Some(back)])
    })
}

/// Print how far values and gradients are from what the library computes; more than rounding is an error.
fn compare(
    what: &str,
    inputs: &[&Tensor],
    ours: &dyn Fn(&[&Tensor]) -> Tensor,
    known: &dyn Fn(&[&Tensor]) -> Tensor,
) -> Result<()> {
    let both = [ours(inputs), known(inputs)];
    let values = distance(&both[0], &both[1])?;
    let mut gradients = 0.0f32;
    let [own, want] = both.map(|y| (y.square() * 0.5).sum(.., false).gradient(inputs));
    for (a, b) in own?.iter().zip(&want?) {
        gradients = gradients.max(distance(a, b)?);
    }
    println!("{what}: {values:.1e} of values, {gradients:.1e} of gradients");
    if values.max(gradients) > 1e-3 {
        return Err(Error::argument(
            what,
            "it differs from what the library computes",
        ));
    }
    Ok(())
}

/// The greatest difference.
fn distance(a: &Tensor, b: &Tensor) -> Result<f32> {
    (a - b).abs().max(.., false).item()
}

/// A machine may have no compiler for C, and then says so.
fn told(result: Result<()>) -> Result<()> {
    match result {
        Err(e) if matches!(e.kind(), ErrorKind::NoDevice { .. }) => {
            println!("{e}");
            Ok(())
        }
        result => result,
    }
}
