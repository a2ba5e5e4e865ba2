"""Begins the window of an nsys that waits for cudaProfilerStart at one step, and ends it at another.

Read as a file by ``hooks`` where ``cockpit run --profile-steps`` asked for it.
"""

from __future__ import annotations

from typing import Any


class Window:
    """The window of this process.

    :param asked: first and last step, and whether each step in it gets an NVTX range, as ``10 15 1``
    :param cuda: ``torch.cuda``
    :raises ValueError: there is no GPU for torch
    """

    def __init__(self, asked: str, cuda: Any) -> None:
        self._first, self._last, self._ranges = map(int, asked.split())
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
