"""What the driver of GPUs reports without being root: clocks held down, memory errors, Xid."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from cockpit.base.events import GPU_SAMPLES, GpuSample, NoticeStep, Sample
from cockpit.core.pace.pace import Pace
from cockpit.core.ranks import ranks_text
from cockpit.core.rules.rows.crashes import XIDS_SAID
from cockpit.core.rules.rows.nodes import THROTTLED
from cockpit.core.run.notices.rule import About, Condition, Rule
from cockpit.core.run.states import Run

LOOKS, MOST = 12, 10
"""Looks that count, one every 5 s: throttled in at least ``MOST`` is a notice, in none ends it."""

XIDS = {
    31: "a page fault: usually a bug in the program",
    13: "an error in a kernel: usually a bug in the program",
    48: "a memory error that cannot be corrected",
    63: "a row of its memory will be remapped",
    64: "a row of its memory could not be remapped",
    74: "an NVLink error",
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
XID_S = 3600.0
"""Seconds for which an Xid is reported: by then, one that matters has had consequences."""
GPUS = GPU_SAMPLES.most
"""Of one node that are remembered."""
KEPT = 64
"""Reports (Xid) of the GPUs of one node that are remembered, the first ones."""

TOLD = 16
"""Errors of GPUs of one node that have a notice each: two of each of eight. The rest share one, so that no
node hides what others say."""

_MORE = " more"
_MEMORY = -1
"""In the place of an Xid: an error of its memory that was counted."""


@dataclass
class _Gpu:
    slowed: deque[tuple[str, ...]] = field(default_factory=lambda: deque(maxlen=LOOKS))
    slow_since: float | None = None
    errors_before: int | None = None
    errors: int = 0
    errors_since: float = 0.0
    xids: dict[int, tuple[float, float]] = field(default_factory=dict)
    """When each was reported first, and last."""
    ranks: tuple[int, ...] = ()


class Gpu(Rule):
    """Watches the GPUs of all nodes."""

    id = "gpu"
    source = "nvml.h; NVIDIA's Xid catalogue"

    def __init__(self, about: About) -> None:
        super().__init__(about)
        self._gpus: dict[str, dict[int, _Gpu]] = {}

    def sampled(self, at: float, node: str, sample: Sample, run: Run) -> None:
        """See :class:`Rule`."""
        known = self._gpus.setdefault(node, {})
        room = KEPT - sum(len(gpu.xids) for gpu in known.values())
        for told in sample.gpus:
            if told.index not in known and len(known) >= GPUS:
                continue
            gpu = known.setdefault(told.index, _Gpu())
            gpu.ranks = tuple(rank.rank for rank in run.on(node) if rank.pid in told.processes)
            for xid in told.xids:
                if xid in gpu.xids:
                    gpu.xids[xid] = gpu.xids[xid][0], at
                elif xid not in CONSEQUENCES and room > 0:
                    room -= 1
                    gpu.xids[xid] = at, at
            _count(at, gpu, told)

    def look(self, at: float, run: Run, pace: Pace) -> Iterator[Condition]:
        """See :class:`Rule`."""
        slow: dict[str, list[tuple[int, _Gpu]]] = {}
        errors: dict[str, list[tuple[float, int, int]]] = {}
        gpus = ((node, *each) for node, known in self._gpus.items() for each in known.items())
        for node, index, gpu in gpus:
            if run.nodes[node].over:
                continue
            if gpu.slow_since is not None:
                slow.setdefault(node, []).append((index, gpu))
            found = errors.setdefault(node, [])
            if gpu.errors:
                found.append((gpu.errors_since, index, _MEMORY))
            gpu.xids = {xid: times for xid, times in gpu.xids.items() if at - times[1] < XID_S}
            found.extend((first, index, xid) for xid, (first, _) in gpu.xids.items())
        for node, found in errors.items():
            found.sort()  # the first errors shown stay the ones shown
            for since, index, xid in found[:TOLD]:
                yield _error(node, index, self._gpus[node][index], xid, since)
            if len(found) > TOLD:
                yield _rest(node, len(found) - TOLD, found[TOLD][0])
        for node, some in slow.items():
            yield _slowed(node, some)

    def ended(self, of: str) -> str:
        """See :class:`Rule`."""
        node = of.removesuffix(_SLOWED)
        return f"GPUs on {node} are no longer throttled" if node != of else ""


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


def _error(node: str, index: int, gpu: _Gpu, xid: int, since: float) -> Condition:
    step = NoticeStep(f"nvidia-smi -q -i {index}", "what its driver says", node)
    if xid == _MEMORY:
        more = "1 memory error" if gpu.errors == 1 else f"{gpu.errors:,} memory errors"
        what = f"GPU {index} on {node} has had {more} that could not be corrected since the watch began"
        of = f"{node} GPU {index} errors"
        return Condition(of, what, since, None, (), "sure", "error", (node,), gpu.ranks, (step,))
    meaning = f": {XIDS[xid]}" if xid in XIDS else ""
    what = f"the driver of GPU {index} on {node} reports Xid {xid}{meaning}"
    kernel = NoticeStep(XIDS_SAID.command, XIDS_SAID.reason, node)
    of = f"{node} GPU {index} Xid {xid}"
    return Condition(of, what, since, None, (), "sure", "error", (node,), gpu.ranks, (kernel, step))


def _rest(node: str, many: int, since: float) -> Condition:
    what = f"{node} reports {many:,} more error{'s' * (many > 1)} of its GPUs"
    step = NoticeStep("nvidia-smi -q", "what its driver says", node)
    return Condition(f"{node}{_MORE}", what, since, None, (), "sure", "error", (node,), (), (step,))


def _slowed(node: str, some: list[tuple[int, _Gpu]]) -> Condition:
    why = " and ".join(sorted({word for _, gpu in some for look in gpu.slowed for word in look}))
    which = ranks_text(index for index, _ in some)
    what = f"GPU{'s' * (len(some) > 1)} {which} on {node}: throttled by {why}"
    since = min(gpu.slow_since or 0.0 for _, gpu in some)
    ranks = tuple(sorted({rank for _, gpu in some for rank in gpu.ranks}))
    evidence = (f"in at least {MOST} of {LOOKS} samples within a minute",)
    step = NoticeStep(THROTTLED.command, THROTTLED.reason, node)
    return Condition(
        f"{node}{_SLOWED}", what, since, None, evidence, "sure", "warning", (node,), ranks, (step,)
    )
