"""Runs every test of the project and adds up the results.

    run_all.py --build BUILD [--only gtest,lit,e2e]

GoogleTest programs are those that BUILD/test/programs.txt lists, by CMake: one that is missing has failed. lit tests
are the .mlir and .test files of this folder, end-to-end tests the test_*.py files of e2e/. The last line is
'N passed, N failed, N skipped'; the exit code is 0 only if something passed and nothing failed.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent


class Totals:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def add(self, what, passed, failed, skipped, seconds):
        self.passed, self.failed, self.skipped = self.passed + passed, self.failed + failed, self.skipped + skipped
        print(f"--- {what}: {passed} passed, {failed} failed, {skipped} skipped in {seconds:.0f} s", flush=True)


def show_end(text, lines=60):
    print("\n".join(text.splitlines()[-lines:]), flush=True)


def test_programs(build):
    """The names of the GoogleTest programs that this build has; none if it was not configured."""
    try:
        return (build / "test" / "programs.txt").read_text().split()
    except OSError as problem:
        print(problem)
        return []


def run_gtest(totals, build, name, label="", **environment):
    program, report, start = build / "bin" / name, build / "test" / f"{name}.json", time.time()
    report.unlink(missing_ok=True)
    try:
        done = subprocess.run([program, f"--gtest_output=json:{report}"], capture_output=True, text=True, errors="replace",
                              env={**os.environ, **environment}, cwd=report.parent)
    except OSError as problem:  # it was not built
        print(problem)
        totals.add(name + label, 0, 1, 0, 0)
        return
    try:
        result = json.loads(report.read_text())
    except (OSError, ValueError):  # it died before its report
        show_end(done.stdout + done.stderr)
        totals.add(name + label, 0, 1, 0, time.time() - start)
        return
    tests = [t for suite in result["testsuites"] for t in suite["testsuite"]]
    failed = sum("failures" in t for t in tests)
    skipped = sum(t.get("result") == "SKIPPED" or t.get("status") == "NOTRUN" for t in tests)
    if failed or done.returncode or not tests:
        show_end(done.stdout + done.stderr)
    passed = len(tests) - failed - skipped
    totals.add(name + label, passed, max(failed, int(done.returncode != 0 or not tests)), skipped, time.time() - start)


def run_all_gtest(totals, build):
    names = test_programs(build)
    if not names:
        totals.add("GoogleTest: no program is known", 0, 1, 0, 0)
        return
    for name in names:
        run_gtest(totals, build, name)
    # The library's ways again as on a CPU with AVX2 only.
    run_gtest(totals, build, "runtime-tests", " (AVX2)", ONEDNN_MAX_CPU_ISA="AVX2")


def run_lit(totals, build, python):
    report, start = build / "test" / "lit.json", time.time()
    report.parent.mkdir(exist_ok=True)
    report.unlink(missing_ok=True)
    done = subprocess.run(["/usr/lib/llvm-22/bin/lit", "-v", f"-j{os.cpu_count()}", "-o", report, f"--param=build={build}",
                           f"--param=python={python}", HERE], capture_output=True, text=True, errors="replace")
    try:
        codes = [t["code"] for t in json.loads(report.read_text())["tests"]]
    except (OSError, ValueError):
        codes = ["FAIL"]
    failed = sum(c in ("FAIL", "UNRESOLVED", "TIMEOUT", "XPASS") for c in codes)
    passed = sum(c in ("PASS", "XFAIL", "FLAKYPASS") for c in codes)
    if failed or done.returncode:
        show_end(done.stdout + done.stderr, 400)
        failed = max(failed, 1)
    totals.add("lit", passed, failed, len(codes) - passed - failed if len(codes) > passed + failed else 0, time.time() - start)


# These run again with trainers for GPUs, on the simulator: the script, and which of its tests.
SIMULATED = {"test_scaling.py": ".", "test_resume.py": "^(resume|threads|signals|kill|damaged|kept|schedules)"}


def run_e2e(totals, build, python):
    scripts = [(script, []) for script in sorted((HERE / "e2e").glob("test_*.py"))]
    scripts += [(HERE / "e2e" / name, ["--target", "cuda", "--only", only]) for name, only in SIMULATED.items()]
    for script, options in scripts:
        start = time.time()
        done = subprocess.run([python, script, "--build", build, *options], capture_output=True, text=True, errors="replace")
        words = done.stdout.strip().splitlines()[-1].replace(",", "").split() if done.stdout.strip() else []
        try:
            passed, failed = int(words[words.index("passed") - 1]), int(words[words.index("failed") - 1])
            skipped = int(words[words.index("skipped") - 1]) if "skipped" in words else 0
        except (ValueError, IndexError):
            passed, failed, skipped = 0, 1, 0
        if failed or done.returncode:
            show_end(done.stdout + done.stderr, 80)
            failed = max(failed, 1)
        totals.add(" ".join([script.name, *options]), passed, failed, skipped, time.time() - start)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--only", default="gtest,lit,e2e")
    args = parser.parse_args()
    build, parts, totals = args.build.resolve(), args.only.split(","), Totals()
    if "gtest" in parts:
        run_all_gtest(totals, build)
    if "lit" in parts:
        run_lit(totals, build, sys.executable)
    if "e2e" in parts:
        run_e2e(totals, build, sys.executable)
    print(f"{totals.passed} passed, {totals.failed} failed, {totals.skipped} skipped")
    sys.exit(totals.failed > 0 or totals.passed == 0)


if __name__ == "__main__":
    main()
