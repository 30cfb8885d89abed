"""Writes what PyTorch computes with the reference models: torch_reference.py OUT [NAME ...] [--steps N]

Per model a folder OUT/NAME with the exported ONNX files, the batches and the reference values, as `reference.py` reads
them (its banner tells the layout). Needs torch, onnx and onnxscript; scripts/check-reference.sh sets them up.
The values in test/data/reference were made by this, with --steps 20 for linear and mlp_ln and --steps 3 for the others.
"""

import argparse
import contextlib
import io
import json
import logging
import time
import warnings
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import numpy_helper

from reference import EARLY, HALVES, decided, distance, flat, thinned
from torch_models import MODELS

HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}
LIMIT_S = 120  # PyTorch's fp16 has no fast convolution on most CPUs: the trace is left out when it takes longer


def export(spec, form, path):
    """legacy-train: the TorchScript exporter in training mode; dynamo-raw: torch.export without the ONNX optimizer."""
    model = spec.build().train()
    inputs, _ = spec.batch_of(0)
    options = {"input_names": list(spec.inputs), "output_names": ["output"]}
    if form == "legacy-train":
        options |= {"dynamo": False, "training": torch.onnx.TrainingMode.TRAINING, "do_constant_folding": False,
                    "dynamic_axes": {name: {0: "N"} for name in (*spec.inputs, "output")}}
    else:
        options |= {"dynamo": True, "external_data": False, "optimize": False, "verbose": False,
                    "dynamic_shapes": tuple({0: torch.export.Dim("N")} for _ in inputs)}
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        torch.onnx.export(model, inputs, str(path), **options)
    tidy(path, spec)


def tidy(path, spec):
    """Tracing in training mode moves BatchNormalization's statistics (the initial ones are put back), and the nodes'
    stack traces hold the exporting machine's paths."""
    model, state = onnx.load(path), spec.build().state_dict()
    for tensor in model.graph.initializer:
        if tensor.name.endswith(("running_mean", "running_var")):
            tensor.CopyFrom(numpy_helper.from_array(state[tensor.name].numpy(), tensor.name))
    for node in model.graph.node:
        for entry in [e for e in node.metadata_props if e.key == "pkg.torch.onnx.stack_trace"]:
            node.metadata_props.remove(entry)
    onnx.checker.check_model(model)
    onnx.save(model, path)


def share_weights(folder, forms):
    """The forms' equal large initializers go into one file beside them."""
    offsets, data = {}, bytearray()
    for form in forms:
        model = onnx.load(folder / f"{form}.onnx")
        for tensor in model.graph.initializer:
            if len(tensor.raw_data) < 65536:
                continue
            raw = tensor.raw_data
            if raw not in offsets:
                offsets[raw] = len(data)
                data += raw
            tensor.ClearField("raw_data")
            tensor.data_location = onnx.TensorProto.EXTERNAL
            del tensor.external_data[:]
            for key, value in (("location", "weights.bin"), ("offset", offsets[raw]), ("length", len(raw))):
                tensor.external_data.add(key=key, value=str(value))
        (folder / f"{form}.onnx").write_bytes(model.SerializeToString())
    if data:
        (folder / "weights.bin").write_bytes(bytes(data))


def wide(tensor, dtype):
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def array(tensor):
    return tensor.detach().double().numpy()


def state_of(model):
    return {k: array(v).copy() for k, v in model.state_dict().items() if v.is_floating_point()}


def train(spec, precision, batches, lr):
    """(losses, gradients of step 1, {"early": state, "trained": state} after the first steps and the last), or None where
    a half precision takes too long or is not there."""
    dtype = torch.float64 if precision == "fp64" else torch.float32
    model = spec.build().to(dtype).train()
    optimizer = spec.make_optimizer(model, lr)
    half = HALF.get(precision)
    scaler = torch.amp.GradScaler("cpu", enabled=precision == "fp16")
    losses, first, states, start = [], None, {}, time.time()
    for inputs, labels in batches:
        inputs, labels = [wide(x, dtype) for x in inputs], wide(labels, dtype)
        optimizer.zero_grad()
        try:
            with torch.autocast("cpu", dtype=half, enabled=half is not None):
                loss = spec.loss_of(model(*inputs), labels)
            scaler.scale(loss).backward()
        except RuntimeError:  # no such primitive on this CPU
            if half is None:
                raise
            return None
        scaler.unscale_(optimizer)
        first = first or {name: array(p.grad) for name, p in model.named_parameters()}
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
        if len(losses) == min(EARLY, len(batches)):
            states["early"] = state_of(model)
        if half and time.time() - start > LIMIT_S:
            return None
    return losses, first, states | {"trained": state_of(model)}


def gradient_table(exact, others):
    """Per parameter: shape, norm, `zero` where the gradient is zero in exact arithmetic (a bias before
    BatchNormalization), and how far PyTorch's other precisions are from it, relative L2 (null: overflowed)."""
    top_of_all = max(np.abs(g).max() for g in exact.values())
    table = {}
    for name, g in exact.items():
        row = {"shape": list(g.shape), "l2": float(np.linalg.norm(g))}
        if np.abs(g).max() < 1e-12 * top_of_all:
            row["zero"] = True
        else:
            for precision, gradients in others.items():
                error = np.linalg.norm(gradients[name] - g) / row["l2"]
                row[precision] = float(f"{error:.3g}") if np.isfinite(error) else None
        table[name] = row
    return table


def trained_table(runs, start, stage, gradients):
    """Per tensor, how far PyTorch's other precisions are from fp64's after training. fp32: largest difference / largest
    value; half: `distance` from the initial weights, in the early stage of the elements that are `decided`."""
    table = {}
    for name, want in runs["fp64"][2][stage].items():
        row = table[name] = {}
        for precision, (_, _, states) in runs.items():
            got = states[stage][name]
            if precision == "fp32" and stage == "trained":
                error = np.abs(got - want).max() / max(np.abs(want).max(), 1e-2)
            elif precision in HALVES:
                of = np.full(flat(want).shape, True)
                if stage == "early" and name in gradients and not gradients[name].get("zero"):
                    of = decided(thinned(runs["fp64"][1][name]), gradients[name], precision)
                error = distance(flat(got), flat(want), flat(start[name]), of)
            else:
                continue
            row[precision] = float(f"{error:.3g}")
    return table


def trace(spec, batches, folder):
    lr = spec.optimizer["lr"]
    runs = {p: train(spec, p, batches, lr) for p in ("fp64", "fp32", "bf16", "fp16")}
    runs = {p: r for p, r in runs.items() if r}
    _, gradients, states = runs["fp64"]
    np.savez_compressed(folder / "gradients.npz", **{k: thinned(g) for k, g in gradients.items()})
    for stage in ("early", "trained") if len(batches) > EARLY else ("trained",):
        np.savez_compressed(folder / f"{stage}.npz", **{k: thinned(v) for k, v in states[stage].items()})
    table, start = gradient_table(gradients, {p: r[1] for p, r in runs.items() if p != "fp64"}), state_of(spec.build())
    report = {"loss": {p: r[0] for p, r in runs.items()}, "gradients": table,
              "early": trained_table(runs, start, "early", table), "trained": trained_table(runs, start, "trained", table)}
    if spec.gentle:
        losses = {p: train(spec, p, batches, lr / 100) for p in ("fp64", "fp32", "bf16")}
        report["gentle"] = {"lr": lr / 100, "loss": {p: r[0] for p, r in losses.items() if r}}
    return report


def write(name, folder, steps, forms):
    spec = MODELS[name]
    folder.mkdir(parents=True, exist_ok=True)
    for form in forms:
        export(spec, form, folder / f"{form}.onnx")
    share_weights(folder, forms)
    batches = [spec.batch_of(step) for step in range(steps if spec.trains else 1)]
    for i, input_name in enumerate(spec.inputs):
        np.save(folder / f"{input_name}.npy", torch.cat([x[i] for x, _ in batches]).numpy())
    np.save(folder / "labels.npy", torch.cat([labels for _, labels in batches]).numpy())
    with torch.no_grad():
        output = array(spec.build().double().eval()(*[wide(x, torch.float64) for x in batches[0][0]]))
    np.save(folder / "output.npy", thinned(output))
    report = {"model": name, "torch": torch.__version__.split("+")[0], "steps": len(batches), "batch": spec.batch, "inputs": list(spec.inputs),
              "output_shape": list(output.shape), "loss_name": spec.loss, "optimizer": spec.optimizer}
    if spec.trains:
        report |= trace(spec, batches, folder)
    lines = ",\n".join(f" {json.dumps(k)}: {json.dumps(v)}" for k, v in report.items())
    (folder / "reference.json").write_text("{\n" + lines + "\n}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help="models (default: all)")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--forms", default="legacy-train,dynamo-raw")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    for name in args.names or MODELS:
        start = time.time()
        write(name, args.out / name, args.steps, args.forms.split(","))
        print(f"{name:15} written in {time.time() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
