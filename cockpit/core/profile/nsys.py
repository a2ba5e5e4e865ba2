"""Profiles that come from nsys reports: which belong together, and whose collectives can be matched."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from cockpit.base.profile.summary import RankProfile

KIND = "nsys"
"""Of a collection that is made of reports."""

LAUNCH = "launch"
"""The id of a collection of the reports that a run was launched for."""

SUFFIX = ".nsys-rep"

_ID = re.compile(r"\.([0-9]{6}-[0-9]{6}-[0-9a-f]{6})(?:\.[0-9A-Za-z-]{1,40})?\.nsys-rep\Z")
_RANK = re.compile(r"\.rank-(0|[1-9][0-9]{0,6})\.")
_COUNT = re.compile(r" #[0-9]+\Z")

UNMATCHED = "its window has more or fewer collectives than others': waiting for each other is unknown"


def collection_of(name: str) -> str:
    """The id of the collection that a report is part of."""
    found = _ID.search(name)
    return found[1] if found else LAUNCH


def ranks_in(names: Iterable[str], ranks: Iterable[int]) -> set[int]:
    """Ranks of a node that its reports are of: those that they name, or all."""
    named = [_RANK.search(name) for name in names]
    return {int(found[1]) for found in named if found} if all(named) else set(ranks)


def newest(ids: Iterable[str]) -> str:
    """Of ids of collections the one that was taken last; empty: there are none."""
    return max(ids, key=lambda one: (one != LAUNCH, one), default="")


def matched(profiles: Mapping[int, RankProfile]) -> dict[int, RankProfile]:
    """Profiles whose collectives are matched only where that is sure.

    A collective without a number is known by how many of its kind came before it in its step. If a report
    marks no steps, that is right only if the windows of all ranks have the same collectives.
    """
    if any(len(profile.steps) > 1 for profile in profiles.values()):
        return dict(profiles)
    counts: defaultdict[str, set[int]] = defaultdict(set)
    for profile in profiles.values():
        for stem, count in Counter(_COUNT.sub("", one.key) for one in profile.collectives).items():
            counts[stem].add(count)
    odd = {stem for stem, some in counts.items() if len(some) > 1}
    found = dict(profiles)
    for rank, profile in profiles.items() if odd else ():
        rows = tuple(
            replace(one, key=f"{one.key} of rank {rank}"[:200]) if _COUNT.sub("", one.key) in odd else one
            for one in profile.collectives
        )
        if rows != profile.collectives:
            found[rank] = replace(profile, collectives=rows, notes=(*profile.notes, UNMATCHED)[-20:])
    return found
