"""How near the GPU's numbers have to be to those of fp64: at most twice as far as the CPU's of the same precision, plus a little.

A model's references are reference.json and reference.npz: losses and gradient norms of some steps in fp64 and in
every precision on the CPU; gradients of the first step and outputs in fp64 (of long arrays every k-th element), and
how far the CPU's are from them in every precision. What is compared gives Figures: the error as a share of what is
allowed. Distances are in L2. Where a rounding decides (an input of a ReLU near zero), it strikes other gradients on
the GPU than on the CPU, so each array may also be as far off as the CPU's are in the mean. Fused attention rounds
elsewhere than the CPU throughout: then one or the other is nearer by chance, and both may be three times as far off.
"""

import json
import math
from collections import namedtuple

from arrays import distance, load_npz, norm, save_npz, thinned

FACTOR, FACTOR_OF_FUSED = 2, 6
# Where the CPU happens to be exact: some roundings.
SLACK = {"fp32": 1e-5, "bf16": 8e-3, "fp16": 1e-3}
# A gradient may be zero but for rounding (a bias before BatchNormalization): this share of what all gradients are in the mean counts as its size.
LEAST_SHARE = 0.1

Figure = namedtuple("Figure", "what share detail")


def worst(figures):
    return max(figures, key=lambda figure: figure.share)


def figure(what, error, allowed):
    share = error / allowed if math.isfinite(error) else math.inf
    return Figure(what, share, f"{what} is off by {error:.3g}, allowed {allowed:.3g}")


# ---------------------------------------------------------------- arrays


def sampled(arrays):
    """What is kept of fp64 arrays: name → Array of the thinned values."""
    kept = {}
    for name, exact in arrays.items():
        values = thinned(exact.values)
        kept[name] = ((len(values),), values)
    return kept


def distances(got, exact_samples, exact_norms):
    """name → (distance of the thinned values, distance of the whole norms)."""
    return {name: (distance(thinned(got[name].values), samples.values), abs(norm(got[name].values) - exact_norms[name]))
            for name, samples in exact_samples.items()}


def describe_arrays(exact):
    return {name: {"shape": list(a.shape), "norm": norm(a.values)} for name, a in exact.items()}


def array_figures(kind, got, exact, samples, cpu, slack, factor=FACTOR):
    """`exact`: name → shape and norm; `cpu`: the CPU's own distances()."""
    if sorted(got) != sorted(exact):
        return [Figure(kind, math.inf, f"the {kind} are {sorted(got)}, expected {sorted(exact)}")]
    for name, about in exact.items():
        if list(got[name].shape) != about["shape"]:
            return [Figure(kind, math.inf, f"{kind} {name} has shape {list(got[name].shape)}, expected {about['shape']}")]
    size = sum(math.prod(about["shape"]) for about in exact.values())
    typical = norm([about["norm"] for about in exact.values()]) / math.sqrt(size) * LEAST_SHARE
    # Of each array: its size, that of its sample, and how far the CPU's are off, as shares of these.
    sizes = {name: (max(norm(samples[name].values), typical * math.sqrt(len(samples[name].values))),
                    max(about["norm"], typical * math.sqrt(math.prod(about["shape"])))) for name, about in exact.items()}
    own = {name: [error / (scale or 1) for error, scale in zip(cpu[name], sizes[name])] for name in exact}
    mean = [norm(column) / math.sqrt(len(own)) for column in zip(*own.values())]
    figures = []
    for name, errors in distances(got, samples, {n: a["norm"] for n, a in exact.items()}).items():
        for what, error, scale, share, usual in zip(("", " (norm)"), errors, sizes[name], own[name], mean):
            allowed = (factor * max(share, usual) + slack) * scale
            figures.append(figure(f"{kind} {name}{what}", error, allowed + 1e-30))
    return figures


# ---------------------------------------------------------------- traces


def trace_of(metrics):
    """A run's metrics as the columns that are compared."""
    events = [json.loads(line) for line in metrics.read_text().splitlines()]
    steps = [e for e in events if e["event"] == "step"]
    trace = {key: [step[key] for step in steps] for key in ("step", "epoch", "lr", "loss", "grad_norm", "loss_scale", "skipped")}
    trace["evaluation"] = [e["loss"] for e in events if e["event"] == "eval"]
    return trace


def trace_figures(got, cpu, exact, slack, factor):
    for key in ("step", "epoch", "lr", "loss_scale", "skipped"):
        if got[key] != cpu[key]:
            return [Figure(key, math.inf, f"{key} is {got[key]}, on the CPU {cpu[key]}")]
    figures = []
    for key in ("loss", "grad_norm", "evaluation"):
        if len(got[key]) != len(exact[key]):
            return [Figure(key, math.inf, f"{len(got[key])} values of {key}, expected {len(exact[key])}")]
        # A step that overflowed has no gradient norm, here and on the CPU.
        rows = [(g, c, e) for g, c, e in zip(got[key], cpu[key], exact[key]) if c is not None]
        if any(g is None for g, _, _ in rows):
            return [Figure(key, math.inf, f"{key} is not finite: {got[key]}")]
        g, c, e = zip(*rows)
        figures.append(figure(key, distance(g, e), factor * distance(c, e) + slack * norm(e)))
    return figures


# ---------------------------------------------------------------- a model's references


class Reference:
    """gradients and outputs: what `exact` says of each array, the fp64 samples, and the CPU's distances by precision."""

    def __init__(self, folder):
        self.numbers = json.loads((folder / "reference.json").read_text())
        self.factor = self.numbers["factor"]
        arrays = load_npz(folder / "reference.npz")
        self.samples = {kind: {name[len(kind) + 1:]: a for name, a in arrays.items() if name.startswith(kind + "/")}
                        for kind in ("gradients", "outputs")}

    def arrays(self, kind, precision, got):
        numbers = self.numbers[kind]
        return array_figures(kind, got, numbers["exact"], self.samples[kind], numbers[precision], SLACK[precision], self.factor)

    def overflow(self, got):
        """Which steps are skipped, and the loss scales, of a run in fp16 that begins with an overflow."""
        want = self.numbers["overflow"]
        for key in ("skipped", "loss_scale"):
            if got[key] != want[key]:
                return Figure(key, math.inf, f"{key} is {got[key]}, on the CPU {want[key]}")
        return Figure("overflow", 0.0, "")

    def trace(self, precision, got):
        trace = self.numbers["trace"]
        return trace_figures(got, trace[precision], trace["exact"], SLACK[precision], self.factor)


def write_reference(folder, exact, cpu, is_fused):
    """`exact` and cpu[precision] have the keys gradients, outputs (name → Array) and trace. `is_fused`: the GPU has fused attention."""
    numbers, samples = {"factor": FACTOR_OF_FUSED if is_fused else FACTOR, "trace": {"exact": exact["trace"], **{p: run["trace"] for p, run in cpu.items()}}}, {}
    if "fp16" in cpu:
        numbers["overflow"] = {key: cpu["fp16"]["overflow"][key] for key in ("skipped", "loss_scale")}
    for kind in ("gradients", "outputs"):
        about, kept = describe_arrays(exact[kind]), sampled(exact[kind])
        samples.update({f"{kind}/{name}": a for name, a in kept.items()})
        norms, as_arrays = {n: a["norm"] for n, a in about.items()}, {n: exact[kind][n]._replace(values=a[1]) for n, a in kept.items()}
        numbers[kind] = {"exact": about, **{p: distances(run[kind], as_arrays, norms) for p, run in cpu.items()}}
    save_npz(folder / "reference.npz", samples)
    (folder / "reference.json").write_text(json.dumps(numbers, indent=1))
