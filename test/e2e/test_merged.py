"""What is one parameter and what are two: an Identity is the same tensor, unless PyTorch's exporter put it where it
merged equal parameters; and each gradient is the sum of all its parameter's paths, with --train and --freeze too.

    test_merged.py --build BUILD [--only REGEX] [-v]
"""

import re

import numpy as np

from support import checkpoint_contents, main, model_of, node, require, require_close, require_match

X = np.array([[1, -2, 3, 0.5], [2, 1, -1, 1.5]], np.float32)
T = np.array([[0, 1, 2, 3], [-1, 0, 1, 2]], np.float32)
OPTIONS = ("--loss=mse", "--optimizer=sgd", "--precision=fp64", "--batch=2")


def identities(merged, p):
    """y = (x·p + i)·i, with i = Identity(p); or, as the TorchScript exporter writes a merged parameter, the same of q."""
    name = "q" if merged else "i"
    identity = node("Identity", "p", name, name="Identity_0" if merged else "copy")
    body = [node("Mul", "x p", "a", name="/Mul"), node("Add", f"a {name}", "b", name="/Add"), node("Mul", f"b {name}", "y", name="/Mul_1")]
    model = model_of([identity, *body], {"x": ["N", 4]}, {"y": ["N", 4]}, {"p": np.asarray(p, np.float32)}, opset=17)
    model.producer_name = "pytorch" if merged else ""
    return model


def gradients(p):
    """Of p through x·p, and of what the Identity makes: y = x·p·i + i², ∂y/∂p = x·i, ∂y/∂i = x·p + 2·i."""
    p = np.asarray(p, np.float64)
    dy = 2 * (X * p * p + p * p - T) / X.size

    def fold(d):
        return d.sum(0) if p.size > 1 else d.sum().reshape(1)

    return fold(dy * X * p), fold(dy * (X * p + 2 * p))


def test_an_identity_is_the_same_parameter(bench):
    """The gradient of p has the path through Identity(p): of uniform values, of others, and of one element."""
    for p in ([2, 2, 2, 2], [1, 2, 3, 4], [3]):
        direct, through = gradients(p)
        for train in ([], ["--train=^p$"], ["--train=^(p|i)$"]):
            if len(p) == 1 and not train:
                continue  # one element counts as a constant in a file that is not PyTorch's
            got = bench.compile(identities(False, p), *OPTIONS, *train).grad({"x": X}, T)
            require("i" not in got, f"{p} {train}: {sorted(got)}")
            require_close(got["p"], direct + through, 1e-9, f"{p} {train}")


def test_a_merged_parameter_is_separate(bench):
    """PyTorch's exporter made p of p and q: each has the gradient of its own paths, and the patterns name either."""
    for p in ([2, 2, 2, 2], [3]):
        want = dict(zip("pq", gradients(p)))
        for option, names in ((None, "pq"), ("--train=^p$", "p"), ("--train=^q$", "q"), ("--freeze=^p$", "q"), ("--freeze=^q$", "p")):
            trainer = bench.compile(identities(True, p), *OPTIONS, *([option] if option else []))
            got = trainer.grad({"x": X}, T)
            require("".join(sorted(set(got) & {"p", "q"})) == names, f"{p} {option}: {sorted(got)}")
            for name in names:
                require_close(got[name], want[name], 1e-9, f"{p} {option} {name}")


def test_separating_is_said(bench):
    """Whoever trains with parameters that were merged hears of it; other values than one number are not separated."""
    model = bench.path("merged.onnx")
    for p, says in (([2, 2, 2, 2], True), ([3], True), ([1, 2, 3, 4], False)):
        model.write_bytes(identities(True, p).SerializeToString())
        done = bench.run_mpc(model, *OPTIONS, "-o", bench.path("t"))
        require(done.code == 0, f"{p}: exit {done.code}: {done.err[-300:]}")
        if says:
            require_match(r"note: 1 tensor that the exporter had merged with an equal one is separate again: q", done.err, f"{p}")
        else:
            require("separate" not in done.err, f"{p}: {done.err[-300:]}")


def test_a_layer_called_twice_has_one_pair_of_statistics(bench):
    """y = norm(x·W) + norm(z·V): behind one weight it is one layer, whose statistics both calls move; statistics of several numbers are always of
    one. Behind two weights, fresh statistics are equal by chance."""
    w, v = np.array([[1, 2, 0, 1]] * 4, np.float32), np.array([[0, 1, 1, 2]] * 4, np.float32)
    x, z = X, X[::-1] * 2 + 1
    for second, start, names in (("W", [0, 0, 0, 0], 1), ("V", [0, 0, 0, 0], 2), ("V", [1, 2, 3, 4], 1)):
        weights = {"W": w, "V": v, "s": np.full(4, 2, np.float32), "b": np.full(4, 3, np.float32), "mean": np.array(start, np.float32), "var": np.ones(4, np.float32)}
        body = [node("Gemm", "x W", "h"), node("BatchNormalization", "h s b mean var", "n"), node("Gemm", f"z {second}", "g"),
                node("BatchNormalization", "g s b mean var", "m"), node("Add", "n m", "y")]
        model = model_of(body, {"x": ["N", 4], "z": ["N", 4]}, {"y": ["N", 4]}, weights, opset=17)
        model.producer_name = "pytorch"
        trainer = bench.compile(model, *OPTIONS)
        run = trainer.train(trainer.data({"x": x, "z": z}, T), "--steps", 1, "--lr", 0)
        got = {k: a for k, a in checkpoint_contents(run.newest())[0].items() if k.startswith("statistic/mean")}
        require(len(got) == names, f"{second} {start}: {sorted(got)}")
        first, other = (x @ w).mean(0), (z @ {"W": w, "V": v}[second]).mean(0)
        start = np.array(start)
        want = [0.9 * (0.9 * start + 0.1 * first) + 0.1 * other] if names == 1 else [0.9 * start + 0.1 * first, 0.9 * start + 0.1 * other]
        for name, value in zip(sorted(got, key=len), want):
            require_close(got[name], value, 1e-6, f"{second} {start} {name}")


def test_a_scale_is_no_statistic(bench):
    """A tensor of ones that is both a norm's scale and its variance is two: the variance moves, and the scale does not with it."""
    body = [node("BatchNormalization", "x one zero zero one", "n"), node("Gemm", "n W", "y")]
    weights = {"W": np.array([[1, 2, 0, 1]] * 4, np.float32), "one": np.ones(4, np.float32), "zero": np.zeros(4, np.float32)}
    trainer = bench.compile(model_of(body, {"x": ["N", 4]}, {"y": ["N", 4]}, weights, opset=17), *OPTIONS)
    run = trainer.train(trainer.data({"x": X}, T), "--steps", 1, "--lr", 0)
    mean, variance = 0.1 * X.mean(0), 0.9 + 0.1 * X.astype(np.float64).var(0)
    want = ((X - mean) / np.sqrt(variance + 1e-5)) @ weights["W"]
    require_close(trainer.predict({"x": X}, "--checkpoint", run.newest())["y"], want, 1e-6, "y")


def test_statistics_have_no_samples(bench):
    """`info` of a norm with as many channels as the batch has samples."""
    body = [node("BatchNormalization", "x s b mean var", "y")]
    weights = {"s": np.ones(4, np.float32), "b": np.zeros(4, np.float32), "mean": np.zeros(4, np.float32), "var": np.ones(4, np.float32)}
    info = bench.compile(model_of(body, {"x": ["N", 4]}, {"y": ["N", 4]}, weights, opset=17), "--loss=mse", "--optimizer=sgd", "--precision=fp32", "--batch=4").must("info").out
    shapes = dict(re.findall(r"^  (\w+) +f32 (\[.*\])", info, re.M))
    require(shapes == {"x": "[samples, 4]", "y": "[samples, 4]", "labels": "[samples, 4]", **{name: "[4]" for name in weights}}, info)


def test_parameters_behind_functions(bench):
    """A parameter that is kept in bounds is one, a scalar too: PyTorch's older exporter, which describes nothing, has its constants in nodes. With
    PyTorch's gradients of y = exp(g)·x + sigmoid(h)."""
    g, h = np.float32(0.5), np.array([0.25, -1, 2, 0], np.float32)
    model = model_of([node("Exp", "g", "e"), node("Mul", "e x", "m"), node("Sigmoid", "h", "s"), node("Add", "m s", "y")], {"x": ["N", 4]}, {"y": ["N", 4]},
                     {"g": np.array(g), "h": h}, opset=17)
    model.producer_name = "pytorch"
    trainer = bench.compile(model, *OPTIONS)
    require(parameter_names(trainer) == {"g", "h"}, f"{parameter_names(trainer)}")
    got, s = trainer.grad({"x": X}, T), 1 / (1 + np.exp(-h.astype(np.float64)))
    dy = 2 * (np.exp(np.float64(g)) * X + s - T) / X.size
    require_close(got["g"], (dy * np.exp(np.float64(g)) * X).sum(), 1e-9, "g")
    require_close(got["h"], (dy * s * (1 - s)).sum(0), 1e-9, "h")
    model.producer_name = ""
    left = bench.compile(model, *OPTIONS).must("info").out
    require("g: a single element" in left, left)


def described(model, parameters, calls, buffers=None):
    """The model with the dynamo exporter's metadata: placeholder → parameter (or buffer), node → its call."""
    model.producer_name = "pytorch"
    lines = [f"{p}: PARAMETER target='{target}'" for p, target in parameters.items()] + [f"{p}: BUFFER target='{target}'" for p, target in (buffers or {}).items()]
    model.metadata_props.add(key="pkg.torch.export.ExportedProgram.graph_signature", value="\n".join(lines))
    for item in model.graph.node:
        function, arguments = calls[item.output[0]]
        item.metadata_props.add(key="pkg.torch.onnx.fx_node", value=f"%n : [num_users=1] = call_function[target={function}](args = ({arguments}), kwargs = {{}})")
    return model


def parameter_names(trainer):
    names = re.search(r"^parameters\n((?:  .*\n)*)", trainer.must("info").out, re.M).group(1).split("\n")
    return {n.split()[0] for n in names if n}


def test_constants_of_norms_are_not_trained(bench):
    """group_norm is an InstanceNormalization by ones and zeros, and a product and a sum with the real parameters; a layer_norm without parameters
    has a scale of ones, which is no other norm's parameter."""
    ones, zeros = np.ones(2, np.float32), np.zeros(2, np.float32)
    nodes = [node("Reshape", "x parts", "p"), node("InstanceNormalization", "p val_1 val_2", "n"), node("Reshape", "n back", "r"), node("Mul", "r val_3", "m"),
             node("Add", "m val_4", "a"), node("LayerNormalization", "a norm.weight", "l"), node("LayerNormalization", "l norm.weight", "y")]
    weights = {"parts": np.array([0, 2, -1]), "back": np.array([0, 4]), "val_1": ones, "val_2": zeros, "val_3": np.array([1, 2, 3, 4], np.float32),
               "val_4": np.array([4, 3, 2, 1], np.float32), "norm.weight": np.ones(4, np.float32)}
    group = ("torch.ops.aten.group_norm.default", "%x, 2, %w, %b, 1e-05, True")
    layer = "torch.ops.aten.layer_norm.default"
    model = described(model_of(nodes, {"x": ["N", 4]}, {"y": ["N", 4]}, weights, opset=17), {"w": "gn.weight", "b": "gn.bias", "s": "norm.weight"},
                      {**dict.fromkeys("pnrma", group), "l": (layer, "%a, [4]"), "y": (layer, "%l, [4], %s")})
    trainer = bench.compile(model, *OPTIONS)
    require(parameter_names(trainer) == {"val_3", "val_4", "norm.weight"}, f"{parameter_names(trainer)}")


def computed(folded):
    """y = (relu(x·val_0 + slice_1) · cos) · exp as the dynamo exporter describes it, with what it computed of what; `folded` None: it does not tell."""
    nodes = [node("MatMul", "x val_0", "m"), node("Add", "m slice_1", "s"), node("Relu", "s", "r"), node("MatMul", "r cos", "c"), node("Mul", "c exp", "y")]
    random = np.random.default_rng(2)
    weights = {"val_0": random.normal(size=(4, 4)).astype(np.float32), "slice_1": random.normal(size=4).astype(np.float32),
               "cos": random.normal(size=(4, 4)).astype(np.float32), "exp": np.array(1.5, np.float32)}
    calls = {"m": ("torch.ops.aten.linear.default", "%x, %p_a_weight"), "s": ("torch.ops.aten.add.Tensor", "%linear, %slice_1"),
             "r": ("torch.ops.aten.relu.default", "%add"), "c": ("torch.ops.aten.matmul.default", "%relu, %cos"), "y": ("torch.ops.aten.mul.Tensor", "%matmul, %exp")}
    model = described(model_of(nodes, {"x": ["N", 4]}, {"y": ["N", 4]}, weights, opset=17), {"p_a_weight": "a.weight", "p_b": "b"}, calls, {"b_pe": "pe"})
    for name, sources in (folded or {}).items():
        tell(model, name, sources)
    return model


def tell(model, name, sources):
    """That the exporter has computed the initializer of these values."""
    value = model.graph.value_info.add(name=name)
    value.type.tensor_type.elem_type = 1
    value.metadata_props.add(key="pkg.onnxscript.optimizer.folded_from", value=repr(sources))


def test_values_that_are_computed_ahead(bench):
    """What the exporter has computed of a buffer is not trained, under whatever name, whatever else is missing in the file; what it has computed of a
    parameter is, a scalar too. Where it does not tell, it may be of a parameter."""
    whole = {"val_0": ["a.weight"], "slice_1": ["pe", "val_1"], "cos": ["inv", "it's"], "exp": ["b", "val_2"]}
    for folded, trained in ((whole, {"val_0", "exp"}), ({**whole, "slice_1": ["pe", "b"]}, {"val_0", "exp", "slice_1"}), (None, {"val_0", "slice_1", "cos"})):
        trainer = bench.compile(computed(folded), *OPTIONS)
        info = trainer.must("info").out
        require(parameter_names(trainer) == trained, f"{folded}: {parameter_names(trainer)}")
        require(("no parameter was part of it" in info) == (folded is not None), info)
        require(("perhaps are constants" in info) == (folded is None), info)
        require(("trained apart" in info) == (folded is not None and "b" in folded["slice_1"]), info)


def test_a_parameter_that_is_computed_in_one_place_only(bench):
    """y = x·mu + relu(x)·(1 - mu), where the exporter computed 1 - mu: the file has no way back, and whoever trains it is told. A transposed matrix has one,
    whatever its name is and though it is symmetric."""
    nodes = [node("Mul", "x mu", "a"), node("Relu", "x", "r"), node("Mul", "r sub", "b"), node("Add", "a b", "y")]
    weights = {"mu": np.array([0.25, 0.5, 0.125, 0.75], np.float32), "sub": np.array([0.75, 0.5, 0.875, 0.25], np.float32)}
    calls = {"a": ("torch.ops.aten.mul.Tensor", "%x, %p_mu"), "r": ("torch.ops.aten.relu.default", "%x"), "b": ("torch.ops.aten.mul.Tensor", "%relu, %sub"),
             "y": ("torch.ops.aten.add.Tensor", "%mul, %mul_1")}
    model = described(model_of(nodes, {"x": ["N", 4]}, {"y": ["N", 4]}, weights, opset=17), {"p_mu": "mu"}, calls)
    tell(model, "sub", ["mu", "scalar_tensor_default"])
    trainer = bench.compile(model, *OPTIONS)
    require(parameter_names(trainer) == {"mu", "sub"}, f"{parameter_names(trainer)}")
    require_match(r"trained apart .*: mu \(itself, sub\); exported with optimize=False", trainer.must("info").out, "info")

    for own in (np.arange(16, dtype=np.float32).reshape(4, 4) / 16, np.eye(4, dtype=np.float32)):
        symmetric = (own == own.T).all()
        for made, sources, tied in (("t", ["l.weight"], True), ("t", ["l.weight", "k.weight"], False), ("relu", ["l.weight"], not symmetric), ("t", ["t"], False)):
            nodes = [node("Gemm", "x l.weight", "h", transB=1), node("MatMul", f"h {made}", "y")]
            model = described(model_of(nodes, {"x": ["N", 4]}, {"y": ["N", 4]}, {"l.weight": own, made: own.T.copy()}, opset=17), {"w": "l.weight", "k": "k.weight"},
                              {"h": ("torch.ops.aten.linear.default", "%x, %w"), "y": ("torch.ops.aten.linear.default", f"%h, %{made}")})
            tell(model, made, sources)
            trained = {"l.weight"} if tied or sources == ["t"] else {"l.weight", made}
            trainer = bench.compile(model, *OPTIONS)
            require(parameter_names(trainer) == trained, f"{made} of {sources}: {parameter_names(trainer)}")


def test_what_is_not_certain_is_trained(bench):
    """Of a comparison, of something that another run of the optimizer made while a parameter is nowhere, of what the file does not say clearly: trained, with
    a note, and frozen on demand. The shape of a parameter alone is a constant. A frozen parameter's values are told as well."""
    def compiled(folded, *options):
        trainer = bench.compile(computed(folded), *OPTIONS, *options)
        return parameter_names(trainer), trainer.must("info").out

    whole = {"val_0": ["a.weight"], "slice_1": ["pe", "val_1"], "cos": ["inv"], "exp": ["b", "val_2"]}
    for change, trained, note in (({"slice_1": ["b", "gt"]}, {"val_0", "slice_1", "exp"}, r"perhaps are constants, which the file does not tell.*: slice_1\n"),
                                  ({"cos": ["pe", "permute"], "exp": ["pe"]}, {"val_0", "cos"}, r"perhaps are constants.*: cos\n"),
                                  ({"slice_1": ["b", "zeros_like", "val_1"]}, {"val_0", "slice_1", "exp"}, r"perhaps are constants.*: slice_1\n")):
        names, info = compiled({**whole, **change})
        require(names == trained, f"{change}: {names}")
        require_match(note, info, f"{change}")
        require("perhaps" not in compiled({**whole, **change}, "--freeze=^(slice_1|cos)$")[1], f"{change}: frozen")
    for text in ("[]", "[", "['pe", "['pe',]", "pe", "['pe' 'pe']", "['p\\x07e']", "\\"):
        model = computed(whole)
        next(v for v in model.graph.value_info if v.name == "cos").metadata_props[0].value = text
        names = parameter_names(bench.compile(model, *OPTIONS))
        require(names == {"val_0", "cos", "exp"}, f"{text}: {names}")

    nodes = [node("Mul", "x p", "a"), node("Add", "a ones_like", "b"), node("Mul", "b sub", "y")]
    weights = {"p": np.array([1, 2, 3, 4], np.float32), "ones_like": np.ones(4, np.float32), "sub": np.array([0, -1, -2, -3], np.float32)}
    calls = {"a": ("mul", "%x, %p_p"), "b": ("add", "%mul, %ones_like"), "y": ("mul", "%add, %sub")}
    model = described(model_of(nodes, {"x": ["N", 4]}, {"y": ["N", 4]}, weights, opset=17), {"p_p": "p"}, calls)
    for name in ("ones_like", "sub"):
        tell(model, name, ["p", "val_0"])
    for options, trained in (([], {"p", "sub"}), (["--freeze=^p$"], {"sub"})):
        trainer = bench.compile(model, *OPTIONS, *options)
        require(parameter_names(trainer) == trained, f"{options}: {parameter_names(trainer)}")
        require_match(r"trained apart .*: p \(itself, sub\)", trainer.must("info").out, f"{options}")


def test_values_that_are_merged(bench):
    """cos and exp(g) are equal, and the exporter keeps cos, which the reader's call calls exp: it may be g's, and is trained. Of arange alone it is none."""
    for call, sources, trained in (("%mul, %exp", ["pe"], {"cos"}), ("%mul, %cos", ["pe"], set()), ("%mul, %exp", ["pe", "ones_like"], {"cos"}),
                                   ("%mul, %cos", ["exp", "val_1"], {"cos"}), ("%mul, %cos", ["arange", "exp", "val_1"], set())):
        nodes = [node("Mul", "x cos", "a"), node("Mul", "a cos", "b"), node("Mul", "b w", "y")]
        weights = {"cos": np.array([1, 2, 1, 2], np.float32), "w": np.ones(4, np.float32)}
        calls = {"a": ("mul", "%x, %cos"), "b": ("mul", call), "y": ("mul", "%mul_1, %p_w")}
        model = described(model_of(nodes, {"x": ["N", 4]}, {"y": ["N", 4]}, weights, opset=17), {"p_w": "w", "p_g": "g"}, calls, {"b_pe": "pe"})
        tell(model, "cos", sources)
        trainer = bench.compile(model, *OPTIONS)
        require(parameter_names(trainer) == {"w"} | trained, f"{call} {sources}: {parameter_names(trainer)}")
        require(("perhaps are constants" in trainer.must("info").out) == bool(trained), f"{call} {sources}: {trainer.must('info').out}")


def test_numbers_of_the_exporter(bench):
    """Attention's scale, computed of the shape of learned queries, is no parameter; neither is the transpose of a transpose refused."""
    nodes = [node("Mul", "q val_3", "a"), node("MatMul", "x a_t", "h"), node("MatMul", "h b_t", "g"), node("MatMul", "g w", "i"), node("Add", "i a", "y")]
    w = np.arange(16, dtype=np.float32).reshape(4, 4) / 16
    weights = {"a_t": w, "b_t": w.T.copy(), "w": w, "q": np.ones(4, np.float32), "val_3": np.array([0.5], np.float32)}
    calls = {"a": ("attention", "%p_q"), "h": ("mm", "%x, %a_t"), "g": ("mm", "%mm, %b_t"), "i": ("mm", "%mm_1, %p_w"), "y": ("add", "%mm_2, %attention")}
    model = described(model_of(nodes, {"x": ["N", 4]}, {"y": ["N", 4]}, weights, opset=17), {"p_w": "w", "p_q": "q"}, calls)
    for name, sources in (("val_3", ["q", "val_1", "val_2"]), ("a_t", ["b_t"]), ("b_t", ["w"])):
        tell(model, name, sources)
    trainer = bench.compile(model, *OPTIONS)
    require({"q", "w"} <= parameter_names(trainer) and "val_3" not in parameter_names(trainer), f"{parameter_names(trainer)}")
    require("not trained (`info` tells why)" not in trainer.must("info").out, trainer.must("info").out)


def test_a_mask_that_a_parameter_is_part_of(bench):
    """A learned bias with -∞ in the place of what is hidden, computed by the exporter: as it stands it cannot be trained (decay makes NaN of -∞), and whoever
    trains the model is told. A value made of a parameter that a Where chooses from is trained."""
    nodes = [node("MatMul", "x val_0", "m"), node("Add", "m masked_fill", "s"), node("Softmax", "s", "p", axis=-1), node("Greater", "x zero", "c"),
             node("Where", "c mul p", "y")]
    weights = {"val_0": np.eye(4, dtype=np.float32) * 2, "masked_fill": np.array([0.5, -1, -np.inf, 0.25], np.float32), "mul": np.array([1, 2, 3, 4], np.float32),
               "zero": np.array(0, np.float32)}
    calls = {"m": ("linear", "%x, %p_a"), "s": ("add", "%linear, %masked_fill"), "p": ("softmax", "%add"), "c": ("gt", "%x, 0"), "y": ("where", "%gt, %mul, %softmax")}
    model = described(model_of(nodes, {"x": ["N", 4]}, {"y": ["N", 4]}, weights, opset=17), {"p_a": "a", "p_t": "t", "p_q": "q"}, calls)
    for name, sources in (("val_0", ["a"]), ("masked_fill", ["t", "val_1"]), ("mul", ["q", "val_2"])):
        tell(model, name, sources)
    trainer = bench.compile(model, "--loss=mse", "--optimizer=adam", "--precision=fp32", "--batch=2")
    info = trainer.must("info").out
    require(parameter_names(trainer) == {"val_0", "mul"}, f"{parameter_names(trainer)}")
    require_match(r"not trained \(`info` tells why\): masked_fill;", info, "info")
    require_match(r"2 parameters of the PyTorch model are in the file only as what the exporter has computed: q, t;", info, "info")
    run = trainer.train(trainer.data({"x": X}, T), "--steps", 3, "--lr", 0.1)
    require(np.isfinite(run.values("loss")).all(), f"{run.values('loss')}")


def test_dropout_that_is_lost(bench):
    """Of scaled_dot_product_attention, by position or by name: told where no node has it."""
    attention = "torch.ops.aten.scaled_dot_product_attention.default"
    for arguments, op, told in (("%q, %k, %v, None, 0.25", "Neg", "(0.25)"), ("%q, %k, %v, None, 0.0", "Neg", ""), ("%q, %k, %v", "Neg", ""),
                                ("%q, %k, %v), kwargs = {is_causal: True, dropout_p: 0.125}", "Neg", "(0.125)"), ("%q, %k, %v, None, 0.25", "Dropout", "")):
        nodes = [node("MatMul", "x W", "h"), node("Softmax", "h", "p", axis=-1), node(op, "p", "y")]
        call = (attention, arguments)
        model = described(model_of(nodes, {"x": ["N", 4]}, {"y": ["N", 4]}, {"W": np.eye(4, dtype=np.float32)}, opset=17), {"w": "W"}, {"h": call, "p": call, "y": call})
        info = bench.compile(model, *OPTIONS).must("info").out
        require(("1 call of scaled_dot_product_attention has dropout " + told in info) if told else "scaled_dot" not in info, f"{arguments} {op}: {info}")


def test_parameters_of_group_norms_are_separate(bench):
    """Two fresh group_norms have one tensor of ones in the file, and the ones inside are a layer_norm's as well: two parameters, and a constant."""
    def group(x, y, first, w, b):
        return [node("Reshape", f"{x} parts", f"{y}1"), node("InstanceNormalization", f"{y}1 {first} val_2", f"{y}2"), node("Reshape", f"{y}2 back", f"{y}3"),
                node("Mul", f"{y}3 {w}", f"{y}4"), node("Add", f"{y}4 {b}", y)]

    nodes = [*group("x", "g", "val_1", "val_3", "val_4"), *group("g", "h", "val_1", "val_3", "val_4"), node("LayerNormalization", "h norm.weight", "l"),
             node("Reshape", "l parts", "i"), node("LayerNormalization", "i val_1", "j"), node("Reshape", "j back", "y")]
    weights = {"parts": np.array([0, 2, -1]), "back": np.array([0, 4]), "val_1": np.ones(2, np.float32), "val_2": np.zeros(2, np.float32),
               "val_3": np.ones(4, np.float32), "val_4": np.zeros(4, np.float32), "norm.weight": np.ones(4, np.float32)}
    call = lambda p: ("torch.ops.aten.group_norm.default", f"%x, 2, %w{p}, %b{p}, 1e-05, True")
    layer = "torch.ops.aten.layer_norm.default"
    model = described(model_of(nodes, {"x": ["N", 4]}, {"y": ["N", 4]}, weights, opset=17),
                      {**{f"w{p}": f"g{p}.weight" for p in "12"}, **{f"b{p}": f"g{p}.bias" for p in "12"}, "s": "norm.weight"},
                      {**{n: call(1) for n in ("g", "g1", "g2", "g3", "g4")}, **{n: call(2) for n in ("h", "h1", "h2", "h3", "h4")},
                       "l": (layer, "%h, [4], %s"), "i": ("view", "%l"), "j": (layer, "%i, [2]"), "y": ("view", "%j")})
    trainer = bench.compile(model, *OPTIONS)
    require(parameter_names(trainer) == {"val_3", "val_4", "g2.weight", "g2.bias", "norm.weight"}, f"{parameter_names(trainer)}")


def test_parameters_of_group_normalizations_are_separate(bench):
    """From opset 21 on a group_norm is one node, with its parameters: fresh ones are apart, also from the constants of a layer_norm."""
    group = lambda x, y: node("GroupNormalization", f"{x} norm.weight norm.bias", y, num_groups=2)
    nodes = [group("x", "g"), group("g", "h"), node("LayerNormalization", "h norm.weight norm.bias", "l"), node("LayerNormalization", "l norm.weight norm.bias", "y")]
    weights = {"norm.weight": np.ones(4, np.float32), "norm.bias": np.zeros(4, np.float32)}
    parameters = {f"{short}{layer}": f"{layer}.{name}" for layer in ("g1", "g2", "norm") for short, name in (("w", "weight"), ("b", "bias"))}
    of_group, of_layer = "torch.ops.aten.group_norm.default", "torch.ops.aten.layer_norm.default"
    calls = {"g": (of_group, "%x, 2, %wg1, %bg1, 1e-05, True"), "h": (of_group, "%g, 2, %wg2, %bg2, 1e-05, True"),
             "l": (of_layer, "%h, [4]"), "y": (of_layer, "%l, [4], %wnorm, %bnorm")}
    model = described(model_of(nodes, {"x": ["N", 4]}, {"y": ["N", 4]}, weights, opset=21), parameters, calls)
    trainer = bench.compile(model, *OPTIONS)
    require(parameter_names(trainer) == set(parameters.values()), f"{parameter_names(trainer)}")


def test_what_has_no_parameters_is_none_of_the_others(bench):
    """One reader whose parameter is not known keeps parameters together, but not with the ones of a norm that has none."""
    nodes = [node("LayerNormalization", "x w", "n"), node("LayerNormalization", "n w", "m"), node("Neg", "m", "v"), node("Mul", "v w", "p"), node("Add", "p b", "y")]
    weights = {"w": np.ones(4, np.float32), "b": np.full(4, 2, np.float32)}
    layer = "torch.ops.aten.layer_norm.default"
    model = described(model_of(nodes, {"x": ["N", 4]}, {"y": ["N", 4]}, weights, opset=17), {"w": "w", "s": "m.weight", "b": "b"},
                      {"n": (layer, "%x, [4]"), "m": (layer, "%n, [4], %s"), "v": ("torch.ops.aten.neg.default", "%m"),
                       "p": ("torch.ops.aten.addcmul.default", "%b, %v, %w"), "y": ("torch.ops.aten.addcmul.default", "%b, %v, %w")})
    trainer = bench.compile(model, *OPTIONS)
    require(parameter_names(trainer) == {"w", "b"}, f"{parameter_names(trainer)}")
    left = trainer.must("info").out
    require("2 nodes share" in left and "3 nodes share" not in left, left)


def test_a_missing_scale_is_no_parameter(bench):
    """layer_norm(x, [4], None, bias): its scale of ones is nobody's, its bias is the layer's own, and the others' are theirs."""
    layer = "torch.ops.aten.layer_norm.default"
    nodes = [node("LayerNormalization", f"{x} l1.weight l1.bias", y) for x, y in ("xa", "ab", "by")]
    weights = {"l1.weight": np.ones(4, np.float32), "l1.bias": np.zeros(4, np.float32)}
    parameters = {"w1": "l1.weight", "b1": "l1.bias", "w2": "l2.weight", "b2": "l2.bias", "b3": "l3.bias"}
    model = described(model_of(nodes, {"x": ["N", 4]}, {"y": ["N", 4]}, weights, opset=17), parameters,
                      {"a": (layer, "%x, [4], %w1, %b1"), "b": (layer, "%a, [4], %w2, %b2"), "y": (layer, "%b, [4], None, %b3")})
    got = parameter_names(bench.compile(model, *OPTIONS))
    require(got == set(parameters.values()), f"{got}")


def test_names_of_what_is_separate(bench):
    """The bias of a bilinear layer is its call's fourth value; a parameter that is merged with a buffer is trained under its own name."""
    bilinear = "torch.ops.aten.bilinear.default"
    nodes = [node("Mul", "x w1", "p"), node("Add", "p b1.bias", "a"), node("Mul", "a w2", "q"), node("Add", "q b1.bias", "y")]
    weights = {"w1": np.array([1, 2, 3, 4], np.float32), "w2": np.array([4, 3, 2, 1], np.float32), "b1.bias": np.zeros(4, np.float32)}
    parameters = {"w1": "w1", "c1": "b1.bias", "w2": "w2", "c2": "b2.bias"}
    call = {v: (bilinear, f"%x, %x, %w{n}, %c{n}") for v, n in (("p", 1), ("a", 1), ("q", 2), ("y", 2))}
    got = parameter_names(bench.compile(described(model_of(nodes, {"x": ["N", 4]}, {"y": ["N", 4]}, weights, opset=17), parameters, call), *OPTIONS))
    require(got == set(parameters.values()), f"{got}")

    layer = "torch.ops.aten.layer_norm.default"
    nodes = [node("LayerNormalization", "x b.w", "n"), node("LayerNormalization", "n b.w", "m"), node("MatMul", "m W", "y")]
    weights = {"b.w": np.ones(4, np.float32), "W": np.eye(4, dtype=np.float32) + 1}
    model = described(model_of(nodes, {"x": ["N", 4]}, {"y": ["N", 4]}, weights, opset=17), {"s": "m.weight", "w": "W"},
                      {"n": (layer, "%x, [4], %f"), "m": (layer, "%n, [4], %s"), "y": ("torch.ops.aten.matmul.default", "%m, %w")}, {"f": "b.w"})
    got = parameter_names(bench.compile(model, *OPTIONS))
    require(got == {"m.weight", "W"}, f"{got}")


def test_a_norm_without_parameters_called_twice(bench):
    """The second call of a BatchNormalization without scale and bias reads what the first has made of the statistics: its ones and zeros are
    neither parameters nor those statistics."""
    for moved in (False, True):
        names = {"scale": "val_1", "bias": "val_2", "mean": "n.running_mean", "var": "n.running_var"}
        weights = {"W": np.eye(4, dtype=np.float32), "val_1": np.ones(4, np.float32), "val_2": np.zeros(4, np.float32),
                   "n.running_mean": np.full(4, 0.5, np.float32), "n.running_var": np.full(4, 2, np.float32)}
        if not moved:  # then equal tensors are one in the file
            names |= {"scale": "n.running_var", "bias": "n.running_mean"}
            weights = {"W": weights["W"], "n.running_mean": weights["val_2"], "n.running_var": weights["val_1"]}
        norm = lambda x, y: node("BatchNormalization", f"{x} {names['scale']} {names['bias']} {names['mean']} {names['var']}", y)
        nodes = [node("MatMul", "x W", "h"), norm("h", "a"), node("Neg", "a", "c"), norm("c", "y")]
        call = "torch.ops.aten._native_batch_norm_legit_functional.default"
        model = described(model_of(nodes, {"x": ["N", 4]}, {"y": ["N", 4]}, weights, opset=17), {"w": "W"},
                          {"h": ("torch.ops.aten.matmul.default", "%x, %w"), "a": (call, "%h, None, None, %m, %v, True, 0.1, 1e-05"), "c": ("torch.ops.aten.neg.default", "%a"),
                           "y": (call, "%c, None, None, %getitem_3, %getitem_4, True, 0.1, 1e-05")}, {"m": "n.running_mean", "v": "n.running_var"})
        trainer = bench.compile(model, *OPTIONS)
        require(parameter_names(trainer) == {"W"}, f"{moved}: {parameter_names(trainer)}")
        run = trainer.train(trainer.data({"x": X}, T), "--steps", 2, "--lr", 0)
        first, second = run.values("loss")
        require_close(np.array(second), np.array(first), 1e-12, f"moved {moved}: the statistics that step 1 moved are in step 2's loss")


if __name__ == "__main__":
    main(__doc__)
