"""Compares a model's output with ONNX's reference evaluator, and its gradients with differences of its loss, in double precision.

    gradient_check.py MODEL.txt [--samples N]

MODEL.txt is a model in ONNX's text form whose only float initializers are parameters; its output is compared with
random targets by the mean squared error. Three random directions d are tried: Σ gradient·d against
(loss(w + h·d) - loss(w - h·d)) / 2h. Prints 'values agree' and 'gradients agree', or how far they are apart.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper, parser
from onnx.reference import ReferenceEvaluator


def arrays_of(model):
    return {t.name: numpy_helper.to_array(t) for t in model.graph.initializer if t.data_type == onnx.TensorProto.FLOAT}


def with_weights(model, weights):
    """The same model with other weights, which f32 must hold exactly."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for tensor in changed.graph.initializer:
        if tensor.name in weights:
            tensor.CopyFrom(numpy_helper.from_array(weights[tensor.name].astype(np.float32), tensor.name))
    return changed


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr}")


def gradients(folder, model, samples):
    onnx.save(model, folder / "model.onnx")
    run(["mpc", f"{folder}/model.onnx", "--loss=mse", "--optimizer=sgd", "--precision=fp64", f"--batch={samples}", "-o", f"{folder}/trainer"])
    inputs = [f"--input={i.name}={folder}/{i.name}.npy" for i in model.graph.input]
    run([f"{folder}/trainer", "grad", *inputs, f"--labels={folder}/labels.npy", "-o", f"{folder}/g.npz"])
    return dict(np.load(folder / "g.npz"))


def check_values(folder, model):
    """The trainer of the last call of gradients() against the reference evaluator, which computes in f32."""
    inputs = {i.name: np.load(folder / f"{i.name}.npy") for i in model.graph.input}
    want = ReferenceEvaluator(model).run(None, inputs)[0]
    run([f"{folder}/trainer", "predict", *(f"--input={n}={folder}/{n}.npy" for n in inputs), "-o", f"{folder}/y.npy"])
    error = np.abs(np.load(folder / "y.npy") - want).max()
    if not error <= 1e-5 * np.abs(want).max():
        sys.exit(f"the output is {error} from ONNX's reference evaluator")
    print("values agree")


def random_file(path, value, samples, random):
    shape = [d.dim_value or samples for d in value.type.tensor_type.shape.dim]
    np.save(path, random.standard_normal(shape).astype(np.float32))


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("model", type=Path)
    arguments.add_argument("--samples", type=int, default=3)
    options = arguments.parse_args()
    model, random = parser.parse_model(options.model.read_text()), np.random.default_rng(0)
    onnx.checker.check_model(model, full_check=True)
    weights, h = arrays_of(model), 2.0**-14
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for value in model.graph.input:
            random_file(folder / f"{value.name}.npy", value, options.samples, random)
        random_file(folder / "labels.npy", model.graph.output[0], options.samples, random)
        analytic = gradients(folder, model, options.samples)
        check_values(folder, model)
        for _ in range(3):
            # Directions of a few bits: w ± h·d is exact in f32.
            d = {k: random.integers(-4, 5, v.shape) / 4 for k, v in weights.items()}
            moved = [with_weights(model, {k: v + s * h * d[k] for k, v in weights.items()}) for s in (1, -1)]
            up, down = (gradients(folder, m, options.samples)["loss"] for m in moved)
            numeric, exact = (up - down) / (2 * h), sum((analytic[k] * d[k]).sum() for k in weights)
            if abs(numeric - exact) > 1e-5 * max(1, abs(exact)):
                sys.exit(f"gradient {exact}, difference quotient {numeric}")
    print("gradients agree")


if __name__ == "__main__":
    main()
