"""Square products beside PyTorch's, the first experiment of every tutorial: milliseconds and GFLOP/s."""

import re
import sys
from functools import partial
from pathlib import Path

from limit import limits
from turns import last_json, take_turns

HERE = Path(__file__).resolve().parent
SIZES = (512, 1024, 2048, 4096)
BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}  # of an element
PRECISIONS = tuple(BYTES)


def measure(args, size, precision, rates):
    """The JSON objects of one product, mpc's first; it carries what was left out, and why."""
    commands = [("mpc", [args.mpc.parent / "library-bench", "--product", precision, size, args.seconds])]
    if re.search(args.peers, "pytorch mm"):
        commands.append(("pytorch mm", [sys.executable, HERE / "peer_torch_mm.py", size, "--precision", precision, "--seconds", args.seconds]))
    systems = [(label, partial(last_json, command, args.limit)) for label, command in commands]
    rows, left_out = take_turns(f"{size}³ {precision}", systems, args.repeat)
    common = {"model": f"matmul_{size}", "product": size, "batch": 1, "precision": precision}
    limit = limits([(3 * BYTES[precision] * size**2, 2 * size**3)], rates, precision)
    rows = [{**common, **row, "gflops": 2e-6 * size**3 / row["ms"], **limit, "machine": args.machine} for row in rows]
    rows[0]["left_out"] = left_out
    return rows


def print_row(rows):
    mpc, *others = rows
    theirs = f"torch.mm {others[0]['ms']:9.4g} ms {others[0]['gflops']:7.1f} GFLOP/s {mpc['ms'] / others[0]['ms']:5.2f}" if others else "no peer"
    print(f"{mpc['product']:5}³ {mpc['precision']:4} {mpc['ms']:9.4g} ms {mpc['gflops']:7.1f} GFLOP/s | {theirs} | {mpc['config']}", flush=True)
