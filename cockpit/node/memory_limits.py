"""Limits on memory that a process is under, and how much of each is used."""

from __future__ import annotations

import re
from typing import Iterator, NamedTuple, Optional

from cockpit.node import procfs
from cockpit.node.cgroups import folders

_PAGES = re.compile(rb"(?m)^(?:in)?active_file ([0-9]+)$")
_ALL_PAGES = re.compile(rb"(?m)^total_(?:in)?active_file ([0-9]+)$")
_SLAB = re.compile(rb"(?m)^slab_reclaimable ([0-9]+)$")


class Room(NamedTuple):
    """The memory of a group and its limit, in bytes.

    :param path: of the group
    :param used: without what the kernel takes back when it needs to, such as the page cache
    """

    path: str
    used: int
    limit: int


def rooms(process: str, most: Optional[int]) -> Iterator[Room]:
    """The limits on a process's memory below ``most``, innermost first."""
    for path, folder, second in folders(process, "memory"):
        limit = procfs.number(folder + ("/memory.max" if second else "/memory.limit_in_bytes"))
        used = procfs.number(folder + ("/memory.current" if second else "/memory.usage_in_bytes"))
        if limit and used is not None and (most is None or limit < most):
            yield Room(path, max(0, used - _reclaimable(folder, second)), limit)


def _reclaimable(folder: str, second: bool) -> int:
    """Bytes of files and of kernel structures that are kept because there is room for them.

    Shared memory is none of it: its pages are not on the lists of files.
    """
    text = procfs.contents(folder + "/memory.stat")
    found = _PAGES.findall(text) + _SLAB.findall(text) if second else _ALL_PAGES.findall(text)
    return sum(int(size) for size in found)
