"""Records steps of one rank in an nsys session that is started and stopped from outside.

So it is done where nothing can call cudaProfilerStart: without a GPU. Whoever stops a session must not run
in it: nsys would wait for its end, and it for that of nsys. So this is a child of the rank's wrapper.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import Callable, List, Optional, Sequence

from cockpit.base.progress import ring
from cockpit.base.progress.whole import WholeSteps
from cockpit.node import procfs, safefiles
from cockpit.node.run import tools
from cockpit.node.run.ranks import Identity

EARLY_S = 3.0
"""Seconds before the first step that nsys is told to start: that takes it up to 1 s, more on a busy node."""
EARLY_STEPS = 10
"""The same in steps, while it is not known how long one takes."""
START_S, STOP_S = 60.0, 3600.0
"""Seconds that ``nsys start`` may take, and ``nsys stop``, which writes the report."""
PATIENCE_S = 10.0
"""Longest wait of the first step for nsys, as in the probe's ``windows.py``."""
_LOOK_S = 0.02


class Window:
    """The window of one rank.

    :param start: the words of ``nsys start``; ``stop``: those of ``nsys stop``
    :param rings: the folder of rings
    :param number: of the rank
    :param rank: pid and start time of the training process
    :param begun: a file that is made once it records, or never will: the first step waits for it
    """

    def __init__(
        self,
        start: Sequence[str],
        stop: Sequence[str],
        first: int,
        last: int,
        rings: str,
        number: int,
        rank: Identity,
        begun: str,
    ) -> None:
        self._start = start
        self._stop = stop
        self._first = first
        self._last = last
        self._rings = rings
        self._number = number
        self._path = ""
        self._rank = rank
        self._begun = begun

    def record(self) -> str:
        """Record it; return what became of it, in words."""
        asked = "steps %d to %d" % (self._first, self._last)
        if not self._reached(self._near):
            return "it ended before %s" % asked
        asked_ns = time.monotonic_ns()
        said = _ran(self._start, START_S)
        began = time.monotonic_ns()
        with contextlib.suppress(OSError):
            os.mknod(self._begun)
        if said:
            return "nsys start failed: %s" % said
        held = WholeSteps(began, self._first, PATIENCE_S * 1e9)

        def enough(steps: List[ring.Step]) -> bool:
            held.look(steps)
            return bool(steps) and steps[-1].step >= self._last

        reached = self._reached(enough)
        ended = time.monotonic_ns()
        steps = self._steps()
        held.look(steps)
        # Without the rank there is no session: nsys has stopped by itself.
        said = _ran(self._stop, STOP_S) if procfs.alive(*self._rank) else ""
        if said:
            return "nsys stop failed: %s" % said
        until = held.last(steps, ended)
        if held.first is None or until is None:
            return "no whole step is in its report; asked were %s" % asked
        text = "its report holds steps %d to %d whole, asked were %s" % (held.first[0], until, asked)
        if held.first[0] >= self._first and began - asked_ns > 1e8:
            text += "; the first of them waited for nsys, which took %.1f s to start"
            text %= (began - asked_ns) / 1e9
        return text if reached else text + "; then it ended"

    def _near(self, steps: List[ring.Step]) -> bool:
        """Whether it is time to start."""
        if not steps:
            return self._first <= EARLY_STEPS
        left = self._first - 1 - steps[-1].step
        taken = ring.seconds(steps, len(steps) - 1)
        return left <= (EARLY_STEPS if taken is None else 1 + EARLY_S / max(taken, 1e-6))

    def _reached(self, enough: Callable[[List[ring.Step]], bool]) -> bool:
        """Wait for steps; False: the rank ended before."""
        mark: Optional[bytes] = None
        while True:
            alive = procfs.alive(*self._rank)
            self._path = self._path or self._ring()
            with contextlib.suppress(OSError):
                number = safefiles.opened(self._path)
                try:
                    written = os.pread(number, 8, 48)
                finally:
                    os.close(number)
                # Only a step that is new is worth reading all.
                if written != mark:
                    mark = written
                    if enough(self._steps()):
                        return True
            if not alive:
                return False
            time.sleep(_LOOK_S)

    def _ring(self) -> str:
        """The first ring of the rank that is there: its Python may be a child of its process."""
        with contextlib.suppress(OSError):
            for name in sorted(os.listdir(self._rings)):
                if name.startswith("%d." % self._number) and name.endswith(".ring"):
                    return os.path.join(self._rings, name)
        return ""

    def _steps(self) -> List[ring.Step]:
        try:
            return list(ring.read(safefiles.read(self._path, ring.SIZE)).steps)
        except (OSError, ValueError):
            return []  # the program can write there, too


def _ran(words: Sequence[str], limit_s: float) -> str:
    """Run a command to its end; return what went wrong, or nothing."""
    try:
        ended = tools.run(words, limit_s)
    except OSError as error:
        return str(error.strerror)
    if ended.status is None:
        return "no answer within %g s" % limit_s
    return "" if ended.status == 0 else "status %d: %s" % (ended.status, (ended.lines or [""])[0][:200])
