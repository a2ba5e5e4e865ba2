"""Files of lines that grow for as long as a run lasts: what a disk refuses waits, old lines become fewer."""

from __future__ import annotations

import errno
import os
from threading import Thread
from typing import Callable, Optional

from cockpit.base.noroom import NO_ROOM
from cockpit.base.regular import open_regular

PENDING = 64 << 10
"""Bytes that wait for room on the disk; what comes before them is lost."""

_APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT


class Lines:
    """A file of lines that nobody else writes to: appended in their order, each as soon as there is room.

    It stays open; adding to it raises nothing.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = -1
        self._pending = b""
        self.error: Optional[OSError] = None
        """Why what waits could not be written last; None: nothing waits, or for something else."""

    @property
    def trouble(self) -> str:
        """Why the disk does not take it; empty: it does, or something else is in its way."""
        error = self.error
        return str(error.strerror) if error is not None and error.errno in NO_ROOM else ""

    def flush(self) -> bool:
        """Write what is pending; return whether all of it is written."""
        try:
            if not self._ready():
                return False
            while self._pending:
                self._pending = self._pending[os.write(self._file, self._pending) :]
        except OSError as error:
            self.error = error
            return False
        self.error = None
        return True

    def _ready(self) -> bool:
        """Make ready what is written to; return whether it may grow.

        :raises OSError: it cannot be made ready
        """
        return True

    def close(self) -> None:
        """Close the file; what is added later opens it again."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class Lasting(Lines):
    """One that stays within a limit: once it is full, a thread puts less of what is old in its place.

    :param limit: bytes from which on it is thinned; it never has twice as many
    :param thinned: gives what is put in the place of its content, half of the limit
    :param opened: opens regular files; raises OSError
    """

    def __init__(
        self,
        path: str,
        limit: int,
        thinned: Callable[[bytes], bytes],
        opened: Callable[[str, int], int] = open_regular,
    ) -> None:
        super().__init__(path)
        self._limit = self._full = limit
        self._thinned = thinned
        self._opened = opened
        self._thread: Optional[Thread] = None
        self._begun = 0  # bytes that were there when the thread was started
        self._failed: Optional[OSError] = None

    def add(self, lines: bytes) -> None:
        """Append lines: now, or as soon as there is room."""
        self._pending += lines
        if not self.flush() and len(self._pending) > PENDING:
            self._pending = self._pending[self._pending.index(b"\n", len(self._pending) - PENDING) + 1 :]

    def wait(self) -> None:
        """Have it thinned, if that has begun; takes seconds."""
        if self._thread is not None:
            self._thread.join()
            self.flush()

    def flush(self) -> bool:
        """See :meth:`Lines.flush`; it is opened anew next time if it could not be written."""
        done = super().flush()
        if self.error is not None:
            self.close()
        return done

    def _ready(self) -> bool:
        if self._file >= 0 and not os.fstat(self._file).st_nlink:
            self.close()  # somebody removed it
        if self._file < 0:
            if not self._pending:
                return True
            self._file = self._opened(self._path, _APPEND)
        if self._thread is not None and not self._thread.is_alive():
            self._thread = None
            self._put_in_place()
        size = os.fstat(self._file).st_size
        if size >= self._full and self._thread is None:
            self._begun, self._full = size, size + self._limit // 8  # tried again then, if it fails
            self._begin()
        return size + len(self._pending) < 2 * self._limit

    def _begin(self) -> None:
        number = os.dup(self._file)
        self._failed = OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        thread = Thread(target=self._thin, args=(number,), daemon=True)
        try:
            thread.start()
        except RuntimeError:  # there may be no more threads now
            os.close(number)
        else:
            self._thread = thread

    def _thin(self, number: int) -> None:
        """Write what is to take its place; beside everything else, as it takes seconds."""
        new = -1
        try:
            data = self._thinned(os.pread(number, self._begun, 0))
            new = self._opened(self._path + ".new", os.O_WRONLY | os.O_CREAT)
            os.ftruncate(new, 0)
            if os.write(new, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(new)
            self._failed = None
        except OSError as error:
            self._failed = error
        finally:
            for each in (number, new):
                if each >= 0:
                    os.close(each)

    def _put_in_place(self) -> None:
        """Put what was thinned in its place, and behind it what has been added meanwhile.

        :raises OSError: that cannot be done
        """
        if self._failed is not None:
            raise self._failed
        new = self._opened(self._path + ".new", _APPEND)
        try:
            rest = os.pread(self._file, 2 * self._limit, self._begun)
            if os.write(new, rest) < len(rest):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.rename(self._path + ".new", self._path)
        except OSError:
            os.close(new)
            raise
        os.close(self._file)
        self._file, self._full = new, self._limit
