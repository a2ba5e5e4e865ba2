"""Groups whose numbers begin anew: a program that destroys its groups and makes them again reuses the names.

What ranks entered before that has nothing to do with what they enter now, whichever the numbers: the newest
group of a name counts alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from cockpit.base.recorder.trace import Entry, Group
from cockpit.core.recorder.spans import CLOCKS_US

_OUT_OF_ORDER = 8
"""Threads that call at once may be recorded in another order than they are numbered."""


class _Seam(NamedTuple):
    """Where the numbers of a group begin anew on one rank: the times of the entries before and after."""

    before_us: int
    after_us: int
    place: int


class Anew:
    """When the newest group of each name began, of those that were seen to begin anew.

    :param recorders: the entries of each, oldest first
    """

    def __init__(self, recorders: Iterable[Sequence[Entry]]) -> None:
        seams: dict[Group, list[_Seam]] = {}
        for entries in recorders:
            for group, seam in _seams(entries):
                seams.setdefault(group, []).append(seam)
        # All ranks have to meet before anybody can use a new group: a seam before the last use of an earlier
        # one, by whichever rank, is between two groups that are both over.
        self._used = {group: _used(several) for group, several in seams.items()}
        self._since = {group: _since(several, self._used[group]) for group, several in seams.items()}

    def since(self, group: Group) -> int | None:
        """Before this moment, unix microseconds, nobody had entered anything of the newest group.

        None: there is only one of this name.
        """
        return self._since.get(group)

    def newest(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """The entries of one recorder without those of earlier groups."""
        if not self._since:
            return entries
        begun: dict[Group, int] = {}
        for group, seam in _seams(entries):
            if seam.after_us >= self._used[group]:
                begun[group] = min(seam.place, begun.get(group, seam.place))
        return [
            entry
            for place, entry in enumerate(entries)
            # Its own seam is right whatever its clock says.
            if place >= begun.get(entry.call.group, len(entries))
            or entry.at_us >= self._since.get(entry.call.group, 0)
        ]


def _seams(entries: Sequence[Entry]) -> Iterable[tuple[Group, _Seam]]:
    before: dict[tuple[Group, bool], Entry] = {}
    for place, entry in enumerate(entries):
        series = (entry.call.group, entry.call.pairwise)
        last = before.get(series)
        before[series] = entry
        if last is None:
            continue
        if entry.number <= 1 < last.number or entry.number + _OUT_OF_ORDER < last.number:
            yield entry.call.group, _Seam(last.at_us, entry.at_us, place)


def _used(seams: Sequence[_Seam]) -> int:
    return max(seam.before_us for seam in seams)


def _since(seams: Sequence[_Seam], used_us: int) -> int:
    after_us = min((seam.after_us for seam in seams if seam.after_us >= used_us), default=used_us)
    # A clock may be behind; but by less than it takes to meet.
    return after_us - min(CLOCKS_US, (after_us - used_us) // 2)
