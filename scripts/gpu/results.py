"""What was found, on disk at once: a line of JSON per result, and from all of them one JSON and one Markdown file.

A result is {"check", "model", "precision", "products", "result": passed, failed or skipped, "detail", …}; the times and
profiles have more fields. `products` tells who executes matrix products and convolutions: library (cuBLASLt and cuDNN, as far as they
are there), cublaslt (the products alone, where both are there) or generated (neither).
"""

import json

LONGEST = 800  # characters of a detail


class Results:
    def __init__(self, stem, facts):
        self.lines, self.json, self.markdown = (stem.with_name(stem.name + end) for end in (".jsonl", ".json", ".md"))
        self.facts, self.rows = facts, []
        stem.parent.mkdir(parents=True, exist_ok=True)
        self.lines.write_text(json.dumps({"machine": facts}) + "\n")

    def add(self, check, result, detail="", **more):
        """Appends a result; `result` is True, False or None for what was skipped."""
        detail = detail if len(detail) <= LONGEST else detail[:LONGEST] + "…"
        row = {"check": check, **more, "result": {True: "passed", False: "failed", None: "skipped"}[result], "detail": detail}
        self.rows.append(row)
        with self.lines.open("a") as file:
            file.write(json.dumps(row) + "\n")
        what = " ".join(str(more[key]) for key in ("model", "precision", "products", "system") if key in more)
        print(f"{row['result']:8}{check} {what}{': ' if detail else ''}{detail}", flush=True)
        return row

    def count(self, result):
        return sum(row["result"] == result for row in self.rows)

    def of(self, check, result=None):
        return [row for row in self.rows if row["check"] == check and result in (None, row["result"])]

    def summary(self):
        return ", ".join(f"{self.count(result)} {result}" for result in ("passed", "failed", "skipped"))

    def write(self):
        self.json.write_text(json.dumps({"machine": self.facts, "results": self.rows}, indent=1) + "\n")
        self.markdown.write_text(markdown(self))

    def finish(self):
        self.write()
        self.lines.unlink()


# ---------------------------------------------------------------- Markdown

CHECKS = ("training", "gradients", "outputs", "overflow", "resumed", "memory")


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(str(cell).replace("|", "/") for cell in row) + " |" for row in rows]) + "\n"


def cell(row):
    if row is None:
        return "–"
    if row["result"] != "passed":
        return "**failed**" if row["result"] == "failed" else "skipped"
    return f"ok {row['share']:.2f}" if "share" in row else "ok"


def case(row):
    return row["model"], row["precision"], row["products"]


def check_table(results):
    cases = {}
    for row in results.rows:
        if row["check"] in CHECKS and "model" in row:
            cases.setdefault(case(row), {})[row["check"]] = row
    rows = []
    for key, found in cases.items():
        memory = found.get("memory", {}).get("device_bytes")
        rows.append([*key, *(cell(found.get(check)) for check in CHECKS[:-1]), f"{memory / 2**20:.1f}" if memory else "–"])
    return table(["model", "precision", "products by", *CHECKS[:-1], "GPU MiB"], rows)


def number(value):
    return "–" if value is None else f"{value:.4g}"


def time_table(results):
    """A row per model, precision and batch: mpc's programs, and PyTorch's configurations beside them."""
    rows = {}
    for row in results.of("time", "passed"):
        rows.setdefault((row["model"], row["precision"], row["batch"]), {})[row["system"]] = row
    systems = sorted({system for found in rows.values() for system in found}, key=lambda name: (not name.startswith("mpc"), name))
    compared = any(not system.startswith("mpc") for system in systems)
    head = ["model (batch)", "precision", *(f"{system} ms (median)" for system in systems), *(["mpc ÷ best PyTorch"] if compared else []),
            *(f"{system} MiB" for system in systems)]
    lines = []
    for (model, precision, batch), found in rows.items():
        ours = min((r["ms"] for s, r in found.items() if s.startswith("mpc")), default=None)
        theirs = min((r["ms"] for s, r in found.items() if not s.startswith("mpc")), default=None)
        ratio = [f"{ours / theirs:.2f}" if ours and theirs else "–"] if compared else []
        times = [f"{number(found[s]['ms'])} ({number(found[s]['median_ms'])})" if s in found else "–" for s in systems]
        memory = [f"{found[s]['device_bytes'] / 2**20:.0f}" if s in found and found[s].get("device_bytes") else "–" for s in systems]
        lines.append([f"{model} ({batch})", precision, *times, *ratio, *memory])
    return table(head, lines)


def profile_part(row):
    head = list(row["kernels"][0]) if row["kernels"] else []
    return (f"### {row['tool']}: {row['model']} {row['precision']}, {row['products']} products\n\n"
            + table(head, [[kernel[key] for key in head] for kernel in row["kernels"]]))


def facts_part(facts):
    return "".join(f"- {key}: {value}\n" for key, value in facts.items() if value and key != "simulated")


def details(rows):
    return "".join(f"- {row['check']}{''.join(' ' + str(row[key]) for key in ('model', 'precision', 'products', 'system', 'tool') if key in row)}: "
                   f"{row['detail'].strip() or row['result']}\n" for row in rows)


def markdown(results):
    facts = results.facts
    parts = [f"# mpc on {facts['GPU']}, {facts['date']}\n"]
    if facts["simulated"]:
        parts.append("**A rehearsal on the simulator: no GPU has run anything of this, and the times mean nothing.**\n")
    parts.append(f"`scripts/gpu-check.sh`: {results.summary()}. docs/cuda.md tells what the checks are.\n")
    parts.append("## Machine\n\n" + facts_part(facts))
    if failed := [row for row in results.rows if row["result"] == "failed"]:
        parts.append("## Failed\n\n" + details(failed))
    parts.append("## Checks\n\nThe number is the largest error as a share of what is allowed: twice the CPU's own distance from fp64, and a little.\n\n"
                 + check_table(results))
    if results.of("time", "passed"):
        parts.append("## Step times\n\nMilliseconds per training step: least, and median. mpc's steps copy their batch from the host, PyTorch's have it on "
                     "the GPU. Memory is what the program has allocated on the GPU; PyTorch's what its allocator had reserved at most.\n\n"
                     + time_table(results))
    if sanitized := results.of("sanitizer", "passed"):
        parts.append("## compute-sanitizer\n\n" + details(sanitized))
    if profiles := results.of("profile", "passed"):
        parts.append("## Where the time goes\n\n" + "\n".join(map(profile_part, profiles)))
    if skipped := [row for row in results.rows if row["result"] == "skipped"]:
        parts.append("## Skipped\n\n" + details(skipped))
    return "\n".join(parts)
