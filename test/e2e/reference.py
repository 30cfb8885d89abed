"""Comparing mpc with PyTorch's values: loss traces, gradients, outputs and trained weights.

A model's folder, as torch_reference.py writes it:

    legacy-train.onnx, dynamo-raw.onnx   two exports of the model with its initial weights (large ones in weights.bin)
    INPUT.npy, labels.npy                all batches, one after the other
    reference.json                       recipe; losses per precision; per parameter the gradient's norm, and how far
                                         PyTorch's own fp32, bf16 and fp16 are from fp64 (gradient, trained value)
    gradients.npz, output.npy            fp64: gradients of step 1; inference-mode output of the first batch
    trained.npz                          fp64: parameters and statistics after the last step
                                         (of arrays above 4096 elements every k-th is kept: `thinned`)

PyTorch's own distance between a precision and fp64 is the yardstick: a correct program lies within a margin of it.
"""

import json

import numpy as np
import onnx

from support import Failure, require

HALVES = ("bf16", "fp16")
PRECISIONS = ("fp64", "fp32", "bf16", "fp16")
OUTPUT_TOLERANCE = {"fp64": 1e-9, "fp32": 1e-4, "bf16": 5e-2, "fp16": 5e-2}
TRAINED_TOLERANCE = {"fp64": 1e-6, "fp32": 1e-3, "bf16": 5e-2, "fp16": 5e-2}  # at least


def thinned(array):
    """The elements that are kept of an array: all, or every k-th of its flat form."""
    array = np.asarray(array)
    return array if array.size <= 4096 else array.ravel()[::array.size // 2048]


def drift(loss, precision, steps):
    """PyTorch's distance between the precision and fp64 so far, relative, per step."""
    exact = np.asarray(loss["fp64"][:steps])
    return np.maximum.accumulate(np.abs(np.asarray(loss[precision][:steps]) - exact) / np.abs(exact))


def trace_tolerance(loss, precision, steps):
    if precision == "fp64":
        return np.maximum(1e-9, 1e-5 * drift(loss, "fp32", steps))
    if precision == "fp32":
        return np.maximum(1e-5, 5 * drift(loss, "fp32", steps))
    nearest = next(p for p in (precision, "bf16", "fp32") if p in loss)
    return np.maximum(2e-2, 3 * drift(loss, nearest, steps))


def gradient_tolerance(row, precision):
    """Relative L2 difference allowed for one parameter."""
    if precision == "fp64":
        return 1e-8
    if precision == "fp32":
        return max(1e-5, 5 * row["fp32"])
    return max(3e-2, 2 * next(row[p] for p in (precision, "bf16", "fp32") if row.get(p) is not None))


def trained_tolerance(row, precision):
    """Largest difference / largest value. Adam's first steps have the length lr whatever the gradient's size, so where
    rounding decides a gradient's sign, PyTorch's own weights differ by steps: 0.3 in bf16 for simple_cnn's fc.weight."""
    if precision in HALVES:
        return max(TRAINED_TOLERANCE[precision], 2 * max(row.get(p, 0) for p in HALVES))
    return max(TRAINED_TOLERANCE[precision], 5 * row["fp32"]) if precision == "fp32" else TRAINED_TOLERANCE[precision]


class Reference:
    def __init__(self, folder):
        self.folder = folder
        self.report = json.loads((folder / "reference.json").read_text())
        self.inputs = {k: folder / f"{k}.npy" for k in self.report["inputs"]}
        self.labels = folder / "labels.npy"

    @property
    def trains(self):
        return "loss" in self.report

    def zero(self):
        """Parameters whose gradient is zero in exact arithmetic: Adam makes steps of its rounding noise."""
        return {n for n, row in self.report["gradients"].items() if row.get("zero")}

    def compile(self, bench, form, precision, *options):
        # With its weights inside, so that the model file is all there is.
        model = onnx.load(self.folder / f"{form}.onnx")
        recipe = self.report["optimizer"]
        return bench.compile(model, f"--loss={self.report['loss_name']}", f"--optimizer={recipe['kind']}", f"--precision={precision}",
                             f"--batch={self.report['batch']}", *options)

    def hyperparameters(self, lr=None):
        recipe = self.report["optimizer"]
        options = ["--lr", lr or recipe["lr"], "--weight-decay", recipe["weight_decay"], "--no-shuffle"]
        if recipe["kind"].startswith("sgd"):
            return options + ["--momentum", recipe["momentum"]]
        return options + ["--beta1", recipe["betas"][0], "--beta2", recipe["betas"][1], "--eps", recipe["eps"]]

    def first_batch(self):
        batch = self.report["batch"]
        return {k: np.load(f)[:batch] for k, f in self.inputs.items()}, np.load(self.labels)[:batch]


class Figures:
    """Errors as shares of what is allowed; the worst of each kind is kept."""

    def __init__(self):
        self.worst = {}

    def add(self, kind, where, error, allowed):
        share = float(error / allowed) if np.isfinite(error) else np.inf
        if share >= self.worst.get(kind, (-1,))[0]:
            self.worst[kind] = (share, where)

    def __str__(self):
        return ", ".join(f"{kind} {share:.2g} ({where})" for kind, (share, where) in self.worst.items())

    def good(self):
        return all(share <= 1 for share, _ in self.worst.values())


def compare_trace(figures, kind, loss, got, precision):
    """Step by step; a trace counts up to the first step where the tolerance passes 0.1."""
    steps = len(loss["fp64"])
    require(len(got) == steps, f"{len(got)} steps in the metrics, want {steps}")
    allowed, exact = trace_tolerance(loss, precision, steps), np.asarray(loss["fp64"])
    wide = np.flatnonzero(allowed > 0.1)
    for step in range(max(1, wide[0]) if wide.size else steps):
        error = np.inf if got[step] is None else abs(got[step] - exact[step]) / abs(exact[step])
        figures.add(kind, f"step {step + 1}", error, allowed[step])


def compare_gradients(figures, reference, got, precision, form):
    """Relative L2 per parameter. In legacy-train none may be missing; the other exporter merges equal initializers."""
    rows = reference.report["gradients"]
    with np.load(reference.folder / "gradients.npz") as exact:
        for name, row in rows.items():
            if row.get("zero"):
                continue
            if name not in got:
                require(form != "legacy-train", f"the gradient of {name} is missing")
                continue
            require(list(got[name].shape) == row["shape"], f"the gradient of {name} has shape {got[name].shape}, want {row['shape']}")
            want = exact[name]
            error = np.linalg.norm(thinned(got[name]).astype(np.float64).ravel() - want.ravel()) / max(np.linalg.norm(want), 1e-30)
            figures.add("gradient", name, error, gradient_tolerance(row, precision))


def compare_trained(figures, reference, weights, precision):
    """Largest difference per tensor relative to its largest value; in half precision the largest but for 2 % of the
    elements, because a near-zero gradient whose sign rounding decides moves its weight by whole steps of Adam (mpc
    stores the output of a norm in half, PyTorch in fp32, so it is not the same elements). Left out: what follows a zero gradient's noise
    (the parameter itself, and the running mean behind such a bias), and running variances, where PyTorch's are
    the unbiased ones and ONNX's the biased ones."""
    zero = reference.zero()
    behind = {n.rsplit(".", 1)[0].replace("conv", "bn") + ".running_mean" for n in zero}
    with np.load(reference.folder / "trained.npz") as exact:
        for name in exact.files:
            if name not in weights or name in zero or name in behind or name.endswith("running_var"):
                continue
            want = exact[name]
            errors = np.abs(thinned(weights[name]).astype(np.float64).ravel() - want.ravel())
            error = np.quantile(errors, 0.98 if precision in HALVES else 1.0, method="higher") / max(np.abs(want).max(), 1e-2)
            figures.add("trained", name, error, trained_tolerance(reference.report["trained"][name], precision))


def compare_output(figures, reference, outputs, precision):
    require(len(outputs) == 1, f"{len(outputs)} outputs")
    got, want = next(iter(outputs.values())), np.load(reference.folder / "output.npy")
    require(list(got.shape) == reference.report["output_shape"], f"output of shape {got.shape}")
    error = np.abs(thinned(got).astype(np.float64).ravel() - want.ravel()).max() / np.abs(want).max()
    figures.add("output", "first batch", error, OUTPUT_TOLERANCE[precision])


def check(bench, reference, form, precision):
    """Compiles, predicts, takes gradients, trains and exports; Failure where a figure is out of tolerance.
    Returns the figures."""
    figures = Figures()
    trainer = reference.compile(bench, form, precision)
    inputs, labels = reference.first_batch()
    compare_output(figures, reference, trainer.predict(inputs), precision)
    if reference.trains:
        compare_gradients(figures, reference, trainer.grad(inputs, labels), precision, form)
        data, steps = trainer.data(reference.inputs, reference.labels), reference.report["steps"]
        run = trainer.train(data, "--steps", steps, *reference.hyperparameters())
        compare_trace(figures, "loss", reference.report["loss"], run.values("loss"), precision)
        compare_trained(figures, reference, run.weights(), precision)
        gentle = reference.report.get("gentle")
        if gentle:
            run = trainer.train(data, "--steps", steps, *reference.hyperparameters(gentle["lr"]))
            compare_trace(figures, "gentle loss", gentle["loss"], run.values("loss"), precision)
    if not figures.good():
        raise Failure(str(figures))
    return figures
