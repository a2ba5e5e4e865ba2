"""Warnings in the files that NCCL writes under ``--nccl-debug``: else they would be in the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from cockpit.core.nccl.lines import LONGEST
from cockpit.core.text import one_line

OF_RANK, OF_RUN = 3, 30
"""Most warnings reported for one rank, and for the run: a broken network prints thousands."""
SHOWN = 240
"""Characters of one."""

_SIGN = b"NCCL WARN "


class Warnings:
    """Finds them as bytes of the files come."""

    def __init__(self) -> None:
        self._rest: dict[int, bytes] = {}
        self._told: Counter[int] = Counter()
        """How many of each rank."""

    def take(self, rank: int, data: bytes) -> Iterator[str]:
        """The warnings that these bytes of a rank's file end, each as a line."""
        whole, newline, rest = (self._rest.pop(rank, b"") + data).rpartition(b"\n")
        self._rest[rank] = rest[-LONGEST:]
        for line in whole.split(b"\n") if newline else ():
            _, found, text = line[:LONGEST].partition(_SIGN)
            if found and self._told[rank] < OF_RANK and self._told.total() < OF_RUN:
                self._told[rank] += 1
                yield one_line(text.strip(), limit=SHOWN)
