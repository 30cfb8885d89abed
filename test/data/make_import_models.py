"""Makes the small ONNX files of test/data/import: make_import_models.py [OUTDIR]. Needs numpy and onnx.

Each is one thing that the importer must read, refuse, or decide; the tests in test/import name them.
"""

import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper

OUT = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "import")


def tensor(name, values, dtype=np.float32):
    return numpy_helper.from_array(np.asarray(values, dtype=dtype), name)


def ramp(name, *shape, dtype=np.float32):
    """Values of its own: no two elements are equal."""
    return tensor(name, np.arange(1, 1 + np.prod(shape)).reshape(shape) / 8, dtype)


def value(name, shape, dtype=T.FLOAT):
    return h.make_tensor_value_info(name, dtype, shape)


def save(name, nodes, inputs, outputs, initializers=(), opset=20, ir=9, imports=(), functions=(), metadata=(), check=True, change=None, producer="",
         **more):
    graph = h.make_graph(nodes, name, inputs, outputs, list(initializers), **more)
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", opset), *imports], functions=list(functions), ir_version=ir)
    model.producer_name = producer
    for key, text in metadata:
        entry = model.graph.metadata_props.add()
        entry.key, entry.value = key, text
    if change:
        change(model)
    if check:
        onnx.checker.check_model(model)
    (OUT / f"{name}.onnx").write_bytes(model.SerializeToString(deterministic=True))


def call(node, text):
    entry = node.metadata_props.add()
    entry.key, entry.value = "pkg.torch.onnx.fx_node", text
    return node


def basics():
    save("linear", [h.make_node("Gemm", ["x", "w", "b"], ["y"], "fc", transB=1)], [value("x", ["N", 3])], [value("y", ["N", 2])],
         [ramp("w", 2, 3), ramp("b", 2)])
    save("fixed", [h.make_node("Relu", ["x"], ["y"])], [value("x", [4, 3])], [value("y", [4, 3])])
    # Two inputs share a symbol on different axes; one has another symbol, one an axis without a name.
    save("dims", [h.make_node("Add", ["x", "t"], ["y"], "add"), h.make_node("Identity", ["z"], ["zz"], "id")],
         [value("x", ["N", "T"]), value("t", ["T"]), value("z", ["T", "N", None])], [value("y", ["N", "T"]), value("zz", ["T", "N", None])])
    constant = [h.make_node("Constant", [], ["a"], value_float=2.5), h.make_node("Constant", [], ["b"], value_floats=[1.0, 2.0]),
                h.make_node("Constant", [], ["c"], value_int=7), h.make_node("Constant", [], ["d"], value_ints=[1, -1]),
                h.make_node("Constant", [], ["e"], value=tensor("", [True, False], bool)),
                h.make_node("Constant", [], ["f"], value=tensor("", 0.5, np.float16))]
    outputs = [value("a", [], T.FLOAT), value("b", [2], T.FLOAT), value("c", [], T.INT64), value("d", [2], T.INT64), value("e", [2], T.BOOL),
               value("f", [], T.FLOAT16)]
    save("constants", constant, [value("x", [1])], [value("x2", [1]), *outputs], check=True,
         change=lambda m: m.graph.node.append(h.make_node("Identity", ["x"], ["x2"])))
    # Left-out operand in the middle, an unused result, every kind of attribute, a node without a name.
    save("optional", [h.make_node("LSTM", ["x", "w", "r", "", "", "h0"], ["", "yh"], hidden_size=2, activations=["Sigmoid", "Tanh", "Tanh"], clip=3.5),
                      h.make_node("ReduceSum", ["yh"], ["s"], keepdims=0)],
         [value("x", [3, "N", 2])], [value("s", [])], [ramp("w", 1, 8, 2), ramp("r", 1, 8, 2), ramp("h0", 1, 1, 2)], check=False)
    save("unsigned", [h.make_node("Cast", ["x"], ["y"], to=T.FLOAT)], [value("x", ["N", 2], T.UINT8)], [value("y", ["N", 2])])
    save("foreign", [h.make_node("Magic", ["x"], ["y"], "m", domain="com.example", size=3)], [value("x", ["N", 2])], [value("y", ["N", 2])],
         imports=[h.make_opsetid("com.example", 2)])
    save("odd-names", [h.make_node("Add", ["x", 'W é%s"\n'], ["../../y"], 'a "node"')], [value("x", ["N", 2])], [value("../../y", ["N", 2])],
         [ramp('W é%s"\n', 2)])


def legacy():
    """IR 3: initializers are inputs too; typed fields, fp16 bits inside int32_data."""
    half = h.make_tensor("half", T.FLOAT16, [2], [0.5, -1.25])
    w = h.make_tensor("w", T.FLOAT, [2, 2], [1, 2, 3, 4])
    shape = h.make_tensor("shape", T.INT64, [2], [-1, 2])
    save("legacy", [h.make_node("MatMul", ["x", "w"], ["p"]), h.make_node("Cast", ["half"], ["b"], to=T.FLOAT), h.make_node("Add", ["p", "b"], ["s"]),
                    h.make_node("Reshape", ["s", "shape"], ["y"])],
         [value("x", [3, 2]), value("w", [2, 2]), value("half", [2], T.FLOAT16), value("shape", [2], T.INT64)], [value("y", [3, 2])],
         [w, half, shape], opset=8, ir=3)


def functions():
    inner = h.make_function("local", "Twice", ["a"], ["b"], [h.make_node("Add", ["a", "a"], ["b"], "sum")], [h.make_opsetid("", 20)])
    outer = h.make_function("local", "Four", ["a"], ["c"], [h.make_node("Twice", ["a"], ["b"], domain="local"), h.make_node("Twice", ["b"], ["c"], domain="local")],
                            [h.make_opsetid("", 20), h.make_opsetid("local", 1)])
    save("functions", [h.make_node("Four", ["x"], ["y"], "call", domain="local")], [value("x", ["N"])], [value("y", ["N"])],
         imports=[h.make_opsetid("local", 1)], functions=[inner, outer])
    chain = [h.make_function("local", f"F{i}", ["a"], ["c"], [h.make_node(f"F{i + 1}", ["a"], ["b"], domain="local"),
                                                             h.make_node(f"F{i + 1}", ["b"], ["c"], domain="local")],
                             [h.make_opsetid("", 20), h.make_opsetid("local", 1)]) for i in range(30)]
    chain.append(h.make_function("local", "F30", ["a"], ["c"], [h.make_node("Relu", ["a"], ["c"])], [h.make_opsetid("", 20)]))
    save("explosion", [h.make_node("F0", ["x"], ["y"], domain="local")], [value("x", ["N"])], [value("y", ["N"])],
         imports=[h.make_opsetid("local", 1)], functions=chain)
    # An operator that mpc does not convert itself, with a body that depends on its operands' types.
    save("function-body", [h.make_node("MeanVarianceNormalization", ["x"], ["y"], "mvn", axes=[0, 2])], [value("x", ["N", 2, 3])], [value("y", ["N", 2, 3])])


def branches():
    def branch(name, op, weight):
        return h.make_graph([h.make_node("MatMul", ["x", "W"], ["z"]), h.make_node(op, ["z", "tb"], ["o"])], name, [], [value("o", None)], [weight])

    def branching(condition):
        return h.make_node("If", [condition], ["y"], "if", then_branch=branch("then", "Add", ramp("tb", 2)), else_branch=branch("else", "Sub", tensor("tb", [5, 6])))

    save("if-constant", [branching("c")], [value("x", ["N", 2])], [value("y", ["N", 2])], [ramp("W", 2, 2), tensor("c", True, bool)])
    save("if-open", [h.make_node("ReduceSum", ["x"], ["s"], keepdims=0), h.make_node("Cast", ["s"], ["c"], to=T.BOOL), branching("c")],
         [value("x", ["N", 2])], [value("y", ["N", 2])], [ramp("W", 2, 2)])


def merged():
    ones, zeros = tensor("n1.weight", [1] * 4), tensor("n1.bias", [0] * 4)
    signature = "\n# inputs\n" + "\n".join(f"p_{n.replace('.', '_')}: PARAMETER target='{n}'" for n in ("n1.weight", "n1.bias", "n2.weight", "n2.bias")) + "\nx: USER_INPUT\n"

    def norms(second=("n1.weight", "n1.bias")):
        return [h.make_node("LayerNormalization", ["x", "n1.weight", "n1.bias"], ["a"], "norm1"),
                h.make_node("LayerNormalization", ["a", *second], ["y"], "norm2")]

    io = [value("x", ["N", 4])], [value("y", ["N", 4])]
    nodes = norms()
    for i, node in enumerate(nodes, 1):
        call(node, f"%layer_norm : [num_users=1] = call_function[target=torch.ops.aten.layer_norm.default](args = (%x, [4], %p_n{i}_weight, %p_n{i}_bias), kwargs = {{}})")
    key = "pkg.torch.export.ExportedProgram.graph_signature"
    save("merged-metadata", nodes, *io, [ones, zeros], ir=10, metadata=[(key, signature)])
    nodes = norms()
    for node in nodes:
        call(node, "%layer_norm : [num_users=1] = call_function[target=torch.ops.aten.layer_norm.default](args = (%x, [4], %p_n1_weight, %p_n1_bias), kwargs = {})")
    save("shared-metadata", nodes, *io, [ones, zeros], ir=10, metadata=[(key, signature)])
    # The same call on different parameters, one of which is there: nothing was merged.
    nodes = [call(h.make_node("Mul", ["x", "n1.weight"], ["a"], "scale"), "%mul : [num_users=1] = call_function[target=torch.ops.aten.mul.Tensor](args = (%x, %p_n1_weight), kwargs = {})"),
             call(h.make_node("Add", ["n1.weight", "n1.bias"], ["b"], "sum"), "%add : [num_users=1] = call_function[target=torch.ops.aten.add.Tensor](args = (%p_n1_weight, %p_n1_bias), kwargs = {})"),
             call(h.make_node("Identity", ["n1.weight"], ["clone"], "clone"), "%clone : [num_users=1] = call_function[target=torch.ops.aten.clone.default](args = (%p_n1_weight,), kwargs = {})"),
             call(h.make_node("Mul", ["b", "clone"], ["c"], "product"), "%mul_1 : [num_users=1] = call_function[target=torch.ops.aten.mul.Tensor](args = (%add, %clone), kwargs = {})"),
             h.make_node("Mul", ["a", "c"], ["y"], "result")]
    save("own-metadata", nodes, *io, [ones, zeros], ir=10, metadata=[(key, signature)])
    # Both arguments of a difference were merged; its second node has the second one as its first operand.
    nodes = [call(h.make_node("Mul", ["n1.bias", "two"], ["b"], "alpha"), "%sub : [num_users=1] = call_function[target=torch.ops.aten.sub.Tensor](args = (%p_n1_bias, %p_n2_bias), kwargs = {alpha: 2})"),
             call(h.make_node("Sub", ["n1.bias", "b"], ["c"], "sub"), "%sub : [num_users=1] = call_function[target=torch.ops.aten.sub.Tensor](args = (%p_n1_bias, %p_n2_bias), kwargs = {alpha: 2})"),
             call(h.make_node("Add", ["x", "c"], ["d"], "add"), "%add : [num_users=1] = call_function[target=torch.ops.aten.add.Tensor](args = (%x, %sub), kwargs = {})"),
             call(h.make_node("Mul", ["d", "n1.weight"], ["e"], "mul"), "%mul : [num_users=1] = call_function[target=torch.ops.aten.mul.Tensor](args = (%add, %p_n1_weight), kwargs = {})"),
             call(h.make_node("Mul", ["e", "n1.weight"], ["y"], "mul_1"), "%mul_1 : [num_users=1] = call_function[target=torch.ops.aten.mul.Tensor](args = (%mul, %p_n2_weight), kwargs = {})")]
    save("difference-metadata", nodes, *io, [ones, zeros, tensor("two", 2.0)], ir=10, metadata=[(key, signature)])
    # Where one reader's call does not tell, all readers stay together.
    nodes = norms()
    call(nodes[0], "%layer_norm : [num_users=1] = call_function[target=torch.ops.aten.layer_norm.default](args = (%x, [4], %p_n1_weight, %p_n1_bias), kwargs = {})")
    call(nodes[1], "%layer_norm_1 : [num_users=1] = call_function[target=torch.ops.aten.layer_norm.default](args = (%layer_norm, [4], %view, %p_n2_bias), kwargs = {})")
    nodes[1].output[0] = "b"
    nodes.append(call(h.make_node("Mul", ["b", "n1.weight"], ["y"], "last"), "%mul : [num_users=1] = call_function[target=torch.ops.aten.mul.Tensor](args = (%layer_norm_1, %view_1), kwargs = {})"))
    save("unclear-metadata", nodes, *io, [ones, zeros], ir=10, metadata=[(key, signature)])
    # What the TorchScript exporter writes, in its order and with its names; then what only looks like it.
    torchscript = [h.make_node("Identity", [f"n1.{what}"], [f"n2.{what}"], f"Identity_{i}") for i, what in enumerate(("weight", "bias"))]
    aliased = norms(("n2.weight", "n2.bias"))
    save("merged-identity", [*torchscript, *aliased], *io, [ones, zeros], producer="pytorch")
    save("identity-foreign", [*torchscript, *aliased], *io, [ones, zeros])
    save("identity-late", [aliased[0], *torchscript, aliased[1]], *io, [ones, zeros], producer="pytorch")
    save("identity-unnamed", [h.make_node("Identity", [n.input[0]], [n.output[0]]) for n in torchscript] + aliased, *io, [ones, zeros], producer="pytorch")
    numbered = [h.make_node("Identity", [n.input[0]], [str(7 + i)], n.name) for i, n in enumerate(torchscript)]
    save("identity-numbered", [*numbered, *norms(("7", "8"))], *io, [ones, zeros], producer="pytorch")
    # In training mode the exporter merges tensors of one memory only: an equal one is still apart.
    third = [*torchscript, aliased[0], h.make_node("LayerNormalization", ["a", "n2.weight", "n2.bias"], ["b"], "norm2"), h.make_node("Mul", ["b", "p"], ["y"], "mul")]
    save("identity-apart", third, *io, [ones, zeros, tensor("p", [1] * 4)], producer="pytorch")
    # A bias that BatchNormalization was folded into, and a parameter that a cast was folded into: onnx::Mul_9 is p.
    folded = [h.make_node("Identity", ["onnx::Conv_21"], ["onnx::Conv_24"], "Identity_0"), h.make_node("Identity", ["p"], ["onnx::Mul_9"], "Identity_1"),
              h.make_node("Conv", ["x", "onnx::Conv_20", "onnx::Conv_21"], ["a"], "/c1/Conv"), h.make_node("Conv", ["a", "onnx::Conv_23", "onnx::Conv_24"], ["b"], "/c2/Conv"),
              h.make_node("Mul", ["b", "p"], ["c"], "/Mul"), h.make_node("Mul", ["c", "onnx::Mul_9"], ["y"], "/Mul_1")]
    save("identity-folded", folded, [value("x", ["N", 2, 3])], [value("y", ["N", 2, 3])],
         [tensor("onnx::Conv_21", [0] * 2), tensor("p", [2] * 3), ramp("onnx::Conv_20", 2, 2, 1), ramp("onnx::Conv_23", 2, 2, 1)], producer="pytorch")
    save("merged", norms(), *io, [ones, zeros])
    # One tensor as scale and as variance: what a step moves is the statistic alone.
    save("merged-statistic", [h.make_node("BatchNormalization", ["x", "ones", "zeros", "zeros", "ones"], ["y"], "bn")], *io, [tensor("ones", [1] * 4), tensor("zeros", [0] * 4)])
    save("shared", norms(), *io, [ramp("n1.weight", 4), ramp("n1.bias", 4)])
    save("tied", [h.make_node("Gather", ["table", "ids"], ["e"], "embed"), h.make_node("Transpose", ["table"], ["t"], "t", perm=[1, 0]),
                  h.make_node("MatMul", ["e", "t"], ["y"], "head")], [value("ids", ["N"], T.INT64)], [value("y", ["N", 5])], [tensor("table", np.ones((5, 3)))])
    # The same after constant folding: the transposed table is a matrix of its own. And two that are equal by symmetry only.
    head = [h.make_node("Gather", ["table", "ids"], ["e"], "embed"), h.make_node("MatMul", ["e", "onnx::MatMul_7"], ["y"], "head")]
    table = np.arange(1, 16).reshape(5, 3) / 8
    save("transposed-tie", head, [value("ids", ["N"], T.INT64)], [value("y", ["N", 5])], [tensor("table", table), tensor("onnx::MatMul_7", table.T)])
    save("symmetric", head, [value("ids", ["N"], T.INT64)], [value("y", ["N", 4])], [tensor("table", np.eye(4)), tensor("onnx::MatMul_7", np.eye(4))])


def parameters():
    """One initializer per branch of the rule for parameters."""
    nodes = [h.make_node("MatMul", ["x", "val_1"], ["a"], "matmul"),           # a weight, whatever its name
             h.make_node("Add", ["a", "offset"], ["b"], "add"),                 # arithmetic, looks like a parameter
             h.make_node("Mul", ["b", "val_2"], ["c"], "mul"),                  # a name that exporters make
             h.make_node("Add", ["c", "mask"], ["d"], "masked"),                # a mask's values
             h.make_node("Div", ["d", "eight"], ["e"], "div"),                  # one element
             h.make_node("Reshape", ["scale_row", "shape"], ["sr"], "view"),    # through a view
             h.make_node("Mul", ["e", "sr"], ["f"], "scaled"),
             h.make_node("BatchNormalization", ["f", "g", "s", "rm", "rv"], ["k"], "bn"),
             h.make_node("Max", ["k", "bound"], ["y"], "max")]                  # no operator with weights
    floats = [ramp("val_1", 4, 4), ramp("offset", 4), ramp("val_2", 4), tensor("mask", [0, 0, -1e9, 0]), tensor("eight", 8.0), ramp("scale_row", 2, 2),
              tensor("g", [1, 2, 3, 4]), tensor("s", [4, 3, 2, 1]), tensor("rm", [0, 0, 0, 1]), tensor("rv", [1, 1, 1, 2]), ramp("bound", 4),
              ramp("nobody", 3)]
    save("parameters", nodes, [value("x", ["N", 4])], [value("y", ["N", 4])], [*floats, tensor("shape", [1, 4], np.int64)])


def inference():
    """A model in training mode whose running statistics and dropout mask are graph outputs."""
    nodes = [h.make_node("BatchNormalization", ["x", "g", "b", "rm", "rv"], ["n", "rm_out", ""], "bn", training_mode=1),
             h.make_node("Dropout", ["n", "ratio", "training"], ["y", "mask"], "drop")]
    save("training-mode", nodes, [value("x", ["N", 2, 3])], [value("y", ["N", 2, 3]), value("rm_out", [2]), value("mask", ["N", 2, 3], T.BOOL)],
         [ramp("g", 2), ramp("b", 2), tensor("rm", [0, 1]), tensor("rv", [1, 2]), tensor("ratio", 0.5), tensor("training", True, bool)])


def external():
    def outside(name, location, offset=0, length=24, dims=(2, 3)):
        w = T(name="w", data_type=T.FLOAT, dims=dims, data_location=T.EXTERNAL)
        for key, text in (("location", location), ("offset", str(offset)), ("length", str(length))):
            w.external_data.add(key=key, value=text)
        save(name, [h.make_node("Gemm", ["x", "w"], ["y"], "fc", transB=1)], [value("x", ["N", 3])], [value("y", ["N", 2])], [w], check=False)

    (OUT / "weights.bin").write_bytes(b"\0" * 8 + np.arange(6, dtype=np.float32).tobytes())
    outside("external", "weights.bin", 8)
    outside("external-absolute", "/etc/hostname")
    outside("external-up", "sub/../../weights.bin")
    outside("external-missing", "nothing.bin")
    outside("external-beyond", "weights.bin", 16)
    outside("external-offset", "weights.bin", 9223372036854775807)
    outside("external-garbage", "weights.bin", "8x")
    outside("external-length", "weights.bin", 0, 12)
    outside("external-folder", ".")
    outside("external-link", "link.bin")  # the tests make the link
    outside("external-linked-folder", "folder/weights.bin")


def invalid():
    x, y = value("x", ["N", 2]), value("y", ["N", 2])
    save("bad-operator", [h.make_node("Nonsense", ["x"], ["a"], "first"), h.make_node("Relu", ["a"], ["b"], "second", slope=1.0),
                          h.make_node("Relu", ["b"], ["y"], "third")], [x], [y], check=False)
    save("bad-order", [h.make_node("Relu", ["a"], ["y"], "late"), h.make_node("Relu", ["x"], ["a"], "early")], [x], [y], check=False)
    save("bad-ssa", [h.make_node("Relu", ["x"], ["y"]), h.make_node("Tanh", ["x"], ["y"])], [x], [y], check=False)
    save("bad-domain", [h.make_node("Magic", ["x"], ["y"], "m", domain="com.example")], [x], [y], check=False)
    save("bad-opset", [h.make_node("Relu", ["x"], ["y"])], [x], [y], opset=99, check=False)
    save("bad-ir", [h.make_node("Relu", ["x"], ["y"])], [x], [y], ir=99, check=False)

    def shorten(model):
        model.graph.initializer[0].raw_data = model.graph.initializer[0].raw_data[:-4]

    gemm = [h.make_node("Gemm", ["x", "w"], ["y"], "fc")]
    save("bad-data", gemm, [x], [y], [ramp("w", 2, 2)], check=False, change=shorten)

    def grow(model):
        model.graph.initializer[0].dims[:] = [1 << 40, 1 << 40]

    save("bad-dims", gemm, [x], [y], [ramp("w", 2, 2)], check=False, change=grow)

    def negative(model):
        model.graph.initializer[0].dims[:] = [-2, -2]

    save("bad-negative", gemm, [x], [y], [ramp("w", 2, 2)], check=False, change=negative)
    save("bad-input-type", [h.make_node("Identity", ["x"], ["y"])], [value("x", ["N"], T.STRING)], [value("y", ["N"], T.STRING)])
    save("bad-rank", [h.make_node("Relu", ["x"], ["y"])], [h.make_tensor_value_info("x", T.FLOAT, None)], [y], check=False)
    loop = [h.make_function("local", "F", ["a"], ["b"], [h.make_node("F", ["a"], ["b"], domain="local")], [h.make_opsetid("local", 1)])]
    save("bad-recursion", [h.make_node("F", ["x"], ["y"], domain="local")], [x], [y], imports=[h.make_opsetid("local", 1)], functions=loop, check=False)


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    for make in (basics, legacy, functions, branches, merged, parameters, inference, external, invalid):
        make()


if __name__ == "__main__":
    main()
