"""The time index of a run's logs, written by its supervisor."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import Mapping

from cockpit.base import times
from cockpit.node import safefiles

PENDING = 64 << 10
"""Bytes that wait for room on the disk; what comes before them is lost: the order of lines, and no bytes."""

_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Times:
    """The file. Raises nothing: a run does not depend on it.

    :param limit: bytes from which on it is thinned; it never has twice as many
    """

    def __init__(self, path: str, limit: int = times.LIMIT) -> None:
        self._path = path
        self._limit = limit
        self._pending = b""
        self._file = -1
        self._size = 0
        self._full = limit  # tried again later, where it cannot be thinned
        self.trouble = ""
        """Why it could not be written last; empty: it could."""
        with contextlib.suppress(OSError):
            self._open(path, 0)

    def add(self, at: float, sizes: Mapping[str, int]) -> None:
        """Note how long files are: now, or as soon as there is room."""
        self._pending += times.line(at, sizes)
        if len(self._pending) > PENDING:
            self._pending = self._pending[self._pending.index(b"\n", PENDING // 2) + 1 :]
        self.flush()

    def flush(self) -> bool:
        """Write what is pending; return whether all of it is written."""
        try:
            if self._size >= self._full:
                self._full = self._size + self._limit // 8
                self._thin()
            if self._size + len(self._pending) >= 2 * self._limit:
                return False
            while self._pending:
                written = os.write(self._file, self._pending)
                self._pending = self._pending[written:]
                self._size += written
        except OSError as error:
            self.trouble = str(error.strerror)
            return False
        self.trouble = ""
        return True

    def _thin(self) -> None:
        """Put fewer lines in place of it.

        :raises OSError: it cannot be read, or there is no room
        """
        data = times.thinned(safefiles.part(self._path, 0, 2 * self._limit), self._limit)
        old, new = self._file, self._path + ".new"
        self._open(new, os.O_TRUNC)
        try:
            if os.write(self._file, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), new)
            os.rename(new, self._path)
        except OSError:
            os.close(self._file)
            self._file = old
            raise
        os.close(old)
        self._size, self._full = len(data), self._limit

    def _open(self, path: str, flags: int) -> None:
        number = os.open(path, _FLAGS | flags, 0o600)
        if not stat.S_ISREG(os.fstat(number).st_mode):
            os.close(number)
            raise OSError(errno.EINVAL, "not a regular file", path)
        self._file = number
