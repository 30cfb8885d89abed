"""Trainers for GPUs, on the simulator: the CPU's numbers, checkpoints that move between targets, and what can go wrong with a GPU.

    test_cuda.py --build BUILD [--only REGEX] [-v]

test_scaling.py and some of test_resume.py run on the simulator as well (run_all.py, --target cuda).
"""

import ctypes
import os

import numpy as np
import onnx

import large_models
from support import (PLAIN, SGD, Skipped, Trainer, main, model_of, node, require, require_close, require_match, require_refusal,
                     require_same_bits, require_success, scale_model)
from test_ptx import MODELS

SIMULATED = ("--target=cuda:sm_80", "--simulate")
# Where the CPU happens to be exact: some roundings.
SLACK = {"fp32": 1e-6, "bf16": 8e-3, "fp16": 1e-3}


def samples_of(name, samples, seed=7):
    """Inputs and labels that fit one of MODELS."""
    random = np.random.default_rng(seed)
    shape = {"linear": (10,), "mlp": (784,), "mlp_ln": (64,), "fashion_cnn": (1, 28, 28), "simple_cnn": (3, 32, 32)}[name]
    if name == "linear":
        return random.normal(size=(samples, *shape)).astype(np.float32), random.normal(size=(samples, 1)).astype(np.float32)
    return random.normal(size=(samples, *shape)).astype(np.float32), random.integers(0, 10, samples)


def input_of(name):
    return onnx.load(MODELS / f"{name}.onnx").graph.input[0].name


def norm(values):
    return np.linalg.norm(np.asarray(values, np.float64).ravel())


def relative_error(got, want, whole=0):
    """Of the whole array; relative to `whole` of one that is nothing beside that: zero but for rounding, as the gradient of a key's bias is."""
    size = norm(want)
    return norm(got.astype(np.float64) - want) / (whole if size < 1e-6 * whole else max(size, 1e-30))


def simulator(**settings):
    return {**os.environ, **settings}


class With(Trainer):
    """A trainer whose environment has these settings."""

    def __init__(self, trainer, **settings):
        super().__init__(trainer.bench, trainer.program)
        self.settings = settings

    def run(self, command, *options, **more):
        return super().run(command, *options, **{"env": simulator(**self.settings), **more})


def compare(bench, model, precision, inputs, labels, steps, *options, factor=2, architecture=80, **settings):
    """The GPU's numbers are as near to those of fp64 as the CPU's in the same precision, up to a factor; where the CPU's are nearer by chance,
    as their middle one is. `inputs` and `labels` are those of `steps` batches; with one, there are gradients only."""
    batch = len(labels) // steps
    options = [f"--batch={batch}", *options]
    exact = bench.compile(model, *options, "--precision=fp64")
    cpu, gpu = [on.compile(model, *options, f"--precision={precision}") for on in (bench.on("cpu"), bench.on("cuda", architecture))]
    trainers = [exact, cpu, With(gpu, MPC_SIM_CC=f"{architecture // 10}.{architecture % 10}", **settings)]
    first = {name: values[:batch] for name, values in inputs.items()}

    usual = 0

    def check(kind, results):
        nonlocal usual
        want, cpu, gpu = results
        require(sorted(want) == sorted(cpu) == sorted(gpu), f"names of {kind}")
        whole = max(norm(values) for key, values in want.items() if key not in ("loss", "loss_scale")) if kind == "gradients" else 0

        def error_of(values, key):
            finite = np.isfinite(cpu[key])
            return relative_error(values[key][finite], want[key][finite], whole)

        usual = max(usual, np.median([error_of(cpu, key) for key in want]))
        for key in want:
            finite = np.isfinite(cpu[key])  # a step that overflowed has no norm
            require(np.array_equal(finite, np.isfinite(gpu[key])), f"{precision}: {kind} {key} is not finite at other places than the CPU's")
            allowed = factor * max(error_of(cpu, key), usual) + SLACK[precision]
            error = error_of(gpu, key)
            require(error <= allowed, f"{precision}: {kind} {key} is off by {error:.3g}, allowed {allowed:.3g}")

    check("gradients", [t.grad(first, labels[:batch]) for t in trainers])
    if steps == 1:
        return
    check("outputs", [t.predict(first) for t in trainers])
    # The last batch is smaller by one.
    data = exact.data({name: values[:-1] for name, values in inputs.items()}, labels[:-1])
    runs = [t.train(data, "--steps", steps, "--lr", 1e-3, "--no-shuffle") for t in trainers]
    check("steps", [{key: np.array(run.values(key), float) for key in ("loss", "grad_norm")} for run in runs])
    for key in ("step", "epoch", "lr", "loss_scale", "skipped"):
        require(runs[1].values(key) == runs[2].values(key), f"{precision}: {key} {runs[2].values(key)}, the CPU's are {runs[1].values(key)}")
    evals = [t.must("eval", "--data", data, "--checkpoint", r.out).out for t, r in zip(trainers, runs)]
    check("eval", [{"loss": np.array(float(text.split()[1].rstrip(",")))} for text in evals])


def compare_small(bench, name, precision, batch, steps=3, **settings):
    x, labels = samples_of(name, batch * steps)
    options = SGD if name == "linear" else ("--optimizer=adam",)
    compare(bench, MODELS / f"{name}.onnx", precision, {input_of(name): x}, labels, steps, *options, **settings)


def compare_tokens(bench, model, precision, classes, vocabulary, **settings):
    """Sequences of 64 tokens in two batches of two: a class for each, or for each of their tokens."""
    random, samples = np.random.default_rng(3), 4
    inputs = {"input_ids": random.integers(0, vocabulary, (samples, 64))}
    if classes < vocabulary:
        inputs["mask"] = np.ones((samples, 64), np.int64)
        inputs["mask"][1, 40:] = 0
    labels = random.integers(0, classes, samples if classes < vocabulary else (samples, 64))
    # Fused attention rounds at other places than the CPU: of these few numbers one or the other is nearer by chance. What it does not store cannot
    # overflow, so the scale is one that nothing overflows with.
    scale = ["--loss-scale=256"] if precision == "fp16" else []
    compare(bench, model, precision, inputs, labels, 2, "--optimizer=sgd", *scale, factor=6, **settings)


def test_linear_and_mlp(bench):
    compare_small(bench, "linear", "fp32", 32)
    for precision in ("fp32", "fp16", "bf16"):
        compare_small(bench, "mlp", precision, 8)


def test_dropout(bench):
    """Masks are a function of seed, step and position: the CPU's."""
    x, labels = samples_of("mlp", 16)
    for precision in ("fp32", "fp16", "bf16"):
        compare(bench, large_models.mlp_dropout(), precision, {"input": x}, labels, 2, "--optimizer=adam")


def test_norms_and_residuals(bench):
    for precision in ("fp32", "fp16", "bf16"):
        compare_small(bench, "mlp_ln", precision, 12)


def test_convolutions(bench):
    for name, precision in (("fashion_cnn", "fp32"), ("fashion_cnn", "fp16"), ("simple_cnn", "bf16")):
        compare_small(bench, name, precision, 4, steps=2)


def test_transformers(bench):
    for precision in ("fp32", "fp16", "bf16"):
        compare_tokens(bench, large_models.bert_tiny(), precision, 2, 2000)
        compare_tokens(bench, large_models.gpt_tiny(), precision, 512, 512)


def test_tensor_cores_before_sm_80(bench):
    """Generated convolutions, products and attention by the instructions of sm_70 and sm_75."""
    generated = {"MPC_CUDA_BLAS": "0", "MPC_CUDA_DNN": "0"}
    for architecture in (70, 75):
        compare_small(bench, "fashion_cnn", "fp16", 4, steps=2, architecture=architecture, **generated)
        compare_tokens(bench, large_models.bert_tiny(), "fp16", 2, 2000, architecture=architecture, **generated)


def test_resnet(bench):
    random = np.random.default_rng(4)
    inputs, labels = {"input": random.normal(size=(2, 3, 32, 32)).astype(np.float32)}, random.integers(0, 10, 2)
    for precision in ("fp32", "fp16", "bf16"):
        compare(bench, large_models.resnet18_cifar(), precision, inputs, labels, 1)


def test_same_bits_again(bench):
    """Two runs of one trainer, and of one compiled again, write the same weights."""
    gpu = bench.on("cuda")
    x, labels = samples_of("mlp_ln", 40)
    compiled = [gpu.compile(MODELS / "mlp_ln.onnx", "--batch=16", "--precision=fp16") for _ in range(2)]
    data = compiled[0].data({input_of("mlp_ln"): x}, labels)
    runs = [trainer.train(data, "--epochs", 2, "--lr", 1e-3) for trainer in (compiled[0], *compiled)]
    for run in runs[1:]:
        require_same_bits(run.weights(), runs[0].weights(), "a second run")


def test_checkpoints_move(bench):
    """A run begun on one target goes on on the other."""
    options = ["--batch=16", "--precision=fp32", "--optimizer=adam"]
    cpu, gpu = [bench.on(target).compile(MODELS / "mlp_ln.onnx", *options) for target in ("cpu", "cuda")]
    x, labels = samples_of("mlp_ln", 64)
    data = cpu.data({input_of("mlp_ln"): x}, labels)
    options = ["--epochs", 2, "--lr", 1e-3, "--seed", 2]
    whole = cpu.train(data, *options)
    for first, second in ((cpu, gpu), (gpu, cpu)):
        run = first.train(data, *options, "--stop-after", 5)
        second.must("train", "--data", data, "--out", run.out, "--metrics", run.metrics, "--resume")
        require_close(run.values("loss"), whole.values("loss"), 1e-4, "the losses of a run that moved")


def test_validation(bench):
    """--valid between epochs, over a smaller last batch: the CPU's losses and accuracies, and no bit of the training changes."""
    cpu, gpu = [bench.on(target).compile(MODELS / "mlp_ln.onnx", "--batch=16", "--precision=fp32") for target in ("cpu", "cuda")]
    x, labels = samples_of("mlp_ln", 40)
    data = cpu.data({input_of("mlp_ln"): x}, labels)
    options = ["--epochs", 3, "--lr", 1e-3, "--seed", 2]
    wanted, validated, plain = cpu.train(data, *options, "--valid", data), gpu.train(data, *options, "--valid", data), gpu.train(data, *options)
    for key in ("loss", "accuracy"):
        want, got = ([event[key] for event in run.events("eval")] for run in (wanted, validated))
        require(len(want) == 3, f"{len(want)} evaluations of 3 epochs")
        require_close(got, want, 1e-4, f"validation: {key}")
    require(validated.values("loss") == plain.values("loss"), "validation changes the training losses")
    require_same_bits(validated.weights(), plain.weights(), "weights with and without validation")


def test_one_launch_and_no_wait_per_step(bench):
    """A step is one graph. The host waits for the step before, after it has launched this one, and allocates nothing."""
    trainer = bench.on("cuda").compile(MODELS / "mlp_ln.onnx", "--batch=4", "--precision=fp16")
    x, labels = samples_of("mlp_ln", 80)
    data = trainer.data({input_of("mlp_ln"): x}, labels)
    trace = bench.path("trace.txt")
    trainer.must("train", "--data", data, "--steps", 20, "--lr", 1e-3, env=simulator(MPC_SIM_TRACE=str(trace)))
    calls = trace.read_text().splitlines()
    launches = [i for i, call in enumerate(calls) if call == "graph"]
    require(len(launches) >= 20, f"{len(launches)} graphs for 20 steps")
    steps = [calls[begin + 1:end] for begin, end in zip(launches[-19:-1], launches[-18:])]
    for step in steps:
        require(set(step) <= {"copy", "wait for an event"}, f"between two launches: {step}")
        # For the results of the step before, and for the page-locked memory that it was fed from.
        require(step.count("wait for an event") <= 1 + len([c for c in step if c == "copy"]), f"waits: {step}")
        require(step == steps[0], f"steps differ: {step} and {steps[0]}")


def test_same_precision_report(bench):
    """Both targets compute the same in the same types."""
    for precision in ("fp16", "bf16"):
        reports = [require_success(bench.run_mpc(MODELS / "fashion_cnn.onnx", "--batch=8", f"--precision={precision}", f"--target={target}",
                                                 "--report=precision", "--emit=precision", output=bench.path("ir")), "mpc").out for target in ("cpu", "cuda:sm_80")]
        require(reports[0] and reports[0] == reports[1], f"{precision}: the reports differ")


# ---------------------------------------------------------------- what can go wrong


def small_run(bench, *options):
    """A trainer on the simulator and what trains it."""
    trainer = bench.on("cuda").compile(scale_model(np.arange(1, 9) / 8, 8), *SGD, "--batch=4", *options)
    random = np.random.default_rng(0)
    x = random.normal(size=(24, 8)).astype(np.float32)
    return trainer, trainer.data({"x": x}, np.zeros((24, 1), np.float32)), ["--epochs", 1, "--lr", 0.01, *PLAIN[:4]]


def test_no_driver(bench):
    """Without a GPU's driver the trainer tells what is missing; `info` needs none."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        pass
    else:
        raise Skipped("this machine has an NVIDIA driver")
    trainer, data, options = small_run(bench)
    done = trainer.run("train", "--data", data, *options, "--device", "0")
    require_refusal(done, ["no NVIDIA driver", "libcuda.so.1", "--target=cpu"], "without a driver")
    require_match("target +cuda", trainer.run("info", "--device", "0").out, "info")


def test_which_gpu(bench):
    trainer, data, options = small_run(bench)
    for device, says in (("x", "number from 0 on"), ("-1", "number from 0 on")):
        require_refusal(trainer.run("train", "--data", data, *options, "--device", device), says, device)
    plain = bench.compile(scale_model([1]), *SGD, "--batch=4", "--target=cuda:sm_80")
    require_refusal(plain.run("train", "--data", data, *options, "--device", "sim"), "--simulate", "a trainer without --simulate")
    missing = trainer.run("train", "--data", data, *options, env=simulator(MPC_SIM_LIBS=str(bench.folder)))
    require_refusal(missing, "the simulator of GPUs is missing", "no simulator there")
    none = trainer.run("train", "--data", data, *options, env=simulator(MPC_SIM_DEVICES="0"))
    require_refusal(none, ["finds none", "--target=cpu"], "no GPU")


def test_old_driver_and_other_architectures(bench):
    trainer, data, options = small_run(bench)
    for settings, says in (({"MPC_SIM_DRIVER": "11040"}, ["CUDA 11.4", "CUDA 12.1 or later"]),
                           ({"MPC_SIM_CC": "7.5"}, ["compiled for sm_80", "sm_75", "--target=cuda:sm_75"]),
                           ({"MPC_SIM_CC": "6.1"}, ["sm_61", "needs sm_70 or later"])):
        require_refusal(trainer.run("train", "--data", data, *options, env=simulator(**settings)), says, str(settings))
    for later in ("8.6", "9.0", "12.0"):  # sm_80's cubin, its PTX
        require_success(trainer.run("train", "--data", data, *options, env=simulator(MPC_SIM_CC=later)), f"on {later}")
    half, data, options = small_run(bench, "--precision=bf16")
    require_refusal(half.run("train", "--data", data, *options, env=simulator(MPC_SIM_CC="7.5")), "bf16 needs sm_80", "bf16 on sm_75")


def test_out_of_memory(bench):
    trainer, data, options = small_run(bench)
    says = ["not enough GPU memory", "free", "smaller --batch"]
    require_refusal(trainer.run("train", "--data", data, *options, env=simulator(MPC_SIM_MEMORY="2048")), says, "a small GPU")
    for n in range(1, 6):
        require_refusal(trainer.run("train", "--data", data, *options, env=simulator(MPC_SIM_FAULT=f"alloc:{n}")), says[0], f"allocation {n}")


def test_failing_start(bench):
    trainer, data, options = small_run(bench)
    require_refusal(trainer.run("train", "--data", data, *options, env=simulator(MPC_SIM_FAULT="load:1")), "cannot load this program's kernels", "load")
    require_refusal(trainer.run("train", "--data", data, *options, env=simulator(MPC_SIM_FAULT="copy:1")), "copying|the GPU failed", "copy")


def test_errors_lose_no_checkpoint(bench):
    """A GPU that fails in the middle of a step: what was saved is whole, and the run goes on from there to the same bits."""
    trainer, data, options = small_run(bench)
    whole = trainer.train(data, *options)
    for fault in ("sticky:9", "sticky:14", "launch:7", "copy:20"):
        out = bench.fresh("broken")
        metrics = f"{out}.jsonl"
        command = ["train", "--data", data, *options, "--out", out, "--metrics", metrics, "--checkpoint-every", 1, "--keep", 100]
        broken = trainer.run(*command, env=simulator(MPC_SIM_FAULT=fault))
        require_refusal(broken, "CUDA_ERROR_", fault)
        trainer.must("train", "--data", data, "--out", out, "--metrics", metrics, "--resume") if list(out.glob("step-*")) else trainer.must(*command)
        require_same_bits(trainer.weights(out), whole.weights(), f"after {fault}")


# ---------------------------------------------------------------- cuBLASLt

GENERATED = {"MPC_CUDA_BLAS": "0"}


def test_generated_products(bench):
    """Without cuBLASLt: the other tests have it."""
    for name, precision, batch in (("linear", "fp32", 32), ("mlp", "fp32", 8), ("mlp", "fp16", 8), ("mlp_ln", "bf16", 12)):
        compare_small(bench, name, precision, batch, **GENERATED)


def test_batched_products(bench):
    """Products of batches of matrices, each operand transposed or not in some of them: with cuBLASLt, without, on the CPU."""
    random = np.random.default_rng(3)
    weights = {name: random.normal(size=shape).astype(np.float32) / 3 for name, shape in (("Wq", (8, 8)), ("Wk", (8, 8)), ("Wo", (6, 5)))}
    model = model_of([node("MatMul", "x Wq", "q"), node("MatMul", "x Wk", "k"), node("Transpose", "k", "kt", perm=[0, 2, 1]),
                      node("MatMul", "q kt", "scores"), node("MatMul", "scores Wo", "y")],
                     {"x": ["N", 6, 8]}, {"y": ["N", 6, 5]}, weights)
    x, labels = random.normal(size=(4, 6, 8)).astype(np.float32), random.normal(size=(4, 6, 5)).astype(np.float32)
    for precision, tolerance in (("fp32", 1e-5), ("fp16", 4e-3), ("bf16", 3e-2)):
        cpu, gpu = [bench.on(t).compile(model, *SGD, "--batch=4", f"--precision={precision}") for t in ("cpu", "cuda")]
        want = cpu.grad({"x": x}, labels)
        for what, trainer in (("cuBLASLt", gpu), ("generated kernels", With(gpu, **GENERATED))):
            got = trainer.grad({"x": x}, labels)
            for key in want:
                require_close(got[key], want[key], tolerance, f"{precision}: {key} by {what}")


def product_run(bench):
    """A trainer with products, one of which cuBLASLt splits, and what trains it."""
    gpu = bench.on("cuda").compile(MODELS / "mlp.onnx", "--batch=8", "--precision=fp16")
    x, labels = samples_of("mlp", 16)
    return gpu, gpu.data({input_of("mlp"): x}, labels), ["--epochs", 1, "--lr", 1e-3, "--no-shuffle"]


def test_without_cublaslt(bench):
    """A library that is absent, does not start, is too old or too new is no error: generated kernels execute the products."""
    gpu, data, options = product_run(bench)
    library = gpu.train(data, *options)
    require_match(r"cuBLASLt 12\.9", library.done.out + library.done.err, "the trainer's first line")
    generated = With(gpu, **GENERATED).train(data, *options)
    counts = [[run.events("end")[0][key] for key in ("library_commands", "generated_commands")] for run in (library, generated)]
    require(counts[0][0] > 0 and counts[0][1] == 0 and counts[1] == counts[0][::-1], f"products by cuBLASLt and by kernels: {counts}")
    driver = bench.path("driver-alone")
    driver.mkdir()
    (driver / "libcuda.so.1").symlink_to(bench.build.resolve() / "lib" / "sim" / "libcuda.so.1")
    for settings in ({"MPC_SIM_LIBS": str(driver)}, {"MPC_SIM_BLAS": "0"}, {"MPC_SIM_BLAS_VERSION": "110400"},
                     {"MPC_SIM_BLAS_VERSION": "140000"}, {"MPC_SIM_BLAS_VERSION": "130100"}):
        run = With(gpu, **settings).train(data, *options)
        require("cuBLASLt" not in run.done.out + run.done.err, f"{settings}: {run.done.out}{run.done.err}")
        require_same_bits(run.weights(), generated.weights(), str(settings))
    newer = With(gpu, MPC_SIM_BLAS_VERSION="130100", MPC_SIM_DRIVER="13000").train(data, *options)
    require_match(r"cuBLASLt 13\.1", newer.done.out + newer.done.err, "a driver of CUDA 13")
    require_same_bits(newer.weights(), library.weights(), "the same library")
    require_close(library.values("loss"), generated.values("loss"), 1e-3, "losses with and without cuBLASLt")


def require_absence_is_told(bench, run, work, package, refused, silent):
    """On a GPU that is none of the simulator's a line says why `work` runs as generated kernels and what to install.

    `refused`: settings → the reason; `silent`: settings with which the user asks for generated kernels.
    """
    trainer, data, options = run
    folder = str(bench.build.resolve() / "lib" / "sim")
    # The simulator, taken for NVIDIA's driver; it has no code for the real GPU, so that the trainer ends then.
    for settings, reason in refused:
        done = trainer.run("train", "--data", data, *options, "--device", "0",
                           env=simulator(LD_LIBRARY_PATH=folder, MPC_CUDA_LIBS=folder, **settings))
        require_refusal(done, [reason, f"note: {work} run as generated kernels", f"pip install {package}", "MPC_CUDA_LIBS", "error: "], str(settings))
        require(done.err.count("note:") == 1, done.err)
    off = trainer.run("train", "--data", data, *options, "--device", "0", env=simulator(LD_LIBRARY_PATH=folder, **silent))
    require("note:" not in off.err, off.err)


def test_absent_cublaslt_is_told(bench):
    refused = [({"MPC_SIM_BLAS_VERSION": "110400"}, "libcublasLt.so.12: it is of version 11.4, and 12 or 13 is needed"),
               ({"MPC_SIM_BLAS": "0"}, "libcublasLt.so.12: it does not start: CUBLAS_STATUS_NOT_INITIALIZED")]
    require_absence_is_told(bench, small_run(bench), "matrix products", "nvidia-cublas-cu12", refused, {"MPC_SIM_BLAS": "0", **GENERATED})


def test_failing_products(bench):
    """What cuBLASLt answers in the middle of a step is an error with the node's name; nothing fails where it is not used."""
    gpu, data, options = product_run(bench)
    for n in (1, 6, 12, 14):  # before the first step, and while it is recorded
        done = gpu.run("train", "--data", data, *options, env=simulator(MPC_SIM_FAULT=f"blas:{n}"))
        require_refusal(done, ["the matrix product of '", "by cuBLASLt 12.9 failed: CUBLAS_STATUS_EXECUTION_FAILED", "MPC_CUDA_BLAS=0"], f"blas:{n}")
    require_success(gpu.run("train", "--data", data, *options, env=simulator(MPC_SIM_FAULT="blas:1", **GENERATED)), "generated kernels")
    require_refusal(gpu.run("train", "--data", data, *options, env=simulator(MPC_SIM_FAULT="sticky:4")), "CUDA_ERROR_ILLEGAL_ADDRESS", "sticky")


def counts_of(run):
    return [run.events("end")[0][key] for key in ("library_commands", "generated_commands")]


def require_declined_is_generated(run, fault, before):
    """What a library declines, before the first step or while it is recorded, its generated kernel does, as if the library had never been asked."""
    trainer, data, options = run
    whole = trainer.train(data, *options)
    for n in (1, before + 1):
        declined = With(trainer, MPC_SIM_FAULT=f"{fault}:{n}").train(data, *options)
        require(counts_of(declined) == [counts_of(whole)[0] - 1, counts_of(whole)[1] + 1], f"{fault}:{n}: {counts_of(declined)}, else {counts_of(whole)}")
        require_close(declined.values("loss"), whole.values("loss"), 1e-3, f"losses after {fault}:{n}")


def require_kept_checkpoints(run, kind, without):
    """--overwrite removes nothing before the new run's steps are ready: what a library does of them, and with the settings `without` would
    not, has been executed once and recorded for both copies of the inputs."""
    trainer, data, options = run
    old = trainer.train(data, *options)
    before = {f.name: f.read_bytes() for f in old.out.iterdir()}
    commands = counts_of(old)[0] - counts_of(With(trainer, **without).train(data, *options))[0]
    for more in ((), ("--accumulate", 2)):
        command = ["train", "--data", data, *options, *more, "--out", old.out, "--overwrite"]
        for n in (1, 3 * commands):
            done = trainer.run(*command, env=simulator(MPC_SIM_FAULT=f"{kind}:{n}"))
            require_refusal(done, "EXECUTION_FAILED", f"{kind}:{n}")
            require({f.name: f.read_bytes() for f in old.out.iterdir()} == before, f"{kind}:{n}: the old checkpoints are gone")
    # Nothing is left for the time behind.
    require_success(trainer.run(*command, env=simulator(MPC_SIM_FAULT=f"{kind}:{3 * commands + 1}")), "--overwrite")


def test_failing_products_cost_no_checkpoint(bench):
    require_kept_checkpoints(product_run(bench), "blas", GENERATED)


def test_declined_products(bench):
    run = product_run(bench)
    require_declined_is_generated(run, "blas-unsupported", counts_of(run[0].train(run[1], *run[2]))[0])


# ---------------------------------------------------------------- cuDNN

KERNELS = {"MPC_CUDA_DNN": "0"}


def test_generated_convolutions(bench):
    """Without cuDNN: the other tests have it."""
    for name, precision in (("fashion_cnn", "fp16"), ("simple_cnn", "bf16"), ("simple_cnn", "fp32")):
        compare_small(bench, name, precision, 4, steps=2, **KERNELS)


def test_convolutions_of_every_form(bench):
    """Images and lines; groups, dilations, strides, pads on one side, biases, relu: with cuDNN, without, on the CPU."""
    random = np.random.default_rng(5)
    forms = {
        "image": ([4, 3, 9, 8], [((8, 3, 3, 2), {"strides": [2, 1], "pads": [1, 0, 0, 1]}, True), ((8, 4, 3, 3), {"group": 2, "pads": [1, 1, 1, 1]}, False),
                                 ((6, 8, 1, 1), {"strides": [2, 2]}, False), ((6, 1, 2, 2), {"group": 6, "dilations": [1, 2], "pads": [0, 1, 1, 1]}, True)]),
        "line": ([4, 4, 17], [((6, 4, 5), {"strides": [2], "pads": [2, 1]}, True), ((8, 6, 3), {"dilations": [2]}, False)]),
    }
    for form, (shape, convolutions) in forms.items():
        nodes, weights, value = [], {}, "x"
        for i, (filter_shape, attributes, has_bias) in enumerate(convolutions):
            weights[f"W{i}"] = (random.normal(size=filter_shape) / np.sqrt(np.prod(filter_shape[1:]))).astype(np.float32)
            if has_bias:
                weights[f"b{i}"] = random.normal(size=filter_shape[0]).astype(np.float32)
            nodes.append(node("Conv", f"{value} W{i}" + (f" b{i}" if has_bias else ""), f"c{i}", **attributes))
            nodes.append(node("Relu" if i % 2 == 0 else "Tanh", f"c{i}", f"a{i}"))
            value = f"a{i}"
        nodes.append(node("GlobalAveragePool", value, "p"))
        nodes.append(node("Flatten", "p", "y"))
        features = convolutions[-1][0][0]
        model = model_of(nodes, {"x": ["N", *shape[1:]]}, {"y": ["N", features]}, weights)
        x, labels = random.normal(size=shape).astype(np.float32), random.normal(size=(shape[0], features)).astype(np.float32)
        for precision, tolerance in (("fp32", 1e-5), ("fp16", 6e-3), ("bf16", 5e-2)):
            cpu, gpu = [bench.on(t).compile(model, *SGD, f"--batch={shape[0]}", f"--precision={precision}") for t in ("cpu", "cuda")]
            want = cpu.grad({"x": x}, labels)
            for what, trainer in (("cuDNN", gpu), ("generated kernels", With(gpu, **KERNELS))):
                got = trainer.grad({"x": x}, labels)
                for key in want:
                    require_close(got[key], want[key], tolerance, f"{form} in {precision}: {key} by {what}")


def convolution_run(bench, precision="fp16"):
    """A trainer with convolutions, most of which cuDNN takes, and what trains it."""
    gpu = bench.on("cuda").compile(MODELS / "fashion_cnn.onnx", "--batch=4", f"--precision={precision}")
    x, labels = samples_of("fashion_cnn", 8)
    return gpu, gpu.data({input_of("fashion_cnn"): x}, labels), ["--epochs", 1, "--lr", 1e-3, "--no-shuffle"]


def test_without_cudnn(bench):
    """A library that is absent, does not start, is too old or too new is no error: generated kernels execute the convolutions. In
    half precision one is left to them anyway: cuDNN has no f32 gradient of a filter over one channel."""
    for precision, left in (("fp32", 0), ("fp16", 1)):
        gpu, data, options = convolution_run(bench, precision)
        library = gpu.train(data, *options)
        require_match(r"cuDNN 9\.10", library.done.out + library.done.err, "the trainer's first line")
        generated = With(gpu, **KERNELS).train(data, *options)
        with_cudnn, without = counts_of(library), counts_of(generated)
        require(with_cudnn[1] == left and without[1] == 5 and sum(with_cudnn) == sum(without), f"{precision}: {with_cudnn}, without cuDNN {without}")
        require_close(library.values("loss"), generated.values("loss"), 1e-3, "losses with and without cuDNN")
        require_same_bits(gpu.train(data, *options).weights(), library.weights(), "a second run")
    for settings in ({"MPC_SIM_DNN": "0"}, {"MPC_SIM_DNN_VERSION": "8907"}, {"MPC_SIM_DNN_VERSION": "100000"}):
        run = With(gpu, **settings).train(data, *options)
        require("cuDNN" not in run.done.out + run.done.err, f"{settings}: {run.done.out}{run.done.err}")
        require_same_bits(run.weights(), generated.weights(), str(settings))


def test_absent_cudnn_is_told(bench):
    refused = [({"MPC_SIM_DNN_VERSION": "8907"}, "libcudnn.so.9: it is of version 8.9, and 9 is needed"),
               ({"MPC_SIM_DNN": "0"}, "libcudnn.so.9: it does not start: CUDNN_STATUS_NOT_INITIALIZED")]
    require_absence_is_told(bench, convolution_run(bench), "convolutions and attention", "nvidia-cudnn-cu12", refused, {"MPC_SIM_DNN": "0", **KERNELS})


def test_failing_convolutions(bench):
    """What cuDNN answers in the middle of a step is an error with the node's name; nothing fails where it is not used."""
    gpu, data, options = convolution_run(bench)
    for n in (1, 5, 9, 12):  # before the first step, and while it is recorded
        done = gpu.run("train", "--data", data, *options, env=simulator(MPC_SIM_FAULT=f"dnn:{n}"))
        require_refusal(done, ["the convolution of '", "by cuDNN 9.10 failed: CUDNN_STATUS_EXECUTION_FAILED", "MPC_CUDA_DNN=0"], f"dnn:{n}")
    require_success(gpu.run("train", "--data", data, *options, env=simulator(MPC_SIM_FAULT="dnn:1", **KERNELS)), "generated kernels")


def test_failing_convolutions_cost_no_checkpoint(bench):
    require_kept_checkpoints(convolution_run(bench, "fp32"), "dnn", KERNELS)


def test_declined_convolutions(bench):
    run = convolution_run(bench)
    require_declined_is_generated(run, "dnn-unsupported", 4)


def test_plans_are_made_for_what_runs(bench):
    """A plan may take seconds: `predict` makes none for gradients. One that fails for want of memory ends the run; of another failure a
    note tells."""
    gpu, data, options = convolution_run(bench)
    x, _ = samples_of("fashion_cnn", 4)
    inputs, third = {input_of("fashion_cnn"): x}, With(gpu, MPC_SIM_FAULT="plan-memory:3")  # the model has two convolutions
    require_same_bits(third.predict(inputs), gpu.predict(inputs), "outputs")
    for n in (1, 3):
        done = gpu.run("train", "--data", data, *options, env=simulator(MPC_SIM_FAULT=f"plan-memory:{n}"))
        require_refusal(done, ["no plan for the convolution of '", "DEVICE_ALLOCATION_FAILED", "MPC_CUDA_DNN=0"], f"plan-memory:{n}")
    noted = require_success(gpu.run("train", "--data", data, *options, env=simulator(MPC_SIM_FAULT="plan:1,plan:2")), "plans that fail")
    require(noted.err.count("note: cuDNN makes no plan for the convolution of '") == 1, noted.err)


# ---------------------------------------------------------------- the program as a file


def test_bundle_leaves_nvidia_out(bench):
    folder = bench.path("bundle")
    require_success(bench.run_mpc(scale_model([1]), *SGD, "--batch=4", *SIMULATED, f"--bundle={folder}", output=bench.path("t")), "--bundle")
    files = sorted(f.name for f in folder.rglob("*") if f.is_file())
    require("libdnnl.so.3" not in files and not any("cuda" in f for f in files), f"a bundle with {files}")
    program = [f for f in folder.iterdir() if f.is_file()]
    require_match("target +cuda, simulator of sm_80, sm_80, PTX of sm_80\\n", require_success(Trainer(bench, program[0]).run("info"), "info").out, "info")


def test_options(bench):
    refused = bench.run_mpc(scale_model([1]), *SGD, "--batch=4", "--simulate", output=bench.path("t"))
    require_refusal(refused, ["--simulate", "--target=cuda"], "--simulate on the CPU", code=2)
    require_refusal(bench.run_mpc(scale_model([1]), *SGD, "--batch=4", "--target=cuda", "--precision=fp64", output=bench.path("t")), "fp64", "fp64", code=2)


if __name__ == "__main__":
    main(__doc__)
