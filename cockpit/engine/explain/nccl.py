"""What NCCL says in consoles: from their beginnings, for communicators are made early."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cockpit.core.nccl.reading import Reader, read
from cockpit.core.nccl.table import Table
from cockpit.engine.explain.sources import Item, blocks
from cockpit.errors import CockpitError

MOST = 64 << 20
"""Bytes of a file that are read."""


def table_in(items: Sequence[Item]) -> Table:
    """What NCCL says in files; what cannot be read says nothing."""
    reader = Reader()
    for item in items:
        try:
            read(_beginning(item), reader, item.rank)
        except CockpitError:
            continue
    return reader.table()


def _beginning(item: Item) -> Iterator[bytes]:
    left = MOST
    for block in blocks(item):
        yield block
        left -= len(block)
        if left <= 0:
            return
