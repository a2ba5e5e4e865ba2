"""A trace in Chrome's format, event by event: a rank's program wrote it, so anything may be in it.

What is in memory at a time is a piece of the file, or one event. Numbers stay the text that they are in the
file: nanoseconds of a clock do not fit into a float, and the digits of an integer may be a million.
"""

from __future__ import annotations

import codecs
import gzip
import json
import re
import zlib
from typing import IO, Any, Dict, FrozenSet, Iterator

LONGEST = 4 << 20
"""Characters of one event, or of a value beside them: operators on a thousand tensors take some 100 KB."""
MOST_BYTES = 4 << 30
"""Of the file, unpacked."""
MOST_EVENTS = 4_000_000

_PIECE = 1 << 18
_SPACE = re.compile(r"[ \t\r\n]*")
_BETWEEN = re.compile(r"[ \t\r\n,]*")
_GZIP = b"\x1f\x8b"
_EVENTS = "traceEvents"


class BadTrace(Exception):
    """The file cannot be read as a trace; the text says why, and begins with a small letter."""


class Trace:
    """A trace that is being read.

    :param file: open for reading, at its start; packed with gzip or not
    :param kept: names of the values beside the events that are kept
    """

    def __init__(
        self,
        file: IO[bytes],
        kept: FrozenSet[str],
        *,
        most_bytes: int = MOST_BYTES,
        most_events: int = MOST_EVENTS,
    ) -> None:
        packed = file.read(2) == _GZIP
        file.seek(0)
        self._file: IO[bytes] = gzip.GzipFile(fileobj=file) if packed else file  # type: ignore[assignment]
        self._text, self._at, self._ended = "", 0, False
        self._left = most_bytes
        self._most_bytes, self._most_events = most_bytes, most_events
        self._chars = codecs.getincrementaldecoder("utf-8")("replace")
        # Not strict: names of kernels may have any characters.
        self._decode = json.JSONDecoder(
            parse_float=str, parse_int=str, parse_constant=str, strict=False
        ).raw_decode
        self._kept = kept
        self.beside: Dict[str, Any] = {}
        """The values that were kept; all are here once the events are through."""
        self.count = 0
        """Events so far."""

    def events(self) -> Iterator[Dict[str, Any]]:
        """All that are objects.

        :raises BadTrace: it is no trace, not whole, or too large
        :raises OSError: it cannot be read
        """
        if self._next() != "{":
            raise BadTrace("it is not a trace: it does not begin with an object of JSON")
        self._at += 1
        found = False
        while self._next(_BETWEEN) != "}":
            name = self._value()
            if not isinstance(name, str) or self._next() != ":":
                raise BadTrace("it is not JSON")
            self._at += 1
            opening = self._next()
            if name == _EVENTS and opening == "[":
                self._at += 1
                found = True
                yield from self._array()
            else:
                value = self._value()
                if name in self._kept:
                    self.beside[name] = value
        if not found:
            raise BadTrace("it is not a trace: it has no %s" % _EVENTS)

    def _array(self) -> Iterator[Dict[str, Any]]:
        while self._next(_BETWEEN) != "]":
            event = self._value()
            self.count += 1
            if self.count > self._most_events:
                raise BadTrace(f"it has more than {self._most_events:,} events: profile fewer steps")
            if isinstance(event, dict):
                yield event
        self._at += 1

    def _next(self, between: re.Pattern[str] = _SPACE) -> str:
        """The next character that is not between values; it is not taken."""
        while True:
            found = between.match(self._text, self._at)
            self._at = found.end() if found else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            self._more()

    def _value(self) -> Any:
        while True:
            try:
                value, end = self._decode(self._text, self._at)
            except ValueError:
                self._more()
                continue
            except RecursionError:
                raise BadTrace("one of its values is nested too deep") from None
            # A number may go on in the next piece.
            if end < len(self._text) or self._ended:
                self._at = end
                return value
            self._more()

    def _more(self) -> None:
        """The next piece, as long as what is not understood yet: each character is tried twice at most."""
        rest = len(self._text) - self._at
        if self._ended:
            raise BadTrace("it is incomplete: it ends in the middle" if self._text else "it is empty")
        if rest > LONGEST:
            raise BadTrace("it is not JSON, or one of its values is longer than %d MB" % (LONGEST >> 20))
        try:
            data = self._file.read(max(_PIECE, rest))
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise BadTrace("it is incomplete: %s" % (str(error) or "gzip")) from None
        self._left -= len(data)
        if self._left < 0:
            raise BadTrace("it has more than %s, unpacked" % _size(self._most_bytes))
        self._ended = not data
        self._text = self._text[self._at :] + self._chars.decode(data, self._ended)
        self._at = 0


def _size(number: int) -> str:
    return "%d GB" % (number >> 30) if number >> 30 else "%d MB" % (number >> 20)
