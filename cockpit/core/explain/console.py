"""One console of any size: what each speaker said near signs of a failure, and how much it printed.

Bytes come in blocks. What has no sign of a failure, a rule or a launcher is only searched, not read; what
has, and what is near it, is read line by line and kept by speaker, as much as the bound allows. How many
lines each speaker has is counted there, and in samples of the rest.
"""

from __future__ import annotations

import bisect
from array import array
from collections import Counter
from dataclasses import dataclass, field

from cockpit.core.explain import speaking
from cockpit.core.explain.gate import HEAVY, Gate
from cockpit.core.explain.launchers import LauncherFacts, renumbered
from cockpit.core.explain.speaking import NOBODY, Speaker
from cockpit.core.logs.cause_words import PROGRESS
from cockpit.core.logs.causes import SURVIVED
from cockpit.core.logs.prefixes import STYLE

PIECE = 16 << 10
"""Bytes that are searched, and read or passed over, at once."""
READ_FIRST = 1 << 20
READ_LAST = 64
"""Pieces at the end that are."""
NEAR_AFTER = 2
"""Pieces after one with a sign that are: what comes tells whether it was survived."""
SAMPLED = 10
"""Of so many pieces without a sign one is counted."""
LINE_MOST = 4000
"""Bytes that are kept of a line."""
ALL = 24 << 20
"""Bytes that are kept of all speakers together."""
EACH_MOST, EACH_LEAST = 1 << 20, 4 << 10
PROTECTED = 200
"""Lines from the first heavy one on that are kept however many come after it."""
BEFORE = 20
SPEAKERS = 1 << 13
"""More are nobody."""


class Window:
    """What is kept of one speaker: the last lines, and those around the first that was not survived."""

    __slots__ = ("heavy", "lines", "numbers", "progress", "size")

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.numbers = array("q")
        self.size = 0
        self.heavy = -1
        """The number of the first heavy line that was not survived; -1: there is none."""
        self.progress = 0

    def add(self, number: int, line: bytes, worth: int) -> None:
        """Take in a line."""
        if worth == HEAVY:
            if self.heavy < 0 or self.progress >= SURVIVED:
                self.heavy = number
            self.progress = 0
        elif self.heavy >= 0 and self.progress < SURVIVED and PROGRESS.search(line[:LINE_MOST]):
            self.progress += 1
        self.lines.append(line)
        self.numbers.append(number)
        self.size += len(line) + 1

    def trim(self, most: int) -> None:
        """Forget what is too much: what is neither last nor near the first heavy line."""
        if self.size <= most:
            return
        low = high = 0
        if self.heavy >= 0 and self.progress < SURVIVED:
            at = bisect.bisect_left(self.numbers, self.heavy)
            low, high = max(0, at - BEFORE), min(len(self.lines), at + PROTECTED)
        kept = self.lines[low:high]
        numbers = self.numbers[low:high]
        room = most - sum(map(len, kept)) - len(kept)
        while kept and room < most // 2:
            # Of a protected part that is too long its beginning counts.
            room += len(kept.pop()) + 1
            numbers.pop()
        high = low + len(kept) if kept else 0
        start = len(self.lines)
        while start > high and (room := room - len(self.lines[start - 1]) - 1) >= 0:
            start -= 1
        self.lines = kept + self.lines[start:]
        self.numbers = numbers + self.numbers[start:]
        self.size = sum(map(len, self.lines)) + len(self.lines)

    def merge(self, other: Window) -> None:
        """Take in the lines of another one, in their places."""
        both = sorted(
            [*zip(self.numbers, self.lines, strict=True), *zip(other.numbers, other.lines, strict=True)]
        )
        self.numbers = array("q", [number for number, _ in both])
        self.lines = [line for _, line in both]
        self.size += other.size
        if other.heavy >= 0 and (self.heavy < 0 or other.heavy < self.heavy):
            self.heavy, self.progress = other.heavy, other.progress


@dataclass
class ConsoleFacts:
    """What a console tells, after all of it was fed.

    :param lines: of all of it
    :param counts: lines of each speaker; exact if ``exact``
    :param sizes: bytes of each
    """

    windows: dict[Speaker, Window] = field(default_factory=dict)
    told: LauncherFacts = field(default_factory=LauncherFacts)
    lines: int = 0
    size: int = 0
    counts: Counter[Speaker] = field(default_factory=Counter)
    sizes: Counter[Speaker] = field(default_factory=Counter)
    exact: bool = True
    unfinished: bool = False
    """Whether its last line has no end."""


class Console:
    """Takes in the bytes of one console, in their order.

    :param budget: bytes to keep
    :param first: bytes that are read whatever is in them, at the beginning: launchers say there who is where
    """

    def __init__(self, gate: Gate, budget: int = ALL, *, first: int = READ_FIRST) -> None:
        self._gate = gate
        self._budget = budget
        self.heard = ConsoleFacts()
        self._read_until = first
        self._carry = b""
        self._within = False  # the carry continues a line whose beginning was read
        self._near = 0
        self._dull: list[tuple[int, bool, bytes]] = []  # the last pieces that were not read
        self._dull_bytes = 0
        self._passed = 0
        self._kept = 0
        self._most = budget
        self._sample_counts: Counter[Speaker] = Counter()
        self._sample_sizes: Counter[Speaker] = Counter()

    def feed(self, data: bytes) -> None:
        """Take in the next bytes; best a few hundred thousand."""
        if self._carry:
            data = self._carry + data
            self._carry = b""
        if b"\x1b" in data:
            coloured = len(data)
            data = STYLE.sub(b"", data)
            self.heard.size += coloured - len(data)
        at, size = 0, len(data)
        while at < size:
            end = data.rfind(b"\n", at, at + PIECE) + 1
            if not end and size - at < PIECE:
                self._carry = data[at:]
                return
            end = end or at + PIECE
            self._piece(data[at:end])
            at = end

    def finish(self) -> ConsoleFacts:
        """All of it was fed."""
        if self._carry:
            self._piece(self._carry)
            self._carry = b""
        for number, within, piece in self._dull:
            self._read(number, within, piece, {}, counted=True)
        self._dull.clear()
        self.heard.unfinished = self._within
        self.heard.lines += self._within
        dull = self._dull_bytes
        if dull and (sampled := sum(self._sample_sizes.values())):
            for speaker, count in self._sample_counts.items():
                self.heard.counts[speaker] += round(count * dull / sampled)
            for speaker, count in self._sample_sizes.items():
                self.heard.sizes[speaker] += round(count * dull / sampled)
            self.heard.exact = False
        if len(self.heard.counts) == 1:
            # All lines are one speaker's, as far as was seen.
            (speaker,) = self.heard.counts
            self.heard.counts[speaker], self.heard.sizes[speaker] = self.heard.lines, self.heard.size
            self.heard.exact = True
        self._trim(force=True)
        return self.heard

    def _piece(self, piece: bytes) -> None:
        heard = self.heard
        number, within = heard.lines, self._within
        worth = dict(self._gate.found_in(piece))
        if HEAVY in worth.values():
            for before in self._dull[-1:]:
                self._read(*before, {}, counted=True)
            self._dull.clear()
            self._near = NEAR_AFTER + 1
        if worth or self._near > 0 or heard.size < self._read_until:
            self._near -= 1
            self._read(number, within, piece, worth, counted=False)
        else:
            self._pass(number, within, piece)
        heard.lines += piece.count(b"\n")
        heard.size += len(piece)
        self._within = not piece.endswith(b"\n")

    def _pass(self, number: int, within: bool, piece: bytes) -> None:
        if self._passed % SAMPLED == 0:
            self._count(piece, within)
        self._passed += 1
        self._dull_bytes += len(piece)
        self._dull.append((number, within, piece))
        del self._dull[:-READ_LAST]

    def _count(self, piece: bytes, within: bool) -> None:
        counts, sizes = self._sample_counts, self._sample_sizes
        of_line = speaking.of_line
        lines = piece.split(b"\n")
        if not lines[-1]:
            lines.pop()
        for line in lines:
            speaker = of_line(line)
            counts[speaker] += 1
            sizes[speaker] += len(line) + 1
        if within:
            counts[NOBODY] -= 1

    def _read(self, number: int, within: bool, piece: bytes, worth: dict[int, int], *, counted: bool) -> None:
        """Keep the lines of a piece by speaker.

        :param counted: its lines are among those that samples stand for
        """
        heard, told = self.heard, self.heard.told
        at = 0
        for line in piece.split(b"\n"):
            start, at = at, at + len(line) + 1
            if start >= len(piece):
                break
            if within:
                within = False
                if start not in worth:
                    # The rest of a long line: its beginning was taken.
                    heard.sizes[NOBODY] += (at - start) * (not counted)
                    number += 1
                    continue
            if line.endswith(b"\r"):
                line = line.rstrip(b"\r")
            speaker = speaking.of_line(line)
            if not counted:
                heard.counts[speaker] += 1
                heard.sizes[speaker] += at - start
            if (
                speaker.kind in ("", "host", "actor", "local")
                and (rank := speaking.written(line)) is not None
            ):
                speaker = Speaker("rank", speaker.node, rank)
            window = heard.windows.get(speaker)
            if window is None:
                if len(heard.windows) >= SPEAKERS:
                    speaker = NOBODY
                window = heard.windows.setdefault(speaker, Window())
            each = worth.get(start, 0)
            if each or b" : " in line:
                told.hear(line[:65536], number, speaker.node)
            if len(line) > LINE_MOST and not each:
                line = line[: LINE_MOST // 2] + b" ... " + line[-LINE_MOST // 2 :]
            if line:
                window.add(number, line, each)
                self._kept += len(line) + 1
            number += 1
        self._trim()

    def _trim(self, *, force: bool = False) -> None:
        if self._kept <= self._most and not force:
            return
        windows = self.heard.windows.values()
        most = max(EACH_LEAST, min(EACH_MOST, self._budget // 2 // max(1, len(windows))))
        for window in windows:
            window.trim(most)
        self._kept = sum(window.size for window in windows)
        # What many speakers need at least may be more than that: not all is trimmed again at once.
        self._most = max(self._budget, 2 * self._kept)


def joined(parts: list[ConsoleFacts]) -> ConsoleFacts:
    """What parts of one console tell, in their order, as one."""
    if len(parts) == 1:
        return parts[0]
    whole = ConsoleFacts()
    shifts = []
    for part in parts:
        shifts.append(whole.lines)
        for speaker, window in part.windows.items():
            moved = Window()
            moved.lines, moved.size, moved.progress = window.lines, window.size, window.progress
            moved.numbers = array("q", [number + whole.lines for number in window.numbers])
            moved.heavy = window.heavy + whole.lines if window.heavy >= 0 else -1
            known = whole.windows.get(speaker)
            if known is None:
                whole.windows[speaker] = moved
            else:
                known.merge(moved)
        # A line that two parts share is one.
        whole.lines += part.lines - (part.unfinished and part is not parts[-1])
        whole.size += part.size
        whole.counts += part.counts
        whole.sizes += part.sizes
        whole.exact &= part.exact
    whole.told = renumbered([part.told for part in parts], shifts)
    return whole
