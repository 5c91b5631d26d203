"""PyTorch, eager. Results are written into storage that is there before, where an `out=` allows it; a
convolution's other variant has its images with the channels last."""
import timing

ARGS = timing.options()
import torch  # noqa: E402: it counts the cores when it is imported
import torch.nn.functional as F  # noqa: E402

import torch_networks  # noqa: E402

torch.set_num_threads(ARGS.threads)
torch.manual_seed(0)
M16 = 1 << 24
normal = torch.randn


def numbers(n, limit, dtype=torch.int64):
    return (torch.arange(n) * 7919 % limit).to(dtype)


def row(*shapes, call):
    """Something of normal arrays."""

    def prepare():
        inputs = [normal(*shape) for shape in shapes]
        return lambda: call(*inputs)

    return {"": prepare}


def into(shape, *shapes, call):
    """The same, with storage of a shape for the result."""

    def prepare():
        inputs = [normal(*s) for s in shapes]
        out = torch.empty(shape)
        return lambda: call(*inputs, out=out)

    return {"": prepare}


def products():
    def gemm(m, k, n):
        return into((m, n), (m, k), (k, n), call=torch.mm)

    def bf16(n):
        x, y, z = normal(n, n).bfloat16(), normal(n, n).bfloat16(), torch.empty(n, n).bfloat16()
        return lambda: torch.mm(x, y, out=z)

    def i8(n):
        x, y = (torch.randint(-100, 100, (n, n), dtype=torch.int8) for _ in range(2))
        z = torch.empty(n, n, dtype=torch.int32)
        return lambda: torch._int_mm(x, y, out=z)

    def attention(length, causal):
        heads = (1, 12, length, 64)
        attend = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal)  # noqa: E731
        return row(heads, heads, heads, call=attend)

    def attention_grad(length):
        def prepare():
            q, k, v = (normal(1, 12, length, 64).requires_grad_() for _ in range(3))
            flow = normal(1, 12, length, 64)

            @torch.enable_grad()
            def call():
                y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
                return torch.autograd.grad(y, [q, k, v], flow)

            return call

        return {"": prepare}

    all = {f"gemm_f32_{n}": gemm(n, n, n) for n in (64, 128, 256, 512, 1024, 2048, 4096, 1023)}
    for m, k, n in ((2047, 1531, 777), (64, 4096, 64), (4096, 64, 4096), (8, 4096, 4096)):
        all[f"gemm_f32_{m}x{k}x{n}"] = gemm(m, k, n)
    square = (1024, 1024)
    three = (square, square, square)
    turned = lambda x, y, out: torch.mm(x, y.t(), out=out)  # noqa: E731
    all |= {
        "gemm_f32_nt_8x4096x4096": into((8, 4096), (8, 4096), (4096, 4096), call=turned),
        "gemm_f32_nt_1024": into(*three, call=turned),
        "gemm_f32_tn_1024": into(*three, call=lambda x, y, out: torch.mm(x.t(), y, out=out)),
        "gemm_f32_tt_1024": into(*three, call=lambda x, y, out: torch.mm(x.t(), y.t(), out=out)),
        "gemm_f32_64x_128x64x128": into((64, 128, 128), (64, 128, 64), (64, 64, 128), call=torch.bmm),
        "gemv_4096": into((4096,), (4096, 4096), (4096,), call=torch.mv),
        "gemv_t_4096": into((4096,), (4096, 4096), (4096,), call=lambda x, y, out: torch.mv(x.t(), y, out=out)),
    }
    for n in (1024, 2048, 4096):
        all[f"gemm_bf16_{n}"] = {"": lambda n=n: bf16(n)}
        all[f"gemm_i8_{n}"] = {"": lambda n=n: i8(n)}
    for n in (128, 512, 2048):
        all[f"attention_12x64_{n}"] = attention(n, False)
        all[f"attention_12x64_{n}_causal"] = attention(n, True)
    all["attention_1024_causal_grad"] = attention_grad(1024)
    return all


def lines():
    """Elementwise expressions, reductions, normalisations, losses, scans, copies."""

    def chain(x, y, out):
        torch.mul(x, 2, out=out).add_(1).relu_().exp_().mul_(y)

    def layer_norm():
        x, w, b = normal(4096, 1024), normal(1024), normal(1024)
        outs = torch.empty_like(x), torch.empty(4096, 1), torch.empty(4096, 1)
        into = torch.ops.aten.native_layer_norm.out
        return {
            "": lambda: F.layer_norm(x, (1024,), w, b),
            "out=": lambda: into(x, [1024], w, b, 1e-5, out0=outs[0], out1=outs[1], out2=outs[2]),
        }

    def cross_entropy(backward):
        x, y = normal(4096, 32000, requires_grad=backward), numbers(4096, 32000)
        if not backward:
            return lambda: F.cross_entropy(x, y)

        def both():
            with torch.enable_grad():
                return torch.autograd.grad(F.cross_entropy(x, y), x)

        return both

    square = (4096, 4096)
    two = (square, square)
    norm = {variant: lambda v=variant: layer_norm()[v] for variant in ("", "out=")}
    return {
        "chain_16M": into((M16,), (M16,), (M16,), call=chain),
        "sum_16M": row((M16,), call=torch.sum),
        "max_16M": row((M16,), call=torch.max),
        "mean_16M": row((M16,), call=torch.mean),
        "sum_axis0_4096x4096": into((4096,), square, call=lambda x, out: torch.sum(x, 0, out=out)),
        "softmax_4096x4096": into(*two, call=lambda x, out: torch.softmax(x, 1, out=out)),
        "layernorm_4096x1024": norm,
        "cross_entropy_4096x32000": {"": lambda: cross_entropy(False)},
        "cross_entropy_4096x32000_bwd": {"": lambda: cross_entropy(True)},
        "transpose_4096": into(*two, call=lambda x, out: out.copy_(x.t())),
        "cumsum_4096": into(*two, call=lambda x, out: torch.cumsum(x, 1, out=out)),
        "cumsum_axis0_4096": into(*two, call=lambda x, out: torch.cumsum(x, 0, out=out)),
        "cumsum_100000": into((100_000,), (100_000,), call=lambda x, out: torch.cumsum(x, 0, out=out)),
    }


def convolutions():
    def layer(name, inputs, outputs, kernel, stride=1, groups=1, gradients=True):
        pad, size = kernel // 2, (56 - 1) // stride + 1
        shapes = (8, inputs, 56, 56), (outputs, inputs // groups, kernel, kernel), (8, outputs, size, size)

        def operands(form):
            return [normal(*s).to(memory_format=form) for s in shapes]

        def forward(form):
            x, w, _ = operands(form)
            return lambda: F.conv2d(x, w, None, stride, pad, 1, groups)

        def backward(form, wanted):
            x, w, y = operands(form)
            back = torch.ops.aten.convolution_backward
            how = [stride] * 2, [pad] * 2, [1] * 2, False, [0] * 2, groups
            return lambda: back(y, x, w, None, *how, wanted)

        forms = {"": torch.contiguous_format, "channels last": torch.channels_last}
        all = {name: {v: lambda f=f: forward(f) for v, f in forms.items()}}
        if gradients:
            for which, wanted in (("x", [True, False, False]), ("w", [False, True, False])):
                of = {v: lambda f=f, wanted=wanted: backward(f, wanted) for v, f in forms.items()}
                all[f"{name}_grad_{which}"] = of
        return all

    images = (8, 64, 112, 112)
    pools = {
        "max_pool_2x2_8x64x112x112": row(images, call=lambda x: F.max_pool2d(x, 2, 2)),
        "max_pool_3x3s2_8x64x112x112": row(images, call=lambda x: F.max_pool2d(x, 3, 2)),
        "avg_pool_2x2_8x64x112x112": row(images, call=lambda x: F.avg_pool2d(x, 2, 2)),
        "avg_pool_3x3s2_8x64x112x112": row(images, call=lambda x: F.avg_pool2d(x, 3, 2)),
    }
    return (
        layer("conv3x3_64_64", 64, 64, 3)
        | layer("conv1x1_256_64", 256, 64, 1)
        | layer("conv3x3_64_64_stride2", 64, 64, 3, stride=2)
        | layer("conv5x5_32_32", 32, 32, 5)
        | layer("conv3x3_64_64_groups4", 64, 64, 3, groups=4)
        | layer("dwconv3x3_64", 64, 64, 3, groups=64, gradients=False)
        | pools
    )


def layers():
    def swiglu(x, gate, up, down):
        return F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)

    def lora(x, w, a, b):
        return F.linear(x, w) + F.linear(F.linear(x, a), b) * 0.5

    def rnn_cell(x, w, h, u, bias):
        return torch.tanh(F.linear(x, w, bias) + F.linear(h, u))

    def norm_and_conv(x, w):
        return F.conv2d(F.relu(F.batch_norm(x, None, None, training=True)), w, padding=1)

    square = (256, 256)
    within = (2048, 1024)
    return {
        "swiglu_512x1024x2048": row((512, 1024), within, within, (1024, 2048), call=swiglu),
        "lora_512x1024_16": row((512, 1024), (1024, 1024), (16, 1024), (1024, 16), call=lora),
        "rnn_cell_64x256": row((64, 256), square, (64, 256), square, (256,), call=rnn_cell),
        "bn_conv3x3_8x64x28x28": row((8, 64, 28, 28), (64, 64, 3, 3), call=norm_and_conv),
        "patches4x4_3_96_8x224x224": row(
            (8, 3, 224, 224), (96, 3, 4, 4), call=lambda x, w: F.conv2d(x, w, stride=4)
        ),
        "mean_axis1_128x197x768": row((128, 197, 768), call=lambda x: torch.mean(x, 1)),
    }


def places():
    """What reads and writes at places that come from data."""

    def lookup():
        table, ids, out = normal(32768, 512), numbers(8192, 32768), torch.empty(8192, 512)
        return lambda: torch.index_select(table, 0, ids, out=out)

    def descent(sparse):
        table = torch.nn.Embedding(30_000, 128, sparse=sparse)
        weights, ids = normal(1024, 128), numbers(1024, 30_000)
        sgd = torch.optim.SGD(table.parameters(), lr=0.1)

        def step():
            with torch.enable_grad():
                sgd.zero_grad()
                (table(ids) * weights).sum().backward()
                sgd.step()

        return step

    def bincount():
        x = numbers(393_216, 256, torch.int32)
        return lambda: torch.bincount(x, minlength=256)

    def scatter_add():
        x, ones = numbers(393_216, 256), torch.ones(393_216, dtype=torch.int32)
        return lambda: torch.zeros(256, dtype=torch.int32).scatter_add_(0, x, ones)

    all = {
        "embedding_8192x512": {"": lookup},
        "embedding_sgd_30000x128_1024": {"": lambda: descent(False), "sparse": lambda: descent(True)},
        "histogram_393216_256": {"bincount": bincount, "scatter_add": scatter_add},
    }
    for name, shape in (("100000", (100_000,)), ("64x4096", (64, 4096))):
        all[f"sort_{name}"] = row(shape, call=torch.sort)
        all[f"argsort_{name}"] = row(shape, call=torch.argsort)
        all[f"topk10_{name}"] = row(shape, call=lambda x: torch.topk(x, 10))
    return all


with torch.no_grad():
    ROWS = products() | lines() | convolutions() | layers() | places() | torch_networks.rows()
    timing.main(f"torch {torch.__version__.split('+')[0]}", ROWS, ARGS)
