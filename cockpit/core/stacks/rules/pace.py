"""Rules for as long as steps are made: then nobody hangs, and some rank may be slow."""

from __future__ import annotations

from cockpit.core.finding import Finding
from cockpit.core.masks import mask_of
from cockpit.core.stacks.evidence import Case, ClassPart, ranks_words
from cockpit.core.stacks.progress import Progress, SlowRank
from cockpit.core.stacks.sentences import MORE


def slow(case: Case) -> Finding | None:
    """Steps go on, and ranks hold them up."""
    progress = case.progress
    if progress is None or not case.goes_on or not progress.slow:
        return None
    found = [one for one in progress.slow if case.live >> one.rank & 1]
    if not found:
        return None
    first = found[0]
    ranks = mask_of(one.rank for one in found)
    which = ranks_words(ranks, "is", "are")
    part = _part(case, first.rank)
    facts = [_step_fact(progress), *(_slow_words(one) for one in found[1:])]
    if part is not None:
        facts.append(case.part_fact(part))
    detail = ""
    if first.lag:
        detail = "This is how far its CPU lags that enqueues for a GPU: no GPU is slow because of it."
    return Finding(
        "slow",
        f"{which} slow: {_slow_words(first)}",
        ranks,
        part.where if part is not None else "",
        detail,
        tuple(facts),
        "likely",
        (MORE,),
    )


def _slow_words(one: SlowRank) -> str:
    what = "work " if one.work else ""
    text = f"{what}{one.work_s:.2g} s a step against {one.usual_s:.2g}"
    return text if one.waits is None else f"{text}; the others wait {one.waits:.0%} of the time"


def goes_on(case: Case) -> Finding | None:
    """Steps go on: whoever waits just now does not wait for long."""
    if case.progress is None or not case.goes_on:
        return None
    evidence = [_step_fact(case.progress), case.unheard_fact()]
    evidence += [case.part_fact(one) for one in [*case.others, *case.waits]]
    headline = f"steps go on: {_step_words(case.progress)}"
    # Somebody who stands still just now may have begun to hang a moment ago.
    whole = case.live == case.snapshot.world and case.going == case.live
    return Finding("moving", headline, evidence=tuple(evidence), certainty="sure" if whole else "likely")


def _step_words(progress: Progress) -> str:
    return f"step {progress.front:,}, {progress.age_s or 0.0:.1f} s ago"


def _step_fact(progress: Progress) -> str:
    usual = f", {progress.usual_s:.2g} s a step" if progress.usual_s else ""
    told = "" if progress.exact else ", as the log says"
    return f"{_step_words(progress)}{usual}{told}"


def _part(case: Case, rank: int) -> ClassPart | None:
    return next((one for one in [*case.others, *case.waits] if one.ranks >> rank & 1), None)
