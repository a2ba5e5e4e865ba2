"""Control groups, versions 1 and 2: which limits a process is under, and how much of its memory is used."""

from __future__ import annotations

import os
import re
from typing import Iterator, NamedTuple, Optional, Tuple

from cockpit.node import procfs

ROOT = "/sys/fs/cgroup"

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


def folders(process: str, controller: str) -> Iterator[Tuple[str, str, bool]]:
    """A process's group and those above it, innermost first: path, folder, whether it is version 2.

    In a container, paths of its host lead nowhere; its own group is then at the root.

    :param process: its pid, or ``self``
    """
    for line in procfs.contents("/proc/%s/cgroup" % process).decode("utf-8", "replace").splitlines():
        _, controllers, path = line.split(":", 2)
        if (controllers and controller not in controllers.split(",")) or "/.." in path:
            continue
        root = os.path.join(ROOT, controller) if controllers else ROOT
        while True:
            yield path, root + path.rstrip("/"), not controllers
            if path in ("/", ""):
                break
            path = os.path.dirname(path)


def number(path: str) -> Optional[int]:
    """The number in a file; None: there is none, or no limit."""
    try:
        return int(procfs.contents(path))
    except ValueError:
        return None


def rooms(process: str, most: Optional[int]) -> Iterator[Room]:
    """The limits on a process's memory below ``most``, innermost first."""
    for path, folder, second in folders(process, "memory"):
        limit = number(folder + ("/memory.max" if second else "/memory.limit_in_bytes"))
        used = number(folder + ("/memory.current" if second else "/memory.usage_in_bytes"))
        if limit and used is not None and (most is None or limit < most):
            yield Room(path, max(0, used - _reclaimable(folder, second)), limit)


def _reclaimable(folder: str, second: bool) -> int:
    """Bytes of files and of kernel structures that are kept because there is room for them.

    Shared memory is none of it: its pages are not on the lists of files.
    """
    text = procfs.contents(folder + "/memory.stat")
    found = _PAGES.findall(text) + _SLAB.findall(text) if second else _ALL_PAGES.findall(text)
    return sum(int(size) for size in found)
