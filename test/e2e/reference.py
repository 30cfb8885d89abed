"""Comparing mpc with PyTorch's values: loss traces, gradients, outputs and trained weights.

A model's folder, as torch_reference.py writes it:

    legacy-train.onnx, dynamo-raw.onnx   two exports of the model with its initial weights (large ones in weights.bin)
    INPUT.npy, labels.npy                all batches, one after the other
    reference.json                       recipe; losses per precision; per parameter the gradient's norm, and how far
                                         PyTorch's own fp32, bf16 and fp16 are from fp64 (gradient, trained value)
    gradients.npz, output.npy            fp64: gradients of step 1; inference-mode output of the first batch
    trained.npz                          fp64: parameters and statistics after the last step
    early.npz                            and after step 3, if that is not the last
                                         (of arrays above 4096 elements every k-th is kept: `thinned`)

PyTorch's own distance between a precision and fp64 is the yardstick: a correct program lies within a margin of it.

Weights trained in half precision. Adam's first step has the length lr whatever the gradient's size, so where rounding
decides a gradient's sign, the weight ends up steps away, in PyTorch too and at other elements: mpc stores the outputs
of norms in half, PyTorch in fp32. And such elements lead others astray, by the twentieth step whole channels of BERT.
Therefore
- after three steps, `decided` elements, whose gradient is ten times the rounding noise, are held against PyTorch's
  distance; the rest may be a sign wrong, two steps of Adam, in the mean;
- after the last step all elements are.
Distances are relative to the way from the initial weights, both in L2.
"""

import json

import numpy as np
import onnx

from support import Failure, initializers, require

HALVES = ("bf16", "fp16")
PRECISIONS = ("fp64", "fp32", "bf16", "fp16")
OUTPUT_TOLERANCE = {"fp64": 1e-9, "fp32": 1e-4, "bf16": 5e-2, "fp16": 5e-2}
TRAINED_TOLERANCE = {"fp64": 1e-6, "fp32": 1e-3}  # at least; largest difference / largest value
HALF_TRAINED_TOLERANCE = {"early": 5e-2, "trained": 0.1}  # at least; L2 relative to the way
EARLY = 3  # steps after which rounding noise is still where it arose
DECIDED = 10


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
    measured = next(p for p in (precision, "bf16", "fp32") if p in loss)
    return np.maximum(2e-2, 3 * drift(loss, measured, steps))


def nearest(row, precision):
    """PyTorch's own figure, in the nearest precision that it has one for."""
    return next(row[p] for p in (precision, "bf16", "fp32") if row.get(p) is not None)


def gradient_tolerance(row, precision):
    """Relative L2 difference allowed for one parameter."""
    if precision == "fp64":
        return 1e-8
    if precision == "fp32":
        return max(1e-5, 5 * row["fp32"])
    return max(3e-2, 2 * nearest(row, precision))


def half_trained_tolerance(row, precision, stage):
    """PyTorch's weights in fp16 are far behind where GradScaler skipped a step: at most what bf16 is allowed."""
    figures = [row[p] for p in ("bf16", precision) if p in row]
    return max(HALF_TRAINED_TOLERANCE[stage], 2 * min(figures, default=0))


def decided(gradient, row, precision):
    """The elements whose gradient (thinned) is far above PyTorch's rounding noise, the mean over the tensor."""
    noise = nearest(row, precision) * row["l2"] / np.sqrt(np.prod(row["shape"]))
    return np.abs(gradient).ravel() > DECIDED * noise


def distance(got, want, start, of):
    """|got - want| / |want - start| of the elements `of`; all flat and thinned."""
    way = np.linalg.norm((want - start)[of])
    return float(np.linalg.norm((got - want)[of]) / way) if way > 0 else 0.0


def flat(array):
    return thinned(array).astype(np.float64).ravel()


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


def compared_weights(reference, weights, file):
    """(name, mpc's, PyTorch's fp64) of the tensors that have one value. Left out: what follows a zero gradient's noise
    (the parameter itself, and the running mean behind such a bias), and running variances, where PyTorch's are
    the unbiased ones and ONNX's the biased ones."""
    zero = reference.zero()
    behind = {n.rsplit(".", 1)[0].replace("conv", "bn") + ".running_mean" for n in zero}
    with np.load(reference.folder / file) as exact:
        for name in exact.files:
            if name in weights and name not in zero and name not in behind and not name.endswith("running_var"):
                yield name, flat(weights[name]), exact[name].ravel()


def compare_trained(figures, reference, weights, precision):
    """Largest difference per tensor relative to its largest value."""
    for name, got, want in compared_weights(reference, weights, "trained.npz"):
        allowed = TRAINED_TOLERANCE[precision]
        if precision == "fp32":
            allowed = max(allowed, 5 * reference.report["trained"][name]["fp32"])
        figures.add("trained", name, np.abs(got - want).max() / max(np.abs(want).max(), 1e-2), allowed)


def compare_half_trained(figures, reference, start, weights, stage, precision):
    """stage: early or trained (the banner tells what is held against what)."""
    rows, recipe = reference.report["gradients"], reference.report["optimizer"]
    file = f"{stage}.npz" if (reference.folder / f"{stage}.npz").exists() else "trained.npz"
    gradients = np.load(reference.folder / "gradients.npz")
    for name, got, want in compared_weights(reference, weights, file):
        of = np.full(want.shape, True)
        if stage == "early" and name in rows:
            of = decided(gradients[name], rows[name], precision)
        allowed = half_trained_tolerance(reference.report[stage][name], precision, stage)
        figures.add(stage, name, distance(got, want, flat(start[name]), of), allowed)
        if not of.all() and recipe["kind"].startswith("adam"):
            figures.add("undecided", name, np.sqrt(np.mean((got - want)[~of] ** 2)), 2 * recipe["lr"])


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
        if precision in HALVES:
            start = initializers(reference.folder / f"{form}.onnx")
            compare_half_trained(figures, reference, start, run.weights(), "trained", precision)
            early = trainer.train(data, "--steps", min(EARLY, steps), *reference.hyperparameters())
            compare_half_trained(figures, reference, start, early.weights(), "early", precision)
        else:
            compare_trained(figures, reference, run.weights(), precision)
        gentle = reference.report.get("gentle")
        if gentle:
            run = trainer.train(data, "--steps", steps, *reference.hyperparameters(gentle["lr"]))
            compare_trace(figures, "gentle loss", gentle["loss"], run.values("loss"), precision)
    if not figures.good():
        raise Failure(str(figures))
    return figures
