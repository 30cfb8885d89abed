"""NVIDIA's tools over a few steps: compute-sanitizer's checks, and where nsys and ncu say the time goes."""

import csv
import io
import re
from pathlib import Path

from machine import tool
from session import dataset, execute, last_words

STEPS = 3
FOUND = 9  # compute-sanitizer's exit code where it found something
CHECKS = ("memcheck", "racecheck", "initcheck", "synccheck")
LIMIT, LEAST = 90, 15  # seconds of one run, and how many must be left to begin it
MOST_KERNELS = 12
NCU_METRICS = {"gpu__time_duration.sum": "time", "sm__throughput.avg.pct_of_peak_sustained_elapsed": "SM %",
               "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": "memory %"}


def chosen(manifest):
    """Small programs that have every kind of kernel between them, in the precisions that differ most."""
    own = {(m["name"], p["precision"]): (m, p) for m in manifest["models"] for p in m["programs"] if p["batch"] == m["batch"]}
    wanted = [("mlp_ln", "fp16"), ("fashion_cnn", "fp16"), ("bert_tiny", "bf16"), ("gpt_tiny", "fp16"), ("mlp_dropout", "bf16"), ("linear", "fp32")]
    return [own[key] for key in wanted if key in own] or list(own.values())[:1]


def train_command(session, model, program):
    return session.command(model, program, "train", "--data", dataset(session.folder(model), model), *program["options"], *program["loss_scale"],
                           "--no-shuffle", "--steps", STEPS, "--log-every", 0)


def about(model, program, name):
    return {"model": model["name"], "precision": program["precision"], "batch": program["batch"], "tool": name}


# ---------------------------------------------------------------- compute-sanitizer


def sanitize(session, results, share):
    program_file = tool("compute-sanitizer")
    if not program_file:
        results.add("sanitizer", None, "compute-sanitizer is not there")
        return
    for check in CHECKS:
        for model, program in chosen(session.manifest):
            what, limit = about(model, program, check), min(LIMIT, session.budget.left(share))
            if limit < LEAST:
                results.add("sanitizer", None, "no time left", **what)
                continue
            # Generated kernels: what NVIDIA's libraries do is theirs.
            done = execute([program_file, "--tool", check, "--error-exitcode", FOUND, *train_command(session, model, program)], limit,
                           session.environment("generated"))
            summary = re.findall(r"(?:ERROR|RACECHECK) SUMMARY: .*", done.out)
            if done.code not in (0, FOUND) or not summary:
                results.add("sanitizer", None, f"it did not run: {last_words(done)}", **what)
                continue
            said = [line.strip("= ") for line in done.out.splitlines() if line.startswith("=========") and line.strip("= ")]
            results.add("sanitizer", done.code == 0, summary[-1] if done.code == 0 else " / ".join([summary[-1], *said[1:9]]), **what)


# ---------------------------------------------------------------- profilers


def number(text):
    return float(text.replace(",", ""))


def csv_rows(text, first_column):
    """The table that begins with the line of column names, as dictionaries; what comes before it is left out."""
    at = re.search(rf'^"?{re.escape(first_column)}"?,', text, re.M)
    return list(csv.DictReader(io.StringIO(text[at.start():]))) if at else []


def nsys_kernels(text):
    """Of nsys's sums over all launches of a kernel."""
    rows = csv_rows(text, "Time (%)")
    return [{"kernel": row["Name"], "%": row["Time (%)"], "launches": row["Instances"], "µs": f"{number(row['Avg (ns)']) / 1e3:.2f}"}
            for row in rows[:MOST_KERNELS]]


def ncu_kernels(text):
    """Of one line per launch, in nanoseconds, and one of units below the head: the dearest kernels, the mean of their launches."""
    launches = {}
    for row in csv_rows(text, "ID"):
        if not row["ID"].isdigit():
            continue
        launches.setdefault(row["Kernel Name"], []).append([number(row[metric]) for metric in NCU_METRICS])
    total = sum(values[0] for many in launches.values() for values in many) or 1
    dearest = sorted(launches.items(), key=lambda item: -sum(values[0] for values in item[1]))
    kernels = []
    for name, many in dearest[:MOST_KERNELS]:
        time, *percent = (sum(column) / len(many) for column in zip(*many))
        kernels.append({"kernel": name, "%": f"{100 * time * len(many) / total:.1f}", "launches": len(many), "µs": f"{time / 1e3:.2f}",
                        **{label: f"{value:.0f}" for label, value in zip(list(NCU_METRICS.values())[1:], percent)}})
    return kernels


def run_nsys(program_file, command, environment, limit, folder):
    report = folder / "profile"
    done = execute([program_file, "profile", "--trace=cuda", "--cuda-graph-trace=node", "--sample=none", "--cpuctxsw=none", "--force-overwrite=true",
                    "-o", report, *command], limit, environment)
    if done.code:
        return [], last_words(done)
    done = execute([program_file, "stats", "--report", "cuda_gpu_kern_sum", "--format", "csv", "--force-export=true", Path(f"{report}.nsys-rep")], limit)
    return (nsys_kernels(done.out), "") if done.code == 0 else ([], last_words(done))


def run_ncu(program_file, command, environment, limit, folder):
    done = execute([program_file, "--clock-control", "none", "--graph-profiling", "node", "--csv", "--page", "raw", "--print-units", "base",
                    "--metrics", ",".join(NCU_METRICS), "--launch-count", "400", *command], limit, environment)
    return (ncu_kernels(done.out), "") if done.code == 0 else ([], last_words(done))


def profile(session, results, ends, share):
    wanted = [("resnet18_cifar", "bf16"), ("gpt_tiny", "bf16"), ("bert_tiny", "bf16"), ("mlp_ln", "fp16")]
    own = {(m["name"], p["precision"]): (m, p) for m in session.manifest["models"] for p in m["programs"] if p["batch"] == m["batch"]}
    programs = [own[key] for key in wanted if key in own]
    for name, run in (("ncu", run_ncu), ("nsys", run_nsys)):
        program_file = tool(name)
        if not program_file:
            results.add("profile", None, f"{name} is not there")
            continue
        for model, program in programs:
            products = "library" if (program["program"], "library") in ends else "generated"
            what, limit = {**about(model, program, name), "products": products}, min(LIMIT, session.budget.left(share))
            if limit < LEAST:
                results.add("profile", None, "no time left", **what)
                continue
            try:
                kernels, why = run(program_file, train_command(session, model, program), session.environment(products), limit, session.work)
            except (AttributeError, KeyError, TypeError, ValueError) as problem:
                kernels, why = [], f"its output is not as expected: {problem!r}"
            results.add("profile", True if kernels else None, why or ("" if kernels else "it named no kernel"), **what, kernels=kernels)
