"""A file of JSON lines; what a full or read-only disk refuses is kept, told, and written later."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any, Dict, Tuple

from cockpit.base.growing_file import Lines

KEPT = 1 << 20
"""Bytes that wait in memory for room; beyond them only ends are kept."""
_ENDS = ("rank_exited", "rank_lost", "launcher_exited", "stop_requested", "ended")
"""Kinds of events without which nobody could say how a run ended: a few lines an attempt."""
_ENDS_KEPT = 4 * KEPT

_FALLOC_FL_KEEP_SIZE = 1


class JsonLines(Lines):
    """A new file of them.

    What waits is the file's continuation, byte for byte: whoever has read it need not read it again.

    :param room: bytes of disk reserved ahead of its end, if the file system supports that
    """

    def __init__(self, path: str, room: int = 0) -> None:
        super().__init__(path)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        self._file = os.open(path, flags, 0o600)
        self._room = room
        self._size = self._kept = 0
        self.dropped = 0
        """Lines that neither the disk nor memory had room for."""
        self._keep_room()

    def add(self, line: Dict[str, Any]) -> None:
        """Write one line now, or as soon as there is room."""
        if len(self._pending) > (_ENDS_KEPT if line.get("e") in _ENDS else KEPT):
            self.dropped += 1
            return
        self._pending += json.dumps(line).encode() + b"\n"
        self.flush()

    def flush(self) -> bool:
        """See :meth:`Lines.flush`."""
        waiting = len(self._pending)
        done = super().flush()
        self._size += waiting - len(self._pending)
        if done:
            self._keep_room()
        return done

    def unwritten(self, start: int) -> Tuple[int, bytes]:
        """What waits, from this place of the file on, or from its end if that is later; and the place."""
        try:
            size = os.fstat(self._file).st_size
        except OSError:
            size = self._size
        start = max(start, size)
        return start, self._pending[start - size :]

    def refused(self) -> str:
        """Why nothing can be written now, but for lack of room; empty: something can."""
        try:
            # Whether a file system is read-only does not show in its flags once an error has made it so.
            os.utime(self._file)
        except OSError as error:
            return str(error.strerror)
        return self.trouble

    def _keep_room(self) -> None:
        if self._room and self._size + self._room // 2 >= self._kept:
            self._kept = self._size + self._room
            _allocate(self._file, self._kept)


def _allocate(number: int, size: int) -> None:
    """Reserve disk space for the first bytes of a file, without changing its length."""
    with contextlib.suppress(ImportError, OSError, AttributeError):  # then it is as it is for everybody
        import ctypes

        allocate = ctypes.CDLL(None).fallocate
        allocate(number, _FALLOC_FL_KEEP_SIZE, ctypes.c_long(0), ctypes.c_long(size))
