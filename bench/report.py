"""The tables of bench/results from a run's JSON: report.py RESULTS.json > RESULTS.md"""

import json
import sys
from pathlib import Path


def label(row):
    return f"{row['system']} {row['config']}"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def mebibytes(row):
    return f"{row['peak_bytes'] / 2**20:.0f}"


def by_case(rows, kind):
    """[(mpc's row, its peers' rows)] of the models or the products, in the order of the run. A product's rows have a model's columns, too."""
    cases = {}
    for row in rows:
        if kind == ("product" if "product" in row else "model"):
            cases.setdefault((row[kind], row["precision"]), []).append(row)
    return [(case[0], case[1:]) for case in cases.values()]


def comparison(mpc, peers):
    best = min(peers, key=lambda row: row["ms"], default=None)
    theirs = [f"{best['ms']:.4g}", label(best), f"{mpc['ms'] / best['ms']:.2f}", mebibytes(best)] if best else ["–"] * 4
    return [f"{mpc['model']} ({mpc['batch']})", mpc["precision"], f"{mpc['ms']:.4g}", *theirs[:3], f"{1e3 * mpc['batch'] / mpc['ms']:.0f}",
            mebibytes(mpc), theirs[3], f"{mpc['limit_ms']:.3g} = {mpc['limit_flops_ms']:.3g} + {mpc['limit_bytes_ms']:.3g}"]


def facts(machine):
    rates = machine["rates"]
    flops = ", ".join(f"{precision} {rate / 1e9:.0f}" for precision, rate in rates["flops"].items())
    bandwidth = ", ".join(f"{size / 2**20:g} MiB {rate / 1e9:.0f}" for size, rate in rates["bandwidth"])
    return (f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_bytes'] / 2**30:.0f} GiB; {', '.join(machine['flags'])}. "
            f"Measured in the same run: products in GFLOP/s: {flops}; GB/s by the size of what is read and written: {bandwidth}.")


def steps(cases):
    """The sections of the models' training steps."""
    return [
        "## Training steps\n", "Least milliseconds per training step, peak memory in MiB.\n",
        table(["model (batch)", "precision", "mpc ms", "best peer ms", "peer", "mpc ÷ peer", "mpc samples/s", "mpc MiB", "peer MiB",
               "limit ms = FLOPs + bytes"], [comparison(*case) for case in cases]),
        "### Every peer\n",
        table(["model", "precision", "system", "ms", "MiB"],
              [[row["model"], row["precision"], label(row), f"{row['ms']:.4g}", mebibytes(row)] for mpc, peers in cases for row in (mpc, *peers)]),
    ]


def products(cases):
    """The section of the square products."""
    def numbers(row):
        return [f"{row['ms']:.4g}", f"{row['gflops']:.{0 if row['gflops'] >= 10 else 1}f}"]

    def row(mpc, peers):
        torch = [*numbers(peers[0]), f"{mpc['ms'] / peers[0]['ms']:.2f}"] if peers else ["–"] * 3
        return [f"{mpc['product']}³", mpc["precision"], *numbers(mpc), *torch, mpc["config"]]

    return ["## Square products\n", table(["size", "precision", "mpc ms", "mpc GFLOP/s", "torch.mm ms", "torch.mm GFLOP/s", "mpc ÷ torch.mm",
                                           "mpc's way"], [row(*case) for case in cases])]


def markdown(rows):
    machine, models, squares = rows[0]["machine"], by_case(rows, "model"), by_case(rows, "product")
    versions = sorted({f"{row['system']} {row['version']}" for row in rows if "version" in row})
    parts = [f"# mpc beside its peers, {machine['date']}\n", facts(machine) + "\n",
             f"`scripts/bench.sh`, mpc beside {', '.join(versions) or 'nobody'}. "
             "[../README.md](../README.md) tells what is measured and what the limit is.\n"]
    parts += (steps(models) if models else []) + (products(squares) if squares else [])
    left_out = [f"- {what}, {mpc['precision']}: {peer}: {why}" for cases, name in ((models, "{model}"), (squares, "{product}³"))
                for mpc, _ in cases for what in [name.format(**mpc)] for peer, why in mpc["left_out"].items()]
    if left_out:
        parts += ["## Left out\n", "\n".join(left_out) + "\n"]
    return "\n".join(parts)


if __name__ == "__main__":
    print(markdown(json.loads(Path(sys.argv[1]).read_text())), end="")
