"""Cases that were wrong once: `python make.py` writes cases.json and tensors.safetensors beside itself."""

from pathlib import Path

import torch

from cases import Folder

folder = Folder(Path(__file__).parent)


def normal(*shape, dtype=torch.float32, grad=True):
    return torch.randn(shape, generator=random).to(dtype).requires_grad_(grad)


random = torch.Generator().manual_seed(7)

# The gradient of a gather whose gate is of the place within the axis, with enough planes to vectorise.
for how in ("nearest-exact", "nearest"):
    for size in ([4, 6], [7, 2]):
        folder.case(f"interpolate/{how}/{size[0]}x{size[1]}", {"x": normal(1, 6, 3, 5)},
                    [("y", "interpolate", ["x"], {"mode": how, "size": size, "align_corners": None})])

# Scores of half floats stay f32 until the product with the values.
for dtype, atol in ((torch.float16, 2e-3), (torch.bfloat16, 1.6e-2)):
    q, k, v = [normal(2, 3, 9, 16, dtype=dtype) for _ in range(3)]
    mask = normal(9, 9, dtype=dtype, grad=False)
    name = str(dtype).split(".")[1]
    for kind, inputs in (("plain", {}), ("masked", {"m": mask}), ("bools", {"m": mask > 0.5})):
        folder.case(f"attention/{name}/{kind}", {"q": q, "k": k, "v": v} | inputs,
                    [("y", "attention", ["q", "k", "v"] + list(inputs), {})], rtol=1e-3, atol=atol)

for name, bounds in (("both", {"min": -1.0, "max": 1.0}), ("min", {"min": 0.0}), ("max", {"max": 0.0})):
    x = torch.tensor([float("nan"), -2.0, -1.5, -0.25, 0.75, 3.0, float("inf"), -float("inf")], requires_grad=True)
    folder.case(f"clamp/nan/{name}", {"x": x}, [("y", "clamp", ["x"], bounds)])

for d in (0, -1):
    x = normal()
    at = torch.tensor(0)
    for op, names, attrs in (
            ("transpose", ["x"], {"dim0": d, "dim1": -1 - d}), ("gather", ["x", "i"], {"dim": d}),
            ("index_select", ["x", "i"], {"dim": d}), ("scatter", ["x", "i", "v"], {"dim": d}),
            ("scatter_add", ["x", "i", "v"], {"dim": d}), ("unfold", ["x"], {"dim": d, "size": 1, "step": 1}),
            ("flip", ["x"], {"dims": [d]}), ("squeeze", ["x"], {"dim": d}), ("cummax", ["x"], {"dim": d})):
        inputs = {n: {"x": x, "i": at, "v": normal()}[n] for n in names}
        folder.case(f"scalar/{op}/{d}", inputs, [("y", op, names, attrs)])

for lens, pads in (((3, 4), [[2, -5]]), ((3, 4), [[-5, 2]]), ((3,), [[-3, 4]]), ((3,), [[4, -3]])):
    folder.case(f"pad/replicate/{lens}{pads}", {"x": normal(*lens)},
                [("y", "pad", ["x"], {"mode": "replicate", "pads": pads})])

for dtype in (torch.int8, torch.uint8, torch.int16, torch.int32, torch.bool):
    x = (torch.arange(300) % 7 - 2).to(dtype)
    name = str(dtype).split(".")[1]
    folder.case(f"einsum/{name}/sum", {"x": x}, [("y", "einsum", ["x"], {"equation": "i->"})])
    folder.case(f"einsum/{name}/row", {"x": x.reshape(2, 150)}, [("y", "einsum", ["x"], {"equation": "ij->i"})])

# At infinities and NaN. PyTorch's loops over vectors and their remainders differ at NaN: the vectors' count.
inf = float("inf")
ends = torch.tensor([inf, -inf, float("nan"), 3.0, -3.0, 0.5, -0.5, 1e20] * 8)
for op, attrs in (("hardsigmoid", {}), ("hardswish", {}), ("hardtanh", {}), ("relu6", {}), ("selu", {}),
                  ("elu", {"alpha": 0.5}), ("celu", {"alpha": 2.0})):
    folder.case(f"ends/{op}", {"x": ends.clone().requires_grad_()}, [("y", op, ["x"], attrs)])
wide = torch.tensor([inf, -inf, 3e38, -3e38, float("nan"), 15.0, -15.0, 0.25], requires_grad=True)
for beta in (0.5, 2.0):
    folder.case(f"ends/softplus/{beta}", {"x": wide}, [("y", "softplus", ["x"], {"beta": beta})])
values = [inf, -inf, float("nan"), 0.0, 2.0]
pair = {"a": torch.tensor([a for a in values for _ in values], requires_grad=True),
        "b": torch.tensor([b for _ in values for b in values], requires_grad=True)}
for op in ("maximum", "minimum"):
    folder.case(f"ends/{op}", pair, [("y", op, ["a", "b"], {})])

# What w = 1 gives is the end, however far away the start is.
for dtype in (torch.float32, torch.float16):
    name = str(dtype).split(".")[1]
    far = torch.tensor([6e4, -6e4, 1.0, 3.0, 5.0, 0.1], dtype=dtype, requires_grad=True)
    near = torch.tensor([0.001, 1.0, 2.0, 3.0, -5.0, 0.3], dtype=dtype, requires_grad=True)
    share = torch.tensor([1.0, 1.0, 0.75, 0.5, 0.0, 0.3], dtype=dtype, requires_grad=True)
    folder.case(f"lerp/{name}", {"a": far, "b": near, "w": share}, [("y", "lerp", ["a", "b", "w"], {})],
                rtol=1e-5 if dtype == torch.float32 else 1e-3)

# Padding ties with -inf, but nothing flows to it.
low = torch.tensor([[[[-inf, -inf, 1.0, 1.0]]]], requires_grad=True)
folder.case("max_pool2d/least", {"x": low},
            [("y", "max_pool2d", ["x"], {"kernel": [1, 2], "stride": [1, 1], "padding": [0, 1], "dilation": [1, 1]})])

for shape, d, step in (((3,), 0, 2), ((2, 5), 0, 1), ((2, 5), -1, 7), ((0, 3), 0, 1), ((), 0, 1)):
    folder.case(f"unfold/nothing/{shape}/{step}", {"x": normal(*shape)},
                [("y", "unfold", ["x"], {"dim": d, "size": 0, "step": step})])

folder.case("clamp/bool", {"x": torch.tensor([True, False, True])}, [("y", "clamp", ["x"], {"min": -1, "max": 0})])

folder.write()
