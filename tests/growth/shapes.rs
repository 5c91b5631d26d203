//! Programs that are made of n equal parts, each in a way of its own. Flows in: n; flows out: the roots to
//! compile. The tensors are empty: nothing here has values.

use monoglot::compiler::engine::default_device;
use monoglot::nn::Part;
use monoglot::prelude::*;

/// A program of n parts.
pub(crate) struct Shape {
    /// What the parts are.
    pub(crate) name: &'static str,
    /// The program of n of them.
    pub(crate) program: fn(usize) -> Vec<Tensor>,
    /// A number of parts that is compiled in an instant, and yet is many.
    pub(crate) parts: usize,
}

macro_rules! shapes {
    ($($name:ident $parts:literal;)*) => {
        pub(crate) const ALL: &[Shape] = &[$(Shape { name: stringify!($name), program: $name, parts: $parts }),*];
    };
}

shapes! {
    index_chain 64;
    slices_summed 512;
    where_chain 1024;
    used_by_products 256;
    used_by_sums 2048;
    used_by_reductions 128;
    recurrence 128;
    lstm 16;
    sin_chain 256;
    tanh_chain 256;
    pad_chain 64;
    cat_chain 256;
    cat_of_slices 256;
    stack_of_all 256;
    assigned_slices 64;
    assigned_often 64;
    sum_of_products 256;
    normalised_often 64;
    softmax_chain 64;
    reduce_chain 128;
    many_outputs 256;
    outputs_of_one_chain 256;
    sgd_of_many 64;
    adam_of_many 64;
    layers 32;
    gather_chain 64;
    embeddings 128;
    cumsum_chain 64;
    views_chain 128;
    reshape_chain 128;
    residuals 64;
    dense_connections 32;
    convolutions 32;
    attention 16;
    conditions 2048;
    integers 128;
    polynomial 512;
    one_hots 128;
    maxima 256;
    roll_chain 64;
    scatter_chain 32;
    matmul_chain 64;
}

fn x(shape: &[usize]) -> Tensor {
    Tensor::empty(shape, DType::F32, default_device())
}

fn ids(shape: &[usize]) -> Tensor {
    Tensor::empty(shape, DType::I32, default_device())
}

/// The sum, and its gradients.
fn with_gradient(y: Tensor, by: &[&Tensor]) -> Vec<Tensor> {
    let loss = y.sum(.., false);
    let gradients = loss.gradient(by).expect("it has gradients");
    [loss].into_iter().chain(gradients).collect()
}

fn index_chain(n: usize) -> Vec<Tensor> {
    let i = ids(&[64]);
    vec![(0..n).fold(x(&[64, 8]), |y, _| y.index(&i))]
}

fn slices_summed(n: usize) -> Vec<Tensor> {
    let t = x(&[n, 8]);
    let y = (1..n as i64).fold(t.index(0), |y, i| y + t.index(i));
    with_gradient(y, &[&t])
}

fn where_chain(n: usize) -> Vec<Tensor> {
    let t = x(&[64]);
    let c = x(&[64]);
    let y = (0..n).fold(t.clone(), |y, i| c.gt(i as f64).select(&y * 1.5, &y + 1.0));
    with_gradient(y, &[&t])
}

fn used_by_products(n: usize) -> Vec<Tensor> {
    let t = x(&[64]);
    let y = (1..n).fold(t.clone(), |y, i| y + (&t * i as f64).sin());
    with_gradient(y, &[&t])
}

fn used_by_sums(n: usize) -> Vec<Tensor> {
    let t = x(&[64]);
    vec![(1..n).fold(t.clone(), |y, _| (&y * &t) + &t)]
}

fn used_by_reductions(n: usize) -> Vec<Tensor> {
    let t = x(&[8, 64]);
    let y = (1..n).fold(t.clone(), |y, i| y + (&t * i as f64).sum(1, true));
    with_gradient(y, &[&t])
}

fn recurrence(n: usize) -> Vec<Tensor> {
    let w = x(&[16, 16]);
    let u = x(&[16, 16]);
    let all = x(&[n, 4, 16]);
    let h = (0..n).fold(x(&[4, 16]), |h, i| {
        (all.index(i as i64).matmul(&w) + h.matmul(&u)).tanh()
    });
    with_gradient(h, &[&w, &u])
}

fn lstm(n: usize) -> Vec<Tensor> {
    let w = x(&[16, 64]);
    let u = x(&[16, 64]);
    let all = x(&[n, 4, 16]);
    let mut h = x(&[4, 16]);
    let mut c = x(&[4, 16]);
    for i in 0..n {
        let gates = all.index(i as i64).matmul(&w) + h.matmul(&u);
        let part = |k: i64| gates.narrow(1, 16 * k, 16);
        c = part(0).sigmoid() * &c + part(1).sigmoid() * part(2).tanh();
        h = part(3).sigmoid() * c.tanh();
    }
    with_gradient(h, &[&w, &u])
}

fn sin_chain(n: usize) -> Vec<Tensor> {
    let t = x(&[64]);
    with_gradient((0..n).fold(t.clone(), |y, _| y.sin()), &[&t])
}

fn tanh_chain(n: usize) -> Vec<Tensor> {
    let t = x(&[64]);
    with_gradient((0..n).fold(t.clone(), |y, _| y.tanh()), &[&t])
}

fn pad_chain(n: usize) -> Vec<Tensor> {
    let t = x(&[8, 8]);
    let y = (0..n).fold(t.clone(), |y, _| {
        y.pad(&[[0, 0], [1, 1]], monoglot::PadMode::Constant(1.0))
    });
    with_gradient(y, &[&t])
}

fn cat_chain(n: usize) -> Vec<Tensor> {
    let t = x(&[8, 8]);
    let part = x(&[1, 8]);
    let y = (0..n).fold(t.clone(), |y, _| Tensor::cat(&[&y, &part], 0));
    with_gradient(y, &[&t])
}

fn cat_of_slices(n: usize) -> Vec<Tensor> {
    let t = x(&[n, 8]);
    let parts: Vec<Tensor> = (0..n as i64).map(|i| t.narrow(0, i, 1).exp()).collect();
    let y = Tensor::cat(&parts.iter().collect::<Vec<_>>(), 0);
    with_gradient(y, &[&t])
}

fn stack_of_all(n: usize) -> Vec<Tensor> {
    let parts: Vec<Tensor> = (0..n).map(|_| x(&[8])).collect();
    let y = Tensor::stack(&parts.iter().collect::<Vec<_>>(), 0);
    with_gradient(&y * &y, &parts.iter().collect::<Vec<_>>())
}

fn assigned_slices(n: usize) -> Vec<Tensor> {
    let t = x(&[n, 8]);
    for i in 0..n as i64 {
        t.set_at(i, &(x(&[8]) + i as f64));
    }
    vec![t]
}

fn assigned_often(n: usize) -> Vec<Tensor> {
    let t = x(&[8, 8]);
    for i in 0..n as i64 {
        t.set_at(i % 8, &(t.index((i + 1) % 8) * 1.5));
    }
    vec![t]
}

fn sum_of_products(n: usize) -> Vec<Tensor> {
    let pairs: Vec<[Tensor; 2]> = (0..n).map(|_| [x(&[64]), x(&[64])]).collect();
    let first = &pairs[0][0] * &pairs[0][1];
    let y = pairs[1..].iter().fold(first, |y, [a, b]| y + a * b);
    with_gradient(y, &pairs.iter().flatten().collect::<Vec<_>>())
}

fn normalised_often(n: usize) -> Vec<Tensor> {
    let t = x(&[8, 64]);
    let y = (0..n).fold(t.clone(), |y, _| &y - y.sum(1, true));
    with_gradient(y, &[&t])
}

fn softmax_chain(n: usize) -> Vec<Tensor> {
    let t = x(&[8, 64]);
    let y = (0..n).fold(t.clone(), |y, _| y.softmax(1));
    with_gradient(y, &[&t])
}

fn reduce_chain(n: usize) -> Vec<Tensor> {
    let t = x(&[8, 8]);
    let y = (0..n).fold(t.clone(), |y, i| {
        y.max((i % 2) as i64, true).expand([8, 8]) * 0.5
    });
    vec![y]
}

fn many_outputs(n: usize) -> Vec<Tensor> {
    let t = x(&[64]);
    (0..n).map(|i| &t * (i + 2) as f64).collect()
}

fn outputs_of_one_chain(n: usize) -> Vec<Tensor> {
    let mut all = vec![x(&[64])];
    for i in 0..n {
        all.push((&all[i] + 1.0).sin());
    }
    all
}

struct Many {
    all: Vec<Weight>,
}

struct Weight {
    weight: Tensor,
}

monoglot::nn::module!(Many { all });

impl Module for Weight {
    fn visit(&self, path: &str, see: &mut dyn FnMut(&str, Part)) {
        see(path, Part::Parameter(&self.weight));
    }
}

fn trained(n: usize, optimizer: impl Fn(&Many) -> Box<dyn Optimizer>) -> Vec<Tensor> {
    monoglot::nn::without_data(|| {
        let weight = |i: usize| Weight {
            weight: x(&[i % 7 + 2]),
        };
        let all = (0..n).map(weight).collect();
        let net = Many { all };
        let optimizer = optimizer(&net);
        let weights = net.parameters();
        let terms: Vec<Tensor> = weights.iter().map(|p| (p * p).sum(.., false)).collect();
        let loss = Tensor::stack(&terms.iter().collect::<Vec<_>>(), 0).sum(.., false);
        let gradients = loss.gradient(&weights.iter().collect::<Vec<_>>());
        let mut roots = vec![loss];
        roots.extend(optimizer.update(&gradients.expect("it has gradients")));
        roots
    })
}

fn sgd_of_many(n: usize) -> Vec<Tensor> {
    trained(n, |net| Box::new(Sgd::new(net, 0.1).momentum(0.9)))
}

fn adam_of_many(n: usize) -> Vec<Tensor> {
    trained(n, |net| Box::new(Adam::new(net, 0.1)))
}

fn layers(n: usize) -> Vec<Tensor> {
    let weights: Vec<[Tensor; 2]> = (0..n).map(|_| [x(&[16, 16]), x(&[16])]).collect();
    let y = weights
        .iter()
        .fold(x(&[8, 16]), |y, [w, b]| (y.matmul(w) + b).relu());
    with_gradient(y, &weights.iter().flatten().collect::<Vec<_>>())
}

fn gather_chain(n: usize) -> Vec<Tensor> {
    let t = x(&[8, 16]);
    let i = ids(&[8, 16]);
    let y = (0..n).fold(t.clone(), |y, _| y.gather(1, &i));
    with_gradient(y, &[&t])
}

fn embeddings(n: usize) -> Vec<Tensor> {
    let table = x(&[100, 16]);
    let y = (0..n)
        .map(|_| table.index(&ids(&[4])))
        .reduce(|a, b| a + b)
        .expect("there are some");
    with_gradient(y, &[&table])
}

fn cumsum_chain(n: usize) -> Vec<Tensor> {
    let t = x(&[8, 16]);
    let y = (0..n).fold(t.clone(), |y, i| y.cumsum((i % 2) as i64));
    with_gradient(y, &[&t])
}

fn views_chain(n: usize) -> Vec<Tensor> {
    let t = x(&[8, 8]);
    let y = (0..n).fold(t.clone(), |y, i| {
        let y = y.t().flip(0);
        y.narrow(1, (i % 2) as i64, 7)
            .pad(&[[0, 0], [0, 1]], monoglot::PadMode::Constant(0.0))
    });
    with_gradient(y, &[&t])
}

fn reshape_chain(n: usize) -> Vec<Tensor> {
    let t = x(&[6, 10]);
    let y = (0..n).fold(t.clone(), |y, i| match i % 3 {
        0 => y.reshape([10, 6]).t(),
        1 => y.reshape([4, 15]).t(),
        _ => y.reshape([6, 10]).flip(1),
    });
    with_gradient(y, &[&t])
}

fn residuals(n: usize) -> Vec<Tensor> {
    let t = x(&[8, 16]);
    let y = (0..n).fold(t.clone(), |y, _| {
        let m = y.mean(1, true);
        &y + ((&y - &m) * 0.1).tanh()
    });
    with_gradient(y, &[&t])
}

fn dense_connections(n: usize) -> Vec<Tensor> {
    let t = x(&[8, 8]);
    let w = x(&[8, 8]);
    let mut all = vec![t.clone()];
    let mut sum = t.clone();
    for _ in 0..n {
        let next = sum.matmul(&w).relu();
        sum = sum + &next;
        all.push(next);
    }
    let y = Tensor::cat(&all.iter().collect::<Vec<_>>(), 1);
    with_gradient(y, &[&t, &w])
}

fn convolutions(n: usize) -> Vec<Tensor> {
    let net: Vec<Conv2d> =
        monoglot::nn::without_data(|| (0..n).map(|_| Conv2d::new(4, 4, 3)).collect());
    let y = net.iter().fold(x(&[2, 4, 2 * n + 4, 8]), |y, c| {
        c.forward(&y).relu().pad(
            &[[0, 0], [0, 0], [0, 0], [1, 1]],
            monoglot::PadMode::Constant(0.0),
        )
    });
    vec![y]
}

fn attention(n: usize) -> Vec<Tensor> {
    let w: Vec<Tensor> = (0..3).map(|_| x(&[16, 16])).collect();
    let y = (0..n).fold(x(&[8, 16]), |y, _| {
        let [q, k, v] = [0, 1, 2].map(|i| y.matmul(&w[i]));
        &y + (q.matmul(&k.t()) * 0.25).softmax(1).matmul(&v)
    });
    with_gradient(y, &w.iter().collect::<Vec<_>>())
}

fn conditions(n: usize) -> Vec<Tensor> {
    let t = x(&[64]);
    let c = (0..n).fold(t.gt(0.0), |c, i| {
        (c & t.lt(i as f64)) | t.gt(i as f64 * 2.0)
    });
    vec![c]
}

fn integers(n: usize) -> Vec<Tensor> {
    let t = ids(&[64]);
    vec![(0..n).fold(t.clone(), |y, i| (y * 3i64 + &t) % (i as i64 + 5))]
}

fn polynomial(n: usize) -> Vec<Tensor> {
    let t = x(&[64]);
    let y = (0..n).fold(&t * 0.0, |y, i| y * &t + i as f64);
    with_gradient(y, &[&t])
}

fn one_hots(n: usize) -> Vec<Tensor> {
    let t = ids(&[16]);
    vec![
        (0..n)
            .map(|i| (&t + i as i64).one_hot(16))
            .reduce(|a, b| a + b)
            .expect("there are some"),
    ]
}

fn maxima(n: usize) -> Vec<Tensor> {
    let all: Vec<Tensor> = (0..n).map(|_| x(&[64])).collect();
    let y = all[1..].iter().fold(all[0].clone(), |y, t| y.maximum(t));
    with_gradient(y, &all.iter().collect::<Vec<_>>())
}

fn roll_chain(n: usize) -> Vec<Tensor> {
    let t = x(&[8, 16]);
    let y = (0..n).fold(t.clone(), |y, _| y.roll(1, 1) + &t);
    with_gradient(y, &[&t])
}

fn scatter_chain(n: usize) -> Vec<Tensor> {
    let t = x(&[8, 16]);
    let i = ids(&[8, 16]);
    vec![(0..n).fold(t.clone(), |y, _| y.scatter_add(1, &i, &t))]
}

fn matmul_chain(n: usize) -> Vec<Tensor> {
    let w = x(&[16, 16]);
    with_gradient((0..n).fold(x(&[16, 16]), |y, _| y.matmul(&w)), &[&w])
}
