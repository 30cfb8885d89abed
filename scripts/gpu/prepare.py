"""Makes the folder that gpu-check.sh takes to a machine with a GPU: trainers, weights, data, and the CPU's numbers.

    prepare.py --mpc build/bin/mpc DIR [--arch sm_90] [--models FOLDER] [--only linear,mlp] ...

    DIR/manifest.json         what there is, and how large every file is
    DIR/programs.tar.xz       the trainers, without weights, and the libraries they need
    DIR/MODEL/weights.part    the initial checkpoint; of a large model without the values that a seed gives
    DIR/MODEL/*.npy           inputs and labels
    DIR/MODEL/reference.*     what the CPU computes (compare.py)
"""

import argparse
import json
import lzma
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from array import array
from concurrent.futures import ThreadPoolExecutor
from hashlib import shake_128
from math import prod, sqrt
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE), str(ROOT / "bench")]

from arrays import checkpoint_bytes, load_npz, read_checkpoint, save_npy, seeded_floats, without_seeded  # noqa: E402
from compare import trace_of, write_reference  # noqa: E402
from recipes import RECIPES  # noqa: E402

PRECISIONS = ("fp32", "bf16", "fp16")
FORMS = ("legacy-train", "dynamo-raw")  # of several exports of a model, the best first
MOST_BYTES = 64 << 20
# Checkpoints above this are made on the other machine, as far as they are large tensors.
MOST_WEIGHTS, LARGE_TENSOR = 8 << 20, 1 << 16
LARGE_BATCH = 16  # times the recipe's: a batch that keeps a GPU busy
# Rounding alone drives these apart within a few steps at the recipe's rate.
GENTLE = {"resnet18_cifar": 0.01}
LOSS_SCALE = 1024  # that most steps of a short run are not skipped
# In fp16 another short run begins with a step that overflows, and goes on at LOSS_SCALE.
OVERFLOW = ["--loss-scale-init", str(LOSS_SCALE << 24), "--backoff-factor", str(2**-24)]


class Problem(Exception):
    """Why no folder can be made; the message says what to do."""


def run(command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, errors="replace")
    if done.returncode:
        raise Problem(f"{' '.join(str(c) for c in command[:3])} …: exit code {done.returncode}: {done.stderr.strip()[-600:]}")
    return done.stdout


# ---------------------------------------------------------------- models


def find_models(folders):
    """name → ONNX file. A folder has NAME.onnx, NAME.FORM.onnx or NAME/FORM.onnx; the first one of a name counts."""
    found = {}
    for folder in folders:
        if not folder.is_dir():
            raise Problem(f"--models {folder}: there is no such folder")
        here = {}
        for file in sorted(folder.glob("*.onnx")) + sorted(folder.glob("*/*.onnx")):
            name, _, form = file.stem.partition(".") if file.parent == folder else (file.parent.name, "", file.stem)
            here.setdefault(name, {})[form] = file
        for name, forms in here.items():
            best = [forms[form] for form in ("", *FORMS) if form in forms]
            if best:
                found.setdefault(name, best[0])
    return found


def recipe_of(name):
    """mlp_dropout trains as mlp does; a model that is not known as PyTorch's defaults are."""
    known = RECIPES.get(name) or RECIPES.get(name.partition("_dropout")[0]) or {"batch": 16, "optimizer": "adamw", "lr": 1e-3}
    return {"loss": "cross-entropy", **known, "lr": known["lr"] * GENTLE.get(name, 1)}


def loss_scale(precision):
    return ["--loss-scale-init", str(LOSS_SCALE)] if precision == "fp16" else []


def hyperparameters(recipe):
    options = ["--lr", recipe["lr"], "--weight-decay", recipe.get("weight_decay", 0)]
    options += ["--momentum", recipe["momentum"]] if "momentum" in recipe else []
    return [str(option) for option in options]


def compile_trainer(mpc, model, recipe, precision, output, *options):
    run([mpc, model, f"--loss={recipe['loss']}", f"--optimizer={recipe['optimizer']}", f"--precision={precision}", *options, "-o", output])
    return output


# ---------------------------------------------------------------- data


def tensors_of(info, title):
    """[(name, type, shape without the axis of the samples, limit of indices)] of a section of `info`."""
    section = re.search(rf"^{title}\n((?:  .*\n)+)", info, re.M)
    rows = re.findall(r"^  (.*?) +(\w+) \[(.*?)\](?:  indices below (\d+))?$", section[1] if section else "", re.M)
    return [(name, kind, [int(n) for n in shape.split(", ") if n and n != "samples"], int(limit or 0)) for name, kind, shape, limit in rows]


def integers(name, count, limit):
    return array("q", (value % limit for value in array("I", shake_128(name.encode()).digest(4 * count))))


def mask(name, samples, shape):
    """Ones, then zeros from somewhere in the second half of the last axis on."""
    width, rows = shape[-1], samples * prod(shape[:-1])
    values = array("q")
    for length in integers(name, rows, width // 2 + 1):
        ones = width - length
        values.extend([1] * ones + [0] * length)
    return values


def make_values(name, kind, samples, shape, limit):
    count = samples * prod(shape)
    if kind.startswith("f") or kind == "bf16":
        return seeded_floats(name, count, 1.0)
    if kind not in ("i64", "i32"):
        raise Problem(f"no values are made for the input {name!r} of type {kind}")
    return integers(name, count, limit) if limit else mask(name, samples, shape)


def make_labels(info, samples, loss):
    [(name, kind, shape, _)] = tensors_of(info, "labels")
    classes = re.search(r"^loss .* (\d+) classes", info, re.M)
    if classes:
        return shape, integers("labels", samples * prod(shape), int(classes[1]))
    if loss.startswith("bce"):
        return shape, array("f", map(float, integers("labels", samples * prod(shape), 2)))
    return shape, make_values("labels", kind, samples, shape, 0)


def make_data(info, batch, steps, loss, folder):
    """Files of all batches, the last one smaller by one sample where the program takes that; the inputs' names."""
    samples = batch * steps - (0 if "no smaller last batch" in info else 1)
    inputs = tensors_of(info, "inputs")
    files = {}
    for number, (name, kind, shape, limit) in enumerate(inputs):
        files[name] = f"input{number}"
        values = make_values(name, kind, samples, shape, limit)
        save_npy(folder / f"input{number}.npy", (samples, *shape), values)
        save_npy(folder / f"input{number}.first.npy", (batch, *shape), values[:batch * prod(shape)])
    shape, values = make_labels(info, samples, loss)
    save_npy(folder / "labels.npy", (samples, *shape), values)
    save_npy(folder / "labels.first.npy", (batch, *shape), values[:batch * prod(shape)])
    return files


def dataset(folder, files):
    return "npy:" + ",".join([*(f"{name}={folder / file}.npy" for name, file in files.items()), f"labels={folder / 'labels.npy'}"])


def first_batch(folder, files):
    return [word for name, file in files.items() for word in ("--input", f"{name}={folder / file}.first.npy")]


# ---------------------------------------------------------------- weights


def seeded_tensors(header):
    """Of a large model's checkpoint: key → [name, count, deviation] of what a seed gives, as layers before a ReLU begin."""
    weights = {key: entry["shape"] for key, entry in header.items() if key.startswith("weight/") and entry["dtype"] == "F32"}
    return {key: [key, prod(shape), sqrt(2 / prod(shape[1:]))] for key, shape in weights.items() if len(shape) > 1 and prod(shape) >= LARGE_TENSOR}


def make_weights(trainer, data, work, folder):
    """Writes the initial checkpoint to `work` and what the other machine needs of it to `folder`: (file, pieces to seed).

    One step with the rate 0 leaves the weights as the model has them, and gives statistics that a batch has made.
    """
    run([trainer, "train", "--data", data, "--steps", 1, "--lr", 0, "--weight-decay", 0, "--no-shuffle", "--log-every", 0, "--out", work / "initial"])
    [file] = (work / "initial").glob("step-*.safetensors")
    header, tensors = read_checkpoint(file.read_bytes())
    tensors = {key: data for key, data in tensors.items() if not key.startswith("optimizer/")}
    seeded = seeded_tensors(header) if sum(map(len, tensors.values())) > MOST_WEIGHTS else {}
    for key, (name, count, deviation) in seeded.items():
        tensors[key] = seeded_floats(name, count, deviation).tobytes()
    whole, part = work / "weights.safetensors", folder / "weights.part"
    whole.write_bytes(checkpoint_bytes(header, tensors))
    rest, pieces = without_seeded(whole.read_bytes(), seeded)
    part.write_bytes(rest)
    shutil.rmtree(work / "initial")
    return whole, pieces


# ---------------------------------------------------------------- what the CPU computes


def cpu_numbers(trainer, precision, weights, folder, files, options, steps, work):
    """Gradients and outputs of the first batch, and the trace of some steps."""
    start, first, data = ["--checkpoint", weights], first_batch(folder, files), dataset(folder, files)
    grad, out, metrics = work / "grad.npz", work / "out.npz", work / "metrics.jsonl"
    run([trainer, "grad", *start, *first, "--labels", folder / "labels.first.npy", *loss_scale(precision), "-o", grad])
    run([trainer, "predict", *start, *first, "-o", out])
    run([trainer, "train", *start, "--data", data, "--valid", data, "--steps", steps, *options, *loss_scale(precision),
         "--no-shuffle", "--log-every", 0, "--metrics", metrics])
    gradients, trace, overflow = load_npz(grad), trace_of(metrics), None
    del gradients["loss_scale"]
    if precision == "fp16":
        run([trainer, "train", *start, "--data", data, "--steps", 3, *options, *OVERFLOW, "--no-shuffle", "--log-every", 0, "--metrics", metrics])
        overflow = trace_of(metrics)
    return {"gradients": gradients, "outputs": load_npz(out), "trace": trace, "overflow": overflow}


# ---------------------------------------------------------------- a model, whole


class Preparation:
    def __init__(self, args, target, staging):
        self.args, self.target, self.staging = args, target, staging

    def model(self, name, onnx):
        """Everything of one model; what the manifest says of it."""
        args, recipe, folder = self.args, recipe_of(name), self.target / name
        folder.mkdir()
        with tempfile.TemporaryDirectory(prefix="mpc-gpu-prepare-") as work:
            work, batch = Path(work), recipe["batch"]
            trainers = {p: compile_trainer(args.mpc, onnx, recipe, p, work / p, f"--batch={batch}") for p in ("fp64", "fp32", *args.precisions)}
            info = run([trainers["fp32"], "info"])
            files = make_data(info, batch, args.steps, recipe["loss"], folder)
            plan = compile_trainer(args.mpc, onnx, recipe, "fp32", work / "plan", f"--batch={batch}", f"--target=cuda:{args.arch}", "--emit=plan")
            is_fused = "mpc.attention" in plan.read_text()
            weights, pieces = make_weights(trainers["fp32"], dataset(folder, files), work, folder)
            numbers = {p: cpu_numbers(trainers[p], p, weights, folder, files, hyperparameters(recipe), args.steps, work)
                       for p in ("fp64", *args.precisions)}
        for precision in args.precisions:
            skipped = sum(numbers[precision]["trace"]["skipped"])
            if 2 * skipped > args.steps:
                raise Problem(f"{name} {precision}: {skipped} of {args.steps} steps overflowed on the CPU, which leaves too little to compare; take more --steps")
        write_reference(folder, numbers["fp64"], {p: numbers[p] for p in args.precisions}, is_fused)
        parameters = int(re.search(r"^parameters +\d+ with (\d+)", info, re.M)[1])
        return {"name": name, "batch": batch, "inputs": files, "seeded": pieces, "parameters": parameters,
                "programs": [self.program(name, onnx, recipe, p, n) for p in args.precisions for n in self.batches(batch)]}

    def batches(self, batch):
        return [batch, batch * LARGE_BATCH] if self.args.large else [batch]

    def program(self, name, onnx, recipe, precision, batch):
        program = f"{name}.{precision}.b{batch}"
        with tempfile.TemporaryDirectory(dir=self.staging) as bundle:
            options = [f"--batch={batch}", f"--target=cuda:{self.args.arch}", "--external-weights", f"--bundle={bundle}"]
            compile_trainer(self.args.mpc, onnx, recipe, precision, program, *options, *(["--simulate"] if self.args.simulate else []))
            run(["strip", Path(bundle) / "lib" / f"{program}.trainer"])
            for file in (Path(bundle) / "lib").iterdir():
                file.replace(self.staging / file.name)
        return {"program": f"{program}.trainer", "precision": precision, "batch": batch, "options": hyperparameters(recipe),
                "loss_scale": loss_scale(precision), "overflow": OVERFLOW if precision == "fp16" else []}


# ---------------------------------------------------------------- the folder


def pack(folder, target):
    """One archive: the trainers are the same program but for their kernels, which the large dictionary sees."""
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 1, "dict_size": 64 << 20}]
    with lzma.open(target, "wb", filters=filters) as packed, tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for file in sorted(folder.iterdir()):
            archive.add(file, file.name)


def least_glibc(folder):
    """The latest version of the C library that a file asks for."""
    versions = {tuple(map(int, v.split(b"."))) for file in folder.iterdir() for v in re.findall(rb"GLIBC_(2\.\d+)", file.read_bytes())}
    return ".".join(map(str, max(versions)))


def prepare(args):
    models = find_models([*args.models, ROOT / "models"])
    if args.only:
        if missing := [name for name in args.only if name not in models]:
            raise Problem(f"there is no model {', '.join(missing)}; found: {', '.join(models)} (--models FOLDER names more)")
        models = {name: models[name] for name in args.only}
    target = args.dir.with_name(args.dir.name + ".part")
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="mpc-gpu-programs-") as staging:
        preparation = Preparation(args, target, Path(staging))
        order = sorted(models, key=lambda name: models[name].stat().st_size)
        with ThreadPoolExecutor(args.jobs) as pool:
            jobs = [pool.submit(preparation.model, name, models[name]) for name in order]
            rows = []
            try:
                for name, job in zip(order, jobs):
                    rows.append(job.result())
                    print(f"{name}: {len(rows[-1]['programs'])} programs, {rows[-1]['parameters']} parameter values", flush=True)
            finally:
                for job in jobs:  # after a problem the rest is in vain
                    job.cancel()
        glibc = least_glibc(Path(staging))
        pack(Path(staging), target / "programs.tar.xz")
    sizes = {str(f.relative_to(target)): f.stat().st_size for f in sorted(target.rglob("*")) if f.is_file()}
    if sum(sizes.values()) > MOST_BYTES:
        most = sorted(sizes, key=sizes.get)[-3:]
        raise Problem(f"the folder has {sum(sizes.values()) >> 20} MiB, more than {MOST_BYTES >> 20}: take fewer --only models or --no-large; "
                      f"the largest files: {', '.join(most)}")
    manifest = {"version": 1, "architecture": args.arch, "simulated": args.simulate, "steps": args.steps, "compiler": run([args.mpc, "--version"]).strip(),
                "glibc": glibc, "models": rows, "files": sizes}
    (target / "manifest.json").write_text(json.dumps(manifest, indent=1))
    shutil.rmtree(args.dir, ignore_errors=True)
    target.rename(args.dir)
    print(f"{args.dir}: {sum(sizes.values()) / 2**20:.1f} MiB")


def names(text):
    return text.split(",")


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], prog="gpu-prepare.sh")
    add = parser.add_argument
    add("dir", metavar="DIR", nargs="?", type=Path, default=ROOT / "build" / "gpu-check", help="the folder; what is in it is removed (build/gpu-check)")
    add("--mpc", type=Path, required=True, help=argparse.SUPPRESS)
    add("--arch", default="sm_90", help="the GPU's architecture (sm_90)")
    add("--models", type=Path, action="append", default=[], metavar="FOLDER",
        help="more models than those of models/: NAME.onnx, NAME.FORM.onnx or NAME/FORM.onnx; repeatable")
    add("--only", type=names, default=[], metavar="A,B", help="only these models")
    add("--precisions", type=names, default=list(PRECISIONS), metavar="A,B", help="of fp32,bf16,fp16 (all)")
    add("--steps", type=int, default=6, help="of the runs that are compared (6)")
    add("--no-large", dest="large", action="store_false", help=f"no programs for {LARGE_BATCH} times the batch")
    add("--simulate", action="store_true", help="programs that also run on the simulator")
    add("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="models at the same time (the cores)")
    args = parser.parse_args()
    if unknown := [p for p in args.precisions if p not in PRECISIONS]:
        parser.error(f"unknown precisions: {', '.join(unknown)}; there are {', '.join(PRECISIONS)}")
    if args.steps < 2:
        parser.error("--steps: two at least, since a run is stopped half-way")
    if args.dir.exists() and any(args.dir.iterdir()) and not (args.dir / "manifest.json").exists():
        parser.error(f"{args.dir} is a folder of something else")
    args.dir, args.mpc = args.dir.resolve(), args.mpc.resolve()
    return args


if __name__ == "__main__":
    try:
        prepare(options())
    except Problem as problem:
        sys.exit(f"error: {problem}")
