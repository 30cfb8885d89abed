"""The case folders of test/data/cases: outputs, gradients and one update against known values.

    test_cases.py --build BUILD [--only REGEX] [-v]

Each folder is a small model made from a fault that compilers and trainers have had, with the right values beside it
(test/data/cases/README.md tells the format). A folder is one test per precision, and one per entry of `runs`.
"""

import json

import numpy as np
import onnx

from support import DATA, PLAIN, Failure, difference, exact_regex, execute, main, require, require_match

CASES = DATA / "cases"
LOSSES = {"mse": "mse", "ce": "cross-entropy"}


class Case:
    """A folder: what is in it and what it asks for."""

    def __init__(self, folder):
        self.folder = folder
        self.info = json.loads((folder / "case.json").read_text())
        self.tolerance = self.info.get("tol", 1e-4)
        self.inputs = {f.stem[2:]: f for f in sorted(folder.glob("x_*.npy"))}

    @property
    def name(self):
        return self.folder.relative_to(CASES).as_posix()

    def precisions(self):
        named = [p for p in ("fp32", "fp16", "bf16") if p in self.info.get("precision", "fp32")]
        return named if self.wanted("fp32") else []

    def wanted(self, precision):
        """What to compare: key (out, grad_NAME, after_NAME) → file."""
        file = self.folder / "model.onnx"
        if "loss" not in self.info or not file.exists():
            return {}
        graph = onnx.load(file, load_external_data=False).graph
        tensors, order = {t.name for t in graph.initializer}, self.info.get("trainable_in_file_order")
        # A model that differs between training and inference: out.npy is the training output, predict infers.
        two_modes = any(n.op_type == "Dropout" or n.op_type == "BatchNormalization" and any(a.name == "training_mode" and a.i for a in n.attribute)
                        for n in graph.node)
        own_runs = bool(self.info.get("runs")) or self.info.get("steps", 1) != 1
        result = {}
        if (self.folder / "out.npy").exists() and not two_modes:
            result["out"] = "out.npy"
        for file in sorted(self.folder.glob("*.npy")):
            kind, _, rest = file.stem.partition("_")
            name = order[int(rest)] if order and rest.isdigit() else rest
            if name in tensors and (kind == "grad" or kind == "after" and not own_runs):
                result[f"{kind}_{name}"] = file.name
        return result

    def compile(self, bench, precision, model="model.onnx", batch=None, options=()):
        names = self.info.get("trainable_in_file_order") or self.info.get("trainable")
        if not any(o.startswith("--optimizer") for o in options):
            options = ["--optimizer=sgd", *options]
        train = [f"--train={exact_regex(names)}"] if names else []
        batch = batch or len(np.load(next(iter(self.inputs.values()))))
        return bench.compile(self.folder / model, f"--loss={LOSSES[self.info.get('loss', 'mse')]}", f"--precision={precision}",
                             f"--batch={batch}", *train, *options)


def computed(case, trainer, wanted):
    """What the trainer computes of `wanted`, by the same keys; `out` is a list of all outputs."""
    got, labels = {}, case.folder / "t.npy"
    if "out" in wanted:
        got["out"] = list(trainer.predict(case.inputs).values())
    if any(k.startswith("grad_") for k in wanted):
        gradients = trainer.grad(case.inputs, labels)
        got |= {f"grad_{k}": v for k, v in gradients.items()}
        if "loss_before" in case.info:
            problem = difference(gradients["loss"], case.info["loss_before"], max(case.tolerance, 1e-5) * 2)
            require(problem is None, f"loss: {problem}")
    if any(k.startswith("after_") for k in wanted):
        run = trainer.train(trainer.data(case.inputs, labels), "--steps", 1, "--lr", case.info["lr"], *PLAIN)
        got |= {f"after_{k}": v for k, v in run.weights().items()}
    return got


def judge(case, wanted, got):
    """The main values, or one of the `alternatives` as a whole (null: not compared, "zero": zeros), must hold."""
    outcomes = []
    for other in [{}, *case.info.get("alternatives", [])]:
        problems = []
        for key, file in wanted.items():
            file = other.get(key, file)
            if file is None:
                continue
            if key not in got:
                problems.append(f"{key}: not there")
                continue
            values = got[key] if key == "out" else [got[key]]
            want = np.zeros(values[0].shape) if file == "zero" else np.load(case.folder / file)
            found = [difference(v, want, case.tolerance) for v in values if v.size == want.size] or ["no output of that size"]
            if None not in found:
                problems.append(f"{key}: {found[0]}")
        outcomes.append(problems)
    if all(outcomes):
        raise Failure("; ".join(outcomes[0]))


def refusal_allowed(case, failure):
    """`may_refuse`: a clean refusal that names this is right too."""
    if "may_refuse" not in case.info or "exit 1" not in str(failure):
        return False
    require_match(case.info["may_refuse"], str(failure), "the refusal")
    return True


def values_test(case, precision):
    def test(bench):
        wanted = case.wanted(precision)
        try:
            trainer = case.compile(bench, precision)
        except Failure as failure:
            if refusal_allowed(case, failure):
                return
            raise
        judge(case, wanted, computed(case, trainer, wanted))

    return test


def run_test(case, settings):
    """A training run of its own: the weights it must leave, or the words of its refusal."""

    def test(bench):
        outcome = settings.get("outcome", "ok")
        trainer = case.compile(bench, settings.get("precision", "fp32"), settings.get("model", "model.onnx"), settings["batch"],
                               settings.get("mpc", []))
        if "data" in settings:
            data = settings["data"].replace("@", f"{case.folder}/")
        else:
            inputs = {k: case.folder / v for k, v in settings.get("inputs", {"x": "x_x.npy"}).items()}
            data = trainer.data(inputs, case.folder / settings.get("labels", "t.npy"))
        out = bench.path("run")
        done = execute([trainer.program, "train", "--data", data, *settings["train"], "--out", out], cwd=bench.folder)
        require(done.code in (0, 1), f"exit {done.code}: {done.err[-300:]}")
        require(not (done.code and outcome == "ok"), f"refused: {done.err[-300:]}")
        require(done.code or outcome != "refused", "not refused")
        if done.code:
            for words in settings.get("says", []):
                require_match(words, done.err, "the refusal")
            return
        weights = trainer.weights(out)
        for name, value in weights.items():
            require(value.dtype.kind != "f" or np.isfinite(value).all(), f"exit 0, but {name} is not finite")
        for name, want in settings.get("after", {}).items():
            want = np.load(case.folder / want) if isinstance(want, str) else want
            problem = difference(weights[name], want, settings.get("tol", case.tolerance))
            require(problem is None, f"{name}: {problem}")

    return test


def all_tests():
    tests = {}
    for file in sorted(CASES.rglob("case.json")):
        case = Case(file.parent)
        for precision in case.precisions():
            tests[f"{case.name} {precision}"] = values_test(case, precision)
        for number, settings in enumerate(case.info.get("runs", []), 1):
            tests[f"{case.name} run {number}"] = run_test(case, settings)
    return tests


if __name__ == "__main__":
    main(__doc__, all_tests())
