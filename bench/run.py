"""mpc beside its peers in one run: the fastest training step, peak memory, and the limit; the fastest square products.

    run.py --mpc build/bin/mpc [--models A,B] [--products 512,1024] [--precisions fp32,bf16] [--json FILE] [--markdown FILE]

Every measurement is a process of its own; mpc and its peers take turns, and the least time and the
least peak count. README.md tells what is measured and what the limit is.
"""

import datetime
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import products  # noqa: E402
from cases import Case  # noqa: E402
from limit import limits  # noqa: E402
from options import parse  # noqa: E402
from report import markdown  # noqa: E402
from turns import Failed, last_json, take_turns  # noqa: E402

IMAGES = ("fashion_cnn", "simple_cnn", "resnet18_cifar")
JAX_MODELS = ("linear", "mlp", "mlp_ln")
FLAGS = ("avx2", "f16c", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_fp16")


# ---------------------------------------------------------------- the machine


def machine():
    facts = {}
    for line in Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines():
        key, _, value = line.partition(":")
        facts[key.strip()] = value.strip()
    present = set(facts.get("flags", "").split())
    return {"cpu": facts.get("model name", platform.processor()), "flags": [f for f in FLAGS if f in present],
            "cores": len(os.sched_getaffinity(0)), "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "date": datetime.date.today().isoformat()}


# ---------------------------------------------------------------- the systems


class Mpc:
    """A compiled model; its steps are timed by the trainer's own metrics, on one fixed batch."""

    def __init__(self, mpc, case, precision):
        self.case, self.trainer, self.steps = case, case.folder / f"trainer.{precision}", 30
        spec = case.spec
        report = self._run([mpc, case.onnx, f"--loss={spec.loss}", f"--optimizer={spec.optimizer}", f"--precision={precision}",
                            f"--batch={spec.batch}", "--report=cost", "-o", self.trainer])
        self.cost = self._read_cost(report)
        files = {**case.inputs, "labels": case.labels}
        self.train = [self.trainer, "train", "--data", "npy:" + ",".join(f"{key}={file}" for key, file in files.items()),
                      "--no-shuffle", "--lr", spec.lr, "--weight-decay", spec.weight_decay]
        if spec.optimizer == "sgd":
            self.train += ["--momentum", spec.momentum]

    @staticmethod
    def _run(command):
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True, errors="replace")
        if done.returncode:
            raise Failed((done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])
        return done.stdout

    @staticmethod
    def _read_cost(report):
        """(bytes, FLOPs) of every command of a step, from --report=cost."""
        rows, wanted = [], False
        for line in report.splitlines():
            if entry := re.match(r"cost of (\w+):", line):
                wanted = entry[1] in ("gradients", "apply")
            elif wanted and (row := re.match(r"\s+(\d+)\s+(\d+)\s", line)):
                rows.append((int(row[1]), int(row[2])))
        return rows

    def time(self, seconds):
        metrics = self.case.folder / "metrics.jsonl"
        self._run([*self.train, "--steps", self.steps, "--metrics", metrics])
        events = [json.loads(line) for line in metrics.read_text().splitlines()]
        ms = min(e["step_ms"] for e in events if e["event"] == "step")
        self.steps = int(min(max(seconds * 1e3 / ms, 10), 20000))  # of the next call
        return {"system": "mpc", "config": "cpu", "ms": ms, "peak_bytes": events[-1]["peak_memory_bytes"]}


def peers(args, case, precision):
    """(label, command) of every peer that can train this model in this precision."""
    image = case.name in IMAGES
    for config in ("eager", "fused", "compile", *(("channels-last", "channels-last-fused", "channels-last-compile") if image else ())):
        yield f"pytorch {config}", [sys.executable, HERE / "peer_torch.py", case.name, "--precision", precision, "--config", config]
    if precision == "fp32":
        if case.name in JAX_MODELS:
            yield "jax", [sys.executable, HERE / "peer_jax.py", case.name]
        yield "onnxruntime-training", [args.ort, HERE / "peer_ort.py", case.for_ort()] if args.ort else None


def run_peer(args, command):
    if not command:
        raise Failed("its packages could not be installed")
    return last_json([*command, "--seconds", args.seconds], args.limit)


# ---------------------------------------------------------------- a row of the table


def measure(args, case, precision, rates):
    """The JSON objects of one model in one precision, mpc's first; it carries what was left out, and why."""
    mpc = Mpc(args.mpc, case, precision)
    mpc.time(args.seconds)  # how many steps fit
    systems = [("mpc", partial(mpc.time, args.seconds))]
    systems += [(label, partial(run_peer, args, command)) for label, command in peers(args, case, precision) if re.search(args.peers, label)]
    results, left_out = take_turns(f"{case.name} {precision}", systems, args.repeat)
    common = {"model": case.name, "batch": case.spec.batch, "precision": precision}
    rows = [{**common, **result, **limits(mpc.cost, rates, precision), "machine": args.machine} for result in results]
    rows[0]["left_out"] = left_out
    return rows


def print_head():
    print(f"# {'model':15} {'':4} {'batch':>5} {'ms/step':>9} {'samples/s':>10} {'MiB':>6} | {'best peer':>9} {'MiB':>6} {'ratio':>6} | "
          f"{'limit':>9} = {'FLOPs':>9} + {'bytes':>9} | peer")


def print_row(rows):
    mpc, *others = rows
    peer = min(others, key=lambda row: row["ms"], default=None)
    theirs = f"{'–':>9} {'–':>6} {'–':>6}"
    if peer:
        theirs = f"{peer['ms']:9.4g} {peer['peak_bytes'] / 2**20:6.0f} {mpc['ms'] / peer['ms']:6.2f}"
    print(f"{mpc['model']:17} {mpc['precision']:4} {mpc['batch']:5} {mpc['ms']:9.4g} {1e3 * mpc['batch'] / mpc['ms']:10.0f} "
          f"{mpc['peak_bytes'] / 2**20:6.0f} | {theirs} | {mpc['limit_ms']:9.4g} = {mpc['limit_flops_ms']:9.4g} + "
          f"{mpc['limit_bytes_ms']:9.4g} | {peer['system'] + ' ' + peer['config'] if peer else 'none'}", flush=True)


# ---------------------------------------------------------------- the run


def measurements(args, cases, rates):
    """(what, function that measures it, function that prints its rows) of everything to be measured, in order."""
    def precisions(otherwise):
        return otherwise if args.precisions is None else args.precisions

    for precision in precisions(("fp32", "bf16")):
        for name, case in cases.items():
            yield f"{name} {precision}", partial(measure, args, case, precision, rates), print_row
    for precision in precisions(products.PRECISIONS):
        for size in args.products:
            yield f"{size}³ {precision}", partial(products.measure, args, size, precision, rates), products.print_row


def replace(file, text):
    """The file is whole at all times: the old one or the new one."""
    part = file.with_name(file.name + ".part")
    part.write_text(text)
    os.replace(part, file)


def main():
    args = parse()
    args.mpc, args.machine = args.mpc.resolve(), machine()
    print(f"# {args.machine['cpu']}, {args.machine['cores']} cores, {' '.join(args.machine['flags'])}")
    try:
        rates = args.machine["rates"] = last_json([args.mpc.parent / "library-bench", "--rates"], 120)
    except Failed as problem:
        sys.exit(f"error: library-bench could not measure this machine: {problem}")
    print("# " + ", ".join(f"{p} {f / 1e9:.0f} GFLOP/s" for p, f in rates["flops"].items()))
    print("# " + ", ".join(f"{size / 2**20:g} MiB: {rate / 1e9:.0f}" for size, rate in rates["bandwidth"]) + " GB/s")
    if args.models:
        print_head()
    rows = []
    with tempfile.TemporaryDirectory() as work:
        cases = {name: Case(name, work) for name in args.models}
        for what, measured, show in measurements(args, cases, rates):
            try:
                rows += (new := measured())
                show(new)
            except Failed as problem:
                print(f"# {what}: mpc failed: {problem}", flush=True)
            if args.json:  # after every row: the bench takes an hour
                replace(args.json, "[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")
    if args.markdown and rows:
        replace(args.markdown, markdown(rows))
    sys.exit(not rows)


if __name__ == "__main__":
    main()
