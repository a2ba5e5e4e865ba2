"""All rules, and which of them a line has signs of."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib import import_module

from cockpit.core.logs.prefixes import message
from cockpit.core.logs.search import Expression, Rows
from cockpit.core.rules.row import Row

AREAS = {
    "launch": ("Launch and ssh", "启动与 ssh"),
    "nodes": ("Nodes", "节点"),
    "rendezvous": ("Rendezvous", "会合（rendezvous）"),
    "containers": ("Containers", "容器"),
    "slurm": ("SLURM", "SLURM"),
    "memory": ("Memory", "内存与显存"),
    "disks": ("Disks", "磁盘与文件系统"),
    "builds": ("Builds of extensions", "编译扩展"),
    "fabric": ("InfiniBand, EFA, links between GPUs", "InfiniBand、EFA、GPU 互连"),
    "network": ("Network: NCCL, RCCL, HCCL, oneCCL, gloo", "网络：NCCL、RCCL、HCCL、oneCCL、gloo"),
    "hangs": ("Hangs", "卡住"),
    "processes": ("Processes that stay", "残留进程"),
    "data": ("Data and checkpoints", "数据与 checkpoint"),
    "numerics": ("Numerics", "数值"),
    "profilers": ("Profilers", "profiler"),
    "pyspy": ("py-spy", "py-spy"),
    "crashes": ("Crashes", "崩溃"),
}
"""The modules of rows, with their titles in English and Chinese; where two rows fit one line, that of the
earlier area counts."""

LINE_MOST = 4000
"""Bytes of a line that are looked at."""


class Table:
    """Rows, and a quick way to those that a line has signs of.

    :param rows: what says more comes first
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = tuple(rows)
        self.by_id = {row.id: row for row in rows}
        self.by_check = {check: row for row in rows for check in row.checks}
        self._signs = Rows([Expression(at, sign) for at, row in enumerate(rows) for sign in row.signs])
        self._recorded = sorted(
            (row for row in rows if row.ends and not row.signs), key=lambda row: -len(row.ends)
        )
        self._but = {at: re.compile(row.but.encode()) for at, row in enumerate(rows) if row.but}

    @property
    def hint(self) -> Callable[..., re.Match[bytes] | None]:
        """Finds, in a text of any size, what may be a sign; None: no line of it has one."""
        return self._signs.hint

    def found_in(self, line: bytes) -> list[Row]:
        """The rows that a line has signs of, in their order."""
        if self._signs.hint(line) is None:
            return []
        text = message(line[:LINE_MOST])
        numbers = sorted({at for at, _ in self._signs.found_in(text)})
        return [self.rows[at] for at in numbers if not (at in self._but and self._but[at].search(text))]

    def found_after(self, facts: frozenset[str]) -> Iterator[Row]:
        """The rows that need no line where this is recorded; what needs more of it comes first."""
        return (row for row in self._recorded if row.ends <= facts)


@cache
def table() -> Table:
    """The table of this program."""
    areas = (import_module(f"cockpit.core.rules.rows.{area}") for area in AREAS)
    return Table([row for area in areas for row in area.ROWS])
