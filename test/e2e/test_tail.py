"""The last, smaller batch of n samples trains and evaluates as n samples: PyTorch's drop_last=False, by numpy's formulas.

    test_tail.py --build BUILD [--only REGEX] [-v]

fp64 programs are compared closely, so that a sample with a wrong weight cannot hide.
"""

import re

import numpy as np

from support import PLAIN, SGD, main, model_of, node, require, require_close, require_refusal

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


def test_reductions_over_the_batch(bench):
    """A mean and a sum over the batch axis count the n samples that are there, or the tail is refused by the node's name."""
    nodes = [node("MatMul", "x W", "h"), node("ReduceMean", "h", "m", axes=[0], keepdims=1), node("Sub", "h m", "c"), node("Mul", "c c", "q"),
             node("ReduceSum", "q axis", "s", keepdims=1), node("Add", "h s", "y")]
    weights = {"W": normal(3, 2), "axis": np.array([0])}
    model = model_of(nodes, {"x": ["N", 3]}, {"y": ["N", 2]}, weights, opset=13)
    trainer = bench.compile(model, *SGD, "--precision=fp64", "--batch=8", "--train=^W$")
    for samples in (8, 5):
        x, t = normal(samples, 3), normal(samples, 2)
        if samples < 8:
            refused = trainer.run("eval", "--data", trainer.data({"x": x}, t))
            if refused.code:
                require_refusal(refused, "ReduceMean_m|ReduceSum_s", "eval")
                continue
        h = x.astype(np.float64) @ weights["W"].astype(np.float64)
        y = h + ((h - h.mean(0)) ** 2).sum(0)
        require_close(trainer.grad({"x": x}, t)["loss"], np.mean((y - t) ** 2), 1e-12, f"loss of {samples} samples")


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


def test_a_model_that_mixes_samples(bench):
    """Where samples are mixed in a way that cannot be followed, a tail is refused with the node's name, and --drop-tail leaves it out."""
    weights = {"W": normal(2, 2), "mix": normal(4, 4)}
    model = model_of([node("MatMul", "x W", "h"), node("MatMul", "mix h", "y", name="mixer")], {"x": ["N", 2]}, {"y": ["N", 2]}, weights)
    trainer = bench.compile(model, *SGD, "--precision=fp32", "--batch=4", "--train=^W$")
    data = trainer.data({"x": normal(6, 2)}, normal(6, 2))
    done = trainer.run("train", "--data", data, "--epochs", 1, "--lr", 0.1, *PLAIN)
    require_refusal(done, ["mixer", "drop-tail"], "train")
    run = trainer.train(data, "--epochs", 2, "--lr", 0.1, *PLAIN, "--drop-tail")
    require(len(run.events()) == 2, f"{len(run.events())} steps, want one per epoch")


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
