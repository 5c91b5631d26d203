//! Bad input: each a typed error with the user's line, and no panic. A row is the kind of the
//! error, a part of its text, and what is refused, written on the line that the error must name.
//! Flows in: the table; flows out: a failed test that names the row.

use monoglot_tensor::*;
use std::panic::Location;

/// What can carry an error.
trait Outcome {
    fn error(self) -> Option<Error>;
}
impl Outcome for Tensor {
    fn error(self) -> Option<Error> {
        self.check().err()
    }
}
impl<T> Outcome for Result<T> {
    fn error(self) -> Option<Error> {
        self.err()
    }
}
impl Outcome for Vec<Tensor> {
    fn error(self) -> Option<Error> {
        self.into_iter().find_map(|t| t.check().err())
    }
}
impl Outcome for (Tensor, Tensor) {
    fn error(self) -> Option<Error> {
        assert!(self.1.check().is_err());
        self.0.check().err()
    }
}

#[track_caller]
fn refused(kind: &str, text: &str, what: impl Outcome) {
    let here = Location::caller();
    let e = what
        .error()
        .unwrap_or_else(|| panic!("line {}: accepted", here.line()));
    assert!(
        format!("{:?}", e.kind()).starts_with(kind),
        "line {}: {:?}",
        here.line(),
        e.kind()
    );
    assert!(
        e.to_string().contains(text),
        "line {}: {e} has no {text}",
        here.line()
    );
    let at = e.location().map(|l| (l.file(), l.line()));
    assert_eq!(at, Some((here.file(), here.line())), "{e}");
}

fn setup() -> (Tensor, Tensor, Tensor) {
    monoglot_engine::set_default_device(Device::new("INTERP"));
    let f = Tensor::new(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3]);
    (
        f,
        Tensor::new(&[1i32, 0, 2, 1, 0, 2], [2, 3]),
        Tensor::new(&[true, false], [2]),
    )
}

const FAR: i64 = i64::MAX;

#[test]
#[rustfmt::skip]
fn shapes() {
    let (f, i, b) = setup();
    let t = |s: &[i64]| Tensor::zeros(s);
    refused("Shape", "add: shapes (2, 3) and (4,)", &f + &t(&[4]));
    refused("Shape", "where", b.select(&f, 0.0));
    refused("Shape", "masked_fill", f.masked_fill(&t(&[4]).gt(0), 1.0));
    refused("Shape", "broadcast", f.broadcast_like(&t(&[4])));
    refused("Shape", "expand", f.expand([2]));
    refused("Shape", "EXPAND", f.expand([2, 6]));
    refused("Argument", "expand", t(&[1]).expand([-3]));
    refused("Argument", "expand", t(&[1, 1]).expand([FAR, 4]));
    refused("Shape", "matmul: shapes (2, 3) and (2, 3)", f.matmul(&f));
    refused("Shape", "(2, 3) and (2, 3): 3 columns meet 2 rows", f.matmul(&f));
    refused("Shape", "matmul", f.matmul(&t(&[4])));
    refused("Shape", "matmul", t(&[2, 4, 5]).matmul(&t(&[3, 5, 4])));
    refused("Shape", "the axes before the last two do not broadcast", t(&[2, 4, 5]).matmul(&t(&[3, 5, 4])));
    let image = Tensor::ones([1, 1, 4, 4]);
    let kernel = Tensor::ones([4, 1, 3, 3]);
    let in_groups = |groups| Conv { groups, ..Conv::default() };
    for (why, shape, weights, groups) in [
        ("3 channels, where weights with groups: 1 take 2", &[1, 3, 4, 4][..], &[4, 2, 3, 3][..], 1),
        ("4 channels, where weights with groups: 2 take 6", &[1, 4, 4, 4], &[4, 3, 3, 3], 2),
        ("groups: 3 does not divide the 4 along", &[1, 6, 4, 4], &[4, 2, 3, 3], 3),
        ("groups: 0 does not divide", &[1, 1, 4, 4], &[4, 1, 3, 3], 0),
        ("3 axes with weights of 4", &[3, 4, 4], &[4, 3, 3, 3], 1),
        ("2 axes with weights of 4", &[3, 4], &[4, 3, 3, 3], 1),
    ] {
        refused("Shape", why, t(shape).conv2d(&t(weights), None, &in_groups(groups)));
    }
    refused("Shape", "2 channels, where weights with groups: 1 take 3", t(&[1, 2, 4, 4]).conv_transpose(&t(&[3, 2, 3, 3]), None, &Conv::default()));
    for bias in [Tensor::ones([1]), Tensor::ones([2, 2])] {
        refused("Shape", "for the channels of shape (1, 4, 2, 2)", image.conv2d(&kernel, Some(&bias), &Conv::default()));
    }
    refused("Shape", "probabilities", f.cross_entropy(&Tensor::ones([3]), Reduction::Mean, 0.0));
    refused("Shape", "which i32 does not hold", Tensor::arange(0, 1 << 32, 1).argmax(0, false));
    refused("DType", "void", f.cast(DType::Void));
    refused("Shape", "a scalar multiplies", f.matmul(&t(&[])));
    refused("Shape", "matmul", t(&[2]).dot(&t(&[3])));
    refused("Shape", "the last axes differ", f.linear(&t(&[4, 4]), None));
    refused("Shape", "add", f.linear(&t(&[4, 3]), Some(&t(&[5]))));
    refused("Shape", "RESHAPE", f.reshape([4]));
    refused("Shape", "reshape", f.reshape([-1, 4]));
    refused("Argument", "reshape", f.reshape([-2, 3]));
    refused("Argument", "reshape", f.reshape([FAR, FAR]));
    refused("Shape", "reshape", f.reshape([-1, -1]));
    refused("Shape", "reshape", t(&[0]).reshape([0, -1]));
    refused("Shape", "RESHAPE", f.unflatten(1, [2, 2]));
    refused("Argument", "PERMUTE", f.permute([0, 0]));
    refused("Argument", "PERMUTE", f.permute([1]));
    refused("Argument", "after axis", f.flatten(1, 0));
    refused("Shape", "cat: shapes (2, 3) and (3, 2)", Tensor::cat(&[&f, &f.t()], 0));
    refused("Shape", "cat", Tensor::cat(&[&f, &t(&[3])], 0));
    refused("Shape", "stack", Tensor::stack(&[&f, &f.t()], 0));
    refused("Shape", "stack", Tensor::stack(&[&f, &t(&[])], 2));
    refused("Argument", "no tensors", Tensor::cat(&[], 0));
    refused("Argument", "no tensors", Tensor::stack(&[], 0));
    refused("Shape", "split", f.split([1, 1], 1));
    refused("Argument", "narrow", f.split([5, -2], 1));
    refused("Shape", "split", f.split([FAR, FAR, 5], 1));
    refused("Argument", "chunk", f.chunk(0, 1));
    refused("Argument", "chunk", f.chunk(-1, 1));
    refused("Shape", "is no matrix", t(&[3]).diagonal());
    refused("Shape", "is no vector or matrix", t(&[2, 2, 2]).diag());
    refused("Shape", "tril", t(&[3]).tril(0));
    refused("Shape", "triu", t(&[3]).triu(0));
    refused("Shape", "windows", f.unfold(1, 4, 1));
    refused("Argument", "windows", f.unfold(1, 2, 0));
    refused("Argument", "windows", f.unfold(1, -1, 1));
    let image = t(&[1, 1, 4, 4]);
    refused("Argument", "more than half", image.max_pool([2, 2], [2, 2], [2, 2], [1, 1]));
    refused("Argument", "more than half", image.avg_pool([3], [1], [2], false));
    refused("Argument", "pads", f.pad(&[[0, 0], [0, 0], [1, 1]], PadMode::Constant(0.0)));
    let bytes = Tensor::new(&[1u8, 2], [2]);
    refused("DType", "holds 0 to 255", bytes.pad(&[[1, 1]], PadMode::Constant(300.0)));
    refused("DType", "NaN around", bytes.pad(&[[1, 1]], PadMode::Constant(f64::NAN)));
    refused("DType", "inf around", bytes.pad(&[[1, 1]], PadMode::Constant(f64::INFINITY)));
    let below = bytes.pad(&[[1, 1]], PadMode::Constant(-1.0));
    assert_eq!(below.to_vec::<u8>().unwrap(), [255, 1, 2, 255]);
    refused("DType", "`masked_fill`", bytes.index(&bytes.gt(1)));
    refused("Argument", "pad", f.pad(&[[-3, -1]], PadMode::Constant(0.0)));
    refused("Argument", "pad", f.pad(&[[i64::MIN, 0]], PadMode::Constant(0.0)));
    refused("Argument", "pad", f.pad(&[[FAR, FAR]], PadMode::Constant(0.0)));
    refused("Argument", "Reflect", f.pad(&[[3, 0]], PadMode::Reflect));
    refused("Argument", "Circular", f.pad(&[[4, 0]], PadMode::Circular));
    refused("Argument", "Replicate", t(&[0]).pad(&[[1, 0]], PadMode::Replicate));
    refused("Argument", "repeat", f.repeat([2]));
    refused("Argument", "repeat", f.repeat([-1, 2]));
    refused("Argument", "repeat", f.repeat([FAR, 2]));
    refused("Argument", "repeat_interleave", f.repeat_interleave(-1, 0));
    refused("Argument", "repeat_interleave", f.repeat_interleave(FAR, 0));
    refused("Argument", "roll", f.roll([1, 2], [0]));
    refused("Shape", "gather", f.gather(1, &t(&[3, 1]).cast(DType::I32)));
    refused("Shape", "gather", f.gather(1, &t(&[3]).cast(DType::I32)));
    refused("Shape", "scatter", f.scatter(1, &i, &t(&[2, 2])));
    refused("Shape", "scatter_add", f.scatter_add(1, &i, &t(&[3])));
    refused("Shape", "cross_entropy", f.cross_entropy(&t(&[3]).cast(DType::I32), Reduction::Mean, 0.0));
    refused("Shape", "nll_loss", t(&[]).nll_loss(&t(&[]).cast(DType::I32), Reduction::Sum));
    refused("Shape", "sub", f.mse_loss(&t(&[4]), Reduction::Mean));
    refused("Shape", "bce_with_logits", f.bce_with_logits(&t(&[3]), Reduction::Mean));
    refused("Argument", "sort: an axis of 17179869184", Tensor::zeros([1i64 << 34]).sort(0, false));
    refused("Argument", "sort: an axis of", Tensor::zeros([2, 1i64 << 31]).argsort(1, true));
    refused("Shape", "layer_norm", f.layer_norm([2], None, None, 1e-5));
    refused("Shape", "layer_norm", f.layer_norm((), None, None, 1e-5));
    refused("Shape", "layer_norm: a weight of shape (2,)", f.layer_norm([3], Some(&t(&[2])), None, 1e-5));
    refused("Shape", "layer_norm: a bias of shape (2, 1)", f.layer_norm([3], None, Some(&t(&[2, 1])), 1e-5));
    refused("Shape", "rms_norm: a weight of shape (2, 2, 3)", f.rms_norm([3], Some(&t(&[2, 2, 3])), 1e-5));
    refused("Shape", "linear: a bias that makes (7, 2, 4)", f.linear(&t(&[4, 3]), Some(&t(&[7, 1, 1]))));
    refused("Shape", "rms_norm", f.rms_norm([4], None, 1e-5));
    refused("Shape", "group_norm", t(&[2, 3, 4]).group_norm(2, None, None, 1e-5));
    refused("Shape", "group_norm", t(&[2, 3, 4]).group_norm(0, None, None, 1e-5));
    refused("Shape", "per channel", t(&[2, 4, 4]).group_norm(2, Some(&t(&[3])), None, 1e-5));
    refused("Shape", "per channel", t(&[2, 4, 4]).group_norm(2, None, Some(&t(&[3])), 1e-5));
    refused("Shape", "instance_norm", f.instance_norm(None, None, 1e-5));
    refused("Shape", "batch_norm", t(&[3]).batch_norm_train(None, None, 1e-5).0);
    refused("Shape", "batch_norm", t(&[3]).batch_norm_train(None, None, 1e-5).2);
    refused("Shape", "per channel", f.batch_norm_eval(None, None, &t(&[2]), &t(&[3]), 1e-5));
    refused("Shape", "attention: queries (2, 3), keys (2, 4)", f.attention(&t(&[2, 4]), &f, None, false));
    refused("Shape", "attention: queries (2, 3), keys (2, 3)", f.attention(&f, &t(&[4, 3]), None, false));
    refused("Axis", "transpose", t(&[3]).attention(&t(&[3]), &t(&[3]), None, true));
    refused("Shape", "attention", t(&[3]).attention(&f, &f, None, true));
    refused("Shape", "assign", t(&[3]).assign(&f));
    refused("Shape", "of shape (2,) for shape (3,)", f.set_at(0, t(&[2])));
}

#[test]
#[rustfmt::skip]
fn convolutions_and_pools() {
    setup();
    let t = |s: &[i64]| Tensor::zeros(s);
    let x = t(&[1, 4, 5, 5]);
    let how = |s: &[i64], p: &[i64], d: &[i64], groups: i64| Conv { stride: s.into(), padding: p.into(), dilation: d.into(), groups, ..Conv::default() };
    let plain = Conv::default();
    refused("Shape", "conv", x.conv(&t(&[2, 3, 3, 3]), None, &plain));
    refused("Shape", "conv", x.conv(&t(&[2, 4, 3]), None, &plain));
    refused("Shape", "conv", t(&[4, 5]).conv(&t(&[2, 4]), None, &plain));
    refused("Shape", "windows", x.conv(&t(&[2, 4, 6, 3]), None, &plain));
    refused("Argument", "windows", x.conv(&t(&[2, 4, 0, 3]), None, &plain));
    refused("Shape", "for the channels", x.conv(&t(&[2, 4, 3, 3]), Some(&t(&[3])), &plain));
    refused("Argument", "stride", x.conv(&t(&[2, 4, 3, 3]), None, &how(&[0], &[0], &[1], 1)));
    refused("Argument", "stride", x.conv(&t(&[2, 4, 3, 3]), None, &how(&[1, 1, 1], &[0], &[1], 1)));
    refused("Argument", "padding", x.conv(&t(&[2, 4, 3, 3]), None, &how(&[1], &[-1], &[1], 1)));
    refused("Argument", "dilation", x.conv(&t(&[2, 4, 3, 3]), None, &how(&[1], &[0], &[FAR], 1)));
    refused("Shape", "groups: 3", x.conv(&t(&[2, 4, 3, 3]), None, &how(&[1], &[0], &[1], 3)));
    refused("Shape", "groups: 0", x.conv(&t(&[2, 4, 3, 3]), None, &how(&[1], &[0], &[1], 0)));
    refused("Shape", "groups", x.conv(&t(&[0, 4, 3, 3]), None, &how(&[1], &[0], &[1], FAR)));
    refused("Shape", "conv_transpose", x.conv_transpose(&t(&[2, 4, 3, 3]), None, &plain));
    refused("Argument", "output_padding", x.conv_transpose(&t(&[4, 2, 3, 3]), None, &Conv { output_padding: (-1).into(), ..Conv::default() }));
    refused("Argument", "pad", x.conv_transpose(&t(&[4, 2, 3, 3]), None, &how(&[1], &[7], &[1], 1)));
    refused("Shape", "max_pool", t(&[3]).max_pool([2, 2], (), 0, 1));
    refused("Shape", "windows", x.max_pool([6, 2], (), 0, 1));
    refused("Argument", "kernel", x.max_pool(0, (), 0, 1));
    refused("Argument", "dilation", x.max_pool(2, 1, 0, 0));
    refused("Argument", "padding", x.avg_pool(2, 1, -1, true));
    refused("Argument", "stride", x.avg_pool([2, 2], [1, 1, 1], 0, true));
    refused("Argument", "interpolate", x.interpolate([0, 5], Interpolation::Nearest));
    refused("Argument", "interpolate", x.interpolate([1, 1, 1, 1, 1], Interpolation::Nearest));
    refused("Argument", "interpolate", x.interpolate([-5, 5], Interpolation::Linear { align_corners: true }));
}

/// Sets of axes are bits of a word, and numbers of axes bytes: more are refused, however they come to be.
#[test]
#[rustfmt::skip]
fn too_many_axes() {
    let (f, ..) = setup();
    let most = Tensor::ones(vec![1i64; 64]);
    assert_eq!(most.flip(63).sum(63, false).to_vec::<f32>().unwrap(), [1.0]);
    refused("Shape", "65 axes, where 64 are the most", most.unsqueeze(0));
    refused("Shape", "65 axes", Tensor::zeros(vec![1i64; 65]));
    refused("Shape", "65 axes", Tensor::zeros(vec![1i64; 65]).flip(64));
    refused("Shape", "65 axes", Tensor::new(&[1.0f32], vec![1i64; 65]));
    refused("Shape", "300 axes", Tensor::empty(vec![1i64; 300], DType::F32, Device::new("INTERP")));
    refused("Shape", "300 axes", f.index(0).index(0).reshape(vec![1i64; 300]));
    refused("Shape", "300 axes", f.index((0, 0)).expand(vec![1i64; 300]).sum(299, false));
    refused("Shape", "65 axes", Tensor::stack(&[&most, &most], 0));
    refused("Shape", "65 axes", most.cast(DType::I32).one_hot(3));
    refused("Shape", "65 axes", f.index((0, 0)).index(vec![Index::NewAxis; 70]).gather(0, &f));
}

#[test]
#[rustfmt::skip]
fn dtypes() {
    let (f, i, b) = setup();
    refused("DType", "NOT", f.bitwise_not());
    refused("DType", "AND", &f & 1);
    refused("DType", "SHL", f.shl(1.5));
    refused("DType", "logical_not", -&b);
    refused("DType", "sub: two bools", &b - &b);
    refused("DType", "pow: two bools", b.pow(&b));
    refused("DType", "modulo: two bools", &b % true);
    refused("DType", "gather", f.gather(1, &f));
    refused("DType", "scatter", f.scatter(1, &f, &f));
    refused("DType", "values of f32 into i32", i.scatter(1, &i, &f));
    refused("DType", "index", f.index_select(0, &f));
    refused("DType", "attention: a mask of i32", f.attention(&f, &f, Some(&i), false));
    refused("DType", "index", f.index(&b));
    refused("DType", "one_hot", f.one_hot(3));
    refused("DType", "dropout", i.dropout(0.5));
    refused("Shape", "BITCAST", b.bitcast(DType::F32));
    refused("Shape", "cross_entropy", f.cross_entropy(&b, Reduction::Mean, 0.0));
    refused("Shape", "bce_with_logits", i.bce_with_logits(&i, Reduction::Mean));
    refused("DType", "a tensor of f32 read as i32; cast it first", f.to_vec::<i32>());
    refused("DType", "read as f64", f.item::<f64>());
    refused("Shape", "item: 6 elements", f.item::<f32>());
    refused("Shape", "item: 0 elements", Tensor::zeros([0]).item::<f32>());
}

#[test]
#[rustfmt::skip]
fn axes_and_indices() {
    let (f, i, _) = setup();
    refused("Axis", "axis 2 of a tensor with 2 axes", f.sum(2, false));
    refused("Axis", "axis -3", f.mean([0, -3], true));
    refused("Argument", "axis 1 twice", f.var([1, -1], false, 1));
    refused("Axis", "softmax", f.softmax(2));
    refused("Axis", "log_softmax", f.log_softmax(-3));
    refused("Axis", "argmax", f.argmax(7, false));
    refused("Axis", "cumsum", f.cumsum(2));
    refused("Axis", "cumprod", Tensor::zeros(()).cumprod(1));
    refused("Axis", "cummax", f.cummax(FAR));
    refused("Axis", "sort", f.sort(2, true));
    refused("Axis", "sort", f.argsort(i64::MIN, true));
    refused("Axis", "topk", f.topk(1, 2, true));
    refused("Argument", "topk", f.topk(4, 1, true));
    refused("Argument", "topk", f.topk(-1, 1, false));
    refused("Axis", "permute", f.permute([0, 2]));
    refused("Axis", "transpose", f.transpose(0, 2));
    refused("Axis", "transpose", Tensor::zeros([3]).t());
    refused("Axis", "flip", f.flip(2));
    refused("Axis", "squeeze", f.squeeze(2));
    refused("Axis", "unsqueeze", f.unsqueeze(3));
    refused("Axis", "flatten", f.flatten(0, 2));
    refused("Axis", "unflatten", f.unflatten(2, [1, 1]));
    refused("Axis", "narrow", f.narrow(2, 0, 1));
    refused("Axis", "unfold", f.unfold(2, 1, 1));
    refused("Axis", "cat", Tensor::cat(&[&f, &f], 2));
    refused("Axis", "stack", Tensor::stack(&[&f, &f], 3));
    refused("Axis", "split", f.split([1, 1], 2));
    refused("Axis", "chunk", f.chunk(2, 2));
    refused("Axis", "size", f.size(2));
    refused("Axis", "roll", f.roll(1, 2));
    refused("Axis", "repeat_interleave", f.repeat_interleave(2, 2));
    refused("Axis", "gather", f.gather(2, &i));
    refused("Axis", "scatter", f.scatter(2, &i, &f));
    refused("Axis", "index_select", f.index_select(2, &i));
    refused("Axis", "slice", f.slice_axis(2, None, None, 1));
    refused("Index", "index 2 of an axis of 2", f.index(2));
    refused("Index", "index -3 of an axis of 2", f.index(-3));
    refused("Index", "index 3 of an axis of 3", f.index((.., 3)));
    refused("Index", "index 0 of an axis of 0", Tensor::zeros([0]).index(0));
    refused("Axis", "index", f.index((0, 0, 0)));
    refused("Argument", "a step of 0", f.index(Index::step(None, None, 0)));
    refused("Argument", "index: two rests", f.index((Index::Rest, 0, Index::Rest)));
    refused("Argument", "2 elements from 2", f.narrow(1, 2, 2));
    refused("Argument", "narrow", f.narrow(1, -4, 1));
    refused("Argument", "narrow", f.narrow(1, 1, FAR));
    refused("Argument", "narrow", f.narrow(1, 0, -1));
    refused("Argument", "scatter", f.set_at((0, &i.index(0)), 1.0));
    refused("Index", "index 9", setup().0.set_at(9, 1.0));
}

#[test]
#[rustfmt::skip]
fn empty_axes_and_making() {
    let (f, ..) = setup();
    let none = Tensor::zeros([0, 2]);
    refused("Empty", "max: axis 0 of shape (0, 2) has no elements", none.max(0, false));
    refused("Empty", "min", none.min(.., true));
    refused("Empty", "argmax", none.argmax(0, false));
    refused("Empty", "argmin", none.argmin(0, false));
    assert_eq!(none.max(1, false).shape().unwrap(), [0]);
    assert_eq!(none.sum(0, false).to_vec::<f32>().unwrap(), [0.0, 0.0]);
    assert_eq!(none.prod(0, false).to_vec::<f32>().unwrap(), [1.0, 1.0]);
    assert!(none.mean(0, false).to_vec::<f32>().unwrap().iter().all(|v| v.is_nan()));
    assert_eq!(none.any(0, false).to_vec::<bool>().unwrap(), [false; 2]);
    assert_eq!(none.all(0, false).to_vec::<bool>().unwrap(), [true; 2]);
    assert_eq!(Tensor::cat(&[&none, &none], 0).shape().unwrap(), [0, 2]);
    let drawn = Tensor::rand([0, 3]).to_vec::<f32>().unwrap();
    assert!(drawn.is_empty());
    refused("Argument", "chunk", none.chunk(FAR, 0));
    let pieces = none.chunk(3, 0).iter().map(Tensor::shape).collect::<Result<Vec<_>>>();
    assert_eq!(pieces.unwrap(), [[0, 2]; 3]);
    assert_eq!(none.roll([3], [0]).shape().unwrap(), [0, 2]);
    assert_eq!(none.sort(0, false).shape().unwrap(), [0, 2]);
    assert_eq!(none.cumsum(0).shape().unwrap(), [0, 2]);
    refused("Argument", "sizes [-1]", Tensor::zeros([-1]));
    refused("Argument", "sizes [-2, 3]", Tensor::ones([-2, 3]));
    refused("Argument", "sizes", Tensor::full([FAR, 2], 1.0f32));
    refused("Argument", "empty", Tensor::empty([-1], DType::F32, Device::new("INTERP")));
    refused("Argument", "uniform", Tensor::rand([2, -3]));
    refused("Argument", "normal", Tensor::kaiming_normal([-4, 2], 0.0));
    refused("Argument", "randint", Tensor::randint([2], 3, 3));
    refused("Argument", "2^63", Tensor::randint([2], i64::MIN, i64::MAX));
    refused("Argument", "it goes up", Tensor::uniform([2], 1.0, 0.5));
    refused("Argument", "it goes up", Tensor::uniform([2], 0.0, f64::INFINITY));
    refused("Argument", "it goes up", Tensor::uniform([2], f64::NAN, 1.0));
    refused("Argument", "permutation", Tensor::permutation(-1));
    refused("Argument", "dropout", f.dropout(1.5));
    refused("Argument", "dropout", f.dropout(f64::NAN));
    refused("Argument", "eye", Tensor::eye(-1, 2));
    refused("Argument", "linspace", Tensor::linspace(0.0, 1.0, -1));
    refused("Argument", "by 0", Tensor::arange(0, 3, 0));
    refused("Argument", "arange", Tensor::arange_of(0.0, f64::INFINITY, 1.0, DType::F32));
    refused("Argument", "one_hot", Tensor::new(&[1i32], [1]).one_hot(0));
    refused("Argument", "sizes [0,", Tensor::zeros([0, FAR, FAR]));
    refused("Argument", "new", Tensor::from_bytes(&[], [0, FAR, FAR], DType::F32));
    refused("Shape", "1 elements of f32 for shape (2,)", Tensor::new(&[1.0f32], [2]));
    refused("Shape", "new", Tensor::new(&[1.0f32; 6], [4, -1]));
    refused("Argument", "new", Tensor::new(&[1.0f32; 6], [FAR, 2]));
    refused("Argument", "new", Tensor::new(&[1.0f32; 6], [FAR]));
    refused("Shape", "7 bytes", Tensor::from_bytes(&[0; 7], [1], DType::F32));
}

#[test]
#[rustfmt::skip]
fn dtypes_of_the_compilers_own() {
    let (f, ..) = setup();
    for dtype in [DType::Index, DType::Void] {
        refused("DType", "no ", f.cast(dtype));
        refused("DType", "no tensor is of", Tensor::open("Cargo.toml", dtype));
        refused("DType", "no tensor is of", Tensor::from_bytes(&[0; 8], [1], dtype));
        refused("DType", "no tensor is of", Tensor::empty([1], dtype, Device::new("INTERP")));
    }
}

#[test]
fn places_that_are_not_there_are_not_assigned() {
    setup();
    let row = Tensor::zeros([5]);
    row.set_at(99, 1.0);
    let e = row.to_vec::<f32>().unwrap_err();
    assert!(e.to_string().contains("index 99 of an axis of 5"), "{e}");
    let whole = Tensor::zeros([2, 3]);
    let view = whole.narrow(0, 0, 1);
    view.set_at((0, 5), 1.0);
    assert!(whole.to_vec::<f32>().is_err());
    let all = Tensor::zeros([2, 3]);
    all.narrow(1, 2, 9).reshape([18]).assign(1.0);
    let e = all.to_vec::<f32>().unwrap_err();
    assert!(e.to_string().contains("narrow"), "{e}");
}

#[test]
#[rustfmt::skip]
fn einsum_and_gradients() {
    let (f, i, b) = setup();
    refused("Argument", "1 operands for 2 terms", Tensor::einsum("ij,jk->ik", &[&f]));
    refused("Argument", "letters", Tensor::einsum("i->i", &[&f]));
    refused("Argument", "letters", Tensor::einsum("ijk->i", &[&f]));
    refused("Argument", "letters", Tensor::einsum("...ijk->i", &[&f]));
    refused("Argument", "'1'", Tensor::einsum("i1->i", &[&f]));
    refused("Argument", "k in the result", Tensor::einsum("ij->ik", &[&f]));
    refused("Argument", "i in the result", Tensor::einsum("ij->ii", &[&f]));
    refused("Argument", "'-'", Tensor::einsum("ij->i->j", &[&f]));
    refused("Argument", "'.'", Tensor::einsum("ij->..", &[&f]));
    refused("Argument", "j is 3 and 2", Tensor::einsum("ij,jk->ik", &[&f, &f]));
    refused("Argument", "i is 2 and 3", Tensor::einsum("ii->i", &[&f]));
    refused("Argument", "i twice", Tensor::einsum("ii->i", &[&f.narrow(0, 0, 1)]));
    refused("Argument", "operands", Tensor::einsum("", &[]));
    refused("Argument", "operands", Tensor::einsum("ij,,", &[&f]));
    let x = Tensor::ones([2]).parameter();
    refused("Gradient", "reduce it to one element", (&x * 2.0).gradient(&[&x]));
    refused("Gradient", "reduce it to one element", Tensor::zeros([0]).gradient(&[&x]));
    refused("Gradient", "of i64", x.cast(DType::I32).sum(.., false).gradient(&[&x]));
    refused("Gradient", "does not depend on tensor 1 of 2", x.sum(.., false).gradient(&[&x, &f]));
    refused("Gradient", "by a tensor of i32", f.sum(.., false).gradient(&[&i]));
    refused("Gradient", "one and the same", x.sum(.., false).gradient(&[&x, &x]));
    refused("Gradient", "seed", x.gradient_with(&f, &[&x]));
    refused("Shape", "add", x.sum(.., false).gradient(&[&(&f + &x)]));
    refused("Gradient", "by a tensor of bool", b.any(.., false).gradient(&[&b]));
    let k = Tensor::new(&[1i32, 2], [2]);
    refused("Gradient", "by a tensor of i32", (&x * &k).sum(.., false).gradient(&[&k]));
    let later = (&x * 2.0).sum(.., false);
    x.assign(3.0).realize().unwrap();
    refused("Gradient", "given by a captured function", later.gradient(&[&x]));
}

#[test]
#[rustfmt::skip]
fn literals_that_a_dtype_does_not_hold() {
    setup();
    let bytes = || Tensor::new(&[1u8, 200], [2]);
    refused("DType", "u8, which holds 0 to 255", bytes().assign(300));
    refused("DType", "-256 for a tensor of u8", bytes().assign(-256));
    refused("DType", "holds 0 to 255", bytes().set_at(0, 256));
    refused("DType", "-129 for a tensor of i8", Tensor::new(&[1i8], [1]).assign(-129));
    refused("DType", "i32", Tensor::new(&[1i32], [1]).assign(1i64 << 40));
    refused("DType", "masked_fill", bytes().masked_fill(&bytes().gt(2), 300));
    refused("DType", "300 for a tensor of u8", bytes().gt(2).select(bytes(), 300));
    assert_eq!(bytes().assign(-1).to_vec::<u8>().unwrap(), [255, 255]);
    assert_eq!(bytes().masked_fill(&bytes().gt(2), 255).to_vec::<u8>().unwrap(), [1, 255]);
    assert_eq!(Tensor::new(&[1u64], [1]).assign(i64::MAX).to_vec::<u64>().unwrap(), [i64::MAX as u64]);
}

#[test]
#[rustfmt::skip]
fn shares_and_deviations_that_are_none() {
    let (f, i, _) = setup();
    for smoothing in [-0.1, 1.5, f64::NAN] {
        refused("Argument", "a share", f.cross_entropy(&i, Reduction::Mean, smoothing));
        refused("Argument", "a share", f.cross_entropy(&f, Reduction::Mean, smoothing));
    }
    refused("Argument", "deviation", Tensor::normal([2], 0.0, -1.0));
}

#[test]
fn more_than_there_is_memory_for() {
    setup();
    for n in [1i64 << 45, 1 << 59] {
        let t = Tensor::zeros([n]);
        assert_eq!(t.numel().unwrap(), n as usize);
        let e = t.to_vec::<f32>().expect_err("no machine has that");
        assert!(matches!(e.kind(), ErrorKind::Memory { .. }), "{e}");
        assert!(
            Tensor::arange_of(0.0, n as f64 / 2.0, 1.0, DType::I64)
                .realize()
                .is_err()
        );
        let own = Tensor::empty([n], DType::F32, Device::new("INTERP"));
        assert!(own.assign(1.0).realize().is_err() && own.sum(.., false).item::<f32>().is_err());
    }
    refused("Argument", "sizes", Tensor::zeros([FAR]));
    let row = Tensor::zeros([1i64 << 40]);
    let column = Tensor::zeros([1i64 << 20, 1]);
    assert!((&row + &column).realize().is_err());
    let column = Tensor::zeros([1i64 << 40, 1]);
    refused("Shape", "do not broadcast", &row + &column);
    refused("Shape", "matmul", column.matmul(&row.reshape([1, -1])));
    let cube = Tensor::zeros([1, 1, 2, 2, 2]);
    let size = [1 << 30; 3];
    let far = Interpolation::Nearest;
    refused("Argument", "interpolate", cube.interpolate(size, far));
}
