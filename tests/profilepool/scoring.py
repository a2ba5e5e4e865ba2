"""The reason that a profile says, against where a rank was slow: the score of the pool of reasons."""

from __future__ import annotations

import re
from typing import Any

from cockpit.core.ranks import read_ranks

_EXCESS = re.compile(r"rank \d+: (\d+)% more (?:own )?time")
_PHASE = re.compile(r", in its (\w+)")


def facts_of(told: dict[str, Any]) -> dict[str, Any]:
    """What a profile said, as the pool of reasons keeps it: who is slow, and why.

    Of the ranks that are named the first one has the reason.
    """
    finding = told["finding"]
    ranks = sorted(read_ranks(finding["ranks"])) if finding["id"] == "slow_rank" else []
    first = _first(finding) if ranks else None
    ranks.sort(key=lambda rank: rank != first)
    excess = [int(found.group(1)) / 100 for text in finding["evidence"] if (found := _EXCESS.match(text))]
    slow = [{"rank": rank, "excess": part} for rank, part in zip(ranks, [*excess, *[0.0] * 9], strict=False)]
    return {**told, "slow": slow, "why": [_why(finding["detail"]), *[""] * len(ranks)][: len(ranks)]}


def _first(finding: dict[str, Any]) -> int:
    return int(re.match(r"rank (\d+)", finding["evidence"][0]).group(1))  # type: ignore[union-attr]


def _why(detail: str) -> str:
    """The phase of a sentence; empty: it names none."""
    if "waits for data" in detail:
        return "input"
    found = _PHASE.search(detail)
    return found.group(1) if found else "other" if "outside of its phases" in detail else ""


HEAD = """# Why a rank is slow, by a profile

The pool of `make whypool`, each phase profiled for five steps while it goes on (`cockpit profile RUN`): the
reason that its first sentence says. Written by `make profilepool ARGS=--write`."""
