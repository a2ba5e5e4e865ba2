"""The file systems that a run writes to: that of its folder, that of nsys, and those its ranks work in."""

from __future__ import annotations

import os
import threading
from typing import Any, Dict, Iterable, List, Optional

from cockpit.base.gate import SIZE
from cockpit.node import space
from cockpit.node.measure import nsys_files

MOST = 4
"""File systems of one node that are measured."""
FOLDERS = 16
"""Different working directories that are looked at for them."""


class Disks:
    """Measures them in a thread of its own: a file system whose server is gone may never answer.

    :param folder: the run's
    :param nsys_since: unix seconds from which on nsys may record; None: it is not around the run
    """

    def __init__(self, folder: str, nsys_since: Optional[float] = None) -> None:
        self._folder = folder
        self._nsys_since = nsys_since
        self._found: List[Dict[str, Any]] = []
        self._thread = threading.Thread()

    def look(self, pids: Iterable[int]) -> List[Dict[str, Any]]:
        """What was found at the last look; begins another one, unless that one still waits.

        :param pids: the processes of the ranks
        """
        found, self._found = self._found, []
        if not self._thread.is_alive():
            self._thread = threading.Thread(target=self._measure, args=(list(pids),), daemon=True)
            self._thread.start()
        return found

    def _measure(self, pids: List[int]) -> None:
        found: Dict[int, Dict[str, Any]] = {}
        places = {"": self._folder}
        nsys = ""
        if pids and self._nsys_since is not None:
            nsys, place = nsys_files.temporary(pids[0])
            places[nsys] = place
        for pid in pids:
            if len(places) > FOLDERS:
                break
            # In a container the same path is another folder: it is reached through the process.
            link = "/proc/%d/cwd" % pid
            try:
                places.setdefault(os.readlink(link), link)
            except OSError:
                continue
        for path, place in places.items():
            try:
                device = os.stat(place).st_dev
                if device not in found and len(found) < MOST:
                    found[device] = {"path": path, **measured(place)}
                if nsys and path == nsys and self._nsys_since is not None:
                    written = nsys_files.recorded(place, self._nsys_since)
                    found[device].update(nsys_folder=nsys, nsys_bytes=written)
            except (OSError, KeyError):
                continue
        self._found = list(found.values())


def measured(place: str) -> Dict[str, Any]:
    """Bytes and files of the file system that a path is on; None: it has no fixed number of files.

    :raises OSError: it cannot be measured
    """
    disk = os.statvfs(place)
    files = disk.f_files > 0
    free, whole = space.measured(place)
    return {
        "free_bytes": SIZE.nearest(free),
        "total_bytes": SIZE.nearest(whole),
        "free_files": SIZE.nearest(disk.f_favail) if files else None,
        "total_files": SIZE.nearest(disk.f_files) if files else None,
    }
