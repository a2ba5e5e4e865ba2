"""Turn chunks of one log into its lines, as a person should see them."""

from __future__ import annotations

MAX_LINE = 1 << 20
"""Bytes of an unfinished line to keep before a piece of it is given out."""


class Cut(bytes):
    """A piece of a line longer than the limit: the line goes on in the next one given out."""


class LineAssembler:
    r"""Turns the bytes of one log, fed in order in chunks of any size, into lines.

    * ``\n`` and ``\r\n`` end a line; neither is part of it.
    * A line with carriage returns in it is its last non-empty state: what follows the last ``\r``, or
      stands before trailing ones. Earlier states were overwritten; they are not kept while waiting either.
    * A line of more than ``max_line`` bytes comes in pieces: :class:`Cut` ones of ``max_line`` bytes, then
      the rest as an ordinary line. So memory stays bounded whatever a rank writes.

    Without carriage returns, every byte fed is in exactly one line, however the chunks were cut.

    :param max_line: bytes
    """

    __slots__ = ("_max", "_overwritten", "_pieces", "_returned", "_size", "_span", "spans")

    def __init__(self, max_line: int = MAX_LINE) -> None:
        self._max = max_line
        # The state of the unfinished line, in pieces: joined once, when it is complete.
        self._pieces: list[bytes] = []
        self._size = 0
        self._returned = False  # the last byte was \r: the next one begins a new state
        self._overwritten = False
        self._span = 0
        self.spans: list[int] = []
        """Bytes of the log that each line of the last :meth:`feed` took, newline and old states included."""

    def feed(self, data: bytes) -> list[bytes]:
        """Take the next chunk; return the lines, and pieces of too long ones, that it completes."""
        lines = data.split(b"\n")
        tail = lines.pop()
        self.spans = []
        done: list[bytes] = []
        if lines:
            if self._span:
                self._add(lines.pop(0), done)
                done.append(self._take(1))
            if len(data) > self._max and any(len(line) > self._max for line in lines):
                for line in lines:
                    self._add(line, done)
                    done.append(self._take(1))
            else:
                self.spans += [len(line) + 1 for line in lines]
                if b"\r" in data:
                    lines = [last_state(line) if b"\r" in line else line for line in lines]
                done = done + lines if done else lines
        if tail:
            self._add(tail, done)
        return done

    def pending(self) -> bytes:
        """Return the state of the unfinished line, empty if there is none."""
        if len(self._pieces) > 1:
            self._pieces = [b"".join(self._pieces)]
        return self._pieces[0] if self._pieces else b""

    @property
    def overwrites(self) -> bool:
        r"""Whether the unfinished line is a progress bar: there was a ``\r`` in it."""
        return self._overwritten or self._returned

    def finish(self) -> list[bytes]:
        """Return the unfinished line as a line, if there is one: the log has ended here."""
        self.spans = []
        return [self._take(0)] if self._span else []

    def _take(self, newline: int) -> bytes:
        line = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self.spans.append(self._span + newline)
        self._pieces = []
        self._size = self._span = 0
        self._returned = self._overwritten = False
        return line

    def _add(self, part: bytes, done: list[bytes]) -> None:
        """Append ``part``, which has no newline in it, to the unfinished line; cut pieces go to ``done``."""
        if not part:
            return
        self._span += len(part)
        state = part.rstrip(b"\r")
        trailing = len(part) - len(state)
        if state:
            start = state.rfind(b"\r") + 1
            if start or self._returned:
                self._pieces = []
                self._size = 0
                self._overwritten = True
            self._pieces.append(state[start:])
            self._size += len(state) - start
        self._returned = trailing > 0
        if self._size > self._max:
            whole = b"".join(self._pieces)
            # Never an empty rest: a line of exactly the limit is one line.
            last = (len(whole) - 1) // self._max * self._max
            for at in range(0, last, self._max):
                done.append(Cut(whole[at : at + self._max]))
                self.spans.append(self._max)
            rest = whole[last:]
            # What was overwritten belongs to the first piece; a trailing \r to the rest.
            self.spans[-(last // self._max)] += self._span - len(whole) - trailing
            self._pieces = [rest]
            self._size = len(rest)
            self._span = len(rest) + trailing


def last_state(line: bytes) -> bytes:
    r"""Return what a terminal shows of a line with carriage returns: its last non-empty state."""
    line = line.rstrip(b"\r")
    return line[line.rfind(b"\r") + 1 :]
