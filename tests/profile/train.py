"""Steps until there is a file ``end``: ``alone``, so that no rank waits for another, or over ``gloo``; or as
``stub``, with a torch of a few lines, which is imported at once.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

kind, step_s = (word for word in sys.argv[1:] if not word.startswith("--local_rank"))
rank = int(os.environ["RANK"])
if kind == "stub":
    sys.path.insert(0, str(Path(__file__).parents[1] / "probe" / "stub"))

import torch  # noqa: E402


def stub() -> None:
    """Steps, without anything that is trained."""
    optimizer = torch.optim.SGD()
    while not os.path.exists("end"):
        optimizer.step()
        time.sleep(float(step_s))
        if os.path.exists(f"fail-{rank}"):
            sys.exit(3)
    sys.exit()


if kind == "stub":
    stub()
model: torch.nn.Module = torch.nn.Sequential(*(torch.nn.Linear(32, 32) for _ in range(8)))
if kind == "gloo":
    torch.distributed.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
while not os.path.exists("end"):
    optimizer.zero_grad()
    try:
        model(torch.randn(16, 32)).square().mean().backward()
    except RuntimeError:
        # The other rank may have seen the end one step earlier.
        if os.path.exists("end"):
            break
        raise
    optimizer.step()
    time.sleep(float(step_s))
    if os.path.exists(f"fail-{rank}"):
        sys.exit(3)
