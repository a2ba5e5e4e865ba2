"""Rules for when no rank waits for others."""

from __future__ import annotations

from dataclasses import replace

from cockpit.base.stacks.kinds import of_dump
from cockpit.core.finding import Finding
from cockpit.core.masks import count, mask_of, ranks_of
from cockpit.core.stacks.case import Case
from cockpit.core.stacks.class_facts import bad_child, serves, union
from cockpit.core.stacks.sentences import MORE, STEPS, story
from cockpit.core.stacks.words import does_words, every_text, number_text, place_text, ranks_words


def at_one_place(case: Case) -> Finding | None:
    """Nobody is in a collective, and many do not move: loaders, builds, files, locks."""
    still = [one for one in case.others if one.frozen]
    ranks = union(still)
    if not still or case.waits or 2 * count(ranks) < count(case.live):
        return None
    parts = sorted(still, key=lambda one: -count(union(each for each in still if each.kind == one.kind)))
    parts = [one for one in parts if one.kind == parts[0].kind]
    group = union(parts)
    broken = mask_of(rank for rank in ranks_of(group) if bad_child(case.dumps(rank)[-1]) is not None)
    rank = next(ranks_of(broken or group))
    part = next(one for one in parts if one.ranks >> rank & 1)
    kind, detail, steps = story(case, part, case.dumps(rank)[-1])
    facts = (
        f"{number_text(ranks)}{case.lasting()}, {case.still()}",
        *case.part_facts(still),
        case.unheard_fact(),
    )
    waits = every_text(group, "waits", "wait") if group == case.live else ranks_words(group, "waits", "wait")
    if kind == "loader":
        certainty = "likely" if broken else "unsure"
        headline = f"{waits} for data"
        return Finding(kind, headline, broken or group, part.where, detail, facts, certainty, steps)
    if kind == "build":
        return _build(case, group, Finding(kind, "", group, part.where, detail, facts, "likely", steps))
    file = case.dumps(rank)[-1].lock
    holders = case.lock_holders(group)
    if kind == "lock" and file is not None and holders:
        holder = next(one for one in [*case.others, *case.waits] if one.ranks & holders)
        has = ranks_words(holders, "has", "have")
        headline = f"{has} the lock {file.path}, for which {number_text(group, 'waits', 'wait')}"
        _, detail, steps = story(case, holder, case.dumps(next(ranks_of(holders)))[-1])
        return Finding(kind, headline, holders, holder.where, detail, facts, "likely", steps)
    if kind == "lock" and file is not None:
        headline = f"{waits} for the lock {file.path}"
        headline += "" if file.holder else ", which nobody holds"
        certainty = "sure" if not file.holder and case.lasts and group == case.live else "likely"
        return Finding(kind, headline, group, part.where, detail, facts, certainty, steps)
    act = part.found.doing
    # A socket leads to somebody who may just have nothing to say.
    outside = part.found.doing.what not in ("", "socket") and not serves(part)
    # Of those at one place, some may be woken now and then: they are another class.
    if kind == "io" and outside and len({one.deed for one in parts}) == 1:
        does = part.found.doing.text
        more = len({of_dump(case.dumps(rank)[-1]).what for rank in ranks_of(group)}) - 1
        does += f" and {more:,} more like it" if more else ""
        headline = (
            f"{ranks_words(group) if group != case.live else every_text(group, '', '').strip()}: {does}"
        )
        certainty = "likely" if case.lasts else "unsure"
        return Finding(kind, headline, group, part.where, detail, facts, certainty, steps)
    one_place = len({(one.deed, one.where) for one in parts}) == 1
    if group == case.live and one_place and part.where and act.what != "thread" and not serves(part):
        if count(group) == 1:
            headline = f"{ranks_words(group)} has not moved"
            return Finding("together", headline, 0, part.where, detail, facts, "unsure", steps)
        headline = f"{every_text(group, 'is', 'are')} frozen at one place"
        # Nobody in particular: what all of them wait for is outside, or they wait for each other there.
        detail = f"All of them {does_words(act.text, group)}." if detail == f"It {act.text}." else detail
        detail = detail.replace("It ", "Each of them ", 1)
        return Finding("together", headline, 0, part.where, detail, facts, "unsure", (*steps, *STEPS[:1]))
    headline = f"{number_text(ranks, 'has', 'have')} not moved, none of them in a collective"
    if part.found.doing.what == "thread" and group == ranks:
        # A program that trains in another thread has only this wait in the main one.
        headline = f"{every_text(group, 'waits', 'wait')} for another thread, none in a collective"
    return Finding("unknown", headline, 0, part.where, detail, facts, steps=steps)


def _build(case: Case, group: int, found: Finding) -> Finding:
    """Who waits for a build: whoever builds is what they wait for, if somebody does."""
    builders = union(one for one in case.others if one.found.doing.what == "builds")
    differs = [one for one in case.others if not one.ranks & group]
    if not builders and 2 * count(group) > count(case.live):
        # Whoever does something else than to wait for the lock is the one that has it.
        builders = union(differs)
    builders = case.lock_holders(group) or builders
    waits = group & ~builders
    if not builders:
        words = (
            every_text(group, "waits", "wait") if group == case.live else ranks_words(group, "waits", "wait")
        )
        if case.heard and not case.absent:
            return replace(found, what=f"{words} for a build that no rank is running")
        # Whoever did not answer may be the one that builds.
        return replace(found, what=f"{words} for a build", ranks=0, certainty="unsure")
    part = next(one for one in case.others if one.ranks & builders)
    headline = f"{ranks_words(builders, 'builds', 'build')} an extension"
    if part.found.doing.what != "builds":
        headline = f"{ranks_words(builders, 'has', 'have')} not built"
    if waits:
        it = "for it" if part.found.doing.what == "builds" else "for a build"
        headline += f", {number_text(waits, 'waits', 'wait')} {it}"
    _, detail, steps = story(case, part, case.dumps(next(ranks_of(builders)))[-1])
    return replace(found, what=headline, ranks=builders, where=part.where, detail=detail, steps=steps)


def loop(case: Case) -> Finding | None:
    """No step is made any more, and most ranks are busy in one function of the user's."""
    if case.progress is None or case.progress.goes_on is not False or case.looks < 2 or case.waits:
        return None
    going = [one for one in case.others if not one.frozen]
    ranks = mask_of(rank for rank in ranks_of(union(going)) if case.loops(rank))
    if not ranks or 2 * count(ranks) <= count(case.live):
        return None
    dump = case.dumps(next(ranks_of(ranks)))[-1]
    act = of_dump(dump)
    where = place_text(act.frame)
    headline = f"{every_text(ranks, 'is', 'are')} busy in one function{case.lasting()}, and no step completes"
    if ranks != case.live:
        headline = f"{ranks_words(ranks, 'is', 'are')} busy in one function, and no step completes"
    detail = f"It is in: {dump.loop}" if dump.loop else "An endless loop, or a step that takes much longer."
    facts = (f"{case.looks} samples, {case.span}", *case.part_facts(going))
    return Finding("loop", headline, ranks, where, detail, facts, "likely", STEPS)


def moving(case: Case) -> Finding | None:
    """Nobody is stuck, or only a few that nobody waits for."""
    if case.looks < 2 or not case.live:
        return None
    parts = [one for one in [*case.others, *case.waits] if one.frozen]
    still = union(parts) | case.holders
    going = case.live & ~still
    facts = [f"{case.looks} samples, {case.span}", case.unheard_fact()]
    if not still and case.busy == going:
        headline = f"{every_text(going, 'is', 'are')} busy, at the same place in {case.looks} samples"
        facts = [case.span, *case.part_facts([*case.others, *case.waits])]
        detail = "A long step, an endless loop, or a wait for a GPU that keeps a core busy."
        return Finding("moving", headline, 0, "", detail, tuple(facts), steps=STEPS)
    if not still:
        certainty = "sure" if going == case.snapshot.world and not case.busy else "likely"
        facts.insert(1, f"{ranks_words(case.busy)} busy at one place" if case.busy else "")
        headline = f"{every_text(going, 'is', 'are')} moving"
        return Finding("moving", headline, evidence=tuple(facts), certainty=certainty)
    if count(still) > count(going):
        return None
    headline = f"{number_text(going, 'is', 'are')} moving, {ranks_words(still, 'has', 'have')} not moved"
    facts += case.part_facts(parts)
    where = parts[0].where if parts else ""
    return Finding("moving", headline, still, where, evidence=tuple(facts), steps=(MORE,))
