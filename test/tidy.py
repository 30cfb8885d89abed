"""Runs clang-tidy on the project's C++ files, on all cores; fails on a finding.

    tidy.py --build BUILD [-j N] [FOLDER_OR_FILE ...]

Without folders, everything that BUILD's compile_commands.json lists. .clang-tidy in the root says which
checks there are. The commands are GCC's; what clang does not take is left out of them.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TIDY = "clang-tidy-22"


def for_clang(command):
    """GCC's command without warnings, and with the precompiled header read as text."""
    words, result = iter(shlex.split(command)), []
    for word in words:
        if word == "-include":
            next(words)
            result += [word, str(ROOT / "compiler" / "Precompiled.h")]
        elif not word.startswith("-W"):
            result.append(word)
    # OpenMP's header is one of GCC's own, which clang replaces by its own otherwise.
    gcc = subprocess.run([result[0], "-print-file-name=include"], capture_output=True, text=True).stdout.strip()
    return [*result, "-w", "-idirafter", gcc]


def entries(build, wanted):
    """{file: entry of the compilation database} of the project's files below the wanted folders."""
    chosen = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        file = Path(entry["directory"], entry["file"]).resolve()
        ours = file.is_relative_to(ROOT) and not file.is_relative_to(build)
        if ours and file not in chosen and any(file.is_relative_to(folder) for folder in wanted):
            words = for_clang(entry["command"]) if "command" in entry else for_clang(shlex.join(entry["arguments"]))
            chosen[file] = {"directory": entry["directory"], "file": str(file), "arguments": words}
    return chosen


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("-j", type=int, default=len(os.sched_getaffinity(0)), help="at a time")
    parser.add_argument("paths", nargs="*", type=Path, default=[ROOT])
    args = parser.parse_args()
    files = entries(args.build.resolve(), [path.resolve() for path in args.paths])
    if not files:
        sys.exit(f"error: {args.build}/compile_commands.json has no file below {', '.join(map(str, args.paths))}")
    with tempfile.TemporaryDirectory() as database, ThreadPoolExecutor(args.j) as pool:
        (Path(database) / "compile_commands.json").write_text(json.dumps(list(files.values())))

        def tidy(file):
            try:
                return subprocess.run([TIDY, "--quiet", "-p", database, file], capture_output=True, text=True, errors="replace")
            except FileNotFoundError:
                sys.exit(f"error: {TIDY} is not installed (apt-get install {TIDY})")

        failed = 0
        for file, done in zip(files, pool.map(tidy, files)):
            if done.returncode or done.stdout.strip():
                failed += 1
                print(f"{file.relative_to(ROOT)}:\n{done.stdout.strip() or done.stderr.strip()}\n", flush=True)
    print(f"{len(files)} files, {failed} with findings")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
