"""Square products beside PyTorch's, the first experiment of every tutorial: milliseconds and GFLOP/s."""

import re
import sys
from functools import partial
from pathlib import Path

from turns import last_json, take_turns

HERE = Path(__file__).resolve().parent
SIZES = (512, 1024, 2048, 4096)
PRECISIONS = ("fp32", "bf16", "fp16")


def measure(args, size, precision):
    """The JSON objects of one product, mpc's first; it carries what was left out, and why."""
    commands = [("mpc", [args.mpc.parent / "library-bench", "--product", precision, size, args.seconds])]
    if re.search(args.peers, "pytorch mm"):
        commands.append(("pytorch mm", [sys.executable, HERE / "peer_torch_mm.py", size, "--precision", precision, "--seconds", args.seconds]))
    systems = [(label, partial(last_json, command, args.limit)) for label, command in commands]
    rows, left_out = take_turns(f"{size}³ {precision}", systems, args.repeat)
    rows = [{"product": size, "precision": precision, **row, "gflops": 2e-6 * size**3 / row["ms"], "machine": args.machine} for row in rows]
    rows[0]["left_out"] = left_out
    return rows


def print_row(rows):
    mpc, *others = rows
    theirs = f"torch.mm {others[0]['ms']:9.4g} ms {others[0]['gflops']:7.1f} GFLOP/s {mpc['ms'] / others[0]['ms']:5.2f}" if others else "no peer"
    print(f"{mpc['product']:5}³ {mpc['precision']:4} {mpc['ms']:9.4g} ms {mpc['gflops']:7.1f} GFLOP/s | {theirs} | {mpc['config']}", flush=True)
