"""What the end-to-end tests share: running mpc and its trainers, small ONNX models, and the test runner.

A test is a function with one argument, its Workbench (a folder of its own, and the programs under test);
it raises Failure, or any other exception, where the product is wrong. A script ends with
`main(__doc__)`, which runs every function named test_… of the script and prints
'N passed, N failed, N skipped' last.
"""

import argparse
import copy
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

DATA = Path(__file__).resolve().parent.parent / "data"


class Failure(Exception):
    """The product did not do what the test asks for."""


class Skipped(Exception):
    """The machine lacks what the test needs; the message says what."""


def require(condition, message):
    if not condition:
        raise Failure(message)


def require_match(pattern, text, what):
    require(re.search(pattern, text, re.I | re.S), f"{what} lacks /{pattern}/: {text[-600:]}")


def difference(got, want, tolerance):
    """None, or how far got is from want, relative to want's largest magnitude."""
    got, want = np.asarray(got), np.asarray(want)
    if got.size != want.size:
        return f"shape {got.shape}, want {want.shape}"
    got, want = got.astype(np.float64).ravel(), want.astype(np.float64).ravel()
    finite = np.isfinite(want)
    if not np.array_equal(np.isfinite(got), finite):
        return "not finite at the same places"
    if not finite.any():
        return None
    scale = max(np.abs(want[finite]).max(), 1e-3)
    error = np.abs(got[finite] - want[finite]).max()
    return None if error <= tolerance * scale + 1e-12 else f"off by {error:.3g} of {scale:.3g}, allowed {tolerance:.1g}"


def require_close(got, want, tolerance, what):
    problem = difference(got, want, tolerance)
    require(problem is None, f"{what}: {problem}; got {np.asarray(got).ravel()[:8]}, want {np.asarray(want).ravel()[:8]}")


def require_same_bits(got, want, what):
    """Two dictionaries of arrays."""
    require(sorted(got) == sorted(want), f"{what}: names {sorted(got)} and {sorted(want)}")
    for name in got:
        require(got[name].tobytes() == want[name].tobytes(), f"{what}: {name!r} differs")


def exact_regex(names):
    """The regular expression that matches these names and no other."""
    return "^(" + "|".join(re.sub(r"([][\\.^$*+?(){}|])", r"\\\1", n) for n in names) + ")$"


# ---------------------------------------------------------------- running programs


class Done:
    """A finished program."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err


def execute(command, cwd=None, timeout=300, env=None, stdout=subprocess.PIPE):
    command = [os.fspath(c) if isinstance(c, os.PathLike) else str(c) for c in command]
    done = subprocess.run(command, cwd=cwd, stdout=stdout, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, errors="replace",
                          timeout=timeout, env=env)
    return Done(done.returncode, done.stdout or "", done.stderr)


def require_success(done, what):
    require(done.code == 0, f"{what}: exit {done.code}: {done.err[-600:]}")
    return done


def require_refusal(done, says, what, code=1):
    """A clean refusal: the exit code, and a message that matches every pattern of `says`."""
    require(done.code == code, f"{what}: exit {done.code}, want {code}: {done.err[-600:]}")
    for pattern in [says] if isinstance(says, str) else says:
        require_match(pattern, done.err, f"{what}: the message")
    require(not re.search(r"Stack dump|Assertion|terminate called|PLEASE submit|LLVM ERROR", done.err), f"{what}: crashed: {done.err[-600:]}")


class Workbench:
    """A folder of its own and the compiler under test; with target cuda, trainers run on the simulator of GPUs."""

    def __init__(self, build, folder, target="cpu"):
        self.build, self.folder, self.target, self.architecture = Path(build), Path(folder), target, 80
        self.mpc = self.build / "bin" / "mpc"
        self.numbers = itertools.count(1)

    def path(self, name):
        return self.folder / name

    def fresh(self, stem):
        return self.folder / f"{stem}{next(self.numbers)}"

    def on(self, target, architecture=80):
        """The same folder, for trainers of this target."""
        other = copy.copy(self)
        other.target, other.architecture = target, architecture
        return other

    def save(self, name, array):
        np.save(self.path(name), array)
        return self.path(name)

    def run_mpc(self, model, *options, output=None, cwd=None):
        """mpc's result, whatever it is. `model` is a file or an onnx.ModelProto."""
        if isinstance(model, onnx.ModelProto):
            file = self.fresh("model").with_suffix(".onnx")
            file.write_bytes(model.SerializeToString())
            model = file
        command = [self.mpc, model, *options]
        if output is not None:
            command += ["-o", output]
        return execute(command, cwd=cwd or self.folder)

    def compile(self, model, *options):
        output = self.fresh("trainer")
        if self.target == "cuda":
            if "--precision=fp64" in options:
                raise Skipped("fp64 is for the CPU only")
            options += (f"--target=cuda:sm_{self.architecture}", "--simulate")
        require_success(self.run_mpc(model, *options, output=output), "mpc")
        require(output.exists(), "mpc wrote no trainer")
        return Trainer(self, output)


class Trainer:
    """A compiled program."""

    def __init__(self, bench, program):
        self.bench, self.program = bench, Path(program)

    def command(self, command, *options):
        device = ["--device", "sim"] if self.bench.target == "cuda" and "--device" not in options else []
        return [str(word) for word in (self.program, command, *options, *device)]

    def run(self, command, *options, **more):
        return execute(self.command(command, *options), cwd=self.bench.folder, **more)

    def must(self, command, *options, **more):
        return require_success(self.run(command, *options, **more), command)

    def given(self, inputs):
        """--input options for files or arrays."""
        options = []
        for name, value in inputs.items():
            if isinstance(value, np.ndarray):
                file = self.bench.fresh("input").with_suffix(".npy")
                np.save(file, value)
                value = file
            options += ["--input", f"{name}={value}"]
        return options

    def data(self, inputs, labels):
        """A DATASET of files or arrays."""
        parts = []
        for name, value in [*inputs.items(), ("labels", labels)]:
            if value is None:
                continue
            if isinstance(value, np.ndarray):
                file = self.bench.fresh("data").with_suffix(".npy")
                np.save(file, value)
                value = file
            parts.append(f"{name}={value}")
        return "npy:" + ",".join(parts)

    def predict(self, inputs, *options):
        out = self.bench.fresh("out").with_suffix(".npz")
        self.must("predict", *self.given(inputs), *options, "-o", out)
        with np.load(out) as arrays:
            return {k: arrays[k] for k in arrays.files}

    def grad(self, inputs, labels, *options):
        out = self.bench.fresh("grad").with_suffix(".npz")
        given = self.given(inputs)
        if labels is not None:
            file = self.bench.fresh("labels").with_suffix(".npy")
            if isinstance(labels, np.ndarray):
                np.save(file, labels)
                labels = file
            given += ["--labels", labels]
        self.must("grad", *given, *options, "-o", out)
        with np.load(out) as arrays:
            return {k: arrays[k] for k in arrays.files}

    def train(self, data, *options, out=None, expect=0, **more):
        """Trains with metrics and checkpoints; the run with its steps and, unless it failed, its folder."""
        out = out or self.bench.fresh("run")
        metrics = Path(f"{out}.jsonl")
        done = self.run("train", "--data", data, "--out", out, "--metrics", metrics, *options, **more)
        require(done.code == expect, f"train: exit {done.code}, want {expect}: {done.err[-600:]}")
        return Run(self, out, metrics, done)

    def weights(self, checkpoint=None):
        """The initializers of the exported model, and the model itself under the key None."""
        out = self.bench.fresh("exported").with_suffix(".onnx")
        self.must("export", *(["--checkpoint", checkpoint] if checkpoint else []), "-o", out)
        return initializers(out)


class Run:
    """A training run: its metrics, its checkpoints and its messages."""

    def __init__(self, trainer, out, metrics, done):
        self.trainer, self.out, self.metrics, self.done = trainer, Path(out), metrics, done

    def events(self, kind="step"):
        if not self.metrics.exists():
            return []
        lines = [json.loads(line) for line in self.metrics.read_text().splitlines()]
        return [e for e in lines if e["event"] == kind]

    def values(self, key):
        return [e[key] for e in self.events()]

    def weights(self):
        return self.trainer.weights(self.out)

    def newest(self):
        return sorted(self.out.glob("step-*.safetensors"))[-1]


def initializers(file):
    return {t.name: numpy_helper.to_array(t) for t in onnx.load(file).graph.initializer}


def checkpoint_contents(file):
    """(tensors by key, state) of a checkpoint."""
    data = Path(file).read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + size])
    metadata, types = header.pop("__metadata__"), {"F32": np.float32, "F64": np.float64, "I32": np.int32, "I64": np.int64}
    tensors = {}
    for key, entry in header.items():
        begin, end = entry["data_offsets"]
        tensors[key] = np.frombuffer(data[8 + size + begin:8 + size + end], types[entry["dtype"]]).reshape(entry["shape"])
    return tensors, metadata


# ---------------------------------------------------------------- small models


def tensor_info(name, shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def model_of(nodes, inputs, outputs, weights, opset=17, ir=8, name="graph"):
    """A checked model. inputs and outputs: name → shape (or (shape, element type)); weights: name → array."""
    def infos(table):
        return [tensor_info(n, *(s if isinstance(s, tuple) else (s,))) for n, s in table.items()]

    graph = helper.make_graph(nodes, name, infos(inputs), infos(outputs), [numpy_helper.from_array(np.asarray(a), n) for n, a in weights.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir)
    onnx.checker.check_model(model)
    return model


def node(op, inputs, outputs, **attributes):
    attributes.setdefault("name", f"{op}_{outputs.split()[0]}")
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def scale_model(weight, width=1):
    """y = x · W with W [width, 1] of the given values: one parameter whose updates can be followed by hand."""
    weight = np.asarray(weight, np.float32).reshape(width, 1)
    return model_of([node("MatMul", "x W", "y")], {"x": ["N", width]}, {"y": ["N", 1]}, {"W": weight})


SGD = ("--optimizer=sgd", "--loss=mse")
PLAIN = ("--momentum", 0, "--weight-decay", 0, "--no-shuffle")


# ---------------------------------------------------------------- the runner


def run_one(name, function, build, keep, target):
    folder = Path(tempfile.mkdtemp(prefix="mpc-e2e-"))
    start = time.time()
    try:
        function(Workbench(build, folder, target))
        result, message = "passed", ""
    except Skipped as why:
        result, message = "skipped", str(why)
    except Failure as why:
        result, message = "failed", str(why)
    except subprocess.TimeoutExpired as late:
        result, message = "failed", f"no end after {late.timeout} s: {late.cmd[:3]}"
    except Exception:  # a file that should be there and is not, a damaged one
        result, message = "failed", traceback.format_exc(limit=-4)
    if keep:
        message += f"\nfiles: {folder}"
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return name, result, message, time.time() - start


def main(description, tests=None):
    """Runs the tests (name → function; default: the calling script's test_… functions)."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--build", type=Path, required=True, help="the build folder")
    parser.add_argument("--target", choices=("cpu", "cuda"), default="cpu", help="cuda: trainers for GPUs, on the simulator")
    parser.add_argument("--only", default="", help="regular expression of test names")
    parser.add_argument("--keep", action="store_true", help="keep the tests' folders")
    parser.add_argument("-v", action="store_true", help="a line per test")
    parser.add_argument("-j", type=int, default=os.cpu_count(), help="tests at the same time")
    args = parser.parse_args()
    if tests is None:
        script = sys.modules["__main__"]
        tests = {n[5:]: f for n, f in vars(script).items() if n.startswith("test_") and callable(f)}
    chosen = {n: f for n, f in tests.items() if re.search(args.only, n)}
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    with ThreadPoolExecutor(args.j) as pool:
        for job in [pool.submit(run_one, n, f, args.build.resolve(), args.keep, args.target) for n, f in chosen.items()]:
            name, result, message, seconds = job.result()
            counts[result] += 1
            if args.v or result != "passed":
                print(f"{name}: {result} in {seconds:.1f} s" + (f"\n    {message}" if message else ""), flush=True)
    print(", ".join(f"{n} {what}" for what, n in counts.items()))
    sys.exit(counts["failed"] > 0 or counts["passed"] == 0)
