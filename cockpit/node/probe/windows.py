"""Begins the window of an nsys at one step, and ends it at another; or waits until somebody has begun it.

Read as a file by ``hooks`` where ``cockpit run --profile-steps`` asked for it.
"""

from __future__ import annotations

import os
import time
from typing import Any

PATIENCE_S = 10.0
"""Longest wait of a step for nsys to have started."""


def made(asked: str, cuda: Any) -> Any:
    """The window of this process.

    :param asked: first and last step, whether each step in it gets an NVTX range, and a file that will be
        there once others have begun the window, as ``10 15 0 /path``; no file: it is begun here
    :param cuda: ``torch.cuda``
    :raises ValueError: it is to be begun here, and torch sees no GPU
    """
    first, last, ranges, *path = asked.split(" ", 3)
    return Awaited(int(first), path[0]) if path else Window(int(first), int(last), ranges == "1", cuda)


class Awaited:
    """A window that others begin: the step before it does not end before that."""

    def __init__(self, first: int, path: str) -> None:
        self._first = first
        self._path = path
        self._waited = False
        if first <= 1:
            self.stepped(0)

    def stepped(self, step: int) -> bool:
        """A step has ended; return whether the window is still to come."""
        if step + 1 < self._first:
            return True
        if self._waited:
            return False
        self._waited = True
        end = time.monotonic() + PATIENCE_S
        while not os.path.exists(self._path) and time.monotonic() < end:
            time.sleep(0.005)
        return False


class Window:
    """A window that is begun by cudaProfilerStart, for which nsys waits.

    :raises ValueError: there is no GPU for torch
    """

    def __init__(self, first: int, last: int, ranges: bool, cuda: Any) -> None:
        self._first, self._last, self._ranges = first, last, ranges
        self._cuda = cuda
        self._open = self._range = False
        if not cuda.is_available():
            raise ValueError("torch sees no GPU, so it cannot begin the window of nsys")
        if self._first <= 1:
            self.stepped(0)

    def stepped(self, step: int) -> bool:
        """A step has ended; return whether the window is still to come, or open.

        A step that begins or ends it costs that step some milliseconds; others cost nothing.
        """
        if self._range:
            self._cuda.nvtx.range_pop()
            self._range = False
        if self._open and step >= self._last:
            self._cuda.synchronize()  # what the last step has launched belongs to it
            self._cuda.cudart().cudaProfilerStop()
            self._open = False
            return False
        if not self._open and step + 1 >= self._first:
            if step >= self._last:
                return False
            self._cuda.cudart().cudaProfilerStart()
            self._open = True
        if self._open and self._ranges:
            self._cuda.nvtx.range_push("step %d" % (step + 1))
            self._range = True
        return True
