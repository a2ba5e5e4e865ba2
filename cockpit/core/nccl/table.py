"""What the ranks of a run say of their NCCL, side by side: what differs between them comes first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

from cockpit.core.masks import mask_of
from cockpit.core.ranks import mask_text, nodes_text, ranks_text

COLUMNS = {
    "version": "version",
    "toolkit": "built for",
    "driver": "driver",
    "bootstrap": "bootstrap interface",
    "network": "network",
    "interfaces": "interfaces",
    "devices": "devices",
    "plugin": "plugin",
    "gdr": "GPUDirect RDMA",
    "across": "to other nodes",
    "inside": "within the node",
    "algorithms": "connected",
    "channels": "channels",
    "world": "ranks",
}
"""What is compared, and what it is called for people."""

_SETTINGS_APART = ("NCCL_HOSTID", "NCCL_DEBUG_FILE", "NCCL_TOPO_DUMP_FILE", "NCCL_GRAPH_DUMP_FILE")
"""Variables that are meant to be another one for each rank or node."""


@dataclass(frozen=True)
class Row:
    """What one process says; empty: it does not say.

    :param numbers: its ranks: one, or those of a process with several GPUs; empty: not known
    :param node: its host, as the run or, where no run is known, NCCL names it
    :param version: ``NCCL 2.21.5``, ``RCCL 2.18.6``
    :param toolkit: what it was built for: ``CUDA 12.4``, ``HIP 6.2``
    :param driver: the CUDA that the driver supports
    :param bootstrap: the interface that ranks meet over
    :param network: what goes between nodes: ``Socket``, ``IB``, ``AWS Libfabric``, a plugin's own name
    :param interfaces: those of NET/Socket
    :param devices: those of NET/IB: ``mlx5_0:1/IB``, ``mlx5_1:1/RoCE``
    :param no_ib: it looked for InfiniBand and RoCE, and found none
    :param plugin: of the network, with its version where that is said
    :param provider: of libfabric: ``efa``
    :param gdr: whether the network card reads a GPU's memory: ``on``, ``off``, ``mixed``
    :param across: ways to ranks on other nodes: ``NET/IB/GDRDMA``
    :param inside: ways to ranks on the same node: ``P2P/CUMEM``, ``SHM``
    :param algorithms: what it has connected: ``rings``, ``trees``, ``NVLS``
    :param channels: of collectives, in the largest communicator
    :param world: ranks of its largest communicator
    :param communicators: how many were made
    :param settings: variables of NCCL that it read
    :param remarks: what it says of P2P and ACS
    :param gloo: what gloo says: its rank, peers that it is connected to, peers that there are
    """

    numbers: tuple[int, ...] = ()
    node: str = ""
    gpus: tuple[int, ...] = ()
    version: str = ""
    toolkit: str = ""
    driver: str = ""
    bootstrap: str = ""
    network: str = ""
    interfaces: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    no_ib: bool = False
    plugin: str = ""
    provider: str = ""
    gdr: str = ""
    gdr_off: tuple[str, ...] = ()
    across: tuple[str, ...] = ()
    inside: tuple[str, ...] = ()
    algorithms: tuple[str, ...] = ()
    channels: int = 0
    p2p_channels: int = 0
    world: int = 0
    communicators: int = 0
    settings: Mapping[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    acs: bool = False
    gloo: tuple[int, int, int] | None = None

    def value(self, column: str) -> str:
        """What it says in a column of :data:`COLUMNS`, or of a setting; empty: nothing."""
        if column in COLUMNS:
            found = getattr(self, column)
            if isinstance(found, tuple):
                return ", ".join(found)
            return str(found) if found else ""
        return self.settings.get(column, "")

    @property
    def ranks(self) -> int:
        """Its ranks, as a mask."""
        return mask_of(self.numbers)

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "ranks": ranks_text(self.numbers),
            "node": self.node,
            "gpus": list(self.gpus),
            "version": self.version,
            "toolkit": self.toolkit,
            "driver": self.driver,
            "bootstrap": self.bootstrap,
            "network": self.network,
            "interfaces": list(self.interfaces),
            "devices": list(self.devices),
            "plugin": self.plugin,
            "provider": self.provider,
            "gdr": self.gdr,
            "across": list(self.across),
            "inside": list(self.inside),
            "algorithms": list(self.algorithms),
            "channels": self.channels,
            "world": self.world,
            "communicators": self.communicators,
            "settings": dict(self.settings),
        }


class Group(NamedTuple):
    """Those that say the same."""

    value: str
    rows: tuple[Row, ...]

    @property
    def ranks(self) -> int:
        """Their ranks, as a mask."""
        return mask_of(number for row in self.rows for number in row.numbers)

    @property
    def nodes(self) -> tuple[str, ...]:
        """Their nodes."""
        return tuple(dict.fromkeys(row.node for row in self.rows if row.node))

    @property
    def who(self) -> str:
        """Whom it is about, for people."""
        if not self.ranks:
            return nodes_text(self.nodes) if self.nodes else "?"
        one = self.ranks & (self.ranks - 1) == 0
        where = f" ({nodes_text(self.nodes)})" if self.nodes else ""
        return f"rank{'' if one else 's'} {mask_text(self.ranks)}{where}"


class Difference(NamedTuple):
    """What ranks do not say alike: what most say first."""

    column: str
    groups: tuple[Group, ...]

    @property
    def name(self) -> str:
        """The column for people."""
        return COLUMNS.get(self.column, self.column)


@dataclass(frozen=True)
class Table:
    """What all of them say.

    :param left_out: processes of which nothing was kept: there are too many
    """

    rows: tuple[Row, ...] = ()
    left_out: int = 0

    def __bool__(self) -> bool:
        return bool(self.rows)

    @property
    def nodes(self) -> tuple[str, ...]:
        """Every host that is named."""
        return tuple(dict.fromkeys(row.node for row in self.rows if row.node))

    @property
    def spans(self) -> bool:
        """Whether ranks of more than one node take part."""
        return len(self.nodes) > 1 or any(row.across for row in self.rows)

    def of(self, ranks: int) -> Table:
        """The rows of some ranks alone."""
        return Table(tuple(row for row in self.rows if any(ranks >> number & 1 for number in row.numbers)))

    def groups(self, column: str) -> tuple[Group, ...]:
        """Who says what in a column, what most say first; who says nothing is left out."""
        by: dict[str, list[Row]] = {}
        for row in self.rows:
            if value := row.value(column):
                by.setdefault(value, []).append(row)
        return tuple(
            Group(value, tuple(rows)) for value, rows in sorted(by.items(), key=lambda item: -len(item[1]))
        )

    def columns(self) -> Iterator[str]:
        """What is compared: the columns, then the variables that any of them read."""
        yield from COLUMNS
        read = Counter(name for row in self.rows for name in row.settings)
        yield from sorted(name for name in read if name not in _SETTINGS_APART)

    def differences(self) -> tuple[Difference, ...]:
        """The columns in which not all say the same."""
        return self._differences

    @cached_property
    def _differences(self) -> tuple[Difference, ...]:
        found = []
        for column in self.columns():
            groups = self.groups(column)
            if column not in COLUMNS and groups:
                silent = tuple(row for row in self.rows if not row.value(column) and row.settings)
                groups = (*groups, Group("not set", silent)) if silent else groups
            if len(groups) > 1 and not (column == "across" and _alike(groups)):
                found.append(Difference(column, groups))
        return tuple(found)

    def shared(self) -> tuple[tuple[str, str], ...]:
        """Name and value of what all that say anything say alike."""
        apart = {one.column for one in self.differences()}
        return tuple(
            (COLUMNS.get(column, column), groups[0].value)
            for column in self.columns()
            if column not in apart and len(groups := self.groups(column)) >= 1
        )

    def alike(self) -> tuple[Group, ...]:
        """Rows that say the same in every column, together."""
        by: dict[tuple[str, ...], list[Row]] = {}
        for row in self.rows:
            by.setdefault(tuple(row.value(column) for column in COLUMNS), []).append(row)
        return tuple(Group("", tuple(rows)) for rows in by.values())

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "differs": [
                {
                    "column": one.column,
                    "values": [
                        {"value": group.value, "ranks": mask_text(group.ranks), "nodes": list(group.nodes)}
                        for group in one.groups
                    ],
                }
                for one in self.differences()
            ],
            "rows": [row.as_json() for row in self.rows],
            "left_out": self.left_out,
        }


NOTHING = Table()
"""Nobody says anything."""


def _alike(groups: Iterable[Group]) -> bool:
    """Whether no way is another's alternative: a rank at the edge of its node has more of them."""
    sets = sorted((frozenset(group.value.split(", ")) for group in groups), key=len)
    return all(one <= other for one, other in pairwise(sets))


def text_lines(table: Table) -> Iterator[str]:
    """The table for people: what differs, what all share, then who uses what."""
    for one in table.differences():
        yield f"differs: {one.name}"
        for group in one.groups:
            yield f"  {group.value}: {group.who}"
    shared = table.shared()
    if shared:
        yield "same on all ranks that report it:" if len(table.rows) > 1 else "reports:"
        width = max(len(name) for name, _ in shared)
        yield from (f"  {name:<{width}}  {value}" for name, value in shared)
    if table.left_out:
        yield f"{table.left_out:,} more processes are left out"
