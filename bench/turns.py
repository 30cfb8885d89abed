"""Measurements that take turns: each is a process of its own, and the least of all turns counts."""

import json
import os
import signal
import subprocess


class Failed(Exception):
    """A measurement that was not to be had; the message says why in one sentence."""


def last_json(command, limit):
    """The last line of a program's output that is a JSON object. After `limit` seconds it is ended with all its children."""
    child = subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
                             start_new_session=True)
    try:
        out, err = child.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        raise Failed(f"stopped after {limit:g} s") from None
    lines = [line for line in out.splitlines() if line.startswith("{")]
    if child.returncode or not lines:
        raise Failed((err.strip().splitlines() or [f"exit code {child.returncode}"])[-1][:160])
    return json.loads(lines[-1])


def better(old, new):
    return {**new, **{key: min(old[key], new[key]) for key in ("ms", "peak_bytes") if key in new}} if old else new


def take_turns(what, systems, repeat):
    """(rows, {label: why it was left out}) of `systems`, a list of (label, function that measures once).

    The first system is mpc: there is no comparison without it, so where it fails, this fails.
    """
    results, left_out = {}, {}
    for _ in range(repeat):
        for index, (label, measure) in enumerate(systems):
            if label in left_out:
                continue
            try:
                results[label] = better(results.get(label), measure())
            except Failed as problem:
                if index == 0:
                    raise
                left_out[label] = str(problem)
                print(f"# {what}: {label} is left out: {problem}", flush=True)
    return list(results.values()), left_out
