"""The last two minutes of every measurement: what sparklines are drawn from."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence

from cockpit.core.events import Event

LIMIT = 120
"""Points kept of each measurement; nodes are measured once a second."""

GPUS = 64
"""GPUs of one node whose measurements are kept: a node may claim any number."""

RANK_NAMES = ("cpu_percent", "rss_bytes")
NODE_NAMES = ("load", "memory_bytes")
GPU_NAMES = ("utilisation_percent", "memory_bytes")

# Single precision: 8,192 ranks on 1,024 nodes take about 20 MB.
_Series = dict[str, "array[float]"]


class Trends:
    """Keeps what ``sample`` events tell of ranks, nodes and GPUs, newest last.

    It learns from the ``planned`` event which rank is whose: a node speaks for its own ranks only. What is no
    number is passed over.
    """

    def __init__(self) -> None:
        self._owner: dict[int, str] = {}
        self._ranks: dict[int, _Series] = {}
        self._nodes: dict[str, _Series] = {}
        self._gpus: dict[tuple[str, int], _Series] = {}

    def take(self, event: Event) -> None:
        """Take in an event of any kind."""
        if event.kind == "planned":
            nodes = event.data["nodes"]
            self._owner = {rank: name for name, ranks in nodes.items() for rank in ranks}
            self._nodes = {name: {} for name in nodes}
        elif event.kind == "rank_started":
            # Another process from here on: its measurements do not go on from the last one's.
            rank = event.data.get("rank")
            if isinstance(rank, int) and self._owner.get(rank) == event.node:
                self._ranks.pop(rank, None)
        elif event.kind == "sample" and event.node in self._nodes:
            self._sample(event.node, event.data)

    def _sample(self, node: str, data: Mapping[str, object]) -> None:
        _keep(self._nodes[node], NODE_NAMES, data.get("sample"))
        ranks = data.get("ranks")
        for name, sample in ranks.items() if isinstance(ranks, Mapping) else ():
            rank = int(name) if isinstance(name, str) and name.isascii() and name.isdecimal() else -1
            if self._owner.get(rank) == node:
                _keep(self._ranks.setdefault(rank, {}), RANK_NAMES, sample)
        gpus = data.get("gpus")
        for index, sample in enumerate(gpus[:GPUS] if isinstance(gpus, (list, tuple)) else ()):
            _keep(self._gpus.setdefault((node, index), {}), GPU_NAMES, sample)

    def rank(self, rank: int, name: str) -> Sequence[float]:
        """``cpu_percent`` (of one core) or ``rss_bytes`` of a rank's present process."""
        return tuple(self._ranks.get(rank, {}).get(name, ()))

    def node(self, node: str, name: str) -> Sequence[float]:
        """``load`` (processes, mean of a minute) or ``memory_bytes`` (in use) of a node."""
        return tuple(self._nodes.get(node, {}).get(name, ()))

    def gpu(self, node: str, index: int, name: str) -> Sequence[float]:
        """``utilisation_percent`` or ``memory_bytes`` (in use) of the GPU at this place in the samples."""
        return tuple(self._gpus.get((node, index), {}).get(name, ()))


def _keep(series: _Series, names: Iterable[str], sample: object) -> None:
    if not isinstance(sample, Mapping):
        return
    for name in names:
        value = sample.get(name)
        if not isinstance(value, (int, float)) or not abs(value) < 1e30 or math.isnan(value):
            continue
        points = series.get(name)
        if points is None:
            points = series[name] = array("f")
        elif len(points) >= LIMIT:
            del points[0]
        points.append(value)
