"""A whole training run on the simulator of GPUs: fashion_cnn on Fashion-MNIST, 100 steps in fp16.

    test_cuda_training.py --build BUILD [-v]
"""

from pathlib import Path

import numpy as np

from support import Skipped, main, require
from test_ptx import MODELS

IMAGES = Path("/usr/share/datasets/fashion-mnist")


def test_fashion_cnn(bench):
    """At every step the loss is as near to fp32's as that of the CPU in fp16, and it falls."""
    if not IMAGES.exists():
        raise Skipped("the package dataset-fashion-mnist is not installed")
    data = f"idx:{IMAGES}/train-images-idx3-ubyte.gz,{IMAGES}/train-labels-idx1-ubyte.gz"
    losses = []
    for target, precision in (("cpu", "fp32"), ("cpu", "fp16"), ("cuda", "fp16")):
        trainer = bench.on(target).compile(MODELS / "fashion_cnn.onnx", "--batch=16", "--optimizer=adam", f"--precision={precision}")
        run = trainer.train(data, "--steps", 100, "--lr", 1e-3, "--no-shuffle", timeout=1500)
        losses.append(np.array(run.values("loss")))
    exact, cpu, gpu = losses
    drift = np.maximum.accumulate(np.abs(cpu - exact) / np.abs(exact))
    allowed = np.maximum(2e-2, 3 * drift)
    error = np.abs(gpu - exact) / np.abs(exact)
    worst = int(np.argmax(error / allowed))
    require((error <= allowed).all(), f"step {worst + 1}: loss {gpu[worst]}, fp32's is {exact[worst]}, off by {error[worst]:.3g}, allowed {allowed[worst]:.3g}")
    require(gpu[-20:].mean() < 0.5 * gpu[:5].mean(), f"the loss does not fall: {gpu[:5]} … {gpu[-20:]}")


if __name__ == "__main__":
    main(__doc__)
