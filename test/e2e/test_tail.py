"""The last, smaller batch of n samples trains and evaluates as n samples: PyTorch's drop_last=False, by numpy's formulas.

    test_tail.py --build BUILD [--only REGEX] [-v]

fp64 programs are compared closely, so that a sample with a wrong weight cannot hide.
"""

import re

import numpy as np
import onnx
from onnx import helper, numpy_helper

from support import PLAIN, SGD, checkpoint_contents, main, model_of, node, require, require_close, require_refusal

MADE = np.random.default_rng(11)


def normal(*shape):
    return MADE.standard_normal(shape).astype(np.float32)


def batches(samples, size):
    return [slice(i, min(i + size, samples)) for i in range(0, samples, size)]


# ---------------------------------------------------------------- two models by hand


class Linear:
    """y = x·W + b with the mean squared error."""

    loss = "mse"

    def __init__(self, features=5, outputs=2):
        self.weights = {"W": normal(features, outputs), "b": normal(outputs)}
        self.model = model_of([node("Gemm", "x W b", "y")], {"x": ["N", features]}, {"y": ["N", outputs]}, self.weights)

    def data(self, samples):
        return normal(samples, 5), normal(samples, 2)

    def forward(self, w, x):
        return x @ w["W"] + w["b"]

    def gradients(self, w, x, t):
        """(loss, gradients) of the mean over the batch's elements."""
        y = self.forward(w, x)
        d = 2 * (y - t) / y.size
        return np.mean((y - t) ** 2), {"W": x.T @ d, "b": d.sum(0)}


class Mlp:
    """Two layers with ReLU, cross-entropy."""

    loss = "cross-entropy"

    def __init__(self):
        self.weights = {"W1": normal(5, 7), "b1": normal(7), "W2": normal(7, 3), "b2": normal(3)}
        self.model = model_of([node("Gemm", "x W1 b1", "h"), node("Relu", "h", "r"), node("Gemm", "r W2 b2", "y")],
                              {"x": ["N", 5]}, {"y": ["N", 3]}, self.weights)

    def data(self, samples):
        return normal(samples, 5), MADE.integers(0, 3, samples)

    def forward(self, w, x):
        return np.maximum(x @ w["W1"] + w["b1"], 0) @ w["W2"] + w["b2"]

    def gradients(self, w, x, t):
        r = np.maximum(x @ w["W1"] + w["b1"], 0)
        y = r @ w["W2"] + w["b2"]
        p = np.exp(y - y.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        loss = -np.mean(np.log(p[np.arange(len(t)), t]))
        d = p.copy()
        d[np.arange(len(t)), t] -= 1
        d /= len(t)
        h = (d @ w["W2"].T) * (r > 0)
        return loss, {"W1": x.T @ h, "b1": h.sum(0), "W2": r.T @ d, "b2": d.sum(0)}


def trained_by_hand(problem, x, t, size, epochs, lr, momentum=0.0, weight_decay=0.0):
    """PyTorch's loop with SGD: (losses, weights)."""
    w = {k: v.astype(np.float64) for k, v in problem.weights.items()}
    velocity, losses = {k: None for k in w}, []
    for _ in range(epochs):
        for part in batches(len(x), size):
            loss, gradients = problem.gradients(w, x[part].astype(np.float64), t[part])
            losses.append(loss)
            for k, g in gradients.items():
                g = g + weight_decay * w[k]
                velocity[k] = g if velocity[k] is None else momentum * velocity[k] + g
                w[k] = w[k] - lr * velocity[k]
    return losses, w


def check_training(bench, problem, samples, size, precision="fp64", tolerance=1e-12):
    x, t = problem.data(samples)
    trainer = bench.compile(problem.model, f"--loss={problem.loss}", "--optimizer=sgd", f"--precision={precision}", f"--batch={size}")
    run = trainer.train(trainer.data({"x": x}, t), "--epochs", 3, "--lr", 0.05, "--momentum", 0.9, "--weight-decay", 0.01, "--no-shuffle",
                        *(["--loss-scale-init", 64] if precision == "fp16" else []))  # no overflow, no skipped step
    losses, weights = trained_by_hand(problem, x, t, size, 3, 0.05, 0.9, 0.01)
    require(len(run.values("loss")) == len(losses), f"{len(run.values('loss'))} steps, want {len(losses)}")
    require_close(run.values("loss"), losses, tolerance, "losses")
    # The exported model is f32; the checkpoint holds the program's own type.
    for name, value in run.weights().items():
        require_close(value, weights[name], max(tolerance, 1e-6), name)
    return trainer, run, x, t, weights


def test_training_with_a_tail(bench):
    for problem in (Linear(), Mlp()):
        for samples, size in ((10, 4), (9, 4), (7, 16), (8, 4)):
            check_training(bench, problem, samples, size)


def test_training_with_a_tail_in_other_precisions(bench):
    global MADE
    MADE = np.random.default_rng(3)  # whatever has been drawn before: how far halves are off depends on the numbers
    for problem in (Linear(), Mlp()):
        for precision, tolerance in (("fp32", 1e-5), ("bf16", 3e-2), ("fp16", 1e-2)):
            check_training(bench, problem, 10, 4, precision, tolerance)


def test_evaluation_and_prediction_with_a_tail(bench):
    """eval weighs samples, not batches; predict takes any number of samples."""
    problem = Mlp()
    x, t = problem.data(11)
    trainer = bench.compile(problem.model, "--loss=cross-entropy", "--precision=fp64", "--batch=4")
    w = {k: v.astype(np.float64) for k, v in problem.weights.items()}
    loss, _ = problem.gradients(w, x.astype(np.float64), t)
    y = problem.forward(w, x.astype(np.float64))
    done = trainer.must("eval", "--data", trainer.data({"x": x}, t))
    require_close(float(re.search(r"loss\D*([0-9.eE+-]+)", done.out).group(1)), loss, 1e-5, f"eval: {done.out}")
    correct = int((y.argmax(1) == t).sum())
    require_close(float(re.search(r"accuracy ([0-9.]+)", done.out).group(1)), correct / 11, 1e-5, f"eval: {done.out}")
    for samples in (1, 3, 4, 11):
        require_close(trainer.predict({"x": x[:samples]})["y"], y[:samples], 1e-12, f"{samples} samples")


def test_gradients_of_a_small_batch(bench):
    """grad with fewer samples than the batch gives the mean over those."""
    for problem in (Linear(), Mlp()):
        x, t = problem.data(3)
        trainer = bench.compile(problem.model, f"--loss={problem.loss}", "--precision=fp64", "--batch=8")
        got = trainer.grad({"x": x}, t)
        loss, want = problem.gradients({k: v.astype(np.float64) for k, v in problem.weights.items()}, x.astype(np.float64), t)
        require_close(got["loss"], loss, 1e-12, "loss")
        for name, value in want.items():
            require_close(got[name], value, 1e-12, name)


# ---------------------------------------------------------------- BatchNormalization, and what mixes samples


def norm_model():
    weights = {"W": normal(3, 4), "s": normal(4), "b": normal(4), "mean": np.zeros(4, np.float32), "var": np.ones(4, np.float32)}
    nodes = [node("MatMul", "x W", "h"), node("BatchNormalization", "h s b mean var", "y mean_out var_out", training_mode=1, epsilon=1e-3, momentum=0.5)]
    return model_of(nodes, {"x": ["N", 3]}, {"y": ["N", 4]}, weights), weights


def test_batch_norm_over_the_true_samples(bench):
    """Statistics, output, gradients and running statistics of a tail of n samples are those of n samples."""
    model, weights = norm_model()
    trainer = bench.compile(model, *SGD, "--precision=fp64", "--batch=8")
    x, t = normal(5, 3), normal(5, 4)
    got = trainer.grad({"x": x}, t)
    w = {k: v.astype(np.float64) for k, v in weights.items()}
    eps = float(np.float32(1e-3))
    h = x.astype(np.float64) @ w["W"]
    mean, var = h.mean(0), h.var(0)
    z = (h - mean) / np.sqrt(var + eps)
    y = z * w["s"] + w["b"]
    d = 2 * (y - t) / y.size
    dz = d * w["s"]
    dh = (dz - dz.mean(0) - z * (dz * z).mean(0)) / np.sqrt(var + eps)
    require_close(got["loss"], np.mean((y - t) ** 2), 1e-12, "loss")
    for name, want in (("s", (d * z).sum(0)), ("b", d.sum(0)), ("W", x.T.astype(np.float64) @ dh)):
        require_close(got[name], want, 1e-11, name)
    run = trainer.train(trainer.data({"x": x}, t), "--steps", 1, "--lr", 0.0, *PLAIN)
    after = run.weights()
    require_close(after["mean"], 0.5 * mean, 1e-6, "running mean")
    require_close(after["var"], 0.5 + 0.5 * var, 1e-6, "running variance")


def test_sequences_and_folded_batches(bench):
    """[N,T,C] folded to [N·T,C]: the batch axis is followed through the reshape."""
    weights = {"W": normal(4, 3), "flat": np.array([-1, 4]), "back": np.array([-1, 6, 3])}
    nodes = [node("Reshape", "x flat", "f"), node("MatMul", "f W", "h"), node("Reshape", "h back", "y")]
    model = model_of(nodes, {"x": ["N", 6, 4]}, {"y": ["N", 6, 3]}, weights)
    trainer = bench.compile(model, "--loss=cross-entropy", "--optimizer=sgd", "--precision=fp64", "--batch=4", "--train=^W$")
    x, t = normal(7, 6, 4), MADE.integers(0, 3, (7, 6))
    run = trainer.train(trainer.data({"x": x}, t), "--epochs", 1, "--lr", 0.1, *PLAIN)
    w, losses = weights["W"].astype(np.float64), []
    for part in batches(7, 4):
        flat, labels = x[part].reshape(-1, 4).astype(np.float64), t[part].ravel()
        y = flat @ w
        p = np.exp(y - y.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        losses.append(-np.mean(np.log(p[np.arange(len(labels)), labels])))
        p[np.arange(len(labels)), labels] -= 1
        w = w - 0.1 * flat.T @ p / len(labels)
    require_close(run.values("loss"), losses, 1e-12, "losses")


# ---------------------------------------------------------------- operators that combine samples
#
# Each case is a model by its nodes behind h = x·W ([N, 3]·[3, 4]). Compiled for batches of 8 and of 3, both programs must give the same for
# 3 samples: loss, gradients, evaluation, prediction, and weights after a step.


class Case:
    """nodes end in y; `weights`, `inputs` (name → shape with N) and options come on top of x, W and --loss=mse. `of_batch` gives constants
    that a file for a batch of that size holds; all weights but these are trained then."""

    def __init__(self, nodes, weights=None, inputs=None, output=("N", 4), loss="mse", opset=17, x=("N", 3), of_batch=None):
        self.loss, self.inputs = loss, {"x": x, **(inputs or {})}
        weights = {"W": MADE.standard_normal((3, 4)).astype(np.float32), **(weights or {})}
        infos = {n: (list(s[:-1]), s[-1]) if isinstance(s[-1], TensorKind) else list(s) for n, s in self.inputs.items()}
        infos = {n: (s[0], s[1].kind) if isinstance(s, tuple) else s for n, s in infos.items()}
        constants = of_batch or (lambda batch: {})
        self.model = lambda batch: model_of([node("MatMul", "x W", "h"), *nodes], infos, {"y": list(output)}, {**weights, **constants(batch)}, opset=opset)
        self.output, self.options = output, [f"--train=^({'|'.join(weights)})$"] if of_batch else []

    def data(self, samples):
        made = {}
        for name, shape in self.inputs.items():
            sizes = [samples if d == "N" else d for d in shape if not isinstance(d, TensorKind)]
            made[name] = shape[-1].make(sizes) if isinstance(shape[-1], TensorKind) else normal(*sizes)
        return made, None if self.loss == "output" else normal(*[samples if d == "N" else d for d in self.output])

    def compile(self, bench, batch, *options):
        return bench.compile(self.model(batch), f"--loss={self.loss}", "--optimizer=sgd", "--precision=fp64", f"--batch={batch}", *self.options, *options)


class TensorKind:
    """An element type at the end of an input's shape, and how its values are made."""

    def __init__(self, kind, make):
        self.kind, self.make = kind, make


LABELS = TensorKind(onnx.TensorProto.INT64, lambda sizes: MADE.integers(0, 4, sizes))

SHAPE = [node("Shape", "h", "shape"), node("Gather", "shape zero", "n", axis=0)]
ZERO = {"zero": np.array(0)}
FLOAT = [*SHAPE, node("Cast", "n", "count", to=onnx.TensorProto.FLOAT)]


def reduced(op, opset=17, before=(), axes=(0,), source="h"):
    """y = h · (1 + r / 4), r: the reduction over the batch."""
    where = {"axes": list(axes)} if opset < 18 and op != "ReduceSum" else {}
    inputs = source if where else f"{source} axes"
    return Case([*before, node(op, inputs, "r", keepdims=1, **where), node("Div", "r four", "q"), node("Mul", "h q", "p"), node("Add", "h p", "y")],
                {"four": np.float32(4), **({} if where else {"axes": np.array(axes)})}, opset=opset)


POSITIVE = [node("Exp", "h", "e")]
JOINED = [node("Neg", "h", "g"), node("Concat", "h g", "c", axis=0)]
COUNTED = [node("Cast", "k", "f", to=onnx.TensorProto.FLOAT), node("ReduceSum", "f axes", "t", keepdims=1), node("Div", "h t", "y")]
MASK = (MADE.random((1, 4, 16, 16)) > 0.5).astype(np.float32)
CASES = {
    "mean": lambda: reduced("ReduceMean"),
    "mean_18": lambda: reduced("ReduceMean", 18),
    "mean_of_all": lambda: reduced("ReduceMean", axes=(0, 1)),
    "sum": lambda: reduced("ReduceSum"),
    "max": lambda: reduced("ReduceMax"),
    "min": lambda: reduced("ReduceMin"),
    "product": lambda: reduced("ReduceProd"),
    "l1": lambda: reduced("ReduceL1"),
    "l2": lambda: reduced("ReduceL2"),
    "square_sum": lambda: reduced("ReduceSumSquare"),
    "log_sum": lambda: reduced("ReduceLogSum", before=POSITIVE, source="e"),
    "log_sum_exp": lambda: reduced("ReduceLogSumExp"),
    # a normalization written out: the mean comes back to every sample
    "whitened": lambda: Case([node("ReduceMean", "h", "m", axes=[0], keepdims=1), node("Sub", "h m", "c"), node("Mul", "c c", "q"),
                              node("ReduceMean", "q", "v", axes=[0], keepdims=1), node("Sqrt", "v", "s"), node("Div", "c s", "y")]),
    # [N, T, C] as [N·T, C], and [T, N, C] as [T·N, C], where a sample has several rows
    "folded": lambda: Case([node("Reshape", "h flat", "f"), node("ReduceMean", "f", "m", axes=[0], keepdims=0), node("Sub", "h m", "y")],
                           {"flat": np.array([-1, 4])}, x=("N", 5, 3), output=("N", 5, 4)),
    "folded_behind_time": lambda: Case([node("Transpose", "h", "t", perm=[1, 0, 2]), node("Reshape", "t flat", "f"),
                                        node("ReduceMax", "f", "m", axes=[0], keepdims=0), node("Sub", "h m", "y")],
                                       {"flat": np.array([-1, 4])}, x=("N", 5, 3), output=("N", 5, 4)),
    "images": lambda: Case([node("Reshape", "h image", "i"), node("ReduceMean", "i", "m", axes=[0, 2, 3], keepdims=1), node("Sub", "i m", "y")],
                           {"image": np.array([-1, 4, 2, 3])}, x=("N", 6, 3), output=("N", 4, 2, 3)),
    "batch_norm_of_rows": lambda: Case([node("Reshape", "h flat", "f"),
                                        node("BatchNormalization", "f s b mean var", "n mean_out var_out", training_mode=1),
                                        node("Reshape", "n back", "y")],
                                       {"flat": np.array([-1, 4]), "back": np.array([-1, 5, 4]), "s": normal(4), "b": normal(4),
                                        "mean": np.zeros(4, np.float32), "var": np.ones(4, np.float32)}, x=("N", 5, 3), output=("N", 5, 4)),
    "softmax": lambda: Case([node("Softmax", "h", "p", axis=0), node("Mul", "p h", "y")]),
    "log_softmax": lambda: Case([node("LogSoftmax", "h", "l", axis=0), node("MatMul", "x V", "v"), node("Mul", "l v", "y")], {"V": normal(3, 4)}),
    "cumsum": lambda: Case([node("CumSum", "h axis", "y")], {"axis": np.array(0)}),
    "cumsum_reversed": lambda: Case([node("CumSum", "h axis", "y", reverse=1, exclusive=1)], {"axis": np.array(0)}),
    "argmax": lambda: Case([node("ArgMax", "h", "a", axis=0, keepdims=1), node("Cast", "a", "f", to=onnx.TensorProto.FLOAT), node("Mul", "h f", "y")]),
    "argmax_last": lambda: Case([node("Sign", "h", "g"), node("ArgMax", "g", "a", axis=0, keepdims=1, select_last_index=1),
                                 node("Cast", "a", "f", to=onnx.TensorProto.FLOAT), node("Mul", "h f", "y")]),
    # contracted over the batch: hᵀ·h
    "gemm": lambda: Case([node("Gemm", "h h", "g", transA=1), node("MatMul", "h g", "y")]),
    "matmul": lambda: Case([node("Transpose", "h", "t"), node("MatMul", "t h", "g"), node("MatMul", "h g", "y")]),
    "einsum": lambda: Case([node("Einsum", "h h", "g", equation="ni,nj->ij"), node("MatMul", "h g", "y")]),
    # samples along two axes: every sample attends to every other
    "attention": lambda: Case([node("Gemm", "h h", "s", transB=1), node("Softmax", "s", "p", axis=1), node("MatMul", "p h", "y")]),
    "distances": lambda: Case([node("Unsqueeze", "h one", "a"), node("Unsqueeze", "h nil", "b"), node("Sub", "a b", "d"),
                               node("ReduceSumSquare", "d", "q", axes=[1, 2], keepdims=0), node("Unsqueeze", "q one", "r"), node("Mul", "h r", "y")],
                              {"one": np.array([1]), "nil": np.array([0])}),
    # the batch size as a number
    "number": lambda: Case([*FLOAT, node("Div", "h count", "y")], ZERO),
    "number_root": lambda: Case([*FLOAT, node("Sqrt", "count", "r"), node("Mul", "h r", "y")], ZERO),
    "number_of_elements": lambda: Case([node("Size", "h", "size"), node("Cast", "size", "f", to=onnx.TensorProto.FLOAT),
                                        node("ReduceSum", "h", "s", keepdims=0), node("Div", "s f", "m"), node("Sub", "h m", "y")]),
    "number_by_arithmetic": lambda: Case([*SHAPE, node("Mul", "n three", "a"), node("Div", "a two", "b"), node("Cast", "b", "f", to=onnx.TensorProto.FLOAT),
                                          node("Add", "h f", "y")], {**ZERO, "three": np.array(3), "two": np.array(2)}),
    "shape_as_floats": lambda: Case([node("Shape", "h", "shape"), node("Cast", "shape", "f", to=onnx.TensorProto.FLOAT),
                                     node("ReduceProd", "f", "q", keepdims=0), node("Div", "h q", "y")]),
    "compared": lambda: Case([*SHAPE, node("Less", "index n", "in"), node("Where", "in h zeros", "y")],
                             {**ZERO, "index": np.array([0, 3, 5, 9]), "zeros": np.zeros(4, np.float32)}),
    # tensors made with the batch's size
    "range": lambda: Case([*FLOAT, node("Range", "zero n one", "i"), node("Cast", "i", "f", to=onnx.TensorProto.FLOAT), node("Div", "f count", "r"),
                           node("Unsqueeze", "r last", "u"), node("Mul", "h u", "m"), node("ReduceSum", "f", "t", keepdims=0), node("Add", "m t", "y")],
                          {**ZERO, "one": np.array(1), "last": np.array([1])}),
    "ones": lambda: Case([*SHAPE, node("Unsqueeze", "n front", "v"), node("Concat", "single v", "s", axis=0),
                          node("ConstantOfShape", "s", "o", value=numpy_helper.from_array(np.ones(1, np.float32))), node("MatMul", "o h", "t"),
                          node("ReduceSum", "o", "c", keepdims=0), node("Div", "t c", "m"), node("Sub", "h m", "y")],
                         {**ZERO, "single": np.array([1]), "front": np.array([0])}),
    "expanded": lambda: Case([node("Shape", "h", "s"), node("Expand", "p s", "e"), node("ReduceSum", "e axes", "t", keepdims=1), node("Mul", "h t", "y")],
                             {"p": normal(1, 4), "axes": np.array([0])}),
    "tiled": lambda: Case([*SHAPE, node("Unsqueeze", "n front", "v"), node("Concat", "v single", "s", axis=0), node("Tile", "p s", "e"),
                           node("ReduceMean", "e", "t", axes=[0], keepdims=1), node("Add", "e t", "u"), node("Mul", "h u", "y")],
                          {**ZERO, "p": normal(1, 4), "single": np.array([1]), "front": np.array([0])}),
    "reshaped_by_shape": lambda: Case([*SHAPE, node("Mul", "n five", "m"), node("Unsqueeze", "m front", "v"), node("Concat", "v four", "s", axis=0),
                                       node("Reshape", "h s", "f"), node("Softmax", "f", "p", axis=0), node("Shape", "h", "whole"),
                                       node("Reshape", "p whole", "y")],
                                      {**ZERO, "five": np.array(5), "four": np.array([4]), "front": np.array([0])}, x=("N", 5, 3), output=("N", 5, 4)),
    "table_by_slice": lambda: Case([*SHAPE, node("Unsqueeze", "n front", "v"), node("Slice", "table front v front", "e"), node("Add", "h e", "a"),
                                    node("ReduceSum", "e axes", "t", keepdims=1), node("Mul", "a t", "y")],
                                   {**ZERO, "table": normal(20, 4), "front": np.array([0]), "axes": np.array([0])}),
    "resized_by_shape": lambda: Case([node("Shape", "h", "s"), node("Slice", "s nil two", "k"), node("Concat", "k size", "z", axis=0),
                                      helper.make_node("Resize", ["h", "", "", "z"], ["y"], name="Resize_y", mode="nearest")], {"nil": np.array([0]), "two": np.array([2]), "size": np.array([10, 8])},
                                     x=("N", 2, 5, 3), output=("N", 2, 10, 8)),
    "identity": lambda: Case([node("Gemm", "h h", "s", transB=1), node("EyeLike", "s", "e"), node("Mul", "s e", "d"), node("ReduceSum", "d one", "q", keepdims=1),
                              node("ReduceSum", "e", "c", keepdims=0), node("Div", "q c", "r"), node("Mul", "h r", "y")], {"one": np.array([1])}),
    # divided by what is there for each sample: no zero where none is, which times the zero gradient would be NaN in V's
    "divided_by_twos": lambda: Case([*SHAPE, node("Unsqueeze", "n front", "v"), node("Concat", "v single", "s", axis=0),
                                     node("ConstantOfShape", "s", "o", value=numpy_helper.from_array(np.full(1, 2, np.float32))), node("Div", "h o", "q"),
                                     node("MatMul", "q V", "y")], {**ZERO, "single": np.array([1]), "front": np.array([0]), "V": normal(4, 4)}),
    "divided_by_expanded": lambda: Case([node("Shape", "h", "s"), node("Expand", "p s", "e"), node("Div", "h e", "q"), node("MatMul", "q V", "y")],
                                        {"p": np.abs(normal(1, 4)) + 1, "V": normal(4, 4)}),
    "divided_by_softmax": lambda: Case([node("Softmax", "h", "p", axis=0), node("Div", "x3 p", "q"), node("MatMul", "q V", "y")], {"V": normal(4, 4)},
                                       inputs={"x3": ("N", 4)}),
    "divided_by_cumsum": lambda: Case([node("Exp", "h", "e"), node("CumSum", "e axis", "c", reverse=1), node("Div", "h c", "q"), node("MatMul", "q V", "y")],
                                      {"axis": np.array(0), "V": normal(4, 4)}),
    "log_of_softmax": lambda: Case([node("Softmax", "h", "p", axis=0), node("Log", "p", "l"), node("MatMul", "l V", "y")], {"V": normal(4, 4)}),
    # a sample that is not there finds no column of its own, but the first one's: no sum of nothing, no distance of zero
    "own_similarity": lambda: Case([node("Gemm", "h h", "s", transB=1), node("Exp", "s", "e"), node("EyeLike", "s", "i"), node("Mul", "e i", "d"),
                                    node("ReduceSum", "d one", "q", keepdims=1), node("Log", "q", "l"), node("Mul", "h l", "p"), node("MatMul", "p V", "y")],
                                   {"one": np.array([1]), "V": normal(4, 4)}),
    "other_samples": lambda: Case([node("Gemm", "h h", "s", transB=1), node("EyeLike", "s", "i"), node("Cast", "i", "own", to=onnx.TensorProto.BOOL),
                                   node("Where", "own low s", "o"), node("Softmax", "o", "p", axis=1), node("MatMul", "p h", "m"), node("MatMul", "m V", "y")],
                                  {"low": np.float32(-np.inf), "V": normal(4, 4)}),
    "distances_to_others": lambda: Case([node("Unsqueeze", "h one", "a"), node("Unsqueeze", "h nil", "b"), node("Sub", "a b", "d"),
                                         node("ReduceSumSquare", "d", "q", axes=[2], keepdims=0), node("EyeLike", "q", "i"), node("Add", "q i", "r"),
                                         node("Reciprocal", "r", "w"), node("MatMul", "w h", "m"), node("MatMul", "m V", "y")],
                                        {"one": np.array([1]), "nil": np.array([0]), "V": normal(4, 4)}),
    "behind_it": lambda: Case([*SHAPE, node("Range", "zero n one", "r"), node("Unsqueeze", "r front", "c"), node("Unsqueeze", "r last", "w"),
                               node("Less", "c w", "before"), node("Cast", "before", "f", to=onnx.TensorProto.FLOAT), node("Sub", "unit f", "k"),
                               node("Exp", "h", "e"), node("MatMul", "k e", "m"), node("Log", "m", "l"), node("MatMul", "l V", "y")],
                              {**ZERO, "one": np.array(1), "front": np.array([0]), "last": np.array([1]), "unit": np.float32(1), "V": normal(4, 4)}),
    "before_it": lambda: Case([node("Gemm", "h h", "s", transB=1), node("Exp", "s", "e"), node("Trilu", "e", "k", upper=0),
                               node("ReduceSum", "k one", "q", keepdims=1), node("Log", "q", "l"), node("Mul", "h l", "p"), node("MatMul", "p V", "y")],
                              {"one": np.array([1]), "V": normal(4, 4)}),
    "from_it_on": lambda: Case([node("Gemm", "h h", "s", transB=1), node("Exp", "s", "e"), node("Trilu", "e", "k", upper=1),
                                node("ReduceSum", "k one", "q", keepdims=1), node("Log", "q", "l"), node("Mul", "h l", "p"), node("MatMul", "p V", "y")],
                               {"one": np.array([1]), "V": normal(4, 4)}),
    "cumsum_difference": lambda: Case([node("Exp", "h", "e"), node("CumSum", "e axis", "c"), node("CumSum", "e axis", "f", exclusive=1), node("Sub", "c f", "d"),
                                       node("Log", "d", "l"), node("MatMul", "l V", "y")], {"axis": np.array(0), "V": normal(4, 4)}),
    "blocks_of_samples": lambda: Case([*JOINED, node("Gemm", "c c", "s", transB=1), node("Trilu", "s", "k", upper=0), node("MatMul", "k c", "m"),
                                       node("Split", "m", "u v", axis=0), node("Mul", "u v", "y")]),
    # what folds to a constant is as many rows as there are samples
    "folded_ones": lambda: Case([node("Mul", "i zero", "j"), node("Add", "j one", "k"), *COUNTED], {**ZERO, "one": np.array(1), "axes": np.array([0])},
                                inputs={"i": ("N", 4, LABELS)}),
    "folded_comparison": lambda: Case([node("Equal", "i i", "k"), *COUNTED], {"axes": np.array([0])}, inputs={"i": ("N", 4, LABELS)}),
    "folded_power": lambda: Case([node("Pow", "h nil", "k"), *COUNTED], {"nil": np.float32(0), "axes": np.array([0])}),
    "folded_selection": lambda: Case([node("Greater", "h nil", "c"), node("Where", "c two two", "k"), *COUNTED],
                                     {"nil": np.float32(0), "two": np.float32(2), "axes": np.array([0])}),
    "folded_branch": lambda: Case([node("Where", "never h row", "k"), *COUNTED], {"never": np.array(False), "row": normal(1, 4), "axes": np.array([0])}),
    "empty_part": lambda: Case([node("Split", "h sizes", "e f", axis=1), node("Concat", "f e", "y", axis=1)], {"sizes": np.array([0, 4])}),
    # every sample reads its own row: x[arange(N), i]
    "own_rows": lambda: Case([*SHAPE, node("Range", "zero n one", "r"), node("Unsqueeze", "r last", "u"), node("ArgMax", "h", "a", axis=1, keepdims=1),
                              node("Concat", "u a", "t", axis=1), node("GatherND", "h t", "g"), node("Unsqueeze", "g last", "v"), node("Mul", "h v", "y")],
                             {**ZERO, "one": np.array(1), "last": np.array([1])}),
    # a file for batches of one size: what is the same for each sample stays so for fewer
    "state_of_zeros": lambda: Case([node("MatMul", "state U", "u"), node("Add", "h u", "g"), node("Tanh", "g", "y")], {"U": normal(2, 4)},
                                   of_batch=lambda n: {"state": np.zeros((n, 2), np.float32)}),
    "expanded_queries": lambda: Case([node("Expand", "q s", "e"), node("LayerNormalization", "e w b", "l"), node("MatMul", "l V", "v"),
                                      node("Softmax", "v", "p", axis=-1), node("Mul", "h p", "y")],
                                     {"q": normal(1, 4), "w": normal(4), "b": normal(4), "V": normal(4, 4)}, of_batch=lambda n: {"s": np.array([n, 4])}),
    "repeated_mask": lambda: Case([node("Reshape", "h image", "i"), node("Mul", "i mask", "y")], x=("N", 256, 3), output=("N", 4, 16, 16),
                                  of_batch=lambda n: {"image": np.array([n, 4, 16, 16]), "mask": np.repeat(MASK, n, 0)}),
    # one after the other along the batch, and apart again
    "joined": lambda: Case([node("Neg", "h", "g"), node("Exp", "g", "e"), node("Concat", "h e", "c", axis=0),
                            node("ReduceMean", "c", "m", axes=[0], keepdims=1), node("Sub", "c m", "d"), node("Split", "d", "u v", axis=0), node("Mul", "u v", "y")]),
    "first_sample": lambda: Case([node("Gather", "h zero", "f", axis=0), node("Mul", "h f", "y")], ZERO),
    "own_elements": lambda: Case([node("ArgMax", "h", "a", axis=1, keepdims=1), node("GatherElements", "h a", "g", axis=1), node("Mul", "h g", "y")]),
    "own_tuples": lambda: Case([node("ArgMax", "h", "a", axis=1, keepdims=1), node("GatherND", "h a", "g", batch_dims=1), node("Unsqueeze", "g one", "u"),
                                node("Mul", "h u", "y")], {"one": np.array([1])}),
    # losses of the model itself
    "own_mean_loss": lambda: Case([node("Sub", "h t", "d"), node("Mul", "d d", "q"), node("ReduceMean", "q", "y", keepdims=0)],
                                  inputs={"t": ("N", 4)}, output=(), loss="output"),
    "own_cross_entropy": lambda: Case([node("SoftmaxCrossEntropyLoss", "h t w", "y", reduction="mean", ignore_index=2)], {"w": np.abs(normal(4)) + 1},
                                      inputs={"t": ("N", LABELS)}, output=(), loss="output"),
    "own_cross_entropy_sum": lambda: Case([node("SoftmaxCrossEntropyLoss", "h t", "y", reduction="sum")], inputs={"t": ("N", LABELS)}, output=(), loss="output"),
    "own_contrastive": lambda: Case([node("MatMul", "z V", "g"), node("Gemm", "h g", "s", transB=1), *SHAPE, node("Range", "zero n one", "t"),
                                     node("SoftmaxCrossEntropyLoss", "s t", "a", reduction="mean"), node("Transpose", "s", "r"),
                                     node("SoftmaxCrossEntropyLoss", "r t", "b", reduction="mean"), node("Add", "a b", "y")],
                                    {**ZERO, "one": np.array(1), "V": normal(3, 4)}, inputs={"z": ("N", 3)}, output=(), loss="output"),
}


def part_of(inputs, labels, samples):
    return {k: v[samples] for k, v in inputs.items()}, None if labels is None else labels[samples]


def check_case(bench, case):
    large, small = case.compile(bench, 8), case.compile(bench, 3)
    inputs, labels = case.data(11)
    first, last = part_of(inputs, labels, slice(0, 8)), part_of(inputs, labels, slice(8, 11))
    want = small.grad(*last)
    got = large.grad(*last)
    for name in want:
        require_close(got[name], want[name], 1e-11, f"gradient {name}")
    loss = [float(re.search(r"loss\D*([0-9.eE+-]+)", t.must("eval", "--data", t.data(*last)).out).group(1)) for t in (large, small)]
    require_close(loss[0], loss[1], 1e-9, "eval")
    for name, value in small.predict(last[0]).items():
        require_close(large.predict(last[0])[name], value, 1e-11, f"predicted {name}")
    # Two steps, the second with 3 samples: as one of each program.
    whole = large.train(large.data(inputs, labels), "--epochs", 1, "--lr", 0.01, *PLAIN)
    one = large.train(large.data(*first), "--epochs", 1, "--lr", 0.01, *PLAIN)
    two = small.train(small.data(*last), "--checkpoint", one.newest(), "--epochs", 1, "--lr", 0.01, *PLAIN)
    require_close(whole.values("loss"), one.values("loss") + two.values("loss"), 1e-11, "losses")
    for name, value in checkpoint_contents(two.newest())[0].items():
        if name.startswith(("weight/", "statistic/")):
            require_close(checkpoint_contents(whole.newest())[0][name], value, 1e-11, name)


def case_test(name):
    def test(bench):
        check_case(bench, CASES[name]())

    return test


for name in CASES:
    globals()["test_case_" + name] = case_test(name)


def test_reductions_by_formula(bench):
    """A mean and a sum over the batch axis are over the 5 samples that are there, by numpy's formulas."""
    nodes = [node("MatMul", "x W", "h"), node("ReduceMean", "h", "m", axes=[0], keepdims=1), node("Sub", "h m", "c"), node("Mul", "c c", "q"),
             node("ReduceSum", "q axis", "s", keepdims=1), node("Add", "h s", "y")]
    weights = {"W": normal(3, 2), "axis": np.array([0])}
    model = model_of(nodes, {"x": ["N", 3]}, {"y": ["N", 2]}, weights, opset=13)
    trainer = bench.compile(model, *SGD, "--precision=fp64", "--batch=8", "--train=^W$")
    for samples in (8, 5, 1):
        x, t = normal(samples, 3), normal(samples, 2)
        w = weights["W"].astype(np.float64)
        h = x.astype(np.float64) @ w
        c = h - h.mean(0)
        y = h + (c ** 2).sum(0)
        d = 2 * (y - t) / y.size
        dc = 2 * c * d.sum(0)
        got = trainer.grad({"x": x}, t)
        require_close(got["loss"], np.mean((y - t) ** 2), 1e-12, f"loss of {samples} samples")
        require_close(got["W"], x.T.astype(np.float64) @ (d + dc - dc.mean(0)), 1e-12, f"gradient of {samples} samples")


def test_reductions_in_other_precisions(bench):
    """The divisor of a mean is a number of samples, whatever the products' type."""
    case = CASES["whitened"]()
    inputs, labels = case.data(3)
    want = case.compile(bench, 3).grad(inputs, labels)
    for precision, tolerance in (("fp32", 1e-4), ("bf16", 0.1), ("fp16", 2e-2)):
        trainer = bench.compile(case.model(8), *SGD, f"--precision={precision}", "--batch=8")
        require_close(trainer.grad(inputs, labels)["W"], want["W"], tolerance, precision)


def test_sizes_do_not_change_the_precision(bench):
    """A number that is made of the batch size stands for a constant: a half chain it scales stays half."""
    case = Case([*FLOAT, node("Div", "h count", "d"), node("MatMul", "d V", "y")], {**ZERO, "V": normal(4, 4)})
    report = bench.run_mpc(case.model(8), *SGD, "--precision=bf16", "--batch=8", "--report=precision", output=bench.path("t"))
    require(re.search(r"Div_d\s+Div\s+P\s+bf16", report.out + report.err), f"the division is not in half: {report.out}{report.err}")


def test_outputs_of_no_sample(bench):
    """An output that belongs to the batch as a whole is that of the samples given, at most one batch of them."""
    model = model_of([node("ReduceMean", "x", "m", axes=[0], keepdims=0), node("Transpose", "x", "t")], {"x": ["N", 8]}, {"m": [8], "t": [8, "N"]}, {})
    trainer = bench.compile(model, "--loss=none", "--precision=fp64", "--batch=8")
    x = normal(5, 8)
    got = trainer.predict({"x": x})
    require_close(got["m"], x.astype(np.float64).mean(0), 1e-12, "mean")
    require_close(got["t"], x.T, 1e-12, "transposed")
    require_refusal(trainer.run("predict", *trainer.given({"x": normal(11, 8)}), "-o", "out.npz"), ["output 'm'", "at most 8"], "predict")


def test_outputs_in_blocks(bench):
    """Rows of an output that go through all samples several times are put together by samples."""
    model = model_of([node("Transpose", "x", "t", perm=[1, 0, 2]), node("Reshape", "t flat", "y")], {"x": ["N", 3, 2]}, {"y": ["M", 2]},
                     {"flat": np.array([-1, 2])})
    trainer = bench.compile(model, "--loss=none", "--precision=fp32", "--batch=4")
    x = normal(7, 3, 2)
    require_close(trainer.predict({"x": x})["y"], x.transpose(1, 0, 2).reshape(-1, 2), 0, "y")


# ---------------------------------------------------------------- what cannot be followed

REFUSED = {
    # name → (nodes, weights, the node to blame): the value for n samples is not in the program for N
    "fixed_matrix": lambda: ([node("MatMul", "mix h", "y", name="culprit")], {"mix": normal(4, 4)}),
    "last_sample": lambda: ([node("Gather", "h last", "f", axis=0, name="culprit"), node("Mul", "h f", "y")], {"last": np.array(-1)}),
    "reversed": lambda: ([node("Slice", "h from to axes steps", "y", name="culprit")],
                         {"from": np.array([-1]), "to": np.array([-1000]), "axes": np.array([0]), "steps": np.array([-1])}),
    "shifted": lambda: ([node("Pad", "h pads", "p", name="culprit"), node("Slice", "p zero end zero", "y")],
                        {"pads": np.array([1, 0, 0, 0]), "zero": np.array([0]), "end": np.array([-1])}),
    "layer_norm_over_the_batch": lambda: ([node("Transpose", "h", "t"), node("LayerNormalization", "t s", "l", name="culprit"), node("Transpose", "l", "y")],
                                          {"s": np.ones(4, np.float32)}),
    "index_from_the_batch_size": lambda: ([*SHAPE, node("Div", "n two", "i"), node("Gather", "h i", "f", axis=0, name="culprit"), node("Mul", "h f", "y")],
                                          {**ZERO, "two": np.array(2)}),
    "branch_by_the_batch_size": lambda: ([*SHAPE, node("Equal", "n one", "c"), if_node("c", "h", "y")], {**ZERO, "one": np.array(1)}),
    # numbers with a row for each sample of a whole batch
    "rows_added": lambda: ([node("Add", "h p", "y", name="culprit")], {"p": normal(4, 4)}),
    "rows_of_one": lambda: ([node("Mul", "h p", "y", name="culprit")], {"p": normal(4, 1)}),
    "rows_selected": lambda: ([node("Greater", "h nil", "c"), node("Where", "c h p", "y", name="culprit")], {"nil": np.float32(0), "p": normal(4, 1)}),
    "rows_joined": lambda: ([node("Concat", "h p", "c", axis=1, name="culprit"), node("Slice", "c two six one", "y")],
                            {"p": normal(4, 2), "two": np.array([2]), "six": np.array([6]), "one": np.array([1])}),
    "matrices": lambda: ([node("Unsqueeze", "h one", "u"), node("MatMul", "u p", "m", name="culprit"), node("Squeeze", "m one", "y")],
                         {"p": normal(4, 4, 4), "one": np.array([1])}),
    "bias_of_rows": lambda: ([node("Gemm", "h p b", "y", name="culprit")], {"p": normal(4, 4), "b": normal(4, 4)}),
    "next_block": lambda: ([*JOINED, node("Gemm", "c c", "s", transB=1), helper.make_node("EyeLike", ["s"], ["i"], name="culprit", k=1), node("Mul", "s i", "d"),
                            node("MatMul", "d c", "m"), node("Split", "m", "u v", axis=0), node("Mul", "u v", "y")], {}),
    "square": lambda: ([node("Transpose", "h", "t"), node("Add", "h t", "y", name="culprit")], {}),
    # constants that are all samples of a whole batch by chance, and something else of fewer
    "rows_by_chance": lambda: ([node("Concat", "h h h", "c", axis=1), node("Reshape", "c four", "r", name="culprit"), node("Slice", "r nil end one", "y")],
                               {"four": np.array([4, -1]), "nil": np.array([0]), "end": np.array([4]), "one": np.array([1])}),
    "columns_by_chance": lambda: ([node("Transpose", "h", "t"), node("Reshape", "t four", "y", name="culprit")], {"four": np.array([-1, 4])}),
    "joined_part_by_chance": lambda: joined_part([4], [8]),
    "joined_start_by_chance": lambda: joined_part([0], [4]),
    "joined_end_by_chance": lambda: joined_part([-4], [1000]),
    "joined_by_negative_pads": lambda: ([*JOINED, node("Pad", "c pads", "y", name="culprit")], {"pads": np.array([0, 0, -4, 0])}),
    "joined_by_positions": lambda: ([*JOINED, node("Gather", "c first", "y", axis=0, name="culprit")], {"first": np.arange(4)}),
    "first_from_the_end": lambda: ([node("Slice", "h from end", "f", name="culprit"), node("Mul", "h f", "y")], {"from": np.array([-4]), "end": np.array([-3])}),
    "parts_by_chance": lambda: ([*JOINED, node("SplitToSequence", "c four", "parts", axis=0, name="culprit"), node("SequenceAt", "parts one", "y")],
                                {"four": np.array(4), "one": np.array(1)}),
    "height_by_chance": lambda: ([node("Unsqueeze", "h front", "u"), helper.make_node("Resize", ["u", "", "", "sizes"], ["r"], name="culprit", mode="linear"),
                                  node("Squeeze", "r front", "y")], {"front": np.array([0, 1]), "sizes": np.array([1, 1, 4, 4])}),
}


def joined_part(start, end):
    return [*JOINED, node("Slice", "c start end", "y", name="culprit")], {"start": np.array(start), "end": np.array(end)}


def if_node(condition, x, y):
    """y = condition ? x : -x."""
    branch = lambda op: helper.make_graph([node(op, x, "inner")], op, [], [helper.make_tensor_value_info("inner", onnx.TensorProto.FLOAT, None)])
    return helper.make_node("If", [condition], [y], name="culprit", then_branch=branch("Identity"), else_branch=branch("Neg"))


def refused_test(name):
    def test(bench):
        nodes, weights = REFUSED[name]()
        model = model_of([node("MatMul", "x W", "h"), *nodes], {"x": ["N", 3]}, {"y": ["N", 4]}, {"W": normal(3, 4), **weights})
        trainer = bench.compile(model, *SGD, "--precision=fp32", "--batch=4", "--train=^W$")
        x, t = normal(6, 3), normal(6, 4)
        data = trainer.data({"x": x}, t)
        for command in (["train", "--data", data, "--epochs", 1, "--lr", 0.1, *PLAIN], ["eval", "--data", data],
                        ["predict", *trainer.given({"x": x}), "-o", "out.npz"]):
            require_refusal(trainer.run(*command), ["culprit", "drop-tail" if command[0] == "train" else "batch"], command[0])
        run = trainer.train(data, "--epochs", 2, "--lr", 0.1, *PLAIN, "--drop-tail")
        require(len(run.events()) == 2, f"{len(run.events())} steps, want one per epoch")

    return test


for name in REFUSED:
    globals()["test_refused_" + name] = refused_test(name)


def test_constants_of_a_file_for_one_size(bench):
    """A file whose inputs have fixed sizes may have the batch's in constants: for fewer samples they are that many."""
    weights = {"flat": np.array([4, -1]), "W": normal(6, 2), "four": np.array([4]), "eight": np.array([8])}
    model = model_of([node("Reshape", "x flat", "f"), node("MatMul", "f W", "h"), node("Concat", "h h", "c", axis=0), node("Slice", "c four eight", "y")],
                     {"x": [4, 3, 2]}, {"y": [4, 2]}, weights)
    trainer = bench.compile(model, *SGD, "--precision=fp64")
    x = normal(7, 3, 2)
    require_close(trainer.predict({"x": x})["y"], x.reshape(7, 6) @ weights["W"], 1e-6, "y")


def test_dropout_before_a_softmax_over_samples(bench):
    """A sample that is not there has random numbers of its own, and may be larger than all that are there by more than exp can hold."""
    nodes = [node("MatMul", "x W", "h"), node("Dropout", "h ratio yes", "d"), node("Softmax", "d", "p", axis=0), node("MatMul", "p V", "y")]
    weights = {"W": normal(3, 4), "V": normal(4, 2), "ratio": np.float32(0.5), "yes": np.array(True)}
    trainer = bench.compile(model_of(nodes, {"x": ["N", 3]}, {"y": ["N", 2]}, weights), *SGD, "--precision=fp32", "--batch=8", "--train=^(W|V)$")
    got = trainer.grad({"x": 300 * normal(5, 3)}, normal(5, 2))
    for name in ("W", "V"):
        require(np.isfinite(got[name]).all(), f"{name}: {got[name]}")


def test_dropout_before_an_extremum_of_the_samples(bench):
    """√(max y - y) and log(y - min y): a sample that is not there has the first one's random numbers, and is neither above nor below all that are."""
    for op, sides in (("ReduceMax", "r d"), ("ReduceMin", "d r")):
        for behind in ("Sqrt", "Log"):
            nodes = [node("MatMul", "x W", "h"), node("Dropout", "h ratio yes", "d"), node(op, "d", "r", axes=[0], keepdims=1), node("Sub", sides, "s"),
                     node("Add", "s little", "t"), node(behind, "t", "y")]
            weights = {"W": normal(3, 4), "ratio": np.float32(0.5), "yes": np.array(True), "little": np.float32(1e-3)}
            model = model_of(nodes, {"x": ["N", 3]}, {"y": ["N", 4]}, weights, opset=17)
            trainer = bench.compile(model, *SGD, "--precision=fp32", "--batch=16", "--train=^W$")
            for samples, seed in ((3, 1), (3, 2), (3, 3), (16, 1)):
                got = trainer.grad({"x": 30 * normal(samples, 3)}, normal(samples, 4), "--seed", seed)
                require(np.isfinite(got["W"]).all() and np.abs(got["W"]).max() > 0, f"{op}, {behind}, {samples} samples, seed {seed}: {got['W']}")


def test_infinite_sums_stay_with_their_samples(bench):
    """A first sum of infinity is none of the others', in a whole batch and in a smaller one."""
    model = model_of([node("CumSum", "x axis", "y", reverse=1)], {"x": ["N", 2]}, {"y": ["N", 2]}, {"axis": np.array(0)})
    trainer = bench.compile(model, "--loss=none", "--precision=fp32", "--batch=8")
    for samples in (8, 5):
        x = normal(samples, 2)
        x[0] = np.inf
        got = trainer.predict({"x": x})["y"]
        require(np.isinf(got[0]).all(), f"{got[0]}")
        require_close(got[1:], np.cumsum(x[:0:-1], 0)[::-1], 1e-5, "the others")


def test_padding_samples_do_not_leak(bench):
    """The missing samples of a tail are copies of the first: values that overflow there must not skip the step or make NaN.
    Here x → 1/x: no sample is zero, but a padding of zeros would be infinite."""
    model = model_of([node("Reciprocal", "x", "r"), node("MatMul", "r W", "y")], {"x": ["N", 2]}, {"y": ["N", 1]}, {"W": np.ones((2, 1), np.float32)})
    trainer = bench.compile(model, *SGD, "--precision=fp32", "--batch=8")
    x = np.array([[1, 2], [4, 5], [8, 10]], np.float32)
    run = trainer.train(trainer.data({"x": x}, np.zeros((3, 1), np.float32)), "--epochs", 1, "--lr", 0.1, *PLAIN)
    require(run.values("skipped") == [False], "the step was skipped")
    require_close(run.values("loss"), [np.mean((1 / x).sum(1) ** 2)], 1e-6, "loss")


if __name__ == "__main__":
    main(__doc__)
