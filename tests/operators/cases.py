"""Makes a folder of operator cases: expected values and gradients come from PyTorch.

In: cases built with `Folder.case`. Out: cases.json and tensors.safetensors as the crate
monoglot-conformance reads them. Everything random comes from seeded generators, so that the same
script makes the same folder.
"""

import json
import struct
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

NAMES = {
    torch.bool: "BOOL", torch.uint8: "U8", torch.uint16: "U16", torch.uint32: "U32", torch.uint64: "U64",
    torch.int8: "I8", torch.int16: "I16", torch.int32: "I32", torch.int64: "I64",
    torch.float16: "F16", torch.bfloat16: "BF16", torch.float32: "F32", torch.float64: "F64",
    torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2",
}


def one(name):
    return lambda x, a: getattr(torch, name)(x[0])


def functional(name):
    return lambda x, a: getattr(F, name)(x[0])


def two(name):
    return lambda x, a: getattr(torch, name)(x[0], x[1])


def axes(a):
    d = a.get("dims", a.get("dim"))
    return None if d in (None, []) else d


def folded(f):
    """A reduction over some axes, or over all where none are named."""
    def run(x, a):
        d, keep = axes(a), a.get("keepdim", False)
        if d is None:
            d = list(range(x[0].ndim))
            if not d:
                return f(x[0], (), keep)
        return f(x[0], d, keep)
    return run


def amax(f):
    def run(x, a):
        d, keep = axes(a), a.get("keepdim", False)
        return f(x[0], dim=[] if d is None else d, keepdim=keep)
    return run


def product(x, a):
    d = axes(a)
    return torch.prod(x[0]) if d is None else torch.prod(x[0], d, a.get("keepdim", False))


def truth(f):
    def run(x, a):
        d = axes(a)
        return f(x[0]) if d is None else f(x[0], d, a.get("keepdim", False))
    return run


def place(greatest):
    def run(x, a):
        x, d, keep = x[0], a.get("dim"), a.get("keepdim", False)
        if d is None:
            x, d = x.reshape(-1), 0
        if x.ndim == 0:
            return torch.tensor(0, dtype=torch.int32)
        # PyTorch does not say which of ties it takes: the first.
        v = (x.amax if greatest else x.amin)(d, True)
        hit = (x == v) | (x != x) if x.is_floating_point() else x == v
        n = torch.arange(x.shape[d]).reshape([-1 if i == d % x.ndim else 1 for i in range(x.ndim)])
        p = torch.where(hit, n, x.shape[d]).amin(d, keep)
        return p.to(torch.int32)
    return run


def sliced(x, a):
    x = x[0]
    for d, r in enumerate(a["ranges"]):
        if r is None:
            continue
        places = list(range(x.shape[d]))[slice(r[0], r[1], r[2])]
        x = x.index_select(d, torch.tensor(places, dtype=torch.int64))
    return x


def padded(x, a):
    x, mode = x[0], a.get("mode", "constant")
    lead = x.ndim - len(a["pads"])
    for d, (before, after) in enumerate(a["pads"]):
        d += lead
        n = x.shape[d]
        if mode == "constant":
            flat = [0] * (2 * x.ndim)
            flat[2 * (x.ndim - 1 - d)] = before
            flat[2 * (x.ndim - 1 - d) + 1] = after
            x = F.pad(x, flat, value=a.get("value", 0.0) if x.dtype != torch.bool else 0.0)
            continue
        at = torch.arange(-before, n + after)
        if mode == "replicate":
            at = at.clamp(0, n - 1)
        elif mode == "circular":
            at = at % n
        else:
            at = at.abs()
            at = torch.where(at >= n, 2 * (n - 1) - at, at)
        x = x.index_select(d, at)
    return x


def resized(x, a):
    lead = x[0].ndim - len(a["size"])
    v = x[0].reshape([1] * max(2 - lead, 0) + list(x[0].shape))
    kind = a.get("align_corners")
    y = F.interpolate(v, size=a["size"], mode=a["mode"], align_corners=kind)
    return y.reshape(list(x[0].shape[:lead]) + a["size"])


def conv(f, transpose=False):
    def run(x, a):
        how = {k: a[k] for k in ("stride", "padding", "dilation", "groups") if k in a}
        if transpose and "output_padding" in a:
            how["output_padding"] = a["output_padding"]
        return f(x[0], x[1], x[2] if len(x) > 2 else None, **how)
    return run


def attention(x, a):
    """With the scores in f32 at least, as PyTorch documents its fused kernels to hold them."""
    q, k, v = x[:3]
    m = x[3] if len(x) > 3 else None
    return F.scaled_dot_product_attention(q, k, v, attn_mask=m, is_causal=a.get("causal", False))


def all_axes(f):
    """tril and triu take no vectors."""
    return lambda x, a: f(x[0], a.get("diagonal", 0))


def optional(x, a, f):
    return f(x[0], a["shape"], *(x[1:] + [None] * (3 - len(x))), a.get("eps", 1e-5))


DTYPES = {str(d).split(".")[1]: d for d in NAMES}

OPS = {n: one(n) for n in """abs acos acosh asin asinh atan atanh bitwise_not ceil cos cosh diag diagonal erf exp
    exp2 floor isfinite isinf isnan log log2 logical_not neg reciprocal relu round rsqrt sigmoid sign sin sinh sqrt
    square tan tanh trunc""".split()}
OPS |= {n: functional(n) for n in """hardsigmoid hardswish hardtanh logsigmoid mish relu6 selu silu
    softsign""".split()}
OPS |= {n: two(n) for n in """add atan2 bitwise_and bitwise_or bitwise_xor copysign div eq fmod ge gt le logaddexp
    lt matmul maximum minimum mul ne pow sub""".split()}
OPS |= {
    "floor_div": lambda x, a: torch.div(x[0], x[1], rounding_mode="floor"),
    "trunc_div": lambda x, a: torch.div(x[0], x[1], rounding_mode="trunc"),
    "modulo": lambda x, a: torch.remainder(x[0], x[1]),
    "shl": lambda x, a: torch.bitwise_left_shift(x[0], x[1]),
    "shr": lambda x, a: torch.bitwise_right_shift(x[0], x[1]),
    "bce_with_logits": lambda x, a: F.binary_cross_entropy_with_logits(*x, reduction=a.get("reduction", "mean")),
    "mse_loss": lambda x, a: F.mse_loss(*x, reduction=a.get("reduction", "mean")),
    "sum": folded(lambda x, d, k: torch.sum(x, d, k)),
    "mean": folded(lambda x, d, k: torch.mean(x, d, k)),
    "logsumexp": folded(lambda x, d, k: torch.logsumexp(x, d, k)),
    "max": amax(torch.amax), "min": amax(torch.amin),
    "prod": product, "all": truth(torch.all), "any": truth(torch.any),
    "argmax": place(True), "argmin": place(False),
    "std": lambda x, a: torch.std(x[0], axes(a), correction=a.get("correction", 1), keepdim=a.get("keepdim", False)),
    "var": lambda x, a: torch.var(x[0], axes(a), correction=a.get("correction", 1), keepdim=a.get("keepdim", False)),
    "arange": lambda x, a: torch.arange(a.get("start", 0), a["stop"], a.get("step", 1),
                                        dtype=DTYPES.get(a.get("dtype"))),
    "linspace": lambda x, a: torch.linspace(a["start"], a["stop"], a["steps"]),
    "eye": lambda x, a: torch.eye(a["n"], a.get("m", a["n"])),
    "full": lambda x, a: torch.full(a["shape"], a["value"], dtype=DTYPES.get(a.get("dtype"))),
    "sort": lambda x, a: torch.sort(x[0], dim=a.get("dim", -1), descending=a.get("descending", False),
                                    stable=True).values,
    "argsort": lambda x, a: torch.sort(x[0], dim=a.get("dim", -1), descending=a.get("descending", False),
                                       stable=True).indices.to(torch.int32),
    "topk": lambda x, a: torch.topk(x[0], a["k"], dim=a.get("dim", -1), largest=a.get("largest", True)).values,
    "attention": attention,
    "avg_pool2d": lambda x, a: F.avg_pool2d(x[0], a["kernel"], a.get("stride"), a.get("padding", 0),
                                            count_include_pad=a.get("count_include_pad", True)),
    "max_pool2d": lambda x, a: F.max_pool2d(x[0], a["kernel"], a.get("stride"), a.get("padding", 0),
                                            a.get("dilation", 1)),
    "batch_norm_eval": lambda x, a: F.batch_norm(x[0], x[3], x[4], x[1], x[2], False, 0.0, a["eps"]),
    "batch_norm_train": lambda x, a: F.batch_norm(x[0], None, None, x[1], x[2], True, 0.0, a["eps"]),
    "instance_norm": lambda x, a: F.instance_norm(x[0], None, None, x[1], x[2], True, 0.0, a["eps"]),
    "cast": lambda x, a: x[0].to(DTYPES[a["dtype"]]),
    "cat": lambda x, a: torch.cat(x, a["dim"]), "stack": lambda x, a: torch.stack(x, a["dim"]),
    "celu": lambda x, a: F.celu(x[0], a["alpha"]), "elu": lambda x, a: F.elu(x[0], a["alpha"]),
    "chunk_get": lambda x, a: torch.chunk(x[0], a["chunks"], a["dim"])[a["index"]],
    "split_get": lambda x, a: torch.split(x[0], a["sizes"], a["dim"])[a["index"]],
    "clamp": lambda x, a: torch.clamp(x[0], a.get("min"), a.get("max")),
    "conv1d": conv(F.conv1d), "conv2d": conv(F.conv2d), "conv3d": conv(F.conv3d),
    "conv_transpose2d": conv(F.conv_transpose2d, True),
    "cross_entropy": lambda x, a: F.cross_entropy(*x, reduction=a["reduction"],
                                                  label_smoothing=a.get("label_smoothing", 0.0)),
    "nll_loss": lambda x, a: F.nll_loss(*x, reduction=a["reduction"]),
    "cummax": lambda x, a: torch.cummax(x[0], a["dim"]).values,
    "cumprod": lambda x, a: torch.cumprod(x[0], a["dim"]), "cumsum": lambda x, a: torch.cumsum(x[0], a["dim"]),
    "log_softmax": lambda x, a: F.log_softmax(x[0], a["dim"]), "softmax": lambda x, a: F.softmax(x[0], a["dim"]),
    "squeeze": lambda x, a: torch.squeeze(x[0]) if a.get("dim") is None else torch.squeeze(x[0], a["dim"]),
    "unsqueeze": lambda x, a: torch.unsqueeze(x[0], a["dim"]),
    "einsum": lambda x, a: torch.einsum(a["equation"], *x),
    "expand": lambda x, a: x[0].expand(a["shape"]),
    "flatten": lambda x, a: torch.flatten(x[0], a.get("start", 0), a.get("end", -1)),
    "flip": lambda x, a: torch.flip(x[0], a["dims"]),
    "gather": lambda x, a: torch.gather(x[0], a["dim"], x[1].long()),
    "index_select": lambda x, a: torch.index_select(x[0], a["dim"], x[1]),
    "gelu": lambda x, a: F.gelu(x[0], approximate=a["approximate"]),
    "group_norm": lambda x, a: F.group_norm(x[0], a["groups"], *x[1:], eps=a["eps"]),
    "interpolate": resized,
    "layer_norm": lambda x, a: optional(x, a, F.layer_norm),
    "rms_norm": lambda x, a: F.rms_norm(x[0], a["shape"], x[1] if len(x) > 1 else None, a.get("eps")),
    "leaky_relu": lambda x, a: F.leaky_relu(x[0], a["negative_slope"]),
    "lerp": lambda x, a: torch.lerp(*x), "where": lambda x, a: torch.where(*x),
    "linear": lambda x, a: F.linear(*x),
    "masked_fill": lambda x, a: torch.masked_fill(x[0], x[1], a["value"]),
    "one_hot": lambda x, a: F.one_hot(x[0].long(), a["classes"]).to(torch.int32),
    "pad": padded,
    "permute": lambda x, a: torch.permute(x[0], a["order"]),
    "repeat": lambda x, a: x[0].repeat(a["repeats"]),
    "repeat_interleave": lambda x, a: torch.repeat_interleave(x[0], a["repeats"], a.get("dim")),
    "reshape": lambda x, a: x[0].reshape(a["shape"]),
    "roll": lambda x, a: torch.roll(x[0], a["shifts"], a.get("dims")),
    "scatter": lambda x, a: torch.scatter(x[0], a["dim"], x[1].long(), x[2]),
    "scatter_add": lambda x, a: torch.scatter_add(x[0], a["dim"], x[1].long(), x[2]),
    "slice": sliced,
    "softplus": lambda x, a: F.softplus(x[0], a.get("beta", 1.0)),
    "transpose": lambda x, a: torch.transpose(x[0], a["dim0"], a["dim1"]),
    "tril": all_axes(torch.tril), "triu": all_axes(torch.triu),
    "unfold": lambda x, a: x[0].unfold(a["dim"], a["size"], a["step"]),
}


def raw(t):
    """The bytes of a tensor's elements, row-major."""
    t = t.detach().contiguous()
    if t.dtype in (torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2):
        t = t.view(torch.int16 if t.dtype == torch.bfloat16 else torch.int8)
    return t.numpy().tobytes()


def weights(shape, dtype, n):
    """Numbers between -1 and 1 that give each element of an output a weight of its own."""
    g = np.random.default_rng(n)
    return torch.from_numpy(np.asarray(g.uniform(-1, 1, tuple(shape)))).to(dtype)


class Folder:
    def __init__(self, path):
        self.path, self.cases, self.tensors = Path(path), [], {}

    def case(self, name, inputs, steps, outputs=None, rtol=1e-5, atol=1e-6):
        """`inputs` = {name: tensor}; `steps` = [(out, op, [in], attrs)]; floats that require a gradient get one
        compared. A step that PyTorch refuses raises."""
        assert all(c["name"] != name for c in self.cases), name
        values = {k: v.detach().clone().requires_grad_(v.requires_grad) for k, v in inputs.items()}
        for out, op, names, attrs in steps:
            values[out] = OPS[op]([values[n] for n in names], attrs)
        outputs = outputs or [steps[-1][0]]
        loss, extra = None, {}
        grads = [k for k, v in inputs.items() if v.requires_grad]
        for k in outputs:
            y = values[k]
            extra[f"{name}:{k}"] = y
            if y.is_floating_point() and grads:
                w = weights(y.shape, y.dtype, len(self.cases))
                extra[f"{name}:w:{k}"] = w
                if y.requires_grad:
                    part = (y.double() * w.double()).sum()
                    loss = part if loss is None else loss + part
        has = loss is not None
        if has:
            found = torch.autograd.grad(loss, [values[k] for k in grads], allow_unused=True)
            for k, g in zip(grads, found):
                extra[f"{name}:g:{k}"] = torch.zeros_like(values[k]) if g is None else g
        for k, v in inputs.items():
            extra[f"{name}:{k}"] = v
        self.tensors |= {k: v.detach().clone() for k, v in extra.items()}
        self.cases.append({
            "name": name,
            "inputs": [{"name": k, "grad": has and k in grads} for k in inputs],
            "steps": [{"out": o, "op": p, "in": i, "attrs": a} for o, p, i, a in steps],
            "outputs": outputs, "rtol": rtol, "atol": atol,
        })

    def write(self):
        self.path.mkdir(parents=True, exist_ok=True)
        lines = ",\n".join(json.dumps(c) for c in self.cases)
        (self.path / "cases.json").write_text(f"[\n{lines}\n]\n")
        head, body = {}, []
        at = 0
        for k, t in sorted(self.tensors.items()):
            b = raw(t)
            head[k] = {"dtype": NAMES[t.dtype], "shape": list(t.shape), "data_offsets": [at, at + len(b)]}
            at += len(b)
            body.append(b)
        text = json.dumps(head).encode()
        text += b" " * (-len(text) % 8)
        (self.path / "tensors.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"".join(body))
