//! The operators over tensors with an axis whose length varies. Flows in: nothing; flows out: for each what it is
//! called, the shape it is given (`N` where it varies) and what it computes, and those that refuse.

use monoglot::prelude::*;
use monoglot::{Conv, Dims, Index, Interpolation, Size};

/// The axis that varies.
pub(crate) const N: i64 = -1;

/// What is computed of a tensor.
pub(crate) type Program = fn(&Tensor) -> Tensor;

/// Whether a gradient is asked for, too.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Flows {
    /// It is.
    Back,
    /// There is none.
    No,
}
use Flows::{Back, No};

/// Name, shape, program, gradient.
pub(crate) type Row = (&'static str, &'static [i64], Program, Flows);

/// Some numbers that are always the same.
pub(crate) fn fixed(shape: &[usize]) -> Tensor {
    let n: usize = shape.iter().product();
    let all: Vec<f32> = (0..n)
        .map(|i| ((i * 29 + 11) % 37) as f32 / 18.5 - 1.0)
        .collect();
    Tensor::new(&all, shape)
}

/// Places below `most`, one for each element of x, that depend on its elements.
fn places(x: &Tensor, most: i64) -> Tensor {
    let i = (x.abs() * 1000.0).cast(DType::I32);
    i.modulo(&(&i * 0 + most))
}

fn conv(stride: i64, padding: i64, dilation: i64) -> Conv {
    Conv {
        stride: Dims(vec![stride]),
        padding: Dims(vec![padding]),
        dilation: Dims(vec![dilation]),
        ..Conv::default()
    }
}

/// Rows that vary in number, and rows whose length varies.
pub(crate) const PLAIN: &[Row] = &[
    ("exp", &[N, 6], |x| x.exp(), Back),
    ("gelu", &[N, 6], |x| x.gelu(), Back),
    ("clamp", &[N, 6], |x| x.clamp(-0.5, 0.5), Back),
    (
        "where",
        &[N, 6],
        |x| x.lt(0.0).select(x.sin(), x * 2.0),
        Back,
    ),
    ("pow", &[2, N], |x| x.abs().pow(1.5), Back),
    (
        "broadcast",
        &[N, 6],
        |x| x * &fixed(&[6]) + x.mean(0, true),
        Back,
    ),
    ("cast", &[N, 6], |x| (x * 9.0).cast(DType::I32), No),
    (
        "bits",
        &[2, N],
        |x| x.bitcast(DType::U8).cast(DType::I32),
        No,
    ),
    ("sum", &[2, N], |x| x.sum(-1, false), Back),
    ("prod", &[2, N], |x| x.prod(-1, false), Back),
    ("prod of all", &[N, 3], |x| x.prod(.., false), Back),
    ("prod beside", &[N, 6], |x| x.prod(1, false), Back),
    ("max", &[N, 6], |x| x.max(0, false), Back),
    ("min", &[2, N], |x| x.min(1, false), Back),
    ("mean", &[2, N], |x| x.mean(.., false), Back),
    ("var", &[N, 6], |x| x.var(0, false, 0), Back),
    ("std", &[2, N], |x| x.std(1, false, 0), Back),
    ("any", &[2, N], |x| x.lt(-0.9).any(1, false), No),
    ("all", &[2, N], |x| x.lt(0.9).all(1, false), No),
    ("argmax", &[N, 6], |x| x.argmax(0, false), No),
    ("argmin", &[2, N], |x| x.argmin(1, true), No),
    ("logsumexp", &[2, N], |x| x.logsumexp(1, false), Back),
    ("softmax", &[2, N], |x| x.softmax(-1), Back),
    ("softmax beside", &[N, 6], |x| x.softmax(-1), Back),
    ("log softmax", &[N, 6], |x| x.log_softmax(0), Back),
    ("cumsum", &[N, 6], |x| x.cumsum(0), Back),
    ("cumsum of rows", &[2, N], |x| x.cumsum(1), Back),
    ("cumsum beside", &[N, 6], |x| x.cumsum(1), Back),
    ("cumprod", &[N, 3], |x| x.cumprod(0), Back),
    ("cumprod beside", &[N, 6], |x| x.cumprod(1), Back),
    ("cummax", &[2, N], |x| x.cummax(1), Back),
    ("cummax beside", &[N, 6], |x| x.cummax(1), Back),
    ("sort", &[2, N], |x| x.sort(1, false), Back),
    ("sort beside", &[N, 6], |x| x.sort(1, true), Back),
    ("long sort beside", &[N, 70], |x| x.sort(1, false), Back),
    ("argsort", &[N, 6], |x| x.argsort(0, true), No),
    ("argsort beside", &[N, 6], |x| x.argsort(1, false), No),
    ("unique", &[N], |x| x.floor().unique().values, No),
    ("counts", &[2, N], |x| x.floor().unique().counts, No),
    ("inverse", &[N, 3], |x| x.floor().unique().inverse, No),
    ("topk", &[2, N], |x| x.topk(1, 1, true).0, Back),
    ("topk beside", &[N, 6], |x| x.topk(3, 1, true).0, Back),
    (
        "topk of many beside",
        &[N, 200],
        |x| x.topk(3, 1, false).0,
        Back,
    ),
    (
        "places of topk beside",
        &[N, 200],
        |x| x.topk(2, 1, true).1,
        No,
    ),
    (
        "layer norm",
        &[N, 6],
        |x| x.layer_norm(6, None, None, 1e-5),
        Back,
    ),
    (
        "rms norm",
        &[N, 6],
        |x| x.rms_norm(6, Some(&fixed(&[6])), 1e-5),
        Back,
    ),
    (
        "group norm",
        &[N, 4, 3],
        |x| x.group_norm(2, None, None, 1e-5),
        Back,
    ),
    (
        "group norm of lengths",
        &[2, 4, N],
        |x| x.group_norm(2, None, None, 1e-2),
        Back,
    ),
    (
        "instance norm",
        &[2, 3, N],
        |x| x.instance_norm(None, None, 1e-2),
        Back,
    ),
    (
        "batch norm",
        &[N, 3, 4],
        |x| x.batch_norm_train(None, None, 1e-3).0,
        Back,
    ),
    (
        "batch norm of rows",
        &[N, 6],
        |x| x.batch_norm_eval(None, None, &fixed(&[6]), &fixed(&[6]).abs(), 0.1),
        Back,
    ),
    ("matmul", &[N, 6], |x| x.matmul(&fixed(&[6, 5])), Back),
    ("matmul over the length", &[N, 6], |x| x.t().matmul(x), Back),
    ("gram", &[N, 6], |x| x.matmul(&x.t()), Back),
    (
        "linear",
        &[N, 6],
        |x| x.linear(&fixed(&[4, 6]), Some(&fixed(&[4]))),
        Back,
    ),
    (
        "einsum",
        &[N, 6],
        |x| Tensor::einsum("ij,kj->ik", &[x, &fixed(&[5, 6])]),
        Back,
    ),
    (
        "einsum over the length",
        &[N, 6],
        |x| Tensor::einsum("ij,ik->jk", &[x, x]),
        Back,
    ),
    (
        "einsum of an ellipsis",
        &[2, N],
        |x| Tensor::einsum("...,...->...", &[x, x]),
        Back,
    ),
    (
        "trace by einsum",
        &[N, 6],
        |x| Tensor::einsum("ii", &[&x.matmul(&x.t())]),
        Back,
    ),
    (
        "attention",
        &[2, N, 4],
        |x| x.attention(&x.sin(), &fixed(&[4]).mul(x), None, true),
        Back,
    ),
    (
        "masked attention",
        &[2, N, 4],
        |x| {
            let seen = x.sum(-1, false).gt(-0.5).unsqueeze(1);
            x.attention(x, x, Some(&seen), false)
        },
        Back,
    ),
    (
        "batched attention",
        &[N, 3, 4],
        |x| x.attention(x, x, None, false),
        Back,
    ),
];

/// Elements elsewhere.
pub(crate) const MOVED: &[Row] = &[
    ("reshape", &[N, 6], |x| x.reshape([-1, 3, 2]), Back),
    ("flatten", &[2, N, 3], |x| x.flatten(0, 2).square(), Back),
    (
        "unflatten",
        &[N, 6],
        |x| x.unflatten(1, [2, 3]).transpose(0, 1),
        Back,
    ),
    (
        "permute",
        &[2, N, 3],
        |x| x.permute([2, 0, 1]).contiguous(),
        Back,
    ),
    (
        "expand",
        &[N, 6],
        |x| x.unsqueeze(0).expand([3, -1, 6]) * 2.0,
        Back,
    ),
    ("flip", &[N, 6], |x| x.flip([0, 1]), Back),
    ("narrow", &[N, 6], |x| x.narrow(1, 2, 3), Back),
    ("slice from", &[N, 6], |x| x.index(1..), Back),
    ("slice to", &[N, 6], |x| x.index(..-1), Back),
    ("slice to three", &[N, 6], |x| x.index(..3), Back),
    ("slice the last", &[2, N], |x| x.index((.., -3..)), Back),
    (
        "slice by steps",
        &[N, 6],
        |x| x.index(Index::step(None, None, 2)),
        Back,
    ),
    (
        "slice by three",
        &[N, 6],
        |x| x.index(Index::step(1, None, 3)),
        Back,
    ),
    (
        "slice backwards",
        &[2, N],
        |x| x.index((.., Index::step(None, None, -2))),
        Back,
    ),
    ("the last", &[N, 6], |x| x.index(-1), Back),
    ("repeat", &[N, 3], |x| x.repeat([2, 3]), Back),
    ("repeat in front", &[2, N], |x| x.repeat([3, 1, 2]), Back),
    (
        "repeat interleave",
        &[N, 3],
        |x| x.repeat_interleave(3, 0),
        Back,
    ),
    (
        "repeat interleave beside",
        &[N, 3],
        |x| x.repeat_interleave(2, 1),
        Back,
    ),
    ("roll", &[N, 6], |x| x.roll(2, 0), Back),
    ("roll back", &[2, N], |x| x.roll(-3, 1), Back),
    ("roll beside", &[N, 6], |x| x.roll([1, 4], [0, 1]), Back),
    (
        "cat",
        &[N, 6],
        |x| Tensor::cat(&[x, &x.exp(), &fixed(&[2, 6])], 0),
        Back,
    ),
    (
        "cat beside",
        &[N, 6],
        |x| Tensor::cat(&[x, &(x * 2.0)], 1),
        Back,
    ),
    (
        "cat of sizes beside",
        &[N, 6],
        |x| Tensor::cat(&[x, &x.narrow(1, 0, 2)], 1),
        Back,
    ),
    ("stack", &[N, 6], |x| Tensor::stack(&[x, &x.sin()], 1), Back),
    (
        "split beside",
        &[N, 6],
        |x| x.split([4, 2], 1).remove(1),
        Back,
    ),
    (
        "split",
        &[N, 6],
        |x| {
            let n = x.size(0).expect("an axis");
            Tensor::cat(&[x, x], 0).split([n.clone(), n], 0).remove(1)
        },
        Back,
    ),
    ("chunk beside", &[N, 6], |x| x.chunk(3, 1).remove(2), Back),
    (
        "pad",
        &[N, 6],
        |x| x.pad(&[[2, 1], [0, 3]], PadMode::Constant(0.5)),
        Back,
    ),
    (
        "pad and flatten",
        &[N, 6],
        |x| {
            x.pad(&[[2, 1], [0, 0]], PadMode::Constant(0.5))
                .flatten(0, 1)
        },
        Back,
    ),
    (
        "pad by reflection beside",
        &[N, 6],
        |x| x.pad(&[[2, 1]], PadMode::Reflect),
        Back,
    ),
    (
        "pad by the edge",
        &[2, N],
        |x| x.pad(&[[2, 1]], PadMode::Replicate),
        Back,
    ),
    (
        "pad around",
        &[2, N],
        |x| x.pad(&[[1, 1]], PadMode::Circular),
        Back,
    ),
    ("tril", &[2, N], |x| x.tril(0), Back),
    ("triu", &[N, 6], |x| x.triu(1), Back),
    ("diag", &[N], |x| x.diag(), Back),
    ("diagonal", &[N, 6], |x| x.matmul(&x.t()).diagonal(), Back),
    ("diagonal of rows", &[N, 6], |x| x.diagonal(), Back),
    ("unfold beside", &[N, 6], |x| x.unfold(1, 3, 2), Back),
    ("gather", &[N, 6], |x| x.gather(1, &places(x, 6)), Back),
    (
        "index select",
        &[N, 6],
        |x| x.index_select(1, &Tensor::new(&[5i32, 0, 0], [3])),
        Back,
    ),
    (
        "rows by number",
        &[N, 6],
        |x| x.index_select(0, &Tensor::new(&[0i32, 0], [2])),
        Back,
    ),
    (
        "rows by data",
        &[N, 6],
        |x| {
            let i = places(&x.sum(1, false), 1);
            x.index(&i)
        },
        Back,
    ),
    (
        "embedding",
        &[N, 2],
        |x| fixed(&[7, 3]).embedding(&places(x, 7)),
        No,
    ),
    (
        "scatter",
        &[N, 6],
        |x| x.scatter(1, &places(x, 6), &(x * 3.0)),
        Back,
    ),
    (
        "scatter add",
        &[N, 6],
        |x| x.scatter_add(1, &places(x, 6), x),
        Back,
    ),
    (
        "scatter add of rows",
        &[N, 3],
        |x| fixed(&[5, 3]).scatter_add(0, &places(x, 5), x),
        Back,
    ),
    ("one hot", &[N], |x| places(x, 4).one_hot(4), No),
    (
        "masked fill",
        &[2, N],
        |x| x.masked_fill(&x.gt(0.5), 0.25),
        Back,
    ),
];

/// Windows, losses and random numbers.
pub(crate) const OTHERS: &[Row] = &[
    (
        "conv of images",
        &[N, 2, 5, 5],
        |x| x.conv2d(&fixed(&[3, 2, 3, 3]), Some(&fixed(&[3])), &conv(1, 1, 1)),
        Back,
    ),
    (
        "conv of images by steps",
        &[N, 2, 6, 5],
        |x| x.conv2d(&fixed(&[3, 2, 3, 3]), None, &conv(2, 1, 1)),
        Back,
    ),
    (
        "conv",
        &[2, 2, N],
        |x| x.conv(&fixed(&[3, 2, 3]), None, &conv(1, 1, 1)),
        Back,
    ),
    (
        "conv by steps",
        &[2, 2, N],
        |x| x.conv(&fixed(&[3, 2, 3]), None, &conv(2, 1, 1)),
        Back,
    ),
    (
        "conv by wide steps",
        &[1, 2, N],
        |x| x.conv(&fixed(&[3, 2, 2]), None, &conv(3, 1, 1)),
        Back,
    ),
    (
        "dilated conv",
        &[2, 2, N],
        |x| x.conv(&fixed(&[3, 2, 3]), None, &conv(1, 2, 2)),
        Back,
    ),
    (
        "conv in groups",
        &[N, 4, 6],
        |x| {
            let how = Conv {
                groups: 2,
                ..conv(1, 1, 1)
            };
            x.conv(&fixed(&[4, 2, 3]), None, &how)
        },
        Back,
    ),
    (
        "transposed conv",
        &[2, 2, N],
        |x| x.conv_transpose(&fixed(&[2, 3, 3]), None, &conv(1, 1, 1)),
        Back,
    ),
    (
        "transposed conv by steps",
        &[2, 2, N],
        |x| x.conv_transpose(&fixed(&[2, 3, 3]), None, &conv(2, 1, 1)),
        Back,
    ),
    (
        "transposed conv of images",
        &[N, 2, 4, 4],
        |x| x.conv_transpose(&fixed(&[2, 3, 3, 3]), None, &conv(2, 1, 1)),
        Back,
    ),
    (
        "max pool of images",
        &[N, 2, 6, 6],
        |x| x.max_pool(2, (), 0, 1),
        Back,
    ),
    ("max pool", &[2, 2, N], |x| x.max_pool(3, 2, 1, 1), Back),
    (
        "avg pool of images",
        &[N, 2, 6, 6],
        |x| x.avg_pool(3, 2, 1, true),
        Back,
    ),
    ("avg pool", &[2, 2, N], |x| x.avg_pool(3, 1, 1, false), Back),
    (
        "interpolate images",
        &[N, 2, 4, 4],
        |x| {
            x.interpolate(
                [7, 3],
                Interpolation::Linear {
                    align_corners: false,
                },
            )
        },
        Back,
    ),
    (
        "nearest",
        &[2, N],
        |x| x.interpolate(5, Interpolation::Nearest),
        Back,
    ),
    (
        "linear interpolation",
        &[2, N],
        |x| {
            x.interpolate(
                5,
                Interpolation::Linear {
                    align_corners: true,
                },
            )
        },
        Back,
    ),
    (
        "cubic interpolation",
        &[2, N],
        |x| {
            x.interpolate(
                5,
                Interpolation::Cubic {
                    align_corners: false,
                },
            )
        },
        Back,
    ),
    (
        "mean of areas",
        &[2, N],
        |x| x.interpolate(3, Interpolation::Area),
        Back,
    ),
    (
        "cross entropy",
        &[N, 4],
        |x| x.cross_entropy(&places(&x.sum(1, false), 4), Reduction::Mean, 0.1),
        Back,
    ),
    (
        "cross entropy of probabilities",
        &[N, 4],
        |x| x.cross_entropy(&x.detach().softmax(1), Reduction::Mean, 0.1),
        Back,
    ),
    (
        "cross entropy over the length",
        &[2, N],
        |x| x.cross_entropy(&x.detach().softmax(1), Reduction::Sum, 0.1),
        Back,
    ),
    (
        "nll loss",
        &[N, 4],
        |x| x.nll_loss(&places(&x.sum(1, false), 4), Reduction::None),
        Back,
    ),
    (
        "mse loss",
        &[N, 4],
        |x| x.mse_loss(&x.detach().sin(), Reduction::Mean),
        Back,
    ),
    (
        "l1 loss",
        &[2, N],
        |x| x.l1_loss(&x.detach().sin(), Reduction::Mean),
        Back,
    ),
    (
        "bce with logits",
        &[2, N],
        |x| x.bce_with_logits(&x.detach().sigmoid(), Reduction::Sum),
        Back,
    ),
    ("dropout", &[N, 6], |x| x.dropout(0.4), Back),
    ("dropout of rows", &[2, N], |x| x.dropout(0.4), Back),
    ("rand", &[N, 6], |x| x + random(x, Tensor::rand), Back),
    ("randn", &[2, N], |x| x * random(x, Tensor::randn), Back),
    (
        "twice random",
        &[N, 3],
        |x| random(x, Tensor::randn) + random(x, Tensor::rand) * x,
        Back,
    ),
    (
        "a permutation",
        &[N],
        |x| x.index(&Tensor::permutation(x.size(0).expect("an axis"))),
        Back,
    ),
];

/// Random numbers of a tensor's sizes.
fn random(x: &Tensor, of: fn(Vec<Size>) -> Tensor) -> Tensor {
    let axes = x.ndim().expect("it is a tensor") as i64;
    let sizes = (0..axes).map(|a| x.size(a).expect("an axis"));
    of(sizes.collect())
}

/// What takes no such length, and what its error says.
pub(crate) const REFUSED: &[(&str, &[i64], Program, &str)] = &[
    (
        "chunk",
        &[N, 6],
        |x| x.chunk(2, 0).remove(0),
        "which varies",
    ),
    ("split", &[N, 6], |x| x.split([1, 2], 0).remove(0), "split"),
    (
        "pad",
        &[N, 6],
        |x| x.pad(&[[1, 1], [0, 0]], PadMode::Reflect),
        "let its length begin later",
    ),
    (
        "pad",
        &[N, 6],
        |x| x.pad(&[[-1, 2], [0, 0]], PadMode::Replicate),
        "`narrow` cuts it",
    ),
    (
        "windows",
        &[2, N],
        |x| x.unfold(1, 3, 1),
        "let its length begin later",
    ),
    (
        "windows",
        &[2, 2, N],
        |x| x.conv(&fixed(&[3, 2, 3]), None, &conv(1, 0, 1)),
        "or pad it",
    ),
    (
        "group_norm",
        &[2, N],
        |x| x.group_norm(2, None, None, 1e-5),
        "which varies",
    ),
    (
        "attention",
        &[2, N],
        |x| x.attention(x, x, None, false),
        "which varies",
    ),
    (
        "cross_entropy",
        &[2, N],
        |x| x.cross_entropy(&Tensor::new(&[0i32, 0], [2]), Reduction::Mean, 0.0),
        "does not vary",
    ),
    (
        "conv",
        &[2, N, 5],
        |x| x.conv(&fixed(&[3, 2, 3]), None, &conv(1, 1, 1)),
        "which varies",
    ),
    ("BITCAST", &[2, N], |x| x.bitcast(DType::F64), "as f64"),
];
