"""What notices say: sentences with the time left, and findings, the most urgent first."""

from __future__ import annotations

from collections.abc import Collection
from math import inf

from cockpit.base.events import Notice
from cockpit.core.finding import Finding, Step
from cockpit.core.masks import mask_of
from cockpit.core.rules.explanation import recognised
from cockpit.core.run import memory
from cockpit.core.run.states import Run
from cockpit.core.text import one_line
from cockpit.core.time_text import ahead, clock

FRESH_S = 180.0
"""What was seen longer ago is not told any more: nobody watches."""

STOP = "cockpit stop "
"""Of no use once a run has ended."""

SAID = frozenset({"slow"})
"""Told as they happen; for as long as they last the pace says them (:mod:`cockpit.core.pace.finding`), if it
knows of any work."""

_URGENT = {"error": 0, "warning": 1}
_SURE = {"sure": 0, "likely": 1, "unsure": 2}


def findings(run: Run, name: str, now: float, said: Collection[str] = SAID) -> list[Finding]:
    """All that is to be said while a run goes on, and what was so when it ended, the worst first.

    :param name: the run's
    :param now: unix seconds
    :param said: notices that something else says
    """
    if run.over:
        now = max((run.ended_at(rank) for rank in run.ranks.values() if rank.ended_at), default=now)
    told = sorted(
        (fact for at, fact in run.notices.values() if now - at <= FRESH_S and fact.id not in said),
        key=lambda fact: (fact.due or inf, fact.since),
    )
    found = [*memory.findings(run, name, now), *(_finding(fact, now, over=run.over) for fact in told)]
    found.sort(key=lambda each: (_URGENT.get(each.severity, 1), _SURE[each.certainty]))
    return found


def _finding(fact: Notice, now: float, *, over: bool) -> Finding:
    since = f"since {clock(fact.since, now)}"
    found = Finding(
        fact.id,
        one_line(f"{fact.what} (when the run ended)", limit=300) if over else sentence(fact, now),
        ranks=mask_of(fact.ranks),
        evidence=(*(one_line(text, limit=300) for text in fact.evidence), since),
        certainty=fact.certainty,
        steps=tuple(
            Step(one_line(each.command, limit=300), one_line(each.reason), each.node)
            for each in fact.steps
            if not (over and each.command.startswith(STOP))
        ),
        nodes=fact.nodes,
        severity=fact.severity,
    )
    return recognised(found, f"{fact.of.replace('Xid ', 'Xid-')} {fact.of}")


def sentence(fact: Notice, now: float) -> str:
    """``the disk of gpu03 is full in about 12 min``; what is not certain says so."""
    text = fact.what
    if fact.due is not None:
        text += f" {ahead(fact.due - now)}"
    return one_line(f"{text} (unsure)" if fact.certainty == "unsure" else text, limit=300)
