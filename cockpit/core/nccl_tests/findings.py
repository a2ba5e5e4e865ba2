"""What is wrong with what programs of nccl-tests measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cockpit.core.finding import Finding, Step
from cockpit.core.masks import mask_of
from cockpit.core.nccl_tests.comparing import Change, Past, changes, slowest
from cockpit.core.nccl_tests.drawing import size_text
from cockpit.core.nccl_tests.table import Table
from cockpit.core.ranks import nodes_text

LESS = 0.05
"""The fraction of bus bandwidth that has to be missing: two measurements are rarely closer than 2 %."""
SHOWN = 8
"""Lines of evidence of one kind."""

_LINKS = Step("cockpit doctor HOSTFILE --deep", "check the GPUs and the links of these nodes")
_NCCL = Step(
    "cockpit run --nccl-debug …", "which interface, devices and GPUDirect NCCL uses: cockpit ps --nccl"
)


@dataclass(frozen=True)
class Result:
    """A table, and where it is.

    :param node: the node of the log
    :param rank: whose log it is; None: a console's
    :param path: of our copy of the log
    :param now: what is kept of it for a comparison
    :param before: the last measurement of the same on the same nodes; None: there is none
    """

    table: Table
    node: str
    rank: int | None
    path: str
    now: Past
    before: Past | None = None

    @property
    def name(self) -> str:
        """What it is, for people."""
        return self.table.test or "the test"

    @property
    def where(self) -> str:
        """Where it ran, for people."""
        return nodes_text(self.now.hosts)

    @property
    def change(self) -> Change | None:
        """How the largest message that both measured differs; None: there is nothing to compare with."""
        found = changes(self.now, self.before) if self.before is not None else []
        return found[-1] if found else None


def findings(results: Sequence[Result]) -> list[Finding]:
    """What is wrong, the worst first."""
    rules = (_damaged, _wrong, _less, _apart, _alone)
    return [found for rule in rules for found in rule(results)]


def _damaged(results: Sequence[Result]) -> Iterator[Finding]:
    bad = [(one, damage) for one in results for damage in one.table.damage]
    if bad:
        told = [f"{one.path}:{damage.line}: {damage.what}" for one, damage in bad]
        yield Finding(
            "nccl_tests_damaged",
            f"the table of {bad[0][0].name} is damaged: {told[0]}",
            **_logs(one for one, _ in bad),
            evidence=tuple(told[1:SHOWN]),
            certainty="sure",
            steps=(Step("cockpit logs RUN", "what was printed"),),
        )


def _logs(results: Iterable[Result]) -> dict[str, Any]:
    """The nodes and ranks whose logs these are in."""
    results = list(results)
    ranks = mask_of(one.rank for one in results if one.rank is not None)
    return {"nodes": tuple(dict.fromkeys(one.node for one in results)), "ranks": ranks}


def _wrong(results: Sequence[Result]) -> Iterator[Finding]:
    bad = [one for one in results if one.table.wrong]
    if not bad:
        return
    first = bad[0]
    told = [
        f"{one.path}:{row.line}: {size_text(row.what.size)}: {row.wrong:.15g} wrong"
        for one in bad
        for row in one.table.rows
        if row.wrong
    ]
    yield Finding(
        "nccl_tests_wrong",
        f"{first.name} got {first.table.wrong:.15g} wrong values on {first.where}",
        **_logs(bad),
        detail="data is damaged on its way: a GPU, a cable, a driver or NCCL is broken",
        evidence=tuple(told[:SHOWN]),
        certainty="sure",
        steps=(_LINKS, Step("dmesg -T | grep -i -e xid -e nvlink", "on each node: errors of GPUs and links")),
    )


def _less(results: Sequence[Result]) -> Iterator[Finding]:
    """What is slower than it was."""
    less = [(change.by, one, change) for one in results if (change := one.change) and change.by <= -LESS]
    if not less:
        return
    less.sort(key=lambda found: found[0])
    _, worst, change = less[0]
    apart = slowest(one.now for one in results)
    slow = f"; {apart.host} slowest" if apart is not None and apart.by <= -LESS else ""
    yield Finding(
        "nccl_tests_slower",
        f"{_changed(worst, change)}{slow}",
        **_logs(one for _, one, _ in less),
        evidence=(
            *(_told(worst, each) for each in changes(worst.now, change.before)[-1 : -SHOWN - 1 : -1]),
            *(_changed(one, each) for _, one, each in less[1:SHOWN]),
        ),
        certainty="likely",
        severity="warning",
        steps=(_NCCL, _LINKS),
    )


def _changed(result: Result, change: Change) -> str:
    at = size_text(change.what.size)
    return f"{result.name} on {result.where}: busbw at {at} {compared(change)}"


def compared(change: Change) -> str:
    """``12 % below 2026-11-20``."""
    percent = f"{abs(change.by):.0%}".replace("%", " %")
    if percent == "0 %":
        return f"as on {change.before.day}"
    return f"{percent} {'below' if change.by < 0 else 'above'} {change.before.day}"


def _told(result: Result, change: Change) -> str:
    return f"{size_text(change.what.size)}: {change.now:g} GB/s, {change.was:g} in {change.before.run}"


def _apart(results: Sequence[Result]) -> Iterator[Finding]:
    """A node slower than the others; where it is slower than before, that says it."""
    found = slowest(one.now for one in results)
    if found is None or found.by > -LESS or any(True for _ in _less(results)):
        return
    yield Finding(
        "nccl_tests_slowest",
        f"{found.host} slowest: busbw at {size_text(found.what.size)} {-found.by:.0%}".replace("%", " %")
        + " below the other nodes",
        **_logs(one for one in results if tuple(one.now.hosts) == (found.host,)),
        evidence=(f"{found.busbw:g} GB/s, median of the others {found.others:g} GB/s",),
        certainty="likely",
        severity="warning",
        steps=(_LINKS, _NCCL),
    )


def _alone(results: Sequence[Result]) -> Iterator[Finding]:
    """Each rank by itself: nothing was sent."""
    alone = [one for one in results if len(one.table.devices) == 1]
    if len(alone) < 2 or len(alone) < len(results):
        return
    yield Finding(
        "nccl_tests_alone",
        f"{len(alone)} ranks each ran {alone[0].name} alone: nothing was sent between GPUs",
        **_logs(alone),
        detail="without MPI in the program, the ranks do not know of each other",
        certainty="likely",
        severity="warning",
        steps=(
            Step("--launcher per-node -- all_reduce_perf -g 8 …", "one test on each node, over its 8 GPUs"),
            Step("-- mpirun … all_reduce_perf …", "over all nodes, if it was built with MPI=1; on one node"),
        ),
    )
