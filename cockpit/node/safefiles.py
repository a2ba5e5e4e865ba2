"""Files of a run folder, where a training program may write too: whatever is there, reading it is safe.

Regular files only, never through a symbolic link, never waiting (a FIFO would block its reader forever), and
never more than a bounded number of bytes.
"""

from __future__ import annotations

import json
import os
import stat
from typing import Any, Dict, Optional

from cockpit.base.regular import open_regular, read_all

RECORD_LIMIT = 16 << 10
"""Bytes of a record of ours: a wrapper's has some 300, a stop request hardly more."""
_BLOCK = 4096


def opened(path: str, *, link: bool = False) -> int:
    """A descriptor of a regular file, for reading.

    :param link: a link is followed: a descriptor in /proc is one
    :raises OSError: there is none, it may not be read, or it is something else
    """
    return open_regular(path, follow=link)


def write_new(path: str, data: bytes, mode: int = 0o600) -> None:
    """Write a file that must not exist yet.

    :raises OSError: it exists, or it cannot be written
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with os.fdopen(os.open(path, flags, mode), "wb") as file:
        file.write(data)


def absent(path: str) -> bool:
    """Whether there is surely nothing of this name: an error says nothing about that."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        pass
    return False


def size(path: str) -> Optional[int]:
    """The size of a regular file in bytes; None if there is none."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def extent(path: str, *, link: bool = False) -> Optional[int]:
    """How long a regular file is without the :func:`hole` at its start; None: there is none to be read.

    It is opened only if it takes less of the disk than its length: a hole of less than a block does not show.

    :param link: see :func:`opened`
    """
    try:
        info = os.stat(path) if link else os.lstat(path)
        if not stat.S_ISREG(info.st_mode):
            return None
        if info.st_blocks * 512 >= info.st_size:
            return info.st_size
        number = opened(path, link=link)
        try:
            return info.st_size - hole(number, info.st_size)
        finally:
            os.close(number)
    except OSError:
        return None


def hole(number: int, size: int) -> int:
    """How many bytes nobody has written at the start of an open file: zeros, which no text begins with.

    Found by halves, as not every file system tells of its holes, and one may be as long as a month of logs.
    """
    if os.pread(number, 1, 0) != b"\0":
        return 0
    first, end = 0, -(-size // _BLOCK)
    while end - first > 1:
        half = (first + end) // 2
        if os.pread(number, _BLOCK, half * _BLOCK).strip(b"\0"):
            end = half
        else:
            first = half
    # What is written begins in this block, or with the next one.
    data = os.pread(number, min(2 * _BLOCK, size - first * _BLOCK), first * _BLOCK)
    return first * _BLOCK + len(data) - len(data.lstrip(b"\0"))


def read(path: str, limit: int) -> bytes:
    """A whole file.

    :raises OSError: as :func:`opened`, or it has more than ``limit`` bytes
    """
    with os.fdopen(opened(path), "rb") as file:
        return read_all(file, limit)


def part(path: str, start: int, limit: int) -> bytes:
    """Up to ``limit`` bytes of a file from ``start`` on.

    :raises OSError: as :func:`opened`
    """
    number = opened(path)
    try:
        return os.pread(number, limit, start)
    finally:
        os.close(number)


def load(path: str, limit: int = RECORD_LIMIT) -> Dict[str, Any]:
    """The JSON object in a file.

    :raises OSError: as :func:`read`
    :raises ValueError: it holds something else
    """
    return parse(read(path, limit))


def parse(data: bytes) -> Dict[str, Any]:
    """The JSON object in these bytes.

    :raises ValueError: they are something else
    """
    try:
        value = json.loads(data.decode())
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value
