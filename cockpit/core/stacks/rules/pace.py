"""Rules for as long as steps are made: then nobody hangs, and some rank may be slow."""

from __future__ import annotations

from dataclasses import replace

from cockpit.base.stacks.kinds import WAITING, of_dump
from cockpit.core.finding import Finding
from cockpit.core.masks import mask_of
from cockpit.core.stacks.case import Case
from cockpit.core.stacks.class_facts import ClassPart
from cockpit.core.stacks.progress import Progress, SlowRank
from cockpit.core.stacks.rules import recorder, suspects
from cockpit.core.stacks.sentences import MORE
from cockpit.core.stacks.words import number_text, place_text, ranks_words
from cockpit.core.text import one_line


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
    where = _held_up_at(case, first.rank) or (part.where if part is not None else "")
    # How long a step takes is in the headline.
    facts = [_step_fact(replace(progress, usual_s=None)), *(_slow_words(one) for one in found[1:])]
    if part is not None:
        facts.append(case.part_fact(part, beside=where))
    detail = ""
    if first.lag:
        detail = "This is how far its CPU lags that enqueues for a GPU: no GPU is slow because of it."
    if first.steps is not None:
        which = f"{ranks_words(ranks)} may be"
        facts.insert(0, f"known for the last {first.steps} steps only: ask again after some more")
    return Finding(
        "slow",
        f"{which} slow: {_slow_words(first)}",
        ranks,
        where,
        detail,
        tuple(facts),
        "likely" if first.steps is None else "unsure",
        (MORE,),
    )


def left_behind(case: Case) -> Finding | None:
    """Steps go on, but some ranks make none any more: they wait for one of their own group."""
    progress = case.progress
    if progress is None or not case.goes_on:
        return None
    # Logs need not tell the steps of each rank.
    late = progress.left_behind if progress.exact else case.asleep(progress.slowest_s)
    if not late or late == case.live:
        return None
    places = {rank: place for rank, place in case.snapshot.ranks.items() if late >> rank & 1}
    among = Case(replace(case.snapshot, ranks=places, progress=None))
    rules = (recorder.differ, recorder.circle, recorder.missing, suspects.absent)
    found = next((told for rule in rules if (told := rule(among)) is not None and told.ranks), None)
    if found is None or found.ranks & ~late:
        return None
    going = number_text(case.snapshot.world & ~late, "makes", "make")
    certainty = "likely" if found.certainty == "sure" else found.certainty
    return replace(found, what=f"{found.what}, while {going} progress", certainty=certainty)


def _slow_words(one: SlowRank) -> str:
    what = "work " if one.work else ""
    text = f"{what}{one.work_s:.2g} s per step against {one.usual_s:.2g}"
    text = f"{text} ({one_line(one.why, limit=200)})" if one.why else text
    return text if one.waits is None else f"{text}; the others wait {100 * one.waits:.0f} % of the time"


def goes_on(case: Case) -> Finding | None:
    """Steps go on: whoever waits just now does not wait for long."""
    if case.progress is None or not case.goes_on:
        return None
    evidence = [_step_fact(case.progress), case.unheard_fact()]
    evidence += case.part_facts([*case.others, *case.waits])
    # Somebody who stands still just now may have begun to hang a moment ago.
    whole = case.live == case.snapshot.world and case.going == case.live
    return Finding(
        "moving", "steps continue", evidence=tuple(evidence), certainty="sure" if whole else "likely"
    )


def _step_words(progress: Progress) -> str:
    return f"step {progress.front:,}, {progress.age_s or 0.0:.1f} s ago"


def _step_fact(progress: Progress) -> str:
    usual = f", {progress.usual_s:.2g} s a step" if progress.usual_s else ""
    told = "" if progress.exact else ", as the log says"
    return f"{_step_words(progress)}{usual}{told}"


def _held_up_at(case: Case, rank: int) -> str:
    """Where a rank was when most others waited; empty: in no sample they did."""
    for sample in reversed(case.taken):
        does = {each: of_dump(dump) for each, dump in sample.dumps.items() if dump.threads}
        own = does.pop(rank, None)
        waiting = sum(each.kind in WAITING for each in does.values())
        if own is not None and own.kind not in WAITING and 2 * waiting > len(does):
            return place_text(own.frame)
    return ""


def _part(case: Case, rank: int) -> ClassPart | None:
    return next((one for one in [*case.others, *case.waits] if one.ranks >> rank & 1), None)
