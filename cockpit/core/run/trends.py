"""The last two minutes of every measurement: what sparklines are drawn from."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

from cockpit.base.events import GpuSample, NodeSample, Planned, RankSample, RankStarted, Sample
from cockpit.core.run.events import Event

LIMIT = 120
"""Points kept of each measurement; nodes are measured once a second."""

RANK_NAMES = ("cpu_percent", "rss_bytes")
NODE_NAMES = ("load", "memory_bytes")
GPU_NAMES = ("utilisation_percent", "memory_bytes")

# Single precision: 8,192 ranks on 1,024 nodes take about 20 MB.
_Series = dict[str, "array[float]"]


class Trends:
    """Keeps what ``sample`` events say about ranks, nodes and GPUs, newest last.

    It learns from the ``planned`` event which rank is whose: a node speaks only for its own ranks.
    """

    def __init__(self) -> None:
        self._owner: dict[int, str] = {}
        self._ranks: dict[int, _Series] = {}
        self._nodes: dict[str, _Series] = {}
        self._gpus: dict[tuple[str, int], _Series] = {}

    def take(self, event: Event) -> None:
        """Take in an event of any kind."""
        fact = event.fact
        if isinstance(fact, Planned):
            self._owner = {rank: name for name, ranks in fact.nodes.items() for rank in ranks}
            self._nodes = {name: {} for name in fact.nodes}
        elif isinstance(fact, RankStarted):
            # Another process from here on: its measurements do not continue the last one's.
            if self._owner.get(fact.rank) == event.node:
                self._ranks.pop(fact.rank, None)
        elif isinstance(fact, Sample) and event.node in self._nodes:
            self._sample(event.node, fact)

    def _sample(self, node: str, fact: Sample) -> None:
        _keep(self._nodes[node], NODE_NAMES, fact.sample)
        for rank, sample in fact.ranks.items():
            if self._owner.get(rank) == node:
                _keep(self._ranks.setdefault(rank, {}), RANK_NAMES, sample)
        for index, gpu in enumerate(fact.gpus):
            _keep(self._gpus.setdefault((node, index), {}), GPU_NAMES, gpu)

    def rank(self, rank: int, name: str) -> Sequence[float]:
        """``cpu_percent`` (of one core) or ``rss_bytes`` of a rank's present process."""
        return tuple(self._ranks.get(rank, {}).get(name, ()))

    def node(self, node: str, name: str) -> Sequence[float]:
        """``load`` (processes, mean of a minute) or ``memory_bytes`` (in use) of a node."""
        return tuple(self._nodes.get(node, {}).get(name, ()))

    def gpu(self, node: str, index: int, name: str) -> Sequence[float]:
        """``utilisation_percent`` or ``memory_bytes`` (in use) of the GPU at this place in the samples."""
        return tuple(self._gpus.get((node, index), {}).get(name, ()))


def _keep(series: _Series, names: Iterable[str], sample: NodeSample | RankSample | GpuSample) -> None:
    for name in names:
        value = getattr(sample, name)
        if value is None:
            continue
        points = series.get(name)
        if points is None:
            points = series[name] = array("f")
        elif len(points) >= LIMIT:
            del points[0]
        points.append(value)
