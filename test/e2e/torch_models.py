"""The reference models in PyTorch: seeded weights, seeded synthetic data with learnable labels, loss and recipe.

    spec = MODELS["fashion_cnn"]
    model = spec.build()                     # the same weights every time
    inputs, labels = spec.batch_of(step=0)   # the same batch every time
    loss = spec.loss_of(model(*inputs), labels)

Loss and optimizer names are mpc's. Dropout is 0 except in mlp_dropout, which is therefore only compared in inference mode.
"""

import math
from dataclasses import dataclass, field
from typing import Callable

import torch
from torch import nn
from torch.nn import functional as F

# ---------------------------------------------------------------- models


def mlp(dropout=0.0):
    drop = [nn.Dropout(dropout)] if dropout else []
    return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), *drop, nn.Linear(512, 256), nn.ReLU(), *drop, nn.Linear(256, 10))


class MlpResidualNorm(nn.Module):
    """64-128-128-10 with LayerNorm, GELU and one residual connection."""

    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(64, 128)
        self.norm1 = nn.LayerNorm(128)
        self.fc2 = nn.Linear(128, 128)
        self.norm2 = nn.LayerNorm(128)
        self.fc3 = nn.Linear(128, 10)

    def forward(self, x):
        x = F.gelu(self.norm1(self.fc1(x)))
        x = x + F.gelu(self.norm2(self.fc2(x)))
        return self.fc3(x)


class FashionCnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(32)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(64)
        self.fc1 = nn.Linear(64 * 7 * 7, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):  # [N, 1, 28, 28] -> [N, 10]
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 2)
        x = F.max_pool2d(F.relu(self.bn2(self.conv2(x))), 2)
        return self.fc2(F.relu(self.fc1(torch.flatten(x, 1))))


class SimpleCnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.fc = nn.Linear(64 * 8 * 8, 10)

    def forward(self, x):  # [N, 3, 32, 32] -> [N, 10]
        x = torch.max_pool2d(torch.relu(self.conv1(x)), 2)
        x = torch.max_pool2d(torch.relu(self.conv2(x)), 2)
        return self.fc(x.view(x.size(0), -1))


class ResidualBlock(nn.Module):
    def __init__(self, c_in, c_out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(c_in, c_out, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(c_out)
        self.conv2 = nn.Conv2d(c_out, c_out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(c_out)
        self.downsample = None
        if stride != 1 or c_in != c_out:
            self.downsample = nn.Sequential(nn.Conv2d(c_in, c_out, 1, stride=stride, bias=False), nn.BatchNorm2d(c_out))

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        return F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))) + identity)


class ResNet18(nn.Module):
    """ResNet-18 for 32×32 images: a 3×3 stem, no first pooling."""

    def __init__(self, classes=10):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        widths = [(64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)]
        self.layers = nn.ModuleList(nn.Sequential(ResidualBlock(i, o, s), ResidualBlock(o, o, 1)) for i, o, s in widths)
        self.fc = nn.Linear(512, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        for layer in self.layers:
            x = layer(x)
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


def init_transformer(module):
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


class BertLayer(nn.Module):
    def __init__(self, hidden, heads, ffn):
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(hidden, hidden)
        self.key = nn.Linear(hidden, hidden)
        self.value = nn.Linear(hidden, hidden)
        self.attention_output = nn.Linear(hidden, hidden)
        self.attention_norm = nn.LayerNorm(hidden, eps=1e-12)
        self.intermediate = nn.Linear(hidden, ffn)
        self.output = nn.Linear(ffn, hidden)
        self.output_norm = nn.LayerNorm(hidden, eps=1e-12)

    def split(self, x):  # [N, T, H*D] -> [N, H, T, D]
        return x.view(x.size(0), x.size(1), self.heads, -1).transpose(1, 2)

    def forward(self, x, bias):
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.size(-1)) + bias  # [N, H, T, T]
        mixed = (scores.softmax(dim=-1) @ v).transpose(1, 2).flatten(2)
        x = self.attention_norm(x + self.attention_output(mixed))
        return self.output_norm(x + self.output(F.gelu(self.intermediate(x))))


class Bert(nn.Module):
    """Post-norm encoder with explicit attention; the mask is added as the type's lowest value."""

    def __init__(self, layers=2, hidden=128, heads=2, ffn=512, vocab=2000, positions=64, classes=2):
        super().__init__()
        self.word = nn.Embedding(vocab, hidden)
        self.position = nn.Embedding(positions, hidden)
        self.norm = nn.LayerNorm(hidden, eps=1e-12)
        self.layers = nn.ModuleList(BertLayer(hidden, heads, ffn) for _ in range(layers))
        self.pooler = nn.Linear(hidden, hidden)
        self.classifier = nn.Linear(hidden, classes)
        self.apply(init_transformer)

    def forward(self, ids, mask):  # [N, T], [N, T] -> [N, classes]
        x = self.word(ids) + self.position.weight[: ids.size(1)]
        bias = (1 - mask[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
        x = self.norm(x)
        for layer in self.layers:
            x = layer(x, bias)
        return self.classifier(torch.tanh(self.pooler(x[:, 0])))


class PreNormBlock(nn.Module):
    """Transformer block with fused QKV and scaled_dot_product_attention."""

    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(hidden)
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.proj = nn.Linear(hidden, hidden)
        self.norm2 = nn.LayerNorm(hidden)
        self.fc1 = nn.Linear(hidden, 4 * hidden)
        self.fc2 = nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        n, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).chunk(3, dim=-1)
        q, k, v = (y.view(n, t, self.heads, c // self.heads).transpose(1, 2) for y in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(n, t, c))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    """Decoder only; the output projection shares the token embedding."""

    def __init__(self, vocab=512, positions=64, hidden=128, heads=4, layers=4):
        super().__init__()
        self.token = nn.Embedding(vocab, hidden)
        self.position = nn.Embedding(positions, hidden)
        self.blocks = nn.ModuleList(PreNormBlock(hidden, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, vocab, bias=False)
        self.apply(init_transformer)
        self.head.weight = self.token.weight

    def forward(self, ids):  # [N, T] -> [N, T, V]
        x = self.token(ids) + self.position(torch.arange(ids.size(1), device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


# ---------------------------------------------------------------- data
# A task is a function (batch, generator) → (inputs, labels). What ties labels to inputs (`fixed`) has a seed of its
# own, so that every batch belongs to the same task.


def fixed(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def regression(batch, g, features=10):
    x = torch.randn(batch, features, generator=g)
    return (x,), x @ fixed(features, 1) + 0.5 + 0.1 * torch.randn(batch, 1, generator=g)


def vectors(batch, g, features, signal, classes=10):
    labels = torch.randint(classes, (batch,), generator=g)
    return (signal * fixed(classes, features)[labels] + torch.randn(batch, features, generator=g),), labels


def patterns(batch, g, channels, size, classes=10):
    """One smooth random pattern per class under noise, [N, channels, *size]."""
    labels = torch.randint(classes, (batch,), generator=g)
    x = F.interpolate(fixed(classes, channels, 4, 4)[labels], size=size, mode="bilinear")
    return (0.5 * x + torch.randn(x.shape, generator=g),), labels


def token_classes(batch, g, vocab, length):
    """A quarter of the tokens comes from ten words of the class; the padding behind a random length is masked."""
    labels = torch.randint(2, (batch,), generator=g)
    ids = torch.randint(21, vocab, (batch, length), generator=g)
    cue = 1 + 10 * labels[:, None] + torch.randint(10, (batch, length), generator=g)
    ids = torch.where(torch.rand(batch, length, generator=g) < 0.25, cue, ids)
    lengths = torch.randint(length // 2, length + 1, (batch, 1), generator=g)
    keep = (torch.arange(length) < lengths).long()
    return (ids * keep, keep), labels


def next_tokens(batch, g, vocab, length):
    """A fixed permutation gives the next token four times out of five."""
    follow = torch.randperm(vocab, generator=torch.Generator().manual_seed(1))
    columns = [torch.randint(vocab, (batch,), generator=g)]
    for _ in range(length):
        jump = torch.rand(batch, generator=g) < 0.2
        columns.append(torch.where(jump, torch.randint(vocab, (batch,), generator=g), follow[columns[-1]]))
    ids = torch.stack(columns, dim=1)
    return (ids[:, :-1].contiguous(),), ids[:, 1:].contiguous()


# ---------------------------------------------------------------- recipes


def cross_entropy(output, labels):
    """Classes on axis 1 ([N, C, ...]) or, for a sequence model, last ([N, T, V])."""
    if output.dim() == 3:
        output, labels = output.flatten(0, 1), labels.flatten()
    return F.cross_entropy(output, labels)


OPTIMIZERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}


def sgd(lr, momentum, weight_decay=0.0):
    return {"kind": "sgd", "lr": lr, "momentum": momentum, "weight_decay": weight_decay}


def adam(kind="adam", weight_decay=0.0):
    return {"kind": kind, "lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": weight_decay}


@dataclass(frozen=True)
class Spec:
    make: Callable[[], nn.Module] = field(repr=False)
    data: Callable = field(repr=False)
    optimizer: dict
    batch: int
    loss: str = "cross-entropy"
    inputs: tuple = ("input",)
    trains: bool = True   # False: compared in inference mode only
    seed: int = 1000      # of the first batch
    gentle: bool = False  # its own learning rate amplifies rounding: a second trace with a hundredth of it

    def build(self):
        torch.manual_seed(0)
        return self.make()

    def batch_of(self, step):
        """(inputs, labels) of training step `step`, counted from 0."""
        return self.data(self.batch, torch.Generator().manual_seed(self.seed + step))

    def loss_of(self, output, labels):
        return (cross_entropy if self.loss == "cross-entropy" else F.mse_loss)(output, labels)

    def make_optimizer(self, model, lr):
        recipe = {k: v for k, v in self.optimizer.items() if k != "kind"} | {"lr": lr}
        return OPTIMIZERS[self.optimizer["kind"]](model.parameters(), **recipe, foreach=False, fused=False)


def data(task, *args):
    return lambda batch, g: task(batch, g, *args)


MODELS = {
    "linear": Spec(lambda: nn.Linear(10, 1), data(regression), adam(), 32, "mse"),
    "mlp": Spec(mlp, data(vectors, 784, 0.2), sgd(0.1, 0.9), 64),
    "mlp_dropout": Spec(lambda: mlp(0.2), data(vectors, 784, 0.2), sgd(0.1, 0.9), 64, trains=False),
    "mlp_ln": Spec(MlpResidualNorm, data(vectors, 64, 0.5), adam("adamw", 0.01), 64),
    # Seeded so that in the first batches no two maxima of a pooling window and no input of a ReLU are within 1e-6 of
    # deciding otherwise: one such decision, taken by the order of additions in fp32, moves whole gradients by 1e-3.
    "fashion_cnn": Spec(FashionCnn, data(patterns, 1, (28, 28)), adam(), 64, seed=12000),
    "simple_cnn": Spec(SimpleCnn, data(patterns, 3, (32, 32)), adam(), 64),
    "resnet18_cifar": Spec(ResNet18, data(patterns, 3, (32, 32)), sgd(0.1, 0.9, 1e-4), 32, gentle=True),
    "bert_tiny": Spec(Bert, data(token_classes, 2000, 64), adam("adamw", 0.01), 16, inputs=("input_ids", "attention_mask")),
    "gpt_tiny": Spec(Gpt, data(next_tokens, 512, 64), adam("adamw", 0.01), 8, inputs=("input_ids",)),
}
