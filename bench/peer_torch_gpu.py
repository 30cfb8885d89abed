"""Times PyTorch's training step of one model on a GPU; says "ready", waits for a line on stdin, prints one JSON line.

    peer_torch_gpu.py MODEL --precision bf16 --config compile [--batch 256] [--seconds 2] [--device 0]

A step is zero_grad, forward, loss, backward and the fused optimizer, on one fixed batch that is on the GPU; bf16 and
fp16 by autocast, fp16 with GradScaler, images with the channels last in both. The host does not wait for the GPU but
after every block of steps: the least and the median of the blocks' milliseconds per step are reported.
"""

import argparse
import json
import statistics
import sys
import warnings

import torch
from models import MODELS
from timing import measured, milliseconds
from torch_step import PRECISIONS, training_step

CONFIGS = {"eager": None, "compile": "default", "compile-graphs": "reduce-overhead"}  # name -> torch.compile's mode
WARM_UP, BLOCK = 12, 10  # steps


def on_gpu(tensor, channels_last):
    return tensor.cuda(memory_format=torch.channels_last) if channels_last and tensor.dim() == 4 else tensor.cuda()


def step_on_gpu(args):
    spec, half = MODELS[args.model], PRECISIONS[args.precision]
    torch.manual_seed(1)
    inputs, labels = spec.data(args.batch or spec.batch)
    inputs, labels = [on_gpu(tensor, half) for tensor in inputs], labels.cuda()
    model = spec.build().cuda()
    if half and inputs[0].dim() == 4:
        model = model.to(memory_format=torch.channels_last)
    optimizer = spec.make_optimizer(model, fused=True)
    mode = CONFIGS[args.config]
    forward = torch.compile(model, mode=mode) if mode else model
    return training_step(spec, forward, optimizer, inputs, labels, args.precision, "cuda")


def run_steps(step, count):
    for _ in range(count):
        step()
    torch.cuda.synchronize()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--precision", default="fp32", choices=PRECISIONS)
    parser.add_argument("--config", default="eager", choices=CONFIGS)
    parser.add_argument("--batch", type=int, help="samples per step (the model's own)")
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--device", type=int, default=0)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.cuda.set_device(args.device)
    step = step_on_gpu(args)
    run_steps(step, WARM_UP)
    print("ready", flush=True)
    sys.stdin.readline()
    times = measured(lambda: milliseconds(lambda: run_steps(step, BLOCK)) / BLOCK, args.seconds)
    print(json.dumps({"ms": min(times), "median_ms": statistics.median(times), "steps": BLOCK * len(times), "device_bytes": torch.cuda.max_memory_reserved(),
                      "tensor_bytes": torch.cuda.max_memory_allocated(), "version": torch.__version__}))


if __name__ == "__main__":
    main()
