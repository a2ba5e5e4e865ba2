"""Rules about ranks that others wait for, by stacks alone."""

from __future__ import annotations

from dataclasses import replace

from cockpit.base.stacks.kinds import COLLECTIVES, WAITING, doing
from cockpit.core.finding import Finding, Step
from cockpit.core.masks import count, mask_of, ranks_of
from cockpit.core.stacks.case import Case, state_fact
from cockpit.core.stacks.class_facts import state_of, union
from cockpit.core.stacks.sentences import MORE, native_step, story
from cockpit.core.stacks.words import by_reason, number_text, place_text, ranks_words


def gil(case: Case) -> Finding | None:
    """Ranks in which a thread sleeps in C code and keeps the GIL."""
    ranks = case.holders
    if not ranks or 2 * count(ranks) > count(case.live) or case.passing:
        return None
    rank = next(ranks_of(ranks))
    dump = case.dumps(rank)[-1]
    holder = next(thread for thread in dump.threads if thread.gil)
    main = holder is dump.threads[0]
    by = "main thread" if main else f"thread {holder.name}"
    headline = f"{ranks_words(ranks, 'holds', 'hold')} the GIL in C code"
    if case.waits:
        headline += f": {case.wait_words()}"
    sure = case.all_frozen and case.heard and not case.others and not case.gpu_only
    act = doing(holder.frames, dump.process if main else None)
    does = act.text if main and act.kind == "io" else "sleeps"
    detail = f"Its {by} {does} in a C function and keeps the GIL: no other Python thread of it can run."
    facts = (
        f"GIL held by its {by}, asleep, {case.still()}",
        state_fact(dump, detail if main else ""),
        case.wait_fact(),
        case.unheard_fact(),
    )
    return Finding(
        "gil",
        headline,
        ranks,
        place_text(act.frame or (holder.frames[-1] if holder.frames else None)),
        detail,
        facts,
        "sure" if sure else "likely",
        (native_step(rank),),
    )


def absent(case: Case) -> Finding | None:
    """Some wait in a collective, and others are elsewhere."""
    waiting, suspects = case.waiting, case.suspects
    if not waiting or not suspects or count(suspects) > count(waiting) or case.passing:
        return None
    first = case.others[0]
    dump = case.dumps(next(ranks_of(first.ranks)))[-1]
    joined = case.blocked or "the collective"
    if case.gpu_only:
        headline = (
            f"{ranks_words(suspects, 'is', 'are')} not where {number_text(waiting)} wait for their GPUs"
        )
    elif case.looks < 2:
        there = number_text(waiting, "is", "are")
        headline = f"{ranks_words(suspects, 'is', 'are')} not in {joined}, where {there}"
    elif not first.frozen:
        headline = f"{ranks_words(suspects, 'has', 'have')} not reached {joined} yet"
    else:
        named = joined in COLLECTIVES and joined != "wait_tensor"
        joined = joined if named or not case.blocked else f"the others in {joined}"
        headline = f"{ranks_words(suspects)} did not join {joined}"
    kind, detail, steps = story(case, first, dump)
    facts = [case.wait_fact(), case.suspect_fact(first), state_fact(dump, detail)]
    facts += case.part_facts(case.others[1:])
    if case.absent:
        facts.append(f"{ranks_words(mask_of(case.absent))} not found")
    facts.append(case.unheard_fact())
    return Finding(kind, headline, suspects, first.where, detail, tuple(facts), certainty(case), steps)


def group(case: Case) -> Finding | None:
    """Some wait and others do not join them, while the rest goes on: a group that the rest does not need."""
    going = case.live & ~union(one for one in [*case.waits, *case.others] if one.frozen) & ~case.holders
    if not going or going == case.live:
        return None
    places = case.snapshot.ranks
    group = {rank: place for rank, place in places.items() if not going >> rank & 1}
    found = absent(Case(replace(case.snapshot, ranks=group)))
    if found is None:
        return None
    # Those that make progress elsewhere may be on their way to the same collective.
    likely = found.certainty == "sure" and all(one.frozen for one in case.others)
    headline = f"{found.what}, while {number_text(going, 'makes', 'make')} progress"
    return replace(found, what=headline, certainty="likely" if likely else "unsure")


def certainty(case: Case) -> str:
    """How certain it is that the suspects are what the others wait for."""
    if case.looks < 2:
        return "unsure"
    doubts = (
        not case.all_frozen,
        not all(one.frozen for one in case.others),
        not case.heard,
        bool(case.absent),
        # One of them may be what the next one waits for.
        len(case.others) > 1,
        # A wait for a GPU may be for anything; and a wait in a library may be one for other ranks.
        case.gpu_only,
        any(one.kind == "library" for one in case.others),
        any(one.kind not in WAITING for one in case.waits),
        2 * count(case.suspects) >= count(case.live),
    )
    return "likely" if any(doubts) else "sure"


def unheard(case: Case) -> Finding | None:
    """All ranks with a stack wait in a collective, and some have not answered."""
    ranks = mask_of(case.unheard)
    if not ranks or case.others or not case.waits or case.passing:
        return None
    (why, group), *_ = by_reason(case.unheard, ranks)
    dump = case.sample.dumps.get(next(ranks_of(group)))
    hint = dump.hint if dump is not None else ""
    few = count(ranks) <= count(case.waiting) and case.all_frozen
    return Finding(
        "silent",
        f"{ranks_words(ranks)} did not answer: {case.wait_words()}",
        ranks,
        "",
        why,
        (case.wait_fact(), state_fact(dump) if dump is not None else ""),
        # In state D it does not answer because it is stuck.
        "likely" if few and state_of(dump) == "D" else "unsure",
        (Step.hinted(hint),) if hint else (),
    )


def few(case: Case) -> Finding | None:
    """A few wait in a collective in which the many are not."""
    if not case.waits or count(case.suspects) <= count(case.waiting) or not case.frozen:
        return None
    if not any(one.frozen for one in case.others):
        headline = f"{case.wait_words()}, {number_text(case.suspects, 'is', 'are')} on the way"
        return Finding("moving", headline, evidence=(case.wait_fact(),), steps=(MORE,))
    sleepers = [one for one in case.others if one.frozen]
    ranks = union(sleepers)
    if case.looks > 1 and count(ranks) > count(case.waiting):
        # Whoever waits in a collective has come there: those who sleep elsewhere have not.
        first = sleepers[0]
        kind, detail, steps = story(case, first, case.dumps(next(ranks_of(first.ranks)))[-1])
        waits = ranks_words(case.waiting, "waits", "wait")
        headline = f"{ranks_words(ranks)} did not reach {case.blocked or 'collectives'}, where {waits}"
        facts = (case.wait_fact(), *case.part_facts(case.others), case.unheard_fact())
        # At several places, some of them may only be between two steps of their own.
        one_place = len({one.where for one in sleepers}) == 1 and len(sleepers) == len(case.others)
        likely = one_place and case.all_frozen and case.heard and case.lasts
        return Finding(
            kind, headline, ranks, first.where, detail, facts, "likely" if likely else "unsure", steps
        )
    waits = ranks_words(case.waiting, "waits", "wait")
    return Finding(
        "mismatch",
        f"{waits} in {case.blocked or 'collectives'}, in which {number_text(case.suspects, 'is', 'are')} not",
        case.waiting,
        case.waits[0].where,
        "Either these few called what the others never reach, or the others are held up elsewhere.",
        (case.wait_fact(), *case.part_facts(case.others), case.unheard_fact()),
        steps=(MORE,),
    )
