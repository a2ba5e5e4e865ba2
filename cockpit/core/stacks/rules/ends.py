"""Rules about ranks that have ended, are stopped, or were never there."""

from __future__ import annotations

from collections import defaultdict
from signal import SIGKILL, SIGTERM

from cockpit.base.shell import quote
from cockpit.core.finding import Finding, Step
from cockpit.core.masks import count, mask_of, ranks_of
from cockpit.core.run.first import AT_ONCE_S, any_at_once
from cockpit.core.stacks.case import EVIDENCE, Case, state_fact
from cockpit.core.stacks.class_facts import state_of, union
from cockpit.core.stacks.collectives import Mismatch
from cockpit.core.stacks.facts import LASTS_S
from cockpit.core.stacks.fate import End, Fate
from cockpit.core.stacks.rules.recorder import broke, mismatch_headline, mismatch_words
from cockpit.core.stacks.sentences import MORE, story
from cockpit.core.stacks.words import by_reason, ended_words, every_text, place_text, ranks_words

TOGETHER_S = 0.1
"""Clocks of nodes differ by some of this: ends that are closer have no order."""


def nothing(case: Case) -> Finding | None:
    """Nobody was asked, or nobody answered."""
    if not case.snapshot.ranks:
        return Finding("unknown", "no ranks to inspect")
    if case.ended or case.absent or case.stopped or case.live:
        return None
    if case.pending:
        return Finding("unknown", "no rank has answered yet")
    hint = next((dump.hint for dump in case.sample.dumps.values() if dump.hint), "")
    why = next(iter(case.unheard.values()))
    return Finding(
        "unknown", "no rank could be inspected", detail=why, steps=(Step.hinted(hint),) if hint else ()
    )


def ended(case: Case) -> Finding | None:
    """Ranks whose process is over."""
    if not case.ended:
        return None
    good = mask_of(rank for rank, why in case.ended.items() if why.good)
    bad = mask_of(case.ended) & ~good
    if good == case.snapshot.world:
        return Finding(
            "over", every_text(good, "has ended with status 0", "have ended with status 0"), certainty="sure"
        )
    # An end is early only if somebody waits for the rank: it may simply have finished.
    if not bad and not case.frozen and not case.stands:
        return None
    # Who has left was through; who is here and does not get on is not.
    if not bad and case.others and all(one.frozen for one in case.others):
        if case.waits:
            return None
        if 2 * count(good) >= count(case.snapshot.world):
            return _lingers(case)
    # SIGTERM is what launchers end the others with.
    late = mask_of(rank for rank in ranks_of(bad) if case.ended[rank].signal == SIGTERM)
    # One that leaves takes the connections of the others with it: they may have failed because of that.
    few = good if 2 * count(good) < count(case.snapshot.world) else 0
    left = few if bad and _left(case, few, bad) else 0
    first = left or _earliest(case, bad & ~late or bad or good)
    if not bad and count(good) > 1 and all(one.kind == "store" for one in case.waits):
        headline = f"{ranks_words(good)} exited 0: {case.wait_words()}"
        detail = "The stacks don't show whose key it waits for."
        return Finding(
            "exited", headline, 0, "", detail, (case.wait_fact(), case.unheard_fact()), steps=(MORE,)
        )
    reasons = by_reason(case.ended, first)
    (why, ranks), *more = reasons
    headline = ended_words(why, ranks)
    if more:
        headline += f", {ranks_words(first & ~ranks)} ended too"
    # Of ranks that call different things any may fail first, not only the odd one.
    differing = broke(case) if bad and not left and not _outside(why) else None
    if differing is not None:
        headline += f": {mismatch_headline(differing)}"
    elif case.waits:
        headline += f": {case.wait_words()}"
    alone = count(first) == 1
    # A failure that was recorded is one, whatever the others do; an end that was not may be a restart.
    waited = case.all_frozen and case.heard and not case.others
    recorded = bool(bad) and why.recorded
    sure = alone and why.fate is not Fate.GONE and (waited or recorded) and not (bad and few)
    # Who fails because of another one may be through with it sooner.
    sure = sure and not (why.fate is Fate.EXITED and _at_once(case, first, bad & ~late & ~first))
    if rest := bad & ~late & ~first:
        more = [*more, *by_reason(case.ended, rest)]
    facts = [mismatch_words(differing)] if differing is not None else []
    facts += [ended_words(end, group) for end, group in more]
    facts.append(case.wait_fact())
    # Nobody is left who could come; or somebody is who may just work.
    never = recorded or (waited and all(one.kind == "collective" for one in case.waits))
    if late & ~first:
        facts.append(f"{ranks_words(late & ~first)} ended by SIGTERM, as launchers end the others")
    return Finding(
        "ended" if bad and not left else "exited",
        headline,
        first if differing is None else first | differing.odd & case.snapshot.world,
        detail=_ended_detail(differing, alone=alone),
        evidence=(*facts, case.unheard_fact()),
        certainty="sure" if sure and differing is None else "likely",
        steps=_ended_steps(case, next(ranks_of(ranks)), why),
        proof="end" if never else "",
    )


def _lingers(case: Case) -> Finding:
    """Ranks that stand still in their own code after the others have left."""
    first = case.others[0]
    ranks = union(case.others)
    dump = case.dumps(next(ranks_of(first.ranks)))[-1]
    kind, detail, steps = story(case, first, dump)
    headline = f"{ranks_words(ranks, 'has', 'have')} not ended: the others exited 0"
    facts = (*case.part_facts(case.others), state_fact(dump, detail), case.unheard_fact())
    likely = "likely" if case.lasts and case.heard else "unsure"
    return Finding(kind, headline, ranks, first.where, detail, facts, likely, steps)


def _ended_detail(differing: Mismatch | None, *, alone: bool) -> str:
    if differing is not None:
        return "All ranks of a group must call the same collectives in the same order; else any may fail."
    return "" if alone else "Several ranks have exited; the stacks don't show which one exited first."


def _outside(why: End) -> bool:
    """Whether somebody else ended them: no call of theirs did."""
    return why.signal in (SIGKILL, SIGTERM)


def _at_once(case: Case, ranks: int, others: int) -> bool:
    """Whether one of these ended with an error shortly after those, by records of both."""
    ends = case.snapshot.ranks
    first = min((at for rank in ranks_of(ranks) if (at := ends[rank].ended_at) is not None), default=None)
    return any_at_once(first, (ends[rank].ended_at for rank in ranks_of(others)))


def _left(case: Case, ranks: int, others: int) -> bool:
    """Whether all of these had ended when the others failed, none of which crashed: by records of both."""
    ends = [[case.snapshot.ranks[rank].ended_at for rank in ranks_of(some)] for some in (ranks, others)]
    mine, theirs = ([at for at in some if at is not None] for some in ends)
    theirs_ended = [case.ended[rank] for rank in ranks_of(others)]
    failed = all(end.fate is Fate.EXITED or end.signal == SIGTERM for end in theirs_ended)
    known = bool(mine and theirs) and len(mine) == count(ranks)
    return failed and known and max(mine) <= min(theirs) + AT_ONCE_S


def _earliest(case: Case, ranks: int) -> int:
    """Of ranks that have ended those that ended first, if that was recorded of all of them."""
    times = {rank: case.snapshot.ranks[rank].ended_at for rank in ranks_of(ranks)}
    known = {rank: at for rank, at in times.items() if at is not None}
    if len(known) < len(times) or len(known) < 2:
        return ranks
    first = min(known.values())
    return mask_of(rank for rank, at in known.items() if at - first < TOGETHER_S)


def _ended_steps(case: Case, rank: int, why: End) -> tuple[Step, ...]:
    node, pid = case.process_of(rank)
    steps = []
    if case.snapshot.run:
        steps.append(Step(f"cockpit logs {quote(case.snapshot.run)} --rank {rank}", "the end of its log"))
    if node and why.signal == SIGKILL:
        steps.append(Step("dmesg -T | grep -i oom", node=node))
    if node and why.fate is Fate.DEAD:
        steps.append(Step(f"ps -o ppid= -p {pid}", "its parent has not reaped it", node))
    return tuple(steps)


def stopped(case: Case) -> Finding | None:
    """Ranks that somebody has stopped."""
    if not case.stopped:
        return None
    ranks = case.stopped
    dumps = {rank: case.dumps(rank) for rank in ranks_of(ranks)}
    traced = all(state_of(each[-1]) == "t" for each in dumps.values())
    how = "held by a debugger (state t)" if traced else "stopped (state T)"
    headline = f"{ranks_words(ranks, 'is', 'are')} {how}"
    if case.waits:
        headline += f": {case.wait_words()}"
    always = case.looks > 1 and all(
        len(each) == case.looks and all(state_of(dump) == "T" for dump in each) for each in dumps.values()
    )
    sure = always and case.heard and not case.others and (case.all_frozen or not case.waits)
    stopped: dict[str, list[str]] = defaultdict(list)
    for node, pid in map(case.process_of, ranks_of(ranks)):
        if node and pid and not traced:
            stopped[node].append(str(pid))
    part = next((one for one in case.classes if one.ranks & ranks), None)
    facts = (
        f"state T in {case.looks} of {case.looks} samples" if always else "",
        case.wait_fact(),
        case.unheard_fact(),
    )
    return Finding(
        "stopped",
        headline,
        ranks,
        place_text(part.doing.frame) if part is not None else "",
        "" if traced else "Stopped by SIGSTOP, a debugger or the batch system; SIGCONT resumes it.",
        facts,
        "sure" if sure else "likely",
        tuple(Step(f"kill -CONT {' '.join(pids)}", node=node) for node, pids in stopped.items())[:EVIDENCE],
        proof="stop" if always and _stays_stopped(case) else "",
    )


def _stays_stopped(case: Case) -> bool:
    """Whether those that are stopped have been so for most of the standstill, while others were not.

    Who is stopped and continued in turn, by a limit of power or of a container, moves; and what suspends a
    whole job, as a batch system does, lets it go on again.
    """
    for_s = max(LASTS_S, (case.for_s or 0.0) / 2)
    return bool(case.live) and case.asleep(for_s, case.stopped) == case.stopped


def twice(case: Case) -> Finding | None:
    """Two processes that have one rank, while nothing goes on."""
    told = case.snapshot.twice
    if not told or not case.stands or case.goes_on:
        return None
    ranks = mask_of(told) & case.snapshot.world
    headline = f"{ranks_words(ranks, 'is', 'are')} claimed by two processes"
    if case.waits:
        headline += f": {case.wait_words()}"
    facts = (*told.values(), case.wait_fact(), case.unheard_fact())
    detail = "Two processes with one rank: two launches at once, or a leftover of an earlier job."
    return Finding("twice", headline, ranks, "", detail, facts, "likely")


def not_there(case: Case) -> Finding | None:
    """Ranks that nobody has seen."""
    ranks = mask_of(case.absent)
    if not ranks or (case.waits and case.passing):
        return None
    if case.waits and case.others and count(ranks) > count(case.live):
        return None  # most of the job was not asked; what is odd among the rest is the better answer
    (why, group), *_ = by_reason(case.absent, ranks)
    headline = ended_words(why, group)
    if case.waits:
        headline += f": {case.wait_words()}"
    steps: tuple[Step, ...] = ()
    detail = "The launcher is running, but the training process hasn't started."
    if why.fate is not Fate.UNSTARTED:
        detail = "They have ended, or are on nodes that were not asked."
        if count(ranks) == 1:
            detail = "It has ended, or is on a node that was not asked."
        steps = (Step("name every node of the job in the hostfile"),)
    likely = case.frozen and case.heard and not case.others
    return Finding(
        "missing",
        headline,
        ranks,
        "",
        detail,
        (case.wait_fact(), *case.part_facts(case.others), case.unheard_fact()),
        "likely" if likely else "unsure",
        steps,
    )
