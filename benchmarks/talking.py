"""A rank that steps ten times a second with torch, and prints five lines a step."""

from __future__ import annotations

import time

import torch

STEP_S, LINES = 0.1, 5


def main() -> None:
    """Train, for ever."""
    weights = torch.nn.Parameter(torch.ones(64))
    optimizer = torch.optim.SGD([weights], lr=1e-3)
    due = time.monotonic()
    step = 0
    while True:
        step += 1
        optimizer.zero_grad()
        loss = (weights * weights).sum()
        loss.backward()
        optimizer.step()
        print(f"step {step}/100000000 loss {loss.item():.6f}", flush=True)
        for line in range(1, LINES):
            print(f"  layer {line}: norm {weights.norm().item() / line:.6f}", flush=True)
        due += STEP_S
        time.sleep(max(0.0, due - time.monotonic()))


main()
