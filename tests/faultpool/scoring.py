"""What was said, against what is true: who, where, how sure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from cockpit.core.ranks import read_ranks
from tests import tries
from tests.faultpool.cases import Case
from tests.faultpool.unasked import HANG_AFTER_S, NOTHING

GOOD = ("moving", "over")
"""Verdicts that find nothing wrong."""

HOW = {"s": "asked with `s`", "unattended": "by itself"}


@dataclass(frozen=True)
class Judged:
    """One verdict on one case.

    :param rank: ``right``, ``silent`` (rightly nobody), ``blind`` (nobody, though it can be known),
        ``wrong``, ``accused`` (somebody, though nobody is to blame)
    :param place: ``right``, ``wrong``, or empty: there is none to be told
    :param certainty: ``right``, ``over`` (sure where nobody can be, or that the healthy are stuck),
        ``under``, or empty
    """

    rank: str
    place: str = ""
    certainty: str = ""

    @property
    def right(self) -> bool:
        """Whether a person would be led to the right rank, or rightly to none."""
        return self.rank in ("right", "silent") and self.certainty != "over"


def judged(case: Case, probe: str, said: dict[str, Any]) -> Judged:
    """Judge what was said about a case.

    :param probe: ``on`` or ``off``
    """
    kind = case.kind
    named = tuple(sorted(read_ranks(said["ranks"]))) if said["ranks"] else ()
    sure, accused = said["certainty"] == "sure", bool(named) and said["severity"] == "error"
    if not case.blamed:
        # Whom the others wait for may be sure; that it is stuck may not.
        stuck = said.get("stuck") == "sure" or bool(said.get("proof"))
        accused = accused and (stuck or not kind.like_hang)
        return Judged("accused" if accused else "right", "", "over" if accused and stuck else "right")
    place = _place(case, said["where"]) if kind.named and any(kind.named) and kind.state != "ended" else ""
    good = said["id"] in GOOD
    if named in case.blamed and not (case.fault and good):
        # How sure it is why a rank failed is another question.
        fits = said["certainty"] in kind.certainty or said["id"] == "failed"
        return Judged("right", place, "right" if fits else "over" if sure else "under")
    if named and named not in case.blamed:
        return Judged("accused" if kind.state == "slow" else "wrong", "", "over" if sure else "")
    if len(case.ranks) == case.kind.world and place == "right" and not good and said["id"] != "unknown":
        return Judged("right", place, "right")  # all of them: nobody in particular
    if kind.state == "slow":
        silent = kind.silence == "always" or probe == "off" or case.bare
    else:
        silent = not good and (kind.silence == "always" or (kind.silence == "without" and probe == "off"))
    return Judged(
        "silent" if silent else "blind", "", "over" if good and sure and kind.state != "slow" else ""
    )


def _place(case: Case, where: str) -> str:
    """Whether a place such as ``train.py:31 Layer.read`` is one that may be named."""
    function = where.rpartition(" ")[2].rpartition(".")[2]
    return "right" if function in case.kind.named else "wrong"


@dataclass(frozen=True)
class Outcome:
    """A case, and what cockpit said."""

    case: Case
    facts: dict[str, Any]

    @property
    def probe(self) -> str:
        """``on`` or ``off``."""
        return str(self.facts["probe"])

    def judged(self, how: str) -> Judged | None:
        """Judge what it said: ``s`` or ``unattended``; None if it was not asked so."""
        said = self.facts.get(how)
        if said and how == "unattended" and self.case.kind.state == "slow" and said["id"] == NOTHING["id"]:
            return Judged("silent")  # who is slow is told by the pace, see tests/slowpool
        return judged(self.case, self.probe, said) if said else None

    def line(self, how: str) -> str:
        """The case and what was said of it, in one line."""
        case, said, found = self.case, self.facts.get(how) or {}, self.judged(how)
        who = ",".join(map(str, case.ranks)) if case.blamed else "nobody"
        truth = (
            f"{case.name:16} {'bare' if case.bare else case.launcher:10} {case.waits:10} probe {self.probe:3}"
        )
        words = f"{said.get('certainty')}, {said.get('id')}: {said.get('what')}"
        place = f" at {said['where']}" if said.get("where") else ""
        flags = f"{found.rank}/{found.place or '-'}/{found.certainty or '-'}" if found else "not asked"
        return f"{flags:22} {truth} {case.kind.state} {who}: {words}{place}"


def table(outcomes: Sequence[Outcome], how: str) -> str:
    """Rows of Markdown: right of all, by family, launcher and probe."""
    head = (
        "| | right with the probe | without | place | sure or likely as it may be | healthy accused (sure) |"
    )
    rows = [head, "|---|---|---|---|---|---|"]
    families = dict.fromkeys(one.case.kind.family for one in outcomes)
    groups: list[tuple[str, Callable[[Outcome], bool]]] = [
        *((name, lambda one, name=name: one.case.kind.family == name) for name in families),
        ("without torch", lambda one: one.case.bare),
        *(
            (name, lambda one, name=name: not one.case.bare and one.case.launcher == name)
            for name in ("command", "torchrun", "deepspeed", "accelerate")
        ),
        ("two nodes", lambda one: one.case.nodes == 2),
        ("all faults", lambda one: one.case.fault),
        ("all slow", lambda one: one.case.kind.state == "slow"),
        ("all healthy", lambda one: one.case.kind.state == "healthy"),
        ("**all**", lambda one: True),
    ]
    for name, chosen in groups:
        cells = _cells([one for one in outcomes if chosen(one)], how)
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(rows)


def _cells(outcomes: Sequence[Outcome], how: str) -> list[str]:
    found = [(one, verdict) for one in outcomes if (verdict := one.judged(how))]
    cells = []
    for probe in ("on", "off"):
        some = [verdict for one, verdict in found if one.probe == probe or one.case.bare]
        cells.append(_share(sum(verdict.right for verdict in some), len(some)))
    places = [verdict.place == "right" for _, verdict in found if verdict.place and verdict.rank == "right"]
    fitting = [verdict.certainty == "right" for _, verdict in found if verdict.rank == "right"]
    healthy = [verdict for one, verdict in found if not one.case.blamed]
    accused = sum(verdict.rank == "accused" for verdict in healthy)
    sure = sum(verdict.certainty == "over" for verdict in healthy)
    spared = f"{accused} of {len(healthy)} ({sure})" if healthy else ""
    return [*cells, _share(sum(places), len(places)), _share(sum(fitting), len(fitting)), spared]


def _share(some: int, of: int) -> str:
    return f"{some} of {of}, {some / of:.0%}" if of else ""


def page(outcomes: Sequence[Outcome], missing: int, seed: int) -> str:
    """The score, with what else must be known about it.

    :param missing: runs that were not tried, or were not as they are meant to be
    """
    when = tries.when(seed, [one.facts["load"] for one in outcomes])
    lines = [
        "# Whom the others wait for",
        "",
        HEAD,
        "",
        f"{when}; {len(outcomes)} runs, {missing} not tried.",
    ]
    for how, words in HOW.items():
        lines += ["", f"## {words[0].upper()}{words[1:]}", ""]
        if not any(one.facts.get(how) for one in outcomes):
            lines.append(next((one.facts["why"] for one in outcomes if one.facts.get("why")), "Not tried."))
            continue
        if how == "unattended":
            lines += [SLOW, "", *_promptness(outcomes)]
        wrong = [one for one in outcomes if (found := one.judged(how)) and not found.right]
        lines += [table(outcomes, how), "", "Not as it should be:", ""]
        lines += [f"    {one.line(how)}" for one in wrong] or ["    nothing"]
    return "\n".join([*lines, ""])


def _promptness(outcomes: Sequence[Outcome]) -> list[str]:
    """How long after the last step stalls were told."""
    after = [one.facts["told_after_s"] for one in outcomes if one.facts.get("told_after_s")]
    if not after:
        return []
    told = f"{median(after):.0f} s after the last step (median; at most {max(after):.0f} s)"
    return [f"Stalls were told {told}, with `--hang-after {HANG_AFTER_S}`.", ""]


SLOW = """Of a slow rank this counts only that it is not called a stall: cockpit names it by itself once 8 of
its last 10 steps were slow, which `make slowpool` tries."""

HEAD = """Four ranks, real launches, most of them with torch on CPU over gloo, each with a fault, or slow,
or healthy; written by `make faultpool ARGS=--write`. *Right*: a hang or an end is blamed on exactly the
ranks that caused it (or on nobody where it cannot be known without the probe), and nobody is accused as
sure who may not be."""
