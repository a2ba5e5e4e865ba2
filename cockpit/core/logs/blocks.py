"""The tracebacks in the lines of one source: lines that stay together among those of other sources."""

from __future__ import annotations

from collections.abc import Sequence

from cockpit.core.logs import prefixes

RECORD_LINES = 2000
RECORD_LINE = 1 << 16
"""A traceback is cut after this many lines, and after a line of this many bytes."""

_BEGINS = prefixes.TRACEBACK + b":"
_CHAINED = (b"During handling of the above exception,", b"The above exception was the direct cause")
_GOES_ON = (b" ", b"\t", b"Traceback (most", *_CHAINED)


class TracebackBlock(bytes):
    """The lines of one traceback, with newlines between them."""


class Records:
    """Groups the lines of one source; its unfinished traceback is held back."""

    __slots__ = ("_grouped", "_head", "_lines")

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._head = b""
        self._grouped = False  # an exception group: all of its lines are indented

    @property
    def open(self) -> bool:
        """Whether there is an unfinished traceback."""
        return bool(self._lines)

    def add(self, lines: Sequence[bytes]) -> Sequence[bytes]:
        """Take the next lines; return what is complete: lines, and tracebacks as :class:`TracebackBlock`."""
        if not self._lines and prefixes.TRACEBACK not in b"\n".join(lines):
            return lines
        items: list[bytes] = []
        for at, line in enumerate(lines):
            body = self._body(line)
            if body is None or (self._grouped and not body.startswith((b" ", b"\t"))):
                items += self.release()
                self._begin(line, items)
                continue
            self._lines.append(line)
            # A chained exception: an empty line, the sentence, an empty line, the next traceback.
            following = lines[at + 1 : at + 3]
            chained = len(following) == 2 and any(words in following[1] for words in _CHAINED)
            ended = bool(body.strip()) and not body.startswith(_GOES_ON) and not chained
            if ended or len(self._lines) >= RECORD_LINES or len(line) > RECORD_LINE:
                items += self.release()
        return items

    def release(self) -> list[bytes]:
        """Give up waiting for the end; return what there is of it."""
        lines, self._lines = self._lines, []
        return [TracebackBlock(b"\n".join(lines))] if lines else []

    def _body(self, line: bytes) -> bytes | None:
        """The open traceback's part of this line; None: the line does not belong to it."""
        if not self._lines:
            return None
        return prefixes.body(line, self._head) if line.strip() else b" "

    def _begin(self, line: bytes, items: list[bytes]) -> None:
        head = prefixes.head(line) if line.endswith(_BEGINS) else None
        if head is None:
            items.append(line)
            return
        self._lines.append(line)
        self._head = head
        self._grouped = line.endswith(b"Exception Group " + _BEGINS)
