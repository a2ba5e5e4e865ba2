"""Which rank failed first, and why: the finding about a run that failed."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import replace

from cockpit.base.shell import quote
from cockpit.core.finding import Finding, Step
from cockpit.core.logs.cause_words import Weight
from cockpit.core.logs.causes import Cause
from cockpit.core.masks import mask_of, ranks_of
from cockpit.core.ranks import ranks_named
from cockpit.core.rules.explanation import explanation, meant
from cockpit.core.rules.row import Row
from cockpit.core.run.first import CRASHES, LISTENED, First, Listen, first_of
from cockpit.core.run.memory import last_seen
from cockpit.core.run.states import Rank, RankState, Run, signal_name
from cockpit.core.text import one_line

SOON_S = 300.0
"""A rank that a signal killed this soon after its start may have been killed by cockpit's own probe."""

WITHOUT_PROBE = Step("--probe off", "restart with this to rule out cockpit's probe in the rank")


Near = Callable[[Rank, Cause], Sequence[bytes]]
"""Gives the lines of a rank's log near its cause, the nearest first."""


def _nothing(rank: Rank, cause: Cause) -> Sequence[bytes]:
    return ()


def failure(run: Run, name: str, listen: Listen | None = None, near: Near = _nothing) -> Finding | None:
    """The rank that broke first, and why; None if none has failed.

    :param name: the run's
    :param listen: gives what ranks say; None: nobody has read their logs
    """
    if listen is None:
        recorded = run.first_failure()
        first = None if recorded is None else First(1 << recorded.rank, "broke")
    else:
        first = first_of(run, listen)
    if first is None:
        return None
    ranks = [run.ranks[number] for number in ranks_of(first.ranks)]
    told = Finding("failed", "") if first.cause is None else first.cause.found
    if first.how == "broke" and ranks[0].signal == signal.SIGKILL and oom_kills(run, ranks[0]):
        told = Finding("failed", "", certainty="likely")  # it has printed nothing about its end
    read = listen is not None and listen(ranks[0]) is not None
    found = replace(
        told,
        id="failed",
        what=one_line(_what(run, first, ranks)),
        ranks=first.ranks,
        detail=one_line(_why(run, first, ranks[0], told.what, read=read), limit=300),
        steps=_steps(run, ranks[0], name),
        nodes=tuple(dict.fromkeys(rank.node for rank in ranks)),
        certainty="sure" if first.sure and first.cause and told is first.cause.found else told.certainty,
    )
    return meant(found, _explained(first, ranks[0], near)) if read or first.cause else found


def _explained(first: First, rank: Rank, near: Near) -> Row | None:
    cause = first.cause
    facts = recorded(rank) if first.how == "broke" else frozenset()
    return explanation(cause.said, near(rank, cause), facts) if cause else explanation(b"", (), facts)


def recorded(rank: Rank) -> frozenset[str]:
    """What is recorded of its end, for rules."""
    found = set() if rank.signal is None else {signal_name(rank.signal)}
    if rank.oom_kills is not None:
        found.add("oom" if rank.oom_kills else "no-oom")
    return frozenset(found)


def _what(run: Run, first: First, ranks: Sequence[Rank]) -> str:
    rank, numbers = ranks[0], ranks_named(rank.rank for rank in ranks)
    if first.how == "unknown":
        return f"which rank failed first is unknown: {numbers} waited for others"
    if first.how == "left":
        failed = run.first_failure()
        rest = "" if failed is None else f": rank {failed.rank} {failed.text}"
        return f"{numbers} exited 0 while the others continued{rest}"
    if first.how == "absent":
        return f"{numbers} did not join the others"
    return f"rank {rank.rank} {how(rank) if rank in run.failures() else 'raised an error, but did not exit'}"


def _why(run: Run, first: First, rank: Rank, words: str, *, read: bool) -> str:
    """What ended it, in a sentence; of one that is silent what others say, or what such an end means."""
    if first.how != "broke":
        return words
    kills = oom_kills(run, rank)
    silent = _silent(run, rank) if read and not (kills and rank.signal == signal.SIGKILL) else ""
    return "; ".join(filter(None, (words or silent, kills)))


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
    text = f"the kernel's OOM killer killed {many} of its cgroup while it ran"
    full = last_seen(run, rank)
    return f"{text}; {full}" if full else text


def oom_step(rank: Rank) -> Step:
    """Where the kernel says more of that."""
    return Step("dmesg -T | grep -i oom", "what the kernel says, if users may read it", rank.node)


def blamed(run: Run, cause: Finding | None) -> Rank | None:
    """The rank that broke first, or is gone and seems to have: as its cause says, else as was recorded."""
    if cause is not None and cause.id in ("failed", "gone") and cause.ranks:
        return run.ranks.get((cause.ranks & -cause.ranks).bit_length() - 1)
    return run.first_failure()


def gone(
    run: Run, name: str, listen: Listen, own: Callable[[Rank], bool], near: Near = _nothing
) -> Finding | None:
    """The rank that is gone and whose output ends as that of one that failed: nobody saw how it ended.

    What it says of itself counts more than what it saw of others; among equals the first that went counts.

    :param name: the run's
    :param own: whether what a rank says is from a log of its own alone
    """
    went = sorted((rank for rank in run.ranks.values() if rank.state is RankState.GONE), key=run.ended_at)
    told = ((listen(rank), rank) for rank in went[:LISTENED])
    # A line that says it is an error is not what ends a rank.
    ends = [
        (said.cause, rank)
        for said, rank in told
        if said and said.cause and said.cause.weight >= Weight.VICTIM
    ]
    if not ends:
        return None
    cause, rank = max(ends, key=lambda end: end[0].weight)
    whose = "its log" if own(rank) else "its launcher's output"
    found = replace(
        cause.found,
        id="gone",
        what=f"rank {rank.rank} is gone; {whose} ends with an error",
        ranks=1 << rank.rank,
        detail=one_line(cause.found.what, limit=300),
        certainty="likely" if own(rank) else "unsure",
        steps=(_to_log(rank, name),),
        nodes=(rank.node,),
    )
    return meant(found, explanation(cause.said, near(rank, cause)))


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
        if not run.nodes[first.node].done:
            return "no traceback in what was fetched of its output"
        return "no traceback in its output"
    if first.signal == signal.SIGBUS:
        return "a bus error, without a traceback"
    if first.signal in CRASHES:
        return "it crashed in native code, without a traceback"
    if first.signal != signal.SIGKILL:
        return "it was killed from outside"
    full = last_seen(run, first)
    if first.oom_kills is not None:
        who = "killed from outside, but not by the kernel's OOM killer, which killed no process of its cgroup"
        return f"{who}; {full}" if full else who
    if full:
        return f"apparently killed by the kernel: {full}"
    return "killed from outside"
