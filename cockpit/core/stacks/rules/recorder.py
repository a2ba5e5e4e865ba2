"""Rules about what the flight recorders say: who has not entered what, and who calls something else."""

from __future__ import annotations

from cockpit.core.finding import Finding
from cockpit.core.masks import count, mask_of, ranks_of
from cockpit.core.stacks.collectives import Collectives, Mismatch, Wait
from cockpit.core.stacks.evidence import Case, ClassPart, number_text, ranks_words, state_fact
from cockpit.core.stacks.sentences import MORE, STEPS, story


def order(case: Case) -> Finding | None:
    """Ranks that wait for each other in different collectives: they call them in different orders."""
    if case.recorded is None or case.goes_on or case.passing:
        return None
    waits = case.recorded.waits
    pairs = (
        (one, other)
        for place, one in enumerate(waits)
        for other in waits[place + 1 :]
        if one.absent & other.going and other.absent & one.going and one.key != other.key
    )
    found = next(pairs, None)
    if found is None:
        return None
    one, other = found
    if count(other.going) > count(one.going):
        one, other = other, one
    few = other.going & one.absent
    headline = f"{ranks_words(few)} and {ranks_words(one.going)} call collectives in different orders"
    detail = "They wait for each other in two groups, each in the one that the other has not entered yet."
    # Of two halves neither is the odd one.
    odd = few if count(few) < count(one.going) else few | one.going
    facts = (_wait_words(one), _wait_words(other), case.wait_fact(), case.unheard_fact())
    return Finding("order", headline, odd, _where(case, few), detail, facts, _certainty(case, odd), STEPS)


def differ(case: Case) -> Finding | None:
    """Ranks that call different things under one number, and wait in it."""
    if case.recorded is None or case.goes_on or case.passing:
        return None
    found = next((one for one in case.recorded.mismatches if one.going and len(one.calls) > 1), None)
    if found is None:
        return None
    most, *rest = found.calls
    few = mask_of(rank for one in rest for rank in ranks_of(one.ranks))
    few &= case.snapshot.world
    if count(few) >= count(most.ranks):
        few |= most.ranks & case.snapshot.world
    headline = f"{ranks_words(rest[0].ranks)} called {rest[0].call}, {number_text(most.ranks)} {most.call}"
    facts = (_mismatch_words(found), case.wait_fact(), case.unheard_fact())
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


def missing(case: Case) -> Finding | None:
    """Ranks that have not entered what others wait for, as the recorders say, and that are here."""
    recorded = case.recorded
    if recorded is None or case.goes_on or case.passing:
        return None
    ranks = recorded.missing & case.live & ~case.holders
    wait = recorded.of(ranks)
    if not ranks or wait is None or case.moved_on(ranks):
        return None
    parts = [one for one in [*case.others, *case.waits] if one.ranks & ranks]
    if not parts:
        return None
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
    return f"{wait.name}: {waits} waited {wait.waited_s:.1f} s{absent}"


def _mismatch_words(found: Mismatch) -> str:
    told = ", ".join(f"{one.call} ({ranks_words(one.ranks)})" for one in found.calls[:4])
    return f"number {found.number:,} of {found.group}: {told}"


def recorder_fact(recorded: Collectives | None, ranks: int) -> str:
    """What the recorders say of these ranks, as evidence."""
    wait = recorded.of(ranks) if recorded is not None else None
    return _wait_words(wait) if wait is not None else ""
