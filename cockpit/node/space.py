"""Room to write: what the file system has, and what the limit of a pod's volume leaves of it.

The kubelet adds up what is in an ``emptyDir`` from time to time. So does this: see
:mod:`cockpit.base.volumes`.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import Dict, Iterator, Tuple

from cockpit.base.volumes import volumes

_FILES = 20_000
"""Files of a volume that are added up; a fuller one seems to have more room than it has."""
_SERVES_S, _SHARE = 1.0, 0.02
"""How long a sum serves whoever asks: so long at least, and until adding up takes this share of the time."""
_added: Dict[str, Tuple[float, int]] = {}
"""Until when the sum of a volume serves (monotonic seconds), and its bytes."""


def free(place: str) -> int:
    """Bytes that this user may still write where a file or folder is.

    :raises OSError: it cannot be measured
    """
    return measured(place)[0]


def measured(place: str) -> Tuple[int, int]:
    """Bytes that this user may still write where a file or folder is, and what fits there in all.

    :raises OSError: it cannot be measured
    """
    disk = os.statvfs(place)
    left, whole = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
    for volume, limit in _limits(os.path.realpath(place)):
        left, whole = min(left, max(0, limit - _used(volume))), min(whole, limit)
    return left, whole


def _limits(place: str) -> Iterator[Tuple[str, int]]:
    """The volumes that a place is in, and their limits."""
    for volume, limit in volumes().items():
        if limit and os.path.join(place, "").startswith(os.path.join(volume, "")):
            yield volume, limit


def _used(volume: str) -> int:
    until, found = _added.get(volume, (0.0, 0))
    began = time.monotonic()
    if began >= until:
        found = sum(_sizes(volume))
        ended = time.monotonic()
        _added[volume] = ended + max(_SERVES_S, (ended - began) / _SHARE), found
    return found


def _sizes(folder: str) -> Iterator[int]:
    """Bytes on disk of the files below a folder, at most :data:`_FILES` of them."""
    waiting, seen = [folder], 0
    while waiting and seen < _FILES:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                seen += 1
                if seen > _FILES:
                    return
                with contextlib.suppress(OSError):  # gone meanwhile
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    yield entry.stat(follow_symlinks=False).st_blocks * 512
