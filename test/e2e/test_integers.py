"""Arithmetic of integers of every width, signed and unsigned: powers, division, wrapping around, ranges; at run time and folded.

    test_integers.py --build BUILD [--only REGEX] [-v]
"""

import numpy as np
import onnx
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator

from support import main, model_of, node, require, require_refusal, tensor_info


def test_integer_powers(bench):
    """Pow of integers is exact modulo 2⁶⁴, also where double is not; a negative power is 0 but for 1 and -1."""
    x, n = np.array([3, -3, 10, -1, 1, 2, 7, 0], np.int64), np.array([39, 3, 18, -5, -2, -1, 0, 0], np.int64)
    want = np.array([3**39, -27, 10**18, -1, 1, 0, 1, 1], np.int64)
    model = model_of([node("Pow", "x n", "y")], {"x": ([8], TensorProto.INT64), "n": ([8], TensorProto.INT64)}, {"y": ([8], TensorProto.INT64)}, {})
    got = bench.compile(model, "--loss=none").predict({"x": x, "n": n})["y"]
    require(np.array_equal(got, want), f"{got}, want {want}")
    fixed = model_of([node("Pow", "x n", "y")], {"x": ([8], TensorProto.INT64)}, {"y": ([8], TensorProto.INT64)}, {"n": np.array(5, np.int64)})
    got = bench.compile(fixed, "--loss=none").predict({"x": x})["y"]
    require(np.array_equal(got, x**5), f"{got}, want {x**5}")
    n = np.array([2**63 + 1, 2**64 - 1, 63, 2, 2**63, 0], np.uint64)  # no number is negative
    x = np.array([-1, 3, 2, -3, 1, 0], np.int64)
    want = np.array([pow(int(a), int(b), 2**64) for a, b in zip(x, n)], np.uint64).astype(np.int64)
    for constants in ({}, {"n": n}):
        inputs = {"x": x, "n": n} if not constants else {"x": x}
        kinds = {"x": ([6], TensorProto.INT64), "n": ([6], TensorProto.UINT64)}
        model = model_of([node("Pow", "x n", "y")], {k: kinds[k] for k in inputs}, {"y": ([6], TensorProto.INT64)}, constants)
        got = bench.compile(model, "--loss=none").predict(inputs)["y"]
        require(np.array_equal(got, want), f"uint64 exponents {list(constants)}: {got}, want {want}")


def integer_model(op, shape, kind, constants, **attributes):
    inputs = {n: (shape, kind) for n in ("x", "y") if n not in constants}
    return model_of([node(op, "x y", "z", **attributes)], inputs, {"z": (shape, kind)}, constants, opset=18, ir=8)


def test_integer_division(bench):
    """Div and Mod of integers by every number: by 0 the result is 0, the lowest number / -1 wraps around, in kernels and in constants."""
    for numbers, kind in ((np.int32, TensorProto.INT32), (np.int64, TensorProto.INT64), (np.int8, TensorProto.INT8)):
        low = np.iinfo(numbers).min
        x = np.array([7, -7, 7, -7, low, low, low, 0, 5, 100, -1, low], numbers)
        y = np.array([2, 2, -2, -2, -1, 0, low, 0, 0, -7, -1, 1], numbers)
        pairs = list(zip(x.tolist(), y.tolist()))
        quotients = [0 if b == 0 else (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1) for a, b in pairs]
        floored = [0 if b == 0 else a % b for a, b in pairs]
        truncated = [0 if b == 0 else (abs(a) % abs(b)) * (-1 if a < 0 else 1) for a, b in pairs]
        for op, want, attributes in (("Div", quotients, {}), ("Mod", floored, {}), ("Mod", truncated, {"fmod": 1})):
            want = np.array([w % 2**64 for w in want], np.uint64).astype(numbers)  # wraps around
            for constants in ({}, {"y": y}, {"x": x, "y": y}):
                model = integer_model(op, [12], kind, constants, **attributes)
                if len(constants) == 2:  # a program needs an input
                    model = model_of([node(op, "a b", "c", **attributes), node("Add", "c o", "z")], {"o": ([12], kind)}, {"z": ([12], kind)}, {"a": x, "b": y}, opset=18)
                inputs = {n: a for n, a in (("x", x), ("y", y), ("o", np.zeros(12, numbers))) if n in {i.name for i in model.graph.input}}
                got = bench.compile(model, "--loss=none").predict(inputs)["z"]
                require(np.array_equal(got, want), f"{op} {attributes} {numbers.__name__} {list(constants)}: {got}, want {want}")
    by_zero = integer_model("Div", [12], TensorProto.INT32, {"y": np.array(0, np.int32)})
    require(not bench.compile(by_zero, "--loss=none").predict({"x": np.arange(12, dtype=np.int32)})["z"].any(), "x / 0")


INTEGERS = (np.uint8, np.uint16, np.uint32, np.uint64, np.int8, np.int16, np.int32, np.int64)


def takes(op, name, numbers):
    """Whether an operand of that name may be of that type."""
    schema = onnx.defs.get_schema(op, 18)
    operand = next(o for o in schema.inputs if o.name == name)
    allowed = next((c.allowed_type_strs for c in schema.type_constraints if c.type_param_str == operand.type_str), [])
    return f"tensor({np.dtype(numbers).name})" in allowed


def integer_nodes(numbers):
    """Operators on the integers x and y, whose results may leave the type or depend on the sign: (operand, node)."""
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(numbers))
    for op, first in (("Add", "A"), ("Sub", "A"), ("Mul", "A"), ("BitwiseAnd", "A"), ("BitwiseOr", "A"), ("BitwiseXor", "A"), ("Less", "A"), ("Greater", "A"),
                      ("LessOrEqual", "A"), ("GreaterOrEqual", "A"), ("Equal", "A"), ("Max", "data_0"), ("Min", "data_0")):
        yield op, first, node(op, "x y", op)
    for op, first in (("BitwiseNot", "X"), ("Sign", "input"), ("Abs", "X"), ("ArgMax", "data"), ("ArgMin", "data")):
        yield op, first, node(op, "x", op)
    for op in ("ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin", "ReduceSumSquare"):
        yield op, "data", node(op, "x", op, keepdims=0)
    yield "CumSum", "x", node("CumSum", "x axis", "CumSum")
    yield "Clip", "input", node("Clip", "x low high", "Clip")
    yield "Pad", "data", node("Pad", "x pads high", "Pad")
    yield "Where", "X", node("Where", "choice x y", "Where")
    yield "Mod", "A", node("Mod", "x odd", "Mod")
    if np.dtype(numbers).kind == "u":
        yield "Div", "A", node("Div", "x odd", "Div")
    for to in (*INTEGERS, np.float32, np.float64, np.bool_):
        yield "Cast", "input", node("Cast", "x", f"to_{np.dtype(to).name}", to=onnx.helper.np_dtype_to_tensor_dtype(np.dtype(to)))
    for real in ("half", "single"):  # in the type's range
        yield "CastLike", "input", node("CastLike", f"{real} x", f"of_{real}")
        yield "Cast", "input", node("Cast", real, f"to_of_{real}", to=kind)


def test_integers_wrap_around(bench):
    """Integer arithmetic is that of the ONNX type, modulo 2ⁿ, with the order and the file type of an unsigned one where it is, as in onnx.reference:
    in kernels and where mpc folds constants."""
    for numbers in INTEGERS:
        limits = np.iinfo(numbers)
        x = np.array([1, limits.max, limits.max // 2 + 1, 7, 100, limits.min, limits.max - 1, 77], numbers)
        y = np.array([100, 3, limits.max, 5, limits.max // 3, limits.max, 0, 77], numbers)
        top = float(limits.max) * (1 - 2**-20)
        constants = {"axis": np.array(0), "low": np.array(5, numbers), "high": np.array(limits.max - 2, numbers), "pads": np.array([1, 2]),
                     "odd": np.array([3, 7, limits.max] * 2 + [1, 9], numbers), "choice": np.array([True, False] * 4),
                     "half": np.array([0, 1.5, 100.25, 2, 3, 4, 5, 6], np.float16), "single": np.array([0, top, top / 2, 1.75, 3, 4, 5, 6], np.float32)}
        nodes = [n for op, first, n in integer_nodes(numbers) if takes(op, first, numbers) or op == "CastLike"]
        outputs = {n.output[0]: None for n in nodes}
        kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(numbers))
        typed = {}
        inferred = onnx.shape_inference.infer_shapes(onnx.helper.make_model(onnx.helper.make_graph(
            nodes, "g", [tensor_info("x", [8], kind), tensor_info("y", [8], kind)], [], [onnx.numpy_helper.from_array(v, k) for k, v in constants.items()]),
            opset_imports=[onnx.helper.make_opsetid("", 18)]))
        for info in inferred.graph.value_info:
            typed[info.name] = ([d.dim_value for d in info.type.tensor_type.shape.dim], info.type.tensor_type.elem_type)
        require(set(outputs) <= set(typed), f"types of {set(outputs) - set(typed)}")
        outputs = {n: typed[n] for n in outputs}
        run = model_of(nodes, {"x": ([8], kind), "y": ([8], kind)}, outputs, constants, opset=18)
        with np.errstate(all="ignore"):
            want = dict(zip(outputs, ReferenceEvaluator(run).run(None, {"x": x, "y": y})))
        folded = model_of([*nodes, node("Identity", "o", "same")], {"o": ([8], kind)}, {**outputs, "same": ([8], kind)}, {**constants, "x": x, "y": y}, opset=18)
        for how, model, inputs in (("run", run, {"x": x, "y": y}), ("folded", folded, {"o": x})):
            got = bench.compile(model, "--loss=none", "--precision=fp32").predict(inputs)
            for name, value in want.items():
                numpy_type = onnx.helper.tensor_dtype_to_np_dtype(outputs[name][1])
                require(got[name].dtype == numpy_type, f"{numbers.__name__} {name} {how}: {got[name].dtype}, want {numpy_type}")
                value = np.asarray(value).astype(numpy_type)
                require(np.array_equal(got[name], value), f"{numbers.__name__} {name} {how}: {got[name]}, want {value}")


def test_integer_range(bench):
    """Range of int64 beyond 2^53, where double skips numbers, forwards and backwards."""
    start = 2**53 + 1
    for first, limit, delta in ((start, start + 6, 2), (start + 3, start - 1, -1), (-(2**63), -(2**63) + 3, 1), (5, 5, 1), (2**63 - 3, 2**63 - 1, 1)):
        want = np.array(range(first, limit, delta), np.int64)
        model = model_of([node("Range", "a b c", "r"), node("Add", "r x", "y")], {"x": ([1], TensorProto.INT64)}, {"y": (["M"], TensorProto.INT64)},
                         {"a": np.array(first), "b": np.array(limit), "c": np.array(delta)})
        if want.size == 0:
            done = bench.run_mpc(model, "--loss=none", "--emit=core")
            require("tensor<0xi64>" in done.out, f"an empty range: {done.out[-300:]} {done.err[-300:]}")
            continue
        got = bench.compile(model, "--loss=none").predict({"x": np.array([0])})["y"]
        require(np.array_equal(got, want), f"{got}, want {want}")


def test_index_inputs_of_every_width(bench):
    """An index input of every integer type, cast to what the operator takes, also by way of a wider unsigned type, is checked against the table."""
    x = np.arange(100, dtype=np.float32).reshape(20, 5)
    wider = {np.uint8: TensorProto.UINT16, np.uint16: TensorProto.UINT32, np.uint32: TensorProto.UINT64}
    nodes, inputs, outputs, given = [], {"x": [20, 5]}, {}, {"x": x}
    ways = {"Gather": ("x {0}", [2, 1, 5]), "GatherElements": ("x {0}", [2, 1]), "GatherND": ("x {0}", [2, 5]), "ScatterElements": ("x {0} u", [20, 5]),
            "ScatterND": ("x {0} v", [20, 5])}
    for numbers in INTEGERS:
        for op, (operands, shape) in ways.items():
            name = f"{op}_{numbers.__name__}"
            at = name
            if numbers in wider:
                nodes.append(node("Cast", at, name + "_wider", to=wider[numbers]))
                at = name + "_wider"
            nodes += [node("Cast", at, name + "_i", to=TensorProto.INT64), node(op, operands.format(name + "_i"), name + "_y")]
            inputs[name], outputs[name + "_y"] = ([2, 1], onnx.helper.np_dtype_to_tensor_dtype(np.dtype(numbers))), shape
            given[name] = np.array([[19], [3]], numbers)
    model = model_of(nodes, inputs, outputs, {"u": np.array([[-1], [-2]], np.float32), "v": -np.ones((2, 5), np.float32)}, opset=18)
    trainer = bench.compile(model, "--loss=none", "--precision=fp32")
    got = trainer.predict(given)
    for numbers in INTEGERS:
        require(np.array_equal(got[f"Gather_{numbers.__name__}_y"], x[[[19], [3]]]), f"{numbers.__name__}: {got[f'Gather_{numbers.__name__}_y']}")
    for name in given.keys() - {"x"}:
        outside = {**given, name: np.array([[0], [20]], given[name].dtype)}
        done = trainer.run("predict", *trainer.given(outside), "-o", bench.path("y.npy"))
        require_refusal(done, [name, "has index 20", "20 rows"], name)


if __name__ == "__main__":
    main(__doc__)
