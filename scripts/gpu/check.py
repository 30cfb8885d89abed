"""Checks and measures mpc's programs on a GPU: what gpu-prepare.sh made, the most telling first.

    check.py PREPARED [--out DIR] [--seconds 480] [--device N|sim]

Every result is a line of OUT/gpu-NAME-DATE.jsonl at once; the end makes .json and .md of them, also where the time
runs out. The exit code is 0 only if something was checked and nothing failed.
"""

import argparse
import os
import re
import signal
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import machine  # noqa: E402
import times  # noqa: E402
import tools  # noqa: E402
from arrays import Malformed  # noqa: E402
from correctness import check_all  # noqa: E402
from results import Results  # noqa: E402
from session import Budget, Problem, Session, Stopped  # noqa: E402

ROOT = HERE.parent.parent
# The share of the time at which a phase ends; one that ends early leaves its time to the next.
CHECKED, TIMED, COMPARED, SANITIZED, PROFILED = 0.4, 0.55, 0.8, 0.92, 0.98


def stem_of(facts, out):
    name = "simulator" if facts["simulated"] else re.sub(r"[^a-z0-9]+", "-", facts["GPU"].lower()).strip("-")
    return out / f"gpu-{name}-{facts['date']}"


def run_phases(session, results, args):
    with ThreadPoolExecutor(args.jobs) as pool, ThreadPoolExecutor(1) as aside:
        torch = aside.submit(machine.torch_facts) if not session.simulated else None
        try:
            ends = check_all(session, results, pool, CHECKED)
            torch = torch.result() if torch else None
        except Stopped:
            session.stop()
            raise
    if ends:
        results.facts["the trainer says"] = next(iter(ends.values()))["device"]
    results.write()
    times.measure_mpc(session, results, ends, TIMED)
    results.write()
    if session.simulated:
        return
    if torch:
        results.facts["PyTorch"] = f"{torch[0]}, CUDA {torch[1]}, {torch[2] or 'sees no GPU'}"
    if torch and torch[2]:
        times.measure_pytorch(session, results, COMPARED)
    else:
        results.add("time", None, "PyTorch sees no GPU" if torch else "PyTorch is not there", system="PyTorch")
    results.write()
    tools.sanitize(session, results, SANITIZED)
    tools.profile(session, results, ends, PROFILED)


def stop(number, frame):
    raise Stopped(f"stopped by {signal.Signals(number).name}")


def check(args):
    session = Session(args.prepared, args.device)
    try:
        session.budget = Budget(args.seconds)
        try:
            facts = machine.facts(args.device)
        except OSError as why:
            raise Problem(f"{why}: gpu-check.sh needs an NVIDIA GPU and its driver; --device sim rehearses without") from None
        session.unpack()
        facts.update({"programs for": session.manifest["architecture"], "compiler": session.manifest["compiler"]})
        results = Results(stem_of(facts, args.out), facts)
        try:
            run_phases(session, results, args)
        except Stopped as why:
            results.add("everything else", None, str(why))
        except Exception:  # a fault of a check is one more result, and no reason to lose the others
            results.add("gpu-check.sh itself", False, traceback.format_exc(limit=-3).strip().replace("\n", " / "))
        facts["seconds"] = f"{args.seconds - session.budget.left():.0f} of {args.seconds:g}"
        results.finish()
    finally:
        session.close()
    print(f"{results.markdown}\n{results.summary()}")
    return 0 if results.count("passed") and not results.count("failed") else 1


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], prog="gpu-check.sh")
    add = parser.add_argument
    add("prepared", metavar="PREPARED", type=Path, help="the folder that gpu-prepare.sh made")
    add("--out", type=Path, metavar="DIR", help="where the results go (bench/results; the simulator's must be elsewhere)")
    add("--seconds", type=float, default=480, metavar="N", help="of everything together (480)")
    add("--device", default="0", metavar="N|sim", help="which GPU, or sim: a rehearsal on the simulator (0)")
    add("--jobs", type=int, default=min(4, len(os.sched_getaffinity(0))), metavar="N",
        help="checks at the same time; times are taken alone (the cores, at most 4)")
    args = parser.parse_args()
    if not re.fullmatch(r"\d+|sim", args.device):
        parser.error(f"--device {args.device}: a number or sim")
    if args.device == "sim" and (args.out is None or args.out.resolve() == ROOT / "bench" / "results"):
        parser.error("--device sim: --out must name a folder; bench/results is for what a GPU did")
    args.out = (args.out or ROOT / "bench" / "results").resolve()
    args.prepared = args.prepared.resolve()
    return args


if __name__ == "__main__":
    arguments = options()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    try:
        sys.exit(check(arguments))
    except (Problem, Malformed, Stopped) as problem:
        sys.exit(f"error: {problem}")
