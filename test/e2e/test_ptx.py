"""GPU code of whole models: NVIDIA's assembler takes it for every architecture, without spills; wide accesses; bytes that are moved beside bytes that must be.

    test_ptx.py --build BUILD [--only REGEX] [-v]
"""

import os
import re
import shutil
import time
from pathlib import Path

import numpy as np
from onnx import TensorProto

import large_models
from support import Skipped, execute, main, model_of, node, require, require_match, require_success

MODELS = Path(__file__).resolve().parent.parent.parent / "models"
BEFORE_BF16, FROM_BF16 = (70, 75), (80, 86, 89, 90, 100, 120)
# A text of a model in fp16, and who runs it.
TEXTS = {70: (70, 72), 75: (75,), 80: FROM_BF16}


def ptxas(bench):
    cache = (bench.build / "CMakeCache.txt").read_text()
    tools = re.search(r"^MPC_CUDA_TOOLS:\w+=(.+)$", cache, re.M)
    file = os.environ.get("MPC_PTXAS") or (tools and f"{tools[1]}/bin/ptxas")
    file = file if file and os.path.exists(file) else shutil.which("ptxas")
    if not file:
        raise Skipped("ptxas is not here: scripts/test.sh installs it")
    return file


def ptx_of(bench, model, architecture, *options):
    done = bench.run_mpc(model, f"--target=cuda:sm_{architecture}", "--emit=ptx", *options)
    require_success(done, "mpc --emit=ptx")
    require_match(rf"\.target sm_{architecture}\b", done.out, "the text")
    return done.out


def assemble(bench, text, architectures, what):
    """Every kernel of the text, for each of the architectures, keeps its values in registers."""
    file = bench.fresh("kernels").with_suffix(".ptx")
    file.write_text(text)
    kernels = len(re.findall(r"^\.visible \.entry ", text, re.M))
    require(kernels > 0, f"{what}: no kernel")
    for architecture in architectures:
        done = execute([ptxas(bench), f"-arch=sm_{architecture}", "-O3", "-v", "-o", bench.path("cubin"), file])
        require_success(done, f"{what}: ptxas for sm_{architecture}")
        spills = [int(n) for n in re.findall(r"(\d+) bytes spill", done.out + done.err)]
        require(len(spills) == 2 * kernels, f"{what}: {len(spills)} counts of spills for {kernels} kernels")
        require(not any(spills), f"{what}: spills for sm_{architecture}")


def embedding_model():
    """An embedding, a norm of rows that have a warp, and one of rows that have a block."""
    random = np.random.default_rng(1)
    weights = {"E": random.normal(size=(500, 256)).astype(np.float32), "g": np.ones(256, np.float32), "b": np.zeros(256, np.float32),
               "W": random.normal(size=(256, 3000)).astype(np.float32) / 16, "h": np.ones(3000, np.float32), "c": np.zeros(3000, np.float32)}
    nodes = [node("Gather", "E i", "e"), node("LayerNormalization", "e g b", "n", axis=-1), node("MatMul", "n W", "w"),
             node("LayerNormalization", "w h c", "m", axis=-1), node("Softmax", "m", "s", axis=-1), node("Mul", "s m", "y")]
    return model_of(nodes, {"i": (["N", 8], TensorProto.INT64)}, {"y": ["N", 8, 3000]}, weights)


def every_architecture(bench, name, model, batch):
    for base, architectures in TEXTS.items():
        assemble(bench, ptx_of(bench, model, base, f"--batch={batch}", "--precision=fp16"), architectures, name)


def test_small_models_on_every_architecture(bench):
    for name in ("linear", "mlp", "mlp_ln", "fashion_cnn", "simple_cnn"):
        every_architecture(bench, name, MODELS / f"{name}.onnx", 64)


def test_resnet_on_every_architecture(bench):
    every_architecture(bench, "resnet18_cifar", large_models.resnet18_cifar(), 32)


def test_depthwise_on_every_architecture(bench):
    """A convolution of every channel by itself, plain, with a stride and with a large filter."""
    b = large_models.Builder()
    x = b.op("Relu", b.conv_norm("stem", "input", 3, 32, 3, 2))
    for i, (kernel, stride) in enumerate(((3, 1), (3, 2), (5, 1), (7, 1))):
        x = b.op("Conv", x, b.weight(f"depthwise{i}", 32, 1, kernel, kernel), strides=[stride] * 2, pads=[kernel // 2] * 4, group=32)
        x = b.op("Relu", b.conv_norm(f"pointwise{i}", x, 32, 32, 1, 1))
    b.op("Gemm", b.op("Flatten", b.op("GlobalAveragePool", x)), b.weight("fc.weight", 10, 32), b.weight("fc.bias", 10, value=0), transB=1)
    every_architecture(bench, "depthwise", b.model({"input": ["N", 3, 64, 64]}, {"logits": ["N", 10]}), 32)


def test_transformers_on_every_architecture(bench):
    every_architecture(bench, "bert_tiny", large_models.bert_tiny(), 16)
    every_architecture(bench, "gpt_tiny", large_models.gpt_tiny(), 8)


def test_large_models_in_bf16_and_fp32(bench):
    for name, build in large_models.MODELS.items():
        for precision, base in (("bf16", 80), ("fp32", 70)):
            assemble(bench, ptx_of(bench, build(), base, "--batch=8", f"--precision={precision}"), (base, 120), f"{name} {precision}")


def test_bytes_moved(bench):
    """The kernels of a gradient step move little more than the bytes that are necessary (compiler/driver/KernelTraffic.h)."""
    models = {name: (MODELS / f"{name}.onnx", 64) for name in ("linear", "mlp", "mlp_ln", "fashion_cnn", "simple_cnn")}
    models |= {name: (build(), 16) for name, build in large_models.MODELS.items()}
    for name, (model, batch) in models.items():
        done = bench.run_mpc(model, f"--batch={batch}", "--precision=fp16", "--target=cuda:sm_80", "--report=cost", "--emit=plan", output=bench.path("plan"))
        require_success(done, "mpc --report=cost")
        found = dict((entry, (int(moved), int(least))) for entry, moved, least in
                     re.findall(r"^cost of (\w+):.*\n.*the kernels move (\d+) bytes, (\d+) are necessary", done.out, re.M))
        require({"gradients", "apply", "predict"} <= set(found), f"{name}: {sorted(found)}")
        for entry, (moved, least) in found.items():
            require(least <= moved, f"{name}: {entry} moves {moved} bytes of {least}")
            require(moved <= 1.3 * least, f"{name}: {entry} moves {moved} bytes, {least} are necessary")


def test_other_precisions(bench):
    text = ptx_of(bench, MODELS / "simple_cnn.onnx", 80, "--batch=32", "--precision=bf16")
    require_match(r"cvt\.rn\.(bf16\.f32|bf16x2\.f32)", text, "rounding to bf16")
    assemble(bench, text, (80, 90, 120), "simple_cnn")
    assemble(bench, ptx_of(bench, MODELS / "mlp.onnx", 70, "--batch=64", "--precision=fp32", "--optimizer=sgd"), (70, 120), "mlp")


def many_parameters(layers):
    """Two parameters per layer, of several sizes."""
    nodes, weights, x, random = [], {}, "x", np.random.default_rng(3)
    widths = [16 if i == 0 or i == layers else (8, 24, 70)[i % 3] for i in range(layers + 1)]
    for i, (rows, columns) in enumerate(zip(widths, widths[1:])):
        weights |= {f"W{i}": (random.normal(size=(rows, columns)) / rows ** 0.5).astype(np.float32), f"b{i}": np.zeros(columns, np.float32)}
        nodes.append(node("Gemm", f"{x} W{i} b{i}", "y" if i == layers - 1 else f"x{i}"))
        x = f"x{i}"
    return model_of(nodes, {"x": ["N", 16]}, {"y": ["N", 16]}, weights)


def plan_of(bench, model, *options):
    done = bench.run_mpc(model, "--batch=8", "--target=cuda:sm_80", "--report=cost", "--emit=plan", *options, output=bench.path("plan"))
    require_success(done, "mpc --report=cost")
    return done.out, bench.path("plan").read_text()


def launches(report):
    return {entry: int(count) for entry, count in re.findall(r"^cost of (\w+):.*\n.*on a GPU (\d+) launches", report, re.M)}


def apply_kernels(text):
    """The functions of PTX that @apply and its like launch for all parameters."""
    return [entry for entry in re.split(r"^\.visible \.entry ", text, flags=re.M)[1:] if "$group" in entry.split("(")[0]]


# Launches of @apply, whatever the number of parameters.
MOST_LAUNCHES = 10


def test_launches_of_apply(bench):
    """Square sums, norm, updates, running statistics: each a launch or two for all parameters, for every optimizer."""
    models = {name: MODELS / f"{name}.onnx" for name in ("linear", "mlp", "mlp_ln", "fashion_cnn", "simple_cnn")}
    models |= {name: build() for name, build in large_models.MODELS.items()}
    for name, model in models.items():
        for options in (["--precision=fp16"], ["--precision=bf16", "--optimizer=sgd"], ["--precision=fp32", "--optimizer=adam"]):
            found = launches(plan_of(bench, model, *options)[0])
            for entry in ("apply", "apply_accumulated"):
                require(found[entry] <= MOST_LAUNCHES, f"{name} {options}: {found[entry]} launches of {entry}")
            require(found["accumulate"] <= 3 and found.get("refresh", 0) <= 2, f"{name} {options}: {found}")


def test_many_parameters(bench):
    """600 parameters: as many launches and kernels as 20 have, of the same size but for the table; nothing spills."""
    few, many = many_parameters(10), many_parameters(300)
    for options in (["--precision=fp16", "--loss=mse"], ["--precision=fp32", "--loss=mse", "--optimizer=sgd"]):
        (small, _), (large, plan) = (plan_of(bench, model, *options) for model in (few, many))
        small, large = launches(small), launches(large)
        # Some 500 members have room in a table.
        require(large["apply"] <= small["apply"] + 4, f"{options}: {large['apply']} launches of apply, {small['apply']} of the small model")
        require("mpc.placed" in plan, f"{options}: the square sums are not written to their table")
        texts = [ptx_of(bench, model, 80, "--batch=8", *options) for model in (few, many)]
        longest = [max(entry.count("\n") for entry in apply_kernels(text)) for text in texts]
        # The search takes five halves more.
        require(longest[1] <= 1.5 * longest[0] + 100, f"{options}: lines of the longest kernel {longest}")
        parameters = max(entry.split(")")[0].count(".param") for entry in re.split(r"^\.visible \.entry ", texts[1], flags=re.M)[1:])
        require(parameters <= 40, f"{options}: a kernel of {parameters} parameters")
        start = time.monotonic()
        assemble(bench, texts[1], (80,), f"600 parameters {options}")
        seconds = time.monotonic() - start
        require(seconds < 120, f"{options}: ptxas takes {seconds:.0f} s")
    # What differs between members is in a table that is passed by value and read where it is; accesses are 16 bytes wide.
    text = ptx_of(bench, many, 80, "--batch=8", "--precision=fp16", "--loss=mse")
    kernels = [entry for entry in apply_kernels(text) if re.search(r"sqrt.*\$group", entry.split("(")[0])]
    require(kernels, "no kernel of updates")
    for entry in kernels:
        require_match(r"\.param \.align 8 \.b8 \S+\[\d{3,5}\]", entry.split(")")[0], "the table")
        require_match(r"ld\.param\.(b|u)64", entry, "pointers of the table")
        require(".local" not in entry, "the table is copied")
        for access in ("ld", "st"):
            require_match(access + r"\.global(\.nc)?\.(v4\.(b|u|f)32|v2\.(b|u|f)64)", entry, "accesses of 16 bytes")
        require(not re.search(r"\b(ld|st)\.(b|f|v)", entry), "memory of an unknown space")


def test_double_model(bench):
    """Products of doubles: their tiles fit the shared memory."""
    weights = {"W": np.ones((64, 64)), "b": np.zeros(64)}
    model = model_of([node("Gemm", "x W b", "y")], {"x": (["N", 64], TensorProto.DOUBLE)}, {"y": (["N", 64], TensorProto.DOUBLE)}, weights)
    text = ptx_of(bench, model, 80, "--batch=50176", "--precision=fp32", "--loss=mse", "--optimizer=sgd")
    require_match(r"fma\.rn\.f64", text, "the product")
    assemble(bench, text, (80, 90), "doubles")


def test_embedding_and_long_rows(bench):
    for base, architectures in ((70, (70,)), (80, (80, 120))):
        assemble(bench, ptx_of(bench, embedding_model(), base, "--batch=4", "--loss=mse"), architectures, "embedding")


def test_wide_accesses(bench):
    """A ReLU of 2^20 halves, forward and backward: no thread reads or writes half by half."""
    model = model_of([node("MatMul", "x W", "h"), node("Relu", "h", "r"), node("MatMul", "r V", "y")], {"x": ["N", 1024]}, {"y": ["N", 16]},
                     {"W": np.zeros((1024, 1024), np.float32), "V": np.zeros((1024, 16), np.float32)})
    text = ptx_of(bench, model, 80, "--batch=1024", "--precision=fp16", "--loss=mse")
    wide, halves = r"\.global(\.nc)?\.(v4\.(b|u|f)32|v2\.(b|u|f)64)", r"(ld|st)\.global(\.nc)?\.(b|u)16"
    found = 0
    for kernel in re.split(r"^\.visible \.entry ", text, flags=re.M)[1:]:
        if re.search("ld" + wide, kernel) and re.search("st" + wide, kernel):
            # A group's function has a loop for what lies behind a member's last 16 bytes (test_many_parameters looks at those).
            require("$group" in kernel.split("(")[0] or not re.search(halves, kernel), f"half by half: {kernel[:200]}")
            found += 1
    # The ReLU's gradient, and the update of W with its half copy.
    require(found >= 2, f"{found} kernels with accesses of 16 bytes")


def product_model():
    """Convolutions as a residual network has them, with groups, and matrix products of every kind of side: a batch of them, and transposed."""
    random = np.random.default_rng(2)
    filters = {"A": (64, 3, 7, 7), "B": (64, 64, 3, 3), "C": (128, 64, 3, 3), "D": (128, 64, 1, 1), "E": (128, 1, 3, 3), "F": (128, 32, 3, 3)}
    weights = {name: (random.normal(size=shape) / np.prod(shape[1:]) ** 0.5).astype(np.float32) for name, shape in filters.items()}
    weights["G"] = (random.normal(size=(128, 1000)) / 11).astype(np.float32)
    nodes = [node("Conv", "x A", "a", strides=[2, 2], pads=[3, 3, 3, 3]), node("Conv", "a B", "b", pads=[1, 1, 1, 1]), node("Relu", "b", "r"),
             node("Conv", "r C", "c", strides=[2, 2], pads=[1, 1, 1, 1]), node("Conv", "r D", "d", strides=[2, 2]), node("Add", "c d", "s"),
             node("Conv", "s E", "e", pads=[1, 1, 1, 1], group=128), node("Conv", "e F", "f", pads=[2, 2, 2, 2], dilations=[2, 2], group=4),
             node("Reshape", "f to_rows", "t"), node("Transpose", "t", "u", perm=[0, 2, 1]), node("MatMul", "t u", "v"), node("MatMul", "v t", "w"),
             node("ReduceMean", "w", "m", axes=[2], keepdims=0), node("MatMul", "m G", "y")]
    weights["to_rows"] = np.array([0, 128, -1], np.int64)
    return model_of(nodes, {"x": ["N", 3, 64, 64]}, {"y": ["N", 1000]}, weights)


def test_products_on_every_architecture(bench):
    """Tensor cores for halves, by the instruction that each architecture is built for; nothing is rounded to fewer bits than f32 where the model
    is f32. What is one instruction from sm_80 on is two before."""
    cores, found = {70: "m8n8k4", 75: "m16n8k8", 80: "m16n8k16"}, {}
    for precision, base, architectures in (*(("fp16", *text) for text in TEXTS.items()), ("bf16", 80, FROM_BF16), ("fp32", 70, BEFORE_BF16),
                                           ("fp32", 80, FROM_BF16)):
        text = ptx_of(bench, product_model(), base, "--batch=32", f"--precision={precision}")
        for kind in ("matmul", "conv", "conv_backward_data", "conv_backward_weights"):
            require_match(rf"\.visible \.entry {kind}_\d", text, precision)
        half, products = {"fp16": "f16", "bf16": "bf16"}.get(precision), re.findall(r"mma\.sync\.aligned\.(\w+)\.\w+\.\w+\.(\S+)", text)
        require(set(products) == ({(cores[base], f"f32.{half}.{half}.f32")} if half else set()), f"{precision} for sm_{base}: {set(products)}")
        require(("ldmatrix.sync.aligned.m8n8.x4.trans.shared" in text) == (half is not None and base > 70), f"{precision} for sm_{base}: ldmatrix")
        found[precision, base] = len(products)
        assemble(bench, text, architectures, f"products in {precision}")
    require(found["fp16", 75] == 2 * found["fp16", 80] == 2 * found["bf16", 80], f"instructions of tensor cores: {found}")
    # Of sm_70 LLVM unrolls a short loop more.
    require(found["fp16", 75] <= found["fp16", 70] <= 1.1 * found["fp16", 75], f"instructions of tensor cores: {found}")


def test_refused(bench):
    """What there is no code for is said before anything is read."""
    for options, says in ((["--target=cuda:sm_70,sm_90", "--precision=bf16", "--emit=ptx"], "bf16 needs sm_80.*--target=cuda:sm_90 or --precision=fp16"),
                          (["--target=cuda:sm_75", "--precision=bf16", "--emit=ptx"], "use --precision=fp16"),
                          (["--target=cuda", "--precision=fp64", "--emit=ptx"], "fp64.*--target=cpu"),
                          (["--target=cuda:sm_60", "--emit=ptx"], "'sm_60' is no architecture.*sm_70"),
                          (["--target=cuda:80", "--emit=ptx"], "'80' is no architecture"),
                          (["--target=cuda:", "--emit=ptx"], "'' is no architecture"),
                          (["--target=cudax", "--emit=ptx"], "'cudax' is no target"),
                          (["--target=cuda", "--emit=asm"], "--emit=ptx"),
                          (["--emit=ptx"], "--emit=ptx needs --target=cuda")):
        done = bench.run_mpc(MODELS / "mlp.onnx", "--batch=4", *options)
        require(done.code == 2, f"{options}: exit {done.code}")
        require_match(says, done.err, str(options))


if __name__ == "__main__":
    main(__doc__)
