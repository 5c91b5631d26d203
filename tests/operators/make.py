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

folder.write()
