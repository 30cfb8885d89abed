"""Operators whose right behavior one step cannot show: determinism, masks, ties, odd names, a loss in the graph.

    test_operators.py --build BUILD [--only REGEX] [-v]
"""

import os

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from support import (DATA, PLAIN, SGD, Trainer, exact_regex, initializers, main, model_of, node, require, require_close, require_refusal,
                     require_same_bits, require_success, tensor_info)

CASES = DATA / "cases"


def test_norm_of_zeros(bench):
    """ReduceL2 of a row of zeros: the value 0 and the gradient 0, as PyTorch's; elsewhere x / |x|."""
    w = np.array([[0, 0, 0], [3, 0, 4]], np.float32)
    model = model_of([node("Mul", "x w", "a"), node("ReduceL2", "a", "y", axes=[1], keepdims=0)], {"x": ["N", 3]}, {"y": ["N"]}, {"w": w}, opset=13)
    trainer = bench.compile(model, "--loss=mse", "--optimizer=sgd", "--precision=fp32", "--batch=2")
    got = trainer.grad({"x": np.ones((2, 3), np.float32)}, np.array([-1, 4], np.float32))
    require_close(got["w"], [[0, 0, 0], [0.6, 0, 0.8]], 1e-6, "gradient")
    require_close(trainer.predict({"x": np.ones((2, 3), np.float32)})["y"], [0, 5], 1e-6, "norm")


def test_reshape_allowzero_of_an_empty_tensor(bench):
    """B11: with allowzero, [0,3] → [3,0] is an empty tensor and no error. A training program needs samples; mpc-run has no such need."""
    done = bench.run_mpc(CASES / "B11/allowzero.onnx", "--loss=none", "--precision=fp32", "--emit=core")
    require(done.code == 0, f"exit {done.code}: {done.err[-300:]}")
    require("tensor<3x0xf32>" in done.out, f"no empty tensor: {done.out[-400:]}")


def test_max_pool_ties_go_to_the_first(bench):
    """B16: in a window of equal values, the first in row-major order gets the gradient, in every precision."""
    case, gradients = CASES / "B16/ties", {}
    for precision in ("fp32", "bf16", "fp16", "fp64"):
        trainer = bench.compile(case / "model.onnx", "--loss=mse", "--batch=1", f"--precision={precision}", "--train=^theta$")
        gradients[precision] = trainer.grad({"x": case / "x_x.npy"}, case / "t.npy")["theta"]
        require_close(gradients[precision], np.load(case / "grad_theta.npy"), 1e-3, precision)


def test_scatter_add_is_deterministic(bench):
    """B19: an embedding's gradient with 1476 equal indices has the same bits each time and for any number of threads."""
    case = CASES / "B19"
    trainer = bench.compile(case / "model.onnx", *SGD, "--batch=2", "--precision=fp32", "--train=^W$")
    runs = [trainer.grad({"idx": case / "x_idx.npy"}, case / "t.npy", "--threads", threads) for threads in (1, 2, 2, 3)]
    for other in runs[1:]:
        require_same_bits(other, runs[0], "gradients")


def test_gradient_of_scatter(bench):
    """ScatterElements at places that the data name: gradients of what is written, and of what it is written into."""
    made = np.random.default_rng(3)
    x, t, w, u = (made.standard_normal(shape).astype(np.float32) for shape in ((8, 5), (8, 6), (5, 6), (5, 4)))
    at = np.stack([made.permutation(6)[:4] for _ in range(8)])
    for reduction in ("none", "add"):
        nodes = [node("MatMul", "x W", "a"), node("MatMul", "x U", "b"), node("ScatterElements", "a at b", "y", axis=1, reduction=reduction)]
        model = model_of(nodes, {"x": ["N", 5], "at": (["N", 4], TensorProto.INT64)}, {"y": ["N", 6]}, {"W": w, "U": u})
        y = x @ w
        np.put_along_axis(y, at, x @ u + (np.take_along_axis(y, at, 1) if reduction == "add" else 0), 1)
        dy = 2 * (y - t) / y.size
        da = dy.copy()
        if reduction == "none":
            np.put_along_axis(da, at, 0, 1)
        for precision in ("fp32", "fp64"):
            trainer = bench.compile(model, "--loss=mse", "--batch=8", f"--precision={precision}")
            got = trainer.grad({"x": x, "at": at}, t)
            require_close(got["W"], x.T @ da, 1e-5, f"{reduction} {precision}: W")
            require_close(got["U"], x.T @ np.take_along_axis(dy, at, 1), 1e-5, f"{reduction} {precision}: U")


def test_loss_in_the_graph(bench):
    """B23: SoftmaxCrossEntropyLoss with class weights and ignored labels, as the model's own loss."""
    case = CASES / "B23"
    trainer = bench.compile(case / "loss_in_graph.onnx", "--loss=output", "--optimizer=sgd", "--precision=fp32", "--batch=4", "--train=^W$")
    got = trainer.grad({"x": case / "x_x.npy", "labels": case / "labels_ignore.npy"}, None)
    require_close(got["loss"], 1.9759455930734375, 1e-6, "loss")
    require_close(got["W"], np.load(case / "grad_W_ignore.npy"), 1e-5, "gradient")


def test_loss_in_the_graph_with_all_ignored(bench):
    """B23: the mean over no label is 0/0, as ONNX has it: the step is skipped, its weight decay too."""
    case = CASES / "B23"
    trainer = bench.compile(case / "loss_in_graph.onnx", "--loss=output", "--optimizer=sgd", "--precision=fp32", "--batch=4", "--train=^W$")
    data = f"npy:x={case / 'x_x.npy'},labels={case / 'labels_all_ignored.npy'}"
    run = trainer.train(data, "--steps", 2, "--lr", 0.5, "--weight-decay", 0.1, "--no-shuffle")
    require(run.values("skipped") == [True, True] and run.values("loss") == [None, None], f"{run.events()}")
    require_same_bits({"W": run.weights()["W"]}, {"W": initializers(case / "loss_in_graph.onnx")["W"]}, "weights")


def test_accumulation_of_a_loss_in_the_graph(bench):
    """Micro-batches weigh as much as their labels that are not ignored, so that they make one big batch; one has only ignored ones."""
    made = np.random.default_rng(8)
    x, labels = made.standard_normal((8, 3)).astype(np.float32), np.array([0, 1, -100, -100, 1, -100, 0, 1])
    W, weights = made.standard_normal((3, 2)).astype(np.float32), np.array([0.5, 2], np.float32)
    model = model_of([node("MatMul", "x W", "z"), node("SoftmaxCrossEntropyLoss", "z t w", "L", ignore_index=-100)],
                     {"x": ["N", 3], "t": (["N"], TensorProto.INT64)}, {"L": []}, {"W": W, "w": weights})
    z = x.astype(np.float64) @ W
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    counts = labels >= 0
    w = weights[labels * counts] * counts
    loss = -(w * np.log(p[np.arange(8), labels * counts])).sum() / w.sum()
    gradient = x.T @ (w[:, None] * (p - np.eye(2)[labels * counts])) / w.sum()
    for batch, micro in ((8, 1), (4, 2), (2, 4)):
        trainer = bench.compile(model, "--loss=output", "--optimizer=sgd", "--precision=fp64", f"--batch={batch}", "--train=^W$")
        run = trainer.train(trainer.data({"x": x, "t": labels}, None), "--steps", 1, "--lr", 1.0, "--accumulate", micro, *PLAIN)
        require_close(run.values("loss"), [loss], 1e-12, f"batch {batch}: loss")
        require_close(run.weights()["W"], W - gradient, 1e-6, f"batch {batch}: weights")


def test_all_ignored_labels_train_nothing(bench):
    """B23: with the attached loss, a batch whose labels are all ignored changes no weight and makes no NaN."""
    case = CASES / "B23"
    trainer = bench.compile(case / "model.onnx", "--loss=cross-entropy", "--optimizer=sgd", "--precision=fp32", "--batch=4", "--train=^W$",
                            "--ignore-index=-1")
    run = trainer.train(trainer.data({"x": case / "x_x.npy"}, np.full(4, -1)), "--steps", 2, "--lr", 0.5, *PLAIN)
    require_same_bits({"W": run.weights()["W"]}, {"W": initializers(case / "model.onnx")["W"]}, "weights")


def dropout_step(bench, trainer, seed, steps=1):
    case = CASES / "B28"
    inputs, labels = np.repeat(np.load(case / "x_x.npy"), steps, 0), np.repeat(np.load(case / "t.npy"), steps, 0)
    return trainer.train(trainer.data({"x": inputs}, labels), "--steps", steps, "--lr", 1, "--seed", seed, *PLAIN)


def test_dropout_masks(bench):
    """B28: the kept elements of v = 1,0,1,0,… are doubled, so the loss is 1 whatever the mask; the gradient shows it:
    even elements step by 0 or −1/128, odd ones by 0 or +1/128, and half of each kind is kept."""
    trainer = bench.compile(CASES / "B28/model.onnx", *SGD, "--precision=fp32", "--batch=1", "--train=^theta$")
    run = dropout_step(bench, trainer, 7)
    require(run.values("loss") == [1.0], f"loss {run.values('loss')}")
    step = run.weights()["theta"] - np.load(CASES / "B28/theta0.npy")
    for what, part, size in (("even", step[0::2], -0.0078125), ("odd", step[1::2], 0.0078125)):
        require(set(np.unique(part)) == {0.0, size} or set(np.unique(part)) == {-0.0, size}, f"{what} steps {np.unique(part)}")
        kept = np.count_nonzero(part)
        require(88 <= kept <= 168, f"{kept} of 256 {what} elements are kept")
    again, other = dropout_step(bench, trainer, 7).weights(), dropout_step(bench, trainer, 8).weights()
    require_same_bits(again, run.weights(), "same seed")
    require(not np.array_equal(other["theta"], run.weights()["theta"]), "another seed, but the same mask")
    # With the same mask in both steps, elements that were dropped would be dropped again: about a quarter moves in
    # exactly one of the steps if the masks are independent, none if they are the same.
    two = dropout_step(bench, trainer, 7, steps=2).weights()["theta"] - np.load(CASES / "B28/theta0.npy")
    moved_later = np.count_nonzero((two != 0) & (step == 0))
    require(80 <= moved_later <= 176, f"{moved_later} of 512 elements are kept only in the second step")


def test_dropout_is_off_in_inference(bench):
    trainer = bench.compile(CASES / "B28/model.onnx", *SGD, "--precision=fp32", "--batch=1", "--train=^theta$")
    got = trainer.predict({"x": CASES / "B28/x_x.npy"})["y"]
    want = np.load(CASES / "B28/x_x.npy") + np.load(CASES / "B28/theta0.npy")
    require_close(got, want, 0, "output")


def test_reflect_wider_than_the_tensor(bench):
    """B57: ONNX leaves reflection by 2 on a width of 2 open: refused by name, or numpy's 1 1.2 1 1.2."""
    done = bench.run_mpc(CASES / "B57/too_wide.onnx", "--loss=none", "--precision=fp32", "--batch=3", output=bench.path("trainer"))
    if done.code:
        require_refusal(done, ["Pad", "reflect"], "mpc")
        return
    x = np.array([[1, 1.2], [2, 2.5], [3, 3.5]], np.float32)
    got = bench.compile(CASES / "B57/too_wide.onnx", "--loss=none", "--precision=fp32", "--batch=3").predict({"x": x})["y"]
    require_close(got, np.pad(x, ((0, 0), (2, 0)), mode="reflect"), 0, "output")


def odd_name_model(names):
    """A linear layer per name, all with equal shapes and different values."""
    random = np.random.default_rng(0)
    weights, nodes, value = {}, [], "x"
    for i, name in enumerate(names):
        weights[name] = (random.standard_normal((3, 3)) / 2).astype(np.float32)
        made = onnx.helper.make_node("MatMul", [value, name], [f"{name} out"], name=f"{name} node")
        nodes.append(made)
        value = f"{name} out"
    nodes[-1].output[0] = "y"
    return model_of(nodes, {"x": ["N", 3]}, {"y": ["N", 3]}, weights), weights


def test_odd_names(bench):
    """B63: names with spaces, quotes, shell and path syntax, newlines and non-ASCII letters compile, train, and come back in
    gradients and export as they were; nothing runs and nothing is written elsewhere."""
    names = ["with space", "it's", 'dou"ble', "$(touch escaped)", "`touch escaped`", "; touch escaped;", "../../escape", "/tmp/mpc-escape", "a:b", "a/b", "a_b",
             "a.b", "line\nbreak", "tab\there", "back\\slash", "%s%n", "Ünï→", "main", "int", "0", "-o", "--help"]
    model, weights = odd_name_model(names)
    work = bench.path("deep/inside")
    work.mkdir(parents=True)
    (work / "model.onnx").write_bytes(model.SerializeToString())
    # The odd model is compiled under an odd file name, in a folder of its own.
    odd = work / "m $(touch escaped) '\" model"
    done = bench.run_mpc("model.onnx", *SGD, "--precision=fp64", "--batch=2", f"--train={exact_regex(names)}", output=odd, cwd=work)
    require_success(done, "mpc")
    require(sorted(os.listdir(work)) == sorted(["model.onnx", odd.name]), f"files: {os.listdir(work)}")
    trainer = Trainer(bench, odd)
    x, t = np.array([[1, 2, 3], [-1, 0.5, 2]], np.float32), np.zeros((2, 3), np.float32)
    gradients = trainer.grad({"x": x}, t)
    require_close(gradients["with space"], numeric_gradient(weights, names, x, "with space"), 1e-6, "gradient")
    run = trainer.train(trainer.data({"x": x}, t), "--steps", 1, "--lr", 0.01, *PLAIN)
    after = run.weights()
    require(set(after) == set(names), f"exported names: {sorted(set(after) ^ set(names))}")
    for name in gradients.keys() - {"loss", "loss_scale"}:
        require_close(after[name], weights[name] - 0.01 * gradients[name], 1e-6, repr(name))
    for stray in ("escaped", "escape"):
        for folder in (work, work.parent, bench.folder, bench.folder.parent):
            require(not (folder / stray).exists(), f"{folder / stray} was written")
    require(not os.path.exists("/tmp/mpc-escape"), "/tmp/mpc-escape was written")


def numeric_gradient(weights, names, x, name):
    """Of mean(y²) for y = x·W₁·W₂·…, by its formula."""
    arrays = [weights[n].astype(np.float64) for n in names]
    at = names.index(name)
    before, after = x.astype(np.float64), np.eye(3)
    for w in arrays[:at]:
        before = before @ w
    for w in arrays[at + 1:]:
        after = after @ w
    y = before @ arrays[at] @ after
    return before.T @ (2 * y / y.size) @ after.T


def test_odd_input_names_on_the_command_line(bench):
    """A `\\` takes the next character literally, in --input and in DATASET: NAME may hold '=' and ',', FILE too."""
    model = model_of([node("MatMul", "in W", "y")], {"in": ["N", 2]}, {"y": ["N", 1]}, {"W": np.ones((2, 1), np.float32)})
    model.graph.node[0].input[0] = "a=b,c;d"
    model.graph.input[0].name = "a=b,c;d"
    trainer = bench.compile(model, *SGD, "--precision=fp32", "--batch=2")
    file = bench.save("x,1;2=3.npy", np.array([[1, 2], [3, 4]], np.float32))
    labels = bench.save("t.npy", np.zeros((2, 1), np.float32))
    name, escaped = "a\\=b\\,c\\;d", str(file).replace(",", "\\,").replace(";", "\\;")
    out = bench.path("out.npy")
    trainer.must("predict", "--input", f"{name}={escaped}", "-o", out)
    require_close(np.load(out), [[3], [7]], 0, "output")
    run = trainer.train(f"npy:{name}={escaped},labels={labels}", "--steps", 1, "--lr", 0.1, *PLAIN)
    require_close(run.values("loss"), [29], 1e-6, "loss")


def test_batch_norm_running_statistics_in_the_export(bench):
    """B25: running statistics are updated by ONNX's rule and exported in inference form, with one output per node."""
    case = CASES / "B25"
    trainer = bench.compile(case / "model.onnx", *SGD, "--precision=fp32", "--batch=4", "--train=^(theta|scale|bias)$")
    run = trainer.train(trainer.data({"x": case / "x_x.npy"}, case / "t.npy"), "--steps", 1, "--lr", 0.1, *PLAIN)
    out = bench.path("trained.onnx")
    trainer.must("export", "--checkpoint", run.out, "-o", out)
    onnx.checker.check_model(onnx.load(out), full_check=True)
    norm = next(n for n in onnx.load(out).graph.node if n.op_type == "BatchNormalization")
    require([o for o in norm.output if o] == [norm.output[0]], f"outputs {list(norm.output)}")
    require(not any(a.name == "training_mode" and a.i for a in norm.attribute), "training_mode is still set")
    require_close(initializers(out)["rv"], np.load(case / "after_rv.npy"), 1e-5, "rv")


def test_running_mean_that_another_node_reads(bench):
    """The norm's new running mean does not overwrite the old one before its other reader, which a product separates from the norm."""
    made = np.random.default_rng(5)
    normal = lambda *shape: made.standard_normal(shape).astype(np.float32)
    weights = {"W": normal(6, 4), "s": np.ones(4, np.float32), "b": normal(4), "mean": normal(4), "var": np.ones(4, np.float32), "V": normal(4, 3)}
    model = model_of([node("MatMul", "x W", "h"), node("BatchNormalization", "h s b mean var", "n"), node("Add", "n mean", "a"), node("MatMul", "a V", "y")],
                     {"x": ["N", 6]}, {"y": ["N", 3]}, weights)
    x, t = normal(8, 6), normal(8, 3)
    w = {k: v.astype(np.float64) for k, v in weights.items()}
    h = x.astype(np.float64) @ w["W"]
    y = ((h - h.mean(0)) / np.sqrt(h.var(0) + 1e-5) + w["b"] + w["mean"]) @ w["V"]
    for precision, tolerance in (("fp64", 1e-7), ("fp32", 1e-5)):
        trainer = bench.compile(model, *SGD, f"--precision={precision}", "--batch=8")
        run = trainer.train(trainer.data({"x": x}, t), "--steps", 1, "--lr", 0.0, *PLAIN)
        require_close(run.values("loss"), [np.mean((y - t) ** 2)], tolerance, "loss")
        require_close(run.weights()["mean"], 0.9 * w["mean"] + 0.1 * h.mean(0), 1e-6, "running mean")


def test_new_running_statistics_that_another_node_reads(bench):
    """Outputs of a BatchNormalization in training mode are what ONNX's rule makes of the statistics that it reads; without a gradient, as in
    PyTorch. Inference leaves the statistics as they are."""
    made = np.random.default_rng(6)
    normal = lambda *shape: made.standard_normal(shape).astype(np.float32)
    weights = {"W": normal(6, 4), "s": np.ones(4, np.float32), "b": normal(4), "mean": normal(4), "var": np.ones(4, np.float32)}
    norm = lambda x, mean, var, y, k: node("BatchNormalization", f"{x} s b {mean} {var}", f"{y} mean{k} var{k}", training_mode=1, momentum=0.75)
    x, t = normal(8, 6), normal(8, 4)
    w = {k: v.astype(np.float64) for k, v in weights.items()}

    def normalized(h):
        return (h - h.mean(0)) / np.sqrt(h.var(0) + 1e-5) + w["b"]

    def moved(statistics, h):
        return [0.75 * old + 0.25 * new for old, new in zip(statistics, (h.mean(0), h.var(0)))]

    h = x.astype(np.float64) @ w["W"]
    initial = (w["mean"], w["var"])
    first = moved(initial, h)
    a = normalized(h) + first[0] * first[1]
    for chained in (False, True):  # the second node reads the statistics, or what the first puts out
        names = ("mean1", "var1") if chained else ("mean", "var")
        model = model_of([node("MatMul", "x W", "h"), norm("h", "mean", "var", "n1", 1), node("Mul", "mean1 var1", "m1"), node("Add", "n1 m1", "a"),
                          norm("a", *names, "n2", 2), node("Mul", "mean2 var2", "m2"), node("Add", "n2 m2", "y")], {"x": ["N", 6]}, {"y": ["N", 4]}, weights)
        second = moved(first if chained else initial, a)
        y = normalized(a) + second[0] * second[1]
        for precision, tolerance in (("fp64", 1e-6), ("fp32", 1e-5)):
            trainer = bench.compile(model, *SGD, f"--precision={precision}", "--batch=8")
            require_close(trainer.grad({"x": x}, t)["b"], (2 * (y - t) / t.size).sum(0), tolerance, f"gradient of b, {precision}, {names}")
            run = trainer.train(trainer.data({"x": x}, t), "--steps", 1, "--lr", 0.0, *PLAIN)
            require_close(run.values("loss"), [np.mean((y - t) ** 2)], tolerance, f"loss, {precision}, {names}")
            for name, value in zip(("mean", "var"), second if chained else first):
                require_close(run.weights()[name], value, 1e-5, f"{name}, {precision}, {names}")
    still = lambda h: (h - w["mean"]) / np.sqrt(w["var"] + 1e-5) + w["b"] + w["mean"] * w["var"]
    require_close(trainer.predict({"x": x})["y"], still(still(h)), 1e-5, "prediction")


def test_integer_initializers_and_unused_ones_stay(bench):
    """B14, B53: what is no parameter is exported as it came, bit for bit."""
    weights = {"W": np.ones((2, 2), np.float32), "shape": np.array([-1, 2], np.int64), "unused": np.arange(3, dtype=np.float32)}
    model = model_of([node("MatMul", "x W", "z"), node("Reshape", "z shape", "y")], {"x": ["N", 2]}, {"y": ["N", 2]}, weights)
    trainer = bench.compile(model, *SGD, "--precision=fp32", "--batch=2")
    run = trainer.train(trainer.data({"x": np.ones((2, 2), np.float32)}, np.zeros((2, 2), np.float32)), "--steps", 1, "--lr", 0.1, "--weight-decay", 0.5,
                        "--no-shuffle")
    after = run.weights()
    require(set(after) == set(weights), f"names {sorted(after)}")
    require_same_bits({k: after[k] for k in ("shape", "unused")}, {k: weights[k] for k in ("shape", "unused")}, "initializers")
    require(not np.array_equal(after["W"], weights["W"]), "W was not trained")


def test_weight_decay_leaves_what_is_no_parameter(bench):
    """B53: with gradients that are exactly 0 only the decay acts: on every parameter alike, or on none of --no-decay; never on
    integer initializers."""
    case = CASES / "B53"
    before = initializers(case / "model.onnx")
    trainer = bench.compile(case / "model.onnx", "--loss=mse", "--optimizer=adamw", "--precision=fp32", "--batch=3", "--train=^(g|lb|W|b|s|bb)$")
    data = trainer.data({"x": case / "x_x.npy"}, case / "t.npy")
    options = ["--steps", 10, "--lr", 0.1, "--no-shuffle"]
    for decay, spared in ((0.1, []), (0.1, ["g", "lb", "b", "s", "bb"]), (0.0, [])):
        more = [f"--no-decay={exact_regex(spared)}"] if spared else []
        after = trainer.train(data, *options, "--weight-decay", decay, *more).weights()
        for name in ("g", "lb", "W", "b", "s", "bb"):
            factor = 0.9043820750088044 if decay and name not in spared else 1.0
            require_close(after[name], before[name] * factor, 1e-6 if factor != 1 else 0, f"{name}, decay {decay}, spared {spared}")
        require_same_bits({"shape": after["shape"]}, {"shape": before["shape"]}, "the integer initializer")


def test_tensors_without_elements(bench):
    """A tensor with a dimension 0 is a constant: it joins nothing, sums to 0, multiplies to 1, and as an output it is an empty array."""
    def ints(*values):
        return np.array(values, np.int64)

    nodes = [node("Slice", "x zero zero", "none"), node("Concat", "none x none", "joined", axis=0), node("MatMul", "joined W", "h"),
             node("ReduceSum", "none axis0", "sum", keepdims=0), node("ReduceProd", "none", "product", axes=[0], keepdims=0), node("Add", "sum product", "ones"),
             node("Transpose", "none", "turned", perm=[1, 0]), node("MatMul", "turned none", "zeros"), node("MatMul", "zeros W", "more"),
             node("Add", "h ones_of_h", "s"), node("ReduceSum", "more axis0", "nothing", keepdims=0), node("Add", "s nothing", "y"), node("Exp", "none", "empty"),
             node("MatMul", "ones W", "ones_of_h")]
    order = [nodes[i] for i in (0, 1, 2, 3, 4, 5, 6, 7, 8, 13, 9, 10, 11, 12)]
    model = model_of(order, {"x": [4, 3]}, {"y": [4, 2], "empty": [0, 3]},
                     {"W": np.arange(6, dtype=np.float32).reshape(3, 2), "zero": ints(0), "axis0": ints(0)})
    x, W = np.arange(12, dtype=np.float32).reshape(4, 3), np.arange(6).reshape(3, 2)
    want = x @ W + np.ones(3) @ W
    for precision in ("fp32", "fp16"):
        inference = bench.compile(model, "--loss=none", f"--precision={precision}")
        got = inference.predict({"x": x})
        require_close(got["y"], want, 1e-3, f"{precision}: y")
        require(got["empty"].shape == (0, 3), f"{precision}: empty {got['empty'].shape}")
    trainer = bench.compile(model, *SGD, "--loss-input=y", "--precision=fp32")
    target = np.zeros((4, 2), np.float32)
    d = 2 * want / 8
    require_close(trainer.grad({"x": x}, target)["W"], x.T @ d + np.ones((3, 1)) @ d.sum(0)[None], 1e-5, "dW")


def test_defaults_of_function_attributes(bench):
    """A call that leaves an attribute of a local function out has the function's default, not the operator's, also where a function calls another.
    An attribute that refers to one without a value is left out too: the default of what is called holds, and elsewhere that of the operator."""
    def referring(op, attribute, kind, inputs=("a",), outputs=("z",), to=None, **more):
        made = onnx.helper.make_node(op, list(inputs), list(outputs), **more)
        made.attribute.append(onnx.AttributeProto(name=attribute, ref_attr_name=to or attribute, type=kind))
        return made

    imports = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid("own", 1)]
    function = lambda name, nodes, names=(), **defaults: onnx.helper.make_function("own", name, ["a"], ["z"], nodes, imports, list(names),
                                                                                   [onnx.helper.make_attribute(k, v) for k, v in defaults.items()])
    real = onnx.AttributeProto.FLOAT
    functions = [function("Leak", [referring("LeakyRelu", "alpha", real)], alpha=0.5),
                 function("Outer", [onnx.helper.make_node("Leak", ["a"], ["z"], domain="own")]),
                 function("Passes", [referring("Leak", "alpha", real, domain="own", to="slope")], ["slope"]),
                 function("Elu", [referring("Elu", "alpha", real)], ["alpha"]),
                 function("Twice", [referring("Passes", "slope", real, ("a",), ("b",), domain="own"), referring("Elu", "alpha", real, ("b",), to="slope", domain="own")],
                          ["slope"]),
                 function("Branches", [onnx.helper.make_node("Constant", [], ["c"], value=onnx.numpy_helper.from_array(np.array(True))),
                                       onnx.helper.make_node("If", ["c"], ["z"], **{branch: onnx.helper.make_graph(
                                           [referring("Leak", "alpha", real, ("a",), (branch,), domain="own", to="slope")], branch, [],
                                           [onnx.helper.make_tensor_value_info(branch, TensorProto.FLOAT, None)]) for branch in ("then_branch", "else_branch")})],
                          ["slope"]),
                 function("Scale", [referring("Constant", "value_float", real, (), ("k",)), onnx.helper.make_node("Mul", ["a", "k"], ["z"])], value_float=0.25)]
    x = np.array([[-1, -2, 3]], np.float32)
    for op, given, want in (("Leak", {}, [-0.5, -1, 3]), ("Leak", {"alpha": 0.125}, [-0.125, -0.25, 3]), ("Outer", {}, [-0.5, -1, 3]),
                            ("Passes", {}, [-0.5, -1, 3]), ("Passes", {"slope": 0.125}, [-0.125, -0.25, 3]), ("Branches", {}, [-0.5, -1, 3]),
                            ("Branches", {"slope": 0.125}, [-0.125, -0.25, 3]), ("Twice", {}, [np.expm1(-0.5), np.expm1(-1), 3]),
                            ("Twice", {"slope": 0.125}, [0.125 * np.expm1(-0.125), 0.125 * np.expm1(-0.25), 3]),
                            ("Scale", {}, [-0.25, -0.5, 0.75]), ("Scale", {"value_float": 3.0}, [-3, -6, 9])):
        graph = onnx.helper.make_graph([onnx.helper.make_node(op, ["x"], ["y"], domain="own", **given)], "graph", [tensor_info("x", ["N", 3])],
                                       [tensor_info("y", ["N", 3])])
        model = onnx.helper.make_model(graph, opset_imports=imports, functions=functions, ir_version=10)
        onnx.checker.check_model(model)
        require_close(bench.compile(model, "--loss=none", "--precision=fp32", "--batch=1").predict({"x": x})["y"], [want], 1e-6, f"{op} {given}")


def test_tuples_of_indices(bench):
    """GatherND and ScatterND: negative indices count from the back of their own axis; one outside, which only computed ones can be, names the
    nearest element of its own axis, never one of the next row. Of graph inputs the trainer refuses them, and constants mpc."""
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    at = np.array([[0, -1], [-3, 2], [2, 0], [-1, -4]], np.int64)
    w = np.zeros((3, 4), np.float32)
    gather = model_of([node("Add", "x W", "s"), node("GatherND", "s at", "y")], {"x": [3, 4], "at": ([4, 2], TensorProto.INT64)}, {"y": [4]}, {"W": w})
    trainer = bench.compile(gather, *SGD, "--precision=fp32")
    require_close(trainer.predict({"x": x, "at": at})["y"], [3, 2, 8, 8], 0, "negative indices")
    outside = trainer.run("predict", *trainer.given({"x": x, "at": np.array([[0, 4], [0, 0], [0, 0], [0, 0]])}), "-o", bench.path("y.npy"))
    require(outside.code == 1 and "4" in outside.err, f"an index outside: exit {outside.code}: {outside.err}")
    got = trainer.grad({"x": x, "at": at}, np.zeros(4, np.float32))["W"]
    want = np.zeros((3, 4))
    np.add.at(want, tuple(at.T), 2 * x[tuple(at.T)] / 4)
    require_close(got, want, 1e-6, "gradient")
    computed = model_of([node("Add", "at more", "i"), node("GatherND", "x i", "y")], {"x": [3, 4], "at": ([2, 2], TensorProto.INT64)}, {"y": [2]},
                        {"more": np.array([[0, 5], [7, 0]])})
    require_close(bench.compile(computed, "--loss=none").predict({"x": x, "at": np.array([[0, 0], [0, 1]])})["y"], [3, 9], 0, "computed indices")
    elements = model_of([node("Add", "at more", "i"), node("GatherElements", "x i", "y", axis=1)], {"x": [3, 4], "at": ([3, 1], TensorProto.INT64)}, {"y": [3, 1]},
                        {"more": np.array([[9], [0], [-9]])})
    require_close(bench.compile(elements, "--loss=none").predict({"x": x, "at": np.array([[0], [1], [2]])})["y"].ravel(), [3, 5, 8], 0, "GatherElements")
    constant = model_of([node("GatherND", "x at", "y")], {"x": [3, 4]}, {"y": [1]}, {"at": np.array([[1, 4]])})
    require_refusal(bench.run_mpc(constant, "--loss=none", output=bench.path("t")), ["GatherND_y", "index 4 is outside an axis of 4"], "mpc")


def test_scatter_of_narrow_types(bench):
    """ScatterElements and ScatterND of bool and int8, at places that the data name."""
    at = np.array([[2], [0]], np.int64)
    for numbers, kind in ((np.bool_, TensorProto.BOOL), (np.int8, TensorProto.INT8), (np.int16, TensorProto.INT16)):
        x, u = np.array([1, 0, 1, 0]).astype(numbers), np.array([0, 1]).astype(numbers)
        model = model_of([node("ScatterND", "x at u", "y")], {"x": ([4], kind), "at": ([2, 1], TensorProto.INT64), "u": ([2], kind)}, {"y": ([4], kind)}, {}, opset=18)
        got = bench.compile(model, "--loss=none").predict({"x": x, "at": at, "u": u})["y"]
        want = x.copy()
        want[at.ravel()] = u
        require(np.array_equal(got, want), f"{numbers.__name__}: {got}, want {want}")


def test_dimensions_of_size_zero(bench):
    """Slices that go backwards over no elements, and Einsum labels of size 0: nothing, and sums of nothing."""
    none = np.zeros((2, 0), np.float32)
    nodes = [node("Slice", "none start end axis step", "back"), node("Einsum", "none rows", "product", equation="ij,jk->ik"),
             node("Einsum", "none", "sum", equation="ij->i"), node("Einsum", "square", "diagonal", equation="ii->i"), node("Concat", "back x", "y", axis=1),
             node("Add", "product x", "z"), node("Einsum", "diagonal", "trace", equation="i->"), node("Add", "sum trace", "st"), node("Add", "st x", "v")]
    model = model_of(nodes, {"x": [2, 2]}, {"y": [2, 2], "z": [2, 2], "v": [2, 2]},
                     {"none": none, "rows": np.zeros((0, 2), np.float32), "square": np.zeros((0, 0), np.float32), "start": np.array([-1]), "end": np.array([-9]),
                      "axis": np.array([1]), "step": np.array([-1])})
    x = np.arange(4, dtype=np.float32).reshape(2, 2)
    got = bench.compile(model, "--loss=none").predict({"x": x})
    for name in ("y", "z", "v"):
        require_close(got[name], x, 0, name)
    unequal = model_of([node("Einsum", "x", "y", equation="ii->i")], {"x": [1, 3]}, {"y": ["M"]}, {})
    require_refusal(bench.run_mpc(unequal, "--loss=none", output=bench.path("t")), ["Einsum_y", "dimensions of 1 and 3 have the same label"], "mpc")


def test_resize_without_what_lies_outside(bench):
    """exclude_outside: what is left of the weights counts as a whole, for linear and cubic interpolation."""
    x = np.array([1, 2, 4, 8], np.float32).reshape(1, 1, 4)
    for mode, radius in (("linear", 1), ("cubic", 2)):
        def weight(d):
            d = abs(d)
            if mode == "linear":
                return 1 - d
            return (1.25 * d - 2.25) * d * d + 1 if d <= 1 else ((-0.75 * d + 3.75) * d - 6) * d + 3 if d < 2 else 0
        want = []
        for i in range(6):
            at = (i + 0.5) * 4 / 6 - 0.5
            taps = [k for k in range(int(np.floor(at)) - radius + 1, int(np.floor(at)) + radius + 1) if 0 <= k < 4]
            weights = [weight(at - k) for k in taps]
            want.append(sum(w * x[0, 0, k] for w, k in zip(weights, taps)) / sum(weights))
        model = model_of([node("Resize", "x  scales", "y", mode=mode, exclude_outside=1)], {"x": [1, 1, 4]}, {"y": [1, 1, 6]}, {"scales": np.array([1, 1, 1.5], np.float32)})
        model.graph.node[0].input[:] = ["x", "", "scales"]
        require_close(bench.compile(model, "--loss=none", "--precision=fp32").predict({"x": x})["y"].ravel(), want, 1e-6, mode)


def test_average_of_a_large_window(bench):
    """The number of cells that count is computed, not added up: of a kernel of 10^9 in short code, and right at the borders with dilation."""
    wide = model_of([node("AveragePool", "x", "y", kernel_shape=[3000], pads=[2999, 2999])], {"x": [1, 1, 3]}, {"y": [1, 1, 3002]}, {}, opset=19)
    x = np.array([3, 6, 12], np.float32).reshape(1, 1, 3)
    got = bench.compile(wide, "--loss=none", "--precision=fp32").predict({"x": x})["y"].ravel()
    require_close(got[[0, 1, 2, 1500, -3, -2, -1]], [3, 4.5, 7, 7, 7, 9, 12], 1e-6, "a wide window")
    huge = model_of([node("AveragePool", "x", "y", kernel_shape=[10**9], pads=[10**9 - 1, 10**9 - 1], strides=[2 * 10**9])], {"x": [1, 1, 3]}, {"y": [1, 1, 1]}, {}, opset=19)
    done = bench.run_mpc(huge, "--loss=none", "--precision=fp32", "--emit=asm")
    require(done.code == 0, f"a huge window: exit {done.code}: {done.err[-300:]}")
    for include in (0, 1):
        model = model_of([node("AveragePool", "x", "y", kernel_shape=[3], pads=[3, 4], dilations=[2], strides=[3], count_include_pad=include)],
                         {"x": [1, 1, 5]}, {"y": [1, 1, 3]}, {}, opset=19)
        x = np.arange(1, 6, dtype=np.float32)
        want = []
        for i in range(3):
            cells = [i * 3 - 3 + 2 * w for w in range(3)]
            inside = [c for c in cells if 0 <= c < 5]
            counted = [c for c in cells if -3 <= c < 5 + 4] if include else inside
            want.append(sum(x[c] for c in inside) / max(len(counted), 1))
        require_close(bench.compile(model, "--loss=none", "--precision=fp32").predict({"x": x.reshape(1, 1, 5)})["y"].ravel(), want, 1e-6, f"dilation, {include}")


def frozen_model(channels):
    made = np.random.default_rng(0)
    weights = {"W": made.standard_normal((channels, channels)).astype(np.float32) / 8, "bn1.weight": np.ones(channels, np.float32), "bn1.bias": np.zeros(channels, np.float32),
               "bn1.running_mean": np.full(channels, 0.5, np.float32), "bn1.running_var": np.full(channels, 4, np.float32)}
    nodes = [node("MatMul", "x W", "h"), node("BatchNormalization", "h bn1.weight bn1.bias bn1.running_mean bn1.running_var", "y", epsilon=0.0)]
    return model_of(nodes, {"x": ["N", channels]}, {"y": ["N", channels]}, weights), weights


def test_freeze(bench):
    """A frozen scale, bias or statistic freezes its normalization, whatever their size, and the note says how many parameters that is."""
    for channels, freeze, count in ((4, r"bn1\.(weight|bias)", 2), (1200, r"bn1\.(weight|bias)", 2), (4, "running_mean", 0)):
        model, weights = frozen_model(channels)
        x, t = np.random.default_rng(1).standard_normal((6, channels)).astype(np.float32), np.zeros((6, channels), np.float32)
        output = bench.fresh("trainer")
        done = require_success(bench.run_mpc(model, *SGD, "--precision=fp32", "--batch=6", f"--freeze={freeze}", output=output), "mpc")
        noted = f"--freeze={freeze}: {count} parameters are not trained"
        require(noted in done.err and "1 BatchNormalization frozen" in done.err, f"{freeze}, {channels}: {done.err}")
        got = Trainer(bench, output).grad({"x": x}, t)
        want = x.T @ (2 * (x @ weights["W"] - 0.5) / 2 / (6 * channels) / 2)
        require_close(got["W"], want, 1e-4, f"{freeze}, {channels}: gradient")
        require(set(got) - {"loss", "loss_scale"} == ({"W"} if count else {"W", "bn1.weight", "bn1.bias"}), f"{freeze}: {sorted(got)}")


def test_freeze_of_what_is_no_parameter(bench):
    """A scale that --train leaves out, a buffer or a constant freezes its normalization like a parameter."""
    model, weights = frozen_model(4)
    x, t = np.random.default_rng(1).standard_normal((6, 4)).astype(np.float32), np.zeros((6, 4), np.float32)
    for train in ("^W$", r"^(W|bn1\.bias)$"):
        output = bench.fresh("trainer")
        done = require_success(bench.run_mpc(model, *SGD, "--precision=fp32", "--batch=6", f"--train={train}", r"--freeze=^bn1\.weight$", output=output), "mpc")
        require("1 BatchNormalization frozen" in done.err and "1 BatchNormalization by" not in done.err, f"{train}: {done.err}")
        got = Trainer(bench, output).grad({"x": x}, t)
        require_close(got["W"], x.T @ (2 * (x @ weights["W"] - 0.5) / 2 / 24 / 2), 1e-4, f"{train}: gradient")


def test_freeze_in_half(bench):
    """Frozen weights of a product: their half copies are made once, and the others train as before."""
    made = np.random.default_rng(2)
    a, b = (made.standard_normal((8, 8)).astype(np.float32) for _ in range(2))
    model = model_of([node("MatMul", "x A", "h"), node("Relu", "h", "r"), node("MatMul", "r B", "y")], {"x": ["N", 8]}, {"y": ["N", 8]}, {"A": a, "B": b})
    x, t = made.standard_normal((4, 8)).astype(np.float32), np.zeros((4, 8), np.float32)
    trainer = bench.compile(model, *SGD, "--precision=fp16", "--batch=4", "--freeze=^A$")
    got, r = trainer.grad({"x": x}, t), np.maximum(x @ a, 0)
    require(set(got) == {"B", "loss", "loss_scale"}, f"{sorted(got)}")
    require_close(got["B"], r.T @ (2 * (r @ b) / 32), 1e-2, "B")
    run = trainer.train(trainer.data({"x": x}, t), "--steps", 1, "--lr", 0.1, *PLAIN)
    after = run.weights()
    require_same_bits({"A": after["A"]}, {"A": a}, "the frozen weight")
    require(not np.array_equal(after["B"], b), "B was not trained")


def test_binary_cross_entropy_at_its_ends(bench):
    """PyTorch's derivative (x - t) / max(x · (1 - x), 1e-12), also where a probability is 0 or 1, and its loss, whose logarithms end at -100: to the
    precision of the arithmetic."""
    x = np.array([[0, 0, 1, 1, 1e-13, 1e-12, 1e-9, 0.25, 0.75, 0.999]], np.float32)
    t = np.array([[1, 0, 0, 1, 1, 1, 1, 1, 0.5, 0]], np.float32)
    model = model_of([node("Mul", "x p", "y")], {"x": ["N", 10]}, {"y": ["N", 10]}, {"p": np.ones(10, np.float32)})
    for precision, loss_tolerance, tolerance in (("fp32", 1e-6, 1e-5), ("fp64", 1e-14, 1e-14)):
        got = bench.compile(model, "--loss=bce", "--optimizer=sgd", "--batch=1", f"--precision={precision}").grad({"x": x}, t)
        exact, one = x.astype(np.float64), t.astype(np.float64)
        with np.errstate(divide="ignore"):
            loss = -(one * np.maximum(np.log(exact), -100) + (1 - one) * np.maximum(np.log(1 - exact), -100)).mean()
        require_close(got["loss"], loss, loss_tolerance, f"{precision}: loss")
        want = (exact - one) / np.maximum(exact * (1 - exact), 1e-12) / 10 * exact
        require_close(got["p"], want.ravel(), tolerance, f"{precision}: by the factor")
        shifted = model_of([node("Add", "x p", "y")], {"x": ["N", 10]}, {"y": ["N", 10]}, {"p": np.zeros(10, np.float32)})
        got = bench.compile(shifted, "--loss=bce", "--optimizer=sgd", "--batch=1", f"--precision={precision}").grad({"x": x}, t)["p"]
        want = ((exact - one) / np.maximum(exact * (1 - exact), 1e-12) / 10).ravel()
        require(np.all(np.abs(got - want) <= tolerance * np.abs(want)), f"{precision}: {got}, want {want}")


def test_binary_cross_entropy_of_sure_logits(bench):
    """Loss and gradient keep their digits where the logit is far on the target's side: log(1 + e^-|x|) and σ of that sign."""
    x = np.array([[-2, -8, -16, -30, -37, -60, 2, 8, 16, 30, 37, 60]], np.float32)
    target = (x > 0).astype(np.float32)
    model = model_of([node("Mul", "x w", "y")], {"x": ["N", 12]}, {"y": ["N", 12]}, {"w": np.ones(12, np.float32)})
    far = np.exp(-np.abs(x[0].astype(np.float64)))
    loss, gradient = np.log1p(far).mean(), -np.abs(x[0]) * far / (1 + far) / 12
    for precision, tolerance in (("fp64", 1e-14), ("fp32", 3e-6)):
        trainer = bench.compile(model, "--loss=bce-with-logits", f"--precision={precision}", "--batch=1", "--train=^w$")
        got = trainer.grad({"x": x.astype(np.float64 if precision == "fp64" else np.float32)}, target)
        require_close(got["loss"], loss, tolerance, f"{precision}: loss")
        require(np.all(np.abs(got["w"] / gradient - 1) < tolerance), f"{precision}: {got['w']}, want {gradient}")


def test_a_product_has_one_value(bench):
    """p - min(p) and max(p) - p of a product are zero at the extremum and nowhere negative: the product is not fused into the difference, exact, while
    the reduction reads it rounded. On both targets, and where both are in one kernel as where they are in two."""
    x, w = np.random.default_rng(5).random((2, 64, 8), np.float32) + 0.5, np.random.default_rng(6).random((64, 1), np.float32) + 0.5
    wide, factors = np.random.default_rng(7).random((2, 4, 20000), np.float32) + 0.5, np.random.default_rng(8).random(20000, np.float32) + 0.5
    for data, weight, axis in ((x, w, 1), (wide, factors, 2)):
        sizes = ["N", *data.shape[1:]]
        model = model_of([node("Mul", "x w", "p"), node("ReduceMin", "p", "lo", axes=[axis], keepdims=1), node("ReduceMax", "p", "hi", axes=[axis], keepdims=1),
                          node("Sub", "p lo", "d"), node("Sqrt", "d", "low"), node("Sub", "hi p", "e"), node("Sqrt", "e", "high")],
                         {"x": sizes}, {"low": sizes, "high": sizes}, {"w": weight}, opset=13)
        for options, device in (((), ()), (("--target=cuda:sm_80", "--simulate"), ("--device", "sim"))):
            got = bench.compile(model, "--loss=none", "--precision=fp32", "--batch=2", *options).predict({"x": data}, *device)
            for name in ("low", "high"):
                require(not np.isnan(got[name]).any(), f"{options}: {np.isnan(got[name]).sum()} elements of {name} are NaN")
                require(((got[name] == 0).sum(axis) > 0).all(), f"{options}: no extremum in {name} of a row")


def central_differences(f, weights, name, step=1e-5):
    """∂f/∂weights[name], in f64."""
    result = np.zeros(weights[name].shape)
    for at in np.ndindex(result.shape):
        sides = []
        for sign in (1, -1):
            moved = {key: values.copy() for key, values in weights.items()}
            moved[name][at] += sign * step
            sides.append(f(moved))
        result[at] = (sides[0] - sides[1]) / (2 * step)
    return result


def test_norms_by_operands_of_the_whole_shape(bench):
    """Scale and bias of more dimensions than are normalized. PyTorch's exporter writes a norm without parameters by ones of its input's shape, of a
    batch that may be smaller; parameters that differ from row to row are trained as such."""
    made = np.random.default_rng(12)
    x, labels = made.normal(size=(3, 3, 4)).astype(np.float32), made.normal(size=(3, 3, 4)).astype(np.float32)
    weights = {"W": made.normal(size=(4, 4)).astype(np.float32), "s": made.normal(size=(3, 4)).astype(np.float32), "b": made.normal(size=(1, 3, 1)).astype(np.float32)}
    one = numpy_helper.from_array(np.ones(1, np.float32))
    for kind in ("LayerNormalization", "RMSNormalization"):
        hasBias = kind == "LayerNormalization"
        for scale in ("s", "ones"):
            used = {key: weights[key].astype(np.float64) for key in ("W", *(["s"] if scale == "s" else []), *(["b"] if hasBias else []))}

            def loss(w):
                h = x.astype(np.float64) @ w["W"]
                centered = h - h.mean(-1, keepdims=True) if hasBias else h
                y = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + np.float64(np.float32(1e-5)))
                return np.mean((y * w.get("s", 1) + w.get("b", 0) - labels) ** 2)

            nodes = [node("MatMul", "x W", "h"), node("Shape", "h", "shape"), node("ConstantOfShape", "shape", "ones", value=one),
                     node(kind, f"h {scale}" + (" b" if hasBias else ""), "y")]
            model = model_of(nodes, {"x": ["N", 3, 4]}, {"y": ["N", 3, 4]}, {key: weights[key] for key in used}, opset=23, ir=10)
            for batch in (3, 4):
                got = bench.compile(model, "--loss=mse", "--optimizer=sgd", "--precision=fp64", f"--batch={batch}").grad({"x": x}, labels)
                where = f"{kind} by {scale}, batch {batch}"
                require_close(got["loss"], loss(used), 1e-9, f"{where}: loss")
                for key in used:
                    require_close(got[key], central_differences(loss, used, key), 1e-7, f"{where}: {key}")


if __name__ == "__main__":
    main(__doc__)
