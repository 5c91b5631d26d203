"""NumPy, by its own BLAS. Results are written into storage that is there before, where its functions allow it."""
import timing

ARGS = timing.options()
import numpy as np  # noqa: E402: it counts the cores when it is imported

M16 = 1 << 24
RANDOM = np.random.default_rng(0)


def normal(*shape):
    return RANDOM.standard_normal(shape, dtype=np.float32)


def numbers(n, limit):
    return (np.arange(n) * 7919 % limit).astype(np.int32)


def product(a, b, *out, turned=(False, False)):
    """Of normal arrays of these shapes, either given the other way round."""

    def prepare():
        x, y = (normal(*s).swapaxes(-1, -2) if t else normal(*s) for s, t in zip((a, b), turned))
        z = np.empty(out, np.float32)
        return lambda: np.matmul(x, y, out=z)

    return {"": prepare}


def of(shape, call):
    """Something of a normal array, and of storage of the same shape."""

    def prepare():
        x = normal(*shape)
        y = np.empty_like(x)
        return lambda: call(x, y)

    return {"": prepare}


def chain():
    x, y, t = normal(M16), normal(M16), np.empty(M16, np.float32)

    def call():
        np.multiply(x, 2, out=t)
        np.add(t, 1, out=t)
        np.maximum(t, 0, out=t)
        np.exp(t, out=t)
        np.multiply(t, y, out=t)

    return call


def softmax(x, y):
    np.subtract(x, x.max(1, keepdims=True), out=y)
    np.exp(y, out=y)
    np.divide(y, y.sum(1, keepdims=True), out=y)


def lookup():
    table, places, y = normal(32768, 512), numbers(8192, 32768), np.empty((8192, 512), np.float32)
    return lambda: np.take(table, places, 0, out=y, mode="clip")


def histogram():
    x = numbers(393_216, 256)
    return lambda: np.bincount(x, minlength=256)


def topk(x, _):
    places = np.argpartition(x, -10, -1)[..., -10:]
    return np.take_along_axis(x, places, -1), places


def rows():
    square = {n: product((n, n), (n, n), n, n) for n in (64, 128, 256, 512, 1023, 1024, 2048, 4096)}
    all = {f"gemm_f32_{n}": row for n, row in square.items()}
    for m, k, n in ((2047, 1531, 777), (64, 4096, 64), (4096, 64, 4096)):
        all[f"gemm_f32_{m}x{k}x{n}"] = product((m, k), (k, n), m, n)
    n = 1024
    for name, turned in (("nt", (False, True)), ("tn", (True, False)), ("tt", (True, True))):
        all[f"gemm_f32_{name}_{n}"] = product((n, n), (n, n), n, n, turned=turned)
    n = 4096
    return all | {
        "gemm_f32_64x_128x64x128": product((64, 128, 64), (64, 64, 128), 64, 128, 128),
        "gemv_4096": product((n, n), (n,), n),
        "gemv_t_4096": product((n,), (n, n), n),
        "chain_16M": {"": chain},
        "sum_16M": of((M16,), lambda x, _: x.sum()),
        "max_16M": of((M16,), lambda x, _: x.max()),
        "mean_16M": of((M16,), lambda x, _: x.mean()),
        "sum_axis0_4096x4096": of((n, n), lambda x, _: x.sum(0)),
        "softmax_4096x4096": of((n, n), softmax),
        "transpose_4096": of((n, n), lambda x, y: np.copyto(y, x.T)),
        "cumsum_4096": of((n, n), lambda x, y: np.cumsum(x, 1, out=y)),
        "cumsum_axis0_4096": of((n, n), lambda x, y: np.cumsum(x, 0, out=y)),
        "cumsum_100000": of((100_000,), lambda x, y: np.cumsum(x, out=y)),
        "embedding_8192x512": {"": lookup},
        "histogram_393216_256": {"": histogram},
        "sort_100000": of((100_000,), lambda x, _: np.sort(x)),
        "sort_64x4096": of((64, n), lambda x, _: np.sort(x, -1)),
        "argsort_100000": of((100_000,), lambda x, _: np.argsort(x)),
        "argsort_64x4096": of((64, n), lambda x, _: np.argsort(x, -1)),
        "topk10_100000": of((100_000,), topk),
        "topk10_64x4096": of((64, n), topk),
    }


timing.main(f"numpy {np.__version__}", rows(), ARGS)
