"""The networks of `monoglot bench` in PyTorch: shapes and steps as in `crates/models` and the example
`char_transformer`."""
import torch
import torch.nn.functional as F
from torch import nn


def heads(x, count):
    """(batch, length, width) -> (batch, heads, length, width of a head)"""
    return x.unflatten(-1, (count, -1)).transpose(1, 2)


def joined(x):
    return x.transpose(1, 2).flatten(2)


class BertLayer(nn.Module):
    def __init__(self, width, inner, count):
        super().__init__()
        self.count = count
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.norm1, self.norm2 = (nn.LayerNorm(width, eps=1e-12) for _ in range(2))
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x):
        q, k, v = (heads(layer(x), self.count) for layer in (self.q, self.k, self.v))
        x = self.norm1(x + self.o(joined(F.scaled_dot_product_attention(q, k, v))))
        return self.norm2(x + self.down(F.gelu(self.up(x))))


class MiniLm(nn.Module):
    def __init__(self, width=384):
        super().__init__()
        self.words, self.places, self.kinds = (nn.Embedding(n, width) for n in (30_522, 512, 2))
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.layers = nn.Sequential(*(BertLayer(width, 1536, 12) for _ in range(6)))

    def forward(self, ids):
        x = self.words(ids) + self.places.weight[: ids.shape[1]] + self.kinds.weight[0]
        return self.layers(self.norm(x))


class Block(nn.Module):
    """A block of a transformer that normalises first: GPT-2's, and the example's."""

    def __init__(self, width, count, approximate):
        super().__init__()
        self.count, self.approximate = count, approximate
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, cache=None, place=0):
        length = x.shape[1]
        q, k, v = (heads(z, self.count) for z in self.qkv(self.norm1(x)).chunk(3, -1))
        if cache is not None:
            for kept, new in zip(cache, (k, v)):
                kept[:, :, place : place + length] = new
            k, v = (kept[:, :, : place + length] for kept in cache)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=length > 1)
        x = x + self.out(joined(seen))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate=self.approximate))


class Gpt2(nn.Module):
    def __init__(self, width=768):
        super().__init__()
        self.words, self.places = nn.Embedding(50_257, width), nn.Embedding(1024, width)
        self.blocks = nn.ModuleList(Block(width, 12, "tanh") for _ in range(12))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids, cache=None, place=0):
        """Scores of what follows the last token."""
        x = self.words(ids) + self.places.weight[place : place + ids.shape[1]]
        for k, block in enumerate(self.blocks):
            x = block(x, cache and cache[k], place)
        return F.linear(self.norm(x[:, -1:]), self.words.weight)


class CharTransformer(nn.Module):
    def __init__(self, layers=3, width=128, count=4, length=64, letters=128):
        super().__init__()
        self.tokens, self.places = nn.Embedding(letters, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, count, "none") for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, letters)

    def forward(self, ids, cache=None, place=0):
        x = self.tokens(ids) + self.places.weight[place : place + ids.shape[1]]
        for k, block in enumerate(self.blocks):
            x = block(x, cache and cache[k], place)
        return self.head(self.norm(x))


def conv_net():
    conv, relu = nn.Conv2d, nn.ReLU
    first = conv(1, 32, 5), relu(), conv(32, 32, 5), relu(), nn.BatchNorm2d(32), nn.MaxPool2d(2)
    second = conv(32, 64, 3), relu(), conv(64, 64, 3), relu(), nn.BatchNorm2d(64), nn.MaxPool2d(2)
    return nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(576, 10))


def training(net, optimizer, loss):
    """A step, with gradients whatever stands around it."""

    def step():
        with torch.enable_grad():
            optimizer.zero_grad()
            loss(net).backward()
            optimizer.step()

    return step


def mini_lm(batch):
    net = MiniLm().eval()
    ids = (1000 + torch.arange(128 * batch) * 7919 % 20_000).view(batch, 128)
    return lambda: net(ids)


def decode(dtype=torch.float32):
    net = Gpt2().eval().to(dtype)
    cache = [[torch.zeros(1, 12, 256, 64, dtype=dtype) for _ in range(2)] for _ in net.blocks]
    token = torch.tensor([[1234]])
    return lambda: net(token, cache, 128)


def prefill():
    net, ids = Gpt2().eval(), torch.arange(128)[None]
    return lambda: net(ids)


def mnist():
    net, x, y = conv_net(), torch.randn(512, 1, 28, 28), torch.arange(512) * 7919 % 10
    adam = torch.optim.Adam(net.parameters(), lr=1e-3)
    return training(net, adam, lambda net: F.cross_entropy(net(x), y))


def characters():
    net, ids = CharTransformer(), torch.randint(0, 128, (16, 65))
    adam = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.01)
    inputs, targets = ids[:, :-1].contiguous(), ids[:, 1:].flatten()
    return training(net, adam, lambda net: F.cross_entropy(net(inputs).flatten(0, 1), targets))


def letters(count=256):
    """So many letters, one by one, each drawn, from one."""
    net = CharTransformer(length=count).eval()
    cache = [[torch.zeros(1, 4, count, 32) for _ in range(2)] for _ in net.blocks]

    def write():
        text = [torch.tensor([[116]])]
        for place in range(count):
            scores = net(text[-1], cache, place)[:, -1] / 0.7
            text.append(torch.multinomial(scores.softmax(-1), 1))
        return torch.cat(text).tolist()

    return write


def lstm(times):
    """A step over so many times of 32 sequences; it has two biases, where ours has their sum."""
    net, xs = nn.LSTM(64, 128), torch.randn(times, 32, 64)
    sgd = torch.optim.SGD(net.parameters(), lr=0.01)
    return training(net, sgd, lambda net: net(xs)[0].square().mean())


def rows():
    return {
        "minilm_b1_s128": {"": lambda: mini_lm(1)},
        "minilm_b1_captured_s128": {"": lambda: mini_lm(1)},
        "minilm_b32_s128": {"": lambda: mini_lm(32)},
        "gpt2_decode_ctx128": {"": decode},
        "gpt2_decode_captured_ctx128": {"": decode},
        "gpt2_decode_bf16_ctx128": {"": lambda: decode(torch.bfloat16)},
        "gpt2_prefill_128": {"": prefill},
        "gpt2_prefill_captured_128": {"": prefill},
        "mnist_train_b512": {"": mnist},
        "char_transformer_step_b16x64": {"": characters},
        "char_transformer_write_256": {"": letters},
        "lstm_train_50_b32": {"": lambda: lstm(50)},
        "lstm_train_500_b32": {"": lambda: lstm(500)},
    }
