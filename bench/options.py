"""The bench's command line. Needs nothing but Python: bench.sh runs this file to look at it before it installs anything."""

import argparse
import re
from pathlib import Path

from products import PRECISIONS, SIZES
from recipes import RECIPES


def choice(known, of=str):
    """Parses a list of what is known; "none" is the empty one."""
    def parse(text):
        chosen = [] if text == "none" else text.split(",")
        if unknown := [name for name in chosen if name not in map(str, known)]:
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; there are {', '.join(map(str, known))}, or none")
        return [of(name) for name in chosen]
    return parse


def positive(of):
    def number(text):  # argparse shows this name where `of` refuses the text
        if not (value := of(text)) > 0:
            raise argparse.ArgumentTypeError(f"{text} is not above 0")
        return value
    return number


def expression(text):
    try:
        re.compile(text)
    except re.error as problem:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression: {problem}") from None
    return text


def output(text):
    if not Path(text).absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {Path(text).parent}")
    return Path(text)


def parse(arguments=None):
    parser = argparse.ArgumentParser(prog="bench.sh", allow_abbrev=False,
                                     description="mpc beside its peers: the fastest training step, peak memory, and the limit; the fastest square products.")
    add = parser.add_argument
    add("--mpc", type=Path, required=True, help=argparse.SUPPRESS)  # the compiler; library-bench lies beside it. bench.sh gives it
    add("--ort", type=Path, help=argparse.SUPPRESS)  # a Python with onnxruntime-training; so is this
    add("--models", type=choice(RECIPES), default=list(RECIPES), help="which models, or none (all)")
    add("--products", type=choice(SIZES, int), default=SIZES, help="which sizes of square products, or none (all)")
    add("--precisions", type=choice(PRECISIONS), help="of both (models: fp32,bf16; products: fp32,bf16,fp16)")
    add("--peers", type=expression, default="", help="regular expression: only these peers (all)")
    add("--seconds", type=positive(float), default=5, help="of one measurement (5)")
    add("--repeat", type=positive(int), default=2, help="turns of every system (2)")
    add("--limit", type=positive(float), default=300, help="seconds that a process may take, compilation included (300)")
    add("--json", type=output, help="all rows as a list of objects")
    add("--markdown", type=output, help="the tables of bench/results")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    parse()
