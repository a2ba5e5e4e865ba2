"""Which rank failed first, and why: the finding about a run that failed."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from itertools import islice

from cockpit.base.shell import quote
from cockpit.core.finding import Finding, Step
from cockpit.core.logs.cause_words import Weight
from cockpit.core.logs.causes import weighed_cause
from cockpit.core.masks import mask_of
from cockpit.core.ranks import ranks_named
from cockpit.core.run.memory import last_seen
from cockpit.core.run.states import Rank, RankState, Run
from cockpit.core.text import one_line

TAIL = 64 << 10
"""Bytes at the end of a failed rank's log that are searched for the cause."""

LISTENED = 32
"""Ranks that are gone, the first ones, whose last words are read."""
AT_ONCE_S = 2.0
"""An end is seen by the others before it is recorded: a program takes some time to leave."""
SOON_S = 300.0
"""A rank that a signal killed this soon after its start may have been killed by cockpit's own probe."""

WITHOUT_PROBE = Step("--probe off", "start it again with this, to rule out cockpit's probe in the rank")

CRASHES = frozenset({signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL})


def failure(
    run: Run, name: str, log: bytes | None, last_words: Callable[[Rank], bytes] = lambda rank: b""
) -> Finding | None:
    """The rank that failed first, and the cause at the end of its log; None if none has failed.

    If its log says only that another rank is gone, that is one that failed at once with it and says more of
    itself: what follows from an end may be recorded before it.

    :param name: the run's
    :param log: the last bytes of the rank's log (:data:`TAIL` are plenty); None: nobody has read it
    :param last_words: gives those of another rank
    """
    first = run.first_failure()
    if first is None:
        return None
    weight, found = _weighed(run, first, log)
    if weight == Weight.VICTIM:
        told = ((rank, *_weighed(run, rank, last_words(rank))) for rank in at_once(run, first))
        own = ((rank, cause) for rank, weight, cause in told if weight is not None and weight > Weight.VICTIM)
        first, found = next(own, (first, found))
        weight = weight if first is run.first_failure() else None
    left = _left(run, first) if weight == Weight.VICTIM else []
    if left:
        # That others are gone is all that it says of itself.
        numbers = ranks_named(rank.rank for rank in left)
        return replace(
            found,
            id="failed",
            what=one_line(f"{numbers} exited 0 while the others went on: rank {first.rank} {first.text}"),
            ranks=mask_of(rank.rank for rank in left),
            detail=one_line(found.what, limit=300),
            steps=(_to_log(left[0], name), *_steps(run, first, name)),
            nodes=tuple(dict.fromkeys(rank.node for rank in left)),
        )
    return replace(
        found,
        id="failed",
        what=one_line(f"rank {first.rank} {how(first)}"),
        ranks=1 << first.rank,
        detail=one_line(found.what, limit=300),
        steps=_steps(run, first, name),
        nodes=(first.node,),
    )


def _weighed(run: Run, rank: Rank, log: bytes | None) -> tuple[Weight | None, Finding]:
    """What ended a failed rank, and how much that says of itself; None: it says nothing."""
    kills = oom_kills(run, rank)
    if kills and rank.signal == signal.SIGKILL:
        return Weight.OWN, Finding("", kills, certainty="likely")  # it has printed nothing about its end
    weight, found = (weighed_cause(log) if log else None) or (None, None)
    if found is None:
        found = Finding("", "" if log is None else _silent(run, rank))
    return weight, replace(found, what="; ".join(filter(None, (found.what, kills))))


def how(rank: Rank) -> str:
    """How a rank ended: ``exited 3``, ``killed by SIGKILL, likely by the OOM killer``."""
    likely = rank.signal == signal.SIGKILL and rank.oom_kills
    return f"{rank.text}, likely by the OOM killer" if likely else rank.text


def oom_kills(run: Run, rank: Rank) -> str:
    """What the kernel's OOM killer did while a rank ran, in a sentence; empty: nothing, as far as is known.

    Ranks of a node may share a cgroup, and a rank's helpers do: it need not be this rank that was killed.
    """
    if not rank.oom_kills:
        return ""
    many = "1 process" if rank.oom_kills == 1 else f"{rank.oom_kills:,} processes"
    text = f"the kernel's OOM killer ended {many} of its cgroup while it ran"
    full = last_seen(run, rank)
    return f"{text}; {full}" if full else text


def oom_step(rank: Rank) -> Step:
    """Where the kernel says more of that."""
    return Step("dmesg -T | grep -i oom", "what the kernel says, if users may read it", rank.node)


def blamed(run: Run, cause: Finding | None) -> Rank | None:
    """The rank that failed first, or is gone and seems to have: as its cause says, else as was recorded."""
    named = None
    if cause is not None and cause.id in ("failed", "gone"):
        named = run.ranks.get((cause.ranks & -cause.ranks).bit_length() - 1)
    fits = named is not None and (named.failed or named.state is RankState.GONE)
    return named if fits else run.first_failure()


def at_once(run: Run, first: Rank) -> list[Rank]:
    """Ranks that failed shortly after the first one, the first of them."""
    until = run.ended_at(first) + AT_ONCE_S
    near = (rank for rank in run.failures() if rank is not first and run.ended_at(rank) <= until)
    return list(islice(near, LISTENED))


def _left(run: Run, first: Rank) -> list[Rank]:
    """A few ranks that ended with status 0 by the time the first one failed, while most had not ended."""
    until = run.ended_at(first) + AT_ONCE_S
    left = [
        rank
        for rank in run.ranks.values()
        if rank.state is RankState.EXITED and rank.code == 0 and run.ended_at(rank) <= until
    ]
    return left if 2 * len(left) < len(run.ranks) else []


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
    steps = [_to_log(first, name)]
    if first.oom_kills:
        steps.append(oom_step(first))
    if probe_is_suspect(run, first):
        steps.append(WITHOUT_PROBE)
    return tuple(steps)


def probe_is_suspect(run: Run, first: Rank) -> bool:
    """Whether it died as a mistake of ours in its process could have made it die."""
    if first.state is not RankState.KILLED or first.oom_kills or run.nodes[first.node].probe in ("", "off"):
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
    if first.signal != signal.SIGKILL:
        return "it was killed from outside"
    full = last_seen(run, first)
    if first.oom_kills is not None:
        who = "killed from outside, but not by the kernel's OOM killer, which ended no process of its cgroup"
        return f"{who}; {full}" if full else who
    if full:
        return f"killed by the kernel, as it seems: {full}"
    return "killed from outside: by a person, or by the kernel, out of memory"
