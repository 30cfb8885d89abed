"""Loss scaling, skipped steps, master weights: what mixed precision adds to a training step.

    test_scaling.py --build BUILD [--only REGEX] [-v]

Numbers in brackets are rows of the numerics table that docs/testing.md refers to: the scaler's trace, the atomic skip,
clipping after unscaling, fp32 master weights.
"""

import numpy as np

from support import (DATA, PLAIN, SGD, checkpoint_contents, main, model_of, node, require, require_close, require_match, require_refusal,
                     require_same_bits, scale_model)

CASES = DATA / "cases"

# y = x · W; x = 60000 · 2 overflows fp16 where a sample says so: the operand of the product is 2x.
OVERFLOW = np.float32(60000)
SMALL = 0.01  # a weight for which the output's gradient, 2y, stays finite at scales up to 2^18


def doubling_model(weight):
    """y = (2x) · W with 2x rounded to half: |x| above 32760 overflows in fp16 whatever the loss scale."""
    return model_of([node("Mul", "x two", "d"), node("MatMul", "d W", "y")], {"x": ["N", 1]}, {"y": ["N", 1]},
                    {"W": np.asarray(weight, np.float32).reshape(1, 1), "two": np.array([2], np.float32)})


def train_fp16(bench, x, options=(), steps=None, expect=0):
    trainer = bench.compile(doubling_model(SMALL), *SGD, "--precision=fp16", "--batch=1", "--train=^W$")
    x = np.asarray(x, np.float32).reshape(-1, 1)
    data = trainer.data({"x": x}, np.zeros_like(x))
    return trainer.train(data, "--steps", steps or len(x), "--lr", 1e-4, *PLAIN[2:], *options, expect=expect)


def test_scale_trace(bench):
    """[51] Three overflows, then clean steps: 65536 → 8192, and twice that on the growth_interval-th clean step."""
    x = [OVERFLOW] * 3 + [0.25] * 2000 + [0.25] * 3
    run = train_fp16(bench, x)
    scale, skipped = run.values("loss_scale"), run.values("skipped")
    require(skipped == [True] * 3 + [False] * 2003, "not exactly the first three steps were skipped")
    # A step's line shows the scale it ran with.
    require(scale[:4] == [65536, 32768, 16384, 8192], f"scales {scale[:5]}")
    require(set(scale[3:2003]) == {8192}, "the scale moved before 2000 clean steps")
    require(scale[2003:] == [16384] * 3, f"after the 2000th clean step: {scale[2002:]}")
    _, state = checkpoint_contents(run.newest())
    require_match("16384", str(state), "the checkpoint")


def test_overflow_just_before_growth(bench):
    """[52] An overflow on the last step of an interval: half the scale, and the interval starts anew."""
    x = [0.25] * 9 + [OVERFLOW] + [0.25] * 11
    run = train_fp16(bench, x, ["--growth-interval", 10])
    scale = run.values("loss_scale")
    require(scale == [65536] * 10 + [32768] * 10 + [65536], f"scales {scale}")


def test_scaling_factors_are_options(bench):
    x = [OVERFLOW, 0.25, 0.25, 0.25, 0.25]
    run = train_fp16(bench, x, ["--loss-scale-init", 1024, "--backoff-factor", 0.25, "--growth-factor", 8, "--growth-interval", 2])
    require(run.values("loss_scale") == [1024, 256, 256, 2048, 2048], f"scales {run.values('loss_scale')}")


def test_scale_never_falls_below_one(bench):
    """[53] 16 halvings from 65536 to 1; then 8 more overflows in a row stop the run, and the message names the tensor."""
    run = train_fp16(bench, [OVERFLOW] * 40, expect=1)
    scale = run.values("loss_scale")
    require(scale[:17] == [2.0**k for k in range(16, -1, -1)], f"scales {scale[:17]}")
    require(min(scale) == 1, f"scale {min(scale)}")
    require(len(scale) == 24, f"stopped after {len(scale)} steps, want 16 + 8")
    require_match(r"overflow", run.done.err, "the message")
    require_match(r"W|Mul|MatMul|loss", run.done.err, "the message")
    require(run.events("end")[-1]["reason"] == "overflow", f"{run.events('end')}")


def test_scale_stays_finite(bench):
    """[54] 2^127 is the last finite power of two in fp32: the scale does not double beyond it."""
    run = train_fp16(bench, [0.0] * 6, ["--loss-scale-init", 2.0**126, "--growth-interval", 1])
    scale = run.values("loss_scale")
    require(scale[:2] == [2.0**126, 2.0**127], f"scales {scale}")
    require(set(scale[1:]) == {2.0**127}, f"scales {scale}")


def test_skip_is_atomic(bench):
    """B31, [56] A skipped step leaves weights, moments, applied steps and schedule as they were, bit for bit."""
    for optimizer in ("sgd", "sgd-nesterov", "adam", "adamw"):
        trainer = bench.compile(doubling_model(SMALL), "--loss=mse", f"--optimizer={optimizer}", "--precision=fp16", "--batch=1", "--train=^W$")
        clean = np.array([[0.5], [0.25], [0.75], [0.125]], np.float32)
        dirty = np.insert(clean, [1, 3], OVERFLOW, axis=0)
        options = ["--lr", 0.01, "--schedule", "step", "--step-size", 2, "--gamma", 0.5, "--no-shuffle", "--loss-scale-init", 1024]
        options += ["--momentum", 0.9] if optimizer.startswith("sgd") else []
        runs = [trainer.train(trainer.data({"x": x}, np.zeros_like(x)), "--epochs", 1, *options) for x in (clean, dirty)]
        require(runs[1].values("skipped") == [False, True, False, False, True, False], f"skipped: {runs[1].values('skipped')}")
        contents = [checkpoint_contents(r.newest())[0] for r in runs]
        require_same_bits(contents[1], contents[0], f"{optimizer}: states")
        lr = [[e["lr"] for e in r.events() if not e["skipped"]] for r in runs]
        require(lr[0] == lr[1], f"{optimizer}: learning rates {lr}")
        scale = runs[1].values("loss_scale")
        require(scale == [1024, 1024, 512, 512, 512, 256], f"{optimizer}: scales {scale}")


def test_skip_keeps_running_statistics(bench):
    """A skipped step does not move BatchNormalization's statistics."""
    weights = {"W": np.ones((2, 2), np.float32), "s": np.ones(2, np.float32), "b": np.zeros(2, np.float32), "mean": np.zeros(2, np.float32),
               "var": np.ones(2, np.float32), "two": np.array([2], np.float32)}
    model = model_of([node("BatchNormalization", "x s b mean var", "n mean_out var_out", training_mode=1), node("Mul", "x two", "d"),
                      node("MatMul", "d W", "m"), node("Add", "n m", "y")], {"x": ["N", 2]}, {"y": ["N", 2]}, weights)
    trainer = bench.compile(model, *SGD, "--precision=fp16", "--batch=2", "--train=^W$")
    clean = np.array([[1, 2], [3, 4], [2, 1], [0, 1]], np.float32)
    dirty = np.concatenate([clean[:2], np.full((2, 2), OVERFLOW), clean[2:]])
    runs = [trainer.train(trainer.data({"x": x}, np.zeros_like(x)), "--epochs", 1, "--lr", 1e-3, *PLAIN, "--loss-scale-init", 16) for x in (clean, dirty)]
    require(runs[1].values("skipped") == [False, True, False], f"{runs[1].values('skipped')}")
    require_same_bits(runs[1].weights(), runs[0].weights(), "exported model")


def test_one_overflow_skips_the_whole_accumulated_step(bench):
    """One micro-batch of four overflows: the step of all four is skipped."""
    x = [0.5, 0.5, OVERFLOW, 0.5, 0.5, 0.5, 0.5, 0.5]
    run = train_fp16(bench, x, ["--accumulate", 4], steps=2)
    require(run.values("skipped") == [True, False], f"{run.values('skipped')}")


def test_clip_after_unscaling(bench):
    """B32 The norm that clipping sees, and reports, is the unscaled one: the same for every loss scale."""
    case, runs = CASES / "B32", []
    for scale in (1, 1024, 32768):
        trainer = bench.compile(case / "model.onnx", *SGD, "--precision=fp16", "--batch=2")
        run = trainer.train(trainer.data({"x": case / "x_x.npy"}, case / "t.npy"), "--steps", 1, "--lr", 0.5, *PLAIN, "--clip-norm", 1, "--loss-scale-init", scale)
        if run.values("skipped") == [False]:
            runs.append(run)
    require(len(runs) >= 2, "scales 1 and 1024 overflowed")
    for run in runs:
        require_close(run.values("grad_norm"), [10.0], 2e-3, "grad_norm")
        require_close(run.weights()["W"], np.load(case / "after_W_clip1.npy"), 2e-3, "W")


def test_small_gradients_need_scaling(bench):
    """[44] The gradients that fp16 stores lie in [2^-28, 2^-25]: without scaling they are zero and nothing is learned."""
    # y = (x·W)·2^-12, t of size 2^-12: the gradient with respect to x·W, stored in half, is about 2^-26.
    random = np.random.default_rng(1)
    x = random.standard_normal((64, 4)).astype(np.float32)
    true = np.array([[1], [-2], [0.5], [3]], np.float32)
    t = (x @ true * 2.0**-12).astype(np.float32)
    model = model_of([node("MatMul", "x W", "h"), node("Tanh", "h", "a"), node("MatMul", "a V", "z"), node("Mul", "z small", "y")],
                     {"x": ["N", 4]}, {"y": ["N", 1]},
                     {"W": (np.eye(4) * 0.1).astype(np.float32), "V": np.full((4, 1), 0.5, np.float32), "small": np.array([2.0**-12], np.float32)})
    moved = {}
    for scaling in ("dynamic", "none"):
        trainer = bench.compile(model, *SGD, "--precision=fp16", "--batch=64", "--train=^W$", f"--loss-scale={scaling}")
        got = trainer.train(trainer.data({"x": x}, t), "--steps", 20, "--lr", 2.0**22, *PLAIN)
        first, last = got.values("loss")[0], got.values("loss")[-1]
        moved[scaling] = (last / first, np.abs(got.weights()["W"] - np.eye(4) * 0.1).max())
    require(moved["dynamic"][0] < 0.7, f"with scaling the loss falls only to {moved['dynamic'][0]:.3f} of the first")
    require(moved["none"][1] < 0.3 * moved["dynamic"][1], f"without scaling W moves too: {moved}")


def test_constant_scale(bench):
    """--loss-scale=NUMBER: fixed; an overflow still skips."""
    trainer = bench.compile(doubling_model(SMALL), *SGD, "--precision=fp16", "--batch=1", "--train=^W$", "--loss-scale=128")
    x = np.array([[0.5], [OVERFLOW], [0.5]], np.float32)
    run = trainer.train(trainer.data({"x": x}, np.zeros_like(x)), "--epochs", 1, "--lr", 0.1, *PLAIN)
    require(run.values("loss_scale") == [128] * 3 and run.values("skipped") == [False, True, False], f"{run.events()}")


def test_no_scaling_in_bf16(bench):
    """B41 bf16 and fp32 have no loss scaler, and its options are refused there."""
    trainer = bench.compile(doubling_model(SMALL), *SGD, "--precision=bf16", "--batch=1", "--train=^W$")
    x = np.array([[0.5], [OVERFLOW / 1e4]], np.float32)
    data = trainer.data({"x": x}, np.zeros_like(x))
    run = trainer.train(data, "--epochs", 1, "--lr", 1e-4, *PLAIN)
    require(run.values("loss_scale") == [1, 1] and not any(run.values("skipped")), f"{run.events()}")
    done = trainer.run("train", "--data", data, "--epochs", 1, "--lr", 0.1, "--loss-scale-init", 8)
    require_refusal(done, "loss-scale", "train", code=2)


def updates_of(bench, precision, step, count=1000):
    """W after `count` updates of −step: y = x·W, the loss's gradient with respect to W is 1 for x = 1 (loss is y itself)."""
    model = model_of([node("MatMul", "x W", "z"), node("ReduceSum", "z", "y", keepdims=0)], {"x": ["N", 1]}, {"y": []},
                     {"W": np.ones((1, 1), np.float32)})
    trainer = bench.compile(model, "--loss=output", "--optimizer=sgd", f"--precision={precision}", "--batch=1", "--train=^W$")
    file = bench.save(f"x_{precision}.npy", np.ones((count, 1), np.float32))
    # At 65536 the gradient of the sum, which is the scale itself, would not fit half.
    scale = ["--loss-scale-init", 1024] if precision == "fp16" else []
    return trainer.train(f"npy:x={file}", "--epochs", 1, "--lr", step, *PLAIN, *scale)


def test_master_weights(bench):
    """[41] 1000 updates of −1e-4 on a weight of 1: 0.8999834 with fp32 master weights; a half weight would stay at 1.
    [42] 1000 updates of −1e-3 in bf16 reach 0; a bf16 weight would stay at 1."""
    expected = np.float32(1)
    for _ in range(1000):
        expected = np.float32(expected - np.float32(1e-4))
    require_close(expected, 0.8999834, 1e-7, "the test's own value")
    for precision in ("fp16", "bf16", "fp32"):
        run = updates_of(bench, precision, 1e-4)
        require(not any(run.values("skipped")), f"{precision}: skipped steps")
        require_close(run.weights()["W"], [expected], 1e-7, precision)
    expected = np.float32(1)
    for _ in range(1000):
        expected = np.float32(expected - np.float32(1e-3))
    require_close(updates_of(bench, "bf16", 1e-3).weights()["W"], [expected], 1e-6, "bf16, steps of 1e-3")


def test_half_view_of_the_master(bench):
    """[41] What the forward pass reads is the master rounded to half: fp16(0.8999834) = 0.89990234375."""
    run = updates_of(bench, "fp16", 1e-4)
    out = bench.path("y.npy")
    run.trainer.must("predict", "--checkpoint", run.out, "--input", f"x={bench.save('one.npy', np.ones((1, 1), np.float32))}", "-o", out)
    require_close(np.load(out).ravel(), [0.89990234375], 0, "output")


def test_adam_moments_are_fp32(bench):
    """[39], [40] Adam's second moment of gradients of 1e-3 is 1e-9 after a step: zero in fp16; and β₂ = 0.999 is not 1."""
    model = scale_model([1.0])
    trainer = bench.compile(model, "--loss=output", "--optimizer=adam", "--precision=fp16", "--batch=1", "--train=^W$")
    file = bench.save("x.npy", np.full((1, 1), 1e-3, np.float32))
    run = trainer.train(f"npy:x={file}", "--steps", 1, "--lr", 1e-3, "--no-shuffle", "--loss-scale-init", 1024)
    tensors, _ = checkpoint_contents(run.newest())
    half = np.float64(np.float16(1e-3))  # the input is rounded to half
    require_close(tensors["optimizer/exp_avg/W"], [0.1 * half], 1e-5, "exp_avg")
    moment = tensors["optimizer/exp_avg_sq/W"].ravel()[0]
    require(abs(moment - 1e-3 * half**2) < 1e-4 * 1e-3 * half**2, f"exp_avg_sq {moment}, want {1e-3 * half**2}")


def test_checkpoint_keeps_the_tracker(bench):
    """The count of clean steps since the last change of scale survives a resume in mid-interval."""
    trainer = bench.compile(doubling_model(SMALL), *SGD, "--precision=fp16", "--batch=1", "--train=^W$")
    x = np.full((30, 1), 0.25, np.float32)
    data, options = trainer.data({"x": x}, np.zeros_like(x)), ["--epochs", 1, "--lr", 1e-4, *PLAIN, "--growth-interval", 10]
    whole = trainer.train(data, *options)
    first = trainer.train(data, *options, "--stop-after", 7)
    trainer.must("train", "--data", data, "--out", first.out, "--metrics", first.metrics, "--resume")
    require(first.values("loss_scale") == whole.values("loss_scale"), f"{first.values('loss_scale')}")
    require(whole.values("loss_scale")[-1] == 65536 * 4, f"{whole.values('loss_scale')}")


def overflowing_norm(bench, precision, *options):
    """W [2] = 0 with gradients 3e38 each: finite, but their norm, 4.24e38, is beyond fp32. loss = 2.25e38."""
    model = model_of([node("MatMul", "x W", "y")], {"x": ["N", 2]}, {"y": ["N", 1]}, {"W": np.zeros((2, 1), np.float32)})
    trainer = bench.compile(model, *SGD, f"--precision={precision}", "--batch=1", "--keep-fp32=.")
    data = trainer.data({"x": np.full((1, 2), 1e19, np.float32)}, np.full((1, 1), 1.5e19, np.float32))
    scale = ("--loss-scale-init", 1) if precision == "fp16" else ()
    return trainer.train(data, "--steps", 1, *PLAIN, *scale, *options)


def test_finite_gradients_with_a_norm_beyond_fp32(bench):
    """The step is applied, unclipped and clipped, as if numbers had no end; the metrics have the norm."""
    for precision in ("fp32", "bf16", "fp16"):
        run = overflowing_norm(bench, precision, "--lr", 1e-38)
        require(run.values("skipped") == [False], f"{precision}: skipped")
        require_close(run.values("grad_norm"), [3e38 * 2**0.5], 1e-5, f"{precision}: grad_norm")
        require_close(run.weights()["W"].ravel(), [3, 3], 1e-5, f"{precision}: W")
        run = overflowing_norm(bench, precision, "--lr", 1, "--clip-norm", 2)
        require_close(run.weights()["W"].ravel(), [2**0.5, 2**0.5], 1e-5, f"{precision}, clipped: W")


def ignored_labels(bench, precision, labels, *options, batch=2):
    """A classifier with momentum and decay, which would move W without a gradient; the run and its first weights."""
    model = model_of([node("MatMul", "x W", "h"), node("BatchNormalization", "h s b m v", "y", training_mode=0)], {"x": ["N", 3]}, {"y": ["N", 4]},
                     {"W": np.arange(12, dtype=np.float32).reshape(3, 4) / 10, "s": np.ones(4, np.float32), "b": np.zeros(4, np.float32),
                      "m": np.zeros(4, np.float32), "v": np.ones(4, np.float32)})
    trainer = bench.compile(model, "--loss=cross-entropy", "--ignore-index=-1", "--optimizer=adamw", f"--precision={precision}", f"--batch={batch}")
    x = np.random.default_rng(0).standard_normal((len(labels), 3)).astype(np.float32)
    data = trainer.data({"x": x}, np.array(labels))
    run = trainer.train(data, "--epochs", 1, "--lr", 0.1, "--weight-decay", 0.1, "--no-shuffle", *options)
    return trainer, run, x


def test_a_step_without_labels_changes_nothing(bench):
    """B23: all labels of a step are --ignore-index. No loss (PyTorch: NaN): weights, moments, statistics, scale and its counter stay; told once."""
    for precision, options in (("fp32", ()), ("fp16", ("--growth-interval", 2)), ("fp16", ("--growth-interval", 2, "--accumulate", 2))):
        each = 2 if "--accumulate" not in options else 4
        # a step that counts, two that do not, another that counts: the same as without those two
        counts, ignored = [0, 1, 2, 3] * (each // 2), [-1] * each
        trainer, run, x = ignored_labels(bench, precision, counts[:each] + 2 * ignored + counts[each:2 * each], *options)
        what = f"{precision} {options}"
        require(run.values("skipped") == [False, True, True, False], f"{what}: skipped {run.values('skipped')}")
        losses = run.values("loss")
        require(losses[0] is not None and losses[1] is None and losses[2] is None and losses[3] is not None, f"{what}: losses {losses}")
        require(run.done.err.count("no label counts") == 1, f"{what}: {run.done.err}")
        require_match("step 2", run.done.err, f"{what}: the message")
        kept = np.concatenate([x[:each], x[3 * each:]])
        data = trainer.data({"x": kept}, np.array(counts[:each] + counts[each:2 * each]))
        without = trainer.train(data, "--epochs", 1, "--lr", 0.1, "--weight-decay", 0.1, "--no-shuffle", *options)
        same, want = checkpoint_contents(run.newest())[0], checkpoint_contents(without.newest())[0]
        require_same_bits(same, want, what)
        if precision == "fp16":
            require(run.values("loss_scale") == [65536] * 4, f"{what}: scales {run.values('loss_scale')}")
            state = checkpoint_contents(run.newest())[1]
            require_match('"loss_scale\\\\?":131072', str(state), f"{what}: the scale after two clean steps")


def test_evaluation_and_gradients_without_labels(bench):
    """`eval` says that no label counts; `grad` gives a NaN loss and zero gradients, and says so; both end with 0. With --valid the loss is null."""
    trainer, run, x = ignored_labels(bench, "fp16", [0, 1, -1, -1])
    data = trainer.data({"x": x[:2]}, np.array([-1, -1]))
    require_match("loss nan: no label counts", trainer.must("eval", "--data", data).out, "eval")
    out = bench.path("g.npz")
    file = bench.save("l.npy", np.array([-1, -1]))
    done = trainer.must("grad", *trainer.given({"x": x[:2]}), "--labels", file, "-o", out)
    require_match("no label of the batch counts", done.err, "grad")
    with np.load(out) as found:
        require(np.isnan(found["loss"]) and not found["W"].any(), f"loss {found['loss']}, W {found['W']}")
    again = trainer.train(trainer.data({"x": x}, np.array([0, 1, -1, 2])), "--epochs", 1, "--lr", 0.1, "--valid", data)
    require([e["loss"] for e in again.events("eval")] == [None], f"{again.events('eval')}")


def test_a_run_without_labels_ends(bench):
    """Nothing but ignored labels is no overflow: the run goes through its steps and leaves the weights as they were."""
    trainer, run, _ = ignored_labels(bench, "fp16", [-1] * 40)
    require(run.values("skipped") == [True] * 20, f"{run.values('skipped')}")
    require_close(run.weights()["W"], np.arange(12).reshape(3, 4) / 10, 1e-7, "W")


if __name__ == "__main__":
    main(__doc__)
