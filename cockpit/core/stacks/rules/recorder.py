"""Rules about what the flight recorders say: who has not entered what, and who calls something else."""

from __future__ import annotations

from cockpit.core.finding import Finding
from cockpit.core.masks import count, mask_of, ranks_of
from cockpit.core.stacks.case import Case, state_fact
from cockpit.core.stacks.class_facts import ROOTS, ClassPart, union
from cockpit.core.stacks.collectives import Mismatch, Wait
from cockpit.core.stacks.sentences import MORE, STEPS, story
from cockpit.core.stacks.waits import Need, Waits
from cockpit.core.stacks.words import number_text, ranks_words


def differ(case: Case) -> Finding | None:
    """Ranks that call different things under one number, and wait in it."""
    if case.recorded is None or case.goes_on or case.passing:
        return None
    found = next((one for one in case.recorded.mismatches if one.going and len(one.calls) > 1), None)
    if found is None:
        return None
    few = found.odd & case.snapshot.world
    headline = mismatch_headline(found)
    facts = (mismatch_words(found), case.wait_fact(), case.unheard_fact())
    detail = "All ranks of a group must call the same collective under the same number."
    return Finding("mismatch", headline, few, _where(case, few), detail, facts, _certainty(case, few), STEPS)


def circle(case: Case) -> Finding | None:
    """Ranks that wait for each other in a circle: they call, send or receive in different orders."""
    if case.goes_on or case.passing:
        return None
    graph = Waits(case)
    ranks = graph.circle
    if not ranks:
        return None
    needs = {rank: graph.needs[rank][0] for rank in ranks_of(ranks) if rank in graph.needs}
    pairs = sum(need.send is not None for need in needs.values())
    odd = graph.odd(ranks)
    certainty = _certainty(case, odd)
    sure = all(need.sure for need in needs.values()) and len(needs) == count(ranks)
    sure = sure or (graph.closed and any(need.sure for need in needs.values()))
    # Of two that receive from each other one may be right.
    certain = sure and (odd != ranks or count(ranks) > 2)
    facts = tuple(dict.fromkeys(_wait_words(need.wait) for need in needs.values() if need.wait is not None))
    return Finding(
        "mismatch" if 0 < pairs < count(ranks) else "order",
        _circle_words(case, graph, ranks, odd),
        odd,
        _where(case, odd),
        "None of them can continue before another one does.",
        (*facts[:3], case.wait_fact(), case.unheard_fact()),
        certainty if certain or certainty != "sure" else "likely",
        STEPS,
        proof="circle" if sure else "",
    )


def _circle_words(case: Case, graph: Waits, ranks: int, odd: int) -> str:
    rest = ranks & ~odd
    pairs = {rank: graph.needs[rank][0] for rank in ranks_of(odd or ranks) if rank in graph.needs}
    told = [_edge_words(rank, need) for rank, need in pairs.items() if need.send is not None]
    if told and not rest:
        headline = f"{ranks_words(ranks, 'waits', 'wait')} for each other in a circle: {', '.join(told[:6])}"
    elif told:
        rank = next(ranks_of(next(iter(pairs.values())).ranks))
        part = graph.part_of(rank)
        does = f", which is in {part.what}" if part is not None and rest >> rank & 1 else ""
        headline = f"rank {told[0]}{does}"
    elif rest:
        headline = f"{ranks_words(odd)} and {ranks_words(rest)} call collectives in different orders"
    else:
        groups: dict[tuple[str, ...], int] = {}
        for rank, need in pairs.items():
            groups[need.what] = groups.get(need.what, 0) | 1 << rank
        named = " and ".join(ranks_words(group) for group in list(groups.values())[:3])
        headline = f"{named} call collectives in different orders"
    return headline


def _edge_words(rank: int, need: Need) -> str:
    peer = next(ranks_of(need.ranks))
    return f"{rank} {'sends to' if need.send else 'receives from'} {peer}"


def roots(case: Case) -> Finding | None:
    """Ranks that wait in one collective and name different roots of it."""
    if case.goes_on or case.passing or len(set(case.roots.values())) < 2:
        return None
    parts = [one for one in case.waits if one.what in ROOTS]
    recorded = case.recorded.waits if case.recorded is not None else ()
    # Where the recorders do not say what is one collective, one place in the code is taken to be that.
    groups = [one.going for one in recorded] or [
        union(each for each in parts if each.where == one.where) for one in parts
    ]
    for group in groups:
        named = {rank: root for rank, root in case.roots.items() if group >> rank & 1}
        if len(set(named.values())) < 2:
            continue
        # A root waits there as well, or has been there: then it names itself.
        odd = [rank for rank, root in named.items() if named.get(root) != root]
        if len(odd) in (0, len(named)):
            usual = min(named.values(), key=lambda root: (-list(named.values()).count(root), root))
            odd = [rank for rank, root in named.items() if root != usual]
        ranks = mask_of(odd)
        rest = next(root for rank, root in named.items() if rank not in odd)
        what = next((one.what for one in parts if one.ranks & ranks), "a collective")
        headline = f"{ranks_words(ranks, 'names', 'name')} rank {named[odd[0]]} as the root of {what}"
        headline += f", the others rank {rest}"
        facts = (case.wait_fact(), case.unheard_fact())
        detail = "All ranks of a group must name the same root."
        certainty = "likely" if recorded else "unsure"
        return Finding("mismatch", headline, ranks, _where(case, ranks), detail, facts, certainty, STEPS)
    return None


def missing(case: Case) -> Finding | None:
    """Ranks that have not entered what others wait for, as the recorders say, and that are here."""
    recorded = case.recorded
    if recorded is None or case.goes_on or case.passing:
        return None
    ends = Waits(case).ends & case.live & ~case.holders
    ranks = ends or recorded.missing & case.live & ~case.holders
    wait = recorded.of(ranks)
    if not ranks or wait is None or case.moved_on(ranks, wait.going):
        return None
    parts = [one for one in [*case.others, *case.waits] if one.ranks & ranks]
    if not parts:
        return None
    makes = all(one.kind == "rendezvous" and one.found.doing.what for one in parts)
    if makes and 2 * count(ranks) >= count(case.live):
        return None  # many make a group, for which all are needed: whoever waits elsewhere is the odd one
    first = next((one for one in parts if one.frozen), parts[0])
    inside = first.ranks & ranks
    dump = case.dumps(next(ranks_of(inside)))[-1]
    kind, detail, steps = story(case, first, dump)
    verb = ("did not join", "did not join") if first.frozen else ("has not reached", "have not reached")
    if case.looks < 2:
        verb = ("is not in", "are not in")
    headline = f"{ranks_words(ranks, *verb)} {wait.op}"
    facts = [_wait_words(wait), case.wait_fact(timed=False), case.suspect_fact(first)]
    facts += [state_fact(dump, detail), *case.part_facts(one for one in parts if one is not first)]
    if recorded.heard & case.snapshot.world != case.snapshot.world:
        unknown = case.snapshot.world & ~recorded.heard
        facts.append(f"the recorder of {ranks_words(unknown)} did not answer")
    facts.append(case.unheard_fact())
    sure = first.frozen and len(parts) == 1 and first.kind != "library"
    certainty = _certainty(case, ranks) if sure else "likely" if case.looks > 1 else "unsure"
    if first in case.waits:
        # It waits for others where there is nothing on record: for a device, in a store, for a connection.
        detail, steps = detail or f"It {first.text}.", (MORE,)
        certainty = "likely" if certainty == "sure" else certainty
    return Finding(kind, headline, ranks, first.where, detail, tuple(facts), certainty, steps)


def _certainty(case: Case, ranks: int) -> str:
    """How sure it is: all of them stand still, for longer than a slow step takes."""
    if case.looks < 2:
        return "unsure"
    parts = [one for one in [*case.others, *case.waits] if one.ranks & ranks]
    still = bool(parts) and all(one.frozen for one in parts)
    return "sure" if still and case.lasts and case.heard else "likely"


def _where(case: Case, ranks: int) -> str:
    parts: list[ClassPart] = [*case.others, *case.waits]
    return next((one.where for one in parts if one.ranks & ranks), "")


def _wait_words(wait: Wait) -> str:
    waits = ranks_words(wait.going, "has", "have")
    absent = f"; {ranks_words(wait.absent, 'has', 'have')} not entered it" if wait.absent else ""
    source = f"; called at {wait.source}" if wait.source else ""
    return f"{wait.name}: {waits} waited {wait.waited_s:.1f} s{absent}{source}"


def broke(case: Case) -> Mismatch | None:
    """What ranks called differently just before some of them failed."""
    if case.recorded is None or case.goes_on:
        return None
    found = (one for one in reversed(case.recorded.mismatches) if one.last and len(one.calls) > 1)
    return next(found, None)


def mismatch_headline(found: Mismatch) -> str:
    """``rank 3 called all_reduce of 8 Double, 3 ranks all_reduce of 8 Float``."""
    most, other, *_ = found.calls
    return f"{ranks_words(other.ranks)} called {other.call}, {number_text(most.ranks)} {most.call}"


def mismatch_words(found: Mismatch) -> str:
    """The same as evidence: all ranks, and under which number."""
    told = ", ".join(f"{one.call} ({ranks_words(one.ranks)})" for one in found.calls[:4])
    return f"number {found.number:,} of {found.group}: {told}"
