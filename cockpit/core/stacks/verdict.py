"""The verdict: rules that say which rank holds up the others ("rank 3 is stopped") and why.

One rule after the other looks at the facts of a snapshot, the surest evidence first: ranks that have ended,
that are stopped, that are not in the collective that all others wait in, that are in a different one. None of
them knows what a collective is about: a rank that is not in it may be late, stuck, or right to be elsewhere.
Certainty says which: ``sure`` needs waiters and suspect both unmoved over two samples, and all must answer.
No verdict about ranks whose numbers are inferred is sure.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from cockpit.core.finding import RULE_FAILED, Finding, Rule, findings
from cockpit.core.inferred import UNKNOWN
from cockpit.core.masks import count, ranks_of
from cockpit.core.rules.table import table
from cockpit.core.stacks.case import EVIDENCE, Case, kept
from cockpit.core.stacks.caveats import WAITED_FOR, reasons, serving, went_on
from cockpit.core.stacks.class_facts import PEERS, ROOTS, union
from cockpit.core.stacks.ras import sentences
from cockpit.core.stacks.rules import all_waiting, ends, no_collective, pace, recorder, suspects
from cockpit.core.stacks.sentences import MORE, lock_is_stale
from cockpit.core.stacks.snapshot import Snapshot
from cockpit.core.stacks.words import number_text, ranks_words

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
    "twice": "two processes have the same rank",
    "slow": "ranks are slow, and steps continue",
    "loop": "ranks are busy at one place, and none makes progress",
    "order": "ranks wait for each other in a circle: they call in different orders",
    "absent": "ranks are not in the collective that the others wait in",
    "cut": "all wait, and what some of them send is not answered",
    "mismatch": "ranks wait in different collectives",
    "together": "all wait in the same place: stacks cannot show for whom",
    "moving": "no rank is stuck",
    "over": "all ranks ended with status 0",
    "unknown": "inconclusive",
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
    facts = [*case.part_facts([*case.others, *case.waits])]
    detail = "A single sample can't show which ranks are moving." if case.looks < 2 else ""
    facts.append(case.unheard_fact())
    return Finding("unknown", "Inconclusive", 0, "", detail, tuple(facts), steps=(MORE,))


def _completed(case: Case, found: Finding, failed: list[str]) -> Finding:
    """The same with what holds for every verdict: its nodes, how bad it is, and what makes it less sure.

    Facts that do not exist are left out, and what was already asked for is not asked again. A rule that
    failed may have had a better answer.
    """
    have = [f"--{name}" for name in ("native", "children") if case.snapshot.options.get(name)]
    steps = tuple(step for step in found.steps if not any(option in step.command for option in have))
    doubts = [f"no answer yet from {number_text(case.pending)}"] if case.pending else []
    if case.snapshot.asking:
        doubts.append("steps and flight recorders have not answered yet")
    doubts += reasons(case, found)
    if found.id != "twice":
        doubts += [*case.snapshot.twice.values(), *case.snapshot.problems][:2]
    inferred = (found.ranks or case.snapshot.world) & case.snapshot.inferred
    if inferred:
        doubts.append(_inferred_fact(case, inferred))
    certainty = "likely" if doubts and found.certainty == "sure" else found.certainty
    moved = went_on(case, found)
    if moved:
        doubts.append(f"{ranks_words(moved)} moved between the samples")
        certainty = "likely" if certainty == "sure" else certainty
    if serving(case, found.ranks):
        doubts.append("it is waiting for requests, like a server: this may be normal")
        certainty = "unsure"
    certainty = "unsure" if failed else certainty
    nodes = dict.fromkeys(case.snapshot.ranks[rank].node for rank in ranks_of(found.ranks))
    # A rank that moves may only be late, and what the others wait for may have happened a moment ago.
    moves = found.id in WAITED_FOR and bool(found.ranks) and not found.ranks & ~case.going
    moves = moves or bool(moved)
    blamed = found.ranks and certainty != "unsure" and found.id != "slow" and not moves
    wrong = "error" if blamed else "warning"
    row = table().by_id["build-lock-stale"] if _waits_for_nobody(case, found) else None
    return replace(
        found,
        steps=steps or (found.steps and (MORE,)),
        evidence=_with_ras(case, kept([*failed, *doubts, *found.evidence, _some_fact(case)])),
        certainty=certainty,
        proof=found.proof if case.unmoved and not doubts else "",
        nodes=tuple(filter(None, nodes)),
        since=case.since if found.ranks and not case.goes_on else None,
        severity="warning"
        if found.id == "slow"
        else "info"
        if found.id in GOOD and not found.ranks and not failed
        else wrong,
        rule=row.id if row else "",
        meaning=row.meaning() if row else "",
    )


def _waits_for_nobody(case: Case, found: Finding) -> bool:
    """Whether those whom a verdict accuses wait for the lock of a build that nobody runs."""
    if found.id != "build" or not found.ranks:
        return False
    dumps = case.dumps(next(ranks_of(found.ranks)))
    return bool(dumps) and lock_is_stale(dumps[-1])


def _with_ras(case: Case, facts: tuple[str, ...]) -> tuple[str, ...]:
    """The same and what NCCL's RAS says, for which room is made at the end."""
    if case.snapshot.ras is None:
        return facts
    told = sentences(case.snapshot.ras, still=case.ceased)
    return (*facts[: EVIDENCE - len(told)], *told)


def _some_fact(case: Case) -> str:
    """That the job has other ranks, which were not asked."""
    some = case.snapshot.world if case.snapshot.options.get("ranks") else 0
    return f"only {ranks_words(some, 'was', 'were')} asked; without --ranks, all are" if some else ""


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
        pace.left_behind,
        pace.slow,
        pace.goes_on,
        ends.not_there,
        ends.twice,
        suspects.gil,
        all_waiting.cut,
        recorder.differ,
        recorder.roots,
        recorder.circle,
        recorder.missing,
        suspects.absent,
        suspects.unheard,
        suspects.group,
        suspects.few,
        all_waiting.mismatch,
        all_waiting.together,
        no_collective.at_one_place,
        no_collective.loop,
        no_collective.moving,
    )
)
"""In their order: the first that finds something gives the verdict."""


class Standstill(NamedTuple):
    """Who does not get on, as masks.

    :param missing: who is missing in what others wait for, as the recorders say
    :param proven: whether two samples show that nearly all ranks stand still, or the recorders name who is
        missing; and no step was made since
    :param since: since when, unix seconds on our clock; None: not known
    """

    frozen: int
    polling: int
    moving: int
    missing: int
    proven: bool
    since: float | None


NEARLY_ALL = 0.9
"""The share of ranks that stand still where a job does: a few may be busy with something of their own."""


def standstill(snapshot: Snapshot) -> Standstill:
    """Whether a job stands still, whoever is to blame."""
    case = Case(snapshot)
    still = union(one for one in [*case.waits, *case.others] if one.frozen) | case.stopped | case.holders
    polling = union(one for one in [*case.waits, *case.others] if one.found.movement == "polls")
    missing = case.recorded.missing & case.live if case.recorded is not None else 0
    # Whoever makes a group waits for those that do not.
    missing &= ~union(one for one in case.waits if one.kind == "rendezvous" and one.found.doing.what)
    live = case.live | case.stopped
    moving = live & ~still if case.looks > 1 else 0
    stands = case.looks > 1 and bool(live) and count(still) >= NEARLY_ALL * count(live)
    # Most wait, and the one that they wait for is busy with what never ends.
    waited = bool(missing) and not case.passing and case.frozen
    proven = (stands or waited) and not case.goes_on
    return Standstill(still & ~polling, polling, moving, missing, proven, case.since)


CLOSER = 8
"""Ranks that are looked at more closely for one verdict."""


def wanted(snapshot: Snapshot) -> dict[int, str]:
    """Which ranks a closer look would say more about, and with what: ``native`` frames, or ``locals``."""
    case = Case(snapshot)
    if case.looks < 2 or (case.waits and case.passing) or case.goes_on:
        return {}
    if case.unnamed is not None and not snapshot.options.get("native"):
        return {case.unnamed.found.sample_rank: "native"}
    if snapshot.options.get("locals"):
        return {}
    known = case.recorded is not None and case.recorded.transfers
    calls = {*ROOTS, *(() if known else PEERS)}
    told = union(one for one in case.waits if one.what in calls and one.frozen)
    return dict.fromkeys(list(ranks_of(told))[:CLOSER], "locals")
