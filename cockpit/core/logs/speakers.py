"""Whose line it is, in a file that several ranks write: by what launchers put before a line, or nobody's.

Forms as in :mod:`cockpit.core.logs.prefixes`; and DeepSpeed's own, behind its time and level: ``[Rank 0]``,
which programs write in other ways too: ``[rank0]``, ``[RANK 0]``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from cockpit.core.logs.prefixes import split

_GLOBAL = re.compile(rb"\[rank(\d{1,6})\]:|\[\d{1,9},(\d{1,6})\](?:<\w+>)?:")
_LABEL = re.compile(rb"(?:\A| ) {0,5}(\d{1,6}): \Z")
_LOCAL = re.compile(rb"\[[A-Za-z_][A-Za-z_.-]*(\d{1,6})\]:")
_HOST = re.compile(rb"([A-Za-z0-9][\w.-]{0,63}): ")
_WRITTEN = re.compile(rb"(?:[^\n]{0,159}?[ \]])?\[(?:[Rr]ank|RANK)[ _]?(\d{1,6})\]")

HEAD = 256
"""Bytes of a line in which its speaker is looked for."""


@dataclass(frozen=True)
class Speakers:
    """What can be told from a line of one job.

    :param nodes: the ranks of each node, in their order there
    :param labels: a bare number before a line is a rank: srun's ``--label``
    """

    nodes: Mapping[str, Sequence[int]]
    labels: bool = False
    _hosts: dict[bytes, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.nodes:
            for host in (name, name.partition(".")[0]):
                self._hosts.setdefault(host.encode("utf-8", "surrogateescape"), name)

    def of(self, line: bytes, writers: Collection[str]) -> tuple[str, int | None] | None:
        """The node and rank that a line names, or only the node; None: neither.

        What a node with one rank says is that rank's.

        :param writers: the nodes whose ranks write to the file: ``[default3]:`` is a number on one of them
        """
        head = line[:HEAD]
        host = ""
        found = _HOST.match(head)
        if found and found[1] in self._hosts:
            host = self._hosts[found[1]]
            head = head[found.end() :]
        prefix, body = split(head)
        rank = self._global(prefix, body)
        if rank is None and (local := _LOCAL.search(prefix)):
            homes = [host] if host else list(writers)
            place = int(local[1])
            if len(homes) == 1 and place < len(self.nodes[homes[0]]):
                rank = self.nodes[homes[0]][place]
        if rank is None and host and len(self.nodes[host]) == 1:
            rank = self.nodes[host][0]
        home = self._home(rank)
        if home is not None:
            return home, rank
        return (host, None) if host else None

    def _global(self, prefix: bytes, body: bytes) -> int | None:
        if found := _GLOBAL.search(prefix):
            return int(found[1] or found[2])
        if self.labels and (found := _LABEL.search(prefix)):
            return int(found[1])
        if found := _WRITTEN.match(prefix + body):
            return int(found[1])
        return None

    def _home(self, rank: int | None) -> str | None:
        return next((name for name, ranks in self.nodes.items() if rank in ranks), None)
