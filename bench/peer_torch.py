"""Times PyTorch's training step of one model in one configuration; one JSON line on stdout.

    peer_torch.py MODEL --precision bf16 --config channels-last [--seconds 10]

A step is zero_grad, forward, loss, backward, optimizer, on one fixed batch; bf16 and fp16 by autocast,
fp16 with GradScaler. The minimum over the steps that fit the time is reported, after a warm-up.
"""

import argparse
import os
import warnings

import torch
from models import MODELS
from timing import report
from torch_step import PRECISIONS, training_step

CONFIGS = {  # name -> what is switched on
    "eager": (),
    "fused": ("fused optimizer",),
    "compile": ("fused optimizer", "compile"),
    "channels-last": ("channels-last",),
    "channels-last-fused": ("channels-last", "fused optimizer"),
    "channels-last-compile": ("channels-last", "fused optimizer", "compile"),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--precision", default="fp32", choices=PRECISIONS)
    parser.add_argument("--config", default="eager", choices=CONFIGS)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(args.threads)
    spec = MODELS[args.model]
    model, (inputs, labels) = spec.build(), spec.batch_data()
    config = CONFIGS[args.config]
    if "channels-last" in config:
        if inputs[0].dim() != 4:
            parser.error(f"{args.model} has no image input")
        model, inputs = model.to(memory_format=torch.channels_last), (inputs[0].to(memory_format=torch.channels_last),)
    optimizer = spec.make_optimizer(model, fused="fused optimizer" in config)
    forward = torch.compile(model) if "compile" in config else model
    step = training_step(spec, forward, optimizer, inputs, labels, args.precision, "cpu")
    report(lambda: step().item(), args.seconds, system="pytorch", config=args.config, version=torch.__version__)


if __name__ == "__main__":
    main()
