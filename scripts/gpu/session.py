"""What the checks share: the prepared folder, a place to work, programs with a time limit, and the time that is left."""

import json
import os
import re
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
from collections import namedtuple
from pathlib import Path

from arrays import with_seeded
from machine import glibc_version

Done = namedtuple("Done", "code out err")
LATE = 124  # the exit code of a program that was ended


class Problem(Exception):
    """Why nothing can be checked; the message says what to do."""


class Stopped(Exception):
    """SIGINT or SIGTERM: what is known is written, and nothing else begun."""


class Budget:
    """The time that all checks together may take. A phase ends at a share of it, so that later ones get theirs."""

    def __init__(self, seconds):
        self.end, self.seconds = time.monotonic() + seconds, seconds

    def left(self, share=1.0):
        return self.end - self.seconds * (1 - share) - time.monotonic()


running = set()  # children of execute()


def execute(command, limit, env=None):
    """A finished program; after `limit` seconds it is ended with its children."""
    child = subprocess.Popen([str(c) for c in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env,
                             universal_newlines=True, errors="replace", start_new_session=True)
    running.add(child)
    try:
        out, err = child.communicate(timeout=max(limit, 0.1))
        return Done(child.returncode, out, err)
    except subprocess.TimeoutExpired:
        end_group(child)
        out, err = child.communicate()
        return Done(LATE, out, f"{err}\nended after {limit:.0f} s")
    except BaseException:
        end_group(child)
        raise
    finally:
        running.discard(child)


def end_group(child):
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def last_words(done):
    """Why a program failed, in one line: its error message, else the last line."""
    lines = [line.strip() for line in (done.err or done.out).splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"\berror\b", line, re.I)]
    return (errors or lines or [f"exit code {done.code}"])[-1][-400:]


# ---------------------------------------------------------------- the prepared folder


def read_manifest(folder):
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
    except (OSError, ValueError) as why:
        raise Problem(f"{folder} is no folder of gpu-prepare.sh: manifest.json: {why}") from None
    if manifest.get("version") != 1:
        raise Problem(f"{folder} was made by another version of gpu-prepare.sh: make it again")
    for name, size in manifest["files"].items():
        try:
            there = (folder / name).stat().st_size
        except OSError:
            raise Problem(f"{folder} lacks {name}: copy the whole folder") from None
        if there != size:
            raise Problem(f"{folder / name} has {there} bytes, it was made with {size}: copy the folder again")
    return manifest


def version_numbers(text):
    return tuple(int(n) for n in text.split("."))


class Session:
    def __init__(self, prepared, device):
        self.prepared, self.device, self.manifest = prepared, device, read_manifest(prepared)
        self.simulated = device == "sim"
        if self.simulated and not self.manifest["simulated"]:
            raise Problem(f"--device sim: {prepared} was made without --simulate")
        here = glibc_version()
        if here and version_numbers(here) < version_numbers(self.manifest["glibc"]):
            raise Problem(f"the programs in {prepared} need glibc {self.manifest['glibc']}, this machine has {here}: prepare the folder on an older system")
        self.work = Path(tempfile.mkdtemp(prefix="mpc-gpu-check-"))

    def unpack(self):
        with tarfile.open(self.prepared / "programs.tar.xz", "r:xz") as archive:
            archive.extractall(self.work / "programs", **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
        for model in self.manifest["models"]:
            rest = (self.prepared / model["name"] / "weights.part").read_bytes()
            with self.weights(model).open("wb") as file:
                file.writelines(with_seeded(rest, model["seeded"]))

    def stop(self):
        """Ends what runs in other threads, and leaves no time for more."""
        self.budget.end = time.monotonic() - self.budget.seconds
        for child in list(running):
            end_group(child)

    def close(self):
        shutil.rmtree(self.work, ignore_errors=True)

    def folder(self, model):
        return self.prepared / model["name"]

    def weights(self, model):
        return self.work / f"{model['name']}.safetensors"

    def trainer(self, program):
        return self.work / "programs" / program["program"]

    def environment(self, products):
        """Of a trainer whose products and convolutions are done by whom `products` says (results.py)."""
        # The trainer sets this one itself, and starts itself again for it: not under a tool that follows one process.
        environment = {"GOMP_SPINCOUNT": "5000", **os.environ}
        without = {"cublaslt": ["MPC_CUDA_DNN"], "generated": ["MPC_CUDA_DNN", "MPC_CUDA_BLAS"]}.get(products, [])
        return {**environment, **{name: "0" for name in without}}

    def command(self, model, program, command, *options):
        """A trainer's command; it starts from the model's initial weights, or from where it is to resume."""
        start = [] if "--resume" in options else ["--checkpoint", self.weights(model)]
        return [self.trainer(program), command, *start, *options, "--device", self.device]

    def run(self, model, program, products, limit, command, *options):
        return execute(self.command(model, program, command, *options), limit, self.environment(products))

    def failure(self, done, share=1.0):
        """(result, detail) of a program that did not end well: skipped where only the time of its phase ran out."""
        if done.code in (LATE, -signal.SIGKILL) and self.budget.left(share) <= 0:
            return None, "no time left"
        return False, last_words(done)

    def first_batch(self, model):
        return [word for name, file in model["inputs"].items() for word in ("--input", f"{name}={self.folder(model) / file}.first.npy")]


def dataset(folder, model):
    return "npy:" + ",".join([*(f"{name}={folder / file}.npy" for name, file in model["inputs"].items()), f"labels={folder / 'labels.npy'}"])


def events(metrics, kind):
    lines = map(json.loads, metrics.read_text().splitlines()) if metrics.exists() else []
    return [event for event in lines if event["event"] == kind]
