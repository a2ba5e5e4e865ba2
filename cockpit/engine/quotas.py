"""Keeping to the quotas of ``config``: free space, bytes and files; the errors when one is reached."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from cockpit.config import SEE, Quotas
from cockpit.errors import CockpitError, NoRoom, os_error

_LOOK_S = 1.0
"""Seconds between two looks at the free space."""
_LOOK_BYTES = 16 << 20
"""At most this many bytes are written between two looks."""

_AGAIN_S, _PROBE_BYTES = 10.0, 1 << 20
"""After a write was refused: seconds between two tries of so many bytes."""

_RESUMES = "free some space; the transfer resumes automatically"


class QuotaReached(CockpitError):
    """There is no room here for more of a node's logs: they wait on the node, nothing is lost."""


class Space:
    """The free space where a run is recorded, checked now and then.

    :param folder: on the file system in question
    """

    def __init__(self, folder: Path, quotas: Quotas) -> None:
        self.quotas = quotas
        self._folder = folder
        self._left = 0
        self._until = 0.0
        self._refused: NoRoom | None = None

    def check(self, size: int) -> None:
        """Check that ``size`` more bytes leave the required free space.

        :raises QuotaReached: they do not
        :raises CockpitError: the file system does not answer
        """
        if self.is_full and self._refused is not None:
            raise QuotaReached(self._refused.what, where=self._refused.where, hint=_RESUMES)
        self._left -= size
        if self._left >= 0 and time.monotonic() < self._until:
            return
        free, floor = self._look()
        self._left = min(_LOOK_BYTES, free - floor - size)
        self._until = time.monotonic() + _LOOK_S
        if self._left < 0:
            what = f"{_text(free)} free here; {_text(floor)} are kept free"
            raise QuotaReached(what, where=str(self._folder), hint=_RESUMES)

    def refused(self, why: NoRoom) -> QuotaReached:
        """A write was refused, whatever the file system says is free: a user's quota may be used up.

        From now on there is no room, until a file of :data:`_PROBE_BYTES` can be written.
        """
        self._refused, self._until = why, time.monotonic() + _AGAIN_S
        return QuotaReached(why.what, where=why.where, hint=_RESUMES)

    @property
    def is_full(self) -> bool:
        """Whether the last write was refused, and the disk still takes nothing."""
        if self._refused is not None and time.monotonic() >= self._until:
            if self._takes():
                self._refused, self._until = None, 0.0
            else:
                self._until = time.monotonic() + _AGAIN_S
        return self._refused is not None

    def _takes(self) -> bool:
        try:
            # Over NFS a quota is noticed only once what was written is on the server.
            with tempfile.TemporaryFile(dir=self._folder) as file:
                file.write(os.urandom(_PROBE_BYTES))  # nothing that a file system makes smaller
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            return False
        return True

    def _look(self) -> tuple[int, int]:
        try:
            found = os.statvfs(self._folder)
        except OSError as error:
            raise os_error("cannot determine the free space", self._folder, error) from None
        floor = min(
            self.quotas.free_bytes, int(found.f_blocks * found.f_frsize * self.quotas.free_percent / 100)
        )
        return found.f_bavail * found.f_frsize, floor


def exceeded(name: str, limit: int, where: Path) -> QuotaReached:
    """The error for a reached quota of the settings."""
    shown = _text(limit) if name.endswith("_bytes") else str(limit)
    hint = f"raise {name} in [quotas] ({SEE}), then: cockpit attach {where.parents[1].name}"
    return QuotaReached(f"quota of {shown} per node reached", where=str(where), hint=hint)


def _text(size: int) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size < 10240:
            return f"{size} {unit}"
        size >>= 10
    return f"{size / 1024:.0f} GiB"
