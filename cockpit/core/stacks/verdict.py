"""The verdict: rules that say which rank holds up the others ("rank 3 is stopped") and why.

One rule after the other looks at the facts of a snapshot, the surest evidence first: ranks that have ended,
that are stopped, that are not in the collective that all others wait in, that are in a different one. None of
them knows what a collective is about: a rank that is not in it may be late, stuck, or right to be elsewhere.
Certainty says which: ``sure`` needs waiters and suspect both unmoved over two samples, and all must answer.
No verdict about ranks whose numbers are inferred is sure.
"""

from __future__ import annotations

from dataclasses import replace

from cockpit.core.finding import RULE_FAILED, Finding, Rule, findings
from cockpit.core.inferred import UNKNOWN
from cockpit.core.masks import count, ranks_of
from cockpit.core.stacks.evidence import Case, kept, number_text, ranks_words
from cockpit.core.stacks.rules import alone, ends, suspects, together
from cockpit.core.stacks.sentences import MORE
from cockpit.core.stacks.snapshot import Snapshot

KINDS = {
    "ended": "ranks were killed, crashed or exited with an error",
    "exited": "ranks ended with status 0 while others wait for them",
    "missing": "ranks have no process, or have not started",
    "silent": "ranks did not answer, and the others wait",
    "stopped": "ranks are stopped by a signal or held by a debugger",
    "gil": "ranks hold the GIL in C code",
    "loader": "ranks wait for a data loader",
    "io": "ranks wait for a file, a pipe or a disk",
    "lock": "ranks wait for a lock",
    "build": "ranks wait for an extension to be built",
    "absent": "ranks are not in the collective that the others wait in",
    "mismatch": "ranks wait in different collectives",
    "together": "all wait in the same place: stacks cannot tell for whom",
    "moving": "nobody is stuck",
    "over": "all ranks ended with status 0",
    "unknown": "not enough to say",
}
"""Every verdict, by the id of its finding."""

GOOD = frozenset({"moving", "over"})
"""Those that find nothing wrong."""


def verdict(snapshot: Snapshot) -> Finding:
    """The verdict on a snapshot; it may still grow while it is looked at."""
    case = Case(snapshot)
    failed = []
    for found in findings(RULES, {"case": case}):
        if found.id != RULE_FAILED:
            break
        failed.append(found.what)
    else:
        found = _unknown(case)
    return _completed(case, found, failed)


def _unknown(case: Case) -> Finding:
    """What is left."""
    facts = [case.part_fact(one) for one in [*case.others, *case.waits]]
    detail = "One sample does not tell what moves." if case.looks < 2 else ""
    facts.append(case.unheard_fact())
    return Finding("unknown", "Not enough to say", 0, "", detail, tuple(facts), steps=(MORE,))


def _completed(case: Case, found: Finding, failed: list[str]) -> Finding:
    """The same with what holds for every verdict: its nodes, how bad it is, and what makes it less sure.

    Facts that do not exist are left out, and what was already asked for is not asked again. A rule that
    failed may have had a better answer.
    """
    have = [f"--{name}" for name in ("native", "children") if case.snapshot.options.get(name)]
    steps = tuple(step for step in found.steps if not any(option in step.command for option in have))
    doubts = [f"{number_text(case.pending)} still to answer"] if case.pending else []
    inferred = (found.ranks or case.snapshot.world) & case.snapshot.inferred
    if inferred:
        doubts.append(_inferred_fact(case, inferred))
    certainty = "likely" if doubts and found.certainty == "sure" else found.certainty
    certainty = "unsure" if failed else certainty
    nodes = dict.fromkeys(case.snapshot.ranks[rank].node for rank in ranks_of(found.ranks))
    wrong = "error" if found.ranks and certainty != "unsure" else "warning"
    return replace(
        found,
        steps=steps or (found.steps and (MORE,)),
        evidence=kept([*failed, *doubts, *found.evidence]),
        certainty=certainty,
        nodes=tuple(filter(None, nodes)),
        severity="info" if found.id in GOOD and not found.ranks and not failed else wrong,
    )


def _inferred_fact(case: Case, ranks: int) -> str:
    first = next(ranks_of(ranks))
    how = "numbered by pid" if case.snapshot.ranks[first].inferred == UNKNOWN else "inferred"
    if count(ranks) > 1:
        return f"{ranks_words(ranks)} are {how}"
    node, pid = case.process_of(first)
    return f"rank {first} is {how}: process {pid} on {node}"


RULES = tuple(
    Rule(test.__name__, ("case",), test)
    for test in (
        ends.nothing,
        ends.ended,
        ends.stopped,
        ends.not_there,
        suspects.gil,
        suspects.absent,
        suspects.unheard,
        suspects.group,
        suspects.few,
        together.mismatch,
        together.together,
        alone.at_one_place,
        alone.moving,
    )
)
"""In their order: the first that finds something gives the verdict."""
