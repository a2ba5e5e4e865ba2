"""Why the accused need not be to blame: slow is not hung, and a server that nobody asks waits, too."""

from __future__ import annotations

from cockpit.base.stacks.kinds import WAITING, of_dump
from cockpit.core.finding import Finding
from cockpit.core.masks import mask_of, ranks_of
from cockpit.core.stacks.case import Case
from cockpit.core.stacks.class_facts import OUTSIDE, listens, may_serve, serves, serves_beside, union

ENDS = frozenset({"ended", "exited", "over", "missing", "moving", "slow"})
"""What steps that were made a moment ago do not put in doubt."""

WAITED_FOR = frozenset({"absent", "io", "lock", "loader", "build", "gil", "mismatch", "order", "loop"})
"""Where a rank is named because others wait for it."""

FLUSHES = frozenset({"fsync", "fdatasync"})
"""System calls that end once data is on a disk."""


def reasons(case: Case, found: Finding) -> list[str]:
    """Why the accused need not be to blame, although the rule that names them is sure of it."""
    if found.ranks and case.goes_on and found.id not in ENDS:
        return ["steps continue"]
    if found.certainty != "sure" or found.id not in WAITED_FOR:
        return []
    if not case.lasts:
        known = case.span_s if case.progress is None else case.for_s or 0.0
        return [f"it has lasted only {known:.1f} s: a step may just be slow"]
    if _asks_outside(case, found.ranks) and not case.steps_known:
        return ["its steps are unknown: it may be waiting for requests"]
    if _flushes(case, found.ranks):
        return ["it waits until data is on a disk, which may just be slow"]
    return []


def serving(case: Case, ranks: int) -> bool:
    """Whether these ranks wait for requests, as a server does that nobody asks for anything."""
    if not ranks:
        return False
    parts = [one for one in [*case.waits, *case.others] if one.ranks & ranks]
    if case.steps_known:
        return not ranks & ~union(one for one in parts if listens(one))
    idle = union(one for one in parts if serves(one) or may_serve(one))
    for one in parts:
        if one.kind in ("lock", "sleep"):
            told = (rank for rank in ranks_of(one.ranks) if serves_beside(case.dumps(rank)[-1]))
            idle |= mask_of(told)
    return not ranks & ~idle


def went_on(case: Case, found: Finding) -> int:
    """Ranks that waited before and wait again: what they first waited for happened in between."""
    if found.id not in WAITED_FOR or not found.ranks:
        return 0
    if case.steps_known or _on_record(case, found.ranks):
        return 0  # who goes on is known better
    moved = union(one for one in case.waits if not one.frozen) if case.looks > 1 else 0
    return mask_of(rank for rank in ranks_of(moved) if of_dump(case.dumps(rank)[0]).kind in WAITING)


def _on_record(case: Case, ranks: int) -> bool:
    """Whether the recorders say that these ranks are missing in what others wait for."""
    return case.recorded is not None and not ranks & ~case.recorded.missing


def _asks_outside(case: Case, ranks: int) -> bool:
    """Whether one of these ranks waits for somebody outside the job: at a socket or a terminal."""
    parts = [one for one in [*case.waits, *case.others] if one.ranks & ranks]
    return any(one.kind == "io" and OUTSIDE.search(one.found.doing.what) for one in parts)


def _flushes(case: Case, ranks: int) -> bool:
    """Whether one of these ranks waits until its data is on a disk: nothing counts how far that is."""
    mains = [dump.main for rank in ranks_of(ranks & case.live) for dump in case.dumps(rank)[-1:]]
    return any(main is not None and main.call in FLUSHES for main in mains)
