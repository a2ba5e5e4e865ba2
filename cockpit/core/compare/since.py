"""What was changed of a command from one run of it to another: since it failed, or since it last worked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from cockpit.core.compare.command import Started, changes, same_command
from cockpit.core.compare.words import shown
from cockpit.core.run.brief import GOES_ON, Brief

NAMED = 3
"""Arguments that differ and are named."""


class _Launched(Protocol):
    """What tells how a run was started: its manifest, or its line in the index."""

    @property
    def launcher(self) -> str: ...
    @property
    def cwd(self) -> str: ...
    @property
    def program(self) -> Iterable[str]: ...


def started(run: _Launched) -> Started:
    """What tells whether it is of the same command as another."""
    return Started(run.launcher, run.cwd, tuple(run.program))


def good_before(run: str, began: float, runs: Iterable[Brief]) -> Brief | None:
    """The newest of some runs that ended well and began before another one; None: there is none.

    :param run, began: of the other one
    """
    found = (one for one in runs if one.well and one.run != run and one.began <= began)
    return max(found, key=lambda one: (one.began, one.run), default=None)


def since(run: Brief, runs: Iterable[Brief]) -> tuple[str, str]:
    """What a line about it is about, and the line; empty: there is no other run to tell of, or it ended well.

    Of a run that failed, how the newest run of its command after it was started otherwise, and how far that
    came; else how this one was started otherwise than the last that ended well.
    """
    if run.word not in (*GOES_ON, "failed", "lost") or not run.program:
        return "", ""
    mine = started(run)
    alike = [one for one in runs if one.run != run.run and one.program and same_command(started(one), mine)]
    later = max((one for one in alike if one.began > run.began), key=lambda one: one.began, default=None)
    if later is not None and run.word not in GOES_ON:
        return "since then", f"{_changed(run, later)} in {later.run}{_came(run, later)}"
    good = good_before(run.run, run.began, alike)
    return ("", "") if good is None else ("last good", f"{good.run}; since then {_changed(good, run)}")


def _changed(before: Brief, after: Brief) -> str:
    """``--lr 0.1 → 0.2``, or that nothing is known to have changed."""
    found = changes(before.program, after.program)
    told = [f"{one.name} {shown('argument', one.before)} → {shown('argument', one.after)}" for one in found]
    more = [f"{len(told) - NAMED} more"] if len(told) > NAMED else []
    return ", ".join([*told[:NAMED], *more]) or "the same arguments"


def _came(run: Brief, later: Brief) -> str:
    """How far the later one came, or comes."""
    if later.well:
        return ", which succeeded"
    if run.step is not None and later.step is not None and later.step > run.step:
        return ", past this step"
    return f", {later.word}" if later.word not in GOES_ON else ""
