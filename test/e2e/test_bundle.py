"""A bundle is complete: it runs where nothing but glibc is, without /proc, under other names of its folder."""

import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
from support import Skipped, Workbench, execute, main, model_of, node, require, require_success

TRAIN = ["train", "--data", "npy:x=x.npy,labels=labels.npy", "--steps", "6", "--lr", "0.01", "--threads", "2", "--out", "run"]


def perceptron():
    rng = np.random.default_rng(0)
    weights = {"weight1": (4, 64), "bias1": (64,), "weight2": (64, 3), "bias2": (3,)}
    return model_of([node("Gemm", "x weight1 bias1", "h"), node("Relu", "h", "r"), node("Gemm", "r weight2 bias2", "y")],
                    {"x": ["N", 4]}, {"y": ["N", 3]}, {n: rng.standard_normal(s).astype(np.float32) for n, s in weights.items()},
                    name="perceptron")


def make_bundle(bench, name="program"):
    folder = bench.fresh("a bundle")
    require_success(bench.run_mpc(perceptron(), "--batch=8", f"--bundle={folder}", output=name), "mpc --bundle")
    return folder


def save_data(folder):
    rng = np.random.default_rng(1)
    np.save(folder / "x.npy", rng.standard_normal((20, 4)).astype(np.float32))
    np.save(folder / "labels.npy", rng.integers(0, 3, 20))


def dynamic_section(file):
    return execute(["readelf", "-d", file]).out


def search_path(file):
    found = re.search(r"(?:RUNPATH|RPATH).*\[(.*)\]", dynamic_section(file))
    return found[1].split(":") if found else []


def needed(file):
    return re.findall(r"NEEDED.*\[(.*)\]", dynamic_section(file))


def test_search_paths_name_no_folder_of_the_build(bench: Workbench):
    folder = make_bundle(bench)
    programs = [folder / "program", *(folder / "lib").iterdir()]
    for file in programs:
        for entry in search_path(file):
            require(entry.startswith("$ORIGIN"), f"{file.name} looks for libraries in {entry}")
    text = (folder / "lib" / "program.trainer").read_bytes()
    require(str(bench.build).encode() not in text, "the bundle's trainer names the build folder")


def test_plain_trainer_looks_where_onednn_was(bench: Workbench):
    trainer = bench.compile(perceptron(), "--batch=8")
    require(search_path(trainer.program) == [str(bench.build.resolve() / "lib")], f"search path {search_path(trainer.program)}")


def test_runs_after_a_move_through_links_and_loaders(bench: Workbench):
    folder = make_bundle(bench)
    moved = bench.path("another place, moved")
    shutil.move(folder, moved)
    link = bench.path("link")
    link.symlink_to(moved / "program")
    path = {**os.environ, "PATH": f"{moved}:{os.environ['PATH']}"}
    loader = re.search(r"interpreter: (.*)\]", execute(["readelf", "-l", moved / "program"]).out)[1]
    ways = {"by its path": ([moved / "program"], None), "by a relative path": (["./program"], None), "by a link": ([link], None),
            "found on PATH": (["program"], path), "by the loader": ([loader, moved / "program"], None)}
    for way, (command, environment) in ways.items():
        done = execute([*command, "info"], cwd=moved, env=environment)
        require_success(done, f"a bundle's program, started {way}")
        require("4 with 515 values" in done.out, f"started {way}: {done.out[:400]}")


def test_says_what_is_missing_without_its_libraries(bench: Workbench):
    folder = make_bundle(bench)
    alone = bench.path("alone")
    shutil.copy(folder / "program", alone)
    done = execute([alone, "info"])
    require(done.code == 1 and "whole bundle" in done.err, f"exit {done.code}: {done.err}")


def test_two_programs_share_a_folder(bench: Workbench):
    folder = make_bundle(bench)
    require_success(bench.run_mpc(perceptron(), "--batch=4", f"--bundle={folder}", output="other"), "mpc --bundle")
    for name, batch in (("program", "8"), ("other", "4")):
        out = require_success(execute([folder / name, "info"]), name).out
        require(re.search(rf"batch\s+{batch}\b", out), f"{name}: {out[:300]}")


def fill_root(root, bundle):
    """A root folder with the loader and glibc's libraries alone; no /proc, no /dev, no shell."""
    # Whatever the libraries need and the bundle has not, which must be glibc's.
    files = {bundle / "program", *(bundle / "lib").iterdir()}
    wanted = {name for file in files for name in needed(file)} - {file.name for file in files}
    require(all(re.match(r"(libc|libm|libdl|libpthread|librt|ld-linux-x86-64)\.so", name) for name in wanted),
            f"the bundle lacks a library that is not glibc's: {sorted(wanted)}")
    listed = execute(["ldd", bundle / "lib" / "libdnnl.so.3"]).out
    for name in wanted:
        source = re.search(rf"(/\S*{re.escape(name)}) \(", listed)
        require(source, f"ldd does not say where {name} lies: {listed}")
        target = root / ("lib64" if name.startswith("ld-linux") else "lib/x86_64-linux-gnu") / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source[1], target)
    shutil.copytree(bundle, root / "bundle")


def test_runs_on_glibc_alone_without_proc(bench: Workbench):
    if os.geteuid() != 0:
        raise Skipped("chroot needs root")
    bundle, root = make_bundle(bench), bench.path("root")
    if any("asan" in name for name in needed(bundle / "lib" / "program.trainer")):
        raise Skipped("a build with sanitizers, whose libraries no bundle has")
    fill_root(root, bundle)
    for folder in (root, bench.folder):
        save_data(folder)
    inside = execute(["env", "-i", shutil.which("chroot"), root, "/bundle/program", *TRAIN])
    if inside.code == 125:  # the command's own failure
        raise Skipped(f"root may not change the root folder here: {inside.err.strip()}")
    require_success(inside, "in the chroot")
    outside = execute([bundle / "program", *TRAIN], cwd=bench.folder)
    require_success(outside, "outside")
    name = Path("run") / "step-00000006.safetensors"
    require((root / name).read_bytes() == (bench.folder / name).read_bytes(), "the chroot trains other weights")


def test_signals_leave_nothing(bench: Workbench):
    """mpc that is interrupted removes its temporary folder and ends by the signal, whatever it was doing with the folder."""
    model = bench.path("large.onnx")
    rng = np.random.default_rng(0)
    layers = [node("Gemm", f"h{i} weight{i} bias{i}", f"h{i + 1}") for i in range(12)]
    weights = {f"weight{i}": rng.standard_normal((300, 300)).astype(np.float32) for i in range(12)} | {f"bias{i}": np.zeros(300, np.float32) for i in range(12)}
    model.write_bytes(model_of(layers, {"h0": ["N", 300]}, {"h12": ["N", 300]}, weights).SerializeToString())
    ended_by_signal = 0
    for number, delay in ((signal.SIGINT, 0), (signal.SIGTERM, 0.05), (signal.SIGHUP, 0.3), (signal.SIGINT, 0.6)):
        temporary, there = bench.fresh("temporary"), bench.fresh("folder")
        temporary.mkdir()
        there.mkdir()
        process = subprocess.Popen([bench.mpc, model, "--batch=8", "-o", "program"], cwd=there, env=os.environ | {"TMPDIR": str(temporary)},
                                   stderr=subprocess.DEVNULL, start_new_session=True)
        while process.poll() is None and not any(temporary.glob("mpc*")):
            time.sleep(0.002)
        time.sleep(delay)
        finished = process.poll() is not None
        if not finished:
            os.killpg(process.pid, number)  # as a terminal does: the linker gets it too
        code = process.wait(60)
        require(finished or code in (-number, 0), f"{number} after {delay} s: exit {code}")
        ended_by_signal += code == -number
        left = [f.name for f in temporary.glob("mpc*")]
        require(not left, f"{number} after {delay} s: {left} is left, with {[str(f) for f in temporary.rglob('*')]}")
        require(code == 0 or not list(there.iterdir()), f"{number} after {delay} s: {list(there.iterdir())} is left")
    require(ended_by_signal, "every signal came after the end of mpc: the test shows nothing")


def test_a_bundle_replaces_links(bench: Workbench):
    """A link in a library's place is replaced; the file behind it, perhaps the system's, stays. Nothing is left but the bundle."""
    folder = bench.fresh("a bundle")
    (folder / "lib").mkdir(parents=True)
    precious = bench.path("precious")
    precious.write_text("precious")
    (folder / "lib/libgomp.so.1").symlink_to(precious)
    require_success(bench.run_mpc(perceptron(), "--batch=8", f"--bundle={folder}", output="program"), "mpc --bundle")
    require(precious.read_text() == "precious", "the file behind a link was overwritten")
    require(not (folder / "lib/libgomp.so.1").is_symlink(), "the link is still there")
    parts = [f.name for f in folder.rglob("*.part")]
    require(not parts, f"{parts} is left")


if __name__ == "__main__":
    main(__doc__)
