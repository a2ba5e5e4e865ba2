"""What a look at all ranks amounts to: stalled only if those who hold up the others stand still."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cockpit.core.finding import Finding
from cockpit.core.ranks import mask_text
from cockpit.core.run.watch_messages import MOVES

CALM = frozenset({"moving", "over", "unknown", "together", "slow", MOVES})
"""Verdicts that accuse nobody."""

FINE = frozenset({"moving", "over", "slow"})
"""Verdicts after which nothing is stalled, even if all ranks were seen to stand still for a moment."""

GONE = frozenset({"ended", "exited", "missing"})
"""Verdicts about ranks without a process: there is nothing of them that could move."""

NOT_ENTERED = "not_entered"
"""The id of a finding that only the recorder is good for."""


@dataclass(frozen=True)
class Inspection:
    """What a look at all ranks has seen; sets of ranks are masks.

    :param finding: the verdict
    :param still: ranks that two samples show frozen, or polling
    :param moving: ranks that moved
    :param missing: ranks that others wait for, as recorders say, while they wait for nobody
    :param waiting: ranks that wait for others
    :param where: the place of those that move: ``evaluate.py:31``
    :param snapshot: the name of its folder
    :param why: what has kept it from being whole, in a sentence
    """

    finding: Finding
    still: int = 0
    moving: int = 0
    missing: int = 0
    waiting: int = 0
    where: str = ""
    snapshot: str = ""
    why: str = ""


def judge(looked: Inspection, *, steps: bool = True, front: bool = True) -> tuple[str, Finding]:
    """The state of the run, ``stalled`` or ``quiet``, and what to say.

    :param steps: whether it is known that no step was made; else ranks may be idle servers
    :param front: whether nobody goes on; else some rank only is behind
    """
    found = looked.finding
    accused = 0 if found.id in CALM else found.ranks
    if accused and not steps and found.certainty == "unsure":
        return "quiet", found
    if accused:
        stands = found.id in GONE or not accused & ~looked.still
        return ("stalled" if stands else "quiet"), _modest(found, front=front and stands)
    if looked.missing:
        missing = _not_entered(looked)
        if looked.missing & looked.moving:
            return "quiet", _moves(looked)
        return "stalled", _modest(missing, front=front)
    if steps and front and looked.still and not looked.moving and found.id not in FINE:
        return "stalled", _modest(found, front=False)
    return "quiet", _moves(looked) if looked.moving else found


def _modest(found: Finding, *, front: bool) -> Finding:
    """While somebody goes on, or moves, nothing is sure."""
    return found if front or found.certainty != "sure" else replace(found, certainty="likely")


def _moves(looked: Inspection) -> Finding:
    moving = looked.moving
    who = f"rank{'s' * (moving.bit_count() > 1)} {mask_text(moving)}"
    if len(who) > 40:
        who = f"{moving.bit_count():,} ranks"
    at = f" in {looked.where}" if looked.where else ""
    verb = "moves" if moving.bit_count() == 1 else "move"
    return Finding(MOVES, f"{who} {verb}{at}", moving, looked.where, certainty="likely", severity="info")


def _not_entered(looked: Inspection) -> Finding:
    missing = looked.missing
    one = missing.bit_count() == 1
    who = f"rank{'' if one else 's'} {mask_text(missing)}"
    what = f"{who} {'has' if one else 'have'} not entered what the others wait for"
    evidence = ("flight recorders of the ranks", *looked.finding.evidence)
    return Finding(
        NOT_ENTERED,
        what,
        missing,
        looked.finding.where,
        evidence=evidence,
        certainty="likely",
        steps=looked.finding.steps,
    )
