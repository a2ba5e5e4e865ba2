"""What nodes measured, beside the steps in the run's folder: a moment each quarter of a minute, thinned."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from cockpit.base.events import Sample
from cockpit.base.gate import Malformed
from cockpit.base.growing_file import Lasting
from cockpit.core.pace.measured import EVERY_S, Measured, measured, measured_of, moment, thinned
from cockpit.engine.files import open_regular
from cockpit.engine.records.manifest import Manifest
from cockpit.engine.run.past_file import PastFile

FILE = "measured.jsonl"

POINTS = 120
"""Measurements of each node that are read at once: as many as are drawn."""


class Measures:
    """Keeps measurements, some of them; what the disk refuses is lost.

    :param path: the file
    :param limit: bytes from which on older ones are fewer
    """

    def __init__(self, path: Path, limit: int) -> None:
        self._file = Lasting(str(path), limit, thinned, open_regular)
        self._last: dict[str, float] = {}

    def take(self, at: float, node: str, sample: Sample) -> None:
        """A node was measured; it is kept if the last one that was is some time ago.

        :param at: unix seconds on our clock
        """
        if abs(at - self._last.get(node, 0.0)) >= EVERY_S:
            self._last[node] = at
            self._file.add(measured(at, node, sample).line())

    def close(self) -> None:
        """Close the file."""
        self._file.wait()
        self._file.close()


def kept(folder: Path, manifest: Manifest, until: float | None = None) -> Iterator[Measured]:
    """The measurements that are kept, the earliest first; of a node only what is about its own ranks.

    :param until: the last ones up to this moment alone, unix seconds on our clock; None: all of them
    :raises CockpitError: the file cannot be read
    """
    owned = {entry.name: frozenset(entry.ranks) for entry in manifest.nodes}
    with PastFile(folder / FILE) as file:
        end = file.size if until is None else file.until(until, moment)
        begin = 0 if until is None else file.last(POINTS * len(owned), end)
        for part in file.parts(begin, end):
            for line in part:
                with suppress(Malformed):
                    found = measured_of(line)
                    if found.node in owned and owned[found.node] >= {one.rank for one in found.ranks}:
                        yield found
