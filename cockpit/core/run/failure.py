"""Which rank failed first, and why: the finding about a run that failed."""

from __future__ import annotations

import signal
from dataclasses import replace

from cockpit.base.shell import quote
from cockpit.core.finding import Finding, Step
from cockpit.core.logs.causes import find_cause
from cockpit.core.masks import mask_of
from cockpit.core.run.states import Rank, RankState, Run
from cockpit.core.text import one_line

TAIL = 64 << 10
"""Bytes at the end of a failed rank's log that are searched for the cause."""

CRASHES = frozenset({signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL})


def failure(run: Run, name: str, log: bytes | None) -> Finding | None:
    """The rank that failed first, and the cause at the end of its log; None if none has failed.

    :param name: the run's
    :param log: the last bytes of the rank's log (:data:`TAIL` are plenty); None: nobody has read it
    """
    first = run.first_failure()
    if first is None:
        return None
    found = find_cause(log) if log else None
    if found is None:
        found = Finding("", "" if log is None else _silent(first))
    return replace(
        found,
        id="failed",
        what=one_line(f"rank {first.rank} {first.text}"),
        ranks=1 << first.rank,
        detail=one_line(found.what, limit=300),
        steps=(Step(f"cockpit logs {quote(name)} --rank {first.rank}", "its log", action="failed_log"),),
        nodes=(first.node,),
    )


def job_ended(run: Run) -> Finding | None:
    """Why whoever lent the nodes has ended the run; None if nobody has."""
    if not run.job_end:
        return None
    ranks = mask_of(rank.rank for rank in run.ranks.values() if rank.failed)
    what = one_line(run.job_end, limit=300)
    return Finding("job_ended", what, ranks, nodes=tuple(run.nodes), certainty="sure")


def _silent(first: Rank) -> str:
    """What to say about a rank that did not say why it failed."""
    if first.state is not RankState.KILLED:
        return "no traceback in its output"
    if first.signal in CRASHES:
        return "it crashed in native code, without a traceback"
    if first.signal == signal.SIGKILL:
        return "killed from outside: by a person, or by the kernel, out of memory"
    return "it was killed from outside"
