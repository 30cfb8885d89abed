"""Times torch.mm of two square matrices; one JSON line on stdout.

    peer_torch_mm.py SIZE --precision bf16 [--seconds 10]
"""

import argparse
import os

import torch
from timing import report

TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("size", type=int)
    parser.add_argument("--precision", default="fp32", choices=TYPES)
    parser.add_argument("--seconds", type=float, default=10)
    args = parser.parse_args()
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    a, b = (torch.rand(args.size, args.size).to(TYPES[args.precision]) for _ in range(2))
    c = torch.empty_like(a)
    report(lambda: torch.mm(a, b, out=c), args.seconds, least=2, system="pytorch", config="mm", version=torch.__version__)


if __name__ == "__main__":
    main()
