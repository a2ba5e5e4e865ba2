"""Files of a supervisor that grow for as long as the run lasts, and stay within a limit."""

from __future__ import annotations

import errno
import os
import stat
from typing import Callable

from cockpit.node import safefiles

PENDING = 64 << 10
"""Bytes that wait for room on the disk; what comes before them is lost."""

_OF_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.ESTALE)

# Without waiting: whoever trains may have put a FIFO there.
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Lasting:
    """A file of lines. Raises nothing: a run does not depend on it.

    :param limit: bytes from which on it is thinned; it never has twice as many
    :param thinned: gives what is put in the place of its content, half of the limit
    """

    def __init__(self, path: str, limit: int, thinned: Callable[[bytes], bytes]) -> None:
        self._path = path
        self._limit = limit
        self._thinned = thinned
        self._pending = b""
        self._full = limit  # tried again later, where it cannot be thinned
        self.trouble = ""
        """Why the disk did not take it last; empty: it did, or something else is in its way."""

    def add(self, lines: bytes) -> None:
        """Append lines: now, or as soon as there is room."""
        self._pending += lines
        if not self.flush() and len(self._pending) > PENDING:
            self._pending = self._pending[self._pending.index(b"\n", len(self._pending) - PENDING) + 1 :]

    def flush(self) -> bool:
        """Write what is pending; return whether all of it is written."""
        try:
            size = safefiles.size(self._path) or 0
            if size >= self._full:
                self._full = size + self._limit // 8
                size = self._thin()
                self._full = self._limit
            if size + len(self._pending) >= 2 * self._limit:
                return False
            if self._pending:
                self._pending = self._pending[_write(self._path, 0, self._pending) :]
        except OSError as error:
            self.trouble = str(error.strerror) if error.errno in _OF_DISK else ""
            return False
        self.trouble = os.strerror(errno.ENOSPC) if self._pending else ""
        return not self._pending

    def _thin(self) -> int:
        """Put fewer lines in its place; return how many bytes these are.

        :raises OSError: it cannot be read, or there is no room
        """
        data, new = self._thinned(safefiles.part(self._path, 0, 2 * self._limit)), self._path + ".new"
        if _write(new, os.O_TRUNC, data) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), new)
        os.rename(new, self._path)
        return len(data)


def _write(path: str, flags: int, data: bytes) -> int:
    """Write to a file; return how many bytes there was room for.

    :raises OSError: it cannot be written, or is no regular file
    """
    number = os.open(path, _APPEND | flags, 0o600)
    try:
        if not stat.S_ISREG(os.fstat(number).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        return os.write(number, data)
    finally:
        os.close(number)
