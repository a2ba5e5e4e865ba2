"""Rules for when all ranks wait: in different collectives, or at the same place."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

from cockpit.core.finding import Finding, Step
from cockpit.core.masks import count, mask_of, ranks_of
from cockpit.core.stacks.case import Case
from cockpit.core.stacks.class_facts import ClassPart
from cockpit.core.stacks.sentences import MORE, STEPS
from cockpit.core.stacks.words import every_text, number_text, ranks_words

FACTS = 4
"""Connections without an answer that are given as evidence."""

P2P = frozenset(
    {"send", "recv", "isend", "irecv", "batch_isend_irecv", "recv_object_list", "send_object_list"}
)
"""Stages of a pipeline are in different ones of these by design."""


def cut(case: Case) -> Finding | None:
    """Everybody waits, and what some of them send gets no answer: the network between them loses it.

    Recorders cannot tell: who has sent all of its part goes on to the next collective.
    """
    if not case.waits or case.others or case.passing:
        return None
    newest = [(rank, dumps[-1]) for rank in ranks_of(case.live) if (dumps := case.dumps(rank))]
    tried = [(rank, case.snapshot.ranks[rank].node, one) for rank, dump in newest for one in dump.unanswered]
    if not tried:
        return None
    _, node, first = tried[0]
    ranks, hosts = mask_of(rank for rank, _, _ in tried), {one.host for _, _, one in tried}
    others = first.host if len(hosts) == 1 else f"{len(hosts)} addresses"
    facts = [
        f"rank {rank} on {node}: {one.host} port {one.port}, sent again {one.tries} times"
        for rank, node, one in tried
    ]
    return Finding(
        "cut",
        f"{ranks_words(ranks, 'gets', 'get')} no answer from {others}: {case.wait_words()}",
        0,
        "",
        "What is sent there is lost on its way, or the machine there is gone: a switch, a cable, a firewall.",
        (case.wait_fact(), *facts[:FACTS], case.unheard_fact()),
        "likely",
        (Step(f"ping -c 3 {first.host}", "does that machine answer?", node), MORE),
    )


def mismatch(case: Case) -> Finding | None:
    """Everybody waits, but not in the same collective."""
    if not case.waits or case.others or case.passing:
        return None
    places = _groups(case.waits, lambda one: f"{one.what} at {one.where}")
    groups = _groups(case.waits, lambda one: one.what) or places
    if not groups:
        return None
    facts = [f"{ranks_words(ranks)} in {what}".removesuffix(" at ") for what, ranks in places]
    (most, many), (what, ranks), *rest = groups
    kinds = {one.kind for one in case.waits}
    by_design = not kinds <= {"collective", "backward"} or any(one.what in P2P for one in case.waits)
    if rest or 2 * count(many) <= count(case.waiting) or "sync" in kinds:
        detail = (
            "Stages of a pipeline and groups of ranks may do so by design; or ranks have parted somewhere."
        )
        headline = "ranks wait in different collectives"
        return Finding("mismatch", headline, 0, "", detail, (*facts, case.unheard_fact()), steps=STEPS)
    likely = not by_design and case.all_frozen and case.heard
    if by_design:
        detail = "Stages of a pipeline may do so by design; else they have parted in the user's code."
    else:
        detail = "They wait for each other in different collectives: they have parted in the user's code."
    return Finding(
        "mismatch",
        f"{ranks_words(ranks, 'is', 'are')} in {what}, {number_text(many)} in {most}",
        ranks,
        next(one for one in case.waits if one.ranks & ranks).where,
        detail,
        (case.wait_fact(), *facts, case.unheard_fact()),
        "likely" if likely else "unsure",
        STEPS,
    )


def _groups(parts: Iterable[ClassPart], name: Callable[[ClassPart], str]) -> list[tuple[str, int]]:
    """The ranks of each name, the largest group first; empty if there is only one name."""
    found: dict[str, int] = defaultdict(int)
    for one in parts:
        found[name(one)] |= one.ranks
    return sorted(found.items(), key=lambda item: (-count(item[1]), item[0])) if len(found) > 1 else []


def together(case: Case) -> Finding | None:
    """Everybody waits at the same place."""
    if not case.waits or case.others or case.passing:
        return None
    part = case.waits[0]
    if case.looks < 2:
        headline = f"{every_text(case.waiting, 'is', 'are')} in {part.what}, in one sample"
        return Finding(
            "unknown", headline, 0, "", "Another sample will show whether they move.", steps=(MORE,)
        )
    steps: tuple[Step, ...] = STEPS
    detail = "Stacks do not show what they wait for: the network, a GPU, or a rank's own request."
    if part.kind == "sync":
        detail = "They wait for their GPUs; what those wait for is not in the stacks."
        steps = (Step("nvidia-smi", "are the GPUs busy?"), *STEPS)
    elif part.kind == "rendezvous":
        detail = "The ranks are running but cannot reach each other: check address, port, firewall."
    headline = f"{every_text(case.waiting, 'waits', 'wait')} in {part.what}"
    facts = (case.wait_fact(), case.unheard_fact())
    return Finding("together", headline, 0, part.where, detail, facts, steps=steps)
