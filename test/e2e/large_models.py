"""Models of real size, made node by node with random weights: what tests of code for whole models need, without PyTorch.

    mlp_dropout(), resnet18_cifar(), bert_tiny(), gpt_tiny() → onnx.ModelProto, batch dimension "N"

The layers and sizes of the models of those names in torch_models.py.
"""

import numpy as np
from onnx import TensorProto

from support import model_of, node


class Builder:
    """Nodes and weights of a graph; every method returns the name of its result."""

    def __init__(self, seed=0):
        self.nodes, self.weights, self.random = [], {}, np.random.default_rng(seed)

    def op(self, op, *inputs, **attributes):
        name = f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(node(op, " ".join(inputs), name, **attributes))
        return name

    def weight(self, name, *shape, value=None):
        scale = 1 / np.sqrt(np.prod(shape[1:]) or 1)
        self.weights[name] = (self.random.normal(size=shape) * scale if value is None else np.full(shape, value)).astype(np.float32)
        return name

    def constant(self, name, value):
        self.weights.setdefault(name, np.asarray(value))
        return name

    def linear(self, name, x, inputs, outputs):
        """x [..., inputs] · W + b"""
        return self.op("Add", self.op("MatMul", x, self.weight(f"{name}.weight", inputs, outputs)), self.weight(f"{name}.bias", outputs, value=0))

    def layer_norm(self, name, x, width):
        return self.op("LayerNormalization", x, self.weight(f"{name}.weight", width, value=1), self.weight(f"{name}.bias", width, value=0), axis=-1)

    def conv_norm(self, name, x, inputs, outputs, kernel, stride):
        pad = kernel // 2
        x = self.op("Conv", x, self.weight(f"{name}.conv.weight", outputs, inputs, kernel, kernel), strides=[stride] * 2, pads=[pad] * 4)
        norm = [self.weight(f"{name}.norm.{part}", outputs, value=value) for part, value in (("weight", 1), ("bias", 0), ("mean", 0), ("var", 1))]
        return self.op("BatchNormalization", x, *norm)

    def heads(self, x, count, width, axes=(0, 2, 1, 3)):
        """[N, T, count · width] → [N, count, T, width]"""
        return self.op("Transpose", self.op("Reshape", x, self.constant(f"heads{count}", np.array([0, 0, count, width], np.int64))), perm=list(axes))

    def attention(self, q, k, v, count, width, bias):
        keys = self.heads(k, count, width, (0, 2, 3, 1))
        scores = self.op("Div", self.op("MatMul", self.heads(q, count, width), keys), self.constant("root", np.float32(np.sqrt(width))))
        mixed = self.op("MatMul", self.op("Softmax", self.op("Add", scores, bias), axis=-1), self.heads(v, count, width))
        return self.op("Reshape", self.op("Transpose", mixed, perm=[0, 2, 1, 3]), self.constant("joined", np.array([0, 0, count * width], np.int64)))

    def gelu(self, x):
        erf = self.op("Erf", self.op("Div", x, self.constant("sqrt2", np.float32(np.sqrt(2)))))
        return self.op("Mul", self.op("Mul", x, self.op("Add", erf, self.constant("one", np.float32(1)))), self.constant("half", np.float32(0.5)))

    def model(self, inputs, outputs):
        self.nodes[-1].output[0] = next(iter(outputs))
        return model_of(self.nodes, inputs, outputs, self.weights)


def mlp_dropout():
    b = Builder()
    x = "input"
    for name, inputs, outputs in (("fc1", 784, 512), ("fc2", 512, 256)):
        x = b.op("Relu", b.linear(name, x, inputs, outputs))
        x = b.op("Dropout", x, b.constant("ratio", np.float32(0.2)), b.constant("training", np.bool_(True)))
    b.linear("fc3", x, 256, 10)
    return b.model({"input": ["N", 784]}, {"logits": ["N", 10]})


def resnet18_cifar():
    b = Builder()
    x = b.op("Relu", b.conv_norm("stem", "input", 3, 64, 3, 1))
    inputs = 64
    for stage, (outputs, first) in enumerate(((64, 1), (128, 2), (256, 2), (512, 2))):
        for block, stride in enumerate((first, 1)):
            name = f"layer{stage}.{block}"
            y = b.op("Relu", b.conv_norm(f"{name}.a", x, inputs, outputs, 3, stride))
            y = b.conv_norm(f"{name}.b", y, outputs, outputs, 3, 1)
            x = b.conv_norm(f"{name}.shortcut", x, inputs, outputs, 1, stride) if stride != 1 or inputs != outputs else x
            x = b.op("Relu", b.op("Add", y, x))
            inputs = outputs
    x = b.op("Flatten", b.op("GlobalAveragePool", x))
    b.op("Gemm", x, b.weight("fc.weight", 10, 512), b.weight("fc.bias", 10, value=0), transB=1)
    return b.model({"input": ["N", 3, 32, 32]}, {"logits": ["N", 10]})


def bert_tiny(layers=2, hidden=128, heads=2, vocab=2000, length=64):
    b = Builder()
    mask = b.op("Unsqueeze", b.op("Cast", "mask", to=TensorProto.FLOAT), b.constant("axes", np.array([1, 2], np.int64)))
    bias = b.op("Mul", b.op("Sub", b.constant("one", np.float32(1)), mask), b.constant("far", np.float32(-1e4)))
    x = b.op("Add", b.op("Gather", b.weight("word", vocab, hidden), "input_ids"), b.weight("position", length, hidden))
    x = b.layer_norm("norm", x, hidden)
    for i in range(layers):
        q, k, v = (b.linear(f"layer{i}.{part}", x, hidden, hidden) for part in ("query", "key", "value"))
        mixed = b.linear(f"layer{i}.mix", b.attention(q, k, v, heads, hidden // heads, bias), hidden, hidden)
        x = b.layer_norm(f"layer{i}.norm1", b.op("Add", x, mixed), hidden)
        y = b.linear(f"layer{i}.down", b.gelu(b.linear(f"layer{i}.up", x, hidden, 4 * hidden)), 4 * hidden, hidden)
        x = b.layer_norm(f"layer{i}.norm2", b.op("Add", x, y), hidden)
    first = b.op("Gather", x, b.constant("zero", np.int64(0)), axis=1)
    b.linear("classifier", b.op("Tanh", b.linear("pooler", first, hidden, hidden)), hidden, 2)
    return b.model({"input_ids": (["N", length], TensorProto.INT64), "mask": (["N", length], TensorProto.INT64)}, {"logits": ["N", 2]})


def gpt_tiny(layers=4, hidden=128, heads=4, vocab=512, length=64):
    b = Builder()
    bias = b.constant("causal", np.triu(np.full((length, length), -1e4, np.float32), 1))
    x = b.op("Add", b.op("Gather", b.weight("token", vocab, hidden), "input_ids"), b.weight("position", length, hidden))
    for i in range(layers):
        joined = b.linear(f"block{i}.qkv", b.layer_norm(f"block{i}.norm1", x, hidden), hidden, 3 * hidden)
        split = [b.op("Slice", joined, *(b.constant(f"at{n}", np.array([n], np.int64)) for n in (start, start + hidden)), b.constant("last", np.array([2], np.int64)))
                 for start in (0, hidden, 2 * hidden)]
        x = b.op("Add", x, b.linear(f"block{i}.mix", b.attention(*split, heads, hidden // heads, bias), hidden, hidden))
        y = b.linear(f"block{i}.up", b.layer_norm(f"block{i}.norm2", x, hidden), hidden, 4 * hidden)
        x = b.op("Add", x, b.linear(f"block{i}.down", b.gelu(y), 4 * hidden, hidden))
    b.op("MatMul", b.layer_norm("norm", x, hidden), b.op("Transpose", "token", perm=[1, 0]))
    return b.model({"input_ids": (["N", length], TensorProto.INT64)}, {"logits": ["N", length, vocab]})


MODELS = {"mlp_dropout": mlp_dropout, "resnet18_cifar": resnet18_cifar, "bert_tiny": bert_tiny, "gpt_tiny": gpt_tiny}
