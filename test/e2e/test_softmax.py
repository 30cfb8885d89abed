"""Softmax of rows that a mask leaves nothing of.

    test_softmax.py --build BUILD [--only REGEX] [-v]
"""

import numpy as np

from support import SGD, main, model_of, node, require_close

X = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)
T = np.random.default_rng(2).normal(size=(3, 5)).astype(np.float32)
MASK = np.array([[0, 0, -np.inf, 0, 0], [-np.inf] * 5, [-np.inf, 0, 0, 0, 0]], np.float32)


def guarded(body):
    """Where(IsNaN(p), 0, p) of p = softmax(body), as PyTorch writes attention whose rows may be empty; then times V."""
    random = np.random.default_rng(3)
    weights = {"W": random.normal(size=(4, 5)).astype(np.float32), "V": random.normal(size=(5, 5)).astype(np.float32), "zero": np.array(0, np.float32)}
    nodes = [*body, node("Softmax", "s", "p", axis=-1), node("IsNaN", "p", "none"), node("Where", "none zero p", "q"), node("MatMul", "q V", "y")]
    return model_of(nodes, {"x": ["N", 4], "mask": ["N", 5]}, {"y": ["N", 5]}, weights, opset=17), weights


def test_rows_without_anything(bench):
    """They are zero, and so are their gradients; the others have theirs. NaN in a score is guarded as the model says."""
    model, weights = guarded([node("MatMul", "x W", "d"), node("Add", "d mask", "s")])
    W, V = (weights[name].astype(np.float64) for name in "WV")
    s = X.astype(np.float64) @ W + MASK
    with np.errstate(invalid="ignore"):
        p = np.exp(s - s.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
    p[1] = 0
    y = p @ V
    dp = 2 * (y - T) / y.size @ V.T
    ds = p * (dp - (dp * p).sum(1, keepdims=True))
    for target in ("cpu", "cuda"):
        for precision, tolerance in (("fp32", 1e-5), ("bf16", 6e-2), ("fp16", 8e-3)):
            trainer = bench.on(target).compile(model, *SGD, "--batch=3", f"--precision={precision}")
            require_close(trainer.predict({"x": X, "mask": MASK})["y"], y, tolerance, f"{target} {precision}: outputs")
            got = trainer.grad({"x": X, "mask": MASK}, T)
            require_close(got["W"], X.astype(np.float64).T @ ds, tolerance, f"{target} {precision}: gradient of W")
            require_close(got["V"], p.T @ (2 * (y - T) / y.size), tolerance, f"{target} {precision}: gradient of V")
    broken = X.copy()
    broken[0, 0] = np.nan
    trainer = bench.compile(model, *SGD, "--batch=3", "--precision=fp32")
    require_close(trainer.predict({"x": broken, "mask": MASK})["y"][:2], np.zeros((2, 5)), 0, "a row of NaN")


if __name__ == "__main__":
    main(__doc__)
