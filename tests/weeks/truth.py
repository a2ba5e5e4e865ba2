"""What a rank has printed, and whether a copy of it is that, or says where and how much it lacks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cockpit.base.events import Gap


class Truth:
    """All that a rank has printed.

    :param path: a file for it: the memory of this process is measured
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def wrote(self, data: bytes) -> None:
        """It printed this."""
        with self._path.open("ab") as file:
            file.write(data)

    def wrong(self, copy: bytes, gaps: Sequence[Gap]) -> str:
        """What is wrong with a copy; empty: nothing.

        :param gaps: that are declared in it, in their order
        """
        data = self._path.read_bytes() if self._path.exists() else b""
        ends = [*(gap.at for gap in gaps), len(copy)]
        starts = [0, *ends[:-1]]
        lost: list[int | None] = [0, *(gap.lost for gap in gaps)]
        at = 0
        for start, end, missing in zip(starts, ends, lost, strict=True):
            piece = copy[start:end]
            found = data.find(piece, at)
            if found < 0:
                return f"bytes {start:,} to {end:,} of the copy were never printed in this order"
            if missing is not None and missing > found - at:
                return f"{missing:,} bytes are said to be missing before {start:,}, and {found - at:,} are"
            if found > at and not start:
                return f"the first {found:,} bytes are missing, and nothing says so"
            at = found + len(piece)
        left = len(data) - at
        return f"the last {left:,} bytes are missing" if left else ""
