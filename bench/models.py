"""The models of the bench as PyTorch modules, with batch, loss and optimizer.

    spec = MODELS["bert_tiny"]
    model, inputs, labels = spec.build(), *spec.batch_data()
    spec.export(path)       # ONNX, training mode, dynamic batch

Weights and data come from fixed seeds. Losses and optimizers are named as mpc names them.
"""

import math
import warnings
from dataclasses import dataclass
from typing import Callable

import torch
from recipes import RECIPES
from torch import nn
from torch.nn import functional as F


class MlpLayerNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.norm1 = nn.Linear(64, 128), nn.LayerNorm(128)
        self.fc2, self.norm2 = nn.Linear(128, 128), nn.LayerNorm(128)
        self.fc3 = nn.Linear(128, 10)

    def forward(self, x):
        x = F.gelu(self.norm1(self.fc1(x)))
        return self.fc3(x + F.gelu(self.norm2(self.fc2(x))))


def fashion_cnn():
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, 10))


def simple_cnn():
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 8 * 8, 10))


class BasicBlock(nn.Module):
    def __init__(self, c_in, c_out, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(c_in, c_out, 3, stride, 1, bias=False), nn.BatchNorm2d(c_out)
        self.conv2, self.bn2 = nn.Conv2d(c_out, c_out, 3, 1, 1, bias=False), nn.BatchNorm2d(c_out)
        self.shortcut = nn.Identity()
        if stride != 1 or c_in != c_out:
            self.shortcut = nn.Sequential(nn.Conv2d(c_in, c_out, 1, stride, bias=False), nn.BatchNorm2d(c_out))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + self.shortcut(x))


def resnet18_cifar():
    layers, c_in = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()], 64
    for c_out, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [BasicBlock(c_in, c_out, stride), BasicBlock(c_out, c_out, 1)]
        c_in = c_out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def split_heads(x, heads):  # [N, T, H*D] -> [N, H, T, D]
    return x.view(x.size(0), x.size(1), heads, -1).transpose(1, 2)


class EncoderLayer(nn.Module):
    """Post-norm, attention written out."""

    def __init__(self, width, heads, hidden):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.project = (nn.Linear(width, width) for _ in range(4))
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-12), nn.LayerNorm(width, eps=1e-12)
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x, bias):
        q, k, v = (split_heads(f(x), self.heads) for f in (self.query, self.key, self.value))
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.size(-1)) + bias
        x = self.norm1(x + self.project((scores.softmax(-1) @ v).transpose(1, 2).flatten(2)))
        return self.norm2(x + self.down(F.gelu(self.up(x))))


class BertTiny(nn.Module):
    def __init__(self, vocab=2000, positions=64, width=128, heads=2, hidden=512, layers=2):
        super().__init__()
        self.word, self.position = nn.Embedding(vocab, width), nn.Embedding(positions, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.layers = nn.ModuleList(EncoderLayer(width, heads, hidden) for _ in range(layers))
        self.pooler, self.classifier = nn.Linear(width, width), nn.Linear(width, 2)
        self.apply(small_weights)

    def forward(self, ids, mask):
        x = self.norm(self.word(ids) + self.position.weight[: ids.size(1)])
        bias = (1 - mask[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
        for layer in self.layers:
            x = layer(x, bias)
        return self.classifier(torch.tanh(self.pooler(x[:, 0])))


class DecoderBlock(nn.Module):
    """Pre-norm, fused q, k and v, causal scaled_dot_product_attention."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = (split_heads(y, self.heads) for y in self.qkv(self.norm1(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(y.transpose(1, 2).reshape(x.shape))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GptTiny(nn.Module):
    def __init__(self, vocab=512, positions=64, width=128, heads=4, layers=4):
        super().__init__()
        self.token, self.position = nn.Embedding(vocab, width), nn.Embedding(positions, width)
        self.blocks = nn.ModuleList(DecoderBlock(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)
        self.apply(small_weights)
        self.head.weight = self.token.weight

    def forward(self, ids):
        x = self.token(ids) + self.position(torch.arange(ids.size(1), device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def small_weights(module):
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


def images(channels, size):
    return lambda n: ((torch.randn(n, channels, size, size),), torch.randint(10, (n,)))


def vectors(features):
    return lambda n: ((torch.randn(n, features),), torch.randint(10, (n,)))


def masked_tokens(n):
    lengths = torch.randint(32, 65, (n, 1))
    mask = (torch.arange(64) < lengths).long()
    return (torch.randint(1, 2000, (n, 64)) * mask, mask), torch.randint(2, (n,))


@dataclass(frozen=True)
class Spec:
    make: Callable
    data: Callable  # batch size -> (inputs, labels)
    batch: int
    optimizer: str
    lr: float
    loss: str = "cross-entropy"
    inputs: tuple = ("input",)
    momentum: float = 0.0
    weight_decay: float = 0.0

    def build(self):
        torch.manual_seed(0)
        return self.make().train()

    def batch_data(self):
        torch.manual_seed(1)
        return self.data(self.batch)

    def loss_fn(self, output, labels):
        if self.loss == "mse":
            return F.mse_loss(output, labels)
        if output.dim() == 3:
            output, labels = output.flatten(0, 1), labels.flatten()
        return F.cross_entropy(output, labels)

    def make_optimizer(self, model, **options):
        parameters, options = model.parameters(), {"weight_decay": self.weight_decay, **options}
        if self.optimizer == "sgd":
            return torch.optim.SGD(parameters, self.lr, momentum=self.momentum, **options)
        return {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[self.optimizer](parameters, self.lr, **options)

    def export(self, path, opset=None):
        inputs, _ = self.batch_data()
        axes = {name: {0: "N"} for name in (*self.inputs, "output")}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(self.build(), inputs, str(path), dynamo=False, opset_version=opset,
                              training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False, input_names=list(self.inputs), output_names=["output"], dynamic_axes=axes)


MODELS = {
    "linear": Spec(lambda: nn.Linear(10, 1), lambda n: ((torch.randn(n, 10),), torch.randn(n, 1)), **RECIPES["linear"]),
    "mlp": Spec(lambda: nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10)),
                vectors(784), **RECIPES["mlp"]),
    "mlp_ln": Spec(MlpLayerNorm, vectors(64), **RECIPES["mlp_ln"]),
    "fashion_cnn": Spec(fashion_cnn, images(1, 28), **RECIPES["fashion_cnn"]),
    "simple_cnn": Spec(simple_cnn, images(3, 32), **RECIPES["simple_cnn"]),
    "resnet18_cifar": Spec(resnet18_cifar, images(3, 32), **RECIPES["resnet18_cifar"]),
    "bert_tiny": Spec(BertTiny, masked_tokens, inputs=("input_ids", "attention_mask"), **RECIPES["bert_tiny"]),
    "gpt_tiny": Spec(GptTiny, lambda n: ((torch.randint(512, (n, 64)),), torch.randint(512, (n, 64))),
                     inputs=("input_ids",), **RECIPES["gpt_tiny"]),
}
