"""A run that is split, stopped or killed continues bit for bit; damaged checkpoints are recognized.

    test_resume.py --build BUILD [--only REGEX] [-v]
"""

import json
import random
import re
import shutil
import signal
import subprocess
import time

import numpy as np

from support import (DATA, PLAIN, SGD, Run, Skipped, checkpoint_contents, main, model_of, node, require, require_close, require_match, require_refusal,
                     require_same_bits)

CASES = DATA / "cases"
TIMING = ("step_ms", "samples_per_s", "seconds", "peak_memory_bytes")


def losses_and_all(run):
    """The step lines without what the clock decides."""
    return [{k: v for k, v in e.items() if k not in TIMING} for e in run.events()]


def require_same_run(split, whole, what):
    require(losses_and_all(split) == losses_and_all(whole), f"{what}: the metrics differ: {losses_and_all(split)[-2:]} and {losses_and_all(whole)[-2:]}")
    require_same_bits(split.weights(), whole.weights(), f"{what}: exported model")
    (tensors, state), (want, want_state) = checkpoint_contents(split.newest()), checkpoint_contents(whole.newest())
    require_same_bits(tensors, want, f"{what}: checkpoint")
    require(state == want_state, f"{what}: state {state} and {want_state}")


def state_of(checkpoint):
    return json.loads(checkpoint_contents(checkpoint)[1]["state"])


def resume(trainer, run, data, *options, expect=0):
    done = trainer.run("train", "--data", data, "--out", run.out, "--metrics", run.metrics, "--resume", *options)
    require(done.code == expect, f"train --resume: exit {done.code}: {done.err[-400:]}")
    return done


def overflow_run(bench, trainer):
    case = CASES / "B40"
    return trainer.data({"x": case / "x_x.npy"}, case / "t.npy"), ["--steps", 40, "--lr", 0.01, "--seed", 3, "--growth-interval", 4]


def test_resume_with_overflows(bench):
    """B40: 40 steps = 20 + resume + 20 in fp16 with skipped steps: weights, scale, counters and order."""
    trainer = bench.compile(CASES / "B40/model.onnx", "--loss=mse", "--optimizer=adam", "--precision=fp16", "--batch=8")
    data, options = overflow_run(bench, trainer)
    whole = trainer.train(data, *options)
    require(any(whole.values("skipped")), "no step was skipped: the case shows nothing")
    split = trainer.train(data, *options, "--stop-after", 20)
    require(len(split.events()) == 20, f"{len(split.events())} steps before the stop")
    resume(trainer, split, data)
    require_same_run(split, whole, "20 + 20")


def dropout_norm_trainer(bench, optimizer="adam", precision="fp32"):
    return bench.compile(CASES / "B44/model.onnx", "--loss=cross-entropy", f"--optimizer={optimizer}", f"--precision={precision}", "--batch=8")


def dropout_norm_data(trainer):
    return trainer.data({"x": CASES / "B44/x_x.npy"}, CASES / "B44/t.npy")


DROPOUT_NORM = ["--epochs", 4, "--lr", 0.01, "--schedule", "step", "--step-size", 5, "--gamma", 0.5, "--seed", 3]


def test_resume_in_mid_epoch(bench):
    """B44: BatchNormalization, dropout, shuffling, a smaller last batch: split after step 9 of 28, in the middle of epoch 2,
    and again at an epoch's end (step 14) and at the first step. Dropout masks and orders continue."""
    for precision in ("fp32", "fp16"):
        trainer = dropout_norm_trainer(bench, precision=precision)
        data = dropout_norm_data(trainer)
        whole = trainer.train(data, *DROPOUT_NORM)
        require(len(whole.events()) == 28, f"{len(whole.events())} steps, want 4 · 7")
        for stops in ([9], [14], [1, 8, 3]):
            split = trainer.train(data, *DROPOUT_NORM, "--stop-after", stops[0])
            for stop in stops[1:]:
                resume(trainer, split, data, "--stop-after", stop)
            resume(trainer, split, data)
            require_same_run(split, whole, f"{precision}, stops {stops}")


def test_resume_with_accumulation(bench):
    trainer = dropout_norm_trainer(bench, "sgd")
    data, options = dropout_norm_data(trainer), ["--epochs", 4, "--lr", 0.05, "--momentum", 0.9, "--accumulate", 3, "--seed", 5, "--clip-norm", 1]
    whole = trainer.train(data, *options)
    split = trainer.train(data, *options, "--stop-after", 4)
    resume(trainer, split, data)
    require_same_run(split, whole, "accumulation")


def test_threads_change_no_bit(bench):
    """The same bits for any number of threads, also across a resume."""
    trainer = dropout_norm_trainer(bench)
    data = dropout_norm_data(trainer)
    whole = trainer.train(data, *DROPOUT_NORM, "--threads", 1)
    split = trainer.train(data, *DROPOUT_NORM, "--threads", 2, "--stop-after", 9)
    resume(trainer, split, data, "--threads", 3)
    require_same_run(split, whole, "threads")


def test_signals_stop_cleanly(bench):
    """SIGINT and SIGTERM: the step is finished, a checkpoint written, exit code 130 or 143; then it continues."""
    trainer = dropout_norm_trainer(bench)
    data, options = dropout_norm_data(trainer), ["--epochs", 3000, "--lr", 0.001, "--seed", 3]
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        out = bench.fresh("run")
        metrics = f"{out}.jsonl"
        process = start_training(trainer, data, options, out, metrics)
        wait_for_steps(process, 100, metrics)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
        require(process.returncode == code, f"exit {process.returncode}, want {code}: {err[-300:]}")
        run = Run(trainer, out, bench.path(metrics), None)
        steps = run.values("step")
        require(steps == list(range(1, len(steps) + 1)) and len(steps) < 21000, f"{len(steps)} steps")
        require(run.newest().name == f"step-{steps[-1]:08d}.safetensors", f"newest {run.newest().name} after step {steps[-1]}")
        resume(trainer, run, data, "--stop-after", 5)
        require(len(run.events()) == len(steps) + 5, "the run did not continue")


def test_signal_ends_a_validation(bench):
    """A signal does not wait for a long validation; the resumed run makes up for it and is the same as an undisturbed one."""
    trainer = dropout_norm_trainer(bench)
    data, options = dropout_norm_data(trainer), ["--epochs", 6, "--lr", 0.01, "--seed", 3]
    x, t = np.load(CASES / "B44/x_x.npy"), np.load(CASES / "B44/t.npy")
    valid = trainer.data({"x": np.tile(x, (8000, 1))}, np.tile(t, [8000] + [1] * (t.ndim - 1)))
    whole = trainer.train(data, *options, "--valid", valid)
    for attempt in range(10):
        out = bench.fresh("run")
        metrics = f"{out}.jsonl"
        process = start_training(trainer, data, [*options, "--valid", valid], out, metrics)
        wait_for_steps(process, 15, metrics)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
        require(process.returncode == 143, f"exit {process.returncode}, want 143: {err[-300:]}")
        run = Run(trainer, out, bench.path(metrics), None)
        if state_of(run.newest())["validation_due"]:
            break
    else:
        require(False, "no signal fell into a validation, which takes nearly all of the time")
    resume(trainer, run, data, "--valid", valid)
    require_same_run(run, whole, "resumed")
    evaluations = [[{k: v for k, v in e.items() if k not in TIMING} for e in r.events("eval")] for r in (run, whole)]
    require(evaluations[0] == evaluations[1], f"validations {evaluations[0]} and {evaluations[1]}")


def start_training(trainer, data, options, out, metrics):
    command = trainer.command("train", "--data", data, "--out", out, "--metrics", metrics, *options)
    return subprocess.Popen(command, cwd=trainer.bench.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def wait_for_steps(process, count, metrics):
    """Until the metrics, which are flushed about every second, show that many steps."""
    end = time.time() + 60
    while time.time() < end and process.poll() is None:
        try:
            if sum(1 for _ in open(metrics)) >= count:
                return
        except FileNotFoundError:
            pass
        time.sleep(0.05)
    require(process.poll() is None, f"ended by itself: exit {process.returncode}")
    require(False, "no step in 60 s")


def wide_model(width=600):
    """Two layers whose checkpoint (weights and two moments) takes megabytes."""
    made = np.random.default_rng(0)
    weights = {"W1": made.standard_normal((64, width)).astype(np.float32) / 8, "W2": made.standard_normal((width, width)).astype(np.float32) / 32,
               "W3": made.standard_normal((width, 3)).astype(np.float32) / 32}
    return model_of([node("MatMul", "x W1", "a"), node("Relu", "a", "b"), node("MatMul", "b W2", "c"), node("MatMul", "c W3", "y")],
                    {"x": ["N", 64]}, {"y": ["N", 3]}, weights)


def test_kill_during_checkpoints(bench):
    """B50: kill -9 at random times while a checkpoint is written every step. Each time the newest checkpoint is whole, at
    most one temporary file is left and the next run removes it; at the end the run is the uninterrupted one's."""
    trainer = bench.compile(wide_model(), "--loss=cross-entropy", "--optimizer=adam", "--precision=fp32", "--batch=4")
    made, chance = np.random.default_rng(1), random.Random(7)
    x, t = made.standard_normal((32, 64)).astype(np.float32), made.integers(0, 3, 32)
    data, options = trainer.data({"x": x}, t), ["--steps", 40, "--lr", 1e-3, "--seed", 1, "--checkpoint-every", 1, "--keep", 2]
    whole = trainer.train(data, *options)
    out = bench.fresh("run")
    metrics, kills = f"{out}.jsonl", 0
    for attempt in range(8):
        more = ["--resume"] if list(out.glob("step-*")) else ["--overwrite"]
        process = start_training(trainer, data, options + more, out, metrics)
        end = time.time() + 30
        before = len(list(out.glob("step-*"))) and max(out.glob("step-*")).name
        while process.poll() is None and time.time() < end:  # at least one new checkpoint, so that every attempt moves on
            found = sorted(out.glob("step-*"))
            if found and found[-1].name != before:
                break
            time.sleep(0.002)
        time.sleep(chance.uniform(0, 0.03))
        if process.poll() is None:
            process.kill()
            kills += 1
        _, err = process.communicate(timeout=60)
        require("damaged" not in err, f"a checkpoint was damaged: {err[-300:]}")
        files = sorted(f.name for f in out.iterdir())
        odd = [f for f in files if not f.startswith("step-") and f != ".mpc-lock"]
        require(len(odd) <= 1, f"left over: {odd}")
        trainer.must("export", "--checkpoint", max(out.glob("step-*")), "-o", bench.path("whole.onnx"))
    require(kills >= 4, f"only {kills} runs were killed")
    run = Run(trainer, out, bench.path(metrics), None)
    resume(trainer, run, data, "--checkpoint-every", 1, "--keep", 2)
    files = sorted(f.name for f in out.iterdir())
    require(files == ["step-00000039.safetensors", "step-00000040.safetensors"], f"files: {files}")
    require_same_run(run, whole, "after the kills")


def damaged_copy(file, out, how):
    """The folder with its newest checkpoint cut, or with a byte of it flipped."""
    shutil.copytree(file.parent, out)
    data = bytearray(file.read_bytes())
    if how == "cut":
        data = data[:len(data) // 2]
    elif how == "empty":
        data = bytearray()
    elif how == "header":
        data[20] ^= 1
    elif how == "state":
        place = data.find(b'loss_scale')
        require(place > 0, "no state in the checkpoint")
        data[place] ^= 1
    else:
        data[-5] ^= 4
    (out / file.name).write_bytes(bytes(data))


def test_damaged_checkpoints(bench):
    """B50: a checkpoint that was cut or has a flipped bit is recognized: --resume takes the one before and says so,
    --checkpoint FILE is refused, --checkpoint DIR takes the one before."""
    trainer = dropout_norm_trainer(bench)
    data = dropout_norm_data(trainer)
    whole = trainer.train(data, *DROPOUT_NORM)
    split = trainer.train(data, *DROPOUT_NORM, "--stop-after", 9, "--checkpoint-every", 4)
    for how in ("cut", "empty", "header", "state", "data"):
        out = bench.path(f"damaged-{how}")
        damaged_copy(split.newest(), out, how)
        bad = out / split.newest().name
        require_refusal(trainer.run("export", "--checkpoint", bad, "-o", bench.path("no.onnx")), split.newest().name, f"{how}: export")
        require(not bench.path("no.onnx").exists(), "a model was written")
        trainer.must("export", "--checkpoint", out, "-o", bench.path(f"{how}.onnx"))
        metrics = bench.path(f"{how}.jsonl")
        shutil.copy(split.metrics, metrics)
        run = Run(trainer, out, metrics, None)
        done = resume(trainer, run, data)
        require_match("step-00000009.*step-00000008", done.err, f"{how}: the warning")
        require_same_run(run, whole, how)


def test_no_whole_checkpoint(bench):
    """A folder in which every checkpoint is damaged is refused, and all of them are named."""
    trainer = dropout_norm_trainer(bench)
    data = dropout_norm_data(trainer)
    run = trainer.train(data, "--steps", 2, "--lr", 0.01, "--checkpoint-every", 1)
    for file in run.out.glob("step-*"):
        file.write_bytes(file.read_bytes()[:100])
    done = trainer.run("train", "--data", data, "--out", run.out, "--resume")
    require_refusal(done, ["step-00000001", "step-00000002"], "train --resume")


def test_what_a_resume_may_not_change(bench):
    """Hyperparameters, seed, batch, data and program are those of the checkpoint: another value is refused by name."""
    trainer = dropout_norm_trainer(bench)
    data = dropout_norm_data(trainer)
    run = trainer.train(data, *DROPOUT_NORM, "--stop-after", 3)
    for option, value in (("--lr", 0.02), ("--seed", 4), ("--beta2", 0.99), ("--schedule", "cosine"), ("--step-size", 6), ("--accumulate", 2), ("--clip-norm", 3)):
        done = trainer.run("train", "--data", data, "--out", run.out, "--resume", option, value)
        require_refusal(done, option.strip("-"), option)
    fewer = trainer.data({"x": np.load(CASES / "B44/x_x.npy")[:40]}, np.load(CASES / "B44/t.npy")[:40])
    require_refusal(trainer.run("train", "--data", fewer, "--out", run.out, "--resume"), ["40", "50"], "fewer samples")
    other = dropout_norm_trainer(bench, "adamw")
    require_refusal(other.run("train", "--data", data, "--out", run.out, "--resume"), ["adamw", "adam"], "another optimizer")
    # The same value again is no difference.
    resume(trainer, run, data, "--lr", 0.01, "--seed", 3)


def test_a_folder_with_checkpoints_is_not_overwritten(bench):
    trainer = dropout_norm_trainer(bench)
    data = dropout_norm_data(trainer)
    run = trainer.train(data, "--steps", 3, "--lr", 0.01)
    before = run.newest().read_bytes()
    done = trainer.run("train", "--data", data, "--out", run.out, "--steps", 2, "--lr", 0.01)
    require_refusal(done, ["--resume", "--overwrite"], "train")
    require(run.newest().read_bytes() == before, "the checkpoint was changed")
    trainer.must("train", "--data", data, "--out", run.out, "--steps", 2, "--lr", 0.01, "--overwrite")
    require([f.name for f in run.out.iterdir()] == ["step-00000002.safetensors"], f"{list(run.out.iterdir())}")


def test_metrics_that_cannot_be_written(bench):
    """Weights survive a metrics file on a full disk; checkpoints to be overwritten survive one that cannot be made."""
    trainer = dropout_norm_trainer(bench)
    data = dropout_norm_data(trainer)
    whole = trainer.train(data, *DROPOUT_NORM)
    run = Run(trainer, bench.path("full"), bench.path("full.jsonl"), None)
    done = trainer.run("train", "--data", data, "--out", run.out, "--metrics", "/dev/full", *DROPOUT_NORM)
    require_refusal(done, ["/dev/full", "No space left", "checkpoint"], "train")
    resume(trainer, run, data)
    require_same_bits(run.weights(), whole.weights(), "resumed")
    before = whole.newest().read_bytes()
    bad = bench.path("none") / "m.jsonl"
    done = trainer.run("train", "--data", data, "--out", whole.out, "--overwrite", "--metrics", bad, *DROPOUT_NORM)
    require_refusal(done, "m.jsonl", "--overwrite")
    require(whole.newest().read_bytes() == before, "the checkpoint is gone")


def test_metrics_into_a_pipe(bench):
    """A resumed run appends to a pipe; it does not read from it."""
    trainer = dropout_norm_trainer(bench)
    data = dropout_norm_data(trainer)
    run = trainer.train(data, *DROPOUT_NORM, "--stop-after", 3)
    done = trainer.must("train", "--data", data, "--out", run.out, "--resume", "--stop-after", 2, "--metrics", "/dev/stdout", timeout=60)
    steps = [json.loads(line)["step"] for line in done.out.splitlines() if line.startswith('{"event":"step"')]
    require(steps == [4, 5], f"steps {steps} in {done.out}")


def test_one_trainer_per_folder(bench):
    """Two trainers on one --out would write over each other's files: the second one is refused."""
    trainer = dropout_norm_trainer(bench)
    data = dropout_norm_data(trainer)
    out = bench.fresh("run")
    process = start_training(trainer, data, ["--epochs", 100000, "--lr", 1e-4, "--seed", 3], out, f"{out}.jsonl")
    try:
        wait_for_steps(process, 10, f"{out}.jsonl")
        for more in ("--resume", "--overwrite"):
            done = trainer.run("train", "--data", data, "--out", out, *(DROPOUT_NORM if more == "--overwrite" else ()), more)
            require_refusal(done, "another trainer", more)
        require(process.poll() is None, "the first one ended")
    finally:
        process.kill()
        process.communicate()
    trainer.must("train", "--data", data, "--out", out, "--resume", "--stop-after", 1)


def test_a_checkpoint_with_more_parameters(bench):
    """Trained values that a program does not train would be lost without a word."""
    weights = {"w": np.ones((4, 2), np.float32), "b": np.zeros(2, np.float32)}
    model = model_of([node("MatMul", "x w", "a"), node("Add", "a b", "y")], {"x": ["N", 4]}, {"y": ["N", 2]}, weights)
    full, frozen = (bench.compile(model, *SGD, "--precision=fp32", "--batch=2", *more) for more in ((), ("--freeze=^b$",)))
    data = full.data({"x": np.ones((4, 4), np.float32)}, np.ones((4, 2), np.float32))
    run = full.train(data, "--steps", 2, "--lr", 0.1, *PLAIN)
    require_refusal(frozen.run("eval", "--data", data, "--checkpoint", run.newest()), ["'b'", "frozen"], "eval")
    require_refusal(frozen.run("train", "--data", data, "--out", run.out, "--resume", "--steps", 4), ["'b'", "frozen"], "--resume")


def test_metrics_over_the_data(bench):
    trainer = dropout_norm_trainer(bench)
    file = bench.fresh("x").with_suffix(".npy")
    np.save(file, np.load(CASES / "B44/x_x.npy"))
    data = f"npy:x={file},labels={CASES}/B44/t.npy"
    before = file.read_bytes()
    require_refusal(trainer.run("train", "--data", data, "--out", bench.path("o"), "--metrics", file, *DROPOUT_NORM), [file.name, "data"], "train")
    require(file.read_bytes() == before, "the data were overwritten")


def test_file_size_limit(bench):
    """`ulimit -f`: a message and exit 1, nothing half-written under a name."""
    trainer = bench.compile(wide_model(), "--loss=cross-entropy", "--optimizer=adam", "--precision=fp32", "--batch=4")
    made = np.random.default_rng(1)
    data = trainer.data({"x": made.standard_normal((32, 64)).astype(np.float32)}, made.integers(0, 3, 32))
    out = bench.path("limited")
    command = [str(c) for c in trainer.command("train", "--data", data, "--out", out, "--steps", 2, "--lr", 1e-3)]
    done = subprocess.run(["bash", "-c", 'ulimit -f 100; exec "$@"', "bash", *command], cwd=bench.folder, capture_output=True, text=True)
    require(done.returncode == 1 and "File too large" in done.stderr, f"exit {done.returncode}: {done.stderr[-300:]}")
    require(not list(out.iterdir()), f"files: {list(out.iterdir())}")


def test_last_validation_is_in_the_checkpoint(bench):
    """Also where the last epoch is not finished and the last step has a checkpoint of its own: best.safetensors stays the best."""
    trainer = dropout_norm_trainer(bench)
    data = dropout_norm_data(trainer)
    run = trainer.train(data, "--steps", 10, "--lr", 0.01, "--checkpoint-every", 5, "--valid", data)
    best = min(e["loss"] for e in run.events("eval"))
    require(run.events("eval")[-1]["step"] == 10, f"validations {run.events('eval')}")
    saved = state_of(run.newest())["best_loss"]
    require(saved == best, f"best loss {saved}, want {best}")
    # In several calls, the last of which asks for just the steps that are left.
    out, common = bench.path("split"), ("--data", data, "--steps", 10, "--lr", 0.01, "--valid", data)
    for more in (["--stop-after", 4], ["--resume", "--stop-after", 6]):
        metrics = bench.path("split.jsonl")
        trainer.must("train", *common, "--out", out, "--metrics", metrics, *more)
    split = [json.loads(line) for line in open(metrics)]
    losses = [e["loss"] for e in split if e["event"] == "eval"]
    require(losses == [e["loss"] for e in run.events("eval")], f"validations {losses}, want those of one call")
    saved = state_of(max(out.glob("step-*.safetensors")))["best_loss"]
    require(saved == best, f"best loss {saved}, want {best}")


def test_kept_checkpoints(bench):
    """--keep N newest, best.safetensors by validation loss, one per epoch by default."""
    trainer = dropout_norm_trainer(bench)
    data = dropout_norm_data(trainer)
    run = trainer.train(data, *DROPOUT_NORM, "--valid", data)
    require(sorted(f.name for f in run.out.iterdir()) == ["best.safetensors", "step-00000014.safetensors", "step-00000021.safetensors", "step-00000028.safetensors"],
            f"{sorted(run.out.iterdir())}")
    evaluations = run.events("eval")
    require(len(evaluations) == 4, f"{len(evaluations)} evaluations")
    best = min(e["loss"] for e in evaluations)
    done = trainer.must("eval", "--data", data, "--checkpoint", run.out / "best.safetensors")
    require_match(r"\d", done.out, "eval")
    printed = float(re.search(r"loss\D*([0-9.eE+-]+)", done.out).group(1))
    require_close(printed, best, 1e-5, "loss of the best checkpoint")


def test_schedules(bench):
    """B52: one sample, one step per epoch: W after each step tells every learning rate. The first update uses lr(0)."""
    info = {"step": ["--schedule", "step", "--step-size", 2, "--gamma", 0.5], "warmup": ["--warmup", 4],
            "cosine": ["--schedule", "cosine"], "linear": ["--schedule", "linear", "--final-lr", 0.02],
            "both": ["--schedule", "cosine", "--warmup", 3, "--final-lr", 0.01]}
    rates = {"step": lambda k: 0.1 * 0.5 ** (k // 2), "warmup": lambda k: 0.1 * min(1, (k + 1) / 4),
             "cosine": lambda k: 0.1 * (1 + np.cos(np.pi * k / 8)) / 2, "linear": lambda k: 0.1 + (0.02 - 0.1) * k / 8,
             "both": lambda k: (0.01 + (0.1 - 0.01) * (1 + np.cos(np.pi * k / 8)) / 2) * min(1, (k + 1) / 3)}
    precision, tolerance = ("fp32", 1e-6) if bench.target == "cuda" else ("fp64", 1e-12)
    trainer = bench.compile(CASES / "B52/model.onnx", *SGD, f"--precision={precision}", "--batch=1", "--train=^W$")
    data = trainer.data({"x": CASES / "B52/x_x.npy"}, CASES / "B52/t.npy")
    for name, options in info.items():
        want, w = [], 1.0
        for k in range(8):
            w -= rates[name](k) * 2 * w
            want.append(w)
        options = ["--epochs", 8, "--lr", 0.1, *PLAIN, *options]
        whole = trainer.train(data, *options, "--checkpoint-every", 1, "--keep", 8)
        got = [checkpoint_contents(f)[0]["weight/W"].ravel()[0] for f in sorted(whole.out.glob("step-*"))]
        require_close(got, want, tolerance, f"{name}: W after each step")
        require_close(whole.values("lr"), [rates[name](k) for k in range(8)], 1e-12, f"{name}: lr in the metrics")
        split = trainer.train(data, *options, "--stop-after", 3)
        resume(trainer, split, data)
        require_close(checkpoint_contents(split.newest())[0]["weight/W"], [want[-1]], tolerance, f"{name}: after a resume at step 3")


def test_memory_does_not_grow(bench):
    """B55: 20000 steps with checkpoints and a smaller last batch need what 1000 steps need."""
    trainer = dropout_norm_trainer(bench)
    peaks = []
    for steps in (1000, 20000):
        run = trainer.train(dropout_norm_data(trainer), "--steps", steps, "--lr", 1e-3, "--checkpoint-every", 1000)
        peaks.append(run.events("end")[-1]["peak_memory_bytes"])
    require(peaks[1] < peaks[0] * 1.01 + (1 << 20), f"peak memory {peaks[0]} after 1000 steps, {peaks[1]} after 20000")


def test_data_that_shrinks(bench):
    """A mapped file that another program cuts: a message and exit 1, and the checkpoints stay."""
    trainer = dropout_norm_trainer(bench)
    x, t = np.load(CASES / "B44/x_x.npy"), np.load(CASES / "B44/t.npy")
    data = trainer.data({"x": np.tile(x, (4000, 1))}, np.tile(t, [4000] + [1] * (t.ndim - 1)))
    file = max(bench.folder.glob("*.npy"), key=lambda f: f.stat().st_size)
    out = bench.fresh("run")
    process = start_training(trainer, data, ["--epochs", 100000, "--lr", 1e-4, "--checkpoint-every", 50], out, f"{out}.jsonl")
    wait_for_steps(process, 60, f"{out}.jsonl")
    with open(file, "r+b") as cut:
        cut.truncate(200)
    _, err = process.communicate(timeout=60)
    require(process.returncode == 1 and "became shorter" in err, f"exit {process.returncode}: {err[-300:]}")
    trainer.must("export", "--checkpoint", out, "-o", bench.path("whole.onnx"))


def test_full_disk(bench):
    """A disk that fills up: exit 1 with the reason, the checkpoint before is kept, nothing half-written stays."""
    disk = bench.path("disk")
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        raise Skipped("no right to mount a small file system")
    try:
        trainer = bench.compile(wide_model(), "--loss=cross-entropy", "--optimizer=adam", "--precision=fp32", "--batch=4")
        made = np.random.default_rng(1)
        data = trainer.data({"x": made.standard_normal((32, 64)).astype(np.float32)}, made.integers(0, 3, 32))
        options = ["--steps", 6, "--lr", 1e-3, "--checkpoint-every", 1, "--keep", 6]
        done = trainer.run("train", "--data", data, "--out", disk / "run", *options)
        require_refusal(done, "No space left", "train")
        files = sorted(f.name for f in (disk / "run").iterdir())
        require(files and all(f.startswith("step-") for f in files), f"files: {files}")
        trainer.must("export", "--checkpoint", disk / "run", "-o", bench.path("whole.onnx"))
        filler = disk / "filler"
        try:
            filler.write_bytes(bytes(24 << 20))
        except OSError:
            pass
        for command in (["export", "-o", disk / "m.onnx"], ["predict", "--input", f"x={bench.save('x.npy', np.zeros((4000, 64), np.float32))}", "-o", disk / "o.npy"]):
            require_refusal(trainer.run(*command), "No space left", command[0])
        require_refusal(bench.run_mpc(wide_model(64), "--batch=4", output=disk / "trainer"), "No space left", "mpc")
        left = {f.name for f in disk.iterdir()} - {"run", "filler"}
        require(not left, f"left over: {left}")
    finally:
        subprocess.run(["umount", "-l", str(disk)], capture_output=True)


if __name__ == "__main__":
    main(__doc__)
