"""Numerics of the half types: conversions, one rounding per stored value, fp32 accumulation, fp32 inside norms and losses.

    test_precision.py --build BUILD [--only REGEX] [-v]

Numbers in brackets are rows of the numerics table in docs/testing.md; expected values follow from round-to-nearest-even.
"""

import numpy as np
from onnx import TensorProto, numpy_helper

from support import PLAIN, SGD, checkpoint_contents, main, model_of, node, require, require_close, require_refusal

F32, F16, BF16, F64 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE


def bf16(values):
    """Round-to-nearest-even to bf16, as float32."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    rounded = ((bits.astype(np.uint64) + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32)
    return np.where(np.isnan(np.asarray(values, np.float32)), np.float32(np.nan), rounded.view(np.float32))


def fp16(values):
    with np.errstate(over="ignore"):
        return np.asarray(values, np.float32).astype(np.float16).astype(np.float32)


ROUND = {F16: fp16, BF16: bf16}


def predict(bench, model, inputs, *options, precision="fp32", batch=1):
    outputs = bench.compile(model, "--loss=none", f"--precision={precision}", f"--batch={batch}", *options).predict(inputs)
    return next(iter(outputs.values()))


def cast_model(to, size, source=F32):
    return model_of([node("Cast", "x", "h", to=to), node("Cast", "h", "y", to=F32)], {"x": (["N", size], source)}, {"y": ["N", size]}, {})


def require_same(got, want, what):
    """Equal bits, any NaN for a NaN."""
    got, want = np.asarray(got, np.float32).ravel(), np.asarray(want, np.float32).ravel()
    require(got.size == want.size, f"{what}: {got.size} values, want {want.size}")
    wrong = np.flatnonzero((got.view(np.uint32) != want.view(np.uint32)) & ~(np.isnan(got) & np.isnan(want)))
    require(wrong.size == 0, f"{what}: {wrong.size} values differ, the first at {wrong[:1]}: got {got[wrong[:4]]}, want {want[wrong[:4]]}")


# ---------------------------------------------------------------- conversions


def test_conversion_table(bench):
    """[2] [4] [5] [6] [10] [11] [13] [14] [16] [17] [18] fp32 → half at the edges."""
    half = [(65519.99, 65504), (65520, np.inf), (2.0**-25, 0), (np.nextafter(np.float32(2.0**-25), np.float32(1)), 2.0**-24), (1e-8, 0), (2.98e-8, 0),
            (3e-8, 5.960464477539063e-08), (1e-7, 1.1920928955078125e-07), (1e-4, 1.0001659393310547e-04), (1 + 2.0**-11, 1), (1 + 2.0**-10, 1.0009765625),
            (1 + 3 * 2.0**-11, 1.001953125), (1 - 2.0**-12, 1), (1 - 2.0**-11, 0.99951171875), (0.1, 0.0999755859375), (1 / 3, 0.333251953125),
            (np.pi, 3.140625), (33000, 32992), (0.9999, 1), (-0.0, -0.0), (-65520, -np.inf), (np.inf, np.inf), (np.nan, np.nan), (1e-5, 1.0013580322265625e-05),
            (1e-6, 1.0132789611816406e-06), (2.0**-14, 2.0**-14), (6.1e-5, 6.097555160522461e-05)]
    brain = [(1 + 2.0**-8, 1), (1 + 2.0**-7, 1.0078125), (257, 256), (65504, 65536), (0.1, 0.10009765625), (0.999, 1), (0.99, 0.98828125), (0.26914088, 0.26953125),
             (3.3895313892515355e38, 3.3895313892515355e38), (3.4e38, np.inf), (-0.0, -0.0), (np.nan, np.nan), (-np.inf, -np.inf), (1.17549435e-38, 1.1754943508222875e-38)]
    for to, table in ((F16, half), (BF16, brain)):
        x, want = (np.array([[row[i] for row in table]], np.float32) for i in (0, 1))
        require_same(ROUND[to](x), want, "the test's own values")
        require_same(predict(bench, cast_model(to, x.size), {"x": x}), want, TensorProto.DataType.Name(to))


def test_conversion_of_random_bits(bench):
    """100000 random bit patterns, subnormals, infinities and NaN among them, round as IEEE 754 says."""
    bits = np.random.default_rng(5).integers(0, 2**32, 100000, dtype=np.uint32)
    x = bits.view(np.float32)
    near = (np.random.default_rng(6).standard_normal(100000) * 2.0 ** np.random.default_rng(7).integers(-26, 17, 100000)).astype(np.float32)
    x = np.concatenate([x[~np.isnan(x)], near])[None]
    for to in (F16, BF16):
        got, want = predict(bench, cast_model(to, x.size), {"x": x}), ROUND[to](x)
        if to == BF16:  # x86's own conversion takes fp32's subnormals for zero
            small = np.abs(x) < np.finfo(np.float32).tiny
            require((np.abs(got[small]) <= np.finfo(np.float32).tiny).all(), "a subnormal became a large value")
            got, want = got[~small], want[~small]
        require_same(got, want, TensorProto.DataType.Name(to))


def test_every_half_survives(bench):
    """All finite fp16 codes survive fp16 → fp32 → fp16."""
    codes = np.arange(65536, dtype=np.uint16).view(np.float16)
    x = codes[np.isfinite(codes)].astype(np.float32)[None]
    require_same(predict(bench, cast_model(F16, x.size), {"x": x}), x, "fp16")


def test_double_rounds_once(bench):
    """[12] The double 1 + 2^-11 + 2^-30 → fp16 is 1.0009765625; by way of fp32 it would be 1."""
    x = np.array([[1 + 2.0**-11 + 2.0**-30, 1 + 2.0**-11, 1 - 2.0**-30]])
    require_same(predict(bench, cast_model(F16, 3, F64), {"x": x}), [[1.0009765625, 1, 1]], "fp64 → fp16")


# ---------------------------------------------------------------- one rounding per stored value


def test_half_arithmetic(bench):
    """[7] [8] [9] [14] [43] An operation on half tensors computes in fp32; its half result is rounded once."""
    add = [(65504, 15, 65504), (65504, 16, np.inf), (2048, 1, 2048), (2050, 1, 2052), (33000, 33000, np.inf), (1024, 0.5, 1024), (1024, 0.51, 1025), (2048, 1.01, 2050)]
    mul = [(1e-4, 1e-4, 0), (2.4e-4, 2.4e-4, 5.960464477539063e-08), (255.875, 255.875, 65472), (256, 256, np.inf)]
    for op, table in (("Add", add), ("Mul", mul)):
        a, b, want = (np.array([[row[i] for row in table]], np.float32) for i in range(3))
        nodes = [node("Cast", "a", "ha", to=F16), node("Cast", "b", "hb", to=F16), node(op, "ha hb", "y")]
        model = model_of(nodes, {"a": ["N", a.size], "b": ["N", a.size]}, {"y": (["N", a.size], F16)}, {})
        got = predict(bench, model, {"a": a, "b": b})
        require(got.dtype == np.float16, f"{op}: the output is {got.dtype}")
        require_same(got, want, op)


def test_saturation_of_stored_halves(bench):
    """[32] sigmoid and tanh between products are stored in half: 1 from 8.3203125 and 4.5078125 on."""
    for op, edge in (("Sigmoid", 8.3203125), ("Tanh", 4.5078125)):
        below = np.nextafter(np.float16(edge), np.float16(0)).astype(np.float32)
        model = model_of([node("MatMul", "x W", "m"), node(op, "m", "a"), node("MatMul", "a W", "y")], {"x": ["N", 1]}, {"y": ["N", 1]},
                         {"W": np.ones((1, 1), np.float32)})
        got = predict(bench, model, {"x": np.array([[edge], [below]], np.float32)}, precision="fp16", batch=2).ravel()
        require_same(got, [1, 0.99951171875], op)


def test_rounding_of_weights_and_inputs_of_products(bench):
    """A product's operands are rounded to half, the sum is fp32, the result is rounded once; bf16 and fp16."""
    made = np.random.default_rng(2)
    x, w = made.standard_normal((16, 64)).astype(np.float32), made.standard_normal((64, 8)).astype(np.float32)
    model = model_of([node("MatMul", "x W", "y")], {"x": ["N", 64]}, {"y": ["N", 8]}, {"W": w})
    for precision, rounded in (("fp16", fp16), ("bf16", bf16)):
        got = predict(bench, model, {"x": x}, precision=precision, batch=16)
        exact = rounded(x).astype(np.float64) @ rounded(w).astype(np.float64)
        require_same(rounded(got), got, f"{precision}: the result is no {precision} number")
        # Within half a unit of the last place, and fp32's error of the sum.
        ulp = np.abs(exact) * (2.0**-11 if precision == "fp16" else 2.0**-8)
        require((np.abs(got - exact) <= ulp * 1.001 + 1e-5).all(), f"{precision}: more than one rounding: {np.max(np.abs(got - exact) / ulp)}")


# ---------------------------------------------------------------- accumulation in fp32


def test_products_accumulate_in_fp32(bench):
    """[25] 4096 products 0.01² are 0.40966796875 in fp16; with fp16 sums it would be 0.25. [26] 64 products 32·32 overflow on storing."""
    model = model_of([node("MatMul", "x W", "y")], {"x": ["N", 4096]}, {"y": ["N", 1]}, {"W": np.full((4096, 1), 0.01, np.float32)})
    require_same(predict(bench, model, {"x": np.full((1, 4096), 0.01, np.float32)}, precision="fp16"), [[0.40966796875]], "dot of 4096")
    model = model_of([node("MatMul", "x W", "y")], {"x": ["N", 64]}, {"y": ["N", 1]}, {"W": np.full((64, 1), 32, np.float32)})
    require_same(predict(bench, model, {"x": np.full((1, 64), 32, np.float32)}, precision="fp16"), [[np.inf]], "dot of 64")
    require_same(predict(bench, model, {"x": np.full((1, 64), 32, np.float32)}, precision="bf16"), [[65536]], "dot of 64 in bf16")


def test_convolutions_accumulate_in_fp32(bench):
    """The same through a convolution of 4096 channels."""
    model = model_of([node("Conv", "x W", "y", kernel_shape=[1, 1])], {"x": ["N", 4096, 1, 1]}, {"y": ["N", 1, 1, 1]}, {"W": np.full((1, 4096, 1, 1), 0.01, np.float32)})
    require_same(predict(bench, model, {"x": np.full((1, 4096, 1, 1), 0.01, np.float32)}, precision="fp16"), [0.40966796875], "convolution")


def reduce_model(op, size, to):
    return model_of([node("Cast", "x", "h", to=to), node(op, "h", "r", axes=[1]) if op == "ReduceMean" else node(op, "h axes", "r"),
                     node("Cast", "r", "y", to=F32)], {"x": ["N", size]}, {"y": ["N", 1]}, {} if op == "ReduceMean" else {"axes": np.array([1])})


def test_reductions_accumulate_in_fp32(bench):
    """[23] [24] Sums of half tensors do not stall, and a count beyond 65504 is no infinity."""
    for to, name in ((F16, "fp16"), (BF16, "bf16")):
        ones = np.ones((1, 20000), np.float32)
        require_close(predict(bench, reduce_model("ReduceSum", 20000, to), {"x": ones}), [20000], 2.0**-9, f"{name}: sum of 20000 ones")
        tenths = np.full((1, 200000), 0.1, np.float32)
        want = ROUND[to](ROUND[to](np.float32(0.1)).astype(np.float64) * 200000)
        got = predict(bench, reduce_model("ReduceSum", 200000, to), {"x": tenths})
        require_close(got, [want], 2.0**-10 if to == F16 else 2.0**-7, f"{name}: sum of 200000 tenths")
        require_same(predict(bench, reduce_model("ReduceMean", 10000, to), {"x": np.ones((1, 10000), np.float32)}), [1], f"{name}: mean of 10000 ones")
        require_same(predict(bench, reduce_model("ReduceMean", 65536, to), {"x": np.ones((1, 65536), np.float32)}), [1], f"{name}: mean of 65536 ones")


def test_mean_loss_of_many_elements(bench):
    """[45] The mean over 2^17 elements and its gradient 2/N·(y−t), in fp16 with scaling."""
    size = 2**17
    model = model_of([node("MatMul", "x W", "y")], {"x": ["N", 1]}, {"y": ["N", size]}, {"W": np.ones((1, size), np.float32)})
    trainer = bench.compile(model, *SGD, "--precision=fp16", "--batch=1")
    got = trainer.grad({"x": np.ones((1, 1), np.float32)}, np.full((1, size), 0.5, np.float32))
    require_close(got["loss"], 0.25, 1e-6, "loss")
    require_close(got["W"], np.full(size, 1 / size), 1e-3, "gradient")
    require(np.abs(got["W"] * size - 1).max() < 2e-3, f"gradients from {got['W'].min() * size} to {got['W'].max() * size}, want 1")


# ---------------------------------------------------------------- fp32 inside


def behind_product(op, size, **attributes):
    """OP(x·1): its input is a stored half."""
    return model_of([node("MatMul", "x W", "m"), node(op, "m", "y", **attributes)], {"x": ["N", size]}, {"y": ["N", size]}, {"W": np.eye(size, dtype=np.float32)})


def test_softmax(bench):
    """[30] [31] The maximum is subtracted, the denominator is fp32, log_softmax is no log of a softmax."""
    for precision in ("fp16", "bf16", "fp32"):
        got = predict(bench, behind_product("Softmax", 2, axis=1), {"x": np.array([[12, 0]], np.float32)}, precision=precision)
        require_close(got, [[0.9999939, 6.14e-6]], 4e-3, f"{precision}: softmax [12, 0]")
        got = predict(bench, behind_product("LogSoftmax", 2, axis=1), {"x": np.array([[0, 20]], np.float32)}, precision=precision)
        require_close(got, [[-20.000000002, -2e-9]], 4e-3, f"{precision}: log_softmax [0, 20]")
    equal = model_of([node("MatMul", "x W", "m"), node("Softmax", "m", "y", axis=1)], {"x": ["N", 1]}, {"y": ["N", 4096]}, {"W": np.ones((1, 4096), np.float32)})
    got = predict(bench, equal, {"x": np.ones((1, 1), np.float32)}, precision="fp16")
    require_close(got, np.full((1, 4096), 1 / 4096), 1e-3, "softmax of 4096 equal logits")
    require(abs(got.astype(np.float64).sum() - 1) < 1e-2, f"it sums to {got.sum()}")


def test_exponentials_beyond_half(bench):
    """[27] exp has fp32 results: e^12 is no infinity in an fp16 program."""
    got = predict(bench, behind_product("Exp", 2), {"x": np.array([[12, -17.5]], np.float32)}, precision="fp16")
    require_close(got, [[162754.79, 2.51e-8]], 1e-3, "exp")
    require(got[0, 1] > 2e-8, f"e^-17.5 is {got[0, 1]}")


def test_norms_compute_in_fp32(bench):
    """[36] [37] The variance of {100, 101} is 0.25, 300² is no infinity, also where the norm's input is stored in half."""
    for values, want in (([100, 101], [-1, 1]), ([300, -300], [1, -1]), ([1000, 1000.5], [-1, 1])):
        nodes = [node("MatMul", "x W", "m"), node("LayerNormalization", "m s b", "y", epsilon=1e-9)]
        model = model_of(nodes, {"x": ["N", 2]}, {"y": ["N", 2]}, {"W": np.eye(2, dtype=np.float32), "s": np.ones(2, np.float32), "b": np.zeros(2, np.float32)})
        got = predict(bench, model, {"x": np.array([values], np.float32)}, precision="fp16")
        require_close(got, [want], 1e-3, f"layer norm of {values}")


def test_running_mean_does_not_stall(bench):
    """[38] The running mean of a constant 1 with momentum 0.99: after 1500 steps 1 − 0.99^1500; in fp16 it stalls at 0.975."""
    weights = {"W": np.ones((1, 1), np.float32), "s": np.ones(1, np.float32), "b": np.zeros(1, np.float32), "mean": np.zeros(1, np.float32), "var": np.ones(1, np.float32)}
    nodes = [node("MatMul", "x W", "m"), node("BatchNormalization", "m s b mean var", "y mean_out var_out", training_mode=1, momentum=0.99)]
    model = model_of(nodes, {"x": ["N", 1]}, {"y": ["N", 1]}, weights)
    trainer = bench.compile(model, *SGD, "--precision=fp16", "--batch=2", "--train=^s$")
    ones = np.ones((2, 1), np.float32)
    run = trainer.train(trainer.data({"x": ones}, np.zeros((2, 1), np.float32)), "--steps", 1500, "--lr", 0, *PLAIN)
    applied = 1500 - sum(run.values("skipped"))
    require_close(run.weights()["mean"], [1 - 0.99**applied], 1e-5, "running mean")


def test_second_moment_does_not_stall(bench):
    """[40] v ← 0.999 v + 0.001·1: after 3000 steps 0.9503; a bf16 v stalls at 0.5, an fp16 one at 0.75."""
    model = model_of([node("MatMul", "x W", "y")], {"x": ["N", 1]}, {"y": ["N", 1]}, {"W": np.zeros((1, 1), np.float32)})
    trainer = bench.compile(model, "--loss=l1", "--optimizer=adam", "--precision=bf16", "--batch=1")
    run = trainer.train(trainer.data({"x": np.ones((1, 1), np.float32)}, np.full((1, 1), 1e4, np.float32)), "--steps", 3000, "--lr", 0.01, "--no-shuffle")
    tensors, _ = checkpoint_contents(run.newest())
    require_close(tensors["optimizer/exp_avg_sq/W"], [1 - 0.999**3000], 1e-3, "exp_avg_sq")


def test_small_epsilon(bench):
    """[19] ε = 1e-8 does not become 0 in fp16: a norm of zeros is 0, not NaN, and Adam's 1/(√v + ε) stays finite."""
    nodes = [node("MatMul", "x W", "m"), node("LayerNormalization", "m s b", "y", epsilon=1e-8)]
    model = model_of(nodes, {"x": ["N", 2]}, {"y": ["N", 2]}, {"W": np.eye(2, dtype=np.float32), "s": np.ones(2, np.float32), "b": np.zeros(2, np.float32)})
    trainer = bench.compile(model, "--loss=mse", "--optimizer=adam", "--precision=fp16", "--batch=1")
    x = np.zeros((1, 2), np.float32)
    require_close(trainer.predict({"x": x})["y"], x, 0, "layer norm of zeros")
    run = trainer.train(trainer.data({"x": x}, x), "--steps", 3, "--lr", 0.1, "--no-shuffle")
    for name, value in run.weights().items():
        require(np.isfinite(value).all(), f"{name} is {value}")


# ---------------------------------------------------------------- scaled gradients


def test_a_gradient_of_1e_8(bench):
    """[44] Scaled by 65536, 1e-8 is stored in half as 6.55e-4 and comes back in fp32 as 9.997166e-09. [49] Unscaling in half would give 0."""
    nodes = [node("MatMul", "x W", "z"), node("Mul", "z c", "y"), node("ReduceSum", "y", "l", keepdims=0)]
    model = model_of(nodes, {"x": ["N", 1]}, {"l": []}, {"W": np.ones((1, 1), np.float32), "c": np.array([1e-8], np.float32)})
    trainer = bench.compile(model, "--loss=output", "--optimizer=sgd", "--precision=fp16", "--batch=1", "--train=^W$")
    got = trainer.grad({"x": np.ones((1, 1), np.float32)}, None)
    require(abs(got["W"].ravel()[0] - 9.997166e-09) < 1e-14, f"gradient {got['W']} at scale {got['loss_scale']}")


def test_the_smallest_overflow(bench):
    """[48] At scale 65536 a stored gradient of 65520/65536 overflows and skips the step; one of 65519/65536 does not."""
    model = model_of([node("MatMul", "x W", "y")], {"x": ["N", 1]}, {"y": ["N", 1]}, {"W": np.zeros((1, 1), np.float32)})
    trainer = bench.compile(model, *SGD, "--precision=fp16", "--batch=1")
    for gradient, skipped in ((65520 / 65536, True), (65519 / 65536, False)):
        run = trainer.train(trainer.data({"x": np.ones((1, 1), np.float32)}, np.full((1, 1), -gradient / 2, np.float32)), "--steps", 1, "--lr", 0.1, *PLAIN)
        require(run.values("skipped") == [skipped], f"gradient {gradient}: {run.events()}")


def test_power_of_two_scales_change_no_bit(bench):
    """[50] Where nothing underflows or overflows, gradients have the same bits for scales 16, 256 and 2048."""
    made = np.random.default_rng(4)
    model = model_of([node("MatMul", "x W", "h"), node("Tanh", "h", "a"), node("MatMul", "a V", "y")], {"x": ["N", 6]}, {"y": ["N", 2]},
                     {"W": made.standard_normal((6, 4)).astype(np.float32) / 4, "V": made.standard_normal((4, 2)).astype(np.float32)})
    trainer = bench.compile(model, *SGD, "--precision=fp16", "--batch=8")
    x, t = made.standard_normal((8, 6)).astype(np.float32), made.standard_normal((8, 2)).astype(np.float32) + 3
    results = [trainer.grad({"x": x}, t, "--loss-scale-init", scale) for scale in (16, 256, 2048)]
    for got, scale in zip(results, (16, 256, 2048)):
        require(got["loss_scale"] == scale, f"scale {got['loss_scale']}, want {scale}")
        for name in ("W", "V", "loss"):
            require_same(got[name], results[-1][name], f"{name} at scale {scale}")


def test_a_nan_gradient_skips(bench):
    """[55] 0·inf is NaN, no infinity: the step is skipped all the same."""
    model = model_of([node("Mul", "x two", "d"), node("MatMul", "d W", "y")], {"x": ["N", 1]}, {"y": ["N", 1]},
                     {"W": np.zeros((1, 1), np.float32), "two": np.array([2], np.float32)})
    trainer = bench.compile(model, *SGD, "--precision=fp16", "--batch=1", "--train=^W$")
    x = np.array([[60000], [0.5]], np.float32)
    run = trainer.train(trainer.data({"x": x}, np.full((2, 1), 0.25, np.float32)), "--epochs", 1, "--lr", 0.1, *PLAIN)
    require(run.values("skipped") == [True, False], f"{run.events()}")
    require(run.values("loss")[0] is None, f"loss {run.values('loss')}")


def test_grad_lowers_the_scale(bench):
    """grad halves its scale until every gradient is finite; where none is, it ends with the name of the first tensor."""
    model = model_of([node("MatMul", "x W", "y")], {"x": ["N", 1]}, {"y": ["N", 1]}, {"W": np.zeros((1, 1), np.float32)})
    trainer = bench.compile(model, *SGD, "--precision=fp16", "--batch=1")
    got = trainer.grad({"x": np.ones((1, 1), np.float32)}, np.full((1, 1), -8, np.float32))
    require(got["loss_scale"] == 2048, f"scale {got['loss_scale']}, want the first with 16·scale below 65520")
    require_close(got["W"], [16], 1e-6, "gradient")
    file, label = bench.save("x.npy", np.ones((1, 1), np.float32)), bench.save("t.npy", np.full((1, 1), -1e5, np.float32))
    done = trainer.run("grad", "--input", f"x={file}", "--labels", label, "-o", bench.path("g.npz"))
    require_refusal(done, ["W", "scale 1"], "grad")
    require(not bench.path("g.npz").exists(), "a file was written")


def test_models_in_half_and_double(bench):
    """A model whose weights and inputs are fp16, bf16 or double trains in every precision: masters are fp32, the export has the file's types."""
    made = np.random.default_rng(3)
    x, t, W = made.standard_normal((2, 4)), made.standard_normal((2, 3)), made.standard_normal((4, 3))
    for kind, dtype, tolerance in ((F16, np.float16, 2e-3), (F64, np.float64, 2e-6)):
        x, t, W = x.astype(dtype), t.astype(dtype), W.astype(dtype)
        model = model_of([node("MatMul", "x W", "h"), node("Relu", "h", "y")], {"x": (["N", 4], kind)}, {"y": (["N", 3], kind)}, {"W": W})
        wide = [np.asarray(a, np.float64) for a in (x, t, W)]
        h = wide[0] @ wide[2]
        d = 2 * (np.maximum(h, 0) - wide[1]) / 6 * (h > 0)
        gradient = wide[0].T @ d
        for precision in ("fp32", "fp16", "bf16", "fp64"):
            trainer = bench.compile(model, *SGD, f"--precision={precision}", "--batch=2")
            what = f"{dtype.__name__} model in {precision}"
            require_close(trainer.grad({"x": x}, t)["W"], gradient, tolerance, f"{what}: dW")
            run = trainer.train(trainer.data({"x": x}, t), "--steps", 1, "--lr", 0.5, *PLAIN)
            after = run.weights()["W"]
            require(after.dtype == dtype, f"{what}: exported as {after.dtype}")
            require_close(after, wide[2] - 0.5 * gradient, tolerance, f"{what}: W")
            require(trainer.predict({"x": x})["y"].dtype == (np.float64 if precision == "fp64" else dtype), f"{what}: predict")


def test_half_values_of_the_model_keep_their_type(bench):
    """A model's own fp16 tensors, through casts, views and arithmetic, compile and give its own values also where fp16 is the compute type."""
    nodes = [node("Transpose", "x", "a", perm=[1, 0]), node("Floor", "a", "b"), node("Cast", "b", "c", to=F32), node("Exp", "c", "d"), node("Cast", "d", "y", to=F16)]
    model = model_of(nodes, {"x": ([2, 3], F16)}, {"y": ([3, 2], F16), "b": ([3, 2], F16)}, {})
    x = np.array([[1.5, -0.25, 2.75], [0, 3.5, -1.5]], np.float16)
    for precision in ("fp32", "fp16", "bf16"):
        got = bench.compile(model, "--loss=none", f"--precision={precision}").predict({"x": x})
        require_close(got["b"], np.floor(x.T), 0, f"{precision}: Floor")
        require_close(got["y"], np.exp(np.floor(x.T).astype(np.float32)).astype(np.float16), 1e-3, f"{precision}: Exp")


def test_statistics_of_a_half_model(bench):
    """A BatchNormalization all in fp16: its running statistics are fp32 states that the training moves, and fp16 in the export."""
    x = (np.arange(8, dtype=np.float16) / 4).reshape(4, 2)
    ones, zeros = np.ones(2, np.float16), np.zeros(2, np.float16)
    model = model_of([node("BatchNormalization", "x s b m v", "y", momentum=0.75)], {"x": (["N", 2], F16)}, {"y": (["N", 2], F16)},
                     {"s": ones, "b": zeros, "m": zeros, "v": ones})
    for precision in ("fp32", "fp16", "fp64"):
        trainer = bench.compile(model, *SGD, f"--precision={precision}", "--batch=4", "--train=^[sb]$")
        run = trainer.train(trainer.data({"x": x}, np.zeros_like(x)), "--steps", 1, "--lr", 0.1, *PLAIN)
        tensors, _ = checkpoint_contents(run.newest())
        wide = x.astype(np.float64)
        require(tensors["statistic/m"].dtype != np.float16, f"{precision}: {tensors['statistic/m'].dtype}")
        require_close(tensors["statistic/m"], 0.25 * wide.mean(0), 1e-6, f"{precision}: running mean")
        require_close(tensors["statistic/v"], 0.75 + 0.25 * wide.var(0), 1e-6, f"{precision}: running variance")
        require(run.weights()["m"].dtype == np.float16, f"{precision}: exported as {run.weights()['m'].dtype}")


# ---------------------------------------------------------------- what derivatives read


def test_derivatives_of_what_a_product_rounds(bench):
    """A value that forward reads as it is has its derivative there, although a product beside reads it rounded: of 1e-9, in half 0, log has one."""
    w = np.ones((2, 2), np.float32)
    nodes = [node("Mul", "x s", "u"), node("Exp", "u", "p"), node("Log", "p", "l"), node("MatMul", "p W", "h"), node("Add", "l h", "y")]
    model = model_of(nodes, {"x": ["N", 2]}, {"y": ["N", 2]}, {"W": w, "s": np.ones(2, np.float32)})
    x = np.array([[np.log(1e-9), -18]], np.float32)
    for precision in ("fp16", "bf16", "fp32"):
        got = bench.compile(model, *SGD, f"--precision={precision}", "--batch=1", "--train=^s$").grad({"x": x}, np.zeros((1, 2), np.float32))["s"]
        p = np.exp(x.astype(np.float64))
        d = x + p.sum()  # 2/2 · y
        want = (d * (1 + p) + d[:, ::-1] * p) * x
        require_close(got, want.ravel(), 5e-3 if precision != "fp32" else 1e-5, f"{precision}: gradient")


def test_derivatives_of_what_a_cast_rounds(bench):
    """The model's own Cast to half, which overflows, leaves the derivative of a square beside it as it is."""
    nodes = [node("Mul", "x s", "a"), node("Cast", "a", "half", to=F16), node("Cast", "half", "wide", to=F32), node("Min", "wide limit", "m"),
             node("Mul", "a a", "q"), node("Add", "q m", "y")]
    model = model_of(nodes, {"x": ["N", 1]}, {"y": ["N", 1]}, {"s": np.ones(1, np.float32), "limit": np.full(1, 5, np.float32)})
    got = bench.compile(model, "--loss=l1", "--optimizer=sgd", "--precision=fp32", "--batch=1", "--train=^s$").grad(
        {"x": np.full((1, 1), 1e5, np.float32)}, np.zeros((1, 1), np.float32))["s"]
    require_close(got, [2e10], 1e-6, "gradient")


# ---------------------------------------------------------------- which values are half


def stored(bench, model, *options):
    """node → what the precision report says is stored."""
    done = bench.run_mpc(model, "--loss=none", "--batch=4", "--precision=fp16", "--report=precision", "--emit=precision", "-o", bench.path("text"), *options)
    require(done.code == 0, done.err)
    rows = [line.split() for line in done.out.splitlines()[2:]]
    return {row[0]: row[3] for row in rows if len(row) > 3}


def test_large_constants_follow_like_small_ones(bench):
    """Whether a constant stands in the text or is an argument, activations decide; its values decide whether it fits."""
    for columns in (16, 64):
        for value, want in ((0.5, "f16"), (1e9, "f32"), (1e-9, "f32"), (-np.inf, "f16")):
            weights = {"W": np.eye(columns, dtype=np.float32), "onnx::c_1": np.full((1, 32, columns), value, np.float32)}
            weights["onnx::c_1"][0, 0, 0] = 0.25
            nodes = [node("MatMul", "x W", "h"), node("Add", "h onnx::c_1", "s"), node("MatMul", "s W", "y")]
            model = model_of(nodes, {"x": ["N", 32, columns]}, {"y": ["N", 32, columns]}, weights)
            got = stored(bench, model, "--train=^W$")["Add_s"]
            require(got == want, f"{columns} columns of {value}: {got}, want {want}")


def test_overrides_by_the_names_of_tensors(bench):
    """--keep-fp32 and --allow-half name nodes, any of their results, and weights, also behind a Transpose; a name that nothing has is refused."""
    nodes = [node("Transpose", "W", "turned", perm=[1, 0], name="turn"), node("MatMul", "x turned", "hidden.1", name="first"), node("Relu", "hidden.1", "act", name="second"),
             node("MatMul", "act V", "y", name="third")]
    model = model_of(nodes, {"x": ["N", 8]}, {"y": ["N", 8]}, {"W": np.eye(8, dtype=np.float32), "V": np.eye(8, dtype=np.float32)})
    require(stored(bench, model) | {"turn": ""} == {"turn": "", "first": "f16", "second": "f16", "third": "f16"}, f"without: {stored(bench, model)}")
    for option, node_name in (("^hidden", "first"), ("^first$", "first"), ("^W$", "first"), ("^act$", "second"), ("^V$", "third"), ("^y$", "third")):
        got = stored(bench, model, f"--keep-fp32={option}")
        require(got[node_name] == "f32", f"--keep-fp32={option}: {got}")
    require(stored(bench, model, "--keep-fp32=^first$", "--allow-half=^act$")["second"] == "f16", "--allow-half by a result")
    constants = {"W": np.eye(8, dtype=np.float32), "V": np.full((8, 8), 0.5, np.float32), "twin": np.full((8, 8), 0.5, np.float32)}
    nodes = [node("MatMul", "x W", "h", name="first"), node("MatMul", "h V", "i", name="second"), node("MatMul", "i twin", "j", name="third"),
             node("Constant", "", "made", value=numpy_helper.from_array(np.full((8, 8), 0.25, np.float32)), name="maker"), node("Transpose", "made", "turned", perm=[1, 0], name="turn"),
             node("MatMul", "j turned", "y", name="last")]
    constant = model_of(nodes, {"x": ["N", 8]}, {"y": ["N", 8]}, constants)
    products = ("first", "second", "third", "last")
    for option, kept in (("^W$", "first"), ("^V$", "second"), ("^twin$", "third"), ("^made$", "last"), ("^maker$", "last")):
        got = stored(bench, constant, "--train=^W$", f"--keep-fp32={option}")
        require([name for name in products if got[name] == "f32"] == [kept], f"a constant: --keep-fp32={option}: {got}")
    for option in ("--keep-fp32", "--allow-half"):
        done = bench.run_mpc(model, "--loss=none", "--batch=4", f"{option}=nobody", output=bench.path("t"))
        require_refusal(done, [f"{option}='nobody' matches the name of no node and no tensor"], "mpc")


# ---------------------------------------------------------------- models of halves


def test_operators_on_halves_round_once(bench):
    """Gemm with alpha and beta, GroupNormalization, RMSNormalization, linear Resize and ConvTranspose of a half model: computed in fp32, one rounding."""
    made = np.random.default_rng(9)

    def half(*shape):
        return made.standard_normal(shape).astype(np.float16)

    def check(op, inputs, attributes, want, opset=21):
        shapes = {n: (list(v.shape), F16) for n, v in inputs.items()}
        model = model_of([node(op, " ".join(inputs), "y", **attributes)], shapes, {"y": (list(want.shape), F16)}, {}, opset=opset, ir=10)
        got = bench.compile(model, "--loss=none", "--precision=fp32").predict(inputs)["y"]
        exact = want.astype(np.float64)
        # Half a unit in the last place, and fp32's error.
        limit = np.maximum(np.abs(exact) * 2.0**-11, 2.0**-25) + 2e-6 * np.maximum(np.abs(exact).max(), 1)
        worst = np.max(np.abs(got.astype(np.float64) - exact) / limit)
        require(worst <= 1.001, f"{op}: {worst} times a rounding")

    a, b, c = half(16, 32), half(32, 24), half(16, 24)
    exact = 0.3 * a.astype(np.float64) @ b.astype(np.float64)
    alpha, beta = float(np.float32(0.3)), float(np.float32(1.7))
    check("Gemm", {"a": a, "b": b, "c": c}, {"alpha": 0.3, "beta": 1.7}, exact / 0.3 * alpha + beta * c.astype(np.float64))
    check("Gemm", {"a": a, "b": b, "c": half(24)}, {"alpha": 0.3, "beta": 0.0}, exact / 0.3 * alpha)
    x, s, d = half(2, 4, 8), half(4), half(4)
    wide = x.astype(np.float64).reshape(2, 2, 16)
    normal = ((wide - wide.mean(2, keepdims=True)) / np.sqrt(wide.var(2, keepdims=True) + 1e-5)).reshape(2, 4, 8)
    check("GroupNormalization", {"x": x, "s": s, "d": d}, {"num_groups": 2}, normal * s.astype(np.float64)[:, None] + d.astype(np.float64)[:, None])
    r, g = half(6, 16), half(16)
    wide = r.astype(np.float64)
    check("RMSNormalization", {"r": r, "g": g}, {"axis": -1}, wide / np.sqrt((wide**2).mean(1, keepdims=True) + 1e-5) * g.astype(np.float64), opset=23)
    x, w, bias = half(1, 8, 5), half(8, 4, 1), half(4)
    check("ConvTranspose", {"x": x, "w": w, "bias": bias}, {"kernel_shape": [1]},
          np.einsum("bcl,cm->bml", x.astype(np.float64), w[:, :, 0].astype(np.float64)) + bias.astype(np.float64)[:, None])
    image = half(1, 1, 4, 4)
    at = np.clip((np.arange(7) + 0.5) * 4 / 7 - 0.5, 0, 3)
    low, part = np.minimum(np.floor(at).astype(int), 2), None
    part = at - low
    line = np.zeros((7, 4))
    line[np.arange(7), low], line[np.arange(7), low + 1] = 1 - part, part
    model = model_of([node("Resize", "x", "y", mode="linear")], {"x": ([1, 1, 4, 4], F16)}, {"y": ([1, 1, 7, 7], F16)}, {"sizes": np.array([1, 1, 7, 7])})
    model.graph.node[0].input[:] = ["x", "", "", "sizes"]
    got = bench.compile(model, "--loss=none", "--precision=fp32").predict({"x": image})["y"].astype(np.float64)
    exact = line @ image[0, 0].astype(np.float64) @ line.T
    require(np.all(np.abs(got[0, 0] - exact) <= np.abs(exact) * 2.0**-11 + 2e-6), "Resize: more than one rounding")


if __name__ == "__main__":
    main(__doc__)
