"""Two measurements of the same nodes, and nodes that measured each for itself."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from cockpit.base import gate
from cockpit.base.gate import Definition, ListOf, Number, Of, Whole, bound, maybe
from cockpit.core.nccl_tests.table import Table, What

ROWS = 200
"""Lines of a table that are kept for a comparison."""
NAMES = 1 << 14
_LEAST, _MOST = 0.01, 1e9
"""GB/s: what is less is printed as 0."""


class PastRow(Definition):
    """The bus bandwidth of a line, GB/s: out of place, if that was measured."""

    size: int = bound(gate.SIZE)
    type: str = bound(gate.WORD)
    redop: str = bound(gate.WORD)
    root: int | None = maybe(Whole(-(1 << 31), 1 << 31))
    busbw: float = bound(Number(0.0, _MOST))


class Past(Definition):
    """An earlier measurement.

    :param hosts: where it ran
    :param t: when its run was started, unix seconds
    """

    run: str = bound(gate.RUN_NAME)
    t: float = bound(gate.TIME)
    test: str = bound(gate.WORD)
    ranks: int = bound(gate.COUNT)
    hosts: Sequence[str] = bound(ListOf(gate.NODE_NAME, NAMES))
    rows: Sequence[PastRow] = bound(ListOf(Of(PastRow), ROWS))

    @classmethod
    def of(cls, table: Table, run: str, t: float, hosts: Sequence[str]) -> Past:
        """A table as it is kept; of its lines the largest."""
        rows = [PastRow(*what, busbw) for what, busbw in sorted(_busbw(table).items(), key=_by_size)[-ROWS:]]
        return cls(run, t, table.test, len(table.devices), tuple(hosts), tuple(rows))

    @property
    def day(self) -> str:
        """The day of it, here: ``2026-11-20``."""
        return time.strftime("%Y-%m-%d", time.localtime(self.t))

    def comparable(self, other: Past) -> bool:
        """Whether both measured the same on the same nodes."""
        same = (self.test, self.ranks) == (other.test, other.ranks)
        return same and tuple(self.hosts) == tuple(other.hosts)

    @property
    def busbw(self) -> Mapping[What, float]:
        """Bus bandwidth by what it is of."""
        return {What(row.size, row.type, row.redop, row.root): row.busbw for row in self.rows}


def _by_size(pair: tuple[What, float]) -> int:
    return pair[0].size


def _busbw(table: Table) -> dict[What, float]:
    """Bus bandwidth by what it is of; what was measured several times counts with its median."""
    found: dict[What, list[float]] = {}
    for row in table.rows:
        if row.busbw is not None and 0 <= row.busbw <= _MOST:
            found.setdefault(row.what, []).append(row.busbw)
    return {what: statistics.median(values) for what, values in found.items()}


class Change(NamedTuple):
    """How bus bandwidth differs from before.

    :param before: what was measured then
    :param by: the fraction of it that it differs by; less than 0: it is less
    """

    what: What
    now: float
    was: float
    before: Past

    @property
    def by(self) -> float:
        return self.now / self.was - 1


def changes(now: Past, before: Past) -> list[Change]:
    """What both measured, the largest message last; nothing where it was 0 (one rank alone)."""
    was = before.busbw
    same = [
        Change(what, busbw, was[what], before)
        for what, busbw in now.busbw.items()
        if was.get(what, 0.0) >= _LEAST
    ]
    return sorted(same, key=lambda one: one.what.size)


class Apart(NamedTuple):
    """A node that measured less by itself than the others did.

    :param others: what the median of them measured
    """

    host: str
    what: What
    busbw: float
    others: float

    @property
    def by(self) -> float:
        """The fraction of the others' that it differs by; less than 0: it is less."""
        return self.busbw / self.others - 1


def slowest(measured: Iterable[Past]) -> Apart | None:
    """The slowest of nodes that each ran the same test alone, by the largest message that all measured.

    In a test over several nodes all take as long as the slowest: it does not say which one that is.
    """
    alike: dict[tuple[str, int], dict[str, Mapping[What, float]]] = {}
    for one in measured:
        if len(one.hosts) == 1:
            alike.setdefault((one.test, one.ranks), {}).setdefault(one.hosts[0], one.busbw)
    found = []
    for by_host in alike.values():
        if len(by_host) < 2:
            continue
        common = set.intersection(*(set(busbw) for busbw in by_host.values()))
        what = max(common, key=lambda one: one.size, default=None)
        if what is None:
            continue
        host = min(by_host, key=lambda name: by_host[name][what])
        others = statistics.median(busbw[what] for name, busbw in by_host.items() if name != host)
        if others >= _LEAST:
            found.append(Apart(host, what, by_host[host][what], others))
    return min(found, key=lambda one: one.by, default=None)
