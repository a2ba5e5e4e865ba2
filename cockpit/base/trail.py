"""What was read of a file, in short: its first and last bytes, by which it is told from another one."""

from __future__ import annotations

import zlib

SPAN = 512
"""Bytes at the start and at the end of what was read that are compared."""


class Trail:
    """The first bytes of a file up to an offset.

    :param size: that offset
    :param head: the first of them, at most :data:`SPAN`
    :param tail: the last of them, at most :data:`SPAN`
    """

    def __init__(self, size: int = 0, head: bytes = b"", tail: bytes = b"") -> None:
        self.size = size
        self.head = head
        self.tail = tail

    def add(self, data: bytes) -> None:
        """The next bytes were read."""
        if len(self.head) < SPAN:
            self.head += data[: SPAN - len(self.head)]
        self.tail = (self.tail + data[-SPAN:])[-SPAN:]
        self.size += len(data)

    @property
    def mark(self) -> int:
        """A number that another file hardly has."""
        return zlib.crc32(self.tail, zlib.crc32(self.head))
