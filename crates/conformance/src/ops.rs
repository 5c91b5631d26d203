//! The vocabulary: each op's name and attributes as a call on tensors. Flows in: a step; out: its
//! result, or an error where the step is not of the format.

use crate::attrs::Attrs;
use crate::format_error;
use monoglot_tensor::{
    Axes, Conv, DType, Dims, Index, Interpolation, PadMode, Reduction, Result, Tensor,
};
use monoglot_uop::Scalar;
use serde_json::{Map, Value};

/// The result of one step.
pub(crate) fn step(op: &str, x: &[Tensor], attrs: &Map<String, Value>) -> Result<Tensor> {
    let a = Attrs { op, map: attrs };
    let out = match x {
        [] => none(op, &a)?,
        [x] => unary(op, x, &a)?,
        [x, y] => binary(op, x, y, &a)?,
        _ => None,
    };
    match out {
        Some(t) => Ok(t),
        None => match any(op, x, &a)? {
            Some(t) => Ok(t),
            None => Err(format_error(
                op,
                format!("is not in the vocabulary with {} inputs", x.len()),
            )),
        },
    }
}

fn none(op: &str, a: &Attrs<'_>) -> Result<Option<Tensor>> {
    Ok(Some(match op {
        "arange" => {
            let float = ["start", "stop", "step"]
                .iter()
                .any(|n| a.get(n).is_some_and(Value::is_f64));
            let d = a
                .dtype("dtype")?
                .unwrap_or(if float { DType::F32 } else { DType::I64 });
            Tensor::arange_of(
                a.float_or("start", 0.0)?,
                a.float("stop")?,
                a.float_or("step", 1.0)?,
                d,
            )
        }
        "linspace" => Tensor::linspace(a.float("start")?, a.float("stop")?, a.int("steps")?),
        "eye" => {
            let n = a.int("n")?;
            Tensor::eye(n, a.int_or("m", n)?)
        }
        "full" => {
            let (value, natural) = match a.get("value") {
                Some(Value::Bool(b)) => (Scalar::Bool(*b), DType::Bool),
                Some(v) if v.is_i64() => (Scalar::Int(v.as_i64().unwrap_or(0) as i128), DType::I64),
                _ => (Scalar::Float(a.float("value")?), DType::F32),
            };
            Tensor::filled(
                a.ints("shape")?,
                value,
                a.dtype("dtype")?.unwrap_or(natural),
            )
        }
        _ => return Ok(None),
    }))
}

/// `dims`, or `dim`, or all axes where neither is given (or the list is empty).
fn axes(a: &Attrs<'_>) -> Result<Axes> {
    let dims = match a.maybe_ints("dims")? {
        Some(d) => Some(d),
        None => a.maybe_ints("dim")?,
    };
    Ok(match dims {
        Some(d) if !d.is_empty() => Axes::Some(d),
        _ => Axes::All,
    })
}

fn unary(op: &str, x: &Tensor, a: &Attrs<'_>) -> Result<Option<Tensor>> {
    for family in [elementwise, along_axes, movement, window] {
        if let Some(y) = family(op, x, a)? {
            return Ok(Some(y));
        }
    }
    Ok(None)
}

/// Each element by itself.
fn elementwise(op: &str, x: &Tensor, a: &Attrs<'_>) -> Result<Option<Tensor>> {
    Ok(Some(match op {
        "abs" => x.abs(),
        "acos" => x.acos(),
        "acosh" => x.acosh(),
        "asin" => x.asin(),
        "asinh" => x.asinh(),
        "atan" => x.atan(),
        "atanh" => x.atanh(),
        "bitwise_not" => x.bitwise_not(),
        "ceil" => x.ceil(),
        "cos" => x.cos(),
        "cosh" => x.cosh(),
        "erf" => x.erf(),
        "exp" => x.exp(),
        "exp2" => x.exp2(),
        "floor" => x.floor(),
        "hardsigmoid" => x.hardsigmoid(),
        "hardswish" => x.hardswish(),
        "hardtanh" => x.hardtanh(),
        "isfinite" => x.isfinite(),
        "isinf" => x.isinf(),
        "isnan" => x.isnan(),
        "log" => x.log(),
        "log2" => x.log2(),
        "logical_not" => x.logical_not(),
        "logsigmoid" => x.logsigmoid(),
        "mish" => x.mish(),
        "neg" => x.neg(),
        "reciprocal" => x.reciprocal(),
        "relu" => x.relu(),
        "relu6" => x.relu6(),
        "round" => x.round(),
        "rsqrt" => x.rsqrt(),
        "selu" => x.selu(),
        "sigmoid" => x.sigmoid(),
        "sign" => x.sign(),
        "silu" => x.silu(),
        "sin" => x.sin(),
        "sinh" => x.sinh(),
        "softsign" => x.softsign(),
        "sqrt" => x.sqrt(),
        "square" => x.square(),
        "tan" => x.tan(),
        "tanh" => x.tanh(),
        "trunc" => x.trunc(),
        "cast" => match a.dtype("dtype")? {
            Some(d) => x.cast(d),
            None => return Err(format_error(op, "attribute dtype is missing")),
        },
        "celu" => x.celu(a.float_or("alpha", 1.0)?),
        "elu" => x.elu(a.float_or("alpha", 1.0)?),
        "leaky_relu" => x.leaky_relu(a.float_or("negative_slope", 0.01)?),
        "softplus" => x.softplus(a.float_or("beta", 1.0)?),
        "gelu" => match a.text_or("approximate", "none")? {
            "tanh" => x.gelu_tanh(),
            _ => x.gelu(),
        },
        "clamp" => {
            // A float bound makes integers f32.
            let float = ["min", "max"]
                .iter()
                .any(|n| a.get(n).is_some_and(Value::is_f64));
            let x = if float && !x.dtype()?.is_float() {
                x.cast(DType::F32)
            } else {
                x.clone()
            };
            x.clamp(a.maybe_float("min")?, a.maybe_float("max")?)
        }
        _ => return Ok(None),
    }))
}

/// Elements along axes made one, or put in order.
fn along_axes(op: &str, x: &Tensor, a: &Attrs<'_>) -> Result<Option<Tensor>> {
    let keep = a.bool_or("keepdim", false)?;
    let dim = || a.int_or("dim", -1);
    Ok(Some(match op {
        "all" | "any" => {
            let y = if op == "all" {
                x.all(axes(a)?, keep)
            } else {
                x.any(axes(a)?, keep)
            };
            // PyTorch's are bytes for bytes.
            if x.dtype()? == DType::U8 {
                y.cast(DType::U8)
            } else {
                y
            }
        }
        "prod" => x.prod(axes(a)?, keep),
        "argmax" | "argmin" => {
            let (x, axis) = match a.maybe_int("dim")? {
                Some(d) => (x.clone(), d),
                None => (x.reshape([-1]), 0),
            };
            if op == "argmax" {
                x.argmax(axis, keep)
            } else {
                x.argmin(axis, keep)
            }
        }
        "sum" => x.sum(axes(a)?, keep),
        "mean" => x.mean(axes(a)?, keep),
        "max" => x.max(axes(a)?, keep),
        "min" => x.min(axes(a)?, keep),
        "logsumexp" => x.logsumexp(axes(a)?, keep),
        "std" => x.std(axes(a)?, keep, a.int_or("correction", 1)?),
        "var" => x.var(axes(a)?, keep, a.int_or("correction", 1)?),
        "sort" => x.sort(dim()?, a.bool_or("descending", false)?),
        "argsort" => x.argsort(dim()?, a.bool_or("descending", false)?),
        "topk" => x.topk(a.int("k")?, dim()?, a.bool_or("largest", true)?).0,
        "cummax" => x.cummax(a.int("dim")?),
        "cumprod" => x.cumprod(a.int("dim")?),
        "cumsum" => x.cumsum(a.int("dim")?),
        "softmax" => x.softmax(dim()?),
        "log_softmax" => x.log_softmax(dim()?),
        _ => return Ok(None),
    }))
}

/// The same elements elsewhere.
fn movement(op: &str, x: &Tensor, a: &Attrs<'_>) -> Result<Option<Tensor>> {
    Ok(Some(match op {
        "diag" => x.diag(),
        // PyTorch's is that of the first two axes.
        "diagonal" => x
            .permute((2..x.ndim()? as i64).chain([0, 1]).collect::<Vec<_>>())
            .diagonal(),
        "squeeze" => match a.maybe_ints("dim")? {
            Some(d) => x.squeeze(d),
            None => x.squeeze(..),
        },
        "unsqueeze" => x.unsqueeze(a.int("dim")?),
        "chunk_get" => piece(x.chunk(a.int("chunks")?, a.int_or("dim", 0)?), a)?,
        "split_get" => piece(x.split(a.ints("sizes")?, a.int_or("dim", 0)?), a)?,
        "expand" => x.expand(a.ints("shape")?),
        "reshape" => x.reshape(a.ints("shape")?),
        "permute" => x.permute(a.ints("order")?),
        "transpose" => x.transpose(a.int("dim0")?, a.int("dim1")?),
        "flatten" => x.flatten(a.int_or("start", 0)?, a.int_or("end", -1)?),
        "flip" => x.flip(a.ints("dims")?),
        "repeat" => x.repeat(a.ints("repeats")?),
        "repeat_interleave" => match a.maybe_int("dim")? {
            Some(d) => x.repeat_interleave(a.int("repeats")?, d),
            None => x.reshape([-1]).repeat_interleave(a.int("repeats")?, 0),
        },
        "roll" => match a.ints_or("dims", &[])? {
            dims if dims.is_empty() => x
                .reshape([-1])
                .roll(a.ints("shifts")?, 0)
                .reshape(x.shape()?),
            dims => x.roll(a.ints("shifts")?, dims),
        },
        "slice" => x.index(slices(a)?),
        "pad" => pad(x, a)?,
        "tril" => x.tril(a.int_or("diagonal", 0)?),
        "triu" => x.triu(a.int_or("diagonal", 0)?),
        "unfold" => x.unfold(a.int("dim")?, a.int("size")?, a.int("step")?),
        "one_hot" => x.one_hot(a.int("classes")?),
        _ => return Ok(None),
    }))
}

/// Elements with their neighbours.
fn window(op: &str, x: &Tensor, a: &Attrs<'_>) -> Result<Option<Tensor>> {
    Ok(Some(match op {
        "avg_pool2d" => {
            let k = pair(a.ints("kernel")?);
            let stride = pair(a.ints_or("stride", &k)?);
            x.avg_pool(
                k,
                stride,
                pair(a.ints_or("padding", &[0])?),
                a.bool_or("count_include_pad", true)?,
            )
        }
        "max_pool2d" => {
            let k = pair(a.ints("kernel")?);
            let stride = pair(a.ints_or("stride", &k)?);
            x.max_pool(
                k,
                stride,
                pair(a.ints_or("padding", &[0])?),
                pair(a.ints_or("dilation", &[1])?),
            )
        }
        "interpolate" => {
            let corners = a.bool_or("align_corners", false)?;
            let how = match a.text_or("mode", "nearest")? {
                "nearest" => Interpolation::Nearest,
                "linear" | "bilinear" | "trilinear" => Interpolation::Linear {
                    align_corners: corners,
                },
                "nearest-exact" => Interpolation::NearestExact,
                "area" => Interpolation::Area,
                "bicubic" => Interpolation::Cubic {
                    align_corners: corners,
                },
                mode => return Err(format_error(op, format!("mode {mode:?}"))),
            };
            x.interpolate(a.ints("size")?, how)
        }
        _ => return Ok(None),
    }))
}

fn pair(v: Vec<i64>) -> Vec<i64> {
    if v.len() == 1 { vec![v[0]; 2] } else { v }
}

fn piece(all: Vec<Tensor>, a: &Attrs<'_>) -> Result<Tensor> {
    let i = a.int("index")?;
    let n = all.len();
    usize::try_from(i)
        .ok()
        .and_then(|i| all.into_iter().nth(i))
        .ok_or_else(|| format_error(a.op, format!("piece {i} of {n}")))
}

fn slices(a: &Attrs<'_>) -> Result<Vec<Index>> {
    let one = |v: &Value| -> Option<Index> {
        match v {
            Value::Null => Some(Index::Slice(None, None, 1)),
            Value::Array(r) => {
                let at = |i: usize| match r.get(i) {
                    None | Some(Value::Null) => Some(None),
                    Some(v) => v.as_i64().map(Some),
                };
                Some(Index::Slice(at(0)?, at(1)?, at(2)?.unwrap_or(1)))
            }
            _ => None,
        }
    };
    let list = a.list("ranges")?;
    list.iter()
        .map(|v| one(v).ok_or_else(|| format_error(a.op, format!("range {v}"))))
        .collect()
}

fn pad(x: &Tensor, a: &Attrs<'_>) -> Result<Tensor> {
    let one = |v: &Value| Some([v.get(0)?.as_i64()?, v.get(1)?.as_i64()?]);
    let pads = a.list("pads")?;
    let pads: Option<Vec<[i64; 2]>> = pads.iter().map(one).collect();
    let pads = pads.ok_or_else(|| format_error(a.op, "pads are not pairs of integers"))?;
    let mode = match a.text_or("mode", "constant")? {
        "constant" => PadMode::Constant(a.float_or("value", 0.0)?),
        "reflect" => PadMode::Reflect,
        "replicate" => PadMode::Replicate,
        "circular" => PadMode::Circular,
        mode => return Err(format_error(a.op, format!("mode {mode:?}"))),
    };
    Ok(x.pad(&pads, mode))
}

fn binary(op: &str, x: &Tensor, y: &Tensor, a: &Attrs<'_>) -> Result<Option<Tensor>> {
    Ok(Some(match op {
        "add" => x.add(y),
        "sub" => x.sub(y),
        "mul" => x.mul(y),
        "div" => x.div(y),
        "pow" => x.pow(y),
        "atan2" => x.atan2(y),
        "copysign" => x.copysign(y),
        "logaddexp" => x.logaddexp(y),
        "maximum" => x.maximum(y),
        "minimum" => x.minimum(y),
        "modulo" => x.modulo(y),
        "fmod" => x.fmod(y),
        "floor_div" => x.floor_div(y),
        "trunc_div" => x.trunc_div(y),
        "bitwise_and" => x.bitwise_and(y),
        "bitwise_or" => x.bitwise_or(y),
        "bitwise_xor" => x.bitwise_xor(y),
        "shl" => x.shl(y),
        "shr" => x.shr(y),
        "eq" => x.eq(y),
        "ne" => x.ne(y),
        "lt" => x.lt(y),
        "le" => x.le(y),
        "gt" => x.gt(y),
        "ge" => x.ge(y),
        "matmul" => x.matmul(y),
        "bce_with_logits" => x.bce_with_logits(y, reduction(a)?),
        "mse_loss" => x.mse_loss(y, reduction(a)?),
        "cross_entropy" => x.cross_entropy(y, reduction(a)?, a.float_or("label_smoothing", 0.0)?),
        "nll_loss" => x.nll_loss(y, reduction(a)?),
        "gather" => x.gather(a.int("dim")?, y),
        "index_select" => x.index_select(a.int("dim")?, y),
        "masked_fill" => x.masked_fill(y, a.float("value")?),
        "rms_norm" => {
            let tiny = if x.dtype()? == DType::F64 {
                f64::EPSILON
            } else {
                f32::EPSILON as f64
            };
            x.rms_norm(a.ints("shape")?, Some(y), a.float_or("eps", tiny)?)
        }
        _ => return Ok(None),
    }))
}

fn reduction(a: &Attrs<'_>) -> Result<Reduction> {
    match a.text_or("reduction", "mean")? {
        "mean" => Ok(Reduction::Mean),
        "sum" => Ok(Reduction::Sum),
        "none" => Ok(Reduction::None),
        other => Err(format_error(a.op, format!("reduction {other:?}"))),
    }
}

/// Ops of several or any number of inputs.
fn any(op: &str, x: &[Tensor], a: &Attrs<'_>) -> Result<Option<Tensor>> {
    let all: Vec<&Tensor> = x.iter().collect();
    Ok(Some(match (op, x) {
        ("cat", _) => Tensor::cat(&all, a.int_or("dim", 0)?),
        ("stack", _) => Tensor::stack(&all, a.int_or("dim", 0)?),
        ("einsum", _) => Tensor::einsum(a.text_or("equation", "")?, &all),
        ("where", [c, x, y]) => c.select(x, y),
        ("lerp", [x, y, w]) => x.lerp(y, w),
        ("linear", [x, w, b @ ..]) if b.len() < 2 => x.linear(w, b.first()),
        ("scatter", [x, i, v]) => x.scatter(a.int("dim")?, i, v),
        ("scatter_add", [x, i, v]) => x.scatter_add(a.int("dim")?, i, v),
        ("attention", [q, k, v, m @ ..]) if m.len() < 2 => {
            q.attention(k, v, m.first(), a.bool_or("causal", false)?)
        }
        ("conv1d" | "conv2d" | "conv3d" | "conv_transpose2d", [x, w, b @ ..]) if b.len() < 2 => {
            let how = Conv {
                stride: Dims(a.ints_or("stride", &[1])?),
                padding: Dims(a.ints_or("padding", &[0])?),
                dilation: Dims(a.ints_or("dilation", &[1])?),
                groups: a.int_or("groups", 1)?,
                output_padding: Dims(a.ints_or("output_padding", &[0])?),
            };
            // PyTorch lets the batch be missing.
            let alone = x.ndim()? < w.ndim()?;
            let x = if alone { &x.unsqueeze(0) } else { x };
            let y = match op {
                "conv_transpose2d" => x.conv_transpose(w, b.first(), &how),
                _ => x.conv(w, b.first(), &how),
            };
            if alone { y.squeeze(0) } else { y }
        }
        ("layer_norm", [x, rest @ ..]) if rest.len() < 3 => x.layer_norm(
            a.ints("shape")?,
            rest.first(),
            rest.get(1),
            a.float_or("eps", 1e-5)?,
        ),
        ("rms_norm", [x]) => x.rms_norm(
            a.ints("shape")?,
            None,
            a.float_or("eps", f32::EPSILON as f64)?,
        ),
        ("group_norm", [x, rest @ ..]) if rest.len() < 3 => x.group_norm(
            a.int("groups")?,
            rest.first(),
            rest.get(1),
            a.float_or("eps", 1e-5)?,
        ),
        ("instance_norm", [x, rest @ ..]) if rest.len() < 3 => {
            x.instance_norm(rest.first(), rest.get(1), a.float_or("eps", 1e-5)?)
        }
        ("batch_norm_train", [x, rest @ ..]) if rest.len() < 3 => {
            x.batch_norm_train(rest.first(), rest.get(1), a.float_or("eps", 1e-5)?)
                .0
        }
        ("batch_norm_eval", [x, w, b, m, v]) => {
            x.batch_norm_eval(Some(w), Some(b), m, v, a.float_or("eps", 1e-5)?)
        }
        _ => return Ok(None),
    }))
}
