"""Fused attention on the simulator of GPUs: the numbers that the CPU has from the model as it is written out, by cuDNN and by generated kernels.

    test_cuda_attention.py --build BUILD [--only REGEX] [-v]
"""

import re

import numpy as np

from support import SGD, main, model_of, node, require, require_close, require_match, require_refusal, require_same_bits, require_success
from test_cuda import KERNELS, SIMULATED, With, counts_of, require_declined_is_generated, simulator
from test_resume import require_same_run, resume

HEADS, CHANNELS = 2, 8
WIDTH = HEADS * CHANNELS
# Gradients of any number of keys are cuDNN's from this version on; of the older one few are.
NEW, OLD = {"MPC_SIM_DNN_VERSION": "91900"}, {"MPC_SIM_DNN_VERSION": "91000"}


def attention(tokens, masked=False, causal=False, scale_on="scores", dropout=0.0, guarded=False):
    """One layer of self-attention over [N, tokens, WIDTH], with a residual; the scale on the scores, or its root on query and key; dropout of the weights;
    these guarded, as PyTorch writes them where a mask of truth values may leave nothing."""
    random = np.random.default_rng(3)
    nodes, weights = [], {"heads": np.array([0, 0, HEADS, CHANNELS]), "joined": np.array([0, 0, WIDTH])}
    for part in "qkv":
        weights[f"W{part}"] = (random.normal(size=(WIDTH, WIDTH)) / np.sqrt(WIDTH)).astype(np.float32)
        nodes += [node("MatMul", f"x W{part}", f"{part}1"), node("Reshape", f"{part}1 heads", f"{part}2"),
                  node("Transpose", f"{part}2", part, perm=[0, 2, 3, 1] if part == "k" else [0, 2, 1, 3])]
    if scale_on == "scores":
        weights["scale"] = np.array(np.sqrt(CHANNELS), np.float32)
        nodes += [node("MatMul", "q k", "s1"), node("Div", "s1 scale", "s")]
    else:
        weights["scale"] = np.array(CHANNELS ** -0.25, np.float32)
        nodes += [node("Mul", "q scale", "q3"), node("Mul", "k scale", "k3"), node("MatMul", "q3 k3", "s")]
    scores, inputs = "s", {"x": ["N", tokens, WIDTH]}
    if masked:
        inputs["mask"] = ["N", 1, 1, tokens]
        nodes.append(node("Add", f"{scores} mask", "masked"))
        scores = "masked"
    if causal:
        weights["seen"] = np.tril(np.ones((tokens, tokens), bool))
        weights["low"] = np.array(np.finfo(np.float32).min, np.float32)
        nodes.append(node("Where", f"seen {scores} low", "causal"))
        scores = "causal"
    weights["Wo"] = (random.normal(size=(WIDTH, WIDTH)) / np.sqrt(WIDTH)).astype(np.float32)
    nodes.append(node("Softmax", scores, "p", axis=-1))
    p = "p"
    if guarded:
        weights["zero"] = np.array(0, np.float32)
        nodes += [node("IsNaN", "p", "none"), node("Where", "none zero p", "guarded")]
        p = "guarded"
    if dropout:
        weights["ratio"], weights["training"] = np.array(dropout, np.float32), np.array(True)
        nodes.append(node("Dropout", f"{p} ratio training", "kept"))
        p = "kept"
    nodes += [node("MatMul", f"{p} v", "o1"), node("Transpose", "o1", "o2", perm=[0, 2, 1, 3]), node("Reshape", "o2 joined", "o3"),
              node("MatMul", "o3 Wo", "o4"), node("Add", "o4 x", "y")]
    return model_of(nodes, inputs, {"y": ["N", tokens, WIDTH]}, weights, opset=17)


def samples(tokens, masked=False, count=4, low=-1e9):
    random = np.random.default_rng(4)
    inputs = {"x": random.normal(size=(count, tokens, WIDTH)).astype(np.float32)}
    if masked:  # of sample 1 half of the keys, of sample 2 all: equal weights, or none
        inputs["mask"] = np.zeros((count, 1, 1, tokens), np.float32)
        inputs["mask"][1, :, :, tokens // 2:] = inputs["mask"][2] = low
    return inputs, random.normal(size=(count, tokens, WIDTH)).astype(np.float32)


def test_as_the_cpu(bench):
    """Outputs and gradients, and losses of steps of which the last has fewer samples."""
    forms = {"plain": (37, {}), "masked": (24, {"masked": True}), "causal": (70, {"causal": True}), "roots": (33, {"scale_on": "operands"}),
             "dropout": (36, {"masked": True, "dropout": 0.1}), "dropout of odd rows": (37, {"dropout": 0.5}),
             "guarded": (24, {"masked": True, "guarded": True}), "guarded, dropout": (24, {"masked": True, "guarded": True, "dropout": 0.1})}
    for form, (tokens, options) in forms.items():
        model = attention(tokens, **options)
        inputs, labels = samples(tokens, "masked" in options, 7, -np.inf if "guarded" in options else -1e9)
        first = {name: values[:4] for name, values in inputs.items()}
        plan = bench.path("plan.mlir")
        require_success(bench.run_mpc(model, *SGD, *SIMULATED, "--batch=4", "--emit=plan", output=plan), "--emit=plan")
        require_match(r"mpc\.attention_grad .*\bdropout " if "dropout" in options else r"mpc\.attention_grad", plan.read_text(), f"{form}: the plan")
        require(("safe" in plan.read_text()) == ("guarded" in options), f"{form}: a safe softmax in the plan")
        require("random_uniform" not in plan.read_text(), f"{form}: a mask in the plan")
        for precision, tolerance in (("fp32", 2e-5), ("fp16", 8e-3), ("bf16", 6e-2)):
            cpu, gpu = [bench.on(t).compile(model, *SGD, "--batch=4", f"--precision={precision}") for t in ("cpu", "cuda")]
            want, outputs = cpu.grad(first, labels[:4]), cpu.predict(first)["y"]
            steps = cpu.train(cpu.data(inputs, labels), "--epochs", 1, "--lr", 0.1, "--no-shuffle").values("loss")
            ways = {"generated kernels": KERNELS}
            if precision != "fp32":
                ways |= {"cuDNN": NEW, "cuDNN, the gradient by generated kernels": OLD}
            for what, trainer in ((what, With(gpu, **environment)) for what, environment in ways.items()):
                where = f"{form} in {precision} by {what}"
                got = trainer.grad(first, labels[:4])
                for key in want:
                    if key != "loss_scale":
                        require_close(got[key], want[key], tolerance, f"{where}: {key}")
                require_close(trainer.predict(first)["y"], outputs, tolerance, f"{where}: outputs")
                run = trainer.train(gpu.data(inputs, labels), "--epochs", 1, "--lr", 0.1, "--no-shuffle")
                require_close(run.values("loss"), steps, tolerance, f"{where}: losses")


def test_masks_added(bench):
    """Rows that masks leave nothing of: the keys that one of two masks hides have weights, those that both hide have none."""
    tokens = 24
    model = attention(tokens, masked=True)
    inputs, labels = samples(tokens, masked=True)
    inputs["mask"][3] = np.where(np.arange(tokens) % 3, np.float32(-2e9), np.float32(-1e9))
    for precision, tolerance in (("fp32", 2e-5), ("fp16", 8e-3), ("bf16", 6e-2)):
        cpu, gpu = [bench.on(t).compile(model, *SGD, "--batch=4", f"--precision={precision}") for t in ("cpu", "cuda")]
        want, got = cpu.grad(inputs, labels), With(gpu, **KERNELS).grad(inputs, labels)
        for key in want:
            if key != "loss_scale":
                require_close(got[key], want[key], tolerance, f"{precision}: {key}")
        require_close(With(gpu, **KERNELS).predict(inputs)["y"], cpu.predict(inputs)["y"], tolerance, f"{precision}: outputs")


def attention_run(bench, precision="fp16"):
    gpu = bench.on("cuda").compile(attention(128), *SGD, "--batch=2", f"--precision={precision}")
    inputs, labels = samples(128)
    return gpu, gpu.data(inputs, labels), ["--epochs", 1, "--lr", 1e-2, "--no-shuffle"]


def test_who_executes_it(bench):
    """In halves cuDNN, where it is there and new enough; f32 is left to the generated kernels. The same bits in every run."""
    for precision, by_library in (("fp16", 2), ("bf16", 2), ("fp32", 0)):
        gpu, data, options = attention_run(bench, precision)
        run, generated = gpu.train(data, *options), With(gpu, **KERNELS).train(data, *options)
        with_cudnn, without = counts_of(run), counts_of(generated)
        require(with_cudnn[0] - without[0] == by_library and sum(with_cudnn) == sum(without), f"{precision}: {with_cudnn}, without cuDNN {without}")
        require_same_bits(gpu.train(data, *options).weights(), run.weights(), f"{precision}: a second run")
        older = With(gpu, MPC_SIM_DNN_VERSION="90900").train(data, *options)
        require(counts_of(older) == without, f"{precision}: {counts_of(older)} with cuDNN 9.9")


def test_what_cudnn_declines_or_fails(bench):
    gpu, data, options = run = attention_run(bench)
    require_declined_is_generated(run, "dnn-unsupported", 2)
    for n in (1, 2):
        done = gpu.run("train", "--data", data, *options, env=simulator(MPC_SIM_FAULT=f"dnn:{n}"))
        require_refusal(done, ["the attention operation of '", "failed: CUDNN_STATUS_EXECUTION_FAILED", "MPC_CUDA_DNN=0"], f"dnn:{n}")
    require_success(gpu.run("train", "--data", data, *options, env=simulator(MPC_SIM_FAULT="dnn:1", **KERNELS)), "generated kernels")


def test_dropout(bench):
    """Of the weights: generated kernels alone draw the numbers of the CPU. A run goes on with the same masks; without training there are none."""
    inputs, labels = samples(36, count=7)
    for precision in ("fp32", "fp16"):
        gpu = bench.on("cuda").compile(attention(36, dropout=0.2), *SGD, "--batch=2", f"--precision={precision}")
        data, options = gpu.data(inputs, labels), ["--epochs", 2, "--lr", 1e-2, "--seed", 3]
        whole = gpu.train(data, *options)
        split = gpu.train(data, *options, "--stop-after", 3)
        resume(gpu, split, data)
        require_same_run(split, whole, precision)
        by_cudnn = [counts_of(With(gpu, **environment).train(data, *options))[0] for environment in (NEW, KERNELS)]
        require(by_cudnn[0] == by_cudnn[1], f"{precision}: commands by libraries with cuDNN and without: {by_cudnn}")
        other = gpu.train(data, "--epochs", 2, "--lr", 1e-2, "--seed", 4, "--no-shuffle").values("loss")
        require(other != gpu.train(data, "--epochs", 2, "--lr", 1e-2, "--seed", 5, "--no-shuffle").values("loss"), f"{precision}: the same masks with every seed")
        plain = bench.on("cuda").compile(attention(36), *SGD, "--batch=2", f"--precision={precision}")
        require_same_bits(gpu.predict(inputs), plain.predict(inputs), f"{precision}: outputs")


def test_a_row_without_keys(bench):
    """-∞ throughout is NaN, as the softmax of such a row is: outputs of that sample alone. Guarded, it is zero, whatever the values are."""
    inputs, _ = samples(24, masked=True, low=-np.inf)
    gpu = bench.on("cuda").compile(attention(24, masked=True), *SGD, "--batch=4", "--precision=fp32")
    bad = np.isnan(gpu.predict(inputs)["y"]).all(axis=(1, 2))
    require(bad.tolist() == [False, False, True, False], f"{bad}")
    for precision in ("fp32", "fp16"):
        gpu = bench.on("cuda").compile(attention(24, masked=True, guarded=True), *SGD, "--batch=4", f"--precision={precision}")
        require_close(gpu.predict(inputs)["y"][2], inputs["x"][2], 1e-3, f"{precision}: guarded")


def test_memory(bench):
    """The scores are nowhere: what a step needs grows with the tokens, not with their square."""
    arena = {}
    for target in ("cpu", "cuda"):
        options = SIMULATED if target == "cuda" else ()
        report = bench.run_mpc(attention(512), *SGD, *options, "--batch=8", "--precision=fp16", "--report=memory", output=bench.path("t")).out
        arena[target] = int(re.search(r"^ *(\d+) +arena$", report, re.M).group(1))
    scores = 8 * HEADS * 512 * 512 * 2
    require(arena["cpu"] > scores and arena["cuda"] < scores / 4, f"{arena}, scores in halves {scores}")


if __name__ == "__main__":
    main(__doc__)
