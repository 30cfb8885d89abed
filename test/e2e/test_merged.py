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


def described(model, parameters, calls):
    """The model with the dynamo exporter's metadata: placeholder → parameter, node → its call."""
    model.producer_name = "pytorch"
    model.metadata_props.add(key="pkg.torch.export.ExportedProgram.graph_signature",
                             value="\n".join(f"{p}: PARAMETER target='{target}'" for p, target in parameters.items()))
    for item in model.graph.node:
        function, arguments = calls[item.output[0]]
        item.metadata_props.add(key="pkg.torch.onnx.fx_node", value=f"%n : [num_users=1] = call_function[target={function}](args = ({arguments}), kwargs = {{}})")
    return model


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
    names = re.search(r"^parameters\n((?:  .*\n)*)", trainer.must("info").out, re.M).group(1).split("\n")
    require({n.split()[0] for n in names if n} == {"val_3", "val_4", "norm.weight"}, f"{names}")


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
    names = re.search(r"^parameters\n((?:  .*\n)*)", trainer.must("info").out, re.M).group(1).split("\n")
    require({n.split()[0] for n in names if n} == {"val_3", "val_4", "g2.weight", "g2.bias", "norm.weight"}, f"{names}")


if __name__ == "__main__":
    main(__doc__)
