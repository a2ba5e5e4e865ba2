"""What the driver of GPUs reports without being root: clocks held down, memory errors, Xid."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from cockpit.base.events import GpuSample, NoticeStep, Sample
from cockpit.core.pace.pace import Pace
from cockpit.core.ranks import ranks_text
from cockpit.core.run.notices.rule import About, Rule, Seen
from cockpit.core.run.states import Run

LOOKS, MOST = 12, 10
"""Looks that count, one every 5 s: throttled in at least ``MOST`` is a notice, in none ends it."""

XIDS = {
    31: "a page fault: the program's own mistake, as a rule",
    13: "an error in a kernel: the program's own mistake, as a rule",
    48: "a memory error that cannot be corrected",
    63: "a row of its memory is to be remapped",
    64: "a row of its memory could not be remapped",
    74: "an error of NVLink",
    79: "it has fallen off the bus",
    94: "a contained memory error",
    95: "an uncontained memory error",
    119: "its firmware does not answer",
    120: "an error in its firmware",
}
"""What some numbers mean."""

CONSEQUENCES = frozenset({43, 45})
"""Of a program that was ended: these are no news."""

_SLOWED = " slowed"
KEPT = 64
"""Numbers of one GPU that are remembered."""


@dataclass
class _Gpu:
    slowed: deque[tuple[str, ...]] = field(default_factory=lambda: deque(maxlen=LOOKS))
    slow_since: float | None = None
    errors_before: int | None = None
    errors: int = 0
    errors_since: float = 0.0
    xids: dict[int, float] = field(default_factory=dict)
    ranks: tuple[int, ...] = ()


class Gpu(Rule):
    """Watches the GPUs of all nodes."""

    id = "gpu"
    source = "nvml.h; NVIDIA's Xid catalogue"

    def __init__(self, about: About) -> None:
        super().__init__(about)
        self._gpus: dict[tuple[str, int], _Gpu] = {}

    def sampled(self, at: float, node: str, sample: Sample, run: Run) -> None:
        """See :class:`Rule`."""
        for told in sample.gpus:
            gpu = self._gpus.setdefault((node, told.index), _Gpu())
            gpu.ranks = tuple(rank.rank for rank in run.on(node) if rank.pid in told.processes)
            for xid in told.xids:
                if xid not in CONSEQUENCES and len(gpu.xids) < KEPT:
                    gpu.xids.setdefault(xid, at)
            _count(at, gpu, told)

    def look(self, at: float, run: Run, pace: Pace) -> Iterator[Seen]:
        """See :class:`Rule`."""
        slow: dict[str, list[tuple[int, _Gpu]]] = {}
        for (node, index), gpu in self._gpus.items():
            if run.nodes[node].over:
                continue
            if gpu.slow_since is not None:
                slow.setdefault(node, []).append((index, gpu))
            step = NoticeStep(f"nvidia-smi -q -i {index}", "what its driver says", node)
            if gpu.errors:
                more = "1 memory error" if gpu.errors == 1 else f"{gpu.errors:,} memory errors"
                what = (
                    f"GPU {index} on {node} has {more} that could not be corrected, since the run is watched"
                )
                of = f"{node} GPU {index} errors"
                yield Seen(of, what, gpu.errors_since, None, (), "sure", "error", (node,), gpu.ranks, (step,))
            for xid, since in gpu.xids.items():
                meaning = f": {XIDS[xid]}" if xid in XIDS else ""
                what = f"the driver of GPU {index} on {node} reports Xid {xid}{meaning}"
                kernel = NoticeStep("dmesg -T | grep -i xid", "its words", node)
                of = f"{node} GPU {index} Xid {xid}"
                yield Seen(of, what, since, None, (), "sure", "error", (node,), gpu.ranks, (kernel, step))
        for node, some in slow.items():
            yield _slowed(node, some)

    def ended(self, of: str) -> str:
        """See :class:`Rule`."""
        node = of.removesuffix(_SLOWED)
        return f"clocks of GPUs on {node} are no longer held down" if node != of else ""


def _count(at: float, gpu: _Gpu, told: GpuSample) -> None:
    if told.slowed is not None:
        gpu.slowed.append(told.slowed)
        held = sum(map(bool, gpu.slowed))
        if held >= MOST and gpu.slow_since is None:
            gpu.slow_since = at
        elif not held:
            gpu.slow_since = None
    if told.errors is not None:
        if gpu.errors_before is None or told.errors < gpu.errors_before:
            gpu.errors_before = told.errors  # its driver was loaded again
        elif told.errors - gpu.errors_before > gpu.errors:
            gpu.errors_since = gpu.errors_since or at
            gpu.errors = told.errors - gpu.errors_before


def _slowed(node: str, some: list[tuple[int, _Gpu]]) -> Seen:
    why = " and ".join(sorted({word for _, gpu in some for look in gpu.slowed for word in look}))
    which = ranks_text(index for index, _ in some)
    what = f"GPU{'s' * (len(some) > 1)} {which} on {node}: clocks are held down by {why}"
    since = min(gpu.slow_since or 0.0 for _, gpu in some)
    ranks = tuple(sorted({rank for _, gpu in some for rank in gpu.ranks}))
    evidence = (f"in at least {MOST} of {LOOKS} looks within a minute",)
    step = NoticeStep("nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER", "why", node)
    return Seen(f"{node}{_SLOWED}", what, since, None, evidence, "sure", "warning", (node,), ranks, (step,))
