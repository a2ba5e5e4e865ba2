"""A file of steps that is full loses detail where it is oldest, and nothing of what is newest."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Thread

from cockpit.base.gate import Malformed
from cockpit.core.pace.past import PastStep, past_of, worse
from cockpit.engine.files import lines
from cockpit.engine.files import replace as write
from cockpit.errors import CockpitError


def thin(path: Path) -> float | None:
    """Make each two steps one in the older half of a file: that in which ranks differed more stands for both.

    :returns: until when steps are fewer, unix seconds; None: nothing in it is a step
    :raises CockpitError: it cannot be read or written; it is as it was before
    """
    found: list[bytes] = []
    half, passed, until = _size(path) // 2, 0, None
    before: PastStep | None = None
    for line in lines(path):
        passed += len(line) + 1
        step = _step(line) if passed <= half else None
        if step is None and passed <= half:
            continue  # damaged
        if before is not None and (step is None or step.restarts != before.restarts):
            found.append(before.line())
            before = None
        if step is None:
            found.append(line + b"\n")
        elif before is None:
            before = step
        else:
            found.append(replace(worse(before, step), at=step.at).line())
            before, until = None, step.at
    if before is not None:
        found.append(before.line())
    write(path, b"".join(found))
    return until


def _size(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_size
    return 0


def _step(line: bytes) -> PastStep | None:
    with suppress(Malformed):
        return past_of(line)
    return None


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
