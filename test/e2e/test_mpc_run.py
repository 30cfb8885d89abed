"""mpc-run: values, dimensions given on the command line, and how backend-test folders are counted.

    test_mpc_run.py --build BUILD [--only REGEX] [-v]
"""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from support import execute, main, model_of, node, require, require_match, require_refusal, require_success


def run(bench, *options):
    return execute([bench.build / "bin/mpc-run", *options], cwd=bench.folder)


def folder(bench, name, model, inputs, outputs):
    """An ONNX backend-test folder."""
    at = bench.path(name)
    data = at / "test_data_set_0"
    data.mkdir(parents=True)
    (at / "model.onnx").write_bytes(model.SerializeToString())
    for kind, arrays in (("input", inputs), ("output", outputs)):
        for i, array in enumerate(arrays):
            (data / f"{kind}_{i}.pb").write_bytes(numpy_helper.from_array(np.asarray(array)).SerializeToString())
    return at


def test_named_dimensions(bench):
    """--batch and --dim give symbolic dimensions, as for mpc; without them the message says which is missing."""
    model = bench.path("m.onnx")
    model.write_bytes(model_of([node("Relu", "x", "y")], {"x": ["N", "T"]}, {"y": ["N", "T"]}, {}).SerializeToString())
    x = np.array([[-1, 2, 3]], np.float32)
    file = bench.save("x.npy", x)
    require_success(run(bench, model, "--batch=1", "--dim", "T=3", "--input", f"x={file}", "-o", "y.npy"), "mpc-run")
    require(np.array_equal(np.load(bench.path("y.npy")), np.maximum(x, 0)), "y")
    require_refusal(run(bench, model, "--batch=1", "--input", f"x={file}"), ["T", "--dim"], "without --dim")
    require_refusal(run(bench, model, "--dim", "T=3", "--input", f"x={file}"), ["N", "--batch"], "without --batch")
    require_refusal(run(bench, model, "--batch=1", "--dim", "T=4", "--input", f"x={file}"), [r"\[1, 4\]", r"\[1, 3\]"], "another size")
    for options in (["--dim", "T"], ["--dim", "T=0"], ["--batch=0"], ["--threads=-1"], ["--rtol=-1"], ["--dim="]):
        require_refusal(run(bench, model, *options, "--input", f"x={file}"), "", f"{options}", code=2)


def test_folders_are_counted_by_what_happened(bench):
    """Unsupported is only what the compiler does not have; a file that is wrong, and a result of another type, shape or value, is a failure."""
    x = np.array([1, -2], np.float32)
    relu = model_of([node("Relu", "x", "y")], {"x": [2]}, {"y": [2]}, {})
    good = folder(bench, "good", relu, [x], [np.maximum(x, 0)])
    value = folder(bench, "value", relu, [x], [x])
    kind = folder(bench, "type", relu, [x], [np.maximum(x, 0).astype(np.float64)])
    shape = folder(bench, "shape", relu, [x], [np.maximum(x, 0).reshape(1, 2)])
    unknown = folder(bench, "unknown", model_of([node("Unique", "x", "y")], {"x": [2]}, {"y": ["K"]}, {}), [x], [x])
    mixed = helper.make_model(helper.make_graph([node("Add", "x w", "y")], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
                                                [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])], [numpy_helper.from_array(np.array([1, 2]), "w")]),
                              opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    wrong = folder(bench, "wrong", mixed, [x], [x])
    # What counts is what the compiler means, not the words of a name in its message.
    mixed.graph.node[0].name = "not supported"
    named = folder(bench, "named", mixed, [x], [x])
    sizes = folder(bench, "sizes", model_of([node("Reshape", "x s", "y")], {"x": [2], "s": ([1], TensorProto.INT64)}, {"y": [2]}, {}),
                   [x, np.array([2])], [x])
    done = run(bench, "-v", "--test-data", good, value, kind, shape, unknown, wrong, named, sizes)
    require(done.code == 1, f"exit {done.code}")
    require_match("1 passed, 5 failed, 2 unsupported", done.out, "the counts")
    for text in ("failed: .*value: .*element 1", "failed: .*type: .*float32, want float64", r"failed: .*shape: .*\[2\], want \[1, 2\]",
                 "unsupported: .*unknown: .*Unique", "failed: .*wrong: .*INT64.*Cast",
                 "failed: .*named: .*not supported", "unsupported: .*sizes: .*known at compile time"):
        require_match(text, done.err, "the messages")


def test_unsigned_outputs(bench):
    """An unsigned result has the type of the model."""
    model = model_of([node("Max", "x w", "y")], {"x": ([2], TensorProto.UINT8)}, {"y": ([2], TensorProto.UINT8)}, {"w": np.array([7, 7], np.uint8)})
    at = folder(bench, "unsigned", model, [np.array([3, 250], np.uint8)], [np.array([7, 250], np.uint8)])
    require_success(run(bench, "--test-data", at), "mpc-run")


if __name__ == "__main__":
    main(__doc__)
