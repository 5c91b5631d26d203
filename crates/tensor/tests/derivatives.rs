//! The first and second derivative of every differentiable operation against differences in f64. A
//! row is a name, the shapes of the inputs, the interval their values are from, and the operation.
//! Flows in: the table; flows out: a failed test that names the row.

use monoglot_tensor::*;

type Row = (
    &'static str,
    &'static [&'static [i64]],
    (f64, f64),
    fn(&[Tensor]) -> Tensor,
);

/// Numbers of an interval, all different.
fn values(n: usize, (low, high): (f64, f64), seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e3779b97f4a7c15) | 1;
    (0..n)
        .map(|_| {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            low + (high - low) * ((state >> 11) as f64 / (1u64 << 53) as f64)
        })
        .collect()
}

/// A weight for every element of `y`, so that no two flow alike.
fn weighted(y: &Tensor, seed: u64) -> Tensor {
    let shape = y.shape().unwrap_or_else(|e| panic!("{e}"));
    let w = values(shape.iter().product(), (-1.0, 1.0), seed);
    (y.cast(DType::F64) * Tensor::new(&w, &shape)).sum(.., false)
}

fn tensors(shapes: &[&[i64]], data: &[Vec<f64>]) -> Vec<Tensor> {
    shapes
        .iter()
        .zip(data)
        .map(|(s, d)| Tensor::new(d, *s))
        .collect()
}

/// The gradients of `loss` at `data`, and that of every one of their elements by differences.
fn compare(name: &str, shapes: &[&[i64]], data: &[Vec<f64>], loss: &dyn Fn(&[Tensor]) -> Tensor) {
    let x = tensors(shapes, data);
    let targets: Vec<&Tensor> = x.iter().collect();
    let grads = loss(&x)
        .gradient(&targets)
        .unwrap_or_else(|e| panic!("{name}: {e}"));
    for (k, g) in grads.iter().enumerate() {
        let got = g.to_vec::<f64>().unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(g.shape(), x[k].shape(), "{name}");
        for i in 0..got.len() {
            let at = |d: f64| {
                let mut data = data.to_vec();
                data[k][i] += d;
                loss(&tensors(shapes, &data))
                    .item::<f64>()
                    .unwrap_or_else(|e| panic!("{name}: {e}"))
            };
            let h = 1e-5;
            let want = (at(h) - at(-h)) / (2.0 * h);
            let near = (got[i] - want).abs() <= 2e-6 * (1.0 + want.abs());
            assert!(
                near,
                "{name}: by input {k}, element {i}: {} is not {want}",
                got[i]
            );
        }
    }
}

fn check(rows: &[Row]) {
    monoglot_engine::set_default_device(Device::new("INTERP"));
    for &(name, shapes, interval, of) in rows {
        let data: Vec<Vec<f64>> = shapes
            .iter()
            .enumerate()
            .map(|(k, s)| values(s.iter().product::<i64>() as usize, interval, 11 + k as u64))
            .collect();
        // All inputs count, also where the operation is linear or piecewise constant.
        let bowl = |x: &[Tensor]| {
            x.iter()
                .map(|x| x.square().sum(.., false))
                .reduce(|a, b| a + b)
                .expect("one")
        };
        let first = |x: &[Tensor]| weighted(&of(x), 5) + bowl(x) * 0.1;
        compare(name, shapes, &data, &first);
        let second = |x: &[Tensor]| {
            let targets: Vec<&Tensor> = x.iter().collect();
            let grads = first(x)
                .gradient(&targets)
                .unwrap_or_else(|e| panic!("{name}, twice: {e}"));
            grads
                .iter()
                .zip(7..)
                .map(|(g, seed)| weighted(g, seed))
                .reduce(|a, b| a + b)
                .expect("one")
        };
        compare(&format!("{name}, twice"), shapes, &data, &second);
    }
}

fn ints(v: &[i32], shape: &[i64]) -> Tensor {
    Tensor::new(v, shape)
}

fn how(stride: &[i64], padding: &[i64], dilation: &[i64], groups: i64) -> Conv {
    Conv {
        stride: stride.into(),
        padding: padding.into(),
        dilation: dilation.into(),
        groups,
        ..Conv::default()
    }
}

const V: &[&[i64]] = &[&[7]];
const M: &[&[i64]] = &[&[2, 3]];
const MM: &[&[i64]] = &[&[2, 3], &[2, 3]];
/// Two that broadcast both ways.
const BB: &[&[i64]] = &[&[2, 1, 3], &[2, 1]];
const SYM: (f64, f64) = (-1.9, 2.1);
const POS: (f64, f64) = (0.3, 2.7);
const UNIT: (f64, f64) = (-0.9, 0.85);

#[test]
#[rustfmt::skip]
fn functions_of_one_number() {
    check(&[
        ("abs", V, SYM, |x| x[0].abs()), ("acos", V, UNIT, |x| x[0].acos()),
        ("acosh", V, (1.2, 4.0), |x| x[0].acosh()), ("asin", V, UNIT, |x| x[0].asin()),
        ("asinh", V, SYM, |x| x[0].asinh()), ("atan", V, SYM, |x| x[0].atan()),
        ("atanh", V, UNIT, |x| x[0].atanh()), ("ceil", V, SYM, |x| x[0].ceil()),
        ("cos", V, SYM, |x| x[0].cos()), ("cosh", V, SYM, |x| x[0].cosh()),
        ("erf", V, SYM, |x| x[0].erf()), ("exp", V, SYM, |x| x[0].exp()),
        ("exp2", V, SYM, |x| x[0].exp2()), ("expm1", V, SYM, |x| x[0].expm1()),
        ("floor", V, SYM, |x| x[0].floor()), ("hardsigmoid", V, (-4.0, 4.3), |x| x[0].hardsigmoid()),
        ("hardswish", V, (-4.0, 4.3), |x| x[0].hardswish()), ("hardtanh", V, SYM, |x| x[0].hardtanh()),
        ("log", V, POS, |x| x[0].log()), ("log2", V, POS, |x| x[0].log2()),
        ("log10", V, POS, |x| x[0].log10()), ("log1p", V, POS, |x| x[0].log1p()),
        ("logsigmoid", V, SYM, |x| x[0].logsigmoid()), ("mish", V, SYM, |x| x[0].mish()),
        ("neg", V, SYM, |x| -&x[0]), ("reciprocal", V, POS, |x| x[0].reciprocal()),
        ("relu", V, SYM, |x| x[0].relu()), ("relu6", V, (-3.0, 9.1), |x| x[0].relu6()),
        ("round", V, SYM, |x| x[0].round()), ("rsqrt", V, POS, |x| x[0].rsqrt()),
        ("selu", V, SYM, |x| x[0].selu()), ("sigmoid", V, SYM, |x| x[0].sigmoid()),
        ("sign", V, SYM, |x| x[0].sign()), ("silu", V, SYM, |x| x[0].silu()),
        ("sin", V, SYM, |x| x[0].sin()), ("sinh", V, SYM, |x| x[0].sinh()),
        ("softsign", V, SYM, |x| x[0].softsign()), ("sqrt", V, POS, |x| x[0].sqrt()),
        ("square", V, SYM, |x| x[0].square()), ("tan", V, UNIT, |x| x[0].tan()),
        ("tanh", V, SYM, |x| x[0].tanh()), ("trunc", V, SYM, |x| x[0].trunc()),
        ("celu", V, SYM, |x| x[0].celu(1.3)), ("elu", V, SYM, |x| x[0].elu(0.7)),
        ("gelu", V, SYM, |x| x[0].gelu()), ("gelu_tanh", V, SYM, |x| x[0].gelu_tanh()),
        ("leaky_relu", V, SYM, |x| x[0].leaky_relu(0.1)), ("softplus", V, SYM, |x| x[0].softplus(1.0)),
        ("softplus 2", V, SYM, |x| x[0].softplus(2.5)), ("clamp", V, SYM, |x| x[0].clamp(-0.8, 1.1)),
        ("clamp below", V, SYM, |x| x[0].clamp(None, 0.4)),
    ]);
}

#[test]
#[rustfmt::skip]
fn functions_of_two_and_three() {
    check(&[
        ("add", BB, SYM, |x| &x[0] + &x[1]), ("sub", BB, SYM, |x| &x[0] - &x[1]),
        ("mul", BB, SYM, |x| &x[0] * &x[1]), ("div", BB, POS, |x| &x[0] / &x[1]),
        ("add itself", V, SYM, |x| &x[0] * &x[0] + &x[0]),
        ("pow", BB, POS, |x| x[0].pow(&x[1])), ("pow 3", V, SYM, |x| x[0].pow(3)),
        ("pow 2", V, SYM, |x| x[0].pow(2)), ("pow 4", V, SYM, |x| x[0].pow(4)), ("pow 5", V, SYM, |x| x[0].pow(5)),
        ("pow 1/2", V, POS, |x| x[0].pow(0.5)), ("pow -1/2", V, POS, |x| x[0].pow(-0.5)), ("pow 1.7", V, POS, |x| x[0].pow(1.7)),
        ("pow -1", V, POS, |x| x[0].pow(-1)), ("pow -2", V, POS, |x| x[0].pow(-2)), ("2 pow", V, SYM, |x| Tensor::full((), 2.0f64).pow(&x[0])),
        ("maximum", BB, SYM, |x| x[0].maximum(&x[1])), ("minimum", BB, SYM, |x| x[0].minimum(&x[1])),
        ("atan2", BB, SYM, |x| x[0].atan2(&x[1])), ("logaddexp", BB, SYM, |x| x[0].logaddexp(&x[1])),
        ("copysign", BB, SYM, |x| x[0].copysign(&x[1])), ("fmod", BB, POS, |x| x[0].fmod(&x[1])),
        ("modulo", BB, POS, |x| &x[0] % &x[1]), ("floor_div", BB, POS, |x| x[0].floor_div(&x[1])),
        ("trunc_div", BB, POS, |x| x[0].trunc_div(&x[1])), ("lt", BB, SYM, |x| x[0].lt(&x[1])),
        ("where", &[&[2, 3], &[3], &[2, 1]], SYM, |x| x[0].gt(0.1).select(x[1].square(), x[2].exp())),
        ("masked_fill", MM, SYM, |x| (&x[0] * &x[1]).masked_fill(&x[1].gt(0.0), 3.0)),
        ("lerp", &[&[2, 3], &[3], &[2, 1]], SYM, |x| x[0].lerp(&x[1], &x[2])),
        ("bce_with_logits", MM, (0.1, 0.9), |x| (&x[0] * 3.0).bce_with_logits(&x[1], Reduction::Mean)),
        ("mse_loss", MM, SYM, |x| x[0].mse_loss(&x[1], Reduction::Mean)),
        ("l1_loss", MM, SYM, |x| x[0].l1_loss(&x[1], Reduction::Sum)),
        ("cast", V, SYM, |x| x[0].cast(DType::F64)), ("contiguous", V, SYM, |x| x[0].contiguous_backward().contiguous().sin()),
    ]);
}

#[test]
#[rustfmt::skip]
fn folds_scans_and_order() {
    const T: &[&[i64]] = &[&[2, 3, 4]];
    check(&[
        ("sum", T, SYM, |x| x[0].sum([0, 2], false)), ("mean", T, SYM, |x| x[0].mean(1, true)),
        ("prod", T, SYM, |x| x[0].prod(1, false)), ("prod of all", M, SYM, |x| x[0].prod(.., false)),
        ("max", T, SYM, |x| x[0].max([1, 2], false)), ("min", T, SYM, |x| x[0].min(2, true)),
        ("var", T, SYM, |x| x[0].var([0, 1], false, 1)), ("var 0", T, SYM, |x| x[0].var(.., false, 0)),
        ("std", T, SYM, |x| x[0].std(2, true, 1)), ("logsumexp", T, SYM, |x| x[0].logsumexp([1, 2], false)),
        ("softmax", T, SYM, |x| x[0].softmax(1)), ("log_softmax", T, SYM, |x| x[0].log_softmax(-1)),
        ("cumsum", T, SYM, |x| x[0].cumsum(1)), ("cumsum long", &[&[40]], SYM, |x| x[0].cumsum(0).square()),
        ("cumprod", T, SYM, |x| x[0].cumprod(2)), ("cummax", T, SYM, |x| x[0].cummax(1).exp()),
        ("logcumsumexp", &[&[2, 9]], SYM, |x| { let m = x[0].max(1, true).detach(); (&x[0] - &m).exp().cumsum(1).log() + m }),
        ("sort", T, SYM, |x| x[0].sort(1, false).square()), ("sort down", T, SYM, |x| x[0].sort(0, true).exp()),
        ("sort long", &[&[70]], SYM, |x| x[0].sort(0, false).square()), ("topk", T, SYM, |x| x[0].topk(2, 2, true).0.square()),
        ("topk least", T, SYM, |x| x[0].topk(2, 1, false).0.square()),
        ("cross_entropy", &[&[3, 4]], SYM, |x| x[0].cross_entropy(&ints(&[2, 0, 3], &[3]), Reduction::Mean, 0.0)),
        ("cross_entropy ignored", &[&[3, 4]], SYM, |x| x[0].cross_entropy(&ints(&[2, -100, 3], &[3]), Reduction::Mean, 0.0)),
        ("cross_entropy smooth", &[&[2, 4, 2]], SYM, |x| x[0].cross_entropy(&ints(&[2, 0, 3, 1], &[2, 2]), Reduction::Sum, 0.1)),
        ("cross_entropy soft", &[&[3, 4], &[3, 4]], (0.1, 0.9), |x| x[0].cross_entropy(&x[1], Reduction::Mean, 0.2)),
        ("nll_loss", &[&[3, 4]], SYM, |x| x[0].square().nll_loss(&ints(&[2, 0, 3], &[3]), Reduction::None)),
    ]);
}

#[test]
#[rustfmt::skip]
fn movement_and_indices() {
    const T: &[&[i64]] = &[&[2, 3, 4]];
    let rows: &[Row] = &[
        ("reshape", T, SYM, |x| x[0].reshape([4, -1]).square()), ("permute", T, SYM, |x| x[0].permute([2, 0, 1]).sin()),
        ("transpose", T, SYM, |x| x[0].transpose(0, 2).sin()), ("expand", &[&[2, 1, 3]], SYM, |x| x[0].expand([2, 2, 4, 3]).sin()),
        ("flip", T, SYM, |x| x[0].flip([0, 2]).sin()), ("squeeze", &[&[2, 1, 3]], SYM, |x| x[0].squeeze(..).unsqueeze(0).sin()),
        ("flatten", T, SYM, |x| x[0].flatten(1, 2).sin()), ("unflatten", T, SYM, |x| x[0].unflatten(2, [2, -1]).sin()),
        ("narrow", T, SYM, |x| x[0].narrow(2, 1, 2).sin()), ("unfold", &[&[2, 7]], SYM, |x| x[0].unfold(1, 3, 2).sin()),
        ("unfold overlapping", &[&[7]], SYM, |x| x[0].unfold(0, 4, 1).sin()),
        ("diagonal", T, SYM, |x| x[0].diagonal().sin()), ("diag", &[&[3]], SYM, |x| x[0].diag().sin()),
        ("tril", T, SYM, |x| x[0].tril(-1).sin()), ("triu", T, SYM, |x| x[0].triu(1).sin()),
        ("slice", T, SYM, |x| x[0].index((.., Index::step(None, None, -2), 1..)).sin()),
        ("slice steps", &[&[9]], SYM, |x| x[0].index(Index::step(7, 0, -3)).sin()),
        ("index", T, SYM, |x| x[0].index((1, .., Index::NewAxis, 2)).sin()),
        ("cat", &[&[2, 3], &[2, 1], &[2, 3]], SYM, |x| Tensor::cat(&[&x[0], &x[1], &x[2], &x[0]], 1).sin()),
        ("stack", MM, SYM, |x| Tensor::stack(&[&x[0], &x[1], &x[0]], 1).sin()),
        ("split", T, SYM, |x| { let p = x[0].split([1, 3], 2); &p[0] * &p[1] }),
        ("chunk", T, SYM, |x| { let p = x[0].chunk(2, 2); &p[0] * &p[1].exp() }),
        ("repeat", M, SYM, |x| x[0].repeat([2, 1, 3]).sin()), ("repeat_interleave", M, SYM, |x| x[0].repeat_interleave(3, 1).sin()),
        ("roll", T, SYM, |x| x[0].roll([1, -2], [0, 2]).sin()),
        ("pad", M, SYM, |x| x[0].pad(&[[1, 0], [-1, 2]], PadMode::Constant(0.3)).sin()),
        ("reflect", &[&[2, 4]], SYM, |x| x[0].pad(&[[0, 1], [3, 2]], PadMode::Reflect).sin()),
        ("replicate", M, SYM, |x| x[0].pad(&[[2, 1], [0, 2]], PadMode::Replicate).sin()),
        ("circular", M, SYM, |x| x[0].pad(&[[0, 0], [3, 1]], PadMode::Circular).sin()),
        ("gather", T, SYM, |x| x[0].gather(1, &ints(&[2, 0, 2, 1, 1, 1, 0, 2], &[2, 1, 4])).sin()),
        ("index_select", T, SYM, |x| x[0].index_select(1, &ints(&[2, 0, 2], &[3])).sin()),
        ("index tensors", T, SYM, |x| x[0].index((&ints(&[1, 0, 1], &[3]), .., &ints(&[-1, 2, -1], &[3]))).sin()),
        ("scatter", &[&[2, 3], &[2, 2]], SYM, |x| x[0].scatter(1, &ints(&[2, 0, 1, 1], &[2, 2]), &x[1]).sin()),
        ("scatter_add", &[&[2, 3], &[2, 4]], SYM, |x| x[0].scatter_add(1, &ints(&[2, 0, 2, 2, 1, 1, 0, 1], &[2, 4]), &x[1]).sin()),
        ("nearest", &[&[1, 1, 3, 2]], SYM, |x| x[0].interpolate([5, 3], Interpolation::Nearest).sin()),
        ("linear", &[&[1, 1, 3, 4]], SYM, |x| x[0].interpolate([5, 3], Interpolation::Linear { align_corners: false }).sin()),
        ("linear corners", &[&[1, 1, 3, 4]], SYM, |x| x[0].interpolate([5, 3], Interpolation::Linear { align_corners: true }).sin()),
        ("cubic", &[&[1, 1, 3, 4]], SYM, |x| x[0].interpolate([5, 3], Interpolation::Cubic { align_corners: false }).sin()),
        ("area", &[&[1, 1, 3, 4]], SYM, |x| x[0].interpolate([2, 6], Interpolation::Area).sin()),
        ("assigned", &[&[6], &[2]], SYM, |x| { let y = &x[0] * 1.0; y.set_at(Index::step(None, None, -3), &x[1]); y.sin() }),
    ];
    check(rows);
}

#[test]
#[rustfmt::skip]
fn products() {
    check(&[
        ("matmul", &[&[2, 3], &[3, 2]], SYM, |x| x[0].matmul(&x[1]).sin()),
        ("matmul batches", &[&[2, 1, 2, 3], &[2, 3, 2]], SYM, |x| x[0].matmul(&x[1]).sin()),
        ("matmul row", &[&[3], &[2, 3, 2]], SYM, |x| x[0].matmul(&x[1]).sin()), ("matmul column", &[&[2, 3], &[3]], SYM, |x| x[0].matmul(&x[1]).sin()),
        ("dot", &[&[3], &[3]], SYM, |x| x[0].dot(&x[1]).sin()),
        ("linear", &[&[2, 3], &[4, 3], &[4]], SYM, |x| x[0].linear(&x[1], Some(&x[2])).sin()),
        ("einsum matrix", &[&[2, 3], &[3, 2]], SYM, |x| Tensor::einsum("ij,jk->ki", &[&x[0], &x[1]]).sin()),
        ("einsum outer", &[&[2], &[3]], SYM, |x| Tensor::einsum("i,j->ij", &[&x[0], &x[1]]).sin()),
        ("einsum diagonal", &[&[3, 3]], SYM, |x| Tensor::einsum("ii->i", &[&x[0]]).sin()),
        ("einsum trace of three", &[&[2, 2, 2]], SYM, |x| Tensor::einsum("iii", &[&x[0]]).sin()),
        ("einsum three", &[&[2, 3], &[3, 2], &[2]], SYM, |x| Tensor::einsum("ab,bc,c->a", &[&x[0], &x[1], &x[2]]).sin()),
        ("einsum ellipsis", &[&[2, 2, 3], &[1, 3, 2]], SYM, |x| Tensor::einsum("...ij,...jk->...ki", &[&x[0], &x[1]]).sin()),
        ("einsum heads", &[&[1, 2, 2, 3], &[1, 2, 2, 3]], SYM, |x| Tensor::einsum("bhqd,bhkd->bhqk", &[&x[0], &x[1]]).sin()),
        ("attention", &[&[2, 2, 3], &[2, 3, 3], &[2, 3, 2]], SYM, |x| x[0].attention(&x[1], &x[2], None, false)),
        ("attention causal", &[&[3, 2], &[3, 2], &[3, 2]], SYM, |x| x[0].attention(&x[1], &x[2], None, true)),
        ("attention mask", &[&[2, 2], &[3, 2], &[3, 2]], SYM, |x| {
            let mask = Tensor::new(&[true, false, true, false, false, false], [2, 3]);
            x[0].attention(&x[1], &x[2], Some(&mask), false)
        }),
        ("attention bias", &[&[2, 2], &[3, 2], &[3, 2], &[2, 3]], SYM, |x| x[0].attention(&x[1], &x[2], Some(&x[3]), false)),
    ]);
}

#[test]
#[rustfmt::skip]
fn convolutions() {
    check(&[
        ("conv1d", &[&[2, 2, 5], &[3, 2, 2], &[3]], SYM, |x| x[0].conv(&x[1], Some(&x[2]), &Conv::default()).sin()),
        ("conv1d strided", &[&[1, 1, 8], &[2, 1, 3]], SYM, |x| x[0].conv(&x[1], None, &how(&[3], &[1], &[1], 1)).sin()),
        ("conv1d dilated", &[&[1, 1, 7], &[1, 1, 3]], SYM, |x| x[0].conv(&x[1], None, &how(&[1], &[2], &[2], 1)).sin()),
        ("conv1d all", &[&[1, 4, 8], &[4, 2, 2], &[4]], SYM, |x| x[0].conv(&x[1], Some(&x[2]), &how(&[2], &[1], &[3], 2)).sin()),
        ("conv2d", &[&[1, 2, 4, 3], &[2, 2, 2, 2]], SYM, |x| x[0].conv2d(&x[1], None, &how(&[1, 2], &[1, 0], &[2, 1], 1)).sin()),
        ("depthwise", &[&[1, 3, 3, 3], &[3, 1, 2, 2]], SYM, |x| x[0].conv2d(&x[1], None, &how(&[1], &[1], &[1], 3)).sin()),
        ("conv3d", &[&[1, 1, 3, 2, 3], &[1, 1, 2, 2, 2]], SYM, |x| x[0].conv(&x[1], None, &how(&[2, 1, 1], &[1, 0, 0], &[1], 1)).sin()),
        ("conv_transpose", &[&[1, 2, 3], &[2, 2, 2], &[2]], SYM, |x| x[0].conv_transpose(&x[1], Some(&x[2]), &Conv::default()).sin()),
        ("conv_transpose all", &[&[1, 2, 2, 3], &[2, 1, 2, 3]], SYM, |x| {
            x[0].conv_transpose(&x[1], None, &Conv { output_padding: [1, 0].into(), ..how(&[2, 1], &[1, 2], &[1, 2], 2) }).sin()
        }),
        ("max_pool", &[&[1, 1, 4, 4]], SYM, |x| x[0].max_pool(2, (), 0, 1).sin()),
        ("max_pool overlapping", &[&[1, 5]], SYM, |x| x[0].max_pool([3], [1], 1, 1).sin()),
        ("max_pool of strided windows", &[&[1, 2, 5, 4]], SYM, |x| x[0].max_pool([3, 3], [2, 2], 1, 1).sin()),
        ("max_pool dilated", &[&[1, 1, 5, 4]], SYM, |x| x[0].max_pool([2, 2], [2, 1], [1, 0], [2, 1]).sin()),
        ("avg_pool", &[&[1, 1, 4, 4]], SYM, |x| x[0].avg_pool(2, (), 0, true).sin()),
        ("avg_pool padded", &[&[1, 1, 3, 4]], SYM, |x| x[0].avg_pool([2, 3], [1, 2], 1, true).sin()),
        ("avg_pool by what is there", &[&[1, 1, 3, 4]], SYM, |x| x[0].avg_pool([2, 3], [1, 2], 1, false).sin()),
    ]);
}

#[test]
#[rustfmt::skip]
fn normalisations() {
    check(&[
        ("layer_norm", &[&[2, 3, 2], &[3, 2], &[3, 2]], SYM, |x| x[0].layer_norm([3, 2], Some(&x[1]), Some(&x[2]), 1e-3)),
        ("rms_norm", &[&[2, 3], &[3]], SYM, |x| x[0].rms_norm([3], Some(&x[1]), 1e-3)),
        ("group_norm", &[&[2, 4, 2], &[4], &[4]], SYM, |x| x[0].group_norm(2, Some(&x[1]), Some(&x[2]), 1e-3)),
        ("instance_norm", &[&[2, 2, 3], &[2], &[2]], SYM, |x| x[0].instance_norm(Some(&x[1]), Some(&x[2]), 1e-3)),
        ("batch_norm_train", &[&[3, 2, 2], &[2], &[2]], SYM, |x| x[0].batch_norm_train(Some(&x[1]), Some(&x[2]), 1e-3).0),
        ("batch_norm_eval", &[&[3, 2, 2], &[2], &[2], &[2], &[2]], POS, |x| x[0].batch_norm_eval(Some(&x[1]), Some(&x[2]), &x[3], &x[4], 1e-3)),
    ]);
}

#[test]
fn at_ties() {
    monoglot_engine::set_default_device(Device::new("INTERP"));
    let x = Tensor::new(&[1.0f64, 3.0, 3.0, 2.0, 3.0, 0.0], [6]);
    let zero = Tensor::new(&[0.0f64, 6.0, -1.0, 1.0], [4]);
    let of = |y: Tensor, x: &Tensor| -> Vec<f64> {
        y.sum(.., false)
            .gradient(&[x])
            .expect("differentiates")
            .remove(0)
            .to_vec()
            .expect("f64")
    };
    let third = 1.0 / 3.0;
    for (got, want) in of(x.max(0, false), &x)
        .iter()
        .zip([0.0, third, third, 0.0, third, 0.0])
    {
        assert!((got - want).abs() < 1e-12, "{got} {want}");
    }
    assert_eq!(of(x.maximum(3.0), &x), [0.0, 0.5, 0.5, 0.0, 0.5, 0.0]);
    assert_eq!(of(x.minimum(3.0), &x), [1.0, 0.5, 0.5, 1.0, 0.5, 1.0]);
    // First of a pool's, last of a running maximum's, each its own in a sort.
    assert_eq!(
        of(x.max_pool([3], [1], 0, 1), &x),
        [0.0, 2.0, 1.0, 0.0, 1.0, 0.0]
    );
    assert_eq!(of(x.cummax(0), &x), [1.0, 1.0, 2.0, 0.0, 2.0, 0.0]);
    assert_eq!(
        of(
            x.sort(0, true) * Tensor::new(&[1.0f64, 2.0, 3.0, 4.0, 5.0, 6.0], [6]),
            &x
        ),
        [5.0, 1.0, 2.0, 4.0, 3.0, 6.0]
    );
    assert_eq!(of(x.topk(2, 0, true).0, &x), [0.0, 1.0, 1.0, 0.0, 0.0, 0.0]);
    assert_eq!(of(x.clamp(1.0, 3.0), &x), [1.0, 1.0, 1.0, 1.0, 1.0, 0.0]);
    // At kinks what the specification of the suite says.
    assert_eq!(of(zero.relu(), &zero), [0.0, 1.0, 0.0, 1.0]);
    assert_eq!(of(zero.relu6(), &zero), [0.0, 0.0, 0.0, 1.0]);
    assert_eq!(of(zero.hardtanh(), &zero), [1.0, 0.0, 0.0, 0.0]);
    assert_eq!(of(zero.abs() + zero.sign(), &zero), [0.0, 1.0, -1.0, 1.0]);
}

/// Where eˣ − 1 has rounded eˣ away its derivative has all digits.
#[test]
fn derivatives_of_exponentials_near_their_limit() {
    monoglot_engine::set_default_device(Device::new("INTERP"));
    let x = Tensor::new(&[-20f32, -60.0, -90.0], [3]).parameter();
    let functions: [fn(&Tensor) -> Tensor; 3] = [|x| x.expm1(), |x| x.elu(1.0), |x| x.celu(1.0)];
    for f in functions {
        let got = f(&x).sum(.., false).gradient(&[&x]).unwrap().remove(0);
        for (got, x) in got
            .to_vec::<f32>()
            .unwrap()
            .iter()
            .zip([-20f64, -60.0, -90.0])
        {
            assert!(
                (f64::from(*got) / x.exp() - 1.0).abs() < 1e-4,
                "{got} at {x}"
            );
        }
    }
}
