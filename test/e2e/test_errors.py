"""Every mistake of a user ends with a message and exit code 1 (input or run) or 2 (usage), never with a crash or a partial file.

    test_errors.py --build BUILD [--only REGEX] [-v]
"""

import os
import re
import subprocess

import numpy as np
import onnx
from onnx import TensorProto, helper

from support import DATA, SGD, Skipped, Workbench, execute, main, model_of, node, require, require_match, require_refusal, require_success, scale_model

LINEAR = DATA / "reference/linear/legacy-train.onnx"


def unchecked(nodes, inputs, outputs, weights=(), opset=17, domain=""):
    """A model that the ONNX checker need not accept."""
    graph = helper.make_graph(nodes, "graph", [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
                              [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in outputs.items()],
                              [onnx.numpy_helper.from_array(np.asarray(a), n) for n, a in dict(weights).items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(domain, opset)], ir_version=8)


def refused(bench, model, says, *options, code=1):
    """mpc refuses the model and leaves no file."""
    out = bench.path("trainer-of-nothing")
    require_refusal(bench.run_mpc(model, *options, output=out), says, "mpc", code)
    left = [f.name for f in bench.folder.iterdir() if f.name.startswith("trainer-of-nothing")]
    require(not left, f"left over: {left}")


# ---------------------------------------------------------------- models


def test_no_onnx_file(bench):
    text = bench.path("text.onnx")
    text.write_text("This is no model.\n" * 20)
    refused(bench, text, ["text.onnx"], "--batch=1")
    empty = bench.path("empty.onnx")
    empty.write_bytes(b"")
    refused(bench, empty, ["empty.onnx"], "--batch=1")
    refused(bench, bench.path("missing.onnx"), ["missing.onnx", "No such file"], "--batch=1")
    refused(bench, bench.folder, ["folder|directory"], "--batch=1")
    binary = bench.path("random.onnx")
    binary.write_bytes(np.random.default_rng(0).bytes(5000))
    refused(bench, binary, ["random.onnx"], "--batch=1")


def test_truncated_model(bench):
    data = LINEAR.read_bytes()
    for part in (1, 2, 3, 5):
        file = bench.path(f"cut{part}.onnx")
        file.write_bytes(data[:len(data) * part // 6])
        refused(bench, file, [f"cut{part}.onnx"], "--loss=mse", "--batch=4")


def test_flipped_bytes_never_crash(bench):
    """A model with a damaged byte compiles or is refused; it never crashes the compiler."""
    chance, data = np.random.default_rng(3), LINEAR.read_bytes()
    for _ in range(60):
        damaged = bytearray(data)
        damaged[chance.integers(len(data))] = chance.integers(256)
        file = bench.path("damaged.onnx")
        file.write_bytes(bytes(damaged))
        done = bench.run_mpc(file, "--loss=mse", "--batch=4", "--emit=train", output=bench.path("damaged.mlir"))
        require(done.code in (0, 1), f"exit {done.code} for {bytes(damaged)!r}: {done.err[-300:]}")
        require(done.code == 0 or done.err.startswith("mpc: "), f"the message: {done.err[-300:]}")


def test_unknown_operators_are_all_named(bench):
    """All nodes without a handler are named at once: node, operator, opset."""
    nodes = [node("Frobnicate", "x", "a", name="first"), node("Relu", "a", "b"), node("Transmogrify", "b", "y", name="second")]
    refused(bench, unchecked(nodes, {"x": [1, 2]}, {"y": [1, 2]}), ["first", "Frobnicate", "second", "Transmogrify", "17"], "--loss=none")
    other = unchecked([helper.make_node("Special", ["x"], ["y"], name="mine", domain="com.example")], {"x": [1, 2]}, {"y": [1, 2]})
    other.opset_import.append(helper.make_opsetid("com.example", 3))
    refused(bench, other, ["mine", "Special", "com.example"], "--loss=none")


def test_unsupported_opsets(bench):
    for opset, says in ((0, r"\b0\b"), (4, "Relu"), (99, r"\b99\b")):
        refused(bench, unchecked([node("Relu", "x", "y")], {"x": [1, 2]}, {"y": [1, 2]}, opset=opset), ["opset", says], "--loss=none")


def test_operators_without_a_gradient(bench):
    """An operator that stops the gradient of a parameter is named, with what to do."""
    made = model_of([node("MatMul", "x W", "h"), node("Unique", "h", "y", name="dedupe")], {"x": [2, 3]}, {"y": ["K"]}, {"W": np.ones((3, 1), np.float32)})
    refused(bench, made, ["dedupe", "Unique"], "--loss=mse")


def test_shape_mismatches(bench):
    bad = unchecked([node("MatMul", "x W", "y", name="product")], {"x": [2, 3]}, {"y": [2, 2]}, {"W": np.ones((4, 2), np.float32)})
    refused(bench, bad, ["product", "MatMul"], "--loss=mse")
    bad = unchecked([node("Add", "x W", "y", name="sum")], {"x": [2, 3]}, {"y": [2, 3]}, {"W": np.ones((4,), np.float32)})
    refused(bench, bad, ["sum", "Add"], "--loss=mse")
    bad = unchecked([node("Reshape", "x s", "y", name="fold")], {"x": [2, 3]}, {"y": [4, 2]}, {"s": np.array([4, 2])})
    refused(bench, bad, ["fold", "Reshape"], "--loss=none")


def test_wrong_attributes(bench):
    weights = {"W": np.ones((2, 3, 3, 3), np.float32)}
    bad = unchecked([node("Conv", "x W", "y", name="conv", strides=[0, 1])], {"x": [1, 3, 8, 8]}, {"y": [1, 2, 6, 6]}, weights)
    refused(bench, bad, ["conv"], "--loss=mse")
    bad = unchecked([node("Conv", "x W", "y", name="conv", group=2)], {"x": [1, 3, 8, 8]}, {"y": [1, 2, 6, 6]}, weights)
    refused(bench, bad, ["conv"], "--loss=mse")
    bad = unchecked([node("Softmax", "x", "y", name="soft", axis=5)], {"x": [1, 3]}, {"y": [1, 3]})
    refused(bench, bad, ["soft", "axis"], "--loss=none")
    bad = unchecked([node("Transpose", "x", "y", name="turn", perm=[0, 0])], {"x": [1, 3]}, {"y": [3, 1]})
    refused(bench, bad, ["turn", "perm"], "--loss=none")


def test_unbound_dimensions(bench):
    made = model_of([node("Relu", "x", "y")], {"x": ["N", "T"]}, {"y": ["N", "T"]}, {})
    refused(bench, made, ["x", "--batch"], "--loss=none")
    refused(bench, made, ["x", "T", "--dim"], "--loss=none", "--batch=2")
    refused(bench, made, ["Q"], "--loss=none", "--batch=2", "--dim", "T=3", "--dim", "Q=3")
    require_success(bench.run_mpc(made, "--loss=none", "--batch=2", "--dim", "T=3", output=bench.path("fine")), "mpc")
    fixed = model_of([node("Relu", "x", "y")], {"x": [4, 2]}, {"y": [4, 2]}, {})
    refused(bench, fixed, ["4", "2|8"], "--loss=none", "--batch=8")


def test_losses_that_do_not_fit(bench):
    made = model_of([node("Relu", "x", "y")], {"x": ["N", 3]}, {"y": ["N", 3]}, {})
    refused(bench, made, ["other"], "--loss=mse", "--batch=2", "--loss-input=other")
    refused(bench, made, ["class-axis"], "--loss=cross-entropy", "--batch=2", "--class-axis=7")
    refused(bench, made, ["loss", "y"], "--loss=output", "--batch=2")
    whole = model_of([node("ArgMax", "x", "y", axis=1, keepdims=0)], {"x": ["N", 3]}, {"y": (["N"], TensorProto.INT64)}, {})
    refused(bench, whole, ["loss|output"], "--loss=mse", "--batch=2")


def test_no_parameters(bench):
    """A model without parameters compiles with a note, and training it is refused or changes nothing."""
    made = model_of([node("Relu", "x", "y")], {"x": ["N", 3]}, {"y": ["N", 3]}, {})
    out = bench.path("nothing")
    done = bench.run_mpc(made, "--loss=mse", "--batch=2", output=out)
    require(done.code in (0, 1), f"exit {done.code}")
    require_match("parameter", done.err + done.out, "the message")


# ---------------------------------------------------------------- hostile models

ABSURD = (-2**63, -2, 0, 2**31, 10**10, 2**62)
INSIDE = re.compile(r"bad_alloc|out of memory|internal error|Stack dump|Assertion|UNREACHABLE|terminate|LLVM ERROR|std::|mlir::|'(mpc|arith|math|onnx)\.|tensor<")


def survives(bench, model, what):
    """Within 8 GB and a minute mpc compiles the model, or refuses it by a message that says nothing of the compiler's inside."""
    file = bench.fresh("hostile").with_suffix(".onnx")
    file.write_bytes(model.SerializeToString())
    done = execute(["bash", "-c", 'ulimit -v 8000000 -c 0; exec "$@"', "bash", bench.mpc, file, "--loss=none", "--emit=plan", "-o", bench.path("hostile.mlir")], timeout=60)
    file.unlink()
    require(done.code in (0, 1), f"{what}: exit {done.code}: {done.err[-300:]}")
    if done.code == 1:
        require(done.err.startswith("mpc: error: ") and not INSIDE.search(done.err), f"{what}: {done.err[-300:]}")


def test_absurd_attributes(bench):
    """Attributes that no tensor can have overflow nothing, divide nothing by zero and fill no memory."""
    weight = {"W": np.ones((4, 4, 3, 3), np.float32)}

    def check(op, inputs, weights, **attributes):
        made = unchecked([node(op, inputs, "y", name="odd", **attributes)], {"x": [1, 4, 4, 4]}, {"y": [1, 4, 4, 4]}, weights, opset=18)
        survives(bench, made, f"{op} {str(attributes)[:60]}")

    single = [("DepthToSpace", "x", "blocksize", {}), ("SpaceToDepth", "x", "blocksize", {}), ("Softmax", "x", "axis", {}), ("Flatten", "x", "axis", {}),
              ("Concat", "x x", "axis", {}), ("Split", "x", "num_outputs", {}), ("Conv", "x W", "group", weight), ("Gather", "x i", "axis", {"i": np.array([0])}),
              ("GatherND", "x i", "batch_dims", {"i": np.array([[0]])}), ("EyeLike", "m", "k", {"m": np.ones((2, 2), np.float32)}), ("ArgMax", "x", "axis", {}),
              ("OneHot", "i d v", "axis", {"i": np.array([1]), "d": np.array([3]), "v": np.array([0, 1], np.float32)}),
              ("LayerNormalization", "x s", "axis", {"s": np.ones(4, np.float32)}), ("Cast", "x", "to", {})]
    for op, inputs, attribute, weights in single:
        for value in ABSURD:
            check(op, inputs, weights, **{attribute: value})
    lists = [("Conv", "x W", ("strides", "dilations", "kernel_shape"), 2, weight), ("Conv", "x W", ("pads",), 4, weight),
             ("ConvTranspose", "x W", ("strides", "dilations", "output_padding", "output_shape"), 2, weight), ("ConvTranspose", "x W", ("pads",), 4, weight),
             ("MaxPool", "x", ("kernel_shape",), 2, {}), ("Transpose", "x", ("perm",), 4, {})]
    for op, inputs, attributes, size, weights in lists:
        for attribute in attributes:
            for values in [[v] * size for v in ABSURD] + [[1], [1] * 1000]:
                check(op, inputs, weights, **{attribute: values})


def test_absurd_sizes(bench):
    """Operands that decide a shape, beyond any memory or below zero."""
    def check(nodes, what, x, **weights):
        survives(bench, unchecked(nodes, {"x": x}, {"y": x}, weights, opset=19), what)

    add = node("Add", "x r", "y")
    for value in ABSURD:
        pair = np.array([value, value])
        for mode in ("constant", "reflect", "edge", "wrap"):
            for pads in ([value, 0, 0, 0], [value] * 4):
                check([node("Pad", "x p", "y", name="odd", mode=mode)], f"Pad {mode} {pads}", [2, 3], p=np.array(pads))
        for op in ("Reshape", "Tile", "Expand"):
            check([node(op, "x s", "y", name="odd")], f"{op} {value}", [2, 3], s=pair)
        check([node("ConstantOfShape", "s", "r"), add], f"ConstantOfShape {value}", [1, 1], s=pair)
        check([node("Range", "a b c", "i"), node("Cast", "i", "r", to=1), add], f"Range to {value}", [1], a=np.array(0), b=np.array(value), c=np.array(1))
        check([node("OneHot", "i d v", "r"), add], f"OneHot {value}", [1, 1], i=np.array([1]), d=np.array([value]), v=np.array([0, 1], np.float32))
        image = {"name": "odd", "inputs": ["x", "", "s"], "outputs": ["y"]}
        check([helper.make_node("Resize", **image)], f"Resize {value}", [1, 1, 2, 2], s=np.array([1, 1, value, value], np.float32))
        sized = helper.make_node("Resize", ["x", "", "", "s"], ["y"], name="odd", mode="cubic")
        check([sized], f"Resize to {value}", [1, 1, 2, 2], s=np.array([1, 1, 2, value]))
        check([node("Split", "x s", "y z", name="odd")], f"Split {value}", [4], s=pair)
        check([node("Slice", "x s e", "y", name="odd")], f"Slice {value}", [4], s=np.array([value]), e=np.array([value]))
        check([node("SplitToSequence", "x", "q", name="odd"), node("ConcatFromSequence", "q", "y", axis=0)], f"SplitToSequence {value}", [abs(value) % 2**63])
    for shape in ([2**31, 2**31], [2**62], [2**31], [0], [2, 0]):
        check([node("Relu", "x", "y")], f"input {shape}", shape)
        check([node("CumSum", "x a", "y")], f"CumSum of {shape}", shape, a=np.array(0))
        check([node("Cast", "x", "h", to=TensorProto.DOUBLE), node("Cast", "h", "y", to=TensorProto.FLOAT)], f"casts of {shape}", shape)


def test_sizes_are_told(bench):
    """The messages of some of these: node, operator, what would come out."""
    for op, says in (("Tile", "would have an absurd number of elements"), ("Expand", "does not broadcast to the shape given")):
        bad = unchecked([node(op, "x s", "y", name="odd")], {"x": [2, 3]}, {"y": [2, 3]}, {"s": np.array([2**40, 2**40])})
        refused(bench, bad, ["odd", op, "opset", says], "--loss=none")
    bad = unchecked([node("GatherND", "x i", "y", name="odd", batch_dims=-1)], {"x": [2, 3]}, {"y": [2, 3]}, {"i": np.array([[0]])})
    refused(bench, bad, ["odd", "GatherND", "batch_dims is -1"], "--loss=none")
    bad = unchecked([node("DepthToSpace", "x", "y", name="odd", blocksize=2**40)], {"x": [1, 4, 2, 2]}, {"y": [1, 1, 4, 4]})
    refused(bench, bad, ["odd", "DepthToSpace", "blocksize is 1099511627776"], "--loss=none")


def test_types_that_do_not_fit(bench):
    """Operands of different element types are told before anything is converted: node, operands, types, and that a Cast is missing."""
    for op, weight, says in (("Div", np.ones((2, 3)), "DOUBLE"), ("Min", np.ones((2, 3), np.uint8), "UINT8"), ("MatMul", np.ones((3, 2), np.int64), "INT64")):
        bad = unchecked([node(op, "x W", "y", name="mixed")], {"x": [2, 3]}, {"y": [2, 3]}, {"W": weight})
        refused(bench, bad, ["mixed", op, "'W'", says, "'x'", "FLOAT", "Cast"], "--loss=none")
    refused(bench, unchecked([node("Not", "x", "y", name="no")], {"x": [2]}, {"y": [2]}), ["no", "FLOAT", "does not take"], "--loss=none")
    refused(bench, unchecked([node("Floor", "h", "y", name="down")], {}, {"y": [2]}, {"h": np.ones(2, np.float16)}), ["down", "FLOAT16", "FLOAT"], "--loss=none")


def test_names_that_are_no_utf8(bench):
    """Names go into JSON and checkpoints: bytes that are no UTF-8 are refused, and shown escaped, as control characters are."""
    good = model_of([node("MatMul", "x WEIGHT", "y")], {"x": ["N", 2]}, {"y": ["N", 1]}, {"WEIGHT": np.ones((2, 1), np.float32)})
    for name in (b"WEIGHT", b"MatMul_y"):
        file = bench.path("names.onnx")
        file.write_bytes(good.SerializeToString().replace(name, name[:-1] + b"\xff"))
        refused(bench, file, [name.decode()[:-1] + r"\\xff", "UTF-8"], "--loss=mse", "--batch=2")
    for name, shown in (("a\x1b[31mb", r"a\\x1b\[31mb"), ("a\u009b31mb", r"a\\xc2\\x9b31mb")):
        refused(bench, unchecked([node("Frobnicate", "x", "y", name=name)], {"x": [2]}, {"y": [2]}), [shown], "--loss=none")


def test_deep_models(bench):
    """A chain of thousands of nodes needs no more stack than there is."""
    nodes = [node("Neg" if i % 2 else "Relu", f"v{i}" if i else "x", f"v{i + 1}") for i in range(20000)]
    survives(bench, unchecked(nodes, {"x": [4]}, {"v20000": [4]}), "a deep model")


# ---------------------------------------------------------------- usage


def test_wrong_usage_of_mpc(bench):
    for options in (["--precision=fp8"], ["--optimizer=magic"], ["--no-such-option"], ["--batch=0"], ["--batch=many"], ["--keep-fp32=("], ["--train=["],
                    ["--emit=nothing"], ["--loss-scale=-1"], ["--target=tpu"], ["--dim", "T"], ["--report=poems"], ["--train="], ["--keep-fp32="],
                    ["--freeze=((a{1,255}){1,255}){1,255}"], ["--loss-scale=1e-40"], ["--loss-scale=nan"], ["--batch=99999999999999999999"], ["--class-axis=-1000"],
                    ["--dim", "N=9223372036854775808"], ["--dim", "N=2", "--dim", "N=3"]):
        refused(bench, LINEAR, "", "--loss=mse", *options, code=2)
    done = execute([bench.mpc])
    require(done.code == 2 and done.err.startswith("mpc: error: "), f"mpc without a model: exit {done.code}: {done.err[-300:]}")
    for option in ("--help", "--version"):
        done = execute([bench.mpc, option])
        require(done.code == 0 and done.out, f"mpc {option}: exit {done.code}")


def linear_trainer(bench, *options):
    return bench.compile(LINEAR, *(options or SGD), "--precision=fp32", "--batch=4")


def linear_data(trainer, samples=8):
    made = np.random.default_rng(0)
    return trainer.data({"input": made.standard_normal((samples, 10)).astype(np.float32)}, made.standard_normal((samples, 1)).astype(np.float32))


def test_wrong_usage_of_a_trainer(bench):
    trainer = linear_trainer(bench)
    data = linear_data(trainer)
    for command in ([], ["dance"], ["train"], ["train", "--data", data], ["train", "--data", data, "--lr", 0.1],
                    ["train", "--data", data, "--lr", 0.1, "--epochs", 1, "--steps", 1], ["train", "--data", data, "--lr", "fast", "--steps", 1],
                    ["train", "--data", data, "--lr", -1, "--steps", 1], ["train", "--data", data, "--lr", "nan", "--steps", 1],
                    ["train", "--data", data, "--lr", 0.1, "--steps", 0], ["train", "--data", data, "--lr", 0.1, "--steps", 1.5],
                    ["train", "--data", data, "--lr", 0.1, "--steps", 1, "--beta1", 0.9], ["train", "--data", data, "--lr", 0.1, "--steps", 1, "--resume"],
                    ["train", "--data", data, "--lr", 0.1, "--steps", 1, "--schedule", "wavy"], ["train", "--data", data, "--lr", 0.1, "--steps", 1, "--schedule", "step"],
                    ["train", "--data", data, "--lr", 0.1, "--steps", 1, "--no-decay", "("], ["train", "--data", data, "--lr", 0.1, "--steps", 1, "--no-decay", "^nosuch$"], ["train", "--data", data, "--lr", 0.1, "--steps", 1, "--clip-norm", 0],
                    ["train", "--data", data, "--lr", 0.1, "--steps", 1, "--no-decay", os.fsdecode(b"w\xff")], ["train", "--data", data, "--lr", 1e39, "--steps", 1],
                    ["train", "--data", data, "--lr", 0.1, "--steps", 1, "--no-decay", "((a{1,255}){1,255}){1,255}"],
                    ["train", "--data", data, "--lr", 0.1, "--steps", 1, "--gamma", 0.5], ["train", "--data", data, "--lr", 0.1, "--steps", 1, "--final-lr", 0.5],
                    ["train", "--data", data, "--lr", 0.1, "--epochs", 2**53, "--accumulate", 2**21], ["train", "--data", data, "--lr", 0.1, "--steps", 1, "--threads", 65536],
                    ["predict"], ["predict", "--input", f"input={LINEAR}"], ["eval"], ["export"], ["grad", "-o", "g.npz"]):
        done = trainer.run(*(command or [""])) if command else execute([trainer.program])
        require(done.code == 2, f"{command}: exit {done.code}: {done.err[-300:]}")
        require(done.err.startswith("error: ") or "\nerror: " in done.err, f"{command}: {done.err[-300:]}")
        require(command != ["dance"] or "'dance'" in done.err, f"{command}: {done.err[-300:]}")
    for command in ([], ["train"], ["eval"], ["predict"], ["grad"], ["export"], ["info"]):
        done = execute([trainer.program, *command, "--help"])
        require(done.code == 0 and "--" in done.out, f"{command} --help: exit {done.code}")


# ---------------------------------------------------------------- data


def test_inputs_that_do_not_fit(bench):
    trainer = linear_trainer(bench)
    good = np.zeros((4, 10), np.float32)
    out = bench.path("out.npy")

    def predict(says, *options, code=1):
        require_refusal(trainer.run("predict", *options, "-o", out), says, f"predict {options}", code)
        require(not out.exists(), "an output was written")

    predict(["input", r"10", r"9"], *trainer.given({"input": np.zeros((4, 9), np.float32)}))
    predict(["input"], *trainer.given({"input": np.zeros((4,), np.float32)}))
    predict(["input|complex"], *trainer.given({"input": good.astype(np.complex64)}))
    predict(["other"], *trainer.given({"input": good, "other": good}))
    predict(["input"], *trainer.given({"other": good}))
    predict(["missing.npy", "No such file"], "--input", "input=missing.npy")
    predict(["input"], *trainer.given({"input": np.zeros((0, 10), np.float32)}))
    predict(["text.npy"], "--input", f"input={write_text(bench)}")
    objects = bench.path("objects.npy")
    np.save(objects, np.array([{}, {}], dtype=object), allow_pickle=True)
    predict(["objects.npy"], "--input", f"input={objects}")


def write_text(bench):
    bench.path("text.npy").write_text("no array")
    return bench.path("text.npy")


def test_data_sets_that_do_not_fit(bench):
    trainer = linear_trainer(bench)
    x, t = bench.save("x.npy", np.zeros((8, 10), np.float32)), bench.save("t.npy", np.zeros((8, 1), np.float32))
    short, wide = bench.save("short.npy", np.zeros((7, 1), np.float32)), bench.save("wide.npy", np.zeros((8, 2), np.float32))
    for data, says, code in ((f"npy:input={x}", "labels", 1), (f"npy:labels={t}", "input", 1), (f"npy:input={x},labels={short}", ["7", "8"], 1),
                             (f"npy:input={x},labels={wide}", "labels|wide", 1), (f"npy:input={x},labels={t},more={x}", "more", 1), ("npy:input", "", 2),
                             (f"mystery:{x}", "mystery", 2), ("npy:", "", 2), (f"npy:input={x},labels={t};polish=3", "polish", 2),
                             (f"npy:input={bench.folder},labels={t}", "directory|regular file", 1), ("idx:a", "", 2), ("cifar10:/nowhere", "nowhere", 1),
                             ("folder:/nowhere", "nowhere|images", 1), (f"npy:input={x},input={x},labels={t}", "input", 2)):
        require_refusal(trainer.run("train", "--data", data, "--lr", 0.1, "--steps", 1), says, data, code)


def test_npz_members(bench):
    trainer = linear_trainer(bench)
    made = np.random.default_rng(0)
    x, t = made.standard_normal((8, 10)).astype(np.float32), made.standard_normal((8, 1)).astype(np.float32)
    for save, name in ((np.savez, "plain.npz"), (np.savez_compressed, "packed.npz")):
        save(bench.path(name), x=x, t=t)
        file = bench.path(name)
        require_success(trainer.run("train", "--data", f"npy:input={file}:x,labels={file}:t", "--lr", 0.1, "--steps", 1), name)
        done = trainer.run("train", "--data", f"npy:input={file}:nothing,labels={file}:t", "--lr", 0.1, "--steps", 1)
        require_refusal(done, [name, "nothing"], "a missing member")
        damaged = bench.path(f"damaged-{name}")
        damaged.write_bytes(file.read_bytes()[:-30])
        done = trainer.run("train", "--data", f"npy:input={damaged}:x,labels={damaged}:t", "--lr", 0.1, "--steps", 1)
        require_refusal(done, f"damaged-{name}", "a cut .npz")


def test_not_finite_data(bench):
    """NaN in the data: in fp32 the steps are skipped and the run gives up, naming what overflowed; weights stay finite."""
    trainer = linear_trainer(bench)
    x, t = np.full((8, 10), np.nan, np.float32), np.zeros((8, 1), np.float32)
    done = trainer.run("train", "--data", trainer.data({"input": x}, t), "--lr", 0.1, "--steps", 50, "--out", bench.path("run"))
    require_refusal(done, "not finite|overflow|NaN", "train")


# ---------------------------------------------------------------- outputs


def test_outputs_that_cannot_be_written(bench):
    trainer = linear_trainer(bench)
    data, given = linear_data(trainer), trainer.given({"input": np.zeros((4, 10), np.float32)})
    blocker = bench.path("blocker")
    blocker.write_text("a file")
    for where in (bench.path("no/such/folder"), blocker):
        refused_path = where / "x.npy"
        require_refusal(trainer.run("predict", *given, "-o", refused_path), str(where), "predict")
        require_refusal(trainer.run("export", "-o", where / "x.onnx"), str(where), "export")
        done = bench.run_mpc(LINEAR, *SGD, "--batch=4", output=where / "trainer")
        require_refusal(done, str(where), "mpc")
    done = trainer.run("train", "--data", data, "--lr", 0.1, "--steps", 1, "--out", blocker / "run")
    require_refusal(done, "blocker", "train --out")
    done = trainer.run("train", "--data", data, "--lr", 0.1, "--steps", 1, "--metrics", blocker / "m.jsonl")
    require_refusal(done, "blocker", "train --metrics")
    done = bench.run_mpc(LINEAR, *SGD, "--batch=4", output=bench.folder)
    require_refusal(done, "directory|regular file", "mpc -o FOLDER")


def test_full_device(bench):
    """/dev/full: writing text to a full device is an error, not silence."""
    if not os.path.exists("/dev/full"):
        raise Skipped("no /dev/full")
    trainer = linear_trainer(bench)
    with open("/dev/full", "w") as full:
        for command in ([trainer.program, "info"], [trainer.program, "eval", "--data", linear_data(trainer)], [bench.mpc, "--list-ops"],
                        [bench.mpc, LINEAR, "--loss=mse", "--batch=4", "--emit=core"]):
            done = subprocess.run([str(c) for c in command], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
            require(done.returncode == 1, f"{command[1:]}: exit {done.returncode}")
            require_match("No space left", done.stderr, f"{command[1:]}: the message")


def test_an_existing_output_survives_a_failure(bench):
    """What is there is replaced only by a whole file."""
    trainer = linear_trainer(bench)
    out = bench.path("out.npy")
    out.write_text("precious")
    done = trainer.run("predict", *trainer.given({"input": np.zeros((4, 9), np.float32)}), "-o", out)
    require(done.code == 1 and out.read_text() == "precious", "predict")
    program = bench.path("program")
    program.write_text("precious")
    done = bench.run_mpc(unchecked([node("Frobnicate", "x", "y")], {"x": [1]}, {"y": [1]}), "--loss=none", output=program)
    require(done.code == 1 and program.read_text() == "precious", "mpc")


def test_wrong_checkpoints(bench):
    trainer = linear_trainer(bench)
    other = bench.compile(scale_model([1.0]), *SGD, "--precision=fp32", "--batch=4")
    one = np.ones((4, 1), np.float32)
    run = other.train(other.data({"x": one}, one), "--steps", 1, "--lr", 0.1, "--no-shuffle")
    out = bench.path("m.onnx")
    require_refusal(trainer.run("export", "--checkpoint", run.newest(), "-o", out), "weight", "another model's checkpoint")
    require_refusal(trainer.run("export", "--checkpoint", bench.path("none"), "-o", out), "none", "no checkpoint")
    require_refusal(trainer.run("export", "--checkpoint", LINEAR, "-o", out), "linear|legacy-train|safetensors", "no checkpoint file")
    empty = bench.path("empty")
    empty.mkdir()
    require_refusal(trainer.run("export", "--checkpoint", empty, "-o", out), "empty", "an empty folder")
    require(not out.exists(), "a model was written")


def test_external_weights(bench):
    """--external-weights: the trainer's commands need --checkpoint, and say so."""
    trainer = linear_trainer(bench, *SGD, "--external-weights")
    data = linear_data(trainer)
    for command in (["train", "--data", data, "--lr", 0.1, "--steps", 1], ["eval", "--data", data], ["export", "-o", bench.path("m.onnx")]):
        require_refusal(trainer.run(*command), "--checkpoint", command[0])
    whole = linear_trainer(bench)
    run = whole.train(data, "--steps", 1, "--lr", 0.1, "--no-shuffle")
    trainer.must("export", "--checkpoint", run.out, "-o", bench.path("m.onnx"))


def test_missing_runtime(bench):
    """A copied mpc without its runtime library says which file is missing."""
    lonely = bench.path("elsewhere/bin")
    lonely.mkdir(parents=True)
    (lonely / "mpc").write_bytes(bench.mpc.read_bytes())
    (lonely / "mpc").chmod(0o755)
    other = Workbench(lonely.parent, bench.folder)
    done = other.run_mpc(LINEAR, *SGD, "--batch=4", output=bench.path("t"))
    require_refusal(done, "runtime", "mpc")


if __name__ == "__main__":
    main(__doc__)
