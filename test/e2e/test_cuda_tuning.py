"""`train --tune` on the simulator of GPUs: the fastest exact way to execute each product, convolution and attention, found again by what runs later.

    test_cuda_tuning.py --build BUILD [--only REGEX] [-v]
"""

import json
import shutil

import numpy as np

from support import SGD, checkpoint_contents, main, require, require_close, require_match, require_refusal, require_same_bits, require_success, scale_model
from test_cuda import GENERATED, KERNELS, With, convolution_run, counts_of, input_of, product_run, samples_of, simulator
from test_cuda_attention import attention_run

# What is not exact is fastest, and may not be taken. Of the rest the heuristics propose first what takes 50 microseconds.
PRODUCT_TIMES = "cublasLt-half-sums:1,cublasLt-tf32:1,cublasLt-split:50,cublasLt-plain:50,cublasLt-halves:20,kernel:100"
CONVOLUTION_TIMES = ("cudnn-half-sums:1,cudnn-tf32:1,cudnn-bfloat16:1,cudnn-later:1,cudnn-winograd:1,cudnn-unordered:1,"
                     "cudnn-compiled:50,cudnn-tensor-cores:50,cudnn-generic:60,cudnn-generic-32:20,kernel:100")
TIMES = PRODUCT_TIMES + "," + CONVOLUTION_TIMES
# Otherwise fast: what is chosen now would be another way.
OTHER_TIMES = "cublasLt-halves:90,cudnn-generic-32:90,kernel:100"
DONE = r"tuned \d+ product.* in \d+\.\d s: [1-9]\d* of them not by the first choice"


def tuned_in(checkpoint):
    """The choices of a checkpoint: library → (where, ways)."""
    return {each["library"]: (each, each["ways"]) for each in json.loads(checkpoint_contents(checkpoint)[1]["state"]).get("tuned", [])}


def require_tuned_runs_resume(bench, run, libraries):
    """--tune takes the fastest exact way, whatever runs later takes it again, on this GPU alone."""
    trainer, data, options = run
    first, tuned = With(trainer, MPC_SIM_TIMES=TIMES).train(data, *options), With(trainer, MPC_SIM_TIMES=TIMES).train(data, *options, "--tune")
    require_match(DONE, tuned.done.out + tuned.done.err, "what tuning did")
    require_match(DONE, tuned.events("end")[0]["tuning"], "the metrics' last line")
    require("tuning" not in first.events("end")[0] and not tuned_in(first.newest()), "a run without --tune")
    require_close(tuned.values("loss"), first.values("loss"), 1e-3, "losses")
    weights, plain = tuned.weights(), first.weights()
    require(any(not np.array_equal(weights[key], plain[key]) for key in weights), "sums in another order, and every bit is the same")

    found = tuned_in(tuned.newest())
    require(sorted(found) == libraries, f"choices of {sorted(found)}")
    for where, _ in found.values():
        require((where["gpu"], where["driver"]) == ("simulated GPU", 12090), str(where))

    other = With(trainer, MPC_SIM_TIMES=OTHER_TIMES)
    for more in ((), ("--tune",)):
        part = With(trainer, MPC_SIM_TIMES=TIMES).train(data, *options, "--tune", "--stop-after", 1)
        done = other.must("train", "--data", data, "--out", part.out, "--metrics", part.metrics, "--resume", *more)
        require_match(r"\d+ product.* as tuned before", done.out + done.err, "a resumed run")
        require("note:" not in done.err and "first choice" not in done.out + done.err, done.out + done.err)
        require(part.newest().read_bytes() == tuned.newest().read_bytes(), f"the last checkpoint of a run that was resumed with {more}")

    elsewhere = With(trainer, MPC_SIM_TIMES=OTHER_TIMES, MPC_SIM_NAME="another GPU")
    part = With(trainer, MPC_SIM_TIMES=TIMES).train(data, *options, "--tune", "--stop-after", 1)
    copy = bench.path("copy-of-" + part.out.name)
    shutil.copytree(part.out, copy)
    done = elsewhere.must("train", "--data", data, "--out", part.out, "--resume")
    require_match(r"note: the products of this checkpoint were tuned on simulated GPU .*; on another GPU .* first choice of cuBLASLt", done.err, "another GPU")
    require(tuned_in(part.newest()) == found and "tuned before" not in done.err, "choices for a GPU that comes again")
    done = elsewhere.must("train", "--data", data, "--out", copy, "--resume", "--tune")
    require_match(r"note: the products .* they are timed anew", done.err, "another GPU, --tune")
    require_match(r"tuned \d+ product", done.out + done.err, "what tuning did there")


def test_tuned_products(bench):
    require_tuned_runs_resume(bench, product_run(bench), ["cuBLASLt"])


def test_tuned_convolutions(bench):
    require_tuned_runs_resume(bench, convolution_run(bench), ["cuBLASLt", "cuDNN"])


def test_tuned_attention(bench):
    """It is told as attention, with its gradient, beside products."""
    trainer, data, options = run = attention_run(bench)
    require_tuned_runs_resume(bench, run, ["cuBLASLt", "cuDNN"])
    tuned = With(trainer, MPC_SIM_TIMES=TIMES).train(data, *options, "--tune", "--stop-after", 1)
    require_match(r"tuned \d+ products? and 2 attention operations in ", tuned.done.out + tuned.done.err, "what tuning did")
    elsewhere = With(trainer, MPC_SIM_NAME="another GPU").must("train", "--data", data, "--out", tuned.out, "--resume")
    require_match(r"note: the attention operations of this checkpoint were tuned on simulated GPU .* first choice of cuDNN", elsewhere.err, "another GPU")


def test_tuned_kernels(bench):
    """Generated kernels that are faster are taken; so they are by the commands that read the checkpoint, on the same GPU."""
    trainer, data, options = product_run(bench)
    fast = With(trainer, MPC_SIM_TIMES="kernel:5")
    run = fast.train(data, *options, "--tune", "--valid", data)
    require(counts_of(run) == [0, counts_of(trainer.train(data, *options))[0]], f"library commands and others: {counts_of(run)}")
    generated = With(trainer, **GENERATED).train(data, *options, "--valid", data)
    require_same_bits(run.weights(), generated.weights(), "weights by generated kernels")
    # A product by cuBLASLt would fail.
    failing, elsewhere = With(trainer, MPC_SIM_FAULT="blas:1"), With(trainer, MPC_SIM_FAULT="blas:1", MPC_SIM_NAME="another GPU")
    x, labels = samples_of("mlp", 8)
    file = bench.path("labels.npy")
    np.save(file, labels)
    out, inputs = bench.path("out.npz"), trainer.given({input_of("mlp"): x})
    for command in (["eval", "--data", data], ["predict", *inputs, "-o", out], ["grad", *inputs, "--labels", file, "-o", out]):
        require_success(failing.run(*command, "--checkpoint", run.out), "a checkpoint's choices")
        done = elsewhere.run(*command, "--checkpoint", run.out)
        require_refusal(done, ["note: the products of this checkpoint were tuned on", "EXECUTION_FAILED"], "another GPU")
    require_match(r"tuned for simulated GPU with a driver of CUDA 12\.9 and cuBLASLt 12\.9\.0: \d+ choices",
                  trainer.must("info", "--checkpoint", run.out).out, "info")


def test_failing_tuning(bench):
    """It ends before anything is removed, with the message of what failed."""
    trainer, data, options = convolution_run(bench)
    old = trainer.train(data, *options)
    before = {f.name: f.read_bytes() for f in old.out.iterdir()}
    for fault, part in (("blas:3", "the matrix product of '"), ("dnn:3", "the convolution of '"), ("plan-memory:2", "DEVICE_ALLOCATION_FAILED"),
                        ("sticky:9", "CUDA_ERROR_ILLEGAL_ADDRESS")):
        done = trainer.run("train", "--data", data, *options, "--out", old.out, "--overwrite", "--tune", env=simulator(MPC_SIM_FAULT=fault))
        require_refusal(done, part, fault)
        require({f.name: f.read_bytes() for f in old.out.iterdir()} == before, f"{fault}: the old checkpoints are gone")
    nothing = With(trainer, **GENERATED, **KERNELS).train(data, *options, "--tune")
    require_match("tuned nothing: no library", nothing.done.out + nothing.done.err, "--tune without libraries")


def test_tuning_is_for_gpus(bench):
    cpu = bench.on("cpu").compile(scale_model([1]), *SGD, "--batch=4")
    data = cpu.data({"x": np.ones((4, 1), np.float32)}, np.zeros((4, 1), np.float32))
    require_refusal(cpu.run("train", "--data", data, "--steps", 1, "--lr", 1, "--tune"), "--tune is for GPUs", "--tune on the CPU", code=2)


if __name__ == "__main__":
    main(__doc__)
