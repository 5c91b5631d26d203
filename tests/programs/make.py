"""What the programs of this folder are compared with: `python make.py` writes NAME.txt for each, with PyTorch or
NumPy (`pip install torch numpy`). A line is a name, the shape, and the elements: all of them, or, of more than
48, every so many, and then the root of the sum of squares. `numbers` gives inputs that both sides make alike."""

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

HERE = Path(__file__).parent
MOST = 48
torch.set_num_threads(1)


def numbers(seed, *shape, dtype=torch.float32):
    """Numbers in [-1, 1), the same as `numbers` in main.rs gives: the top 24 bits of SplitMix64 of a counter."""
    with np.errstate(over="ignore"):
        z = np.arange(int(np.prod(shape)), dtype=np.uint64) + (np.uint64(seed) << np.uint64(32))
        z = z * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    v = (z >> np.uint64(40)).astype(np.float64) / (1 << 23) - 1
    return torch.from_numpy(v.reshape(shape)).to(dtype)


def weights(seed, name, shape):
    """Where training starts: as `weights` in main.rs."""
    v = numbers(seed, *shape, dtype=torch.float64)
    if len(shape) == 1:
        v = 0.1 * v + (1.0 if name.endswith("weight") else 0.0)
    else:
        v = v * np.sqrt(1.0 / shape[-1])
    return v.float()


def start(net):
    """Give a module's parameters, in their order, the numbers that the other side gives."""
    with torch.no_grad():
        for k, (name, p) in enumerate(net.named_parameters()):
            p.copy_(weights(1000 + k, name, tuple(p.shape)))
    return net


class Reference:
    def __init__(self, name):
        self.name, self.lines = name, []

    def put(self, name, value):
        t = torch.as_tensor(value).detach().double()
        flat = t.reshape(-1)
        n = flat.numel()
        if n > MOST:
            picked = flat[[i * (n - 1) // (MOST - 1) for i in range(MOST)]].tolist() + [flat.norm().item()]
        else:
            picked = flat.tolist()
        shape = "x".join(map(str, t.shape)) or "scalar"
        self.lines.append(f"{name} {shape} " + " ".join(f"{v:.10g}" for v in picked))

    def write(self):
        (HERE / f"{self.name}.txt").write_text("\n".join(self.lines) + "\n")


WORDS = "the a small old red quick sad king ship dog river tree runs sees finds follows loves under over near".split()


def corpus(n):
    """As `corpus` in examples/char_transformer.rs."""
    state, text = 1, ""
    def draw(of):
        nonlocal state
        state = (state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        return of[(state >> 33) % len(of)]
    while len(text) < n:
        article, adjective, noun, verb, place = WORDS[:2], WORDS[2:7], WORDS[7:12], WORDS[12:17], WORDS[17:]
        text += " ".join([draw(article), draw(adjective), draw(noun), draw(verb), draw(place), draw(article), draw(noun)])
        text += ".\n"
    return list(text[:n].encode())


class Block(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1 = torch.nn.LayerNorm(width)
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)
        self.norm2 = torch.nn.LayerNorm(width)
        self.up = torch.nn.Linear(width, 4 * width)
        self.down = torch.nn.Linear(4 * width, width)
        self.heads = heads

    def forward(self, x):
        n, t, w = x.shape
        q, k, v = [z.reshape(n, t, self.heads, -1).transpose(1, 2) for z in self.qkv(self.norm1(x)).chunk(3, -1)]
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(n, t, w))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Transformer(torch.nn.Module):
    def __init__(self, layers, width, heads, places, words):
        super().__init__()
        self.tokens = torch.nn.Embedding(words, width)
        self.places = torch.nn.Embedding(places, width)
        self.blocks = torch.nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.norm = torch.nn.LayerNorm(width)
        self.head = torch.nn.Linear(width, words)

    def forward(self, ids):
        x = self.tokens(ids) + self.places.weight[: ids.shape[1]]
        for b in self.blocks:
            x = b(x)
        return self.head(self.norm(x))


def char_transformer():
    r = Reference("char_transformer")
    net = start(Transformer(3, 128, 4, 64, 128))
    text = torch.tensor(corpus(20_000))
    adam = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.01)
    for step in range(4):
        rows = torch.stack([text[s:s + 65] for s in [(step * 16 + i) * 257 % (20_000 - 65) for i in range(16)]])
        logits = net(rows[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, 128), rows[:, 1:].reshape(-1))
        adam.zero_grad()
        loss.backward()
        r.put(f"loss{step}", loss)
        if step == 0:
            r.put("logits", logits)
            for name, p in net.named_parameters():
                r.put(f"gradient.{name}", p.grad)
        adam.step()
    for name, p in net.named_parameters():
        r.put(f"after.{name}", p)
    r.write()


def lstm():
    """torch.nn.LSTM against cells written from tensor operations."""
    r = Reference("lstm")
    steps, batch, inputs, width = 12, 4, 8, 16
    net = torch.nn.LSTM(inputs, width)
    net.bias_hh_l0.requires_grad_(False)
    with torch.no_grad():
        net.weight_ih_l0.copy_(weights(1000, "", (4 * width, inputs)))
        net.weight_hh_l0.copy_(weights(1001, "", (4 * width, width)))
        net.bias_ih_l0.copy_(weights(1002, "", (4 * width,)))
        net.bias_hh_l0.zero_()
    x, target = numbers(1, steps, batch, inputs), numbers(2, steps, batch, width)
    sgd = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.5)
    for step in range(4):
        y, (h, c) = net(x)
        loss = F.mse_loss(y, target)
        sgd.zero_grad()
        loss.backward()
        r.put(f"loss{step}", loss)
        if step == 0:
            r.put("outputs", y)
            r.put("hidden", h[0])
            r.put("cell", c[0])
            for k in ("weight_ih", "weight_hh", "bias_ih"):
                r.put(f"gradient.{k}", getattr(net, k + "_l0").grad)
        sgd.step()
    r.write()


def conjugate_gradients():
    """A solve by NumPy against the method's steps."""
    r = Reference("conjugate_gradients")
    m = numbers(3, 48, 48, dtype=torch.float64).numpy()
    a, b = m @ m.T + np.eye(48) * 4, numbers(4, 48, dtype=torch.float64).numpy()
    r.put("solution", np.linalg.solve(a, b))
    x, res = np.zeros(48), b.copy()
    p, rs = res.copy(), res @ res
    for step in range(12):
        ap = a @ p
        alpha = rs / (p @ ap)
        x, res = x + alpha * p, res - alpha * ap
        new = res @ res
        p, rs = res + new / rs * p, new
        r.put(f"residual{step}", np.sqrt(rs))
    r.put("after12", x)
    r.write()


def k_means():
    r = Reference("k_means")
    centres = np.array([[-0.6, -0.5], [0.5, -0.6], [0.0, 0.7], [0.8, 0.6]])
    points = (numbers(5, 400, 2, dtype=torch.float64).numpy() * 0.35 + centres[np.arange(400) % 4]).astype(np.float32)
    means = points[:4].astype(np.float64).copy()
    margin = np.inf
    for step in range(8):
        d = ((points[:, None] - means[None]) ** 2).sum(-1)
        near = d.argmin(1)
        two = np.sort(d, 1)[:, :2]
        margin = min(margin, (two[:, 1] - two[:, 0]).min())
        means = np.stack([points[near == k].mean(0, dtype=np.float64) for k in range(4)])
        r.put(f"inertia{step}", two[:, 0].sum())
    assert margin > 1e-5, margin
    r.put("means", means)
    r.put("near", near)
    r.write()


def image_pipeline():
    r = Reference("image_pipeline")
    y, x = np.mgrid[0:48, 0:64]
    disc = ((x - 30) ** 2 + (y - 20) ** 2 < 150).astype(np.float64)
    image = torch.from_numpy(0.5 * disc + x / 256).float()[None, None] + 0.1 * (numbers(6, 1, 1, 48, 64) + 1)
    image.requires_grad_(True)
    taps = torch.tensor([1.0, 4.0, 6.0, 4.0, 1.0]) / 16
    blurred = F.conv2d(F.pad(image, (2, 2, 2, 2), mode="reflect"), torch.outer(taps, taps)[None, None])
    dx = torch.tensor([[-1.0, 0, 1], [-2, 0, 2], [-1, 0, 1]])
    d = F.conv2d(F.pad(blurred, (1, 1, 1, 1), mode="replicate"), torch.stack([dx, dx.T])[:, None])
    edges = (d.square().sum(1, keepdim=True) + 1e-6).sqrt()
    small = F.interpolate(edges, size=(20, 28), mode="bilinear", align_corners=False)
    scaled = small / small.max() * 16
    # No value is near a border of two bins, but the greatest, which is at the end of the last.
    away = scaled.flatten().sort().values[:-1]
    assert (away - away.round()).abs().min() > 2e-5, (away - away.round()).abs().min()
    bins = scaled.floor().clamp(0, 15).long().flatten()
    r.put("blurred", blurred)
    r.put("edges", edges)
    r.put("small", small)
    r.put("histogram", torch.bincount(bins, minlength=16))
    (small * numbers(7, 1, 1, 20, 28)).sum().backward()
    r.put("gradient", image.grad)
    r.write()


def heat():
    r = Reference("heat")
    u = (numbers(8, 40, 40, dtype=torch.float64).numpy() + 1) / 2
    u[0], u[-1] = 1.0, 0.0
    u = u.astype(np.float32)
    for step in range(60):
        c = u[1:-1, 1:-1]
        u[1:-1, 1:-1] = c + np.float32(0.2) * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - np.float32(4) * c)
        if step % 20 == 19:
            r.put(f"after{step + 1}", u)
    r.write()


class Vae(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.read = torch.nn.Linear(64, 96)
        self.mean = torch.nn.Linear(96, 8)
        self.spread = torch.nn.Linear(96, 8)
        self.draw = torch.nn.Linear(8, 96)
        self.paint = torch.nn.Linear(96, 64)

    def forward(self, x, noise):
        h = torch.relu(self.read(x))
        mean, log_var = self.mean(h), self.spread(h)
        z = mean + noise * torch.exp(0.5 * log_var)
        logits = self.paint(torch.relu(self.draw(z)))
        kl = 0.5 * (mean.square() + log_var.exp() - 1 - log_var).sum(1)
        bce = F.binary_cross_entropy_with_logits(logits, x, reduction="none").sum(1)
        return (bce + kl).mean(), logits


def vae():
    r = Reference("vae")
    rows = np.loadtxt(HERE.parent.parent / "crates/nn/data/digits.csv", delimiter=",")[:128, :64] / 16
    net = start(Vae())
    adam = torch.optim.Adam(net.parameters(), lr=2e-3)
    for step in range(6):
        x = torch.from_numpy(rows[step % 4 * 32: step % 4 * 32 + 32]).float()
        loss, logits = net(x, numbers(20 + step, 32, 8) * np.float32(1.7320508))
        adam.zero_grad()
        loss.backward()
        r.put(f"loss{step}", loss)
        if step == 0:
            r.put("logits", logits)
            for name, p in net.named_parameters():
                r.put(f"gradient.{name}", p.grad)
        adam.step()
    for name, p in net.named_parameters():
        r.put(f"after.{name}", p)
    r.write()


def sampling():
    r = Reference("sampling")
    net = start(Transformer(1, 32, 2, 24, 16))
    ids, luck, margin = [3, 1, 4], (numbers(9, 10, dtype=torch.float64) + 1) / 2, 1.0
    with torch.no_grad():
        for step in range(10):
            logits = net(torch.tensor([ids]))[0, -1]
            total = torch.softmax(logits / 0.7, 0).cumsum(0)
            margin = min(margin, (total.double() - luck[step]).abs().min().item())
            r.put(f"logits{step}", logits)
            ids.append(int((total < luck[step]).sum()))
    assert margin > 1e-5, margin
    r.put("ids", torch.tensor(ids))
    r.write()


def second_order():
    r = Reference("second_order")
    sizes = [(24, 6), (24,), (24, 24), (24,), (1, 24), (1,)]
    def fresh():
        return [weights(1000 + k, "", s).requires_grad_(True) for k, s in enumerate(sizes)]
    def net(w, x):
        h = torch.tanh(F.linear(x, w[0], w[1]))
        return F.linear(F.silu(F.linear(h, w[2], w[3])), w[4], w[5])
    w, x, target = fresh(), numbers(10, 16, 6), numbers(11, 16, 1)
    loss = F.mse_loss(net(w, x), target)
    grads = torch.autograd.grad(loss, w, create_graph=True)
    v = [numbers(30 + k, *s) for k, s in enumerate(sizes)]
    along = sum((g * d).sum() for g, d in zip(grads, v))
    r.put("loss", loss)
    for k, (g, h) in enumerate(zip(grads, torch.autograd.grad(along, w))):
        r.put(f"gradient{k}", g)
        r.put(f"product{k}", h)
    w = fresh()
    sgd = torch.optim.SGD(w, lr=0.1)
    for step in range(4):
        real, fake, mix = numbers(40 + step, 16, 6), numbers(50 + step, 16, 6), (numbers(60 + step, 16, 1) + 1) / 2
        between = (mix * real + (1 - mix) * fake).requires_grad_(True)
        slope, = torch.autograd.grad(net(w, between).sum(), between, create_graph=True)
        penalty = ((slope.square().sum(1).sqrt() - 1) ** 2).mean()
        loss = net(w, fake).mean() - net(w, real).mean() + 10 * penalty
        sgd.zero_grad()
        loss.backward()
        r.put(f"penalty{step}", penalty)
        r.put(f"critic{step}", loss)
        if step == 0:
            for k, p in enumerate(w):
                r.put(f"critic.gradient{k}", p.grad if p.grad is not None else torch.zeros_like(p))
        sgd.step()
    r.write()


def serving():
    r = Reference("serving")
    sizes = [(64, 16), (64,), (64, 64), (64,), (10, 64), (10,)]
    w = [weights(1000 + k, "", s) for k, s in enumerate(sizes)]
    for thread in range(4):
        for request in range(8):
            x = numbers(100 + thread * 8 + request, 4, 16)
            h = torch.relu(F.linear(x, w[0], w[1]))
            y = torch.softmax(F.linear(torch.relu(F.linear(h, w[2], w[3])), w[4], w[5]), 1)
            r.put(f"answer{thread}.{request}", y)
    r.write()


for program in (char_transformer, lstm, conjugate_gradients, k_means, image_pipeline, heat, vae, sampling,
                second_order, serving):
    program()
