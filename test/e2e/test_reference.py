"""mpc against PyTorch's values for five models, two exports each, in every precision.

    test_reference.py --build BUILD [--reference DIR] [--only REGEX] [-v]

The values are in test/data/reference; scripts/check-reference.sh makes those of all models anew and passes their
folder as --reference. What is compared, and how closely, is in reference.py.
"""

import argparse
import sys
from pathlib import Path

from reference import PRECISIONS, Reference, check
from support import DATA, main

FORMS = ("legacy-train", "dynamo-raw")


def test_of(folder, form, precision, verbose):
    def test(bench):
        figures = check(bench, Reference(folder), form, precision)
        if verbose:
            print(f"{folder.name} {form} {precision}: {figures}", flush=True)

    return test


def main_with_folder():
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--reference", type=Path, default=DATA / "reference")
    parser.add_argument("--precisions", default=",".join(PRECISIONS))
    own, rest = parser.parse_known_args()
    sys.argv[1:] = rest
    tests = {}
    for folder in sorted(f.parent for f in own.reference.glob("*/reference.json")):
        for form in FORMS:
            for precision in own.precisions.split(","):
                if (folder / f"{form}.onnx").exists():
                    tests[f"{folder.name} {form} {precision}"] = test_of(folder, form, precision, "-v" in rest)
    main(__doc__, tests)


if __name__ == "__main__":
    main_with_folder()
