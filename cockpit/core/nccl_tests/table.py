"""What a program of nccl-tests has measured: one table, as it printed it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

_PROGRAM = re.compile(r"(?<![\w.-])([A-Za-z0-9][\w.-]{0,63}_perf)(?=$|[\s'\";)])")


def program_name(words: Iterable[str]) -> str:
    """The one program of nccl-tests that a command starts, such as ``all_reduce_perf``; else empty."""
    named = {found[1] for word in words for found in _PROGRAM.finditer(word)}
    return named.pop() if len(named) == 1 else ""


@dataclass(frozen=True)
class Half:
    """Out of place, or in place; None: the table does not say, or says ``N/A``.

    :param algbw: GB/s; so is :attr:`busbw`, which is comparable between collectives
    :param wrong: values that are wrong (``#wrong``)
    :param delta: the greatest deviation (``error``), which versions before 2.13 print instead
    :param min_us: of all iterations (``-I 1``); so are ``max_us``, ``p99_us``, ``cv_percent``
    """

    time_us: float | None = None
    algbw: float | None = None
    busbw: float | None = None
    wrong: float | None = None
    delta: float | None = None
    min_us: float | None = None
    max_us: float | None = None
    p99_us: float | None = None
    cv_percent: float | None = None


class What(NamedTuple):
    """What a line is about: lines of two tables with the same are comparable."""

    size: int
    type: str
    redop: str
    root: int | None


@dataclass(frozen=True)
class Row:
    """One line of the table.

    :param out_of_place: None: left blank; so is :attr:`in_place`
    :param at: when it was done, in the node's words (``-S 1``)
    :param line: its number in the log, from 1
    """

    what: What
    count: int
    out_of_place: Half | None
    in_place: Half | None
    at: str = ""
    line: int = 0

    @property
    def wrong(self) -> float:
        """Values that are wrong."""
        return sum(half.wrong or 0.0 for half in (self.out_of_place, self.in_place) if half is not None)

    @property
    def busbw(self) -> float | None:
        """Its bus bandwidth, GB/s: out of place, if that was measured."""
        for half in (self.out_of_place, self.in_place):
            if half is not None and half.busbw is not None:
                return half.busbw
        return None


class Damage(NamedTuple):
    """What of a table cannot be read.

    :param line: its number in the log, from 1
    """

    line: int
    what: str


class Device(NamedTuple):
    """A rank of the test, as it names itself; hosts are cut at their first dot."""

    rank: int
    host: str
    device: int
    name: str


@dataclass(frozen=True)
class Table:
    """A table.

    :param test: the program; empty: it does not say so (before 2.17) and neither does the command
    :param version: of nccl-tests; empty: before 2.17.6
    :param nccl: the number of NCCL's version
    :param line: of the header in the log, from 1
    :param out_of_bounds: how many checks failed, by the summary below it; None: there is none
    :param average: bus bandwidth, by that summary
    :param finished: whether the summary is there
    :param json_file: where it writes its own JSON (``-J``)
    """

    test: str = ""
    version: str = ""
    nccl: str = ""
    devices: tuple[Device, ...] = ()
    rows: tuple[Row, ...] = ()
    line: int = 0
    out_of_bounds: int | None = None
    average: float | None = None
    finished: bool = False
    json_file: str = ""
    damage: tuple[Damage, ...] = ()

    @property
    def hosts(self) -> tuple[str, ...]:
        """Where it ran, by its own words; empty: it did not say."""
        return tuple(sorted({device.host for device in self.devices}))

    @property
    def wrong(self) -> float:
        """Values that are wrong; where the table has no such column, checks that failed."""
        return sum(row.wrong for row in self.rows) or float(self.out_of_bounds or 0)

    @property
    def peak(self) -> Row | None:
        """The line with the largest message whose bus bandwidth is known."""
        known = [row for row in self.rows if row.busbw is not None]
        return max(known, key=lambda row: row.what.size, default=None)

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "test": self.test,
            "version": self.version,
            "nccl": self.nccl,
            "hosts": list(self.hosts),
            "ranks": len(self.devices),
            "line": self.line,
            "finished": self.finished,
            "wrong": self.wrong,
            "average_busbw": self.average,
            "damage": [one._asdict() for one in self.damage],
            "rows": [
                {
                    **row.what._asdict(),
                    "count": row.count,
                    "out_of_place": row.out_of_place and asdict(row.out_of_place),
                    "in_place": row.in_place and asdict(row.in_place),
                    "at": row.at,
                    "line": row.line,
                }
                for row in self.rows
            ],
        }
