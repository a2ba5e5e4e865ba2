"""A file of steps that is full loses detail where it is oldest, and nothing of what is newest."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Thread

from cockpit.base.ages import Ages, coarser
from cockpit.base.gate import Malformed
from cockpit.core.pace.past import PastStep, past_of, worse
from cockpit.engine.files import lines
from cockpit.engine.files import replace as write
from cockpit.errors import CockpitError

OLDER = 1 << 14
"""Steps that become one are so many times nearer to each other than they are old, if that fits."""

APART_S = 0.5
"""Of steps that end within so many seconds one is kept: that in which the ranks differed most."""


def thin(path: Path) -> float | None:
    """Make steps one, the more the older they are: that in which ranks differed most stands for all of them.

    Half of what the file has is left.

    :returns: until when steps are fewer, unix seconds; None: nothing in it is a step
    :raises CockpitError: it cannot be read or written; it is as it was before
    """
    moments = array("d", (step.at for step in _steps(path)))
    older = OLDER
    while True:
        firsts = _firsts(moments, older)
        if sum(firsts) <= len(moments) // 2 or older == 1:
            break
        older = coarser(older, sum(firsts), len(moments) // 2)
    found: list[bytes] = []
    until: float | None = None
    before: PastStep | None = None
    # Nobody else writes here: there are as many as there were.
    for first, step in zip(firsts, _steps(path), strict=False):
        if before is None:
            before = step
        elif first or step.restarts != before.restarts:
            found.append(before.line())
            before = step
        else:
            before, until = replace(worse(before, step), at=step.at), step.at
    if before is not None:
        found.append(before.line())
    write(path, b"".join(found))
    return until


def _firsts(moments: Sequence[float], older: int) -> bytearray:
    """Of each step whether it is the first of those that become one."""
    ages, firsts = Ages(older, APART_S), bytearray(len(moments))
    after: object = None
    for place in range(len(moments) - 1, -1, -1):
        span = ages.span(moments[place])
        if place + 1 < len(moments):
            firsts[place + 1] = span != after
        after = span
    return firsts


def _steps(path: Path) -> Iterator[PastStep]:
    """The steps of a file; damaged lines are left out."""
    for line in lines(path):
        with suppress(Malformed):
            yield past_of(line)


class Thinning:
    """Thins a file out beside everything else: that takes seconds."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread: Thread | None = None
        self._error: CockpitError | None = None
        self._until: float | None = None

    def begin(self) -> None:
        """Begin with it; nobody may write to the file until it is done."""
        self._thread = Thread(target=self._run, name="thinning", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._until = thin(self._path)
        except CockpitError as error:
            self._error = error

    def goes_on(self, *, wait: bool = False) -> bool:
        """Whether it is not done yet.

        :param wait: until it is
        """
        if self._thread is not None and wait:
            self._thread.join()
        return self._thread is not None and self._thread.is_alive()

    def take(self) -> float | None:
        """Until when steps are fewer, once; None: there is no news.

        :raises CockpitError: it could not be done
        """
        if self._thread is None or self._thread.is_alive():
            return None
        self._thread = None
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        until, self._until = self._until, None
        return until
