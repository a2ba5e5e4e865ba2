"""Control groups, versions 1 and 2: where those of a process are, and what the OOM killer did there.

This module is part of every rank wrapper, so it imports nothing that costs memory.
"""

from __future__ import annotations

import os

from cockpit.node import procfs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

ROOT = "/sys/fs/cgroup"


def folders(process: str, controller: str) -> Iterator[tuple[str, str, bool]]:
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


def oom_kills() -> tuple[str, int]:
    """How many processes of our own group the kernel has killed for lack of memory, since the group was made.

    The kernel counts a process in its own group, whoever's limit was hit. Groups of version 2 count those
    below them too.

    :return: the group's folder, and how many; an empty folder: that is not known, as in the root group of
        version 2, or before Linux 4.13
    """
    for _, folder, second in folders("self", "memory"):
        text = procfs.contents(folder + ("/memory.events" if second else "/memory.oom_control"))
        for line in text.splitlines():
            name, _, count = line.partition(b" ")
            if name == b"oom_kill" and count.isdigit():
                return folder, int(count)
    return "", 0
