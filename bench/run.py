"""mpc beside its peers, in one run: per model and precision the fastest step, peak memory and the limit.

    run.py --mpc build/bin/mpc [--models A,B] [--precisions fp32,bf16] [--json FILE] [--seconds 5] [--repeat 2]

Every measurement is a process of its own; mpc and its peers take turns, and the minimum counts. The limit is
FLOPs ÷ measured matmul rate + bytes ÷ measured bandwidth, from mpc's own cost report. Needs torch;
peers that are not installed are left out and said so.
"""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
IMAGES = ("fashion_cnn", "simple_cnn", "resnet18_cifar")
FLAGS = ("avx2", "f16c", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_fp16")


def machine():
    facts = {}
    for line in Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines():
        key, _, value = line.partition(":")
        facts[key.strip()] = value.strip()
    present = set(facts.get("flags", "").split())
    return {"cpu": facts.get("model name", platform.processor()), "flags": [f for f in FLAGS if f in present],
            "cores": len(os.sched_getaffinity(0)), "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")}


def last_json(command, limit=600):
    try:
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return None, f"over {limit} s"
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        return None, (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1][:160]
    return json.loads(lines[-1]), None


class Mpc:
    """One compiled model: times training steps on one fixed batch, from the trainer's own metrics."""

    def __init__(self, mpc, name, precision, work):
        from models import MODELS

        self.spec, self.work = MODELS[name], work
        onnx = work / f"{name}.onnx"
        if not onnx.exists():
            self.spec.export(onnx)
            inputs, labels = self.spec.batch_data()
            for key, value in (*zip(self.spec.inputs, inputs), ("labels", labels)):
                np.save(work / f"{name}.{key}.npy", value.numpy())
        self.trainer = work / f"{name}.{precision}"
        done = subprocess.run([mpc, onnx, f"--loss={self.spec.loss}", f"--optimizer={self.spec.optimizer}", f"--precision={precision}",
                               f"--batch={self.spec.batch}", "--report=cost", "-o", self.trainer], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr.strip())
        self.flops = self.bytes = 0
        for entry, flops, size in re.findall(r"^cost of (\w+): \d+ commands, (\S+) FLOPs in library calls, (\d+) bytes", done.stdout, re.M):
            if entry in ("gradients", "apply"):
                self.flops, self.bytes = self.flops + float(flops), self.bytes + int(size)
        self.data = "npy:" + ",".join(f"{key}={work / f'{name}.{key}.npy'}" for key in (*self.spec.inputs, "labels"))
        self.steps = 30

    def time(self, seconds):
        metrics = self.work / "metrics.jsonl"
        options = ["--lr", self.spec.lr, "--weight-decay", self.spec.weight_decay]
        if self.spec.optimizer.startswith("sgd"):
            options += ["--momentum", self.spec.momentum]
        command = [self.trainer, "train", "--data", self.data, "--steps", self.steps, *options, "--no-shuffle", "--metrics", metrics]
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr.strip())
        events = [json.loads(line) for line in metrics.read_text().splitlines()]
        ms = min(e["step_ms"] for e in events if e["event"] == "step")
        self.steps = int(min(max(seconds * 1e3 / ms, 10), 20000))
        return {"system": "mpc", "config": "cpu", "ms": ms, "peak_bytes": events[-1]["peak_memory_bytes"]}


def peers(name, precision, seconds):
    configs = ["eager", "fused", "compile"] + (["channels-last", "channels-last-fused"] if name in IMAGES else [])
    for config in configs:
        yield f"pytorch {config}", [sys.executable, HERE / "peer_torch.py", name, "--precision", precision, "--config", config, "--seconds", seconds]
    if name in ("linear", "mlp", "mlp_ln") and precision == "fp32":
        yield "jax", [sys.executable, HERE / "peer_jax.py", name, "--seconds", seconds]
        ort = os.environ.get("MPC_ORT_PYTHON")
        if ort:
            yield "onnxruntime-training", [ort, HERE / "peer_ort.py", name, "--seconds", seconds]


def better(old, new):
    return new if old is None or new["ms"] < old["ms"] else {**old, "peak_bytes": min(old["peak_bytes"], new["peak_bytes"])}


def rates(library_bench):
    """(FLOP/s by precision, bytes/s), measured now."""
    found, why = last_json([library_bench, "--rates"])
    if not found:
        print(f"no limit column: {why}", file=sys.stderr)
    return found


def row(args, name, precision, work, rate, out):
    best = {}
    try:
        mpc = Mpc(args.mpc.resolve(), name, precision, work)
        mpc.time(args.seconds)
    except RuntimeError as problem:
        print(f"{name:15} {precision}  mpc: {problem}", flush=True)
        return
    dead = set()
    for _ in range(args.repeat):
        best["mpc"] = better(best.get("mpc"), mpc.time(args.seconds))
        for label, command in peers(name, precision, args.seconds):
            if label in dead or not re.search(args.peers, label):
                continue
            result, why = last_json(command, args.limit)
            if result is None:
                dead.add(label)
                print(f"{name:15} {precision}  {label}: left out ({why})", file=sys.stderr, flush=True)
                continue
            best[label] = better(best.get(label), result)
    limit = None
    if rate:
        limit = 1e3 * (mpc.flops / rate["flops"][precision] + mpc.bytes / rate["bytes_per_s"])
    ours = best.pop("mpc")
    for label, result in [("mpc", ours), *best.items()]:
        out.append({"model": name, "batch": mpc.spec.batch, "precision": precision, "system": result["system"], "config": result["config"],
                    "ms": result["ms"], "peak_bytes": result["peak_bytes"], "limit_ms": limit, "machine": args.machine})
    samples = mpc.spec.batch / ours["ms"] * 1e3
    line = f"{name:15} {precision:5} {mpc.spec.batch:5} {ours['ms']:10.4f} {samples:12.0f} {ours['peak_bytes'] / 2**20:8.0f}"
    if best:
        peer = min(best, key=lambda k: best[k]["ms"])
        line += f" {best[peer]['ms']:10.4f} {best[peer]['peak_bytes'] / 2**20:8.0f} {ours['ms'] / best[peer]['ms']:6.2f}  {peer}"
    print(line + (f", limit {limit:.4f}" if limit else ""), flush=True)


def main():
    sys.path.insert(0, str(HERE))
    from models import MODELS

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mpc", type=Path, required=True)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--precisions", default="fp32,bf16")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--peers", default="", help="regular expression: only these peers")
    parser.add_argument("--limit", type=float, default=300, help="seconds a peer may take")
    args = parser.parse_args()
    args.machine = machine()
    print(f"# {args.machine['cpu']}, {args.machine['cores']} cores, {' '.join(args.machine['flags'])}")
    rate = rates(args.mpc.parent / "library-bench")
    if rate:
        print("# measured: " + ", ".join(f"{p} {f / 1e9:.0f} GFLOP/s" for p, f in rate["flops"].items()) + f", {rate['bytes_per_s'] / 1e9:.1f} GB/s")
    print(f"# {'model':13} {'':5} {'batch':>5} {'ms/step':>10} {'samples/s':>12} {'MiB':>8} {'best peer':>10} {'MiB':>8} {'ratio':>6}")
    out = []
    with tempfile.TemporaryDirectory() as work:
        for precision in args.precisions.split(","):
            for name in args.models.split(","):
                row(args, name, precision, Path(work), rate, out)
    if args.json:
        args.json.write_text(json.dumps(out, indent=1) + "\n")
    sys.exit(not any(r["system"] == "mpc" for r in out))


if __name__ == "__main__":
    main()
