"""What nsys writes while it records, before it makes a report of it. Facts are those of 2022.4.2."""

from __future__ import annotations

import os
from itertools import islice
from typing import List, Optional, Tuple

from cockpit.node import procfs

DEFAULT = "/tmp"
"""Where its temporary files go without a TMPDIR."""
MOST = 4096
"""Files that are looked at: nsys has some for each thread that it records."""

_SESSIONS = os.path.join("nvidia", "nsight_systems")
_SESSION = "quadd_session_"


def temporary(pid: int) -> Tuple[str, str]:
    """The folder for temporary files of a process, which nsys above it has, too; and how to reach it."""
    folder = DEFAULT
    for each in procfs.environment(pid):
        name, _, value = each.partition(b"=")
        if name == b"TMPDIR" and value.startswith(b"/"):
            folder = os.fsdecode(value)
    # In a container the same path is another folder.
    inside = "/proc/%d/root%s" % (pid, folder)
    return folder, inside if os.path.isdir(inside) else folder


def recorded(place: str, since: float) -> Optional[int]:
    """Bytes on the disk of what sessions of ours have recorded that began since then; None: too many files.

    They may be sessions of another run.

    :param place: the folder for temporary files
    :param since: unix seconds
    """
    sessions = os.path.join(place, _SESSIONS)
    total, left = 0, MOST
    for name, status in _entries(sessions, MOST):
        if not name.startswith(_SESSION) or status.st_uid != os.geteuid() or status.st_mtime < since:
            continue
        for part, _ in _entries(os.path.join(sessions, name), left):
            found = _entries(os.path.join(sessions, name, part), left)
            left -= 1 + len(found)
            if left <= 0:
                return None
            total += sum(512 * status.st_blocks for _, status in found)
    return total


def _entries(folder: str, most: int) -> List[Tuple[str, os.stat_result]]:
    """Names in a folder, and what they are, the first of them; none where there is no folder."""
    try:
        with os.scandir(folder) as entries:
            return [(each.name, each.stat(follow_symlinks=False)) for each in islice(entries, most)]
    except OSError:
        return []  # nsys removes them again
