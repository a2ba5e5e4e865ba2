"""Rules about what the flight recorders say: who has not entered what, and who calls something else."""

from __future__ import annotations

from cockpit.core.finding import Finding
from cockpit.core.masks import count, mask_of, ranks_of
from cockpit.core.stacks.collectives import Mismatch, Wait
from cockpit.core.stacks.evidence import Case, state_fact
from cockpit.core.stacks.parts import ROOTS, ClassPart, union
from cockpit.core.stacks.sentences import MORE, STEPS, story
from cockpit.core.stacks.words import number_text, ranks_words


def order(case: Case) -> Finding | None:
    """Ranks that wait for each other in different collectives: they call them in different orders."""
    if case.recorded is None or case.goes_on or case.passing:
        return None
    waits = case.recorded.waits
    pairs = (
        (one, other)
        for place, one in enumerate(waits)
        for other in waits[place + 1 :]
        if one.key != other.key and (_crossed(one, other) or _parted(case, one, other))
    )
    found = next(pairs, None)
    if found is None:
        return None
    one, other = found
    if count(other.going) > count(one.going):
        one, other = other, one
    few = other.going & (one.absent or other.going)
    headline = f"{ranks_words(few)} and {ranks_words(one.going)} call collectives in different orders"
    detail = "They wait for each other in two groups, each in the one that the other has not entered yet."
    # Of two halves neither is the odd one.
    odd = few if count(few) < count(one.going) else few | one.going
    facts = (_wait_words(one), _wait_words(other), case.wait_fact(), case.unheard_fact())
    certainty = _certainty(case, odd)
    if not _crossed(one, other):
        certainty = "likely" if certainty == "sure" else certainty
    return Finding("order", headline, odd, _where(case, few), detail, facts, certainty, STEPS)


def _crossed(one: Wait, other: Wait) -> bool:
    """Whether those in one wait for those in the other, and these for them.

    Of groups that gloo has never used before nobody knows who is in them: two that wait alone wait for each
    other.
    """
    if one.lone and other.lone:
        return one.going != other.going
    return _waits_for(one, other.going) and _waits_for(other, one.going)


def _waits_for(wait: Wait, ranks: int) -> bool:
    """Whether those in a wait wait for some of these ranks.

    Recorders forget: of a job that is hours old they rarely know who has never entered a group. But whoever
    has waited for seconds waits for somebody, and if all that may not have entered are among these, for one
    of them.
    """
    if wait.absent & ranks:
        return True
    perhaps = wait.absent | wait.unknown
    return not wait.lone and bool(perhaps) and not perhaps & ~ranks


def _parted(case: Case, one: Wait, other: Wait) -> bool:
    """Whether all ranks are in these two waits, and one of them alone in a group that nobody else has used.

    That one waits for some of the others; and these, if for anybody, for that one.
    """
    lone = one.lone or other.lone
    parted = not one.going & other.going and one.going | other.going == case.snapshot.world
    return lone and parted and case.live == case.snapshot.world and not case.others


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
    detail = "Under one number all ranks of a group have to call the same."
    return Finding("mismatch", headline, few, _where(case, few), detail, facts, _certainty(case, few), STEPS)


def circle(case: Case) -> Finding | None:
    """Ranks that send or receive, and wait for each other in a circle, or for one that is not about them."""
    if case.goes_on or case.passing:
        return None
    edges = case.partners
    # Whoever sends to one that receives from it is about to go on.
    meets = {rank for rank, (peer, send) in edges.items() if edges.get(peer) == (rank, not send)}
    ring = _ring({rank: peer for rank, (peer, _) in edges.items() if rank not in meets})
    if ring:
        ranks = mask_of(ring)
        told = ", ".join(_edge_words(rank, *edges[rank]) for rank in ring[:6])
        headline = f"{ranks_words(ranks, 'waits', 'wait')} for each other in a circle: {told}"
        facts = (case.wait_fact(), case.unheard_fact())
        detail = "None of them can go on before another one does."
        return Finding("order", headline, ranks, _where(case, ranks), detail, facts, _certainty(case, ranks))
    for rank, (peer, send) in edges.items():
        other = edges.get(peer)
        alone = 2 * len(edges) < count(case.live) and not case.others
        if other is None and alone and case.waiting >> peer & 1:
            # Of a pipeline nobody is in a collective while another one receives from it.
            what = next(one.what for one in case.waits if one.ranks >> peer & 1)
            headline = f"rank {rank} {_does(peer, send)}, which is in {what}"
            facts = (case.wait_fact(), case.unheard_fact())
            where = _where(case, 1 << rank)
            return Finding("mismatch", headline, 1 << rank, where, "", facts, "likely", STEPS)
        # Who sends to somebody else, or receives from somebody else who expects that, is not the odd one.
        if other is None or other[0] == rank or send:
            continue
        third = edges.get(other[0])
        if other[1] and third is not None and third[0] != peer:
            continue
        headline = f"rank {rank} receives from rank {peer}, which {_does(*other)}"
        facts = (case.wait_fact(), case.unheard_fact())
        return Finding("mismatch", headline, 1 << rank, _where(case, 1 << rank), "", facts, "likely", STEPS)
    return None


def _ring(peers: dict[int, int]) -> list[int]:
    for start in peers:
        seen = [start]
        while (then := peers.get(seen[-1], -1)) not in seen:
            if then < 0:
                break
            seen.append(then)
        else:
            ring = seen[seen.index(then) :]
            if len(ring) > 1:
                return ring
    return []


def _does(peer: int, send: bool) -> str:
    return f"sends to rank {peer}" if send else f"receives from rank {peer}"


def _edge_words(rank: int, peer: int, send: bool) -> str:
    return f"{rank} {'sends to' if send else 'receives from'} {peer}"


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
        detail = "All ranks of a group have to name the same."
        certainty = "likely" if recorded else "unsure"
        return Finding("mismatch", headline, ranks, _where(case, ranks), detail, facts, certainty, STEPS)
    return None


def missing(case: Case) -> Finding | None:
    """Ranks that have not entered what others wait for, as the recorders say, and that are here."""
    recorded = case.recorded
    if recorded is None or case.goes_on or case.passing:
        return None
    ranks = recorded.missing & case.live & ~case.holders
    wait = recorded.of(ranks)
    if not ranks or wait is None or case.moved_on(ranks, wait.going):
        return None
    parts = [one for one in [*case.others, *case.waits] if one.ranks & ranks]
    if not parts:
        return None
    makes = all(one.kind == "rendezvous" and one.found.doing.what for one in parts)
    if makes and 2 * count(ranks) > count(case.live):
        return None  # most make a group, for which all are needed: whoever waits elsewhere is the odd one
    first = next((one for one in parts if one.frozen), parts[0])
    inside = first.ranks & ranks
    dump = case.dumps(next(ranks_of(inside)))[-1]
    kind, detail, steps = story(case, first, dump)
    verb = ("did not join", "did not join") if first.frozen else ("has not come to", "have not come to")
    if case.looks < 2:
        verb = ("is not in", "are not in")
    headline = f"{ranks_words(ranks, *verb)} {wait.op}"
    facts = [_wait_words(wait), case.wait_fact(), case.suspect_fact(first), state_fact(dump)]
    facts += [case.part_fact(one) for one in parts if one is not first]
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
