"""Runs that belong together: restarts, requeues and resumes of one job are one series."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from cockpit.core.report.goodput import Goodput
from cockpit.core.run.brief import Brief


class Member(NamedTuple):
    """A run of a series.

    :param how: by what it is known to continue the one before: empty: it is the first
    :param sure: whether that is on record; else it only looks like it
    :param first, last: its steps; None: not known
    :param wall: its own wall time, split
    """

    run: str
    began: float
    ended: float | None
    state: str
    how: str
    sure: bool
    first: int | None = None
    last: int | None = None
    wall: Goodput | None = None

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {**self._asdict(), "wall": None if self.wall is None else self.wall.as_json()}


class Lineage(NamedTuple):
    """A series, the oldest run first.

    :param left_out: how many more are not looked at
    :param wall: wall time of all of them, and of the time between them
    """

    members: tuple[Member, ...]
    left_out: int = 0
    wall: Goodput | None = None

    @property
    def sure(self) -> bool:
        """Whether it is on record that all of them belong together."""
        return all(member.sure for member in self.members)

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "runs": [member.as_json() for member in self.members],
            "left_out": self.left_out,
            "sure": self.sure,
            "wall": None if self.wall is None else self.wall.as_json(),
        }


class Joint(NamedTuple):
    """By what a run continues the one before: in words, and whether that is on record."""

    run: str
    how: str
    sure: bool


def series(runs: Iterable[Brief], of: str) -> list[Joint]:
    """The runs that are one series with one of them, the oldest first; that one alone, if none are.

    A run continues the newest one before it that it may continue, and each is continued by one run alone.
    """
    before: dict[str, tuple[str, Joint]] = {}
    free: dict[str, Brief] = {}
    for one in sorted(runs, key=lambda known: (known.began, known.run)):
        joint, found = Joint(one.run, "", True), None
        for known in reversed(list(free.values())):
            how, sure = _continues(known, one)
            if how:
                joint, found = Joint(one.run, how, sure), known
                break
        if found is not None:
            del free[found.run]
        before[one.run] = ("" if found is None else found.run), joint
        free[one.run] = one
    after = {earlier: run for run, (earlier, _) in before.items() if earlier}
    first = of
    while (earlier := before[first][0]) and earlier in before:
        first = earlier
    chain = [first]
    while (later := after.get(chain[-1])) is not None:
        chain.append(later)
    return [before[run][1]._replace(how="", sure=True) if run == first else before[run][1] for run in chain]


def _continues(one: Brief, later: Brief) -> tuple[str, bool]:
    """By what a run continues an earlier one, and whether that is on record; empty: it does not."""
    if (one.program, one.cwd) != (later.program, later.cwd):
        return "", False
    if one.run == later.again and not one.well and one.ended is not None:
        return "run again", True
    if one.job and one.job == later.job:
        if later.restart > one.restart:
            return f"SLURM job {later.job}, restart {later.restart}", True
        overlap = one.ended is None or one.ended > later.began
        return ("", False) if overlap or one.well else (f"SLURM job {later.job}", True)
    if one.well or one.ended is None or one.ended > later.began or one.settings != later.settings:
        return "", False
    return "same command, folder and settings", False


def resumed(members: Sequence[tuple[int | None, int | None]], place: int) -> int | None:
    """The first step of the run after one, if it goes on where that one was; None: not known.

    :param members: first and last step of each
    """
    if place + 1 >= len(members):
        return None
    last, first = members[place][1], members[place + 1][0]
    return first if last is not None and first is not None and first <= last + 1 else None
