"""What is said about ranks that are slow, or, where only that is known, whose CPUs enqueue late."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cockpit.base.shell import quote
from cockpit.core.finding import Finding, Step
from cockpit.core.masks import mask_of
from cockpit.core.pace.pace import Pace
from cockpit.core.pace.slow import Slow
from cockpit.core.ranks import ranks_named

PROFILE = (
    "--profile nsys",
    "next time: how long GPUs compute; torch.profiler in the script shows it, too",
)
"""An option and what it is for: what tells about GPUs where a recorder does not."""

NAMED = 64
"""Ranks that one finding is about, the slowest first."""


def findings(pace: Pace, run: str) -> Iterator[Finding]:
    """Of a run that goes on.

    :param run: its name
    """
    slow, late = pace.slow()[:NAMED], pace.late()[:NAMED]
    if slow:
        yield Finding(
            "slow_rank",
            f"{ranks_named(sorted(one.rank for one in slow))} {_are(slow)} slow",
            ranks=mask_of(one.rank for one in slow),
            evidence=tuple(
                f"rank {one.rank}: {100 * one.excess:.0f} % more {'work' if pace.works else 'time'} in a "
                f"step than the median rank, since step {pace.apart_since(one.rank):,}{_why(pace, one)}"
                for one in slow[:3]
            ),
            certainty="sure",
            steps=(Step(f"cockpit stacks {quote(run)} --samples 3", "what they are doing", "", "stacks"),),
            severity="warning",
        )
    if late:
        yield Finding(
            "enqueue_lag",
            f"the CPU{'s' if len(late) > 1 else ''} of {ranks_named(sorted(one.rank for one in late))} "
            f"{_lag(late)} behind the others in enqueueing",
            ranks=mask_of(one.rank for one in late),
            detail="NCCL's recorder knows when CPUs enqueue, not when GPUs compute: they may all be fine",
            evidence=tuple(
                f"rank {one.rank}: {100 * one.excess:.0f} % later than the median rank, "
                f"since step {pace.apart_since(one.rank):,}"
                for one in late[:3]
            ),
            certainty="likely",
            steps=(Step(*PROFILE),),
            severity="warning",
        )


def _why(pace: Pace, one: Slow) -> str:
    found = pace.why(one)
    return "" if found is None else f": {found.text}"


def _are(some: Sequence[Slow]) -> str:
    return "are" if len(some) > 1 else "is"


def _lag(some: Sequence[Slow]) -> str:
    return "lag" if len(some) > 1 else "lags"
