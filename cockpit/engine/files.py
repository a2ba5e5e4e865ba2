"""Our own files here: few descriptors, lines of possibly damaged files, writes that are all or nothing."""

from __future__ import annotations

import errno
import os
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from cockpit.base import owners, regular
from cockpit.errors import os_error

LINE_LIMIT = 8 << 20
"""Bytes of a line of a journal, a run record or a time index; a longer one is damage."""

LINES_LIMIT = 256 << 20
"""Bytes of a file that are read line by line: more than any of ours has."""

SMALL_LIMIT = 256 << 20
"""Bytes of a file that may be read whole; a larger one is not ours."""

_STEP = 64 << 10
_CHUNK = 1 << 20


class OpenFiles:
    """Descriptors by path; the least used one is closed when there would be more than ``limit``.

    Only regular files are opened or created: a FIFO would block, a device could do anything.

    :param flags: of ``os.open``, without those that are always set
    """

    def __init__(self, limit: int, flags: int) -> None:
        self._limit = limit
        self._flags = flags
        self._open: OrderedDict[str, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def find(self, path: str) -> int | None:
        """The descriptor of an open file; None if it is not open."""
        number = self._open.get(path)
        if number is not None:
            self._open.move_to_end(path)
        return number

    def open(self, path: str) -> int:
        """Open a file that is not open.

        :raises OSError: it cannot be opened, or is not a regular file
        """
        while len(self._open) >= self._limit:
            os.close(self._open.popitem(last=False)[1])
        number = self._open[path] = open_regular(path, self._flags)
        return number

    def drop(self, path: str) -> None:
        """Close a file; the next :meth:`get` opens it again."""
        number = self._open.pop(path, None)
        if number is not None:
            os.close(number)

    def close(self) -> None:
        """Close all; they can be opened again."""
        while self._open:
            os.close(self._open.popitem()[1])


def open_regular(path: str | os.PathLike[str], flags: int = os.O_RDONLY) -> int:
    """Open a regular file: never by a link, nor through one that another user made, nor waiting for the other
    end of a FIFO.

    :raises OSError: it cannot be opened; of another kind of file ENXIO or EISDIR
    """
    number = regular.open_regular(path, flags)
    try:
        _check_way(number, path)
    except BaseException:
        os.close(number)
        raise
    return number


def _check_way(number: int, path: str | os.PathLike[str]) -> None:
    """See that no link of another user has led to an open file.

    :raises OSError: one has
    """
    folder, meant = os.path.dirname(os.readlink(f"/proc/self/fd/{number}")), os.path.dirname(path) or "."
    if folder != os.path.abspath(meant) and folder != owners.resolved(meant):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fspath(path))


def read_small(path: Path, limit: int = SMALL_LIMIT) -> bytes:
    """All bytes of a regular file of ours.

    :raises OSError: it cannot be read, or has more than ``limit``
    """
    with os.fdopen(open_regular(path), "rb") as file:
        return regular.read_all(file, limit)


def lines(path: Path, most: int = LINES_LIMIT) -> Iterator[bytes]:
    """The complete lines of a file, without their newlines; none if there is no file.

    A line of more than ``LINE_LIMIT`` bytes becomes an empty one, so that it counts but costs no memory.

    :param most: bytes that are read: of a larger file a quarter of that at its beginning, the rest at its
        end, and an empty line for what is between
    :raises CockpitError: it cannot be read
    """
    at = 0
    rest, whole = bytearray(), True
    left_out: int | None = None
    while True:
        # Opened for each part: merging the files of a thousand nodes takes a thousand of these.
        try:
            with os.fdopen(open_regular(path), "rb", buffering=0) as file:
                if left_out is None:
                    left_out = os.fstat(file.fileno()).st_size - most
                if left_out > 0 and at >= most // 4:
                    at, left_out, whole = at + left_out, 0, False
                file.seek(at)
                data = file.read(_STEP)
        except FileNotFoundError:
            return
        except OSError as error:
            raise os_error("cannot be read", path, error) from None
        if not data:
            return
        at += len(data)
        first, *others = data.split(b"\n")
        whole = whole and len(rest) + len(first) <= LINE_LIMIT
        rest += first if whole else b""
        if others:
            yield bytes(rest) if whole else b""
            yield from others[:-1]
            rest, whole = bytearray(others[-1]), True


def chunks(path: Path) -> Iterator[bytes]:
    """All bytes of a file; none if there is no file.

    :raises CockpitError: it cannot be read
    """
    try:
        with os.fdopen(open_regular(path), "rb", buffering=0) as file:
            while data := file.read(_CHUNK):
                yield data
    except FileNotFoundError:
        return
    except OSError as error:
        raise os_error("cannot be read", path, error) from None


def append(number: int, data: bytes, size: int) -> None:
    """Append all of ``data`` to a file of ``size`` bytes, or nothing.

    :raises OSError: it cannot be written; it has ``size`` bytes again
    """
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[os.write(number, rest) :]
    except OSError:
        with suppress(OSError):  # the first error is the one that says what is wrong
            os.ftruncate(number, size)
        raise


def create(path: Path) -> BinaryIO:
    """A new file (0600) for writing, in place of one that may be there.

    :raises OSError: it cannot be made
    """
    with suppress(FileNotFoundError):
        path.unlink()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, 0o600), "wb")


def replace(path: Path, data: bytes) -> None:
    """Write a file (0600) that is then either whole or as it was before.

    :raises CockpitError: it cannot be written; nothing is left of the attempt
    """
    try:
        put(path, data)
    except OSError as error:
        raise os_error("cannot be written", path, error) from None


def put(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write a file that is then either whole or as it was before.

    :raises OSError: it cannot be written; nothing is left of the attempt
    """
    beside = path.with_name(f"{path.name}.new")
    try:
        with create(beside) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            os.fchmod(file.fileno(), mode)
        os.replace(beside, path)
    except OSError:
        with suppress(OSError):
            beside.unlink()
        raise
