"""Data sets: order, formats, what is refused and with which words; shuffling; accumulation.

    test_data.py --build BUILD [--only REGEX] [-v]
"""

import gzip
import resource
import struct
import subprocess

import numpy as np

from support import DATA, PLAIN, SGD, main, model_of, node, require, require_close, require_match, require_refusal, require_same_bits, require_success

CASES = DATA / "cases"
ONE_EPOCH = ("--epochs", 1, "--lr", 0.1, *PLAIN)


# ---------------------------------------------------------------- labels


def test_labels_outside_the_classes(bench):
    """B46: the message names the sample, the label and the number of classes; nothing is trained."""
    case = CASES / "B46"
    trainer = bench.compile(case / "model.onnx", "--loss=cross-entropy", "--optimizer=sgd", "--precision=fp32", "--batch=4")
    for file, sample, label in (("t_1000", 1, 1000), ("t_3", 2, 3), ("t_minus1", 2, -1)):
        run = trainer.train(trainer.data({"x": case / "x_x.npy"}, case / f"{file}.npy"), *ONE_EPOCH, expect=1)
        require_refusal(run.done, [rf"sample {sample}\b", rf"(?<![\d-]){label}\b", r"\b3 classes|classes.*\b3\b|0 to 2|0…2"], file)
        require(not list(run.out.glob("*")) if run.out.exists() else True, f"{file}: {run.out} was written")


def test_labels_of_a_wrong_kind(bench):
    case = CASES / "B46"
    trainer = bench.compile(case / "model.onnx", "--loss=cross-entropy", "--optimizer=sgd", "--precision=fp32", "--batch=4")
    for file, says in (("t_float", "float"), ("t_short", ["3", "4"]), ("t_onehot", "shape|float")):
        run = trainer.train(trainer.data({"x": case / "x_x.npy"}, case / f"{file}.npy"), *ONE_EPOCH, expect=1)
        require_refusal(run.done, says, file)


def test_good_labels_in_other_shapes_and_types(bench):
    """B46: the right loss; a label column [4,1] gives the same or is refused; every integer type that holds the labels does."""
    case = CASES / "B46"
    trainer = bench.compile(case / "model.onnx", "--loss=cross-entropy", "--optimizer=sgd", "--precision=fp32", "--batch=4")
    good = np.load(case / "t_good.npy")
    for kind in ("<i8", "<i4", "<i2", "i1", "u1", "<u2", "<u4", "<u8", ">i4", ">i8"):
        run = trainer.train(trainer.data({"x": case / "x_x.npy"}, good.astype(kind)), *ONE_EPOCH)
        require_close(run.values("loss"), [0.6793640716931431], 1e-6, kind)
    done = trainer.run("train", "--data", trainer.data({"x": case / "x_x.npy"}, case / "t_n1.npy"), *ONE_EPOCH, "--metrics", bench.path("n1.jsonl"))
    if done.code:
        require_refusal(done, "shape", "t_n1")
    else:
        require_match("0.67936", bench.path("n1.jsonl").read_text(), "the loss of t_n1")


def test_indices_outside_the_table(bench):
    """An index beyond the embedding table is refused, not read from elsewhere."""
    model = model_of([node("Gather", "W ids", "y")], {"ids": (["N"], 7)}, {"y": ["N", 2]}, {"W": np.arange(10, dtype=np.float32).reshape(5, 2)})
    trainer = bench.compile(model, *SGD, "--precision=fp32", "--batch=2")
    done = trainer.run("predict", *trainer.given({"ids": np.array([0, 5])}), "-o", bench.path("o.npy"))
    require_refusal(done, ["ids", r"\b5\b"], "predict")
    require(not bench.path("o.npy").exists(), "an output was written")
    # ONNX counts negative indices from the end.
    require_close(trainer.predict({"ids": np.array([-1, 0])})["y"], [[8, 9], [0, 1]], 0, "index -1")


# ---------------------------------------------------------------- arrays


def test_memory_order_and_width(bench):
    """B47: Fortran order, byte order and widths that lose nothing give the same numbers."""
    case = CASES / "B47"
    trainer = bench.compile(case / "model.onnx", *SGD, "--precision=fp32", "--batch=5")
    x, t = np.load(case / "x_c.npy"), np.load(case / "t.npy")
    for kind in ("<f4", ">f4", "<f8", ">f8"):
        for order in "CF":
            data = trainer.data({"x": np.asarray(x, kind, order=order)}, np.asarray(t, kind, order=order))
            run = trainer.train(data, "--steps", 1, "--lr", 0.1, *PLAIN)
            require_close(run.values("loss"), [11.683299589157105], 1e-6, f"{kind} {order}")
    whole = np.arange(15).reshape(5, 3)
    outputs = [next(iter(trainer.predict({"x": whole.astype(kind)}).values())) for kind in ("<f4", "<f2", "i1", "u1", "<i2", "<u2", "<i4", "<i8")]
    for other in outputs[1:]:
        require(other.tobytes() == outputs[0].tobytes(), "an integer width gives other numbers")


def test_more_than_two_axes_in_fortran_order(bench):
    model = model_of([node("Identity", "x", "y")], {"x": ["N", 3, 4, 2]}, {"y": ["N", 3, 4, 2]}, {})
    trainer = bench.compile(model, "--loss=none", "--precision=fp32", "--batch=2")
    x = np.random.default_rng(0).standard_normal((5, 3, 4, 2)).astype(np.float32)
    for order in "CF":
        require_close(trainer.predict({"x": np.asarray(x, order=order)})["y"], x, 0, order)


def test_conversions_that_lose_are_refused(bench):
    model = model_of([node("Gather", "W ids", "y")], {"ids": (["N"], 7)}, {"y": ["N", 2]}, {"W": np.ones((5, 2), np.float32)})
    trainer = bench.compile(model, *SGD, "--precision=fp32", "--batch=2")
    done = trainer.run("predict", *trainer.given({"ids": np.array([0.5, 1.0])}), "-o", bench.path("o.npy"))
    require_refusal(done, ["float64", "int64"], "float indices")


def test_damaged_files(bench):
    """B49: every damaged file is refused by name, with what is wrong; nothing is trained and no memory is wasted."""
    case = CASES / "B49"
    small = bench.compile(case / "model.onnx", "--loss=cross-entropy", "--optimizer=sgd", "--precision=fp32", "--batch=2")
    image = bench.compile(case / "img.onnx", "--loss=cross-entropy", "--optimizer=sgd", "--precision=fp32", "--batch=2")
    labels = bench.save("t.npy", np.array([0, 1, 2, 0]))
    good = "good-images-idx3-ubyte", "good-labels-idx1-ubyte"
    require_success(image.run("train", "--data", f"idx:{case / good[0]},{case / good[1]}", *ONE_EPOCH), "good files")
    npy = {"x_short.npy": r"byte|short|cut|trunc", "x_header_cut.npy": r"header|byte|short|cut", "x_noheader.npy": r"magic|npy|header"}
    for file, says in npy.items():
        require_refusal(small.run("train", "--data", f"npy:x={case / file},labels={labels}", *ONE_EPOCH), [file, says], file)
    idx = {"short-images-idx3-ubyte": [r"\d+.*byte"], "header-only-idx3-ubyte": [r"byte|header"], "empty-idx3-ubyte": [r"empty|byte"],
           "magic-idx3-ubyte": ["magic|IDX"], "huge-idx3-ubyte": [r"byte|\d{6,}"], "little-idx3-ubyte": [r"magic|IDX|byte"]}
    for file, says in idx.items():
        require_refusal(image.run("train", "--data", f"idx:{case / file},{case / good[1]}", *ONE_EPOCH), [file, *says], file)
    done = image.run("train", "--data", f"idx:{case / good[0]},{case / 'nine-labels-idx1-ubyte'}", *ONE_EPOCH)
    require_refusal(done, [r"\b9\b", r"\b10\b"], "nine labels")
    require_refusal(image.run("train", "--data", f"idx:{case / good[0]},{case / 'short-labels-idx1-ubyte'}", *ONE_EPOCH), "short-labels", "short labels")
    done = image.run("train", "--data", f"idx:{case / 'long-images-idx3-ubyte'},{case / good[1]}", *ONE_EPOCH)
    require_refusal(done, ["long-images", "too long"], "bytes behind the data")


def cifar_model():
    return model_of([node("Flatten", "x", "f"), node("MatMul", "f W", "y")], {"x": ["N", 3, 32, 32]}, {"y": ["N", 10]},
                    {"W": np.zeros((3072, 10), np.float32)})


def test_damaged_cifar(bench):
    """B49: the binary CIFAR-10 files; a cut record and a label of 200 are named."""
    trainer = bench.compile(cifar_model(), "--loss=cross-entropy", "--optimizer=sgd", "--precision=fp32", "--batch=3")
    for kind, code, says in (("good", 0, []), ("short", 1, [r"data_batch_1", r"byte"]), ("label", 1, ["data_batch_1", r"\b200\b"])):
        folder = bench.path(kind)
        folder.mkdir()
        for number in range(1, 6):
            source = kind if number == 1 else "good"
            (folder / f"data_batch_{number}.bin").write_bytes((CASES / f"B49/cifar_{source}.bin").read_bytes())
        (folder / "test_batch.bin").write_bytes((CASES / "B49/cifar_good.bin").read_bytes())
        done = trainer.run("train", "--data", f"cifar10:{folder}", *ONE_EPOCH)
        if code:
            require_refusal(done, says, kind)
        else:
            require_success(done, kind)


def test_a_huge_header_allocates_nothing(bench):
    """B49: an IDX or .npy header that announces terabytes is refused within 1 GB of address space."""
    case = CASES / "B49"
    trainer = bench.compile(case / "img.onnx", "--loss=cross-entropy", "--optimizer=sgd", "--precision=fp32", "--batch=2")
    small = bench.compile(case / "model.onnx", "--loss=cross-entropy", "--optimizer=sgd", "--precision=fp32", "--batch=2")
    header = b"\x93NUMPY\x01\x00" + struct.pack("<H", 118) + b"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999, 4), }".ljust(117) + b"\n"
    huge = bench.path("huge.npy")
    huge.write_bytes(header + bytes(64))
    labels = bench.save("t.npy", np.array([0, 1, 2, 0]))

    def limited():
        resource.setrlimit(resource.RLIMIT_DATA, (1 << 30, 1 << 30))

    for program, data, name in ((trainer, f"idx:{case / 'huge-idx3-ubyte'},{case / 'good-labels-idx1-ubyte'}", "huge-idx3"),
                                (small, f"npy:x={huge},labels={labels}", "huge.npy")):
        done = subprocess.run([str(program.program), "train", "--threads", "1", "--data", data, *map(str, ONE_EPOCH)], capture_output=True, text=True,
                              preexec_fn=limited, timeout=60)
        require(done.returncode == 1, f"exit {done.returncode}: {done.stderr[-300:]}")
        require_match(name, done.stderr, "the message")
        require("out of memory" not in done.stderr, f"it tried to allocate: {done.stderr}")


def test_gzipped_idx(bench):
    """The .gz form gives the same run as the plain one; a damaged one is refused."""
    case = CASES / "B49"
    trainer = bench.compile(case / "img.onnx", "--loss=cross-entropy", "--optimizer=sgd", "--precision=fp32", "--batch=2")
    files = [case / "good-images-idx3-ubyte", case / "good-labels-idx1-ubyte"]
    packed = [bench.path(f.name + ".gz") for f in files]
    for plain, gz in zip(files, packed):
        gz.write_bytes(gzip.compress(plain.read_bytes()))
    runs = [trainer.train(f"idx:{a},{b}", *ONE_EPOCH) for a, b in (files, packed)]
    require_same_bits(runs[0].weights(), runs[1].weights(), "plain and gzipped")
    cut = bench.path("cut-images-idx3-ubyte.gz")
    cut.write_bytes(packed[0].read_bytes()[:-12])
    require_refusal(trainer.run("train", "--data", f"idx:{cut},{packed[1]}", *ONE_EPOCH), "cut-images", "a cut .gz")


def test_images_are_scaled_to_one(bench):
    """IDX images become float in [0,1], with a channel axis; scale, mean and std follow."""
    images = bench.path("images-idx3-ubyte")
    images.write_bytes(struct.pack(">IIII", 0x803, 2, 2, 2) + bytes([0, 51, 102, 255, 255, 204, 153, 0]))
    pixels = np.array([0, 51, 102, 255, 255, 204, 153, 0]).reshape(2, 1, 2, 2) / 255
    flat = model_of([node("Flatten", "x", "f"), node("MatMul", "f W", "y")], {"x": ["N", 1, 2, 2]}, {"y": ["N", 2]},
                    {"W": np.arange(8, dtype=np.float32).reshape(4, 2) / 4})
    labels = bench.path("labels-idx1-ubyte")
    labels.write_bytes(struct.pack(">II", 0x801, 2) + bytes([0, 1]))
    trainer = bench.compile(flat, "--loss=cross-entropy", "--optimizer=sgd", "--precision=fp64", "--batch=2")
    for suffix, values in (("", pixels), (";mean=0.5;std=0.25", (pixels - 0.5) / 0.25), (";scale=2;mean=0.5", pixels * 2 - 0.5)):
        run = trainer.train(f"idx:{images},{labels}{suffix}", "--steps", 1, "--lr", 0.1, *PLAIN)
        logits = values.reshape(2, 4) @ (np.arange(8).reshape(4, 2) / 4)
        want = np.mean(np.log(np.exp(logits).sum(1)) - logits[[0, 1], [0, 1]])
        require_close(run.values("loss"), [want], 1e-6, f"idx{suffix}")


# ---------------------------------------------------------------- order


def order_run(bench, trainer, *options):
    case = CASES / "B56"
    return trainer.train(trainer.data({"x": case / "x_x.npy"}, case / "t.npy"), "--lr", 0.25, *PLAIN[:-1], *options)


def order_of(run, epoch):
    """The samples of an epoch, by their losses: sample i has target i + 1 and moves only its own weight."""
    targets = np.load(CASES / "B56/t.npy").ravel()
    losses = [e["loss"] for e in run.events() if e["epoch"] == epoch]
    left = targets * 0.5 ** (epoch - 1)  # t − W before this epoch's step
    return [int(np.abs(left**2 - x).argmin()) for x in losses]


def test_shuffling(bench):
    """B56: every sample once per epoch, epochs differ in order, the seed decides, --no-shuffle is file order."""
    trainer = bench.compile(CASES / "B56/model.onnx", *SGD, "--precision=fp32", "--batch=1", "--train=^W$")
    run = order_run(bench, trainer, "--epochs", 3, "--seed", 5)
    orders = [order_of(run, epoch) for epoch in (1, 2, 3)]
    for order in orders:
        require(sorted(order) == list(range(8)), f"an epoch's samples: {order}")
    require(len({tuple(o) for o in orders}) == 3, f"epochs repeat their order: {orders}")
    require(any(o != list(range(8)) for o in orders), "not shuffled")
    again = order_run(bench, trainer, "--epochs", 3, "--seed", 5)
    require(again.values("loss") == run.values("loss"), "the same seed gives other losses")
    require_same_bits(again.weights(), run.weights(), "the same seed")
    other = order_run(bench, trainer, "--epochs", 3, "--seed", 6)
    require(other.values("loss") != run.values("loss"), "another seed gives the same order")
    files = order_run(bench, trainer, "--epochs", 2, "--no-shuffle")
    require([order_of(files, e) for e in (1, 2)] == [list(range(8))] * 2, "--no-shuffle is not file order")


def test_the_order_is_the_same_in_every_precision(bench):
    orders = []
    for precision in ("fp32", "bf16", "fp64"):
        trainer = bench.compile(CASES / "B56/model.onnx", *SGD, f"--precision={precision}", "--batch=1", "--train=^W$")
        orders.append(order_of(order_run(bench, trainer, "--epochs", 1, "--seed", 5), 1))
    require(orders[0] == orders[1] == orders[2], f"{orders}")


def test_accumulation_is_one_big_batch(bench):
    """B43: 10 samples as micro-batches of 3,3,3,1 weigh samples, in every precision; equal to one batch of 10."""
    case = CASES / "B43"
    data = {"x": np.load(case / "x_x.npy")}, np.load(case / "t.npy")
    for precision, tolerance in (("fp64", 1e-13), ("fp32", 1e-6), ("bf16", 2e-2), ("fp16", 2e-3)):
        results = []
        for batch, options in ((10, []), (3, ["--accumulate", 4]), (1, ["--accumulate", 10])):
            trainer = bench.compile(case / "model.onnx", *SGD, f"--precision={precision}", f"--batch={batch}")
            scale = ["--loss-scale-init", 64] if precision == "fp16" else []  # no overflow, no skipped step
            run = trainer.train(trainer.data(*data), "--epochs", 1, "--lr", 0.1, *PLAIN, *options, *scale)
            require(len(run.events()) == 1, f"{len(run.events())} steps")
            results.append((run.weights()["W"], run.values("loss")[0], run.values("grad_norm")[0]))
        for weights, loss, norm in results[1:]:
            require_close(weights, results[0][0], tolerance, f"{precision}: W")
            require_close([loss], [results[0][1]], tolerance, f"{precision}: loss")
            require_close([norm], [results[0][2]], tolerance, f"{precision}: norm")


def test_accumulation_weighs_labels_that_count(bench):
    """Ignored labels are no loss elements: micro-batches with 3, 0 and 1 labels that count weigh 3 : 0 : 1."""
    made = np.random.default_rng(3)
    model = model_of([node("MatMul", "x W", "y")], {"x": ["N", 4]}, {"y": ["N", 3]}, {"W": made.standard_normal((4, 3)).astype(np.float32)})
    x, t = made.standard_normal((12, 4)).astype(np.float32), np.array([0, 1, 2, -100, -100, -100, -100, -100, 2, -100, -100, -100])
    results = []
    for batch, options in ((12, []), (4, ["--accumulate", 3])):
        trainer = bench.compile(model, "--loss=cross-entropy", "--optimizer=sgd", "--precision=fp64", f"--batch={batch}")
        run = trainer.train(trainer.data({"x": x}, t), "--epochs", 1, "--lr", 0.5, *PLAIN, *options)
        results.append((run.weights()["W"], run.values("loss")[0]))
    require_close(results[1][0], results[0][0], 1e-12, "W")
    require_close([results[1][1]], [results[0][1]], 1e-12, "loss")


if __name__ == "__main__":
    main(__doc__)
