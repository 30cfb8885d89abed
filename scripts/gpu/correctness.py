"""A program's numbers beside the CPU's: a short run, the first gradients, outputs, and the same bits when it is interrupted."""

import math
import shutil
from threading import Lock

from arrays import Malformed, load_npz
from compare import Reference, trace_of, worst
from session import dataset, events, last_words

LIMIT = {False: 60, True: 900}  # seconds of one program, by whether it runs on the simulator
SLOW_LIMIT = 180  # where cuDNN may compile: in half precision it takes seconds for every shape of a filter's gradient


class Case:
    """One program, its products and convolutions done by `products` (results.py)."""

    def __init__(self, session, results, lock, reference, model, program, products, share):
        self.session, self.results, self.lock, self.reference, self.share = session, results, lock, reference, share
        self.model, self.program, self.products = model, program, products
        self.folder = session.work / f"{program['program']}.{products}"
        self.folder.mkdir()

    def add(self, check, result, detail="", **more):
        with self.lock:
            return self.results.add(check, result, detail, model=self.model["name"], precision=self.program["precision"], batch=self.program["batch"],
                                    products=self.products, **more)

    def run(self, command, *options):
        limit = SLOW_LIMIT if self.products in ("default", "library") and not self.session.simulated else LIMIT[self.session.simulated]
        return self.session.run(self.model, self.program, self.products, min(limit, self.session.budget.left(self.share)), command, *options)

    def failure(self, done):
        return self.session.failure(done, self.share)

    def train(self, name, *options):
        """A run in the folder `name`, its metrics beside it."""
        data = dataset(self.session.folder(self.model), self.model)
        hyper = [*self.program["options"], *self.program["loss_scale"], "--no-shuffle", "--steps", self.session.manifest["steps"]]
        return self.run("train", "--data", data, "--valid", data, *([] if "--resume" in options else hyper), "--log-every", 0, "--out", self.folder / name,
                        "--metrics", self.folder / f"{name}.jsonl", *options)

    def add_figures(self, check, figures):
        most = worst(figures)
        # JSON has no infinity.
        self.add(check, most.share <= 1, most.detail, share=most.share if math.isfinite(most.share) else None)

    def check(self):
        """All checks of this case; the end of the run's metrics, or None where it did not end."""
        half = self.session.manifest["steps"] // 2
        done = self.train("whole", "--checkpoint-every", half, "--keep", 3)
        if done.code:
            self.add("training", *self.failure(done))
            return None
        [end] = events(self.folder / "whole.jsonl", "end")
        if self.products == "default":
            self.products = "library" if end["library_commands"] else "generated"
        self.add_figures("training", self.reference.trace(self.program["precision"], trace_of(self.folder / "whole.jsonl")))
        self.add("memory", True, device_bytes=end["device_memory_bytes"], process_bytes=end["peak_memory_bytes"],
                 library_commands=end["library_commands"], generated_commands=end["generated_commands"], device=end["device"])
        self.check_arrays()
        # A start may take cuDNN long, and the loss scaler is the same without it.
        if "cuDNN" not in end["device"]:
            self.check_overflow()
        self.check_resumed()
        return end

    def check_arrays(self):
        first, labels = self.session.first_batch(self.model), self.session.folder(self.model) / "labels.first.npy"
        for kind, command in (("gradients", ["grad", *first, "--labels", labels, *self.program["loss_scale"]]), ("outputs", ["predict", *first])):
            file = self.folder / f"{kind}.npz"
            done = self.run(*command, "-o", file)
            if done.code:
                self.add(kind, *self.failure(done))
                continue
            arrays = load_npz(file)
            arrays.pop("loss_scale", None)
            self.add_figures(kind, self.reference.arrays(kind, self.program["precision"], arrays))
            file.unlink()

    def check_overflow(self):
        """In fp16: the loss scaler leaves a step out and goes on."""
        if not self.program["overflow"]:
            return
        data, metrics = dataset(self.session.folder(self.model), self.model), self.folder / "overflow.jsonl"
        done = self.run("train", "--data", data, *self.program["options"], *self.program["overflow"], "--no-shuffle", "--steps", 3, "--log-every", 0,
                        "--metrics", metrics)
        if done.code:
            return self.add("overflow", *self.failure(done))
        figure = self.reference.overflow(trace_of(metrics))
        self.add("overflow", figure.share <= 1, figure.detail)

    def check_resumed(self):
        """A run that goes on from a checkpoint half-way ends with the bits of the one that wrote it; if not, a second whole run tells why."""
        begun = self.folder / "parts"
        begun.mkdir()
        for file in self.checkpoints("whole")[:-1]:
            shutil.move(str(file), str(begun))
        done = self.train("parts", "--resume")
        if done.code:
            return self.add("resumed", *self.failure(done))
        if self.last("parts") == self.last("whole"):
            return self.add("resumed", True)
        done = self.train("again")
        why = last_words(done) if done.code else "a second whole run too" if self.last("again") != self.last("whole") else "a second whole run does not"
        return self.add("resumed", False, f"the resumed run ends with other weights than the whole one; {why}")

    def checkpoints(self, name):
        return sorted((self.folder / name).glob("step-*.safetensors"))

    def last(self, name):
        return self.checkpoints(name)[-1].read_bytes()


def check_case(case):
    """The end of the run's metrics, or None."""
    if case.session.budget.left(case.share) <= 0:
        case.add("training", None, "no time left")
        return None
    try:
        return case.check()
    except (OSError, ValueError, KeyError, Malformed) as problem:  # a file that is not there or not what it should be
        case.add("training", False, f"the results could not be read: {problem!r}")
        return None
    finally:
        shutil.rmtree(case.folder)


def differs(products, end):
    """Whether another run than the one with libraries, whose end is this, if any, executes other code."""
    libraries = [name for name in ("cuBLASLt", "cuDNN") if end and name in end["device"]]
    return end is not None and (products == "generated" or len(libraries) == 2)


def check_all(session, results, pool, share):
    """Every program of the models' own batch; then, where libraries did products, again without both, and without cuDNN.

    The last events of the runs, by (program, products).
    """
    lock, ends = Lock(), {}
    references = {model["name"]: Reference(session.folder(model)) for model in session.manifest["models"]}
    own = [(model, program) for model in session.manifest["models"] for program in model["programs"] if program["batch"] == model["batch"]]
    # The smallest models first, and all of them in one precision before the next.
    own.sort(key=lambda pair: ("fp32", "fp16", "bf16").index(pair[1]["precision"]))
    for products in ("default", "generated", "cublaslt"):
        wanted = [(model, program) for model, program in own if products == "default" or differs(products, ends.get((program["program"], "library")))]
        cases = [Case(session, results, lock, references[model["name"]], model, program, products, share) for model, program in wanted]
        for case, end in zip(cases, pool.map(check_case, cases)):
            if end:
                ends[case.program["program"], case.products] = end
    return ends
