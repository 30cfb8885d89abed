"""Times ONNX Runtime's on-device training (1.19.2, its last release) on one model; one JSON line.

    peer_ort.py CASE.json [--seconds 10]

CASE.json is what cases.py writes: the model's file, batch, loss and parameters. fp32 and AdamW only:
it has no mixed precision on the CPU and no SGD with momentum. A step is forward, backward, optimizer
and the reset of the gradients, on one fixed batch. No PyTorch is needed here.
"""

import argparse
import json
import os
import sys
import tempfile
import types
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from timing import report


def import_training():
    """onnxruntime.training's two modules that are used here.

    The package's own __init__ imports PyTorch for its other parts, so an empty package stands in for it.
    """
    package = types.ModuleType("onnxruntime.training")
    package.__path__ = [str(Path(onnxruntime.__file__).parent / "training")]
    sys.modules[package.__name__] = package
    from onnxruntime.training import api, artifacts

    return api, artifacts


def load(case):
    """(model, batch in the order of the graph's inputs, labels last) with the classes on axis 1."""
    model, feeds = onnx.load(case["onnx"]), [np.load(file) for file in (*case["inputs"], case["labels"])]
    output = model.graph.output[0]
    dims = output.type.tensor_type.shape.dim
    if case["loss"] == "cross-entropy" and len(dims) == 3:  # [N, T, classes] -> [N * T, classes]
        classes = dims[2].dim_value
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([-1, classes], np.int64), "rows"))
        model.graph.node.append(onnx.helper.make_node("Reshape", [output.name, "rows"], ["flat_output"]))
        output.CopyFrom(onnx.helper.make_tensor_value_info("flat_output", output.type.tensor_type.elem_type, ["rows", classes]))
        feeds[-1] = feeds[-1].reshape(-1)
    return model, feeds


def make(api, artifacts, model, case):
    """(module, optimizer) of the training graphs that its tools make from the model."""
    losses = {"cross-entropy": artifacts.LossType.CrossEntropyLoss, "mse": artifacts.LossType.MSELoss}
    names, options = [tensor.name for tensor in model.graph.initializer], onnxruntime.SessionOptions()
    options.intra_op_num_threads = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        artifacts.generate_artifacts(
            model, requires_grad=[n for n in names if n in case["parameters"]],
            frozen_params=[n for n in names if n not in case["parameters"]], loss=losses[case["loss"]],
            optimizer=artifacts.OptimType.AdamW, artifact_directory=folder)
        state = api.CheckpointState.load_checkpoint(f"{folder}/checkpoint")
        # Without the evaluation graph: it refuses BatchNormalization in training mode.
        module = api.Module(f"{folder}/training_model.onnx", state, session_options=options)
        return module, api.Optimizer(f"{folder}/optimizer_model.onnx", module)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("case", type=Path)
    parser.add_argument("--seconds", type=float, default=10)
    args = parser.parse_args()
    case = json.loads(args.case.read_text())
    onnxruntime.set_default_logger_severity(3)
    api, artifacts = import_training()
    model, feeds = load(case)
    module, optimizer = make(api, artifacts, model, case)
    module.train()

    def step():
        module(*feeds)
        optimizer.step()
        module.lazy_reset_grad()

    config = "adamw" if case["optimizer"] == "adamw" else f"adamw instead of {case['optimizer']}"
    report(step, args.seconds, system="onnxruntime-training", config=config, version=onnxruntime.__version__)


if __name__ == "__main__":
    main()
