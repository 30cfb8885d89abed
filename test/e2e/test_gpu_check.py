"""gpu-prepare.sh's folder and gpu-check.sh on it, rehearsed on the simulator; what needs a GPU, PyTorch or NVIDIA's tools, on stand-ins.

    test_gpu_check.py --build BUILD [--only REGEX] [-v]
"""

import atexit
import json
import os
import shutil
import sys
import tempfile
from array import array
from pathlib import Path
from threading import Lock
from types import SimpleNamespace

from support import execute, main, require, require_match, require_refusal, require_success

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts" / "gpu"))

import times  # noqa: E402
import tools  # noqa: E402
from arrays import Array, load_npz, read_checkpoint, save_npz, seeded_floats, with_seeded, without_seeded  # noqa: E402
from compare import array_figures, describe_arrays, distances, sampled, worst  # noqa: E402
from correctness import Case  # noqa: E402
from results import Results  # noqa: E402
from session import Budget, Session, execute as execute_limited  # noqa: E402

FACTS = {"GPU": "a stand-in", "date": "2000-01-01", "simulated": False}
lock, made = Lock(), []


def prepare(bench, target, *options):
    return execute([sys.executable, ROOT / "scripts" / "gpu" / "prepare.py", "--mpc", bench.mpc, target, "--arch", "sm_80", *options], cwd=bench.folder)


def prepared(bench):
    """A copy of the folder of two small models; made once."""
    with lock:
        if not made:
            folder = Path(tempfile.mkdtemp(prefix="mpc-gpu-check-test-"))
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            done = prepare(bench, folder / "prepared", "--only", "linear,mlp_ln", "--precisions", "fp32,fp16", "--simulate", "--no-large", "--steps", 4)
            require_success(done, "gpu-prepare.sh")
            made.append(folder / "prepared")
    copy = bench.fresh("prepared")
    shutil.copytree(made[0], copy)
    return copy


def check(bench, folder, *options):
    out = bench.fresh("out")
    return execute([ROOT / "scripts" / "gpu-check.sh", folder, "--out", out, "--device", "sim", *options], cwd=bench.folder), out


def results_of(out):
    """The JSON and the Markdown; there is nothing else."""
    require(sorted(f.suffix for f in out.iterdir()) == [".json", ".md"], f"{sorted(out.iterdir())}")
    [result], [text] = out.glob("gpu-simulator-*.json"), out.glob("gpu-simulator-*.md")
    return json.loads(result.read_text()), text.read_text()


def only(folder, model):
    """Leaves one model in the folder's manifest."""
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["models"] = [m for m in manifest["models"] if m["name"] == model]
    (folder / "manifest.json").write_text(json.dumps(manifest))


# ---------------------------------------------------------------- the whole


def test_rehearsal(bench):
    done, out = check(bench, prepared(bench))
    require_success(done, "gpu-check.sh")
    result, text = results_of(out)
    rows = result["results"]
    require(all(row["result"] == "passed" for row in rows), f"{[row for row in rows if row['result'] != 'passed']}")
    overflowed = [row["model"] for row in rows if row["check"] == "overflow"]
    require(set(overflowed) == {"linear", "mlp_ln"}, f"overflow of {overflowed}")
    numbers = json.loads((made[0] / "mlp_ln" / "reference.json").read_text())["overflow"]
    require(numbers["skipped"] == [True, False, False], f"the CPU skips {numbers['skipped']}")
    seen = {(row["check"], row["model"], row["precision"]) for row in rows}
    for model in ("linear", "mlp_ln"):
        for precision in ("fp32", "fp16"):
            for what in ("training", "gradients", "outputs", "resumed", "memory", "time"):
                require((what, model, precision) in seen, f"no {what} of {model} in {precision}: {seen}")
    require(all(row["device_bytes"] > 0 for row in rows if row["check"] == "memory"), "no memory")
    require_match("rehearsal on the simulator.*mean nothing.*simulated GPU.*mlp_ln .64.", text, "the page")


def test_a_wrong_number_fails(bench):
    folder = prepared(bench)
    only(folder, "linear")
    file = folder / "linear" / "reference.json"
    numbers = json.loads(file.read_text())
    numbers["trace"]["exact"]["loss"][1] *= 1.01
    numbers["trace"]["fp32"]["loss"][1] *= 1.01  # as if the CPU were right
    file.write_text(json.dumps(numbers))
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["linear/reference.json"] = file.stat().st_size
    (folder / "manifest.json").write_text(json.dumps(manifest))
    done, out = check(bench, folder)
    require(done.code == 1, f"exit {done.code}")
    result, text = results_of(out)
    failed = {(row["check"], row["precision"]) for row in result["results"] if row["result"] == "failed"}
    require(failed >= {("training", "fp32")} and all(what == "training" for what, _ in failed), f"failed: {failed}")
    require_match(r"## Failed.*training linear fp32 generated: loss is off by [\d.e-]+, allowed", text, "the page")


def test_a_damaged_folder_is_refused(bench):
    folder = prepared(bench)
    (folder / "mlp_ln" / "labels.npy").unlink()
    done, out = check(bench, folder)
    require_refusal(done, ["lacks mlp_ln/labels.npy", "whole folder"], "a missing file")
    require(not out.exists(), "results of nothing")
    (folder / "mlp_ln" / "labels.npy").write_bytes(b"short")
    require_refusal(check(bench, folder)[0], "labels.npy has 5 bytes", "a short file")
    require_refusal(check(bench, bench.folder)[0], ["no folder of gpu-prepare.sh", "manifest.json"], "another folder")


def test_no_time(bench):
    """Where nothing could be checked the exit code says so, and the results tell what was left out."""
    done, out = check(bench, prepared(bench), "--seconds", 0)
    require(done.code == 1, f"exit {done.code}")
    result, text = results_of(out)
    require({row["result"] for row in result["results"]} == {"skipped"}, f"{result['results']}")
    require_match("## Skipped.*training mlp_ln fp16.*no time left", text, "the page")


def test_no_gpu(bench):
    """Without a driver, or with one that finds no GPU, there are no results of a GPU; the simulator's driver is such a one here."""
    command = [ROOT / "scripts" / "gpu-check.sh", prepared(bench), "--out", bench.path("out")]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(bench.build / "lib" / "sim"), "MPC_SIM_DEVICES": "0"}
    require_refusal(execute(command, env=environment), ["no GPU 0", "--device sim"], "no GPU")
    require_refusal(execute([*command, "--device", "5"], env={**environment, "MPC_SIM_DEVICES": "1"}), "no GPU 5", "no such GPU")
    require(not bench.path("out").exists(), "results of nothing")
    named = execute([sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT / 'scripts' / 'gpu')!r}); import machine; print(machine.gpu_name('0'))"],
                    env={**environment, "MPC_SIM_DEVICES": "1"})
    require_match("simulated GPU", named.out, "the GPU's name")


def test_wrong_usage(bench):
    require_refusal(execute([ROOT / "scripts" / "gpu-check.sh", bench.folder, "--device", "sim"]), "--out must name a folder", "no --out", code=2)
    require_refusal(execute([ROOT / "scripts" / "gpu-check.sh", bench.folder, "--device", "x"]), "a number or sim", "--device x", code=2)
    target = bench.path("mine")
    target.mkdir()
    (target / "file").write_text("")
    require_refusal(prepare(bench, target), "folder of something else", "a folder with other files", code=2)
    require_refusal(prepare(bench, bench.path("p"), "--only", "nothing"), ["no model nothing", "mlp_ln"], "an unknown model")
    require(not bench.path("p").exists(), "a folder of a failed preparation")


# ---------------------------------------------------------------- the pieces


def test_weights_from_a_seed(bench):
    """What is left of a checkpoint without its large tensors, and these made again, are the checkpoint."""
    whole = (prepared(bench) / "mlp_ln" / "weights.part").read_bytes()
    header, tensors = read_checkpoint(whole)
    seeded = {key: [key, len(tensors[key]) // 4, 0.5] for key in ("weight/fc1.weight", "weight/fc3.weight")}
    rest, pieces = without_seeded(whole, seeded)
    require(len(whole) - len(rest) == sum(4 * count for _, count, _ in seeded.values()), f"{len(rest)} bytes are left of {len(whole)}")
    made_again = b"".join(with_seeded(rest, pieces))
    require(len(made_again) == len(whole), f"{len(made_again)} bytes, not {len(whole)}")
    for key, data in read_checkpoint(made_again)[1].items():
        want = seeded_floats(*seeded[key]).tobytes() if key in seeded else tensors[key]
        require(data == want, f"{key} differs")


def test_what_counts_as_off(bench):
    """A wrong element, a shape, a name and a value that is not finite fail; the CPU's own distance passes, and twice it."""
    exact = {"w": Array((2, 2000), array("d", [1.0] * 4000)), "zero": Array((3,), array("d", [0.0] * 3))}
    save_npz(bench.path("s.npz"), sampled(exact))
    about, samples = describe_arrays(exact), load_npz(bench.path("s.npz"))

    def moved(by, zero=0.0):
        return {"w": Array((2, 2000), array("f", [1.0 + by] * 4000)), "zero": Array((3,), array("f", [zero] * 3))}

    cpu = distances(moved(1e-4), samples, {name: a["norm"] for name, a in about.items()})

    def share(got):
        return worst(array_figures("gradients", got, about, samples, cpu, 1e-5)).share

    require(share(moved(1e-4)) < 1 and share(moved(2e-4)) < 1, "the CPU's own distance is too far")
    require(share(moved(1e-4, 1e-7)) < 1, "a zero that rounding has moved")
    require(share(moved(3e-4)) > 1 and share(moved(0, 1e-4)) > 1, "what is off passes")
    require(share(moved(float("nan"))) > 1 and share({"w": moved(0)["w"]}) > 1, "NaN or a missing array passes")
    require(share({**moved(0), "w": Array((4000,), moved(0)["w"].values)}) > 1, "another shape passes")


def test_a_case_keeps_its_time(bench):
    """A start may take cuDNN minutes; whatever is begun ends with its phase."""
    limits = []
    session = SimpleNamespace(simulated=False, budget=Budget(1000), work=bench.folder, run=lambda *words: limits.append(words[3]))
    for products, share in (("generated", 0.9), ("default", 0.9), ("cublaslt", 0.01)):
        Case(session, None, lock, None, {"name": "m"}, {"program": "m.fp16"}, products, share).run("train")
    require(limits[:2] == [60, 180] and 0 < limits[2] <= 10, f"{limits}")


def stand_in(bench, name, text):
    file = bench.path(name)
    file.write_text(text)
    file.chmod(0o755)
    return file


def test_peers_get_ready_together_and_run_alone(bench):
    program = stand_in(bench, "peer.py", """
import json, sys, time
print("ready", flush=True) if sys.argv[1] != "broken" else sys.exit("no such GPU")
sys.stdin.readline()
begin = time.time(); time.sleep(0.2)
print(json.dumps({"ms": 1.5, "median_ms": 2, "device_bytes": 1 << 20, "begin": begin, "end": time.time()}))
""")
    slow = stand_in(bench, "slow.py", "import time; time.sleep(100)")
    session = SimpleNamespace(work=bench.folder, budget=Budget(6))
    results = Results(bench.path("r"), FACTS)
    group = [({"model": "mlp", "precision": "fp16", "batch": 64, "system": name}, [sys.executable, program, name]) for name in ("a", "b", "broken")]
    times.measure_group(session, results, [*group, ({**group[0][0], "system": "slow"}, [sys.executable, slow])], 0.5)
    rows = {row["system"]: row for row in results.rows}
    require([rows[name]["result"] for name in ("a", "b", "broken", "slow")] == ["skipped"] * 4, f"a time after the phase's end: {rows}")
    session.budget = Budget(60)
    times.measure_group(session, results, group, 1.0)
    rows = {row["system"]: row for row in results.rows}
    require(rows["a"]["result"] == rows["b"]["result"] == "passed" and rows["b"]["begin"] >= rows["a"]["end"], f"not one after the other: {rows}")
    require(rows["broken"]["result"] == "skipped" and "no such GPU" in rows["broken"]["detail"], f"{rows['broken']}")
    results.finish()
    require_match("a ms.*1.5 .2.", bench.path("r.md").read_text(), "the page")


def test_tools(bench):
    """compute-sanitizer's words decide; one that cannot run is skipped."""
    folder = prepared(bench)
    only(folder, "linear")
    session = Session(folder, "sim")
    session.budget = Budget(600)
    session.unpack()
    path = os.environ["PATH"]
    try:
        results = Results(bench.path("r"), FACTS)
        stand_in(bench, "compute-sanitizer", """#!/bin/bash
check=$2; shift 4
case $check in
memcheck) "$@" >/dev/null 2>&1 && echo "========= ERROR SUMMARY: 0 errors" ;;
racecheck) echo "========= COMPUTE-SANITIZER"; echo "========= Error: Race in k3"; echo "========= RACECHECK SUMMARY: 1 hazard displayed"; exit 9 ;;
*) echo "Device not supported" >&2; exit 1 ;;
esac
""")
        os.environ["PATH"] = f"{bench.folder}:{path}"
        tools.sanitize(session, results, 1.0)
    finally:
        os.environ["PATH"] = path
        session.close()
    rows = {row["tool"]: row for row in results.rows}
    found = [rows[name]["result"] for name in ("memcheck", "racecheck", "initcheck", "synccheck")]
    require(found == ["passed", "failed", "skipped", "skipped"], f"{rows}")
    require("Race in k3" in rows["racecheck"]["detail"] and "Device not supported" in rows["initcheck"]["detail"], f"{rows}")


def test_profilers_tables(bench):
    nsys = ('Processing [x.sqlite] with [cuda_gpu_kern_sum.py]...\n\n'
            '"Time (%)","Total Time (ns)","Instances","Avg (ns)","Name"\n"61.5","4000","2","2000.0","k3$partial"\n"38.5","2500","1","2,500.0","k1"\n')
    require(tools.nsys_kernels(nsys)[0] == {"kernel": "k3$partial", "%": "61.5", "launches": "2", "µs": "2.00"}, f"{tools.nsys_kernels(nsys)}")
    ncu = ('==PROF== Connected\n"ID","Kernel Name","gpu__time_duration.sum","sm__throughput.avg.pct_of_peak_sustained_elapsed",'
           '"gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"\n"","","ns","%","%"\n'
           '"0","k1","2,000","10.5","40"\n"1","k2","6000","50","60"\n"2","k1","1000","20.5","60"\n')
    first, second = tools.ncu_kernels(ncu)
    require(first == {"kernel": "k2", "%": "66.7", "launches": 1, "µs": "6.00", "SM %": "50", "memory %": "60"}, f"{first}")
    require(second["launches"] == 2 and second["µs"] == "1.50" and second["memory %"] == "50", f"{second}")


def test_programs_end_in_time(bench):
    done = execute_limited(["sh", "-c", "sleep 100 & sleep 100"], 0.3)
    require(done.code == 124 and "ended after" in done.err, f"{done}")


if __name__ == "__main__":
    main(__doc__)
