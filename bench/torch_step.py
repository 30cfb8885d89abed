"""PyTorch's training step, on either device."""

import torch

PRECISIONS = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}  # name -> autocast's type


def training_step(spec, forward, optimizer, inputs, labels, precision, device):
    """zero_grad, forward, loss, backward and optimizer on one batch, halves by autocast, fp16 with GradScaler. The step
    returns the loss, which the device may still be computing."""
    half = PRECISIONS[precision]
    scaler = torch.amp.GradScaler(device, enabled=half is torch.float16)

    def step():
        optimizer.zero_grad()
        with torch.autocast(device, dtype=half, enabled=half is not None):
            loss = spec.loss_fn(forward(*inputs), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss

    return step
