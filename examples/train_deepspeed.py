#!/usr/bin/env python3
"""Train a very small network with DeepSpeed: ZeRO, on CPU, over gloo.

cockpit run hostfile -- train_deepspeed.py --steps 20 --zero 2
"""

from __future__ import annotations

import os
import time

import faults

# Must be set before the imports below. On a machine with GPUs DeepSpeed would take those otherwise.
os.environ.setdefault("DS_ACCELERATOR", "cpu")
# Several ranks share few cores here: one thread each.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import deepspeed
import torch
from batches import batches


def main() -> None:
    """Run all steps of this rank."""
    parser = faults.parser("Train with DeepSpeed on CPU.")
    parser.add_argument("--zero", type=int, choices=range(4), default=2, help="ZeRO stage (default 2)")
    args = parser.parse_args()

    # DeepSpeed would compile a shared-memory collective with g++ in init_distributed: about a minute on every
    # new machine, and a build that is killed leaves a lock for which all later runs wait. gloo does without.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed("gloo")
    rank = torch.distributed.get_rank()
    faults.say(f"rank {rank} of {torch.distributed.get_world_size()} is ready")

    torch.manual_seed(args.seed)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    engine, *_ = deepspeed.initialize(
        model=model,
        optimizer=optimizer,
        lr_scheduler=lambda made: torch.optim.lr_scheduler.LinearLR(
            made, 1.0, 0.1, total_iters=max(args.steps, 1)
        ),
        config={
            "train_micro_batch_size_per_gpu": 64,
            "zero_optimization": {"stage": args.zero},
            "steps_per_print": 10**9,
        },
    )
    begin = time.perf_counter()
    for step, x in enumerate(batches(args, rank), 1):
        faults.forward(args, rank, step)
        loss = torch.nn.functional.mse_loss(engine(x), x[:, :1])
        loss.register_hook(lambda _: faults.backward(args))
        lr = engine.get_lr()[0]
        engine.backward(loss)
        engine.step()
        took, begin = time.perf_counter() - begin, time.perf_counter()
        faults.say(f"step {step}/{args.steps} loss {loss.item():.4f} lr {lr:.1e} {1000 * took:.0f} ms/step")
    engine.destroy()
    torch.distributed.barrier()
    faults.say("done")
    faults.leave()


if __name__ == "__main__":
    main()
