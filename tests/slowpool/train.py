"""Real training on CPU over gloo in which now and then one rank is slow, as a plan says.

Words: the setup (``ddp``, ``zero1`` to ``zero3``, ``tpdp``), micro-steps of a step, and the plan's folder.
``plan.json`` there has seconds and layers of a step, the steps of a phase, and the phases: each null (all
ranks are healthy), or rank, site, layer and size of the delay, as a share of what a step took in the last
healthy phase; or a habit of healthy ranks. Phase N begins when ``N.go`` is there.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

os.environ.update(DS_ACCELERATOR="cpu", OMP_NUM_THREADS="1")

import torch
import torch.distributed as dist

WIDE = 64


class Faults:
    """When and where this rank is slow.

    :param rank: this one
    :param micro: micro-steps of a step
    """

    def __init__(self, rank: int, micro: int, folder: Path) -> None:
        self.plan = json.loads((folder / "plan.json").read_text())
        self._rank = rank
        self._micro = micro
        self._folder = folder
        self._fault: dict[str, Any] = {}
        self.habit = ""
        """Of healthy ranks, in this phase."""
        self._step = 0
        self._jitter = random.Random(rank)
        self.length = 1.0
        """Of this step's sequences, as a share of the usual."""
        self._usual_s = 0.0

    def begin(self, phase: int, fault: dict[str, Any] | None) -> None:
        """Wait until a phase may begin."""
        self.habit = (fault or {}).get("habit", "")
        self._fault = fault if fault and fault.get("rank") == self._rank else {}
        self._step = 0
        while not (self._folder / f"{phase}.go").exists():
            time.sleep(0.01)

    def end(self, healthy: list[float]) -> None:
        """A healthy phase has ended, whose steps took so many seconds, each as a share of its length."""
        self._usual_s = median(healthy)

    def compute(self, share: float) -> None:
        """Take a share of a layer's part of a healthy micro-step."""
        usual = self.plan["step_s"] / self.plan["layers"] / self._micro
        noise = 0.3 if self.habit == "noise" else 0.02
        cold = 2.0 if self.habit == "start" and self._step < COLD and self._rank == 0 else 1.0
        time.sleep(usual * share * self.length * cold * self._jitter.uniform(1 - noise, 1 + noise))

    def after(self, evaluate: Callable[[], None]) -> None:
        """A step is over: do what ranks do after one, now and then."""
        self.at("io")
        self._step += 1
        if self._step % EVERY:
            return
        if self.habit == "evaluation":
            evaluate()
        elif self.habit == "checkpoint" and self._rank == 0:
            _write(self._usual_s)

    def at(self, site: str, layer: int = 0) -> None:
        """Be slow if that is the plan here: longer sequences, longer delays."""
        if self._fault.get("site") != site or layer != self._fault["layer"]:
            return
        delay_s = self._usual_s * self.length * self._fault["size"]
        SITES[site](delay_s if site in ONCE else delay_s / self._micro)


def _burn(seconds: float) -> None:
    until = time.perf_counter() + seconds
    a = torch.ones(64, 64)
    while time.perf_counter() < until:
        a = (a @ a).clamp(0, 1)


def _write(seconds: float) -> None:
    until = time.perf_counter() + seconds
    with open(f"written-{os.getpid()}", "wb") as file:
        while time.perf_counter() < until:
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
            time.sleep(0.005)


SITES: dict[str, Callable[[float], None]] = {
    "data": time.sleep,
    "forward": _burn,
    "backward": _burn,
    "update": _burn,
    "io": _write,
}


COLD, EVERY = 4, 5
"""The first steps, and the steps from one evaluation or checkpoint to the next."""

ONCE = ("update", "io")
"""Sites that a step comes to once, and not in each of its micro-steps."""


class _Delays(torch.autograd.Function):  # type: ignore[misc]
    """Computes for a while, forward and backward."""

    @staticmethod
    def forward(ctx: Any, x: Any, faults: Faults, layer: int) -> Any:
        ctx.faults, ctx.layer = faults, layer
        faults.compute(0.35)
        faults.at("forward", layer)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        ctx.faults.compute(0.65)
        ctx.faults.at("backward", ctx.layer)
        return grad, None, None


class _Sum(torch.autograd.Function):  # type: ignore[misc]
    """The sum over a tensor-parallel group, in the forward or in the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Any, group: Any, forward: bool) -> Any:
        ctx.group, ctx.back = group, not forward
        x = x.clone()
        if forward:
            dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        if ctx.back:
            grad = grad.clone()
            dist.all_reduce(grad, group=ctx.group)
        return grad, None, None


class Layer(torch.nn.Module):  # type: ignore[misc]
    """A linear layer; in a tensor-parallel group each rank has a part of it."""

    def __init__(self, faults: Faults, number: int, group: Any = None) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(WIDE, WIDE)
        self._faults, self._number, self._group = faults, number, group

    def forward(self, x: Any) -> Any:
        """Compute."""
        if self._group is not None:
            x = _Sum.apply(x, self._group, False)
        x = torch.tanh(self.linear(_Delays.apply(x, self._faults, self._number)))
        return x if self._group is None else _Sum.apply(x, self._group, True)


def _model(faults: Faults, group: Any = None) -> Any:
    return torch.nn.Sequential(*(Layer(faults, number, group) for number in range(faults.plan["layers"])))


class Plain:
    """Training with DDP, or with two tensor-parallel pairs and DDP across them."""

    def __init__(self, setup: str, micro: int, faults: Faults) -> None:
        rank = dist.get_rank()
        pairs = [dist.new_group(ranks) for ranks in ([0, 1], [2, 3])] if setup == "tpdp" else []
        across = [dist.new_group(ranks) for ranks in ([0, 2], [1, 3])] if setup == "tpdp" else []
        group = pairs[rank // 2] if pairs else None
        model = _model(faults, group)
        self._model = torch.nn.parallel.DistributedDataParallel(
            model, process_group=across[rank % 2] if across else None, bucket_cap_mb=0.02
        )
        self._faults = faults
        self._norm = setup == "tpdp"
        self._optimizer = torch.optim.AdamW(model.parameters())
        self._micro = micro

    def forward(self, batch: Any) -> Any:
        """Compute."""
        return self._model(batch)

    def step(self, batches: Iterator[Any]) -> None:
        """Do one whole step."""
        for number in range(self._micro):
            self._model.require_backward_grad_sync = number == self._micro - 1
            self._model(next(batches)).square().mean().backward()
        if self._norm:
            dist.all_reduce(torch.ones(1))
        self._faults.at("update")
        self._optimizer.step()
        self._optimizer.zero_grad()


class Zero:
    """Training with DeepSpeed."""

    def __init__(self, setup: str, micro: int, faults: Faults) -> None:
        import deepspeed

        # It would be compiled.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        deepspeed.init_distributed("gloo")
        model = _model(faults)
        zero = {
            "stage": int(setup[-1]),
            "reduce_bucket_size": 6000,
            "allgather_bucket_size": 6000,
            "stage3_param_persistence_threshold": 0,
        }
        config = {
            "train_micro_batch_size_per_gpu": 8,
            "gradient_accumulation_steps": micro,
            "zero_optimization": zero,
            "zero_allow_untested_optimizer": True,
            "steps_per_print": 10**9,
        }
        self._faults = faults
        optimizer = torch.optim.AdamW(model.parameters())
        self._engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
        self._micro = micro

    def forward(self, batch: Any) -> Any:
        """Compute."""
        return self._engine(batch)

    def step(self, batches: Iterator[Any]) -> None:
        """Do one whole step."""
        for number in range(self._micro):
            self._engine.backward(self._engine(next(batches)).square().mean())
            if number == self._micro - 1:
                self._faults.at("update")
            self._engine.step()


class Batches(torch.utils.data.IterableDataset):  # type: ignore[misc]
    """What is trained with, without end.

    :param faults: None: it is only evaluated with this
    """

    def __init__(self, faults: Faults | None = None) -> None:
        self._faults = faults

    def __iter__(self) -> Iterator[Any]:
        while True:
            if self._faults is not None:
                self._faults.at("data")
            yield torch.randn(8, WIDE, requires_grad=True)  # so that the first layer has a backward pass too


def batches(faults: Faults | None = None) -> Iterator[Any]:
    """Those of a loader of torch's."""
    return iter(torch.utils.data.DataLoader(Batches(faults), batch_size=None))


def _evaluated(forward: Callable[[Any], Any]) -> None:
    with torch.no_grad():
        for _, batch in zip(range(3), batches(), strict=False):
            forward(batch)


def main(setup: str, micro: int, folder: Path) -> None:
    """Train as planned."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    faults = Faults(dist.get_rank(), micro, folder)
    training = (Zero if setup.startswith("zero") else Plain)(setup, micro, faults)
    data, lengths = batches(faults), random.Random(0)
    for phase, fault in enumerate([*faults.plan["phases"], None]):
        print(f"phase {phase}", flush=True)
        faults.begin(phase, fault)
        took = []
        for _ in range(faults.plan["steps"]):
            faults.length = lengths.uniform(0.7, 1.3)  # as sequences differ from step to step
            began = time.perf_counter()
            training.step(data)
            took.append((time.perf_counter() - began) / faults.length)
            faults.after(lambda: _evaluated(training.forward))
        if fault is None or faults.habit:
            faults.end(took)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
