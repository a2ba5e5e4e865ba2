"""Which rank failed first, and why: the finding about a run that failed."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace

from cockpit.base.shell import quote
from cockpit.core.finding import Finding, Step
from cockpit.core.logs.cause_words import Weight
from cockpit.core.logs.causes import find_cause, weighed_cause
from cockpit.core.masks import mask_of
from cockpit.core.run.memory import last_seen
from cockpit.core.run.states import Rank, RankState, Run
from cockpit.core.text import one_line

TAIL = 64 << 10
"""Bytes at the end of a failed rank's log that are searched for the cause."""

LISTENED = 32
"""Ranks that are gone, the first ones, whose last words are read."""
SOON_S = 300.0
"""A rank that a signal killed this soon after its start may have been killed by cockpit's own probe."""

WITHOUT_PROBE = Step("--probe off", "start it again with this, to rule out cockpit's probe in the rank")

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
        found = Finding("", "" if log is None else _silent(run, first))
    return replace(
        found,
        id="failed",
        what=one_line(f"rank {first.rank} {first.text}"),
        ranks=1 << first.rank,
        detail=one_line(found.what, limit=300),
        steps=_steps(run, first, name),
        nodes=(first.node,),
    )


def gone(run: Run, name: str, last_words: Callable[[Rank], tuple[bytes, bool]]) -> Finding | None:
    """The rank that is gone and whose output ends as that of one that failed: nobody saw how it ended.

    What it says of itself counts more than what it saw of others; among equals the first that went counts.

    :param name: the run's
    :param last_words: the last bytes of a rank's output, and whether they are its own alone
    """
    went = sorted((rank for rank in run.ranks.values() if rank.state is RankState.GONE), key=run.ended_at)
    best: tuple[Weight, Rank, Finding, bool] | None = None
    for rank in went[:LISTENED]:
        log, own = last_words(rank)
        found = weighed_cause(log) if log else None
        if found is None or found[0] < Weight.VICTIM:
            continue  # a line that says it is an error is not what ends a rank
        if best is None or found[0] > best[0]:
            best = (*found[:1], rank, found[1], own)
    if best is None:
        return None
    _, rank, cause, own = best
    whose = "its log" if own else "its launcher's output"
    return replace(
        cause,
        id="gone",
        what=f"rank {rank.rank} is gone; {whose} ends with an error",
        ranks=1 << rank.rank,
        detail=one_line(cause.what, limit=300),
        certainty="likely" if own else "unsure",
        steps=(_to_log(rank, name),),
        nodes=(rank.node,),
    )


def _to_log(rank: Rank, name: str) -> Step:
    return Step(f"cockpit logs {quote(name)} --rank {rank.rank}", "its log", action="failed_log")


def _steps(run: Run, first: Rank, name: str) -> tuple[Step, ...]:
    log = _to_log(first, name)
    return (log, WITHOUT_PROBE) if probe_is_suspect(run, first) else (log,)


def probe_is_suspect(run: Run, first: Rank) -> bool:
    """Whether it died as a mistake of ours in its process could have made it die."""
    if first.state is not RankState.KILLED or run.nodes[first.node].probe in ("", "off"):
        return False
    return (first.ended_at or 0.0) - (first.started_at or 0.0) < SOON_S


def job_ended(run: Run) -> Finding | None:
    """Why whoever lent the nodes has ended the run; None if nobody has."""
    if not run.job_end:
        return None
    ranks = mask_of(rank.rank for rank in run.ranks.values() if rank.failed)
    what = one_line(run.job_end, limit=300)
    return Finding("job_ended", what, ranks, nodes=tuple(run.nodes), certainty="sure")


def _silent(run: Run, first: Rank) -> str:
    """What to say about a rank that did not say why it failed."""
    if first.state is not RankState.KILLED:
        return "no traceback in its output"
    if first.signal in CRASHES:
        return "it crashed in native code, without a traceback"
    if first.signal == signal.SIGKILL and (full := last_seen(run, first)):
        return f"killed by the kernel, as it seems: {full}"
    if first.signal == signal.SIGKILL:
        return "killed from outside: by a person, or by the kernel, out of memory"
    return "it was killed from outside"
