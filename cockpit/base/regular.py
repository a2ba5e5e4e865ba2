"""Opening files where anything may lie: regular ones only, and never waiting."""

from __future__ import annotations

import errno
import os
import stat
from typing import IO, Union

_SAFE = os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


def open_regular(
    path: Union[str, os.PathLike[str]], flags: int = os.O_RDONLY, *, follow: bool = False
) -> int:
    """Open a regular file, never waiting for the other end of a FIFO.

    :param flags: of ``os.open``, without those that are always set
    :param follow: whether the path itself may be a link
    :raises OSError: it cannot be opened; ELOOP for a link, ENXIO or EISDIR for other kinds of file
    """
    try:
        number = os.open(path, flags | _SAFE | (0 if follow else os.O_NOFOLLOW), 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP and not follow:
            raise OSError(errno.ELOOP, "a symbolic link", os.fspath(path)) from None
        raise
    try:
        mode = os.fstat(number).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.ENXIO, "not a regular file", os.fspath(path))
    except OSError:
        os.close(number)
        raise
    return number


def read_all(file: IO[bytes], limit: int) -> bytes:
    """All bytes of an open file.

    :raises OSError: it cannot be read, or has more than ``limit``
    """
    data = file.read(limit + 1)
    if len(data) > limit:
        size = "%d MiB" % (limit >> 20) if limit >> 20 else "%d KiB" % (limit >> 10)
        raise OSError(errno.EFBIG, "larger than %s" % size)
    return data
