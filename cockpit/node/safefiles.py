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


def opened(path: str, *, link: bool = False) -> int:
    """A descriptor of a regular file, for reading.

    :param link: a link is followed: a descriptor in /proc is one
    :raises OSError: there is none, it may not be read, or it is something else
    """
    return open_regular(path, follow=link)


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
