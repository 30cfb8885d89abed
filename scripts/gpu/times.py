"""Step times: of mpc's programs by their own metrics, and of PyTorch's training loop on the same models, batches and precisions."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Timer

from arrays import load_npy, save_npy
from session import end_group, events

BENCH = Path(__file__).resolve().parent.parent.parent / "bench"
SECONDS = 0.8  # of one measurement
LIMIT = {False: 40, True: 900}  # seconds of one process, by whether it runs on the simulator
SLOW_LIMIT = 150  # where cuDNN may compile
READY = 90  # seconds that a group of PyTorch's processes may load and compile
# An epoch's end waits for the GPU, so an epoch has some batches, as far as its files stay small.
EPOCH_BATCHES, EPOCH_BYTES = 40, 64 << 20
CONFIGS = ("eager", "compile", "compile-graphs")
PRECISIONS = ("bf16", "fp16", "fp32")  # the most telling first
SYSTEMS = {"library": "mpc", "cublaslt": "mpc, convolutions by generated kernels", "generated": "mpc, generated kernels"}


def by_size(models):
    """The models that take the GPU longest first: there a difference is largest."""
    return sorted(models, key=lambda model: -model["parameters"])


# ---------------------------------------------------------------- mpc


def repeated(source, target, samples):
    """A file of `samples` samples, those of `source` over and over."""
    array = load_npy(source)
    each = len(array.values) // array.shape[0]
    whole, rest = divmod(samples, array.shape[0])
    save_npy(target, (samples, *array.shape[1:]), [array.values] * whole + [array.values[:rest * each]])


def epoch_data(session, model, batch, folder):
    """A dataset of whole batches, as an option's value."""
    files = {**model["inputs"], "labels": "labels"}
    size = sum(len(a.values) * a.values.itemsize // a.shape[0] for a in (load_npy(session.folder(model) / f"{file}.npy") for file in files.values()))
    samples = batch * max(8, min(EPOCH_BATCHES, EPOCH_BYTES // (size * batch)))
    for file in files.values():
        repeated(session.folder(model) / f"{file}.npy", folder / f"{file}.npy", samples)
    return "npy:" + ",".join(f"{name}={folder / file}.npy" for name, file in files.items())


def measure(session, model, program, products, steps, share):
    """(result, detail, row): milliseconds of the steps behind the first ones."""
    with tempfile.TemporaryDirectory(dir=session.work) as folder:
        folder = Path(folder)
        data, metrics = epoch_data(session, model, program["batch"], folder), folder / "metrics.jsonl"
        # The rate has nothing to do with the time, and a low one keeps the numbers finite.
        options = ["1e-6" if before == "--lr" else option for before, option in zip(["", *program["options"]], program["options"])]
        limit = SLOW_LIMIT if products == "library" and not session.simulated else LIMIT[session.simulated]
        done = session.run(model, program, products, min(limit, session.budget.left(share)), "train", "--data", data, *options, *program["loss_scale"], "--no-shuffle", "--steps", steps,
                           "--log-every", 0, "--metrics", metrics)
        if done.code:
            return (*session.failure(done, share), {})
        times = [event["step_ms"] for event in events(metrics, "step")]
        [end] = events(metrics, "end")
    times = times[min(max(3, len(times) // 10), len(times) // 2):]
    row = {"ms": min(times), "median_ms": statistics.median(times), "steps": len(times), "samples_per_s": 1e3 * program["batch"] / statistics.median(times),
           "device_bytes": end["device_memory_bytes"], "library_commands": end["library_commands"], "generated_commands": end["generated_commands"]}
    return True, f"{row['ms']:.4g} ms", row


def measure_long_enough(session, model, program, products, is_slow, share):
    """A first look tells how many steps fit SECONDS; many more than it had are another run, rarely where a start `is_slow`."""
    if session.budget.left(share) <= 0:
        return None, "no time left", {}
    first = 4 if session.simulated else 200 if is_slow else 20
    result, detail, row = measure(session, model, program, products, first, share)
    if row and not session.simulated and row["ms"] * first < SECONDS * 1e3 / 4:
        return measure(session, model, program, products, int(min(SECONDS * 1e3 / row["ms"], 3000)), share)
    return result, detail, row


def measure_mpc(session, results, ends, share):
    """Every program whose own checks ran, each as its products were done there; what is slower without the library comes last."""
    jobs = []
    for model in by_size(session.manifest["models"]):
        own = {p["precision"]: p["program"] for p in model["programs"] if p["batch"] == model["batch"]}
        for program in model["programs"]:
            ran = [products for products in SYSTEMS if (own[program["precision"]], products) in ends]
            is_slow = any("cuDNN" in ends[own[program["precision"]], products]["device"] for products in ran)
            jobs += [(model, program, products, products == ran[0], is_slow and products == "library") for products in ran]
    jobs.sort(key=lambda job: (not job[3], job[1]["batch"] != job[0]["batch"], PRECISIONS.index(job[1]["precision"])))
    for model, program, products, _, is_slow in jobs:
        about = {"model": model["name"], "precision": program["precision"], "batch": program["batch"], "products": products,
                 "system": SYSTEMS[products]}
        result, detail, row = measure_long_enough(session, model, program, products, is_slow, share)
        results.add("time", result, detail, **about, **row)


# ---------------------------------------------------------------- PyTorch


def peers(session):
    """(what it is, command) of PyTorch's measurements, the most telling first."""
    sys.path.append(str(BENCH))
    from recipes import RECIPES
    rows = [(model, program, config) for config in CONFIGS for model in by_size(session.manifest["models"]) if model["name"] in RECIPES
            for program in model["programs"]]
    # Those with CUDA graphs last, they are as many again; of the others first the models' own batch.
    rows.sort(key=lambda row: (PRECISIONS.index(row[1]["precision"]), row[2] == "compile-graphs", row[1]["batch"] != row[0]["batch"], CONFIGS.index(row[2])))
    for model, program, config in rows:
        what = {"model": model["name"], "precision": program["precision"], "batch": program["batch"], "system": f"PyTorch {config}"}
        yield what, [sys.executable, BENCH / "peer_torch_gpu.py", model["name"], "--precision", program["precision"], "--config", config,
                     "--batch", program["batch"], "--seconds", SECONDS, "--device", session.device]


class Peer:
    """A process that gets ready beside others, and is measured when it is told to."""

    def __init__(self, what, command, log):
        self.what, self.log, self.ready = what, log, False
        # Each may start as many compilers as there are cores.
        environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "2"}
        with log.open("w") as messages:
            self.child = subprocess.Popen([str(c) for c in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=messages, env=environment,
                                          universal_newlines=True, start_new_session=True)

    def get_ready(self):
        """Waits for its word, or its end."""
        self.ready = self.child.stdout.readline().strip() == "ready"

    def measure(self):
        """The JSON object that it prints, or None."""
        try:
            out, _ = self.child.communicate("go\n", timeout=LIMIT[False])
            return json.loads(out) if self.child.returncode == 0 else None
        except (ValueError, OSError, subprocess.TimeoutExpired):
            return None

    def why(self):
        lines = [line for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        return lines[-1][-300:] if lines else "it was ended before it was ready"

    def end(self):
        if self.child.poll() is None:
            end_group(self.child)
        self.child.wait()


def measure_group(session, results, group, share):
    """All of them load and compile at the same time, and are then measured one after the other."""
    running = []
    try:
        for number, (what, command) in enumerate(group):
            running.append(Peer(what, command, session.work / f"peer{number}.log"))
        late = Timer(min(READY, session.budget.left(share)), lambda: [peer.end() for peer in running if not peer.ready])
        late.start()
        with ThreadPoolExecutor(len(running)) as pool:
            list(pool.map(Peer.get_ready, running))
        late.cancel()
        for peer in running:
            if peer.ready and session.budget.left(share) <= 0:
                results.add("time", None, "no time left", **peer.what)
                continue
            row = peer.measure() if peer.ready else None
            results.add("time", True if row else None, f"{row['ms']:.4g} ms" if row else peer.why(), **peer.what, **(row or {}))
    finally:
        for peer in running:
            peer.end()


def measure_pytorch(session, results, share):
    todo, size = list(peers(session)), max(1, min(8, len(os.sched_getaffinity(0))))
    while todo:
        group, todo = todo[:size], todo[size:]
        if session.budget.left(share) > 15:  # less than PyTorch takes to begin
            measure_group(session, results, group, share)
        else:
            for what, _ in group:
                results.add("time", None, "no time left", **what)
