"""Softmax of rows that a mask leaves nothing of, behind a choice of zeros.

    test_softmax.py --build BUILD [--only REGEX] [-v]
"""

import numpy as np

from support import SGD, main, model_of, node, require, require_close, require_match, require_same_bits, require_success

X = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)
T = np.random.default_rng(2).normal(size=(3, 5)).astype(np.float32)
MASK_OF_COLUMNS = np.array([[0, -np.inf, 0, 0, 0]] * 3, np.float32)
MASK = np.array([[0, 0, -np.inf, 0, 0], [-np.inf] * 5, [-np.inf, 0, 0, 0, 0]], np.float32)


CHOICES = {  # of p = softmax(s): PyTorch's, its opposite, a comparison, ONNX's Attention's by the mask, and that turned round
    "IsNaN": [node("IsNaN", "p", "none"), node("Where", "none zero p", "q")],
    "Not": [node("IsNaN", "p", "none"), node("Not", "none", "some"), node("Where", "some p zero", "q")],
    "Equal": [node("Equal", "p p", "some"), node("Where", "some p zero", "q")],
    "mask": [node("ReduceMax", "mask", "most", axes=[-1]), node("Equal", "most low", "none"), node("Where", "none zero p", "q")],
    "mask turned": [node("ReduceMax", "mask", "most", axes=[-1]), node("Greater", "most low", "some"), node("Where", "some p zero", "q")],
}


def guarded(choice, axis=-1):
    """y = q·V, where q is p = softmax(x·W + mask) and zeros where a row has nothing; without a choice, y = p·V."""
    random = np.random.default_rng(3)
    weights = {"W": random.normal(size=(4, 5)).astype(np.float32), "V": random.normal(size=(5, 5)).astype(np.float32), "zero": np.array(0, np.float32),
               "low": np.array(-np.inf, np.float32)}
    nodes = [node("MatMul", "x W", "d"), node("Add", "d mask", "s"), node("Softmax", "s", "p", name="weights", axis=axis), *CHOICES.get(choice, []), node("MatMul", "q V" if choice else "p V", "y")]
    return model_of(nodes, {"x": ["N", 4], "mask": ["N", 5]}, {"y": ["N", 5]}, weights, opset=17), weights


def wanted(weights, axis=1):
    """y, and the gradients of W and V, by PyTorch's rule: rows without anything are zeros."""
    W, V = (weights[name].astype(np.float64) for name in "WV")
    mask = MASK if axis == 1 else MASK_OF_COLUMNS
    s = X.astype(np.float64) @ W + mask
    with np.errstate(invalid="ignore"):
        p = np.exp(s - s.max(axis, keepdims=True))
        p = np.where(np.isneginf(mask).all(axis, keepdims=True), 0, p / p.sum(axis, keepdims=True))
    y = p @ V
    dy = 2 * (y - T) / y.size
    dp = dy @ V.T
    return {"y": y, "W": X.astype(np.float64).T @ (p * (dp - (dp * p).sum(axis, keepdims=True))), "V": p.T @ dy}


def test_rows_without_anything(bench):
    """They are zero, and so are their gradients; the others have theirs. NaN in a score is guarded as the model says."""
    for choice in CHOICES:
        model, weights = guarded(choice)
        want = wanted(weights)
        for target in ("cpu", "cuda"):
            for precision, tolerance in (("fp32", 1e-5), ("bf16", 6e-2), ("fp16", 8e-3)):
                trainer = bench.on(target).compile(model, *SGD, "--batch=3", f"--precision={precision}")
                got = trainer.grad({"x": X, "mask": MASK}, T) | trainer.predict({"x": X, "mask": MASK})
                for name in want:
                    require_close(got[name], want[name], tolerance, f"{choice}, {target} {precision}: {name}")
    model, _ = guarded("IsNaN")
    broken = X.copy()
    broken[0, 0] = np.nan
    trainer = bench.compile(model, *SGD, "--batch=3", "--precision=fp32")
    require_close(trainer.predict({"x": broken, "mask": MASK})["y"][:2], np.zeros((2, 5)), 0, "a row of NaN")


def test_along_the_samples(bench):
    """A softmax over the batch, of which a column is empty; alone, and as a smaller last batch."""
    for choice in ("IsNaN", "Not"):
        model, weights = guarded(choice, axis=0)
        for batch in (3, 5):
            trainer = bench.compile(model, *SGD, f"--batch={batch}", "--precision=fp32")
            got = trainer.grad({"x": X, "mask": MASK_OF_COLUMNS}, T)
            for name, want in wanted(weights, axis=0).items():
                if name != "y":
                    require_close(got[name], want, 1e-5, f"{choice}, batch {batch}: {name}")


def test_a_guard_changes_nothing_else(bench):
    """Where every row has something: the bits of the softmax alone, in halves too, where its scores are not rounded; and its node keeps its name."""
    inputs = {"x": X * 3, "mask": np.zeros_like(MASK)}
    for precision in ("bf16", "fp16"):
        outputs = {c: bench.compile(guarded(c)[0], *SGD, "--batch=3", f"--precision={precision}").predict(inputs)["y"] for c in (*CHOICES, None)}
        for choice in CHOICES:
            require_same_bits({"y": outputs[choice]}, {"y": outputs[None]}, f"{choice}, {precision}")
        model, _ = guarded("IsNaN")
        done = bench.run_mpc(model, *SGD, "--batch=3", f"--precision={precision}", "--keep-fp32=weights", "--report=precision", output=bench.path("t"))
        require_success(done, "--keep-fp32")
        require_match(r"weights +Softmax +\S+ +f32 +--keep-fp32", done.out, "the report")


def test_a_zero_of_more_dimensions(bench):
    """What is chosen may have the larger rank, as in any Where."""
    model, _ = guarded("IsNaN")
    next(t for t in model.graph.initializer if t.name == "zero").dims.extend([1, 1, 1])
    model.graph.output[0].type.tensor_type.shape.dim.insert(0, type(model.graph.output[0].type.tensor_type.shape.dim[0])(dim_value=1))
    trainer = bench.compile(model, *SGD, "--batch=3", "--precision=fp32")
    y = trainer.predict({"x": X, "mask": MASK})["y"]
    require(y.shape == (1, 3, 5) and not y[0, 1].any(), f"{y}")


if __name__ == "__main__":
    main(__doc__)
